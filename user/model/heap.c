/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Devices, blocks and sites: allocated bytes now and at the peak, and drift from the allocator's
 * totals. */
#include "model/growth_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool dev__before(struct device a, struct device b)
{
	bool ca = a.type == DEVICE_CPU, cb = b.type == DEVICE_CPU;

	if (ca != cb)
		return cb;
	return a.type != b.type ? a.type < b.type : a.index < b.index;
}

static int heap__add_device(struct model *m, struct device d, struct dev **ret)
{
	struct dev *dev, **devs;
	uint32_t *order, pos;

	if (!m->by_type[d.type]) {
		m->by_type[d.type] = calloc(256, sizeof(*m->by_type[0]));
		if (!m->by_type[d.type])
			return -ENOMEM;
	}
	devs = realloc(m->devs, (m->ndevs + 1) * sizeof(*devs));
	if (devs)
		m->devs = devs;
	order = realloc(m->order, (m->ndevs + 1) * sizeof(*order));
	if (order)
		m->order = order;
	dev = devs && order ? calloc(1, sizeof(*dev)) : NULL;
	if (!dev)
		return -ENOMEM;
	dev->pub.device = d;
	dev->number = m->ndevs;
	dev->phase = -1;
	dev->life.after = LIFE_NONE;
	device__name(d, dev->pub.name, sizeof(dev->pub.name));
	extents__init(&dev->extents, hash__u64(m->seed, m->ndevs + 1));
	observers__device(m, dev);
	if (blocks__init(&dev->blocks) || (m->ndevs < STEP_DEVICES && steps__new_device(m, dev))) {
		blocks__free(&dev->blocks);
		free(dev->step[STEP_OPT]);
		free(dev->step[STEP_CALL]);
		free(dev);
		return -ENOMEM;
	}
	for (pos = m->ndevs; pos && dev__before(d, m->devs[order[pos - 1]]->pub.device); pos--)
		order[pos] = order[pos - 1];
	order[pos] = m->ndevs;
	m->devs[m->ndevs++] = dev;
	m->by_type[d.type][d.index] = m->ndevs;
	*ret = dev;
	return 0;
}

int heap__device(struct model *m, struct device d, struct dev **ret)
{
	struct dev *dev = m->last_dev;
	uint32_t i;
	int err;

	if (d.type == DEVICE_CPU)
		d.index = 0;
	if (!dev || dev->pub.device.type != d.type || dev->pub.device.index != d.index) {
		i = m->by_type[d.type] ? m->by_type[d.type][d.index] : 0;
		if (i) {
			dev = m->devs[i - 1];
		} else {
			err = heap__add_device(m, d, &dev);
			if (err)
				return err;
		}
		m->last_dev = dev;
	}
	*ret = dev;
	return 0;
}

uint64_t heap__before_attach(const struct dev *dev)
{
	return dev->census + ((int64_t)dev->outside > 0 ? dev->outside : 0);
}

void heap__mark(struct model *m, struct dev *dev, uint64_t time)
{
	dev->pub.marked = true;
	dev->pub.mark_time = time;
	dev->pub.mark_allocated = dev->pub.allocated;
	dev->pub.mark_reserved = dev->pub.reserved;
	dev->pub.mark_before_attach = heap__before_attach(dev);
	dev->mark_outside = (int64_t)dev->outside > 0 ? dev->outside : 0;
	dev->mark_seq = m->seq;
	dev->mark_unsure = dev->unsure || m->losing;
	dev->mark_open = true;
	dev->mark_used = dev->used;
	dev->mark_below = cuda_memory__reserved(dev);
	dev->mark_others = dev->extents.sums[SUM_OTHERS];
	dev->blocks.gone[ROWS_AT_MARK].n = 0;
	extents__mark(&dev->extents);
	memcpy(dev->mark_loose, m->loose.sums, sizeof(dev->mark_loose));
}

