/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_OUTPUT_FILE_H
#define MT_SAVE_OUTPUT_FILE_H
/* One .mtr file with all events of a process. */
#include <stdbool.h>
#include <stdint.h>

#include "save/output.h"

struct mtr_writer;
struct outfile;

struct output_file {
	struct output o; /* first */
	char *path;	 /* owned */
	struct outfile *file;
	struct mtr_writer *writer; /* NULL: nothing is open */
	uint64_t flushed;	   /* ns since the start */
	int write_err;		   /* negative */
	bool failed;		   /* and logged */
};

/* As output__new(). */
struct output *output_file__new(const struct output *process);

/* For output_folder.c, whose output begins with one of these. */
/* Opens path, which it takes over. 0 or negative, logged. */
int output_file__open(struct output_file *f, char *path);
int output_file__event(struct output_file *f, const struct event *e);
int output_file__tick(struct output_file *f, uint64_t now);
const char *output_file__full(struct output *o);
/*
 * Completes the file, or removes it if nothing was ever recorded. bytes: its size. An exit code,
 * logged.
 */
int output_file__close(struct output_file *f, const char *reason, int err, uint64_t *bytes);

#endif
