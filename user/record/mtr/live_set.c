/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr/live_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "record/host.h"

#define NONE UINT32_MAX /* no index */
#define SIZE_CLASSES 64 /* one for each bit of a size */
#define LIVE_SCOPES 256 /* open scopes; a further one replaces the oldest */

struct block {
	uint64_t size, requested, cuda_stream;
	uint64_t time;	      /* time of the allocation, ns; 0: before the first event */
	uint64_t tensor_size; /* bytes of the tensor's storage, if tensor is set */
	uint32_t stack, thread, node;
	uint32_t name, module; /* data of EVENT_TENSOR, if tensor is set */
	uint8_t walk, flags, how, category;
	uint8_t about;	  /* bits TENSOR_ITEM and TENSOR_INFERRED of the tensor's event */
	bool tensor;	  /* EVENT_TENSOR reported a tensor's storage in this block */
	bool only_tensor; /* true if only EVENT_TENSOR reported the block */
};

/* An EVENT_CUDA_ALLOC without MEM_RETRIED, EVENT_CUDA_FREE or EVENT_SEGMENT. */
struct range {
	struct event e;
	uint64_t seq;  /* number of the event in the stream, from 1; 0: this entry is unused */
	uint32_t next; /* index of the next unused entry, if this one is unused */
};

/* Ranges of similar size, from 2^i to 2^(i+1)-1 bytes, ordered by address. A range in the list that
 * contains an address begins at most 2^(i+1)-2 bytes before it, so a short search finds it. */
struct range_list {
	uint32_t *v; /* indexes in live_set.ranges */
	size_t n, room;
};

struct base_device {
	struct device device;
	struct map64 *blocks;	      /* address -> index in live_set.blocks */
	struct map64 *segments;	      /* address -> index in live_set.ranges */
	bool totals;		      /* the allocator reports its totals */
	uint64_t allocated, reserved; /* these totals, bytes */
	uint64_t live;		      /* sum of counted_bytes() of all blocks */
	uint64_t peak_allocated, peak_reserved;
	struct event census, used,
		left; /* the latest event of each of these kinds; kind 0: none yet */
	/* range.seq of the first EVENT_SEGMENT since the last EVENT_STATE, which ends a reading of
	 * the allocator's tables. 0: none since then. */
	uint64_t reading;
};

struct live_set {
	struct block *blocks;
	/* free_block: index of the first unused block; block.stack of an unused block has the index
	 * of the next one. NONE: no more. */
	uint32_t n_blocks, free_block;
	size_t room_blocks;
	struct range *ranges;
	uint32_t n_ranges, free_range; /* free_range: index of the first unused range; NONE: none */
	size_t room_ranges;
	struct range_list by_size[SIZE_CLASSES]; /* index: size_class() of a range's bytes */
	struct map64 *taken[MEM_HOW_NR];	 /* by enum mem_how: address -> index in ranges */
	struct base_device *devices;
	uint32_t n_devices;
	uint64_t seq;			  /* number of events so far */
	uint64_t lost;			  /* number of lost records so far */
	bool losing;			  /* the latest loss has not ended yet: see EVENT_LOST */
	struct event scopes[LIVE_SCOPES]; /* the EVENT_SCOPE that began each open scope */
	bool suspended[LIVE_SCOPES];
	uint32_t n_scopes;
	struct {
		bool known; /* last is valid */
		struct host_sheet reading,
			last; /* the incomplete reading, and the latest complete one */
	} host;
};

struct live_set *live_set__new(void)
{
	struct live_set *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->free_block = b->free_range = NONE;
	for (int i = 0; i < MEM_HOW_NR; i++) {
		b->taken[i] = map64__new();
		if (!b->taken[i]) {
			live_set__free(b);
			return NULL;
		}
	}
	return b;
}

