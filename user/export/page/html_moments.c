/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Collects moments while events pass, and the first and last moment of each block and segment.
 * Drops moments when there are too many. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "export/page/html.h"

/* ---- the curve of allocated bytes ---- */

#define CURVE_MAX 8192	 /* largest number of intervals */
#define CURVE_FIRST 1024 /* first interval, in ns */

static void cover(struct curve_part *a, const struct curve_part *b)
{
	a->min = b->min < a->min ? b->min : a->min;
	a->max = b->max > a->max ? b->max : a->max;
	a->reserved_max = b->reserved_max > a->reserved_max ? b->reserved_max : a->reserved_max;
	a->last = b->last;
	a->reserved = b->reserved;
}

static void halve(struct curve *c)
{
	size_t k = 0;

	c->width *= 2;
	for (size_t i = 0; i < c->n; i++) {
		c->parts[i].number /= 2;
		if (k && c->parts[k - 1].number == c->parts[i].number)
			cover(&c->parts[k - 1], &c->parts[i]);
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
		halve(c);
	part.number = time / c->width;
	if (c->n && c->parts[c->n - 1].number == part.number) {
		cover(&c->parts[c->n - 1], &part);
		return 0;
	}
	if (array__grow(&c->parts, &c->cap, c->n + 1, sizeof(*c->parts)))
		return -ENOMEM;
	c->parts[c->n++] = part;
	return 0;
}

/* ---- moments ---- */

#define OOMS_CHOSEN 8
#define MOMENTS_EXACT 1500000 /* limit of moments over all devices */
#define BLOCKS_MAX 3000000
#define PASSED_MAX 3000000
#define PAYLOAD_MAX (14 << 20)
#define STRETCHES_MAX 20000

/* --- dropping of moments, and merging of changes between them */

/* Choice among kept moments: every n-th step, and the first and last out-of-memory events. */
struct chooser {
	size_t steps, ooms, every;
	size_t step, oom;
};

static void count_kept(struct chooser *c, const struct page_device *d, size_t most)
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

/* comparison for qsort(): by moment, then by block class */
static int cmp_passed(const void *a, const void *b)
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
		qsort(d->passed, d->npassed, sizeof(*d->passed), cmp_passed);
	for (size_t i = 0; i < d->npassed; i++) {
		if (k && !cmp_passed(&d->passed[k - 1], &d->passed[i]))
			d->passed[k - 1].n += d->passed[i].n;
		else
			d->passed[k++] = d->passed[i];
	}
	d->npassed = k;
}

static uint32_t new_moment_no(const uint32_t *map, uint32_t moment_no)
{
	return moment_no ? map[moment_no - 1] + 1 : 0;
}

