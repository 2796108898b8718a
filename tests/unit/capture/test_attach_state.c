/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The allocator's content at attach, from torn readings and the log of events: a simulated
 * allocator changes between any two steps of a reading.
 */
#include "unit/cmocka.h"

#include <stdlib.h>
#include <string.h>

#include "capture/session/attach_stage.c" /* its functions are static */

#define SLOTS 64 /* blocks of one segment */
#define SEGMENTS 12
#define SLOT_BYTES 512ULL
#define SEG_BYTES (SLOTS * SLOT_BYTES)

struct world {
	unsigned seed;
	bool segment[SEGMENTS], live[SEGMENTS][SLOTS];
	uint64_t allocated, reserved;
	uint64_t size[SEGMENTS][SLOTS];
	struct attach_state *log; /* NULL: no log is kept */
	bool expandable;
};

static unsigned rnd(struct world *w, unsigned n)
{
	w->seed = w->seed * 1103515245u + 12345u;
	return (w->seed >> 16) % n;
}

static uint64_t seg_addr(unsigned s)
{
	return 0x7f0000000000ULL + s * SEG_BYTES;
}

static void say(struct world *w, struct event e)
{
	e.device = (struct device){ DEVICE_CUDA, 0 };
	if (e.kind == EVENT_ALLOC || e.kind == EVENT_FREE) {
		e.totals = true;
		e.allocated = w->allocated;
		e.reserved = w->reserved;
	} else {
		e.flags = MEM_BY_ALLOCATOR;
		e.how = w->expandable ? MEM_MAPPED : MEM_DEVICE;
		if (e.kind == EVENT_CUDA_FREE && !w->expandable)
			e.size = 0; /* cudaFree does not report the size */
	}
	if (w->log)
		assert_int_equal(attach_state__hold(w->log, &e), 0);
}

static void step(struct world *w)
{
	unsigned s = rnd(w, SEGMENTS), k = rnd(w, SLOTS);
	bool empty = true;

	if (!w->segment[s]) {
		w->segment[s] = true;
		w->reserved += SEG_BYTES;
		say(w, (struct event){
			       .kind = EVENT_CUDA_ALLOC, .addr = seg_addr(s), .size = SEG_BYTES });
		return;
	}
	for (unsigned i = 0; i < SLOTS; i++)
		empty &= !w->live[s][i];
	if (empty && !rnd(w, 3)) {
		w->segment[s] = false;
		w->reserved -= SEG_BYTES;
		say(w, (struct event){
			       .kind = EVENT_CUDA_FREE, .addr = seg_addr(s), .size = SEG_BYTES });
		return;
	}
	if (w->live[s][k]) {
		w->live[s][k] = false;
		w->allocated -= w->size[s][k];
		say(w, (struct event){ .kind = EVENT_FREE,
				       .addr = seg_addr(s) + k * SLOT_BYTES,
				       .size = w->size[s][k] });
	} else {
		w->live[s][k] = true;
		w->size[s][k] = 1 + rnd(w, 512);
		w->allocated += w->size[s][k];
		say(w, (struct event){ .kind = EVENT_ALLOC,
				       .addr = seg_addr(s) + k * SLOT_BYTES,
				       .size = w->size[s][k] });
	}
}

/* One reading with `steps` random changes of the allocator during it; misses: it skips some
 * blocks. */
static void read_world(struct world *w, struct attach_state *st, unsigned steps, bool misses)
{
	static struct cuda_block blocks[SEGMENTS * SLOTS];
	struct cuda_segment segments[SEGMENTS];
	struct cuda_device_state dev = { 0 };
	struct cudaalloc_state r = {
		.blocks = blocks, .segments = segments, .devices = &dev, .ndevices = 1
	};
	unsigned every = steps ? SEGMENTS * SLOTS / steps + 1 : 0, n = 0;

	for (unsigned s = 0; s < SEGMENTS; s++) {
		if (w->segment[s] && !(misses && !rnd(w, 4)))
			segments[r.nsegments++] = (struct cuda_segment){ .addr = seg_addr(s),
									 .size = SEG_BYTES,
									 .expandable = w->expandable,
									 .stream = 7,
									 .whole = true };
		for (unsigned k = 0; k < SLOTS; k++) {
			if (every && n++ % every == 0)
				step(w);
			if (w->live[s][k] && !(misses && !rnd(w, 4)))
				blocks[r.nblocks++] = (struct cuda_block){ .addr = seg_addr(s) +
										   k * SLOT_BYTES,
									   .size = w->size[s][k],
									   .stream = 7 };
		}
	}
	dev.after.allocated = w->allocated;
	dev.after.reserved = w->reserved;
	dev.consistent = !steps && !misses;
	assert_int_equal(attach_state__read(st, &r), 0);
}

