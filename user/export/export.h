/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Exports a recording as a file of another format. A format reads either the finished model (flame
 * graph, folded, speedscope) or every event (timeline): see struct export_format. */
#include <stdbool.h>
#include <stdio.h>

#include "base/grammar.h"
#include "model/model.h"
#include "record/stream.h"

/* The folder of a format that writes several files. */
struct export_folder {
	const char *path;
	/* name of the job, a part of the files' paths; NULL: the recording's name */
	const char *job;
	const char *host; /* name of the machine that made the recording; NULL: unknown */
	bool force;	  /* replace existing files */
};

struct export_ctx {
	FILE *out; /* NULL: the format writes to `folder` */
	const struct export_folder *folder;
	/* path of a torch.profiler trace that is merged into the file; NULL: none */
	const char *with;
	bool with_failed; /* set if end() failed because of the trace `with` */
	const struct dict *dict;
	const struct facts *facts;
	struct model *model;
	/* A second model, which has processed the whole recording already, for formats that look
	 * ahead. NULL: the format does not, or the input cannot be read twice. */
	const struct model *ahead;
	uint64_t ahead_duration; /* duration of the recording, ns; 0: `ahead` is NULL */
	int device; /* index of the device to show, as in the model; -1: all devices, if the format
		       can */
	const char *name;   /* file name of the recording */
	const char *moment; /* name of the model's marked moment: "peak", "end", "oom", "12.8 s" */
	bool moment_given;  /* the user chose that moment with --at */
	/* Value of the option --device; NULL: all devices. Formats that write during the reading
	 * use it instead of `device`, which is known only at the end. */
	const char *device_name;
	uint64_t duration; /* duration of the recording, in ns; valid in end() */
	bool complete;	   /* the recording is complete; valid in end() */
};

struct export_format {
	const char *name;   /* name on the command line, "speedscope" */
	const char *suffix; /* suffix of the file name memtrace-<recording><suffix>,
			       ".speedscope.json" */
	const char *help;   /* one line for --help: the file and its readers */
	bool whole; /* the format shows the whole recording, so the option --at does not apply */
	bool looks_ahead; /* what is written for an event depends on later events */
	/* The format shows the end of the recording unless --at is given. It looks ahead if --at
	 * names another moment. */
	bool of_end;
	/* Writes several files to export_ctx.folder; end() gives them their names. */
	bool to_folder;
	const char *next; /* advice on what to do with the file, for the final message */
	/* Only for formats that read every event, otherwise NULL. begin() is called once, event()
	 * for each event, before the model processes it. Both return 0 or -errno. */
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
/* Returns the format with this name, or NULL. */
const struct export_format *export__find(const char *name);
/* The format of tables for query engines, a Parquet file for each: events, blocks, rows, steps,
 * scopes and devices. Writes TABLE/job=JOB/date=DATE/NAME.parquet in the folder of the export.
 * docs/reference/tables.md has the columns. */
extern const struct export_format tables_parquet;

/* ---- running an export: reads a recording and writes one file in one format ---- */

struct export_job {
	const struct export_format *format;
	const char *recording; /* path; "-": standard input */
	/* Path of the file to write; "-": standard output. NULL: memtrace-FORMAT-RECORDING in the
	 * current folder; a "memtrace-" at the start of the recording's name is left out. */
	const char *output;
	/* only for a format with to_folder; output is unused then */
	const struct export_folder *folder;
	const char *device; /* device name; NULL: all */
	const char *with;   /* path of a torch.profiler trace to merge; NULL: none */
	bool force;	    /* replace an existing file */
	/* The option --at is given, so model.at has its moment. Otherwise formats with of_end show
	 * the end. */
	bool moment_given;
	struct model_opts model;
};

/* Runs an export. Logs the name of the written file, or the error. Returns an exit code
 * (base/exit.h). */
int export__run(const struct export_job *job);
