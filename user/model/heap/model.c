/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
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
#include "model/heap/heap.h"
#include "model/heap/layers.h"
#include "model/heap/scopes.h"
#include "model/heap/state.h"
#include "model/heap/steps.h"
#include "record/dict.h"

/* ---- out-of-memory events ---- */

#define OOMS_FIRST 8 /* events kept of each device: the first ones */
#define OOMS_LAST 8  /* and the last ones */
/* Limit of model.oom_work, a few seconds at most. Each event raises it by one. */
#define GAP_WORK (UINT64_C(1) << 24)

/* True if the entry is for the segment's pool, stream and kind, or for the rest. */
static bool is_of_pool(const struct model_oom_pool *p, const struct segment *s)
{
	return p->rest || (p->stream_known == s->stream_known && p->cuda_stream == s->cuda_stream &&
			   !memcmp(p->pool, s->pool, sizeof(p->pool)) &&
			   p->small == (s->kind == SEGMENT_OF_SMALL));
}

/* Finds or adds the pool and stream of a segment. The last entry takes what has no room. */
static struct model_oom_pool *oom__pool_of(struct model_oom *o, const struct segment *s)
{
	struct model_oom_pool *pool = o->pools;

	for (; pool < o->pools + o->npools; pool++)
		if (is_of_pool(pool, s))
			return pool;
	*pool = (struct model_oom_pool){
		.rest = ++o->npools == MODEL_OOM_POOLS,
		.stream_known = s->stream_known,
		.cuda_stream = s->cuda_stream,
		.pool = { s->pool[0], s->pool[1] },
		.private = segment__private_pool(s),
		.small = s->kind == SEGMENT_OF_SMALL,
	};
	return pool;
}

/* For qsort(): most free bytes first, the rest last. */
static int most_free(const void *a, const void *b)
{
	const struct model_oom_pool *x = a, *y = b;

	if (x->rest != y->rest)
		return x->rest ? 1 : -1;
	if (x->free != y->free)
		return x->free > y->free ? -1 : 1;
	return x->size > y->size ? -1 : x->size < y->size;
}

/* Sums up the segments by pool and stream. */
static void oom__sum_pools(struct model_oom *o, const struct model_segments *s)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct segment *seg = &s->all[i];
		struct model_oom_pool *p = oom__pool_of(o, seg);

		p->segments++;
		p->size += seg->size;
		p->allocated += seg->allocated;
		p->pending += seg->pending;
		p->free += seg->free;
		p->gaps += seg->gaps;
		if (seg->largest_gap > p->largest_gap)
			p->largest_gap = seg->largest_gap;
	}
	qsort(o->pools, o->npools, sizeof(*o->pools), most_free);
}

/* Counts a walk over so many blocks. False: no walk now. Bounds this work to an average of one
 * block per event. */
static bool begin_walk(struct model *m, uint64_t blocks)
{
	if (m->oom_work + blocks > GAP_WORK + m->seq)
		return false;
	m->oom_work += blocks;
	return true;
}

/* Finds the largest free piece and the sums by pool, unless that takes too long: a job may have
 * many blocks and many out-of-memory events. Returns 0 or -ENOMEM. */
static int oom__find_gap(struct model *m, size_t device, struct model_oom *o)
{
	struct model_segments segments;
	uint64_t blocks = m->devs[m->order[device]]->pub.live_blocks;
	int err;

	if (device__on_host(m->devs[m->order[device]]->pub.device) || !begin_walk(m, blocks))
		return 0;
	err = model__segments(m, device, ROWS_NOW, FRAMES_USER, &segments);
	if (err)
		return err;
	o->gap_known = segments.n && segments.reserved <= segments.known;
	o->largest_gap = segments.largest_gap;
	o->pending_known = segments.pending_known;
	if (o->gap_known)
		oom__sum_pools(o, &segments);
	model__free_segments(&segments);
	return 0;
}

/* True for a block that was allocated in the forward of an earlier call that ran out of memory, and
 * that no later code needs. now: the current out-of-memory event. */
