/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A set of strings. Each string is stored once, so equal strings of one set have equal
 * addresses. */
#include <stddef.h>
#include <stdint.h>

struct strings;

struct strings *strings__new(void);    /* NULL on ENOMEM */
void strings__free(struct strings *s); /* with all its strings; NULL is fine */
/* Replaces *text with the set's copy; NULL stays NULL. Returns 0, or -ENOMEM with *text
 * unchanged. */
int strings__keep(struct strings *s, const char **text);
/* Adds len bytes, at least 1, unless the set has them. *ret: their number, from 0 in the order of
 * adding, also of texts. Returns 0 or -ENOMEM. */
int strings__number(struct strings *s, const void *bytes, size_t len, uint32_t *ret);
