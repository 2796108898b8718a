/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The state after a series of events: live blocks, memory taken from CUDA, segments and totals. The
 * set takes events one by one. It can write its state as a new, shortest series of events that
 * leads to the same state. Its memory grows with the number of live blocks.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct live_set;

/* Bytes held on one device after the latest event: the allocator's own totals, or, if it reports
 * none, the sum of the blocks. */
struct flight_level {
	struct device device;
	uint64_t allocated, reserved;
	uint64_t peak_allocated, peak_reserved; /* peaks since live_set__new_peaks() */
};

struct live_set *live_set__new(void);	 /* NULL if memory is short */
void live_set__free(struct live_set *b); /* NULL is fine */
/* Changes the state by one event. Returns 0, or -ENOMEM, after which the set is incomplete. */
int live_set__fold(struct live_set *b, const struct event *e);
/* Calls fn for each event of a series that leads to this state. All have the given time. Order:
 * EVENT_LOST if records were lost; EVENT_CUDA_ALLOC, EVENT_CUDA_FREE and EVENT_SEGMENT in the order
 * of arrival; for each device EVENT_BLOCK by address, each followed by its EVENT_TENSOR, then
 * EVENT_STATE if the totals are known, then the latest EVENT_CENSUS, EVENT_USED and EVENT_LEFT; the
 * EVENT_HOST of the latest reading; at last the open scopes. Returns 0, the first nonzero result of
 * fn, or -ENOMEM.
 */
int live_set__emit(const struct live_set *b, uint64_t time,
		   int (*fn)(void *ctx, const struct event *e), void *ctx);
uint64_t live_set__blocks(const struct live_set *b); /* number of live blocks */
/* Sets *ret for the i-th device that had an event, from 0. Returns false if there are not so many. */
bool live_set__level(const struct live_set *b, size_t i, struct flight_level *ret);
void live_set__new_peaks(struct live_set *b); /* resets peaks to the present values */
