/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_GUARD_H
#define MT_LIVE_GUARD_H
/*
 * The terminal comes back as it was whatever happens: the process that was started forks, and stays behind to wait. The child does
 * all the work. Should it end while the screen is up, crashed or killed, the one that waits puts the terminal right. Should
 * the one that waits be killed, the child is told and ends in order.
 */
#include <stdbool.h>

struct term_guard;

/*
 * Is there a terminal that a screen can be shown on: standard output, with a TERM that can address it, and standard input or
 * /dev/tty to type on? NULL if not; *why then says why, static, where standard output is a terminal (else NULL).
 */
struct term_guard *term_guard__new(const char **why);
void term_guard__free(struct term_guard *g);
int term_guard__input(const struct term_guard *g);
/*
 * Forks. True in the child, which goes on. False in the one that stays behind, when the child has ended: *status is what to exit
 * with. Where there can be no fork, true, and nobody stays behind.
 */
bool term_guard__fork(struct term_guard *g, int *status);

/* --- for the child --- */

/* The screen is up from now on, or not any more. */
void term_guard__screen(struct term_guard *g, bool up);
/* It stops itself (Ctrl-Z) after having put the terminal right; returns when it goes on. */
void term_guard__stop(struct term_guard *g);
/* Signals need not be forwarded any more: it has heard one. */
void term_guard__heard(struct term_guard *g);
/* The one that waits is gone. */
bool term_guard__orphaned(const struct term_guard *g);
/* Puts the terminal right without curses: when it may be anybody's by now. */
void term_guard__restore(struct term_guard *g);
/* Standard error is on the terminal, or is the screen's while that is up: what is written to it is kept. 0 or -errno. */
int term_guard__catch_errors(struct term_guard *g);
/* What came since the last call, at most size - 1 bytes; length, 0: nothing. */
int term_guard__caught(struct term_guard *g, char *buf, int size);
void term_guard__release_errors(struct term_guard *g);

#endif
