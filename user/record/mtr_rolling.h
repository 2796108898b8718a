/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Rolling recordings: a stream of any length in bounded space on disk.
 *
 * The stream is written as parts, one file after another. Each part is a recording with
 * its own dictionary, and it starts with the blocks that are live at its first event (live_set.h).
 * So each part is readable alone. When the space is full, the oldest parts are removed. The sums of
 * their numbers are kept: the gap. Memory grows with the live blocks, not with the length of the
 * stream.
 *
 * The caller chooses folder and file names.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct mtr_rolling;

#define MTR_RING_DEVICES 16 /* most devices in struct mtr_ring_span */
#define MTR_RING_PARTS 1024 /* most parts; so a part has at least 1/1024 of the space */
#define MTR_RING_PART_MIN (UINT64_C(64) << 10) /* least bytes of a part */

/* Numbers of a period: of one part, or of all removed parts. */
struct mtr_ring_span {
	uint64_t from, to;	    /* ns since the capture's start */
	uint64_t first_step, steps; /* numbers of steps that ended before the period and in it */
	/* Numbers of events, lost events and out-of-memory events in the period. The events that
	 * describe earlier blocks do not count. */
	uint64_t events, lost, ooms;
	uint32_t n_devices;
	struct mtr_ring_device {
		struct device device;
		uint64_t allocated, reserved; /* bytes at the end of the period */
		uint64_t peak_allocated; /* peak in the period, blocks from before it included */
		uint64_t peak_time;	 /* time of this peak, ns since the capture's start */
		uint64_t peak_reserved;
		uint64_t allocs, frees;	  /* numbers of allocations and frees */
		uint64_t total_allocated; /* sum of the sizes of all allocations */
	} devices[MTR_RING_DEVICES];
};

struct mtr_ring_part {
	unsigned int number; /* number of the part, from 1 */
	struct mtr_ring_span span;
	uint64_t bytes; /* size of the file so far */
	bool closed;	/* the file is complete */
};

struct mtr_ring_opts {
	uint64_t space; /* most bytes of all files together, the size of each rounded up to
			   MTR_RING_ROUND */
	/* Approximate bytes of a part: at least MTR_RING_PART_MIN and space / MTR_RING_PARTS,
	 * at most half of the space. */
	uint64_t part_bytes;
	/* Opens a file for the part. Returns a file descriptor, which done() closes, or -errno. */
	int (*open)(void *ctx, const struct mtr_ring_part *s);
	/* Called when the file has the blocks that were live at its start: from now on the part is
	 * readable alone. Returns 0 or -errno. */
	int (*ready)(void *ctx, const struct mtr_ring_part *s);
	/* Called when a part is complete, to close its file. err: 0, or the error of writing the
	 * part, after which nothing more is written. Returns 0 or -errno. */
	int (*done)(void *ctx, const struct mtr_ring_part *s, int err);
	/* Called to remove a part. gap: sums over all removed parts, this part included. Returns 0
	 * or -errno. */
	int (*drop)(void *ctx, const struct mtr_ring_part *s, const struct mtr_ring_span *gap);
	void *ctx;
};
#define MTR_RING_ROUND UINT64_C(4096) /* allocation unit of a disk, bytes */

/* Borrows d and f, which must outlive the result. Returns NULL and sets errno on an error; EINVAL:
 * opts->part_bytes does not fit opts->space. */
struct mtr_rolling *mtr_rolling__new(const struct dict *d, const struct facts *f,
				     const struct mtr_ring_opts *opts);
/* Frees r. An unfinished part stays as it is on disk, without its end. NULL is fine. */
void mtr_rolling__free(struct mtr_rolling *r);
/* Takes one event. Returns 0; -EINVAL if a recording cannot hold the event, and ignores it; -EFBIG
 * if the live blocks need more than the space; -ENOMEM; or the error of a write or of a function in
 * opts. After an error other than -EINVAL every call returns that error.
 */
int mtr_rolling__event(struct mtr_rolling *r, const struct event *e);
/* Writes all events in memory, and the facts with their present values. Call it about once a
 * second. Returns an error as mtr_rolling__event(). */
int mtr_rolling__flush(struct mtr_rolling *r);
/* Closes the last part, with the facts' present values. Returns an error as mtr_rolling__event(). */
int mtr_rolling__finish(struct mtr_rolling *r);

/* Returns the i-th part on disk. Part 0 is the oldest, the last one is still open. NULL: there are
 * not so many. */
const struct mtr_ring_part *mtr_rolling__part(const struct mtr_rolling *r, uint32_t i);
/* Returns the sums over all removed parts; NULL: no part was removed. */
const struct mtr_ring_span *mtr_rolling__gap(const struct mtr_rolling *r);
/* Bytes of the space that are in use now. */
uint64_t mtr_rolling__used(const struct mtr_rolling *r);
/* Returns the largest number of bytes that were in use at one time. */
uint64_t mtr_rolling__most_used(const struct mtr_rolling *r);
/* Sets the bytes that are allocated and reserved on a device after the latest event; 0 for an
 * unknown device. */
void mtr_rolling__level(const struct mtr_rolling *r, struct device d, uint64_t *allocated,
			uint64_t *reserved);

/* Time series of the process and of each device over a capture of any length, in bounded memory. A
 * series has levels of rows: rows of 1 s for the latest time, of 10 s for a longer time, and so on.
 * The coarsest level always reaches back to the capture's start; its interval doubles when it is
 * full. An interval without events has no row.
 */

struct totals;

#define TOTALS_FILE "totals.json" /* name of the file in a rolling folder */
#define TOTALS_VERSION 1	  /* version of the file's form; readers refuse a newer one */
/* Most devices with a series; events of further devices count for the process alone. */
#define TOTALS_DEVICES 64

/* Numbers of a device since the capture's start. */
struct totals_device {
	struct device device;
	uint64_t allocated, reserved; /* present bytes */
	uint64_t peak_allocated;
	uint64_t peak_time,
		peak_step; /* when the peak first occurred: ns, and number of steps before it */
	uint64_t peak_reserved, peak_reserved_time;
	uint64_t allocs, frees;	  /* numbers of allocations and frees */
	uint64_t total_allocated; /* sum of the sizes of all allocations */
	uint64_t ooms;		  /* number of out-of-memory events */
};
struct totals_whole {
	uint64_t events, lost, steps; /* numbers of events, lost events and steps */
	uint64_t last;		      /* time of the latest event, ns */
	uint32_t devices;	      /* number of devices with a series */
};

/* max_bytes: bound on the text that totals__json() writes, at least 16 KiB. Returns NULL if memory
 * is short. */
struct totals *totals__new(uint64_t max_bytes);
void totals__free(struct totals *t); /* NULL is fine */
/* Adds an event. allocated, reserved: bytes on the event's device after the event. Returns 0 or
 * -ENOMEM. */
int totals__event(struct totals *t, const struct event *e, uint64_t allocated, uint64_t reserved);
void totals__whole(const struct totals *t, struct totals_whole *ret);
/* Sets *ret for the i-th device with a series. Returns false if there are not so many. */
bool totals__device(const struct totals *t, uint32_t i, struct totals_device *ret);

struct json;
/* Writes the members "whole" and "series" of docs/reference/folder.md into the open JSON object. */
void totals__json(const struct totals *t, struct json *j);
