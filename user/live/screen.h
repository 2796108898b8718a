/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_SCREEN_H
#define MT_LIVE_SCREEN_H
/* A live view on a terminal, by ncurses: draws a struct live_state, and says which keys were
 * pressed. One at a time. */
#include <stdbool.h>
#include <stddef.h>

struct tty_restore;
struct live_state;
struct screen;

/* Takes over the terminal. NULL: it could not be. */
struct screen *screen__open(struct tty_restore *g, bool colour);
/* Gives the terminal back; NULL is fine. */
void screen__close(struct screen *s);
void screen__draw(struct screen *s, struct live_state *state);
/* The terminal shows something else by now, or has another size: before the next drawing. */
void screen__redraw(struct screen *s);
void screen__resized(struct screen *s);
/* Gives the terminal back until screen__resume(). */
void screen__suspend(struct screen *s);
void screen__resume(struct screen *s);
/* The next key, a character or enum live_key; -1: none so far; -2: the terminal is gone. */
int screen__key(struct screen *s);
/* Rows of the table that are on the screen. */
size_t screen__page(const struct screen *s);

#endif
