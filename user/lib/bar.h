/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_BAR_H
#define MT_LIB_BAR_H
/* Bars made of characters: eighths of blocks where the locale's text is UTF-8, "#" elsewhere. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BAR_MAX 120		   /* columns; what is wider is cut */
#define BAR_TEXT (3 * BAR_MAX + 1) /* bytes of any bar */

/* Does the locale that setlocale() chose write UTF-8? */
bool bar__unicode(void);
/*
 * part of whole as a bar in so many columns, filled up with spaces behind if fill. Nothing but 0
 * has no mark at all, and nothing but the whole (or more, which is drawn as the whole) is full. buf
 * of BAR_TEXT. Returns buf.
 */
char *bar__draw(char *buf, uint64_t part, uint64_t whole, unsigned columns, bool unicode,
		bool fill);

#endif
