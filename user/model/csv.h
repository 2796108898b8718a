/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stdbool.h>
#include <stdio.h>

/*
 * Writes text as a CSV field (RFC 4180); NULL as an empty field. The caller writes commas and line
 * ends. Control characters and line ends are escaped, because tables are also read on terminals.
 * Text that a spreadsheet takes for a formula (= + - or @ at its start or after a semicolon) gets a
 * leading apostrophe. Not for numbers.
 */
void csv__put(FILE *out, const char *s);
/* raw: csv__put() adds no apostrophes, in the whole process. */
void csv__set_raw(bool raw);
