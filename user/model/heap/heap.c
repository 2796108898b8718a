/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sites and blocks: allocation, free, and their effect on the device's totals. */
#include "model/heap/heap.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "model/heap/attribution.h"
#include "model/heap/blocks.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/extents.h"
#include "model/heap/growth_watch.h"
#include "model/heap/hash_index.h"
#include "model/heap/layers.h"
#include "model/heap/scopes.h"
#include "model/heap/state.h"
#include "record/dict.h"

/* Maximum of dev.freed. The reading at attach takes a while, so it may list blocks that were freed
 * before its events come. */
#define FREED_MAX (UINT32_C(1) << 20)
#define QUICK_SHIFT 52 /* the upper bits of quick_hash() are the set of the cache of recent sites */

struct site_key {
	uint64_t size;
	uint32_t stack, thread, node, scope_no, launcher;
	uint16_t dev;
	uint8_t walk, drawn;
};
_Static_assert(sizeof(struct site_key) == 32, "a key, which is hashed as bytes, has no padding");

/* Adds the layers of all modules on the stack, so that those around the innermost have a class.
 * Returns 0 or -ENOMEM. */
static int heap__stack_layers(struct model *m, uint32_t stack)
{
	struct dict_stack frames = dict__get_stack(m->dict, stack);
	struct chain chain;

	for (uint32_t i = 0; i < frames.n; i++)
		if (frames.frames[i].module && layers__chain(m, frames.frames[i].module, &chain))
			return -ENOMEM;
	return 0;
}

int heap__add_site(struct model *m, uint32_t hash, uint32_t *ret)
{
	uint32_t id = m->sites.free_no ? m->sites.free_no - 1 : m->sites.n;

	if (id == UINT32_MAX - 1)
		return -ENOMEM;
	if (id == m->sites.n &&
	    array__grow_zero(&m->sites.all, &m->sites.cap, (size_t)id + 1, sizeof(*m->sites.all)))
		return -ENOMEM;
	if (hash_index__add(&m->sites.index, hash, id))
		return -ENOMEM;
	if (id == m->sites.n)
		m->sites.n++;
	else
		m->sites.free_no = m->sites.all[id].stack;
	*ret = id;
	return 0;
}

/* Adds a site with what its stack says. Returns 0 or -ENOMEM. */
static int heap__new_site(struct model *m, const struct site_key *k, uint32_t hash, uint32_t *ret)
{
	if (heap__stack_layers(m, k->stack) || heap__add_site(m, hash, ret))
		return -ENOMEM;
	m->sites.all[*ret] = (struct site){
		.size = k->size,
		.stack = k->stack,
		.thread = k->thread,
		.node = k->node,
		.scope_no = k->scope_no,
		.launcher = k->launcher,
		.dev = k->dev,
		.walk = k->walk,
		.drawn = k->drawn,
		.role = attribution__stack(m->attribution, k->stack).role,
		.between = attribution__stack(m->attribution, k->stack).between,
		.module = attribution__module(m->attribution, k->stack, k->node, k->walk),
		.phase = k->walk == WALK_CENSUS
				 ? LIFE_NONE
				 : attribution__node_phase(m->attribution, k->stack, k->node,
							   k->thread, k->walk),
	};
	return category__note_size(m, &m->devs[k->dev]->life, &m->sites.all[*ret]);
}

uint32_t heap__site_hash(const struct model *m, const struct site *s)
{
	struct site_key k = {
		.size = s->varied ? 0 : s->size,
		.stack = s->stack,
		.thread = s->thread,
		.node = s->node,
		.scope_no = s->scope_no,
		.launcher = s->launcher,
		.dev = s->dev,
		.walk = s->walk,
		.drawn = s->drawn,
	};

	return hash__bytes(m->seed, &k, sizeof(k));
}

