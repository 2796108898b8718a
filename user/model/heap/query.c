/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Figures of the model, for its callers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/grammar.h"
#include "model/heap/attribution.h"
#include "model/heap/blocks.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/heap.h"
#include "model/heap/state.h"
#include "model/heap/steps.h"
#include "record/dict.h"

#define JOB_STEP_MOST (UINT64_C(1) << 53) /* JSON's numbers are exact up to here */

const char *const moment_names[] = { WORD_ARRAY(MOMENT_WORDS) "time", NULL };
const char *const group_names[] = { WORD_ARRAY(GROUP_WORDS) NULL };
_Static_assert(sizeof(group_names) / sizeof(*group_names) == BY_NR + 1,
	       "a word of --by for each group");

const char *state__name(enum state s)
{
	if (s == STATE_FULL)
		return "exact";
	return s == STATE_PARTLY ? "approximate" : "none";
}

const char *figure__name(enum figure f)
{
	static const char *const names[] = {
		[FIGURE_EXACT] = "exact",
		[FIGURE_SINCE_ATTACH] = "since_attach",
		[FIGURE_LOWER_BOUND] = "lower_bound",
		[FIGURE_NOT_EXACT] = "not_exact",
	};

	return names[f];
}

bool model__is_snapshot(const struct model *m)
{
	return attribution__is_snapshot(m->attribution);
}

size_t model__devices(const struct model *m)
{
	return m->ndevs;
}

/* True if the capture began before PyTorch's first allocation. */
static bool seen_from_start(const struct model *m)
{
	const char *at = facts__get(m->attribution->facts, "attached_at");

	return at && !strcmp(at, "start");
}

/* True if a device of PyTorch's own allocator, which reports totals, has none in the recording: the
 * recording reached its size limit before the reading at attach came. A device without memory
 * (empty) lacks nothing. */
static bool lacks_totals(const struct model *m, const struct model_device *d)
{
	const char *allocator = facts__get(m->attribution->facts, "allocator");

	return d->device.type == DEVICE_CUDA && !d->has_totals && !d->empty && allocator &&
	       !strcmp(allocator, "native");
}

/* Sets how exact the device's figures are after losses. */
static void set_exactness(const struct model *m, const struct dev *dev, struct model_device *ret)
{
	ret->empty = !ret->has_totals && !ret->allocs && !ret->frees && !ret->live_blocks &&
		     !ret->before_attach && facts__get(m->attribution->facts, "census");
	if (!m->lost && !lacks_totals(m, ret)) {
		ret->peak_is = ret->allocated_is = ret->mark_is = ret->before_known
									  ? FIGURE_EXACT
									  : FIGURE_SINCE_ATTACH;
		return;
	}
	if (!ret->has_totals) {
		ret->peak_is = ret->allocated_is = ret->mark_is = FIGURE_NOT_EXACT;
		return;
	}
	ret->peak_is = FIGURE_LOWER_BOUND;
	ret->allocated_is = dev->unsure ? FIGURE_NOT_EXACT : FIGURE_EXACT;
	ret->mark_is = dev->mark_unsure ? FIGURE_NOT_EXACT : FIGURE_EXACT;
	if (m->opts.at == AT_PEAK)
		ret->mark_is = FIGURE_LOWER_BOUND;
}

void model__device(const struct model *m, size_t i, struct model_device *ret)
{
	const struct dev *dev;

	memset(ret, 0, sizeof(*ret));
	if (i >= m->ndevs)
		return;
	dev = m->devs[m->order[i]];
	*ret = dev->pub;
	ret->before_attach = dev__before_attach(dev);
	ret->before_known = dev->pub.has_totals || seen_from_start(m);
	ret->late = dev->late;
	ret->avg_fragmentation = dev->frag_n ? dev->frag_sum / (double)dev->frag_n : 0;
	ret->mark_event = dev->mark_seq;
	ret->driver_known = dev->used.known && dev->left.known;
	ret->driver_used = dev->used.bytes;
	ret->driver_left = dev->left.bytes;
	set_exactness(m, dev, ret);
	ret->peak_step = dev->peak_step[m->steps.n[STEP_OPT] ? STEP_OPT : STEP_CALL];
}

bool model__noted(const struct model *m, enum row_when when, uint64_t *time)
{
	if (time)
		*time = m->noted[when - ROWS_AT_BASE].time;
	return m->noted[when - ROWS_AT_BASE].set;
}

uint64_t model__noted_allocated(const struct model *m, size_t device, enum row_when when)
{
	return device < m->ndevs ? m->devs[m->order[device]]->noted[when - ROWS_AT_BASE].allocated
				 : 0;
}

bool model__peak_line(const struct model *m, size_t device, enum frame_choice which_line,
		      struct row *ret)
{
	const struct dev *dev = device < m->ndevs ? m->devs[m->order[device]] : NULL;
	const struct site *s = dev && dev->peak_site_no ? &m->sites.all[dev->peak_site_no - 1]
							: NULL;

	if (s)
		rows__line(m, which_line, s->stack, s->node, s->thread, s->walk, ret);
	return s;
}

