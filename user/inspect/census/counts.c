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

/* Keeps the highest status and count of all parameters: a parameter without a gradient in a step is
 * not counted up. */
static void take_count(struct census_optimizer *o, enum census_count status, uint64_t count)
{
	o->status = status > o->status ? status : o->status;
	if (status == CENSUS_COUNT_KNOWN && count > o->count)
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

/* Counts that one proc__readv() reads. */
struct round {
	struct proc_piece *pieces;
	uint64_t *raw;	      /* values */
	size_t *tensor_index; /* in the census_list */
	size_t n;
};

/* Whether a tensor was read, and is one element of a type that counts have. */
static bool is_scalar(const struct pytensor *t)
{
	return t->state == PYTENSOR_OK && t->numel == 1 && job_steps__item_size(t->dtype) &&
	       t->size == job_steps__item_size(t->dtype);
}

/* Adds the i-th tensor, a count of o, to the reads. */
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
	x->tensor_index[x->n] = i;
	x->pieces[x->n] = (struct proc_piece){ .addr = t->addr,
					       .buf = &x->raw[x->n],
					       .len = job_steps__item_size(t->dtype) };
	x->n++;
}

/* Keeps the addresses of the highest count for job_steps__read_again(). */
static void keep_place(struct census_optimizer *o, const struct pytensor *t, uint64_t count)
{
	if (count > o->count)
		o->n = 0;
	if (count < o->count || o->n == CENSUS_COUNTERS)
		return;
	o->at[o->n] = t->addr;
	o->dtype[o->n++] = t->dtype;
}

/* Evaluates the reads, which were made between begin and end. */
static void take_counts(struct reading *r, const struct census_list *l, const struct round *x,
			uint64_t begin, uint64_t end)
{
	for (size_t i = 0; i < x->n; i++) {
		const struct pytensor *t = &l->v[x->tensor_index[i]];
		struct census_optimizer
			*o = &r->counts[l->labels[x->tensor_index[i]].optimizer_no - 1];
		uint64_t count;

		/* o->end is set if Python ints were counted, too. They were read at another time. */
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
		n += l->labels[i].optimizer_no != 0;
	x.pieces = calloc(n + 1, sizeof(*x.pieces));
	x.raw = calloc(n + 1, sizeof(*x.raw));
	x.tensor_index = calloc(n + 1, sizeof(*x.tensor_index));
	if (!x.pieces || !x.raw || !x.tensor_index)
		goto out;
	for (size_t i = 0; i < l->n; i++)
		if (l->labels[i].optimizer_no)
			add_piece(&x, l, i, &r->counts[l->labels[i].optimizer_no - 1]);
	begin = r->clock();
	err = x.n ? proc__readv(r->c->proc, x.pieces, x.n) : 0;
	if (!err)
		take_counts(r, l, &x, begin, r->clock());
out:
	free(x.pieces);
	free(x.raw);
	free(x.tensor_index);
	return err;
}
