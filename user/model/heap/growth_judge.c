/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds what grew from the recorded values: by line, with a confidence and the share that stays. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "model/heap/blocks.h"
#include "model/heap/device.h"
#include "model/heap/growth_internal.h"
#include "model/heap/heap.h"
#include "model/heap/state.h"
#include "model/heap/steps.h"
#include "record/dict.h"

#define FASTER 2     /* than memory from step to step */
#define PEAK_PART 20 /* the growth is at least this part of the highest peak */

struct survey {			     /* blocks of a unit live at the end */
	uint64_t young[GROWTH_AGES]; /* bytes by age */
	uint64_t old, blocks;
	uint64_t after, after_blocks; /* allocated after the last step's end; young has them, too */
	uint8_t category;	      /* category with the most bytes */
	uint64_t of_category[CATEGORY_NR];
};

struct judge {
	const struct model *m;
	struct growth_watch *w;
	const struct dev *dev;
	uint32_t dev_index;
	unsigned track;
	uint64_t min_growth;
	struct growth *g;
	struct survey *survey;
	struct block *blocks; /* live blocks */
	size_t nblocks;
	uint64_t *by_category; /* BY_CATEGORY: values of each category */
	struct row *rows;      /* rows of live blocks */
	size_t nrows;
	struct growth_names names;
};

struct growth_pool {
	uint64_t *by_category;
	struct row *rows;
	uint64_t allocated[TREND_MAX]; /* the device's allocated bytes */
	struct growth_line inside, peaks;
};

const char *growth__clock(enum growth_clock c)
{
	static const char *const names[] = { "steps", "calls", "time", "requests" };

	return names[c];
}

const char *growth__kind(enum growth_kind k)
{
	return k == GROWTH_ENLARGED ? "enlarged" : "piles_up";
}

/* Selects steps if there are any. Selects time if steps are few and ended long before the recording
 * did. */
static unsigned choose_track(const struct model *m)
{
	const struct growth_watch *w = m->growth;
	uint64_t last = m->steps.last_end[w->kind];

	if (w->per.file)
		return TRACK_STEPS;
	/* Few steps, and then calls only: those count. */
	if (w->kind == STEP_OPT && w->track[TRACK_STEPS].passed < TREND_MIN &&
	    w->track[TRACK_INSIDE].n >= TREND_MIN)
		return TRACK_INSIDE;
	if (!w->track[TRACK_STEPS].passed)
		return TRACK_TIME;
	if (w->track[TRACK_STEPS].passed >= TREND_MIN || !w->track[TRACK_TIME].on)
		return TRACK_STEPS;
	return last < w->start || last - w->start < (w->now - w->start) / 2 ? TRACK_TIME
									    : TRACK_STEPS;
}

static void describe_requests(const struct judge *j)
{
	const struct growth_track *t = &j->w->track[j->track];
	const struct growth_requests *r = &j->w->per;
	struct growth *g = j->g;

	g->request.file = r->file;
	g->request.line = r->line;
	if (r->dev_no)
		strcpy(g->request.device, j->m->devs[r->dev_no - 1]->pub.name);
	if (t->n > 1)
		g->request.seconds = (double)(r->times[t->n - 1] - r->times[0]) / 1e9 /
				     (double)(t->n - 1) / (double)t->stride;
}

static enum growth_clock clock_of(const struct judge *j)
{
	if (j->w->per.file)
		return GROWTH_REQUESTS;
	if (j->track == TRACK_TIME)
		return GROWTH_TIME;
	return j->track == TRACK_STEPS && j->w->kind == STEP_OPT ? GROWTH_STEPS : GROWTH_CALLS;
}

static void describe_values(const struct judge *j)
{
	const struct growth_track *t = &j->w->track[j->track];
	struct growth *g = j->g;

	g->clock = clock_of(j);
	g->steps = t->passed;
	if (j->track == TRACK_INSIDE) {
		g->steps = j->w->inside.calls;
		g->after_steps = j->w->track[TRACK_STEPS].passed;
	} else if (g->clock == GROWTH_STEPS || g->clock == GROWTH_CALLS) {
		g->steps = model__whole_steps(j->m);
	}
	g->partly = g->steps < t->passed;
	if (g->clock == GROWTH_REQUESTS)
		describe_requests(j);
	g->stride = t->stride;
	g->slice = g->clock == GROWTH_TIME ? (double)t->stride * (double)GROWTH_SLICE / 1e9 : 0;
	g->values = t->n;
	if (g->clock == GROWTH_TIME && j->w->last_alloc >= j->w->start &&
	    (j->w->last_alloc - j->w->start) / GROWTH_SLICE / t->stride < t->n)
		g->values = (j->w->last_alloc - j->w->start) / GROWTH_SLICE / t->stride;
	g->coarse = j->w->coarse;
}

