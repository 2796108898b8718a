/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_WINDOWS_H
#define MT_SAVE_WINDOWS_H
/*
 * Windows of one process's stream: when one begins, what ends it, the file that it becomes and its
 * entry in a folder. The stream is taken in all the while, so that what a window begins with is
 * known, with the lines of what was made before it.
 *
 * Speaks to the person on standard error.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "record/mtr.h"
#include "record/stream.h"
#include "save/window_args.h"

struct dict;
struct facts;
struct folder;
struct json;
struct windows;

struct windows_opts {
	struct window_args args;
	uint64_t duration, steps;      /* of each; 0: no bound */
	struct mtr_writer_opts bounds; /* of each file */
	struct folder *folder;	       /* where they go, or else */
	const char *path; /* the one file, which is there already where file is not NULL */
	const char *name; /* with on_oom: what they are called in the folder */
	bool on_oom; /* args.before up to each out of memory, args.count times at most; bounds are
			of the events kept in memory */
	struct outfile *file; /* open, from now on the windows' */
	bool force;
	pid_t pid;
	bool of_many; /* other processes have theirs in the same folder */
};

/* Borrows d, f and the folder, whose lives are longer. NULL with errno. */
struct windows *windows__new(struct dict *d, const struct facts *f, const struct windows_opts *o);
void windows__free(struct windows *w); /* NULL is fine; what is open should have been ended by
					  windows__finish() */
struct sink *windows__sink(struct windows *w);
/* The process is attached to: a window that begins at once does so. 0 or negative, as the sink
 * gives. */
int windows__attached(struct windows *w);

/* Somebody wants it; who: "signal", "ctl". 0, -EBUSY, -EALREADY, -EBUSY: as flight.h has them; else
 * as the sink. */
int windows__start(struct windows *w, const char *who);
int windows__stop(struct windows *w, const char *who);
int windows__save(struct windows *w, const char *who);
/* For ctl: what there is, into an open object. */
void windows__tell(const struct windows *w, struct json *j);
/* The last file that was written, "" if none. */
const char *windows__last(const struct windows *w);

/* Nothing more will be written: why, as the fact stop_reason; NULL: it goes on. */
const char *windows__over(const struct windows *w);
/* The stream is at its end: ends what is open. 0 or negative, said where it is about a file. */
int windows__finish(struct windows *w, const char *reason);
unsigned int windows__written(const struct windows *w);
int windows__err(const struct windows *w,
		 bool *said); /* what went wrong, negative; said: the person knows */

#endif