void live_set__free(struct live_set *b)
{
	if (!b)
		return;
	for (int i = 0; i < MEM_HOW_NR; i++)
		map64__free(b->taken[i]);
	for (uint32_t i = 0; i < b->n_devices; i++) {
		map64__free(b->devices[i].blocks);
		map64__free(b->devices[i].segments);
	}
	for (size_t i = 0; i < SIZE_CLASSES; i++)
		free(b->by_size[i].v);
	free(b->devices);
	free(b->blocks);
	free(b->ranges);
	free(b);
}

/* Returns the device's entry, which it creates on demand. NULL if memory is short. */
static struct base_device *device_of(struct live_set *b, struct device device)
{
	struct base_device d = { .device = device }, *bigger;

	for (uint32_t i = 0; i < b->n_devices; i++)
		if (!memcmp(&b->devices[i].device, &device, sizeof(device)))
			return &b->devices[i];
	bigger = realloc(b->devices, (b->n_devices + 1) * sizeof(*bigger));
	if (!bigger)
		return NULL;
	b->devices = bigger;
	d.blocks = map64__new();
	d.segments = map64__new();
	if (!d.blocks || !d.segments) {
		map64__free(d.blocks);
		map64__free(d.segments);
		return NULL;
	}
	b->devices[b->n_devices] = d;
	return &b->devices[b->n_devices++];
}

/* ---- blocks ---- */

/* Sets *ret to the index of an unused block. Returns 0 or -ENOMEM. */
static int new_block(struct live_set *b, uint32_t *ret)
{
	if (b->free_block != NONE) {
		*ret = b->free_block;
		b->free_block = b->blocks[*ret].stack;
		return 0;
	}
	if (b->n_blocks == NONE ||
	    array__grow(&b->blocks, &b->room_blocks, (size_t)b->n_blocks + 1, sizeof(*b->blocks)))
		return -ENOMEM;
	*ret = b->n_blocks++;
	return 0;
}

/* Returns the bytes that the allocator's total counts for this block: 0 if it was freed and only
 * waits for a stream. */
static uint64_t counted_bytes(const struct block *k)
{
	return k->flags & BLOCK_PENDING ? 0 : k->size;
}

/* Adds a block at e->addr. Replaces one that is there: the event of its free was lost. Returns 0 or
 * -ENOMEM. */
static int put_block(struct live_set *b, struct base_device *d, const struct event *e)
{
	uint64_t old;
	uint32_t i;

	if (map64__get(d->blocks, e->addr, &old)) {
		i = (uint32_t)old;
		d->live -= counted_bytes(&b->blocks[i]);
	} else {
		if (new_block(b, &i) || map64__set(d->blocks, e->addr, i))
			return -ENOMEM;
	}
	b->blocks[i] = (struct block){ .size = e->size,
				       .requested = e->requested,
				       .cuda_stream = e->cuda_stream,
				       .time = e->kind == EVENT_ALLOC ? e->time : 0,
				       .stack = e->stack,
				       .thread = e->thread,
				       .node = e->node,
				       .walk = e->walk,
				       .flags = e->flags,
				       .how = e->how };
	d->live += counted_bytes(&b->blocks[i]);
	return 0;
}

/* Forgets the block at an address, if there is one. */
static void drop_block(struct live_set *b, struct base_device *d, uint64_t addr)
{
	uint64_t old;

	if (!map64__del(d->blocks, addr, &old))
		return;
	d->live -= counted_bytes(&b->blocks[old]);
	b->blocks[old].stack = b->free_block;
	b->free_block = (uint32_t)old;
}

/* Sets the requested bytes and the stream of the block at e->addr. */
static void set_requested(struct live_set *b, struct base_device *d, const struct event *e)
{
	uint64_t i;

	if (!e->requested || !map64__get(d->blocks, e->addr, &i))
		return;
	b->blocks[i].requested = e->requested;
	b->blocks[i].cuda_stream = e->cuda_stream;
}

/* Takes a block of the allocator's tables. If the block is known, it keeps its stack. Returns 0 or
 * -ENOMEM. */
