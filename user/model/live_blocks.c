/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Live blocks, for callers of the model. */
#include <errno.h>
#include <stdlib.h>

#include "model/blocks.h"
#include "model/category.h"
#include "model/device.h"
#include "model/heap.h"
#include "model/state.h"
#include "record/dict.h"

static struct live_block describe(const struct model *m, const struct block *b)
{
	const struct site *s = &m->sites.all[b->site];
	const struct label *l = b->label1 ? &m->labels.all[b->label1 - 1] : NULL;
	const struct request_info *ask = b->ask1 ? &m->asks.all[b->ask1 - 1] : NULL;

	return (struct live_block){
		.addr = b->addr,
		.size = s->size,
		.requested = ask ? ask->requested : 0,
		.cuda_stream = ask ? ask->cuda_stream : 0,
		.stack = s->stack,
		.node = s->node,
		.thread = s->thread,
		.walk = s->walk == WALK_CENSUS ? MT_WALK_OFF : s->walk,
		.before_attach = s->walk == WALK_CENSUS,
		.category = b->category,
		.name = l && l->name ? dict__str(m->dict, l->name) : NULL,
		.module = l && l->module ? l->module : s->module,
	};
}

bool model__live_block(const struct model *m, struct device device, uint64_t addr,
		       struct live_block *ret)
{
	const struct dev *dev = dev__known(m, device);
	const struct rec *rec = dev ? blocks__at(&dev->blocks, addr) : NULL;
	struct block b;

	if (!rec)
		return false;
	b = blocks__of(m, dev, addr, rec, true);
	b.category = category__decide(&m->sites.all[b.site], b.category);
	*ret = describe(m, &b);
	ret->time = rec->time;
	return true;
}

int model__live_blocks(const struct model *m, size_t device, enum row_when when,
		       struct live_block **ret, size_t *n)
{
	bool mark = when == ROWS_AT_MARK;
	struct live_block *all;
	const struct dev *dev;
	struct block *blocks;
	int err;

	if (device >= m->ndevs)
		return -ENOENT;
	dev = m->devs[m->order[device]];
	if (mark && !dev->pub.marked)
		return -ENOENT;
	err = blocks__list(m, dev, mark ? ROWS_AT_MARK : ROWS_NOW, &blocks, n);
	if (err)
		return err;
	all = calloc(*n + 1, sizeof(*all));
	for (size_t i = 0; i < *n && all; i++) {
		const struct rec *rec = mark ? NULL : blocks__at(&dev->blocks, blocks[i].addr);

		all[i] = describe(m, &blocks[i]);
		all[i].time = rec ? rec->time : 0;
	}
	free(blocks);
	*ret = all;
	return all ? 0 : -ENOMEM;
}