struct seen {
	const struct world *t0;
	uint64_t blocks, segments, segment_bytes, events, last_addr;
	bool state, exact;
};

static int check_event(void *ctx, const struct event *e)
{
	struct seen *seen = ctx;
	unsigned s = (unsigned)((e->addr - seg_addr(0)) / SEG_BYTES);
	unsigned k = (unsigned)((e->addr - seg_addr(s)) / SLOT_BYTES);

	switch (e->kind) {
	case EVENT_SEGMENT:
		assert_false(seen->state);
		for (uint64_t a = e->addr; a < e->addr + e->size; a += SEG_BYTES)
			assert_true(seen->t0->segment[(a - seg_addr(0)) / SEG_BYTES]);
		seen->segments++;
		seen->segment_bytes += e->size;
		break;
	case EVENT_BLOCK:
		assert_false(seen->state);
		assert_true(seen->t0->live[s][k]);
		assert_int_equal(e->size, seen->t0->size[s][k]);
		assert_true(e->addr > seen->last_addr);
		seen->last_addr = e->addr;
		seen->blocks += e->size;
		break;
	case EVENT_STATE:
		seen->state = true;
		seen->exact = e->flags & STATE_EXACT;
		assert_int_equal(e->allocated, seen->t0->allocated);
		assert_int_equal(e->reserved, seen->t0->reserved);
		break;
	default:
		assert_true(seen->state);
		seen->events++;
	}
	return 0;
}

static int emit_all(struct attach_state *st, int (*fn)(void *ctx, const struct event *e), void *ctx)
{
	const struct event *e;
	int err = attach_state__end(st);

	while (!err && (e = attach_state__next(st)))
		err = fn(ctx, e);
	return err;
}

static void whole_life(unsigned seed, bool expandable, unsigned steps, bool misses, unsigned tries)
{
	struct world w = { .seed = seed, .expandable = expandable }, t0;
	struct attach_state *st = attach_state__new();
	struct seen seen = { .t0 = &t0 };
	uint64_t held;
	int exact = 0;

	for (unsigned i = 0; i < 3000; i++)
		step(&w);
	t0 = w;
	w.log = st;
	for (unsigned i = 0; i < tries && !exact; i++) {
		for (unsigned k = 0; k < steps / 4; k++)
			step(&w);
		read_world(&w, st, steps, misses);
		exact = attach_state__exact(st);
		assert_true(exact >= 0);
	}
	held = attach_state__held(st);
	assert_int_equal(emit_all(st, check_event, &seen), 0);
	assert_int_equal(seen.events, held);
	assert_true(seen.state);
	assert_int_equal(seen.exact, exact);
	if (exact) {
		assert_int_equal(seen.blocks, t0.allocated);
		assert_int_equal(seen.segment_bytes, t0.reserved);
	}
	/* A torn reading without skipped blocks is enough. If readings skip a quarter, others fill
	 * the gaps. */
	assert_int_equal(exact, 1);
	attach_state__free(st);
}

static void test_still(void **state)
{
	for (unsigned seed = 1; seed <= 50; seed++) {
		whole_life(seed, false, 0, false, 1);
		whole_life(seed, true, 0, false, 1);
	}
}

/* Blocks and segments come and go during readings. */
static void test_torn(void **state)
{
	for (unsigned seed = 1; seed <= 300; seed++)
		whole_life(seed, seed & 1, 1 + seed % 400, false, 3);
}