static int confirm_block(struct live_set *b, struct base_device *d, const struct event *e)
{
	uint64_t i;

	if (!map64__get(d->blocks, e->addr, &i) || b->blocks[i].size != e->size)
		return put_block(b, d, e);
	if ((b->blocks[i].flags ^ e->flags) & BLOCK_PENDING)
		return put_block(b, d, e);
	set_requested(b, d, e);
	return 0;
}

/* Takes a tensor's storage. If no event has reported its block and the storage is from before the
 * first event, adds a block. Returns 0 or -ENOMEM. */
static int set_tensor(struct live_set *b, struct base_device *d, const struct event *e)
{
	struct block *k;
	uint64_t i;
	int err;

	if (!map64__get(d->blocks, e->addr, &i)) {
		const struct event block = {
			.kind = EVENT_BLOCK, .device = e->device, .addr = e->addr, .size = e->size
		};

		if (!(e->flags & CENSUS_FIRST))
			return 0;
		err = put_block(b, d, &block);
		if (err || !map64__get(d->blocks, e->addr, &i))
			return err;
		b->blocks[i].only_tensor = true;
		if (!d->totals)
			d->peak_allocated += e->size; /* the storage existed during the peak */
	}
	k = &b->blocks[i];
	if (k->time > e->time) /* the tensor belonged to an earlier block at this address */
		return 0;
	k->tensor = true;
	k->tensor_size = e->size;
	k->name = e->name;
	k->module = e->module;
	k->category = e->category;
	k->about = e->flags & (TENSOR_ITEM | TENSOR_INFERRED);
	return 0;
}

/* ---- ranges: segments, and memory taken from CUDA ---- */

/* Returns the i for which size is from 2^i to 2^(i+1)-1. */
static unsigned size_class(uint64_t size)
{
	return 63 - (unsigned)__builtin_clzll(size | 1);
}

