/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Exports: a recording as a file of one format. A format reads either the finished model (flame
 * graph, folded, speedscope) or every event (timeline). struct export_format tells which. */
#include <stdbool.h>
#include <stdio.h>

#include "base/grammar.h"
#include "model/model.h"
#include "record/stream.h"

/* The folder of a format that writes several files. */
struct export_folder {
	const char *path;
	const char *job;  /* NULL: the recording's name */
	const char *host; /* NULL: not known */
	bool force;	  /* replace existing files */
};

struct export_ctx {
	FILE *out; /* NULL: the format writes to `folder` */
	const struct export_folder *folder;
	const char *with; /* trace to merge, of torch.profiler; NULL: none */
	bool with_failed; /* set if end() failed because of that trace */
	const struct dict *dict;
	const struct facts *facts;
	struct model *model;
	/* model of the whole recording for formats that look ahead; NULL if the input cannot be
	 * read twice */
	const struct model *ahead;
	uint64_t ahead_duration; /* duration of the recording, in ns; 0 without `ahead` */
	int device;	  /* index into the model's devices; -1: all, if the format can show them */
	const char *name; /* file name of the recording */
	const char *moment; /* name of the model's marked moment: "peak", "end", "oom", "12.8 s" */
	/* The --device option, NULL: all. Formats that stream need it, because the devices are
	 * known only at the end. */
	const char *device_name;
	uint64_t duration; /* duration of the recording, in ns; valid in end() */
	bool complete;	   /* the recording is complete; valid in end() */
};

struct export_format {
	const char *name;   /* name on the command line, "speedscope" */
	const char *suffix; /* suffix of the file name memtrace-<recording><suffix>,
			       ".speedscope.json" */
	const char *help;   /* one line for --help: the file and its readers */
	bool whole;	    /* shows no moment: --at does not apply */
	bool looks_ahead;   /* the output for an event depends on later events */
	/* Shows the end of the recording unless --at is given; looks ahead for any other
	 * moment. */
	bool of_end;
	/* Writes several files to export_ctx.folder; end() gives them their names. */
	bool to_folder;
	const char *next; /* advice on what to do with the file, for the final message */
	/* For formats that read every event: begin() is called once, event() before the model
	 * processes each event. May be NULL. */
	int (*begin)(struct export_ctx *c, void **state);
	int (*event)(struct export_ctx *c, void *state, const struct event *e);
	/*
	 * Writes the document, or the rest of it. Returns 0 or -errno: -ENOENT if the moment does
	 * not exist, -ENODATA if there is nothing to show. The caller checks c->out for errors.
	 */
	int (*end)(struct export_ctx *c, void *state);
	/* Frees state, also if end() was not called. NULL if there is no begin(). */
	void (*release)(void *state);
};

#define DECLARE_FORMAT(word) extern const struct export_format export_##word;
EXPORT_WORDS(DECLARE_FORMAT, DECLARE_FORMAT)
/* NULL-terminated array. */
extern const struct export_format *const export_formats[];
const struct export_format *export__find(const char *name);
/* A recording as tables for engines, a Parquet file each: events, blocks, rows, steps and devices.
 * Writes TABLE/job=JOB/date=DATE/NAME.parquet in the folder of the export. docs/reference/tables.md
 * has the columns. */
extern const struct export_format tables_parquet;

/* ---- running an export: reads a recording and writes one file in one format ---- */

struct export_job {
	const struct export_format *format;
	const char *recording; /* path; "-": standard input */
	/* Path; "-": standard output. NULL: memtrace-FORMAT-RECORDING in the current folder,
	 * without the recording's own "memtrace-". */
	const char *output;
	const struct export_folder *folder; /* of a format that writes to a folder; then no output */
	const char *device;		    /* device name; NULL: all */
	const char *with;		    /* trace to merge; NULL: none */
	bool force;			    /* replace an existing file */
	/* --at is given; otherwise formats of the whole recording show its end */
	bool moment_given;
	struct model_opts model;
};

/* Logs the written file or the error. Returns an exit code (base/exit.h). */
int export__run(const struct export_job *job);
