/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Growth on the clock on which it is: calls within one step, and the peaks of steps. */
#include "unit/model_world.h"

#include "model/growth.h"

#define KIB UINT64_C(1024)
#define CALLS 60

static struct world watched(void)
{
	struct world w = world__new(AT_END, 0);

	assert_int_equal(growth__watch(w.m, BY_LINE), 0);
	return w;
}

static struct growth judged(struct world *w, const char *dev)
{
	struct growth g;

	model__finish(w->m, w->time);
	assert_int_equal(growth__judge(w->m, model__find_device(w->m, dev), KIB, &g), 0);
	return g;
}

static void call(struct world *w)
{
	feed(w, (struct event){ .kind = EVENT_CALL });
}

static void step(struct world *w)
{
	feed(w, (struct event){ .kind = EVENT_STEP });
}

static void train(struct world *w, int steps, int calls)
{
	uint32_t line = simple(w, "/home/u/a.py", "train", 1);

	for (int i = 0; i < steps; i++) {
		for (int k = 0; k < calls; k++) {
			call(w);
			alloc(w, CPU, 0x10, 256 * KIB, line);
			dealloc(w, CPU, 0x10, 256 * KIB);
		}
		step(w);
	}
}

/* Each call keeps a block of this size until the end of the evaluation. */
static void evaluate(struct world *w, int calls, uint64_t size)
{
	uint32_t line = simple(w, "/home/u/a.py", "evaluate", 2);

	for (int i = 0; i < calls; i++) {
		call(w);
		alloc(w, CPU, 0x1000000 + i, size, line);
	}
}

static void forget(struct world *w, int calls, uint64_t size)
{
	for (int i = 0; i < calls; i++)
		dealloc(w, CPU, 0x1000000 + i, size);
}

static void is_inside(const struct growth *g, uint64_t step, bool open)
{
	const struct growth_inside *in = &g->inside;

	assert_int_equal(g->clock, GROWTH_STEPS);
	assert_int_equal(g->n, 0);
	assert_true(in->known);
	assert_int_equal(in->open, open);
	assert_int_equal(in->step, step);
	assert_in_range(in->calls, CALLS - 2, CALLS);
	assert_true(in->line->per_step == 64.0 * KIB);
	assert_int_equal(in->line->row.line, 2);
	assert_in_range(in->line->row.bytes, (CALLS - 2) * 64 * KIB, CALLS * 64 * KIB);
	assert_int_equal(in->line->trend.confidence, TREND_HIGH);
	assert_int_equal(in->lines, 1);
}

/* The evaluation is under way at the end. */
static void test_last_step(void **state)
{
	struct world w = watched();
	struct growth g;

	train(&w, 20, 1);
	evaluate(&w, CALLS, 64 * KIB);
	g = judged(&w, "cpu");
	is_inside(&g, 20, true);
	growth__free(&g);
	world__free(&w);
}

/* It ends in an error, which frees everything. */
static void test_failed(void **state)
{
	struct world w = watched();
	struct growth g;

	train(&w, 20, 1);
	evaluate(&w, CALLS, 64 * KIB);
	oom(&w, CPU, KIB);
	forget(&w, CALLS, 64 * KIB);
	g = judged(&w, "cpu");
	is_inside(&g, 20, true);
	growth__free(&g);
	world__free(&w);
}

/* Evaluations between steps. Each frees its outputs. */
static void test_earlier_step(void **state)
{
	struct world w = watched();
	struct growth g;

	for (int i = 0; i < 3; i++) {
		train(&w, 20, 1);
		evaluate(&w, CALLS, 64 * KIB);
		forget(&w, CALLS, 64 * KIB);
	}
	train(&w, 20, 1);
	g = judged(&w, "cpu");
	is_inside(&g, 20, false);
	growth__free(&g);
	world__free(&w);
}

/* An evaluation before the first step. */
static void test_first_step(void **state)
{
	struct world w = watched();
	struct growth g;

	evaluate(&w, CALLS, 64 * KIB);
	forget(&w, CALLS, 64 * KIB);
	train(&w, 60, 1);
	g = judged(&w, "cpu");
	is_inside(&g, 0, false);
	growth__free(&g);
	world__free(&w);
}

/* Steps with as many calls as all others, calls that keep little, and calls that keep nothing. */
static void test_healthy(void **state)
{
	struct world w = watched();
	struct growth g;

	for (int i = 0; i < 40; i++) {
		evaluate(&w, CALLS, 64 * KIB);
		forget(&w, CALLS, 64 * KIB);
		step(&w);
	}
	g = judged(&w, "cpu");
	assert_false(g.inside.known);
	growth__free(&g);
	world__free(&w);

	w = watched();
	train(&w, 20, 1);
	alloc(&w, CPU, 0x20, CALLS * 64 * KIB * 10, simple(&w, "/home/u/a.py", "model", 3));
	evaluate(&w, CALLS, 64 * KIB);
	g = judged(&w, "cpu");
	assert_false(g.inside.known);
	growth__free(&g);
	world__free(&w);

	w = watched();
	train(&w, 20, 1);
	train(&w, 1, 200);
	train(&w, 20, 1);
	g = judged(&w, "cpu");
	assert_false(g.inside.known || growth__peaks_grow(&g, TREND_LOW));
	growth__free(&g);
	world__free(&w);
}

