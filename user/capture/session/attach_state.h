/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The state of the CUDA allocator when the probes came into place: T0. Its tables are read while it
 * goes on working, so one reading may be torn. But all that changed since T0 is in the log of
 * events, and an address that is not in the log has not changed. So for each address:
 *
 *   first event in the log     at T0
 *   a free                     a block was there, of the size in the event
 *   an alloc                   no block was there
 *   none                       a block was there if any reading saw one
 *
 * The sum of the blocks at T0 is the first event's total less its own size. Readings are added
 * until the blocks found add up to it. Segments are found in the same way, by the calls into CUDA.
 *
 * Meanwhile events are held here. At the end attach_state__next() returns the blocks and segments
 * of T0, then the events. Knows nothing of processes. All devices are of type CUDA.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/cudaalloc.h"
#include "record/stream.h"

struct attach_state;

struct attach_state *attach_state__new(void);	 /* NULL on ENOMEM */
void attach_state__free(struct attach_state *s); /* NULL is fine */

/*
 * Adds segments as they were shortly before T0. A call that gives a segment back does not say its
 * size, and later readings do not see it. Segments that changed before T0 show in the sums. 0 or
 * -ENOMEM.
 */
int attach_state__hint(struct attach_state *s, const struct cuda_segment *v, size_t n);
/* Holds an event; call it in order. 0 or -ENOMEM. While the probe is in place on some CPUs only,
 * events may be missing, as their totals tell. T0 is after these, and they are dropped. */
int attach_state__hold(struct attach_state *s, const struct event *e);
size_t attach_state__held(const struct attach_state *s);
/* Adds a reading that began after T0. Events up to its end must be held before
 * attach_state__exact() is called. 0 or -ENOMEM. */
int attach_state__read(struct attach_state *s, const struct cudaalloc_state *r);
/* 1 if blocks and segments found so far add up to the totals on every device; 0 or -ENOMEM. */
int attach_state__exact(struct attach_state *s);
/* True if every segment was read from end to end, which tells its kind. */
bool attach_state__segments_whole(const struct attach_state *s);
/* Ends the holding: call attach_state__next() until it returns NULL, and nothing else. 0 or
 * -ENOMEM. */
int attach_state__end(struct attach_state *s);
/*
 * The next event of the stream, valid until the next call: first the state at T0 by device
 * (EVENT_SEGMENT and EVENT_BLOCK by address, then EVENT_STATE), unless nothing was read of a device
 * that was in use; then all events held. NULL: no more.
 */
const struct event *attach_state__next(struct attach_state *s);

/*
 * If no event of a device was held, T0 is the reading, which may have been within a call: the
 * allocator's tables have the change, and its event follows. The allocator is locked meanwhile, so
 * this is at most the next event of the device. It belongs to T0 and is dropped. All 0 at first.
 */
struct state_seam {
	bool open[256]; /* by device */
	uint64_t allocated[256];
};

/* Call it for each event that attach_state__next() returned. */
void state_seam__emitted(struct state_seam *m, const struct event *e);
/* Call it for each later event. True if T0 contains its change. */
bool state_seam__before(struct state_seam *m, const struct event *e);
