/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_LIVE_SET_H
#define MT_RECORD_LIVE_SET_H
/*
 * What is there after some events: blocks, what was taken from CUDA, segments, totals. Events go in
 * one after the other; what comes out are events again, as few as tell the same. The memory it
 * takes goes with what is live.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct live_set;

/* How much of a device is held, after what was folded last; the allocator's own totals where it
 * carries them. */
struct flight_level {
	struct device device;
	bool totals;
	uint64_t allocated, reserved;
	uint64_t peak_allocated, peak_reserved; /* since live_set__new_peaks() */
};

struct live_set *live_set__new(void);	 /* NULL on ENOMEM */
void live_set__free(struct live_set *b); /* NULL is fine */
/* 0 or -ENOMEM, after which it tells of less than there is. */
int live_set__fold(struct live_set *b, const struct event *e);
/*
 * Tells fn what is there, all at the given time: EVENT_LOST if records were lost, EVENT_CUDA_ALLOC,
 * _GIVE and _SEGMENT in the order in which they came, EVENT_BLOCK by address with stack, thread,
 * node and what was asked for, each followed by what EVENT_TENSOR said of it, EVENT_STATE for
 * devices whose totals are known, the last EVENT_CENSUS, the last EVENT_USED and EVENT_LEFT. 0, the
 * first that fn returned other than 0, or -ENOMEM.
 */
int live_set__tell(const struct live_set *b, uint64_t time,
		   int (*fn)(void *ctx, const struct event *e), void *ctx);
uint64_t live_set__blocks(const struct live_set *b); /* live */
/* Of the i-th device that was heard of, from 0 on. False: there is none. */
bool live_set__level(const struct live_set *b, size_t i, struct flight_level *ret);
void live_set__new_peaks(struct live_set *b); /* peaks are what is there now */

#endif
