/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The state before the first event: segments and blocks as read, in order of address. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "estimate/replay/plan_internal.h"
#include "record/varint.h"

#define MAX_KEPT (1u << 24)
#define GRAIN 512

int plan_state__keep(struct plan_state *s, const struct event *e)
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

void plan_state__free(struct plan_state *s)
{
	free(s->segments);
	free(s->blocks);
	s->segments = s->blocks = NULL;
	s->n_segments = s->n_blocks = 0;
}

ARRAY_COMPARE(by_addr, struct event, addr)

/* Sorts by address and drops entries that overlap an earlier one. */
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

static int slot_of(struct replay_plan_maker *p, const struct event *block, uint64_t *slot1)
{
	uint32_t slot;
	int err;

	*slot1 = 0;
	if (block->flags & BLOCK_PENDING)
		return 0;
	err = replay_plan__slot(p, block->addr, &slot);
	*slot1 = 1 + (uint64_t)slot;
	if (!err)
		p->info.before += block->size;
	return err;
}

static int write_segment(struct replay_plan_maker *p, const struct event *s,
			 const struct event *blocks, size_t n)
{
	struct plan_segment *seg;
	int err = plan_pools__add(&p->pools, s->addr, s->size, false);

	if (err)
		return err;
	seg = plan_pools__find(&p->pools, s->addr);
	plan_pools__set_pool(&p->pools, seg ? seg->number : 0, s->cuda_stream, s->pool);
	err = plan_out__op(&p->out, REPLAY_SEGMENT,
			   (uint64_t[]){ seg ? seg->number : 0, s->addr, s->size,
					 !!(s->flags & SEGMENT_SMALL), n },
			   5);
	for (size_t i = 0; i < n && !err; i++) {
		uint64_t v[4] = { blocks[i].addr - s->addr, blocks[i].size, blocks[i].requested };
		uint8_t bytes[4 * VARINT_MAX], *end = bytes;

		err = slot_of(p, &blocks[i], &v[3]);
		for (size_t j = 0; j < 4; j++)
			end = varint__put(end, v[j]);
		if (!err)
			err = plan_out__bytes(&p->out, bytes, (size_t)(end - bytes));
	}
	return err;
}

static int write_block(struct replay_plan_maker *p, const struct event *b)
{
	uint64_t slot1;
	int err = slot_of(p, b, &slot1);

	if (err || !slot1)
		return err;
	p->info.before_exact = false;
	return plan_out__op(&p->out, REPLAY_BLOCK, (uint64_t[]){ b->size, b->requested, slot1 }, 3);
}

int plan_state__write(struct replay_plan_maker *p, const struct event *e)
{
	struct plan_state *s = &p->state;
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
	if (!err && p->info.before_known)
		err = plan_out__op(&p->out, REPLAY_STATE,
				   (uint64_t[]){ e->totals ? e->allocated : 0,
						 e->totals ? e->reserved : 0 },
				   2);
	plan_state__free(s);
	return err;
}
