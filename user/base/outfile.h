/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Output files of a program that often runs as root, in folders that other users may write to.
 * Files are never opened through a symbolic link, and never replaced without force. They have mode
 * 0600, and belong to the user behind sudo (SUDO_UID, SUDO_GID), if any.
 *
 * OUTFILE_RENAME: the file gets its name when it is complete (reports, exports).
 * OUTFILE_DIRECT: the file has its name from the start, so that a crash leaves a readable file
 * (recordings). With force, outfile__replace() replaces an existing file instead of overwriting it:
 * a process that has the old file open keeps it.
 *
 * "-" is standard output. Character devices (/dev/null, a terminal) are written to directly, and
 * with force also our own FIFOs.
 */
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

struct outfile;

enum outfile_how { OUTFILE_RENAME, OUTFILE_DIRECT };

/* Creates a file for writing. Returns 0 and *ret, or -errno: EEXIST (exists, and no force),
 * ELOOP (symbolic link), EISDIR, ENOTSUP (socket or block device), or a system error. See
 * outfile__why(). */
int outfile__create(const char *path, enum outfile_how how, bool force, struct outfile **ret);
/* Text for an error and what to do about it, for a message after "PATH: ". err: negative, as
 * returned. The text is static, or from strerror(). */
const char *outfile__why(int err);

/* Flushes a stream that is not an outfile's, such as standard output. Returns 0, or -errno of the
 * first error, also of an earlier write. */
int outfile__flush(FILE *out);

int outfile__fd(const struct outfile *o);
/* A stream for the file, created by the first call; do not fclose() it. NULL with errno. */
FILE *outfile__stream(struct outfile *o);
/* The name for messages: the path as given, or "standard output" for "-". */
const char *outfile__name(const struct outfile *o);

/* OUTFILE_DIRECT with force: gives the file its name and replaces the older file. Call it before
 * the first write. Other files: no effect. Returns 0 or -errno. */
int outfile__replace(struct outfile *o);
/* Flushes and closes the file; with OUTFILE_RENAME also gives it its name. Returns 0, or -errno of
 * the first error, also of an earlier write. On an error, an OUTFILE_RENAME file is removed and an
 * OUTFILE_DIRECT file stays. Frees o in both cases. */
int outfile__commit(struct outfile *o);
/* Closes and removes the created file. An old file that was not replaced stays. Frees o; NULL is
 * fine. */
void outfile__discard(struct outfile *o);
/* Replaces the file DIR/NAME by what put() writes to out; put() returns 0 or -errno. Returns 0, or
 * -errno: then an old file stays. */
int outfile__rewrite(const char *dir, const char *name, int (*put)(FILE *out, const void *ctx),
		     const void *ctx);
/* Makes SIGINT, SIGTERM and SIGHUP remove the file of o before they end the program, until o is
 * committed or discarded. For one file at a time. Ignored signals stay ignored. */
void outfile__discard_on_signal(struct outfile *o);

/* True if the file belongs to our user or to the user behind sudo. */
bool outfile__is_ours(const struct stat *st);
/* Changes the owner of an open file or folder to the user behind sudo, if any. */
void outfile__give(int fd);
