/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Segments of the snapshot, each completely filled with blocks and gaps, as readers require; and
 * stacks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "export/formats/frames.h"
#include "export/formats/snapshot.h"

/* --- stacks */

struct list {		   /* a written list of frames */
	uint32_t first, n; /* range in stacks.pool */
	uint32_t kept;
	uint32_t next1; /* 1 + number of the next list with the same hash */
};

struct stacks {
	struct pickle *p;
	struct frames *frames;
	struct hash_seed seed;
	uint32_t *kept1; /* by frame number: 1 + the index of the written frame */
	size_t nkept;
	uint32_t *pool;
	size_t npool, cappool;
	struct list *lists;
	size_t nlists, caplists;
	struct map64 *by_hash; /* hash -> number of the first list */
};

struct stacks *stacks__new(const struct export_ctx *c, struct pickle *p)
{
	struct stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->p = p;
	s->seed = hash__seed();
	s->frames = frames__new(c->dict, c->facts);
	s->by_hash = map64__new();
	if (!s->frames || !s->by_hash || frames__keep_calls(s->frames)) {
		stacks__free(s);
		return NULL;
	}
	return s;
}

void stacks__free(struct stacks *s)
{
	if (!s)
		return;
	frames__free(s->frames);
	map64__free(s->by_hash);
	free(s->kept1);
	free(s->pool);
	free(s->lists);
	free(s);
}

static int put_frame(struct stacks *s, uint32_t i)
{
	const struct frame *f;
	size_t n;

	if (i >= s->nkept) {
		n = s->nkept;
		if (array__grow(&s->kept1, &s->nkept, frames__count(s->frames), sizeof(*s->kept1)))
			return -ENOMEM;
		memset(s->kept1 + n, 0, (s->nkept - n) * sizeof(*s->kept1));
	}
	if (s->kept1[i]) {
		pickle__again(s->p, s->kept1[i] - 1);
		return 0;
	}
	f = frames__at(s->frames, i);
	pickle__open_dict(s->p);
	pickle__key(s->p, "filename");
	pickle__string(s->p, f->file ? f->file : f->kind == FRAME_MODULE ? "nn.Module" : "??");
	pickle__key(s->p, "line");
	pickle__uint(s->p, f->line);
	pickle__key(s->p, "name");
	pickle__string(s->p, f->name);
	pickle__close_dict(s->p);
	s->kept1[i] = pickle__keep(s->p) + 1;
	return 0;
}

/* The written list with these frames, or NULL. */
static const struct list *find(const struct stacks *s, uint64_t hash, const uint32_t *frames,
			       uint32_t n, uint64_t *first)
{
	uint32_t i1 = map64__get(s->by_hash, hash, first) ? (uint32_t)*first + 1 : 0;

	for (; i1; i1 = s->lists[i1 - 1].next1) {
		const struct list *l = &s->lists[i1 - 1];

		if (l->n == n && !memcmp(s->pool + l->first, frames, n * sizeof(*frames)))
			return l;
	}
	return NULL;
}

static int note(struct stacks *s, uint64_t hash, uint32_t next1, const uint32_t *frames, uint32_t n)
{
	if (s->npool > UINT32_MAX - n || s->nlists == UINT32_MAX - 1 ||
	    array__grow(&s->pool, &s->cappool, s->npool + n, sizeof(*s->pool)) ||
	    array__grow(&s->lists, &s->caplists, s->nlists + 1, sizeof(*s->lists)) ||
	    map64__set(s->by_hash, hash, s->nlists))
		return -ENOMEM;
	memcpy(s->pool + s->npool, frames, n * sizeof(*frames));
	s->lists[s->nlists++] = (struct list){
		.first = (uint32_t)s->npool, .n = n, .kept = pickle__keep(s->p), .next1 = next1
	};
	s->npool += n;
	return 0;
}

int stacks__put(struct stacks *s, const struct row *row)
{
	const uint32_t *frames;
	const struct list *l;
	uint64_t hash, first = 0;
	uint32_t n;
	int err = frames__of_row(s->frames, row, &frames, &n);

	if (err)
		return err;
	hash = hash__bytes(s->seed, frames, n * sizeof(*frames));
	l = find(s, hash, frames, n, &first);
	if (l) {
		pickle__again(s->p, l->kept);
		return 0;
	}
	pickle__open_list(s->p);
	for (uint32_t i = n; i > 0 && !err; i--)
		err = put_frame(s, frames[i - 1]);
	pickle__close_list(s->p);
	return err ? err
		   : note(s, hash, map64__get(s->by_hash, hash, &first) ? (uint32_t)first + 1 : 0,
			  frames, n);
}

/* --- segments */

struct tiles {
	struct export_ctx *c;
	struct pickle *p;
	struct stacks *stacks;
	struct snapshot_sums *sums;
	struct live_block *blocks;
	size_t n, next;
	unsigned int index;
};

