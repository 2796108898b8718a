/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_GZIP_H
#define MT_LIB_GZIP_H
/* A gzip stream onto a FILE: no name and no time in it, so that the same content gives the same
 * file. */
#include <stddef.h>
#include <stdio.h>

struct gzip;

struct gzip *gzip__new(FILE *out); /* NULL on ENOMEM; borrows out */
/* Errors of out are the caller's to check with ferror(). */
void gzip__write(struct gzip *z, const void *data, size_t len);
/* Writes the end. Frees z; NULL is fine. */
void gzip__end(struct gzip *z);

#endif
