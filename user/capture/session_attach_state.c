/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The allocator's own tables: what it held when the probes came, before the first event is handed
 * on; later, of which stream and pool new segments are.
 */
#include "capture/session_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "capture/attach_state.h"
#include "capture/decoder.h"
#include "lib/hash.h"
#include "lib/map64.h"
#include "log/log.h"
#include "process/proc.h"
#include "torch/cudaalloc.h"

#define STATE_WITHIN 2000000000ULL /* ns that events wait for what was before them */
#define STATE_TRIES                                                                                \
	10 /* and so many readings: with much else to do the machine may give us time for one      \
	      only, and that may be torn */
#define STATE_LATEST 10000000000ULL  /* ns, at most */
#define STATE_EVENTS (384u << 10)    /* and so many events */
#define WHOLE_WITHIN 500000000ULL    /* ns that they wait for what is not needed for the sums */
#define SEGMENTS_EVERY 1000000000ULL /* ns */
#define SEGMENTS_SHARE 20	     /* of the time that reading may take: one in so many */

struct session_state {
	struct attach_state *holding; /* until what was there before is known, or is not to be had */
	bool empty;		      /* CUDA had not been used: nothing was there */
	bool copied;		      /* of a forked process: the tables are its parent's */
	uint64_t copies;	      /* events of such blocks, which are none */
	bool told[256];		      /* that a device was empty */
	unsigned readings, tries;
	bool fresh; /* a reading that the log has not been held against */
	const char *why_torn;
	struct state_seam seam;
	struct cudaalloc_state before; /* a reading of before the probes */
	/* Segments that came since. */
	struct map64 *segments; /* address -> hash of what was told of it */
	struct hash_seed seed;
	uint64_t moves;	     /* segments taken and given back so far */
	uint64_t moves_told; /* of those, when segments were last read */
	uint64_t next_read;  /* ns */
};

int session__open_state(struct session *s)
{
	struct session_state *st = calloc(1, sizeof(*st));

	if (!st)
		return -ENOMEM;
	s->state = st;
	st->seed = hash__seed();
	st->segments = map64__new();
	if (!st->segments)
		return -ENOMEM;
	if (s->target.torch.cuda && !s->opts.steps_only)
		target__open_allocator(&s->target, &s->target.maps);
	target__set_backend_fact(&s->target, s->facts);
	return 0;
}

void session__close_state(struct session *s)
{
	struct session_state *st = s->state;

	if (!st)
		return;
	attach_state__free(st->holding);
	cudaalloc_state__free(&st->before);
	map64__free(st->segments);
	free(st);
	s->state = NULL;
}

/* ---- a reading, as state.h wants it ---- */

static struct state_segment segment_of(const struct cuda_segment *g)
{
	return (struct state_segment){ .addr = g->addr,
				       .size = g->size,
				       .stream = g->stream,
				       .pool = { g->pool[0], g->pool[1] },
				       .device = g->device,
				       .small = g->small,
				       .expandable = g->expandable,
				       .partial = !g->whole };
}

static int hand_hints(struct attach_state *to, const struct cudaalloc_state *r)
{
	struct state_segment *v = calloc(r->nsegments + 1, sizeof(*v));
	int err;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < r->nsegments; i++)
		v[i] = segment_of(&r->segments[i]);
	err = attach_state__hint(to, v, r->nsegments);
	free(v);
	return err;
}