static double per_step(const struct growth *g, double slope)
{
	return slope / (g->clock == GROWTH_TIME ? g->slice : (double)g->stride);
}

/* ---- live blocks ---- */

static void add_late(const struct judge *j, struct growth_unit *u, struct survey *s)
{
	const struct growth_late *late = growth__late(j->w, u, j->track);

	/* Blocks of the last step's end and later ones were not live together. */
	if (!late || !late->blocks)
		return;
	s->blocks -= s->after_blocks;
	for (int i = 0; i < GROWTH_AGES; i++)
		s->young[i] += late->by_age[i];
	s->young[0] -= s->after + late->after;
	for (int c = 0; c < CATEGORY_NR; c++)
		s->of_category[c] += late->of_category[c];
	s->old += late->old;
	s->blocks += late->blocks;
}

static void add_live(const struct judge *j, const struct rec *rec, struct survey *s)
{
	uint64_t size = j->m->sites.all[rec->site].size,
		 age = growth__age(j->m, j->dev, rec, j->track);

	s->blocks++;
	s->young[growth__bucket(age)] += size;
	if (growth__is_after(j->w, rec, j->track, age)) {
		s->after += size;
		s->after_blocks++;
	}
	s->old += growth__is_old(j->w, rec, j->track, age) ? size : 0;
}

static int survey_blocks(struct judge *j)
{
	uint64_t addr, i;
	size_t pos = 0;
	int err;

	j->survey = calloc((size_t)j->w->n + 1, sizeof(*j->survey));
	if (!j->survey)
		return -ENOMEM;
	err = blocks__all(j->m, j->dev, ROWS_NOW, &j->blocks, &j->nblocks);
	if (err)
		return err;
	for (size_t k = 0; k < j->nblocks; k++) {
		const struct block *b = &j->blocks[k];
		uint32_t unit_no = b->site < j->w->nsites ? j->w->of_site[b->site] : 0;

		if (unit_no)
			j->survey[unit_no - 1].of_category[b->category] += j->m->sites.all[b->site]
										   .size;
	}
	while (map64__next(j->dev->blocks.at, &pos, &addr, &i)) {
		const struct rec *rec = &j->dev->blocks.recs[i];
		uint32_t unit_no = rec->site < j->w->nsites ? j->w->of_site[rec->site] : 0;

		if (unit_no)
			add_live(j, rec, &j->survey[unit_no - 1]);
	}
	for (uint32_t u = 0; u < j->w->n; u++) {
		uint8_t *most = &j->survey[u].category;

		if (j->w->units[u].key.dev == j->dev_index + 1)
			add_late(j, &j->w->units[u], &j->survey[u]);
		for (int c = 0; c < CATEGORY_NR; c++)
			if (j->survey[u].of_category[c] > j->survey[u].of_category[*most])
				*most = c;
	}
	return 0;
}

static uint64_t sum_of_ages(const struct survey *s)
{
	uint64_t sum = 0;

	for (int i = 0; i < GROWTH_AGES; i++)
		sum += s->young[i];
	return sum;
}

/* For each age, the share of bytes that got older among those that reached it (Kaplan-Meier). */
static void survival(const struct growth_unit *u, const struct survey *s, unsigned track,
		     struct growth_line *l)
{
	double left = 1;
	uint64_t older = 0, gone, all;

	for (int i = 0; i < GROWTH_AGES; i++)
		older += u->gone[track][i] + s->young[i];
	for (int i = 0; i < GROWTH_AGES; i++) {
		gone = u->gone[track][i];
		older -= gone + s->young[i];
		all = gone + older;
		if (!all)
			break;
		left *= (double)older / (double)all;
		l->survives[l->ages++] = left;
	}
}

/* ---- words ---- */

static int gather_rows(struct judge *j)
{
	struct row_opts o = { .by = j->w->by,
			      .when = ROWS_NOW,
			      .any_module = true,
			      .any_phase = true,
			      .any_category = true };
	size_t device;

	for (device = 0; j->m->order[device] != j->dev_index; device++)
		;
	return model__rows(j->m, device, &o, &j->rows, &j->nrows);
}

