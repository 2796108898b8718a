/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_MTR_ROLLING_H
#define MT_RECORD_MTR_ROLLING_H
/*
 * A stream of any length in bounded space: written as segments, each a whole recording that begins
 * with what was live (live_set.h) and has a dictionary of its own, so that it reads alone. When
 * the next bytes would not fit, the oldest segments go, and what they were in numbers is kept as
 * the gap. Memory goes with what is live, not with what there was.
 *
 * Where files are and what they are called is the caller's.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct mtr_rolling;

#define MTR_RING_DEVICES 16    /* of which there are numbers by segment */
#define MTR_RING_SEGMENTS 1024 /* at a time: a segment is no smaller than this part of the space */
#define MTR_RING_SEGMENT_MIN (UINT64_C(64) << 10)

/* Of some time: a segment's, or that of all segments that went. */
struct mtr_ring_span {
	uint64_t from, to;	     /* ns since the capture's start */
	uint64_t first_step, steps;  /* ended before it; in it */
	uint64_t events, lost, ooms; /* of the program, not those that tell what was there before */
	uint32_t n_devices;
	struct mtr_ring_device {
		struct device device;
		uint64_t allocated, reserved;	    /* at its end */
		uint64_t peak_allocated, peak_time; /* what was there when it began included */
		uint64_t peak_reserved;
		uint64_t allocs, frees, total_allocated;
	} devices[MTR_RING_DEVICES];
};

struct mtr_ring_segment {
	unsigned int number; /* from 1 on */
	struct mtr_ring_span span;
	uint64_t blocks; /* that were there before it */
	uint64_t bytes;	 /* of the file, by now */
	bool closed;
};

struct mtr_ring_opts {
	uint64_t space;	  /* bytes that all files may take, each rounded up to MTR_RING_ROUND */
	uint64_t segment; /* a segment ends at about this size; at least MTR_RING_SEGMENT_MIN and
			     1/MTR_RING_SEGMENTS of space */
	/* Opens a file for the segment: fd, which stays the caller's, or -errno. */
	int (*open)(void *ctx, const struct mtr_ring_segment *s);
	/* It is whole; err: 0, or how writing it failed, after which nothing more is written.
	 * Closes the file. 0 or -errno. */
	int (*done)(void *ctx, const struct mtr_ring_segment *s, int err);
	/* Removes it; gap is what all that went were together, this one included. 0 or -errno. */
	int (*drop)(void *ctx, const struct mtr_ring_segment *s, const struct mtr_ring_span *gap);
	void *ctx;
};
#define MTR_RING_ROUND UINT64_C(4096) /* what a file takes of a disk */

/* Borrows d and f, which must outlive it. NULL with errno (EINVAL: a segment has no room in the
 * space). */
struct mtr_rolling *mtr_rolling__new(const struct dict *d, const struct facts *f,
				     const struct mtr_ring_opts *opts);
/* What was not finished is as a killed program leaves it. NULL is fine. */
void mtr_rolling__free(struct mtr_rolling *r);
/*
 * Takes in an event. 0; -EINVAL: one that a recording cannot hold (nothing happens); -EFBIG: what
 * is live needs more than the space; -ENOMEM or what open, done, drop or writing gave, after which
 * there is no point in going on.
 */
int mtr_rolling__event(struct mtr_rolling *r, const struct event *e);
/* Writes out what is buffered, and the facts as they are now. Call about once a second. As
 * mtr_rolling__event(). */
int mtr_rolling__flush(struct mtr_rolling *r);
/* The last segment is closed, with the facts as they are now. As mtr_rolling__event(). */
int mtr_rolling__finish(struct mtr_rolling *r);

/* The i-th segment that is there, oldest first, the one being written last. NULL: no more. */
const struct mtr_ring_segment *mtr_rolling__segment(const struct mtr_rolling *r, uint32_t i);
const struct mtr_ring_span *mtr_rolling__gap(const struct mtr_rolling *r); /* NULL: nothing went */
uint64_t mtr_rolling__used(const struct mtr_rolling *r);		   /* of the space, now */
uint64_t mtr_rolling__most_used(const struct mtr_rolling *r);
/* What is allocated and reserved on a device after the last event. */
void mtr_rolling__level(const struct mtr_rolling *r, struct device d, uint64_t *allocated,
			uint64_t *reserved);

#endif
