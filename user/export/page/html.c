/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The html format: one page with the whole history. The template is made from page/ at build
 * time; two parts are filled in here. Moments are collected while events pass, with the first and
 * last moment of each block and segment. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assets/page.html.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/map64.h"
#include "export/formats/scope_lanes.h"
#include "export/formats/frames.h"
#include "export/formats/gzip.h"
#include "export/formats/template.h"
#include "export/page/html.h"
#include "model/growth_summary.h"
#include "model/holders.h"
#include "model/fields.h"
#include "model/words.h"
#include "record/varint.h"
#include "report/advice.h"
#include "report/doc.h"
#include "report/findings.h"
#include "report/leaks.h"

/* ---- the curve of allocated bytes ---- */

#define CURVE_MAX 8192	 /* most intervals of the curve */
#define CURVE_FIRST 1024 /* length of an interval at first, ns */

/* Merges an interval into the one before it. */
static void merge_parts(struct curve_part *a, const struct curve_part *b)
{
	a->min = b->min < a->min ? b->min : a->min;
	a->max = b->max > a->max ? b->max : a->max;
	a->reserved_max = b->reserved_max > a->reserved_max ? b->reserved_max : a->reserved_max;
	a->last = b->last;
	a->reserved = b->reserved;
}

/* Doubles the length of the intervals and merges each two of them. */
static void halve_curve(struct curve *c)
{
	size_t k = 0;

	c->width *= 2;
	for (size_t i = 0; i < c->n; i++) {
		c->parts[i].number /= 2;
		if (k && c->parts[k - 1].number == c->parts[i].number)
			merge_parts(&c->parts[k - 1], &c->parts[i]);
		else
			c->parts[k++] = c->parts[i];
	}
	c->n = k;
}

/* Adds the values after an event; time must not decrease. Returns 0 or -ENOMEM. */
static int curve_add(struct curve *c, uint64_t time, int64_t allocated, uint64_t reserved)
{
	struct curve_part part = {
		.min = allocated,
		.max = allocated,
		.last = allocated,
		.reserved_max = reserved,
		.reserved = reserved,
	};

	c->width = c->width ? c->width : CURVE_FIRST;
	while (time / c->width >= CURVE_MAX)
		halve_curve(c);
	part.number = time / c->width;
	if (c->n && c->parts[c->n - 1].number == part.number) {
		merge_parts(&c->parts[c->n - 1], &part);
		return 0;
	}
	if (array__grow(&c->parts, &c->cap, c->n + 1, sizeof(*c->parts)))
		return -ENOMEM;
	c->parts[c->n++] = part;
	return 0;
}

/* ---- moments ---- */

/* The moments of so many out-of-memory events from the start, and of so many before the end, stay. */
#define OOMS_CHOSEN 8
/* Limits of a page, over all devices. Up to MOMENTS_EXACT moments, every event is a moment. */
#define MOMENTS_EXACT 1500000
#define BLOCKS_MAX 3000000     /* blocks and segments */
#define BRIEF_MAX 3000000      /* struct brief */
#define BRIEF_MERGE (4 << 20)  /* from so many struct brief on, equal ones are merged at once */
#define PAYLOAD_MAX (14 << 20) /* bytes of the compressed data */
#define STRETCHES_MAX 20000    /* periods of phases; beyond it, short ones are dropped */

/* --- dropping of moments, and merging of changes between them */

/* Chooses among moments with a mark: those of every n-th step, and of the first and last
 * out-of-memory events. */
struct chooser {
	size_t steps, ooms; /* numbers of moments with the marks KEEP_STEP and KEEP_OOM */
	size_t every;	    /* every so many steps one is kept */
	size_t step, oom;   /* numbers of these moments so far */
};

/* Counts the moments with marks, and chooses how many steps are kept. most: most moments with
 * KEEP_STEP. */
static void count_kept(struct chooser *c, const struct page_device *d, size_t most)
{
	for (size_t i = 0; i < d->n; i++) {
		c->steps += !!(d->moments[i].keep & KEEP_STEP);
		c->ooms += !!(d->moments[i].keep & KEEP_OOM);
	}
	c->every = c->steps > most ? (c->steps + most - 1) / most : 1;
}

/* Decides whether moment i stays, and takes the marks from it that are not chosen. peak: index of
 * the moment of the peak. Call it for each moment in turn. */
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
	if (m->keep || (int64_t)i == peak || i + 1 == d->n)
		return true;
	/* The last moment of an interval stays. */
	return m->time / p->bucket != m[1].time / p->bucket;
}

/* Drops moments. Sets *map, which the caller frees: (*map)[i] is the new index of moment i; a
 * dropped one gets that of the next that stays. Returns 0 or -ENOMEM. */
