/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Blocks from before attach, from the allocator's tables, and names of blocks from the program's
 * objects. */
#include "model/heap/events.h"

#include <errno.h>

#include "base/map64.h"
#include "model/heap/blocks.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/extents.h"
#include "model/heap/heap.h"
#include "model/heap/layers.h"
#include "model/heap/state.h"
#include "model/heap/steps.h"
#include "record/dict.h"

/* A repeated report of a block gives its request, valid from its allocation on. */
static int heap__set_ask(struct model *m, const struct event *e, struct rec *rec)
{
	if (!e->requested)
		return 0;
	return blocks__ask(m, (struct request_info){ e->requested, e->cuda_stream }, &rec->ask1);
}

int known_at_attach__asked(struct model *m, struct dev *dev, const struct event *e)
{
	struct rec *rec = blocks__at(&dev->blocks, e->addr);

	return rec ? heap__set_ask(m, e, rec) : 0;
}

/* Keeps a block that was freed and still waits for a stream. */
static int heap__pending(struct dev *dev, const struct event *e)
{
	if (!dev->pending)
		dev->pending = map64__new();
	return dev->pending ? map64__set(dev->pending, e->addr, e->size) : -ENOMEM;
}

/* On a device without totals, adds bytes from before attach that were found late to all its
 * sums. */
static void heap__add_late(struct model *m, struct dev *dev, uint64_t bytes)
{
	dev->late += bytes;
	dev->outside += bytes; /* becomes a block in heap__add_known() */
	dev->pub.allocated += bytes;
	dev->pub.peak_allocated += bytes;
	for (int k = 0; k < STEP_KINDS; k++)
		dev->step_peak[k] += bytes;
	dev->phase_total += bytes;
	for (int p = 0; p < PHASE_NR; p++)
		dev->phases[p].peak_allocated += dev->phases[p].count ? bytes : 0;
	for (enum row_when when = ROWS_AT_BASE; when < ROWS_MOMENTS; when++) {
		dev__noted(dev, when)->allocated += bytes;
		dev__noted(dev, when)->outside += bytes;
	}
	if (dev->pub.marked) {
		dev->pub.mark_allocated += bytes;
		dev->pub.mark_before_attach += bytes;
		dev->mark_outside += bytes;
	}
	/* without segments, allocated stands for reserved */
	if (!dev->extents.sums[SUM_SEGMENTS]) {
		dev->mark_below += bytes;
		dev->used.below += bytes;
		dev->mark_used.below += bytes;
	}
	if (!device__on_host(dev->pub.device)) {
		m->all.allocated += bytes;
		m->all.peak_allocated += bytes;
	}
}

/* Adds a block from before the first event. census: its origin is not known. outside: its bytes are
 * part of dev->outside; otherwise an EVENT_STATE sets the totals later. */
static int heap__add_known(struct model *m, struct dev *dev, const struct event *e, bool census,
			   bool outside)
{
	struct rec rec = { .older = true };
	bool replaced;
	int err;

	if (dev->any && !outside)
		rec.born = m->seq; /* no sum included it until now */
	if (dev->pub.marked && outside && dev->mark_outside < e->size)
		rec.born = m->seq; /* the mark's sums have no room for it */
	err = heap__site(m, dev, e, census ? WALK_CENSUS : e->walk, &rec.site);
	if (!err)
		err = category__known(m, dev, m->sites.all[rec.site].phase, &rec.stamp);
	if (!err)
		err = heap__add(m, dev, e, &rec, &replaced);
	if (!err)
		err = layers__add_known_block(m, &m->sites.all[rec.site]);
	if (err)
		return err;
	dev->census += census ? e->size : 0;
	if (outside) {
		dev->outside -= e->size;
		dev->told += rec.born ? 0 : e->size;
		for (enum row_when when = ROWS_AT_BASE; when < ROWS_MOMENTS && !rec.born; when++)
			dev__noted(dev, when)->outside -= e->size;
		if (dev->pub.marked && !rec.born)
			dev->mark_outside -= e->size;
	}
	return m->loose.count[EXTENT_MEMORY] ? cuda_memory__found(m, dev, e->addr) : 0;
}

int known_at_attach__add_block(struct model *m, struct dev *dev, const struct event *e)
{
	struct rec *rec;

	if (e->flags & BLOCK_PENDING)
		return heap__pending(dev, e);
	rec = blocks__at(&dev->blocks, e->addr);
	if (rec && m->sites.all[rec->site].size == e->size)
		return heap__set_ask(m, e, rec);
	/* After the first totals, a block must fit into the bytes that have no known block yet. */
	if (dev->pub.has_totals && ((int64_t)dev->outside < 0 || dev->outside < e->size))
		return 0;
	return heap__add_known(m, dev, e, !e->stack && !e->walk, dev->pub.has_totals);
}

/* Adds a tensor's block from before the first event that the allocator's tables did not list. */
static int heap__tensor_before(struct model *m, struct dev *dev, const struct event *e)
{
	struct event block = { .device = e->device, .addr = e->addr, .size = e->size };
	uint64_t one;

	if (!e->size || dev->census_done || (dev->freed && map64__get(dev->freed, e->addr, &one)))
		return 0;
	if (dev->pub.has_totals && ((int64_t)dev->outside < 0 || dev->outside < e->size))
		return 0;
	if (!dev->pub.has_totals && dev->any) {
		if (e->size > INT64_MAX - dev->pub.peak_allocated)
			return 0;
		heap__add_late(m, dev, e->size);
	}
	return heap__add_known(m, dev, &block, true, dev->any);
}

int known_at_attach__tensor(struct model *m, struct dev *dev, const struct event *e)
{
	struct rec *rec = blocks__at(&dev->blocks, e->addr);
	struct dict_counts c = dict__counts(m->dict);
	struct label label = {
		.name = e->name < c.strings ? e->name : 0,
		.module = e->module < c.modules ? e->module : 0,
		.category = e->category < CATEGORY_OF_EVENTS ? e->category : CATEGORY_UNKNOWN,
	};
	uint32_t label1;
	int err = 0;

	if (!rec && (e->flags & CENSUS_FIRST)) {
		err = heap__tensor_before(m, dev, e);
		rec = blocks__at(&dev->blocks, e->addr);
	}
	/* The block was allocated later, or is too small for the tensor. */
	if (err || !rec || rec->time > e->time || e->size > m->sites.all[rec->site].size)
		return err;
	if (!label.category && !label.name && !label.module)
		return 0;
	err = blocks__label(m, label, &label1);
	if (!err)
		rec->label1 = label1;
	return err;
}

void known_at_attach__census(struct dev *dev, const struct event *e)
{
	if (!(e->flags & CENSUS_FIRST))
		return;
	dev->census_done = true;
	map64__free(dev->freed);
	dev->freed = NULL;
}
