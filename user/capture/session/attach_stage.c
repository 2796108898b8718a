/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/session/stages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/map64.h"
#include "capture/session/attach_state.h"
#include "capture/target.h"
#include "inspect/cudaalloc.h"
#include "record/stream.h"

#define HOLD_MIN 2000000000ULL	  /* ns that events are held, unless the state is exact before */
#define READINGS_MIN 10		  /* readings before giving up: on a busy machine most are torn */
#define HOLD_MAX 10000000000ULL	  /* ns that events are held at most */
#define HELD_MAX (384u << 10)	  /* events held, at most */
#define WHOLE_WITHIN 500000000ULL /* ns that an exact state waits for the kinds of segments */
#define SEGMENTS_EVERY 1000000000ULL /* ns between two readings of segments, at least */
#define SEGMENTS_SHARE 20 /* readings of segments take one part in this many of the time */

struct attach_stage {
	struct sink sink;  /* first: the sink is the stage */
	struct sink *next; /* NULL: events are counted and dropped */
	uint64_t events;   /* passed on so far */
	struct target *target;
	struct facts *facts;
	struct attach_state *held; /* events and readings; NULL once the state is known */
	bool empty;		   /* CUDA was unused at attach: nothing was allocated */
	bool empty_checked[256];   /* by device: its first total was compared with that */
	bool copied;		   /* a forked process whose tables are its parent's */
	uint64_t copies;	   /* events dropped for that */
	unsigned readings, tries;
	bool fresh; /* the reading in held was not compared with the events yet */
	const char *why_torn;
	struct state_seam seam;
	struct cudaalloc_state before; /* read before the probes were attached */
	/* New segments. */
	struct map64 *segments; /* address -> hash of its EVENT_SEGMENT */
	struct hash_seed seed;
	uint64_t moves;	       /* segments taken and given back so far */
	uint64_t moves_passed; /* moves when the segments last passed on were read */
	uint64_t next_read;    /* earliest next reading, ns since start */
	/* A reading that waits for attach_stage__take(). */
	struct cudaalloc_state read;	 /* segments; empty: none */
	uint64_t moves_read, read_begin; /* when it began: moves, and ns since start */
};

/* ---- readings of the tables ---- */

static int read_tables(struct attach_stage *a, struct cudaalloc_state *ret)
{
	struct cudaalloc *alloc = a->target->alloc;
	int err = 0;

	if (!cudaalloc__calibrated(alloc))
		err = cudaalloc__calibrate(alloc);
	if (!err)
		err = cudaalloc__read(alloc, ret);
	if (err == -ESTALE && !cudaalloc__calibrate(alloc))
		err = cudaalloc__read(alloc, ret);
	target__set_backend_fact(a->target, a->facts);
	return err;
}

/* Reads the tables once, and adds that to the state held. 0, or -errno: only -ENOMEM ends the
 * capture. */
static int read_once(struct attach_stage *a)
{
	struct cudaalloc_state r;
	int err = read_tables(a, &r);

	a->tries++;
	if (err) {
		a->why_torn = cudaalloc__why(a->target->alloc);
		return err;
	}
	a->readings++;
	a->why_torn = r.consistent ? "some calls that allocated segments are unknown" : r.why;
	err = attach_state__read(a->held, &r);
	cudaalloc_state__free(&r);
	return err;
}

int attach_stage__hint(struct attach_stage *a)
{
	struct cudaalloc *alloc = a->target->alloc;

	if (!alloc || cudaalloc__backend(alloc) != ALLOC_NATIVE || cudaalloc__devices(alloc) <= 0)
		return 0;
	return read_tables(a, &a->before) == -ENOMEM ? -ENOMEM : 0;
}

int attach_stage__begin(struct attach_stage *a)
{
	struct cudaalloc *alloc = a->target->alloc;
	enum alloc_backend b;
	int devices, err;

	if (!alloc) {
		a->empty = !a->target->torch.cuda;
		return 0;
	}
	devices = cudaalloc__devices(alloc);
	b = cudaalloc__backend(alloc);
	if (b == ALLOC_NONE || (b == ALLOC_NATIVE && devices == 0)) {
		a->empty = true;
		return 0;
	}
	if (b != ALLOC_NATIVE || devices < 0)
		return 0;
	a->held = attach_state__new();
	if (!a->held)
		return -ENOMEM;
	err = attach_state__hint(a->held, a->before.segments, a->before.nsegments);
	cudaalloc_state__free(&a->before);
	/* Read at once: of a segment given back before, only a call without its size is left. */
	if (!err)
		err = read_once(a);
	a->fresh = !err;
	return err == -ENOMEM ? err : 0;
}

int attach_stage__begin_forked(struct attach_stage *a, const struct target *parent)
{
	struct cudaalloc *alloc = a->target->alloc ? a->target->alloc : parent->alloc;

	if (alloc && cudaalloc__backend(alloc) == ALLOC_NATIVE && cudaalloc__devices(alloc) > 0) {
		a->copied = true;
		return 0;
	}
	return attach_stage__begin(a);
}

