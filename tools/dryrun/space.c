// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

size_t space_ranges__after(const struct space_ranges *r, uint64_t addr)
{
	size_t low = 0, high = r->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (r->at[mid].addr + r->at[mid].size <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

int space_ranges__insert(struct space_ranges *r, uint64_t addr, uint64_t size)
{
	size_t index = space_ranges__after(r, addr);

	if (array__grow(&r->at, &r->room, r->n + 1, sizeof(*r->at)))
		return -ENOMEM;
	memmove(r->at + index + 1, r->at + index, (r->n - index) * sizeof(*r->at));
	r->at[index] = (struct space_range){ addr, size };
	r->n++;
	return 0;
}

void space_ranges__remove(struct space_ranges *r, size_t index)
{
	r->n--;
	memmove(r->at + index, r->at + index + 1, (r->n - index) * sizeof(*r->at));
}

int space__extend(struct space *s, uint64_t addr, uint64_t size)
{
	int err = space_ranges__insert(&s->extents, addr, size);

	if (err)
		return err;
	s->extent_bytes += size;
	if (addr < s->lowest || s->extents.n == 1)
		s->lowest = addr;
	return 0;
}

int space__alloc(struct space *s, uint64_t size, uint64_t *addr)
{
	uint64_t lowest = 0;
	bool seen = false;
	size_t e;

	if (!size || size > UINT64_MAX - s->align)
		return -EINVAL;
	size = (size + s->align - 1) & ~(s->align - 1);
	for (e = space_ranges__after(&s->extents, s->lowest); e < s->extents.n; e++) {
		const struct space_range *extent = &s->extents.at[e];
		uint64_t end = extent->addr + extent->size;
		uint64_t at = extent->addr > s->lowest ? extent->addr : s->lowest;
		size_t u = space_ranges__after(&s->used, at);

		for (; at < end; u++) {
			bool last = u == s->used.n || s->used.at[u].addr >= end;
			uint64_t stop = last ? end : s->used.at[u].addr;

			if (stop > at && !seen) {
				seen = true;
				lowest = at;
			}
			if (stop > at && stop - at >= size) {
				int err = space_ranges__insert(&s->used, at, size);

				if (err)
					return err;
				s->lowest = at == lowest ? at + size : lowest;
				s->used_bytes += size;
				*addr = at;
				return 0;
			}
			if (last)
				break;
			at = s->used.at[u].addr + s->used.at[u].size;
		}
	}
	return -ENOSPC;
}

uint64_t space__free(struct space *s, uint64_t addr)
{
	size_t u = space_ranges__after(&s->used, addr);
	uint64_t size;

	if (u == s->used.n || s->used.at[u].addr != addr)
		return 0;
	size = s->used.at[u].size;
	space_ranges__remove(&s->used, u);
	s->used_bytes -= size;
	if (addr < s->lowest)
		s->lowest = addr;
	return size;
}

bool space__find(const struct space *s, uint64_t addr, struct space_range *range)
{
	size_t u = space_ranges__after(&s->used, addr);

	if (u == s->used.n || s->used.at[u].addr > addr)
		return false;
	*range = s->used.at[u];
	return true;
}

bool space__shrink(struct space *s, uint64_t keep, struct space_range *extent)
{
	for (size_t e = s->extents.n; e-- > 0;) {
		struct space_range *x = &s->extents.at[e];
		size_t u = space_ranges__after(&s->used, x->addr);

		if (u < s->used.n && s->used.at[u].addr < x->addr + x->size)
			continue;
		if (s->extent_bytes - x->size < keep)
			continue;
		*extent = *x;
		s->extent_bytes -= x->size;
		space_ranges__remove(&s->extents, e);
		return true;
	}
	return false;
}

void space__destroy(struct space *s)
{
	free(s->extents.at);
	free(s->used.at);
	*s = (struct space){ .align = s->align };
}