static int drop_moments(const struct page_data *p, struct page_device *d, uint32_t **map)
{
	struct chooser c = { 0 };
	int64_t peak = html_moments__of(d, d->last.peak_seq);
	size_t k = 0;

	*map = reallocarray(NULL, d->n + 2, sizeof(**map));
	if (!*map)
		return -ENOMEM;
	count_kept(&c, d, p->most_steps);
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

/* Comparison for qsort(): by moment, then by block class. */
static int cmp_brief(const void *a, const void *b)
{
	const struct brief *x = a, *y = b;

	if (x->moment != y->moment)
		return x->moment < y->moment ? -1 : 1;
	return x->block_class < y->block_class ? -1 : x->block_class > y->block_class;
}

/* Sorts the counts of brief blocks, and adds up those of the same moment and class. */
static void merge_brief(struct page_device *d)
{
	size_t k = 0;

	if (d->n_brief)
		qsort(d->brief, d->n_brief, sizeof(*d->brief), cmp_brief);
	for (size_t i = 0; i < d->n_brief; i++) {
		if (k && !cmp_brief(&d->brief[k - 1], &d->brief[i]))
			d->brief[k - 1].n += d->brief[i].n;
		else
			d->brief[k++] = d->brief[i];
	}
	d->n_brief = k;
}

/* Returns the new index + 1 of a moment; 0 stays 0. map: from drop_moments(). */
static uint32_t new_moment_no(const uint32_t *map, uint32_t moment_no)
{
	return moment_no ? map[moment_no - 1] + 1 : 0;
}

/* Gives blocks their new moments. Blocks that are now allocated and freed between two moments
 * become counts. Returns 0 or -ENOMEM. */
static int move_blocks(struct page_device *d, const uint32_t *map)
{
	size_t k = 0;

	for (size_t i = 0; i < d->n_brief; i++)
		d->brief[i].moment = map[d->brief[i].moment];
	for (size_t i = 0; i < d->nblocks; i++) {
		struct page_block b = d->blocks[i];

		b.born_no = new_moment_no(map, b.born_no);
		b.gone_no = new_moment_no(map, b.gone_no);
		if (!b.gone_no || b.born_no != b.gone_no) {
			d->blocks[k++] = b;
			continue;
		}
		if (array__grow(&d->brief, &d->cap_brief, d->n_brief + 1, sizeof(*d->brief)))
			return -ENOMEM;
		d->brief[d->n_brief++] = (struct brief){ .moment = b.born_no - 1,
							 .block_class = b.block_class,
							 .n = 1 };
		if (d->n_brief >= BRIEF_MERGE && d->n_brief == d->cap_brief)
			merge_brief(d); /* instead of growing the array */
	}
	d->nblocks = k;
	merge_brief(d);
	return 0;
}

/* Gives segments their new moments. Drops those that are now taken and given back between two
 * moments. Returns 0 or -ENOMEM. */
static int move_segments(struct page_device *d, const uint32_t *map)
{
	size_t k = 0;
	int err = 0;

	if (d->segment_at)
		map64__clear(d->segment_at);
	for (size_t i = 0; i < d->nsegments && !err; i++) {
		struct page_segment s = d->segments[i];

		s.born_no = new_moment_no(map, s.born_no);
		s.gone_no = new_moment_no(map, s.gone_no);
		if (!s.x.there || (s.gone_no && s.gone_no <= s.born_no))
			continue;
		d->segments[k] = s;
		if (!s.gone_no)
			err = map64__set(d->segment_at, s.x.addr, k);
		k++;
	}
	d->nsegments = k;
	return err;
}

#define STEPS_LEAST 64 /* about the fewest ends of steps that stay */

/* Doubles the intervals that keep one moment each, and keeps fewer ends of steps. Returns false if
 * there is only one interval. */
static bool widen_intervals(struct page_data *p)
{
	if (!p->thinned) {
		p->bucket = p->time / (MOMENTS_CHOSEN / 2) + 1;
		return true;
	}
	if (p->bucket > p->time)
		return false;
	/* The recording has grown since the last call. */
	while (p->time / p->bucket > MOMENTS_CHOSEN)
		p->bucket *= 2;
	p->bucket *= 2;
	if (p->most_steps > STEPS_LEAST)
		p->most_steps /= 2;
	return true;
}

/* Drops moments of all devices as p->bucket and p->most_steps say. Returns 0 or -ENOMEM. */
static int thin_devices(struct page_data *p)
{
	int err = 0;

	for (size_t i = 0; i < p->n && !err; i++) {
		uint32_t *map = NULL;

		err = drop_moments(p, &p->devices[i], &map);
		if (!err)
			err = move_blocks(&p->devices[i], map)
				      ?: move_segments(&p->devices[i], map);
		free(map);
	}
	return err;
}

/* Returns what the page has of everything that is limited. */
static struct limits count_all(const struct page_data *p)
{
	struct limits all = { 0 };

	for (size_t i = 0; i < p->n; i++) {
		all.moments += p->devices[i].n;
		all.blocks += p->devices[i].nblocks + p->devices[i].nsegments;
		all.brief += p->devices[i].n_brief;
	}
	return all;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Returns 0 instead of -EFBIG if an earlier round dropped moments: the page stays as it is, and the
 * new next_limits delay the next try. */
int html_moments__thin(struct page_data *p)
{
	/* Leave room for growth, so that dropping is not repeated at every event. */
	const size_t most_blocks = p->limits.blocks / 4 * 3, most_brief = p->limits.brief / 4 * 3;
	struct limits before = count_all(p), left = before;
	int err = 0;

	while (left.moments >= before.moments || left.blocks > most_blocks ||
	       left.brief > most_brief) {
		err = widen_intervals(p) ? 0 : -EFBIG;
		p->thinned = true;
		if (!err)
			err = thin_devices(p);
		left = count_all(p);
		if (err)
			break;
	}
	p->next_limits = (struct limits){
		.moments = 2 * left.moments + MOMENTS_CHOSEN,
		.blocks = larger(left.blocks / 4 * 5, p->limits.blocks),
		.brief = larger(left.brief / 4 * 5, p->limits.brief),
	};
	return err == -EFBIG && left.moments < before.moments ? 0 : err;
}

/* --- collecting moments */

uint64_t html_moments__allocated(const struct page_device *d, int64_t value)
{
	uint64_t sum = (uint64_t)value + d->last.late;

	return (int64_t)sum > 0 ? sum : 0;
}

/* --- devices */

/* Sets *ret to the page's device with the model's number, which it adds on first use. It stays
 * valid until the next call. Returns 0 or -ENOMEM. */
static int find_device(struct page_data *p, uint32_t number, struct page_device **ret)
{
	struct page_device *all;

	if (number >= p->n) {
		all = reallocarray(p->devices, (size_t)number + 1, sizeof(*all));
		if (!all)
			return -ENOMEM;
		memset(all + p->n, 0, ((size_t)number + 1 - p->n) * sizeof(*all));
		p->devices = all;
		for (; p->n <= number; p->n++)
			p->devices[p->n].number = p->n;
	}
	*ret = &p->devices[number];
	return 0;
}

ARRAY_UP_TO(moments_up_to, struct page_moment, seq)

int64_t html_moments__of(const struct page_device *d, uint64_t seq)
{
	return (int64_t)moments_up_to(d->moments, d->n, seq) - 1;
}

/* Returns the first moment at or after event number seq, as index + 1; d->n + 1 is the open one; 0:
 * seq is 0. */
static uint32_t moment_no_of(const struct page_device *d, uint64_t seq)
{
	return seq ? (uint32_t)moments_up_to(d->moments, d->n, seq - 1) + 1 : 0;
}

/* --- blocks allocated and freed between two moments */

/* Counts n blocks of a class that are allocated and freed within the open moment. Returns 0 or
 * -ENOMEM. */
static int add_brief(struct page_device *d, uint32_t block_class, uint64_t n)
{
	uint64_t at;

	if (!d->open_at && !(d->open_at = map64__new()))
		return -ENOMEM;
	if (map64__get(d->open_at, block_class, &at)) {
		d->open_brief[at].n += n;
		return 0;
	}
	if (array__grow(&d->open_brief, &d->capopen, d->nopen + 1, sizeof(*d->open_brief)))
		return -ENOMEM;
	d->open_brief[d->nopen] = (struct brief){ .block_class = block_class, .n = n };
	return map64__set(d->open_at, block_class, d->nopen++);
}

/* Moves the counts of the open moment to those of the moments, as it becomes moment d->n. Returns 0
 * or -ENOMEM. */
static int flush_brief(struct page_device *d)
{
	if (!d->nopen)
		return 0;
	if (array__grow(&d->brief, &d->cap_brief, d->n_brief + d->nopen, sizeof(*d->brief)))
		return -ENOMEM;
	qsort(d->open_brief, d->nopen, sizeof(*d->open_brief), cmp_brief);
	for (size_t i = 0; i < d->nopen; i++) {
		d->brief[d->n_brief] = d->open_brief[i];
		d->brief[d->n_brief++].moment = d->n;
	}
	d->nopen = 0;
	map64__clear(d->open_at);
	return 0;
}

/* For the model: takes a block that was freed or, at the end, one that is live. Returns 0 or
 * -ENOMEM. */
static int on_block(void *ctx, const struct model_block *b)
{
	struct page_data *p = ctx;
	struct page_device *d;
	struct page_block block = { .addr = b->addr, .block_class = b->class };
	struct model_now now;
	int err = find_device(p, b->device, &d);

	if (err)
		return err;
	/* Skip blocks freed before the device's first event. */
	if (b->gone && !model__now(p->c->model, b->device, &now))
		return 0;
	block.born_no = moment_no_of(d, b->born);
	block.gone_no = b->gone ? d->n + 1 : GONE_NEVER;
	if (b->gone && block.born_no == block.gone_no)
		return add_brief(d, b->class, 1);
	if (array__grow(&d->blocks, &d->capblocks, d->nblocks + 1, sizeof(*d->blocks)))
		return -ENOMEM;
	d->blocks[d->nblocks++] = block;
	return 0;
}

/* --- segments */

/* True if both are the same segment in all that the page shows. */
static bool same_segment(const struct model_extent *a, const struct model_extent *b)
{
	if (a->addr != b->addr || a->size != b->size || a->range != b->range)
		return false;
	if (a->pool[0] != b->pool[0] || a->pool[1] != b->pool[1])
		return false;
	if (a->cuda_stream != b->cuda_stream || a->kind != b->kind)
		return false;
	return a->listed == b->listed && a->expandable == b->expandable;
}

/* For the model: takes a segment that came (x->there) or went. Returns 0 or -ENOMEM. */
static int on_segment(void *ctx, const struct model_extent *x)
{
	struct page_data *p = ctx;
	struct page_device *d;
	struct model_now now;
	struct page_segment *s;
	uint32_t here_no; /* index + 1 of the open moment; 0: before the first event */
	uint64_t at;
	int err = find_device(p, x->device, &d);

	if (!err && !d->segment_at && !(d->segment_at = map64__new()))
		err = -ENOMEM;
	if (err)
		return err;
	here_no = model__now(p->c->model, x->device, &now) ? d->n + 1 : 0;
	if (!x->there) {
		if (map64__del(d->segment_at, x->addr, &at)) {
			d->segments[at].gone_no = here_no;
			/* Reported before the first event and freed by then. */
			d->segments[at].x.there = here_no > d->segments[at].born_no;
		}
		return 0;
	}
	/* A repeated report removes and adds the segment in one event: undo the removal. */
	s = d->nsegments ? &d->segments[d->nsegments - 1] : NULL;
	if (s && s->gone_no == here_no && same_segment(&s->x, x)) {
		s->gone_no = GONE_NEVER;
		s->x.there = true;
		return map64__set(d->segment_at, x->addr, d->nsegments - 1);
	}
	if (array__grow(&d->segments, &d->capsegments, d->nsegments + 1, sizeof(*d->segments)))
		return -ENOMEM;
	d->segments[d->nsegments] = (struct page_segment){ .x = *x, .born_no = here_no };
	return map64__set(d->segment_at, x->addr, d->nsegments++);
}

/* --- moments */

/* Makes d->now a moment, if the device changed; otherwise marks the last moment. keep: KEEP_*,
 * marks for the moment. Returns 0 or -ENOMEM. */
static int close_moment(struct page_device *d, uint32_t keep)
{
	int err;

	if (!d->open) {
		if (d->n)
			d->moments[d->n - 1].keep |= keep;
		return 0;
	}
	if (d->n >= UINT32_MAX - 2 ||
	    array__grow(&d->moments, &d->cap, d->n + 1, sizeof(*d->moments)))
		return -ENOMEM;
	err = flush_brief(d);
	if (err)
		return err;
	d->moments[d->n] = d->now;
	d->moments[d->n++].keep = keep;
	d->open = false;
	return 0;
}

/* close_moment() for all devices. Returns 0 or -ENOMEM. */
static int close_all(struct page_data *p, uint32_t keep)
{
	int err = 0;

	for (size_t i = 0; i < p->n && !err; i++)
		err = close_moment(&p->devices[i], keep);
	return err;
}

/* Adds the phase that the device is in at a time to its periods. If there are too many, drops short
 * ones and joins equal neighbours. Returns 0 or -ENOMEM. */
static int note_phase(struct page_device *d, const struct model_now *now, uint64_t time)
{
	struct stretch *s = d->nstretches ? &d->stretches[d->nstretches - 1] : NULL;
	size_t k = 0;

	if (now->phase < 0)
		return 0;
	if (s && s->phase == now->phase) {
		s->end = time;
		return 0;
	}
	if (d->nstretches >= STRETCHES_MAX) {
		/* So at most a quarter stays: those of at least this length, ns. */
		uint64_t least = time / (STRETCHES_MAX / 4);

		for (size_t i = 0; i < d->nstretches; i++) {
			s = &d->stretches[i];
			if (k && d->stretches[k - 1].phase == s->phase)
				d->stretches[k - 1].end = s->end;
			else if (s->end - s->start >= least)
				d->stretches[k++] = *s;
		}
		d->nstretches = k;
	}
	if (array__grow(&d->stretches, &d->capstretches, d->nstretches + 1, sizeof(*d->stretches)))
		return -ENOMEM;
	d->stretches[d->nstretches++] = (struct stretch){ .start = time,
							  .end = time,
							  .phase = now->phase };
	return 0;
}

/* Both may be negative: memory that is found later may have been freed by now. */
static int64_t allocated_but_late(const struct model_now *now)
{
	return (int64_t)(now->allocated - now->late);
}

static int64_t unknown_but_late(const struct model_now *now)
{
	return (int64_t)(now->unknown - now->late + now->known);
}

/* Reads the state of a device after the last event. always: it changed for sure, because the event
 * was about its blocks. Returns 0 or -ENOMEM. */
static int read_device(struct page_data *p, uint32_t number, bool always)
{
	struct page_device *d;
	struct model_now now, *last;
	struct page_moment *m;
	int64_t allocated, unknown;
	bool same;
	int err = find_device(p, number, &d);

	if (err || !model__now(p->c->model, number, &now))
		return err;
	m = &d->now;
	last = &d->last;
	if (!last->seq)
		model__first(p->c->model, number, last);
	/* Memory that the model found only now (late) existed before: that is no change. */
	allocated = allocated_but_late(&now);
	unknown = unknown_but_late(&now);
	same = now.reserved == last->reserved && allocated == allocated_but_late(last) &&
	       unknown == unknown_but_late(last);
	if (same && !always) {
		*last = now;
		return 0;
	}
	m->seq = now.seq;
	m->time = p->time;
	m->allocated = allocated;
	m->unknown = unknown;
	m->reserved = now.reserved;
	d->open = true;
	*last = now;
	err = curve_add(&d->curve, p->time, m->allocated, m->reserved);
	return err ? err : note_phase(d, &now, p->time);
}

/* True if the device is at its peak and the next event e will not raise the peak. */
static bool is_peak(const struct page_data *p, const struct page_device *d, const struct event *e)
{
	bool at_peak = d->last.seq && d->last.peak_seq == d->last.seq;

	if (!d->open || !at_peak)
		return false;
	if (model__number_of(p->c->model, e->device) != d->number)
		return false;
	if (e->kind != EVENT_ALLOC)
		return true;
	return e->totals ? e->allocated <= d->last.allocated : !e->size;
}

/* Closes the open moments before the next event e: all of them or, if moments are chosen, those at
 * an interval's end and at a peak. Returns 0 or -ENOMEM. */
static int close_complete(struct page_data *p, const struct event *e)
{
	uint64_t time = e->time > p->time ? e->time : p->time;
	int err = 0;

	if (!p->thinned || time / p->bucket != p->time / p->bucket)
		err = close_all(p, 0);
	for (size_t i = 0; i < p->n && !err; i++)
		if (is_peak(p, &p->devices[i], e))
			err = close_moment(&p->devices[i], 0);
	return err;
}

/* Drops moments if there is too much of something. Returns 0 or -ENOMEM. */
static int check_limits(struct page_data *p)
{
	const struct limits *most = &p->next_limits;
	struct limits all = count_all(p);
	int err;

	for (size_t i = 0; i < p->n; i++)
		all.brief += p->devices[i].nopen;
	if (all.moments <= most->moments && all.blocks <= most->blocks && all.brief <= most->brief)
		return 0;
	err = html_moments__thin(p);
	/* When no moments can be dropped, the number of live blocks bounds the memory. */
	return err == -EFBIG ? 0 : err;
}

/* False for events of module calls, marks and statistics, which do not change memory. */
static bool may_change(uint8_t kind)
{
	switch (kind) {
	case EVENT_ENTER:
	case EVENT_LEAVE:
	case EVENT_MARK:
	case EVENT_SCOPE:
	case EVENT_REQUESTED:
	case EVENT_USED:
	case EVENT_LEFT:
	case EVENT_HOST:
		return false;
	default:
		return true;
	}
}

/* Reads the state of each device that has changed. Returns 0 or -ENOMEM. */
static int read_all_devices(struct page_data *p)
{
	int err = 0;

	for (size_t i = 0; i < model__devices(p->c->model) && !err; i++)
		err = read_device(p, i, /*always=*/false);
	return err;
}

/* Processes the last event's effect on the model. Returns 0 or -ENOMEM. */
static int process_last_event(struct page_data *p)
{
	uint8_t kind = p->last.kind;
	uint64_t steps = model__steps(p->c->model);
	bool of_block = kind == EVENT_ALLOC || kind == EVENT_FREE || kind == EVENT_OOM;
	uint32_t number = model__number_of(p->c->model, p->last.device);
	int err = 0;

	if (!kind) /* none yet, or processed already */
		return 0;
	if (p->last.time > p->time)
		p->time = p->last.time;
	if (of_block && number != UINT32_MAX)
		err = read_device(p, number, /*always=*/true);
	else if (may_change(kind))
		err = read_all_devices(p);
	p->last.kind = 0;
	if (err)
		return err;
	if (steps != p->steps) {
		p->steps = steps;
		err = close_all(p, KEEP_STEP);
	}
	if (!err && kind == EVENT_OOM && number != UINT32_MAX)
		err = close_moment(&p->devices[number], KEEP_OOM);
	return err;
}

int html_moments__end(struct page_data *p)
{
	int err = process_last_event(p);

	if (err)
		return err;
	err = read_all_devices(p) ?: close_all(p, 0);
	/* Show blocks allocated after the last moment at the last moment. */
	for (size_t i = 0; i < p->n; i++)
		for (size_t k = p->devices[i].nblocks;
		     k-- > 0 && p->devices[i].blocks[k].gone_no == GONE_NEVER;)
			if (p->devices[i].blocks[k].born_no > p->devices[i].n)
				p->devices[i].blocks[k].born_no = p->devices[i].n;
	return err;
}

/* ---- the head: data that the page shows at once ---- */

#define BUCKETS 1600	     /* points of the first chart, for all devices together */
#define BUCKETS_MIN 200	     /* a device has at least so many points in it */
#define ROWS_FIRST 30	     /* rows of the first table */
#define STRETCHES_FIRST 2500 /* most periods of phases */
#define GROWTH_LINES 100     /* lines that grow, and as many that do not, with their curves */

/* Returns the index that the model's device i has in the page; -1: the page leaves it out. */
static int page_index(const struct page_data *p, size_t i)
{
	if (p->c->device < 0)
		return (int)i;
	return (size_t)p->c->device == i ? 0 : -1;
}

struct picture {	   /* a point of the first chart, bytes */
	uint64_t min, max; /* allocated */
	uint64_t reserved; /* most reserved */
};

/* Writes the field at an offset of struct picture, of each bucket. */
static void put_picture(struct json *j, const char *key, const struct picture *b, size_t n,
			size_t field)
{
	json__open_array(j, key);
	for (size_t i = 0; i < n; i++)
		json__uint(j, NULL, *(const uint64_t *)((const char *)&b[i] + field));
	json__close_array(j);
}

/* Widens a point of the curve, so that its range has these bytes, too. */
static void widen(struct picture *b, uint64_t min, uint64_t max, uint64_t reserved)
{
	b->min = min < b->min ? min : b->min;
	b->max = max > b->max ? max : b->max;
	b->reserved = reserved > b->reserved ? reserved : b->reserved;
}

/* Writes the points of the first chart. Each covers some intervals of the curve and includes the
 * value at its start. The first point is that of the window's start. Returns 0 or -ENOMEM. */
static int put_series(struct json *j, const struct page_data *p, const struct page_device *d)
{
	uint64_t width = d->curve.width ? d->curve.width : p->c->duration + 1, start = 0;
	size_t wanted = BUCKETS / model__devices(p->c->model);
	uint64_t since, all; /* first interval of the curve to show, and how many follow it */
	uint64_t each;	     /* how many of them a point covers */
	uint64_t held, reserved;
	struct picture *b;
	struct model_now first;
	size_t n, k = 0;

	model__window(p->c->model, &start);
	since = (start < p->c->duration ? start : p->c->duration) / width;
	all = p->c->duration / width - since;
	each = all / (wanted > BUCKETS_MIN ? wanted : BUCKETS_MIN) + 1;
	n = all / each + 1;
	b = calloc(n, sizeof(*b));
	if (!b)
		return -ENOMEM;
	model__first(p->c->model, d->number, &first);
	held = html_moments__allocated(d, (int64_t)first.allocated);
	reserved = first.reserved;
	for (size_t i = 0; i < n; i++) {
		b[i] = (struct picture){ .min = held, .max = held, .reserved = reserved };
		for (; k < d->curve.n && d->curve.parts[k].number < since + (i + 1) * each; k++) {
			const struct curve_part *v = &d->curve.parts[k];

			widen(&b[i], html_moments__allocated(d, v->min),
			      html_moments__allocated(d, v->max), v->reserved_max);
			held = html_moments__allocated(d, v->last);
			reserved = v->reserved;
		}
	}
	json__open_object(j, "series");
	json__open_array(j, "t");
	for (size_t i = 0; i < n; i++)
		json__seconds(j, NULL, (since + i * each) * width, /*decimals=*/6);
	json__close_array(j);
	put_picture(j, "allocated_min", b, n, offsetof(struct picture, min));
	put_picture(j, "allocated_max", b, n, offsetof(struct picture, max));
	put_picture(j, "reserved_max", b, n, offsetof(struct picture, reserved));
	json__close_object(j);
	free(b);
	return 0;
}

/* Returns the index of the moment that --at asks for, on this device; -1: before the first one. */
static int64_t requested_moment(const struct page_data *p, const struct page_device *d)
{
	struct model_opts o = model__opts(p->c->model);
	size_t lo = 0;

	if (o.at == AT_PEAK)
		return html_moments__of(d, d->last.peak_seq);
	if (o.at == AT_END)
		return (int64_t)d->n - 1;
	if (o.at == AT_TIME && o.at_event)
		return html_moments__of(d, o.at_event);
	if (o.at == AT_TIME) {
		while (lo < d->n && d->moments[lo].time <= o.at_time)
			lo++;
		return (int64_t)lo - 1;
	}
	while (lo < d->n && !(d->moments[lo].keep & KEEP_OOM))
		lo++;
	return lo < d->n ? (int64_t)lo : (int64_t)d->n - 1;
}

/* Writes what the page shows at once of a device. Returns 0 or -ENOMEM. */
static int put_device(struct json *j, const struct page_data *p, const struct report_doc *doc,
		      size_t i)
{
	const struct page_device *d = &p->devices[model__number(p->c->model, i)];
	struct model_device info;
	int err;

	model__device(p->c->model, i, &info);
	json__open_object(j, NULL);
	json__string(j, "name", info.name);
	err = report_json__device(j, doc, i);
	json__bool(j, "has_totals", info.has_totals);
	json__uint(j, "moments", d->n);
	json__int(j, "peak_moment", html_moments__of(d, d->last.peak_seq));
	json__int(j, "at_moment", requested_moment(p, d));
	json__seconds(j, "at", doc->at == AT_TIME ? doc->at_time : info.mark_time, /*decimals=*/9);
	if (!err)
		err = put_series(j, p, d);
	json__close_object(j);
	return err;
}

/* Writes begin and end of the steps that the model has kept. */
static void put_steps(struct json *j, const struct model *m)
{
	struct model_step s;
	size_t n = 0;

	while (model__step(m, n, &s))
		n++;
	json__uint(j, "first_step", model__steps(m) - n);
	json__open_array(j, "steps");
	for (size_t i = 0; i < n && model__step(m, i, &s); i++) {
		json__open_array(j, NULL);
		json__seconds(j, NULL, s.start, /*decimals=*/9);
		json__seconds(j, NULL, s.end, /*decimals=*/9);
		json__close_array(j);
	}
	json__close_array(j);
}

/* Writes the out-of-memory events of the devices. */
static void put_ooms(struct json *j, const struct page_data *p)
{
	struct model_device d;
	struct row_frame line;
	struct model_oom o;
	char why[WORDS_OOM];

	json__open_array(j, "ooms");
	for (size_t i = 0; i < model__devices(p->c->model); i++) {
		if (page_index(p, i) < 0)
			continue;
		model__device(p->c->model, i, &d);
		for (size_t k = 0; model__oom(p->c->model, i, k, &o); k++) {
			bool known = model__stack_line(p->c->model, o.stack, false, &line);

			json__open_object(j, NULL);
			json__string(j, "device", d.name);
			json__uint(j, "number", o.number);
			json__seconds(j, "time", o.time, /*decimals=*/9);
			json__uint(j, "asked", o.size);
			json__uint(j, "allocated", o.allocated);
			json__uint(j, "reserved", o.reserved);
			json__string(j, "why", *words__oom_why(why, &o) ? why : NULL);
			json__string(j, "file", known ? line.file : NULL);
			json__uint(j, "line", known ? line.line : 0);
			json__string(j, "function", known ? line.func : NULL);
			json__close_object(j);
		}
	}
	json__close_array(j);
}

/* Writes the phases of the main device. If there are too many, only the longer ones. */
static void put_phases(struct json *j, const struct page_data *p, const struct page_device *d)
{
	uint64_t least = 0, longest = p->c->duration;
	size_t n = d ? d->nstretches : 0;

	while (n > STRETCHES_FIRST) {
		/* Begins far below what can be seen. */
		least = least ? least * 2 : longest / (1 << 20) + 1;
		n = 0;
		for (size_t i = 0; i < d->nstretches; i++)
			n += d->stretches[i].end - d->stretches[i].start >= least;
	}
	json__open_array(j, "phases");
	for (size_t i = 0; d && i < d->nstretches; i++) {
		const struct stretch *s = &d->stretches[i];

		if (s->end - s->start < least)
			continue;
		json__open_array(j, NULL);
		json__seconds(j, NULL, s->start, /*decimals=*/9);
		json__seconds(j, NULL, s->end, /*decimals=*/9);
		json__string(j, NULL, phase__name(s->phase));
		json__close_array(j);
	}
	json__close_array(j);
	json__seconds(j, "phases_over", least, /*decimals=*/9);
}

#define RUNS_FIRST 2500 /* most runs of scopes: the longest ones */

static int longest_first(const void *a, const void *b)
{
	return array__compare_u64(b, a);
}

/* Returns the shortest duration, ns, of the RUNS_FIRST longest runs; 0 without memory. */
static uint64_t least_run(const struct model *m)
{
	size_t n = model__scope_runs(m);
	uint64_t *took = n > RUNS_FIRST ? calloc(n, sizeof(*took)) : NULL, least;
	struct model_scope_run r;

	for (size_t i = 0; took && i < n; i++) {
		model__scope_run(m, i, &r);
		took[i] = r.end - r.begin;
	}
	if (!took)
		return 0;
	qsort(took, n, sizeof(*took), longest_first);
	least = took[RUNS_FIRST - 1];
	free(took);
	return least;
}

/* Writes a run: its scope, the row that it is drawn in, begin, end, number, and the peak on the
 * main device; null: not known. */
static void put_run(struct json *j, const struct page_data *p, size_t run, uint32_t row)
{
	const struct model *m = p->c->model;
	int main = p->c->device >= 0 ? p->c->device : model__main_device(m);
	struct model_scope_level l;
	struct model_scope_run r;

	model__scope_run(m, run, &r);
	json__open_array(j, NULL);
	json__uint(j, NULL, r.scope);
	json__uint(j, NULL, row);
	json__seconds(j, NULL, r.begin, /*decimals=*/9);
	json__seconds(j, NULL, r.end, /*decimals=*/9);
	json__uint(j, NULL, r.number);
	if (main >= 0 && model__scope_run_level(m, run, (size_t)main, &l))
		json__uint(j, NULL, l.peak);
	else
		json__null(j, NULL);
	json__close_array(j);
}

/* Writes the runs of scopes, each in a row below those of the runs around it; nothing without a
 * run. Returns 0 or -ENOMEM. */
static int put_scopes(struct json *j, const struct page_data *p)
{
	const struct model *m = p->c->model;
	uint64_t least = least_run(m), rows = 0, first;
	struct scope_lanes lanes;
	struct model_scope_run r;
	struct model_scope s;
	int err = scope_lanes__of(m, p->c->dict, &lanes);

	if (err || !model__scope_runs(m))
		goto out;
	json__open_object(j, "scopes");
	json__open_array(j, "names");
	for (size_t i = 0; i < model__scopes(m); i++) {
		model__scope(m, i, &s);
		json__string(j, NULL, s.path);
	}
	json__close_array(j);
	json__open_array(j, "runs");
	for (size_t lane = 0; lane < lanes.n; lane++) {
		first = rows;
		rows += lanes.all[lane].deepest;
		for (size_t i = 0; i < model__scope_runs(m); i++) {
			model__scope_run(m, i, &r);
			if (lanes.lane_of[i] == lane && r.end - r.begin >= least)
				put_run(j, p, i, (uint32_t)first + lanes.depth_of[i]);
		}
	}
	json__close_array(j);
	json__uint(j, "rows", rows);
	json__seconds(j, "over", least, /*decimals=*/9);
	json__close_object(j);
out:
	scope_lanes__drop(&lanes);
	return err;
}

static int put_devices(struct json *j, const struct page_data *p, const struct report_doc *doc)
{
	int err = 0;

	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(p->c->model) && !err; i++)
		if (page_index(p, i) >= 0)
			err = put_device(j, p, doc, i);
	json__close_array(j);
	return err;
}

/* Writes what the command leaks reports on the recording, with the curve of each line. Returns 0 or
 * -ENOMEM. */
static int put_leaks(struct json *j, const struct page_data *p)
{
	const struct export_ctx *c = p->c;
	struct model_device d = { .name = "" };
	const struct leaks_doc doc = { .model = c->model,
				       .dict = c->dict,
				       .facts = c->facts,
				       .name = c->name,
				       .duration = c->duration,
				       .complete = c->complete };
	struct leaks_opts o = { .by = BY_LINE,
				.top = GROWTH_LINES,
				.min_confidence = GROWTH_SUMMARY_CONFIDENCE,
				.min_growth = GROWTH_SUMMARY_LEAST,
				.figures = true };
	bool found = false;
	int err;

	if (c->device >= 0) {
		model__device(c->model, c->device, &d);
		o.device = d.name;
	}
	json__open_object(j, "leaks");
	json__seconds(j, "duration", c->duration, /*decimals=*/6);
	words__put_window(j, c->model);
	err = leaks_json__devices(j, &doc, &o, &found);
	json__close_object(j);
	return err;
}

/* Writes what `diagnose` says of the recording. Returns 0 or -errno. */
static int put_findings(struct json *j, const struct page_data *p)
{
	const struct export_ctx *c = p->c;
	const struct findings_source source = { .model = c->model,
						.dict = c->dict,
						.facts = c->facts,
						.advisor = p->advisor,
						.name = c->name,
						.duration = c->duration,
						.complete = c->complete };
	struct findings found;
	int err = findings__judge(&source, &found);

	if (err)
		return err;
	json__open_object(j, "diagnosis");
	findings__put_all(j, &found);
	json__close_object(j);
	findings__free(&found);
	return 0;
}

/* Writes the data that the page shows at once. Returns 0 or -errno. */
static int put_head(struct page_data *p)
{
	const struct export_ctx *c = p->c;
	struct model_opts asked = model__opts(c->model);
	struct report_doc doc = {
		.model = c->model,
		.dict = c->dict,
		.facts = c->facts,
		.name = c->name,
		.duration = c->duration,
		.complete = c->complete,
		.device = c->device >= 0 ? c->device : model__main_device(c->model),
		.at = asked.at,
		.at_time = asked.at_time,
		.by = BY_LINE,
		.top = ROWS_FIRST,
	};
	struct json *j = json__new(c->out, false);
	struct model_device main;
	uint32_t number = model__number(c->model, doc.device);
	int err;

	if (!j)
		return -ENOMEM;
	model__device(c->model, doc.device, &main);
	json__open_object(j, NULL);
	json__string(j, "version", facts__get(c->facts, "version"));
	json__string(j, "name", c->name);
	report_json__target(j, &doc);
	report_json__capture(j, &doc);
	err = report_json__host(j, c->model, c->facts, c->duration);
	if (err)
		goto out;
	json__seconds(j, "duration", c->duration, /*decimals=*/9);
	json__string(j, "moments", p->thinned ? "chosen" : "every");
	json__seconds(j, "bucket", p->thinned ? p->bucket : 0, /*decimals=*/9);
	json__seconds(j, "at", asked.at == AT_TIME ? asked.at_time : main.mark_time,
		      /*decimals=*/9);
	json__string(j, "at_name", c->moment);
	json__bool(j, "at_given", c->moment_given);
	json__int(j, "main", page_index(p, doc.device));
	err = put_devices(j, p, &doc);
	put_steps(j, c->model);
	put_ooms(j, p);
	put_phases(j, p, number < p->n ? &p->devices[number] : NULL);
	err = err ?: put_scopes(j, p);
	json__open_array(j, "categories");
	for (int i = 0; i < CATEGORY_NR; i++)
		json__string(j, NULL, category__name(i));
	json__close_array(j);
	if (err)
		goto out;
	err = put_findings(j, p);
	if (err)
		goto out;
	err = put_leaks(j, p);
	if (!err)
		err = report_json__rows(j, &doc);
out:
	json__close_object(j);
	json__free(j);
	return err;
}

/* ---- the payload: gzip of a JSON directory and columns ---- */

/* The payload, compressed with gzip: the length of the JSON directory (4 bytes, little-endian),
 * the directory, and columns of numbers as LEB128, partly as differences. page/data.js reads it. */

#define NODES_MAX 400000 /* most nodes of the tree of stacks; further stacks share one frame */

/* Columns of numbers, each named in the directory. */
struct page_columns {
	struct page_column {
		char name[24];
		struct bytes bytes;
		uint64_t n;  /* number of values */
		bool zigzag; /* values are signed: 0, -1, 1, -2, ... become 0, 1, 2, 3, ... */
	} * all;
	size_t n, cap;
	bool failed;
};

void bytes__free(struct bytes *b)
{
	free(b->p);
	*b = (struct bytes){ 0 };
}

/* Makes room for n more bytes. Returns false, and sets b->failed, without memory. */
static bool make_room(struct bytes *b, size_t n)
{
	if (!b->failed && array__grow(&b->p, &b->cap, b->n + n, 1))
		b->failed = true;
	return !b->failed;
}

/* Appends a number as LEB128. */
static void put_varint(struct bytes *b, uint64_t v)
{
	if (make_room(b, VARINT_MAX))
		b->n = varint__put(b->p + b->n, v) - b->p;
}

/* Adds a column for a device of the page (-1: none). Fill it before adding the next one. zigzag: as
 * in struct page_column. */
static struct page_column *add_column(struct page_columns *c, const char *name, int device,
				      bool zigzag)
{
	/* dummy result; nothing is written, because it is marked as failed */
	static struct page_column nowhere;
	struct page_column *col;

	nowhere.bytes.failed = true;
	if (c->failed || array__grow(&c->all, &c->cap, c->n + 1, sizeof(*c->all))) {
		c->failed = true;
		return &nowhere;
	}
	col = &c->all[c->n++];
	*col = (struct page_column){ .zigzag = zigzag };
	if (device < 0)
		snprintf(col->name, sizeof(col->name), "%s", name);
	else
		snprintf(col->name, sizeof(col->name), "%d.%s", device, name);
	return col;
}

static void put_value(struct page_column *c, uint64_t v)
{
	put_varint(&c->bytes, c->zigzag ? zigzag(v) : v);
	c->n++;
}

/* --- attribution of blocks: rows, strings by number, and stacks as one tree of frames */

/* Fields of a row of the page: those of struct row, and its own. */
enum { PAGE_DEVICE = ROW_FIELDS, PAGE_STACK, PAGE_BEFORE, PAGE_HOLDER, PAGE_FIELDS };

static const struct {
	const char *column;
	unsigned field;
} page_fields[] = {
	{ "row.file", ROW_FILE },
	{ "row.function", ROW_FUNCTION },
	{ "row.module", ROW_MODULE },
	{ "row.class", ROW_MODULE_CLASS },
	{ "row.root", ROW_MODULE_ROOT },
	{ "row.category", ROW_CATEGORY },
	{ "row.source", ROW_SOURCE },
	{ "row.name", ROW_NAME },
	{ "row.thread", ROW_THREAD },
	{ "row.node", ROW_NODE_CLASS },
	{ "row.phase", ROW_PHASE },
	{ "row.line", ROW_LINE },
	{ "row.scope", ROW_SCOPE },
	{ "row.tid", ROW_TID },
	{ "row.device", PAGE_DEVICE },
	{ "row.stack", PAGE_STACK },
	{ "row.before", PAGE_BEFORE },
	{ "row.holder", PAGE_HOLDER }, /* of memory from before attach (model/holders.h) */
};

#define N_PAGE_FIELDS (sizeof(page_fields) / sizeof(*page_fields))

struct page_row {
	uint32_t f[PAGE_FIELDS]; /* texts by their number; 0: none */
};

struct stack_node {
	uint32_t frame, parent_no;
};

struct page_rows {
	struct frames *frames;
	struct map64 *children; /* (parent_no, frame) -> node */
	struct stack_node *nodes;
	size_t nnodes, capnodes;
	uint32_t smaller;	 /* node for stacks over the limit */
	struct map64 *string_at; /* address -> number; the dict stores equal strings once */
	const char **strings;
	size_t nstrings, capstrings;
	struct map64 *row_at; /* hash -> row */
	struct page_row *rows;
	size_t n, cap;
	uint32_t *row_of_class;
	struct holders *holders; /* of each device */
	size_t nholders;
};

/* Sets *ret to the string's number in the page, from 1. Returns 0 or -ENOMEM. */
static int number_string(struct page_rows *r, const char *s, uint32_t *ret)
{
	uint64_t at;
	int err;

	if (map64__get(r->string_at, (uintptr_t)s, &at)) {
		*ret = at + 1;
		return 0;
	}
	if (array__grow(&r->strings, &r->capstrings, r->nstrings + 1, sizeof(*r->strings)))
		return -ENOMEM;
	err = map64__set(r->string_at, (uintptr_t)s, r->nstrings);
	r->strings[r->nstrings++] = s;
	*ret = r->nstrings;
	return err;
}

/* Sets *ret to the index of a stack's node in r->nodes, and adds the nodes of its frames that are
 * missing. A node stands for the frames from the root to it. If the tree has NODES_MAX nodes, *ret
 * is r->smaller, the node for all further stacks. frames: n numbers from r->frames, root first.
 * Returns 0 or -ENOMEM. */
static int find_node(struct page_rows *r, const uint32_t *frames, uint32_t n, uint32_t *ret)
{
	uint32_t parent_no = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t key = (uint64_t)parent_no << 32 | frames[i], at;
		int err;

		if (!map64__get(r->children, key, &at)) {
			if (r->nnodes >= NODES_MAX) {
				*ret = r->smaller;
				return 0;
			}
			if (array__grow(&r->nodes, &r->capnodes, r->nnodes + 1, sizeof(*r->nodes)))
				return -ENOMEM;
			at = r->nnodes;
			r->nodes[r->nnodes++] = (struct stack_node){ .frame = frames[i],
								     .parent_no = parent_no };
			err = map64__set(r->children, key, at);
			if (err)
				return err;
		}
		parent_no = at + 1;
	}
	*ret = parent_no - 1;
	return 0;
}