/* Returns the position in the list of the first range that begins at addr or later. */
static size_t first_from(const struct live_set *b, const struct range_list *l, uint64_t addr)
{
	size_t low = 0, high = l->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (b->ranges[l->v[middle]].e.addr < addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Puts range i into the list of its size. Returns 0 or -ENOMEM. */
static int list_range(struct live_set *b, uint32_t i)
{
	const struct event *e = &b->ranges[i].e;
	struct range_list *l = &b->by_size[size_class(e->size)];
	size_t at = first_from(b, l, e->addr);
	int err = array__grow(&l->v, &l->room, l->n + 1, sizeof(*l->v));

	if (err)
		return err;
	memmove(l->v + at + 1, l->v + at, (l->n++ - at) * sizeof(*l->v));
	l->v[at] = i;
	return 0;
}

/* Takes range i out of the list of its size. */
static void unlist_range(struct live_set *b, uint32_t i)
{
	const struct event *e = &b->ranges[i].e;
	struct range_list *l = &b->by_size[size_class(e->size)];
	size_t at = first_from(b, l, e->addr);

	while (at < l->n && l->v[at] != i)
		at++;
	if (at < l->n)
		memmove(l->v + at, l->v + at + 1, (--l->n - at) * sizeof(*l->v));
}

/* Adds a range at e->addr to the map, or replaces the one that is there. Returns 0 or -ENOMEM. */
static int put_range(struct live_set *b, struct map64 *map, const struct event *e)
{
	uint64_t old;
	uint32_t i;

	if (map64__get(map, e->addr, &old)) {
		i = (uint32_t)old;
		unlist_range(b, i);
	} else {
		if (b->free_range != NONE) {
			i = b->free_range;
			b->free_range = b->ranges[i].next;
		} else {
			if (array__grow_zero(&b->ranges, &b->room_ranges, (size_t)b->n_ranges + 1,
					     sizeof(*b->ranges)))
				return -ENOMEM;
			i = b->n_ranges++;
		}
		if (map64__set(map, e->addr, i))
			return -ENOMEM;
	}
	b->ranges[i] = (struct range){ .e = *e, .seq = b->seq };
	return list_range(b, i);
}

/* Forgets the range at an address, if the map has one. */
static void drop_range(struct live_set *b, struct map64 *map, uint64_t addr)
{
	uint64_t i;

	if (!map64__del(map, addr, &i))
		return;
	unlist_range(b, (uint32_t)i);
	b->ranges[i] = (struct range){ .next = b->free_range };
	b->free_range = (uint32_t)i;
}

/* True for memory of the allocator: it took the memory from CUDA, or its tables name it. */
static bool is_segment(const struct event *e)
{
	if (e->kind != EVENT_CUDA_ALLOC)
		return e->kind == EVENT_SEGMENT;
	return e->flags & MEM_BY_ALLOCATOR && (e->how == MEM_DEVICE || e->how == MEM_MAPPED);
}

/* Kinds of ranges that latest_range() can look for. */
enum {
	NAMED = 1,    /* segments that the allocator's tables name */
	TAKEN = 2,    /* segments that the allocator took from CUDA */
	MAPPED = 4,   /* mappings, whoever made them */
	UNMAPPED = 8, /* events that gave back a piece of a mapping, see free_mapped() */
};

/* Returns the kinds that a range is of. */
static unsigned kinds_of(const struct event *range)
{
	if (range->kind != EVENT_CUDA_ALLOC)
		return range->kind == EVENT_SEGMENT ? NAMED : UNMAPPED;
	if (range->how == MEM_MAPPED)
		return is_segment(range) ? TAKEN | MAPPED : MAPPED;
	return is_segment(range) ? TAKEN : 0;
}

/* Returns the latest range of these kinds that shares addresses with e; NULL: none. */
static const struct range *latest_range(const struct live_set *b, const struct event *e,
					unsigned kinds)
{
	uint64_t after_first = e->size ? e->size - 1 : 0; /* bytes after the first one */
	uint64_t end = after_first < UINT64_MAX - e->addr ? e->addr + after_first : UINT64_MAX;
	const struct range *last = NULL;

	for (unsigned c = 0; c < SIZE_CLASSES; c++) {
		const struct range_list *l = &b->by_size[c];
		uint64_t reach = (UINT64_C(2) << c) - 1; /* size of the largest range in the list */
		size_t i = first_from(b, l, e->addr > reach ? e->addr - reach : 0);

		for (; i < l->n && b->ranges[l->v[i]].e.addr <= end; i++) {
			const struct range *r = &b->ranges[l->v[i]];

			bool shares = r->e.addr >= e->addr || e->addr - r->e.addr < r->e.size;

			if (shares && kinds_of(&r->e) & kinds && (!last || r->seq > last->seq))
				last = r;
		}
	}
	return last;
}

/* Removes a mapping. If only a piece of a larger range is removed, the event is kept as a range, so
 * that the state can be written again. Returns 0 or -ENOMEM. */
static int free_mapped(struct live_set *b, const struct event *e)
{
	struct map64 *taken = b->taken[MEM_MAPPED];
	uint64_t i;

	if (map64__get(taken, e->addr, &i) && (!e->size || b->ranges[i].e.size == e->size))
		drop_range(b, taken, e->addr);
	/* A segment or a larger mapping may still have these addresses. */
	return latest_range(b, e, NAMED | MAPPED) ? put_range(b, taken, e) : 0;
}

/* Removes memory that is always given back as a whole. */
static void free_whole(struct live_set *b, const struct event *e)
{
	/* Kinds of memory with the same number are freed by the same call; 0: no call. */
	static const uint8_t freed_by[MEM_HOW_NR] = {
		[MEM_DEVICE] = 1,     [MEM_ASYNC] = 1,	  [MEM_MANAGED] = 1, [MEM_HOST] = 2,
		[MEM_REGISTERED] = 2, [MEM_PHYSICAL] = 3, [MEM_RESERVED] = 4
	};

	for (int how = 0; how < MEM_HOW_NR; how++)
		if (freed_by[how] == freed_by[e->how])
			drop_range(b, b->taken[how], e->addr);
	if (freed_by[e->how] != freed_by[MEM_DEVICE])
		return;
	for (uint32_t d = 0; d < b->n_devices; d++)
		drop_range(b, b->devices[d].segments, e->addr);
}

/* Removes the device's segments that a complete reading of the allocator's tables does not name.
 * since: range.seq of the first segment in that reading. */
static void drop_missing(struct live_set *b, struct base_device *d, uint64_t since)
{
	for (uint32_t i = 0; i < b->n_ranges; i++) {
		struct event e = b->ranges[i].e;
		const struct range *named;

		if (!b->ranges[i].seq || b->ranges[i].seq >= since)
			continue; /* unused, or named by this reading */
		if (!is_segment(&e) || memcmp(&e.device, &d->device, sizeof(e.device)))
			continue;
		named = e.kind == EVENT_CUDA_ALLOC ? latest_range(b, &e, NAMED) : NULL;
		if (!named || named->seq < since)
			drop_range(b, e.kind == EVENT_SEGMENT ? d->segments : b->taken[e.how],
				   e.addr);
	}
}

/* Raises the peaks to the present bytes. */
static void update_peaks(struct base_device *d)
{
	uint64_t allocated = d->totals ? d->allocated : d->live;

	if (allocated > d->peak_allocated)
		d->peak_allocated = allocated;
	if (d->reserved > d->peak_reserved)
		d->peak_reserved = d->reserved;
}

/* Returns the latest segment that shares addresses with e. NULL: there is none, or a later event
 * gave back these addresses.
 */
static const struct event *find_segment(const struct live_set *b, const struct event *e)
{
	const struct range *last = latest_range(b, e, NAMED | TAKEN | UNMAPPED);

	return last && is_segment(&last->e) ? &last->e : NULL;
}

/* Changes the reserved total after the allocator took a segment or gave one back. The allocator
 * reports its totals only with its next event, but the total changes at once, as in the model.
 */
static void change_reserved(struct live_set *b, struct device device, uint64_t size, bool taken)
{
	for (uint32_t i = 0; i < b->n_devices; i++) {
		struct base_device *d = &b->devices[i];

		if (memcmp(&d->device, &device, sizeof(device)) || !d->totals)
			continue;
		if (taken)
			d->reserved += size;
		else
			d->reserved -= size < d->reserved ? size : d->reserved;
		update_peaks(d);
	}
}

/* Takes memory that the process got from CUDA. Returns 0 or -ENOMEM. */
static int fold_cuda_alloc(struct live_set *b, const struct event *e)
{
	/* If the allocator's tables named the segment before the call returned, it is counted
	 * already. */
	bool is_new = is_segment(e) && !find_segment(b, e);
	struct event kept = *e;

	/* A window does not count retries from before it. */
	kept.flags &= (uint8_t)~MEM_RETRIED;
	if (put_range(b, b->taken[e->how], &kept))
		return -ENOMEM;
	if (is_new)
		change_reserved(b, e->device, e->size, /*taken=*/true);
	return 0;
}

/* Takes memory that the process gave back to CUDA. Returns 0 or -ENOMEM. */
static int fold_cuda_free(struct live_set *b, const struct event *e)
{
	bool mapped = e->how == MEM_MAPPED;
	const struct event *segment = mapped || e->how == MEM_DEVICE ? find_segment(b, e) : NULL;
	uint64_t size;

	/* Only mappings are given back in pieces; other memory must be freed at its first address. */
	if (segment && (mapped || segment->addr == e->addr)) {
		size = mapped && e->size ? e->size : segment->size;
		change_reserved(b, segment->device, size, /*taken=*/false);
	}
	if (mapped)
		return free_mapped(b, e);
	free_whole(b, e);
	return 0;
}

/* Returns a copy of an event with only the fields that live_set__emit() writes again. */
static struct event figure_of(const struct event *e, uint8_t flags)
{
	return (struct event){
		.kind = e->kind, .device = e->device, .size = e->size, .flags = flags
	};
}

/* Takes an event about a device. Returns 0 or -ENOMEM. */
static int fold_on_device(struct live_set *b, struct base_device *d, const struct event *e)
{
	if (e->totals) {
		d->totals = true;
		d->allocated = e->allocated;
		d->reserved = e->reserved;
	}
	switch (e->kind) {
	case EVENT_ALLOC:
		return put_block(b, d, e);
	case EVENT_FREE:
		drop_block(b, d, e->addr);
		break;
	case EVENT_BLOCK:
		return confirm_block(b, d, e);
	case EVENT_REQUESTED:
		set_requested(b, d, e);
		break;
	case EVENT_SEGMENT:
		if (!d->reading)
			d->reading = b->seq;
		return put_range(b, d->segments, e);
	case EVENT_STATE:
		if (d->reading && e->flags & (STATE_EXACT | STATE_SEGMENTS_EXACT))
			drop_missing(b, d, d->reading);
		d->reading = 0;
		break;
	case EVENT_TENSOR:
		return set_tensor(b, d, e);
	case EVENT_CENSUS: /* a recording that begins with this state was attached at its start */
		d->census = figure_of(e, e->flags | CENSUS_FIRST);
		break;
	case EVENT_USED:
		d->used = figure_of(e, 0);
		break;
	case EVENT_LEFT:
		d->left = figure_of(e, 0);
		break;
	}
	return 0;
}

/* ---- scopes ---- */

static void drop_scope(struct live_set *b, uint32_t i)
{
	uint32_t after = --b->n_scopes - i;

	memmove(b->scopes + i, b->scopes + i + 1, after * sizeof(*b->scopes));
	memmove(b->suspended + i, b->suspended + i + 1, after * sizeof(*b->suspended));
}

static void fold_scope(struct live_set *b, const struct event *e)
{
	uint32_t i = b->n_scopes;

	if ((e->flags & SCOPE_WHAT) == SCOPE_BEGIN) {
		if (b->n_scopes == LIVE_SCOPES)
			drop_scope(b, 0);
		b->suspended[b->n_scopes] = false;
		b->scopes[b->n_scopes++] = *e;
		return;
	}
	while (i && !event__same_scope(&b->scopes[i - 1], e))
		i--;
	if (!i)
		return;
	if ((e->flags & SCOPE_WHAT) == SCOPE_END)
		drop_scope(b, i - 1);
	else
		b->suspended[i - 1] = (e->flags & SCOPE_WHAT) == SCOPE_SUSPEND;
}

int live_set__fold(struct live_set *b, const struct event *e)
{
	struct base_device *d;

	b->seq++;
	switch (e->kind) {
	case EVENT_STEP:
	case EVENT_CALL:
	case EVENT_MARK:
		return 0;
	case EVENT_SCOPE:
		fold_scope(b, e);
		return 0;
	case EVENT_HOST:
		if (host_sheet__take(&b->host.reading, e)) {
			b->host.last = b->host.reading;
			b->host.known = true;
			b->host.reading = (struct host_sheet){ 0 };
		}
		return 0;
	case EVENT_LOST:
		b->lost += e->size;
		b->losing = e->size;
		return 0;
	case EVENT_CUDA_ALLOC:
	case EVENT_CUDA_FREE:
		if (e->how >= MEM_HOW_NR)
			return 0;
		return e->kind == EVENT_CUDA_ALLOC ? fold_cuda_alloc(b, e) : fold_cuda_free(b, e);
	}
	d = device_of(b, e->device);
	if (!d || fold_on_device(b, d, e))
		return -ENOMEM;
	update_peaks(d);
	return 0;
}

bool live_set__level(const struct live_set *b, size_t i, struct flight_level *ret)
{
	const struct base_device *d = &b->devices[i];

	if (i >= b->n_devices)
		return false;
	*ret = (struct flight_level){ .device = d->device,
				      .allocated = d->totals ? d->allocated : d->live,
				      .reserved = d->reserved,
				      .peak_allocated = d->peak_allocated,
				      .peak_reserved = d->peak_reserved };
	return true;
}

void live_set__new_peaks(struct live_set *b)
{
	for (uint32_t i = 0; i < b->n_devices; i++) {
		b->devices[i].peak_allocated = b->devices[i].peak_reserved = 0;
		update_peaks(&b->devices[i]);
	}
}

uint64_t live_set__blocks(const struct live_set *b)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < b->n_devices; i++)
		n += map64__count(b->devices[i].blocks);
	return n;
}

