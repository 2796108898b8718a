/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Dropping of moments, and the merging of changes between them. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/map64.h"
#include "export/page/html.h"

#define OOMS_CHOSEN 8

/* Choice among kept moments: every n-th step, and the first and last out-of-memory events. */
struct chooser {
	size_t steps, ooms, every;
	size_t step, oom;
};

static void count(struct chooser *c, const struct page_device *d, size_t most)
{
	for (size_t i = 0; i < d->n; i++) {
		c->steps += !!(d->moments[i].keep & KEEP_STEP);
		c->ooms += !!(d->moments[i].keep & KEEP_OOM);
	}
	c->every = c->steps > most ? (c->steps + most - 1) / most : 1;
}

static bool is_kept(const struct page_data *p, const struct page_device *d, size_t i, int64_t peak,
		    struct chooser *c)
{
	struct page_moment *m = &d->moments[i];
	bool step = m->keep & KEEP_STEP && c->step++ % c->every == 0;
	bool oom = m->keep & KEEP_OOM && (c->oom < OOMS_CHOSEN || c->oom + OOMS_CHOSEN >= c->ooms);

	c->oom += !!(m->keep & KEEP_OOM);
	if (!step)
		m->keep &= ~(uint32_t)KEEP_STEP;
	if (!oom)
		m->keep &= ~(uint32_t)KEEP_OOM;
	return m->keep || (int64_t)i == peak || i + 1 == d->n ||
	       m->time / p->bucket != m[1].time / p->bucket;
}

/* Drops moments. map[i]: new index of old moment i. */
static int choose(const struct page_data *p, struct page_device *d, uint32_t **map)
{
	struct chooser c = { 0 };
	int64_t peak = html_moments__of(d, d->last.peak_seq);
	size_t k = 0;

	*map = reallocarray(NULL, d->n + 2, sizeof(**map));
	if (!*map)
		return -ENOMEM;
	count(&c, d, p->most_steps);
	for (size_t i = 0; i < d->n; i++) {
		bool stay = is_kept(p, d, i, peak, &c);

		(*map)[i] = k;
		d->moments[k] = d->moments[i];
		k += stay;
	}
	(*map)[d->n] = k; /* the open moment */
	d->n = k;
	return 0;
}

int passed__cmp(const void *a, const void *b)
{
	const struct passed *x = a, *y = b;

	if (x->moment != y->moment)
		return x->moment < y->moment ? -1 : 1;
	return x->block_class < y->block_class ? -1 : x->block_class > y->block_class;
}

static void merge_passed(struct page_device *d)
{
	size_t k = 0;

	if (d->npassed)
		qsort(d->passed, d->npassed, sizeof(*d->passed), passed__cmp);
	for (size_t i = 0; i < d->npassed; i++) {
		if (k && !passed__cmp(&d->passed[k - 1], &d->passed[i]))
			d->passed[k - 1].n += d->passed[i].n;
		else
			d->passed[k++] = d->passed[i];
	}
	d->npassed = k;
}

static uint32_t map_moment1(const uint32_t *map, uint32_t moment1)
{
	return moment1 ? map[moment1 - 1] + 1 : 0;
}

/* Blocks allocated and freed between two remaining moments become counts. */
static int move(struct page_device *d, const uint32_t *map)
{
	size_t k = 0;

	for (size_t i = 0; i < d->npassed; i++)
		d->passed[i].moment = map[d->passed[i].moment];
	for (size_t i = 0; i < d->nblocks; i++) {
		struct page_block b = d->blocks[i];

		b.born1 = map_moment1(map, b.born1);
		b.gone1 = map_moment1(map, b.gone1);
		if (!b.gone1 || b.born1 != b.gone1) {
			d->blocks[k++] = b;
			continue;
		}
		if (array__grow(&d->passed, &d->cappassed, d->npassed + 1, sizeof(*d->passed)))
			return -ENOMEM;
		d->passed[d->npassed++] = (struct passed){ .moment = b.born1 - 1,
							   .block_class = b.block_class,
							   .n = 1 };
		if (d->npassed >= UINT32_C(1) << 22 && d->npassed == d->cappassed)
			merge_passed(d);
	}
	d->nblocks = k;
	merge_passed(d);
	return 0;
}

static int move_segments(struct page_device *d, const uint32_t *map)
{
	size_t k = 0;
	int err = 0;

	if (d->segment_at)
		map64__clear(d->segment_at);
	for (size_t i = 0; i < d->nsegments && !err; i++) {
		struct page_segment s = d->segments[i];

		s.born1 = map_moment1(map, s.born1);
		s.gone1 = map_moment1(map, s.gone1);
		if (!s.x.there || (s.gone1 && s.gone1 <= s.born1))
			continue;
		d->segments[k] = s;
		if (!s.gone1)
			err = map64__set(d->segment_at, s.x.addr, k);
		k++;
	}
	d->nsegments = k;
	return err;
}

/* Doubles the interval and keeps fewer step ends. False: there is only one interval. */
static bool widen_intervals(struct page_data *p)
{
	if (!p->chosen) {
		p->bucket = p->time / (MOMENTS_CHOSEN / 2) + 1;
		return true;
	}
	if (p->bucket > p->time)
		return false;
	/* The recording has grown since the last call. */
	while (p->time / p->bucket > MOMENTS_CHOSEN)
		p->bucket *= 2;
	p->bucket *= 2;
	p->most_steps = p->most_steps > 64 ? p->most_steps / 2 : p->most_steps;
	return true;
}

static int thin_devices(struct page_data *p)
{
	int err = 0;

	for (size_t i = 0; i < p->n && !err; i++) {
		uint32_t *map = NULL;

		err = choose(p, &p->devices[i], &map);
		if (!err)
			err = move(&p->devices[i], map);
		if (!err)
			err = move_segments(&p->devices[i], map);
		free(map);
	}
	return err;
}

static struct limits count_all(const struct page_data *p)
{
	struct limits all = { 0 };

	for (size_t i = 0; i < p->n; i++) {
		all.moments += p->devices[i].n;
		all.blocks += p->devices[i].nblocks + p->devices[i].nsegments;
		all.passed += p->devices[i].npassed;
	}
	return all;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

int html_thin__moments(struct page_data *p)
{
	struct limits before = count_all(p), left = before;
	int err = 0;

	/* Leave room for growth, so that dropping is not repeated at every event. */
	while (!err && (left.moments >= before.moments || left.blocks > p->limits.blocks / 4 * 3 ||
			left.passed > p->limits.passed / 4 * 3)) {
		err = widen_intervals(p) ? 0 : -EFBIG;
		p->chosen = true;
		if (!err)
			err = thin_devices(p);
		left = count_all(p);
	}
	p->next = (struct limits){
		.moments = 2 * left.moments + MOMENTS_CHOSEN,
		.blocks = larger(left.blocks / 4 * 5, p->limits.blocks),
		.passed = larger(left.passed / 4 * 5, p->limits.passed),
	};
	return err == -EFBIG && left.moments < before.moments ? 0 : err;
}