static bool is_row_of(const struct judge *j, const struct row *a, const struct row *b)
{
	if (b->before_attach)
		return false;
	switch (j->w->by) {
	case BY_MODULE:
		return a->module == b->module && a->module_class == b->module_class &&
		       a->module_root == b->module_root;
	case BY_STACK:
		return a->stack == b->stack && a->node_class == b->node_class &&
		       !strcmp(a->source, b->source);
	default:
		return a->file == b->file && a->func == b->func && a->line == b->line &&
		       (a->file || !strcmp(a->source, b->source));
	}
}

static void words_of(const struct judge *j, const struct growth_unit *u, struct growth_line *l)
{
	const struct site *s = &j->m->sites.all[u->site];

	rows__line(j->m, false, s->stack, s->node, s->thread, s->walk, &l->row);
	for (size_t i = 0; i < j->nrows; i++) {
		if (is_row_of(j, &l->row, &j->rows[i])) {
			l->row = j->rows[i];
			break;
		}
	}
	l->row.bytes = sum_of_ages(&j->survey[u - j->w->units]);
	l->row.count = j->survey[u - j->w->units].blocks;
	l->row.cumulative = 0;
	l->row.category = category__name(j->survey[u - j->w->units].category);
}

static int gather_names(struct judge *j)
{
	const struct growth_names *late = growth__late_names(j->w, j->track);

	for (uint32_t i = 0; i < late->n; i++)
		if (growth__add_name(&j->names, &late->all[i]))
			return -ENOMEM;
	for (size_t k = 0; k < j->nblocks; k++) {
		const struct block *b = &j->blocks[k];
		uint32_t unit_no = b->site < j->w->nsites ? j->w->of_site[b->site] : 0;
		uint32_t name = b->label_no ? j->m->labels.all[b->label_no - 1].name : 0;
		struct growth_named block = { unit_no - 1, name, j->m->sites.all[b->site].size, 1 };

		if (unit_no && name && growth__add_name(&j->names, &block))
			return -ENOMEM;
	}
	growth__sort_names(&j->names);
	return 0;
}

#define HOST_LEAST (UINT64_C(1) << 20) /* bytes: growth of host memory that always counts */
#define PATTERNS 16		       /* of names, of one line; other names are left out */

/* Patterns and names of a line, and their blocks. */
struct found {
	const char *name;
	char *pattern; /* owned; NULL: only one name so far */
	uint64_t bytes, count, same;
};

/* Without memory the name of the first stays. */
static void cover_name(struct found *f, const char *name, struct growth *g)
{
	if (!f->pattern) {
		if (array__grow(&g->patterns, &g->cappatterns, g->npatterns + 1,
				sizeof(*g->patterns)))
			return;
		f->pattern = strdup(f->name);
		if (!f->pattern)
			return;
		g->patterns[g->npatterns++] = f->pattern;
	}
	pattern__cover(f->pattern, name);
}

static void add_found(struct found *f, size_t *n, const struct growth_named *x, const char *name,
		      struct growth *g)
{
	size_t i = 0;

	while (i < *n && !pattern__alike(f[i].name, name))
		i++;
	if (i == PATTERNS)
		return;
	if (i == *n)
		f[(*n)++] = (struct found){ .name = name };
	else
		cover_name(&f[i], name, g);
	f[i].bytes += x->bytes;
	f[i].count += x->count;
	f[i].same = x->count > f[i].same ? x->count : f[i].same;
}

static int cmp_found(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void names_of(const struct judge *j, uint32_t unit, struct growth_line *l)
{
	const struct growth_names *s = &j->names;
	struct found f[PATTERNS];
	uint32_t low = 0, high = s->n, end;
	size_t n = 0;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (s->all[middle].unit < unit)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < s->n && s->all[end].unit == unit; end++)
		l->named += s->all[end].bytes;
	for (uint32_t i = low; i < end; i++) {
		const char *name = dict__str(j->m->dict, s->all[i].name);

		if (end - low > GROWTH_NAMES)
			add_found(f, &n, &s->all[i], name, j->g);
		else
			f[n++] = (struct found){ .name = name,
						 .bytes = s->all[i].bytes,
						 .count = s->all[i].count,
						 .same = s->all[i].count };
	}
	if (n)
		qsort(f, n, sizeof(*f), cmp_found);
	for (size_t i = 0; i < n && l->nnames < GROWTH_NAMES; i++)
		l->names[l->nnames++] = (struct growth_name){ f[i].pattern ? f[i].pattern
									   : f[i].name,
							      f[i].bytes, f[i].count, f[i].same };
}