/* ---- writing the state as events ---- */

struct emitter {
	const struct live_set *b;
	uint64_t time;
	int (*fn)(void *ctx, const struct event *e);
	void *ctx;
};

/* Passes an event on, with the time of the state. */
static int emit_event(const struct emitter *t, struct event e)
{
	e.time = t->time;
	return t->fn(t->ctx, &e);
}

/* Comparison for qsort(): by event number. */
static int by_seq(const void *x, const void *y)
{
	const struct range *const *a = x, *const *b = y;

	return (*a)->seq < (*b)->seq ? -1 : (*a)->seq > (*b)->seq;
}

/* Emits the ranges in the order in which they came. Returns 0, -ENOMEM or the first error of fn(). */
static int emit_ranges(const struct emitter *t)
{
	const struct range **all = malloc((t->b->n_ranges + 1) * sizeof(*all));
	uint32_t n = 0;
	int err = 0;

	if (!all)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->b->n_ranges; i++)
		if (t->b->ranges[i].seq)
			all[n++] = &t->b->ranges[i];
	qsort(all, n, sizeof(*all), by_seq);
	for (uint32_t i = 0; i < n && !err; i++)
		err = emit_event(t, all[i]->e);
	free(all);
	return err;
}

struct place {
	uint64_t addr, block;
};

