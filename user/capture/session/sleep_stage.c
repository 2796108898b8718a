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
static size_t find_index(const struct sleep_stage *s, uint64_t addr)
{
	size_t lo = 0, hi = s->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (s->range[mid].addr + s->range[mid].size <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The range that contains addr; NULL: none. */
static struct range *find_range(const struct sleep_stage *s, uint64_t addr)
{
	size_t i = find_index(s, addr);

	return i < s->n && s->range[i].addr <= addr ? &s->range[i] : NULL;
}

/* Inserts a range at an index. 0, -ENOMEM, or -ENOSPC: there are too many. */
static int insert_range(struct sleep_stage *s, size_t i, const struct range *r)
{
	if (s->n == RANGES_MAX) {
		s->forgotten++;
		return -ENOSPC;
	}
	if (array__grow(&s->range, &s->cap, s->n + 1, sizeof(*s->range)))
		return -ENOMEM;
	memmove(&s->range[i + 1], &s->range[i], (s->n - i) * sizeof(*s->range));
	s->range[i] = *r;
	s->n++;
	return 0;
}

/* Divides the range that contains addr, so that one begins there. Blocks count in both halves.
 * Returns as insert_range(). */
static int divide_at(struct sleep_stage *s, uint64_t addr)
{
	size_t i = find_index(s, addr);
	struct range upper;
	int err;

	if (i == s->n || s->range[i].addr >= addr)
		return 0;
	upper = s->range[i];
	upper.size -= addr - upper.addr;
	upper.addr = addr;
	err = insert_range(s, i + 1, &upper);
	if (!err)
		s->range[i].size -= upper.size;
	return err;
}

/* The ranges in [addr, addr + size), as indices [*from, *to), divided at both ends. Returns as
 * insert_range(). */
static int find_slice(struct sleep_stage *s, uint64_t addr, uint64_t size, size_t *from, size_t *to)
{
	int err = divide_at(s, addr);

	if (!err)
		err = divide_at(s, addr + size);
	*from = find_index(s, addr);
	*to = find_index(s, addr + size);
	return err;
}

/* Adds r where no range is in its place: in all gaps of its addresses. Returns as
 * insert_range(). */
static int fill_gaps(struct sleep_stage *s, struct range r)
{
	uint64_t end = r.addr + r.size;
	int err = 0;

	while (!err && r.addr < end) {
		size_t i = find_index(s, r.addr);
		uint64_t next = i < s->n && s->range[i].addr < end ? s->range[i].addr : end;

		r.size = next - r.addr;
		if (r.size) /* a gap; otherwise goes on after the range that is there */
			err = insert_range(s, i, &r);
		else
			next = s->range[i].addr + s->range[i].size;
		r.addr = next;
	}
	return err;
}

static bool has_blocks(const struct range *r)
{
	return r->blocks || r->listed;
}

/* Forgets ranges whose addresses are given back: they do not count as put to sleep. Returns as
 * insert_range(). */
static int forget_ranges(struct sleep_stage *s, uint64_t addr, uint64_t size)
{
	size_t from, to;
	int err = find_slice(s, addr, size, &from, &to);

	if (err)
		return err;
	for (size_t i = from; i < to; i++)
		if (s->open && !s->wakes && s->range[i].asleep &&
		    s->range[i].changed == s->number && has_blocks(&s->range[i]))
			s->bytes -= s->range[i].size;
	if (from < to) /* without any range there is no array */
		memmove(&s->range[from], &s->range[to], (s->n - to) * sizeof(*s->range));
	s->n -= to - from;
	s->whole = false;
	return 0;
}

/* Sums the memory below live blocks that other code maps and unmaps: bytes mapped now, and
 * asleep. */
static void sum_foreign(const struct sleep_stage *s, uint64_t *mapped, uint64_t *asleep)
{
	*mapped = *asleep = 0;
	for (size_t i = 0; i < s->n; i++) {
		const struct range *r = &s->range[i];

		if (r->asleep && has_blocks(r))
			*asleep += r->size;
		else if ((r->foreign || r->pool) && has_blocks(r))
			*mapped += r->size;
	}
}

/* ---- the mark ---- */

/* Emits the mark of a transition. asleep: bytes that are still unmapped. 0, -ENOMEM or the sink's
 * error. */
static int put_mark(struct sleep_stage *s, uint64_t asleep)
{
	struct event mark = { .kind = EVENT_MARK, .time = s->time };
	char words[96], bytes[24], all[24];

	text__bytes(bytes, sizeof(bytes), s->bytes);
	text__bytes(all, sizeof(all), s->bytes + asleep);
	if (!s->wakes)
		snprintf(words, sizeof(words), "memory unmapped: %s (sleep)", bytes);
	else if (asleep)
		snprintf(words, sizeof(words), "memory mapped again: %s of %s (wake-up)", bytes,
			 all);
	else
		snprintf(words, sizeof(words), "memory mapped again: %s (wake-up)", bytes);
	mark.name = decoder__string(s->decoder, words);
	if (mark.name == UINT32_MAX)
		return -ENOMEM;
	return s->next ? s->next->event(s->next, &mark) : 0;
}

/* Ends the transition under way, with a mark if it is worth one. 0, -ENOMEM or the sink's error. */
static int end_transition(struct sleep_stage *s)
{
	uint64_t reserved = 0, mapped, asleep;

	s->open = false;
	for (size_t i = 0; i < sizeof(s->reserved) / sizeof(*s->reserved); i++)
		reserved += s->reserved[i];
	if (!s->bytes || s->bytes < reserved / SHARE)
		return 0;
	sum_foreign(s, &mapped, &asleep);
	return put_mark(s, asleep);
}

/* Ends the transition if it is over by now (ns since start): after SETTLED if all memory has
 * changed, otherwise after QUIET. Returns as end_transition(). */
static int end_if_over(struct sleep_stage *s, uint64_t now)
{
	uint64_t mapped, asleep;

	if (!s->open || now < s->last + SETTLED)
		return 0;
	if (!s->whole && now < s->last + QUIET) {
		sum_foreign(s, &mapped, &asleep);
		s->whole = s->wakes ? !asleep : !mapped;
		if (!s->whole)
			return 0;
	}
	if (now > s->time)
		s->time = now;
	return end_transition(s);
}

/* Counts bytes that were mapped again (wakes) or unmapped, in the transition under way. If that
 * goes the other way, ends it and begins another. Returns as end_transition(). */
static int count_change(struct sleep_stage *s, bool wakes, uint64_t bytes, uint64_t time)
{
	int err = s->open && s->wakes != wakes ? end_transition(s) : 0;

	if (!s->open) {
		s->open = true;
		s->wakes = wakes;
		s->bytes = 0;
		s->number++;
	}
	s->bytes += bytes;
	s->last = time;
	return err;
}

/* ---- the events ---- */

/* Handles a call of code other than PyTorch's allocator that maps or unmaps memory. Returns as
 * end_transition(), or -ENOSPC. */
static int on_mapping(struct sleep_stage *s, const struct event *e, bool mapped)
{
	struct range rest = { .addr = e->addr, .size = e->size, .foreign = true };
	uint64_t bytes = 0;
	size_t from, to;
	int err = find_slice(s, e->addr, e->size, &from, &to);

	if (err)
		return err;
	s->whole = false;
	for (size_t i = from; i < to; i++)
		if (s->range[i].asleep == mapped && has_blocks(&s->range[i]))
			bytes += s->range[i].size;
	if (bytes)
		err = count_change(s, mapped, bytes, e->time);
	for (size_t i = from; i < to; i++) {
		s->range[i].foreign = true;
		s->range[i].asleep = !mapped;
		s->range[i].changed = s->number;
	}
	return err || !mapped ? err : fill_gaps(s, rest);
}

/* Takes a call that changes memory or addresses. Returns as on_mapping(). */
static int on_cuda_call(struct sleep_stage *s, const struct event *e)
{
	bool maps = e->kind == EVENT_CUDA_ALLOC, by_allocator = e->flags & MEM_BY_ALLOCATOR;
	struct range *r;

	/* Physical memory is created and released between the mappings. */
	if (e->how == MEM_PHYSICAL && s->open && !by_allocator)
		s->last = e->time;
	if (e->addr > UINT64_MAX - e->size)
		return 0;
	switch (e->how) {
	case MEM_MAPPED:
		if (!by_allocator)
			return e->size ? on_mapping(s, e, maps) : 0;
		return forget_ranges(s, e->addr, e->size);
	case MEM_DEVICE:
	case MEM_ASYNC:
		r = e->size ? NULL : find_range(s, e->addr);
		return forget_ranges(s, e->addr, r ? r->size : e->size);
	case MEM_RESERVED:
		return forget_ranges(s, e->addr, e->size);
	}
	return 0;
}

/* Takes a segment of the allocator's tables. The memory below was mapped before the capture, or by
 * a call that is no mapping. */
static int on_segment(struct sleep_stage *s, const struct event *e)
{
	struct range r = { .addr = e->addr, .size = e->size, .listed = true };
	size_t from, to;
	int err;

	if (!e->size || e->addr > UINT64_MAX - e->size)
		return 0;
	r.pool = e->pool[0] || e->pool[1];
	err = find_slice(s, e->addr, e->size, &from, &to);
	for (size_t i = from; !err && i < to; i++)
		s->range[i].pool = r.pool;
	return err ? err : fill_gaps(s, r);
}

/* Counts a live block in the range where it begins. */
static void on_block(struct sleep_stage *s, const struct event *e)
{
	struct range *r = find_range(s, e->addr);

	if (!r)
		return;
	if (e->kind != EVENT_FREE)
		r->blocks++;
	else if (r->blocks)
		r->blocks--;
}

/* Updates the ranges, and emits the mark of a transition that is over. Ignores ranges beyond
 * RANGES_MAX. 0, -ENOMEM or the sink's error. */
static int track_event(struct sleep_stage *s, const struct event *e)
{
	int err = end_if_over(s, e->time);

	if (e->time > s->time)
		s->time = e->time;
	if (err || e->device.type != DEVICE_CUDA)
		return err;
	if (e->totals)
		s->reserved[e->device.index] = e->reserved;
	switch (e->kind) {
	case EVENT_CUDA_ALLOC:
	case EVENT_CUDA_FREE:
		err = on_cuda_call(s, e);
		break;
	case EVENT_SEGMENT:
		err = on_segment(s, e);
		break;
	case EVENT_ALLOC:
	case EVENT_FREE:
	case EVENT_BLOCK:
		if (s->n)
			on_block(s, e);
		break;
	}
	return err == -ENOSPC ? 0 : err;
}

static int on_event(struct sink *sink, const struct event *e)
{
	struct sleep_stage *s = (struct sleep_stage *)sink;
	int err = track_event(s, e);

	return err || !s->next ? err : s->next->event(s->next, e);
}

int sleep_stage__pump(struct sleep_stage *s, uint64_t now)
{
	return end_if_over(s, now);
}

int sleep_stage__finish(struct sleep_stage *s)
{
	if (s->forgotten)
		facts__setf(s->decoder->facts, "counter.sleep_forgotten", "%" PRIu64, s->forgotten);
	return s->open ? end_transition(s) : 0;
}

struct sleep_stage *sleep_stage__new(struct decoder *d)
{
	struct sleep_stage *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->sink.event = on_event;
	s->decoder = d;
	return s;
}

void sleep_stage__free(struct sleep_stage *s)
{
	if (!s)
		return;
	free(s->range);
	free(s);
}

void sleep_stage__send_to(struct sleep_stage *s, struct sink *next)
{
	s->next = next;
}
