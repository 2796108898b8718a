/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/torch_snapshot.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/map64.h"
#include "base/text.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr.h"
#include "record/snapshot/inflow.h"
#include "record/snapshot/origin.h"
#include "record/snapshot/period.h"
#include "record/snapshot/pinned.h"
#include "record/snapshot/records.h"
#include "record/snapshot/sketch.h"
#include "record/snapshot/tiling.h"
#include "record/snapshot/unjson.h"
#include "record/snapshot/unpickle.h"
#include "record/snapshot/nested.h"

#define DEVICES_MOST 255 /* an event's device index has 8 bits, and 255 is "not known" */
/* torch/optim/optimizer.py: "Optimizer.step#AdamW.step" and the like */
#define OPTIMIZER_NOTE "Optimizer."
#define STEP_NOTE "Optimizer.step#"
#define LOADER_NOTE "enumerate(DataLoader)#" /* torch/utils/data/dataloader.py */
#define RANK_END 100000	 /* from here on, a number in a file's name is no rank */
#define LISTINGS_MOST 16 /* out-of-memory events of a device whose segments are listed */
#define AUTOGRAD_THREAD "pt_autograd_ (no Python frames)"

/* The trace of a device. */
struct track {
	struct device device;
	const struct value_list *trace; /* NULL: none */
	size_t at;			/* next entry */
	struct tiling *tiling;
	uint64_t allocated, reserved;
	bool completes;	    /* the trace tells when the memory of a freed block can be used again */
	size_t allocations; /* entries of allocations in the trace */
	size_t last_moved;  /* index of the last entry that takes or returns a segment, from 1 on */
	unsigned listings;  /* listings of the segments, at out-of-memory events */
};

enum part { PART_BEGIN, PART_TRACE, PART_END, PART_DONE };

struct torch_snapshot {
	struct records r;
	struct facts *facts;
	const char *name; /* of the file, without its folder; not valid after the reading */
	char *folder;	  /* the name of its folder; NULL: none */
	struct track *tracks;
	size_t n_tracks, cap_tracks;
	struct map64 *names; /* address of a live block -> string number of its name */
	struct track host;   /* of pinned host memory; it has no tiling and no totals */
	enum part part;
	/* Events of the begin or of the end, then of the last entry. */
	struct event *queue;
	size_t n_queue, cap_queue, next;
	size_t next_note;
	uint64_t zero, last; /* us: time 0 of the recording, and the time of the last entry */
	bool has_times;
	uint64_t now;	      /* ns: time of the last event */
	uint64_t entries;     /* number of entries of all traces */
	uint64_t done;	      /* how many of them have become events */
	uint32_t autograd;    /* number of the thread of allocations without Python frames */
	bool optimizes;	      /* an allocation is in an optimizer's step */
	bool in_optimizer;    /* the last allocation with frames is in an optimizer's step */
	bool has_steps;	      /* annotations or the trace's period tell when a step ends */
	struct period period; /* of one track's trace */
	size_t period_track, next_start;
	uint64_t events;
	bool ends_with_oom;
};

/* ---- reading ---- */

bool torch_snapshot__is(const uint8_t *first, size_t n)
{
	static const uint8_t zstd[] = { 0x28, 0xb5, 0x2f, 0xfd };

	if (n < 2)
		return false;
	if (first[0] == 0x80) /* a pickle of protocol 2 to 5 */
		return first[1] >= 2 && first[1] <= 5;
	if (first[0] == 0x1f && first[1] == 0x8b) /* gzip */
		return true;
	if (n >= sizeof(zstd) && !memcmp(first, zstd, sizeof(zstd)))
		return true;
	/* protocol 0 and 1, or JSON */
	return (first[0] == '(' && (first[1] == 'd' || first[1] == 'l')) ||
	       memchr("{[}]", first[0], 4) != NULL;
}

struct reading {
	struct inflow in;
	struct progress progress;
	struct records *records;
};

static int on_part(void *ctx)
{
	struct reading *r = ctx;

	progress__at(&r->progress, r->in.position, r->records->n_entries);
	return room__check();
}

/* Reads the whole input into v. */
static int read_input(struct reading *r, struct nested *v)
{
	if (!inflow__fill(&r->in, 2))
		return r->in.err ?: -EBADMSG;
	if (*r->in.at == '{' || *r->in.at == '[')
		return unjson__run(&r->in, v, on_part, r);
	return unpickle__run(&r->in, v, on_part, r);
}

/* Reads the contents into s->r. Returns as torch_snapshot__read(). */
static int read_contents(struct torch_snapshot *s, struct reading *reading, const char **why)
{
	struct nested v;
	value top;
	int err;

	nested__init(&v, &s->r);
	err = read_input(reading, &v) ?: nested__finish(&v, &top);
	*why = v.why;
	if (!*why)
		*why = reading->in.why ?: "it is empty";
	nested__free(&v);
	/* torch.cuda.memory_snapshot() returns a list of segments. */
	if (!err && value__kind(top) == VALUE_LIST)
		s->r.top.segments = top;
	if (err != -ENOSPC)
		return err;
	*why = "it has more names or stacks than a recording can have";
	return -EBADMSG;
}

/* The list that a value is; NULL: it is something else. */
static const struct value_list *list_of(const struct torch_snapshot *s, value v)
{
	return value__kind(v) == VALUE_LIST ? &s->r.lists[value__number(v)] : NULL;
}

