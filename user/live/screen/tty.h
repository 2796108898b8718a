/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The terminal of the live view. Keeps the terminal's earlier settings, and takes over standard
 * error while the screen is up. The terminal is restored when the view ends, also by a crash. After
 * SIGKILL, the command `reset` restores it.
 */
#include <stdbool.h>

struct tty;

/*
 * Opens the terminal for a screen: standard output with a suitable TERM, and standard input or
 * /dev/tty for keys. Returns NULL if that is not possible; *why (static) is the reason, or NULL if
 * standard output is not a terminal.
 */
struct tty *tty__open(const char **why);
void tty__close(struct tty *t);	     /* NULL is fine */
int tty__input(const struct tty *t); /* descriptor for keys */
/* Tells whether the screen is up. While it is, a crash restores the terminal. Only one screen may
 * be up at a time. */
void tty__screen(struct tty *t, bool up);
/* Restores the terminal without curses, unless another process group is in the foreground. */
void tty__restore(struct tty *t);
/* Redirects standard error to a buffer, because writing to the terminal would disturb the
 * screen. Returns 0 or -errno. */
int tty__catch_errors(struct tty *t);
/* Reads what was written to standard error since the last call, at most size - 1 bytes. Returns the
 * length; 0: nothing. */
int tty__read_errors(struct tty *t, char *buf, int size);
void tty__release_errors(struct tty *t); /* gives standard error back */
