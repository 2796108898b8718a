/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stdio.h>

/* Writes a built-in HTML template, which ends at `end`, up to `mark`. Returns the text after the
 * mark. The caller checks `out` for errors. */
const char *template__until(FILE *out, const char *html, const char *end, const char *mark);
