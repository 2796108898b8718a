/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/replay/plan.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/map64.h"
#include "estimate/replay/wire.h"
#include "record/varint.h"

#define MAX_NUMBERS (1u << 24)	     /* numbers of segments; further ones count as no segment */
#define MAX_SEGMENTS (1u << 17)	     /* present at one time; jobs have about 10,000 */
#define SMALL_BLOCK (1ULL << 20)     /* largest block in the pool for small blocks */
#define MAX_KEPT (1u << 24)	     /* segments, and blocks, from before the first event */
#define GRAIN 512		     /* bytes: addresses and sizes of segments are multiples */
#define CONTEXT_GUESS (512ULL << 20) /* bytes, until the driver's figure is known */

struct plan_out {
	int fd;
	uint64_t at; /* bytes written */
	size_t n;
	uint8_t buf[1 << 16];
	uint64_t event, time; /* event and time of the last operation with EVENT */
};

struct plan_segment {
	uint64_t addr, size;
	uint32_t number; /* unique number; 0: blocks in no known segment */
};

enum plan_size { PLAN_ANY, PLAN_SMALL, PLAN_LARGE, PLAN_SIZES };

/* The pool of a segment, by the segment's number. */
struct plan_owner {
	uint32_t pool_no; /* 1 + index in plan_pools.pools; 0: unknown */
	bool has_stream;
	/* True for the address range of an expandable segment. A pool has one for small and one for
	 * large blocks. */
	bool range;
	uint8_t size;	 /* enum plan_size of the segment's blocks */
	uint64_t stream; /* stream according to an allocation in the segment */
};

struct plan_pool {
	uint64_t stream, id[2];
};

struct plan_pools {
	struct plan_segment *segments; /* present segments, by address */
	size_t n, cap;
	struct plan_owner *owners;
	size_t n_owners, cap_owners;
	struct plan_pool pools[REPLAY_MAX_POOLS];
	uint32_t n_pools;
};

/* Blocks and segments from before the first event. */
struct plan_state {
	struct event *segments, *blocks;
	size_t n_segments, cap_segments, n_blocks, cap_blocks;
	bool over; /* true after an EVENT_STATE or the first other event */
};

struct replay_plan_maker {
	struct plan_out out;
	struct plan_pools pools;
	struct plan_state state;
	struct map64 *live; /* address -> slot */
	uint32_t *free_slots;
	size_t n_free, cap_free;
	uint32_t n_slots;
	/* Device memory of other code than the allocator. */
	struct map64 *others; /* address or handle -> number */
	uint64_t *other_size; /* size by number */
	size_t cap_other_size;
	uint32_t *free_others;
	size_t n_free_others, cap_free_others;
	uint32_t n_others;
	uint64_t others_bytes;
	struct event pending; /* allocation that may still get an EVENT_REQUESTED */
	uint64_t pending_index;
	uint32_t pending_stack;
	bool has_pending;
	uint32_t segment;  /* segment of the last REPLAY_POOL */
	uint64_t reserved; /* reserved bytes after the last event with totals */
	uint64_t expected; /* value of the last REPLAY_RESERVED */
	bool has_totals, has_expected;
	/* Since the allocator's last event: it returned memory to CUDA; it took memory, and how
	 * many bytes in the last call. */
	bool returned, took;
	uint64_t took_bytes;
	uint64_t highest_used; /* highest figure of the driver that on_used() took over, bytes */
	uint8_t device;
	uint64_t total;
	struct replay_plan_info info;
};

/* ---- writing operations ---- */

/* Writes the buffer to the plan. Returns 0 or -errno. */
static int flush_out(struct plan_out *o)
{
	int err = io__write(o->fd, o->buf, o->n);

	if (err)
		return err;
	o->at += o->n;
	o->n = 0;
	return 0;
}

/* Writes raw bytes. Returns 0 or -errno. */
static int put_bytes(struct plan_out *o, const void *data, size_t size)
{
	const uint8_t *p = data;

	while (size) {
		size_t n = sizeof(o->buf) - o->n < size ? sizeof(o->buf) - o->n : size;
		int err = n ? 0 : flush_out(o);

		if (err)
			return err;
		memcpy(o->buf + o->n, p, n);
		o->n += n;
		p += n;
		size -= n;
	}
	return 0;
}

/* Most numbers of an operation, with those of EVENT. */
#define NUMBERS_MAX 8