/* Sets *ret to the number of a row, which it adds if it is new. Returns 0 or -ENOMEM. */
static int find_row(struct page_rows *r, const struct page_row *row, uint32_t *ret)
{
	uint64_t hash = hash__bytes(hash__seed(), row, sizeof(*row)), at;

	/* Other rows with this hash took the next free one. */
	for (; map64__get(r->row_at, hash, &at); hash++) {
		if (!memcmp(&r->rows[at], row, sizeof(*row))) {
			*ret = at;
			return 0;
		}
	}
	if (r->n >= UINT32_MAX || array__grow(&r->rows, &r->cap, r->n + 1, sizeof(*r->rows)))
		return -ENOMEM;
	r->rows[r->n] = *row;
	*ret = r->n;
	return map64__set(r->row_at, hash, r->n++);
}

/* Sets the row of a block class. device: that of the page. Returns 0 or -ENOMEM. */
static int add_block_class(struct page_rows *r, const struct page_data *p, uint32_t block_class,
			   int device)
{
	struct row row;
	struct page_row out = { 0 };
	struct row_value v;
	const uint32_t *frames;
	uint32_t n;
	int err;

	model__block_class(p->c->model, block_class, &row);
	out.f[PAGE_DEVICE] = (uint32_t)device;
	out.f[PAGE_BEFORE] = row.before_attach;
	err = frames__of_row(r->frames, &row, &frames, &n);
	if (!err)
		err = find_node(r, frames, n, &out.f[PAGE_STACK]);
	for (size_t i = 0; i < N_PAGE_FIELDS && !err; i++) {
		unsigned f = page_fields[i].field;

		if (f >= ROW_FIELDS)
			continue;
		v = row_field__get(f, &row, 0);
		out.f[f] = (uint32_t)v.number;
		if (v.text)
			err = number_string(r, v.text, &out.f[f]);
	}
	if (!row.file)
		out.f[ROW_LINE] = 0;
	if (!row.thread)
		out.f[ROW_TID] = 0;
	return err ? err : find_row(r, &out, &r->row_of_class[block_class]);
}

