/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Folders whose programs and libraries may run because a recording names them: those that packages
 * fill, and those that the administrator lists. That root owns a file is no consent to run it,
 * because root also owns all that root clones or unpacks.
 */
#include <stdbool.h>

/* One path a line; a line that begins with '#' is a comment. docs/internals/ESTIMATE.md. */
#define REPLAY_PLACES_LIST "/etc/memtrace-bpf/interpreters"
/* The built-in folders, for messages. */
#define REPLAY_PLACES_TEXT "bin, lib and lib64 in /, /usr and /usr/local"

/*
 * True if both the name and the file that it led to are below such folders. fd: the file, opened by
 * replay_trust__open(). The name counts, too, since Python looks for its packages next to the name
 * that it was started by. list: REPLAY_PLACES_LIST, or another in tests; only a file that root
 * alone can change counts.
 */
bool replay_places__has(const char *name, int fd, const char *list);