static bool site__has_key(const struct site *s, const struct site_key *k)
{
	return !s->varied && s->size == k->size && s->stack == k->stack && s->thread == k->thread &&
	       s->node == k->node && s->scope_no == k->scope_no && s->launcher == k->launcher &&
	       s->dev == k->dev && s->walk == k->walk && s->drawn == k->drawn;
}

/* Returns a hash for the cache of recent sites. The index of sites has a seeded hash, for which a
 * target cannot make collisions, but it is slow. */
static uint64_t quick_hash(const struct event *e)
{
	return (e->size ^ (uint64_t)e->stack << 32 ^ (uint64_t)e->node << 20 ^ e->thread) *
	       UINT64_C(0x9e3779b97f4a7c15);
}

void heap__prefetch(const struct model *m, const struct event *e)
{
	__builtin_prefetch(m->sites.recent[quick_hash(e) >> QUICK_SHIFT], 1);
}

/* Looks into the cache of recent sites, then into the index, and puts the site first in its set. */
int heap__site(struct model *m, const struct dev *dev, const struct event *e, uint8_t walk,
	       uint32_t *ret)
{
	struct site_key key = {
		.size = e->size,
		.stack = e->stack,
		.thread = e->thread,
		.node = e->node,
		.scope_no = m->scopes.scope_no,
		.launcher = m->scopes.launcher,
		.dev = dev->number,
		.walk = walk,
		.drawn = e->kind == EVENT_ALLOC && !device__in_pieces(e->device)
				 ? sampling__bound_no(&m->sampling, e->time, e->size)
				 : 0,
	};
	uint64_t quick = quick_hash(e);
	struct recent_site *recent = m->sites.recent[quick >> QUICK_SHIFT];
	uint32_t tag = (uint32_t)(quick >> 20), hash, pos, id;
	int err;

	for (int i = 0; i < SITE_WAYS && recent[i].site_no; i++) {
		if (recent[i].tag == tag &&
		    site__has_key(&m->sites.all[recent[i].site_no - 1], &key)) {
			*ret = recent[i].site_no - 1;
			return 0;
		}
	}
	hash = pos = hash__bytes(m->seed, &key, sizeof(key));
	while ((id = hash_index__next(&m->sites.index, hash, &pos)) != UINT32_MAX &&
	       !site__has_key(&m->sites.all[id], &key))
		;
	err = id == UINT32_MAX ? heap__new_site(m, &key, hash, &id) : 0;
	if (err)
		return err;
	memmove(recent + 1, recent, (SITE_WAYS - 1) * sizeof(*recent));
	*recent = (struct recent_site){ .tag = tag, .site_no = id + 1 };
	*ret = id;
	return 0;
}

_Static_assert(SITE_RECENT == 1 << (64 - QUICK_SHIFT), "the upper bits of a product are an index");

/* Removes an ended block from all sums. freed: false if its free was missed. Returns 0, -ENOMEM or
 * the callback's error. */
static int heap__remove_from_sums(struct model *m, struct dev *dev, uint64_t addr,
				  const struct rec *rec, bool freed)
{
	struct site *site = &m->sites.all[rec->site];
	int err = m->watch.on_block ? observers__report_block(m, dev, addr, rec, /*dead=*/true) : 0;

	if (!err && m->growth)
		err = growth__block_freed(m, dev, rec);
	if (m->scopes.nopen)
		scopes__block_freed(m, site, rec);
	dev->pub.live -= site->size;
	dev->pub.live_blocks--;
	dev->pub.total_freed += freed && !rec->older ? site->size : 0;
	if (site->walk == WALK_CENSUS)
		dev->census -= site->size;
	category__drop(&dev->life, rec->stamp);
	layers__free_block(m, site, freed);
	return err;
}

