/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/session/stages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/map64.h"
#include "capture/target.h"
#include "inspect/cudaalloc.h"
#include "record/stream.h"

/* ---- the state at attach ---- */

/*
 * The state of the CUDA allocator when the probes came into place: T0. Its tables are read while it
 * goes on working, so one reading may be torn. But all that changed since T0 is in the log of
 * events, and an address that is not in the log has not changed. So for each address:
 *
 *   first event in the log     at T0
 *   a free                     a block was there, of the size in the event
 *   an alloc                   no block was there
 *   none                       a block was there if any reading saw one
 *
 * The sum of the blocks at T0 is the first event's total less its own size. Readings are added
 * until the blocks found add up to it. Segments are found in the same way, by the calls into CUDA.
 *
 * Meanwhile events are held here. At the end attach_state__next() returns the blocks and segments
 * of T0, then the events. Knows nothing of processes. All devices are of type CUDA.
 */

#define DEVICES 256	    /* an event's device index has 8 bits */
#define CHUNK 4096	    /* events allocated at once */
#define ARMING 20000000ULL  /* ns; by then a new probe is in place on every CPU */
#define REUSED (1ULL << 63) /* flag in attach_state.first: the address was allocated later */

/* A growing array. */
struct vec {
	void *v;
	size_t n, cap;
};

struct attach_state {
	struct event **chunks; /* CHUNK events each */
	size_t n_chunks, n_events;
	/* Address -> index of the first event that allocates or frees it | REUSED. */
	struct map64 *first;
	struct map64 *blocks; /* address -> index in seen */
	struct vec seen;      /* struct cuda_block: the blocks in use, from all readings */
	struct vec segments;  /* struct cuda_segment, of the last reading and what earlier ones add;
				 by address */
	struct vec hints;     /* struct cuda_segment, from before T0; by address */
	struct vec moves;     /* struct event, made by solve(): changes of segments, with device and
				 size filled in */
	struct map64 *taken;  /* address -> index in moves of the call that took it */
	size_t begin[DEVICES];	 /* index of the first event after T0 of a block on this device */
	uint64_t total[DEVICES]; /* allocated total of the last event */
	bool has_total[DEVICES];
	struct cuda_totals totals[DEVICES]; /* totals of the last reading */
	bool any[DEVICES];		    /* a reading had figures of the device */
	/* The state at T0, made by solve(). */
	struct vec t0_blocks, t0_segments;
	uint64_t t0_allocated[DEVICES], t0_reserved[DEVICES];
	bool t0_known[DEVICES], t0_blocks_exact[DEVICES], t0_segments_exact[DEVICES];
	/* Position of attach_state__next(). */
	unsigned at_device;
	size_t at_segment, at_block, at_event;
	struct event made; /* event that attach_state__next() made and returned */
};

/* Adds an element of that size, to be set by the caller. NULL: out of memory. */
static void *vec__add(struct vec *a, size_t size)
{
	if (array__grow(&a->v, &a->cap, a->n + 1, size))
		return NULL;
	return (char *)a->v + a->n++ * size;
}

static void attach_state__free(struct attach_state *s); /* NULL is fine */

/* NULL on ENOMEM. */
static struct attach_state *attach_state__new(void)
{
	struct attach_state *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->first = map64__new();
	s->blocks = map64__new();
	s->taken = map64__new();
	if (!s->first || !s->blocks || !s->taken) {
		attach_state__free(s);
		return NULL;
	}
	return s;
}

static void attach_state__free(struct attach_state *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_chunks; i++)
		free(s->chunks[i]);
	free(s->chunks);
	map64__free(s->first);
	map64__free(s->blocks);
	map64__free(s->taken);
	free(s->seen.v);
	free(s->segments.v);
	free(s->hints.v);
	free(s->moves.v);
	free(s->t0_blocks.v);
	free(s->t0_segments.v);
	free(s);
}

static const struct event *event_at(const struct attach_state *s, size_t i)
{
	return &s->chunks[i / CHUNK][i % CHUNK];
}

/* True for events of the native allocator's blocks. Those of other blocks (CPU, runtime calls) have
 * no totals. */
static bool has_totals(const struct event *e)
{
	return e->device.type == DEVICE_CUDA && e->totals;
}

static bool is_of_block(const struct event *e)
{
	return (e->kind == EVENT_ALLOC || e->kind == EVENT_FREE) && has_totals(e);
}

