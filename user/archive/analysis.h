/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ARCHIVE_ANALYSIS_H
#define MT_ARCHIVE_ANALYSIS_H
/*
 * A recording run through the model: what report, export and the like begin with. Unlike the layers
 * below, these functions speak to the person: they log what went wrong, on what and what to try,
 * and return the program's exit code, so that every command says the same thing of the same file.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/exit.h"
#include "model/model.h"
#include "record/mtr.h"
#include "record/stream.h"

struct analysis {
	char *path;	   /* as given */
	char *name;	   /* for people and file names: no folder, no ".mtr"; "stdin" for "-" */
	const char *doing; /* what progress says before the name; NULL: "reading" */
	struct mtr_reader *reader;
	struct model *model;
	const struct dict *dict; /* of the reader; grow while it runs */
	const struct facts *facts;
	uint64_t last_time; /* of the last event, ns */
	uint64_t events;    /* read */
	/* Valid once analysis__run() came back. */
	uint64_t duration; /* ns: the fact duration_ns, or the last event's time where that is later
			    */
	bool complete;	   /* the writer closed it; a bound (max-size ...) leaves it complete */
	enum mtr_end end;
	uint64_t end_offset;
	const char *end_why;
};

/* Opens a recording ("-": standard input) and an empty model. 0 and *ret, or EXIT_FAILED,
 * EXIT_UNUSABLE (logged). */
int analysis__open(const char *path, const struct model_opts *opts, struct analysis **ret);
/*
 * Feeds every event to the model and finishes it; each (may be NULL) sees an event before the model
 * does and stops the run with a non-zero -errno. Shows progress on a terminal (log/progress.h). A
 * recording that is cut short or damaged is used up to there, with a note on standard error.
 * 0 or EXIT_FAILED, EXIT_UNUSABLE (logged; also when each failed).
 */
int analysis__run(struct analysis *a, int (*each)(void *ctx, const struct event *e), void *ctx);
void analysis__free(struct analysis *a); /* NULL is fine */

/* "peak", "end", "oom" or a time ("12.8", "12.8s", "900ms") for --at. 0 or -EINVAL. */
int analysis__parse_at(const char *s, struct model_opts *ret);
/*
 * The device that --device names (NULL: the main one). 0 and *ret, or EXIT_UNUSABLE (logged, with
 * the devices there are).
 */
int analysis__device(const struct analysis *a, const char *name, size_t *ret);
/* Flushes and checks an output that was written to: a full disk must not look like success. 0 or
 * EXIT_FAILED (logged). */
int analysis__check_output(FILE *out, const char *name);

#endif
