/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_PARAGRAPH_H
#define MT_LIB_PARAGRAPH_H
/* Sentences on a terminal. */
#include <stddef.h>
#include <stdio.h>

#define PARAGRAPH_TEXT 33280 /* bytes of a paragraph at most */

/*
 * Prints text in lines of at most width columns, broken at spaces, and a line end. first stands
 * before the first line, rest before the others. A number stays on the line of its unit.
 */
void paragraph__print(FILE *out, size_t width, const char *first, const char *rest, const char *fmt,
		      ...) __attribute__((format(printf, 5, 6)));

#endif
