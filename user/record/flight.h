/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_FLIGHT_H
#define MT_RECORD_FLIGHT_H
/*
 * A flight recorder: knows what is live, keeps the last part of a stream in bounded memory, and
 * writes recordings of windows: of what is kept, when the program runs out of memory or somebody
 * asks for it; of what comes from some moment on until another one. Each is whole: what was live
 * when its first event came is in it, so that it shows from there on what a recording from the
 * start would show.
 *
 * Events are kept as the blocks of a recording are (some bytes each). What leaves the window is not
 * forgotten but folded into a base: what is live, with its stack. The base takes some 60 bytes for
 * each live block, and is not bounded by anything but what the program holds.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/live_set.h"
#include "record/mtr.h"
#include "record/stream.h"

struct dict;
struct flight;

/* What was written. */
struct flight_report {
	unsigned int number;	     /* of the file, from 1 on */
	uint64_t from, to;	     /* first and last event of the window, ns */
	uint64_t events;	     /* of the window */
	uint64_t blocks;	     /* that were there before it */
	uint64_t bytes;		     /* of the file */
	uint64_t dropped;	     /* events, by a bound */
	char began[160], ended[160]; /* why, for people; "" of an out of memory's */
	char reason[32];	     /* why it ended, the fact stop_reason */
	uint64_t ooms;		     /* that it is for, at least 1; 0: it is for something else */
	struct event oom;	     /* the first */
	bool cut; /* the window had no room for all the time that it was to hold */
};

struct flight_opts {
	uint64_t window; /* ns to keep; 0: nothing is kept, and what a window begins with is known
			    all the same */
	uint64_t max_bytes;	/* of kept events; at least 64 KiB. 0: FLIGHT_BYTES */
	uint64_t max_events;	/* kept; 0: no bound but the bytes */
	unsigned int max_files; /* 0: no bound */
	bool no_oom; /* an out of memory is an event like others: nothing is written for it */
	struct mtr_writer_opts bounds; /* of each file */
	/*
	 * Opens the number-th file for writing: fd, which stays the caller's, or -errno. done (err:
	 * 0, or how writing it failed) is told when all is in it, before anything else happens.
	 */
	int (*open)(void *ctx, unsigned int number);
	int (*done)(void *ctx, const struct flight_report *r, int err);
	void *ctx;
};

#define FLIGHT_WINDOW UINT64_C(30000000000) /* ns */
#define FLIGHT_BYTES (UINT64_C(64) << 20)
/*
 * A file is written when nothing ran out of memory for FLIGHT_AFTER after it happened, and
 * FLIGHT_AFTER_MAX after it at the latest: a program that tries again and again has one trouble,
 * not hundreds.
 */
#define FLIGHT_AFTER UINT64_C(100000000)
#define FLIGHT_AFTER_MAX UINT64_C(2000000000)

/* Borrows d and f, which must outlive it. NULL with errno. */
struct flight *flight__new(struct dict *d, const struct facts *f, const struct flight_opts *opts);
void flight__free(struct flight *fl); /* NULL is fine; what was not written is gone */
/*
 * Takes in an event. 0; -EINVAL: one that a recording cannot hold (nothing happens); -ENOMEM or
 * what open, done or writing gave, after which there is no point in going on.
 */
int flight__event(struct flight *fl, const struct event *e);
/* Time passes, now in ns since the start; writes the file when it is time. Call some times a
 * second. As flight__event(). */
int flight__tick(struct flight *fl, uint64_t now);
/* No event will come any more: writes what waits to be written. As flight__event(). */
int flight__finish(struct flight *fl);

/*
 * Writes a file of all that is kept, through open and done; then nothing is kept. why is for
 * people. 0, -EBUSY: a file is being written; else as flight__event().
 */
int flight__save(struct flight *fl, const char *why);
/*
 * Opens a file that each event goes into, from the next one on and the last before ns of those that
 * are kept, until flight__end(). why and ended are for people, reason is the fact stop_reason;
 * whole: a step begins here. 0, -EBUSY: there is one; -EALREADY: there is none; else as
 * flight__event().
 */
int flight__begin(struct flight *fl, uint64_t before, bool whole, const char *why);
int flight__end(struct flight *fl, const char *reason, const char *ended);
/* Is one being written? ret (may be NULL): what is known of it so far. */
bool flight__writing(const struct flight *fl, struct flight_report *ret);
bool flight__bounded(
	const struct flight *fl,
	const char **reason); /* the one that is written takes no more: "max-size", "max-events" */
/* As live_set__level(); peaks are those since the last file began. Of events that are kept nothing
 * is known yet. */
bool flight__level(const struct flight *fl, size_t i, struct flight_level *ret);
unsigned int flight__files(const struct flight *fl); /* written */
bool flight__full(const struct flight *fl); /* max_files are written: events are of no more use */

#endif
