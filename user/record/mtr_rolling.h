/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Rolling recordings: a stream of any length in bounded space, as a ring of parts and as totals.
 *
 * The ring consists of parts (segments). Each part is a
 * recording with its own dictionary that starts with the live blocks (live_set.h), so it is
 * readable alone. When the space is full, the oldest parts are removed and their numbers are added
 * up in the gap. Memory grows with the live blocks, not with the length of the stream.
 *
 * The caller chooses folder and file names.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct mtr_rolling;

#define MTR_RING_DEVICES 16    /* devices with numbers per part */
#define MTR_RING_SEGMENTS 1024 /* parts at one time; so a part has at least 1/1024 of the space */
#define MTR_RING_SEGMENT_MIN (UINT64_C(64) << 10)

/* Numbers of a period: of one part, or of all removed parts. */
struct mtr_ring_span {
	uint64_t from, to;	     /* ns since the capture's start */
	uint64_t first_step, steps;  /* steps that ended before the period; steps in it */
	uint64_t events, lost, ooms; /* counts of the program's events, without those that describe
					earlier blocks */
	uint32_t n_devices;
	struct mtr_ring_device {
		struct device device;
		uint64_t allocated, reserved; /* bytes at the end of the period */
		uint64_t peak_allocated,
			peak_time; /* peak within the period, with blocks from before it */
		uint64_t peak_reserved;
		uint64_t allocs, frees, total_allocated;
	} devices[MTR_RING_DEVICES];
};

struct mtr_ring_segment {
	unsigned int number; /* number of the part, from 1 */
	struct mtr_ring_span span;
	uint64_t bytes; /* size of the file so far */
	bool closed;
};

struct mtr_ring_opts {
	uint64_t space; /* bytes for all files, each rounded up to MTR_RING_ROUND */
	/* Approximate bytes of a part: at least MTR_RING_SEGMENT_MIN and 1/MTR_RING_SEGMENTS of
	 * space. */
	uint64_t segment;
	/* Opens a file for the part. Returns a file descriptor, which the caller keeps, or
	 * -errno. */
	int (*open)(void *ctx, const struct mtr_ring_segment *s);
	/* Called when the file has all earlier blocks: from now on the part is readable alone.
	 * Returns 0 or -errno. */
	int (*ready)(void *ctx, const struct mtr_ring_segment *s);
	/* Called when a part is complete; closes its file. err: 0, or the error of writing it,
	 * after which nothing more is written. Returns 0 or -errno. */
	int (*done)(void *ctx, const struct mtr_ring_segment *s, int err);
	/* Removes a part. gap: numbers of all removed parts, this part included. Returns 0 or
	 * -errno. */
	int (*drop)(void *ctx, const struct mtr_ring_segment *s, const struct mtr_ring_span *gap);
	void *ctx;
};
#define MTR_RING_ROUND UINT64_C(4096) /* allocation unit of a disk, bytes */

/* Borrows d and f, which must outlive the writer. NULL with errno (EINVAL: a part does not fit the
 * space). */
struct mtr_rolling *mtr_rolling__new(const struct dict *d, const struct facts *f,
				     const struct mtr_ring_opts *opts);
/* Leaves an unfinished part as a killed program would. NULL is fine. */
void mtr_rolling__free(struct mtr_rolling *r);
/*
 * Takes one event. Returns 0; -EINVAL if a recording cannot hold the event (ignored); -EFBIG if the
 * live blocks need more than the space; -ENOMEM or the error of open, done, drop or a write. After
 * an error other than -EINVAL the writer is unusable.
 */
int mtr_rolling__event(struct mtr_rolling *r, const struct event *e);
/* Writes all buffered events, and the facts with their present values. Call it about once a second.
 * Errors as mtr_rolling__event(). */
int mtr_rolling__flush(struct mtr_rolling *r);
/* Closes the last part, with the facts' present values. Errors as mtr_rolling__event(). */
int mtr_rolling__finish(struct mtr_rolling *r);

/* The i-th part on disk, oldest first; the open part is last. NULL after the last part. */
const struct mtr_ring_segment *mtr_rolling__segment(const struct mtr_rolling *r, uint32_t i);
const struct mtr_ring_span *mtr_rolling__gap(
	const struct mtr_rolling *r); /* numbers of removed parts; NULL: none removed */
uint64_t mtr_rolling__used(const struct mtr_rolling *r); /* bytes of the space in use */
uint64_t mtr_rolling__most_used(const struct mtr_rolling *r);
/* Bytes allocated and reserved on a device after the last event. */
void mtr_rolling__level(const struct mtr_rolling *r, struct device d, uint64_t *allocated,
			uint64_t *reserved);

/*
 * Numbers of a capture of any length in bounded memory: time series of the process and of each
 * device. Recent rows are fine, older rows coarser. The coarsest series always reaches back to the
 * start; its interval doubles when it is full. An interval without events has no row.
 */

struct totals;

#define TOTALS_FILE "totals.json" /* name of the file in a rolling folder */
#define TOTALS_VERSION 1	  /* of its form; readers refuse a newer one */
#define TOTALS_DEVICES                                                                             \
	64 /* devices with a series; events of further devices count for the process alone */

/* Numbers of a device since the start. */
struct totals_device {
	struct device device;
	uint64_t allocated, reserved; /* present bytes */
	uint64_t peak_allocated, peak_time,
		peak_step; /* first occurrence of the peak: time in ns, steps before it */
	uint64_t peak_reserved, peak_reserved_time;
	uint64_t allocs, frees, total_allocated, ooms;
};
struct totals_whole {
	uint64_t events, lost, steps, last; /* last: time of an event, ns */
	uint32_t devices;
};

/* max_bytes bounds the text of totals__json(); at least 16 KiB. NULL if memory is short. */
struct totals *totals__new(uint64_t max_bytes);
void totals__free(struct totals *t); /* NULL is fine */
/* Adds an event. allocated and reserved: bytes on its device after it. Returns 0 or -ENOMEM. */
int totals__event(struct totals *t, const struct event *e, uint64_t allocated, uint64_t reserved);
void totals__whole(const struct totals *t, struct totals_whole *ret);
/* Fills *ret for the i-th device. Returns false after the last device. */
bool totals__device(const struct totals *t, uint32_t i, struct totals_device *ret);

struct json;
/* Writes the members "whole" and "series" of docs/reference/folder.md into the open JSON object. */
void totals__json(const struct totals *t, struct json *j);
