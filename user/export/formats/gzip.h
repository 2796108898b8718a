/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A gzip stream that writes to a FILE. It contains no name or time: the same content gives the same
 * file. */
#include <stddef.h>
#include <stdio.h>

struct gzip;

struct gzip *gzip__new(FILE *out); /* NULL on ENOMEM; borrows out */
/* The caller checks out for errors with ferror(). */
void gzip__write(struct gzip *z, const void *data, size_t len);
/* Writes the end. Frees z; NULL is fine. */
void gzip__end(struct gzip *z);
