/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_OUTFILE_H
#define MT_LIB_OUTFILE_H
/*
 * Output files written by a program that often runs as root, in folders that others may write to:
 * never through a symbolic link, never over a file unless told to, readable by their owner alone
 * (mode 0600), and owned by the user behind sudo (SUDO_UID, SUDO_GID) where there is one.
 *
 * Two ways, one for each kind of file:
 *   OUTFILE_RENAME: written under a temporary name in the same folder, and named in one step when
 * whole (reports, exports: a half-written one is worth nothing). OUTFILE_DIRECT: under its own name
 * from the start (recordings: whatever happens, what was written is there to be read). With force
 * an existing file is replaced by outfile__replace(), not written over: whoever has it open keeps
 * the old one, and so does everybody when nothing came of the new one.
 *
 * "-" is standard output. A character device (/dev/null, /dev/full, a terminal) is written to as it
 * is; so is a FIFO of our own with force.
 */
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

struct outfile;

enum outfile_how { OUTFILE_RENAME, OUTFILE_DIRECT };

/*
 * Opens for writing. 0 and *ret, or -errno: EEXIST (there, and no force), ELOOP (a symbolic link),
 * EISDIR, ENOTSUP (a socket or block device), or that of the system. outfile__why() has the words.
 */
int outfile__create(const char *path, enum outfile_how how, bool force, struct outfile **ret);
/* What went wrong and what to try, for a message after "PATH: ". err: as returned, negative.
 * Static, or strerror()'s. */
const char *outfile__why(int err);

int outfile__fd(const struct outfile *o);
/* A stream on the same file, made at the first call; do not fclose() it. NULL with errno. */
FILE *outfile__stream(struct outfile *o);
/* The name to tell people: the path as given, "standard output" for "-". */
const char *outfile__name(const struct outfile *o);

/*
 * OUTFILE_DIRECT with force: from now on the file stands under its name, in the place of an older
 * one. To be called when there is something to write. Nothing in all other cases. 0 or -errno.
 */
int outfile__replace(struct outfile *o);
/*
 * Flushes, closes and (OUTFILE_RENAME) gives the file its name. 0 or -errno of the first thing that
 * went wrong, an earlier write to the stream included; then an OUTFILE_RENAME file is removed and
 * an OUTFILE_DIRECT one stays as it is. Frees o either way.
 */
int outfile__commit(struct outfile *o);
/* Closes and removes what was created; a file that was not replaced yet stays. Frees o; NULL is
 * fine. */
void outfile__discard(struct outfile *o);
/*
 * From now on SIGINT, SIGTERM and SIGHUP remove o's file (as discard would) before they end the
 * program, until o is committed or discarded. One at a time; signals that are ignored stay so.
 */
void outfile__discard_on_signal(struct outfile *o);

/* Is it of the user who we are, or of the one behind sudo? */
bool outfile__is_ours(const struct stat *st);
/* Gives what is open to the user behind sudo, where there is one; for what is made otherwise, a
 * folder. */
void outfile__give(int fd);

#endif
