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

void host_ranges__init(struct host_ranges *ranges, host_ranges_fn fn, void *ctx)
{
	*ranges = (struct host_ranges){ .fn = fn, .ctx = ctx };
}

void host_ranges__free(struct host_ranges *ranges)
{
	for (size_t i = 0; i < ranges->n; i++)
		free(ranges->v[i]);
	free(ranges->v);
	ranges->v = NULL;
	ranges->n = ranges->cap = 0;
}

size_t host_ranges__find(const struct host_ranges *ranges, uint64_t addr)
{
	size_t low = 0, high = ranges->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (ranges->v[mid]->end <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* --- the blocks of a range */

/* Begins a block of `size` bytes after the last one. */
static int push_block(struct host_ranges *ranges, struct host_range *range, uint64_t size)
{
	int err = ranges->fn(ranges->ctx, &range->owner, range->start + range->resident, size,
			     true);

	if (err)
		return err;
	range->piece[range->n++] = size;
	range->resident += size;
	return 0;
}

/* Ends the last block. */
static int pop_block(struct host_ranges *ranges, struct host_range *range)
{
	uint64_t size = range->piece[range->n - 1];
	int err = ranges->fn(ranges->ctx, &range->owner, range->start + range->resident - size,
			     size, /*comes=*/false);

	range->n--;
	range->resident -= size;
	return err;
}

/* Makes room for a block: replaces the two neighbouring blocks with the smallest sum by one block. */
static int join_smallest_blocks(struct host_ranges *ranges, struct host_range *range)
{
	/* at: address of the first of the two; smallest: its index */
	uint64_t addr = range->start, sum, at = 0, smallest_sum = UINT64_MAX;
	size_t smallest = 0, i;
	int err;

	for (i = 0; i + 1 < range->n; i++) {
		sum = range->piece[i] + range->piece[i + 1];
		if (sum < smallest_sum) {
			smallest_sum = sum;
			smallest = i;
			at = addr;
		}
		addr += range->piece[i];
	}
	err = ranges->fn(ranges->ctx, &range->owner, at, range->piece[smallest], false)
		      ?: ranges->fn(ranges->ctx, &range->owner, at + range->piece[smallest],
				    range->piece[smallest + 1], false);
	err = err ?: ranges->fn(ranges->ctx, &range->owner, at, smallest_sum, true);
	range->piece[smallest] = smallest_sum;
	memmove(&range->piece[smallest + 1], &range->piece[smallest + 2],
		(range->n - smallest - 2) * sizeof(*range->piece));
	range->n--;
	return err;
}

int host_ranges__set(struct host_ranges *ranges, struct host_range *range, uint64_t resident)
{
	int err = 0;

	if (resident > range->end - range->start)
		resident = range->end - range->start;
	/* Ends all blocks above the new end. The block that contains the new end is ended, too, and
	 * a smaller one replaces it below. */
	while (!err && range->n && range->resident > resident)
		err = pop_block(ranges, range);
	if (err || range->resident == resident)
		return err;
	if (range->n == HOST_PIECES)
		err = join_smallest_blocks(ranges, range);
	return err ?: push_block(ranges, range, resident - range->resident);
}

static int newest_first(const void *a, const void *b)
{
	const struct host_range *const *x = a, *const *y = b;

	return (*x)->id > (*y)->id ? -1 : (*x)->id < (*y)->id;
}

/* Bytes of a range that may have become resident since the last reading. */
static uint64_t chargeable(const struct host_range *range)
{
	uint64_t room = range->end - range->start - range->resident;

	return room < range->fresh ? room : range->fresh;
}

int host_ranges__charge(struct host_ranges *ranges, uint64_t bytes, uint64_t *ret)
{
	struct host_range **candidates = calloc(ranges->n + 1, sizeof(*candidates));
	size_t n = 0;
	int err = 0;

	*ret = 0;
	if (!candidates)
		return -ENOMEM;
	for (size_t i = 0; i < ranges->n; i++)
		if (chargeable(ranges->v[i]))
			candidates[n++] = ranges->v[i];
	if (n)
		qsort(candidates, n, sizeof(*candidates), newest_first);
	for (size_t i = 0; i < n && !err; i++) {
		uint64_t room = chargeable(candidates[i]), add = bytes - *ret;

		add = (room < add ? room : add) / PAGE * PAGE;
		err = host_ranges__set(ranges, candidates[i], candidates[i]->resident + add);
		candidates[i]->fresh -= add;
		*ret += add;
	}
	free(candidates);
	return err;
}

/* --- ranges */

/* Inserts a copy of range at an index, with a new id. Counts it as dropped if there are too many. 0
 * or -ENOMEM. */
static int insert_range(struct host_ranges *ranges, size_t at, const struct host_range *range)
{
	struct host_range *copy;

	if (ranges->n >= HOST_RANGES_MAX) {
		ranges->dropped++;
		return 0;
	}
	if (array__grow(&ranges->v, &ranges->cap, ranges->n + 1, sizeof(*ranges->v)))
		return -ENOMEM;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	*copy = *range;
	copy->id = ++ranges->last_id;
	copy->born = copy->born ?: copy->id;
	memmove(&ranges->v[at + 1], &ranges->v[at], (ranges->n - at) * sizeof(*ranges->v));
	ranges->v[at] = copy;
	ranges->n++;
	return 0;
}

static void remove_range(struct host_ranges *ranges, size_t at)
{
	free(ranges->v[at]);
	ranges->n--;
	memmove(&ranges->v[at], &ranges->v[at + 1], (ranges->n - at) * sizeof(*ranges->v));
}

/* The share of `bytes` in `part` of the `whole` bytes of a range, if they are spread evenly. */
static uint64_t share_of(uint64_t bytes, uint64_t part, uint64_t whole)
{
	uint64_t share = (uint64_t)((double)bytes * ((double)part / (double)whole)) / PAGE * PAGE;

	return share < part ? share : part;
}

/* Splits the range that contains addr, if any, so that a range begins at addr. Its resident and
 * fresh bytes are divided in proportion. */
static int split_range(struct host_ranges *ranges, uint64_t addr)
{
	size_t at = host_ranges__find(ranges, addr);
	struct host_range *range = at < ranges->n ? ranges->v[at] : NULL, upper;
	uint64_t low_resident; /* of the part below addr */
	int err;

	if (!range || range->start >= addr)
		return 0;
	upper = *range;
	upper.start = addr;
	upper.n = 0;
	upper.resident = 0;
	upper.fresh = share_of(range->fresh, range->end - addr, range->end - range->start);
	low_resident = share_of(range->resident, addr - range->start, range->end - range->start);
	/* piece[0]: resident bytes of the upper part, until they are set below */
	upper.piece[0] = range->resident - low_resident;
	if (upper.piece[0] > upper.end - upper.start)
		upper.piece[0] = upper.end - upper.start;
	range->fresh -= upper.fresh;
	if (range->fresh > addr - range->start)
		range->fresh = addr - range->start;
	err = host_ranges__set(ranges, range, low_resident) ?: insert_range(ranges, at + 1, &upper);
	if (err)
		return err;
	range->end = addr;
	range->id = ++ranges->last_id;
	if (at + 1 < ranges->n && ranges->v[at + 1]->start == addr)
		return host_ranges__set(ranges, ranges->v[at + 1], upper.piece[0]);
	return 0;
}

/* Makes start and end bounds of ranges. */
static int cut_out(struct host_ranges *ranges, uint64_t start, uint64_t end)
{
	return split_range(ranges, start) ?: split_range(ranges, end);
}

int host_ranges__unmap(struct host_ranges *ranges, uint64_t start, uint64_t end)
{
	size_t at;
	int err;

	if (start >= end)
		return 0;
	err = cut_out(ranges, start, end);
	at = host_ranges__find(ranges, start);
	while (!err && at < ranges->n && ranges->v[at]->start < end) {
		err = host_ranges__set(ranges, ranges->v[at], 0);
		remove_range(ranges, at);
	}
	return err;
}

/* True if two neighbouring ranges can be one: they are alike, and neither is a mapping with a
 * name. */
static bool same_owner(const struct host_range *a, const struct host_range *b)
{
	return a->owner.stack == b->owner.stack && a->owner.thread == b->owner.thread &&
	       a->owner.walk == b->owner.walk && a->writable == b->writable && !a->named &&
	       !b->named;
}

/* Adds a small new range to the one that ends at its start, if both have the same owner. False: it
 * is a range of its own. */
static bool join_below(struct host_ranges *ranges, size_t at, const struct host_range *range)
{
	struct host_range *below = at ? ranges->v[at - 1] : NULL;

	if (!below || below->end != range->start || !same_owner(below, range) ||
	    !range->owner.stack || range->end - range->start >= HOST_MERGE_BELOW ||
	    range->end - below->start > HOST_MERGED_MAX)
		return false;
	/* The grain is a mean, weighted by bytes. */
	below->owner.grain = (uint64_t)(((double)below->owner.grain *
						 (double)(range->start - below->start) +
					 (double)range->owner.grain *
						 (double)(range->end - range->start)) /
					(double)(range->end - below->start));
	below->end = range->end;
	below->fresh += range->fresh;
	below->id = ++ranges->last_id;
	return true;
}

int host_ranges__map(struct host_ranges *ranges, uint64_t start, uint64_t end,
		     const struct host_range *like, uint64_t resident)
{
	struct host_range range = *like;
	size_t at;
	int err;

	if (start >= end)
		return 0;
	err = host_ranges__unmap(ranges, start, end);
	if (err)
		return err;
	range.start = start;
	range.end = end;
	range.n = 0;
	range.resident = 0;
	if (range.fresh > end - start)
		range.fresh = end - start;
	at = host_ranges__find(ranges, start);
	if (!resident && join_below(ranges, at, &range))
		return 0;
	err = insert_range(ranges, at, &range);
	/* There is no range if there were too many already. */
	if (err || at >= ranges->n || ranges->v[at]->start != start)
		return err;
	return host_ranges__set(ranges, ranges->v[at], resident);
}

/* Copies the n ranges in [start, end). The caller frees *ret, which is NULL if n is 0. 0 or
 * -ENOMEM. */
static int copy_part(const struct host_ranges *ranges, uint64_t start, uint64_t end,
		     struct host_range **ret, size_t *n)
{
	size_t at = host_ranges__find(ranges, start), last = at;

	while (last < ranges->n && ranges->v[last]->start < end)
		last++;
	*n = last - at;
	*ret = *n ? calloc(*n, sizeof(**ret)) : NULL;
	for (size_t i = 0; *ret && i < *n; i++)
		(*ret)[i] = *ranges->v[at + i];
	return *n && !*ret ? -ENOMEM : 0;
}

int host_ranges__move(struct host_ranges *ranges, uint64_t from, uint64_t len, uint64_t to,
		      uint64_t to_len, const struct host_range *like)
{
	uint64_t end, to_end, kept = len < to_len ? len : to_len;
	struct host_range *old;
	size_t n, i;
	int err;

	if (__builtin_add_overflow(from, len, &end) || __builtin_add_overflow(to, to_len, &to_end))
		return 0;
	if (from == to) { /* the mapping grew or shrank in place */
		err = to_len < len ? host_ranges__unmap(ranges, to_end, end) : 0;
		return err ?: host_ranges__map(ranges, from + kept, to_end, like, 0);
	}
	err = cut_out(ranges, from, from + kept) ?: copy_part(ranges, from, from + kept, &old, &n);
	if (err)
		return err;
	err = host_ranges__unmap(ranges, from, end) ?: host_ranges__unmap(ranges, to, to_end);
	for (i = 0; i < n && !err; i++)
		err = host_ranges__map(ranges, old[i].start - from + to, old[i].end - from + to,
				       &old[i], old[i].resident);
	free(old);
	return err ?: host_ranges__map(ranges, to + kept, to_end, like, 0);
}

int host_ranges__make_writable(struct host_ranges *ranges, uint64_t start, uint64_t end,
			       const struct host_range *like)
{
	uint64_t addr = start;
	size_t at;
	int err = 0;

	while (!err && addr < end && (at = host_ranges__find(ranges, addr)) < ranges->n &&
	       ranges->v[at]->start < end) {
		uint64_t from = ranges->v[at]->start > start ? ranges->v[at]->start : start;
		uint64_t to = ranges->v[at]->end < end ? ranges->v[at]->end : end;

		if (!ranges->v[at]->writable && !ranges->v[at]->resident)
			err = host_ranges__map(ranges, from, to, like, 0);
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
	struct host_capture capture;
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
	uint64_t next_look;  /* at RSS between readings, ns since start */
	uint64_t looked_at;  /* RSS at the last look; 0: none since the last reading */
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
	struct host_memory *host = ctx;
	struct event event = {
		.kind = comes ? EVENT_ALLOC : EVENT_FREE,
		.device = { .type = DEVICE_HOST },
		.time = host->time,
		.addr = addr,
		.size = size,
		.thread = owner->thread,
	};
	int err;

	host->total += comes ? size : -size;
	if (comes) {
		event.stack = owner->stack;
		event.walk = owner->walk;
	}
	err = host->capture.emit(host->capture.ctx, &event);
	if (err || !comes || !owner->grain)
		return err;
	/* The grain follows the block as its requested bytes. */
	event.kind = EVENT_REQUESTED;
	event.stack = 0;
	event.walk = 0;
	event.size = 0;
	event.requested = owner->grain;
	return host->capture.emit(host->capture.ctx, &event);
}

struct host_memory *host_memory__new(const struct host_capture *capture, bool inherited)
{
	struct host_memory *host = calloc(1, sizeof(*host));

	if (!host)
		return NULL;
	host->capture = *capture;
	host->inherited = inherited;
	host_ranges__init(&host->ranges, emit_block, host);
	return host;
}

static void join_thread(struct host_memory *host)
{
	pthread_join(host->thread, NULL);
	host->running = false;
}

void host_memory__free(struct host_memory *host)
{
	if (!host)
		return;
	atomic_store(&host->cancel, true);
	if (host->running)
		join_thread(host);
	residency__free(&host->job);
	free(host->held);
	host_ranges__free(&host->ranges);
	free(host);
}

/* ---- records ---- */

/* Notes addresses that are unmapped during a reading: what it found there is gone. */
static void note_unmapped(struct host_memory *host, uint64_t start, uint64_t end)
{
	host->changed = true;
	if (!host->running)
		return;
	if (host->n_unmapped < UNMAPPED_MAX)
		host->unmapped[host->n_unmapped] = (struct span){ start, end };
	host->n_unmapped++;
}

/* True if a part of [start, end) was unmapped during the reading, or may have been. */
static bool was_unmapped(const struct host_memory *host, uint64_t start, uint64_t end)
{
	if (host->n_unmapped > UNMAPPED_MAX)
		return true;
	for (size_t i = 0; i < host->n_unmapped; i++)
		if (host->unmapped[i].start < end && start < host->unmapped[i].end)
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
static bool is_python_arena(const struct mt_rec_host *record)
{
	return (record->len == PY_ARENA || record->len == PY_ARENA_OLD) &&
	       (record->to & PROT_WRITE) &&
	       (record->flags & (MAP_PRIVATE | MAP_ANONYMOUS)) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

/* True if the mapping is a piece of Go's heap, as far as the call shows: runtime.sysMapOS() maps
 * multiples of pallocChunkBytes within what it reserved. */
static bool is_go_chunk(const struct mt_rec_host *record)
{
	const uint32_t flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

	return record->len && record->len % GO_CHUNK == 0 &&
	       record->to == (PROT_READ | PROT_WRITE) && record->flags == flags;
}

/* True if memory that becomes writable at `start` begins or extends one of malloc's heaps: the
 * memory below is writable, or start is aligned as heaps are. Neither is true for a stack. */
static bool grows_heap(const struct host_memory *host, uint64_t start)
{
	size_t at = host_ranges__find(&host->ranges, start - 1);

	return start % MALLOC_HEAP == 0 ||
	       (at < host->ranges.n && host->ranges.v[at]->start < start &&
		host->ranges.v[at]->writable);
}

/* Takes a call of brk(): maps or unmaps what lies between the old and the new end of the heap.
 * Returns 0, -ENOMEM, or the error of ranges.fn. */
static int on_brk(struct host_memory *host, const struct mt_rec_host *record,
		  struct host_range *like)
{
	uint64_t end = page_up(record->addr), old_end = host->heap_end;

	host->heap_end = end;
	if (!old_end || old_end == end)
		return 0; /* a call that asks for the end, or the first one */
	if (end > old_end) {
		like->owner.grain = grain_of(&host->least_brk, end - old_end);
		return host_ranges__map(&host->ranges, old_end, end, like, 0);
	}
	note_unmapped(host, end, old_end);
	return host_ranges__unmap(&host->ranges, end, old_end);
}

/*
 * Handles mprotect() that makes [start, end) writable, such as a piece that a heap grows by.
 * like: the template of make_template(). If the memory is a piece of a heap, sets its grain from
 * the smallest such piece (host->least_opened), and counts all bytes as fresh (UINT64_MAX): they
 * may become resident soon. Returns 0, -ENOMEM, or the error of ranges.fn.
 */
static int on_mprotect(struct host_memory *host, uint64_t start, uint64_t end,
		       struct host_range *like)
{
	size_t at = host_ranges__find(&host->ranges, start);

	if (start >= end)
		return 0;
	if (grows_heap(host, start))
		like->owner.grain = grain_of(&host->least_opened, end - start);
	/* Before the first reading, mappings from before attach are no ranges yet. A short stretch
	 * of such a mapping that becomes writable is a piece that a heap grows by. */
	if (!host->readings && end - start < HOST_MERGE_BELOW &&
	    (at == host->ranges.n || host->ranges.v[at]->start >= end)) {
		like->owner.grain = grain_of(&host->least_opened, end - start);
		like->fresh = UINT64_MAX;
		return host_ranges__map(&host->ranges, start, end, like, 0);
	}
	like->fresh = like->owner.grain ? UINT64_MAX : 0;
	return host_ranges__make_writable(&host->ranges, start, end, like);
}

/* Keeps the owner of a shared memory segment, until a reading tells its length. Drops the oldest
 * one without room. */
static void keep_attached(struct host_memory *host, uint64_t addr, const struct host_range *like)
{
	if (host->n_attached == ATTACHED_MAX)
		memmove(&host->attached[0], &host->attached[1],
			--host->n_attached * sizeof(host->attached[0]));
	host->attached[host->n_attached].addr = addr;
	host->attached[host->n_attached++].like = *like;
}

/* Makes the template of a range that a call maps. Returns 0 or -ENOMEM. */
static int make_template(struct host_memory *host, const struct mt_rec_host *record,
			 struct host_range *ret)
{
	*ret = (struct host_range){ .owner = { .walk = record->h.walk }, .writable = true };
	ret->owner.thread = host->capture.thread(host->capture.ctx, record->h.tid);
	ret->owner.stack = host->capture.stack(host->capture.ctx, record->stack, &ret->owner.walk);
	if (!record->stack &&
	    host->capture.native(host->capture.ctx, record, &ret->owner.stack, &ret->owner.walk))
		return -ENOMEM;
	if (record->call == MT_HOST_MMAP)
		ret->writable = record->to & PROT_WRITE;
	/* UINT64_MAX: all bytes. Memory that is mapped writable may become resident soon.
	 * mprotect() also makes a thread's whole stack writable, but the thread uses little of it.
	 */
	ret->fresh = ret->writable && record->call != MT_HOST_MPROTECT ? UINT64_MAX : 0;
	return ret->owner.thread == UINT32_MAX ? -ENOMEM : 0;
}

int host_memory__record(struct host_memory *host, const struct mt_rec_host *record)
{
	struct host_range like;
	uint64_t end;
	int err;

	if (!host)
		return 0;
	err = make_template(host, record, &like);
	end = page_up(record->addr + record->len);
	host->time = host->capture.since(host->capture.ctx, record->h.time);
	host->changed = true;
	if (err)
		return err;
	switch (record->call) {
	case MT_HOST_MMAP:
		like.owner.grain = is_python_arena(record) || is_go_chunk(record) ? record->len : 0;
		return host_ranges__map(&host->ranges, record->addr, end, &like, 0);
	case MT_HOST_MUNMAP:
		note_unmapped(host, record->addr, end);
		return host_ranges__unmap(&host->ranges, record->addr, end);
	case MT_HOST_MREMAP:
		note_unmapped(host, record->addr, end);
		return host_ranges__move(&host->ranges, record->addr, page_up(record->len),
					 record->to, page_up(record->to_len), &like);
	case MT_HOST_BRK:
		return on_brk(host, record, &like);
	case MT_HOST_MPROTECT:
		return on_mprotect(host, record->addr, end, &like);
	case MT_HOST_SHMAT:
		keep_attached(host, record->addr, &like);
		return 0;
	}
	return -EBADMSG;
}

/* ---- readings ---- */

static bool is_cancelled(void *ctx)
{
	struct host_memory *host = ctx;

	return atomic_load(&host->cancel);
}

/* Thread: reads the resident bytes. */
static void *run_reading(void *ctx)
{
	struct host_memory *host = ctx;

	host->err = residency__read(&host->job);
	atomic_store(&host->done, true);
	return NULL;
}

/* Gives the reading its own copy of the ranges, since they change meanwhile. 0 or -ENOMEM. */
static int copy_ranges(struct host_memory *host)
{
	size_t n = host->ranges.n;

	host->job = (struct residency){ .proc = host->capture.proc,
					.cancelled = is_cancelled,
					.ctx = host };
	host->job.asked = calloc(n + 1, sizeof(*host->job.asked));
	if (!host->job.asked)
		return -ENOMEM;
	host->job.n_asked = n;
	for (size_t i = 0; i < n; i++)
		host->job.asked[i] = (struct host_asked){ .start = host->ranges.v[i]->start,
							  .end = host->ranges.v[i]->end,
							  .id = host->ranges.v[i]->id };
	return 0;
}

/* Frees a reading that did not succeed. The next one is then due although memory is the same. */
static void fail_reading(struct host_memory *host, int err)
{
	if (proc__alive(host->capture.proc))
		log_debug("host memory was not read: %s", strerror(-err));
	residency__free(&host->job);
	host->changed = true;
}

/* True if the pause is over and memory may have changed. Then sets host->resident for the reading
 * that the caller begins. */
static bool is_due(struct host_memory *host, uint64_t now)
{
	uint64_t resident;

	if (now < host->next || proc__resident(host->capture.proc, &resident))
		return false;
	if (host->readings && !host->changed && resident == host->resident)
		return false;
	host->resident = resident;
	return true;
}

void host_memory__begin(struct host_memory *host, bool last)
{
	sigset_t all, old;
	int err;

	if (!host || host->running || host->over ||
	    (!last && !is_due(host, host->capture.now(host->capture.ctx))))
		return;
	host->over = last;
	host->changed = false;
	host->n_unmapped = 0;
	atomic_store(&host->done, false);
	/* The new thread inherits the mask: signals go to the thread that waits for them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = copy_ranges(host);
	if (!err)
		err = -pthread_create(&host->thread, NULL, run_reading, host);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	host->running = !err;
	if (err) {
		host->next = host->capture.now(host->capture.ctx) + EVERY;
		fail_reading(host, err);
	}
}

bool host_memory__is_reading(const struct host_memory *host)
{
	return host && host->running && !atomic_load(&host->done);
}

int host_memory__join_reading(struct host_memory *host)
{
	uint64_t pause;

	if (!host || !host->running || !atomic_load(&host->done))
		return 0;
	join_thread(host);
	pause = host->job.took * SHARE;
	host->next = host->capture.now(host->capture.ctx) + (pause > EVERY ? pause : EVERY);
	if (!host->err)
		return 1;
	fail_reading(host, host->err);
	return 0;
}

/* Returns the number of a stack that stands for the unknown caller of a mapping. Its one frame has
 * the mapping's path as the file. As the function it has the reason: only the first reading finds
 * memory from before attach or from the parent process. 0: no room. UINT32_MAX: out of memory. */
static uint32_t name_mapping(struct host_memory *host, const struct map *map)
{
	const char *reason = host->readings ? HOST_UNSEEN : HOST_BEFORE_ATTACH;

	if (host->inherited)
		reason = HOST_INHERITED;
	return host->capture.named(host->capture.ctx, *map->path ? map->path : HOST_ANONYMOUS,
				   reason);
}

/* Makes the template of a mapping that a reading found: its owner is the shmat() that attached it,
 * or its name. Returns 0 or -ENOMEM. */
static int make_found_template(struct host_memory *host, const struct map *map,
			       struct host_range *ret)
{
	uint32_t thread;

	for (size_t i = 0; i < host->n_attached; i++) {
		if (host->attached[i].addr != map->start)
			continue;
		*ret = host->attached[i].like;
		host->attached[i] = host->attached[--host->n_attached];
		return 0;
	}
	thread = host->capture.thread(host->capture.ctx, (uint32_t)proc__pid(host->capture.proc));
	if (thread == UINT32_MAX)
		return -ENOMEM;
	*ret = (struct host_range){ .owner = { .thread = thread, .walk = MT_WALK_OFF },
				    .writable = map->w,
				    .named = true };
	ret->owner.stack = name_mapping(host, map);
	return ret->owner.stack == UINT32_MAX ? -ENOMEM : 0;
}

/* Resident bytes that a mapping has in [from, to), if they are spread evenly. */
static uint64_t found_bytes_in(const struct host_found *found, uint64_t from, uint64_t to)
{
	uint64_t size = found->end - found->start, page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (to - from == size)
		return found->bytes;
	return (uint64_t)((double)found->bytes / (double)size * (double)(to - from)) / page * page;
}

/* Adds a mapping that was in no range when the reading began. Calls whose records came in since may
 * have made ranges in it: these keep their owners and get their resident bytes. */
static int take_found(struct host_memory *host, const struct host_found *found)
{
	const struct map *map = &host->job.now.maps.v[found->map];
	uint64_t at = found->start;
	struct host_range like;
	int err = 0;

	if (was_unmapped(host, found->start, found->end))
		return 0;
	err = make_found_template(host, map, &like);
	if (!host->heap_end && !strcmp(map->path, "[heap]"))
		host->heap_end = map->end;
	while (!err && at < found->end) {
		size_t i = host_ranges__find(&host->ranges, at);
		struct host_range *range = i < host->ranges.n ? host->ranges.v[i] : NULL;
		uint64_t to = range && range->start < found->end ? range->start : found->end, bytes;

		if (to > at) { /* no range is here */
			bytes = found_bytes_in(found, at, to);
			err = host_ranges__map(&host->ranges, at, to, &like, bytes);
			at = to;
			continue;
		}
		to = range->end < found->end ? range->end : found->end;
		if (range->start >= found->start &&
		    range->end <= found->end) { /* a call made it since the reading began */
			range->fresh = 0;
			err = host_ranges__set(&host->ranges, range,
					       found_bytes_in(found, range->start, range->end));
		}
		at = to;
	}
	return err;
}

/* Sets the bytes that the reading found for a range which changed since. If it only grew, the bytes
 * of its old part are right, and its new part is fresh: not read yet. */
static int take_asked_changed(struct host_memory *host, struct host_range *range,
			      const struct host_asked *asked)
{
	uint64_t grown;

	host->changed = true; /* the next reading sees the range as it is now */
	if (!range || asked->gone || range->start != asked->start || range->end < asked->end ||
	    was_unmapped(host, asked->start, asked->end))
		return 0;
	grown = range->end - asked->end;
	if (grown < range->fresh)
		range->fresh = grown;
	return host_ranges__set(&host->ranges, range, asked->bytes);
}

/* Sets the resident bytes that the reading found for a range. */
static int take_asked(struct host_memory *host, const struct host_asked *asked)
{
	size_t i = host_ranges__find(&host->ranges, asked->start);
	struct host_range *range = i < host->ranges.n ? host->ranges.v[i] : NULL;

	if (!range || range->id != asked->id)
		return take_asked_changed(host, range, asked);
	range->fresh = 0;
	return asked->gone ? host_ranges__unmap(&host->ranges, range->start, range->end)
			   : host_ranges__set(&host->ranges, range, asked->bytes);
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

/* The ranges take what RSS has grown by since the last reading: bytes of the newest ranges. */
int host_memory__charge_growth(struct host_memory *host, uint64_t rss)
{
	uint64_t added;
	int err;

	/* Less growth is not worth the work. */
	if (!host || host->running || !host->readings || rss < host->total + LOOK_GROWTH ||
	    rss < host->total + least_growth())
		return 0;
	host->time = host->capture.now(host->capture.ctx);
	err = host_ranges__charge(&host->ranges, rss - host->total, &added);
	host->looks += added > 0;
	host->worked_out += added;
	if (added)
		host->rss = rss;
	return err;
}

/* The pause after a look at RSS, ns. now: ns since start. */
static uint64_t pause_after_look(uint64_t now)
{
	uint64_t pause = now / LOOK_PART;

	if (pause < LOOK_LEAST)
		return LOOK_LEAST;
	return pause < LOOK_MOST ? pause : LOOK_MOST;
}

int host_memory__check_growth(struct host_memory *host)
{
	uint64_t now, rss;
	int err = 0;

	if (!host || host->running || host->over || !host->readings)
		return 0;
	now = host->capture.now(host->capture.ctx);
	if (now < host->next_look)
		return 0;
	host->next_look = now + pause_after_look(now);
	/* Records come in late. So each look charges the RSS of the look before it: the calls that
	 * mapped that memory have come in by now. */
	if (host->looked_at)
		err = host_memory__charge_growth(host, host->looked_at);
	host->looked_at = 0;
	if (host->changed && !proc__resident(host->capture.proc, &rss))
		host->looked_at = rss;
	return err;
}

/* ---- what holds the memory ---- */

void host_memory__begin_held(struct host_memory *host)
{
	if (host)
		host->held_id = host->ranges.last_id;
}

void host_memory__set_held(struct host_memory *host, struct host_held *held, size_t n)
{
	if (!host) {
		free(held);
		return;
	}
	free(host->held);
	host->held = held;
	host->n_held = n;
}

static int by_addr(const void *a, const void *b)
{
	const struct host_held *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Sorts the objects by address. Cuts those that overlap an earlier one, and drops those that wrap
 * around. */
static void sort_held(struct host_memory *host)
{
	uint64_t done = 0, end;
	size_t n = 0;

	if (host->n_held)
		qsort(host->held, host->n_held, sizeof(*host->held), by_addr);
	for (size_t i = 0; i < host->n_held; i++) {
		struct host_held *held = &host->held[i];
		uint64_t start = held->addr > done ? held->addr : done;

		if (__builtin_add_overflow(held->addr, held->size, &end) || end <= start)
			continue;
		done = end;
		host->held[n++] = (struct host_held){ start, end - start, held->name };
	}
	host->n_held = n;
}

/* Sets *ret to the name whose objects have most of the range's resident bytes; 0: less than half.
 * *at: index of the first object that may end in the range or later. sums: scratch. 0 or -ENOMEM. */
static int find_main_holder(const struct host_memory *host, const struct host_range *range,
			    size_t *at, struct map64 *sums, uint32_t *ret)
{
	uint64_t best = 0, sum;

	*ret = 0;
	map64__clear(sums);
	while (*at < host->n_held && host->held[*at].addr + host->held[*at].size <= range->start)
		(*at)++;
	for (size_t i = *at; i < host->n_held && host->held[i].addr < range->end; i++) {
		const struct host_held *held = &host->held[i];
		uint64_t from = held->addr > range->start ? held->addr : range->start,
			 to = held->addr + held->size;

		to = to < range->end ? to : range->end;
		sum = 0;
		map64__get(sums, held->name, &sum);
		sum += to - from;
		if (map64__set(sums, held->name, sum))
			return -ENOMEM;
		if (sum > best) {
			best = sum;
			*ret = held->name;
		}
	}
	if (best < range->resident - range->resident / 2)
		*ret = 0;
	return 0;
}

/* Emits the name for each block of the range. */
static int name_range(struct host_memory *host, const struct host_range *range, uint32_t name)
{
	uint64_t addr = range->start;
	int err = 0;

	for (uint8_t i = 0; i < range->n && !err; i++) {
		struct event event = { .kind = EVENT_TENSOR,
				       .device = { .type = DEVICE_HOST },
				       .time = host->time,
				       .addr = addr,
				       .size = range->piece[i],
				       .name = name };

		err = host->capture.emit(host->capture.ctx, &event);
		addr += range->piece[i];
	}
	return err;
}

/* Names the blocks by the objects of host_memory__set_held(), which are then gone. */
static int name_blocks(struct host_memory *host)
{
	struct map64 *sums;
	uint32_t name;
	size_t at = 0;
	int err = 0;

	if (!host->held)
		return 0;
	sums = map64__new();
	if (!sums)
		return -ENOMEM;
	sort_held(host);
	for (size_t i = 0; i < host->ranges.n && !err; i++) {
		const struct host_range *range = host->ranges.v[i];

		if (!range->resident || range->born > host->held_id)
			continue;
		err = find_main_holder(host, range, &at, sums, &name);
		if (!err && name)
			err = name_range(host, range, name);
	}
	map64__free(sums);
	host_memory__set_held(host, /*held=*/NULL, 0);
	return err;
}

/* Emits the sum of the process's private memory (USS): the blocks do not show when a forked process
 * gets its own copies of shared pages. */
static int emit_own(struct host_memory *host, const struct residency *residency)
{
	struct event event = { .kind = EVENT_HOST,
			       .time = host->time,
			       .device = { .type = DEVICE_HOST },
			       .how = HOST_USS };

	if (residency->now.brief)
		return 0;
	for (size_t i = 0; i < residency->now.maps.n; i++)
		event.size += residency->now.v[i].own;
	return host->capture.emit(host->capture.ctx, &event);
}

int host_memory__take(struct host_memory *host, bool whole)
{
	struct residency *residency = &host->job;
	int err = 0;

	host->time = host->capture.now(host->capture.ctx);
	if (!whole)
		goto out;
	for (size_t i = 0; i < residency->n_asked && !err; i++)
		err = take_asked(host, &residency->asked[i]);
	for (size_t i = 0; i < residency->n_found && !err; i++)
		err = take_found(host, &residency->found[i]);
	if (err)
		goto out;
	err = name_blocks(host) ?: emit_own(host, residency);
	if (err)
		goto out;
	host->readings++;
	host->inherited = false;
	log_debug("host memory: %zu mappings, %" PRIu64 " bytes resident, %" PRIu64
		  " in rows, in %.1f ms",
		  residency->now.maps.n, residency->rss, host->total,
		  (double)residency->took / 1e6);
	host->rss = residency->rss;
	host->looked_at = host->worked_out = 0;
out:
	residency__free(residency);
	return err;
}

void host_memory__set_facts(const struct host_memory *host, struct facts *facts)
{
	if (!host)
		return;
	if (host->readings)
		facts__setf(facts, "host_rss", "%" PRIu64, host->rss);
	if (host->readings && (host->worked_out || host->looks))
		facts__setf(facts, "host_worked_out", "%" PRIu64, host->worked_out);
	facts__setf(facts, "counter.host.readings", "%" PRIu64, host->readings);
	facts__setf(facts, "counter.host.looks", "%" PRIu64, host->looks);
	if (host->ranges.dropped)
		facts__setf(facts, "counter.host.no_room", "%" PRIu64, host->ranges.dropped);
}