/* Keeps the segments that the snapshot lists, each once. Others, such as those of pinned memory,
 * are no memory of a device. */
static void keep_listed(struct records *r, const struct value_list *listed)
{
	size_t n = 0;

	for (size_t i = 0; listed && i < listed->n; i++) {
		value v = value_list__at(listed, i);

		if (value__kind(v) == VALUE_SEGMENT)
			r->segments[value__number(v)].listed = true;
	}
	for (size_t i = 0; i < r->n_segments; i++)
		if (r->segments[i].listed)
			r->segments[n++] = r->segments[i];
	r->n_segments = n;
}

/* ---- tracks ---- */

/* Adds the track of a device. NULL: no memory. */
static struct track *add_track(struct torch_snapshot *s, uint32_t device)
{
	if (array__grow(&s->tracks, &s->cap_tracks, s->n_tracks + 1, sizeof(*s->tracks)))
		return NULL;
	s->tracks[s->n_tracks] = (struct track){
		.device = { .type = DEVICE_CUDA, .index = (uint8_t)device },
	};
	return &s->tracks[s->n_tracks++];
}

/* True if the device has segments at the end. */
static bool has_segments(const struct torch_snapshot *s, uint32_t device)
{
	for (size_t i = 0; i < s->r.n_segments; i++)
		if (s->r.segments[i].device == device)
			return true;
	return false;
}

static bool in_optimizer(const struct torch_snapshot *s, uint32_t stack)
{
	return stack < s->r.n_optimizer && s->r.optimizer[stack];
}

/* Counts an entry, and finds the earliest and the latest time of all traces. */
static void look_at_entry(struct torch_snapshot *s, const struct snapshot_entry *e)
{
	s->entries++;
	if (e->time && (!s->has_times || e->time < s->zero))
		s->zero = e->time;
	s->has_times |= e->time;
	s->last = e->time > s->last ? e->time : s->last;
}

/* Looks at the entries of a device's trace. */
static void look_at_trace(struct torch_snapshot *s, struct track *t)
{
	for (size_t i = 0; i < t->trace->n; i++) {
		value v = value_list__at(t->trace, i);
		const struct snapshot_entry *e;

		if (value__kind(v) != VALUE_ENTRY)
			continue;
		e = &s->r.entries[value__number(v)];
		look_at_entry(s, e);
		t->completes |= e->action == ACTION_FREE_COMPLETED;
		t->allocations += e->action == ACTION_ALLOC;
		if (e->action >= ACTION_SEGMENT_ALLOC && e->action <= ACTION_SEGMENT_UNMAP)
			t->last_moved = i + 1;
		s->optimizes |= e->action == ACTION_ALLOC && in_optimizer(s, e->stack);
	}
}

/* Finds the trace of pinned host memory. */
static void find_host(struct torch_snapshot *s)
{
	struct track *t = &s->host;

	t->device = (struct device){ .type = DEVICE_CUDA, .index = DEVICE_UNKNOWN };
	t->trace = list_of(s, s->r.top.host_traces);
	for (size_t i = 0; t->trace && i < t->trace->n; i++) {
		value v = value_list__at(t->trace, i);

		if (value__kind(v) == VALUE_ENTRY)
			look_at_entry(s, &s->r.entries[value__number(v)]);
	}
}

/* True if an earlier device has the same list: one that is referred to again is no other trace. */
static bool has_track_of(const struct torch_snapshot *s, const struct value_list *trace)
{
	for (size_t i = 0; i < s->n_tracks; i++)
		if (s->tracks[i].trace == trace)
			return true;
	return false;
}

/* Makes a track for each device with a segment or a trace. */
static int find_tracks(struct torch_snapshot *s)
{
	const struct value_list *traces = list_of(s, s->r.top.traces), *trace;

	for (uint32_t i = 0; i < DEVICES_MOST; i++) {
		struct track *t;

		trace = traces && i < traces->n ? list_of(s, value_list__at(traces, i)) : NULL;
		if (trace && has_track_of(s, trace))
			trace = NULL;
		if (!trace && !has_segments(s, i))
			continue;
		t = add_track(s, i);
		if (!t)
			return -ENOMEM;
		t->trace = trace;
		if (trace)
			look_at_trace(s, t);
	}
	return 0;
}

/* Finds the steps of a trace without an optimizer: of the device with most allocations. Returns as
 * period__find(). */
static int find_period(struct torch_snapshot *s)
{
	size_t best = 0;
	int err;

	if (s->has_steps || s->optimizes || !s->n_tracks)
		return 0;
	for (size_t i = 0; i < s->n_tracks; i++)
		if (s->tracks[i].allocations > s->tracks[best].allocations)
			best = i;
	if (!s->tracks[best].allocations)
		return 0;
	s->period_track = best;
	err = period__find(&s->r, s->tracks[best].trace, &s->period);
	s->has_steps = s->period.n;
	return err;
}

/* ---- events ---- */

/* Adds an event of now to the queue. NULL: no memory. */
static struct event *add_event(struct torch_snapshot *s, const struct track *t,
			       enum event_kind kind)
{
	struct event *e;

	if (array__grow(&s->queue, &s->cap_queue, s->n_queue + 1, sizeof(*s->queue)))
		return NULL;
	e = &s->queue[s->n_queue++];
	*e = (struct event){ .kind = kind, .device = t->device, .time = s->now };
	return e;
}