static bool is_of_failed_call(const struct model *m, const struct dev *dev, uint64_t addr,
			      const struct rec *rec, const struct model_oom *now)
{
	const struct stamp *stamp = &dev->life.stamps[rec->stamp];
	uint64_t kept = now->number < OOMS_FIRST + OOMS_LAST ? now->number : OOMS_FIRST + OOMS_LAST;
	bool failed = false;

	if (rec->older || stamp->phase != PHASE_FORWARD)
		return false;
	for (uint64_t i = 0; i < kept && !failed; i++) {
		const struct model_oom *oom = &dev->ooms[i];

		/* Calls under way do not count: inside one call, a program may try again with less.
		 */
		failed = oom->begun < now->begun && rec->born <= oom->seq &&
			 stamp->calls == (uint32_t)oom->ended;
	}
	if (!failed)
		return false;
	switch (category__of_block(m, dev, addr, rec, /*dead=*/false)) {
	case CATEGORY_UNKNOWN:
	case CATEGORY_ACTIVATION:
	case CATEGORY_TEMPORARY:
		return true;
	default:
		return false;
	}
}

/* Sets o->kept, the memory of failed calls that is still live because something keeps their
 * exceptions. last: the out-of-memory event before; NULL: none. */
static void oom__find_kept(struct model *m, struct dev *dev, const struct model_oom *last,
			   struct model_oom *o)
{
	/* each block is compared with up to 16 events */
	uint64_t work = dev->pub.live_blocks * (OOMS_FIRST + OOMS_LAST);
	uint64_t addr, i;
	size_t pos = 0;

	o->seq = m->seq;
	o->begun = m->steps.begun;
	o->ended = m->steps.n[STEP_CALL];
	/* Only the first event of a call counts what earlier calls kept. */
	if (!last || o->begun == last->begun)
		return;
	if (!begin_walk(m, work))
		return;
	o->kept_time = last->time;
	while (map64__next(dev->blocks.at, &pos, &addr, &i)) {
		const struct rec *rec = &dev->blocks.recs[i];

		if (is_of_failed_call(m, dev, addr, rec, o))
			o->kept += m->sites.all[rec->site].size;
	}
}

/* Returns the index in dev.ooms of the out-of-memory event with this number: the first ones stay,
 * the last ones are a ring. */
static size_t slot_of(uint64_t nr)
{
	return nr < OOMS_FIRST ? nr : OOMS_FIRST + (nr - OOMS_FIRST) % OOMS_LAST;
}

/* Handles EVENT_OOM. Returns 0 or -ENOMEM. */
static int add_oom(struct model *m, struct dev *dev, const struct event *e)
{
	struct model_oom oom = {
		.time = e->time,
		.size = e->size,
		.thread = e->thread,
		.stack = e->stack,
		.node = e->node,
		.walk = e->walk,
	};
	uint64_t number = dev->pub.ooms;
	size_t i = 0;
	int err;

	if (dev__is_new(dev, e))
		dev__begin(m, dev, e);
	dev__set_totals(m, dev, e, /*phase=*/-1);
	dev->pub.ooms++;
	dev->life.failed = true;
	if (!number && m->opts.at == AT_OOM)
		dev__mark(m, dev, e->time);
	oom.number = number;
	oom.phase = attribution__node_phase(m->attribution, e->stack, e->node, e->thread, e->walk);
	oom.allocated = dev->pub.allocated;
	oom.reserved = dev->pub.reserved;
	oom.has_totals = dev->pub.has_totals;
	oom.used_known = dev->used.known;
	oom.used = dev->used.bytes;
	oom.left_known = cuda_memory__available(dev, &oom.left);
	if (!dev->ooms)
		dev->ooms = calloc(OOMS_FIRST + OOMS_LAST, sizeof(*dev->ooms));
	if (!dev->ooms)
		return -ENOMEM;
	while (i < m->ndevs && m->devs[m->order[i]] != dev)
		i++;
	err = oom__find_gap(m, i, &oom);
	if (err)
		return err;
	oom__find_kept(m, dev, number ? &dev->ooms[slot_of(number - 1)] : NULL, &oom);
	dev->ooms[slot_of(number)] = oom;
	return 0;
}

