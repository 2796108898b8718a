/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A hash index of numbers. */
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

/* Hash index of numbers. The caller keeps the entries. Entries cannot be removed. */
struct hash_index {
	struct hidx_slot {
		uint32_t hash, entry_no; /* entry_no: id + 1; 0: empty */
	} * slots;
	uint32_t mask, n;
};
/* Iterates over the ids under hash; *pos starts as hash. UINT32_MAX: no more. */
uint32_t hash_index__next(const struct hash_index *h, uint32_t hash, uint32_t *pos);
int hash_index__add(struct hash_index *h, uint32_t hash, uint32_t id);
/*
 * Finds the entry that begins with key, bytes without padding, in an array of n entries of size
 * bytes. Adds it if there is none: the key, then zeros. array and cap: as for array__grow_zero().
 * Returns 0, 1 if it was added, or -ENOMEM. *ret: index of the entry.
 */
int hash_index__entry(struct hash_index *h, struct hash_seed seed, const void *key, size_t key_size,
		      void *array, uint32_t *n, size_t *cap, size_t size, uint32_t *ret);
