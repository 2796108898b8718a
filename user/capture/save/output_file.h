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

/* The functions below are also for output_folder.c. */
/* Opens path and takes ownership of it. Returns 0 or a negative error, logged. */
int output_file__open(struct output_file *f, char *path);
int output_file__event(struct output_file *f, const struct event *e);
int output_file__tick(struct output_file *f, uint64_t now);
const char *output_file__full(struct output *o);
/*
 * Completes the file, or removes it if no event was recorded. *bytes: size of the file. Returns an
 * exit code, logged.
 */
int output_file__close(struct output_file *f, const char *reason, int err, uint64_t *bytes);