/* Sets the totals of the device after the event. */
static void set_totals(const struct track *t, struct event *e)
{
	e->totals = true;
	e->allocated = t->allocated;
	e->reserved = t->reserved;
}

/* Sets the pool. pool_no: number + 1; 0: unknown. */
static void set_pool(const struct torch_snapshot *s, struct event *e, uint32_t pool_no)
{
	if (!pool_no)
		return;
	e->pool[0] = s->r.pairs[pool_no - 1].a;
	e->pool[1] = s->r.pairs[pool_no - 1].b;
}

/* Sets the stack of an allocation. */
static void set_stack(const struct torch_snapshot *s, struct event *e, uint32_t stack,
		      bool no_frames)
{
	e->stack = stack;
	e->walk = stack ? MT_WALK_OK : MT_WALK_OFF;
	if (stack && stack < s->r.n_nodes)
		e->node = s->r.nodes[stack];
	if (!no_frames)
		return;
	/* PyTorch reads the frames of the thread's Python state: autograd's own threads have none. */
	e->walk = MT_WALK_NO_FRAME;
	e->thread = s->autograd;
}

/* Sets the autograd node that our own export has; 0: it has none. */
static void set_node(struct event *e, uint32_t node)
{
	if (node)
		e->node = node;
}

/* The program's text is the name of the block that is at the address now. A later text is added. */
static int name_block(struct torch_snapshot *s, const struct track *t, uint64_t addr, uint64_t size,
		      uint32_t metadata)
{
	struct event *e;
	uint64_t before = 0;
	uint32_t joined;

	if (!metadata)
		return 0;
	map64__get(s->names, addr, &before);
	joined = records__join(&s->r, (uint32_t)before, metadata);
	if (joined == UINT32_MAX) /* the dict is full */
		joined = metadata;
	e = add_event(s, t, EVENT_TENSOR);
	if (!e || map64__set(s->names, addr, joined))
		return -ENOMEM;
	e->addr = addr;
	e->size = size;
	e->name = joined;
	return 0;
}

/* The list_ functions add the events of a state. They return 0 or -ENOMEM. */
static int list_segment(struct torch_snapshot *s, const struct track *t,
			const struct origin_segment *o)
{
	struct event *e = add_event(s, t, EVENT_SEGMENT);

	if (!e)
		return -ENOMEM;
	e->addr = o->addr;
	e->size = o->size;
	e->cuda_stream = o->stream;
	e->flags = o->small ? SEGMENT_SMALL : 0;
	e->flags |= o->mapped ? SEGMENT_EXPANDABLE : 0;
	set_pool(s, e, o->pool_no);
	return 0;
}

static int list_block(struct torch_snapshot *s, const struct track *t, const struct origin_block *o)
{
	struct event *e = add_event(s, t, EVENT_BLOCK);

	if (!e)
		return -ENOMEM;
	e->addr = o->addr;
	e->size = o->size;
	e->requested = o->requested;
	e->cuda_stream = o->stream;
	e->flags = o->waits ? BLOCK_PENDING : 0;
	/* PyTorch writes empty frames also for what came before the history. */
	if (o->stack)
		set_stack(s, e, o->stack, /*no_frames=*/false);
	set_node(e, o->node);
	return o->waits ? 0 : name_block(s, t, o->addr, o->size, o->metadata);
}

/* Ends the list of a device's blocks and segments with its totals. flags: STATE_EXACT or
 * STATE_SEGMENTS_EXACT. 0 or -ENOMEM. */
static int list_state(struct torch_snapshot *s, const struct track *t, uint8_t flags)
{
	struct event *e = add_event(s, t, EVENT_STATE);

	if (!e)
		return -ENOMEM;
	e->flags = flags;
	set_totals(t, e);
	return 0;
}

/* Adds a segment from before the history to the track's tiling: its borders, its blocks, and the
 * gaps between them. *k: index of its first block; becomes that of the next segment's. */
static int tile_segment(struct track *t, const struct origin *o, const struct origin_segment *g,
			size_t *k)
{
	uint64_t at = g->addr, end = g->addr + g->size;

	if (tiling__add_borders(t->tiling, g->addr, g->size, g->mapped))
		return -ENOMEM;
	for (; *k < o->n_blocks && o->blocks[*k].addr < end; ++*k) {
		const struct origin_block *b = &o->blocks[*k];

		if (tiling__know_block(t->tiling, b->addr, b->size, b->waits))
			return -ENOMEM;
		if (b->addr < at)
			continue;
		if (tiling__add_gap(t->tiling, at, b->addr - at))
			return -ENOMEM;
		at = b->addr + b->size;
	}
	if (g->mapped)
		tiling__set_expandable(t->tiling);
	return at < end ? tiling__add_gap(t->tiling, at, end - at) : 0;
}

/* Adds the events of the state at the begin of a trace, and fills the track's tiling with it.
 * Returns 0 or -ENOMEM. */
static int list_origin(struct torch_snapshot *s, struct track *t, const struct origin *o)
{
	size_t k = 0;
	int err = 0;

	for (size_t i = 0; i < o->n_segments && !err; i++)
		err = list_segment(s, t, &o->segments[i])
			      ?: tile_segment(t, o, &o->segments[i], &k);
	/* A trace that was cut out of a longer one may take a segment after the blocks in it. */
	for (; k < o->n_blocks && !err; k++)
		err = tiling__know_block(t->tiling, o->blocks[k].addr, o->blocks[k].size,
					 o->blocks[k].waits);
	for (size_t i = 0; i < o->n_blocks && !err; i++)
		err = list_block(s, t, &o->blocks[i]);
	if (err)
		return err;
	t->allocated = o->allocated;
	t->reserved = o->reserved;
	return list_state(s, t, o->rounded ? STATE_SEGMENTS_EXACT : STATE_EXACT);
}

