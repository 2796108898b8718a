/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_TOTALS_H
#define MT_RECORD_TOTALS_H
/*
 * What a capture of any length was in numbers, in bounded memory: for the process and for each
 * device, at steps of time that are coarser the longer ago they are. The coarsest reaches back to
 * the beginning, always: where it has no room for more its step doubles. A step in which nothing
 * happened has no row.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "record/stream.h"

struct totals;

#define TOTALS_FILE "totals.json" /* in a rolling folder */
#define TOTALS_DEVICES                                                                             \
	64 /* of which there are numbers; events of more are counted for the process alone */

/* Since the beginning. */
struct totals_device {
	struct device device;
	uint64_t allocated, reserved; /* now */
	uint64_t peak_allocated, peak_time,
		peak_step; /* first reached; time in ns, steps before it */
	uint64_t peak_reserved, peak_reserved_time;
	uint64_t allocs, frees, total_allocated, ooms;
};
struct totals_whole {
	uint64_t events, lost, steps, last; /* last: ns, of an event */
	uint32_t devices;
};

/* max_bytes: of what totals__write() writes, at most; at least 16 KiB. NULL on ENOMEM. */
struct totals *totals__new(uint64_t max_bytes);
void totals__free(struct totals *t); /* NULL is fine */
/* An event, and what is allocated and reserved on its device after it. 0 or -ENOMEM. */
int totals__event(struct totals *t, const struct event *e, uint64_t allocated, uint64_t reserved);
void totals__whole(const struct totals *t, struct totals_whole *ret);
bool totals__device(const struct totals *t, uint32_t i,
		    struct totals_device *ret); /* false: no more */

struct json;
/* The rows as docs/LONG.md describes them: the members "whole" and "series" of an object that is
 * open. */
void totals__json(const struct totals *t, struct json *j);

#endif