ARRAY_COMPARE(by_addr, struct place, addr)

/* Emits a block and its tensor. Returns 0 or the first error of fn(). */
static int emit_block(const struct emitter *t, struct device device, uint64_t addr,
		      const struct block *k)
{
	int err = 0;

	if (!k->only_tensor)
		err = emit_event(t, (struct event){ .kind = EVENT_BLOCK,
						    .device = device,
						    .addr = addr,
						    .size = k->size,
						    .requested = k->requested,
						    .cuda_stream = k->cuda_stream,
						    .stack = k->stack,
						    .thread = k->thread,
						    .node = k->node,
						    .walk = k->walk,
						    .flags = k->flags,
						    .how = k->how });
	if (!err && k->tensor)
		err = emit_event(t, (struct event){ .kind = EVENT_TENSOR,
						    .device = device,
						    .addr = addr,
						    .size = k->tensor_size,
						    .flags = CENSUS_FIRST | k->about,
						    .name = k->name,
						    .module = k->module,
						    .category = k->category });
	return err;
}

/* Emits the device's blocks by address. Adds to *sum the bytes that the allocator counts as
 * allocated. Returns 0, -ENOMEM or the first error of fn(). */
static int emit_blocks(const struct emitter *t, const struct base_device *d, uint64_t *sum)
{
	size_t n = 0, pos = 0, count = map64__count(d->blocks);
	struct place *all = malloc((count + 1) * sizeof(*all));
	int err = 0;

	if (!all)
		return -ENOMEM;
	while (n < count && map64__next(d->blocks, &pos, &all[n].addr, &all[n].block))
		n++;
	qsort(all, n, sizeof(*all), by_addr);
	for (size_t i = 0; i < n && !err; i++) {
		const struct block *k = &t->b->blocks[all[i].block];

		*sum += counted_bytes(k);
		err = emit_block(t, d->device, all[i].addr, k);
	}
	free(all);
	return err;
}