/* Makes the events of a device's state at the begin of its trace. */
static int begin_track(struct torch_snapshot *s, struct track *t)
{
	static const struct value_list nothing;
	struct origin o = { 0 };
	int err;

	t->tiling = tiling__new(&s->r.settings);
	if (!t->tiling)
		return -ENOMEM;
	err = origin__find(&s->r, t->trace ?: &nothing, t->device.index, &o);
	if (!err)
		err = list_origin(s, t, &o);
	origin__free(&o);
	return err;
}

/* Makes the events of the blocks that the program has freed, and that a stream still uses. */
static int list_waiting(struct torch_snapshot *s, const struct track *t)
{
	uint64_t addr, size;
	size_t pos = 0;

	while (tiling__next_waiting(t->tiling, &pos, &addr, &size)) {
		struct event *e = add_event(s, t, EVENT_BLOCK);

		if (!e)
			return -ENOMEM;
		e->addr = addr;
		e->size = e->requested = size;
		e->flags = BLOCK_PENDING;
	}
	return 0;
}

/* Makes the event of the role and the name that our own export gives to a block. */
static int list_role(struct torch_snapshot *s, const struct track *t, uint64_t addr,
		     const struct snapshot_block *b)
{
	struct event *e;

	if (!b->role && !b->metadata)
		return 0;
	e = add_event(s, t, EVENT_TENSOR);
	if (!e)
		return -ENOMEM;
	e->addr = addr;
	e->size = b->size;
	e->name = b->metadata;
	e->category = b->role;
	e->flags = b->inferred ? TENSOR_INFERRED : 0;
	return 0;
}

/* Does so for all blocks of a segment. */
static int list_roles_in(struct torch_snapshot *s, const struct track *t,
			 const struct snapshot_segment *g)
{
	uint64_t addr = g->addr;

	for (size_t i = 0; i < g->blocks.n; i++) {
		value v = value_list__at(&g->blocks, i);
		const struct snapshot_block *b;

		if (value__kind(v) != VALUE_BLOCK)
			continue;
		b = &s->r.blocks[value__number(v)];
		if (list_role(s, t, addr, b))
			return -ENOMEM;
		addr += b->size;
	}
	return 0;
}

/* Makes the events of the roles of the blocks at the end. */
static int list_roles(struct torch_snapshot *s, const struct track *t)
{
	int err = 0;

	for (size_t i = 0; i < s->r.n_segments && !err; i++)
		if (s->r.segments[i].device == t->device.index)
			err = list_roles_in(s, t, &s->r.segments[i]);
	return err;
}

static uint8_t exactness(const struct track *t)
{
	return tiling__guessed(t->tiling) ? STATE_SEGMENTS_EXACT : STATE_EXACT;
}

/* Makes the events of a device's state at its end, which name the pools of all segments. */
static int end_track(struct torch_snapshot *s, const struct track *t)
{
	int err = list_waiting(s, t);

	for (size_t i = 0; i < s->r.n_segments && !err; i++) {
		const struct snapshot_segment *g = &s->r.segments[i];
		struct origin_segment o = { .addr = g->addr,
					    .size = g->size,
					    .stream = g->stream,
					    .pool_no = g->pool_no,
					    .small = g->small,
					    .mapped = g->expandable };

		if (g->device == t->device.index)
			err = list_segment(s, t, &o);
	}
	return err ? err : list_state(s, t, exactness(t));
}

/* ---- entries ---- */

static int add_step(struct torch_snapshot *s, const struct track *t)
{
	struct event *e = add_event(s, t, EVENT_STEP);

	if (!e)
		return -ENOMEM;
	set_totals(t, e);
	return 0;
}

/* An optimizer's step has ended when an allocation with frames comes from elsewhere. */
static int note_optimizer(struct torch_snapshot *s, const struct track *t, uint32_t stack)
{
	bool ends = s->in_optimizer && !in_optimizer(s, stack);

	if (!stack || s->has_steps)
		return 0;
	s->in_optimizer = in_optimizer(s, stack);
	return ends ? add_step(s, t) : 0;
}

/* Ends a step of the trace's period before the entry that begins the next one. The first step ends
 * nothing if the trace begins with it. */
static int note_period(struct torch_snapshot *s, const struct track *t)
{
	const struct period *p = &s->period;

	if (s->next_start == p->n || t != &s->tracks[s->period_track] ||
	    t->at - 1 != p->starts[s->next_start])
		return 0;
	return s->next_start++ || !p->begins ? add_step(s, t) : 0;
}

/* The rest of the trace may be a whole step. */
static int end_period(struct torch_snapshot *s)
{
	return s->period.ends ? add_step(s, &s->tracks[s->period_track]) : 0;
}

