/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_HASH_INDEX_H
#define MT_MODEL_HASH_INDEX_H
/* A hash index of numbers. */
#include <stdint.h>

/* Hash index of numbers. The caller keeps the entries and compares them. Entries cannot be
 * removed. */
struct hash_index {
	struct hidx_slot {
		uint32_t hash, id1; /* id + 1; 0: empty */
	} * slots;
	uint32_t mask, n;
};
/* Iterates over the ids under hash; *pos starts as hash. UINT32_MAX: no more. */
uint32_t hash_index__next(const struct hash_index *h, uint32_t hash, uint32_t *pos);
int hash_index__add(struct hash_index *h, uint32_t hash, uint32_t id);

#endif