/* Blocks allocated and freed between two remaining moments become counts. */
static int move_blocks(struct page_device *d, const uint32_t *map)
{
	size_t k = 0;

	for (size_t i = 0; i < d->npassed; i++)
		d->passed[i].moment = map[d->passed[i].moment];
	for (size_t i = 0; i < d->nblocks; i++) {
		struct page_block b = d->blocks[i];

		b.born_no = new_moment_no(map, b.born_no);
		b.gone_no = new_moment_no(map, b.gone_no);
		if (!b.gone_no || b.born_no != b.gone_no) {
			d->blocks[k++] = b;
			continue;
		}
		if (array__grow(&d->passed, &d->cappassed, d->npassed + 1, sizeof(*d->passed)))
			return -ENOMEM;
		d->passed[d->npassed++] = (struct passed){ .moment = b.born_no - 1,
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

		err = drop_moments(p, &p->devices[i], &map);
		if (!err)
			err = move_blocks(&p->devices[i], map)
				      ?: move_segments(&p->devices[i], map);
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

int html_moments__thin(struct page_data *p)
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

/* --- collecting moments */

uint64_t html_moments__allocated(const struct page_device *d, int64_t value)
{
	uint64_t sum = (uint64_t)value + d->last.late;

	return (int64_t)sum > 0 ? sum : 0;
}

/* --- devices */

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

/* The first moment not before event seq; d->n + 1: the open one. */
static uint32_t moment_no_of(const struct page_device *d, uint64_t seq)
{
	return seq ? (uint32_t)moments_up_to(d->moments, d->n, seq - 1) + 1 : 0;
}

/* --- blocks allocated and freed between two moments */

static int add_passed(struct page_device *d, uint32_t block_class, uint64_t n)
{
	uint64_t at;

	if (!d->open_at && !(d->open_at = map64__new()))
		return -ENOMEM;
	if (map64__get(d->open_at, block_class, &at)) {
		d->open_passed[at].n += n;
		return 0;
	}
	if (array__grow(&d->open_passed, &d->capopen, d->nopen + 1, sizeof(*d->open_passed)))
		return -ENOMEM;
	d->open_passed[d->nopen] = (struct passed){ .block_class = block_class, .n = n };
	return map64__set(d->open_at, block_class, d->nopen++);
}

static int flush_passed(struct page_device *d)
{
	if (!d->nopen)
		return 0;
	if (array__grow(&d->passed, &d->cappassed, d->npassed + d->nopen, sizeof(*d->passed)))
		return -ENOMEM;
	qsort(d->open_passed, d->nopen, sizeof(*d->open_passed), cmp_passed);
	for (size_t i = 0; i < d->nopen; i++) {
		d->passed[d->npassed] = d->open_passed[i];
		d->passed[d->npassed++].moment = d->n;
	}
	d->nopen = 0;
	map64__clear(d->open_at);
	return 0;
}

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
		return add_passed(d, b->class, 1);
	if (array__grow(&d->blocks, &d->capblocks, d->nblocks + 1, sizeof(*d->blocks)))
		return -ENOMEM;
	d->blocks[d->nblocks++] = block;
	return 0;
}

/* --- segments */

static bool same_segment(const struct model_extent *a, const struct model_extent *b)
{
	return a->addr == b->addr && a->size == b->size && a->cuda_stream == b->cuda_stream &&
	       a->pool[0] == b->pool[0] && a->pool[1] == b->pool[1] && a->listed == b->listed &&
	       a->expandable == b->expandable && a->kind == b->kind && a->range == b->range;
}

static int on_segment(void *ctx, const struct model_extent *x)
{
	struct page_data *p = ctx;
	struct page_device *d;
	struct model_now now;
	struct page_segment *s;
	uint32_t here_no;
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

/* Turns d->now into a moment. */
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
	err = flush_passed(d);
	if (err)
		return err;
	d->moments[d->n] = d->now;
	d->moments[d->n++].keep = keep;
	d->open = false;
	return 0;
}

static int close_all(struct page_data *p, uint32_t keep)
{
	int err = 0;

	for (size_t i = 0; i < p->n && !err; i++)
		err = close_moment(&p->devices[i], keep);
	return err;
}

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

/* Reads the state of a device after the last event. always: the event was about its blocks. */
static int read_device(struct page_data *p, uint32_t number, bool always)
{
	struct page_device *d;
	struct model_now now, *last;
	struct page_moment *m;
	int err = find_device(p, number, &d);

	if (err || !model__now(p->c->model, number, &now))
		return err;
	m = &d->now;
	last = &d->last;
	if (!last->seq)
		model__first(p->c->model, number, last);
	/* Ignore memory that the model learned of late: it existed before. */
	if (!always && now.reserved == last->reserved &&
	    now.allocated - now.late == last->allocated - last->late &&
	    now.unknown - now.late + now.known == last->unknown - last->late + last->known) {
		*last = now;
		return 0;
	}
	m->seq = now.seq;
	m->time = p->time;
	m->allocated = (int64_t)(now.allocated - now.late);
	m->unknown = (int64_t)(now.unknown - now.late + now.known);
	m->reserved = now.reserved;
	d->open = true;
	*last = now;
	err = curve_add(&d->curve, p->time, m->allocated, m->reserved);
	return err ? err : note_phase(d, &now, p->time);
}

/* True if the device is at its peak and e will not raise it. */
static bool is_peak(const struct page_data *p, const struct page_device *d, const struct event *e)
{
	bool up = e->kind == EVENT_ALLOC &&
		  (e->totals ? e->allocated > d->last.allocated : e->size > 0);

	return d->open && d->last.seq && d->last.peak_seq == d->last.seq &&
	       model__number_of(p->c->model, e->device) == d->number && !up;
}

/* Closes the moments that e comes after: each of them, or only those that are kept. */
static int close_complete(struct page_data *p, const struct event *e)
{
	uint64_t time = e->time > p->time ? e->time : p->time;
	int err = 0;

	if (!p->chosen || time / p->bucket != p->time / p->bucket)
		err = close_all(p, 0);
	for (size_t i = 0; i < p->n && !err; i++)
		if (is_peak(p, &p->devices[i], e))
			err = close_moment(&p->devices[i], 0);
	return err;
}

static int check_limits(struct page_data *p)
{
	size_t moments = 0, blocks = 0, passed = 0;
	int err = 0;

	for (size_t i = 0; i < p->n; i++) {
		moments += p->devices[i].n;
		blocks += p->devices[i].nblocks + p->devices[i].nsegments;
		passed += p->devices[i].npassed + p->devices[i].nopen;
	}
	if (moments <= p->next.moments && blocks <= p->next.blocks && passed <= p->next.passed)
		return 0;
	err = html_moments__thin(p);
	/* When no moments can be dropped, the number of live blocks bounds the memory. */
	return err == -EFBIG ? 0 : err;
}

/* Events of module calls, marks and statistics do not change memory. */
static bool may_change(uint8_t kind)
{
	return kind != EVENT_ENTER && kind != EVENT_LEAVE && kind != EVENT_MARK &&
	       kind != EVENT_REQUESTED && kind != EVENT_USED && kind != EVENT_LEFT &&
	       kind != EVENT_HOST;
}

static int read_all_devices(struct page_data *p)
{
	int err = 0;

	for (size_t i = 0; i < model__devices(p->c->model) && !err; i++)
		err = read_device(p, i, false);
	return err;
}

/* Processes the last event's effect on the model. */
static int process_last_event(struct page_data *p)
{
	uint8_t kind = p->last.kind;
	uint64_t steps = model__steps(p->c->model);
	bool blocks = kind == EVENT_ALLOC || kind == EVENT_FREE || kind == EVENT_OOM;
	uint32_t number = model__number_of(p->c->model, p->last.device);
	int err = 0;

	if (!kind)
		return 0;
	if (p->last.time > p->time)
		p->time = p->last.time;
	if (blocks && number != UINT32_MAX)
		err = read_device(p, number, true);
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

int html_moments__event(struct page_data *p, const struct event *e)
{
	struct model_opts asked = model__opts(p->c->model);
	int err = process_last_event(p) ?: close_complete(p, e);

	if (!err && asked.at == AT_TIME && !p->requested_passed && e->time > asked.at_time) {
		p->requested_passed = true;
		err = close_all(p, KEEP_ASKED);
	}
	p->last = *e;
	return err ?: check_limits(p);
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

void html_moments__init(struct page_data *p, struct export_ctx *c)
{
	struct model_watch w = { .went = on_block, .segment = on_segment, .ctx = p };

	*p = (struct page_data){
		.c = c,
		.limits = { .moments = MOMENTS_EXACT,
			    .blocks = BLOCKS_MAX,
			    .passed = PASSED_MAX,
			    .payload = PAYLOAD_MAX },
		.most_steps = MOMENTS_CHOSEN / 2,
	};
	p->next = p->limits;
	model__watch(c->model, &w);
}

void html_moments__free(struct page_data *p)
{
	for (size_t i = 0; i < p->n; i++) {
		struct page_device *d = &p->devices[i];

		free(d->moments);
		free(d->blocks);
		free(d->passed);
		free(d->open_passed);
		free(d->segments);
		free(d->stretches);
		free(d->curve.parts);
		map64__free(d->open_at);
		map64__free(d->segment_at);
	}
	free(p->devices);
}