/* The on_ functions add the events of an entry. They return 0 or -ENOMEM. */
static int on_alloc(struct torch_snapshot *s, struct track *t, const struct snapshot_entry *entry)
{
	uint64_t size = entry->block, before;
	struct event *e;

	if (note_optimizer(s, t, entry->stack) || note_period(s, t) ||
	    tiling__add_block(t->tiling, entry->addr, entry->size, &size, &before))
		return -ENOMEM;
	t->allocated += size - before;
	e = add_event(s, t, EVENT_ALLOC);
	if (!e)
		return -ENOMEM;
	e->addr = entry->addr;
	e->size = size;
	set_stack(s, e, entry->stack, entry->no_frames);
	set_node(e, entry->node);
	set_totals(t, e);
	e = add_event(s, t, EVENT_REQUESTED);
	if (!e)
		return -ENOMEM;
	e->addr = entry->addr;
	e->requested = entry->size < size ? entry->size : size;
	e->cuda_stream = entry->stream;
	map64__del(s->names, entry->addr, /*old=*/NULL); /* its free may be missing */
	return name_block(s, t, entry->addr, size, entry->metadata);
}

static int on_free(struct torch_snapshot *s, struct track *t, const struct snapshot_entry *entry)
{
	struct event *e;
	uint64_t size;

	map64__del(s->names, entry->addr, /*old=*/NULL);
	if (tiling__free_block(t->tiling, entry->addr, &size) ||
	    (!t->completes && tiling__reuse_block(t->tiling, entry->addr)))
		return -ENOMEM;
	t->allocated -= size;
	e = add_event(s, t, EVENT_FREE);
	if (!e)
		return -ENOMEM;
	e->addr = entry->addr;
	e->size = size;
	set_totals(t, e);
	return 0;
}

/* The memory of a block whose free_requested is missing ends here, too. */
static int on_reuse(struct torch_snapshot *s, struct track *t, const struct snapshot_entry *entry)
{
	uint64_t size;
	int err = tiling__free_block(t->tiling, entry->addr, &size);
	struct event *e;

	map64__del(s->names, entry->addr, /*old=*/NULL);
	if (err)
		return err;
	if (!size) /* free_requested has ended the block */
		return tiling__reuse_block(t->tiling, entry->addr);
	t->allocated -= size;
	e = add_event(s, t, EVENT_FREE);
	if (!e)
		return -ENOMEM;
	e->addr = entry->addr;
	e->size = size;
	set_totals(t, e);
	return tiling__reuse_block(t->tiling, entry->addr);
}

/* The allocator took memory from the driver: a segment, or if mapped a part of an expandable one. 0
 * or -ENOMEM. */
static int on_taken(struct torch_snapshot *s, struct track *t, const struct snapshot_entry *entry,
		    bool mapped)
{
	struct event *e = add_event(s, t, EVENT_CUDA_ALLOC);

	if (!e || tiling__add_segment(t->tiling, entry->addr, entry->size, mapped))
		return -ENOMEM;
	if (mapped)
		tiling__set_expandable(t->tiling);
	t->reserved += entry->size;
	e->addr = entry->addr;
	e->size = entry->size;
	e->how = mapped ? MEM_MAPPED : MEM_DEVICE;
	e->flags = MEM_BY_ALLOCATOR;
	set_stack(s, e, entry->stack, entry->no_frames);
	return 0;
}

static int on_given_back(struct torch_snapshot *s, struct track *t,
			 const struct snapshot_entry *entry, bool mapped)
{
	struct event *e = add_event(s, t, EVENT_CUDA_FREE);

	if (!e || tiling__drop_segment(t->tiling, entry->addr, entry->size, mapped))
		return -ENOMEM;
	t->reserved -= entry->size < t->reserved ? entry->size : t->reserved;
	e->addr = entry->addr;
	e->size = entry->size;
	e->how = mapped ? MEM_MAPPED : MEM_DEVICE;
	e->flags = MEM_BY_ALLOCATOR;
	return 0;
}

/* Memory that PyTorch's cache of pinned host memory takes from CUDA and returns. */
static int on_pinned(struct torch_snapshot *s, const struct snapshot_entry *entry)
{
	bool takes = entry->action == ACTION_SEGMENT_ALLOC;
	struct event *e;

	if (!takes && entry->action != ACTION_SEGMENT_FREE)
		return 0;
	e = add_event(s, &s->host, takes ? EVENT_CUDA_ALLOC : EVENT_CUDA_FREE);
	if (!e)
		return -ENOMEM;
	e->addr = entry->addr;
	e->size = entry->size;
	e->how = MEM_HOST;
	if (takes)
		set_stack(s, e, entry->stack, entry->no_frames);
	return 0;
}

/* Makes the events of the host memory that was pinned before the history. */
static int begin_pinned(struct torch_snapshot *s)
{
	struct pinned_range *all;
	size_t n;
	int err = pinned__before(&s->r, s->host.trace, list_of(s, s->r.top.host_segments), &all,
				 &n);

	if (err)
		return err;
	for (size_t i = 0; i < n && !err; i++) {
		const struct snapshot_entry e = { .action = ACTION_SEGMENT_ALLOC,
						  .addr = all[i].addr,
						  .size = all[i].size,
						  .stack = all[i].stack };

		err = on_pinned(s, &e);
	}
	free(all);
	return err;
}

/* Makes the events of a device's state in the middle. Segments that stay until the end have their
 * pools there. */
static int list_now(struct torch_snapshot *s, struct track *t)
{
	if (t->listings++ >= LISTINGS_MOST)
		return 0;
	if (t->at > t->last_moved)
		return end_track(s, t);
	return list_waiting(s, t) ?: list_state(s, t, exactness(t));
}