/* Comparison for qsort(): by address. */
static int range_by_addr(const void *x, const void *y)
{
	const struct event *const *a = x, *const *b = y;

	return (*a)->addr < (*b)->addr ? -1 : (*a)->addr > (*b)->addr;
}

/* Sums up the bytes in the device's segments, and counts each address once. Pieces that were given
 * back are not subtracted. Returns 0 or -ENOMEM. */
static int sum_segments(const struct live_set *b, const struct base_device *d, uint64_t *ret)
{
	const struct event **all = malloc((b->n_ranges + 1) * sizeof(*all));
	uint64_t sum = 0, end = 0;
	uint32_t n = 0;

	if (!all)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->n_ranges; i++) {
		const struct event *e = &b->ranges[i].e;
		if (!b->ranges[i].seq || !is_segment(e))
			continue;
		if (memcmp(&e->device, &d->device, sizeof(e->device)))
			continue;
		if (e->size <= UINT64_MAX - e->addr) /* otherwise damaged */
			all[n++] = e;
	}
	qsort(all, n, sizeof(*all), range_by_addr);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t from = all[i]->addr > end ? all[i]->addr : end,
			 to = all[i]->addr + all[i]->size;

		if (to > from) {
			sum += to - from;
			end = to;
		}
	}
	free(all);
	*ret = sum;
	return 0;
}