/* Few steps, and then calls until the end: these are the clock. */
static void test_calls_after_steps(void **state)
{
	struct world w = watched();
	struct growth g;

	train(&w, 2, 1);
	evaluate(&w, CALLS, 64 * KIB);
	g = judged(&w, "cpu");
	assert_int_equal(g.clock, GROWTH_CALLS);
	assert_int_equal(g.after_steps, 2);
	assert_int_equal(g.steps, CALLS);
	assert_int_equal(g.n, 1);
	assert_int_equal(g.lines[0].row.line, 2);
	assert_true(g.lines[0].per_step == 64.0 * KIB);
	assert_int_equal(g.lines[0].trend.confidence, TREND_HIGH);
	assert_false(g.inside.known);
	growth__free(&g);
	world__free(&w);
}

/* Inputs get longer by 16 KiB in each step, and activations by 128 KiB. leak: kept in each step. */
static struct growth longer(struct world *w, uint64_t leak, uint64_t (*length)(int))
{
	uint32_t net = module(w, "", "Net", "Net"), input, forward, keeps;

	input = simple(w, "/home/u/a.py", "main", 5);
	keeps = simple(w, "/home/u/a.py", "main", 6);
	forward = stack_of(w,
			   (struct frame_spec[]){ { "/home/u/a.py", "main", 0 },
						  { "/home/u/a.py", "forward", net } },
			   2, MT_WALK_OK);
	for (int i = 0; i < 60; i++) {
		uint64_t n = length(i);

		alloc(w, CPU, 0x1000, n * 16 * KIB, input);
		call(w);
		alloc(w, CPU, 0x2000, n * 128 * KIB, forward);
		if (leak)
			alloc(w, CPU, 0x3000000 + i, leak, keeps);
		dealloc(w, CPU, 0x1000, n * 16 * KIB);
		dealloc(w, CPU, 0x2000, n * 128 * KIB);
		step(w);
	}
	return judged(w, "cpu");
}

static uint64_t rising(int i)
{
	return 8 + i;
}

static uint64_t mixed(int i)
{
	return 8 + i * 37 % 61;
}

static uint64_t constant(int i)
{
	return 8;
}

static void test_peaks(void **state)
{
	struct world w = watched();
	struct growth g = longer(&w, 0, rising);

	assert_true(growth__peaks_grow(&g, TREND_HIGH));
	assert_true(g.peaks.per_step == 144.0 * KIB);
	assert_string_equal(g.peaks.line->row.func, "forward");
	assert_in_range(g.peaks.line->row.bytes, 66 * 128 * KIB, 67 * 128 * KIB);
	assert_int_equal(g.peaks.input.line, 5);
	assert_int_equal(g.peaks.input.bytes, 67 * 16 * KIB);
	assert_int_equal(growth__count(&g, TREND_MEDIUM), 0);
	growth__free(&g);
	world__free(&w);
}

/* Lengths at random; peaks that grow with a leak, which is the line's. */
static void test_other_peaks(void **state)
{
	struct world w = watched();
	struct growth g = longer(&w, 0, mixed);

	assert_false(growth__peaks_grow(&g, TREND_LOW));
	growth__free(&g);
	world__free(&w);

	w = watched();
	g = longer(&w, 64 * KIB, constant);
	assert_false(growth__peaks_grow(&g, TREND_LOW));
	assert_int_equal(growth__count(&g, TREND_HIGH), 1);
	assert_int_equal(g.lines[0].row.line, 6);
	growth__free(&g);
	world__free(&w);
}

/* torch.cat: the old tensor is freed when the larger one is there, so that the peaks grow twice as
 * fast as what stays. The leak is the line's. */
static void test_enlarged(void **state)
{
	struct world w = watched();
	uint32_t joins = simple(&w, "/home/u/a.py", "main", 7);
	struct growth g;

	for (uint64_t i = 1; i <= 60; i++) {
		alloc(&w, CPU, 0x1000000 * i, i * 64 * KIB, joins);
		if (i > 1)
			dealloc(&w, CPU, 0x1000000 * (i - 1), (i - 1) * 64 * KIB);
		step(&w);
	}
	g = judged(&w, "cpu");
	assert_false(growth__peaks_grow(&g, TREND_LOW));
	assert_int_equal(growth__count(&g, TREND_HIGH), 1);
	assert_int_equal(g.lines[0].row.line, 7);
	growth__free(&g);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_step),    cmocka_unit_test(test_failed),
		cmocka_unit_test(test_earlier_step), cmocka_unit_test(test_first_step),
		cmocka_unit_test(test_healthy),	     cmocka_unit_test(test_calls_after_steps),
		cmocka_unit_test(test_peaks),	     cmocka_unit_test(test_other_peaks),
		cmocka_unit_test(test_enlarged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