/* Writes an operation with n numbers. Returns 0 or -errno. */
static int put_op(struct plan_out *o, enum replay_op op, const uint64_t *v, size_t n)
{
	uint8_t *p;
	int err = sizeof(o->buf) - o->n < 1 + NUMBERS_MAX * VARINT_MAX ? flush_out(o) : 0;

	if (err)
		return err;
	p = o->buf + o->n;
	*p++ = (uint8_t)op;
	for (size_t i = 0; i < n; i++)
		p = varint__put(p, v[i]);
	o->n = (size_t)(p - o->buf);
	return 0;
}

/* Writes an operation with EVENT (number and time, as differences) and n numbers. Returns 0 or
 * -errno. */
static int put_event(struct plan_out *o, enum replay_op op, uint64_t event, uint64_t time,
		     const uint64_t *v, size_t n)
{
	uint64_t all[NUMBERS_MAX] = { event - o->event, zigzag(time - o->time) };

	if (n)
		memcpy(all + 2, v, n * sizeof(*v));
	o->event = event;
	o->time = time;
	return put_op(o, op, all, n + 2);
}

/* ---- segments and their pools ---- */

/*
 * Segments by address, and their pools. A segment serves the blocks of one stream and one pool. The
 * call that takes it does not tell which. Later readings of the allocator's tables do, and an
 * EVENT_REQUESTED names the stream of its allocation. So blocks refer to segments by number, and
 * settle_pools() chooses the pools at the end.
 */

/* Returns 0 or -ENOMEM. */
static int init_pools(struct plan_pools *p)
{
	p->n_pools = 1; /* pool 0: the default stream without a private pool */
	if (array__grow(&p->owners, &p->cap_owners, 1, sizeof(*p->owners)))
		return -ENOMEM;
	p->owners[p->n_owners++] = (struct plan_owner){ 0 };
	return 0;
}

static void free_pools(struct plan_pools *p)
{
	free(p->segments);
	free(p->owners);
}