static int on_oom(struct torch_snapshot *s, struct track *t, const struct snapshot_entry *entry)
{
	struct event *e;

	if (list_now(s, t))
		return -ENOMEM;
	/* PyTorch writes the free bytes of the device; -1: not known. */
	if (entry->addr <= INT64_MAX) {
		e = add_event(s, t, EVENT_LEFT);
		if (!e)
			return -ENOMEM;
		e->size = entry->addr;
	}
	e = add_event(s, t, EVENT_OOM);
	if (!e)
		return -ENOMEM;
	e->size = entry->size;
	set_stack(s, e, entry->stack, entry->no_frames);
	set_node(e, entry->node);
	set_totals(t, e);
	return 0;
}

static int on_entry(struct torch_snapshot *s, struct track *t, const struct snapshot_entry *entry)
{
	if (t == &s->host)
		return on_pinned(s, entry);
	if (entry->action != ACTION_SNAPSHOT)
		s->ends_with_oom = entry->action == ACTION_OOM;
	switch (entry->action) {
	case ACTION_ALLOC:
		return on_alloc(s, t, entry);
	case ACTION_FREE_REQUESTED:
		return on_free(s, t, entry);
	case ACTION_FREE_COMPLETED:
		return on_reuse(s, t, entry);
	case ACTION_SEGMENT_ALLOC:
	case ACTION_SEGMENT_MAP:
		return on_taken(s, t, entry, entry->action == ACTION_SEGMENT_MAP);
	case ACTION_SEGMENT_FREE:
	case ACTION_SEGMENT_UNMAP:
		return on_given_back(s, t, entry, entry->action == ACTION_SEGMENT_UNMAP);
	case ACTION_OOM:
		return on_oom(s, t, entry);
	case ACTION_ANNOTATE:
		return name_block(s, t, entry->addr, entry->size, entry->metadata);
	}
	return 0;
}

/* The time of an entry or annotation, ns. Without times in the file, each entry takes a
 * microsecond. */
static uint64_t time_of(const struct torch_snapshot *s, uint64_t time)
{
	uint64_t us = s->done;

	if (s->has_times)
		us = time > s->zero ? time - s->zero : 0;
	return us < STREAM_MOST / 1000 ? us * 1000 : STREAM_MOST;
}

/* Sets the time of the next events. time: of their entry or annotation. Clocks are set: events do
 * not go back. */
static void set_now(struct torch_snapshot *s, uint64_t time)
{
	uint64_t now = time_of(s, time);

	s->now = now > s->now ? now : s->now;
}

/* Returns the track's next entry, or NULL at its end. */
static const struct snapshot_entry *entry_at(const struct torch_snapshot *s, struct track *t)
{
	for (; t->trace && t->at < t->trace->n; t->at++) {
		value v = value_list__at(t->trace, t->at);

		if (value__kind(v) == VALUE_ENTRY)
			return &s->r.entries[value__number(v)];
	}
	return NULL;
}

/* ---- annotations ---- */

/* The track of a device; the first one if it has none. */
static struct track *track_of(struct torch_snapshot *s, uint32_t device)
{
	for (size_t i = 0; i < s->n_tracks; i++)
		if (s->tracks[i].device.index == device)
			return &s->tracks[i];
	return &s->tracks[0];
}

static bool starts_with(const struct torch_snapshot *s, const struct snapshot_note *n,
			const char *start)
{
	return text__starts(dict__str(s->r.dict, n->name), start);
}

/* Makes the event of an annotation: the end of an optimizer's step, or a mark with the name that
 * the program gave to a stretch. */
static int on_note(struct torch_snapshot *s, const struct snapshot_note *n)
{
	const struct track *t = track_of(s, n->device);
	bool step = n->ends && starts_with(s, n, STEP_NOTE);
	struct event *e;

	if (!step &&
	    (n->ends || starts_with(s, n, OPTIMIZER_NOTE) || starts_with(s, n, LOADER_NOTE)))
		return 0;
	set_now(s, n->time);
	e = add_event(s, t, step ? EVENT_STEP : EVENT_MARK);
	if (!e)
		return -ENOMEM;
	if (step)
		set_totals(t, e);
	else
		e->name = n->name;
	return 0;
}

/* Makes the events of the annotations before this time, us. */
static int notes_until(struct torch_snapshot *s, uint64_t time)
{
	int err = 0;

	while (s->next_note < s->r.n_notes && s->r.notes[s->next_note].time < time && !err)
		err = on_note(s, &s->r.notes[s->next_note++]);
	return err;
}

/* Without times, an annotation has no place in the trace. */
static void look_at_notes(struct torch_snapshot *s)
{
	if (!s->has_times)
		s->r.n_notes = 0;
	for (size_t i = 0; i < s->r.n_notes; i++) {
		const struct snapshot_note *n = &s->r.notes[i];

		s->has_steps |= n->ends && n->time >= s->zero && starts_with(s, n, STEP_NOTE);
	}
	while (s->next_note < s->r.n_notes && s->r.notes[s->next_note].time < s->zero)
		s->next_note++;
}

/* Makes the events of the next entry of all traces, in order of time. Returns 1, 0 at the end, or
 * -ENOMEM. */