/* Adds the rows of a device in the order of their first block, so that similar recordings give
 * similar pages. Returns 0 or -ENOMEM. */
static int add_device(struct page_rows *r, const struct page_data *p, const struct page_device *d,
		      int device)
{
	int err = 0;

	for (size_t i = 0; i < d->nblocks && !err; i++)
		if (r->row_of_class[d->blocks[i].block_class] == UINT32_MAX)
			err = add_block_class(r, p, d->blocks[i].block_class, device);
	for (size_t i = 0; i < d->n_brief && !err; i++)
		if (r->row_of_class[d->brief[i].block_class] == UINT32_MAX)
			err = add_block_class(r, p, d->brief[i].block_class, device);
	return err;
}

/* The string with this number; NULL: none (0). */
static const char *string_at(const struct page_rows *r, uint32_t string_no)
{
	return string_no ? r->strings[string_no - 1] : NULL;
}

struct before { /* a row of memory from before attach, and the sum of its block classes' sizes */
	uint64_t size;
	uint32_t row;
};

/* Comparison for qsort(): the largest first. */
static int cmp_before(const void *a, const void *b)
{
	const struct before *x = a, *y = b;

	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

/* Returns what a row says about memory from before attach. */
static struct held held_of(const struct page_rows *r, uint32_t row)
{
	const uint32_t *f = r->rows[row].f;

	return (struct held){ .name = string_at(r, f[ROW_NAME]),
			      .category = string_at(r, f[ROW_CATEGORY]),
			      .module = string_at(r, f[ROW_MODULE]),
			      .module_class = string_at(r, f[ROW_MODULE_CLASS]),
			      .module_root = string_at(r, f[ROW_MODULE_ROOT]) };
}

/* Names the objects that hold a device's memory from before attach. before: n rows, the largest
 * first. Returns 0 or -ENOMEM. */
static int name_holders(struct page_rows *r, const struct before *before, size_t n)
{
	struct holders *h = &r->holders[r->nholders++];
	struct held *held = calloc(n, sizeof(*held));
	int err = held ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && !err; i++)
		held[i] = held_of(r, before[i].row);
	if (!err)
		err = holders__group(held, n, /*by_role=*/false, h);
	for (size_t i = 0; i < n && !err; i++) {
		const char *name = h->all[h->holder_of[i]].name;

		if (*name)
			err = number_string(r, name, &r->rows[before[i].row].f[PAGE_HOLDER]);
	}
	free(held);
	return err;
}

