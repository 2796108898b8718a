/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stdbool.h>
#include <stdio.h>

/*
 * Writes text as a CSV field (RFC 4180); NULL as an empty field. The caller writes commas and line
 * ends. Control characters and line ends are escaped, because tables are also read on terminals.
 * Text that a spreadsheet takes for a formula (= + - or @ at its start or after a semicolon) gets a
 * leading apostrophe. Do not use it for numbers: "-5" would get one, too.
 */
void csv__put(FILE *out, const char *s);
/* Sets for the whole process whether csv__put() leaves out the apostrophes (raw). */
void csv__set_raw(bool raw);
