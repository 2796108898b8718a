/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A hash table from 64-bit keys to 64-bit values, with open addressing and linear probing. A slot
 * has 16 bytes. The table doubles when it is full and has no tombstones. Keys are hashed with a
 * seed, because a target can choose them. All keys and values are allowed. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map64;

struct map64 *map64__new(void);	   /* NULL on ENOMEM */
void map64__free(struct map64 *m); /* NULL is fine */
/* Prefetches the key's slot for a later lookup, because the cache cannot hold a large map. */
void map64__prefetch(const struct map64 *m, uint64_t key);
/* Sets *ret to the value of key. False: the map has no such key, and *ret stays. */
bool map64__get(const struct map64 *m, uint64_t key, uint64_t *ret);
int map64__set(struct map64 *m, uint64_t key, uint64_t value); /* 0 or -ENOMEM */
/* Sets the value of key. *had: true if the map had the key; then *old is its old value. Returns 0
 * or -ENOMEM. */
int map64__swap(struct map64 *m, uint64_t key, uint64_t value, bool *had, uint64_t *old);
/* Removes key; *old (if not NULL) gets its value. False: the map had no such key. */
bool map64__del(struct map64 *m, uint64_t key, uint64_t *old);
void map64__clear(struct map64 *m);
size_t map64__count(const struct map64 *m);
/* Gets the next entry, in any order; *pos starts at 0. False: there are no more. Do not change the
 * map meanwhile. */
bool map64__next(const struct map64 *m, size_t *pos, uint64_t *key, uint64_t *value);