/* Names the holders of all rows. The names are for the whole recording, so that a holder has the
 * same name at all moments. Returns 0 or -ENOMEM. */
static int add_holders(struct page_rows *r, const struct model *m)
{
	struct before *before = calloc(r->n + 1, sizeof(*before));
	uint64_t *sizes = calloc(r->n + 1, sizeof(*sizes));
	int err = before && sizes ? 0 : -ENOMEM;
	struct row unused;

	r->holders = calloc(model__devices(m) + 1, sizeof(*r->holders));
	if (!r->holders)
		err = -ENOMEM;
	for (uint32_t i = 0; i < model__block_classes(m) && !err; i++)
		if (r->row_of_class[i] != UINT32_MAX)
			sizes[r->row_of_class[i]] += model__block_class(m, i, &unused);
	for (size_t d = 0; d < model__devices(m) && !err; d++) {
		size_t n = 0;

		for (uint32_t i = 0; i < r->n; i++)
			if (r->rows[i].f[PAGE_BEFORE] && r->rows[i].f[PAGE_DEVICE] == d)
				before[n++] = (struct before){ .size = sizes[i], .row = i };
		if (!n)
			continue;
		qsort(before, n, sizeof(*before), cmp_before);
		err = name_holders(r, before, n);
	}
	free(before);
	free(sizes);
	return err;
}

