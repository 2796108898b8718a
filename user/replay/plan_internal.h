/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_PLAN_INTERNAL_H
#define MT_REPLAY_PLAN_INTERNAL_H
/* What the parts of replay_plan share: its output, and whose pool a block is of. */
#include <stddef.h>

#include "lib/map64.h"
#include "replay/plan.h"
#include "replay/wire.h"

/* ---- plan_out.c: operations into the file ---- */

struct plan_out {
	int fd;
	uint64_t at; /* bytes written */
	size_t n;
	uint8_t buf[1 << 16];
	uint64_t event, time; /* of the last operation that had them */
};

/* All: 0 or -errno. */
int plan_out__bytes(struct plan_out *o, const void *data, size_t size);
/* An operation with n numbers behind it. */
int plan_out__op(struct plan_out *o, enum replay_op op, const uint64_t *v, size_t n);
/* With EVENT in front of them. */
int plan_out__event(struct plan_out *o, enum replay_op op, uint64_t event, uint64_t time,
		    const uint64_t *v, size_t n);
int plan_out__flush(struct plan_out *o);

/* ---- plan_pools.c: segments, and whose they are ---- */

struct plan_segment {
	uint64_t addr, size;
	uint32_t number; /* never used again; 0 is of blocks in no known segment */
};

enum plan_size { PLAN_ANY, PLAN_SMALL, PLAN_LARGE, PLAN_SIZES };

struct plan_owner {	/* of a segment, by its number */
	uint32_t pool1; /* 1 + its pool; 0: nobody has said */
	bool has_asked;
	bool range; /* the addresses of an expandable segment: a pool has one for small and one for
		       large blocks */
	uint8_t size;	/* enum plan_size of the blocks in it */
	uint64_t asked; /* stream, as an allocation in it named it */
};

struct plan_pool {
	uint64_t stream, id[2];
};

struct plan_pools {
	struct plan_segment *segments; /* there now, by address */
	size_t n, cap;
	struct plan_owner *owners;
	size_t n_owners, cap_owners;
	struct plan_pool pools[REPLAY_MAX_POOLS];
	uint32_t n_pools;
};

/* 0 or -ENOMEM. */
int plan_pools__init(struct plan_pools *p);
void plan_pools__free(struct plan_pools *p);
/* A segment is there; what lay there before is not. -ENOMEM. */
int plan_pools__add(struct plan_pools *p, uint64_t addr, uint64_t size, bool range);
/* Memory was mapped right behind one: it is the same one, and larger. Nothing where there is none,
 * or no room. */
void plan_pools__extend(struct plan_pools *p, uint64_t addr, uint64_t size);
/* One that begins there is given back. False: there was none. */
bool plan_pools__remove(struct plan_pools *p, uint64_t addr);
/* NULL: in none. */
struct plan_segment *plan_pools__find(struct plan_pools *p, uint64_t addr);
/* It is said to be of this stream and pool: of all of it, or, by an allocation, of its stream
 * alone. */
void plan_pools__is_of(struct plan_pools *p, uint32_t number, uint64_t stream,
		       const uint64_t id[2]);
void plan_pools__asked_of(struct plan_pools *p, uint32_t number, uint64_t stream);
/* A block of that size was handed out in it. */
void plan_pools__has(struct plan_pools *p, uint32_t number, uint64_t size);
/* At the end: the pool of each number, and how many nobody knew. owners[i].pool1 is not 0 any more.
 * 0 or -ENOMEM. */
int plan_pools__settle(struct plan_pools *p, unsigned *unknown);

/* ---- plan_state.c: what was there before the first event ---- */

struct plan_state {
	struct event *segments, *blocks;
	size_t n_segments, cap_segments, n_blocks, cap_blocks;
	bool over; /* all has been told, or an event came */
};

struct replay_plan_maker {
	struct plan_out out;
	struct plan_pools pools;
	struct plan_state state;
	struct map64 *live; /* address -> slot */
	uint32_t *free_slots;
	size_t n_free, cap_free;
	uint32_t n_slots;
	/* Memory that others have from the device. */
	struct map64 *others; /* address or handle -> number */
	uint64_t *other_size; /* by number */
	size_t cap_other_size;
	uint32_t *free_others;
	size_t n_free_others, cap_free_others;
	uint32_t n_others;
	uint64_t others_bytes;
	struct event pending; /* an allocation whose EVENT_REQUESTED may come */
	uint64_t pending_index;
	uint32_t pending_stack;
	bool has_pending;
	uint32_t segment;  /* of the last REPLAY_POOL */
	uint64_t reserved; /* of the last event with totals */
	uint64_t expected; /* of the last REPLAY_RESERVED */
	bool has_totals, has_expected;
	/* Memory that the allocator gave back, and took, since its last event. */
	bool gave, took;
	uint64_t took_bytes;
	uint64_t highest_used;
	uint8_t device;
	uint64_t total;
	struct replay_plan_info info;
};

/* Keeps it. 0 or -ENOMEM. */
int plan_state__keep(struct plan_state *s, const struct event *e);
void plan_state__free(struct plan_state *s);
/* Writes all that was kept; e: EVENT_STATE, or the first other event. 0 or -errno. */
int plan_state__write(struct replay_plan_maker *p, const struct event *e);

/* A slot for a block at that address. 0 or -errno. */
int replay_plan__slot(struct replay_plan_maker *p, uint64_t addr, uint32_t *ret);

#endif
