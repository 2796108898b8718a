/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_GUARD_H
#define MT_LIVE_GUARD_H
/*
 * The terminal comes back as it was whatever happens: the process that was started forks, and stays behind to wait. The child does
 * all the work. Should it end while the screen is up, crashed or killed, the one that waits puts the terminal right. Should
 * the one that waits be killed, the child is told and ends in order.
 */
#include <stdbool.h>

struct guard;

/*
 * Is there a terminal that a screen can be shown on: standard output, with a TERM that can address it, and standard input or
 * /dev/tty to type on? NULL if not; *why then says why, static, where standard output is a terminal (else NULL).
 */
struct guard *guard__new(const char **why);
void guard__free(struct guard *g);
int guard__input(const struct guard *g);
/*
 * Forks. True in the child, which goes on. False in the one that stays behind, when the child has ended: *status is what to exit
 * with. Where there can be no fork, true, and nobody stays behind.
 */
bool guard__fork(struct guard *g, int *status);

/* --- for the child --- */

/* The screen is up from now on, or not any more. */
void guard__screen(struct guard *g, bool up);
/* It stops itself (Ctrl-Z) after having put the terminal right; returns when it goes on. */
void guard__stop(struct guard *g);
/* Signals need not be forwarded any more: it has heard one. */
void guard__heard(struct guard *g);
/* The one that waits is gone. */
bool guard__orphaned(const struct guard *g);
/* Puts the terminal right without curses: when it may be anybody's by now. */
void guard__restore(struct guard *g);
/* Standard error is on the terminal, or is the screen's while that is up: what is written to it is kept. 0 or -errno. */
int guard__catch_errors(struct guard *g);
/* What came since the last call, at most size - 1 bytes; length, 0: nothing. */
int guard__caught(struct guard *g, char *buf, int size);
void guard__release_errors(struct guard *g);

#endif