/* Returns the index of the first segment that ends above addr. */
static size_t find_above(const struct plan_pools *p, uint64_t addr)
{
	size_t low = 0, high = p->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (p->segments[mid].addr + p->segments[mid].size > addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* Adds a segment and removes segments that it overlaps. range: as in struct plan_owner. Beyond
 * MAX_NUMBERS it has number 0. Returns 0 or -ENOMEM. */
static int add_segment(struct plan_pools *p, uint64_t addr, uint64_t size, bool range)
{
	size_t from = find_above(p, addr), to = from;
	uint32_t number = 0;

	if (!size || addr > UINT64_MAX - size || p->n >= MAX_SEGMENTS)
		return 0;
	while (to < p->n && p->segments[to].addr < addr + size)
		to++;
	if (p->n_owners < MAX_NUMBERS) {
		if (array__grow(&p->owners, &p->cap_owners, p->n_owners + 1, sizeof(*p->owners)))
			return -ENOMEM;
		number = (uint32_t)p->n_owners;
		p->owners[p->n_owners++] = (struct plan_owner){ .range = range };
	}
	if (array__grow(&p->segments, &p->cap, p->n + 1, sizeof(*p->segments)))
		return -ENOMEM;
	memmove(&p->segments[from + 1], &p->segments[to], (p->n - to) * sizeof(*p->segments));
	p->n += 1 + from - to;
	p->segments[from] = (struct plan_segment){ addr, size, number };
	return 0;
}

/* Extends the segment that ends at addr. Does nothing without such a segment, or if another segment
 * follows too closely. */
static void extend_segment(struct plan_pools *p, uint64_t addr, uint64_t size)
{
	size_t next = find_above(p, addr);
	struct plan_segment *s = next ? &p->segments[next - 1] : NULL;

	bool has_room;

	if (!s || s->addr + s->size != addr || addr > UINT64_MAX - size)
		return;
	has_room = next == p->n || p->segments[next].addr >= addr + size;
	if (has_room)
		s->size += size;
}

/* Removes the segment that starts at addr. False: no such segment. */
static bool remove_segment(struct plan_pools *p, uint64_t addr)
{
	size_t i = find_above(p, addr);

	if (i == p->n || p->segments[i].addr != addr)
		return false;
	memmove(&p->segments[i], &p->segments[i + 1], (p->n - i - 1) * sizeof(*p->segments));
	p->n--;
	return true;
}

/* Returns the segment that contains addr, or NULL. */
static struct plan_segment *find_segment(struct plan_pools *p, uint64_t addr)
{
	size_t i = find_above(p, addr);

	return i < p->n && p->segments[i].addr <= addr ? &p->segments[i] : NULL;
}

/* Adds a pool, unless p has it. Returns its pool_no; 0: it would be one more than a plan has. */
static uint32_t add_pool(struct plan_pools *p, uint64_t stream, uint64_t id_low, uint64_t id_high)
{
	struct plan_pool want = { stream, { id_low, id_high } };

	for (uint32_t i = 0; i < p->n_pools; i++)
		if (!memcmp(&p->pools[i], &want, sizeof(want)))
			return 1 + i;
	if (p->n_pools == REPLAY_MAX_POOLS)
		return 0;
	p->pools[p->n_pools++] = want;
	return p->n_pools;
}

/* Sets the pool of the segment with this number, from the allocator's tables. Number 0 is no
 * segment. */
static void set_pool(struct plan_pools *p, uint32_t number, uint64_t stream, const uint64_t id[2])
{
	if (number)
		p->owners[number].pool_no = add_pool(p, stream, id[0], id[1]);
}

/* Sets only the stream of the segment with this number, from an allocation. Number 0 is no segment.
 */
static void set_stream(struct plan_pools *p, uint32_t number, uint64_t stream)
{
	if (number) {
		p->owners[number].has_stream = true;
		p->owners[number].stream = stream;
	}
}

/* Notes from the first block in the segment whether it serves small or large ones. */
static void note_block(struct plan_pools *p, uint32_t number, uint64_t size)
{
	if (number && !p->owners[number].size)
		p->owners[number].size = size <= SMALL_BLOCK ? PLAN_SMALL : PLAN_LARGE;
}

/* Gives unknown ranges of expandable segments distinct pools, as long as there are any. Two ranges
 * for blocks of the same size never share a pool. The choice of the stream does not affect the
 * replay. Returns the number of ranges that got one. */
static unsigned separate_ranges(struct plan_pools *p)
{
	bool used[PLAN_SIZES][REPLAY_MAX_POOLS] = { 0 };
	uint32_t next[PLAN_SIZES] = { 0 };
	unsigned separated = 0;

	for (size_t i = 1; i < p->n_owners; i++)
		if (p->owners[i].range && p->owners[i].pool_no)
			used[p->owners[i].size][p->owners[i].pool_no - 1] = true;
	for (size_t i = 1; i < p->n_owners; i++) {
		struct plan_owner *o = &p->owners[i];
		uint32_t *n = &next[o->size];

		if (!o->range || o->pool_no)
			continue;
		while (*n < p->n_pools && used[o->size][*n])
			++*n;
		if (*n == p->n_pools)
			add_pool(p, UINT64_MAX - *n, 0, 0);
		if (*n == p->n_pools)
			break; /* no more pools */
		o->pool_no = 1 + (*n)++;
		separated++;
	}
	return separated;
}

/* Sets the pool_no of a stream named by allocations. A segment with both a name and a pool defines
 * it; otherwise the stream gets a new pool. names: pool_no by stream, filled before
 * with the segments that have both. *pool_no 0: too many pools. Returns 0 or -ENOMEM. */
static int pool_of_stream(struct plan_pools *p, struct map64 *names, uint64_t stream,
			  uint32_t *pool_no)
{
	uint64_t known;

	if (map64__get(names, stream, &known)) {
		*pool_no = (uint32_t)known;
		return 0;
	}
	*pool_no = add_pool(p, stream, 0, 0);
	return map64__set(names, stream, *pool_no);
}

/* Sets the pools of the segments whose stream allocations name. *unknown: segments that are still
 * without a pool. Returns 0 or -ENOMEM. */
static int settle_streams(struct plan_pools *p, unsigned *unknown)
{
	struct map64 *names = map64__new();
	int err = names ? 0 : -ENOMEM;

	*unknown = 0;
	for (size_t i = 1; i < p->n_owners && !err; i++)
		if (p->owners[i].pool_no && p->owners[i].has_stream)
			err = map64__set(names, p->owners[i].stream, p->owners[i].pool_no);
	for (size_t i = 1; i < p->n_owners && !err; i++) {
		struct plan_owner *o = &p->owners[i];

		if (!o->pool_no && o->has_stream)
			err = pool_of_stream(p, names, o->stream, &o->pool_no);
		*unknown += !o->pool_no;
	}
	map64__free(names);
	return err;
}

/* Chooses a pool for every segment at the end, so that no pool_no is 0. *unknown: segments whose
 * pool is unknown; they go to pool 0. Returns 0 or -ENOMEM. */
static int settle_pools(struct plan_pools *p, unsigned *unknown)
{
	int err = settle_streams(p, unknown);

	if (err)
		return err;
	*unknown -= separate_ranges(p); /* number of those that got a pool of their own */
	for (size_t i = 0; i < p->n_owners; i++)
		if (!p->owners[i].pool_no)
			p->owners[i].pool_no = 1; /* pool 0 */
	return 0;
}

/* ---- slots ---- */

/* Sets *ret to a free number, or a new one (*n). Returns 0, or -EFBIG: there are too many. */
static int take_number(uint32_t *free_numbers, size_t *n_free, uint32_t *n, uint32_t *ret)
{
	if (*n_free) {
		*ret = free_numbers[--*n_free];
		return 0;
	}
	if (*n >= REPLAY_MAX_SLOTS)
		return -EFBIG;
	*ret = (*n)++;
	return 0;
}

/* Puts a number on the list of free ones. Returns 0 or -ENOMEM. numbers, *n_free, *cap: the list,
 * its length and its room. */
static int free_number(uint32_t **free_numbers, size_t *n_free, size_t *cap, uint32_t number)
{
	if (array__grow(free_numbers, cap, *n_free + 1, sizeof(**free_numbers)))
		return -ENOMEM;
	(*free_numbers)[(*n_free)++] = number;
	return 0;
}

/* Assigns a slot to a block at addr. Returns 0, -EFBIG without a free slot, or -ENOMEM. */
static int take_slot(struct replay_plan_maker *p, uint64_t addr, uint32_t *ret)
{
	int err = take_number(p->free_slots, &p->n_free, &p->n_slots, ret);

	return err ? err : map64__set(p->live, addr, *ret);
}

/* ---- blocks and segments from before the first event, in order of address ---- */

/* Keeps an EVENT_SEGMENT or EVENT_BLOCK for write_state(). Drops it if its range is empty or wraps
 * around, or if MAX_KEPT of its kind are kept. Returns 0, also then, or -ENOMEM. */
static int keep_state(struct plan_state *s, const struct event *e)
{
	struct event **v = e->kind == EVENT_BLOCK ? &s->blocks : &s->segments;
	size_t *n = e->kind == EVENT_BLOCK ? &s->n_blocks : &s->n_segments;
	size_t *cap = e->kind == EVENT_BLOCK ? &s->cap_blocks : &s->cap_segments;

	if (!e->size || e->addr > UINT64_MAX - e->size || *n >= MAX_KEPT)
		return 0;
	if (array__grow(v, cap, *n + 1, sizeof(**v)))
		return -ENOMEM;
	(*v)[(*n)++] = *e;
	return 0;
}

/* Frees the events from before the first one. */
static void free_state(struct plan_state *s)
{
	free(s->segments);
	free(s->blocks);
	s->segments = s->blocks = NULL;
	s->n_segments = s->n_blocks = 0;
}

ARRAY_COMPARE(by_addr, struct event, addr)

/* Sorts by address and drops entries that overlap an earlier one. Returns the number of those that
 * are left. */
static size_t sort_and_drop_overlaps(struct event *v, size_t n)
{
	size_t kept = 0;

	if (n)
		qsort(v, n, sizeof(*v), by_addr);
	for (size_t i = 0; i < n; i++)
		if (!kept || v[i].addr >= v[kept - 1].addr + v[kept - 1].size)
			v[kept++] = v[i];
	return kept;
}

/* Assigns a slot to a block from before the first event. *slot_no: slot + 1; 0: the program has
 * freed the block, and only a stream still uses it. Returns 0 or -errno. */
static int slot_of(struct replay_plan_maker *p, const struct event *block, uint64_t *slot_no)
{
	uint32_t slot;
	int err;

	*slot_no = 0;
	if (block->flags & BLOCK_PENDING)
		return 0;
	err = take_slot(p, block->addr, &slot);
	if (err)
		return err;
	*slot_no = 1 + (uint64_t)slot;
	p->info.before += block->size;
	return 0;
}

/* Writes a segment from before the first event with its n blocks. Returns 0 or -errno. */
static int write_segment(struct replay_plan_maker *p, const struct event *s,
			 const struct event *blocks, size_t n)
{
	struct plan_segment *seg;
	int err = add_segment(&p->pools, s->addr, s->size, /*range=*/false);

	if (err)
		return err;
	seg = find_segment(&p->pools, s->addr);
	set_pool(&p->pools, seg ? seg->number : 0, s->cuda_stream, s->pool);
	err = put_op(&p->out, REPLAY_SEGMENT,
		     (uint64_t[]){ seg ? seg->number : 0, s->addr, s->size,
				   !!(s->flags & SEGMENT_SMALL), n },
		     /*n=*/5);
	for (size_t i = 0; i < n && !err; i++) {
		uint64_t v[4] = { blocks[i].addr - s->addr, blocks[i].size, blocks[i].requested };
		uint8_t bytes[4 * VARINT_MAX], *end = bytes;

		err = slot_of(p, &blocks[i], &v[3]);
		for (size_t j = 0; j < 4; j++)
			end = varint__put(end, v[j]);
		if (!err)
			err = put_bytes(&p->out, bytes, (size_t)(end - bytes));
	}
	return err;
}

/* Writes a block from before the first event that is in no known segment. Returns 0 or -errno. */
static int write_block(struct replay_plan_maker *p, const struct event *b)
{
	uint64_t slot_no;
	int err = slot_of(p, b, &slot_no);

	if (err || !slot_no)
		return err;
	p->info.before_exact = false;
	return put_op(&p->out, REPLAY_BLOCK, (uint64_t[]){ b->size, b->requested, slot_no },
		      /*n=*/3);
}

/* Writes all kept events. e: EVENT_STATE, or the first other event. Returns 0 or -errno. */
static int write_state(struct replay_plan_maker *p, const struct event *e)
{
	struct plan_state *s = &p->state;
	uint64_t totals[2] = { 0 };
	size_t at = 0;
	int err = 0;

	s->over = true;
	s->n_segments = sort_and_drop_overlaps(s->segments, s->n_segments);
	s->n_blocks = sort_and_drop_overlaps(s->blocks, s->n_blocks);
	p->info.before_known = s->n_segments || s->n_blocks;
	p->info.before_exact = e->kind == EVENT_STATE && e->flags & STATE_EXACT;
	for (size_t i = 0; i < s->n_segments && !err; i++) {
		const struct event *seg = &s->segments[i];
		size_t from;

		/* A segment that is no multiple of the grain is damaged; its blocks count as
		 * outside segments. */
		if (seg->size % GRAIN || seg->addr % GRAIN)
			continue;
		while (at < s->n_blocks && s->blocks[at].addr < seg->addr && !err)
			err = write_block(p, &s->blocks[at++]);
		for (from = at; at < s->n_blocks &&
				s->blocks[at].addr + s->blocks[at].size <= seg->addr + seg->size;)
			at++;
		if (!err)
			err = write_segment(p, seg, at > from ? &s->blocks[from] : NULL, at - from);
	}
	while (at < s->n_blocks && !err)
		err = write_block(p, &s->blocks[at++]);
	if (e->totals) {
		totals[0] = e->allocated;
		totals[1] = e->reserved;
	}
	if (!err && p->info.before_known)
		err = put_op(&p->out, REPLAY_STATE, totals, /*n=*/2);
	free_state(s);
	return err;
}

/* ---- events ---- */

struct replay_plan_maker *replay_plan__new(int fd, uint8_t device, uint64_t total)
{
	struct replay_plan_maker *p = calloc(1, sizeof(*p));
	static const struct replay_plan nothing;

	if (!p)
		return NULL;
	p->out.fd = fd;
	p->device = device;
	p->total = total;
	p->segment = UINT32_MAX;
	p->live = map64__new();
	p->others = map64__new();
	if (p->live && p->others && !init_pools(&p->pools) &&
	    !put_bytes(&p->out, &nothing, sizeof(nothing)))
		return p;
	replay_plan__free(p);
	errno = ENOMEM;
	return NULL;
}

const struct map64 *replay_plan__live(const struct replay_plan_maker *p)
{
	return p->live;
}

void replay_plan__free(struct replay_plan_maker *p)
{
	if (!p)
		return;
	map64__free(p->live);
	map64__free(p->others);
	free(p->free_slots);
	free(p->free_others);
	free(p->other_size);
	free_pools(&p->pools);
	free_state(&p->state);
	free(p);
}

/* Writes the recorded reserved bytes after the event, if they have changed; the plan has them
 * before the event. Returns 0 or -errno. */
static int write_expected(struct replay_plan_maker *p, const struct event *e)
{
	if (!e->totals)
		return 0;
	p->has_totals = true;
	p->reserved = e->reserved;
	if (e->allocated > p->info.peak_allocated)
		p->info.peak_allocated = e->allocated;
	if (e->reserved > p->info.peak_reserved)
		p->info.peak_reserved = e->reserved;
	if (p->has_expected && p->expected == e->reserved)
		return 0;
	p->has_expected = true;
	p->expected = e->reserved;
	return put_op(&p->out, REPLAY_RESERVED, &e->reserved, /*n=*/1);
}

/* Writes a free. index, time: of the event. Returns 0 or -errno. */
static int free_slot(struct replay_plan_maker *p, uint64_t slot, uint64_t index, uint64_t time)
{
	int err = put_event(&p->out, REPLAY_FREE, index, time, &slot, /*n=*/1);

	return err ? err : free_number(&p->free_slots, &p->n_free, &p->cap_free, (uint32_t)slot);
}

/* Writes the pending allocation, if there is one. Returns 0 or -errno. */
static int flush_pending(struct replay_plan_maker *p)
{
	const struct event *e = &p->pending;
	const struct plan_segment *seg;
	uint32_t slot, number;
	uint64_t old;
	int err = 0;

	if (!p->has_pending)
		return 0;
	p->has_pending = false;
	if (map64__del(p->live, e->addr, &old)) {
		p->info.mended++;
		err = free_slot(p, old, p->pending_index, e->time);
	}
	seg = find_segment(&p->pools, e->addr);
	number = seg ? seg->number : 0;
	note_block(&p->pools, number, e->size);
	if (!err && number != p->segment)
		err = put_op(&p->out, REPLAY_POOL, (uint64_t[]){ number }, /*n=*/1);
	if (err)
		return err;
	p->segment = number;
	err = write_expected(p, e) ?: take_slot(p, e->addr, &slot);
	if (err)
		return err;
	p->info.events++;
	p->info.allocs++;
	p->info.asked += e->requested != 0;
	return put_event(&p->out, REPLAY_ALLOC, p->pending_index, e->time,
			 (uint64_t[]){ slot, e->size, e->requested, p->pending_stack, e->node },
			 /*n=*/5);
}

/*
 * Decides why the allocator gave memory back. On a full device it did so for the next request, and
 * a replay repeats that by itself. Otherwise the program emptied the cache, and the plan must say
 * so. next: the event that came next. Returns 0 or -errno.
 */
static int note_given_back(struct replay_plan_maker *p, const struct event *next)
{
	uint64_t outside = p->info.context_known ? p->info.context : CONTEXT_GUESS;
	bool fell = next->totals && p->has_totals && next->reserved < p->reserved;
	bool full = p->took && p->total &&
		    p->reserved + p->took_bytes + outside + p->others_bytes > p->total;
	bool returned = p->returned || fell;

	p->returned = p->took = false;
	p->took_bytes = 0;
	if (!returned)
		return 0;
	if (next->kind == EVENT_OOM || (next->kind == EVENT_ALLOC && full)) {
		p->info.retries++;
		return 0;
	}
	p->info.empties++;
	return put_op(&p->out, REPLAY_EMPTY, NULL, 0);
}

/* Keeps an allocation until no EVENT_REQUESTED for it can follow. index: number of the event;
 * stack: the line that it is charged to. Returns 0 or -errno. */
static int on_alloc(struct replay_plan_maker *p, const struct event *e, uint64_t index,
		    uint32_t stack)
{
	int err = note_given_back(p, e);

	p->pending = *e;
	p->pending_index = index;
	p->pending_stack = stack;
	p->has_pending = e->size != 0;
	p->info.async |= e->how != 0;
	return err;
}

/* Writes a free. Frees of unknown blocks are only counted. Returns 0 or -errno. */
static int on_free(struct replay_plan_maker *p, const struct event *e, uint64_t index)
{
	int err = note_given_back(p, e);
	uint64_t slot;

	if (err)
		return err;
	if (!map64__del(p->live, e->addr, &slot)) {
		p->info.unknown_frees++;
		return 0;
	}
	p->info.events++;
	return write_expected(p, e) ?: free_slot(p, slot, index, e->time);
}

/* Writes a refused request. Returns 0 or -errno. */
static int on_oom(struct replay_plan_maker *p, const struct event *e, uint64_t index,
		  uint32_t stack)
{
	int err = note_given_back(p, e);

	p->info.ooms++;
	return err ? err
		   : put_event(&p->out, REPLAY_OOM, index, e->time,
			       (uint64_t[]){ e->size, stack, e->node }, /*n=*/3);
}

/* True for calls that take device memory. */
static bool is_device_memory(const struct event *e)
{
	return e->how == MEM_DEVICE || e->how == MEM_ASYNC || e->how == MEM_PHYSICAL;
}

/* Writes that other code than the allocator takes device memory. Returns 0 or -errno. */
static int take_for_others(struct replay_plan_maker *p, const struct event *e)
{
	uint32_t number;
	int err = take_number(p->free_others, &p->n_free_others, &p->n_others, &number);

	if (err ||
	    array__grow(&p->other_size, &p->cap_other_size, p->n_others, sizeof(*p->other_size)))
		return err ? err : -ENOMEM;
	p->other_size[number] = e->size;
	p->others_bytes += e->size;
	err = map64__set(p->others, e->addr, number);
	return err ? err : put_op(&p->out, REPLAY_TAKE, (uint64_t[]){ number, e->size }, /*n=*/2);
}

/* Writes that other code gives device memory back, if it is known. Returns 0 or -errno. */
static int give_from_others(struct replay_plan_maker *p, const struct event *e)
{
	uint64_t number;
	int err;

	if (!map64__del(p->others, e->addr, &number))
		return 0;
	p->others_bytes -= p->other_size[number];
	err = put_op(&p->out, REPLAY_GIVE, &number, /*n=*/1);
	return err ? err
		   : free_number(&p->free_others, &p->n_free_others, &p->cap_free_others,
				 (uint32_t)number);
}

/* A call takes memory: for the allocator (its segments), or for other code. Returns 0 or -errno. */
static int on_take(struct replay_plan_maker *p, const struct event *e)
{
	uint64_t number;
	int err;

	if (!(e->flags & MEM_BY_ALLOCATOR)) {
		if (!is_device_memory(e) || map64__get(p->others, e->addr, &number) || !e->size)
			return 0;
		return take_for_others(p, e);
	}
	if (e->how == MEM_DEVICE || e->how == MEM_PHYSICAL) { /* others only take addresses */
		p->took = true;
		p->took_bytes = e->size;
	}
	/* All mappings in the range of an expandable segment belong to one stream. */
	if (e->how == MEM_RESERVED)
		return add_segment(&p->pools, e->addr, e->size, /*range=*/true);
	if (e->how == MEM_MAPPED)
		extend_segment(&p->pools, e->addr, e->size);
	if (e->how != MEM_DEVICE)
		return 0;
	/* A segment of its own, whose place the replay needs. */
	err = add_segment(&p->pools, e->addr, e->size, /*range=*/false);
	return err ? err : put_op(&p->out, REPLAY_PLACE, (uint64_t[]){ e->addr, e->size }, /*n=*/2);
}

/* A call gives memory back, of the allocator or of other code. Returns 0 or -errno. */
static int on_give(struct replay_plan_maker *p, const struct event *e)
{
	if (!(e->flags & MEM_BY_ALLOCATOR))
		return give_from_others(p, e);
	if (e->how == MEM_DEVICE)
		p->returned |= remove_segment(&p->pools, e->addr);
	else
		p->returned |= e->how == MEM_MAPPED;
	return 0;
}

/* Estimates the CUDA context: what the driver counts (e->size) beyond the memory that events
 * explain. Takes it where the driver counts most. */
static void on_used(struct replay_plan_maker *p, const struct event *e)
{
	uint64_t known = p->reserved + p->others_bytes;
	/* After a memory call, `reserved` is outdated until the allocator's next event. */
	bool outdated = p->returned || p->took;

	if (!p->has_totals || outdated || e->size < known || e->size < p->highest_used)
		return;
	p->highest_used = e->size;
	p->info.context = e->size - known;
	p->info.context_known = true;
}

/* A reading of the allocator's tables names the pool of a segment. Returns 0 or -ENOMEM. */
static int on_segment(struct replay_plan_maker *p, const struct event *e)
{
	struct plan_segment *seg = find_segment(&p->pools, e->addr);
	int err = 0;

	if (!seg) {
		err = add_segment(&p->pools, e->addr, e->size, /*range=*/false);
		seg = find_segment(&p->pools, e->addr);
	}
	if (seg)
		set_pool(&p->pools, seg->number, e->cuda_stream, e->pool);
	return err;
}

/* Names the stream and the requested size of the last allocation. */
static void on_requested(struct replay_plan_maker *p, const struct event *e)
{
	const struct plan_segment *seg = find_segment(&p->pools, e->addr);

	if (seg)
		set_stream(&p->pools, seg->number, e->cuda_stream);
	if (p->has_pending && p->pending.addr == e->addr && e->requested <= p->pending.size)
		p->pending.requested = e->requested;
}

/* True for events of this device. The device of a call that takes memory may be unknown; one that
 * gives it back names only the address. */
static bool is_on_device(const struct replay_plan_maker *p, const struct event *e)
{
	bool take = e->kind == EVENT_CUDA_ALLOC && e->device.index == DEVICE_UNKNOWN;
	bool give = e->kind == EVENT_CUDA_FREE;

	if (e->device.type != DEVICE_CUDA)
		return false;
	return e->device.index == p->device || take || give;
}

/* True for what was there before the first event. */
static bool is_state(const struct event *e)
{
	return e->kind == EVENT_SEGMENT || e->kind == EVENT_BLOCK;
}

int replay_plan__event(struct replay_plan_maker *p, const struct event *e, uint64_t index,
		       uint32_t stack)
{
	int err = 0;

	if (e->kind == EVENT_LOST)
		p->info.lost += e->size;
	if (!is_on_device(p, e))
		return 0;
	if (!p->state.over) {
		if (is_state(e))
			return keep_state(&p->state, e);
		if (e->kind == EVENT_STATE || e->kind == EVENT_ALLOC || e->kind == EVENT_FREE) {
			err = write_state(p, e);
			p->segment = UINT32_MAX;
		}
		if (err)
			return err;
	}
	/* No EVENT_REQUESTED for the pending allocation can follow now. */
	if (e->kind != EVENT_REQUESTED)
		err = flush_pending(p);
	if (err)
		return err;
	switch (e->kind) {
	case EVENT_ALLOC:
		return on_alloc(p, e, index, stack);
	case EVENT_FREE:
		return on_free(p, e, index);
	case EVENT_OOM:
		return on_oom(p, e, index, stack);
	case EVENT_CUDA_ALLOC:
		return on_take(p, e);
	case EVENT_CUDA_FREE:
		return on_give(p, e);
	case EVENT_SEGMENT:
		return on_segment(p, e);
	case EVENT_REQUESTED:
		on_requested(p, e);
		return 0;
	case EVENT_USED:
		on_used(p, e);
		return 0;
	default:
		return 0;
	}
}

/* Writes the pool of each segment, by its number. Returns 0 or -errno. */
static int write_pools(struct replay_plan_maker *p)
{
	int err = settle_pools(&p->pools, &p->info.pools_unknown);

	for (size_t i = 0; i < p->pools.n_owners && !err; i++) {
		uint32_t pool = p->pools.owners[i].pool_no - 1;

		err = put_bytes(&p->out, &pool, sizeof(pool));
	}
	return err;
}

int replay_plan__finish(struct replay_plan_maker *p, struct replay_plan_info *ret)
{
	struct replay_plan head = { .magic = REPLAY_MAGIC };
	int err = flush_pending(p);

	if (!err && p->returned)
		err = put_op(&p->out, REPLAY_EMPTY, NULL, 0);
	if (err)
		return err;
	err = put_op(&p->out, REPLAY_END, NULL, 0) ?: flush_out(&p->out);
	if (err)
		return err;
	head.ops_end = p->out.at;
	err = write_pools(p) ?: flush_out(&p->out);
	if (err)
		return err;
	head.segments = p->pools.n_owners;
	head.slots = p->n_slots;
	head.takes = p->n_others;
	head.pools = p->info.pools = p->pools.n_pools;
	if (pwrite(p->out.fd, &head, sizeof(head), 0) != sizeof(head))
		return errno ? -errno : -EIO;
	*ret = p->info;
	return 0;
}