/* True if a report that shows one device shows d, and not best. */
static bool comes_before(const struct model_device *d, const struct model_device *best)
{
	bool best_unused = !best->peak_allocated && !best->peak_reserved && !best->ooms;

	return (!device__on_host(d->device) || (d->device.type == DEVICE_CPU && best_unused)) &&
	       d->peak_allocated > best->peak_allocated;
}

int model__main_device(const struct model *m)
{
	int best = -1;

	for (uint32_t i = 0; i < m->ndevs; i++)
		if (best < 0 ||
		    comes_before(&m->devs[m->order[i]]->pub, &m->devs[m->order[best]]->pub))
			best = i;
	return best;
}

bool model__reserves(const struct model *m)
{
	int i = model__main_device(m);
	struct model_device d;

	if (i < 0)
		return false;
	model__device(m, (size_t)i, &d);
	return d.has_totals;
}

int model__find_device(const struct model *m, const char *name)
{
	size_t len = strlen(name);

	for (uint32_t i = 0; i < m->ndevs; i++) {
		const struct model_device *d = &m->devs[m->order[i]]->pub;

		if (!strcmp(d->name, name) ||
		    (d->device.index == 0 && !strncmp(d->name, name, len) &&
		     !strcmp(d->name + len, ":0")))
			return i;
	}
	return -1;
}

void model__phase(const struct model *m, enum phase p, struct model_phase *ret)
{
	int main = model__main_device(m);
	const struct dev *dev;

	memset(ret, 0, sizeof(*ret));
	if (main < 0 || (unsigned)p >= PHASE_NR)
		return;
	dev = m->devs[m->order[main]];
	*ret = dev->phases[p];
	if (dev->phase == (int)p) { /* the current stretch */
		ret->allocated_delta = (int64_t)((uint64_t)ret->allocated_delta +
						 dev->pub.allocated - dev->phase_total);
		ret->duration += dev->phase_last - dev->phase_begin;
	}
}

void model__charge(const struct model *m, struct event *e)
{
	attribution__charge(m->attribution, e);
}

enum phase model__stack_phase(const struct model *m, uint32_t stack, uint32_t thread, uint8_t walk)
{
	return attribution__phase(m->attribution, stack, thread, walk);
}

uint32_t model__stack_module(const struct model *m, uint32_t stack)
{
	return attribution__stack(m->attribution, stack).module;
}

uint32_t model__module(const struct model *m, uint32_t stack, uint32_t node, uint8_t walk)
{
	return attribution__module(m->attribution, stack, node, walk);
}

void model__all(const struct model *m, struct model_all *ret)
{
	*ret = m->all;
	for (uint32_t i = 0; i < m->ndevs; i++)
		ret->devices += !device__on_host(m->devs[i]->pub.device);
}

uint64_t model__walks(const struct model *m, unsigned walk)
{
	return walk < MT_WALK_NR ? m->walks[walk] : 0;
}

uint64_t model__events(const struct model *m)
{
	return m->events;
}

uint64_t model__lost(const struct model *m)
{
	return m->lost;
}

/* Returns which steps the queries are about: those of optimizers if there are any. */
static enum step_kind steps__kind(const struct model *m)
{
	return m->steps.n[STEP_OPT] ? STEP_OPT : STEP_CALL;
}

bool model__steps_are_calls(const struct model *m)
{
	return steps__kind(m) == STEP_CALL;
}

size_t model__steps(const struct model *m)
{
	return m->steps.n[steps__kind(m)];
}

size_t model__marks(const struct model *m)
{
	return m->marks.n;
}

const char *model__mark(const struct model *m, size_t i, uint64_t *time)
{
	*time = m->marks.first[i].time;
	return dict__str(m->dict, m->marks.first[i].name);
}

bool model__first_step_whole(const struct model *m)
{
	const char *begins = facts__get(m->attribution->facts, "window_begins");

	return begins && !strcmp(begins, "step");
}

size_t model__whole_steps(const struct model *m)
{
	const char *at = facts__get(m->attribution->facts, "attached_at");
	size_t n = model__steps(m);
	bool whole = steps__kind(m) == STEP_CALL || model__first_step_whole(m) ||
		     (at && (!strcmp(at, "start") || !strcmp(at, "fork")));

	return n - (n && !whole);
}

/* Sets *ret to a fact that is the number of a step. False: it is missing or too large. */
static bool step_number(const struct facts *f, const char *key, uint64_t *ret)
{
	return facts__number(f, key, ret) && *ret <= JOB_STEP_MOST;
}

bool model__job_step(const struct model *m, uint64_t *ret)
{
	uint64_t steps_before = 0;

	if (model__steps_are_calls(m) || !step_number(m->attribution->facts, "job_step", ret))
		return false;
	/* job_step is the number of the capture's first step, from 1. steps_before: number of steps
	 * that ended before this part or window of the capture. */
	if (facts__get(m->attribution->facts, "window_first_step") &&
	    !step_number(m->attribution->facts, "window_first_step", &steps_before))
		return false;
	*ret += steps_before;
	return *ret != 0; /* a recording may have a wrong 0 */
}