/* Notes the first event of an address: index is its number. Otherwise notes that a later one
 * allocates the address again. */
static int note_first(struct attach_state *s, size_t index, const struct event *e)
{
	uint64_t entry;

	if (!map64__get(s->first, e->addr, &entry))
		entry = index;
	else if (e->kind == EVENT_ALLOC)
		entry |= REUSED;
	return map64__set(s->first, e->addr, entry) ? -ENOMEM : 0;
}

/* True for an event of a block from before T0. */
static bool is_before_t0(const struct attach_state *s, size_t at, const struct event *e)
{
	return at < s->begin[e->device.index] && is_of_block(e);
}

/*
 * Compares an event's total with the total before it. T0 is the time since which no event is
 * missing: for some microseconds a new probe is in place on some CPUs only. If e's total does not
 * follow, T0 moves to e, and earlier readings and events are forgotten. 0 or -ENOMEM.
 */
static int check_total(struct attach_state *s, const struct event *e)
{
	uint8_t device = e->device.index;
	uint64_t expected = s->total[device] + (e->kind == EVENT_ALLOC ? e->size : -e->size);
	bool follows = !s->has_total[device] || expected == e->allocated;

	s->has_total[device] = true;
	s->total[device] = e->allocated;
	if (follows || e->time > ARMING)
		return 0;
	s->begin[device] = s->n_events;
	/* The readings so far may be from before T0. */
	s->seen.n = 0;
	map64__clear(s->blocks);
	map64__clear(s->first);
	for (size_t i = 0; i < s->n_events; i++) {
		if (is_of_block(event_at(s, i)) && !is_before_t0(s, i, event_at(s, i)) &&
		    note_first(s, i, event_at(s, i)))
			return -ENOMEM;
	}
	return 0;
}

/* Holds an event; call it in order. 0 or -ENOMEM. While the probe is in place on some CPUs only,
 * events may be missing, as their totals tell. T0 is after these, and they are dropped. */
static int attach_state__hold(struct attach_state *s, const struct event *e)
{
	if (s->n_events == s->n_chunks * CHUNK) {
		struct event **chunks = realloc(s->chunks,
						(s->n_chunks + 1) * sizeof(struct event *));

		if (!chunks)
			return -ENOMEM;
		s->chunks = chunks;
		chunks[s->n_chunks] = malloc(CHUNK * sizeof(struct event));
		if (!chunks[s->n_chunks])
			return -ENOMEM;
		s->n_chunks++;
	}
	if (is_of_block(e) && (check_total(s, e) || note_first(s, s->n_events, e)))
		return -ENOMEM;
	s->chunks[s->n_events / CHUNK][s->n_events % CHUNK] = *e;
	s->n_events++;
	return 0;
}

static size_t attach_state__held(const struct attach_state *s)
{
	return s->n_events;
}

ARRAY_COMPARE(by_address, struct cuda_segment, addr)

ARRAY_COMPARE(by_block_address, struct cuda_block, addr)

static struct cuda_segment *segment_at(const struct vec *a, size_t i)
{
	return (struct cuda_segment *)a->v + i;
}

/* Adds the part of a segment from one address to another. */
static int add_part(struct vec *a, const struct cuda_segment *segment, uint64_t from, uint64_t end)
{
	struct cuda_segment *g = vec__add(a, sizeof(*g));

	if (!g)
		return -ENOMEM;
	*g = *segment;
	g->whole = segment->whole && from == segment->addr && end == segment->addr + segment->size;
	g->addr = from;
	g->size = end - from;
	return 0;
}

