/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/growth_names.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/array.h"
#include "lib/map64.h"

int growth_names__add(struct growth_names *s, const struct growth_named *blocks)
{
	uint64_t key = (uint64_t)blocks->unit << 32 | blocks->name, i;
	int err;

	if (!s->at)
		s->at = map64__new();
	if (!s->at)
		return -ENOMEM;
	if (!map64__get(s->at, key, &i)) {
		i = s->n;
		err = array__grow_zero(&s->all, &s->cap, i + 1, sizeof(*s->all));
		if (!err)
			err = map64__set(s->at, key, i);
		if (err)
			return err;
		s->all[s->n++] = (struct growth_named){ .unit = blocks->unit,
							.name = blocks->name };
	}
	s->all[i].bytes += blocks->bytes;
	s->all[i].count += blocks->count;
	return 0;
}

static int cmp_named(const void *a, const void *b)
{
	const struct growth_named *x = a, *y = b;

	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

void growth_names__sort(struct growth_names *s)
{
	if (s->n)
		qsort(s->all, s->n, sizeof(*s->all), cmp_named);
}

void growth_names__free(struct growth_names *s)
{
	map64__free(s->at);
	free(s->all);
	*s = (struct growth_names){ 0 };
}
