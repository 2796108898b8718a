/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Restores the terminal even if the live view crashes or is killed: the original process forks and
 * waits, and the child does the work. If the child dies while the screen is up, the waiting process
 * restores the terminal. If the waiting process is killed, the child gets SIGWINCH, is orphaned,
 * and ends normally.
 */
#include <stdbool.h>

struct tty_restore;

/*
 * Opens the terminal for a screen: standard output with a suitable TERM, and standard input or
 * /dev/tty for keys. NULL: not possible; *why (static) has the reason, or NULL if standard output
 * is not a terminal.
 */
struct tty_restore *tty_restore__new(const char **why);
void tty_restore__free(struct tty_restore *g);
int tty_restore__input(const struct tty_restore *g);
/* Forks. Returns true in the child. Returns false in the waiting process when the child has
 * ended; *status: exit code. If fork fails, returns true without a waiting process. */
bool tty_restore__fork(struct tty_restore *g, int *status);

/* --- for the child --- */

/* Records whether the screen is up. */
void tty_restore__screen(struct tty_restore *g, bool up);
/* Stops this process (Ctrl-Z). Call after restoring the terminal; returns when it is continued. */
void tty_restore__stop(struct tty_restore *g);
/* Ends the forwarding of signals, because the child has received one. */
void tty_restore__stop_forwarding(struct tty_restore *g);
/* True if the waiting process is gone. */
bool tty_restore__orphaned(const struct tty_restore *g);
/* Restores the terminal without curses, unless another process group is in the foreground. */
void tty_restore__restore(struct tty_restore *g);
/* Redirects standard error to a buffer, because writing to the terminal would disturb the
 * screen. Returns 0 or -errno. */
int tty_restore__catch_errors(struct tty_restore *g);
/* Reads buffered errors since the last call, at most size - 1 bytes. Returns the length; 0:
 * none. */
int tty_restore__read_errors(struct tty_restore *g, char *buf, int size);
void tty_restore__release_errors(struct tty_restore *g);