/* Counts an event and passes it to the capture's sink. */
static int pass_on(struct attach_stage *a, const struct event *e)
{
	a->events += event__counts(e);
	return a->next ? a->next->event(a->next, e) : 0;
}

/* Passes on the state at attach and the events held. Later events pass at once. */
static int end_holding(struct attach_stage *a, int exact)
{
	struct attach_state *held = a->held;
	const struct event *e;
	int err;

	a->held = NULL;
	if (exact > 0)
		log_debug("state at attach: exact after %u readings, %zu events meanwhile",
			  a->readings, attach_state__held(held));
	else
		log_debug("state at attach: not exact after %u readings, %zu events meanwhile: %s",
			  a->readings, attach_state__held(held), a->why_torn);
	err = attach_state__end(held);
	while (!err && (e = attach_state__next(held))) {
		state_seam__emitted(&a->seam, e);
		err = pass_on(a, e);
	}
	attach_state__free(held);
	if (exact > 0)
		facts__set(a->facts, "state", "exact");
	else
		facts__set(a->facts, "state", a->readings ? "approximate" : "none");
	return err;
}

/* True if the state was not found in time: it will not be found later. */
static bool is_overdue(const struct attach_stage *a, uint64_t now)
{
	return (now > HOLD_MIN && (a->tries >= READINGS_MIN || now > HOLD_MAX)) ||
	       attach_state__held(a->held) > HELD_MAX;
}

/* Compares events and readings. read_err: of the last reading; whole: all events up to it came. */
static int judge(struct attach_stage *a, int read_err, bool whole, uint64_t now)
{
	int exact;

	if (!read_err && !whole && !is_overdue(a, now))
		return 0;
	exact = attach_state__exact(a->held);
	if (exact < 0)
		return exact;
	if (!read_err && !whole) {
		a->why_torn = "events from before the reading are still arriving";
		exact = 0;
	}
	/* All blocks are known; a segment's kind is, once it was read from end to end. */
	if (exact && a->readings && !attach_state__segments_whole(a->held) && now < WHOLE_WITHIN)
		return 0;
	/* Before CUDA's first use there is nothing to read: the first events' totals tell. */
	if (exact ? a->readings || attach_state__held(a->held) : is_overdue(a, now))
		return end_holding(a, exact);
	return read_err == -ENOTSUP ? end_holding(a, exact) : 0;
}

/* Reads what was allocated at attach. Returns as attach_stage__read(). */
static int read_state(struct attach_stage *a, uint64_t now)
{
	int err = a->fresh ? 0 : read_once(a);

	if (err == -ENOMEM)
		return err;
	a->fresh = false;
	a->read_begin = now;
	return err ? judge(a, err, false, now) : 1;
}

/* ---- new segments ---- */

static uint64_t segment_hash(const struct attach_stage *a, const struct cuda_segment *g)
{
	uint64_t v[6] = { g->size, g->stream, g->pool[0], g->pool[1], g->small, g->expandable };

	return hash__bytes(a->seed, v, sizeof(v));
}

static int emit_segment(struct attach_stage *a, const struct cuda_segment *g, uint64_t now)
{
	uint64_t hash = segment_hash(a, g), before;
	struct event e = { .kind = EVENT_SEGMENT,
			   .device = { DEVICE_CUDA, g->device },
			   .time = now,
			   .addr = g->addr,
			   .size = g->size,
			   .cuda_stream = g->stream,
			   .pool = { g->pool[0], g->pool[1] } };

	if (!g->whole || (map64__get(a->segments, g->addr, &before) && before == hash))
		return 0;
	if (g->small)
		e.flags |= SEGMENT_SMALL;
	if (g->expandable)
		e.flags |= SEGMENT_EXPANDABLE;
	if (map64__set(a->segments, g->addr, hash))
		return -ENOMEM;
	return pass_on(a, &e);
}

/*
 * The call that takes a segment does not say its stream and pool. A reading counts only if no
 * segment came or went until it is passed on: otherwise it is of another moment of the stream.
 */
static int read_segments(struct attach_stage *a, uint64_t now)
{
	int err;

	cudaalloc_state__free(&a->read); /* left by a failed round */
	err = read_tables(a, &a->read);
	if (err)
		return err == -ENOMEM ? err : 0;
	a->moves_read = a->moves;
	a->read_begin = now;
	return 1;
}

static int take_segments(struct attach_stage *a, bool whole, uint64_t now)
{
	int err = 0;

	a->next_read = now + SEGMENTS_EVERY + (now - a->read_begin) * SEGMENTS_SHARE;
	if (a->moves == a->moves_read && whole) {
		a->moves_passed = a->moves;
		for (size_t i = 0; i < a->read.nsegments && !err; i++)
			err = emit_segment(a, &a->read.segments[i], now);
	}
	cudaalloc_state__free(&a->read);
	return err;
}

