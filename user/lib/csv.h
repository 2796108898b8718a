/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_CSV_H
#define MT_LIB_CSV_H
#include <stdio.h>

/*
 * Writes s as a field of a table (RFC 4180), NULL as an empty one; commas and line ends between fields are the caller's.
 * Control characters are escaped as in text, line ends among them: a table is looked at on terminals too. What a spreadsheet
 * takes for a formula (a name that begins with "=") stays as it is: the data would be others.
 */
void csv__put(FILE *out, const char *s);

#endif
