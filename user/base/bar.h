/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Bars made of characters: eighths of blocks in a UTF-8 locale, "#" in others. */
#include <stdbool.h>
#include <stdint.h>

#define BAR_MAX 120		   /* columns; wider bars are cut */
#define BAR_TEXT (3 * BAR_MAX + 1) /* size of a buffer for a bar */

/* True if the locale that setlocale() chose uses UTF-8. */
bool bar__unicode(void);
/* Draws part of whole as a bar in buf, which has BAR_TEXT bytes. fill: adds spaces up to the number
 * of columns. Only 0 gives an empty bar, and only whole or more a full one. Returns buf. */
char *bar__draw(char *buf, uint64_t part, uint64_t whole, unsigned columns, bool unicode,
		bool fill);
