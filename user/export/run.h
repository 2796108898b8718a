/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Runs an export: reads a recording and writes one file in one format. */
#include <stdbool.h>

#include "export/export.h"

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
