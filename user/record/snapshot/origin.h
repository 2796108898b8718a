/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The state of a device at the begin of its trace. A snapshot has the state at its end; the trace,
 * read backwards, leads to that at its begin. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/snapshot/records.h"

struct origin_segment {
	uint64_t addr, size, stream;
	uint32_t pool_no;
	bool small, mapped; /* mapped: part of an expandable segment */
};

/* A block from before the trace. */
struct origin_block {
	uint64_t addr, size, requested, stream;
	uint32_t stack;
	bool waits;		 /* freed, and a stream still uses it */
	uint32_t metadata, node; /* as in snapshot_block */
};

struct origin {
	struct origin_segment *segments;
	struct origin_block *blocks;
	size_t n_segments, n_blocks; /* both in order of addresses */
	uint64_t allocated, reserved;
	/* The size of some block is only known up to a MiB, because the trace has its request. */
	bool rounded;
};

/* Finds the state at the begin of the device's trace, and sets entry.block of allocations whose
 * block is there at the end. Returns 0 and *ret, for origin__free(), -ENOMEM
 * (also: the limit on memory), or -ENOSPC: the trace moves too many segments. */
int origin__find(struct records *r, const struct value_list *trace, uint32_t device,
		 struct origin *ret);
void origin__free(struct origin *o);