static void test_readings_that_miss(void **state)
{
	for (unsigned seed = 1; seed <= 100; seed++)
		whole_life(seed, seed & 1, seed % 50, true, 40);
}

/* A segment freed before any reading has no known size: reported as unknown. */
static void test_unknown_size(void **state)
{
	struct world w = { .seed = 5 }, t0;
	struct attach_state *st = attach_state__new();
	struct seen seen = { .t0 = &t0 };
	unsigned s;

	for (unsigned i = 0; i < 500; i++)
		step(&w);
	for (s = 0; s < SEGMENTS && !w.segment[s]; s++)
		;
	for (unsigned k = 0; k < SLOTS; k++)
		if (w.live[s][k]) {
			w.live[s][k] = false;
			w.allocated -= w.size[s][k];
		}
	t0 = w;
	w.log = st;
	w.segment[s] = false;
	w.reserved -= SEG_BYTES;
	say(&w, (struct event){ .kind = EVENT_CUDA_FREE, .addr = seg_addr(s), .size = SEG_BYTES });
	read_world(&w, st, 0, false);
	t0.reserved -= SEG_BYTES; /* the most that can be known before the next event */
	assert_int_equal(emit_all(st, check_event, &seen), 0);
	assert_int_equal(seen.blocks, t0.allocated);
	attach_state__free(st);
}

/* Between attach and reading a segment was freed by a call without a size. A total shows that it
 * existed. */
static void test_given_back_before_the_reading(void **state)
{
	for (int hinted = 0; hinted < 2; hinted++) {
		struct world w = { .seed = 5 }, t0;
		struct cuda_segment hint;
		struct attach_state *st = attach_state__new();
		struct seen seen = { .t0 = &t0 };
		unsigned s;

		for (unsigned i = 0; i < 500; i++)
			step(&w);
		for (s = 0; s < SEGMENTS && !w.segment[s]; s++)
			;
		for (unsigned k = 0; k < SLOTS; k++) {
			if (w.live[s][k]) {
				w.live[s][k] = false;
				w.allocated -= w.size[s][k];
			}
		}
		hint = (struct cuda_segment){ .addr = seg_addr(s),
					      .size = SEG_BYTES,
					      .whole = true };
		if (hinted)
			assert_int_equal(attach_state__hint(st, &hint, 1), 0);
		t0 = w;
		w.log = st;
		step(&w);
		w.segment[s] = false;
		w.reserved -= SEG_BYTES;
		say(&w, (struct event){
				.kind = EVENT_CUDA_FREE, .addr = seg_addr(s), .size = SEG_BYTES });
		read_world(&w, st, 0, false);
		for (unsigned i = 0; i < 20; i++)
			step(&w);
		assert_int_equal(attach_state__exact(st), hinted);
		if (hinted) {
			assert_int_equal(emit_all(st, check_event, &seen), 0);
			assert_true(seen.exact);
			assert_int_equal(seen.segment_bytes, t0.reserved);
		}
		attach_state__free(st);
	}
}

/* The probe was not set on all CPUs at once: an event was missed after others were seen. */
static void test_missed_while_arming(void **state)
{
	unsigned left_out = 0;

	for (unsigned seed = 1; seed < 50; seed++) {
		struct world w = { .seed = seed, .expandable = true }, t0;
		struct attach_state *st = attach_state__new();
		struct seen seen = { .t0 = &t0 };
		bool segments[SEGMENTS];

		for (unsigned i = 0; i < 500; i++)
			step(&w);
		w.log = st;
		memcpy(segments, w.segment, sizeof(segments));
		for (unsigned i = 0; i < 10; i++)
			step(&w);
		read_world(&w, st, 0, false);
		w.log = NULL;
		step(&w);
		w.log = st;
		t0 = w;
		if (memcmp(segments, w.segment, sizeof(segments))) { /* their T0 differs */
			attach_state__free(st);
			continue;
		}
		for (unsigned i = 0; i < 50; i++)
			step(&w);
		read_world(&w, st, 0, false);
		assert_int_equal(attach_state__exact(st), 1);
		assert_int_equal(emit_all(st, check_event, &seen), 0);
		assert_true(seen.exact);
		assert_int_equal(seen.blocks, t0.allocated);
		assert_true(seen.events <= 50);
		left_out++;
		attach_state__free(st);
	}
	assert_true(left_out > 5);
}

