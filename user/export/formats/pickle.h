/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Writes Python's pickle format, protocol 2, of plain data: dicts, lists, tuples, numbers and text.
 * No class is named, so reading one runs nothing. What is there more than once can be written once
 * and referred to. Nesting is the caller's business; errors of the stream are his to check with
 * ferror().
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct pickle;

struct pickle *pickle__new(FILE *out); /* NULL on ENOMEM; borrows out */
/* Writes the end, after the one value at the top. Frees p; NULL is fine. */
void pickle__end(struct pickle *p);

/* In a dict each value comes after its key. */
void pickle__open_dict(struct pickle *p);
void pickle__close_dict(struct pickle *p);
void pickle__open_list(struct pickle *p);
void pickle__close_list(struct pickle *p);
void pickle__key(struct pickle *p,
		 const char *key); /* a literal: known again by its address, and written once */
void pickle__string(struct pickle *p, const char *s); /* must be UTF-8 */
void pickle__uint(struct pickle *p, uint64_t v);
void pickle__int(struct pickle *p, int64_t v);
void pickle__bool(struct pickle *p, bool v);
void pickle__pair(struct pickle *p, uint64_t a, uint64_t b); /* a tuple */

/* Keeps the value just written under a number, which is returned, and writes it again. */
uint32_t pickle__keep(struct pickle *p);
void pickle__again(struct pickle *p, uint32_t kept);