/* Makes the rows of all block classes that the page has. Call free_rows(*ret) also after an error.
 * Returns 0 or -ENOMEM. */
static int make_rows(const struct page_data *p, struct page_rows **ret)
{
	struct page_rows *r = calloc(1, sizeof(*r));
	uint32_t classes = model__block_classes(p->c->model), smaller;
	int err = 0;

	*ret = r;
	if (!r)
		return -ENOMEM;
	r->frames = frames__new(p->c->dict, p->c->facts, 0);
	r->children = map64__new();
	r->string_at = map64__new();
	r->row_at = map64__new();
	r->row_of_class = malloc(((size_t)classes + 1) * sizeof(*r->row_of_class));
	if (!r->frames || !r->children || !r->string_at || !r->row_at || !r->row_of_class)
		return -ENOMEM;
	/* UINT32_MAX each: no row yet */
	memset(r->row_of_class, 0xff, ((size_t)classes + 1) * sizeof(*r->row_of_class));
	err = frames__smaller(r->frames, &smaller);
	if (!err)
		err = find_node(r, &smaller, 1, &r->smaller);
	for (size_t i = 0; i < model__devices(p->c->model) && !err; i++) {
		uint32_t number = model__number(p->c->model, i);
		int device = page_index(p, i);

		if (device >= 0 && number < p->n)
			err = add_device(r, p, &p->devices[number], device);
	}
	return err ? err : add_holders(r, p->c->model);
}

static void free_rows(struct page_rows *r)
{
	if (!r)
		return;
	frames__free(r->frames);
	map64__free(r->children);
	map64__free(r->string_at);
	map64__free(r->row_at);
	free(r->nodes);
	free(r->strings);
	free(r->rows);
	free(r->row_of_class);
	for (size_t i = 0; i < r->nholders; i++)
		holders__free(&r->holders[i]);
	free(r->holders);
	free(r);
}

/* Writes strings and frames into the open JSON object, and the rows as columns. */
static void put_words(const struct page_rows *r, struct json *j)
{
	static const char *const kinds[] = {
		[FRAME_USER] = "user",	     [FRAME_MODULE] = "module", [FRAME_TORCH] = "torch",
		[FRAME_LIBRARY] = "library", [FRAME_STDLIB] = "stdlib", [FRAME_NOTE] = "note",
	};

	json__open_array(j, "strings");
	for (size_t i = 0; i < r->nstrings; i++)
		json__string(j, NULL, r->strings[i]);
	json__close_array(j);
	json__open_array(j, "kinds");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		json__string(j, NULL, kinds[i]);
	json__close_array(j);
	json__open_array(j, "frames"); /* name, file, line and kind of each frame */
	for (size_t i = 0; i < frames__count(r->frames); i++) {
		const struct frame *f = frames__at(r->frames, i);

		json__string(j, NULL, f->name);
		json__string(j, NULL, f->file);
		json__uint(j, NULL, f->line);
		json__uint(j, NULL, f->kind);
	}
	json__close_array(j);
}

/* Adds the columns of the tree of stacks and of the rows. */
static void put_row_columns(const struct page_rows *r, struct page_columns *c)
{
	struct page_column *col = add_column(c, "node.frame", /*device=*/-1, /*zigzag=*/false);

	for (size_t i = 0; i < r->nnodes; i++)
		put_value(col, r->nodes[i].frame);
	/* distance back to the parent; 0: none */
	col = add_column(c, "node.parent", /*device=*/-1, /*zigzag=*/false);
	for (size_t i = 0; i < r->nnodes; i++)
		put_value(col, r->nodes[i].parent_no ? i + 1 - r->nodes[i].parent_no : 0);
	for (size_t k = 0; k < N_PAGE_FIELDS; k++) {
		col = add_column(c, page_fields[k].column, /*device=*/-1, /*zigzag=*/false);
		for (size_t i = 0; i < r->n; i++)
			put_value(col, r->rows[i].f[page_fields[k].field]);
	}
}

/* --- columns of a device */

/* A column of rarely changing values, stored as its changes. */
struct changes {
	struct bytes at; /* varints: number of values since the change before, or the beginning */
	struct bytes by; /* zigzag varints: new value minus old value */
	uint64_t n;	 /* number of changes */
	uint64_t since;	 /* number of values since the last change */
	uint64_t last;	 /* the last value; 0 at the beginning */
};

/* Adds the next value of the column. */
static void changes__put(struct changes *s, uint64_t v)
{
	if (v != s->last) {
		put_varint(&s->at, s->since);
		put_varint(&s->by, zigzag(v - s->last));
		s->n++;
		s->since = 0;
		s->last = v;
	}
	s->since++;
}

/* Adds the changes as two columns, which take the memory. */
static void changes__end(struct changes *s, struct page_columns *c, const char *at, const char *by,
			 int device)
{
	struct page_column *col = add_column(c, at, device, /*zigzag=*/false);

	col->bytes = s->at;
	col->n = s->n;
	col = add_column(c, by, device, /*zigzag=*/true);
	col->bytes = s->by;
	col->n = s->n;
}

