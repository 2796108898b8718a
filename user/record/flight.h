/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A flight recorder: keeps the latest events of a stream in bounded memory and writes parts of the
 * stream as recordings, called windows. A window holds either the events kept so far (after an
 * out-of-memory error or on request), or the events between two moments. Every window starts with
 * the blocks that are live at its first event. So from there on it shows the same as a recording
 * from the start of the stream. The recorder keeps events encoded as in a file, a few bytes each.
 * The oldest events are dropped; they then update the base: the set of live blocks with their
 * stacks. The base takes about 60 bytes per live block, so its size is bounded only by the target's
 * number of live blocks.
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
	unsigned int number; /* number of the file, from 1 */
	uint64_t from, to;   /* times of the window's first event and of its end, ns since the
				capture's start */
	uint64_t events;     /* number of events in the window */
	uint64_t blocks;     /* number of blocks that were live before the window */
	uint64_t bytes;	     /* size of the file */
	uint64_t dropped;    /* number of events dropped at a bound of the file */
	char began[160], ended[512]; /* reasons as text; began is "" after an out-of-memory error */
	char reason[32];	     /* reason of the window's end: value of the fact stop_reason */
	uint64_t ooms; /* number of out-of-memory events that caused the file; 0: another cause */
	struct event oom; /* the first of these events */
	bool cut;	  /* true if a bound made the window shorter than requested */
};

struct flight_opts {
	/* Length of the time whose events are kept, ns. 0: keep no events, only the live blocks. */
	uint64_t window;
	uint64_t max_bytes; /* bound on the bytes of kept events, at least 64 KiB; 0: FLIGHT_BYTES */
	uint64_t max_events;	       /* bound on the number of kept events; 0: none */
	unsigned int max_files;	       /* bound on the number of files; 0: none */
	bool no_oom;		       /* true: write no file after an out-of-memory error */
	struct mtr_writer_opts bounds; /* bounds of each file */
	/* open() opens the file with this number for writing. It returns a file descriptor, which
	 * the recorder uses but does not close, or -errno. The recorder calls done() once the file
	 * is complete. err is 0, or the error of writing the file. done() returns 0 or -errno.
	 */
	int (*open)(void *ctx, unsigned int number);
	int (*done)(void *ctx, const struct flight_report *r, int err);
	void *ctx;
};

#define FLIGHT_WINDOW UINT64_C(30000000000) /* default of flight_opts.window: 30 s in ns */
#define FLIGHT_BYTES (UINT64_C(64) << 20)
/* After an out-of-memory error the recorder writes a file when FLIGHT_AFTER ns passed without
 * another such error, and FLIGHT_AFTER_MAX ns after the first one at the latest. So a program that
 * retries hundreds of times causes one file. In this time the capture reads which objects hold the
 * memory.
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
/* Sets the clock to now (ns since the capture's start) and writes a file if one is due. Call it a
 * few times per second. Returns an error as flight__event(). */
int flight__tick(struct flight *fl, uint64_t now);
/* Call it at the end of the stream: writes the file of out-of-memory errors if one is due. Returns
 * an error as flight__event(). */
int flight__finish(struct flight *fl);

/* From now on, writes no more files after out-of-memory errors. */
void flight__ignore_ooms(struct flight *fl);
/* Call it at the end of the stream: writes all kept events to a last file. reason is the value of
 * the fact stop_reason, ended is text for people. Returns an error as flight__event(). */
int flight__last(struct flight *fl, const char *reason, const char *ended);
/* Writes all kept events to a file, through open() and done(), and then keeps none of them. why is
 * text for people. Returns 0, -EBUSY if a window is open, or an error as flight__event(). */
int flight__save(struct flight *fl, const char *why);
/* flight__begin() opens a window; flight__end() closes it. The window contains the kept events of
 * the last `before` ns, and every event from now to its end. whole is true if a step begins now.
 * why and ended are text for people; reason is the value of the fact stop_reason. Both return 0 or
 * an error as flight__event(). flight__begin() returns -EBUSY if a window is open already,
 * flight__end() returns -EALREADY if none is open.
 */
int flight__begin(struct flight *fl, uint64_t before, bool whole, const char *why);
int flight__end(struct flight *fl, const char *reason, const char *ended);
/* True while a window of flight__begin() is open. Then sets *ret (if ret is not NULL) to the report
 * on the window so far. */
bool flight__writing(const struct flight *fl, struct flight_report *ret);
/* True if the open window reached a bound of its file. Then sets *reason to "max-size" or
 * "max-events". */
bool flight__bounded(const struct flight *fl, const char **reason);
/* Gets the memory held on the i-th device, as live_set__level(). Kept events are not in it yet. The
 * peaks are those since the start of the latest file. */
bool flight__level(const struct flight *fl, size_t i, struct flight_level *ret);
unsigned int flight__files(const struct flight *fl); /* number of files written */
/* True once max_files are written. Further events are ignored then. */
bool flight__full(const struct flight *fl);
