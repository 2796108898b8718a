/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "replayer.h"

#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "record/varint.h"

bool replayer__number(struct replayer *r, uint64_t *ret)
{
	return varint__get(&r->at, r->end, ret);
}

bool replayer__put(struct replayer *r, uint64_t slot, void *ptr, uint64_t asked)
{
	if (slot >= r->plan->slots || r->slots[slot].ptr)
		return false;
	r->slots[slot] = (struct replay_slot){ ptr, asked };
	r->requested += asked;
	return true;
}

void *replayer__stream(const struct replayer *r)
{
	return r->streams[r->pool];
}

void replayer__choose(struct replayer *r, uint64_t segment)
{
	uint32_t pool = 0;

	if (segment < r->plan->segments)
		memcpy(&pool, r->pool_of + segment * sizeof(pool), sizeof(pool));
	r->pool = pool < r->plan->pools ? pool : 0;
}

static bool at_event(struct replayer *r)
{
	uint64_t event, time;

	if (!replayer__number(r, &event) || !replayer__number(r, &time))
		return false;
	r->event += event;
	r->time += unzigzag(time);
	return true;
}

static bool read_location(struct replayer *r)
{
	return replayer__number(r, &r->stack) && replayer__number(r, &r->node);
}

/* Updates the result after a recorded event and compares the state with the recorded state. */
static void count_event(struct replayer *r, uint64_t recorded_size)
{
	struct replay_answer *a = &r->answer;
	uint64_t before = r->reserved, difference;
	bool same_size = !recorded_size || allocator_totals.size == recorded_size;

	r->allocated = allocator_totals.allocated;
	r->reserved = allocator_totals.reserved;
	a->events++;
	if (r->allocated > a->peak_allocated)
		a->peak_allocated = r->allocated;
	if (r->requested > a->peak_requested)
		a->peak_requested = r->requested;
	if (r->reserved > a->peak_reserved) {
		a->peak_reserved = r->reserved;
		a->reserved_event = r->event;
		a->reserved_time = r->time;
		a->segments = device__segments();
		a->outside = device__used() - r->reserved;
	}
	if (r->flags & REPLAY_CURVE && r->reserved != before)
		replayer__point(r);
	if (!(r->flags & REPLAY_COMPARE) || !r->has_expected)
		return;
	a->compared++;
	difference = r->expected > r->reserved ? r->expected - r->reserved
					       : r->reserved - r->expected;
	if (!difference && same_size)
		return;
	if (!a->differ++) {
		a->first = r->event;
		a->first_time = r->time;
		a->first_recorded = r->expected;
		a->first_replayed = r->reserved;
	}
	if (difference > a->largest)
		a->largest = difference;
}

static void note_oom(struct replayer *r)
{
	struct replay_answer *a = &r->answer;

	if (a->oom)
		return;
	a->oom = 1;
	a->oom_event = r->event;
	a->oom_time = r->time;
	a->oom_asked = allocator_totals.did_not_fit;
	a->oom_allocated = allocator_totals.allocated;
	a->oom_reserved = allocator_totals.reserved;
	a->oom_stack = r->stack;
	a->oom_node = r->node;
}

/*
 * 1: continue; -1: an error; 0: out of memory, because the program's reaction to that is unknown.
 */
static int alloc(struct replayer *r)
{
	uint64_t slot, size, asked, refused = device__refused();
	enum allocator_outcome outcome;
	void *ptr = NULL;

	if (!at_event(r) || !replayer__number(r, &slot) || !replayer__number(r, &size) ||
	    !replayer__number(r, &asked) || !read_location(r))
		return -1;
	outcome = allocator__alloc(&r->allocator, asked ? asked : size, replayer__stream(r), &ptr);
	if (outcome == ALLOCATOR_OOM) {
		note_oom(r);
		return 0;
	}
	if (outcome != ALLOCATOR_OK || !replayer__put(r, slot, ptr, asked))
		return -1;
	r->answer.retries += device__refused() > refused;
	count_event(r, size);
	return 1;
}

static bool release(struct replayer *r)
{
	struct replay_slot *s;
	uint64_t slot;

	if (!at_event(r) || !replayer__number(r, &slot) || slot >= r->plan->slots)
		return false;
	s = &r->slots[slot];
	if (!s->ptr)
		return false;
	if (!allocator__free(&r->allocator, s->ptr))
		return false;
	r->requested -= s->asked;
	*s = (struct replay_slot){ 0 };
	count_event(r, 0);
	return true;
}

