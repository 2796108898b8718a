/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/heap/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map64.h"
#include "model/heap/attribution.h"
#include "model/heap/blocks.h"
#include "model/heap/category.h"
#include "model/heap/extents.h"
#include "model/heap/state.h"
#include "model/heap/steps.h"

/* Returns the place of a kind of device: accelerators come first, then the CPU, the host's memory,
 * which contains the CPU's tensors, and the sample of a part of that. */
static int rank_of(struct device d)
{
	if (d.type == DEVICE_MALLOC)
		return 3;
	return d.type == DEVICE_HOST ? 2 : d.type == DEVICE_CPU;
}

static bool dev__before(struct device a, struct device b)
{
	if (rank_of(a) != rank_of(b))
		return rank_of(a) < rank_of(b);
	return a.type != b.type ? a.type < b.type : a.index < b.index;
}

/* Gives a new device zeroed values for the steps so far, because it had no memory then. Returns 0
 * or -ENOMEM. */
static int add_step_rings(const struct model *m, struct dev *dev)
{
	for (int k = 0; k < STEP_KINDS && m->ndevs < STEP_DEVICES; k++) {
		if (!m->steps.cap[k])
			continue;
		dev->step[k] = calloc(m->steps.cap[k], sizeof(*dev->step[k]));
		if (!dev->step[k])
			return -ENOMEM;
	}
	return 0;
}

