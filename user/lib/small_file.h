/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_SMALL_FILE_H
#define MT_LIB_SMALL_FILE_H
/* Small text files of /proc and of control groups. */
#include <stddef.h>
#include <sys/types.h>

/* Reads at most size - 1 bytes and adds a NUL. Returns the bytes read or -errno, with buf "". */
ssize_t small_file__read(const char *path, char *buf, size_t size);
/* Reads /proc/PID/name likewise. */
ssize_t small_file__of_process(pid_t pid, const char *name, char *buf, size_t size);

#endif
