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
 * not counted up. count: only for CENSUS_COUNT_KNOWN. */
static void take_count(struct census_optimizer *optimizer, enum census_count status, uint64_t count)
{
	optimizer->status = status > optimizer->status ? status : optimizer->status;
	if (status == CENSUS_COUNT_KNOWN && count > optimizer->count)
		optimizer->count = count;
}

int census__python_count(struct reading *reading, size_t optimizer, uint64_t obj)
{
	struct census_optimizer *to = &reading->counts[optimizer];
	uint64_t n;
	int err = pylong__read(&reading->mem, obj, &n);

	if (err && !reading__is_local(err))
		return err;
	if (!err)
		take_count(to, CENSUS_COUNT_KNOWN, n);
	to->end = reading->clock();
	return 0;
}

/* Counts that one proc__readv() reads. */
struct round {
	struct proc_piece *pieces;
	uint64_t *raw;	      /* values */
	size_t *tensor_index; /* in the census_list */
	size_t n;
};

/* True if a tensor was read, and is one element of a type that counts have. */
static bool is_scalar(const struct listed *tensor)
{
	return tensor->state == PYTENSOR_OK && tensor->single &&
	       job_steps__item_size(tensor->dtype) &&
	       tensor->size == job_steps__item_size(tensor->dtype);
}

/* Adds the i-th tensor of the list, a count of the optimizer's steps, to the reads. A count on a
 * device cannot be read. */
static void add_piece(struct round *round, const struct census_list *list, size_t i,
		      struct census_optimizer *optimizer)
{
	const struct listed *tensor = &list->v[i];

	if (tensor->state != PYTENSOR_TORN && tensor->state != PYTENSOR_BAD &&
	    tensor->device_type) {
		take_count(optimizer, CENSUS_COUNT_ON_DEVICE, 0);
		return;
	}
	if (!is_scalar(tensor)) {
		take_count(optimizer, CENSUS_COUNT_UNREADABLE, 0);
		return;
	}
	round->tensor_index[round->n] = i;
	round->pieces[round->n] = (struct proc_piece){ .addr = tensor->addr,
						       .buf = &round->raw[round->n],
						       .len = job_steps__item_size(tensor->dtype) };
	round->n++;
}

/* Keeps the addresses of the highest count, for job_steps__read_again(). Call it before
 * take_count(), which sets optimizer->count. */
static void keep_place(struct census_optimizer *optimizer, const struct listed *tensor,
		       uint64_t count)
{
	if (count > optimizer->count)
		optimizer->n = 0;
	if (count < optimizer->count || optimizer->n == CENSUS_COUNTERS)
		return;
	optimizer->at[optimizer->n] = tensor->addr;
	optimizer->dtype[optimizer->n++] = tensor->dtype;
}

/* Evaluates the reads, which were made between begin and end. */
static void take_counts(struct reading *reading, const struct census_list *list,
			const struct round *round, uint64_t begin, uint64_t end)
{
	for (size_t i = 0; i < round->n; i++) {
		const struct listed *tensor = &list->v[round->tensor_index[i]];
		uint32_t no = list->labels[tensor->label].optimizer_no;
		struct census_optimizer *optimizer = &reading->counts[no - 1];
		uint64_t count;

		/* optimizer->end is set if Python ints were counted, too. They were read at another
		 * time. */
		if (optimizer->end || round->pieces[i].err ||
		    !job_steps__parse(tensor->dtype, round->pieces[i].buf, &count)) {
			take_count(optimizer, CENSUS_COUNT_UNREADABLE, 0);
			continue;
		}
		keep_place(optimizer, tensor, count);
		take_count(optimizer, CENSUS_COUNT_KNOWN, count);
		optimizer->begin = begin;
	}
	for (size_t i = 0; i < reading->ncounts; i++)
		reading->counts[i].end = reading->counts[i].end ?: end;
}

int census__read_counts(struct reading *reading, const struct census_list *list)
{
	struct round round = { 0 };
	size_t n = 0;
	uint64_t begin;
	int err = -ENOMEM;

	for (size_t i = 0; i < list->n; i++)
		n += census_list__label(list, i)->optimizer_no != 0;
	round.pieces = calloc(n + 1, sizeof(*round.pieces));
	round.raw = calloc(n + 1, sizeof(*round.raw));
	round.tensor_index = calloc(n + 1, sizeof(*round.tensor_index));
	if (!round.pieces || !round.raw || !round.tensor_index)
		goto out;
	for (size_t i = 0; i < list->n; i++) {
		uint32_t no = census_list__label(list, i)->optimizer_no;

		if (no)
			add_piece(&round, list, i, &reading->counts[no - 1]);
	}
	begin = reading->clock();
	err = round.n ? proc__readv(reading->census->proc, round.pieces, round.n) : 0;
	if (!err)
		take_counts(reading, list, &round, begin, reading->clock());
out:
	free(round.pieces);
	free(round.raw);
	free(round.tensor_index);
	return err;
}
