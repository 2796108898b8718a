/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_MAP64_H
#define MT_LIB_MAP64_H
/*
 * Open addressing from 64-bit keys to 64-bit values: 16 bytes a slot, linear probing, deletion by
 * shifting back (no tombstones), grows by doubling. Keys are mixed with a per-process seed, since a
 * target chooses them. Any key and value is allowed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map64;

struct map64 *map64__new(void);	   /* NULL on ENOMEM */
void map64__free(struct map64 *m); /* NULL is fine */
/* The key will be asked for soon: a large map is not in the processor's caches. */
void map64__prefetch(const struct map64 *m, uint64_t key);
bool map64__get(const struct map64 *m, uint64_t key, uint64_t *ret);
int map64__set(struct map64 *m, uint64_t key, uint64_t value); /* 0 or -ENOMEM */
/* The same; *had says whether key was there, and *old, if so, with what value. */
int map64__swap(struct map64 *m, uint64_t key, uint64_t value, bool *had, uint64_t *old);
/* Removes key; *old (if not NULL) gets its value. False: was not there. */
bool map64__del(struct map64 *m, uint64_t key, uint64_t *old);
void map64__clear(struct map64 *m);
size_t map64__count(const struct map64 *m);
/* Iterates in no order; *pos starts at 0. False at the end. The map must not change meanwhile. */
bool map64__next(const struct map64 *m, size_t *pos, uint64_t *key, uint64_t *value);

#endif
