/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Feeds the same events to all code that computes live blocks: the model, the live set, the
 * windows' conditions, a rolling recording's totals and the replay's plan. After each event they
 * must agree (docs/reference/mtr.md, "Meaning of the events").
 */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/map64.h"
#include "capture/save/windows.h"
#include "estimate/replay/plan.h"
#include "model/model.h"
#include "record/cond.h"
#include "record/dict.h"
#include "record/mtr/live_set.h"
#include "record/mtr_rolling.h"
#include "unit/event_tape.h"

#define BLOCKS 64

struct block {
	uint64_t addr, size;
};

struct all {
	struct dict *dict;
	struct facts *facts;
	struct model *model;
	struct live_set *live;
	struct values *values;
	struct totals *totals;
	struct replay_plan_maker *plan;
	int fd; /* file of the plan */
};

static struct all make(void)
{
	struct all a = { .dict = dict__new(),
			 .facts = facts__new(),
			 .live = live_set__new(),
			 .totals = totals__new(1 << 16),
			 .fd = memfd_create("plan", MFD_CLOEXEC) };

	a.model = model__new(a.dict, a.facts, &(struct model_opts){ .at = AT_PEAK });
	a.values = values__new(a.facts);
	a.plan = replay_plan__new(a.fd, 0, 0);
	assert_true(a.dict && a.facts && a.live && a.totals && a.model && a.values && a.plan);
	return a;
}

static void drop(struct all *a)
{
	replay_plan__free(a->plan);
	values__free(a->values);
	model__free(a->model);
	totals__free(a->totals);
	live_set__free(a->live);
	facts__free(a->facts);
	dict__free(a->dict);
	close(a->fd);
}

/* The live set's level of the event's device. */
static bool level_of(const struct all *a, struct device d, struct flight_level *ret)
{
	for (size_t i = 0; live_set__level(a->live, i, ret); i++) {
		if (!memcmp(&ret->device, &d, sizeof(d)))
			return true;
	}
	return false;
}

static void feed(struct all *a, size_t i)
{
	const struct event *e = &event_tape[i];
	struct flight_level level = { 0 };
	bool news;

	assert_int_equal(model__event(a->model, e), 0);
	assert_int_equal(live_set__fold(a->live, e), 0);
	assert_int_equal(values__event(a->values, e, &news), 0);
	level_of(a, e->device, &level);
	assert_int_equal(totals__event(a->totals, e, level.allocated, level.reserved), 0);
	assert_int_equal(replay_plan__event(a->plan, e, i, 0), 0);
}

/* The first device's figure in this condition. */
static uint64_t value_of(struct values *v, const char *condition)
{
	struct cond_result r;
	struct cond *c;
	char *why = NULL;

	assert_int_equal(cond__parse(condition, &c, &why), 0);
	assert_int_equal(values__judge(v, c, 0, &r), 0);
	assert_int_equal(r.verdict, COND_NO);
	cond__free(c);
	return r.value;
}

struct blocks {
	struct block v[BLOCKS];
	size_t n;
	struct device device;
};

/* The blocks that the live set names. A tensor from before attach may be the only event of a block.
 */
static int on_told(void *ctx, const struct event *e)
{
	struct blocks *b = ctx;

	if ((e->kind != EVENT_BLOCK && e->kind != EVENT_TENSOR) ||
	    (e->kind == EVENT_BLOCK && e->flags & BLOCK_PENDING) ||
	    memcmp(&e->device, &b->device, sizeof(e->device)) ||
	    (e->kind == EVENT_TENSOR && b->n && b->v[b->n - 1].addr == e->addr))
		return 0;
	assert_true(b->n < BLOCKS);
	b->v[b->n++] = (struct block){ e->addr, e->size };
	return 0;
}

static void check_blocks(const struct all *a, size_t device, struct device d)
{
	struct blocks told = { .device = d };
	struct live_block *known;
	size_t n;

	assert_int_equal(model__live_blocks(a->model, device, ROWS_NOW, &known, &n), 0);
	assert_int_equal(live_set__emit(a->live, 0, on_told, &told), 0);
	assert_int_equal(n, told.n);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(known[i].addr, told.v[i].addr);
		assert_int_equal(known[i].size, told.v[i].size);
	}
	free(known);
}

static void check(struct all *a, const struct event *e)
{
	for (size_t i = 0; i < model__devices(a->model); i++) {
		struct totals_device sum = { 0 };
		struct flight_level level;
		struct model_device d;
		struct model_now now;
		bool cuda;

		model__device(a->model, i, &d);
		cuda = d.device.type == DEVICE_CUDA;
		if (!level_of(a, d.device, &level) ||
		    !model__now(a->model, model__number(a->model, i), &now))
			continue;
		assert_int_equal(now.allocated, level.allocated);
		assert_int_equal(now.peak, level.peak_allocated);
		if (cuda)
			assert_int_equal(now.reserved, level.reserved);
		check_blocks(a, i, d.device);
		for (uint32_t k = 0; totals__device(a->totals, k, &sum); k++) {
			if (memcmp(&sum.device, &d.device, sizeof(d.device)))
				continue;
			assert_int_equal(sum.allocated, level.allocated);
			assert_int_equal(sum.peak_allocated, level.peak_allocated);
		}
		if (!cuda || d.device.index)
			continue; /* a condition that does not hold reports the first device */
		assert_int_equal(value_of(a->values, "allocated>1T"), level.allocated);
		assert_int_equal(value_of(a->values, "peak>1T"), level.peak_allocated);
		/* Conditions take this figure from the allocator's next event. */
		if (e->totals)
			assert_int_equal(value_of(a->values, "reserved>1T"), level.reserved);
	}
}

static void test_all_agree_after_each_event(void **state)
{
	struct all a = make();

	for (size_t i = 0; i < TAPE_LENGTH; i++) {
		feed(&a, i);
		check(&a, &event_tape[i]);
	}
	drop(&a);
}

/* The plan has a slot for each block that is live, and says where it differs from the recording. */
static void test_plan_at_the_end(void **state)
{
	struct blocks told = { .device = { .type = DEVICE_CUDA } };
	struct replay_plan_info info;
	struct flight_level level;
	struct all a = make();
	uint64_t slot;

	for (size_t i = 0; i < TAPE_LENGTH; i++)
		feed(&a, i);
	assert_int_equal(replay_plan__finish(a.plan, &info), 0);
	assert_int_equal(live_set__emit(a.live, 0, on_told, &told), 0);
	assert_int_equal(map64__count(replay_plan__live(a.plan)), told.n);
	for (size_t i = 0; i < told.n; i++)
		assert_true(map64__get(replay_plan__live(a.plan), told.v[i].addr, &slot));
	assert_true(level_of(&a, told.device, &level));
	assert_int_equal(info.peak_allocated, level.peak_allocated);
	assert_int_equal(info.peak_reserved, level.peak_reserved);
	assert_int_equal(info.lost, 1);
	assert_int_equal(info.mended, 1);
	assert_int_equal(info.unknown_frees, 1);
	drop(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_agree_after_each_event),
		cmocka_unit_test(test_plan_at_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
