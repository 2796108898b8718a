/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A flight recorder with files in memory, and a random job to record. Include after cmocka.h. */
#include <fcntl.h>
#include <inttypes.h>

#include "mtr_util.h"
#include "record/flight.h"

#define SECOND UINT64_C(1000000000)
#define GPU ((struct device){ DEVICE_CUDA, 0 })

/* A recorder whose files are in memory. */
struct box {
	struct flight *fl;
	struct world w;
	int fds[16];
	struct flight_report reports[16];
	unsigned int n;
	int open_err, done_err;
};

static inline int box_open(void *ctx, unsigned int number)
{
	struct box *b = ctx;

	assert_int_equal(number, b->n + 1);
	assert_true(b->n < 16);
	if (b->open_err)
		return b->open_err;
	b->fds[b->n] = memory_file();
	return b->fds[b->n];
}

static inline int box_done(void *ctx, const struct flight_report *r, int err)
{
	struct box *b = ctx;

	b->done_err = err;
	b->reports[b->n++] = *r;
	return 0;
}

static inline struct box *box__new(struct flight_opts opts)
{
	struct box *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->w = world__new();
	opts.open = box_open;
	opts.done = box_done;
	opts.ctx = b;
	b->fl = flight__new(b->w.d, b->w.f, &opts);
	assert_non_null(b->fl);
	return b;
}

static inline void box__free(struct box *b)
{
	flight__free(b->fl);
	for (unsigned int i = 0; i < b->n; i++)
		close(b->fds[i]);
	world__free(&b->w);
	free(b);
}

static inline void feed(struct box *b, struct event e)
{
	assert_int_equal(flight__event(b->fl, &e), 0);
}

/* ---- live blocks, by the simplest means ---- */

struct live {
	struct event *e;
	size_t n, room;
};

static inline void live__event(struct live *l, const struct event *e)
{
	size_t i = 0;

	if (e->kind != EVENT_ALLOC && e->kind != EVENT_FREE && e->kind != EVENT_BLOCK &&
	    e->kind != EVENT_REQUESTED)
		return;
	while (i < l->n &&
	       (l->e[i].addr != e->addr || memcmp(&l->e[i].device, &e->device, sizeof(e->device))))
		i++;
	if (e->kind == EVENT_REQUESTED) {
		if (i < l->n && e->requested) {
			l->e[i].requested = e->requested;
			l->e[i].cuda_stream = e->cuda_stream;
		}
		return;
	}
	if (i < l->n)
		l->e[i] = l->e[--l->n];
	if (e->kind == EVENT_FREE)
		return;
	if (l->n == l->room) {
		l->room = l->room ? l->room * 2 : 256;
		l->e = realloc(l->e, l->room * sizeof(*l->e));
		assert_non_null(l->e);
	}
	l->e[l->n++] = *e;
}

