/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The terminal of a live view, with ncurses: draws a struct live_state and reads keys. Only one
 * may be open. */
#include <stdbool.h>
#include <stddef.h>

struct tty;
struct live_state;
struct screen;

/* Takes over the terminal. NULL on failure. */
struct screen *screen__open(struct tty *t, bool colour, bool mouse);
/* Restores the terminal. NULL is fine. */
void screen__close(struct screen *s);
void screen__draw(struct screen *s, struct live_state *state);
/* Call before drawing if the terminal's content is unknown (screen__redraw()) or its size has
 * changed (screen__resized()). */
void screen__redraw(struct screen *s);
void screen__resized(struct screen *s);
/* Restores the terminal until screen__resume(). */
void screen__suspend(struct screen *s);
void screen__resume(struct screen *s);
/* Reads the next key: a character or enum live_key; 0: one without a meaning. Returns -1 if no key
 * is there, -2 if the terminal is gone. */
int screen__key(struct screen *s);
/* Number of table rows on the screen. */
size_t screen__page(const struct screen *s);