/* The segment that contains addr; NULL: none. a: sorted by address. */
static const struct cuda_segment *find_segment(const struct vec *a, uint64_t addr)
{
	size_t low = 0, high = a->n, mid;

	/* low: number of segments that begin at addr or before */
	while (low < high) {
		mid = (low + high) / 2;
		if (segment_at(a, mid)->addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low && addr - segment_at(a, low - 1)->addr < segment_at(a, low - 1)->size
		       ? segment_at(a, low - 1)
		       : NULL;
}

/* True if one of the segments contains all of g. */
static bool is_covered(const struct vec *a, const struct cuda_segment *g)
{
	const struct cuda_segment *candidate = find_segment(a, g->addr);

	return candidate && candidate->device == g->device &&
	       g->addr + g->size <= candidate->addr + candidate->size;
}

/* Adds the segments of a reading. was_whole: devices that were read as a whole, which replaces what
 * is known of them. A torn reading has true segments, too: they replace the parts of earlier
 * segments that they overlap. */
static int add_segments(struct attach_state *s, const struct cudaalloc_state *r,
			const bool *was_whole)
{
	const struct cuda_segment *old = s->segments.v;
	struct vec merged = { 0 };
	struct cuda_segment *g;
	size_t i, first_new, n_new;

	for (i = 0; i < r->nsegments; i++) {
		/* A partial segment that an earlier one covers says nothing new. */
		if (!r->segments[i].whole && !was_whole[r->segments[i].device] &&
		    is_covered(&s->segments, &r->segments[i]))
			continue;
		g = vec__add(&merged, sizeof(*g));
		if (!g)
			goto nomem;
		*g = r->segments[i];
	}
	/* Add the parts of the old segments that no new one overlaps. */
	n_new = merged.n;
	if (merged.n)
		qsort(merged.v, merged.n, sizeof(*g), by_address);
	for (i = 0, first_new = 0; i < s->segments.n; i++) {
		uint64_t rest = old[i].addr, end = rest + old[i].size;
		size_t j;

		if (was_whole[old[i].device])
			continue;
		while (first_new < n_new && segment_at(&merged, first_new)->addr +
							    segment_at(&merged, first_new)->size <=
						    rest)
			first_new++;
		for (j = first_new; j < n_new && segment_at(&merged, j)->addr < end; j++) {
			const struct cuda_segment newer = *segment_at(&merged, j);

			if (newer.addr > rest && add_part(&merged, &old[i], rest, newer.addr))
				goto nomem;
			if (newer.addr + newer.size > rest)
				rest = newer.addr + newer.size;
		}
		if (rest < end && add_part(&merged, &old[i], rest, end))
			goto nomem;
	}
	if (merged.n)
		qsort(merged.v, merged.n, sizeof(*g), by_address);
	free(s->segments.v);
	s->segments = merged;
	return 0;
nomem:
	free(merged.v);
	return -ENOMEM;
}

/*
 * Adds segments as they were shortly before T0. A call that gives a segment back does not say its
 * size, and later readings do not see it. Segments that changed before T0 show in the sums. 0 or
 * -ENOMEM.
 */
static int attach_state__hint(struct attach_state *s, const struct cuda_segment *v, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		struct cuda_segment *g = vec__add(&s->hints, sizeof(*g));

		if (!g)
			return -ENOMEM;
		*g = v[i];
	}
	if (s->hints.n)
		qsort(s->hints.v, s->hints.n, sizeof(*v), by_address);
	return 0;
}

/* Adds a reading that began after T0. Events up to its end must be held before
 * attach_state__exact() is called. 0 or -ENOMEM. */
static int attach_state__read(struct attach_state *s, const struct cudaalloc_state *r)
{
	bool was_whole[DEVICES] = { false };
	struct cuda_block *b;
	uint64_t seen_index;
	size_t i, n;

	for (i = 0; i < r->ndevices && i < DEVICES; i++) {
		was_whole[i] = r->devices[i].consistent;
		s->totals[i] = r->devices[i].after;
		s->any[i] = true;
	}
	/*
	 * A whole reading has all blocks: others that earlier readings saw were torn or are freed.
	 */
	for (i = 0, n = 0, b = s->seen.v; i < s->seen.n; i++) { /* n: blocks that stay */
		if (was_whole[b[i].device]) {
			map64__del(s->blocks, b[i].addr, NULL);
			continue;
		}
		b[n] = b[i];
		if (map64__set(s->blocks, b[n].addr, n))
			return -ENOMEM;
		n++;
	}
	s->seen.n = n;
	for (i = 0; i < r->nblocks; i++) {
		if (r->blocks[i].state == CUDA_BLOCK_CACHED)
			continue;
		if (map64__get(s->blocks, r->blocks[i].addr, &seen_index)) {
			b = (struct cuda_block *)s->seen.v + seen_index;
		} else {
			b = vec__add(&s->seen, sizeof(*b));
			if (!b || map64__set(s->blocks, r->blocks[i].addr, s->seen.n - 1))
				return -ENOMEM;
		}
		*b = r->blocks[i];
	}
	return add_segments(s, r, was_whole);
}

/* ---- solving: the state at T0 ---- */

/* Finds the blocks at T0: those that readings saw and the log does not name, and those whose first
 * event in the log is a free. sum: gets their bytes by device. */
static int solve_blocks(struct attach_state *s, uint64_t *sum)
{
	const struct cuda_block *seen = s->seen.v;
	struct cuda_block *b;
	uint64_t addr, first, seen_index;
	size_t k, pos = 0;

	s->t0_blocks.n = 0;
	for (k = 0; k < s->seen.n; k++) {
		if (map64__get(s->first, seen[k].addr, &first))
			continue;
		b = vec__add(&s->t0_blocks, sizeof(*b));
		if (!b)
			return -ENOMEM;
		*b = seen[k];
		/* The total lacks pending blocks, which the program has freed. */
		if (b->state != CUDA_BLOCK_PENDING)
			sum[b->device] += b->size;
	}
	while (map64__next(s->first, &pos, &addr, &first)) {
		const struct event *e = event_at(s, first & ~REUSED);

		if (e->kind != EVENT_FREE)
			continue;
		b = vec__add(&s->t0_blocks, sizeof(*b));
		if (!b)
			return -ENOMEM;
		*b = (struct cuda_block){ .addr = addr,
					  .size = e->size,
					  .device = e->device.index };
		/* Take properties from a reading only if it saw this block, before it was freed,
		 * and not a later one at the address. */
		if (!(first & REUSED) && map64__get(s->blocks, addr, &seen_index) &&
		    seen[seen_index].size == e->size) {
			b->requested = seen[seen_index].requested;
			b->stream = seen[seen_index].stream;
		}
		sum[b->device] += b->size;
	}
	if (s->t0_blocks.n)
		qsort(s->t0_blocks.v, s->t0_blocks.n, sizeof(*b), by_block_address);
	return 0;
}

/* Removes a range of addresses from the segments, which may cut a segment short or split it. */
static int remove_range(struct vec *a, uint64_t addr, uint64_t size)
{
	uint64_t end = addr + size;
	size_t n = a->n, i; /* n: without the rests added here */

	for (i = 0; i < n; i++) {
		struct cuda_segment *g = (struct cuda_segment *)a->v + i, *rest;
		uint64_t g_end = g->addr + g->size;

		if (g->addr >= end || g_end <= addr)
			continue;
		if (g->addr < addr && g_end > end) {
			rest = vec__add(a, sizeof(*rest));
			if (!rest)
				return -ENOMEM;
			g = (struct cuda_segment *)a->v + i; /* the array may have moved */
			*rest = *g;
			rest->addr = end;
			rest->size = g_end - end;
			g->size = addr - g->addr;
		} else if (g->addr < addr) {
			g->size = addr - g->addr;
		} else if (g_end > end) {
			g->size = g_end - end;
			g->addr = end;
		} else {
			g->size = 0; /* removed below */
		}
	}
	for (i = 0, n = 0; i < a->n; i++) {
		const struct cuda_segment *g = (struct cuda_segment *)a->v + i;

		if (g->size)
			((struct cuda_segment *)a->v)[n++] = *g;
	}
	a->n = n;
	return 0;
}

/* Adds the segment that the call e gave back. */
static int add_range(struct vec *a, const struct event *e)
{
	struct cuda_segment *g;
	int err = remove_range(a, e->addr, e->size);

	if (err)
		return err;
	g = vec__add(a, sizeof(*g));
	if (!g)
		return -ENOMEM;
	*g = (struct cuda_segment){ .addr = e->addr,
				    .size = e->size,
				    .device = e->device.index,
				    .expandable = e->how == MEM_MAPPED,
				    .whole = true };
	return 0;
}

/* True for calls that change the allocator's reserved total. */
static bool moves_segments(const struct event *e)
{
	return (e->kind == EVENT_CUDA_ALLOC || e->kind == EVENT_CUDA_FREE) &&
	       (e->flags & MEM_BY_ALLOCATOR) && (e->how == MEM_DEVICE || e->how == MEM_MAPPED);
}

/* Sets the device and the size that a call does not say, from the segment at its address. g may be
 * NULL. */
static void fill_in(struct event *e, const struct cuda_segment *g)
{
	if (!g)
		return;
	if (e->device.index == DEVICE_UNKNOWN)
		e->device.index = g->device;
	if (!e->size && g->addr == e->addr)
		e->size = g->size;
}

/*
 * Fills in what calls do not always say: the device, or the size of a free. The call that took the
 * segment has them if it is in the log; otherwise the segment was there at T0 and was read before
 * or after.
 */
static int solve_moves(struct attach_state *s)
{
	uint64_t take_index;
	size_t i;

	s->moves.n = 0;
	map64__clear(s->taken);
	for (i = 0; i < s->n_events; i++) {
		struct event *e;

		if (!moves_segments(event_at(s, i)))
			continue;
		e = vec__add(&s->moves, sizeof(*e));
		if (!e)
			return -ENOMEM;
		*e = *event_at(s, i);
		if (e->kind == EVENT_CUDA_FREE && map64__del(s->taken, e->addr, &take_index)) {
			const struct event *take = (struct event *)s->moves.v + take_index;

			if (!e->size)
				e->size = take->size;
			if (e->device.index == DEVICE_UNKNOWN)
				e->device = take->device;
		} else if (e->kind == EVENT_CUDA_FREE) {
			fill_in(e, find_segment(&s->hints, e->addr));
		}
		fill_in(e, find_segment(&s->segments, e->addr));
		if (e->kind == EVENT_CUDA_ALLOC && map64__set(s->taken, e->addr, s->moves.n - 1))
			return -ENOMEM;
	}
	return 0;
}

/* Joins neighbouring parts of expandable segments, as the allocator does. */
static void join_parts(struct vec *a)
{
	struct cuda_segment *g = a->v;
	size_t i, n = 0;

	for (i = 0; i < a->n; i++) {
		struct cuda_segment *last = n ? &g[n - 1] : NULL;

		if (last && last->expandable == g[i].expandable &&
		    (g[i].expandable || (!last->whole && !g[i].whole)) &&
		    last->device == g[i].device && last->addr + last->size == g[i].addr &&
		    (last->stream == g[i].stream || !g[i].stream) &&
		    !memcmp(last->pool, g[i].pool, sizeof(last->pool)))
			last->size += g[i].size;
		else
			g[n++] = g[i];
	}
	a->n = n;
}

/* Finds the segments at T0 from those read last: undoes the log from its end to its beginning. */
static int solve_segments(struct attach_state *s, uint64_t *sum)
{
	const struct cuda_segment *g;
	size_t i;
	int err;

	s->t0_segments.n = 0;
	for (i = 0; i < s->segments.n; i++) {
		struct cuda_segment *to = vec__add(&s->t0_segments, sizeof(*to));

		if (!to)
			return -ENOMEM;
		*to = ((struct cuda_segment *)s->segments.v)[i];
	}
	for (i = s->moves.n; i--;) {
		const struct event *e = (struct event *)s->moves.v + i;

		if (!e->size)
			continue;
		err = e->kind == EVENT_CUDA_ALLOC ? remove_range(&s->t0_segments, e->addr, e->size)
						  : add_range(&s->t0_segments, e);
		if (err)
			return err;
	}
	if (s->t0_segments.n)
		qsort(s->t0_segments.v, s->t0_segments.n, sizeof(*g), by_address);
	join_parts(&s->t0_segments);
	for (i = 0, g = s->t0_segments.v; i < s->t0_segments.n; i++)
		sum[g[i].device] += g[i].size;
	return 0;
}

/* Sets a device's totals at T0 from its first event with totals after T0. moved: bytes that the
 * device's segments gained between T0 and the event. */
static void set_totals_from_event(struct attach_state *s, const struct event *e, int64_t moved)
{
	uint8_t d = e->device.index;

	s->t0_known[d] = true;
	/* The event's totals include its own block. */
	s->t0_allocated[d] = e->allocated;
	if (e->kind == EVENT_ALLOC)
		s->t0_allocated[d] -= e->size;
	else if (e->kind == EVENT_FREE)
		s->t0_allocated[d] += e->size;
	s->t0_reserved[d] = e->reserved - (uint64_t)moved;
}

/* Sets the totals at T0 of a device without such an event. The blocks have not changed since T0, so
 * the last reading's allocated total is right. moved: bytes that the device's segments gained. */
static void set_totals_from_reading(struct attach_state *s, unsigned d, int64_t moved)
{
	s->t0_known[d] = true;
	s->t0_allocated[d] = s->totals[d].allocated;
	s->t0_reserved[d] = s->totals[d].reserved - (uint64_t)moved;
}

/* Finds the totals at T0: from the first event with totals, otherwise from the last reading.
 * s->moves has the same events as moves_segments(), in the same order, with their devices and
 * sizes. */
static void solve_totals(struct attach_state *s)
{
	const struct event *next_move = s->moves.v;
	int64_t moved[DEVICES] = { 0 };
	size_t i;

	memset(s->t0_known, 0, sizeof(s->t0_known));
	for (i = 0; i < s->n_events; i++) {
		const struct event *e = event_at(s, i);
		uint8_t d = e->device.index;

		if (moves_segments(e)) {
			moved[next_move->device.index] += e->kind == EVENT_CUDA_ALLOC
								  ? (int64_t)next_move->size
								  : -(int64_t)next_move->size;
			next_move++;
		}
		/* Events before begin[d] are from before T0: check_total(). */
		if (has_totals(e) && !s->t0_known[d] && i >= s->begin[d])
			set_totals_from_event(s, e, moved[d]);
	}
	for (i = 0; i < DEVICES; i++)
		if (!s->t0_known[i] && s->any[i])
			set_totals_from_reading(s, i, moved[i]);
}

/* Finds the state at T0 from events and readings so far. 0 or -ENOMEM. */
static int solve(struct attach_state *s)
{
	uint64_t block_bytes[DEVICES] = { 0 }, segment_bytes[DEVICES] = { 0 };
	int err = solve_blocks(s, block_bytes);

	if (err)
		return err;
	err = solve_moves(s);
	if (err)
		return err;
	err = solve_segments(s, segment_bytes);
	if (err)
		return err;
	solve_totals(s);
	for (int i = 0; i < DEVICES; i++) {
		s->t0_blocks_exact[i] = s->t0_known[i] && block_bytes[i] == s->t0_allocated[i];
		s->t0_segments_exact[i] = s->t0_known[i] && segment_bytes[i] == s->t0_reserved[i];
	}
	return 0;
}

/* 1 if blocks and segments found so far add up to the totals on every device; 0 or -ENOMEM. */
static int attach_state__exact(struct attach_state *s)
{
	int err = solve(s);

	if (err)
		return err;
	for (int i = 0; i < DEVICES; i++) {
		if ((s->any[i] || s->t0_known[i]) &&
		    !(s->t0_blocks_exact[i] && s->t0_segments_exact[i]))
			return 0;
	}
	return 1;
}

/* True if every segment was read from end to end, which tells its kind. */
static bool attach_state__segments_whole(const struct attach_state *s)
{
	for (size_t i = 0; i < s->segments.n; i++) {
		if (!segment_at(&s->segments, i)->whole)
			return false;
	}
	return true;
}

/* Ends the holding: call attach_state__next() until it returns NULL, and nothing else. 0 or
 * -ENOMEM. */
static int attach_state__end(struct attach_state *s)
{
	s->at_device = 0;
	s->at_segment = s->at_block = s->at_event = 0;
	return solve(s);
}

/* The device's next segment or block, or its EVENT_STATE; NULL: no more. */
static const struct event *next_of_device(struct attach_state *s, uint8_t d)
{
	const struct cuda_segment *g;
	const struct cuda_block *b;

	while (s->at_segment < s->t0_segments.n) {
		g = (struct cuda_segment *)s->t0_segments.v + s->at_segment++;
		if (g->device != d)
			continue;
		s->made = (struct event){ .kind = EVENT_SEGMENT,
					  .device = { DEVICE_CUDA, d },
					  .addr = g->addr,
					  .size = g->size,
					  .cuda_stream = g->stream,
					  .pool = { g->pool[0], g->pool[1] } };
		if (g->small)
			s->made.flags |= SEGMENT_SMALL;
		if (g->expandable)
			s->made.flags |= SEGMENT_EXPANDABLE;
		return &s->made;
	}
	while (s->at_block < s->t0_blocks.n) {
		b = (struct cuda_block *)s->t0_blocks.v + s->at_block++;
		if (b->device != d)
			continue;
		s->made = (struct event){ .kind = EVENT_BLOCK,
					  .device = { DEVICE_CUDA, d },
					  .flags = b->state == CUDA_BLOCK_PENDING ? BLOCK_PENDING
										  : 0,
					  .addr = b->addr,
					  .size = b->size,
					  .requested = b->requested,
					  .cuda_stream = b->stream };
		return &s->made;
	}
	if (s->made.kind == EVENT_STATE && s->made.device.index == d)
		return NULL; /* it was the last event of the device */
	s->made = (struct event){ .kind = EVENT_STATE,
				  .device = { DEVICE_CUDA, d },
				  .totals = s->t0_known[d] };
	if (s->t0_known[d]) {
		s->made.allocated = s->t0_allocated[d];
		s->made.reserved = s->t0_reserved[d];
	}
	if (s->t0_segments_exact[d])
		s->made.flags = STATE_SEGMENTS_EXACT | (s->t0_blocks_exact[d] ? STATE_EXACT : 0);
	return &s->made;
}

/*
 * The next event of the stream, valid until the next call: first the state at T0 by device
 * (EVENT_SEGMENT and EVENT_BLOCK by address, then EVENT_STATE), unless nothing was read of a device
 * that was in use; then all events held. NULL: no more.
 */
static const struct event *attach_state__next(struct attach_state *s)
{
	const struct event *e = NULL;

	for (; s->at_device < DEVICES; s->at_device++) {
		unsigned d = s->at_device;

		if (s->any[d] || (s->t0_blocks_exact[d] && s->t0_segments_exact[d]))
			e = next_of_device(s, (uint8_t)d);
		if (e)
			return e;
		s->at_segment = s->at_block = 0;
	}
	while (s->at_event < s->n_events) {
		e = event_at(s, s->at_event++);
		if (!is_before_t0(s, s->at_event - 1, e))
			return e;
	}
	return NULL;
}

/*
 * If no event of a device was held, T0 is the reading, which may have been within a call: the
 * allocator's tables have the change, and its event follows. The allocator is locked meanwhile, so
 * this is at most the next event of the device: its total is that of T0. It belongs to T0 and is
 * dropped. All 0 at first.
 */
struct state_seam {
	bool open[DEVICES];	     /* by device: the next event may belong to T0 */
	uint64_t allocated[DEVICES]; /* total at T0 */
};

/* Call it for each event that attach_state__next() returned. */
static void state_seam__emitted(struct state_seam *m, const struct event *e)
{
	if (e->kind == EVENT_STATE && e->totals) {
		m->open[e->device.index] = true;
		m->allocated[e->device.index] = e->allocated;
	} else if (has_totals(e)) {
		m->open[e->device.index] = false;
	}
}

/* Call it for each later event. True if T0 contains the change of this event. */
static bool state_seam__contains(struct state_seam *m, const struct event *e)
{
	bool was_open;

	/* The lost event may have been the one that belongs to T0. */
	if (e->kind == EVENT_LOST)
		memset(m->open, 0, sizeof(m->open));
	if (!has_totals(e))
		return false;
	was_open = m->open[e->device.index];
	m->open[e->device.index] = false;
	return was_open && is_of_block(e) && e->size &&
	       e->allocated == m->allocated[e->device.index];
}

/* ---- the stage ---- */

#define HOLD_MIN 2000000000ULL	  /* ns that events are held, unless the state is exact before */
#define READINGS_MIN 10		  /* readings before giving up: on a busy machine most are torn */
#define HOLD_MAX 10000000000ULL	  /* ns that events are held at most */
#define HELD_MAX (384u << 10)	  /* events held, at most */
#define WHOLE_WITHIN 500000000ULL /* ns that an exact state waits for the kinds of segments */
#define SEGMENTS_EVERY 1000000000ULL /* ns between two readings of segments, at least */
#define SEGMENTS_SHARE 20	     /* readings of segments take at most 1/20 of the time */

struct attach_stage {
	struct sink sink;  /* first: the sink is the stage */
	struct sink *next; /* NULL: events are counted and dropped */
	uint64_t events;   /* passed on so far */
	struct target *target;
	struct facts *facts;
	struct attach_state *held; /* events and readings; NULL once the state is known */
	bool empty;		   /* CUDA was unused at attach: nothing was allocated */
	bool empty_checked[256];   /* by device: its first event was compared with empty */
	bool copied;		   /* a forked process whose tables are its parent's */
	uint64_t copies;	   /* events that were dropped because of copied */
	unsigned readings, tries;  /* readings that succeeded, and all */
	bool fresh;		   /* the reading in held was not compared with the events yet */
	const char *why_torn;	   /* why the last reading did not give the exact state; static */
	struct state_seam seam;
	struct cudaalloc_state before; /* read before the probes were attached */
	/* New segments. */
	struct map64 *segments; /* address -> hash of its EVENT_SEGMENT */
	struct hash_seed seed;
	uint64_t moves;	       /* segments taken and given back so far */
	uint64_t moves_passed; /* moves when the segments last passed on were read */
	uint64_t next_read;    /* earliest next reading, ns since start */
	/* A reading that waits for attach_stage__take(). */
	struct cudaalloc_state read; /* segments that were read; empty: none */
	uint64_t moves_read;	     /* moves when the reading began */
	uint64_t read_begin;	     /* when the reading began, ns since start */
};

/* ---- readings of the tables ---- */

/* Reads the allocator's tables. 0 or -errno. */
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
	enum alloc_backend backend;
	int devices, err;

	a->empty = false;
	if (!alloc) {
		a->empty = !a->target->torch.cuda;
		return 0;
	}
	devices = cudaalloc__devices(alloc);
	backend = cudaalloc__backend(alloc);
	if (backend == ALLOC_NONE || (backend == ALLOC_NATIVE && devices == 0)) {
		a->empty = true;
		return 0;
	}
	if (backend != ALLOC_NATIVE || devices < 0)
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

/* Compares events and readings. Ends the holding if the state is exact, or will not get so.
 * read_err: error of the last reading. whole: all events up to that reading came. 0, -ENOMEM or a
 * sink's error. */
static int end_if_settled(struct attach_stage *a, int read_err, bool whole, uint64_t now)
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
	/* With -ENOTSUP no reading of this allocator will ever succeed. */
	return read_err == -ENOTSUP ? end_holding(a, exact) : 0;
}