static void put_size(struct pickle *p, uint64_t addr, uint64_t size, uint64_t requested,
		     const char *state)
{
	pickle__key(p, "address");
	pickle__uint(p, addr);
	pickle__key(p, "size");
	pickle__uint(p, size);
	pickle__key(p, "requested_size");
	pickle__uint(p, requested);
	pickle__key(p, "state");
	pickle__key(p, state);
}

static void put_gap(struct pickle *p, uint64_t from, uint64_t to)
{
	if (to <= from)
		return;
	pickle__open_dict(p);
	put_size(p, from, to - from, 0, "inactive");
	pickle__key(p, "frames");
	pickle__open_list(p);
	pickle__close_list(p);
	pickle__close_dict(p);
}

/* Size of block i; in a corrupt recording, an overlapping block ends where the next one begins. */
static uint64_t size_of(const struct tiles *t, size_t i, uint64_t end)
{
	const struct live_block *b = &t->blocks[i];
	uint64_t room = (i + 1 < t->n && t->blocks[i + 1].addr < end ? t->blocks[i + 1].addr
								     : end) -
			b->addr;

	return b->size < room ? b->size : room;
}

static uint64_t requested_of(const struct tiles *t, size_t i, uint64_t size)
{
	uint64_t requested = t->blocks[i].requested;

	return requested && requested < size ? requested : size;
}

static int put_block(struct tiles *t, size_t i, uint64_t size)
{
	const struct live_block *b = &t->blocks[i];
	struct row row;
	int err;

	model__stack_row(t->c->model, b->stack, b->node, b->thread, b->walk, &row);
	row.before_attach = b->before_attach;
	pickle__open_dict(t->p);
	put_size(t->p, b->addr, size, requested_of(t, i, size), "active_allocated");
	pickle__key(t->p, "frames");
	err = stacks__put(t->stacks, &row);
	pickle__close_dict(t->p);
	t->sums->unasked += !b->requested;
	t->sums->cut += b->size - size;
	return err;
}

/* Skips blocks before addr that lie in no segment, which happens only in corrupt recordings. */
static void skip_blocks(struct tiles *t, uint64_t addr)
{
	for (; t->next < t->n && t->blocks[t->next].addr < addr; t->next++)
		t->sums->cut += t->blocks[t->next].size;
}

/* Writes a segment [addr, end) with its blocks, starting at t->next. */
static int put_segment(struct tiles *t, uint64_t addr, uint64_t end, const struct segment *seg)
{
	uint64_t allocated = 0, requested = 0, at = addr;
	size_t first = t->next, last = first;
	int err = 0;

	for (; last < t->n && t->blocks[last].addr < end; last++) {
		allocated += size_of(t, last, end);
		requested += requested_of(t, last, size_of(t, last, end));
	}
	pickle__open_dict(t->p);
	pickle__key(t->p, "device");
	pickle__uint(t->p, t->index);
	pickle__key(t->p, "address");
	pickle__uint(t->p, addr);
	pickle__key(t->p, "total_size");
	pickle__uint(t->p, end - addr);
	pickle__key(t->p, "allocated_size");
	pickle__uint(t->p, allocated);
	pickle__key(t->p, "active_size");
	pickle__uint(t->p, allocated);
	pickle__key(t->p, "requested_size");
	pickle__uint(t->p, requested);
	pickle__key(t->p, "stream");
	pickle__uint(t->p, seg && seg->stream_known ? seg->cuda_stream : 0);
	pickle__key(t->p, "segment_type");
	pickle__key(t->p, !seg || seg->kind == SEGMENT_ANY ? "unknown"
			  : seg->kind == SEGMENT_OF_SMALL  ? "small"
							   : "large");
	pickle__key(t->p, "segment_pool_id");
	pickle__pair(t->p, seg ? seg->pool[0] : 0, seg ? seg->pool[1] : 0);
	pickle__key(t->p, "is_expandable");
	pickle__bool(t->p, seg && seg->expandable);
	pickle__key(t->p, "frames");
	if (seg) {
		err = stacks__put(t->stacks, &seg->taken);
	} else {
		pickle__open_list(t->p);
		pickle__close_list(t->p);
	}
	pickle__key(t->p, "blocks");
	pickle__open_list(t->p);
	for (size_t i = first; i < last && !err; i++) {
		uint64_t size = size_of(t, i, end);

		put_gap(t->p, at, t->blocks[i].addr);
		at = t->blocks[i].addr + size;
		if (size)
			err = put_block(t, i, size);
		else
			t->sums->cut += t->blocks[i].size;
	}
	put_gap(t->p, at, end);
	pickle__close_list(t->p);
	pickle__close_dict(t->p);
	t->next = last;
	return err;
}

/* --- blocks outside known segments */

ARRAY_COMPARE(by_start, struct snapshot_range, addr)

