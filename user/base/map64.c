/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/map64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define MIN_SLOTS 64

struct slot {
	uint64_t key, value;
};

/* Key 0 marks an empty slot, so an entry with key 0 is stored outside of the table. */
struct map64 {
	struct slot *slots;
	size_t mask; /* number of slots - 1; the number is a power of two */
	size_t used; /* entries in slots */
	struct hash_seed seed;
	bool has_zero;
	uint64_t zero_value;
};

struct map64 *map64__new(void)
{
	struct map64 *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->slots = calloc(MIN_SLOTS, sizeof(*m->slots));
	if (!m->slots) {
		free(m);
		return NULL;
	}
	m->mask = MIN_SLOTS - 1;
	m->seed = hash__seed();
	return m;
}

void map64__free(struct map64 *m)
{
	if (!m)
		return;
	free(m->slots);
	free(m);
}

/* Returns the slot at which the search for a key begins. */
static size_t home_slot(const struct map64 *m, uint64_t key)
{
	return (size_t)hash__u64(m->seed, key) & m->mask;
}

/* Returns the slot of the key, or the empty slot for it. */
static size_t find_slot(const struct map64 *m, uint64_t key)
{
	size_t i = home_slot(m, key);

	while (m->slots[i].key && m->slots[i].key != key)
		i = (i + 1) & m->mask;
	return i;
}

void map64__prefetch(const struct map64 *m, uint64_t key)
{
	__builtin_prefetch(&m->slots[home_slot(m, key)], 1);
}

bool map64__get(const struct map64 *m, uint64_t key, uint64_t *ret)
{
	const struct slot *s;

	if (!key) {
		if (m->has_zero)
			*ret = m->zero_value;
		return m->has_zero;
	}
	if (!m->used)
		return false;
	s = &m->slots[find_slot(m, key)];
	if (!s->key)
		return false;
	*ret = s->value;
	return true;
}

/* Doubles the table and moves all entries to their new slots. Returns 0 or -ENOMEM. */
static int grow(struct map64 *m)
{
	struct slot *old = m->slots, *bigger;
	size_t old_n = m->mask + 1;

	if (old_n > SIZE_MAX / 2 / sizeof(*old))
		return -ENOMEM;
	bigger = calloc(old_n * 2, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	m->slots = bigger;
	m->mask = old_n * 2 - 1;
	for (size_t i = 0; i < old_n; i++) {
		if (old[i].key)
			bigger[find_slot(m, old[i].key)] = old[i];
	}
	free(old);
	return 0;
}

int map64__swap(struct map64 *m, uint64_t key, uint64_t value, bool *had, uint64_t *old)
{
	size_t i;

	if (!key) {
		*had = m->has_zero;
		*old = m->zero_value;
		m->has_zero = true;
		m->zero_value = value;
		return 0;
	}
	i = find_slot(m, key);
	*had = m->slots[i].key;
	if (*had) {
		*old = m->slots[i].value;
		m->slots[i].value = value;
		return 0;
	}
	/* Grow so that at most 3/4 of the slots are used. */
	if ((m->used + 1) * 4 > (m->mask + 1) * 3) {
		int err = grow(m);

		if (err)
			return err;
		i = find_slot(m, key);
	}
	m->slots[i] = (struct slot){ key, value };
	m->used++;
	return 0;
}

int map64__set(struct map64 *m, uint64_t key, uint64_t value)
{
	uint64_t old;
	bool had;

	return map64__swap(m, key, value, &had, &old);
}

/* Empties slot `hole`. Searches stop at an empty slot, so later entries that they would not find
 * any more move back into the hole, and the hole moves on. */
static void shift_back(struct map64 *m, size_t hole)
{
	size_t next = hole;

	for (;;) {
		size_t home;

		next = (next + 1) & m->mask;
		if (!m->slots[next].key)
			break;
		home = home_slot(m, m->slots[next].key);
		/* An entry may move to the empty slot only if its home is not between the two. */
		if (((next - home) & m->mask) < ((next - hole) & m->mask))
			continue;
		m->slots[hole] = m->slots[next];
		hole = next;
	}
	m->slots[hole].key = 0;
}

bool map64__del(struct map64 *m, uint64_t key, uint64_t *old)
{
	size_t i;

	if (!key) {
		bool had = m->has_zero;

		if (had && old)
			*old = m->zero_value;
		m->has_zero = false;
		return had;
	}
	if (!m->used)
		return false;
	i = find_slot(m, key);
	if (!m->slots[i].key)
		return false;
	if (old)
		*old = m->slots[i].value;
	shift_back(m, i);
	m->used--;
	return true;
}

void map64__clear(struct map64 *m)
{
	if (m->used)
		memset(m->slots, 0, (m->mask + 1) * sizeof(*m->slots));
	m->used = 0;
	m->has_zero = false;
}

size_t map64__count(const struct map64 *m)
{
	return m->used + m->has_zero;
}

bool map64__next(const struct map64 *m, size_t *pos, uint64_t *key, uint64_t *value)
{
	size_t i = *pos;

	/* Position 0 is the entry with key 0; the slots follow. */
	if (i == 0) {
		i = 1;
		if (m->has_zero) {
			*pos = i;
			*key = 0;
			*value = m->zero_value;
			return true;
		}
	}
	for (; i - 1 <= m->mask; i++) {
		const struct slot *s = &m->slots[i - 1];

		if (!s->key)
			continue;
		*pos = i + 1;
		*key = s->key;
		*value = s->value;
		return true;
	}
	*pos = i;
	return false;
}
