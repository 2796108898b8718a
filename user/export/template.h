/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_TEMPLATE_H
#define MT_EXPORT_TEMPLATE_H
#include <stdio.h>

/*
 * Writes a template of our own, which ends at end, up to a mark that is in it. Returns what follows
 * the mark. Errors of out are the caller's to check.
 */
const char *template__until(FILE *out, const char *html, const char *end, const char *mark);

#endif
