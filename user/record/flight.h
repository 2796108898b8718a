/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A flight recorder: keeps the last part of a stream in bounded memory and writes parts of it as
 * recordings, called windows. A window holds either the events kept so far (after an out-of-memory
 * error or on request), or the events between two moments. Every window starts with the blocks that
 * are live at its first event. So it shows the same as a recording from the start, from there on.
 *
 * The recorder keeps events encoded, as a recording does, at a few bytes each. Events that leave
 * the window update the base: the set of live blocks with their stacks. The base takes about 60
 * bytes per live block. Only the program's own memory use bounds it.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/mtr.h"
#include "record/mtr/live_set.h"
#include "record/stream.h"

struct dict;
struct flight;

/* Report on one window that the flight recorder wrote. */
struct flight_report {
	unsigned int number;	     /* number of the file, from 1 */
	uint64_t from, to;	     /* times of the window's first event and of its end, ns */
	uint64_t events;	     /* number of events in the window */
	uint64_t blocks;	     /* number of blocks that were live before the window */
	uint64_t bytes;		     /* size of the file */
	uint64_t dropped;	     /* number of events dropped at a bound of the file */
	char began[160], ended[512]; /* reasons as text; began is "" after an out-of-memory error */
	char reason[32];	     /* reason of the end, as in the fact stop_reason */
	uint64_t ooms;	  /* out-of-memory events that caused the file; 0: another cause */
	struct event oom; /* first out-of-memory event */
	bool cut;	  /* true if a bound made the window shorter than requested */
};

struct flight_opts {
	/* Length of the window that is kept, ns. 0: keep no events, only what is live. */
	uint64_t window;
	uint64_t max_bytes;	       /* bound on kept events, at least 64 KiB; 0: FLIGHT_BYTES */
	uint64_t max_events;	       /* bound on kept events; 0: only max_bytes */
	unsigned int max_files;	       /* bound on files; 0: none */
	bool no_oom;		       /* true: write no file after an out-of-memory error */
	struct mtr_writer_opts bounds; /* bounds of each file */
	/*
	 * open() opens the file with this number for writing and returns a file descriptor, which
	 * the caller keeps, or -errno. The recorder calls done() once the file is complete; err is
	 * 0, or the error of writing it.
	 */
	int (*open)(void *ctx, unsigned int number);
	int (*done)(void *ctx, const struct flight_report *r, int err);
	void *ctx;
};

#define FLIGHT_WINDOW UINT64_C(30000000000) /* default window, ns */
#define FLIGHT_BYTES (UINT64_C(64) << 20)
/*
 * The recorder writes a file when FLIGHT_AFTER ns passed without another out-of-memory error, and
 * FLIGHT_AFTER_MAX ns after the first one at the latest. So a program that retries hundreds of
 * times causes one file. What holds the memory is read in that time.
 */
#define FLIGHT_AFTER UINT64_C(1000000000)
#define FLIGHT_AFTER_MAX UINT64_C(2000000000)

/* Borrows d and f, which must outlive the recorder. NULL with errno. */
struct flight *flight__new(struct dict *d, const struct facts *f, const struct flight_opts *opts);
void flight__free(struct flight *fl); /* NULL is fine; drops unwritten events */
/*
 * Takes one event. Returns 0, or -EINVAL if a recording cannot hold the event (ignored), or -ENOMEM
 * or the error of open, done or a write. After an error other than -EINVAL the recorder is
 * unusable.
 */
int flight__event(struct flight *fl, const struct event *e);
/* Sets the clock to now (ns since the capture's start) and writes the file that is due. Call it a
 * few times per second. Errors as flight__event(). */
int flight__tick(struct flight *fl, uint64_t now);
/* Ends the stream and writes the file that is due. Errors as flight__event(). */
int flight__finish(struct flight *fl);

/* From now on, writes no more files after out-of-memory errors. */
void flight__ignore_ooms(struct flight *fl);
/* Writes the last file, with all kept events, and with the facts before them: the stream is over.
 * reason is the fact stop_reason, ended is text for people. Returns an error as flight__event(). */
int flight__last(struct flight *fl, const char *reason, const char *ended);
/* Writes all kept events to a file, through open() and done(), and then keeps none of them. why is
 * text for people. Returns 0, -EBUSY if a window is open, or an error as flight__event(). */
int flight__save(struct flight *fl, const char *why);
/*
 * flight__begin() opens a window; flight__end() closes it. The window contains every event in
 * between, and the kept events of the last `before` ns. The flag whole means that a step begins
 * here. why and ended are text for people; reason is the fact stop_reason. Both return 0 or an
 * error as flight__event(); begin returns -EBUSY if a window is open, end -EALREADY if none is.
 */
int flight__begin(struct flight *fl, uint64_t before, bool whole, const char *why);
int flight__end(struct flight *fl, const char *reason, const char *ended);
/* True while a window is open; fills *ret (may be NULL) with its report so far. */
bool flight__writing(const struct flight *fl, struct flight_report *ret);
/* True if the open window reached a bound of its file; *reason is "max-size" or "max-events". */
bool flight__bounded(const struct flight *fl, const char **reason);
/* As live_set__level(), without the kept events. Peaks count from the start of the last file. */
bool flight__level(const struct flight *fl, size_t i, struct flight_level *ret);
unsigned int flight__files(const struct flight *fl); /* number of files written */
bool flight__full(
	const struct flight *fl); /* true once max_files are written; further events are ignored */
