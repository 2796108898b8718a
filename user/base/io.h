/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads and writes whole buffers and files: repeats calls that a signal interrupts or that move
 * only a part. Not for descriptors that do not block. Also opens files that the process which
 * started this one passes to it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Reads n bytes, or fewer at the end of the file. Returns the bytes read, or -errno. */
ssize_t io__read(int fd, void *buf, size_t n);
/* Like io__read(), from an offset in the file. offset + n stays below INT64_MAX. */
ssize_t io__pread(int fd, void *buf, size_t n, uint64_t offset);
/* Writes n bytes. Returns 0 or -errno; -ENOSPC if nothing can be written. */
int io__write(int fd, const void *buf, size_t n);
/* Reads a regular file from its beginning. Returns its bytes, which the caller frees, and sets
 * *size to their number. NULL with errno: EFBIG for more than `most` bytes, EPROTO for an empty
 * file or one that got shorter meanwhile. */
char *io__load(int fd, size_t most, size_t *size);

/* Reads at most size - 1 bytes of a small text file and adds a NUL. Returns the bytes read or
 * -errno, with buf "". */
ssize_t io__text(const char *path, char *buf, size_t size);
/* Like io__text(), for a file of an open folder. */
ssize_t io__text_at(int folder, const char *name, char *buf, size_t size);
/* Like io__text(), for /proc/PID/name. */
ssize_t io__text_of_process(pid_t pid, const char *name, char *buf, size_t size);
/* Decodes the escapes of a path in /proc/PID/mountinfo, such as \040 for a space, in place. */
void io__unescape_path(char *s);

enum io_links {
	LINKS_FOLLOW,  /* as open() */
	LINKS_IN_ROOT, /* dir is a root: absolute links and ".." stay below it */
	LINKS_NONE,    /* a link as the last part is an error */
};

/*
 * Opens a regular file for reading whose name or place other people choose: those of a traced
 * process, of a folder of recordings. To open a device may act on it (a watchdog starts, a tape
 * rewinds), and to open a FIFO waits for its writer. To read a file of the kernel may take from
 * others what it shows (/proc/kmsg, trace_pipe). So this takes a handle that opens nothing
 * (O_PATH), and opens the file only if it is a regular one. tools/dev/check_opens.py lists who may
 * open files otherwise. dir: a folder, or AT_FDCWD. st, which may be NULL, gets its fstat(). A
 * descriptor (O_CLOEXEC), or -errno: -EINVAL not a regular file, or one of the kernel's; -ELOOP a
 * link.
 */
int io__open_regular(int dir, const char *path, enum io_links links, struct stat *st);

/* True if the path is a file, and no folder, that this process may run. */
bool io__is_program(const char *path);

/* Raises this process's soft limit of open descriptors, up to the hard one. */
void io__raise_limit(uint64_t wanted);

/* Files that the parent process has opened for this one: MEMTRACE_FILES="3:run.mtr,4:other.mtr". A
 * process without rights to open files can read them by their names. */

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
