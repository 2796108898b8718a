/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_TTY_RESTORE_H
#define MT_LIVE_TTY_RESTORE_H
/*
 * The terminal comes back as it was whatever happens: the process that was started forks, and stays
 * behind to wait. The child does all the work. Should it end while the screen is up, crashed or
 * killed, the one that waits puts the terminal right. Should the one that waits be killed, the
 * child is told and ends in order.
 */
#include <stdbool.h>

struct tty_restore;

/*
 * Is there a terminal that a screen can be shown on: standard output, with a TERM that can address
 * it, and standard input or /dev/tty to type on? NULL if not; *why then says why, static, where
 * standard output is a terminal (else NULL).
 */
struct tty_restore *tty_restore__new(const char **why);
void tty_restore__free(struct tty_restore *g);
int tty_restore__input(const struct tty_restore *g);
/*
 * Forks. True in the child, which goes on. False in the one that stays behind, when the child has
 * ended: *status is what to exit with. Where there can be no fork, true, and nobody stays behind.
 */
bool tty_restore__fork(struct tty_restore *g, int *status);

/* --- for the child --- */

/* The screen is up from now on, or not any more. */
void tty_restore__screen(struct tty_restore *g, bool up);
/* It stops itself (Ctrl-Z) after having put the terminal right; returns when it goes on. */
void tty_restore__stop(struct tty_restore *g);
/* Signals need not be forwarded any more: it has heard one. */
void tty_restore__heard(struct tty_restore *g);
/* The one that waits is gone. */
bool tty_restore__orphaned(const struct tty_restore *g);
/* Puts the terminal right without curses: when it may be anybody's by now. */
void tty_restore__restore(struct tty_restore *g);
/* Standard error is on the terminal, or is the screen's while that is up: what is written to it is
 * kept. 0 or -errno. */
int tty_restore__catch_errors(struct tty_restore *g);
/* What came since the last call, at most size - 1 bytes; length, 0: nothing. */
int tty_restore__caught(struct tty_restore *g, char *buf, int size);
void tty_restore__release_errors(struct tty_restore *g);

#endif
