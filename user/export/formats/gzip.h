/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A gzip stream that writes to a FILE. It contains no name or time: the same content gives the same
 * file. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct gzip;

struct gzip *gzip__new(FILE *out); /* NULL on ENOMEM; borrows out */
/* A write error also shows in ferror(out), unless out is in memory: see gzip__end(). */
void gzip__write(struct gzip *z, const void *data, size_t len);
/* Writes the end. Frees z; NULL is fine. False: some was not written. */
bool gzip__end(struct gzip *z);