static int hand_reading(struct attach_state *to, const struct cudaalloc_state *r)
{
	struct state_block *blocks = calloc(r->nblocks + 1, sizeof(*blocks));
	struct state_segment *segments = calloc(r->nsegments + 1, sizeof(*segments));
	struct state_device *devices = calloc(r->ndevices + 1, sizeof(*devices));
	struct state_reading reading = { .blocks = blocks,
					 .segments = segments,
					 .devices = devices };
	int err = -ENOMEM;
	size_t i;

	if (!blocks || !segments || !devices)
		goto out;
	for (i = 0; i < r->nblocks; i++) {
		const struct cuda_block *b = &r->blocks[i];

		if (b->state == CUDA_BLOCK_CACHED)
			continue;
		blocks[reading.n_blocks++] = (struct state_block){ .addr = b->addr,
								   .size = b->size,
								   .requested = b->requested,
								   .stream = b->stream,
								   .device = b->device,
								   .pending = b->state ==
									      CUDA_BLOCK_PENDING };
	}
	for (i = 0; i < r->nsegments; i++)
		segments[reading.n_segments++] = segment_of(&r->segments[i]);
	for (i = 0; i < r->ndevices; i++)
		devices[reading.n_devices++] = (struct state_device){
			.allocated = r->devices[i].after.allocated,
			.reserved = r->devices[i].after.reserved,
			.known = true,
			.whole = r->devices[i].consistent
		};
	err = attach_state__read(to, &reading);
out:
	free(blocks);
	free(segments);
	free(devices);
	return err;
}

static int read_tables(struct session *s, struct cudaalloc_state *ret)
{
	int err = 0;

	if (!cudaalloc__calibrated(s->target.alloc))
		err = cudaalloc__calibrate(s->target.alloc);
	if (!err)
		err = cudaalloc__read(s->target.alloc, ret);
	if (err == -ESTALE && !cudaalloc__calibrate(s->target.alloc))
		err = cudaalloc__read(s->target.alloc, ret);
	target__set_backend_fact(&s->target, s->facts);
	return err;
}

/* One reading into what is held. 0, or why there is none: -ENOMEM is the only one that matters to
 * the capture. */
static int read_once(struct session *s)
{
	struct session_state *st = s->state;
	struct cudaalloc_state r;
	int err = read_tables(s, &r);

	st->tries++;
	if (err) {
		st->why_torn = cudaalloc__why(s->target.alloc);
		return err;
	}
	st->readings++;
	st->why_torn = r.consistent ? "the calls that took the segments are not all known" : r.why;
	err = hand_reading(st->holding, &r);
	cudaalloc_state__free(&r);
	return err;
}

int session__before_state(struct session *s)
{
	struct session_state *st = s->state;

	if (!s->target.alloc || cudaalloc__backend(s->target.alloc) != ALLOC_NATIVE ||
	    cudaalloc__devices(s->target.alloc) <= 0)
		return 0;
	return read_tables(s, &st->before) == -ENOMEM ? -ENOMEM : 0;
}

/* Called when the probes are in place. */
int session__begin_state(struct session *s)
{
	struct session_state *st = s->state;
	enum alloc_backend b;
	int devices, err;

	if (!s->target.alloc) {
		st->empty = !s->target.torch.cuda;
		return 0;
	}
	devices = cudaalloc__devices(s->target.alloc);
	b = cudaalloc__backend(s->target.alloc);
	if (b == ALLOC_NONE || (b == ALLOC_NATIVE && devices == 0)) {
		st->empty = true;
		return 0;
	}
	if (b != ALLOC_NATIVE || devices < 0)
		return 0;
	st->holding = attach_state__new();
	if (!st->holding)
		return -ENOMEM;
	err = hand_hints(st->holding, &st->before);
	cudaalloc_state__free(&st->before);
	/* The sooner the better: what is given back before it is read leaves no more than a call
	 * that does not say how much it was. */
	if (!err)
		err = read_once(s);
	st->fresh = !err;
	return err == -ENOMEM ? err : 0;
}

int session__begin_forked_state(struct session *s, const struct session *parent)
{
	struct session_state *st = s->state;
	struct cudaalloc *alloc = s->target.alloc ? s->target.alloc : parent->target.alloc;

	if (alloc && cudaalloc__backend(alloc) == ALLOC_NATIVE && cudaalloc__devices(alloc) > 0) {
		st->copied = true;
		return 0;
	}
	return session__begin_state(s);
}