static inline int by_place(const void *x, const void *y)
{
	const struct event *a = x, *b = y;
	int c = memcmp(&a->device, &b->device, sizeof(a->device));

	return c ? c : a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Compares blocks, including their stacks. */
static inline void assert_live(struct live *got, struct live *want)
{
	assert_int_equal(got->n, want->n);
	qsort(got->e, got->n, sizeof(*got->e), by_place);
	qsort(want->e, want->n, sizeof(*want->e), by_place);
	for (size_t i = 0; i < got->n; i++) {
		const struct event *a = &got->e[i], *b = &want->e[i];

		assert_true(a->addr == b->addr && a->size == b->size &&
			    a->requested == b->requested);
		assert_true(a->cuda_stream == b->cuda_stream);
		assert_int_equal(a->stack, b->stack);
		assert_int_equal(a->thread, b->thread);
		assert_int_equal(a->node, b->node);
		assert_int_equal(a->walk, b->walk);
		assert_int_equal(a->how, b->how);
	}
}

/* Live blocks of the file at its first out-of-memory event, and its events. */
static inline struct live read_box(const struct box *b, unsigned int file, struct events *all)
{
	struct live l = { 0 };
	struct mtr_reader *r = read_all(b->fds[file], all);
	bool oom = false;

	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	assert_string_equal(facts__get(mtr_reader__facts(r), "stop_reason"), "oom");
	assert_string_equal(facts__get(mtr_reader__facts(r), "comm"), "python");
	assert_string_equal(facts__get(mtr_reader__facts(r), "dropped_events"), "0");
	for (size_t i = 0; i < all->n && !oom; i++) {
		oom = all->e[i].kind == EVENT_OOM;
		live__event(&l, &all->e[i]);
	}
	assert_true(oom);
	mtr_reader__free(r);
	return l;
}

/* A job on two devices, one with totals. Addresses repeat; some blocks are never freed, some frees
 * have no allocation. */
struct job {
	struct gen g;
	struct live live;
	uint64_t time, allocated;
	uint64_t addrs[512];
	uint64_t sizes[512]; /* 0: free */
};

static inline void job__event(struct job *j, struct box *b, struct event e)
{
	e.time = j->time += 1000000 + gen__random(&j->g) % 1000;
	live__event(&j->live, &e);
	feed(b, e);
}

static inline void job__step(struct job *j, struct box *b)
{
	uint64_t r = gen__random(&j->g), i = r % 512;
	struct event e = { .kind = EVENT_ALLOC,
			   .device = GPU,
			   .addr = 0x7f0000000000 + i * 0x10000,
			   .size = (r >> 20 & 63) * 512 + 512 };

	if (i % 8 == 0) {
		e.device.type = DEVICE_CPU;
		e.device.index = 0;
	}
	e.thread = r >> 32 & 1 ? b->w.thread : 0;
	if (j->sizes[i] && r >> 33 & 7) { /* otherwise allocate again: its free was missed */
		e.kind = EVENT_FREE;
		e.size = j->sizes[i];
	} else {
		e.stack = r >> 36 & 1 ? b->w.stack : r >> 37 & 1 ? b->w.cut_stack : 0;
		e.node = (uint32_t)(r >> 55 & 3) % 3;
		e.walk = e.stack == b->w.stack ? MT_WALK_OK
			 : e.stack	       ? MT_WALK_FAULT_FRAME
					       : MT_WALK_NO_THREAD;
	}
	if (r >> 38 % 50 == 0) /* some frees have no allocation */
		e.addr += 512;
	else
		j->sizes[i] = e.kind == EVENT_ALLOC ? e.size : 0;
	if (e.device.type == DEVICE_CUDA) {
		j->allocated += e.kind == EVENT_ALLOC ? e.size : -e.size;
		e.totals = true;
		e.allocated = j->allocated;
		e.reserved = UINT64_C(1) << 30;
	}
	job__event(j, b, e);
	if (e.kind == EVENT_ALLOC && e.device.type == DEVICE_CUDA && r >> 44 & 1)
		job__event(j, b,
			   (struct event){ .kind = EVENT_REQUESTED,
					   .device = e.device,
					   .thread = e.thread,
					   .addr = e.addr,
					   .requested = e.size - (r >> 45 & 255),
					   .cuda_stream = r >> 53 & 1 });
	if (r >> 54 & 1)
		job__event(j, b, (struct event){ .kind = EVENT_STEP, .thread = e.thread });
}

static inline void job__oom(struct job *j, struct box *b)
{
	job__event(j, b,
		   (struct event){ .kind = EVENT_OOM,
				   .device = GPU,
				   .size = 12345,
				   .stack = b->w.stack,
				   .totals = true,
				   .allocated = j->allocated,
				   .reserved = UINT64_C(1) << 30 });
}

static inline struct job *new_job(struct box *b)
{
	struct job *j = calloc(1, sizeof(*j));

	assert_non_null(j);
	j->g.rng = 4711;
	j->allocated = 5 << 20; /* bytes from before attach */
	job__event(j, b,
		   (struct event){ .kind = EVENT_BLOCK,
				   .device = GPU,
				   .addr = 0x1000,
				   .size = 1024,
				   .requested = 1000 });
	return j;
}

static inline void free_job(struct job *j)
{
	free(j->live.e);
	free(j);
}
