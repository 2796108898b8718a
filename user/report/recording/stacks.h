/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Rows of --by stack as text. PyTorch's own frames are left out unless all frames are requested,
 * and rows whose other frames are equal become one. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "model/model.h"

struct dict;
struct facts;
struct report_frames;

/* all: shows PyTorch's frames, too. Borrows d and f. NULL if memory is short. */
struct report_frames *report_frames__new(const struct dict *d, const struct facts *f, bool all);
void report_frames__free(struct report_frames *s); /* NULL is fine */
/* Merges the rows [0, *n) that show the same frames, and keeps them in order of size. Module
 * patterns belong to s. Returns 0 or -ENOMEM. */
int report_frames__merge(struct report_frames *s, struct row *rows, size_t *n);
/* Prints the frames of a row from the root on, one a line. */
void report_frames__print(struct report_frames *s, FILE *out, const struct row *r);