/* If the request succeeds now, the program would have used the block. The plan continues with what
 * the program did in the recording, so the block is freed. */
static bool recorded_oom(struct replayer *r)
{
	enum allocator_outcome outcome;
	void *ptr = NULL, *rest[DEVICE_PIECES];
	uint64_t size;
	size_t n;

	if (!at_event(r) || !replayer__number(r, &size) || !read_location(r))
		return false;
	n = r->flags & REPLAY_REFUSE ? device__fill(rest) : 0;
	outcome = allocator__alloc(&r->allocator, size, replayer__stream(r), &ptr);
	while (n)
		device__give(rest[--n]);
	if (outcome == ALLOCATOR_OK)
		return !ptr || allocator__free(&r->allocator, ptr);
	if (outcome == ALLOCATOR_OOM)
		note_oom(r);
	return outcome == ALLOCATOR_OOM;
}

static bool change_outside(struct replayer *r, bool take)
{
	uint64_t number, size = 0;

	if (!replayer__number(r, &number) || number >= r->plan->takes ||
	    (take && !replayer__number(r, &size)))
		return false;
	if (r->takes[number])
		device__give(r->takes[number]);
	r->takes[number] = NULL;
	/* If the device has no room, continue: the allocator did not cause it, and the user's
	 * reaction is unknown. */
	if (take)
		device__take(size, &r->takes[number]);
	return true;
}

static bool place(struct replayer *r)
{
	uint64_t addr, size;

	if (!replayer__number(r, &addr) || !replayer__number(r, &size))
		return false;
	if (r->flags & REPLAY_AS_FOUND)
		device__place(addr, size);
	return true;
}

/* 1: continue; 0: the end; -1: an error. */
static int step(struct replayer *r, enum replay_op op)
{
	uint64_t n;
	bool ok = false;

	switch (op) {
	case REPLAY_END:
		return 0;
	case REPLAY_ALLOC:
		return alloc(r);
	case REPLAY_FREE:
		ok = release(r);
		break;
	case REPLAY_OOM:
		ok = recorded_oom(r);
		break;
	case REPLAY_EMPTY:
		ok = allocator__empty(&r->allocator);
		break;
	case REPLAY_TAKE:
	case REPLAY_GIVE:
		ok = change_outside(r, op == REPLAY_TAKE);
		break;
	case REPLAY_POOL:
		ok = replayer__number(r, &n);
		if (ok)
			replayer__choose(r, n);
		break;
	case REPLAY_RESERVED:
		ok = r->has_expected = replayer__number(r, &r->expected);
		break;
	case REPLAY_PLACE:
		ok = place(r);
		break;
	case REPLAY_SEGMENT:
		ok = replayer__segment(r);
		break;
	case REPLAY_BLOCK:
		ok = replayer__block(r);
		break;
	case REPLAY_STATE:
		ok = replayer__state(r);
		break;
	default:
		break;
	}
	return ok ? 1 : -1;
}

static bool make_ready(struct replayer *r)
{
	r->slots = calloc((size_t)r->plan->slots + 1, sizeof(*r->slots));
	r->takes = calloc((size_t)r->plan->takes + 1, sizeof(*r->takes));
	r->streams = calloc((size_t)r->plan->pools + 1, sizeof(*r->streams));
	r->mapped_to = calloc(2 * ((size_t)r->plan->pools + 1), sizeof(*r->mapped_to));
	if (!r->slots || !r->takes || !r->streams || !r->mapped_to)
		return false;
	for (uint32_t i = 1; i < r->plan->pools; i++)
		if (!device__stream(&r->streams[i]))
			return false;
	return !(r->flags & REPLAY_FRACTION) || allocator__fraction(&r->allocator, 1.0);
}

bool replayer__run(struct replayer *r)
{
	int ret = make_ready(r) ? 1 : -1;

	while (ret > 0 && r->at < r->end)
		ret = step(r, *r->at++);
	r->answer.kind = REPLAY_DONE;
	r->answer.end_allocated = allocator_totals.allocated;
	r->answer.end_reserved = allocator_totals.reserved;
	r->answer.takes = device__takes();
	return ret == 0;
}
