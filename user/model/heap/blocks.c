/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Blocks of a device by address, now and at the mark, with their requests and labels. */
#include "model/heap/blocks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/map64.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/hash_index.h"
#include "model/heap/state.h"

void blocks__free(struct blocks *b)
{
	map64__free(b->at);
	free(b->recs);
	for (int i = 0; i < ROWS_MOMENTS; i++)
		free(b->gone[i].all);
}

struct rec *blocks__at(const struct blocks *b, uint64_t addr)
{
	uint64_t i;

	return map64__get(b->at, addr, &i) ? &b->recs[i] : NULL;
}

/* True if a block that is live now was live at the moment. */
static bool was_live(const struct model *m, const struct dev *dev, enum row_when when,
		     const struct rec *rec)
{
	if (when == ROWS_AT_MARK)
		return dev->pub.marked && rec->born <= dev->mark_seq;
	return m->noted[when - ROWS_AT_BASE].set &&
	       rec->born <= dev->noted[when - ROWS_AT_BASE].seq;
}

struct block blocks__describe(const struct model *m, const struct dev *dev, uint64_t addr,
			      const struct rec *rec, bool dead)
{
	return (struct block){
		.addr = addr,
		.site = rec->site,
		.request_no = rec->request_no,
		.label_no = rec->label_no,
		.category = category__of_block(m, dev, addr, rec, dead),
	};
}

/* Removes the block at addr, which has record i. Adds it to the lists of the moments at which it
 * was live. Returns 0 or -ENOMEM. */
static int take_block(const struct model *m, struct dev *dev, uint64_t addr, uint32_t i,
		      struct rec *ret)
{
	struct blocks *blocks = &dev->blocks;
	struct rec *rec = &blocks->recs[i];
	int err;

	for (int when = 0; when < ROWS_MOMENTS; when++) {
		struct gone *gone = &blocks->gone[when];

		if (!was_live(m, dev, when, rec))
			continue;
		err = array__grow_zero(&gone->all, &gone->cap, (size_t)gone->n + 1,
				       sizeof(*gone->all));
		if (err)
			return err;
		gone->all[gone->n++] = blocks__describe(m, dev, addr, rec, /*dead=*/true);
	}
	*ret = *rec;
	rec->site = blocks->free_no;
	blocks->free_no = i + 1;
	return 0;
}

int blocks__put(const struct model *m, struct dev *dev, uint64_t addr, const struct rec *rec,
		bool *replaced, struct rec *old)
{
	struct blocks *b = &dev->blocks;
	uint32_t i = b->free_no ? b->free_no - 1 : b->n;
	uint64_t old_index;

	if (i >= b->cap && array__grow_zero(&b->recs, &b->cap, (size_t)i + 1, sizeof(*b->recs)))
		return -ENOMEM;
	if (map64__swap(b->at, addr, i, replaced, &old_index))
		return -ENOMEM;
	if (b->free_no)
		b->free_no = b->recs[i].site; /* links the free records */
	else
		b->n++;
	if (b->free_no) /* for the next block */
		__builtin_prefetch(&b->recs[b->free_no - 1], 1);
	b->recs[i] = *rec;
	return *replaced ? take_block(m, dev, addr, old_index, old) : 0;
}

int blocks__take(const struct model *m, struct dev *dev, uint64_t addr, struct rec *ret)
{
	uint64_t i;

	return map64__del(dev->blocks.at, addr, &i) ? take_block(m, dev, addr, i, ret) : -ENOENT;
}

int blocks__all(const struct model *m, const struct dev *dev, enum row_when when,
		struct block **ret, size_t *n)
{
	const struct blocks *b = &dev->blocks;
	const struct gone *gone = when < ROWS_MOMENTS ? &b->gone[when] : NULL;
	struct block *all = malloc((map64__count(b->at) + (gone ? gone->n : 0) + 1) * sizeof(*all));
	uint64_t addr, i;
	size_t pos = 0, count = 0;

	if (!all)
		return -ENOMEM;
	for (uint32_t g = 0; gone && g < gone->n; g++)
		all[count++] = gone->all[g];
	while (map64__next(b->at, &pos, &addr, &i))
		if (!gone || was_live(m, dev, when, &b->recs[i]))
			all[count++] = blocks__describe(m, dev, addr, &b->recs[i], /*dead=*/false);
	for (size_t j = 0; j < count; j++)
		all[j].category = category__decide(&m->sites.all[all[j].site], all[j].category);
	*ret = all;
	*n = count;
	return 0;
}

#define DIGIT_BITS 11
#define DIGITS (1u << DIGIT_BITS)

/* Writes the n blocks at `from` to `to`, in the order of one digit of the address, which begins at
 * bit `shift`. Blocks with the same digit stay in their order. */
static void sort_by_digit(const struct block *from, struct block *to, size_t n, unsigned int shift)
{
	size_t place[DIGITS] = { 0 }, sum = 0;

	for (size_t i = 0; i < n; i++)
		place[from[i].addr >> shift & (DIGITS - 1)]++;
	for (size_t i = 0; i < DIGITS; i++) {
		size_t count = place[i];

		place[i] = sum;
		sum += count;
	}
	for (size_t i = 0; i < n; i++)
		to[place[from[i].addr >> shift & (DIGITS - 1)]++] = from[i];
}

/* Sorts blocks by address, digit by digit: much faster than qsort() for 100,000 blocks. Returns 0
 * or -ENOMEM. */
static int sort_by_address(struct block **all, size_t n)
{
	struct block *from = *all, *to = malloc((n + 1) * sizeof(*to)), *other;
	uint64_t varying = 0; /* bits in which addresses differ */

	if (!to)
		return -ENOMEM;
	for (size_t i = 1; i < n; i++)
		varying |= from[i].addr ^ from[0].addr;
	while (varying) {
		unsigned int shift = (unsigned int)__builtin_ctzll(varying);

		sort_by_digit(from, to, n, shift);
		other = from;
		from = to;
		to = other;
		varying &= ~((uint64_t)(DIGITS - 1) << shift);
	}
	free(to);
	*all = from;
	return 0;
}

int blocks__list(const struct model *m, const struct dev *dev, enum row_when when,
		 struct block **ret, size_t *n)
{
	int err = blocks__all(m, dev, when, ret, n);

	if (err)
		return err;
	err = sort_by_address(ret, *n);
	if (!err)
		return 0;
	free(*ret);
	*ret = NULL;
	return err;
}

int blocks__set_request(struct model *m, const struct event *e, struct rec *rec)
{
	struct request_info request = { e->requested, e->cuda_stream };
	uint32_t i;

	if (!e->requested)
		return 0;
	if (hash_index__entry(&m->requests.index, m->seed, &request, sizeof(request),
			      &m->requests.all, &m->requests.n, &m->requests.cap, sizeof(request),
			      &i) < 0)
		return -ENOMEM;
	rec->request_no = i + 1;
	return 0;
}
