/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Pinned host memory in a snapshot (PyTorch 2.15, record_pinned_host_memory): host_traces has
 * PyTorch's calls of cudaHostAlloc and cudaFreeHost as segment_alloc and segment_free, and
 * host_segments the memory that it has at the end. */
#include <stddef.h>
#include <stdint.h>

#include "record/snapshot/records.h"

/* Memory from before the trace. */
struct pinned_range {
	uint64_t addr, size;
	uint32_t stack; /* in the dict; 0: none */
};

/* Finds what was pinned when the trace began: what the trace returns and does not take, and the
 * segments of the end that it does not mention. trace, segments: NULL: none. Returns 0 and *ret,
 * which the caller frees, with *n ranges, or -ENOMEM. */
int pinned__before(const struct records *r, const struct value_list *trace,
		   const struct value_list *segments, struct pinned_range **ret, size_t *n);