void heap__lost(struct dev *dev)
{
	dev->unsure = true;
	dev->mark_unsure |= dev->mark_open;
}

void heap__figures(const struct model *m, const struct dev *dev, struct model_device *ret)
{
	if (!m->lost)
		return;
	if (!ret->has_totals) {
		ret->peak_is = ret->allocated_is = ret->mark_is = FIGURE_NOT_EXACT;
		return;
	}
	ret->peak_is = FIGURE_LOWER_BOUND;
	ret->allocated_is = dev->unsure ? FIGURE_NOT_EXACT : FIGURE_EXACT;
	ret->mark_is = m->opts.at == AT_PEAK ? FIGURE_LOWER_BOUND
		       : dev->mark_unsure    ? FIGURE_NOT_EXACT
					     : FIGURE_EXACT;
}

/* Updates the sums over all devices except the CPU, and their peaks. */
static void heap__add_up(struct model *m, const struct dev *dev, uint64_t allocated,
			 uint64_t reserved, uint64_t time)
{
	struct model_all *all = &m->all;

	if (dev->pub.device.type == DEVICE_CPU)
		return;
	all->allocated += dev->pub.allocated - allocated;
	all->reserved += dev->pub.reserved - reserved;
	if (all->allocated > all->peak_allocated) {
		all->peak_allocated = all->allocated;
		all->peak_allocated_time = time;
	}
	if (all->reserved > all->peak_reserved) {
		all->peak_reserved = all->reserved;
		all->peak_reserved_time = time;
	}
}

void heap__set_reserved(struct model *m, struct dev *dev, uint64_t reserved, uint64_t time)
{
	uint64_t was = dev->pub.reserved;

	dev->pub.reserved = reserved;
	if (reserved > dev->pub.peak_reserved)
		dev->pub.peak_reserved = reserved;
	heap__add_up(m, dev, dev->pub.allocated, was, time);
}

static void heap__peak(struct model *m, struct dev *dev, uint64_t time, enum phase phase)
{
	dev->pub.peak_allocated = dev->pub.allocated;
	dev->pub.peak_time = time;
	dev->pub.peak_phase = phase;
	dev->peak_seq = m->seq;
	for (int k = 0; k < STEP_KINDS; k++)
		dev->peak_step[k] = m->steps.n[k];
	if (m->opts.at == AT_PEAK)
		heap__mark(m, dev, time);
}

/* Before attach: the first total less the blocks that were seen. */
void heap__begin(struct model *m, struct dev *dev, const struct event *e)
{
	uint64_t before = e->totals ? e->allocated : 0, allocated = dev->pub.allocated,
		 reserved = dev->pub.reserved;
	bool first = !dev->any, first_totals = e->totals && !dev->pub.has_totals;

	dev->any = true;
	if (first && m->opts.at == AT_PEAK)
		/* a device without allocations has a peak of 0 */
		heap__mark(m, dev, e->time);
	if (e->totals) {
		if (e->kind == EVENT_ALLOC)
			before = e->size < before ? before - e->size : 0;
		else if (e->kind == EVENT_FREE)
			before += e->size;
		dev->pub.has_totals = true;
		dev->outside = before - dev->pub.live;
		dev->pub.before_attach_start = heap__before_attach(dev);
		dev->pub.allocated = before;
		dev->pub.reserved = e->reserved;
		for (int k = 0; k < STEP_KINDS; k++)
			if (before > dev->step_peak[k])
				dev->step_peak[k] = before;
		if (before > dev->pub.peak_allocated ||
		    (first_totals && before && before == dev->pub.peak_allocated))
			heap__peak(m, dev, e->time, PHASE_OTHER);
		heap__add_up(m, dev, allocated, reserved, e->time);
	}
	for (enum row_when when = ROWS_AT_BASE; when < ROWS_MOMENTS && first;
	     when++) /* moments noted earlier get this state */
		*dev__noted(dev,
			    when) = (struct noted){ .allocated = e->totals ? before : dev->pub.live,
						    .outside = dev->outside };
	if (first && m->time_passed)
		heap__mark(m, dev, m->opts.at_time);
	if (first) {
		dev->first_allocated = dev->pub.allocated;
		dev->first_reserved = dev->pub.reserved;
		dev->first_outside = dev->outside;
	}
	if (dev->peak_seq && dev->peak_seq == m->seq)
		dev->peak_seq--;
	if (dev->pub.marked && dev->mark_seq && dev->mark_seq == m->seq)
		dev->mark_seq--; /* the current event comes after the mark */
}

