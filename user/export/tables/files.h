/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The files of a recording's tables: FOLDER/TABLE/job=JOB/date=DATE/NAME-PID.parquet. They get
 * their names together, when all are complete. */
#include <stdint.h>

#include "export/export.h"
#include "export/tables/schema.h"

struct table_files;

/* start: ns since 1970; 0: not known. Logs errors of files. Returns 0 or -errno; *ret is set in any
 * case, for table_files__free(). */
int table_files__open(struct table_files **ret, const struct export_folder *f,
		      const char *recording, int64_t pid, uint64_t start);
struct parquet *table_files__at(const struct table_files *t, enum table table);
/* Writes the rest, gives the files their names and logs that. Returns 0 or -errno. */
int table_files__commit(struct table_files *t);
/* Removes files that have no name yet. NULL is fine. */
void table_files__free(struct table_files *t);