/* Adds a device without an event. Returns 0 or -ENOMEM. */
static int dev__add(struct model *m, struct device d, struct dev **ret)
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
	dev->life.infers = attribution__is_snapshot(m->attribution);
	device__name(d, dev->pub.name, sizeof(dev->pub.name));
	extents__init(&dev->extents, hash__u64(m->seed, m->ndevs + 1));
	observers__device(m, dev);
	dev->blocks.at = map64__new();
	if (!dev->blocks.at || add_step_rings(m, dev)) {
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

int dev__find(struct model *m, struct device d, struct dev **ret)
{
	uint32_t i;
	int err = 0;

	if (device__on_host(d))
		d.index = 0;
	i = m->by_type[d.type] ? m->by_type[d.type][d.index] : 0;
	if (i)
		*ret = m->devs[i - 1];
	else
		err = dev__add(m, d, ret);
	if (!err)
		m->last_dev = *ret;
	return err;
}

struct dev *dev__known(const struct model *m, struct device d)
{
	const uint32_t *by_index = m->by_type[d.type];

	return by_index && by_index[d.index] ? m->devs[by_index[d.index] - 1] : NULL;
}

uint64_t dev__reserved(const struct dev *dev)
{
	if (dev->pub.has_totals)
		return dev->pub.reserved;
	return dev->extents.sums[SUM_SEGMENTS] ? dev->extents.sums[SUM_SEGMENTS]
					       : dev->pub.allocated;
}

uint64_t dev__before_attach(const struct dev *dev)
{
	return dev->census + ((int64_t)dev->outside > 0 ? dev->outside : 0);
}

void dev__mark(struct model *m, struct dev *dev, uint64_t time)
{
	dev->pub.marked = true;
	dev->pub.mark_time = time;
	dev->pub.mark_allocated = dev->pub.allocated;
	dev->pub.mark_reserved = dev->pub.reserved;
	dev->pub.mark_before_attach = dev__before_attach(dev);
	dev->mark_outside = (int64_t)dev->outside > 0 ? dev->outside : 0;
	dev->mark_seq = m->seq;
	dev->mark_unsure = dev->unsure || m->losing;
	dev->mark_open = true;
	dev->mark_used = dev->used;
	dev->mark_below = dev__reserved(dev);
	dev->mark_others = dev->extents.sums[SUM_OTHERS];
	dev->blocks.gone[ROWS_AT_MARK].n = 0;
	extents__mark(&dev->extents);
	memcpy(dev->mark_loose, m->loose.sums, sizeof(dev->mark_loose));
}

/* Updates the sums over all devices except the CPU, and their peaks, after the device's bytes
 * changed. old_allocated, old_reserved: its bytes before. */
static void dev__update_sums(struct model *m, const struct dev *dev, uint64_t old_allocated,
			     uint64_t old_reserved, uint64_t time)
{
	struct model_all *all = &m->all;

	if (device__on_host(dev->pub.device))
		return;
	all->allocated += dev->pub.allocated - old_allocated;
	all->reserved += dev->pub.reserved - old_reserved;
	if (all->allocated > all->peak_allocated) {
		all->peak_allocated = all->allocated;
		all->peak_allocated_time = time;
	}
	if (all->reserved > all->peak_reserved) {
		all->peak_reserved = all->reserved;
		all->peak_reserved_time = time;
	}
}

void dev__set_reserved(struct model *m, struct dev *dev, uint64_t reserved, uint64_t time)
{
	uint64_t old_reserved = dev->pub.reserved;

	dev->pub.reserved = reserved;
	if (reserved > dev->pub.peak_reserved)
		dev->pub.peak_reserved = reserved;
	dev__update_sums(m, dev, dev->pub.allocated, old_reserved, time);
}

/* Makes the allocated bytes of now the device's new peak. */
static void dev__set_peak(struct model *m, struct dev *dev, uint64_t time, enum phase phase)
{
	dev->pub.peak_allocated = dev->pub.allocated;
	dev->pub.peak_time = time;
	dev->pub.peak_phase = phase;
	dev->peak_seq = m->seq;
	for (int k = 0; k < STEP_KINDS; k++)
		dev->peak_step[k] = m->steps.n[k];
	if (m->opts.at == AT_PEAK)
		dev__mark(m, dev, time);
}

/* Sets the device's state just before e. before: allocated bytes then, which are the total in e
 * without e's own change. Those in no known block are memory from before attach. */
void dev__begin(struct model *m, struct dev *dev, const struct event *e)
{
	uint64_t before = e->totals ? e->allocated : 0, allocated = dev->pub.allocated,
		 reserved = dev->pub.reserved;
	bool first = !dev->any, first_totals = e->totals && !dev->pub.has_totals;

	dev->any = true;
	if (first && !e->totals) { /* the blocks of the reading at attach */
		dev->pub.allocated = dev->pub.live;
		dev__update_sums(m, dev, allocated, reserved, e->time);
	}
	if (first && m->opts.at == AT_PEAK)
		/* a device without allocations has a peak of 0 */
		dev__mark(m, dev, e->time);
	if (e->totals) {
		if (e->kind == EVENT_ALLOC)
			before = e->size < before ? before - e->size : 0;
		else if (e->kind == EVENT_FREE)
			before += e->size;
		dev->pub.has_totals = true;
		dev->outside = before - dev->pub.live;
		dev->pub.before_attach_start = dev__before_attach(dev);
		dev->pub.allocated = before;
		dev->pub.reserved = e->reserved;
		for (int k = 0; k < STEP_KINDS; k++)
			if (before > dev->step_peak[k])
				dev->step_peak[k] = before;
		if (before > dev->pub.peak_allocated ||
		    (first_totals && before && before == dev->pub.peak_allocated))
			dev__set_peak(m, dev, e->time, PHASE_OTHER);
		dev__update_sums(m, dev, allocated, reserved, e->time);
	}
	/* moments that were noted before the first state get it */
	for (int i = 0; first && i < (int)(sizeof(dev->noted) / sizeof(dev->noted[0])); i++)
		dev->noted[i] = (struct noted){ .allocated = e->totals ? before : dev->pub.live,
						.outside = dev->outside };
	if (first && m->time_passed)
		dev__mark(m, dev, m->opts.at_time);
	if (first) {
		dev->first_allocated = dev->pub.allocated;
		dev->first_reserved = dev->pub.reserved;
		dev->first_outside = dev->outside;
	}
	/* The state is the one before the current event. So a peak or mark that was set above is
	 * also before the event. */
	if (dev->peak_seq && dev->peak_seq == m->seq)
		dev->peak_seq--;
	if (dev->pub.marked && dev->mark_seq && dev->mark_seq == m->seq)
		dev->mark_seq--;
}

/* Updates the current stretch of a phase (see struct model_phase), or begins one if e allocates in
 * another phase. phase: of an allocation, otherwise -1. total: allocated bytes before e. */
static void dev__update_phase(struct dev *dev, const struct event *e, uint64_t total, int phase)
{
	struct model_phase *sums;

	if (phase >= 0 && (phase != dev->phase || dev->phase_over)) {
		if (dev->phase >= 0) {
			sums = &dev->phases[dev->phase];
			/* wraps around: totals come from the target and may be any number */
			sums->allocated_delta = (int64_t)((uint64_t)sums->allocated_delta + total -
							  dev->phase_total);
			sums->duration += dev->phase_last - dev->phase_begin;
		}
		dev->phase = phase;
		dev->phase_over = false;
		dev->phase_total = total;
		dev->phase_begin = dev->phase_last = e->time;
		dev->phases[phase].count++;
	}
	if (dev->phase < 0)
		return;
	sums = &dev->phases[dev->phase];
	if (dev->pub.allocated > sums->peak_allocated) {
		sums->peak_allocated = dev->pub.allocated;
		sums->peak_time = e->time;
	}
	if (dev->pub.has_totals && dev->pub.reserved > sums->peak_reserved)
		sums->peak_reserved = dev->pub.reserved;
	if (e->time > dev->phase_last)
		dev->phase_last = e->time;
}

void dev__set_totals(struct model *m, struct dev *dev, const struct event *e, int phase)
{
	uint64_t old_allocated = dev->pub.allocated, old_reserved = dev->pub.reserved;
	uint64_t own_sum = dev->outside + dev->pub.live;

	dev->pub.allocated = (int64_t)own_sum > 0 ? own_sum : 0;
	if (e->totals) {
		uint64_t drift = e->allocated > own_sum ? e->allocated - own_sum
							: own_sum - e->allocated;

		/* own_sum may be negative after losses; the unsigned distance is still right */
		if ((int64_t)own_sum < 0)
			drift = e->allocated - own_sum;
		if (drift) {
			dev->pub.drift_events++;
			if (drift > dev->pub.drift)
				dev->pub.drift = drift;
		}
		dev->unsure = m->losing; /* events around this one were lost */
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
	dev__update_sums(m, dev, old_allocated, old_reserved, e->time);
	dev__update_phase(dev, e, old_allocated, phase);
	for (int k = 0; k < STEP_KINDS; k++)
		if (dev->pub.allocated > dev->step_peak[k])
			dev->step_peak[k] = dev->pub.allocated;
	if (dev->pub.allocated > dev->pub.peak_allocated)
		dev__set_peak(m, dev, e->time, phase >= 0 ? (enum phase)phase : PHASE_OTHER);
	dev->mark_open &= !e->totals;
}