/* Updates the stretch of a phase (see model.h). total: allocated bytes before the event. */
static void heap__phase(struct dev *dev, const struct event *e, uint64_t total, int phase)
{
	struct model_phase *p;

	if (phase >= 0 && phase != dev->phase) {
		if (dev->phase >= 0) {
			p = &dev->phases[dev->phase];
			/* wraps around: totals come from the target and may be any number */
			p->allocated_delta = (int64_t)((uint64_t)p->allocated_delta + total -
						       dev->phase_total);
			p->duration += dev->phase_last - dev->phase_begin;
		}
		dev->phase = phase;
		dev->phase_total = total;
		dev->phase_begin = dev->phase_last = e->time;
		dev->phases[phase].count++;
	}
	if (dev->phase < 0)
		return;
	p = &dev->phases[dev->phase];
	if (dev->pub.allocated > p->peak_allocated) {
		p->peak_allocated = dev->pub.allocated;
		p->peak_time = e->time;
	}
	if (dev->pub.has_totals && dev->pub.reserved > p->peak_reserved)
		p->peak_reserved = dev->pub.reserved;
	if (e->time > dev->phase_last)
		dev->phase_last = e->time;
}

void heap__settle(struct model *m, struct dev *dev, const struct event *e, int phase)
{
	uint64_t total = dev->pub.allocated, reserved = dev->pub.reserved,
		 ours = dev->outside + dev->pub.live;

	dev->pub.allocated = (int64_t)ours > 0 ? ours : 0;
	if (e->totals) {
		uint64_t drift = e->allocated > ours ? e->allocated - ours : ours - e->allocated;

		/* after losses ours may be negative; the unsigned distance is still right */
		if ((int64_t)ours < 0)
			drift = e->allocated - ours;
		if (drift) {
			dev->pub.drift_events++;
			if (drift > dev->pub.drift)
				dev->pub.drift = drift;
		}
		dev->unsure = m->losing;
		dev->pub.allocated = e->allocated;
		dev->pub.reserved = e->reserved;
		if (e->reserved > e->allocated &&
		    e->reserved - e->allocated > dev->pub.most_unused) {
			dev->pub.most_unused = e->reserved - e->allocated;
			dev->pub.most_unused_reserved = e->reserved;
		}
		if (e->reserved > dev->pub.peak_reserved)
			dev->pub.peak_reserved = e->reserved;
	}
	heap__add_up(m, dev, total, reserved, e->time);
	heap__phase(dev, e, total, phase);
	for (int k = 0; k < STEP_KINDS; k++)
		if (dev->pub.allocated > dev->step_peak[k])
			dev->step_peak[k] = dev->pub.allocated;
	if (dev->pub.allocated > dev->pub.peak_allocated)
		heap__peak(m, dev, e->time, phase >= 0 ? (enum phase)phase : PHASE_OTHER);
	dev->mark_open &= !e->totals;
}

/* Adds an allocation or free to the average fragmentation. */
static void heap__average(struct dev *dev, const struct event *e)
{
	if (!e->totals)
		return;
	if (e->reserved > e->allocated)
		dev->frag_sum += (double)(e->reserved - e->allocated) / (double)e->reserved;
	dev->frag_n++;
}

struct site_key {
	uint64_t size;
	uint32_t stack, thread, node;
	uint16_t dev;
	uint8_t walk, pad;
};