static int hand_on(void *ctx, const struct event *e)
{
	struct session *s = ctx;

	state_seam__emitted(&s->state->seam, e);
	return session__dispatch(s, e);
}

/* From now on events go straight to the sinks. */
static int end_holding(struct session *s, int exact)
{
	struct session_state *st = s->state;
	struct attach_state *holding = st->holding;
	int err;

	st->holding = NULL;
	log_debug("what was there before: %s after %u readings, %zu events meanwhile%s%s",
		  exact > 0 ? "exact" : "not exact", st->readings, attach_state__held(holding),
		  exact > 0 ? "" : ": ", exact > 0 ? "" : st->why_torn);
	err = attach_state__emit(holding, hand_on, s);
	attach_state__free(holding);
	facts__setf(s->facts, "state", "%s",
		    exact > 0	   ? "exact"
		    : st->readings ? "approximate"
				   : "none");
	return err;
}

/* What is not found by now will not be found. */
static bool waited(const struct session_state *st, uint64_t now)
{
	return (now > STATE_WITHIN && (st->tries >= STATE_TRIES || now > STATE_LATEST)) ||
	       attach_state__held(st->holding) > STATE_EVENTS;
}

static int read_what_was(struct session *s, uint64_t now)
{
	struct session_state *st = s->state;
	int err = st->fresh ? 0 : read_once(s), exact = 0;
	uint64_t written = probes__written(s->probes);

	if (err == -ENOMEM)
		return err;
	st->fresh = false;
	/* All events up to the reading's end have to be in the log. */
	if (!err) {
		err = session__round(s);
		if (err)
			return err;
		if (s->taken < written && !waited(st, now))
			return 0;
	}
	exact = attach_state__exact(st->holding);
	if (exact < 0)
		return exact;
	if (!err && s->taken < written) {
		st->why_torn = "events of before the reading are on their way";
		exact = 0;
	}
	/* The blocks are all there; what a segment is shows when it has once been read from end to
	 * end. */
	if (exact && st->readings && !attach_state__segments_whole(st->holding) &&
	    now < WHOLE_WITHIN)
		return 0;
	/* Before CUDA has given anything there is nothing to be read; the first events will say
	 * that nothing was there. */
	if (exact ? st->readings || attach_state__held(st->holding) : waited(st, now))
		return end_holding(s, exact);
	if (err == -ENOTSUP)
		return end_holding(s, exact);
	return 0;
}

/* ---- segments that came since ---- */

static uint64_t segment_hash(const struct session_state *st, const struct cuda_segment *g)
{
	uint64_t v[6] = { g->size, g->stream, g->pool[0], g->pool[1], g->small, g->expandable };

	return hash__bytes(st->seed, v, sizeof(v));
}

static int tell_segment(struct session *s, const struct cuda_segment *g, uint64_t now)
{
	struct session_state *st = s->state;
	uint64_t hash = segment_hash(st, g), old;
	struct event e = { .kind = EVENT_SEGMENT,
			   .device = { DEVICE_CUDA, g->device },
			   .time = now,
			   .addr = g->addr,
			   .size = g->size,
			   .cuda_stream = g->stream,
			   .pool = { g->pool[0], g->pool[1] } };

	if (!g->whole || (map64__get(st->segments, g->addr, &old) && old == hash))
		return 0;
	e.flags = (g->small ? SEGMENT_SMALL : 0) | (g->expandable ? SEGMENT_EXPANDABLE : 0);
	if (map64__set(st->segments, g->addr, hash))
		return -ENOMEM;
	return session__dispatch(s, &e);
}

/*
 * Which stream and pool a segment is of, the call that took it does not say. What is read is told
 * only if no segment came or went meanwhile: else it would be told of another moment than that of
 * its place among the events.
 */
