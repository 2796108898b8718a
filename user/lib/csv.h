/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_CSV_H
#define MT_LIB_CSV_H
#include <stdbool.h>
#include <stdio.h>

/*
 * Writes text s as a field of a table (RFC 4180), NULL as an empty one; commas and line ends
 * between fields are the caller's. Control characters are escaped as in text, line ends among them:
 * a table is looked at on terminals too. Text that a spreadsheet takes for a formula, since it
 * begins with = + - or @, gets a ' in front; so does what follows a semicolon in it, where a table
 * with other separators would begin a cell. Not for numbers.
 */
void csv__put(FILE *out, const char *s);
/* Text goes out as it is, without that '. Of the whole process. */
void csv__set_raw(bool raw);

#endif
