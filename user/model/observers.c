/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Callbacks for each block that is freed and each segment that changes (model__watch()). */
#include "model/internal.h"

#include <errno.h>

static void watch__extent(void *ctx, const struct extent *e, bool there)
{
	struct dev *dev = ctx;
	struct model *m = dev->of;
	const struct extent *range = extents__over(&dev->extents, EXTENT_RESERVED, e->addr);
	struct model_extent x = {
		.device = dev->number,
		.addr = e->addr,
		.size = e->size,
		.range = range ? range->addr : 0,
		.cuda_stream = e->cuda_stream,
		.pool = { e->pool[0], e->pool[1] },
		.told = e->listed,
		.expandable = segments__is_expandable(e),
		.kind = segments__kind(e),
		.there = there,
	};

	if (extent__sum(e) == SUM_SEGMENTS && !m->watch.err)
		m->watch.err = m->watch.segment(m->watch.ctx, &x);
}

void observers__device(struct model *m, struct dev *dev)
{
	dev->of = m;
	dev->extents.changed = m->watch.segment ? watch__extent : NULL;
	dev->extents.ctx = dev;
}

void model__watch(struct model *m, const struct model_watch *w)
{
	m->watch.went = w->went;
	m->watch.segment = w->segment;
	m->watch.ctx = w->ctx;
	for (uint32_t i = 0; i < m->ndevs; i++)
		observers__device(m, m->devs[i]);
}

int model__watched(const struct model *m)
{
	return m->watch.err;
}

struct model_opts model__opts(const struct model *m)
{
	return m->opts;
}

static int watch__class(struct model *m, struct watch_class class, uint32_t *ret)
{
	uint32_t key[3] = { class.site, class.label1, class.category };
	uint32_t hash = hash__bytes(m->seed, key, sizeof(key)), pos = hash, id;
	int err;

	while ((id = hash_index__next(&m->watch.index, hash, &pos)) != UINT32_MAX) {
		const struct watch_class *k = &m->watch.classes[id];

		if (k->site == class.site && k->label1 == class.label1 &&
		    k->category == class.category) {
			*ret = id;
			return 0;
		}
	}
	if (m->watch.nclasses == UINT32_MAX - 1)
		return -ENOMEM;
	err = hash_index__reserve_array(&m->watch.classes, &m->watch.capclasses,
					sizeof(*m->watch.classes), (uint64_t)m->watch.nclasses + 1);
	if (!err)
		err = hash_index__add(&m->watch.index, hash, m->watch.nclasses);
	if (err)
		return err;
	*ret = m->watch.nclasses;
	m->watch.classes[m->watch.nclasses++] = class;
	return 0;
}

int observers__went(struct model *m, const struct dev *dev, uint64_t addr, const struct rec *rec,
		    bool dead)
{
	struct watch_class class = {
		.site = rec->site,
		.label1 = rec->label1,
		.category = category__category(m, dev, rec, dead),
	};
	struct model_block b = {
		.device = m->sites[rec->site].dev,
		.addr = addr,
		.size = m->sites[rec->site].size,
		.born = rec->born,
		.gone = dead ? m->seq : 0,
	};
	int err = watch__class(m, class, &b.kin);

	return err ? err : m->watch.went(m->watch.ctx, &b);
}

int observers__finish(struct model *m)
{
	int err = 0;

	for (uint32_t i = 0; i < m->ndevs; i++) {
		const struct blocks *b = &m->devs[i]->blocks;
		uint64_t addr, k;
		size_t pos = 0;

		while (!err && map64__next(b->at, &pos, &addr, &k))
			err = observers__went(m, m->devs[i], addr, &b->recs[k], false);
	}
	return err;
}

uint32_t model__kins(const struct model *m)
{
	return m->watch.nclasses;
}

uint64_t model__block_class(const struct model *m, uint32_t kin, struct row *ret)
{
	const struct watch_class *k = &m->watch.classes[kin];
	const struct site *s = &m->sites[k->site];
	const struct label *l = k->label1 ? &m->labels[k->label1 - 1] : NULL;
	struct dict_module mod = dict__get_module(m->dict, l && l->module ? l->module : s->module);
	struct dict_thread th = dict__get_thread(m->dict, s->thread);

	rows__line(m, false, s->stack, s->node, s->thread, s->walk, ret);
	ret->module = dict__str(m->dict, mod.name);
	ret->module_class = dict__str(m->dict, mod.cls);
	ret->module_root = dict__str(m->dict, mod.root);
	ret->category = category__name(category__settled(s, k->category));
	ret->name = l && l->name ? dict__str(m->dict, l->name) : NULL;
	if (s->walk != WALK_CENSUS) {
		ret->thread = dict__str(m->dict, th.name);
		ret->tid = th.tid;
	}
	return s->size;
}

static uint64_t not_below_0(uint64_t v)
{
	return (int64_t)v > 0 ? v : 0;
}

uint32_t model__number(const struct model *m, size_t i)
{
	return m->order[i];
}

uint32_t model__number_of(const struct model *m, struct device d)
{
	const uint32_t *by_index = m->by_type[d.type];

	uint32_t number1 = by_index ? by_index[d.type == DEVICE_CPU ? 0 : d.index] : 0;

	return number1 ? number1 - 1 : UINT32_MAX;
}

bool model__now(const struct model *m, uint32_t number, struct model_now *ret)
{
	const struct dev *dev = number < m->ndevs ? m->devs[number] : NULL;

	*ret = (struct model_now){ .seq = m->seq };
	if (!dev || !dev->any)
		return false;
	ret->allocated = dev->pub.allocated;
	ret->reserved = dev->pub.reserved;
	ret->unknown = not_below_0(dev->outside);
	ret->late = dev->late;
	ret->told = dev->told;
	ret->peak_seq = dev->peak_seq;
	ret->peak = dev->pub.peak_allocated;
	ret->phase = dev->phase;
	return true;
}

void model__first(const struct model *m, uint32_t number, struct model_now *ret)
{
	const struct dev *dev = m->devs[number];

	*ret = (struct model_now){
		.allocated = dev->first_allocated,
		.reserved = dev->first_reserved,
		.unknown = not_below_0(dev->first_outside),
		.phase = -1,
	};
}
