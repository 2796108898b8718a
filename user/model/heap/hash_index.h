/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

/* Hash table from hashes to ids, which are indexes of the caller's entries. Ids cannot be removed. */
struct hash_index {
	struct hidx_slot {
		uint32_t hash, entry_no; /* entry_no: id + 1; 0: empty */
	} * slots;
	uint32_t mask, n;
};
/* Returns the next id that was added with this hash, or UINT32_MAX if there are no more. Set *pos
 * to hash before the first call. */
uint32_t hash_index__next(const struct hash_index *h, uint32_t hash, uint32_t *pos);
/* Returns 0 or -ENOMEM. */
int hash_index__add(struct hash_index *h, uint32_t hash, uint32_t id);
/*
 * Finds the entry that begins with key in an array of *n entries of size bytes each. Keys are
 * compared as bytes, so they have no padding. If there is none, adds an entry: the key, then zeros.
 * array and cap are as for array__grow_zero(). Sets *ret to the entry's index. Returns 0 if the
 * entry was found, 1 if it was added, or -ENOMEM.
 */
int hash_index__entry(struct hash_index *h, struct hash_seed seed, const void *key, size_t key_size,
		      void *array, uint32_t *n, size_t *cap, size_t size, uint32_t *ret);
