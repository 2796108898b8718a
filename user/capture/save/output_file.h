/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* An output: one .mtr file with all events of a process. */
#include <stdbool.h>
#include <stdint.h>

#include "capture/save/output.h"

struct mtr_writer;
struct outfile;

struct output_file {
	struct output o; /* first: the output is cast to this struct */
	char *path;	 /* path of the file; owned */
	struct outfile *file;
	struct mtr_writer *writer; /* writer; NULL: the file is not open */
	uint64_t flushed;	   /* time of the last flush, ns since the start */
	int write_err;		   /* negative error of the last write */
	bool failed;		   /* an error was logged */
};

/* The constructor, for recording.c; process has the common members. */
struct output *output_file__new(const struct output *process);

/*
 * An output: a file in the folder of a recording of several processes, named after rank or program.
 * The folder's index lists the file from its first event on.
 */
struct event;
struct folder_entry;
struct output;

/* The constructor, for recording.c; process has the common members. */
struct output *output_file__new_in_folder(const struct output *process);

/* The functions below keep a process's entry in the index of o->r->folder; output_rolling.c uses
 * them, too. */
/* Fills e and makes a path that does not exist yet. The caller frees it. NULL: out of memory. */
char *output_file__begin_entry(const struct output *o, const char *kind, const char *suffix,
			       struct folder_entry *e);
/* Adds or replaces the entry, with the session's present counters. Returns 0 or a negative error,
 * logged. */
int output_file__add_entry(const struct output *o, struct folder_entry *e);
/* Adds the complete entry. reason: the fact stop_reason, or NULL. Returns 0 or a negative error,
 * logged. */
int output_file__finish_entry(const struct output *o, struct folder_entry *e, const char *reason);