/* Reads what was allocated at attach, unless attach_stage__begin() has just done it. Returns as
 * attach_stage__read(). */
static int read_state(struct attach_stage *a, uint64_t now)
{
	int err = a->fresh ? 0 : read_once(a);

	if (err == -ENOMEM)
		return err;
	a->fresh = false;
	a->read_begin = now;
	return err ? end_if_settled(a, err, false, now) : 1;
}

/* ---- new segments ---- */

/* Hash of a segment's properties apart from its address, which is the key. */
static uint64_t segment_hash(const struct attach_stage *a, const struct cuda_segment *g)
{
	uint64_t v[6] = { g->size, g->stream, g->pool[0], g->pool[1], g->small, g->expandable };

	return hash__bytes(a->seed, v, sizeof(v));
}

/* Emits a segment, unless it is partial or was emitted with the same properties. */
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

/* Reads the tables for new segments: the call that takes a segment does not say its stream and
 * pool. The reading counts only if no segment comes or goes until it is passed on: otherwise it is
 * of another moment of the stream. Returns as attach_stage__read(). */
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

/* Passes on the segments of a reading, unless segments came or went since: then reads again
 * later. */
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

/* Counts a segment that was taken or given back. What was emitted at its address is not valid any
 * more. */
static void note_move(struct attach_stage *a, const struct event *e)
{
	a->moves++;
	if (e->how == MEM_MAPPED && e->kind == EVENT_CUDA_FREE) /* a part of some segment */
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
	return a->held ? end_if_settled(a, 0, whole, a->read_begin) : take_segments(a, whole, now);
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

/* On a device that was unused at attach, nothing was allocated. Says so before the first event of
 * the device, unless the totals of that event contradict. */
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
	bool is_cuda = e->device.type == DEVICE_CUDA && e->device.index != DEVICE_UNKNOWN;

	/* blocks of the parent */
	if (a->copied && is_cuda && (e->kind == EVENT_ALLOC || e->kind == EVENT_FREE)) {
		a->copies++;
		return 0;
	}
	if ((e->kind == EVENT_CUDA_ALLOC || e->kind == EVENT_CUDA_FREE) &&
	    (e->flags & MEM_BY_ALLOCATOR) && (e->how == MEM_DEVICE || e->how == MEM_MAPPED))
		note_move(a, e);
	if (a->held)
		return attach_state__hold(a->held, e);
	if (state_seam__contains(&a->seam, e)) {
		log_debug("dropped an event of cuda:%u: the state at attach contains it",
			  e->device.index);
		return 0;
	}
	if (a->empty && is_cuda && e->totals && !a->empty_checked[e->device.index]) {
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
