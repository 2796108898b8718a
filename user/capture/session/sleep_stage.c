/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sleep modes of inference servers (vLLM, torch_memory_saver): other code than PyTorch's allocator
 * unmaps memory below live tensors, which keep their addresses, and maps memory there again later.
 * Each such transition becomes one EVENT_MARK.
 *
 * The stage keeps the ranges that other code mapped and those of listed segments, in order of
 * addresses, with the number of live blocks in each. A range without blocks is memory that PyTorch
 * has returned, and not asleep. Nor is a range whose addresses are given back.
 */
#include "capture/session/stages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "capture/decode/decoder.h"

/*
 * A transition is many calls, one for each allocation, and ends when no call has come for a while.
 * Between two calls the server may copy a weight between host and device, into host memory that it
 * pins first: 1 GiB takes 0.5 s.
 */
#define QUIET 1000000000ULL /* ns without a call, after which a transition is over */
/* ns without a call, after which a transition is over if all memory has changed. No mapping is to
 * come then, but calls that free addresses follow within a few ms. */
#define SETTLED 100000000ULL
/* A transition of less than 1/100 of the memory that PyTorch reserves gets no mark. The weights of
 * a small model next to a large KV cache are 1 to 2 %. */
#define SHARE 100
#define RANGES_MAX 65536 /* ranges beyond are forgotten and counted */

/* Device memory that other code maps, or that is in a segment. */
struct range {
	uint64_t addr, size;
	uint32_t blocks;  /* live blocks that begin in the range */
	uint32_t changed; /* number of the transition that changed the range last */
	bool listed;	  /* a segment from the tables, not from a call: blocks may be too few */
	bool foreign;	  /* code other than PyTorch's maps and unmaps the range */
	bool pool;	  /* the range is in a segment of a private pool */
	bool asleep;	  /* other code has unmapped the range below live blocks */
};

struct sleep_stage {
	struct sink sink;  /* first: the sink is the stage */
	struct sink *next; /* NULL: events are dropped */
	struct decoder *decoder;
	struct range *range; /* by address, without overlaps */
	size_t n, cap;
	uint64_t forgotten;	/* ranges beyond RANGES_MAX */
	uint64_t reserved[256]; /* by device: the allocator's total */
	uint64_t time;		/* time of the latest event, ns since start */
	/* The transition under way. */
	bool open;	 /* there is a transition */
	bool wakes;	 /* the transition maps memory again; false: it unmaps memory */
	bool whole;	 /* nothing is left to change */
	uint32_t number; /* number of the transition, from 1 on */
	uint64_t bytes;	 /* changed so far */
	uint64_t last;	 /* time of the transition's latest call */
};

/* ---- the ranges ---- */