/* ---- verdicts ---- */

static const uint64_t *values_of(const struct judge *j, const struct growth_unit *u)
{
	return growth_values__of(u, j->track);
}

static bool is_constant(const uint64_t *v, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (v[i] != v[0])
			return false;
	return true;
}

static int cmp_line(const void *a, const void *b)
{
	const struct growth_line *x = a, *y = b;
	bool gx = x->trend.verdict == TREND_GROWS, gy = y->trend.verdict == TREND_GROWS;

	if (gx != gy)
		return gx ? -1 : 1;
	if (x->trend.verdict != y->trend.verdict)
		return x->trend.verdict > y->trend.verdict ? -1 : 1;
	if (x->per_step != y->per_step)
		return x->per_step > y->per_step ? -1 : 1;
	if (x->row.bytes != y->row.bytes)
		return x->row.bytes > y->row.bytes ? -1 : 1;
	return 0;
}

static double per_block(const struct growth_unit *u, unsigned track)
{
	const struct growth_series *s = &u->s[track];

	return s->settled_allocations ? (double)s->settled / (double)s->settled_allocations : 0;
}

/* Whether the first of the values ends a step that began before the recording. */
static bool begins_partly(const struct growth *g)
{
	return g->partly && g->stride == 1;
}

static void add_line(struct judge *j, const struct growth_unit *u)
{
	struct trend_opts o = { .min_growth = j->min_growth, .tests = j->g->tested };
	struct growth_line l = { .values = values_of(j, u),
				 .allocated = u->allocated,
				 .allocations = u->allocations };
	const struct survey *s = &j->survey[u - j->w->units];
	struct growth *g = j->g;
	size_t first = 0;

	/* A line's values begin with the first that is not 0. */
	while (first + 1 < g->values && !l.values[first])
		first++;
	l.values += first;
	o.partly = !first && begins_partly(g);
	trend__judge(l.values, g->values - first, &o, &l.trend);
	if (l.trend.verdict == TREND_FLAT)
		return;
	l.per_step = per_step(g, l.trend.slope);
	l.per_block = per_block(u, j->track);
	l.old = s->old;
	l.kind = s->old < l.trend.grown / 2 ? GROWTH_ENLARGED : GROWTH_PILES_UP;
	survival(u, s, j->track, &l);
	words_of(j, u, &l);
	names_of(j, u - j->w->units, &l);
	g->lines[g->n++] = l;
}

static int judge_lines(struct judge *j)
{
	struct growth *g = j->g;
	int err = gather_rows(j);

	if (err)
		return err;
	for (uint32_t i = 0; i < j->w->n; i++) {
		if (j->w->units[i].key.dev != j->dev_index + 1)
			continue;
		if (growth_values__fill(j->w, &j->w->units[i], j->track))
			return -ENOMEM;
		g->tested += !is_constant(values_of(j, &j->w->units[i]), g->values);
	}
	g->lines = calloc((size_t)j->w->n + 1, sizeof(*g->lines));
	if (!g->lines)
		return -ENOMEM;
	for (uint32_t i = 0; i < j->w->n; i++)
		if (j->w->units[i].key.dev == j->dev_index + 1)
			add_line(j, &j->w->units[i]);
	return 0;
}

/* Adds up the units of one category. A line belongs to the category with most of its bytes at the
 * end; earlier categories are not kept. */
static int add_up(struct judge *j, uint8_t category, uint64_t *sum, struct growth_unit *all,
		  struct survey *of_all)
{
	for (uint32_t i = 0; i < j->w->n; i++) {
		struct growth_unit *u = &j->w->units[i];
		const struct survey *s = &j->survey[i];

		if (u->key.dev != j->dev_index + 1 || s->category != category)
			continue;
		if (growth_values__fill(j->w, u, j->track))
			return -ENOMEM;
		for (size_t k = 0; k < j->g->values; k++)
			sum[k] += values_of(j, u)[k];
		all->allocated += u->allocated;
		all->allocations += u->allocations;
		all->s[j->track].settled += u->s[j->track].settled;
		all->s[j->track].settled_allocations += u->s[j->track].settled_allocations;
		of_all->old += s->old;
		of_all->blocks += s->blocks;
		for (int a = 0; a < GROWTH_AGES; a++) {
			all->gone[j->track][a] += u->gone[j->track][a];
			of_all->young[a] += s->young[a];
		}
	}
	return 0;
}

