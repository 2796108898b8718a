/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_OUTPUT_H
#define MT_SAVE_OUTPUT_H
/*
 * Where the events of one process go: into a file (output_file.h), a file of a folder with an index
 * (output_folder.h), windows, also those of --on-oom (output_windows.h), or a rolling folder
 * (output_rolling.h). Each of these is a struct that begins with a struct output.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "record/stream.h"

struct recording;
struct session;
struct windows;

enum output_kind { OUTPUT_FILE, OUTPUT_FOLDER, OUTPUT_WINDOWS, OUTPUT_ROLLING };

struct output {
	struct sink sink; /* first: the sink is the output */
	/* The process is attached to. 0 or an exit code, logged. NULL: nothing to do. */
	int (*attached)(struct output *o);
	/* After each drain: the static reason why no more events are needed; NULL: go on. */
	const char *(*full)(struct output *o); /* NULL: never full */
	/*
	 * The stream is over: completes the files, prints a summary and frees o. reason: the fact
	 * stop_reason; err: why the stream broke off, negative, or 0. An exit code, logged.
	 */
	int (*end)(struct output *o, const char *reason, int err);
	struct recording *r;
	struct session *session;
	pid_t pid;
	unsigned int times;	 /* how often the process was traced; 0: the process that the
				    capture was started for */
	struct windows *windows; /* NULL: ctl and signals cannot begin and end windows */
	struct output *next;	 /* of r->outputs */
};

/* The kind that the options of r ask for. */
enum output_kind output__kind(const struct recording *r);
/* Opens or makes the folder that the outputs of all processes share, if they do. 0 or an exit code,
 * logged. */
int output__open_folder(struct recording *r);
/* Prints what is in it. A folder of ours without a recording is removed. */
void output__close_folder(struct recording *r, int status);

/*
 * The output of one process, in r->outputs until output__end(). A file for times 0 is opened at
 * once, so that a full disk costs nothing; all others with the first event, as many processes end
 * without one. NULL: logged.
 */
struct output *output__new(struct recording *r, struct session *s, pid_t pid, unsigned int times);
int output__end(struct output *o, const char *reason, int err); /* as end() */

/* "run.mtr" and "-2": "run-2.mtr". To be freed; NULL: no memory. */
char *output__path_with(const char *path, const char *more);
/* The file's path without a folder: run.mtr, run.PID.mtr, run.PID-2.mtr. To be freed; NULL: no
 * memory. */
char *output__path(const struct output *o);
/* The name in a folder: "rank-0", "rank-0-worker-4711", "train-4711". */
void output__stem(const struct output *o, char *buf, size_t size);
/* A fact of the process, "" if unknown. */
const char *output__fact(const struct output *o, const char *key);

#endif
