/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Windows of one process's events: when a window begins and ends, its file, and its entry in a
 * folder. All events go in, also between windows: a window starts with the blocks that are live,
 * and with the lines that allocated them.
 *
 * Logs to standard error.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/save/window_args.h"
#include "record/mtr.h"
#include "record/stream.h"

struct cond;
struct cond_result;
struct dict;
struct facts;
struct folder;
struct json;
struct reserve;
struct values;
struct windows;

struct windows_opts {
	struct window_args args;
	uint64_t duration, steps;      /* ns and steps of each window; 0: no bound */
	struct mtr_writer_opts bounds; /* bounds of each file */
	struct folder *folder;	       /* folder of the files; NULL: path */
	const char *path;	       /* path of the only file */
	const char *name;	       /* with on_oom or on_kill, name in the folder */
	bool on_oom; /* windows of args.before up to each out-of-memory error, at most args.count */
	bool on_kill; /* a window of args.before up to the end, unless the process ends well */
	/* With on_oom or on_kill, bounds limit the events in memory. */
	struct reserve *reserve; /* room for the files, borrowed; NULL: none */
	struct outfile *file;	 /* the only file if it is open already; taken over */
	bool force;
	pid_t pid;
	bool of_many; /* other processes write windows into the same folder */
};

/* Borrows dict, facts and the folder. NULL with errno. */
struct windows *windows__new(struct dict *dict, const struct facts *facts,
			     const struct windows_opts *opts);
void windows__free(struct windows *windows); /* NULL is fine; call windows__finish() first */
struct sink *windows__sink(struct windows *windows);
/* Begins a window at once if the options say so. Returns 0 or a negative error, as the sink does. */
int windows__attached(struct windows *windows);

/* Begins, ends or saves a window. who: "signal" or "ctl". Returns 0; -EBUSY: a window is open, or
 * enough are written; -EALREADY: no window is open; or a negative error of the sink. */
int windows__start(struct windows *windows, const char *who);
int windows__stop(struct windows *windows, const char *who);
int windows__save(struct windows *windows, const char *who);
/* Writes the present state into an open JSON object, as the answer to `ctl`. */
void windows__tell(const struct windows *windows, struct json *json);
/* Returns the path of the last complete file, or "". */
const char *windows__last(const struct windows *windows);

/* Returns the value of the fact stop_reason if no more windows will be written, or NULL. */
const char *windows__over(const struct windows *windows);
/* Ends an open window at the end of the stream. With on_kill, the facts say how the process ended,
 * if the reason is "target exited". Returns 0 or a negative error; errors of files are
 * logged. */
int windows__finish(struct windows *windows, const char *reason);
unsigned int windows__written(const struct windows *windows); /* number of complete windows */
/* Returns the first error, negative, or 0. *said: it was logged. */
int windows__err(const struct windows *windows, bool *said);

/* The figures that conditions use, for each event: allocated bytes of each device, steps,
 * out-of-memory errors, lost events. */
struct values *values__new(const struct facts *facts); /* borrows facts; NULL: out of memory */
void values__free(struct values *values);	       /* NULL is fine */
/* Takes an event. *news: a figure rose since the conditions were judged last. Returns 0 or
 * -ENOMEM. */
int values__event(struct values *values, const struct event *event, bool *news);
/* Judges a condition on each device; ret: the result of a device for which it holds. Returns 0 or
 * -ENOMEM. */
int values__judge(struct values *values, struct cond *c, uint64_t now, struct cond_result *ret);
