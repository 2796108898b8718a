/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/hostmem/host_spans.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"

int host_spans__add(struct host_spans *s, uint64_t start, uint64_t size, uint8_t part)
{
	uint64_t end;

	if (!size)
		return 0;
	if (__builtin_add_overflow(start, size, &end))
		end = UINT64_MAX;
	if (array__grow(&s->v, &s->cap, s->n + 1, sizeof(*s->v)))
		return -ENOMEM;
	s->v[s->n++] = (struct span){ start, end, part };
	return 0;
}

void host_spans__free(struct host_spans *s)
{
	free(s->v);
	*s = (struct host_spans){ 0 };
}

static int by_part(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	return x->start < y->start ? -1 : x->start > y->start;
}

/* Adds the bytes of b that flat does not have yet. flat, *at: sorted ranges of lower parts, and the
 * first that may end after b->start. */
static int add_rest(const struct host_spans *flat, size_t *at, struct span b, struct host_spans *to)
{
	while (b.start < b.end) {
		while (*at < flat->n && flat->v[*at].end <= b.start)
			(*at)++;
		const struct span *a = *at < flat->n ? &flat->v[*at] : NULL;
		uint64_t end = a && a->start < b.end ? a->start : b.end;

		if (end > b.start && host_spans__add(to, b.start, end - b.start, b.part))
			return -ENOMEM;
		b.start = a && a->start < b.end ? a->end : b.end;
	}
	return 0;
}

/* Merges two sorted lists without common bytes. */
static int merge(const struct host_spans *a, const struct host_spans *b, struct host_spans *to)
{
	size_t i = 0, k = 0;

	if (array__grow(&to->v, &to->cap, a->n + b->n + 1, sizeof(*to->v)))
		return -ENOMEM;
	while (i < a->n || k < b->n) {
		bool first = k == b->n || (i < a->n && a->v[i].start < b->v[k].start);

		to->v[to->n++] = first ? a->v[i++] : b->v[k++];
	}
	return 0;
}

/* Adds the ranges v of one part, sorted by start, to *flat. */
static int add_part(struct host_spans *flat, const struct span *v, size_t n)
{
	struct host_spans rest = { 0 }, merged = { 0 };
	uint64_t done = 0;
	size_t at = 0;
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		struct span b = v[i];

		b.start = b.start > done ? b.start : done;
		if (b.start >= b.end)
			continue;
		done = b.end;
		err = add_rest(flat, &at, b, &rest);
	}
	if (!err)
		err = merge(flat, &rest, &merged);
	host_spans__free(&rest);
	if (err) {
		host_spans__free(&merged);
		return err;
	}
	host_spans__free(flat);
	*flat = merged;
	return 0;
}

int host_spans__resolve(struct host_spans *s)
{
	struct host_spans flat = { 0 };
	int err = 0;

	if (!s->n)
		return 0;
	qsort(s->v, s->n, sizeof(*s->v), by_part);
	for (size_t i = 0, end; i < s->n && !err; i = end) {
		for (end = i; end < s->n && s->v[end].part == s->v[i].part; end++)
			;
		err = add_part(&flat, s->v + i, end - i);
	}
	if (err) {
		host_spans__free(&flat);
		return err;
	}
	host_spans__free(s);
	*s = flat;
	return 0;
}

ARRAY_UP_TO(spans_up_to, struct span, end)

size_t host_spans__after(const struct host_spans *s, uint64_t addr)
{
	return spans_up_to(s->v, s->n, addr);
}
