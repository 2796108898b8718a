/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The destination of one process's events: a file, or a file in a folder with an index
 * (output_file.h), windows and --on-oom (output_windows.h), or a rolling folder
 * (output_rolling.h). Each destination is a struct that begins with a struct output.
 */
#include <stddef.h>
#include <sys/types.h>

#include "record/stream.h"

struct recording;
struct session;
struct windows;

enum output_kind { OUTPUT_FILE, OUTPUT_FOLDER, OUTPUT_WINDOWS, OUTPUT_ROLLING };

struct output {
	struct sink sink; /* first: callbacks cast it to the output */
	/* Called when the process is attached to, if times is 0. Returns 0 or an exit code, logged.
	 * NULL: no action. */
	int (*attached)(struct output *o);
	/* Called after each drain. Returns a static reason to stop capturing the process, or NULL.
	 * May be NULL. */
	const char *(*full)(struct output *o);
	/*
	 * Called when the stream is over. Completes the files, prints a summary and frees o.
	 * reason: the fact stop_reason; err: a negative error that ended the stream, or 0. Returns
	 * an exit code, logged.
	 */
	int (*end)(struct output *o, const char *reason, int err);
	struct recording *r;
	struct session *session;
	pid_t pid;
	unsigned int times;	 /* tracees_output.begin() */
	struct windows *windows; /* windows that ctl and signals control; NULL: none */
	struct output *next;	 /* next of r->outputs */
};

/* Logs "next: memtrace-bpf COMMAND PATH", quoted for a shell. */
void output__say_next(const char *command, const char *path);
/* Inserts text before ".mtr": "run.mtr" and "-2" give "run-2.mtr". The caller frees the result.
 * NULL: out of memory. */
char *output__path_with(const char *path, const char *more);
/* Returns -o, or the default name of the recording of one process. Owned by r. */
const char *output__main_path(struct recording *r);
/* Returns the path of the process's file, without a folder: run.mtr, run.PID.mtr, run.PID-2.mtr.
 * The caller frees it. NULL: out of memory. */
char *output__path(const struct output *o);
/* Writes the process's name in a folder: "rank-0", "rank-0-worker-4711", "train-4711". */
void output__stem(const struct output *o, char *buf, size_t size);
/* Returns a fact of the process, or "". */
const char *output__fact(const struct output *o, const char *key);

/*
 * The status of a capture, as JSON lines in a pipe to the program that started it (--tell, from
 * `serve`). Writing never blocks.
 * {"state": "opened"|"capturing"|"ended", "pid", "seconds", "events", "lost", "steps", "dropped",
 * "bytes", "host" (once read: resident bytes of each known part), "reason" (ended alone)}
 */
struct event;
struct output;

/* Writes a line. o: the output of the process of loop.args.pid; NULL: there is none. After "ended"
 * nothing is written. */
void output__tell_status(struct recording *r, const struct output *o, const char *state,
			 const char *reason);
/* Keeps the last reading of host memory for the next line. e: an event of that process. */
void output__keep_reading(struct recording *r, const struct event *e);
/* Writes a line "capturing", at most two a second. */
void output__tell_drained(struct recording *r, const struct output *o);