/* Adds the modules around the one that allocates, so that their layers have a class. */
static int heap__stack_layers(struct model *m, uint32_t stack)
{
	struct dict_stack s = dict__get_stack(m->dict, stack);
	struct chain c;
	int err = 0;

	for (uint32_t i = 0; i < s.n && !err; i++)
		if (s.frames[i].module)
			err = layers__chain(m, s.frames[i].module, &c);
	return err;
}

static int heap__new_site(struct model *m, const struct site_key *k, uint32_t hash, uint32_t *ret)
{
	struct site *s;
	uint32_t id;
	int err;

	id = m->free_site1 ? m->free_site1 - 1 : m->nsites;
	if (id == UINT32_MAX - 1)
		return -ENOMEM;
	err = heap__stack_layers(m, k->stack);
	if (!err && id == m->nsites)
		err = hash_index__reserve_array(&m->sites, &m->capsites, sizeof(*m->sites),
						(uint64_t)id + 1);
	if (!err)
		err = hash_index__add(&m->site_index, hash, id);
	if (err)
		return err;
	s = &m->sites[id];
	if (id == m->nsites)
		m->nsites++;
	else
		m->free_site1 = s->stack;
	*s = (struct site){
		.size = k->size,
		.stack = k->stack,
		.thread = k->thread,
		.node = k->node,
		.dev = k->dev,
		.walk = k->walk,
		.module = attribution__module(m->words, k->stack, k->node, k->walk),
		.phase = k->walk == WALK_CENSUS
				 ? LIFE_NONE
				 : attribution__node_phase(m->words, k->stack, k->node, k->thread,
							   k->walk),
	};
	*ret = id;
	return 0;
}

uint32_t heap__site_hash(const struct model *m, const struct site *s)
{
	struct site_key k = {
		.size = s->varied ? 0 : s->size,
		.stack = s->stack,
		.thread = s->thread,
		.node = s->node,
		.dev = s->dev,
		.walk = s->walk,
	};

	return hash__bytes(m->seed, &k, sizeof(k));
}

static bool site__is(const struct site *s, const struct site_key *k)
{
	return !s->varied && s->size == k->size && s->stack == k->stack && s->thread == k->thread &&
	       s->node == k->node && s->dev == k->dev && s->walk == k->walk;
}

/* The seeded hash resists collisions made by the target but is slow. The cache of recent sites
 * avoids it. */
int heap__site(struct model *m, const struct dev *dev, const struct event *e, uint8_t walk,
	       uint32_t *ret)
{
	struct site_key k = {
		.size = e->size,
		.stack = e->stack,
		.thread = e->thread,
		.node = e->node,
		.dev = m->by_type[dev->pub.device.type][dev->pub.device.index] - 1,
		.walk = walk,
	};
	uint64_t quick = (e->size ^ (uint64_t)e->stack << 32 ^ (uint64_t)e->node << 20 ^
			  e->thread) *
			 UINT64_C(0x9e3779b97f4a7c15);
	struct recent_site *recent = m->recent_sites[quick >> 52];
	uint32_t tag = (uint32_t)(quick >> 20), hash, pos, id;
	int err;

	for (int i = 0; i < SITE_WAYS && recent[i].id1; i++) {
		if (recent[i].tag == tag && site__is(&m->sites[recent[i].id1 - 1], &k)) {
			*ret = recent[i].id1 - 1;
			return 0;
		}
	}
	hash = pos = hash__bytes(m->seed, &k, sizeof(k));
	while ((id = hash_index__next(&m->site_index, hash, &pos)) != UINT32_MAX &&
	       !site__is(&m->sites[id], &k))
		;
	err = id == UINT32_MAX ? heap__new_site(m, &k, hash, &id) : 0;
	if (err)
		return err;
	memmove(recent + 1, recent, (SITE_WAYS - 1) * sizeof(*recent));
	*recent = (struct recent_site){ .tag = tag, .id1 = id + 1 };
	*ret = id;
	return 0;
}