bool model__oom(const struct model *m, size_t device, size_t i, struct model_oom *ret)
{
	const struct dev *dev;
	uint64_t n, kept;

	if (device >= m->ndevs)
		return false;
	dev = m->devs[m->order[device]];
	n = dev->pub.ooms;
	kept = n < OOMS_FIRST + OOMS_LAST ? n : OOMS_FIRST + OOMS_LAST;
	if (i >= kept)
		return false;
	*ret = dev->ooms[i < OOMS_FIRST ? i : slot_of(n - (kept - i))];
	return true;
}

/* ---- blocks from before attach ---- */

/* On a device without totals, adds bytes from before attach that were found late to all its sums,
 * as if they had been known from the first event. */
static void heap__add_late(struct model *m, struct dev *dev, uint64_t bytes)
{
	dev->late += bytes;
	dev->outside += bytes; /* heap__add_known() makes a block of them */
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
 * part of dev->outside, from where they move to the known blocks; otherwise an EVENT_STATE sets the
 * totals later. Returns 0, -ENOMEM or a callback's error. */
static int heap__add_known(struct model *m, struct dev *dev, const struct event *e, bool census,
			   bool outside)
{
	struct rec rec = { .older = true };
	bool replaced, in_sums = true; /* the sums since the first event include the block */
	int err;

	if (dev->any && !outside)
		in_sums = false; /* no sum included it until now */
	if (dev->pub.marked && outside && dev->mark_outside < e->size)
		in_sums = false; /* the mark's sums have no room for it */
	rec.born = in_sums ? 0 : m->seq;
	if (heap__site(m, dev, e, census ? WALK_CENSUS : e->walk, &rec.site) ||
	    category__stamp_known_block(dev, m->sites.all[rec.site].phase, &rec.stamp))
		return -ENOMEM;
	err = heap__add_block(m, dev, e, &rec, &replaced);
	if (err)
		return err;
	err = layers__add_known_block(m, &m->sites.all[rec.site]);
	if (err)
		return err;
	if (census)
		dev->census += e->size;
	if (outside)
		dev->outside -= e->size;
	if (outside && in_sums) {
		dev->known += e->size;
		for (enum row_when when = ROWS_AT_BASE; when < ROWS_MOMENTS; when++)
			dev__noted(dev, when)->outside -= e->size;
		if (dev->pub.marked)
			dev->mark_outside -= e->size;
	}
	/* Memory that CUDA gave before its device was known may be this block's. */
	return m->loose.count[EXTENT_MEMORY] ? cuda_memory__note_block(m, dev, e->addr) : 0;
}

/* Handles EVENT_BLOCK, a block in the allocator's tables. Returns 0 or -errno. */
static int add_known_block(struct model *m, struct dev *dev, const struct event *e)
{
	struct rec *rec;

	if (e->flags & BLOCK_PENDING) { /* freed, and still waits for a stream */
		if (dev->pending && dev->pending_over)
			map64__clear(dev->pending);
		dev->pending_over = false;
		if (!dev->pending)
			dev->pending = map64__new();
		return dev->pending ? map64__set(dev->pending, e->addr, e->size) : -ENOMEM;
	}
	rec = blocks__at(&dev->blocks, e->addr);
	if (rec && m->sites.all[rec->site].size == e->size)
		return blocks__set_request(m, e, rec);
	/* After the first totals, a block must fit into the bytes that have no known block yet. */
	if (dev->pub.has_totals && ((int64_t)dev->outside < 0 || dev->outside < e->size))
		return 0;
	return heap__add_known(m, dev, e, !e->stack && !e->walk, dev->pub.has_totals);
}

/* Adds a tensor's block from before the first event that the allocator's tables did not list.
 * Returns 0 or -errno. */
static int heap__tensor_before(struct model *m, struct dev *dev, const struct event *e)
{
	struct event block = { .device = e->device, .addr = e->addr, .size = e->size };
	uint64_t unused;

	if (!e->size || dev->census_done ||
	    (dev->freed && map64__get(dev->freed, e->addr, &unused)))
		return 0;
	if (dev->pub.has_totals && ((int64_t)dev->outside < 0 || dev->outside < e->size))
		return 0;
	if (!dev->pub.has_totals && dev->any) {
		if (e->size > INT64_MAX - dev->pub.peak_allocated)
			return 0;
		heap__add_late(m, dev, e->size);
	}
	return heap__add_known(m, dev, &block, /*census=*/true, dev->any);
}

/* Returns the number of the module that an earlier reading gave to this block in the same role; 0:
 * none. A program that ends takes its modules apart before its optimizer. */
static uint32_t module_of_same_role(const struct model *m, const struct rec *rec, uint8_t category)
{
	const struct label *earlier = &m->labels.all[rec->label_no - 1];

	return earlier->category == category ? earlier->module : 0;
}

/* Handles EVENT_TENSOR: labels the tensor's block with the name, module and category that the
 * program's objects give it. Returns 0 or -errno. */
static int note_tensor(struct model *m, struct dev *dev, const struct event *e)
{
	struct rec *rec = blocks__at(&dev->blocks, e->addr);
	struct dict_counts counts = dict__counts(m->dict);
	struct label label = { 0 };
	uint32_t i;
	int err;

	if (e->name < counts.strings)
		label.name = e->name;
	if (e->module < counts.modules)
		label.module = e->module;
	if (e->category < CATEGORY_OF_EVENTS)
		label.category = e->category;
	label.inferred = label.category && e->flags & TENSOR_INFERRED;
	if (!rec && (e->flags & CENSUS_FIRST)) {
		err = heap__tensor_before(m, dev, e);
		if (err)
			return err;
		rec = blocks__at(&dev->blocks, e->addr);
	}
	/* A block that was allocated later, or is too small, is not the tensor's. */
	if (!rec || rec->time > e->time || e->size > m->sites.all[rec->site].size)
		return 0;
	if (!label.category && !label.name && !label.module)
		return 0;
	if (!label.module && rec->label_no)
		label.module = module_of_same_role(m, rec, label.category);
	if (hash_index__entry(&m->labels.index, m->seed, &label, sizeof(label), &m->labels.all,
			      &m->labels.n, &m->labels.cap, sizeof(label), &i) < 0)
		return -ENOMEM;
	rec->label_no = i + 1;
	return 0;
}

/* Handles EVENT_CENSUS, the end of a reading of the program's objects. */
static void note_census(struct dev *dev, const struct event *e)
{
	if (!(e->flags & CENSUS_FIRST))
		return;
	dev->census_done = true;
	map64__free(dev->freed);
	dev->freed = NULL;
}

/* ---- the model ---- */

struct model *model__new(const struct dict *d, const struct facts *f, const struct model_opts *opts)
{
	struct model *m = calloc(1, sizeof(*m));

	if (!m)
		goto nomem;
	m->attribution = calloc(1, sizeof(*m->attribution));
	if (!m->attribution)
		goto nomem;
	m->opts = opts ? *opts : (struct model_opts){ .at = AT_PEAK };
	m->dict = d;
	m->attribution->dict = d;
	m->attribution->facts = f;
	m->attribution->old_torch = -1;
	m->seed = hash__seed();
	m->sites.max = m->sites.sweep_at = m->opts.sites ? m->opts.sites : SITES_KEPT;
	m->threads.sweep_at = THREADS_KEPT;
	extents__init(&m->loose, hash__u64(m->seed, 0));
	for (size_t i = 0; i < m->opts.nscopes; i++)
		if (model__add_scope(m, m->opts.scopes[i]) == -ENOMEM)
			goto nomem;
	if (*m->opts.at_scope && model__add_scope(m, m->opts.at_scope) == -ENOMEM)
		goto nomem;
	return m;
nomem:
	model__free(m);
	errno = ENOMEM;
	return NULL;
}

void model__set_facts(struct model *m, const struct facts *f)
{
	m->attribution->facts = f;
}

void model__free(struct model *m)
{
	if (!m)
		return;
	growth__unwatch(m);
	rows__forget(m);
	for (uint32_t i = 0; i < m->ndevs; i++) {
		blocks__free(&m->devs[i]->blocks);
		free(m->devs[i]->life.stamps);
		map64__free(m->devs[i]->life.sizes);
		map64__free(m->devs[i]->pending);
		map64__free(m->devs[i]->freed);
		extents__free(&m->devs[i]->extents);
		free(m->devs[i]->ooms);
		free(m->devs[i]->step[STEP_OPT]);
		free(m->devs[i]->step[STEP_CALL]);
		free(m->devs[i]);
	}
	free(m->devs);
	free(m->order);
	for (size_t i = 0; i < 256; i++)
		free(m->by_type[i]);
	free(m->sites.all);
	extents__free(&m->loose);
	free(m->requests.all);
	free(m->requests.index.slots);
	free(m->labels.all);
	free(m->labels.index.slots);
	free(m->watch.classes);
	free(m->watch.index.slots);
	free(m->sites.index.slots);
	for (uint32_t i = 0; i < m->threads.n; i++) {
		if (m->threads.all[i])
			free(m->threads.all[i]->entered);
		free(m->threads.all[i]);
	}
	free(m->threads.all);
	free(m->steps.ring[STEP_OPT]);
	free(m->steps.ring[STEP_CALL]);
	layers__free(&m->layers);
	scopes__free(&m->scopes);
	attribution__free(m->attribution);
	free(m);
}

/* Replaces numbers beyond the dict with 0 ("none"), so that a bad number cannot grow a table. */
static void model__replace_bad_numbers(struct model *m, struct event *e)
{
	struct dict_counts c = dict__counts(m->dict);

	m->seen.stacks = c.stacks;
	m->seen.threads = c.threads;
	m->seen.nodes = c.nodes;
	if (e->stack >= c.stacks)
		e->stack = 0;
	if (e->thread >= c.threads)
		e->thread = 0;
	if (e->node >= c.nodes)
		e->node = 0;
	if (e->walk >= MT_WALK_NR)
		e->walk = MT_WALK_OFF;
}

/* True if the event's numbers are in the dict. False also if the dict grew since the last look at
 * its size. */
static bool has_good_numbers(const struct model *m, const struct event *e)
{
	return e->stack < m->seen.stacks && e->thread < m->seen.threads &&
	       e->node < m->seen.nodes && e->walk < MT_WALK_NR;
}

/* Adds the state of a thread. Returns 0 or -ENOMEM. */
static int model__new_thread(struct model *m, uint32_t thread, struct thread_state **ret)
{
	int err = array__grow_zero(&m->threads.all, &m->threads.n, (size_t)thread + 1,
				   sizeof(*m->threads.all));

	if (err)
		return err;
	if (!m->threads.all[thread]) {
		err = m->threads.states >= m->threads.sweep_at ? gc__threads(m) : 0;
		if (err)
			return err;
		m->threads.all[thread] = calloc(1, sizeof(**m->threads.all));
		m->threads.states += m->threads.all[thread] != NULL;
	}
	*ret = m->threads.all[thread];
	return *ret ? 0 : -ENOMEM;
}

/* Finds or adds the state of a thread, and notes that it is in use. Returns 0 or -ENOMEM. */
static int model__thread(struct model *m, uint32_t thread, struct thread_state **ret)
{
	if (thread < m->threads.n && m->threads.all[thread])
		*ret = m->threads.all[thread];
	else if (model__new_thread(m, thread, ret))
		return -ENOMEM;
	(*ret)->seen = m->seq;
	return 0;
}

/* Handles EVENT_ALLOC. stack, walk: those of the event before attribution__charge(). Returns 0 or
 * -errno. */
static int model__alloc(struct model *m, struct dev *dev, const struct event *e, uint32_t stack,
			uint8_t walk)
{
	struct thread_state *t;
	uint32_t site = 0;
	int err = model__thread(m, e->thread, &t);

	if (err)
		return err;
	if (m->steps.caller == t && steps__alloc(m, e->time, stack, walk))
		return -ENOMEM;
	err = heap__alloc(m, dev, e, &site);
	if (err)
		return err;
	err = layers__alloc(m, t, dev, e, &m->sites.all[site]);
	if (err)
		return err;
	/* A block of the device "host" without a walk has only a mapping's name, and never had a
	 * stack that could have been read. */
	if (e->device.type != DEVICE_HOST || walk != MT_WALK_OFF)
		m->walks[walk]++;
	return 0;
}

/* Sets the mark of all devices, because the moment opts.at_time is over. */
static void model__pass_time(struct model *m, uint64_t time)
{
	m->time_passed = true;
	for (uint32_t i = 0; i < m->ndevs; i++)
		dev__mark(m, m->devs[i], time);
}

/* Adds a value if the stride is due; keeps every second one when there is no more room. */
static void add_value(struct host_values *s, uint64_t time, uint64_t value)
{
	s->stride = s->stride ?: 1;
	if (s->number++ % s->stride)
		return;
	if (s->n == TREND_MAX) {
		s->n /= 2;
		s->stride *= 2;
		for (uint32_t i = 0; i < s->n; i++) {
			s->time[i] = s->time[2 * i];
			s->values[i] = s->values[2 * i];
		}
	}
	s->time[s->n] = time;
	s->values[s->n++] = value;
}

/* Adds values of private memory and RSS. HOST_USS comes more often than whole readings, together
 * with the blocks of the device "host", whose sum is the RSS. */
static void add_own(struct model *m, const struct event *e)
{
	int host = model__find_device(m, "host");

	if (e->flags & HOST_NOT_KNOWN)
		return;
	add_value(&m->host.series[HOST_SERIES_OWN], e->time, e->size);
	add_value(&m->host.series[HOST_SERIES_RSS], e->time,
		  host < 0 ? 0 : m->devs[m->order[host]]->pub.allocated);
}

bool model__host_trend(const struct model *m, enum host_series series, uint64_t min_growth,
		       struct host_trend *ret)
{
	const struct host_values *s = &m->host.series[series];
	uint64_t took;

	if (s->n < TREND_MIN || s->unknown)
		return false;
	trend__judge(s->values, s->n, &(struct trend_opts){ .min_growth = min_growth, .tests = 1 },
		     &ret->trend);
	ret->first = s->values[0];
	ret->last = s->values[s->n - 1];
	took = s->time[s->n - 1] - s->time[0];
	ret->per_second = took ? ret->trend.slope * (s->n - 1) * 1e9 / (double)took : 0;
	return true;
}

/* Handles EVENT_HOST, one figure of a reading. host_sheet__take() is true at the reading's last
 * one. Host memory has a peak of its own: the highest RSS. */
static void host_event(struct model *m, const struct event *e)
{
	struct model_host *host = &m->host.pub;
	struct host_point point = { .time = e->time };

	if (e->how == HOST_USS)
		add_own(m, e);
	if (!host_sheet__take(&m->host.reading, e))
		return;
	point.sheet = m->host.reading;
	m->host.reading = (struct host_sheet){ 0 };
	if (!host->readings++)
		host->first = host->highest = host->at_moment = point;
	host->last = point;
	m->host.series[HOST_SERIES_PINNED].unknown |= !point.sheet.part[HOST_PINNED].known;
	add_value(&m->host.series[HOST_SERIES_PINNED], point.time,
		  point.sheet.part[HOST_PINNED].bytes);
	if (point.sheet.part[HOST_TOTAL].bytes > host->highest.sheet.part[HOST_TOTAL].bytes)
		host->highest = point;
	if (m->opts.at != AT_TIME || point.time <= m->opts.at_time)
		host->at_moment = m->opts.at == AT_PEAK ? host->highest : point;
	scopes__after_reading(m);
}

const struct model_host *model__host(const struct model *m)
{
	return m->host.pub.readings ? &m->host.pub : NULL;
}

static bool needs_device(uint8_t kind)
{
	return kind == EVENT_ALLOC || kind == EVENT_FREE || kind == EVENT_OOM ||
	       kind == EVENT_BLOCK || kind == EVENT_REQUESTED || kind == EVENT_TENSOR;
}

/* True if the recording begins later than its capture, or with a reading of the allocator's tables,
 * so that nothing is known from before its first event. */
static bool begins_late(const struct model *m, const struct event *e)
{
	uint64_t from;

	return e->kind == EVENT_SEGMENT || e->kind == EVENT_BLOCK || e->kind == EVENT_STATE ||
	       model__window(m, &from);
}

/* Handles EVENT_MARK. */
static void note_mark(struct model *m, const struct event *e)
{
	const char *name = dict__str(m->dict, e->name);

	sampling__mark(&m->sampling, name, e->time);
	if (m->marks.n < MODEL_MARKS) {
		m->marks.first[m->marks.n].time = e->time;
		m->marks.first[m->marks.n].name = e->name;
	}
	m->marks.n++;
	if (*m->opts.at_mark && event__mark_is(name, m->opts.at_mark)) {
		m->opts.at_time = e->time;
		*m->opts.at_mark = '\0';
	}
}

/* Handles EVENT_LOST: records were lost, or the loss has ended. */
static void note_loss(struct model *m, const struct event *e)
{
	m->lost += e->size;
	m->losing = e->size;
	for (uint32_t i = 0; i < m->ndevs; i++) {
		m->devs[i]->unsure = true;
		m->devs[i]->mark_unsure |= m->devs[i]->mark_open;
	}
}

/* Updates the model. dev: the event's device if needs_device(), otherwise NULL. stack, walk: as in
 * model__alloc(). Returns 0 or -errno. */
static int handle_event(struct model *m, struct dev *dev, const struct event *e, uint32_t stack,
			uint8_t walk)
{
	struct thread_state *t;
	struct rec *rec;
	int err;

	switch (e->kind) {
	case EVENT_ALLOC:
		return model__alloc(m, dev, e, stack, walk);
	case EVENT_FREE:
		return heap__free_block(m, dev, e);
	case EVENT_OOM:
		return add_oom(m, dev, e);
	case EVENT_BLOCK:
		return add_known_block(m, dev, e);
	case EVENT_REQUESTED:
		rec = blocks__at(&dev->blocks, e->addr);
		return rec ? blocks__set_request(m, e, rec) : 0;
	case EVENT_TENSOR:
		return note_tensor(m, dev, e);
	case EVENT_CENSUS:
		dev = dev__known(m, e->device);
		if (dev)
			note_census(dev, e);
		return 0;
	case EVENT_STEP:
		return steps__optimizer(m, e->time);
	case EVENT_CALL:
	case EVENT_ENTER:
	case EVENT_LEAVE:
		err = model__thread(m, e->thread, &t);
		if (err)
			return err;
		if (e->kind == EVENT_CALL)
			return steps__call(m, e);
		if (e->kind == EVENT_ENTER)
			return layers__enter(m, t, e);
		layers__leave(m, t, e);
		return 0;
	case EVENT_HOST:
		host_event(m, e);
		return 0;
	case EVENT_MARK:
		note_mark(m, e);
		return 0;
	case EVENT_SCOPE: /* scopes__before() */
		return 0;
	case EVENT_LOST:
		note_loss(m, e);
		return 0;
	default:
		return cuda_memory__event(m, e);
	}
}

bool model__is_past(const struct model *m, const struct event *e)
{
	if (m->opts.at != AT_TIME)
		return false;
	return m->opts.at_event ? m->seq >= m->opts.at_event : e->time > m->opts.at_time;
}

/* Takes an event with good numbers. stack, walk: as in model__alloc(). Returns 0, -ENOMEM or a
 * callback's error. */
static int take_event(struct model *m, const struct event *e, uint32_t stack, uint8_t walk)
{
	struct dev *dev = NULL;
	int err;

	/* If at_time is before all that is known, the mark is at the first event. */
	if (m->opts.at == AT_TIME && !m->seq && e->time > m->opts.at_time && begins_late(m, e))
		m->opts.at_time = e->time;
	if (!m->time_passed && model__is_past(m, e))
		model__pass_time(m, m->opts.at_time);
	err = scopes__before(m, e, stack, walk);
	if (err)
		return err;
	m->seq++;
	/* Sweep here: between events only live blocks refer to sites, requests and labels. */
	if ((m->sites.index.n >= m->sites.sweep_at || m->requests.n >= m->sites.sweep_at ||
	     m->labels.n >= m->sites.sweep_at) &&
	    gc__all(m))
		return -ENOMEM;
	if (needs_device(e->kind) &&
	    (dev__get(m, e->device, &dev) || (m->growth && growth__advance_time(m, e->time))))
		return -ENOMEM;
	if (!m->sampling.loaded)
		sampling__load(&m->sampling, m->attribution->facts);
	err = handle_event(m, dev, e, stack, walk);
	if (m->watch.err)
		return m->watch.err;
	if (err)
		return err;
	if (m->scopes.nopen &&
	    (e->kind == EVENT_ALLOC || e->kind == EVENT_FREE || e->kind == EVENT_OOM))
		scopes__after(m, dev, e);
	m->events += event__counts(e);
	return 0;
}

/* An event with good numbers and without an autograd node needs no copy. */
int model__event(struct model *m, const struct event *event)
{
	struct event copy;
	uint32_t stack;
	uint8_t walk;

	if (m->kept.n)
		rows__forget(m);
	if (has_good_numbers(m, event) && !event->node)
		return take_event(m, event, event->stack, event->walk);
	copy = *event;
	if (!has_good_numbers(m, event))
		model__replace_bad_numbers(m, &copy);
	stack = copy.stack;
	walk = copy.walk;
	if (copy.node)
		attribution__charge(m->attribution, &copy);
	return take_event(m, &copy, stack, walk);
}

void model__prefetch(const struct model *m, const struct event *e, size_t n)
{
	const struct dev *dev;

	for (size_t i = 0; i < n; i++) {
		if (e[i].kind != EVENT_ALLOC && e[i].kind != EVENT_FREE)
			continue;
		dev = dev__known(m, e[i].device);
		if (dev)
			map64__prefetch(dev->blocks.at, e[i].addr);
		if (e[i].kind == EVENT_ALLOC)
			heap__prefetch(m, &e[i]);
	}
	/* By now the cache has what leads to the blocks that are freed. */
	for (size_t i = 0; i < n; i++) {
		dev = e[i].kind == EVENT_FREE ? dev__known(m, e[i].device) : NULL;
		if (dev)
			__builtin_prefetch(blocks__at(&dev->blocks, e[i].addr), 1);
	}
}

void model__finish(struct model *m, uint64_t now)
{
	if (m->finished)
		return;
	m->finished = true;
	for (uint32_t i = 0; i < m->threads.n; i++)
		if (m->threads.all[i]) {
			layers__close(m, m->threads.all[i]);
			layers__leave_all(m, m->threads.all[i], i, now);
		}
	/* Fail only if memory for the last step or run is missing; earlier ones stay. */
	if (m->steps.caller)
		(void)steps__close_call(m);
	(void)scopes__finish(m, now);
	if (m->opts.at == AT_TIME && m->opts.at_time > now)
		m->opts.at_time = now;
	if (m->opts.at == AT_TIME && !m->time_passed)
		model__pass_time(m, m->opts.at_time);
	/* A device with blocks from before attach and without events keeps this state. */
	for (uint32_t i = 0; i < m->ndevs; i++)
		if (!m->devs[i]->any) {
			dev__begin(m, m->devs[i], &(struct event){ .time = now });
			dev__set_totals(m, m->devs[i], &(struct event){ .time = now },
					/*phase=*/-1);
		}
	for (uint32_t i = 0; m->opts.at == AT_END && i < m->ndevs; i++)
		dev__mark(m, m->devs[i], now);
	if (m->watch.on_block && !m->watch.err)
		m->watch.err = observers__finish(m);
}

void model__note(struct model *m, enum row_when when, uint64_t time)
{
	rows__forget(m);
	m->noted[when - ROWS_AT_BASE].set = true;
	m->noted[when - ROWS_AT_BASE].time = time;
	for (uint32_t i = 0; i < m->ndevs; i++) {
		struct dev *dev = m->devs[i];

		*dev__noted(dev, when) = (struct noted){ .seq = m->seq,
							 .allocated = dev->pub.allocated,
							 .outside = dev->outside };
		dev->blocks.gone[when].n = 0;
	}
}

void model__forget(struct model *m, enum row_when when)
{
	rows__forget(m);
	m->noted[when - ROWS_AT_BASE].set = false;
	for (uint32_t i = 0; i < m->ndevs; i++)
		m->devs[i]->blocks.gone[when].n = 0;
}
