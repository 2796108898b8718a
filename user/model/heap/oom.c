/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Out-of-memory events: the requested size and the state at that moment. */
#include "model/heap/events.h"

#include <errno.h>
#include <stdlib.h>

#include "model/heap/attribution.h"
#include "model/heap/blocks.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/state.h"
#include "model/heap/steps.h"

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

/* True for a block that only a call needs which has failed. */
static bool is_of_failed(const struct model *m, const struct dev *dev, uint64_t addr,
			 const struct rec *rec, const struct model_oom *now)
{
	const struct stamp *s = &dev->life.stamps[rec->stamp];
	uint64_t n = now->number < OOMS_FIRST + OOMS_LAST ? now->number : OOMS_FIRST + OOMS_LAST;
	bool failed = false;

	if (rec->older || s->phase != PHASE_FORWARD)
		return false;
	for (uint64_t i = 0; i < n && !failed; i++) {
		const struct model_oom *o = &dev->ooms[i];

		/* Inside one call, a program may try again with less. */
		failed = o->begun < now->begun && rec->born <= o->seq &&
			 s->calls == (uint32_t)o->ended;
	}
	if (!failed)
		return false;
	switch (category__of_block(m, dev, addr, rec, false)) {
	case CATEGORY_UNKNOWN:
	case CATEGORY_ACTIVATION:
	case CATEGORY_TEMPORARY:
		return true;
	default:
		return false;
	}
}

/* Finds what failed calls hold still, because something keeps their exceptions. last: the out of
 * memory before. */
static void oom__kept(struct model *m, struct dev *dev, const struct model_oom *last,
		      struct model_oom *o)
{
	uint64_t addr, i, blocks = dev->pub.live_blocks * (OOMS_FIRST + OOMS_LAST);
	size_t pos = 0;

	o->seq = m->seq;
	o->begun = m->steps.begun;
	o->ended = m->steps.n[STEP_CALL];
	if (!last || o->begun == last->begun || m->oom_work + blocks > GAP_WORK + m->seq)
		return;
	m->oom_work += blocks;
	o->kept_time = last->time;
	while (map64__next(dev->blocks.at, &pos, &addr, &i)) {
		const struct rec *rec = &dev->blocks.recs[i];

		if (is_of_failed(m, dev, addr, rec, o))
			o->kept += m->sites.all[rec->site].size;
	}
}

static size_t place(uint64_t nr)
{
	return nr < OOMS_FIRST ? nr : OOMS_FIRST + (nr - OOMS_FIRST) % OOMS_LAST;
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
	oom__kept(m, dev, nr ? &dev->ooms[place(nr - 1)] : NULL, &o);
	dev->ooms[place(nr)] = o;
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
		i = place(nr);
	}
	*ret = dev->ooms[i];
	return true;
}
