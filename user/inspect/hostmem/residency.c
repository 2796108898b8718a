/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/hostmem/residency.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"

/* Bytes of addresses that one reading looks at page by page. Their pagemap has 1/512 of that. */
#define BY_PAGE_MAX (UINT64_C(32) << 30)

/* A part of a mapping that belongs to one range, or to no range. */
struct part {
	uint64_t start, end, bytes;
	size_t asked; /* index of the range in residency.asked; SIZE_MAX: no range */
};

struct parts {
	struct part *v;
	size_t n, cap;
};

/* Adds a part of the mapping. asked: index of the range that it is in; SIZE_MAX: in none. */
static int add_part(struct parts *parts, uint64_t start, uint64_t end, size_t asked)
{
	if (start >= end)
		return 0;
	if (array__grow(&parts->v, &parts->cap, parts->n + 1, sizeof(*parts->v)))
		return -ENOMEM;
	parts->v[parts->n++] = (struct part){ .start = start, .end = end, .asked = asked };
	return 0;
}

/* Divides a mapping into parts by the ranges. *next: index of the first range that may reach into
 * it. */
static int divide_map(const struct residency *residency, const struct map *map, size_t *next,
		      struct parts *parts)
{
	uint64_t at = map->start;
	int err = 0;
	size_t i;

	parts->n = 0;
	while (*next < residency->n_asked && residency->asked[*next].end <= map->start)
		(*next)++;
	for (i = *next; !err && i < residency->n_asked && residency->asked[i].start < map->end;
	     i++) {
		const struct host_asked *asked = &residency->asked[i];
		uint64_t from = asked->start > at ? asked->start : at;
		uint64_t to = asked->end < map->end ? asked->end : map->end;

		err = add_part(parts, at, from, /*asked=*/SIZE_MAX) ?: add_part(parts, from, to, i);
		at = to;
	}
	return err ?: add_part(parts, at, map->end, /*asked=*/SIZE_MAX);
}

/* Scales the parts' bytes, whose sum is `sum`, so that their sum is `bytes`, the mapping's. */
static void scale_parts(struct parts *parts, uint64_t sum, uint64_t bytes, uint64_t page)
{
	uint64_t left = bytes;
	size_t i;

	for (i = 0; i < parts->n; i++) {
		uint64_t v = (uint64_t)((double)parts->v[i].bytes / (double)sum * (double)bytes);

		v = v / page * page;
		parts->v[i].bytes = v < left ? v : left;
		left -= parts->v[i].bytes;
	}
	/* Parts with room get the bytes that rounding down to pages left. */
	for (i = 0; i < parts->n && left; i++) {
		uint64_t room = parts->v[i].end - parts->v[i].start - parts->v[i].bytes;

		room = room < left ? room : left;
		parts->v[i].bytes += room;
		left -= room;
	}
}

/* Sets the resident bytes of each part, whose sum is `bytes`, the mapping's. Counts the pages of
 * each part if *budget, bytes of addresses, allows; otherwise spreads the bytes evenly. */
static void spread_bytes(struct parts *parts, const struct map *map, uint64_t bytes,
			 struct host_resident *pages, uint64_t *budget)
{
	uint64_t size = map->end - map->start, sum = 0;
	bool by_page = bytes < size && size <= *budget;
	size_t i;

	if (parts->n == 1) {
		parts->v[0].bytes = bytes;
		return;
	}
	for (i = 0; i < parts->n && bytes; i++) {
		parts->v[i].bytes = parts->v[i].end - parts->v[i].start;
		if (by_page && host_resident__count(pages, parts->v[i].start, parts->v[i].end,
						    /*device=*/false, &parts->v[i].bytes))
			parts->v[i].bytes = 0; /* the process is ending */
		sum += parts->v[i].bytes;
	}
	if (by_page)
		*budget -= size;
	if (bytes && !sum) {
		/* The pages of the parts changed since the mapping was read: spread them evenly. */
		for (i = 0; i < parts->n; i++)
			sum += parts->v[i].bytes = parts->v[i].end - parts->v[i].start;
	}
	if (sum != bytes && sum)
		scale_parts(parts, sum, bytes, (uint64_t)sysconf(_SC_PAGESIZE));
}

/* Adds a part's bytes to its range, or to residency->found if it is in none. map: index of its
 * mapping. */
static int take_part(struct residency *residency, const struct part *p, size_t map)
{
	if (p->asked != SIZE_MAX) {
		residency->asked[p->asked].bytes += p->bytes;
		residency->asked[p->asked].gone = false;
		return 0;
	}
	if (array__grow(&residency->found, &residency->cap_found, residency->n_found + 1,
			sizeof(*residency->found)))
		return -ENOMEM;
	residency->found[residency->n_found++] = (struct host_found){ p->start, p->end, p->bytes,
								      map };
	return 0;
}

int residency__read(struct residency *residency)
{
	uint64_t budget = BY_PAGE_MAX; /* addresses that may still be looked at page by page */
	uint64_t cpu_began = clock__read(CLOCK_THREAD_CPUTIME_ID);
	struct host_resident *pages = host_resident__open(residency->proc);
	struct parts parts = { 0 };
	size_t i, j, next = 0;
	int err;

	if (!pages)
		return -errno;
	host_resident__cancel_by(pages, residency->cancelled, residency->ctx);
	err = host_smaps__read(residency->proc, pages, /*shares=*/false, &residency->now);
	for (i = 0; i < residency->n_asked && !err; i++) {
		residency->asked[i].bytes = 0;
		residency->asked[i].gone = true;
	}
	for (i = 0; i < residency->now.maps.n && !err; i++) {
		const struct map *map = &residency->now.maps.v[i];

		/* the parts of the mapping that belong to one range each, or to none */
		err = divide_map(residency, map, &next, &parts);
		if (err)
			break;
		spread_bytes(&parts, map, residency->now.v[i].rss, pages, &budget);
		for (j = 0; j < parts.n && !err; j++)
			err = take_part(residency, &parts.v[j], i);
		residency->rss += residency->now.v[i].rss;
	}
	host_resident__close(pages);
	free(parts.v);
	residency->took = clock__read(CLOCK_THREAD_CPUTIME_ID) - cpu_began;
	return err;
}

void residency__free(struct residency *residency)
{
	host_smaps__free(&residency->now);
	free(residency->asked);
	free(residency->found);
	*residency = (struct residency){ 0 };
}
