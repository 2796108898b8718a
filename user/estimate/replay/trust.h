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
#include <limits.h>
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
/* Drops rights in a process before it runs such code: becomes the user behind sudo, or, with own
 * (struct replay_opts), user. 0 or an exit code. */
int replay_trust__become(bool own, const struct user *user);

/*
 * Finds a PyTorch, and the slots of its allocator's functions in the table of virtual functions.
 * PyTorch's pluggable allocator derives from the same class as the native one, and its functions
 * are exported by name. So the slots of both are known without a list of versions.
 */

struct facts;
struct failure;
struct replay_opts;

struct replay_torch {
	char lib[PATH_MAX]; /* path of libc10_cuda.so, for messages */
	int dir;	    /* descriptor (O_PATH) of the library's folder; -1: none */
	char version[64];   /* version in torch/version.py; "": unknown */
	unsigned raw_alloc, raw_delete, init, empty_cache, set_fraction;
};

/* Finds the PyTorch of opts->python, otherwise the recorded one (trust.h). Returns 0, or -errno and
 * *f. The caller closes ret->dir in both cases. */
int replay_torch__find(const struct replay_opts *opts, const struct facts *facts,
		       struct replay_torch *ret, struct failure *f);