static int judge_categories(struct judge *j)
{
	struct growth *g = j->g;
	struct trend_opts o = { .min_growth = j->min_growth,
				.tests = CATEGORY_NR,
				.partly = begins_partly(g) };

	j->by_category = calloc((size_t)CATEGORY_NR * TREND_MAX, sizeof(*j->by_category));
	g->lines = calloc(CATEGORY_NR, sizeof(*g->lines));
	if (!j->by_category || !g->lines)
		return -ENOMEM;
	g->tested = CATEGORY_NR;
	for (int c = 0; c < CATEGORY_NR; c++) {
		uint64_t *sum = j->by_category + (size_t)c * TREND_MAX;
		struct growth_line *l = &g->lines[g->n];
		struct growth_unit all = { .live = 0 };
		struct survey of_all = { .old = 0 };

		if (add_up(j, c, sum, &all, &of_all))
			return -ENOMEM;
		trend__judge(sum, g->values, &o, &l->trend);
		if (l->trend.verdict == TREND_FLAT)
			continue;
		l->values = sum;
		l->per_step = per_step(g, l->trend.slope);
		l->per_block = per_block(&all, j->track);
		l->old = of_all.old;
		l->kind = l->old < l->trend.grown / 2 ? GROWTH_ENLARGED : GROWTH_PILES_UP;
		l->allocated = all.allocated;
		l->allocations = all.allocations;
		l->row.bytes = sum_of_ages(&of_all);
		l->row.count = of_all.blocks;
		l->row.category = category__name(c);
		survival(&all, &of_all, j->track, l);
		g->n++;
	}
	return 0;
}

/* Adds memory from before attach that was found late to each step's end, as report --at does. */
static const uint64_t *with_late(const struct judge *j, const uint64_t *values)
{
	struct growth_pool *pool = j->g->pool;

	for (size_t i = 0; i < j->g->values; i++)
		pool->allocated[i] = values[i] + j->dev->late;
	return pool->allocated;
}

static void judge_sum(const struct judge *j, unsigned which, struct growth_sum *ret)
{
	struct trend_opts o = { .min_growth = j->min_growth, .partly = begins_partly(j->g) };

	ret->values = growth_values__of_device(j->w, j->dev_index, j->track, which);
	if (which == SUM_ALLOCATED)
		ret->values = with_late(j, ret->values);
	trend__judge(ret->values, j->g->values, &o, &ret->trend);
	ret->per_step = per_step(j->g, ret->trend.slope);
}

/* Moments at which anything of the device changed. Memory of the host changes at readings. */
static uint32_t count_observed(const struct judge *j)
{
	const struct growth *g = j->g;
	const uint64_t *v = g->allocated.values;
	uint32_t n = 0;

	if (j->dev->pub.device.type != DEVICE_HOST)
		return (uint32_t)g->values;
	for (size_t i = 0; i < g->values; i++)
		n += i ? v[i] != v[i - 1] : v[i] > 0;
	return n;
}

/* The names are those of TRACK_STEPS, so only that clock has growth within a step. */
static int judge_inside(struct judge *j)
{
	struct growth_pool *pool = j->g->pool;
	struct growth_inside *in = &j->g->inside;
	struct growth_interval best;
	const struct site *s;
	int err = 0;

	if (j->track == TRACK_STEPS)
		err = growth_inside__judge(j->m, j->dev_index, in, &best);
	if (err || !in->known)
		return err;
	s = &j->m->sites.all[j->w->units[best.unit_no - 1].site];
	pool->inside = (struct growth_line){ .trend = best.trend, .per_step = best.per_call };
	rows__line(j->m, FRAMES_USER, s->stack, s->node, s->thread, s->walk, &pool->inside.row);
	pool->inside.row.phase = s->phase < PHASE_NR ? s->phase : PHASE_OTHER;
	pool->inside.row.bytes = best.live;
	if (in->open)
		names_of(j, best.unit_no - 1, &pool->inside);
	in->line = &pool->inside;
	return 0;
}

