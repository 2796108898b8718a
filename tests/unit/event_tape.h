/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TESTS_EVENT_TAPE_H
#define MT_TESTS_EVENT_TAPE_H
/*
 * A stream of events in which every kind occurs, with the rare orders: docs/FORMAT.md ("What the
 * events mean") has the rules. Whatever computes what is live must agree on it. Stacks, threads and
 * names are number 0.
 */
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

#define TAPE_CUDA .device = { .type = DEVICE_CUDA }
#define TAPE_MIB (UINT64_C(1) << 20)
#define TAPE_SEG UINT64_C(0x7f0000000000)
/* Totals that the allocator reports, in bytes. */
#define TAPE_TOTALS(a, r) .totals = true, .allocated = (a), .reserved = (r)

static const struct event event_tape[] = {
	/* At attach: a segment of 20 MiB with blocks of 2, 3 and 1 MiB; the last is pending. */
	{ .kind = EVENT_SEGMENT, TAPE_CUDA, .addr = TAPE_SEG, .size = 20 * TAPE_MIB },
	{ .kind = EVENT_BLOCK, TAPE_CUDA, .addr = TAPE_SEG, .size = 2 * TAPE_MIB },
	{ .kind = EVENT_BLOCK,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 2 * TAPE_MIB,
	  .size = 3 * TAPE_MIB,
	  .requested = 3 * TAPE_MIB - 7 },
	{ .kind = EVENT_BLOCK,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 5 * TAPE_MIB,
	  .size = TAPE_MIB,
	  .flags = BLOCK_PENDING },
	{ .kind = EVENT_STATE,
	  TAPE_CUDA,
	  TAPE_TOTALS(5 * TAPE_MIB, 20 * TAPE_MIB),
	  .flags = STATE_EXACT | STATE_SEGMENTS_EXACT },
	{ .kind = EVENT_TENSOR,
	  TAPE_CUDA,
	  .addr = TAPE_SEG,
	  .size = 2 * TAPE_MIB - 512,
	  .flags = CENSUS_FIRST,
	  .category = CATEGORY_PARAMETER },
	{ .kind = EVENT_CENSUS, TAPE_CUDA, .size = 2 * TAPE_MIB - 512, .flags = CENSUS_FIRST },
	{ .kind = EVENT_USED, .time = 1000, TAPE_CUDA, .size = 600 * TAPE_MIB },
	{ .kind = EVENT_LEFT, .time = 1000, TAPE_CUDA, .size = 400 * TAPE_MIB },
	/* A new block, and what the program asked for. */
	{ .kind = EVENT_ALLOC,
	  .time = 2000,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 6 * TAPE_MIB,
	  .size = 4 * TAPE_MIB,
	  TAPE_TOTALS(9 * TAPE_MIB, 20 * TAPE_MIB) },
	{ .kind = EVENT_REQUESTED,
	  .time = 2001,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 6 * TAPE_MIB,
	  .requested = 4 * TAPE_MIB - 100 },
	/* A second segment, taken by the allocator. */
	{ .kind = EVENT_CUDA_ALLOC,
	  .time = 3000,
	  TAPE_CUDA,
	  .how = MEM_DEVICE,
	  .flags = MEM_BY_ALLOCATOR,
	  .addr = TAPE_SEG + 64 * TAPE_MIB,
	  .size = 30 * TAPE_MIB },
	{ .kind = EVENT_ALLOC,
	  .time = 3001,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 64 * TAPE_MIB,
	  .size = 30 * TAPE_MIB,
	  TAPE_TOTALS(39 * TAPE_MIB, 50 * TAPE_MIB) },
	{ .kind = EVENT_CALL, .time = 3100, .module = 0 },
	{ .kind = EVENT_STEP, .time = 3200 },
	/* The program frees a block from before attach. */
	{ .kind = EVENT_FREE,
	  .time = 4000,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 2 * TAPE_MIB,
	  .size = 3 * TAPE_MIB,
	  TAPE_TOTALS(36 * TAPE_MIB, 50 * TAPE_MIB) },
	/* The free of the 4 MiB block was lost: another block comes to its address. */
	{ .kind = EVENT_LOST, .time = 5000, .size = 1 },
	{ .kind = EVENT_ALLOC,
	  .time = 5001,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 6 * TAPE_MIB,
	  .size = TAPE_MIB,
	  TAPE_TOTALS(33 * TAPE_MIB, 50 * TAPE_MIB) },
	{ .kind = EVENT_LOST, .time = 5002 },
	/* A free of a block that no event brought. */
	{ .kind = EVENT_FREE,
	  .time = 6000,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 19 * TAPE_MIB,
	  .size = 0,
	  TAPE_TOTALS(33 * TAPE_MIB, 50 * TAPE_MIB) },
	/* The second segment's block goes, then the segment. */
	{ .kind = EVENT_FREE,
	  .time = 7000,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 64 * TAPE_MIB,
	  .size = 30 * TAPE_MIB,
	  TAPE_TOTALS(3 * TAPE_MIB, 50 * TAPE_MIB) },
	{ .kind = EVENT_CUDA_FREE,
	  .time = 7500,
	  TAPE_CUDA,
	  .how = MEM_DEVICE,
	  .flags = MEM_BY_ALLOCATOR,
	  .addr = TAPE_SEG + 64 * TAPE_MIB },
	{ .kind = EVENT_OOM,
	  .time = 8000,
	  TAPE_CUDA,
	  .size = 900 * TAPE_MIB,
	  TAPE_TOTALS(3 * TAPE_MIB, 20 * TAPE_MIB) },
	{ .kind = EVENT_MARK, .time = 8500 },
	/* The CPU's allocator keeps no totals. */
	{ .kind = EVENT_ALLOC, .time = 9000, .addr = 0x5000, .size = 4096 },
	{ .kind = EVENT_ALLOC, .time = 9001, .addr = 0x9000, .size = 8192 },
	{ .kind = EVENT_ENTER, .time = 9002 },
	{ .kind = EVENT_FREE, .time = 9003, .addr = 0x5000 },
	{ .kind = EVENT_LEAVE, .time = 9004 },
	{ .kind = EVENT_ALLOC,
	  .time = 9900,
	  TAPE_CUDA,
	  .addr = TAPE_SEG + 8 * TAPE_MIB,
	  .size = 512,
	  TAPE_TOTALS(3 * TAPE_MIB + 512, 20 * TAPE_MIB) },
};
#define TAPE_LENGTH (sizeof(event_tape) / sizeof(*event_tape))

#endif