/* Emits the blocks of a device, its totals and the latest figures. Returns 0, -ENOMEM or the first
 * error of fn(). */
static int emit_device(const struct emitter *t, const struct base_device *d)
{
	struct event state = { .kind = EVENT_STATE,
			       .device = d->device,
			       .totals = true,
			       .allocated = d->allocated,
			       .reserved = d->reserved };
	uint64_t blocks = 0, segments = 0;
	int err = emit_blocks(t, d, &blocks);

	if (d->totals)
		err = err ?: sum_segments(t->b, d, &segments);
	if (err)
		return err;
	if (segments == d->reserved)
		state.flags = STATE_SEGMENTS_EXACT | (blocks == d->allocated ? STATE_EXACT : 0);
	if (d->totals)
		err = emit_event(t, state);
	if (d->census.kind)
		err = err ?: emit_event(t, d->census);
	if (d->used.kind)
		err = err ?: emit_event(t, d->used);
	if (d->left.kind)
		err = err ?: emit_event(t, d->left);
	return err;
}

/* Emits the open scopes. Returns 0 or the first error of fn(). */
static int emit_scopes(const struct emitter *t)
{
	int err = 0;

	for (uint32_t i = 0; i < t->b->n_scopes && !err; i++) {
		struct event e = t->b->scopes[i];

		e.flags |= SCOPE_EARLIER;
		err = emit_event(t, e);
		e.flags = SCOPE_SUSPEND;
		if (!err && t->b->suspended[i])
			err = emit_event(t, e);
	}
	return err;
}

int live_set__emit(const struct live_set *b, uint64_t time,
		   int (*fn)(void *ctx, const struct event *e), void *ctx)
{
	const struct emitter t = { .b = b, .time = time, .fn = fn, .ctx = ctx };
	int err = 0;

	if (b->lost)
		err = emit_event(&t, (struct event){ .kind = EVENT_LOST, .size = b->lost });
	if (b->lost && !b->losing)
		err = err ?: emit_event(&t, (struct event){ .kind = EVENT_LOST });
	err = err ?: emit_ranges(&t);
	for (uint32_t i = 0; i < b->n_devices; i++)
		err = err ?: emit_device(&t, &b->devices[i]);
	if (b->host.known)
		err = err ?: host_sheet__emit(&b->host.last, time, fn, ctx);
	return err ?: emit_scopes(&t);
}
