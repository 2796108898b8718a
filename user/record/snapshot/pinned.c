/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/pinned.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/map64.h"

struct search {
	const struct records *r;
	struct map64 *seen; /* addresses that an earlier entry or segment has */
	struct pinned_range *ranges;
	size_t n, cap;
};

/* Adds a range whose address is new. before: it was pinned before the trace. Returns 0 or -ENOMEM. */
static int see(struct search *s, struct pinned_range range, bool before)
{
	uint64_t old;

	if (map64__get(s->seen, range.addr, &old))
		return 0;
	if (map64__set(s->seen, range.addr, 1))
		return -ENOMEM;
	if (!before || !range.size || range.size > UINT64_MAX - range.addr)
		return 0;
	if (array__grow(&s->ranges, &s->cap, s->n + 1, sizeof(*s->ranges)))
		return -ENOMEM;
	s->ranges[s->n++] = range;
	return 0;
}

static int see_entry(struct search *s, value v)
{
	const struct snapshot_entry *e;

	if (value__kind(v) != VALUE_ENTRY)
		return 0;
	e = &s->r->entries[value__number(v)];
	if (e->action != ACTION_SEGMENT_ALLOC && e->action != ACTION_SEGMENT_FREE)
		return 0;
	return see(s, (struct pinned_range){ .addr = e->addr, .size = e->size },
		   e->action == ACTION_SEGMENT_FREE);
}

static int see_segment(struct search *s, value v)
{
	const struct snapshot_segment *g;

	if (value__kind(v) != VALUE_SEGMENT)
		return 0;
	g = &s->r->segments[value__number(v)];
	return see(s, (struct pinned_range){ .addr = g->addr, .size = g->size, .stack = g->stack },
		   /*before=*/true);
}

int pinned__before(const struct records *r, const struct value_list *trace,
		   const struct value_list *segments, struct pinned_range **ret, size_t *n)
{
	struct search s = { .r = r, .seen = map64__new() };
	int err = s.seen ? 0 : -ENOMEM;

	for (size_t i = 0; trace && i < trace->n && !err; i++)
		err = see_entry(&s, value_list__at(trace, i));
	for (size_t i = 0; segments && i < segments->n && !err; i++)
		err = see_segment(&s, value_list__at(segments, i));
	map64__free(s.seen);
	if (err) {
		free(s.ranges);
		return err;
	}
	*ret = s.ranges;
	*n = s.n;
	return 0;
}
