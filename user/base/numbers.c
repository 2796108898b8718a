/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/numbers.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

#define MIN_SLOTS 64

void numbers__fini(struct numbers *s)
{
	free(s->keys);
	free(s->slots);
	*s = (struct numbers){ 0 };
}

/* Returns the slot of the key, or the free slot for it. */
static uint32_t *find_slot(const struct numbers *s, uint64_t key)
{
	size_t i = (size_t)hash__u64(s->seed, key) & s->mask;

	while (s->slots[i] && s->keys[s->slots[i] - 1] != key)
		i = (i + 1) & s->mask;
	return &s->slots[i];
}

bool numbers__get(const struct numbers *s, uint64_t key, uint32_t *ret)
{
	uint32_t found = s->n ? *find_slot(s, key) : 0;

	if (found)
		*ret = found - 1;
	return found;
}

/* Makes room for one more key: at most 3/4 of the slots are used. Returns 0 or -ENOMEM. */
static int make_room(struct numbers *s)
{
	size_t n = s->slots ? s->mask + 1 : 0;
	uint32_t *slots;

	if (s->n >= UINT32_MAX - 1 || array__grow(&s->keys, &s->cap, s->n + 1, sizeof(*s->keys)))
		return -ENOMEM;
	if ((s->n + 1) * 4 <= n * 3)
		return 0;
	n = n ? 2 * n : MIN_SLOTS;
	slots = calloc(n, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(s->slots);
	s->seed = hash__seed();
	s->slots = slots;
	s->mask = n - 1;
	for (size_t i = 0; i < s->n; i++)
		*find_slot(s, s->keys[i]) = (uint32_t)i + 1;
	return 0;
}

int numbers__add(struct numbers *s, uint64_t key, uint32_t *ret)
{
	size_t mask = s->mask;
	uint32_t *slot = s->slots ? find_slot(s, key) : NULL;

	if (slot && *slot) {
		*ret = *slot - 1;
		return 0;
	}
	if (make_room(s))
		return -ENOMEM;
	if (!slot || s->mask != mask)
		slot = find_slot(s, key);
	s->keys[s->n] = key;
	*ret = (uint32_t)s->n++;
	*slot = *ret + 1;
	return 1;
}
