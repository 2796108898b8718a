/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/hash.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"

struct strings {
	struct map64 *places; /* hash of a string -> its index in .all; on a collision, the next
				 free hash */
	struct kept {
		void *bytes;
		size_t len;
	} * all;
	size_t n, room;
};

struct strings *strings__new(void)
{
	struct strings *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->places = map64__new();
	if (s->places)
		return s;
	free(s);
	return NULL;
}

void strings__free(struct strings *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		free(s->all[i].bytes);
	free(s->all);
	map64__free(s->places);
	free(s);
}

/* On a collision of hashes, tries the next key until the string or a free key is found. */
int strings__number(struct strings *s, const void *bytes, size_t len, uint32_t *ret)
{
	uint64_t key, at;
	void *copy;

	for (key = hash__bytes(hash__seed(), bytes, len); map64__get(s->places, key, &at); key++)
		if (s->all[at].len == len && !memcmp(s->all[at].bytes, bytes, len)) {
			*ret = (uint32_t)at;
			return 0;
		}
	if (s->n > UINT32_MAX || array__grow(&s->all, &s->room, s->n + 1, sizeof(*s->all)))
		return -ENOMEM;
	copy = malloc(len);
	if (!copy || map64__set(s->places, key, s->n)) {
		free(copy);
		return -ENOMEM;
	}
	memcpy(copy, bytes, len);
	*ret = (uint32_t)s->n;
	s->all[s->n++] = (struct kept){ copy, len };
	return 0;
}

int strings__keep(struct strings *s, const char **text)
{
	uint32_t at;

	if (!*text)
		return 0;
	if (!**text) {
		*text = "";
		return 0;
	}
	if (strings__number(s, *text, strlen(*text) + 1, &at))
		return -ENOMEM;
	*text = s->all[at].bytes;
	return 0;
}