static int read_segments(struct session *s)
{
	struct session_state *st = s->state;
	uint64_t before = st->moves, begin = session__now(s), now;
	struct cudaalloc_state r;
	int err = read_tables(s, &r);
	uint64_t written;

	if (err)
		return err == -ENOMEM ? err : 0;
	written = probes__written(s->probes);
	err = session__round(s);
	now = session__now(s);
	st->next_read = now + SEGMENTS_EVERY + (now - begin) * SEGMENTS_SHARE;
	if (st->moves == before && s->taken >= written) {
		st->moves_told = before;
		for (size_t i = 0; i < r.nsegments && !err; i++)
			err = tell_segment(s, &r.segments[i], now);
	}
	cudaalloc_state__free(&r);
	return err;
}

static void note_move(struct session_state *st, const struct event *e)
{
	st->moves++;
	if (e->how == MEM_MAPPED && e->kind == EVENT_CUDA_FREE)
		map64__clear(st->segments);
	else
		map64__del(st->segments, e->addr, NULL);
}

int session__pump_state(struct session *s, uint64_t now)
{
	struct session_state *st = s->state;

	if (st->holding)
		return read_what_was(s, now);
	if (st->moves != st->moves_told && !s->target.alloc)
		target__backend(&s->target, s->facts, session__now(s));
	if (s->target.alloc && st->moves != st->moves_told && now >= st->next_read &&
	    cudaalloc__backend(s->target.alloc) <= ALLOC_NATIVE) {
		st->next_read = now + SEGMENTS_EVERY;
		return read_segments(s);
	}
	return 0;
}

bool session__state_known(const struct session *s)
{
	return !s->state->holding;
}

int session__last_segments(struct session *s)
{
	struct session_state *st = s->state;

	if (st->holding || !s->target.alloc || st->moves == st->moves_told ||
	    cudaalloc__backend(s->target.alloc) > ALLOC_NATIVE)
		return 0;
	return read_segments(s);
}

int session__finish_state(struct session *s)
{
	struct session_state *st = s->state;
	int exact;

	if (st->copies)
		facts__setf(s->facts, "counter.cuda_copies", "%" PRIu64, st->copies);
	target__set_backend_fact(&s->target, s->facts);
	if (!facts__get(s->facts, "allocator"))
		facts__set(s->facts, "allocator",
			   s->target.alloc && cudaalloc__backend(s->target.alloc) == ALLOC_UNKNOWN
				   ? "unknown"
				   : "cpu");
	if (!st->holding)
		return 0;
	exact = attach_state__exact(st->holding);
	return exact < 0 ? exact : end_holding(s, exact);
}

/* On a device that had not been used nothing was there: said before its first event, if that
 * agrees. */
static int tell_empty(struct session *s, struct device d)
{
	struct event e = { .kind = EVENT_STATE,
			   .device = d,
			   .totals = true,
			   .flags = STATE_EXACT | STATE_SEGMENTS_EXACT };

	return session__dispatch(s, &e);
}

int session__through_state(struct session *s, const struct event *e)
{
	struct session_state *st = s->state;
	bool cuda = e->device.type == DEVICE_CUDA && e->device.index != DEVICE_UNKNOWN;
	int err = 0;

	if (st->copied && cuda && (e->kind == EVENT_ALLOC || e->kind == EVENT_FREE)) {
		st->copies++;
		return 0;
	}
	if ((e->kind == EVENT_CUDA_ALLOC || e->kind == EVENT_CUDA_FREE) &&
	    (e->flags & MEM_BY_ALLOCATOR) && (e->how == MEM_DEVICE || e->how == MEM_MAPPED))
		note_move(st, e);
	if (st->holding)
		return attach_state__hold(st->holding, e);
	if (state_seam__before(&st->seam, e)) {
		log_debug("an event of cuda:%u was in what had been read already", e->device.index);
		return 0;
	}
	if (st->empty && cuda && e->totals && !st->told[e->device.index]) {
		st->told[e->device.index] = true;
		if (e->kind == EVENT_OOM ? !e->allocated
					 : e->kind == EVENT_ALLOC && e->allocated == e->size)
			err = tell_empty(s, e->device);
	}
	return err ? err : session__dispatch(s, e);
}
