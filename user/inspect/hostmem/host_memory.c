/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/hostmem.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "base/map64.h"
#include "inspect/hostmem/host_memory.h"
#include "inspect/hostmem/residency.h"
#include "inspect/proc.h"
#include "record/host.h"
#include "record/stream.h"

/* ---- the address space as ranges ---- */

#define PAGE 4096ULL

void host_ranges__init(struct host_ranges *h, host_ranges_fn fn, void *ctx)
{
	*h = (struct host_ranges){ .fn = fn, .ctx = ctx };
}

void host_ranges__free(struct host_ranges *h)
{
	for (size_t i = 0; i < h->n; i++)
		free(h->v[i]);
	free(h->v);
	h->v = NULL;
	h->n = h->cap = 0;
}

size_t host_ranges__find(const struct host_ranges *h, uint64_t addr)
{
	size_t low = 0, high = h->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (h->v[mid]->end <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* --- the blocks of a range */

/* Begins a block of `size` bytes after the last one. */
static int push_block(struct host_ranges *h, struct host_range *r, uint64_t size)
{
	int err = h->fn(h->ctx, &r->owner, r->start + r->resident, size, true);

	if (err)
		return err;
	r->piece[r->n++] = size;
	r->resident += size;
	return 0;
}

/* Ends the last block. */
static int pop_block(struct host_ranges *h, struct host_range *r)
{
	uint64_t size = r->piece[r->n - 1];
	int err = h->fn(h->ctx, &r->owner, r->start + r->resident - size, size, false);

	r->n--;
	r->resident -= size;
	return err;
}

/* Makes room for a block: replaces the two neighbouring blocks with the smallest sum by one block. */
static int join_smallest_blocks(struct host_ranges *h, struct host_range *r)
{
	uint64_t addr = r->start, sum, at = 0, smallest_sum = UINT64_MAX;
	size_t smallest = 0, i;
	int err;

	for (i = 0; i + 1 < r->n; i++) {
		sum = r->piece[i] + r->piece[i + 1];
		if (sum < smallest_sum) {
			smallest_sum = sum;
			smallest = i;
			at = addr;
		}
		addr += r->piece[i];
	}
	err = h->fn(h->ctx, &r->owner, at, r->piece[smallest], false)
		      ?: h->fn(h->ctx, &r->owner, at + r->piece[smallest], r->piece[smallest + 1],
			       false);
	err = err ?: h->fn(h->ctx, &r->owner, at, smallest_sum, true);
	r->piece[smallest] = smallest_sum;
	memmove(&r->piece[smallest + 1], &r->piece[smallest + 2],
		(r->n - smallest - 2) * sizeof(*r->piece));
	r->n--;
	return err;
}

int host_ranges__set(struct host_ranges *h, struct host_range *r, uint64_t resident)
{
	int err = 0;

	if (resident > r->end - r->start)
		resident = r->end - r->start;
	/* Ends all blocks above the new end. The block that contains the new end is ended, too, and
	 * a smaller one replaces it below. */
	while (!err && r->n && r->resident > resident)
		err = pop_block(h, r);
	if (err || r->resident == resident)
		return err;
	if (r->n == HOST_PIECES)
		err = join_smallest_blocks(h, r);
	return err ?: push_block(h, r, resident - r->resident);
}

static int newest_first(const void *a, const void *b)
{
	const struct host_range *const *x = a, *const *y = b;

	return (*x)->id > (*y)->id ? -1 : (*x)->id < (*y)->id;
}

/* Bytes of a range that may have become resident since the last reading. */
static uint64_t chargeable(const struct host_range *r)
{
	uint64_t room = r->end - r->start - r->resident;

	return room < r->fresh ? room : r->fresh;
}

int host_ranges__charge(struct host_ranges *h, uint64_t bytes, uint64_t *ret)
{
	struct host_range **fresh = calloc(h->n + 1, sizeof(*fresh));
	size_t n = 0;
	int err = 0;

	*ret = 0;
	if (!fresh)
		return -ENOMEM;
	for (size_t i = 0; i < h->n; i++)
		if (chargeable(h->v[i]))
			fresh[n++] = h->v[i];
	if (n)
		qsort(fresh, n, sizeof(*fresh), newest_first);
	for (size_t i = 0; i < n && !err; i++) {
		uint64_t most = chargeable(fresh[i]), add = bytes - *ret;

		add = (most < add ? most : add) / PAGE * PAGE;
		err = host_ranges__set(h, fresh[i], fresh[i]->resident + add);
		fresh[i]->fresh -= add;
		*ret += add;
	}
	free(fresh);
	return err;
}

/* --- ranges */

/* Inserts a copy of r at an index, with a new id. Counts it as dropped if there are too many. 0 or
 * -ENOMEM. */
static int insert_range(struct host_ranges *h, size_t at, const struct host_range *r)
{
	struct host_range *copy;

	if (h->n >= HOST_RANGES_MAX) {
		h->dropped++;
		return 0;
	}
	if (array__grow(&h->v, &h->cap, h->n + 1, sizeof(*h->v)))
		return -ENOMEM;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	*copy = *r;
	copy->id = ++h->last_id;
	copy->born = copy->born ?: copy->id;
	memmove(&h->v[at + 1], &h->v[at], (h->n - at) * sizeof(*h->v));
	h->v[at] = copy;
	h->n++;
	return 0;
}

static void remove_range(struct host_ranges *h, size_t at)
{
	free(h->v[at]);
	h->n--;
	memmove(&h->v[at], &h->v[at + 1], (h->n - at) * sizeof(*h->v));
}

/* The share of `bytes` in `part` of the `whole` bytes of a range, if they are spread evenly. */
static uint64_t share_of(uint64_t bytes, uint64_t part, uint64_t whole)
{
	uint64_t share = (uint64_t)((double)bytes * ((double)part / (double)whole)) / PAGE * PAGE;

	return share < part ? share : part;
}

/* Splits the range that contains addr, if any, so that a range begins at addr. Its resident and
 * fresh bytes are divided in proportion. */
static int split_range(struct host_ranges *h, uint64_t addr)
{
	size_t at = host_ranges__find(h, addr);
	struct host_range *r = at < h->n ? h->v[at] : NULL, upper;
	uint64_t low_resident;
	int err;

	if (!r || r->start >= addr)
		return 0;
	upper = *r;
	upper.start = addr;
	upper.n = 0;
	upper.resident = 0;
	upper.fresh = share_of(r->fresh, r->end - addr, r->end - r->start);
	low_resident = share_of(r->resident, addr - r->start, r->end - r->start);
	upper.piece[0] = r->resident - low_resident;
	if (upper.piece[0] > upper.end - upper.start)
		upper.piece[0] = upper.end - upper.start;
	r->fresh -= upper.fresh;
	if (r->fresh > addr - r->start)
		r->fresh = addr - r->start;
	err = host_ranges__set(h, r, low_resident) ?: insert_range(h, at + 1, &upper);
	if (err)
		return err;
	r->end = addr;
	r->id = ++h->last_id;
	if (at + 1 < h->n && h->v[at + 1]->start == addr)
		return host_ranges__set(h, h->v[at + 1], upper.piece[0]);
	return 0;
}

/* Makes start and end bounds of ranges. */
static int cut_out(struct host_ranges *h, uint64_t start, uint64_t end)
{
	return split_range(h, start) ?: split_range(h, end);
}

int host_ranges__unmap(struct host_ranges *h, uint64_t start, uint64_t end)
{
	size_t at;
	int err;

	if (start >= end)
		return 0;
	err = cut_out(h, start, end);
	at = host_ranges__find(h, start);
	while (!err && at < h->n && h->v[at]->start < end) {
		err = host_ranges__set(h, h->v[at], 0);
		remove_range(h, at);
	}
	return err;
}

static bool same_owner(const struct host_range *a, const struct host_range *b)
{
	return a->owner.stack == b->owner.stack && a->owner.thread == b->owner.thread &&
	       a->owner.walk == b->owner.walk && a->writable == b->writable && !a->named &&
	       !b->named;
}

/* Adds a small new range to the one that ends at its start, if both have the same owner. False: it
 * is a range of its own. */
static bool join_below(struct host_ranges *h, size_t at, const struct host_range *r)
{
	struct host_range *below = at ? h->v[at - 1] : NULL;

	if (!below || below->end != r->start || !same_owner(below, r) || !r->owner.stack ||
	    r->end - r->start >= HOST_MERGE_BELOW || r->end - below->start > HOST_MERGED_MAX)
		return false;
	/* The grain is a mean, weighted by bytes. */
	below->owner.grain = (uint64_t)(((double)below->owner.grain *
						 (double)(r->start - below->start) +
					 (double)r->owner.grain * (double)(r->end - r->start)) /
					(double)(r->end - below->start));
	below->end = r->end;
	below->fresh += r->fresh;
	below->id = ++h->last_id;
	return true;
}

int host_ranges__map(struct host_ranges *h, uint64_t start, uint64_t end,
		     const struct host_range *like, uint64_t resident)
{
	struct host_range r = *like;
	size_t at;
	int err;

	if (start >= end)
		return 0;
	err = host_ranges__unmap(h, start, end);
	if (err)
		return err;
	r.start = start;
	r.end = end;
	r.n = 0;
	r.resident = 0;
	if (r.fresh > end - start)
		r.fresh = end - start;
	at = host_ranges__find(h, start);
	if (!resident && join_below(h, at, &r))
		return 0;
	err = insert_range(h, at, &r);
	if (err || at >= h->n || h->v[at]->start != start)
		return err;
	return host_ranges__set(h, h->v[at], resident);
}

/* Copies the n ranges in [start, end). The caller frees *ret, which is NULL if n is 0. 0 or
 * -ENOMEM. */
static int copy_part(const struct host_ranges *h, uint64_t start, uint64_t end,
		     struct host_range **ret, size_t *n)
{
	size_t at = host_ranges__find(h, start), last = at;

	while (last < h->n && h->v[last]->start < end)
		last++;
	*n = last - at;
	*ret = *n ? calloc(*n, sizeof(**ret)) : NULL;
	for (size_t i = 0; *ret && i < *n; i++)
		(*ret)[i] = *h->v[at + i];
	return *n && !*ret ? -ENOMEM : 0;
}

int host_ranges__move(struct host_ranges *h, uint64_t from, uint64_t len, uint64_t to,
		      uint64_t to_len, const struct host_range *like)
{
	uint64_t end, to_end, kept = len < to_len ? len : to_len;
	struct host_range *old;
	size_t n, i;
	int err;

	if (__builtin_add_overflow(from, len, &end) || __builtin_add_overflow(to, to_len, &to_end))
		return 0;
	if (from == to) { /* the mapping grew or shrank in place */
		err = to_len < len ? host_ranges__unmap(h, to_end, end) : 0;
		return err ?: host_ranges__map(h, from + kept, to_end, like, 0);
	}
	err = cut_out(h, from, from + kept) ?: copy_part(h, from, from + kept, &old, &n);
	if (err)
		return err;
	err = host_ranges__unmap(h, from, end) ?: host_ranges__unmap(h, to, to_end);
	for (i = 0; i < n && !err; i++)
		err = host_ranges__map(h, old[i].start - from + to, old[i].end - from + to, &old[i],
				       old[i].resident);
	free(old);
	return err ?: host_ranges__map(h, to + kept, to_end, like, 0);
}

int host_ranges__make_writable(struct host_ranges *h, uint64_t start, uint64_t end,
			       const struct host_range *like)
{
	uint64_t addr = start;
	size_t at;
	int err = 0;

	while (!err && addr < end && (at = host_ranges__find(h, addr)) < h->n &&
	       h->v[at]->start < end) {
		uint64_t from = h->v[at]->start > start ? h->v[at]->start : start;
		uint64_t to = h->v[at]->end < end ? h->v[at]->end : end;

		if (!h->v[at]->writable && !h->v[at]->resident)
			err = host_ranges__map(h, from, to, like, 0);
		addr = to;
	}
	return err;
}

/* ---- host memory of a process ---- */

#define EVERY 1000000000ULL /* ns between two readings, at least */
#define SHARE 50 /* pauses between readings: at least this many times the CPU time of one */
/* Between readings: ns between two looks at RSS, which are 1/LOOK_PART of the time since the start,
 * within these bounds, so that a process that ends soon gets some looks, too. */
#define LOOK_LEAST 10000000ULL
#define LOOK_MOST 250000000ULL
#define LOOK_PART 32
#define LOOK_GROWTH (256ULL << 10) /* bytes of growth that are charged, at least */
#define UNMAPPED_MAX 1024	   /* ranges, unmapped during a reading, that are kept */
#define ATTACHED_MAX 16		   /* segments of shared memory whose size is not known yet */
#define GO_CHUNK (UINT64_C(4) << 20)
#define LARGE 4 /* see grain_of() */
/* Sizes of CPython's arenas: of 3.10 and later, and of earlier versions (ARENA_BITS). */
#define PY_ARENA (1ULL << 20)
#define PY_ARENA_OLD (256ULL << 10)
#define MALLOC_HEAP (64ULL << 20) /* glibc's HEAP_MAX_SIZE, to which its heaps are aligned */

struct span {
	uint64_t start, end;
};

struct host_memory {
	struct host_capture c;
	struct host_ranges ranges;
	struct residency job;
	pthread_t thread;
	atomic_bool done, cancel;
	int err;	     /* error of the reading; 0: none */
	bool running;	     /* a reading is under way */
	bool inherited;	     /* the first reading finds the parent's memory */
	bool over;	     /* the last reading of the capture was begun */
	uint64_t time;	     /* ns since start, for new events */
	uint64_t next;	     /* earliest next reading, ns since start */
	uint64_t resident;   /* RSS when the last reading began, from statm */
	uint64_t look;	     /* next look at RSS between readings, ns since start */
	uint64_t seen;	     /* RSS at the last look; 0: none since the last reading */
	uint64_t total;	     /* resident bytes of all ranges */
	uint64_t looks;	     /* number of times that growth was charged */
	uint64_t worked_out; /* bytes of growth that were charged since the last reading */
	/* The address space changed since the last reading began, or that reading failed. */
	bool changed;
	uint64_t heap_end; /* end of the heap after the last brk(); 0: unknown */
	/* Smallest piece so far that a heap grew by, with brk() and with mprotect(), bytes; 0:
	 * none. */
	uint64_t least_brk, least_opened;
	struct span unmapped[UNMAPPED_MAX];
	size_t n_unmapped; /* above UNMAPPED_MAX: some are not in the array */
	struct {	   /* calls of shmat(), until a reading finds the mapping */
		uint64_t addr;
		struct host_range like;
	} attached[ATTACHED_MAX];
	size_t n_attached;
	struct host_held *held; /* objects that name blocks after the next reading; owned */
	size_t n_held;
	uint64_t held_id; /* ranges that were born with a later id do not get the objects' names */
	uint64_t readings;
	uint64_t rss; /* RSS at the last reading, or when growth was charged after it */
};

/* host_ranges_fn: emits a block that comes or goes. */
static int emit_block(void *ctx, const struct host_owner *owner, uint64_t addr, uint64_t size,
		      bool comes)
{
	struct host_memory *h = ctx;
	struct event e = {
		.kind = comes ? EVENT_ALLOC : EVENT_FREE,
		.device = { .type = DEVICE_HOST },
		.time = h->time,
		.addr = addr,
		.size = size,
		.thread = owner->thread,
	};
	int err;

	h->total += comes ? size : -size;
	if (comes) {
		e.stack = owner->stack;
		e.walk = owner->walk;
	}
	err = h->c.emit(h->c.ctx, &e);
	if (err || !comes || !owner->grain)
		return err;
	/* The grain follows the block as its requested bytes. */
	e.kind = EVENT_REQUESTED;
	e.stack = 0;
	e.walk = 0;
	e.size = 0;
	e.requested = owner->grain;
	return h->c.emit(h->c.ctx, &e);
}

struct host_memory *host_memory__new(const struct host_capture *c, bool inherited)
{
	struct host_memory *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->c = *c;
	h->inherited = inherited;
	host_ranges__init(&h->ranges, emit_block, h);
	return h;
}

static void join_thread(struct host_memory *h)
{
	pthread_join(h->thread, NULL);
	h->running = false;
}

void host_memory__free(struct host_memory *h)
{
	if (!h)
		return;
	atomic_store(&h->cancel, true);
	if (h->running)
		join_thread(h);
	residency__free(&h->job);
	free(h->held);
	host_ranges__free(&h->ranges);
	free(h);
}

/* ---- records ---- */

static void note_unmapped(struct host_memory *h, uint64_t start, uint64_t end)
{
	h->changed = true;
	if (!h->running)
		return;
	if (h->n_unmapped < UNMAPPED_MAX)
		h->unmapped[h->n_unmapped] = (struct span){ start, end };
	h->n_unmapped++;
}

/* Whether a part of [start, end) was unmapped during the reading, or may have been. */
static bool was_unmapped(const struct host_memory *h, uint64_t start, uint64_t end)
{
	if (h->n_unmapped > UNMAPPED_MAX)
		return true;
	for (size_t i = 0; i < h->n_unmapped; i++)
		if (h->unmapped[i].start < end && start < h->unmapped[i].end)
			return true;
	return false;
}

static uint64_t page_up(uint64_t v)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (v + page - 1) / page * page;
}

/*
 * host_owner.grain of a piece of memory that malloc took to serve one call. The whole piece is
 * charged to the calling line, but objects of other lines fill the bytes that its object leaves
 * free. malloc adds the same amount to each piece and rounds up to pages, so at most the smallest
 * piece and a page are left free. Objects larger than that need a piece nearly each time, so they
 * are not sampled at random: their error counts LARGE times.
 */
static uint64_t grain_of(uint64_t *least, uint64_t size)
{
	double left;

	if (!*least || size < *least)
		*least = size;
	left = LARGE * (double)(*least + page_up(1));
	if (left > (double)size)
		left = (double)size;
	return (uint64_t)(left * left / (double)size) + 1;
}

/* True if the mapping is an arena of CPython, as far as the call shows. */
static bool is_python_arena(const struct mt_rec_host *r)
{
	return (r->len == PY_ARENA || r->len == PY_ARENA_OLD) && (r->to & PROT_WRITE) &&
	       (r->flags & (MAP_PRIVATE | MAP_ANONYMOUS)) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

/* True if the mapping is a piece of Go's heap, as far as the call shows: runtime.sysMapOS() maps
 * multiples of pallocChunkBytes within what it reserved. */
static bool is_go_chunk(const struct mt_rec_host *r)
{
	const uint32_t flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

	return r->len && r->len % GO_CHUNK == 0 && r->to == (PROT_READ | PROT_WRITE) &&
	       r->flags == flags;
}

/* True if memory that becomes writable at `start` begins or extends one of malloc's heaps: the
 * memory below is writable, or start is aligned as heaps are. Neither is true for a stack. */
static bool grows_heap(const struct host_memory *h, uint64_t start)
{
	size_t at = host_ranges__find(&h->ranges, start - 1);

	return start % MALLOC_HEAP == 0 ||
	       (at < h->ranges.n && h->ranges.v[at]->start < start && h->ranges.v[at]->writable);
}

static int on_brk(struct host_memory *h, const struct mt_rec_host *r, struct host_range *like)
{
	uint64_t end = page_up(r->addr), old_end = h->heap_end;

	h->heap_end = end;
	if (!old_end || old_end == end)
		return 0; /* a call that asks for the end, or the first one */
	if (end > old_end) {
		like->owner.grain = grain_of(&h->least_brk, end - old_end);
		return host_ranges__map(&h->ranges, old_end, end, like, 0);
	}
	note_unmapped(h, end, old_end);
	return host_ranges__unmap(&h->ranges, end, old_end);
}

/* Handles mprotect() that makes [start, end) writable, such as a piece that a heap grows by. 0 or
 * -ENOMEM, or the sink's error. */
static int on_mprotect(struct host_memory *h, uint64_t start, uint64_t end, struct host_range *like)
{
	size_t at = host_ranges__find(&h->ranges, start);

	if (start >= end)
		return 0;
	if (grows_heap(h, start))
		like->owner.grain = grain_of(&h->least_opened, end - start);
	/* Before the first reading, mappings from before attach are no ranges yet. A short stretch
	 * of such a mapping that becomes writable is a piece that a heap grows by. */
	if (!h->readings && end - start < HOST_MERGE_BELOW &&
	    (at == h->ranges.n || h->ranges.v[at]->start >= end)) {
		like->owner.grain = grain_of(&h->least_opened, end - start);
		like->fresh = UINT64_MAX;
		return host_ranges__map(&h->ranges, start, end, like, 0);
	}
	like->fresh = like->owner.grain ? UINT64_MAX : 0;
	return host_ranges__make_writable(&h->ranges, start, end, like);
}

static void keep_attached(struct host_memory *h, uint64_t addr, const struct host_range *like)
{
	if (h->n_attached == ATTACHED_MAX)
		memmove(&h->attached[0], &h->attached[1], --h->n_attached * sizeof(h->attached[0]));
	h->attached[h->n_attached].addr = addr;
	h->attached[h->n_attached++].like = *like;
}

/* Makes the template of a range that a call maps. 0 or -ENOMEM. */
static int make_template(struct host_memory *h, const struct mt_rec_host *r, struct host_range *ret)
{
	*ret = (struct host_range){ .owner = { .walk = r->h.walk }, .writable = true };
	ret->owner.thread = h->c.thread(h->c.ctx, r->h.tid);
	ret->owner.stack = h->c.stack(h->c.ctx, r->stack, &ret->owner.walk);
	if (!r->stack && h->c.native(h->c.ctx, r, &ret->owner.stack, &ret->owner.walk))
		return -ENOMEM;
	if (r->call == MT_HOST_MMAP)
		ret->writable = r->to & PROT_WRITE;
	/* Memory that is mapped writable may become resident soon. mprotect() also makes a thread's
	 * whole stack writable, but the thread uses little of it. */
	ret->fresh = ret->writable && r->call != MT_HOST_MPROTECT ? UINT64_MAX : 0;
	return ret->owner.thread == UINT32_MAX ? -ENOMEM : 0;
}

int host_memory__record(struct host_memory *h, const struct mt_rec_host *r)
{
	struct host_range like;
	uint64_t end;
	int err;

	if (!h)
		return 0;
	err = make_template(h, r, &like);
	end = page_up(r->addr + r->len);
	h->time = h->c.since(h->c.ctx, r->h.time);
	h->changed = true;
	if (err)
		return err;
	switch (r->call) {
	case MT_HOST_MMAP:
		like.owner.grain = is_python_arena(r) || is_go_chunk(r) ? r->len : 0;
		return host_ranges__map(&h->ranges, r->addr, end, &like, 0);
	case MT_HOST_MUNMAP:
		note_unmapped(h, r->addr, end);
		return host_ranges__unmap(&h->ranges, r->addr, end);
	case MT_HOST_MREMAP:
		note_unmapped(h, r->addr, end);
		return host_ranges__move(&h->ranges, r->addr, page_up(r->len), r->to,
					 page_up(r->to_len), &like);
	case MT_HOST_BRK:
		return on_brk(h, r, &like);
	case MT_HOST_MPROTECT:
		return on_mprotect(h, r->addr, end, &like);
	case MT_HOST_SHMAT:
		keep_attached(h, r->addr, &like);
		return 0;
	}
	return -EBADMSG;
}

/* ---- readings ---- */

static bool is_cancelled(void *ctx)
{
	struct host_memory *h = ctx;

	return atomic_load(&h->cancel);
}

static void *run_reading(void *ctx)
{
	struct host_memory *h = ctx;

	h->err = residency__read(&h->job);
	atomic_store(&h->done, true);
	return NULL;
}

/* Gives the reading its own copy of the ranges, since they change meanwhile. 0 or -ENOMEM. */
static int copy_ranges(struct host_memory *h)
{
	size_t n = h->ranges.n;

	h->job = (struct residency){ .proc = h->c.proc, .cancelled = is_cancelled, .ctx = h };
	h->job.asked = calloc(n + 1, sizeof(*h->job.asked));
	if (!h->job.asked)
		return -ENOMEM;
	h->job.n_asked = n;
	for (size_t i = 0; i < n; i++)
		h->job.asked[i] = (struct host_asked){ .start = h->ranges.v[i]->start,
						       .end = h->ranges.v[i]->end,
						       .id = h->ranges.v[i]->id };
	return 0;
}

/* Frees a reading that did not succeed. The next one is then due although memory is the same. */
static void fail_reading(struct host_memory *h, int err)
{
	if (proc__alive(h->c.proc))
		log_debug("host memory was not read: %s", strerror(-err));
	residency__free(&h->job);
	h->changed = true;
}

/* True if the pause is over and memory may have changed. Then sets h->resident for the reading that
 * the caller begins. */
static bool is_due(struct host_memory *h, uint64_t now)
{
	uint64_t resident;

	if (now < h->next || proc__resident(h->c.proc, &resident))
		return false;
	if (h->readings && !h->changed && resident == h->resident)
		return false;
	h->resident = resident;
	return true;
}

void host_memory__begin(struct host_memory *h, bool last)
{
	sigset_t all, old;
	int err;

	if (!h || h->running || h->over || (!last && !is_due(h, h->c.now(h->c.ctx))))
		return;
	h->over = last;
	h->changed = false;
	h->n_unmapped = 0;
	atomic_store(&h->done, false);
	/* The new thread inherits the mask: signals go to the thread that waits for them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = copy_ranges(h);
	if (!err)
		err = -pthread_create(&h->thread, NULL, run_reading, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	h->running = !err;
	if (err) {
		h->next = h->c.now(h->c.ctx) + EVERY;
		fail_reading(h, err);
	}
}

bool host_memory__is_reading(const struct host_memory *h)
{
	return h && h->running && !atomic_load(&h->done);
}

int host_memory__join_reading(struct host_memory *h)
{
	uint64_t pause;

	if (!h || !h->running || !atomic_load(&h->done))
		return 0;
	join_thread(h);
	pause = h->job.took * SHARE;
	h->next = h->c.now(h->c.ctx) + (pause > EVERY ? pause : EVERY);
	if (!h->err)
		return 1;
	fail_reading(h, h->err);
	return 0;
}

/* Returns the number of a stack of one frame: the mapping's file, and why its caller is unknown. */
static uint32_t name_mapping(struct host_memory *h, const struct map *m)
{
	const char *func = h->readings ? HOST_UNSEEN : HOST_BEFORE_ATTACH;

	if (h->inherited)
		func = HOST_INHERITED;
	return h->c.named(h->c.ctx, *m->path ? m->path : HOST_ANONYMOUS, func);
}

/* Makes the template of a mapping that a reading found: its owner is the shmat() that attached it,
 * or its name. 0 or -ENOMEM. */
static int make_found_template(struct host_memory *h, const struct map *m, struct host_range *ret)
{
	uint32_t thread;

	for (size_t i = 0; i < h->n_attached; i++) {
		if (h->attached[i].addr != m->start)
			continue;
		*ret = h->attached[i].like;
		h->attached[i] = h->attached[--h->n_attached];
		return 0;
	}
	thread = h->c.thread(h->c.ctx, (uint32_t)proc__pid(h->c.proc));
	if (thread == UINT32_MAX)
		return -ENOMEM;
	*ret = (struct host_range){ .owner = { .thread = thread, .walk = MT_WALK_OFF },
				    .writable = m->w,
				    .named = true };
	ret->owner.stack = name_mapping(h, m);
	return ret->owner.stack == UINT32_MAX ? -ENOMEM : 0;
}

/* Resident bytes that a mapping has in [from, to), if they are spread evenly. */
static uint64_t found_bytes_in(const struct host_found *f, uint64_t from, uint64_t to)
{
	uint64_t size = f->end - f->start, page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (to - from == size)
		return f->bytes;
	return (uint64_t)((double)f->bytes / (double)size * (double)(to - from)) / page * page;
}

/* Adds a mapping that was in no range when the reading began. Calls whose records came in since may
 * have made ranges in it: these keep their owners and get their resident bytes. */
static int take_found(struct host_memory *h, const struct host_found *f)
{
	const struct map *m = &h->job.now.maps.v[f->map];
	uint64_t at = f->start;
	struct host_range like;
	int err = 0;

	if (was_unmapped(h, f->start, f->end))
		return 0;
	err = make_found_template(h, m, &like);
	if (!h->heap_end && !strcmp(m->path, "[heap]"))
		h->heap_end = m->end;
	while (!err && at < f->end) {
		size_t i = host_ranges__find(&h->ranges, at);
		struct host_range *r = i < h->ranges.n ? h->ranges.v[i] : NULL;
		uint64_t to = r && r->start < f->end ? r->start : f->end, bytes;

		if (to > at) { /* no range is here */
			bytes = found_bytes_in(f, at, to);
			err = host_ranges__map(&h->ranges, at, to, &like, bytes);
			at = to;
			continue;
		}
		to = r->end < f->end ? r->end : f->end;
		if (r->start >= f->start && r->end <= f->end) { /* made since */
			r->fresh = 0;
			err = host_ranges__set(&h->ranges, r, found_bytes_in(f, r->start, r->end));
		}
		at = to;
	}
	return err;
}

/* Sets the resident bytes that the reading found for a range. */
static int take_asked(struct host_memory *h, const struct host_asked *a)
{
	size_t i = host_ranges__find(&h->ranges, a->start);
	struct host_range *r = i < h->ranges.n ? h->ranges.v[i] : NULL;

	if (!r || r->id != a->id) {
		h->changed = true; /* the next reading sees the range as it is now */
		/* If the range only grew since, the bytes of its old part are right. */
		if (!r || a->gone || r->start != a->start || r->end < a->end ||
		    was_unmapped(h, a->start, a->end))
			return 0;
		r->fresh = r->end - a->end < r->fresh ? r->end - a->end : r->fresh;
		return host_ranges__set(&h->ranges, r, a->bytes);
	}
	r->fresh = 0;
	return a->gone ? host_ranges__unmap(&h->ranges, r->start, r->end)
		       : host_ranges__set(&h->ranges, r, a->bytes);
}

/* ---- between readings ---- */

/*
 * Bytes of RSS by which the kernel's counters can be wrong, at least LOOK_GROWTH. From Linux 6.2 on
 * these are per-CPU counters with batches of max(32, 2 * CPUs) pages (the kernel's
 * percpu_counter_batch), so the sum that procfs shows can be off by that on each CPU.
 */
static uint64_t least_growth(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	long page = sysconf(_SC_PAGESIZE);
	uint64_t batch = cpus > 16 ? 2 * (uint64_t)cpus : 32, error;

	error = cpus > 0 && page > 0 ? (uint64_t)cpus * batch * (uint64_t)page : 0;
	return error > LOOK_GROWTH ? error : LOOK_GROWTH;
}

int host_memory__charge_growth(struct host_memory *h, uint64_t rss)
{
	uint64_t added;
	int err;

	if (!h || h->running || !h->readings || rss < h->total + LOOK_GROWTH ||
	    rss < h->total + least_growth())
		return 0;
	h->time = h->c.now(h->c.ctx);
	err = host_ranges__charge(&h->ranges, rss - h->total, &added);
	h->looks += added > 0;
	h->worked_out += added;
	if (added)
		h->rss = rss;
	return err;
}

int host_memory__check_growth(struct host_memory *h)
{
	uint64_t now, pause, rss;
	int err = 0;

	if (!h || h->running || h->over || !h->readings)
		return 0;
	now = h->c.now(h->c.ctx);
	if (now < h->look)
		return 0;
	pause = now / LOOK_PART;
	if (pause < LOOK_LEAST)
		pause = LOOK_LEAST;
	h->look = now + (pause < LOOK_MOST ? pause : LOOK_MOST);
	/* Records come in late. So each look charges the RSS of the look before it: the calls that
	 * mapped that memory have come in by now. */
	if (h->seen)
		err = host_memory__charge_growth(h, h->seen);
	h->seen = h->changed && !proc__resident(h->c.proc, &rss) ? rss : 0;
	return err;
}

/* ---- what holds the memory ---- */

void host_memory__begin_held(struct host_memory *h)
{
	if (h)
		h->held_id = h->ranges.last_id;
}

void host_memory__set_held(struct host_memory *h, struct host_held *v, size_t n)
{
	if (!h) {
		free(v);
		return;
	}
	free(h->held);
	h->held = v;
	h->n_held = n;
}

static int by_addr(const void *a, const void *b)
{
	const struct host_held *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Sorts the objects by address. Cuts those that overlap an earlier one, and drops those that wrap
 * around. */
static void sort_held(struct host_memory *h)
{
	uint64_t done = 0, end;
	size_t n = 0;

	if (h->n_held)
		qsort(h->held, h->n_held, sizeof(*h->held), by_addr);
	for (size_t i = 0; i < h->n_held; i++) {
		struct host_held *v = &h->held[i];
		uint64_t start = v->addr > done ? v->addr : done;

		if (__builtin_add_overflow(v->addr, v->size, &end) || end <= start)
			continue;
		done = end;
		h->held[n++] = (struct host_held){ start, end - start, v->name };
	}
	h->n_held = n;
}

/* Sets *ret to the name whose objects have most of the range's resident bytes; 0: less than half.
 * *at: index of the first object that may end in the range or later. sums: scratch. 0 or -ENOMEM. */
static int find_main_holder(const struct host_memory *h, const struct host_range *r, size_t *at,
			    struct map64 *sums, uint32_t *ret)
{
	uint64_t best = 0, sum;

	*ret = 0;
	map64__clear(sums);
	while (*at < h->n_held && h->held[*at].addr + h->held[*at].size <= r->start)
		(*at)++;
	for (size_t i = *at; i < h->n_held && h->held[i].addr < r->end; i++) {
		const struct host_held *v = &h->held[i];
		uint64_t from = v->addr > r->start ? v->addr : r->start, to = v->addr + v->size;

		to = to < r->end ? to : r->end;
		sum = 0;
		map64__get(sums, v->name, &sum);
		sum += to - from;
		if (map64__set(sums, v->name, sum))
			return -ENOMEM;
		if (sum > best) {
			best = sum;
			*ret = v->name;
		}
	}
	if (best < r->resident - r->resident / 2)
		*ret = 0;
	return 0;
}

static int name_range(struct host_memory *h, const struct host_range *r, uint32_t name)
{
	uint64_t addr = r->start;
	int err = 0;

	for (uint8_t i = 0; i < r->n && !err; i++) {
		struct event e = { .kind = EVENT_TENSOR,
				   .device = { .type = DEVICE_HOST },
				   .time = h->time,
				   .addr = addr,
				   .size = r->piece[i],
				   .name = name };

		err = h->c.emit(h->c.ctx, &e);
		addr += r->piece[i];
	}
	return err;
}

static int name_blocks(struct host_memory *h)
{
	struct map64 *sums;
	uint32_t name;
	size_t at = 0;
	int err = 0;

	if (!h->held)
		return 0;
	sums = map64__new();
	if (!sums)
		return -ENOMEM;
	sort_held(h);
	for (size_t i = 0; i < h->ranges.n && !err; i++) {
		const struct host_range *r = h->ranges.v[i];

		if (!r->resident || r->born > h->held_id)
			continue;
		err = find_main_holder(h, r, &at, sums, &name);
		if (!err && name)
			err = name_range(h, r, name);
	}
	map64__free(sums);
	host_memory__set_held(h, NULL, 0);
	return err;
}

/* Emits the sum of the process's private memory (USS): the blocks do not show when a forked process
 * gets its own copies of shared pages. */
static int emit_own(struct host_memory *h, const struct residency *r)
{
	struct event e = { .kind = EVENT_HOST,
			   .time = h->time,
			   .device = { .type = DEVICE_HOST },
			   .how = HOST_USS };

	if (r->now.brief)
		return 0;
	for (size_t i = 0; i < r->now.maps.n; i++)
		e.size += r->now.v[i].own;
	return h->c.emit(h->c.ctx, &e);
}

int host_memory__take(struct host_memory *h, bool whole)
{
	struct residency *r = &h->job;
	int err = 0;

	h->time = h->c.now(h->c.ctx);
	if (!whole)
		goto out;
	for (size_t i = 0; i < r->n_asked && !err; i++)
		err = take_asked(h, &r->asked[i]);
	for (size_t i = 0; i < r->n_found && !err; i++)
		err = take_found(h, &r->found[i]);
	if (err)
		goto out;
	err = name_blocks(h) ?: emit_own(h, r);
	if (err)
		goto out;
	h->readings++;
	h->inherited = false;
	log_debug("host memory: %zu mappings, %" PRIu64 " bytes resident, %" PRIu64
		  " in rows, in %.1f ms",
		  r->now.maps.n, r->rss, h->total, (double)r->took / 1e6);
	h->rss = r->rss;
	h->seen = h->worked_out = 0;
out:
	residency__free(r);
	return err;
}

void host_memory__set_facts(const struct host_memory *h, struct facts *f)
{
	if (!h)
		return;
	if (h->readings)
		facts__setf(f, "host_rss", "%" PRIu64, h->rss);
	if (h->readings && (h->worked_out || h->looks))
		facts__setf(f, "host_worked_out", "%" PRIu64, h->worked_out);
	facts__setf(f, "counter.host.readings", "%" PRIu64, h->readings);
	facts__setf(f, "counter.host.looks", "%" PRIu64, h->looks);
	if (h->ranges.dropped)
		facts__setf(f, "counter.host.no_room", "%" PRIu64, h->ranges.dropped);
}