bool model__window(const struct model *m, uint64_t *ret)
{
	return facts__number(m->attribution->facts, "window_start_ns", ret);
}

uint64_t model__length(const struct model *m, uint64_t end)
{
	uint64_t from;

	model__window(m, &from);
	return end > from ? end - from : 0;
}

/* Returns start and end of a kept step. The first step of a window begins with the window. Older
 * recorders wrote this fact after the events, so it may come after the step's end. */
static struct step_span span_of(const struct model *m, uint64_t number)
{
	struct step_span span = m->steps.ring[steps__kind(m)][number % STEPS_KEPT];

	if (!number && !span.start && model__window(m, &span.start) && span.start > span.end)
		span.start = span.end;
	return span;
}

/* Reads a kept step. dev: device of its memory; NULL: none. */
static void read_step(const struct model *m, const struct dev *dev, uint64_t number,
		      struct model_step *ret)
{
	enum step_kind kind = steps__kind(m);
	uint32_t slot = number % STEPS_KEPT;
	struct step_span span = span_of(m, number);

	*ret = (struct model_step){ .start = span.start, .end = span.end };
	if (dev && dev->step[kind]) {
		ret->peak = dev->step[kind][slot].peak + dev->late;
		ret->end_allocated = dev->step[kind][slot].end_allocated + dev->late;
	}
}

bool model__step(const struct model *m, size_t i, struct model_step *ret)
{
	uint64_t n = model__steps(m), kept = n < STEPS_KEPT ? n : STEPS_KEPT;
	int main = model__main_device(m);

	if (i >= kept)
		return false;
	read_step(m, main < 0 ? NULL : m->devs[m->order[main]], n - kept + i, ret);
	return true;
}

bool model__last_step(const struct model *m, size_t device, struct model_step *ret)
{
	uint64_t n = model__steps(m);

	if (!n || m->order[device] >= STEP_DEVICES)
		return false;
	read_step(m, m->devs[m->order[device]], n - 1, ret);
	return ret->peak != 0;
}

uint64_t model__step_time(const struct model *m)
{
	uint64_t n = model__steps(m), kept = n < STEPS_KEPT ? n : STEPS_KEPT, *times, ret;
	size_t skip = n == kept && !model__first_step_whole(m);

	if (kept <= skip)
		return 0;
	times = malloc(kept * sizeof(*times));
	if (!times)
		return 0;
	for (size_t i = skip; i < kept; i++) {
		struct step_span s = span_of(m, n - kept + i);

		times[i - skip] = s.end - s.start;
	}
	kept -= skip;
	qsort(times, kept, sizeof(*times), array__compare_u64);
	ret = kept % 2 ? times[kept / 2] : (times[kept / 2 - 1] + times[kept / 2]) / 2;
	free(times);
	return ret;
}

struct model_opts model__opts(const struct model *m)
{
	return m->opts;
}

void model__mark_end(struct model *m)
{
	m->opts.at = AT_END;
}

uint32_t model__block_classes(const struct model *m)
{
	return m->watch.nclasses;
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
	const struct dev *dev;

	if (device__on_host(d))
		d.index = 0;
	dev = dev__known(m, d);
	return dev ? dev->number : UINT32_MAX;
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
	ret->known = dev->known;
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

/* ---- live blocks ---- */

/* Returns what is known of a block, but for its time. */
static struct live_block describe_block(const struct model *m, const struct block *b)
{
	const struct site *site = &m->sites.all[b->site];
	struct live_block ret = {
		.addr = b->addr,
		.size = site->size,
		.stack = site->stack,
		.node = site->node,
		.thread = site->thread,
		.walk = site->walk,
		.category = b->category,
		.inferred = true,
		.scope = scopes__text(&m->scopes, site->scope_no),
		.module = site->module,
	};

	if (site->walk == WALK_CENSUS) {
		ret.walk = MT_WALK_OFF;
		ret.before_attach = true;
	}
	if (b->request_no) {
		ret.requested = m->requests.all[b->request_no - 1].requested;
		ret.cuda_stream = m->requests.all[b->request_no - 1].cuda_stream;
	}
	if (b->label_no) {
		const struct label *label = &m->labels.all[b->label_no - 1];

		ret.name = label->name ? dict__str(m->dict, label->name) : NULL;
		ret.module = label->module ?: site->module;
		ret.inferred = !label->category || label->inferred;
	}
	return ret;
}

bool model__live_block(const struct model *m, struct device device, uint64_t addr,
		       struct live_block *ret)
{
	const struct dev *dev = dev__known(m, device);
	const struct rec *rec = dev ? blocks__at(&dev->blocks, addr) : NULL;
	struct block b;

	if (!rec)
		return false;
	b = blocks__describe(m, dev, addr, rec, /*dead=*/true);
	b.category = category__decide(&m->sites.all[b.site], b.category);
	*ret = describe_block(m, &b);
	ret->time = rec->time;
	ret->older = rec->older;
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

		all[i] = describe_block(m, &blocks[i]);
		all[i].time = rec ? rec->time : 0;
		all[i].older = rec && rec->older;
	}
	free(blocks);
	*ret = all;
	return all ? 0 : -ENOMEM;
}
