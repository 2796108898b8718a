/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_RUN_H
#define MT_EXPORT_RUN_H
/* One export: reads a recording and writes one file in one format. */
#include <stdbool.h>

#include "export/export.h"

struct export_job {
	const struct export_format *format;
	const char *recording; /* "-": standard input */
	const char *output; /* NULL: memtrace-FORMAT-RECORDING in the current folder; "-": standard
			       output */
	const char *device; /* NULL: all */
	bool force;	    /* replace output if it exists */
	bool moment_given;  /* else formats of the whole recording show its end */
	struct model_opts model;
};

/* Logs what it wrote, or why it did not. An exit code (lib/exit.h). */
int export__run(const struct export_job *job);

#endif
