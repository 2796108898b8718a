/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/map64.h"
#include "inspect/torch/pytensor_internal.h"

int shapes__init(struct shapes *s)
{
	s->numbers = map64__new();
	s->seed = hash__seed();
	s->v = calloc(1, sizeof(*s->v));
	s->n = s->cap = 1;
	return s->numbers && s->v ? 0 : -ENOMEM;
}

void shapes__fini(struct shapes *s)
{
	free(s->v);
	map64__free(s->numbers);
}

void shapes__clear(struct shapes *s)
{
	s->n = 1;
	map64__clear(s->numbers);
}

int shapes__number(struct shapes *s, const int64_t *sizes, uint32_t *ret)
{
	const size_t room = sizeof(*s->v);
	uint64_t hash, at = s->n - 1;
	int err;

	if (!memcmp(s->v[at], sizes, room)) { /* often as the tensor before */
		*ret = (uint32_t)at;
		return 0;
	}
	hash = hash__bytes(s->seed, sizes, room);
	if (map64__get(s->numbers, hash, &at) && !memcmp(s->v[at], sizes, room)) {
		*ret = (uint32_t)at;
		return 0;
	}
	err = array__grow(&s->v, &s->cap, s->n + 1, room);
	if (!err)
		err = map64__set(s->numbers, hash, s->n);
	if (err)
		return err;
	memcpy(s->v[s->n], sizes, room);
	*ret = (uint32_t)s->n++;
	return 0;
}