/* Adds the times of the moments, and the reserved bytes before the first one and at each. */
static void put_moments(struct page_columns *c, const struct page_data *p,
			const struct page_device *d, int i)
{
	struct page_column *col = add_column(c, "time", i, /*zigzag=*/false);
	struct changes reserved = { 0 };
	struct model_now first;
	uint64_t last = 0;

	for (size_t k = 0; k < d->n; k++) {
		put_value(col, d->moments[k].time - last);
		last = d->moments[k].time;
	}
	model__first(p->c->model, d->number, &first);
	for (size_t k = 0; k <= d->n; k++)
		changes__put(&reserved, k ? d->moments[k - 1].reserved : first.reserved);
	changes__end(&reserved, c, "reserved.at", "reserved.by", i);
}

/* Adds the curve of allocated bytes. The page needs it only if not every event is a moment. */
static void put_curve(struct page_columns *c, const struct page_device *d, int i)
{
	struct page_column *number = add_column(c, "curve.number", i, /*zigzag=*/false), *col;
	const struct curve *v = &d->curve;
	uint64_t last = 0;

	for (size_t k = 0; k < v->n; k++) {
		put_value(number, v->parts[k].number - last);
		last = v->parts[k].number;
	}
	col = add_column(c, "curve.last", i, /*zigzag=*/true);
	last = 0;
	for (size_t k = 0; k < v->n; k++) {
		put_value(col, html_moments__allocated(d, v->parts[k].last) - last);
		last = html_moments__allocated(d, v->parts[k].last);
	}
	/* distances below and above the last value */
	col = add_column(c, "curve.min", i, /*zigzag=*/false);
	for (size_t k = 0; k < v->n; k++)
		put_value(col, html_moments__allocated(d, v->parts[k].last) -
				       html_moments__allocated(d, v->parts[k].min));
	col = add_column(c, "curve.max", i, /*zigzag=*/false);
	for (size_t k = 0; k < v->n; k++)
		put_value(col, html_moments__allocated(d, v->parts[k].max) -
				       html_moments__allocated(d, v->parts[k].last));
	col = add_column(c, "curve.reserved", i,
			 /*zigzag=*/false); /* highest value and last value */
	for (size_t k = 0; k < v->n; k++)
		put_value(col, v->parts[k].reserved_max);
	col = add_column(c, "curve.rlast", i, /*zigzag=*/false);
	for (size_t k = 0; k < v->n; k++)
		put_value(col, v->parts[k].reserved);
	col = add_column(c, "curve.width", i, /*zigzag=*/false);
	put_value(col, v->width);
}

/* Returns the bytes that belong to no known block. value: the `unknown` of a moment or of struct
 * model_now; what the model found later is added here. */
static uint64_t unknown_of(const struct page_device *d, int64_t value)
{
	uint64_t sum = (uint64_t)value + d->last.late - d->last.known;

	return (int64_t)sum > 0 ? sum : 0;
}

/* Adds the unknown bytes, and the allocated bytes minus live blocks and unknown bytes. This
 * difference is 0 unless records were lost. Returns 0 or -ENOMEM. */
static int put_rest(struct page_columns *c, const struct page_data *p, const struct page_device *d,
		    int i)
{
	/* sums[k]: bytes allocated minus bytes freed at moment k - 1; k = 0: before the first one */
	uint64_t *sums = calloc(d->n + 2, sizeof(*sums)), live = 0;
	struct changes unknown = { 0 }, rest = { 0 };
	struct model_now first;

	if (!sums)
		return -ENOMEM;
	for (size_t k = 0; k < d->nblocks; k++) {
		const struct page_block *b = &d->blocks[k];
		struct row row;
		uint64_t size = model__block_class(p->c->model, b->block_class, &row);

		sums[b->born_no] += size;
		if (b->gone_no)
			sums[b->gone_no] -= size;
	}
	model__first(p->c->model, d->number, &first);
	for (size_t k = 0; k <= d->n; k++) {
		uint64_t allocated = html_moments__allocated(d, k ? d->moments[k - 1].allocated
								  : (int64_t)first.allocated);
		uint64_t unknown_bytes = unknown_of(d, k ? d->moments[k - 1].unknown
							 : (int64_t)first.unknown);

		live += sums[k];
		changes__put(&unknown, unknown_bytes);
		changes__put(&rest, allocated - live - unknown_bytes);
	}
	changes__end(&unknown, c, "unknown.at", "unknown.by", i);
	changes__end(&rest, c, "rest.at", "rest.by", i);
	free(sums);
	return 0;
}