static int next_entry(struct torch_snapshot *s)
{
	const struct snapshot_entry *first = NULL, *e;
	struct track *from = NULL;
	int err;

	for (size_t i = 0; i <= s->n_tracks; i++) {
		struct track *t = i < s->n_tracks ? &s->tracks[i] : &s->host;

		e = entry_at(s, t);
		if (!e || (first && e->time >= first->time))
			continue;
		first = e;
		from = t;
	}
	if (!first)
		return 0;
	err = notes_until(s, first->time);
	if (err)
		return err;
	set_now(s, first->time);
	from->at++;
	s->done++;
	err = on_entry(s, from, first);
	return err ? err : 1;
}

/* ---- facts ---- */

/* Sets the fact about PyTorch's settings. Returns 0 or the error of facts__set(). */
static int set_conf(const struct torch_snapshot *s)
{
	value v;

	if (!s->r.settings.conf_no)
		return 0;
	v = value__of(VALUE_TEXT, s->r.settings.conf_no - 1);
	return facts__set(s->facts, "alloc_conf", records__string(&s->r, v));
}

/* Reads the number after a word: "rank3", "rank_3", "rank-3". A long number is a time or a
 * process. */
static bool number_after(const char *name, const char *word, uint64_t *number)
{
	const char *s = name;

	while ((s = strcasestr(s, word))) {
		const char *end = s + strlen(word);
		bool begins = s == name || !isalpha((unsigned char)s[-1]);

		end += *end && strchr("_-=", *end) != NULL;
		s++;
		if (begins && facts__digits(&end, number) && *number < RANK_END)
			return true;
	}
	return false;
}

/* Skips a date in "snapshot_2026-11-30-06-15_3.pickle". */
static const char *after_date(const char *s)
{
	size_t n = strspn(s, "0123456789-");

	return n >= 10 && s[4] == '-' && s[n] == '_' ? s + n + 1 : s;
}

/* Reads the rank in the name of a snapshot or of its folder, as frameworks write it:
 * "rank3_memory_snapshot.pickle" of torchtitan, "oom_rank-3_snapshot.pickle" of Megatron-LM,
 * "1764.5-TP-3-memory.pickle" of SGLang, "oom_rank3/snapshot.pickle" of torchtnt. */
static bool rank_in(const char *name, uint64_t *rank)
{
	return number_after(name, "rank", rank) || number_after(name, "TP", rank);
}

/* The number in "snapshot_3.pickle" may be that of a rank or of a step. */
static bool number_in(const char *name, uint64_t *number)
{
	const char *s = strcasestr(name, "snapshot_");

	if (!s)
		return false;
	s = after_date(s + strlen("snapshot_"));
	return facts__digits(&s, number) && *s == '.' && *number < RANK_END;
}

/* Sets the facts about the rank, if the file's name has it. Returns 0 or not 0. */
static int set_rank(const struct torch_snapshot *s)
{
	uint64_t rank;

	if (rank_in(s->name, &rank) || (s->folder && rank_in(s->folder, &rank)))
		return facts__setf(s->facts, "rank", "%" PRIu64, rank) |
		       facts__set(s->facts, "rank_from", "file name");
	if (!number_in(s->name, &rank))
		return 0;
	return facts__setf(s->facts, "rank", "%" PRIu64, rank) |
	       facts__set(s->facts, "rank_from", "number in the file name") |
	       sketch__set(&s->r, s->has_times ? s->zero : 0, s->last, s->facts);
}

/* Says how the steps were found, in the facts. Returns 0 or -ENOMEM. */
static int set_steps(const struct torch_snapshot *s)
{
	static const char *const periods[] = {
		[PERIOD_UNKNOWN] = "unknown",
		[PERIOD_LIKELY] = "likely period",
		[PERIOD_SURE] = "period",
	};
	const char *from = periods[s->period.confidence];

	if (!s->entries)
		return 0;
	/* has_steps without a period: annotations of optimizers tell them */
	if (s->optimizes || (s->has_steps && !s->period.n))
		from = "optimizer";
	/* Its first step begins with the trace. */
	if (s->period.begins && facts__set(s->facts, "window_begins", "step"))
		return -ENOMEM;
	return facts__set(s->facts, "steps_from", from);
}

/* Says where the roles are from: our own exports have those of the program's objects. */
static int set_roles(const struct torch_snapshot *s)
{
	const char *from = "frames";

	for (size_t i = 0; i < s->r.n_blocks; i++)
		if (s->r.blocks[i].role && !s->r.blocks[i].inferred)
			from = "objects";
	return facts__set(s->facts, "roles_from", from);
}

/* True if each trace tells when the memory of a freed block can be used again. */
static bool completes(const struct torch_snapshot *s)
{
	for (size_t i = 0; i < s->n_tracks; i++)
		if (s->tracks[i].trace && !s->tracks[i].completes)
			return false;
	return true;
}

/* Sets the facts that are known at the begin. Returns 0 or -ENOMEM. */
static int set_first_facts(const struct torch_snapshot *s)
{
	char when[40];
	int err = set_rank(s) | facts__set(s->facts, "version", MEMTRACE_VERSION) |
		  facts__set(s->facts, "source", "snapshot") |
		  facts__set(s->facts, "attached_at", "history") |
		  facts__set(s->facts, "allocator", "native");

	if (s->has_times && s->zero < STREAM_MOST / 1000)
		err |= facts__set(s->facts, "start",
				  text__date(when, sizeof(when), s->zero * 1000));
	err |= set_steps(s) | set_roles(s);
	if (completes(s))
		err |= facts__set(s->facts, "pending", "1");
	/* A conf with odd characters is no reason to read nothing. */
	err |= set_conf(s) == -ENOMEM;
	return err ? -ENOMEM : 0;
}

