/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The detail of a recording over its time, as the fact "cost.changes" has it:
 *
 *   TIME:OFF:BELOW:SHARE ...
 *
 * One entry a change, in the order of time: ns since start, mt_detail.off and .sample_below from
 * then on, and the share of the target's time that the capture added before it, in millionths.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct json;

#define DETAIL_MAX 512 /* changes */
/* File and function of the one frame on the stack of allocations that were not drawn. */
#define DETAIL_FILE "not sampled"
#define DETAIL_FUNCTION "small blocks"

struct detail_change {
	uint64_t time;	/* ns since start */
	uint64_t below; /* bytes; 0: all allocations are walked */
	uint32_t off;	/* enum mt_off */
	uint32_t share; /* millionths */
};

struct detail {
	size_t n;
	struct detail_change at[DETAIL_MAX];
	double limit; /* the share that was asked for; 0: no limit */
	double share; /* mean over the whole capture; negative: unknown */
};

/* Adds a change to the fact. Without effect once there are DETAIL_MAX. 0 or -errno. */
int detail__add(struct facts *f, const struct detail_change *c);
/* Reads the facts. False: the capture had no limit. Damaged entries end the list. */
bool detail__read(const struct facts *f, struct detail *ret);
/*
 * Writes what a recording with a limit lacks, for people: "tracing took 33.4 % of the target's
 * time, 1 % was the limit. Not recorded: backward nodes (from 1.52 s), ...". "": it had no limit,
 * or it kept the limit and lacks nothing. DETAIL_TEXT bytes suffice. Returns buf.
 */
#define DETAIL_TEXT 512
char *detail__sentence(char *buf, size_t size, const struct facts *f);
/* Adds the object "detail" to a document; nothing if the recording had no limit:
 * docs/reference/report.md. */
void detail__put(struct json *j, const struct facts *f);
/* Name of the EVENT_MARK at a change of detail. Returns buf. */
char *detail__mark(char *buf, size_t size, uint32_t off, uint64_t below);
/* Reads mt_detail.sample_below from such a name; false: it is another mark. */
bool detail__from_mark(const char *name, uint64_t *below);
/* Writes what is left out: "backward nodes, module calls, most stacks of blocks below 64.0 KiB"; ""
 * if nothing is. Returns buf. */
char *detail__words(char *buf, size_t size, uint32_t off, uint64_t below);
