/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads and writes of whole buffers and files. Calls that a signal interrupts or that move only a
 * part are repeated. Not for descriptors that do not block. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads n bytes, or fewer at the end of the file. Returns the bytes read, or -errno. */
ssize_t io__read(int fd, void *buf, size_t n);
/* The same from an offset, which stays below INT64_MAX with n. */
ssize_t io__pread(int fd, void *buf, size_t n, uint64_t offset);
/* Writes n bytes. Returns 0 or -errno; -ENOSPC if nothing can be written. */
int io__write(int fd, const void *buf, size_t n);
/* Reads a regular file from its beginning. Returns its bytes, which the caller frees, and *size.
 * NULL with errno: EFBIG for more than `most` bytes, EPROTO for an empty file or one that was cut.
 */
char *io__load(int fd, size_t most, size_t *size);

/* Reads at most size - 1 bytes of a small text file and adds a NUL. Returns the bytes read or
 * -errno, with buf "". */
ssize_t io__text(const char *path, char *buf, size_t size);
/* Reads a file of an open folder likewise. */
ssize_t io__text_at(int folder, const char *name, char *buf, size_t size);
/* Reads /proc/PID/name likewise. */
ssize_t io__text_of_process(pid_t pid, const char *name, char *buf, size_t size);