static void note_move(struct attach_stage *a, const struct event *e)
{
	a->moves++;
	if (e->how == MEM_MAPPED && e->kind == EVENT_CUDA_FREE)
		map64__clear(a->segments);
	else
		map64__del(a->segments, e->addr, NULL);
}

/* True if segments came or went since they were read, and the tables can be read. */
static bool has_new_segments(const struct attach_stage *a)
{
	return a->target->alloc && a->moves != a->moves_passed &&
	       cudaalloc__backend(a->target->alloc) <= ALLOC_NATIVE;
}

int attach_stage__read(struct attach_stage *a, uint64_t now)
{
	if (a->held)
		return read_state(a, now);
	if (a->moves != a->moves_passed && !a->target->alloc)
		target__backend(a->target, a->facts, now);
	if (!has_new_segments(a) || now < a->next_read)
		return 0;
	a->next_read = now + SEGMENTS_EVERY;
	return read_segments(a, now);
}

int attach_stage__read_last(struct attach_stage *a, uint64_t now)
{
	return !a->held && has_new_segments(a) ? read_segments(a, now) : 0;
}

int attach_stage__take(struct attach_stage *a, bool whole, uint64_t now)
{
	return a->held ? judge(a, 0, whole, a->read_begin) : take_segments(a, whole, now);
}

bool attach_stage__settled(const struct attach_stage *a)
{
	return !a->held;
}

int attach_stage__finish(struct attach_stage *a)
{
	const struct cudaalloc *alloc = a->target->alloc;
	int exact;

	if (a->copies)
		facts__setf(a->facts, "counter.cuda_copies", "%" PRIu64, a->copies);
	target__set_backend_fact(a->target, a->facts);
	if (!facts__get(a->facts, "allocator"))
		facts__set(a->facts, "allocator",
			   alloc && cudaalloc__backend(alloc) == ALLOC_UNKNOWN ? "unknown" : "cpu");
	if (!a->held)
		return 0;
	exact = attach_state__exact(a->held);
	return exact < 0 ? exact : end_holding(a, exact);
}

/* ---- the events ---- */

/* An unused device had nothing allocated: the stream says so before its first event, unless that
 * event's total says otherwise. */
static int emit_empty(struct attach_stage *a, const struct event *first)
{
	struct event e = { .kind = EVENT_STATE,
			   .device = first->device,
			   .totals = true,
			   .flags = STATE_EXACT | STATE_SEGMENTS_EXACT };
	bool was_empty = first->kind == EVENT_ALLOC && first->allocated == first->size;

	if (first->kind == EVENT_OOM)
		was_empty = !first->allocated;
	a->empty_checked[first->device.index] = true;
	return was_empty ? pass_on(a, &e) : 0;
}

static int on_event(struct sink *sink, const struct event *e)
{
	struct attach_stage *a = (struct attach_stage *)sink;
	bool cuda = e->device.type == DEVICE_CUDA && e->device.index != DEVICE_UNKNOWN;

	if (a->copied && cuda && (e->kind == EVENT_ALLOC || e->kind == EVENT_FREE)) {
		a->copies++;
		return 0;
	}
	if ((e->kind == EVENT_CUDA_ALLOC || e->kind == EVENT_CUDA_FREE) &&
	    (e->flags & MEM_BY_ALLOCATOR) && (e->how == MEM_DEVICE || e->how == MEM_MAPPED))
		note_move(a, e);
	if (a->held)
		return attach_state__hold(a->held, e);
	if (state_seam__before(&a->seam, e)) {
		log_debug("dropped an event of cuda:%u: the state at attach contains it",
			  e->device.index);
		return 0;
	}
	if (a->empty && cuda && e->totals && !a->empty_checked[e->device.index]) {
		int err = emit_empty(a, e);

		if (err)
			return err;
	}
	return pass_on(a, e);
}

struct attach_stage *attach_stage__new(struct target *target, struct facts *facts, bool tables)
{
	struct attach_stage *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->sink.event = on_event;
	a->target = target;
	a->facts = facts;
	a->seed = hash__seed();
	a->segments = map64__new();
	if (!a->segments) {
		attach_stage__free(a);
		return NULL;
	}
	if (target->torch.cuda && tables)
		target__open_allocator(target, &target->maps);
	target__set_backend_fact(target, facts);
	return a;
}

void attach_stage__free(struct attach_stage *a)
{
	if (!a)
		return;
	attach_state__free(a->held);
	cudaalloc_state__free(&a->before);
	cudaalloc_state__free(&a->read);
	map64__free(a->segments);
	free(a);
}

void attach_stage__send_to(struct attach_stage *a, struct sink *next)
{
	a->next = next;
}

uint64_t attach_stage__events(const struct attach_stage *a)
{
	return a->events;
}