int heap__add_block(struct model *m, struct dev *dev, const struct event *e, struct rec *rec,
		    bool *replaced)
{
	struct rec old;
	int err;

	if (blocks__set_request(m, e, rec) || blocks__put(m, dev, e->addr, rec, replaced, &old)) {
		category__drop(&dev->life, rec->stamp);
		return -ENOMEM;
	}
	dev->pub.live += e->size;
	dev->pub.live_blocks++;
	if (*replaced) {
		err = heap__remove_from_sums(m, dev, e->addr, &old, /*freed=*/false);
		if (err)
			return err;
	}
	return m->growth ? growth__block_allocated(m, rec->site) : 0;
}

/* Adds the fragmentation at an allocation or free to the average. */
static void add_to_average(struct dev *dev, const struct event *e)
{
	if (!e->totals)
		return;
	if (e->reserved > e->allocated)
		dev->frag_sum += (double)(e->reserved - e->allocated) / (double)e->reserved;
	dev->frag_n++;
}

int heap__alloc(struct model *m, struct dev *dev, const struct event *e, uint32_t *site)
{
	/* Otherwise compilers clear the record in parts that overlap, and the processor waits. */
	static const struct rec blank;
	struct rec rec = blank;
	uint64_t old_peak;
	struct site *block_site;
	bool replaced;
	int err;

	rec.born = m->seq;
	rec.time = e->time;
	if (dev__is_new(dev, e))
		dev__begin(m, dev, e);
	err = heap__site(m, dev, e, e->walk, &rec.site);
	if (err)
		return err;
	block_site = &m->sites.all[rec.site];
	err = category__stamp_new_block(m, dev, block_site->phase, &rec.stamp);
	if (err)
		return err;
	err = heap__add_block(m, dev, e, &rec, &replaced);
	if (err)
		return err;
	*site = rec.site;
	dev->pub.overwritten += replaced;
	block_site->total++;
	block_site->again |= dev->life.stamps[rec.stamp].after != LIFE_NONE;
	dev->pub.total_allocated += e->size;
	dev->pub.allocs++;
	old_peak = dev->pub.peak_allocated;
	dev__set_totals(m, dev, e, block_site->phase);
	add_to_average(dev, e);
	if (dev->pub.peak_allocated != old_peak)
		dev->peak_site_no = rec.site + 1;
	return m->loose.count[EXTENT_MEMORY] ? cuda_memory__note_block(m, dev, e->addr) : 0;
}

/* Notes the free of an unknown block, so that the reading at attach does not add it afterwards.
 * Returns 0 or -ENOMEM. */
static int note_unknown_free(struct dev *dev, uint64_t addr)
{
	if (dev->census_done)
		return 0;
	if (!dev->freed)
		dev->freed = map64__new();
	if (!dev->freed)
		return -ENOMEM;
	if (map64__count(dev->freed) < FREED_MAX)
		return map64__set(dev->freed, addr, 1);
	map64__free(dev->freed);
	dev->freed = NULL;
	dev->census_done = true; /* further blocks of the reading may have been freed */
	return 0;
}

int heap__free_block(struct model *m, struct dev *dev, const struct event *e)
{
	struct rec rec;
	int err;

	if (dev__is_new(dev, e))
		dev__begin(m, dev, e);
	dev->pub.frees++;
	dev->life.freeing_thread_no = e->thread + 1;
	err = blocks__take(m, dev, e->addr, &rec);
	if (!err)
		err = heap__remove_from_sums(m, dev, e->addr, &rec, /*freed=*/true);
	dev->life.freeing_thread_no = 0; /* it holds for this block only */
	if (err == -ENOENT) {
		dev->pub.frees_unknown++;
		if (dev->pub.has_totals)
			dev->outside -= e->size;
		err = note_unknown_free(dev, e->addr);
	} else if (!err && m->sites.all[rec.site].walk == WALK_CENSUS && dev->pub.has_totals &&
		   e->size) {
		/* The census knew the tensors' bytes in the block, not the block's rounded size. */
		dev->outside -= e->size - m->sites.all[rec.site].size;
	}
	if (err)
		return err;
	dev__set_totals(m, dev, e, /*phase=*/-1);
	add_to_average(dev, e);
	return 0;
}