/* Index of the first range that ends after addr. */
static size_t find_index(const struct sleep_stage *stage, uint64_t addr)
{
	size_t lo = 0, hi = stage->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (stage->range[mid].addr + stage->range[mid].size <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The range that contains addr; NULL: none. */
static struct range *find_range(const struct sleep_stage *stage, uint64_t addr)
{
	size_t i = find_index(stage, addr);

	return i < stage->n && stage->range[i].addr <= addr ? &stage->range[i] : NULL;
}

/* Inserts a range at an index. 0, -ENOMEM, or -ENOSPC: there are too many. */
static int insert_range(struct sleep_stage *stage, size_t i, const struct range *range)
{
	if (stage->n == RANGES_MAX) {
		stage->forgotten++;
		return -ENOSPC;
	}
	if (array__grow(&stage->range, &stage->cap, stage->n + 1, sizeof(*stage->range)))
		return -ENOMEM;
	memmove(&stage->range[i + 1], &stage->range[i], (stage->n - i) * sizeof(*stage->range));
	stage->range[i] = *range;
	stage->n++;
	return 0;
}

/* Divides the range that contains addr, so that one begins there. Blocks count in both halves.
 * 0, -ENOMEM or -ENOSPC. */
static int divide_at(struct sleep_stage *stage, uint64_t addr)
{
	size_t i = find_index(stage, addr);
	struct range upper;
	int err;

	if (i == stage->n || stage->range[i].addr >= addr)
		return 0;
	upper = stage->range[i];
	upper.size -= addr - upper.addr;
	upper.addr = addr;
	err = insert_range(stage, i + 1, &upper);
	if (!err)
		stage->range[i].size -= upper.size;
	return err;
}

/* The ranges in [addr, addr + size), as indices [*from, *to), divided at both ends. 0, -ENOMEM or
 * -ENOSPC; *from and *to are set in any case. */
static int find_slice(struct sleep_stage *stage, uint64_t addr, uint64_t size, size_t *from,
		      size_t *to)
{
	int err = divide_at(stage, addr);

	if (!err)
		err = divide_at(stage, addr + size);
	*from = find_index(stage, addr);
	*to = find_index(stage, addr + size);
	return err;
}

/* Adds r where no range is in its place: in all gaps of its addresses. 0, -ENOMEM or -ENOSPC. */
static int fill_gaps(struct sleep_stage *stage, struct range r)
{
	uint64_t end = r.addr + r.size;
	int err = 0;

	while (!err && r.addr < end) {
		size_t i = find_index(stage, r.addr);
		uint64_t next = i < stage->n && stage->range[i].addr < end ? stage->range[i].addr
									   : end;

		r.size = next - r.addr;
		if (r.size) /* a gap; otherwise goes on after the range that is there */
			err = insert_range(stage, i, &r);
		else
			next = stage->range[i].addr + stage->range[i].size;
		r.addr = next;
	}
	return err;
}

/* True if the range has live blocks, or may have some without events. */
static bool has_blocks(const struct range *range)
{
	return range->blocks || range->listed;
}

/* Forgets ranges whose addresses are given back: they do not count as put to sleep. 0,
 * -ENOMEM or -ENOSPC. */
static int forget_ranges(struct sleep_stage *stage, uint64_t addr, uint64_t size)
{
	size_t from, to;
	int err = find_slice(stage, addr, size, &from, &to);

	if (err)
		return err;
	for (size_t i = from; i < to; i++)
		if (stage->open && !stage->wakes && stage->range[i].asleep &&
		    stage->range[i].changed == stage->number && has_blocks(&stage->range[i]))
			stage->bytes -= stage->range[i].size;
	if (from < to) /* without any range there is no array */
		memmove(&stage->range[from], &stage->range[to],
			(stage->n - to) * sizeof(*stage->range));
	stage->n -= to - from;
	stage->whole = false;
	return 0;
}

/* Sums the memory below live blocks that other code maps and unmaps: bytes mapped now, and
 * asleep. */
static void sum_foreign(const struct sleep_stage *stage, uint64_t *mapped, uint64_t *asleep)
{
	*mapped = *asleep = 0;
	for (size_t i = 0; i < stage->n; i++) {
		const struct range *range = &stage->range[i];

		if (range->asleep && has_blocks(range))
			*asleep += range->size;
		else if ((range->foreign || range->pool) && has_blocks(range))
			*mapped += range->size;
	}
}

/* ---- the mark ---- */

/* Emits the mark of a transition. asleep: bytes that are still unmapped. 0, -ENOMEM or the sink's
 * error. */
static int put_mark(struct sleep_stage *stage, uint64_t asleep)
{
	struct event mark = { .kind = EVENT_MARK, .time = stage->time };
	char words[96], bytes[24], all[24];

	text__bytes(bytes, sizeof(bytes), stage->bytes);
	text__bytes(all, sizeof(all), stage->bytes + asleep);
	if (!stage->wakes)
		snprintf(words, sizeof(words), "memory unmapped: %s (sleep)", bytes);
	else if (asleep)
		snprintf(words, sizeof(words), "memory mapped again: %s of %s (wake-up)", bytes,
			 all);
	else
		snprintf(words, sizeof(words), "memory mapped again: %s (wake-up)", bytes);
	mark.name = decoder__string(stage->decoder, words);
	if (mark.name == UINT32_MAX)
		return -ENOMEM;
	return stage->next ? stage->next->event(stage->next, &mark) : 0;
}

/* Ends the transition under way, with a mark if it is worth one. 0, -ENOMEM or the sink's error. */
static int end_transition(struct sleep_stage *stage)
{
	uint64_t reserved = 0, mapped, asleep;

	stage->open = false;
	for (size_t i = 0; i < sizeof(stage->reserved) / sizeof(*stage->reserved); i++)
		reserved += stage->reserved[i];
	if (!stage->bytes || stage->bytes < reserved / SHARE)
		return 0;
	sum_foreign(stage, &mapped, &asleep);
	return put_mark(stage, asleep);
}

/* Ends the transition if it is over by now (ns since start): after SETTLED if all memory has
 * changed, otherwise after QUIET. 0, -ENOMEM or the sink's error. */
static int end_if_over(struct sleep_stage *stage, uint64_t now)
{
	uint64_t mapped, asleep;

	if (!stage->open || now < stage->last + SETTLED)
		return 0;
	if (!stage->whole && now < stage->last + QUIET) {
		sum_foreign(stage, &mapped, &asleep);
		stage->whole = stage->wakes ? !asleep : !mapped;
		if (!stage->whole)
			return 0;
	}
	if (now > stage->time)
		stage->time = now;
	return end_transition(stage);
}

/* Counts bytes that were mapped again (wakes) or unmapped, in the transition under way. If that
 * goes the other way, ends it and begins another. time: of the call. 0, -ENOMEM or the sink's error.
 */
static int count_change(struct sleep_stage *stage, bool wakes, uint64_t bytes, uint64_t time)
{
	int err = stage->open && stage->wakes != wakes ? end_transition(stage) : 0;

	if (!stage->open) {
		stage->open = true;
		stage->wakes = wakes;
		stage->bytes = 0;
		stage->number++;
	}
	stage->bytes += bytes;
	stage->last = time;
	return err;
}

/* ---- the events ---- */

/* Handles a call of code other than PyTorch's allocator that maps or unmaps memory. mapped: maps
 * it. 0, -ENOMEM, -ENOSPC or the sink's error. */
static int on_mapping(struct sleep_stage *stage, const struct event *event, bool mapped)
{
	struct range rest = { .addr = event->addr, .size = event->size, .foreign = true };
	uint64_t bytes = 0;
	size_t from, to;
	int err = find_slice(stage, event->addr, event->size, &from, &to);

	if (err)
		return err;
	stage->whole = false;
	for (size_t i = from; i < to; i++)
		if (stage->range[i].asleep == mapped && has_blocks(&stage->range[i]))
			bytes += stage->range[i].size;
	if (bytes)
		err = count_change(stage, mapped, bytes, event->time);
	for (size_t i = from; i < to; i++) {
		stage->range[i].foreign = true;
		stage->range[i].asleep = !mapped;
		stage->range[i].changed = stage->number;
	}
	if (err || !mapped)
		return err;
	return fill_gaps(stage, rest);
}

/* Takes a call that changes memory or addresses. 0, -ENOMEM, -ENOSPC or the sink's error. */
static int on_cuda_call(struct sleep_stage *stage, const struct event *event)
{
	bool maps = event->kind == EVENT_CUDA_ALLOC, by_allocator = event->flags & MEM_BY_ALLOCATOR;
	struct range *range;

	/* Physical memory is created and released between the mappings. */
	if (event->how == MEM_PHYSICAL && stage->open && !by_allocator)
		stage->last = event->time;
	if (event->addr > UINT64_MAX - event->size)
		return 0;
	switch (event->how) {
	case MEM_MAPPED:
		if (!by_allocator)
			return event->size ? on_mapping(stage, event, maps) : 0;
		return forget_ranges(stage, event->addr, event->size);
	case MEM_DEVICE:
	case MEM_ASYNC:
		range = event->size ? NULL : find_range(stage, event->addr);
		return forget_ranges(stage, event->addr, range ? range->size : event->size);
	case MEM_RESERVED:
		return forget_ranges(stage, event->addr, event->size);
	}
	return 0;
}

/* Takes a segment of the allocator's tables. The memory below was mapped before the capture, or by
 * a call that is no mapping. 0, -ENOMEM or -ENOSPC. */
static int on_segment(struct sleep_stage *stage, const struct event *event)
{
	struct range range = { .addr = event->addr, .size = event->size, .listed = true };
	size_t from, to;
	int err;

	if (!event->size || event->addr > UINT64_MAX - event->size)
		return 0;
	range.pool = event->pool[0] || event->pool[1];
	err = find_slice(stage, event->addr, event->size, &from, &to);
	for (size_t i = from; !err && i < to; i++)
		stage->range[i].pool = range.pool;
	return err ? err : fill_gaps(stage, range);
}

/* Counts a live block in the range where it begins. */
static void on_block(struct sleep_stage *stage, const struct event *event)
{
	struct range *range = find_range(stage, event->addr);

	if (!range)
		return;
	if (event->kind != EVENT_FREE)
		range->blocks++;
	else if (range->blocks)
		range->blocks--;
}

/* Updates the ranges, and emits the mark of a transition that is over. Ignores ranges beyond
 * RANGES_MAX. 0, -ENOMEM or the sink's error. */
static int track_event(struct sleep_stage *stage, const struct event *event)
{
	int err = end_if_over(stage, event->time);

	if (event->time > stage->time)
		stage->time = event->time;
	if (err || event->device.type != DEVICE_CUDA)
		return err;
	if (event->totals)
		stage->reserved[event->device.index] = event->reserved;
	switch (event->kind) {
	case EVENT_CUDA_ALLOC:
	case EVENT_CUDA_FREE:
		err = on_cuda_call(stage, event);
		break;
	case EVENT_SEGMENT:
		err = on_segment(stage, event);
		break;
	case EVENT_ALLOC:
	case EVENT_FREE:
	case EVENT_BLOCK:
		if (stage->n)
			on_block(stage, event);
		break;
	}
	return err == -ENOSPC ? 0 : err;
}

/* Passes the event on. */
static int on_event(struct sink *sink, const struct event *event)
{
	struct sleep_stage *stage = (struct sleep_stage *)sink;
	int err = track_event(stage, event);

	if (err || !stage->next)
		return err;
	return stage->next->event(stage->next, event);
}

int sleep_stage__pump(struct sleep_stage *stage, uint64_t now)
{
	return end_if_over(stage, now);
}

int sleep_stage__finish(struct sleep_stage *stage)
{
	if (stage->forgotten)
		facts__setf(stage->decoder->facts, "counter.sleep_forgotten", "%" PRIu64,
			    stage->forgotten);
	return stage->open ? end_transition(stage) : 0;
}

struct sleep_stage *sleep_stage__new(struct decoder *decoder)
{
	struct sleep_stage *stage = calloc(1, sizeof(*stage));

	if (!stage)
		return NULL;
	stage->sink.event = on_event;
	stage->decoder = decoder;
	return stage;
}

void sleep_stage__free(struct sleep_stage *stage)
{
	if (!stage)
		return;
	free(stage->range);
	free(stage);
}

void sleep_stage__send_to(struct sleep_stage *stage, struct sink *next)
{
	stage->next = next;
}