/* ---- peaks ---- */

/* Slope of the tops over the steps that ended (least squares). */
static double slope_of_tops(const struct growth_watch *w, struct growth_unit *u)
{
	double from = GROWTH_WARMUP, n = (double)w->track[TRACK_STEPS].passed - from, mean, squares;

	growth__touch_peaks(w, u);
	if (n < 2)
		return 0;
	mean = from + (n - 1) / 2;
	squares = n * (n * n - 1) / 12;
	return (u->tops.moment - mean * u->tops.sum) / squares;
}

/* Peaks of the kept steps, of several together if there are many. */
static size_t peaks_of(const struct model *m, const struct dev *dev, uint64_t v[TREND_MAX],
		       uint64_t *stride)
{
	enum step_kind kind = m->growth->kind;
	uint64_t n = m->steps.n[kind], kept = n < STEPS_KEPT ? n : STEPS_KEPT;
	size_t count;

	/* The peak of a step that was under way at attach is not known. */
	if (n == kept && kept && !model__first_step_whole(m))
		kept--;
	*stride = kept / TREND_MAX + 1;
	count = kept / *stride;
	for (size_t i = 0; i < count; i++) {
		v[i] = 0;
		for (uint64_t k = 0; k < *stride; k++) {
			uint64_t step = n - (count - i) * *stride + k;
			uint64_t peak = dev->step[kind][step % STEPS_KEPT].peak + dev->late;

			v[i] = peak > v[i] ? peak : v[i];
		}
	}
	return count;
}

static void set_row(const struct model *m, const struct growth_unit *u, struct row *ret)
{
	const struct site *s = &m->sites.all[u->site];

	rows__line(m, FRAMES_USER, s->stack, s->node, s->thread, s->walk, ret);
	ret->bytes = u->tops.top > u->tops.last ? u->tops.top : u->tops.last;
}

static void find_lines(const struct model *m, uint32_t dev_index, struct growth_line *ret_line,
		       struct growth_peaks *ret)
{
	struct growth_watch *w = m->growth;
	double most = 0, most_input = 0;
	uint32_t line = 0, input = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		struct growth_unit *u = &w->units[i];
		double grows;

		if (u->key.dev != dev_index + 1)
			continue;
		grows = slope_of_tops(w, u);
		if (grows > most) {
			most = grows;
			line = i + 1;
		}
		if (grows > most_input && u->tops.input) {
			most_input = grows;
			input = i + 1;
		}
	}
	if (line) {
		*ret_line = (struct growth_line){ .per_step = most, .trend = ret->trend };
		set_row(m, &w->units[line - 1], &ret_line->row);
		ret->line = ret_line;
	}
	if (input && input != line)
		set_row(m, &w->units[input - 1], &ret->input);
}

static void judge_peaks(const struct model *m, uint32_t dev_index, const struct growth_sum *ends,
			uint64_t min_growth, struct growth_line *line, struct growth_peaks *ret)
{
	const struct growth_watch *w = m->growth;
	const struct dev *dev = m->devs[dev_index];
	struct trend_opts o = { .min_growth = min_growth };
	uint64_t v[TREND_MAX], stride, least = dev->pub.peak_allocated / PEAK_PART;
	size_t n;

	*ret = (struct growth_peaks){ .known = false };
	if (w->per.file || dev_index >= STEP_DEVICES || !dev->step[w->kind] ||
	    dev->pub.device.type == DEVICE_HOST)
		return;
	n = peaks_of(m, dev, v, &stride);
	o.min_growth = least > min_growth ? least : min_growth;
	trend__judge(v, n, &o, &ret->trend);
	ret->known = true;
	ret->stride = stride;
	ret->per_step = ret->trend.slope / (double)stride;
	if (!trend__counts(&ret->trend, TREND_LOW) || ret->per_step < FASTER * ends->per_step) {
		ret->trend.confidence = TREND_NONE;
		return;
	}
	if (m->lost && ret->trend.confidence > TREND_MEDIUM)
		ret->trend.confidence = TREND_MEDIUM;
	find_lines(m, dev_index, line, ret);
}

/* ---- a device ---- */