/* Comparison for qsort(): by first moment, class, last moment and address. */
static int cmp_block(const void *a, const void *b)
{
	const struct page_block *x = a, *y = b;

	if (x->born_no != y->born_no)
		return x->born_no < y->born_no ? -1 : 1;
	if (x->block_class != y->block_class)
		return x->block_class < y->block_class ? -1 : 1;
	if (x->gone_no != y->gone_no)
		return x->gone_no < y->gone_no ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Adds the blocks' addresses as numbers in the order of first use, because allocators often reuse
 * addresses. Returns 0 or -ENOMEM. */
static int put_addresses(struct page_columns *c, const struct page_device *d, int i)
{
	struct map64 *numbers = map64__new();
	struct page_column *col = add_column(c, "addr", i, /*zigzag=*/false);
	uint64_t *all = malloc((d->nblocks + 1) * sizeof(*all)), n = 0, number;
	int err = numbers && all ? 0 : -ENOMEM;

	for (size_t k = 0; k < d->nblocks && !err; k++) {
		if (!map64__get(numbers, d->blocks[k].addr, &number)) {
			err = map64__set(numbers, d->blocks[k].addr, n);
			all[n] = d->blocks[k].addr;
			number = n++;
		}
		put_value(col, number);
	}
	col = add_column(c, "addr.of", i, /*zigzag=*/true);
	for (size_t k = 0; k < n; k++)
		put_value(col, all[k] - (k ? all[k - 1] : 0));
	map64__free(numbers);
	free(all);
	return err;
}

/* Sorts the blocks, and adds their moments and classes. */
static void put_blocks(struct page_columns *c, struct page_device *d, int i)
{
	struct page_column *col = add_column(c, "born", i, /*zigzag=*/false);
	uint64_t last = 0;

	if (d->nblocks)
		qsort(d->blocks, d->nblocks, sizeof(*d->blocks), cmp_block);
	for (size_t k = 0; k < d->nblocks; k++) {
		put_value(col, d->blocks[k].born_no - last);
		last = d->blocks[k].born_no;
	}
	col = add_column(c, "kin", i, /*zigzag=*/false);
	for (size_t k = 0; k < d->nblocks; k++)
		put_value(col, d->blocks[k].block_class);
	col = add_column(c, "life", i,
			 /*zigzag=*/false); /* moments until the free; 0: live until the end */
	for (size_t k = 0; k < d->nblocks; k++)
		put_value(col,
			  d->blocks[k].gone_no ? d->blocks[k].gone_no - d->blocks[k].born_no : 0);
}

/* Adds the counts of blocks that are allocated and freed within a moment. */
static void put_brief(struct page_columns *c, const struct page_device *d, int i)
{
	struct page_column *col = add_column(c, "pmoment", i, /*zigzag=*/false);
	uint64_t last = 0;

	for (size_t k = 0; k < d->n_brief; k++) {
		put_value(col, d->brief[k].moment - last);
		last = d->brief[k].moment;
	}
	col = add_column(c, "pkin", i, /*zigzag=*/false);
	for (size_t k = 0; k < d->n_brief; k++)
		put_value(col, d->brief[k].block_class);
	col = add_column(c, "pn", i, /*zigzag=*/false);
	for (size_t k = 0; k < d->n_brief; k++)
		put_value(col, d->brief[k].n);
}

/* Adds addr, size, born_no, gone_no, range, flags (1: listed, 2: expandable, 4: small, 8: large),
 * stream and pool of each segment. */
static void put_segments(struct page_columns *c, const struct page_device *d, int i)
{
	struct page_column *col = add_column(c, "segments", i, /*zigzag=*/false);

	for (size_t k = 0; k < d->nsegments; k++) {
		const struct page_segment *s = &d->segments[k];

		if (!s->x.there)
			continue;
		put_value(col, s->x.addr);
		put_value(col, s->x.size);
		put_value(col, s->born_no);
		put_value(col, s->gone_no);
		put_value(col, s->x.range);
		put_value(col, s->x.listed | s->x.expandable << 1 |
				       (s->x.kind == SEGMENT_OF_SMALL) << 2 |
				       (s->x.kind == SEGMENT_OF_LARGE) << 3);
		put_value(col, s->x.cuda_stream);
		put_value(col, s->x.pool[0]);
		put_value(col, s->x.pool[1]);
	}
}

/* Adds the row and the size of each block class. */
static void put_block_classes(struct page_columns *c, const struct page_data *p,
			      const struct page_rows *r)
{
	struct page_column *row = add_column(c, "kin.row", /*device=*/-1, /*zigzag=*/false), *size;
	uint32_t n = model__block_classes(p->c->model);
	struct row unused;

	for (uint32_t k = 0; k < n; k++)
		put_value(row, r->row_of_class[k] == UINT32_MAX ? 0 : r->row_of_class[k]);
	size = add_column(c, "kin.size", /*device=*/-1, /*zigzag=*/false);
	for (uint32_t k = 0; k < n; k++)
		put_value(size, model__block_class(p->c->model, k, &unused));
}

/* --- complete payload */

/* Adds all columns. Returns 0 or -ENOMEM. */
static int put_columns(struct page_columns *c, struct page_data *p, const struct page_rows *r)
{
	int err = 0;

	for (size_t i = 0; i < model__devices(p->c->model) && !err; i++) {
		uint32_t number = model__number(p->c->model, i);
		int k = page_index(p, i);

		if (k < 0 || number >= p->n)
			continue;
		put_moments(c, p, &p->devices[number], k);
		if (p->thinned)
			put_curve(c, &p->devices[number], k);
		err = put_rest(c, p, &p->devices[number], k);
		put_blocks(c, &p->devices[number], k);
		if (!err && p->devices[number].nsegments && !p->no_addresses)
			err = put_addresses(c, &p->devices[number], k);
		put_brief(c, &p->devices[number], k);
		put_segments(c, &p->devices[number], k);
	}
	put_block_classes(c, p, r);
	put_row_columns(r, c);
	for (size_t i = 0; i < c->n; i++)
		c->failed |= c->all[i].bytes.failed;
	if (!err && c->failed)
		err = -ENOMEM;
	return err;
}

/* Writes the layers into the directory. */
static void put_layers(struct json *j, const struct model *m)
{
	json__open_array(j, "layers");
	for (size_t i = 0; i < model__layers(m); i++) {
		struct model_layer l;

		model__layer(m, i, &l);
		json__open_object(j, NULL);
		json__string(j, "name", l.name);
		json__string(j, "class", l.cls);
		json__string(j, "root", l.root);
		report_json__layer(j, &l, /*reserved=*/true);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Writes the directory to memory that the caller frees, also after an error. Returns 0, -ENOMEM, or
 * -EFBIG if its length needs more than 4 bytes. */
static int put_directory(char **ret, size_t *n, const struct page_data *p,
			 const struct page_rows *r, const struct page_columns *c)
{
	FILE *out = open_memstream(ret, n);
	struct json *j = out ? json__new(out, false) : NULL;

	if (!j) {
		if (out)
			fclose(out);
		return -ENOMEM;
	}
	json__open_object(j, NULL);
	json__open_array(j, "columns"); /* name, bytes, count of numbers, zigzag */
	for (size_t i = 0; i < c->n; i++) {
		json__open_array(j, NULL);
		json__string(j, NULL, c->all[i].name);
		json__uint(j, NULL, c->all[i].bytes.n);
		json__uint(j, NULL, c->all[i].n);
		json__uint(j, NULL, c->all[i].zigzag);
		json__close_array(j);
	}
	json__close_array(j);
	put_words(r, j);
	put_layers(j, p->c->model);
	json__close_object(j);
	json__free(j);
	if (fclose(out))
		return -ENOMEM;
	return *n > UINT32_MAX ? -EFBIG : 0;
}

/* Compresses directory and columns into *ret, which the caller frees. n: length of the directory.
 * Returns 0 or -ENOMEM. */
static int compress_all(const char *directory, size_t n, const struct page_columns *c,
			struct bytes *ret)
{
	uint8_t length[4] = { n, n >> 8, n >> 16, n >> 24 };
	char *data = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&data, &size);
	struct gzip *z = out ? gzip__new(out) : NULL;
	bool failed = !z;

	if (z) {
		gzip__write(z, length, sizeof(length));
		gzip__write(z, directory, n);
		for (size_t i = 0; i < c->n; i++)
			gzip__write(z, c->all[i].bytes.p, c->all[i].bytes.n);
		failed = !gzip__end(z);
	}
	if (out)
		failed |= fclose(out) != 0 || !data;
	*ret = (struct bytes){ .p = (uint8_t *)data, .n = size, .cap = size };
	if (failed)
		bytes__free(ret);
	return failed ? -ENOMEM : 0;
}

int html_payload__make(struct page_data *p, struct bytes *ret)
{
	struct page_rows *r = NULL;
	struct page_columns c = { 0 };
	char *directory = NULL;
	size_t n = 0;
	int err = make_rows(p, &r);

	if (err)
		goto out;
	err = put_columns(&c, p, r);
	if (err)
		goto out;
	err = put_directory(&directory, &n, p, r, &c);
	if (!err)
		err = compress_all(directory, n, &c, ret);
out:
	for (size_t i = 0; i < c.n; i++)
		bytes__free(&c.all[i].bytes);
	free(c.all);
	free(directory);
	free_rows(r);
	return err;
}

void html_payload__base64(FILE *out, const struct bytes *b)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char text[4096];
	size_t n = 0;

	for (size_t i = 0; i < b->n; i += 3) {
		size_t left = b->n - i;
		uint32_t v = (uint32_t)b->p[i] << 16;

		if (left > 1)
			v |= b->p[i + 1] << 8;
		if (left > 2)
			v |= b->p[i + 2];
		text[n++] = digits[v >> 18];
		text[n++] = digits[v >> 12 & 63];
		text[n++] = left > 1 ? digits[v >> 6 & 63] : '=';
		text[n++] = left > 2 ? digits[v & 63] : '=';
		if (n == sizeof(text) || left <= 3) { /* full, or the last digits */
			fwrite(text, 1, n, out);
			n = 0;
		}
	}
}

/* ---- the format ---- */

/* Has the model report blocks and segments. Returns 0 or -ENOMEM. */
static int html_begin(struct export_ctx *c, void **state)
{
	struct page_data *p = malloc(sizeof(*p));

	*state = p;
	if (!p)
		return -ENOMEM;
	*p = (struct page_data){
		.c = c,
		.limits = { .moments = MOMENTS_EXACT,
			    .blocks = BLOCKS_MAX,
			    .brief = BRIEF_MAX,
			    .payload = PAYLOAD_MAX },
		.most_steps = MOMENTS_CHOSEN / 2, /* like the intervals: widen_intervals() */
	};
	p->next_limits = p->limits;
	model__watch(c->model, &(struct model_watch){
				       .on_block = on_block, .on_segment = on_segment, .ctx = p });
	p->advisor = advisor__new(c->model, c->dict, c->facts);
	return p->advisor ? 0 : -ENOMEM;
}

/* The model processes e after this call. Returns 0 or -errno. */
static int html_event(struct export_ctx *c, void *state, const struct event *e)
{
	struct page_data *p = state;
	int err = advisor__event(p->advisor, e);

	if (err)
		return err;
	err = process_last_event(p) ?: close_complete(p, e);
	if (!err && !p->requested_is_over && model__is_past(c->model, e)) {
		p->requested_is_over = true;
		err = close_all(p, KEEP_ASKED);
	}
	p->last = *e;
	return err ?: check_limits(p);
}

/* Reduces moments chosen during streaming to the final number: at most two per interval. Returns 0
 * or -ENOMEM. */
static int drop_to_final_number(struct page_data *p)
{
	int err = 0;

	while (!err && p->thinned) {
		size_t moments = 0;

		for (size_t i = 0; i < p->n; i++)
			moments += p->devices[i].n;
		if (moments <= 2 * MOMENTS_CHOSEN)
			break;
		err = html_moments__thin(p);
	}
	return err == -EFBIG ? 0 : err;
}

/* Makes the payload within its size limit. If it is too large, leaves out addresses first, then
 * moments. Returns 0, -EFBIG if that does not suffice, or -ENOMEM. */
static int make_payload(struct page_data *p, struct bytes *payload)
{
	int err = drop_to_final_number(p);

	while (!err) {
		err = html_payload__make(p, payload);
		if (err || payload->n <= p->limits.payload)
			break;
		bytes__free(payload);
		if (!p->no_addresses)
			p->no_addresses = true;
		else
			err = html_moments__thin(p);
	}
	return err;
}

/* Writes the page. Returns 0, -ENODATA (no devices), -ENOENT (no device has the moment) or -errno. */
static int html_end(struct export_ctx *c, void *state)
{
	const char *html = packed__unpack(&asset_page_html), *end;
	struct bytes payload = { 0 };
	struct page_data *p = state;
	struct model_device d;
	bool marked = false;
	int err = model__watch_error(c->model);

	for (size_t i = 0; i < model__devices(c->model); i++) {
		model__device(c->model, i, &d);
		marked |= d.marked && (c->device < 0 || (size_t)c->device == i);
	}
	if (!html)
		return -ENOMEM;
	end = html + asset_page_html.full;
	if (!model__devices(c->model))
		return -ENODATA;
	if (!marked)
		return -ENOENT;
	if (!err)
		err = html_moments__end(p);
	if (err)
		return err;
	err = make_payload(p, &payload);
	if (err)
		goto out;
	html = template__until(c->out, html, end, "<!--HEAD-->");
	err = put_head(p);
	html = template__until(c->out, html, end, "<!--DATA-->");
	html_payload__base64(c->out, &payload);
	fwrite(html, 1, end - html, c->out);
out:
	bytes__free(&payload);
	return err;
}

static void html_release(void *state)
{
	struct page_data *p = state;

	if (!p)
		return;
	for (size_t i = 0; i < p->n; i++) {
		struct page_device *d = &p->devices[i];

		free(d->moments);
		free(d->blocks);
		free(d->brief);
		free(d->open_brief);
		free(d->segments);
		free(d->stretches);
		free(d->curve.parts);
		map64__free(d->open_at);
		map64__free(d->segment_at);
	}
	free(p->devices);
	advisor__free(p->advisor);
	free(p);
}

const struct export_format export_html = {
	.name = "html",
	.suffix = ".html",
	.help = "one page with the whole history (timeline, table, flame graph, segments), for any "
		"browser, offline",
	.next = "any browser opens it, without a network",
	.begin = html_begin,
	.event = html_event,
	.end = html_end,
	.release = html_release,
};