/* Sorts the ranges and merges overlapping or adjacent ones. Returns their number. */
static size_t merge(struct snapshot_range *r, size_t n)
{
	size_t k = 0;

	if (n)
		qsort(r, n, sizeof(*r), by_start);
	for (size_t i = 0; i < n; i++) {
		if (k && r[i].addr <= r[k - 1].end)
			r[k - 1].end = r[i].end > r[k - 1].end ? r[i].end : r[k - 1].end;
		else
			r[k++] = r[i];
	}
	return k;
}

ARRAY_UP_TO(ranges_up_to, struct snapshot_range, addr)

static bool holds(const struct snapshot_range *r, size_t n, uint64_t addr)
{
	size_t k = ranges_up_to(r, n, addr);

	return k && addr < r[k - 1].end;
}

/* Finds blocks of the events and of the moment that lie in no current or past segment. The
 * caller frees *ret. */
static int find_outside(const struct tiles *t, const struct model_segments *segs,
			struct snapshot_past *past, struct snapshot_range **ret, size_t *n)
{
	size_t nknown = past->nsegments + segs->n, k = 0;
	struct snapshot_range *known = calloc(nknown + 1, sizeof(*known)),
			      *all = calloc(past->nblocks + t->n + 1, sizeof(*all));

	if (!known || !all) {
		free(known);
		free(all);
		return -ENOMEM;
	}
	if (past->nsegments)
		memcpy(known, past->segments, past->nsegments * sizeof(*known));
	for (size_t i = 0; i < segs->n; i++)
		known[past->nsegments + i] = (struct snapshot_range){
			segs->all[i].addr, segs->all[i].addr + segs->all[i].size
		};
	nknown = merge(known, nknown);
	for (size_t i = 0; i < past->nblocks; i++)
		if (!holds(known, nknown, past->blocks[i].addr))
			all[k++] = past->blocks[i];
	/* A block in a past segment is left out: PyTorch has no such blocks. */
	for (size_t i = 0; i < t->n; i++)
		if (!holds(known, nknown, t->blocks[i].addr) &&
		    t->blocks[i].size <= UINT64_MAX - t->blocks[i].addr)
			all[k++] = (struct snapshot_range){ t->blocks[i].addr,
							    t->blocks[i].addr + t->blocks[i].size };
	free(known);
	*n = merge(all, k);
	*ret = all;
	return 0;
}

/* Writes an invented segment for each range before `until`, cut at `until`. */
static int put_outside(struct tiles *t, const struct snapshot_range *r, size_t n, size_t *next,
		       uint64_t until)
{
	int err = 0;

	for (; *next < n && r[*next].addr < until && !err; ++*next) {
		uint64_t end = r[*next].end < until ? r[*next].end : until;

		skip_blocks(t, r[*next].addr);
		for (size_t i = t->next; i < t->n && t->blocks[i].addr < end; i++)
			t->sums->outside += size_of(t, i, end);
		t->sums->made_up += end > r[*next].addr ? end - r[*next].addr : 0;
		if (end > r[*next].addr)
			err = put_segment(t, r[*next].addr, end, NULL);
	}
	return err;
}

ARRAY_COMPARE(by_address, struct segment, addr)

static int put_all(struct tiles *t, struct model_segments *segs, struct snapshot_past *past)
{
	struct snapshot_range *outside;
	size_t n, next = 0;
	int err = find_outside(t, segs, past, &outside, &n);

	if (err)
		return err;
	if (segs->n)
		qsort(segs->all, segs->n, sizeof(*segs->all), by_address);
	for (size_t i = 0; i < segs->n && !err; i++) {
		const struct segment *seg = &segs->all[i];

		err = put_outside(t, outside, n, &next, seg->addr);
		skip_blocks(t, seg->addr);
		if (!err)
			err = put_segment(t, seg->addr, seg->addr + seg->size, seg);
	}
	if (!err)
		err = put_outside(t, outside, n, &next, UINT64_MAX);
	skip_blocks(t, UINT64_MAX);
	free(outside);
	return err;
}

int snapshot__segments(struct export_ctx *c, struct pickle *p, struct stacks *s, size_t device,
		       struct snapshot_past *past, struct snapshot_sums *sums)
{
	struct tiles t = { .c = c, .p = p, .stacks = s, .sums = sums };
	struct model_segments segs = { 0 };
	struct model_device d;
	int err = model__live_blocks(c->model, device, ROWS_AT_MARK, &t.blocks, &t.n);

	if (err)
		return err;
	model__device(c->model, device, &d);
	t.index = d.device.index;
	sums->without_address += d.mark_allocated;
	for (size_t i = 0; i < t.n; i++)
		sums->without_address -= t.blocks[i].size < sums->without_address
						 ? t.blocks[i].size
						 : sums->without_address;
	err = model__segments(c->model, device, ROWS_AT_MARK, false, &segs);
	if (!err)
		err = put_all(&t, &segs, past);
	model__free_segments(&segs);
	free(t.blocks);
	return err;
}
