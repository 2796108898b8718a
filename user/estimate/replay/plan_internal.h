/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Data shared by the parts of replay_plan: the output, and the pools of blocks. */
#include <stddef.h>

#include "base/map64.h"
#include "estimate/replay/plan.h"
#include "estimate/replay/wire.h"

/* ---- plan_out.c: writing operations ---- */

struct plan_out {
	int fd;
	uint64_t at; /* bytes written */
	size_t n;
	uint8_t buf[1 << 16];
	uint64_t event, time; /* event and time of the last operation with EVENT */
};

/* Writes raw bytes. All functions return 0 or -errno. */
int plan_out__bytes(struct plan_out *o, const void *data, size_t size);
/* Writes an operation with n numbers. */
int plan_out__op(struct plan_out *o, enum replay_op op, const uint64_t *v, size_t n);
/* Writes an operation with EVENT and n numbers. */
int plan_out__event(struct plan_out *o, enum replay_op op, uint64_t event, uint64_t time,
		    const uint64_t *v, size_t n);
int plan_out__flush(struct plan_out *o);

/* ---- plan_pools.c: segments and their pools ---- */

struct plan_segment {
	uint64_t addr, size;
	uint32_t number; /* unique number; 0: blocks in no known segment */
};

enum plan_size { PLAN_ANY, PLAN_SMALL, PLAN_LARGE, PLAN_SIZES };

/* The pool of a segment, by the segment's number. */
struct plan_owner {
	uint32_t pool1; /* 1 + pool; 0: unknown */
	bool has_stream;
	/* True for the address range of an expandable segment. A pool has one for small and one for
	 * large blocks. */
	bool range;
	uint8_t size;	 /* enum plan_size of the segment's blocks */
	uint64_t stream; /* stream according to an allocation in the segment */
};

struct plan_pool {
	uint64_t stream, id[2];
};

struct plan_pools {
	struct plan_segment *segments; /* present segments, by address */
	size_t n, cap;
	struct plan_owner *owners;
	size_t n_owners, cap_owners;
	struct plan_pool pools[REPLAY_MAX_POOLS];
	uint32_t n_pools;
};

/* Returns 0 or -ENOMEM. */
int plan_pools__init(struct plan_pools *p);
void plan_pools__free(struct plan_pools *p);
/* Adds a segment and removes segments that it overlaps. Returns 0 or -ENOMEM. */
int plan_pools__add(struct plan_pools *p, uint64_t addr, uint64_t size, bool range);
/* Extends the segment that ends at addr. Does nothing without such a segment, or if another segment
 * follows too closely. */
void plan_pools__extend(struct plan_pools *p, uint64_t addr, uint64_t size);
/* Removes the segment that starts at addr. False: no such segment. */
bool plan_pools__remove(struct plan_pools *p, uint64_t addr);
/* Returns the segment that contains addr, or NULL. */
struct plan_segment *plan_pools__find(struct plan_pools *p, uint64_t addr);
/* plan_pools__set_pool() sets a segment's stream and private pool, from the allocator's tables.
 * plan_pools__set_stream() sets only its stream, from an allocation. */
void plan_pools__set_pool(struct plan_pools *p, uint32_t number, uint64_t stream,
			  const uint64_t id[2]);
void plan_pools__set_stream(struct plan_pools *p, uint32_t number, uint64_t stream);
/* Notes the size of a block in the segment. */
void plan_pools__note_block(struct plan_pools *p, uint32_t number, uint64_t size);
/* Chooses a pool for every segment at the end, so that no pool1 is 0. *unknown: segments whose
 * stream is unknown. Returns 0 or -ENOMEM. */
int plan_pools__settle(struct plan_pools *p, unsigned *unknown);

/* ---- plan.c ---- */

/* Blocks and segments from before the first event. */

struct plan_state {
	struct event *segments, *blocks;
	size_t n_segments, cap_segments, n_blocks, cap_blocks;
	bool over; /* true after an EVENT_STATE or the first other event */
};

struct replay_plan_maker {
	struct plan_out out;
	struct plan_pools pools;
	struct plan_state state;
	struct map64 *live; /* address -> slot */
	uint32_t *free_slots;
	size_t n_free, cap_free;
	uint32_t n_slots;
	/* Device memory of other code than the allocator. */
	struct map64 *others; /* address or handle -> number */
	uint64_t *other_size; /* size by number */
	size_t cap_other_size;
	uint32_t *free_others;
	size_t n_free_others, cap_free_others;
	uint32_t n_others;
	uint64_t others_bytes;
	struct event pending; /* allocation that may still get an EVENT_REQUESTED */
	uint64_t pending_index;
	uint32_t pending_stack;
	bool has_pending;
	uint32_t segment;  /* segment of the last REPLAY_POOL */
	uint64_t reserved; /* reserved bytes after the last event with totals */
	uint64_t expected; /* value of the last REPLAY_RESERVED */
	bool has_totals, has_expected;
	/* Memory that the allocator gave back or took since its last event. */
	bool gave, took;
	uint64_t took_bytes;
	uint64_t highest_used;
	uint8_t device;
	uint64_t total;
	struct replay_plan_info info;
};
