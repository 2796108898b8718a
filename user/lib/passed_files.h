/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Files that the parent process has opened for this one: MEMTRACE_FILES="3:run.mtr,4:other.mtr". A
 * process without rights to open files can read them by their names. */
#include <stdbool.h>
#include <sys/stat.h>

#define HANDED "MEMTRACE_FILES"

/* Opens a file for reading, or duplicates the descriptor of a passed file. A passed file shares its
 * offset with the parent, so use pread(). -1 with errno. */
int passed_files__open(const char *path);
/* Like stat(), also for passed files. */
int passed_files__stat(const char *path, struct stat *st);
/* True if the name may be used in HANDED: 1 to 200 letters, digits, '.', '_', '-' and '+'. */
bool passed_files__good_name(const char *name);
