/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Blocks of a device by address, now and at the mark, with their requests and labels. */
#include "model/heap/blocks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/hash_index.h"
#include "model/heap/state.h"

int blocks__init(struct blocks *b)
{
	b->at = map64__new();
	return b->at ? 0 : -ENOMEM;
}

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

static bool was_live(const struct model *m, const struct dev *dev, enum row_when when,
		     const struct rec *rec)
{
	if (when == ROWS_AT_MARK)
		return dev->pub.marked && rec->born <= dev->mark_seq;
	return m->noted[when - ROWS_AT_BASE].set &&
	       rec->born <= dev->noted[when - ROWS_AT_BASE].seq;
}

uint64_t blocks__outside(const struct dev *dev, enum row_when when)
{
	uint64_t bytes;

	switch (when) {
	case ROWS_AT_MARK:
		return dev->mark_outside;
	case ROWS_TOTAL:
		return 0;
	default:
		bytes = when == ROWS_NOW ? dev->outside : dev->noted[when - ROWS_AT_BASE].outside;
		return (int64_t)bytes > 0 ? bytes : 0;
	}
}

struct block blocks__of(const struct model *m, const struct dev *dev, uint64_t addr,
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
 * was live. */
static int leave(const struct model *m, struct dev *dev, uint64_t addr, uint32_t i, struct rec *ret)
{
	struct blocks *b = &dev->blocks;
	struct rec *rec = &b->recs[i];
	int err;

	for (int when = 0; when < ROWS_MOMENTS; when++) {
		struct gone *gone = &b->gone[when];

		if (!was_live(m, dev, when, rec))
			continue;
		err = array__grow_zero(&gone->all, &gone->cap, (size_t)gone->n + 1,
				       sizeof(*gone->all));
		if (err)
			return err;
		gone->all[gone->n++] = blocks__of(m, dev, addr, rec, true);
	}
	*ret = *rec;
	rec->site = b->free_no;
	b->free_no = i + 1;
	return 0;
}

int blocks__put(const struct model *m, struct dev *dev, uint64_t addr, const struct rec *rec,
		bool *replaced, struct rec *old)
{
	struct blocks *b = &dev->blocks;
	uint32_t i = b->free_no ? b->free_no - 1 : b->n;
	uint64_t was;

	if (i >= b->cap && array__grow_zero(&b->recs, &b->cap, (size_t)i + 1, sizeof(*b->recs)))
		return -ENOMEM;
	if (map64__swap(b->at, addr, i, replaced, &was))
		return -ENOMEM;
	if (b->free_no)
		b->free_no = b->recs[i].site;
	else
		b->n++;
	b->recs[i] = *rec;
	return *replaced ? leave(m, dev, addr, was, old) : 0;
}

int blocks__take(const struct model *m, struct dev *dev, uint64_t addr, struct rec *ret)
{
	uint64_t i;

	return map64__del(dev->blocks.at, addr, &i) ? leave(m, dev, addr, i, ret) : -ENOENT;
}

int blocks__all(const struct model *m, const struct dev *dev, enum row_when when,
		struct block **ret, size_t *n)
{
	const struct blocks *b = &dev->blocks;
	const struct gone *gone = when < ROWS_MOMENTS ? &b->gone[when] : NULL;
	struct block *all = malloc((map64__count(b->at) + (gone ? gone->n : 0) + 1) * sizeof(*all));
	uint64_t addr, i;
	size_t pos = 0, k = 0;

	if (!all)
		return -ENOMEM;
	for (uint32_t g = 0; gone && g < gone->n; g++)
		all[k++] = gone->all[g];
	while (map64__next(b->at, &pos, &addr, &i))
		if (!gone || was_live(m, dev, when, &b->recs[i]))
			all[k++] = blocks__of(m, dev, addr, &b->recs[i], false);
	for (size_t j = 0; j < k; j++)
		all[j].category = category__decide(&m->sites.all[all[j].site], all[j].category);
	*ret = all;
	*n = k;
	return 0;
}

ARRAY_COMPARE(cmp_block, struct block, addr)

int blocks__list(const struct model *m, const struct dev *dev, enum row_when when,
		 struct block **ret, size_t *n)
{
	int err = blocks__all(m, dev, when, ret, n);

	if (!err)
		qsort(*ret, *n, sizeof(**ret), cmp_block);
	return err;
}

int blocks__ask(struct model *m, struct request_info ask, uint32_t *ret_no)
{
	int err = hash_index__entry(&m->requests.index, m->seed, &ask, sizeof(ask),
				    &m->requests.all, &m->requests.n, &m->requests.cap, sizeof(ask),
				    ret_no);

	++*ret_no;
	return err < 0 ? err : 0;
}

int blocks__label(struct model *m, struct label label, uint32_t *ret_no)
{
	int err = hash_index__entry(&m->labels.index, m->seed, &label, sizeof(label),
				    &m->labels.all, &m->labels.n, &m->labels.cap, sizeof(label),
				    ret_no);

	++*ret_no;
	return err < 0 ? err : 0;
}

int blocks__index_words(struct model *m)
{
	int err = 0;

	free(m->requests.index.slots);
	free(m->labels.index.slots);
	m->requests.index = m->labels.index = (struct hash_index){ 0 };
	for (uint32_t i = 0; i < m->requests.n && !err; i++)
		err = hash_index__add(
			&m->requests.index,
			hash__bytes(m->seed, &m->requests.all[i], sizeof(*m->requests.all)), i);
	for (uint32_t i = 0; i < m->labels.n && !err; i++)
		err = hash_index__add(
			&m->labels.index,
			hash__bytes(m->seed, &m->labels.all[i], sizeof(*m->labels.all)), i);
	return err;
}
