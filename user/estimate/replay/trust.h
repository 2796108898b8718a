/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Finds PyTorch's libraries, whose code a replay runs. An interpreter that the user names is run
 * unchecked. A path that only the recording names may come from an attacker. Therefore every part
 * of it must be writable by root alone. Ownership by the user proves nothing, because the user also
 * owns files that the user unpacked. Root owns what root unpacked, so the path must lie where
 * packages do or where the administrator lists it, since root also owns all that root clones, and
 * neither in the folder of the recording nor in the current one. Only a file named like a Python is
 * run.
 */
#include <stdbool.h>
#include <stddef.h>

struct facts;
struct failure;
struct replay_opts;
struct user;

/* One path a line; a line that begins with '#' is a comment. docs/internals/ESTIMATE.md. */
#define REPLAY_PLACES_LIST "/etc/memtrace-bpf/interpreters"
/* The built-in folders, for messages. */
#define REPLAY_PLACES_TEXT "bin, lib and lib64 in /, /usr and /usr/local"

/*
 * Opens the file or folder with O_PATH and checks each part of its path, links included. Returns a
 * descriptor, which the caller closes, or an error. -EINVAL: not absolute; -EPERM: others than root
 * can change a part of it; -EXDEV: it leads into /proc or /sys, where a name differs between
 * processes; or another -errno.
 */
int replay_trust__open(const char *path);
/*
 * True if both the name and the file that it led to are below folders that packages fill, or that
 * the list names. fd: the file, opened by replay_trust__open(). The name counts, too, since Python
 * looks for its packages next to the name that it was started by. list: REPLAY_PLACES_LIST, or
 * another in tests; only a file that root alone can change counts.
 */
bool replay_trust__has_place(const char *name, int fd, const char *list);
/*
 * Opens (O_PATH) the folder of libc10_cuda.so: of opts->python's PyTorch, or of the recorded one.
 * Writes its path to path, for messages. Returns the descriptor, which the caller closes, or -errno
 * and *f.
 */
int replay_trust__find(const struct replay_opts *opts, const struct facts *facts, char *path,
		       size_t size, struct failure *f);
/* Drops rights in a process before it runs such code: becomes the user behind sudo, or, with own
 * (struct replay_opts), user. 0 or an exit code. */
int replay_trust__become(bool own, const struct user *user);