/* Sets the facts that are known at the end. Returns 0 or -ENOMEM. */
static int set_last_facts(const struct torch_snapshot *s)
{
	int err = facts__setf(s->facts, "duration_ns", "%" PRIu64, s->now) |
		  facts__setf(s->facts, "events", "%" PRIu64, s->events) |
		  facts__set(s->facts, "lost", "0");

	if (s->ends_with_oom)
		err |= facts__set(s->facts, "stop_reason", "oom");
	return err ? -ENOMEM : 0;
}

/* ---- all ---- */

/* Makes the tracks, and the events of the state at their begin. Returns 0, -ENOMEM or -ENOSPC
 * (origin.c). */
static int begin(struct torch_snapshot *s)
{
	uint32_t name = dict__string(s->r.dict, AUTOGRAD_THREAD, strlen(AUTOGRAD_THREAD));
	int err;

	find_host(s);
	err = begin_pinned(s);
	keep_listed(&s->r, list_of(s, s->r.top.segments));
	err = err ? err : find_tracks(s);
	look_at_notes(s);
	err = err ? err : find_period(s);
	if (name == UINT32_MAX)
		return -ENOMEM;
	s->autograd = dict__thread(s->r.dict, (struct dict_thread){ .name = name });
	if (s->autograd == UINT32_MAX)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_tracks && !err; i++)
		err = begin_track(s, &s->tracks[i]);
	return err ? err : set_first_facts(s);
}

/* Notes the names of the file and of its folder. Returns 0 or -ENOMEM. */
static int set_names(struct torch_snapshot *s, const char *path)
{
	const char *base = strrchr(path, '/'), *folder = base;

	s->name = base ? base + 1 : path;
	if (!base)
		return 0;
	while (folder > path && folder[-1] != '/')
		folder--;
	s->folder = strndup(folder, (size_t)(base - folder));
	return s->folder ? 0 : -ENOMEM;
}

/* Reads the file, and finds the state at its begin. */
static int read_all(struct torch_snapshot *s, struct reading *reading, const char *path,
		    uint64_t size, const char **why)
{
	char what[96];
	int err = set_names(s, path);

	if (err)
		return err;
	snprintf(what, sizeof(what), "reading %s", s->name);
	reading->progress = progress__begin(what, size, "entries");
	err = read_contents(s, reading, why);
	progress__end(&reading->progress);
	if (err)
		return err;
	err = begin(s);
	if (err == -ENOSPC) {
		*why = "its trace takes and returns too many segments at odd places";
		return -EBADMSG;
	}
	if (err || s->n_tracks)
		return err;
	*why = "it is no memory snapshot of PyTorch, or one without a segment and an entry";
	return -EBADMSG;
}

int torch_snapshot__read(const char *path, int fd, uint64_t at, uint64_t size, const uint8_t *first,
			 size_t n, struct dict *d, struct facts *f, struct torch_snapshot **ret,
			 const char **why)
{
	struct torch_snapshot *s = calloc(1, sizeof(*s));
	struct reading reading = { .records = s ? &s->r : NULL };
	int err;

	if (!s)
		return -ENOMEM;
	s->facts = f;
	s->names = map64__new();
	err = s->names ? records__init(&s->r, d) : -ENOMEM;
	err = err ?: inflow__open(&reading.in, fd, at, first, n);
	if (!err)
		err = read_all(s, &reading, path, size, why);
	inflow__close(&reading.in);
	if (err)
		torch_snapshot__free(s);
	else
		*ret = s;
	return err;
}

void torch_snapshot__free(struct torch_snapshot *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_tracks; i++)
		tiling__free(s->tracks[i].tiling);
	free(s->tracks);
	map64__free(s->names);
	free(s->queue);
	free(s->folder);
	period__free(&s->period);
	records__free(&s->r);
	free(s);
}

/* Makes more events. Returns 1, 0 at the end, or -ENOMEM. */
static int make_events(struct torch_snapshot *s)
{
	int err;

	s->n_queue = s->next = 0;
	if (s->part == PART_BEGIN)
		s->part = PART_TRACE;
	if (s->part == PART_TRACE) {
		err = next_entry(s);
		if (err)
			return err;
		s->part = PART_END;
		err = notes_until(s, /*time=*/UINT64_MAX) ?: end_period(s);
		for (size_t i = 0; i < s->n_tracks && !err; i++)
			err = list_roles(s, &s->tracks[i]) ?: end_track(s, &s->tracks[i]);
		return err ? err : 1;
	}
	if (s->part == PART_DONE)
		return 0;
	s->part = PART_DONE;
	return set_last_facts(s);
}

int torch_snapshot__some(struct torch_snapshot *s, struct event *e, int most)
{
	int n = 0, more = 1;

	while (n < most && more > 0) {
		if (s->next == s->n_queue) {
			more = make_events(s);
			continue;
		}
		e[n] = s->queue[s->next++];
		s->events += event__counts(&e[n++]);
	}
	return more < 0 ? more : n;
}

uint64_t torch_snapshot__position(const struct torch_snapshot *s)
{
	return s->done;
}

uint64_t torch_snapshot__size(const struct torch_snapshot *s)
{
	return s->entries;
}