static int judge_all(struct judge *j)
{
	struct growth *g = j->g;
	int err;

	describe_values(j);
	err = survey_blocks(j);
	if (err)
		return err;
	err = gather_names(j);
	if (err)
		return err;
	err = j->w->by == BY_CATEGORY ? judge_categories(j) : judge_lines(j);
	if (err)
		return err;
	judge_sum(j, SUM_ALLOCATED, &g->allocated);
	g->observed = count_observed(j);
	trend__limit(&g->allocated.trend, g->observed);
	for (size_t i = 0; i < g->n; i++) {
		struct trend *t = &g->lines[i].trend;

		/* A block whose free was lost looks as if it had stayed. */
		if (j->m->lost && t->confidence > TREND_MEDIUM)
			t->confidence = TREND_MEDIUM;
		trend__limit(t, g->observed);
	}
	qsort(g->lines, g->n, sizeof(*g->lines), cmp_line);
	judge_sum(j, SUM_RESERVED, &g->reserved);
	judge_sum(j, SUM_TAKEN, &g->others);
	if (g->clock == GROWTH_STEPS || (g->clock == GROWTH_CALLS && !g->after_steps))
		judge_peaks(j->m, j->dev_index, &g->allocated, j->min_growth,
			    &((struct growth_pool *)g->pool)->peaks, &g->peaks);
	g->has_reserved = j->dev->pub.has_totals;
	g->has_others = !device__on_host(j->dev->pub.device);
	return judge_inside(j);
}

/* Readings of the host's memory see single pages come and go: growth counts from a thousandth of it
 * on. */
static uint64_t least_growth(const struct dev *dev, uint64_t min_growth)
{
	uint64_t least = dev->pub.allocated / 1024;

	if (dev->pub.device.type != DEVICE_HOST)
		return min_growth;
	least = least < HOST_LEAST ? least : HOST_LEAST;
	return least > min_growth ? least : min_growth;
}

int growth__judge(const struct model *m, size_t device, uint64_t min_growth, struct growth *ret)
{
	struct growth g = { .n = 0 };
	struct judge j = { .m = m, .w = m->growth, .min_growth = min_growth, .g = &g };
	struct growth_pool *pool;
	int err;

	if (!m->growth || device >= m->ndevs)
		return -EINVAL;
	j.dev_index = m->order[device];
	j.dev = m->devs[j.dev_index];
	j.min_growth = least_growth(j.dev, min_growth);
	j.track = choose_track(m);
	g.pool = pool = calloc(1, sizeof(*pool));
	err = pool ? judge_all(&j) : -ENOMEM;
	if (pool) {
		pool->by_category = j.by_category;
		pool->rows = j.rows;
	}
	free(j.survey);
	free(j.blocks);
	growth__free_names(&j.names);
	if (err)
		growth__free(&g);
	else
		*ret = g;
	return err;
}

size_t growth__count(const struct growth *g, enum trend_confidence least)
{
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++)
		n += trend__counts(&g->lines[i].trend, least);
	return n;
}

bool growth__pool_grows(const struct growth *g, enum trend_confidence least)
{
	uint64_t grown = g->allocated.trend.grown;

	/* Peaks that grow take their pool along. */
	if (growth__peaks_grow(g, TREND_MEDIUM) && g->peaks.trend.grown > grown)
		grown = g->peaks.trend.grown;
	return g->has_reserved && trend__counts(&g->reserved.trend, least) &&
	       grown < g->reserved.trend.grown / 2;
}

bool growth__peaks_grow(const struct growth *g, enum trend_confidence least)
{
	return g->peaks.known && trend__counts(&g->peaks.trend, least);
}

bool growth__inside_grows(const struct growth *g, enum trend_confidence least)
{
	return g->inside.known && trend__counts(&g->inside.line->trend, least);
}

bool growth__sum_grows(const struct growth *g)
{
	const struct growth_sum *all = &g->allocated;

	return all->per_step > 0 &&
	       (all->trend.verdict == TREND_GROWS || all->trend.verdict == TREND_UNSURE);
}

bool growth__others_grow(const struct growth *g, enum trend_confidence least)
{
	return g->has_others && trend__counts(&g->others.trend, least);
}

void growth__free(struct growth *g)
{
	struct growth_pool *pool = g->pool;

	if (pool) {
		free(pool->by_category);
		free(pool->rows);
	}
	free(pool);
	free(g->lines);
	for (size_t i = 0; i < g->npatterns; i++)
		free(g->patterns[i]);
	free(g->patterns);
	memset(g, 0, sizeof(*g));
}
