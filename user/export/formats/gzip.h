/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A gzip stream that writes to a FILE. It contains no name or time: the same content gives the same
 * file. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct gzip;

struct gzip *gzip__new(FILE *out); /* NULL if memory is short; borrows out */
/* Compresses and writes data. gzip__end() says whether a write failed. */
void gzip__write(struct gzip *z, const void *data, size_t len);
/* Writes the end and frees z; NULL is fine. Returns false if a write failed since gzip__new(). */
bool gzip__end(struct gzip *z);
