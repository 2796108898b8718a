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

/* Functions that return an int return 0 or -ENOMEM unless they say otherwise. */

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
static void *vec__add(struct vec *vec, size_t size)
{
	if (array__grow(&vec->v, &vec->cap, vec->n + 1, size))
		return NULL;
	return (char *)vec->v + vec->n++ * size;
}

static void attach_state__free(struct attach_state *s); /* NULL is fine */

/* NULL on ENOMEM. */
static struct attach_state *attach_state__new(void)
{
	struct attach_state *state = calloc(1, sizeof(*state));

	if (!state)
		return NULL;
	state->first = map64__new();
	state->blocks = map64__new();
	state->taken = map64__new();
	if (!state->first || !state->blocks || !state->taken) {
		attach_state__free(state);
		return NULL;
	}
	return state;
}

static void attach_state__free(struct attach_state *state)
{
	if (!state)
		return;
	for (size_t i = 0; i < state->n_chunks; i++)
		free(state->chunks[i]);
	free(state->chunks);
	map64__free(state->first);
	map64__free(state->blocks);
	map64__free(state->taken);
	free(state->seen.v);
	free(state->segments.v);
	free(state->hints.v);
	free(state->moves.v);
	free(state->t0_blocks.v);
	free(state->t0_segments.v);
	free(state);
}

static const struct event *event_at(const struct attach_state *state, size_t i)
{
	return &state->chunks[i / CHUNK][i % CHUNK];
}

/* True for events of the native allocator's blocks. Those of other blocks (CPU, runtime calls) have
 * no totals. */
static bool has_totals(const struct event *event)
{
	return event->device.type == DEVICE_CUDA && event->totals;
}

/* True for events of the allocator's own blocks. */
static bool is_of_block(const struct event *event)
{
	return (event->kind == EVENT_ALLOC || event->kind == EVENT_FREE) && has_totals(event);
}

/* Notes the first event of an address: index is its number. Otherwise notes that a later one
 * allocates the address again. */
static int note_first(struct attach_state *state, size_t index, const struct event *event)
{
	uint64_t entry;

	if (!map64__get(state->first, event->addr, &entry))
		entry = index;
	else if (event->kind == EVENT_ALLOC)
		entry |= REUSED;
	return map64__set(state->first, event->addr, entry) ? -ENOMEM : 0;
}

/* True for an event of a block from before T0. */
static bool is_before_t0(const struct attach_state *state, size_t at, const struct event *event)
{
	return at < state->begin[event->device.index] && is_of_block(event);
}

/*
 * Compares an event's total with the total before it. T0 is the time since which no event is
 * missing: for some microseconds a new probe is in place on some CPUs only. If its total does not
 * follow, T0 moves to the event, and earlier readings and events are forgotten. 0 or -ENOMEM.
 */
static int check_total(struct attach_state *state, const struct event *event)
{
	uint8_t device = event->device.index;
	uint64_t expected = state->total[device] +
			    (event->kind == EVENT_ALLOC ? event->size : -event->size);
	bool follows = !state->has_total[device] || expected == event->allocated;

	state->has_total[device] = true;
	state->total[device] = event->allocated;
	if (follows || event->time > ARMING)
		return 0;
	state->begin[device] = state->n_events;
	/* The readings so far may be from before T0. */
	state->seen.n = 0;
	map64__clear(state->blocks);
	map64__clear(state->first);
	for (size_t i = 0; i < state->n_events; i++) {
		if (is_of_block(event_at(state, i)) &&
		    !is_before_t0(state, i, event_at(state, i)) &&
		    note_first(state, i, event_at(state, i)))
			return -ENOMEM;
	}
	return 0;
}

/* Holds an event; call it in order. 0 or -ENOMEM. While the probe is in place on some CPUs only,
 * events may be missing, as their totals tell. T0 is after these, and they are dropped. */
static int attach_state__hold(struct attach_state *state, const struct event *event)
{
	if (state->n_events == state->n_chunks * CHUNK) {
		struct event **chunks = realloc(state->chunks,
						(state->n_chunks + 1) * sizeof(struct event *));

		if (!chunks)
			return -ENOMEM;
		state->chunks = chunks;
		chunks[state->n_chunks] = malloc(CHUNK * sizeof(struct event));
		if (!chunks[state->n_chunks])
			return -ENOMEM;
		state->n_chunks++;
	}
	if (is_of_block(event) &&
	    (check_total(state, event) || note_first(state, state->n_events, event)))
		return -ENOMEM;
	state->chunks[state->n_events / CHUNK][state->n_events % CHUNK] = *event;
	state->n_events++;
	return 0;
}

static size_t attach_state__held(const struct attach_state *state)
{
	return state->n_events;
}

ARRAY_COMPARE(by_address, struct cuda_segment, addr)

ARRAY_COMPARE(by_block_address, struct cuda_block, addr)

static struct cuda_segment *segment_at(const struct vec *vec, size_t i)
{
	return (struct cuda_segment *)vec->v + i;
}

