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

static int add_part(struct parts *p, uint64_t start, uint64_t end, size_t asked)
{
	if (start >= end)
		return 0;
	if (array__grow(&p->v, &p->cap, p->n + 1, sizeof(*p->v)))
		return -ENOMEM;
	p->v[p->n++] = (struct part){ .start = start, .end = end, .asked = asked };
	return 0;
}

/* Divides a mapping into parts by the ranges. *next: index of the first range that may reach into
 * it. */
static int divide_map(const struct residency *r, const struct map *m, size_t *next, struct parts *p)
{
	uint64_t at = m->start;
	int err = 0;
	size_t i;

	p->n = 0;
	while (*next < r->n_asked && r->asked[*next].end <= m->start)
		(*next)++;
	for (i = *next; !err && i < r->n_asked && r->asked[i].start < m->end; i++) {
		const struct host_asked *a = &r->asked[i];
		uint64_t from = a->start > at ? a->start : at;
		uint64_t to = a->end < m->end ? a->end : m->end;

		err = add_part(p, at, from, SIZE_MAX) ?: add_part(p, from, to, i);
		at = to;
	}
	return err ?: add_part(p, at, m->end, SIZE_MAX);
}

/* Scales the parts' bytes, whose sum is `sum`, so that their sum is `bytes`, the mapping's. */
static void scale_parts(struct parts *p, uint64_t sum, uint64_t bytes, uint64_t page)
{
	uint64_t left = bytes;
	size_t i;

	for (i = 0; i < p->n; i++) {
		uint64_t v = (uint64_t)((double)p->v[i].bytes / (double)sum * (double)bytes);

		v = v / page * page;
		p->v[i].bytes = v < left ? v : left;
		left -= p->v[i].bytes;
	}
	/* Parts with room get the bytes that rounding down to pages left. */
	for (i = 0; i < p->n && left; i++) {
		uint64_t room = p->v[i].end - p->v[i].start - p->v[i].bytes;

		room = room < left ? room : left;
		p->v[i].bytes += room;
		left -= room;
	}
}

/* Sets the resident bytes of each part, whose sum is `bytes`, the mapping's. Counts the pages of
 * each part if *budget, bytes of addresses, allows; otherwise spreads the bytes evenly. */
static void spread_bytes(struct parts *p, const struct map *m, uint64_t bytes,
			 struct host_resident *pages, uint64_t *budget)
{
	uint64_t size = m->end - m->start, sum = 0;
	bool by_page = bytes < size && size <= *budget;
	size_t i;

	if (p->n == 1) {
		p->v[0].bytes = bytes;
		return;
	}
	for (i = 0; i < p->n && bytes; i++) {
		p->v[i].bytes = p->v[i].end - p->v[i].start;
		if (by_page &&
		    host_resident__count(pages, p->v[i].start, p->v[i].end, false, &p->v[i].bytes))
			p->v[i].bytes = 0; /* the process is ending */
		sum += p->v[i].bytes;
	}
	if (by_page)
		*budget -= size;
	if (bytes && !sum) {
		/* The pages of the parts changed since the mapping was read: spread them evenly. */
		for (i = 0; i < p->n; i++)
			sum += p->v[i].bytes = p->v[i].end - p->v[i].start;
	}
	if (sum != bytes && sum)
		scale_parts(p, sum, bytes, (uint64_t)sysconf(_SC_PAGESIZE));
}

static int take_part(struct residency *r, const struct part *p, size_t map)
{
	if (p->asked != SIZE_MAX) {
		r->asked[p->asked].bytes += p->bytes;
		r->asked[p->asked].gone = false;
		return 0;
	}
	if (array__grow(&r->found, &r->cap_found, r->n_found + 1, sizeof(*r->found)))
		return -ENOMEM;
	r->found[r->n_found++] = (struct host_found){ p->start, p->end, p->bytes, map };
	return 0;
}

int residency__read(struct residency *r)
{
	uint64_t budget = BY_PAGE_MAX, cpu_began = clock__read(CLOCK_THREAD_CPUTIME_ID);
	struct host_resident *pages = host_resident__open(r->proc);
	struct parts parts = { 0 };
	size_t i, j, next = 0;
	int err;

	if (!pages)
		return -errno;
	host_resident__cancel_by(pages, r->cancelled, r->ctx);
	err = host_smaps__read(r->proc, pages, false, &r->now);
	for (i = 0; i < r->n_asked && !err; i++) {
		r->asked[i].bytes = 0;
		r->asked[i].gone = true;
	}
	for (i = 0; i < r->now.maps.n && !err; i++) {
		const struct map *m = &r->now.maps.v[i];

		err = divide_map(r, m, &next, &parts);
		if (err)
			break;
		spread_bytes(&parts, m, r->now.v[i].rss, pages, &budget);
		for (j = 0; j < parts.n && !err; j++)
			err = take_part(r, &parts.v[j], i);
		r->rss += r->now.v[i].rss;
	}
	host_resident__close(pages);
	free(parts.v);
	r->took = clock__read(CLOCK_THREAD_CPUTIME_ID) - cpu_began;
	return err;
}

void residency__free(struct residency *r)
{
	host_smaps__free(&r->now);
	free(r->asked);
	free(r->found);
	*r = (struct residency){ 0 };
}
