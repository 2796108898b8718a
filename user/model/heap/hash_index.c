/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/heap/hash_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define SLOTS_FIRST 64
#define SLOTS_MOST (UINT64_C(1) << 31)

uint32_t hash_index__next(const struct hash_index *h, uint32_t hash, uint32_t *pos)
{
	if (!h->slots)
		return UINT32_MAX;
	for (;; (*pos)++) {
		const struct hidx_slot *s = &h->slots[*pos & h->mask];

		if (!s->entry_no)
			return UINT32_MAX;
		if (s->hash == hash) {
			(*pos)++;
			return s->entry_no - 1;
		}
	}
}

/* Puts s into the first empty slot after its place. slots must have an empty one. */
static void hash_index__put(struct hidx_slot *slots, uint32_t mask, struct hidx_slot s)
{
	uint32_t pos = s.hash;

	while (slots[pos & mask].entry_no)
		pos++;
	slots[pos & mask] = s;
}

/* Doubles the number of slots. Returns 0 or -ENOMEM. */
static int hash_index__grow(struct hash_index *h)
{
	uint64_t cap = h->slots ? ((uint64_t)h->mask + 1) * 2 : SLOTS_FIRST;
	struct hidx_slot *slots;

	if (cap > SLOTS_MOST)
		return -ENOMEM;
	slots = calloc(cap, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (uint64_t i = 0; h->slots && i <= h->mask; i++)
		if (h->slots[i].entry_no)
			hash_index__put(slots, cap - 1, h->slots[i]);
	free(h->slots);
	h->slots = slots;
	h->mask = cap - 1;
	return 0;
}

int hash_index__add(struct hash_index *h, uint32_t hash, uint32_t id)
{
	if (!h->slots || h->n >= h->mask / 2) {
		int err = hash_index__grow(h);

		if (err)
			return err;
	}
	hash_index__put(h->slots, h->mask, (struct hidx_slot){ .hash = hash, .entry_no = id + 1 });
	h->n++;
	return 0;
}

int hash_index__entry(struct hash_index *h, struct hash_seed seed, const void *key, size_t key_size,
		      void *array, uint32_t *n, size_t *cap, size_t size, uint32_t *ret)
{
	uint32_t hash = hash__bytes(seed, key, key_size), pos = hash;
	char *all;

	memcpy(&all, array, sizeof(all)); /* the caller's pointer has another type */
	/* Different keys may have one hash. */
	while ((*ret = hash_index__next(h, hash, &pos)) != UINT32_MAX) {
		if (!memcmp(all + *ret * size, key, key_size))
			return 0;
	}
	if (*n == UINT32_MAX - 1 || array__grow_zero(array, cap, (size_t)*n + 1, size) ||
	    hash_index__add(h, hash, *n))
		return -ENOMEM;
	memcpy(&all, array, sizeof(all));
	*ret = (*n)++;
	memset(all + *ret * size, 0, size);
	memcpy(all + *ret * size, key, key_size);
	return 1;
}
