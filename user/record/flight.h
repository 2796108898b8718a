/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_FLIGHT_H
#define MT_RECORD_FLIGHT_H
/*
 * A flight recorder: keeps the last part of a stream in bounded memory and writes a recording of it when the program
 * runs out of memory. The recording is whole: what was live when its first event came is in it, so that it shows at
 * the out of memory what a recording from the start would show.
 *
 * Events are kept as the blocks of a recording are (some bytes each). What leaves the window is not forgotten but
 * folded into a base: what is live, with its stack. The base takes some 60 bytes for each live block, and is
 * not bounded by anything but what the program holds.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct flight;

/* What was written. */
struct flight_report {
	unsigned int number; /* of the file, from 1 on */
	uint64_t from, to;   /* first and last event of the window, ns */
	uint64_t events;     /* of the window */
	uint64_t blocks;     /* that were there before it */
	uint64_t bytes;	     /* of the file */
	uint64_t ooms;	     /* in it, at least 1 */
	struct event oom;    /* the first */
	bool cut;	     /* the window had no room for all the time that it was to hold */
};

struct flight_opts {
	uint64_t window; /* ns to keep before an out of memory */
	uint64_t max_bytes;  /* of kept events; at least 64 KiB. 0: FLIGHT_BYTES */
	uint64_t max_events; /* kept; 0: no bound but the bytes */
	unsigned int max_files; /* 0: no bound */
	/*
	 * Opens the number-th file for writing: fd, which stays the caller's, or -errno. done (err: 0, or how writing it
	 * failed) is told when all is in it, before anything else happens.
	 */
	int (*open)(void *ctx, unsigned int number);
	int (*done)(void *ctx, const struct flight_report *r, int err);
	void *ctx;
};

#define FLIGHT_WINDOW UINT64_C(30000000000) /* ns */
#define FLIGHT_BYTES (UINT64_C(64) << 20)
/*
 * A file is written when nothing ran out of memory for FLIGHT_AFTER after it happened, and FLIGHT_AFTER_MAX after
 * it at the latest: a program that tries again and again has one trouble, not hundreds.
 */
#define FLIGHT_AFTER UINT64_C(100000000)
#define FLIGHT_AFTER_MAX UINT64_C(2000000000)

/* Borrows d and f, which must outlive it. NULL with errno. */
struct flight *flight__new(struct dict *d, const struct facts *f, const struct flight_opts *opts);
void flight__free(struct flight *fl); /* NULL is fine; what was not written is gone */
/*
 * Takes in an event. 0; -EINVAL: one that a recording cannot hold (nothing happens); -ENOMEM or what open, done or
 * writing gave, after which there is no point in going on.
 */
int flight__event(struct flight *fl, const struct event *e);
/* Time passes, now in ns since the start; writes the file when it is time. Call some times a second. As flight__event(). */
int flight__tick(struct flight *fl, uint64_t now);
/* No event will come any more: writes what waits to be written. As flight__event(). */
int flight__finish(struct flight *fl);
unsigned int flight__files(const struct flight *fl); /* written */
bool flight__full(const struct flight *fl);	      /* max_files are written: events are of no more use */

#endif
