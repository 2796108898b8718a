/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_ATTACH_STATE_H
#define MT_CAPTURE_ATTACH_STATE_H
/*
 * What the allocator held at the moment the probes came: T0. Its tables are read while it goes on
 * working, so one reading may be torn: but everything that changed since T0 is in the log of
 * events, and what is not in the log has not changed. So, of each address:
 *
 *   the log's first event is a free      a block was there at T0, of the size that the event says
 *   the log's first event is an alloc    none was
 *   nothing in the log                   what any reading saw there was there at T0
 *
 * Whether all were found is known to the byte: the first event's total, less its own size, is the
 * sum of the blocks at T0. Readings are added until it comes out. Segments likewise, by the calls
 * into CUDA.
 *
 * Meanwhile the events wait here; attach_state__next() returns blocks and segments of T0, then the
 * events.
 *
 * Pure: knows nothing of processes. Devices are of type CUDA.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct attach_state;

struct state_block {
	uint64_t addr, size, requested, stream;
	uint8_t device;
	bool pending; /* freed, and waits for a stream */
};

struct state_segment {
	uint64_t addr, size, stream, pool[2];
	uint8_t device;
	bool small, expandable;
	bool partial; /* it may reach further on either side */
};

struct state_device {
	uint64_t allocated, reserved; /* the allocator's own totals, read after the tables */
	bool known;		      /* they could be read */
	bool whole; /* the reading was of one moment: links agree, sums are the totals, which did
		       not move */
};

/* One reading of the tables. Every block in it was there at some moment of the reading. */
struct state_reading {
	const struct state_block *blocks;
	size_t n_blocks;
	const struct state_segment *segments;
	size_t n_segments;
	const struct state_device *devices; /* by index */
	size_t n_devices;
};

struct attach_state *attach_state__new(void);	 /* NULL on ENOMEM */
void attach_state__free(struct attach_state *s); /* NULL is fine */

/*
 * Segments as they were shortly before T0: a call that gives one back does not say how large it
 * was, and no reading sees it again. What has changed until T0 shows in the sums. 0 or -ENOMEM.
 */
int attach_state__hint(struct attach_state *s, const struct state_segment *v, size_t n);
/*
 * Takes an event instead of the sinks, in order. 0 or -ENOMEM. Events of blocks that came while the
 * probe was not in place everywhere yet, as their totals tell, are left out: T0 is after them.
 */
int attach_state__hold(struct attach_state *s, const struct event *e);
size_t attach_state__held(const struct attach_state *s);
/* Adds a reading that began after T0. The log up to its end must be held before
 * attach_state__exact() is asked. 0 or -ENOMEM. */
int attach_state__read(struct attach_state *s, const struct state_reading *r);
/* Do blocks and segments found so far add up on every device? 1, 0, or -ENOMEM. */
int attach_state__exact(struct attach_state *s);
/* Is every segment known from end to end, and so of which kind it is? */
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
 * Where no event of a device was held, T0 is the moment of the reading, and that may have been
 * within a call: the allocator has done it, and the probe, of which comes the event, is yet to be
 * reached. The allocator is locked meanwhile, so it is one event at the most, the next one; and it
 * is of before T0. All 0 to begin with.
 */
struct state_seam {
	bool open[256]; /* by device */
	uint64_t allocated[256];
};

/* Notes an event that attach_state__next() returned. */
void state_seam__emitted(struct state_seam *m, const struct event *e);
/* An event that came after it: was it before T0? Then it is in there, and is no event any more. */
bool state_seam__before(struct state_seam *m, const struct event *e);

#endif