/* Without a reading the state is unknown, unless the log shows that nothing was there. */
static void test_no_reading(void **state)
{
	for (int before = 0; before < 2; before++) {
		struct world w = { .seed = 9 }, t0;
		struct attach_state *st = attach_state__new();
		struct seen seen = { .t0 = &t0, .state = before };

		for (unsigned i = 0; before && i < 100; i++)
			step(&w);
		t0 = w;
		w.log = st;
		for (unsigned i = 0; i < 100; i++)
			step(&w);
		assert_int_equal(attach_state__exact(st), !before);
		assert_int_equal(emit_all(st, check_event, &seen), 0);
		assert_int_equal(seen.events, 100);
		assert_int_equal(seen.blocks, 0);
		assert_int_equal(seen.exact, !before);
		assert_true(seen.state);
		attach_state__free(st);
	}
}

/* ---- the first event after T0 ---- */

static struct event of_gpu(uint8_t kind, uint8_t index, uint64_t size, uint64_t allocated)
{
	return (struct event){ .kind = kind,
			       .device = { DEVICE_CUDA, index },
			       .size = size,
			       .totals = true,
			       .allocated = allocated };
}

/* The allocator was in a call: its effect is in the reading, and its event follows. */
static void test_event_of_before(void **state)
{
	for (int kind = EVENT_ALLOC; kind <= EVENT_FREE; kind++) {
		struct state_seam m = { 0 };
		struct event e = of_gpu(EVENT_STATE, 0, 0, 1024);

		state_seam__emitted(&m, &e);
		/* another device, without a known state */
		e = of_gpu((uint8_t)kind, 1, 512, 1024);
		assert_false(state_seam__contains(&m, &e));
		e = of_gpu((uint8_t)kind, 0, 512, 1024);
		assert_true(state_seam__contains(&m, &e));
		assert_false(state_seam__contains(&m, &e)); /* at most one such event */
	}
}

static void test_event_that_follows(void **state)
{
	struct event e = of_gpu(EVENT_STATE, 0, 0, 1024);
	struct state_seam m = { 0 };

	state_seam__emitted(&m, &e);
	e = of_gpu(EVENT_ALLOC, 0, 512, 1536);
	assert_false(state_seam__contains(&m, &e));
	e = of_gpu(EVENT_FREE, 0, 512, 1024);
	assert_false(state_seam__contains(&m, &e));
}

static void test_events_that_were_held(void **state)
{
	struct event e = of_gpu(EVENT_STATE, 0, 0, 1024);
	struct state_seam m = { 0 };

	state_seam__emitted(&m, &e);
	e = of_gpu(EVENT_ALLOC, 0, 512, 1536);
	state_seam__emitted(&m, &e);
	e = of_gpu(EVENT_FREE, 0, 512, 1024);
	assert_false(state_seam__contains(&m, &e));
}

static void test_event_after_losses(void **state)
{
	struct event e = of_gpu(EVENT_STATE, 0, 0, 1024);
	struct state_seam m = { 0 };

	state_seam__emitted(&m, &e);
	e = (struct event){ .kind = EVENT_LOST, .size = 1 };
	assert_false(state_seam__contains(&m, &e));
	e = of_gpu(EVENT_ALLOC, 0, 512, 1024);
	assert_false(state_seam__contains(&m, &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_still),
		cmocka_unit_test(test_torn),
		cmocka_unit_test(test_readings_that_miss),
		cmocka_unit_test(test_unknown_size),
		cmocka_unit_test(test_given_back_before_the_reading),
		cmocka_unit_test(test_missed_while_arming),
		cmocka_unit_test(test_no_reading),
		cmocka_unit_test(test_event_of_before),
		cmocka_unit_test(test_event_that_follows),
		cmocka_unit_test(test_events_that_were_held),
		cmocka_unit_test(test_event_after_losses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
