/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The numbers of steps that optimizers count themselves: state[parameter]["step"], a tensor of one
 * element on the CPU or a Python int; in optimizers outside of PyTorch also group["step"]. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/census.h"
#include "inspect/census/internal.h"
#include "inspect/proc.h"
#include "inspect/python/pylong.h"

/* The highest count of all parameters: some have no gradient in each step. */
static void take_count(struct census_optimizer *o, enum census_count is, uint64_t count)
{
	o->is = is > o->is ? is : o->is;
	if (is == CENSUS_COUNT_KNOWN && count > o->count)
		o->count = count;
}

int census__python_count(struct reading *r, size_t optimizer, uint64_t obj)
{
	struct census_optimizer *o = &r->counts[optimizer];
	uint64_t n;
	int err = pylong__read(&r->m, obj, &n);

	if (err && !reading__is_local(err))
		return err;
	if (!err)
		take_count(o, CENSUS_COUNT_KNOWN, n);
	o->end = r->clock();
	return 0;
}

/* One round of reads. */
struct round {
	struct proc_piece *pieces;
	uint64_t *raw;
	size_t *whose; /* index in the list */
	size_t n;
};

static bool is_scalar(const struct pytensor *t)
{
	return t->state == PYTENSOR_OK && t->numel == 1 && job_steps__item_size(t->dtype) &&
	       t->size == job_steps__item_size(t->dtype);
}

static void add_piece(struct round *x, const struct census_list *l, size_t i,
		      struct census_optimizer *o)
{
	const struct pytensor *t = &l->v[i];

	if (t->state != PYTENSOR_TORN && t->state != PYTENSOR_BAD && t->device_type) {
		take_count(o, CENSUS_COUNT_ON_DEVICE, 0);
		return;
	}
	if (!is_scalar(t)) {
		take_count(o, CENSUS_COUNT_UNREADABLE, 0);
		return;
	}
	x->whose[x->n] = i;
	x->pieces[x->n] = (struct proc_piece){ .addr = t->addr,
					       .buf = &x->raw[x->n],
					       .len = job_steps__item_size(t->dtype) };
	x->n++;
}

/* Keeps places of the highest count for job_steps__read_again(). */
static void keep_place(struct census_optimizer *o, const struct pytensor *t, uint64_t count)
{
	if (count > o->count)
		o->n = 0;
	if (count < o->count || o->n == CENSUS_COUNTERS)
		return;
	o->at[o->n] = t->addr;
	o->dtype[o->n++] = t->dtype;
}

static void take_counts(struct reading *r, const struct census_list *l, const struct round *x,
			uint64_t begin, uint64_t end)
{
	for (size_t i = 0; i < x->n; i++) {
		const struct pytensor *t = &l->v[x->whose[i]];
		struct census_optimizer *o = &r->counts[l->labels[x->whose[i]].count_of - 1];
		uint64_t count;

		/* With o->end, it has Python ints as well: one reading cannot be of both. */
		if (o->end || x->pieces[i].err ||
		    !job_steps__parse(t->dtype, x->pieces[i].buf, &count)) {
			take_count(o, CENSUS_COUNT_UNREADABLE, 0);
			continue;
		}
		keep_place(o, t, count);
		take_count(o, CENSUS_COUNT_KNOWN, count);
		o->begin = begin;
	}
	for (size_t i = 0; i < r->ncounts; i++)
		r->counts[i].end = r->counts[i].end ?: end;
}

int census__read_counts(struct reading *r, const struct census_list *l)
{
	struct round x = { 0 };
	size_t n = 0;
	uint64_t begin;
	int err = -ENOMEM;

	for (size_t i = 0; i < l->n; i++)
		n += l->labels[i].count_of != 0;
	x.pieces = calloc(n + 1, sizeof(*x.pieces));
	x.raw = calloc(n + 1, sizeof(*x.raw));
	x.whose = calloc(n + 1, sizeof(*x.whose));
	if (!x.pieces || !x.raw || !x.whose)
		goto out;
	for (size_t i = 0; i < l->n; i++)
		if (l->labels[i].count_of)
			add_piece(&x, l, i, &r->counts[l->labels[i].count_of - 1]);
	begin = r->clock();
	err = x.n ? proc__readv(r->c->proc, x.pieces, x.n) : 0;
	if (!err)
		take_counts(r, l, &x, begin, r->clock());
out:
	free(x.pieces);
	free(x.raw);
	free(x.whose);
	return err;
}
