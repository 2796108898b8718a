/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Converts a recording's events of one device to a plan for the replayer (wire.h). The replaying
 * allocator chooses the addresses, so a plan has slots instead. The plan maker infers two facts
 * that a recording lacks. A block's stream and pool follow from its segment, and memory given back
 * shows when the program emptied the cache.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct map64;
struct replay_plan_maker;

/* Facts about the plan. Sizes are in bytes. */
struct replay_plan_info {
	uint64_t events; /* number of allocations and frees on the device */
	uint64_t allocs;
	uint64_t peak_allocated, peak_reserved; /* recorded peaks; 0: the recording has no totals */
	uint64_t before;			/* bytes of blocks from before the first event */
	bool before_known; /* true if the blocks from before are known; otherwise the plan lacks
			      them */
	bool before_exact; /* true if the segments of those blocks are known, to the byte */
	uint64_t unknown_frees; /* number of frees of unknown blocks; the plan does not have them */
	/* Blocks whose free is missing, inferred from a new block at the address. */
	uint64_t mended;
	uint64_t lost;
	uint64_t asked;	  /* number of allocations whose requested bytes are known */
	uint64_t empties; /* times the program emptied the cache */
	uint64_t retries; /* times a full device made the allocator give back cached memory */
	uint64_t ooms;
	/* Largest driver-reported use minus all memory known from calls. */
	uint64_t context;
	bool context_known;
	/* True if the blocks are CUDA calls, from an allocator other than the native one. */
	bool async;
	uint32_t pools;
	/* Segments of unknown stream, or of a pool beyond REPLAY_MAX_POOLS. The plan has them in
	 * the pool of the default stream. */
	unsigned pools_unknown;
};

/* Makes a plan, which is written to fd from its start. device: index of the CUDA device; total: its
 * memory in bytes, 0: unknown. Returns NULL and sets errno on an error. */
struct replay_plan_maker *replay_plan__new(int fd, uint8_t device, uint64_t total);
/* Adds the recording's next event, of any device. index: its number; stack: the stack that the
 * event is charged to. Returns 0, -ENOMEM, -EFBIG (too many live blocks), or -errno of a write. */
int replay_plan__event(struct replay_plan_maker *p, const struct event *e, uint64_t index,
		       uint32_t stack);
/* Writes the end of the plan and sets *ret. Returns 0 or -errno. */
int replay_plan__finish(struct replay_plan_maker *p, struct replay_plan_info *ret);
/* Returns the map of live blocks, address -> slot, which p owns. */
const struct map64 *replay_plan__live(const struct replay_plan_maker *p);
void replay_plan__free(struct replay_plan_maker *p); /* NULL is fine */
