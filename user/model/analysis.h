/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Runs a recording through the model, for commands such as report and export. These functions log
 * their own errors, with the file and a remedy, and return the program's exit code. So every
 * command gives the same message for the same file.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/exit.h"
#include "model/model.h"
#include "record/mtr.h"
#include "record/stream.h"

struct failure;

struct analysis {
	char *path; /* path as given */
	/* Name for people and file names: without folder and ".mtr"; "stdin" for "-". */
	char *name;
	/* Machine of the recording, from the index of the recording's folder; NULL: not known. The
	 * caller sets and owns it. */
	const char *host;
	const char *doing; /* verb before name in the progress line; NULL: "reading" */
	struct mtr_reader *reader;
	struct model *model;
	const struct dict *dict; /* dict and facts of the reader; both grow during the run */
	const struct facts *facts;
	uint64_t last_time; /* time of the last event, ns */
	uint64_t events;    /* number of events read */
	char marks[512];    /* names of the first marks, quoted, with commas between them */
	/* From here on: valid after analysis__run(). */
	uint64_t duration; /* ns: the fact duration_ns, or the last event's time if that is later */

	/* True if the writer closed the file, also at a bound such as max-size. */
	bool complete;
	enum mtr_end end;
	uint64_t end_offset;
	const char *end_why;
};

/* Opens a recording ("-": standard input) and an empty model. Reads the recording once before, if
 * opts->at_scope asks for the moment of a scope. opts: NULL for the defaults. Returns 0 and *ret,
 * or EXIT_FAILED or EXIT_UNUSABLE, logged. */
int analysis__open(const char *path, const struct model_opts *opts, struct analysis **ret);
/*
 * Feeds every event to the model and finishes the model. The callback each (may be NULL) gets each
 * event before the model does; if it returns a -errno, the run stops. Shows progress on a terminal
 * (base/log.h). Uses the readable part of a cut or damaged file and logs a warning.
 * Returns 0, or EXIT_FAILED or EXIT_UNUSABLE, logged.
 */
int analysis__run(struct analysis *a, int (*each)(void *ctx, const struct event *e), void *ctx);
void analysis__free(struct analysis *a); /* NULL is fine */

/* For commands that read a recording without a model. Sets *f to the reason why
 * mtr_reader__open() failed, with its errno and why. */
void analysis__open_failure(const char *path, int err, const char *why, struct failure *f);
/* Call it after the last event. Logs a warning for a cut or damaged recording. Returns 0, or
 * -ENODATA and *f if no event of the recording could be read. */
int analysis__end_failure(const char *path, const struct mtr_reader *r, uint64_t events,
			  struct failure *f);

/* Parses the argument of --at: "peak", "end", "oom", a time ("12.8", "12.8s", "900ms"),
 * "mark:NAME", "scope:NAME" or "scope:NAME#N". Returns 0 or -EINVAL. */
int analysis__parse_at(const char *s, struct model_opts *ret);
/* Finds the device that --device names (NULL: the main device). Returns 0 and *ret, or
 * EXIT_UNUSABLE, logged with the recording's devices. */
int analysis__device(const struct analysis *a, const char *name, size_t *ret);
/* Flushes an output and checks it, so that a full disk is reported. Returns 0, or EXIT_FAILED,
 * logged. */
int analysis__check_output(FILE *out, const char *name);
