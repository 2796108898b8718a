/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Callbacks for each block that is freed and each segment that changes (model__watch()). */
#include "model/heap/state.h"

#include <errno.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "model/heap/blocks.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/extents.h"
#include "model/heap/hash_index.h"

/* Callback of extents: passes a segment to on_segment. */
static void report_extent(void *ctx, const struct extent *e, bool there)
{
	struct dev *dev = ctx;
	struct model *m = dev->model;
	const struct extent *range = extents__over(&dev->extents, EXTENT_RESERVED, e->addr);
	struct model_extent reported = {
		.device = dev->number,
		.addr = e->addr,
		.size = e->size,
		.range = range ? range->addr : 0,
		.cuda_stream = e->cuda_stream,
		.pool = { e->pool[0], e->pool[1] },
		.listed = e->listed,
		.expandable = extent__is_expandable(e),
		.kind = extent__kind(e),
		.there = there,
	};

	if (extent__sum(e) == SUM_SEGMENTS && !m->watch.err)
		m->watch.err = m->watch.on_segment(m->watch.ctx, &reported);
}

void observers__device(struct model *m, struct dev *dev)
{
	dev->model = m;
	dev->extents.changed = m->watch.on_segment ? report_extent : NULL;
	dev->extents.ctx = dev;
}

void model__watch(struct model *m, const struct model_watch *w)
{
	m->watch.on_block = w->on_block;
	m->watch.on_segment = w->on_segment;
	m->watch.ctx = w->ctx;
	for (uint32_t i = 0; i < m->ndevs; i++)
		observers__device(m, m->devs[i]);
}

int model__watch_error(const struct model *m)
{
	return m->watch.err;
}

int observers__report_block(struct model *m, const struct dev *dev, uint64_t addr,
			    const struct rec *rec, bool dead)
{
	struct watch_class class = {
		.site = rec->site,
		.label_no = rec->label_no,
		.category = category__of_block(m, dev, addr, rec, dead),
	};
	struct model_block b = {
		.device = m->sites.all[rec->site].dev,
		.addr = addr,
		.size = m->sites.all[rec->site].size,
		.born = rec->born,
		.gone = dead ? m->seq : 0,
	};
	int err = hash_index__entry(&m->watch.index, m->seed, &class, sizeof(class),
				    &m->watch.classes, &m->watch.nclasses, &m->watch.capclasses,
				    sizeof(class), &b.class);

	return err < 0 ? err : m->watch.on_block(m->watch.ctx, &b);
}

/* Passes all blocks that are live at the end to on_block. */
int observers__finish(struct model *m)
{
	int err;

	for (uint32_t i = 0; i < m->ndevs; i++) {
		const struct blocks *b = &m->devs[i]->blocks;
		uint64_t addr, index;
		size_t pos = 0;

		while (map64__next(b->at, &pos, &addr, &index)) {
			err = observers__report_block(m, m->devs[i], addr, &b->recs[index],
						      /*dead=*/false);
			if (err)
				return err;
		}
	}
	return 0;
}
