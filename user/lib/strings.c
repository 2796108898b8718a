/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/strings.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "lib/hash.h"
#include "lib/map64.h"

struct strings {
	struct map64 *places; /* from hash to place; on a collision, from the next free hash */
	char **all;
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
		free(s->all[i]);
	free(s->all);
	map64__free(s->places);
	free(s);
}

int strings__keep(struct strings *s, const char **text)
{
	uint64_t key, at;
	char *copy;

	if (!*text)
		return 0;
	if (!**text) {
		*text = "";
		return 0;
	}
	for (key = hash__bytes(hash__seed(), *text, strlen(*text)); map64__get(s->places, key, &at);
	     key++)
		if (!strcmp(s->all[at], *text)) {
			*text = s->all[at];
			return 0;
		}
	if (array__grow(&s->all, &s->room, s->n + 1, sizeof(*s->all)))
		return -ENOMEM;
	copy = strdup(*text);
	if (!copy || map64__set(s->places, key, s->n)) {
		free(copy);
		return -ENOMEM;
	}
	*text = s->all[s->n++] = copy;
	return 0;
}