_Static_assert(SITE_RECENT == 1 << (64 - 52), "the upper bits of a product are an index");

/* Handles the end of the block at addr; rec is its record. 0 or the observer's error. */
static int heap__left(struct model *m, struct dev *dev, uint64_t addr, const struct rec *rec,
		      bool freed)
{
	struct site *s = &m->sites[rec->site];
	int err = m->watch.went ? observers__went(m, dev, addr, rec, true) : 0;

	if (!err && m->growth)
		err = growth__left(m, dev, rec);
	s->live--;
	dev->pub.live -= s->size;
	dev->pub.live_blocks--;
	if (s->walk == WALK_CENSUS)
		dev->census -= s->size;
	category__drop(dev, rec->stamp);
	layers__free_block(m, s, freed);
	return err;
}

int heap__add(struct model *m, struct dev *dev, const struct event *e, struct rec *rec,
	      bool *replaced)
{
	struct rec old;
	int err = 0;

	if (e->requested)
		err = blocks__ask(m, (struct request_info){ e->requested, e->cuda_stream },
				  &rec->ask1);
	if (!err)
		err = blocks__put(m, dev, e->addr, rec, replaced, &old);
	if (err) {
		category__drop(dev, rec->stamp);
		return err;
	}
	if (*replaced)
		err = heap__left(m, dev, e->addr, &old, false);
	if (!err && m->growth)
		err = growth__came(m, rec->site);
	dev->asked |= rec->ask1 != 0;
	m->sites[rec->site].live++;
	dev->pub.live += e->size;
	dev->pub.live_blocks++;
	return err;
}

int heap__alloc(struct model *m, struct dev *dev, const struct event *e, uint32_t *site)
{
	struct rec rec = { .born = m->seq, .time = e->time };
	uint64_t peak;
	bool replaced;
	int err;

	if (heap__is_new(dev, e))
		heap__begin(m, dev, e);
	err = heap__site(m, dev, e, e->walk, &rec.site);
	if (!err)
		err = category__born(m, dev, m->sites[rec.site].phase, &rec.stamp);
	if (!err)
		err = heap__add(m, dev, e, &rec, &replaced);
	if (err)
		return err;
	*site = rec.site;
	dev->pub.overwritten += replaced;
	m->sites[rec.site].total++;
	m->sites[rec.site].again |= dev->life.stamps[rec.stamp].after != LIFE_NONE;
	dev->pub.total_allocated += e->size;
	dev->pub.allocs++;
	peak = dev->pub.peak_allocated;
	heap__settle(m, dev, e, m->sites[rec.site].phase);
	heap__average(dev, e);
	if (dev->pub.peak_allocated != peak)
		dev->peak_site1 = rec.site + 1;
	return m->loose.count[EXTENT_MEMORY] ? cuda_memory__found(m, dev, e->addr) : 0;
}

int heap__free_block(struct model *m, struct dev *dev, const struct event *e)
{
	struct rec rec;
	int err;

	if (heap__is_new(dev, e))
		heap__begin(m, dev, e);
	dev->pub.frees++;
	err = blocks__take(m, dev, e->addr, &rec);
	if (!err)
		err = heap__left(m, dev, e->addr, &rec, true);
	if (err == -ENOENT) {
		dev->pub.frees_unknown++;
		if (dev->pub.has_totals)
			dev->outside -= e->size;
		err = known_at_attach__note_freed(dev, e->addr);
	} else if (!err && m->sites[rec.site].walk == WALK_CENSUS && dev->pub.has_totals &&
		   e->size) {
		/* The census knew the tensors' bytes in the block, not the block's rounded size. */
		dev->outside -= e->size - m->sites[rec.site].size;
	}
	if (err)
		return err;
	heap__settle(m, dev, e, -1);
	heap__average(dev, e);
	return 0;
}
