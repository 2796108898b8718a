/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The destination of one process's events: a file, or a file in a folder with an index
 * (output_file.c), windows and --on-oom (output_windows.c), or a rolling folder
 * (output_rolling.c). Each destination is a struct that begins with a struct output. Which events
 * it gets is decided in one place for all: leaves_out() of recording.c.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "record/stream.h"

struct event;
struct folder_entry;
struct recording;
struct session;
struct windows;

enum output_kind { OUTPUT_FILE, OUTPUT_FOLDER, OUTPUT_WINDOWS, OUTPUT_ROLLING };

struct output {
	struct sink sink; /* first: on_event() of recording.c casts it to the output */
	/* Takes an event. 0 or -errno, which ends the recording of the process. */
	int (*event)(struct output *output, const struct event *event);
	/* Called when time passed; now: ns since the start. Returns as event(). */
	int (*tick)(struct output *output, uint64_t now);
	/* Called when the process is attached to, if times is 0. Returns 0 or an exit code, logged.
	 * NULL: no action. */
	int (*attached)(struct output *output);
	/* Called after each drain. Returns a static reason to stop capturing the process, or NULL.
	 * May be NULL. */
	const char *(*full)(struct output *output);
	/*
	 * Called when the stream is over. Completes the files, prints a summary and frees output.
	 * reason: the fact stop_reason; err: a negative error that ended the stream, or 0. Returns
	 * an exit code, logged.
	 */
	int (*end)(struct output *output, const char *reason, int err);
	struct recording *recording;
	struct session *session;
	pid_t pid;
	unsigned int times;	 /* which capture of this process: see tracees_output.begin() */
	void *figures;		 /* from recording_figures.begin(); NULL: none */
	struct windows *windows; /* windows that ctl and signals control; NULL: none */
	struct output *next;	 /* next of recording->outputs */
};

struct mtr_writer;
struct outfile;

/* One .mtr file with all events of a process. */
struct output_file {
	struct output output; /* first: the output is cast to this struct */
	char *path;	      /* path of the file; owned */
	struct outfile *file;
	struct mtr_writer *writer; /* NULL: the file is not open */
	uint64_t flushed;	   /* time of the last flush, ns since the start */
	int write_err;		   /* negative error of the last write */
	bool failed;		   /* an error was logged */
};

/* Logs "next: memtrace-bpf COMMAND PATH", quoted for a shell. */
void output__say_next(const char *command, const char *path);
/* Inserts text before ".mtr": "run.mtr" and "-2" give "run-2.mtr". The caller frees the result.
 * NULL: out of memory. */
char *output__path_with(const char *path, const char *more);
/* Returns -o, or the default name of the recording of one process. Owned by recording. */
const char *output__main_path(struct recording *recording);
/* Returns the path of the process's file, without a folder: run.mtr, run.PID.mtr, run.PID-2.mtr.
 * The caller frees it. NULL: out of memory. */
char *output__path(const struct output *output);
/* Writes the process's name in a folder: "rank-0", "rank-0-worker-4711", "train-4711". */
void output__stem(const struct output *output, char *buf, size_t size);
/* Returns a fact of the process, or "". */
const char *output__fact(const struct output *output, const char *key);

/* Constructors, for recording.c; process has the common members. One file with all events: */
struct output *output_file__new(const struct output *process);
/* A file in the folder of a recording of several processes, named after rank or program. The
 * folder's index lists the file from its first event on. */
struct output *output_file__new_in_folder(const struct output *process);

/* The functions below keep a process's entry in the index of the recording's folder;
 * output_rolling.c uses them, too. */
/* Fills *entry and makes a path that does not exist yet. The caller frees it. NULL: out of
 * memory. */
char *output_file__begin_entry(const struct output *output, const char *kind, const char *suffix,
			       struct folder_entry *entry);
/* Adds or replaces the entry, with the session's present counters. Returns 0 or a negative error,
 * logged. */
int output_file__add_entry(const struct output *output, struct folder_entry *entry);
/* Adds the complete entry. reason: the fact stop_reason, or NULL. Returns 0 or a negative error,
 * logged. */
int output_file__finish_entry(const struct output *output, struct folder_entry *entry,
			      const char *reason);

/*
 * Sets recording->window_opts and recording->until. of_several: more than one process may be
 * captured. -d and
 * --steps bound each window then, and no longer the capture. Returns 0 or an exit code, logged.
 */
int output_windows__prepare(struct recording *recording, bool of_several);
/* The constructor of windows of a process's events, by the options of window_argp or by --on-oom. */
struct output *output_windows__new(const struct output *process);
/* The constructor of a folder of parts of at most a given size (--rolling). The oldest parts
 * are dropped. */
struct output *output_rolling__new(const struct output *process);
