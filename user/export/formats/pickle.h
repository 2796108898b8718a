/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Writes plain data in Python's pickle format, protocol 2: dicts, lists, tuples, numbers and text.
 * No class is named, so reading the file runs no code. A value that occurs several times can be
 * written once and referred to. The caller must nest the calls correctly and check the stream with
 * ferror().
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct pickle;

struct pickle *pickle__new(FILE *out); /* NULL if memory is short; borrows out */
/* Writes the end, after the one value that the file has. Frees p; NULL is fine. */
void pickle__end(struct pickle *p);

/* Between open and close of a dict, each value follows a pickle__key(). */
void pickle__open_dict(struct pickle *p);
void pickle__close_dict(struct pickle *p);
void pickle__open_list(struct pickle *p);
void pickle__close_list(struct pickle *p);
/* Writes the key of the next value. key must be a string literal: its address identifies it, so
 * that it is written only once. */
void pickle__key(struct pickle *p, const char *key);
void pickle__string(struct pickle *p, const char *s); /* must be UTF-8 */
void pickle__uint(struct pickle *p, uint64_t v);
void pickle__int(struct pickle *p, int64_t v);
void pickle__bool(struct pickle *p, bool v);
void pickle__pair(struct pickle *p, uint64_t a, uint64_t b); /* a tuple */

/* pickle__keep() gives the value just written a number and returns it. pickle__again() writes the
 * value with this number again, as a reference. */
uint32_t pickle__keep(struct pickle *p);
void pickle__again(struct pickle *p, uint32_t kept);
