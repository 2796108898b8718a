/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Files that the parent process has opened for this one: MEMTRACE_FILES="3:run.mtr,4:other.mtr". A
 * process without rights to open files can read them by their names. */
#include <stdbool.h>
#include <sys/stat.h>

#define HANDED "MEMTRACE_FILES"
#define FOLDER_INDEX "index.json" /* index of a folder of recordings: record/folder.h */

/* Opens a file for reading, or duplicates the descriptor of a passed file. A passed file shares its
 * offset with the parent, so use pread(). In a folder of recordings only a regular file is opened,
 * and no link is followed. -1 with errno; EINVAL, ELOOP: not such a file. */
int passed_files__open(const char *path);
/* Like stat(), also for passed files. */
int passed_files__stat(const char *path, struct stat *st);
/* True if the path's last part lies in a folder of recordings, where the writer of the index, and
 * not the user, chooses the files. */
bool passed_files__in_folder(const char *path);
/* True if the name may be used in HANDED: 1 to 200 letters, digits, '.', '_', '-' and '+'. */
bool passed_files__good_name(const char *name);