/* Adds the part of a segment from one address to another. */
static int add_part(struct vec *vec, const struct cuda_segment *segment, uint64_t from,
		    uint64_t end)
{
	struct cuda_segment *g = vec__add(vec, sizeof(*g));

	if (!g)
		return -ENOMEM;
	*g = *segment;
	g->whole = segment->whole && from == segment->addr && end == segment->addr + segment->size;
	g->addr = from;
	g->size = end - from;
	return 0;
}

/* The segment that contains addr; NULL: none. vec: sorted by address. */
static const struct cuda_segment *find_segment(const struct vec *vec, uint64_t addr)
{
	size_t low = 0, high = vec->n, mid;

	/* low: number of segments that begin at addr or before */
	while (low < high) {
		mid = (low + high) / 2;
		if (segment_at(vec, mid)->addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low && addr - segment_at(vec, low - 1)->addr < segment_at(vec, low - 1)->size
		       ? segment_at(vec, low - 1)
		       : NULL;
}

/* True if one of the segments contains all of segment. */
static bool is_covered(const struct vec *vec, const struct cuda_segment *segment)
{
	const struct cuda_segment *candidate = find_segment(vec, segment->addr);

	return candidate && candidate->device == segment->device &&
	       segment->addr + segment->size <= candidate->addr + candidate->size;
}

/* Adds the segments of a reading. was_whole: devices that were read as a whole, which replaces what
 * is known of them. A torn reading has true segments, too: they replace the parts of earlier
 * segments that they overlap. */
static int add_segments(struct attach_state *state, const struct cudaalloc_state *read,
			const bool *was_whole)
{
	const struct cuda_segment *old = state->segments.v;
	struct vec merged = { 0 };
	struct cuda_segment *segment;
	size_t i, first_new, n_new;

	for (i = 0; i < read->nsegments; i++) {
		/* A partial segment that an earlier one covers says nothing new. */
		if (!read->segments[i].whole && !was_whole[read->segments[i].device] &&
		    is_covered(&state->segments, &read->segments[i]))
			continue;
		segment = vec__add(&merged, sizeof(*segment));
		if (!segment)
			goto nomem;
		*segment = read->segments[i];
	}
	/* Add the parts of the old segments that no new one overlaps. */
	n_new = merged.n;
	if (merged.n)
		qsort(merged.v, merged.n, sizeof(*segment), by_address);
	for (i = 0, first_new = 0; i < state->segments.n; i++) {
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
		qsort(merged.v, merged.n, sizeof(*segment), by_address);
	free(state->segments.v);
	state->segments = merged;
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
static int attach_state__hint(struct attach_state *state, const struct cuda_segment *v, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		struct cuda_segment *segment = vec__add(&state->hints, sizeof(*segment));

		if (!segment)
			return -ENOMEM;
		*segment = v[i];
	}
	if (state->hints.n)
		qsort(state->hints.v, state->hints.n, sizeof(*v), by_address);
	return 0;
}

/* Adds a reading that began after T0. Events up to its end must be held before
 * attach_state__exact() is called. 0 or -ENOMEM. */
static int attach_state__read(struct attach_state *state, const struct cudaalloc_state *read)
{
	bool was_whole[DEVICES] = { false };
	struct cuda_block *block;
	uint64_t seen_index;
	size_t i, n;

	for (i = 0; i < read->ndevices && i < DEVICES; i++) {
		was_whole[i] = read->devices[i].consistent;
		state->totals[i] = read->devices[i].after;
		state->any[i] = true;
	}
	/*
	 * A whole reading has all blocks: others that earlier readings saw were torn or are freed.
	 */
	for (i = 0, n = 0, block = state->seen.v; i < state->seen.n;
	     i++) { /* n: blocks that stay */
		if (was_whole[block[i].device]) {
			map64__del(state->blocks, block[i].addr, /*old=*/NULL);
			continue;
		}
		block[n] = block[i];
		if (map64__set(state->blocks, block[n].addr, n))
			return -ENOMEM;
		n++;
	}
	state->seen.n = n;
	for (i = 0; i < read->nblocks; i++) {
		if (read->blocks[i].state == CUDA_BLOCK_CACHED)
			continue;
		if (map64__get(state->blocks, read->blocks[i].addr, &seen_index)) {
			block = (struct cuda_block *)state->seen.v + seen_index;
		} else {
			block = vec__add(&state->seen, sizeof(*block));
			if (!block ||
			    map64__set(state->blocks, read->blocks[i].addr, state->seen.n - 1))
				return -ENOMEM;
		}
		*block = read->blocks[i];
	}
	return add_segments(state, read, was_whole);
}

/* ---- solving: the state at T0 ---- */

/* Finds the blocks at T0: those that readings saw and the log does not name, and those whose first
 * event in the log is a free. sum: gets their bytes by device. */
static int solve_blocks(struct attach_state *state, uint64_t *sum)
{
	const struct cuda_block *seen = state->seen.v;
	struct cuda_block *block;
	uint64_t addr, first, seen_index;
	size_t i, pos = 0;

	state->t0_blocks.n = 0;
	for (i = 0; i < state->seen.n; i++) {
		if (map64__get(state->first, seen[i].addr, &first))
			continue;
		block = vec__add(&state->t0_blocks, sizeof(*block));
		if (!block)
			return -ENOMEM;
		*block = seen[i];
		/* The total lacks pending blocks, which the program has freed. */
		if (block->state != CUDA_BLOCK_PENDING)
			sum[block->device] += block->size;
	}
	while (map64__next(state->first, &pos, &addr, &first)) {
		const struct event *event = event_at(state, first & ~REUSED);

		if (event->kind != EVENT_FREE)
			continue;
		block = vec__add(&state->t0_blocks, sizeof(*block));
		if (!block)
			return -ENOMEM;
		*block = (struct cuda_block){ .addr = addr,
					      .size = event->size,
					      .device = event->device.index };
		/* Take properties from a reading only if it saw this block, before it was freed,
		 * and not a later one at the address. */
		if (!(first & REUSED) && map64__get(state->blocks, addr, &seen_index) &&
		    seen[seen_index].size == event->size) {
			block->requested = seen[seen_index].requested;
			block->stream = seen[seen_index].stream;
		}
		sum[block->device] += block->size;
	}
	if (state->t0_blocks.n)
		qsort(state->t0_blocks.v, state->t0_blocks.n, sizeof(*block), by_block_address);
	return 0;
}

/* Removes a range of addresses from the segments, which may cut a segment short or split it. */
static int remove_range(struct vec *vec, uint64_t addr, uint64_t size)
{
	uint64_t end = addr + size;
	size_t n = vec->n, i; /* n: without the rests added here */

	for (i = 0; i < n; i++) {
		struct cuda_segment *segment = (struct cuda_segment *)vec->v + i, *rest;
		uint64_t g_end = segment->addr + segment->size;

		if (segment->addr >= end || g_end <= addr)
			continue;
		if (segment->addr < addr && g_end > end) {
			rest = vec__add(vec, sizeof(*rest));
			if (!rest)
				return -ENOMEM;
			segment = (struct cuda_segment *)vec->v + i; /* the array may have moved */
			*rest = *segment;
			rest->addr = end;
			rest->size = g_end - end;
			segment->size = addr - segment->addr;
		} else if (segment->addr < addr) {
			segment->size = addr - segment->addr;
		} else if (g_end > end) {
			segment->size = g_end - end;
			segment->addr = end;
		} else {
			segment->size = 0; /* removed below */
		}
	}
	for (i = 0, n = 0; i < vec->n; i++) {
		const struct cuda_segment *segment = (struct cuda_segment *)vec->v + i;

		if (segment->size)
			((struct cuda_segment *)vec->v)[n++] = *segment;
	}
	vec->n = n;
	return 0;
}

/* Adds the segment that the call event gave back. */
static int add_range(struct vec *vec, const struct event *event)
{
	struct cuda_segment *segment;
	int err = remove_range(vec, event->addr, event->size);

	if (err)
		return err;
	segment = vec__add(vec, sizeof(*segment));
	if (!segment)
		return -ENOMEM;
	*segment = (struct cuda_segment){ .addr = event->addr,
					  .size = event->size,
					  .device = event->device.index,
					  .expandable = event->how == MEM_MAPPED,
					  .whole = true };
	return 0;
}

/* True for calls that change the allocator's reserved total. */
static bool moves_segments(const struct event *event)
{
	return (event->kind == EVENT_CUDA_ALLOC || event->kind == EVENT_CUDA_FREE) &&
	       (event->flags & MEM_BY_ALLOCATOR) &&
	       (event->how == MEM_DEVICE || event->how == MEM_MAPPED);
}

/* Sets the device and the size that a call does not say, from the segment at its address. segment
 * may be NULL. */
static void fill_in(struct event *event, const struct cuda_segment *segment)
{
	if (!segment)
		return;
	if (event->device.index == DEVICE_UNKNOWN)
		event->device.index = segment->device;
	if (!event->size && segment->addr == event->addr)
		event->size = segment->size;
}

/*
 * Fills in what calls do not always say: the device, or the size of a free. The call that took the
 * segment has them if it is in the log; otherwise the segment was there at T0 and was read before
 * or after.
 */
static int solve_moves(struct attach_state *state)
{
	uint64_t take_index;
	size_t i;

	state->moves.n = 0;
	map64__clear(state->taken);
	for (i = 0; i < state->n_events; i++) {
		struct event *event;

		if (!moves_segments(event_at(state, i)))
			continue;
		event = vec__add(&state->moves, sizeof(*event));
		if (!event)
			return -ENOMEM;
		*event = *event_at(state, i);
		if (event->kind == EVENT_CUDA_FREE &&
		    map64__del(state->taken, event->addr, &take_index)) {
			const struct event *take = (struct event *)state->moves.v + take_index;

			if (!event->size)
				event->size = take->size;
			if (event->device.index == DEVICE_UNKNOWN)
				event->device = take->device;
		} else if (event->kind == EVENT_CUDA_FREE) {
			fill_in(event, find_segment(&state->hints, event->addr));
		}
		fill_in(event, find_segment(&state->segments, event->addr));
		if (event->kind == EVENT_CUDA_ALLOC &&
		    map64__set(state->taken, event->addr, state->moves.n - 1))
			return -ENOMEM;
	}
	return 0;
}

/* Joins neighbouring parts of expandable segments, as the allocator does. */
static void join_parts(struct vec *vec)
{
	struct cuda_segment *segment = vec->v;
	size_t i, n = 0;

	for (i = 0; i < vec->n; i++) {
		struct cuda_segment *last = n ? &segment[n - 1] : NULL;

		if (last && last->expandable == segment[i].expandable &&
		    (segment[i].expandable || (!last->whole && !segment[i].whole)) &&
		    last->device == segment[i].device &&
		    last->addr + last->size == segment[i].addr &&
		    (last->stream == segment[i].stream || !segment[i].stream) &&
		    !memcmp(last->pool, segment[i].pool, sizeof(last->pool)))
			last->size += segment[i].size;
		else
			segment[n++] = segment[i];
	}
	vec->n = n;
}

/* Finds the segments at T0 from those read last: undoes the log from its end to its beginning. sum:
 * gets their bytes by device. */
static int solve_segments(struct attach_state *state, uint64_t *sum)
{
	const struct cuda_segment *segment;
	size_t i;
	int err;

	state->t0_segments.n = 0;
	for (i = 0; i < state->segments.n; i++) {
		struct cuda_segment *to = vec__add(&state->t0_segments, sizeof(*to));

		if (!to)
			return -ENOMEM;
		*to = ((struct cuda_segment *)state->segments.v)[i];
	}
	for (i = state->moves.n; i--;) {
		const struct event *event = (struct event *)state->moves.v + i;

		if (!event->size)
			continue;
		err = event->kind == EVENT_CUDA_ALLOC
			      ? remove_range(&state->t0_segments, event->addr, event->size)
			      : add_range(&state->t0_segments, event);
		if (err)
			return err;
	}
	if (state->t0_segments.n)
		qsort(state->t0_segments.v, state->t0_segments.n, sizeof(*segment), by_address);
	join_parts(&state->t0_segments);
	for (i = 0, segment = state->t0_segments.v; i < state->t0_segments.n; i++)
		sum[segment[i].device] += segment[i].size;
	return 0;
}

/* Sets a device's totals at T0 from its first event with totals after T0. moved: bytes that the
 * device's segments gained between T0 and the event. */
static void set_totals_from_event(struct attach_state *state, const struct event *event,
				  int64_t moved)
{
	uint8_t device = event->device.index;

	state->t0_known[device] = true;
	/* The event's totals include its own block. */
	state->t0_allocated[device] = event->allocated;
	if (event->kind == EVENT_ALLOC)
		state->t0_allocated[device] -= event->size;
	else if (event->kind == EVENT_FREE)
		state->t0_allocated[device] += event->size;
	state->t0_reserved[device] = event->reserved - (uint64_t)moved;
}

/* Sets the totals at T0 of a device without such an event. The blocks have not changed since T0, so
 * the last reading's allocated total is right. moved: bytes that the device's segments gained. */
static void set_totals_from_reading(struct attach_state *state, unsigned d, int64_t moved)
{
	state->t0_known[d] = true;
	state->t0_allocated[d] = state->totals[d].allocated;
	state->t0_reserved[d] = state->totals[d].reserved - (uint64_t)moved;
}

/* Finds the totals at T0: from the first event with totals, otherwise from the last reading.
 * state->moves has the same events as moves_segments(), in the same order, with their devices and
 * sizes. */
static void solve_totals(struct attach_state *state)
{
	const struct event *next_move = state->moves.v;
	int64_t moved[DEVICES] = { 0 };
	size_t i;

	memset(state->t0_known, 0, sizeof(state->t0_known));
	for (i = 0; i < state->n_events; i++) {
		const struct event *event = event_at(state, i);
		uint8_t device = event->device.index;

		if (moves_segments(event)) {
			moved[next_move->device.index] += event->kind == EVENT_CUDA_ALLOC
								  ? (int64_t)next_move->size
								  : -(int64_t)next_move->size;
			next_move++;
		}
		/* Events before begin[device] are from before T0: check_total(). */
		if (has_totals(event) && !state->t0_known[device] && i >= state->begin[device])
			set_totals_from_event(state, event, moved[device]);
	}
	for (i = 0; i < DEVICES; i++)
		if (!state->t0_known[i] && state->any[i])
			set_totals_from_reading(state, i, moved[i]);
}

/* Finds the state at T0 from events and readings so far. 0 or -ENOMEM. */
static int solve(struct attach_state *state)
{
	uint64_t block_bytes[DEVICES] = { 0 }, segment_bytes[DEVICES] = { 0 };
	int err = solve_blocks(state, block_bytes);

	if (err)
		return err;
	err = solve_moves(state);
	if (err)
		return err;
	err = solve_segments(state, segment_bytes);
	if (err)
		return err;
	solve_totals(state);
	for (int i = 0; i < DEVICES; i++) {
		state->t0_blocks_exact[i] = state->t0_known[i] &&
					    block_bytes[i] == state->t0_allocated[i];
		state->t0_segments_exact[i] = state->t0_known[i] &&
					      segment_bytes[i] == state->t0_reserved[i];
	}
	return 0;
}

/* 1 if blocks and segments found so far add up to the totals on every device; 0 or -ENOMEM. */
static int attach_state__exact(struct attach_state *state)
{
	int err = solve(state);

	if (err)
		return err;
	for (int i = 0; i < DEVICES; i++) {
		if ((state->any[i] || state->t0_known[i]) &&
		    !(state->t0_blocks_exact[i] && state->t0_segments_exact[i]))
			return 0;
	}
	return 1;
}

/* True if every segment was read from end to end, which tells its kind. */
static bool attach_state__segments_whole(const struct attach_state *state)
{
	for (size_t i = 0; i < state->segments.n; i++) {
		if (!segment_at(&state->segments, i)->whole)
			return false;
	}
	return true;
}

/* Ends the holding: call attach_state__next() until it returns NULL, and nothing else. 0 or
 * -ENOMEM. */
static int attach_state__end(struct attach_state *state)
{
	state->at_device = 0;
	state->at_segment = state->at_block = state->at_event = 0;
	return solve(state);
}

/* The device's next segment or block, or its EVENT_STATE; NULL: no more. */
static const struct event *next_of_device(struct attach_state *state, uint8_t device)
{
	const struct cuda_segment *segment;
	const struct cuda_block *block;

	while (state->at_segment < state->t0_segments.n) {
		segment = (struct cuda_segment *)state->t0_segments.v + state->at_segment++;
		if (segment->device != device)
			continue;
		state->made = (struct event){ .kind = EVENT_SEGMENT,
					      .device = { DEVICE_CUDA, device },
					      .addr = segment->addr,
					      .size = segment->size,
					      .cuda_stream = segment->stream,
					      .pool = { segment->pool[0], segment->pool[1] } };
		if (segment->small)
			state->made.flags |= SEGMENT_SMALL;
		if (segment->expandable)
			state->made.flags |= SEGMENT_EXPANDABLE;
		return &state->made;
	}
	while (state->at_block < state->t0_blocks.n) {
		block = (struct cuda_block *)state->t0_blocks.v + state->at_block++;
		if (block->device != device)
			continue;
		state->made = (struct event){ .kind = EVENT_BLOCK,
					      .device = { DEVICE_CUDA, device },
					      .flags = block->state == CUDA_BLOCK_PENDING
							       ? BLOCK_PENDING
							       : 0,
					      .addr = block->addr,
					      .size = block->size,
					      .requested = block->requested,
					      .cuda_stream = block->stream };
		return &state->made;
	}
	if (state->made.kind == EVENT_STATE && state->made.device.index == device)
		return NULL; /* it was the last event of the device */
	state->made = (struct event){ .kind = EVENT_STATE,
				      .device = { DEVICE_CUDA, device },
				      .totals = state->t0_known[device] };
	if (state->t0_known[device]) {
		state->made.allocated = state->t0_allocated[device];
		state->made.reserved = state->t0_reserved[device];
	}
	if (state->t0_segments_exact[device])
		state->made.flags = STATE_SEGMENTS_EXACT |
				    (state->t0_blocks_exact[device] ? STATE_EXACT : 0);
	return &state->made;
}

/*
 * The next event of the stream, valid until the next call: first the state at T0 by device
 * (EVENT_SEGMENT and EVENT_BLOCK by address, then EVENT_STATE), unless nothing was read of a device
 * that was in use; then all events held. NULL: no more.
 */
static const struct event *attach_state__next(struct attach_state *state)
{
	const struct event *event = NULL;

	for (; state->at_device < DEVICES; state->at_device++) {
		unsigned d = state->at_device;

		if (state->any[d] || (state->t0_blocks_exact[d] && state->t0_segments_exact[d]))
			event = next_of_device(state, (uint8_t)d);
		if (event)
			return event;
		state->at_segment = state->at_block = 0;
	}
	while (state->at_event < state->n_events) {
		event = event_at(state, state->at_event++);
		if (!is_before_t0(state, state->at_event - 1, event))
			return event;
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
static void state_seam__emitted(struct state_seam *m, const struct event *event)
{
	if (event->kind == EVENT_STATE && event->totals) {
		m->open[event->device.index] = true;
		m->allocated[event->device.index] = event->allocated;
	} else if (has_totals(event)) {
		m->open[event->device.index] = false;
	}
}

/* Call it for each later event. True if T0 contains the change of this event. */
static bool state_seam__contains(struct state_seam *m, const struct event *event)
{
	bool was_open;

	/* The lost event may have been the one that belongs to T0. */
	if (event->kind == EVENT_LOST)
		memset(m->open, 0, sizeof(m->open));
	if (!has_totals(event))
		return false;
	was_open = m->open[event->device.index];
	m->open[event->device.index] = false;
	return was_open && is_of_block(event) && event->size &&
	       event->allocated == m->allocated[event->device.index];
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
static int read_tables(struct attach_stage *stage, struct cudaalloc_state *ret)
{
	struct cudaalloc *alloc = stage->target->alloc;
	int err = 0;

	if (!cudaalloc__calibrated(alloc))
		err = cudaalloc__calibrate(alloc);
	if (!err)
		err = cudaalloc__read(alloc, ret);
	if (err == -ESTALE && !cudaalloc__calibrate(alloc))
		err = cudaalloc__read(alloc, ret);
	target__set_backend_fact(stage->target, stage->facts);
	return err;
}

/* Reads the tables once, and adds that to the state held. 0, or -errno: only -ENOMEM ends the
 * capture. */
static int read_once(struct attach_stage *stage)
{
	struct cudaalloc_state read;
	int err = read_tables(stage, &read);

	stage->tries++;
	if (err) {
		stage->why_torn = cudaalloc__why(stage->target->alloc);
		return err;
	}
	stage->readings++;
	/* Used only if the sums do not agree later. */
	stage->why_torn = read.consistent ? "some calls that allocated segments are unknown"
					  : read.why;
	err = attach_state__read(stage->held, &read);
	cudaalloc_state__free(&read);
	return err;
}

int attach_stage__hint(struct attach_stage *stage)
{
	struct cudaalloc *alloc = stage->target->alloc;

	if (!alloc || cudaalloc__backend(alloc) != ALLOC_NATIVE || cudaalloc__devices(alloc) <= 0)
		return 0;
	return read_tables(stage, &stage->before) == -ENOMEM ? -ENOMEM : 0;
}

int attach_stage__begin(struct attach_stage *stage)
{
	struct cudaalloc *alloc = stage->target->alloc;
	enum alloc_backend backend;
	int devices, err;

	stage->empty = false;
	if (!alloc) {
		stage->empty = !stage->target->torch.cuda;
		return 0;
	}
	devices = cudaalloc__devices(alloc);
	backend = cudaalloc__backend(alloc);
	if (backend == ALLOC_NONE || (backend == ALLOC_NATIVE && devices == 0)) {
		stage->empty = true;
		return 0;
	}
	if (backend != ALLOC_NATIVE || devices < 0)
		return 0;
	stage->held = attach_state__new();
	if (!stage->held)
		return -ENOMEM;
	err = attach_state__hint(stage->held, stage->before.segments, stage->before.nsegments);
	cudaalloc_state__free(&stage->before);
	/* Read at once: of a segment given back before, only a call without its size is left. */
	if (!err)
		err = read_once(stage);
	stage->fresh = !err;
	return err == -ENOMEM ? err : 0;
}

int attach_stage__begin_forked(struct attach_stage *stage, const struct target *parent)
{
	struct cudaalloc *alloc = stage->target->alloc ? stage->target->alloc : parent->alloc;

	if (alloc && cudaalloc__backend(alloc) == ALLOC_NATIVE && cudaalloc__devices(alloc) > 0) {
		stage->copied = true;
		return 0;
	}
	return attach_stage__begin(stage);
}

/* Counts an event and passes it to the capture's sink. Returns 0 or the sink's error. */
static int pass_on(struct attach_stage *stage, const struct event *event)
{
	stage->events += event__counts(event);
	return stage->next ? stage->next->event(stage->next, event) : 0;
}

/* Passes on the state at attach and the events held. Later events pass at once. exact: above 0, the
 * readings and the events agree. 0, -ENOMEM or a sink's error. */
static int end_holding(struct attach_stage *stage, int exact)
{
	struct attach_state *held = stage->held;
	const struct event *event;
	int err;

	stage->held = NULL;
	if (exact > 0)
		log_debug("state at attach: exact after %u readings, %zu events meanwhile",
			  stage->readings, attach_state__held(held));
	else
		log_debug("state at attach: not exact after %u readings, %zu events meanwhile: %s",
			  stage->readings, attach_state__held(held), stage->why_torn);
	err = attach_state__end(held);
	while (!err && (event = attach_state__next(held))) {
		state_seam__emitted(&stage->seam, event);
		err = pass_on(stage, event);
	}
	attach_state__free(held);
	if (exact > 0)
		facts__set(stage->facts, "state", "exact");
	else
		facts__set(stage->facts, "state", stage->readings ? "approximate" : "none");
	return err;
}

/* True if the state was not found in time: it will not be found later. */
static bool is_overdue(const struct attach_stage *stage, uint64_t now)
{
	return (now > HOLD_MIN && (stage->tries >= READINGS_MIN || now > HOLD_MAX)) ||
	       attach_state__held(stage->held) > HELD_MAX;
}

/* Compares events and readings. Ends the holding if the state is exact, or will not get so.
 * read_err: error of the last reading. whole: all events up to that reading came. now: ns since
 * start. 0, -ENOMEM or a sink's error. */
static int end_if_settled(struct attach_stage *stage, int read_err, bool whole, uint64_t now)
{
	int exact;

	if (!read_err && !whole && !is_overdue(stage, now))
		return 0;
	exact = attach_state__exact(stage->held);
	if (exact < 0)
		return exact;
	if (!read_err && !whole) {
		stage->why_torn = "events from before the reading are still arriving";
		exact = 0;
	}
	/* All blocks are known; a segment's kind is, once it was read from end to end. */
	if (exact && stage->readings && !attach_state__segments_whole(stage->held) &&
	    now < WHOLE_WITHIN)
		return 0;
	/* Before CUDA's first use there is nothing to read: the first events' totals tell. */
	if (exact ? stage->readings || attach_state__held(stage->held) : is_overdue(stage, now))
		return end_holding(stage, exact);
	/* With -ENOTSUP no reading of this allocator will ever succeed. */
	return read_err == -ENOTSUP ? end_holding(stage, exact) : 0;
}

/* Reads what was allocated at attach, unless attach_stage__begin() has just done it. now: ns since
 * start. 1: the reading waits for attach_stage__take(); 0: none; negative: -ENOMEM or a sink's
 * error. */
static int read_state(struct attach_stage *stage, uint64_t now)
{
	int err = stage->fresh ? 0 : read_once(stage);

	if (err == -ENOMEM)
		return err;
	stage->fresh = false;
	stage->read_begin = now;
	return err ? end_if_settled(stage, err, /*whole=*/false, now) : 1;
}

/* ---- new segments ---- */

/* Hash of a segment's properties apart from its address, which is the key. */
static uint64_t segment_hash(const struct attach_stage *stage, const struct cuda_segment *segment)
{
	uint64_t values[6] = { segment->size,	 segment->stream, segment->pool[0],
			       segment->pool[1], segment->small,  segment->expandable };

	return hash__bytes(stage->seed, values, sizeof(values));
}

/* Emits a segment, unless it is partial or was emitted with the same properties. now: ns since
 * start. 0, -ENOMEM or a sink's error. */
static int emit_segment(struct attach_stage *stage, const struct cuda_segment *segment,
			uint64_t now)
{
	uint64_t hash = segment_hash(stage, segment), before;
	struct event event = { .kind = EVENT_SEGMENT,
			       .device = { DEVICE_CUDA, segment->device },
			       .time = now,
			       .addr = segment->addr,
			       .size = segment->size,
			       .cuda_stream = segment->stream,
			       .pool = { segment->pool[0], segment->pool[1] } };

	if (!segment->whole ||
	    (map64__get(stage->segments, segment->addr, &before) && before == hash))
		return 0;
	if (segment->small)
		event.flags |= SEGMENT_SMALL;
	if (segment->expandable)
		event.flags |= SEGMENT_EXPANDABLE;
	if (map64__set(stage->segments, segment->addr, hash))
		return -ENOMEM;
	return pass_on(stage, &event);
}

/* Reads the tables for new segments: the call that takes a segment does not say its stream and
 * pool. The reading counts only if no segment comes or goes until it is passed on: otherwise it is
 * of another moment of the stream. now: ns since start. 1: the reading waits for
 * attach_stage__take(); 0: the tables cannot be read now; or -ENOMEM. */
static int read_segments(struct attach_stage *stage, uint64_t now)
{
	int err;

	cudaalloc_state__free(&stage->read); /* left by a failed round */
	err = read_tables(stage, &stage->read);
	if (err)
		return err == -ENOMEM ? err : 0;
	stage->moves_read = stage->moves;
	stage->read_begin = now;
	return 1;
}

/* Passes on the segments of a reading, unless segments came or went since: then reads again later.
 * whole: all events up to the reading came. now: ns since start. 0, -ENOMEM or a sink's error. */
static int take_segments(struct attach_stage *stage, bool whole, uint64_t now)
{
	int err = 0;

	stage->next_read = now + SEGMENTS_EVERY + (now - stage->read_begin) * SEGMENTS_SHARE;
	if (stage->moves == stage->moves_read && whole) {
		stage->moves_passed = stage->moves;
		for (size_t i = 0; i < stage->read.nsegments && !err; i++)
			err = emit_segment(stage, &stage->read.segments[i], now);
	}
	cudaalloc_state__free(&stage->read);
	return err;
}

/* Counts a segment that was taken or given back. What was emitted at its address is not valid any
 * more. */
static void note_move(struct attach_stage *stage, const struct event *event)
{
	stage->moves++;
	if (event->how == MEM_MAPPED && event->kind == EVENT_CUDA_FREE) /* a part of some segment */
		map64__clear(stage->segments);
	else
		map64__del(stage->segments, event->addr, /*old=*/NULL);
}

/* True if segments came or went since they were read, and the tables can be read. */
static bool has_new_segments(const struct attach_stage *stage)
{
	return stage->target->alloc && stage->moves != stage->moves_passed &&
	       cudaalloc__backend(stage->target->alloc) <= ALLOC_NATIVE;
}

int attach_stage__read(struct attach_stage *stage, uint64_t now)
{
	if (stage->held)
		return read_state(stage, now);
	if (stage->moves != stage->moves_passed && !stage->target->alloc)
		target__backend(stage->target, stage->facts, now);
	if (!has_new_segments(stage) || now < stage->next_read)
		return 0;
	stage->next_read = now + SEGMENTS_EVERY;
	return read_segments(stage, now);
}

int attach_stage__read_last(struct attach_stage *stage, uint64_t now)
{
	return !stage->held && has_new_segments(stage) ? read_segments(stage, now) : 0;
}

int attach_stage__take(struct attach_stage *stage, bool whole, uint64_t now)
{
	return stage->held ? end_if_settled(stage, 0, whole, stage->read_begin)
			   : take_segments(stage, whole, now);
}

bool attach_stage__settled(const struct attach_stage *stage)
{
	return !stage->held;
}

int attach_stage__finish(struct attach_stage *stage)
{
	const struct cudaalloc *alloc = stage->target->alloc;
	int exact;

	if (stage->copies)
		facts__setf(stage->facts, "counter.cuda_copies", "%" PRIu64, stage->copies);
	target__set_backend_fact(stage->target, stage->facts);
	if (!facts__get(stage->facts, "allocator"))
		facts__set(stage->facts, "allocator",
			   alloc && cudaalloc__backend(alloc) == ALLOC_UNKNOWN ? "unknown" : "cpu");
	if (!stage->held)
		return 0;
	exact = attach_state__exact(stage->held);
	if (exact < 0) /* -ENOMEM */
		return exact;
	return end_holding(stage, exact);
}

/* ---- the events ---- */

/* On a device that was unused at attach, nothing was allocated. Says so before the first event of
 * the device, unless the totals of that event contradict. 0 or the sink's error. */
static int emit_empty(struct attach_stage *stage, const struct event *first)
{
	struct event event = { .kind = EVENT_STATE,
			       .device = first->device,
			       .totals = true,
			       .flags = STATE_EXACT | STATE_SEGMENTS_EXACT };
	bool was_empty = first->kind == EVENT_ALLOC && first->allocated == first->size;

	if (first->kind == EVENT_OOM)
		was_empty = !first->allocated;
	stage->empty_checked[first->device.index] = true;
	return was_empty ? pass_on(stage, &event) : 0;
}

/* Takes an event of the capture: holds it, drops it if the state at attach contains it, or passes
 * it on. 0, -ENOMEM or a sink's error. */
static int on_event(struct sink *sink, const struct event *event)
{
	struct attach_stage *stage = (struct attach_stage *)sink;
	bool is_cuda = event->device.type == DEVICE_CUDA && event->device.index != DEVICE_UNKNOWN;

	/* blocks of the parent */
	if (stage->copied && is_cuda && (event->kind == EVENT_ALLOC || event->kind == EVENT_FREE)) {
		stage->copies++;
		return 0;
	}
	if ((event->kind == EVENT_CUDA_ALLOC || event->kind == EVENT_CUDA_FREE) &&
	    (event->flags & MEM_BY_ALLOCATOR) &&
	    (event->how == MEM_DEVICE || event->how == MEM_MAPPED))
		note_move(stage, event);
	if (stage->held)
		return attach_state__hold(stage->held, event);
	if (state_seam__contains(&stage->seam, event)) {
		log_debug("dropped an event of cuda:%u: the state at attach contains it",
			  event->device.index);
		return 0;
	}
	if (stage->empty && is_cuda && event->totals &&
	    !stage->empty_checked[event->device.index]) {
		int err = emit_empty(stage, event);

		if (err)
			return err;
	}
	return pass_on(stage, event);
}

struct attach_stage *attach_stage__new(struct target *target, struct facts *facts, bool tables)
{
	struct attach_stage *stage = calloc(1, sizeof(*stage));

	if (!stage)
		return NULL;
	stage->sink.event = on_event;
	stage->target = target;
	stage->facts = facts;
	stage->seed = hash__seed();
	stage->segments = map64__new();
	if (!stage->segments) {
		attach_stage__free(stage);
		return NULL;
	}
	if (target->torch.cuda && tables)
		target__open_allocator(target, &target->maps);
	target__set_backend_fact(target, facts);
	return stage;
}

void attach_stage__free(struct attach_stage *stage)
{
	if (!stage)
		return;
	attach_state__free(stage->held);
	cudaalloc_state__free(&stage->before);
	cudaalloc_state__free(&stage->read);
	map64__free(stage->segments);
	free(stage);
}

void attach_stage__send_to(struct attach_stage *stage, struct sink *next)
{
	stage->next = next;
}

uint64_t attach_stage__events(const struct attach_stage *stage)
{
	return stage->events;
}
