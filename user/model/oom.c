/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Out-of-memory events: the requested size and the state at that moment. */
#include "model/events.h"

#include <errno.h>
#include <stdlib.h>

#include "model/attribution.h"
#include "model/device.h"
#include "model/state.h"

#define OOMS_FIRST 8
#define OOMS_LAST 8
/* Limit on blocks walked for gaps, plus one for each event: a few seconds at most. */
#define GAP_WORK (UINT64_C(1) << 24)

/* Finds the largest gap. The limit keeps jobs with many blocks and many out-of-memory events
 * fast. */
static int oom__gap(struct model *m, size_t device, struct model_oom *o)
{
	struct model_segments s;
	uint64_t blocks = m->devs[m->order[device]]->pub.live_blocks;
	int err;

	if (device__on_host(m->devs[m->order[device]]->pub.device) ||
	    m->oom_work + blocks > GAP_WORK + m->seq)
		return 0;
	m->oom_work += blocks;
	err = model__segments(m, device, ROWS_NOW, false, &s);
	if (err)
		return err;
	o->gap_known = s.n && s.reserved <= s.known;
	o->largest_gap = s.largest_gap;
	model__free_segments(&s);
	return 0;
}

int oom__event(struct model *m, struct dev *dev, const struct event *e)
{
	struct model_oom o = {
		.time = e->time,
		.size = e->size,
		.thread = e->thread,
		.stack = e->stack,
		.node = e->node,
		.walk = e->walk,
	};
	uint64_t nr = dev->pub.ooms;
	size_t i = 0;
	int err;

	if (dev__is_new(dev, e))
		dev__begin(m, dev, e);
	dev__set_totals(m, dev, e, -1);
	dev->pub.ooms++;
	if (!nr && m->opts.at == AT_OOM)
		dev__mark(m, dev, e->time);
	o.number = nr;
	o.phase = attribution__node_phase(m->words, e->stack, e->node, e->thread, e->walk);
	o.allocated = dev->pub.allocated;
	o.reserved = dev->pub.reserved;
	o.has_totals = dev->pub.has_totals;
	o.used_known = dev->used.known;
	o.used = dev->used.bytes;
	o.left_known = cuda_memory__left(dev, &o.left);
	if (!dev->ooms)
		dev->ooms = calloc(OOMS_FIRST + OOMS_LAST, sizeof(*dev->ooms));
	if (!dev->ooms)
		return -ENOMEM;
	while (i < m->ndevs && m->devs[m->order[i]] != dev)
		i++;
	err = oom__gap(m, i, &o);
	if (err)
		return err;
	dev->ooms[nr < OOMS_FIRST ? nr : OOMS_FIRST + (nr - OOMS_FIRST) % OOMS_LAST] = o;
	return 0;
}

bool model__oom(const struct model *m, size_t device, size_t i, struct model_oom *ret)
{
	const struct dev *dev = device < m->ndevs ? m->devs[m->order[device]] : NULL;
	uint64_t n = dev ? dev->pub.ooms : 0,
		 kept = n < OOMS_FIRST + OOMS_LAST ? n : OOMS_FIRST + OOMS_LAST, nr = i;

	if (i >= kept)
		return false;
	if (i >= OOMS_FIRST) {
		nr = n - (kept - i);
		i = OOMS_FIRST + (nr - OOMS_FIRST) % OOMS_LAST;
	}
	*ret = dev->ooms[i];
	return true;
}
