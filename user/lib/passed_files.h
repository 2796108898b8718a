/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_PASSED_FILES_H
#define MT_LIB_PASSED_FILES_H
/*
 * Files that whoever started us has opened for us, by name: MEMTRACE_FILES="3:run.mtr,4:other.mtr".
 * So a program that may open nothing can be given what it is to read, and still calls it by its
 * name.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define HANDED "MEMTRACE_FILES"

/* A descriptor for reading: of a file that was handed over (with its offset, so that it is to be
 * read with pread()), else opened. -1 with errno. */
int passed_files__open(const char *path);
/* stat() of it. */
int passed_files__stat(const char *path, struct stat *st);
/* May it be called so in HANDED? Letters, digits, '.', '_', '-' and '+', 1 to 200. */
bool passed_files__good_name(const char *name);

#endif
