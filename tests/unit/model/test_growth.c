/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Growth: series with known results, then generated recordings. */
#include "unit/model_world.h"

#include "model/growth.h"
#include "model/trend.h"

#define KIB UINT64_C(1024)

static const struct trend_opts opts = { .min_growth = 1024, .tests = 10 };

/* A value at step i of n. */
typedef uint64_t series_fn(uint64_t i, uint64_t n);

static uint64_t noise(uint64_t i)
{
	uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x ^= x >> 29;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	return (x ^ x >> 32) % 1000;
}

static uint64_t leak(uint64_t i, uint64_t n)
{
	return 100 * KIB + i * 4 * KIB;
}

static uint64_t noisy_leak(uint64_t i, uint64_t n)
{
	return leak(i, n) + noise(i) * 20; /* noise of up to 5 steps' growth */
}

static uint64_t rare_leak(uint64_t i, uint64_t n)
{
	return leak(i / 5 * 5, n);
}

static uint64_t leak_after_start(uint64_t i, uint64_t n)
{
	return leak(i, n) + (i < 3 ? 0 : 1000 * KIB); /* the optimizer's state */
}

static uint64_t leak_late(uint64_t i, uint64_t n)
{
	return leak(i < n / 2 ? 0 : i - n / 2, n);
}

/* A larger warm-up of some steps, such as workspaces of new threads. */
static uint64_t leak_after_warmup(uint64_t i, uint64_t n)
{
	return leak(i, n) + (i < n / 4 ? i : n / 4) * 1000 * KIB;
}

static uint64_t leak_with_teeth(uint64_t i, uint64_t n)
{
	return leak(i, n) + i % 10 * 5 * KIB;
}

static uint64_t flat(uint64_t i, uint64_t n)
{
	return 5000;
}

static uint64_t only_noise(uint64_t i, uint64_t n)
{
	return 100 * KIB + noise(i) * 100;
}

static uint64_t warmup(uint64_t i, uint64_t n)
{
	return (i < 3 ? i : 3) * 1000 * KIB + flat(i, n);
}

static uint64_t cache(uint64_t i, uint64_t n)
{
	return (i < n / 2 ? i : n / 2) * 8 * KIB;
}

/* New entries become less frequent. */
static uint64_t slowing_cache(uint64_t i, uint64_t n)
{
	uint64_t v = 0, add = 512 * KIB;

	for (uint64_t k = 0; k <= i; k++, add = add * 9 / 10)
		v += add;
	return v;
}

static uint64_t sawtooth(uint64_t i, uint64_t n)
{
	return i % 10 * 64 * KIB;
}

static uint64_t one_reset(uint64_t i, uint64_t n)
{
	return (i < n * 2 / 5 ? i : i - n * 2 / 5) * 64 * KIB;
}

static uint64_t slow_teeth(uint64_t i, uint64_t n)
{
	return i % (n / 3 + 1) * 64 * KIB;
}

static uint64_t shrinking(uint64_t i, uint64_t n)
{
	return (n - i) * 64 * KIB;
}

static const struct {
	const char *name;
	series_fn *fn;
	enum trend_verdict verdict;
	enum trend_confidence least;
} cases[] = {
	{ "leak", leak, TREND_GROWS, TREND_HIGH },
	{ "noisy_leak", noisy_leak, TREND_GROWS, TREND_MEDIUM },
	{ "rare_leak", rare_leak, TREND_GROWS, TREND_MEDIUM },
	{ "leak_after_start", leak_after_start, TREND_GROWS, TREND_HIGH },
	{ "leak_after_warmup", leak_after_warmup, TREND_GROWS, TREND_MEDIUM },
	{ "leak_with_teeth", leak_with_teeth, TREND_GROWS, TREND_MEDIUM },
	{ "leak_late", leak_late, TREND_GROWS, TREND_MEDIUM },
	{ "flat", flat, TREND_FLAT, TREND_NONE },
	{ "only_noise", only_noise, TREND_RELEASED, TREND_NONE },
	{ "warmup", warmup, TREND_FLAT, TREND_NONE },
	{ "cache", cache, TREND_STOPPED, TREND_NONE },
	{ "slowing_cache", slowing_cache, TREND_STOPPED, TREND_NONE },
	{ "sawtooth", sawtooth, TREND_RELEASED, TREND_NONE },
	{ "one_reset", one_reset, TREND_RELEASED, TREND_NONE },
	{ "slow_teeth", slow_teeth, TREND_RELEASED, TREND_NONE },
	{ "shrinking", shrinking, TREND_RELEASED, TREND_NONE },
};

static void test_verdicts(void **state)
{
	static const size_t lengths[] = { 40, 60, 100, 200, 256 };
	uint64_t v[TREND_MAX];
	struct trend t;

	for (size_t c = 0; c < N(cases); c++)
		for (size_t l = 0; l < N(lengths); l++) {
			for (size_t i = 0; i < lengths[l]; i++)
				v[i] = cases[c].fn(i, lengths[l]);
			trend__judge(v, lengths[l], &opts, &t);
			if (t.verdict != cases[c].verdict || t.confidence < cases[c].least)
				fail_msg(
					"%s, %zu values: %s, %s (p %g, shares %.2f %.2f %.2f %.2f)",
					cases[c].name, lengths[l], trend__verdict(t.verdict),
					trend__confidence(t.confidence), t.p, t.share[0],
					t.share[1], t.share[2], t.share[3]);
		}
}

static void test_figures(void **state)
{
	uint64_t v[60];
	struct trend t;

	for (size_t i = 0; i < 60; i++)
		v[i] = leak(i, 60);
	trend__judge(v, 60, &opts, &t);
	assert_int_equal(t.values, 60);
	assert_int_equal(t.rises, 60); /* the first rise is from 0 */
	assert_int_equal(t.intervals, 60);
	assert_int_equal(t.falls, 0);
	assert_true(t.slope == 4.0 * KIB);
	assert_true(t.spread == 0);
	assert_int_equal(t.fall, 0);
	assert_true(t.sorted == 1);
	assert_true(t.p <= 1e-6);
	/* More tested lines need stronger evidence. */
	trend__judge(v, 60, &(struct trend_opts){ .tests = UINT32_MAX }, &t);
	assert_true(t.p > 1e-3);
}

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The slope is the median over all pairs: compared with that of sorted slopes. */
static void test_slope(void **state)
{
	static double slopes[TREND_MAX * TREND_MAX / 2];
	uint64_t v[TREND_MAX], seed = 88172645463325252;

	for (size_t n = TREND_MIN; n <= TREND_MAX; n += n / 3) {
		for (unsigned kinds = 1; kinds < 1000; kinds *= 7) {
			struct trend_opts o = { .min_growth = 1 };
			struct trend t;
			size_t k = 0;

			for (size_t i = 0; i < n; i++) {
				seed ^= seed << 13;
				seed ^= seed >> 7;
				seed ^= seed << 17;
				v[i] = 4096 * i + seed % kinds * 4096;
			}
			trend__judge(v, n, &o, &t);
			for (size_t i = t.warmup; i < n; i++)
				for (size_t j = i + 1; j < n; j++)
					slopes[k++] = ((double)v[j] - (double)v[i]) /
						      (double)(j - i);
			qsort(slopes, k, sizeof(*slopes), cmp_double);
			assert_true(t.slope == (k % 2 ? slopes[k / 2]
						      : (slopes[k / 2 - 1] + slopes[k / 2]) / 2));
		}
	}
}

static void test_too_short(void **state)
{
	uint64_t v[TREND_MIN];
	struct trend t;

	for (size_t i = 0; i < TREND_MIN; i++)
		v[i] = leak(i, 0);
	for (size_t n = 0; n < TREND_MIN; n++) {
		trend__judge(v, n, &opts, &t);
		assert_int_equal(t.confidence, TREND_NONE);
		assert_int_equal(t.verdict, n < 3 ? TREND_FLAT : TREND_SHORT);
	}
	trend__judge(v, TREND_MIN, &opts, &t);
	assert_int_equal(t.verdict, TREND_UNSURE);
	/* Extreme values. */
	for (size_t i = 0; i < TREND_MIN; i++)
		v[i] = i % 2 ? UINT64_MAX : 0;
	trend__judge(v, TREND_MIN, &opts, &t);
	assert_int_equal(t.verdict, TREND_RELEASED);
}

/* Values that repeat show no more than those that were observed. */
static void test_limit(void **state)
{
	uint64_t v[64];
	struct trend t, all;

	for (size_t i = 0; i < 64; i++)
		v[i] = leak(i, 0);
	trend__judge(v, 64, &opts, &all);
	assert_int_equal(all.confidence, TREND_HIGH);
	trend__limit(&all, 64);
	assert_int_equal(all.confidence, TREND_HIGH);
	t = all;
	trend__limit(&t, 31);
	assert_true(t.confidence == TREND_MEDIUM && t.verdict == TREND_GROWS);
	trend__limit(&t, 9);
	assert_true(t.confidence == TREND_LOW && t.verdict == TREND_UNSURE);
	trend__limit(&t, 7);
	assert_true(t.confidence == TREND_NONE && t.verdict == TREND_SHORT);
	t.verdict = TREND_STOPPED;
	trend__limit(&t, 8);
	assert_int_equal(t.verdict, TREND_STOPPED);
	trend__limit(&t, 7);
	assert_int_equal(t.verdict, TREND_SHORT);
}

static void test_chance(void **state)
{
	static const uint64_t up[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, down[] = { 4, 3, 2, 1 },
			      same[] = { 7, 7, 7 }, mixed[] = { 1, 3, 2, 4 },
			      ties[] = { 1, 1, 2, 2, 3, 3, 4, 4 };
	double tau, p;

	/* 28 pairs: z = 27 / sqrt(8 * 7 * 21 / 18) = 3.34 */
	p = trend__order_chance(up, 8, &tau);
	assert_true(tau == 1 && p > 0.00040 && p < 0.00043);
	assert_true(trend__order_chance(down, 4, &tau) == 1 && tau == -1);
	assert_true(trend__order_chance(same, 3, &tau) == 1 && tau == 0);
	assert_true(trend__order_chance(up, 1, &tau) == 1 && trend__order_chance(up, 0, &tau) == 1);
	/* 5 up, 1 down: z = 3 / sqrt(26 / 3) = 1.019 */
	p = trend__order_chance(mixed, 4, &tau);
	assert_true(tau > 0.66 && tau < 0.67 && p > 0.153 && p < 0.155);
	/* 24 up: z = 23 / sqrt((1176 - 4 * 18) / 18) = 2.937 */
	p = trend__order_chance(ties, 8, &tau);
	assert_true(p > 0.00164 && p < 0.00168);
}

/* ---- recordings ---- */

static struct world watched(enum group by)
{
	struct world w = world__new(AT_END, 0);

	assert_int_equal(growth__watch(w.m, by), 0);
	return w;
}

static void step(struct world *w)
{
	feed(w, (struct event){ .kind = EVENT_STEP });
}

static struct growth judged(struct world *w, const char *dev)
{
	struct growth g;

	model__finish(w->m, w->time);
	assert_int_equal(growth__judge(w->m, model__find_device(w->m, dev), 1024, &g), 0);
	return g;
}

/* 60 steps: line 1 keeps 4 of 8 KiB, line 2 replaces its block, line 3 enlarges it, line 4 does not
 * change. */
static void train(struct world *w, struct device d, int steps)
{
	uint32_t keeps = simple(w, "/home/u/a.py", "f", 1),
		 replaces = simple(w, "/home/u/a.py", "f", 2),
		 enlarges = simple(w, "/home/u/a.py", "f", 3),
		 once = simple(w, "/home/u/a.py", "f", 4);

	w->reserved = 1 << 30;
	alloc(w, d, 0x10, 1 << 20, once);
	for (int i = 0; i < steps; i++) {
		alloc(w, d, 0x100000 + i, 4 * KIB, keeps);
		alloc(w, d, 0x20, 4 * KIB, keeps);
		alloc(w, d, 0x200000 + i, 64 * KIB, replaces);
		if (i)
			dealloc(w, d, 0x200000 + i - 1, 64 * KIB);
		alloc(w, d, 0x300000 + i, (i + 1) * KIB, enlarges);
		if (i)
			dealloc(w, d, 0x300000 + i - 1, i * KIB);
		dealloc(w, d, 0x20, 4 * KIB);
		step(w);
	}
}

static void check_train(const struct growth *g, uint32_t steps, uint64_t stride)
{
	assert_int_equal(g->clock, GROWTH_STEPS);
	assert_int_equal(g->steps + g->first_is_partial,
			 steps); /* the first step was active at attach */
	assert_int_equal(g->stride, stride);
	assert_int_equal(g->n, 2);
	assert_int_equal(g->lines[0].row.line, 1);
	assert_int_equal(g->lines[0].kind, GROWTH_PILES_UP);
	assert_int_equal(g->lines[0].trend.confidence, TREND_HIGH);
	assert_true(g->lines[0].per_step == 4.0 * KIB);
	assert_int_equal(g->lines[0].row.bytes, steps * 4 * KIB);
	assert_int_equal(g->lines[0].row.count, steps);
	assert_int_equal(g->lines[0].allocated, steps * 8 * KIB);
	assert_true(g->lines[0].survives[0] > 0.49 && g->lines[0].survives[0] < 0.51);
	assert_true(g->lines[0].survives[g->lines[0].ages - 1] == g->lines[0].survives[0]);
	assert_int_equal(g->lines[1].row.line, 3);
	assert_int_equal(g->lines[1].kind, GROWTH_ENLARGED);
	assert_int_equal(g->allocated.trend.verdict, TREND_GROWS);
	assert_int_equal(g->reserved.trend.verdict, TREND_FLAT);
}

static void test_lines(void **state)
{
	static const struct {
		int steps;
		uint64_t stride;
	} sizes[] = { { 60, 1 }, { 256, 1 }, { 257, 2 }, { 1000, 4 } };

	for (size_t i = 0; i < N(sizes); i++) {
		struct world w = watched(BY_LINE);
		struct growth g;

		train(&w, CUDA(0), sizes[i].steps);
		g = judged(&w, "cuda:0");
		check_train(&g, sizes[i].steps, sizes[i].stride);
		assert_int_equal(g.tested, 2);
		growth__free(&g);
		world__free(&w);
	}
}

/* Memory of the host is known only at readings. Three readings are too few for a verdict, however
 * many steps there are. A line of the CPU with the same values gets one. */
static void test_host_is_observed_at_readings(void **state)
{
	for (int readings = 4; readings <= 40; readings += 36) {
		struct world w = watched(BY_LINE);
		uint32_t line = simple(&w, "/home/u/a.py", "g", 9);
		struct growth g;

		for (int i = 0; i < 80; i++) {
			if (i % (80 / readings) == 0)
				alloc(&w, HOST, 0x1000 + i * KIB, KIB, line);
			step(&w);
		}
		g = judged(&w, "host");
		assert_int_equal(g.n, 1);
		assert_int_equal(g.observed, readings);
		assert_int_equal(g.lines[0].trend.verdict,
				 readings == 4 ? TREND_SHORT : TREND_GROWS);
		assert_int_equal(g.lines[0].trend.confidence,
				 readings == 4 ? TREND_NONE : TREND_HIGH);
		assert_true(g.lines[0].per_step > 0);
		growth__free(&g);
		world__free(&w);
	}
}

/* Single pages among much memory of the host are no growth; on another device each byte counts. */
static void test_pages_of_the_host(void **state)
{
	for (int host = 0; host < 2; host++) {
		struct world w = watched(BY_LINE);
		uint32_t line = simple(&w, "/home/u/a.py", "g", 9);
		struct device d = host ? HOST : CUDA(0);
		struct growth g;

		alloc(&w, d, 0x10000000, 200 << 20, line);
		for (int i = 0; i < 40; i++) {
			alloc(&w, d, 0x1000 + i * 4096, 4096, line);
			step(&w);
		}
		g = judged(&w, host ? "host" : "cuda:0");
		assert_int_equal(growth__count(&g, TREND_MEDIUM), !host);
		growth__free(&g);
		world__free(&w);
	}
}

/* Steps are counted as in reports: without the step that was active at attach. Its end still is a
 * value. */
static void test_steps_are_whole(void **state)
{
	static const char *const at[] = { "live", "start" };

	for (int i = 0; i < 2; i++) {
		struct world w = watched(BY_LINE);
		struct growth g;

		facts__set(w.f, "attached_at", at[i]);
		train(&w, CUDA(0), 60);
		g = judged(&w, "cuda:0");
		assert_int_equal(g.values, 60);
		assert_int_equal(g.steps, 59 + i);
		assert_int_equal(g.steps, model__whole_steps(w.m));
		assert_int_equal(g.first_is_partial, !i);
		/* A rise in the part of a step does not count. */
		assert_int_equal(g.lines[0].trend.intervals, g.steps);
		assert_int_equal(g.lines[0].trend.rises, g.steps);
		assert_int_equal(g.allocated.trend.intervals, g.steps);
		growth__free(&g);
		world__free(&w);
	}
}

static void name(struct world *w, struct device d, uint64_t addr, uint64_t size, const char *text)
{
	feed(w, (struct event){ .kind = EVENT_TENSOR,
				.device = d,
				.addr = addr,
				.size = size,
				.name = str(w, text) });
}

/* Blocks that the program frees at its end count as live, and keep their names. */
static void test_end_of_program(void **state)
{
	struct world w = watched(BY_LINE);
	struct growth g;

	train(&w, CUDA(0), 60);
	for (int i = 0; i < 40; i++)
		name(&w, CUDA(0), 0x100000 + i, 4 * KIB, i < 30 ? "global keep[*]" : "global x");
	name(&w, CUDA(0), 0x300000 + 59, 60 * KIB, "global old");
	alloc(&w, CUDA(0), 0x300000 + 60, 61 * KIB, simple(&w, "/home/u/a.py", "f", 3));
	dealloc(&w, CUDA(0), 0x300000 + 59, 60 * KIB);
	step(&w);
	for (int i = 0; i < 60; i++)
		dealloc(&w, CUDA(0), 0x100000 + i, 4 * KIB);
	g = judged(&w, "cuda:0");
	assert_int_equal(g.n, 2);
	assert_int_equal(g.lines[0].row.line, 1);
	assert_int_equal(g.lines[0].row.bytes, 60 * 4 * KIB);
	assert_int_equal(g.lines[0].nnames, 2);
	assert_string_equal(g.lines[0].names[0].text, "global keep[*]");
	assert_int_equal(g.lines[0].names[0].bytes, 30 * 4 * KIB);
	assert_int_equal(g.lines[0].names[0].count, 30);
	assert_string_equal(g.lines[0].names[1].text, "global x");
	assert_int_equal(g.lines[0].named, 40 * 4 * KIB);
	assert_int_equal(g.lines[1].nnames, 0); /* the step freed that block, not the end */
	growth__free(&g);
	world__free(&w);
}

/* Many names of a line are one pattern, also those with a key of their own. */
static void test_many_names(void **state)
{
	struct world w = watched(BY_LINE);
	struct growth g;
	char text[64];

	train(&w, CUDA(0), 60);
	for (int i = 0; i < 50; i++) {
		snprintf(text, sizeof(text), "layers.%d.lora.user%d.A", i % 2, i / 2);
		name(&w, CUDA(0), 0x100000 + i, 4 * KIB, i < 48 ? text : "global x");
	}
	step(&w);
	g = judged(&w, "cuda:0");
	assert_int_equal(g.lines[0].nnames, 2);
	assert_string_equal(g.lines[0].names[0].text, "layers.*.lora.*.A");
	assert_int_equal(g.lines[0].names[0].count, 48);
	assert_int_equal(g.lines[0].names[0].same, 1);
	assert_string_equal(g.lines[0].names[1].text, "global x");
	assert_int_equal(g.lines[0].names[1].count, 2);
	growth__free(&g);
	world__free(&w);
}

/* A lost record may be the missing free. */
static void test_losses(void **state)
{
	struct world w = watched(BY_LINE);
	struct growth g;

	train(&w, CUDA(0), 60);
	feed(&w, (struct event){ .kind = EVENT_LOST, .size = 5 });
	g = judged(&w, "cuda:0");
	assert_int_equal(g.n, 2);
	assert_int_equal(g.lines[0].trend.verdict, TREND_GROWS);
	assert_int_equal(g.lines[0].trend.confidence, TREND_MEDIUM);
	growth__free(&g);
	world__free(&w);
}

static void test_groups(void **state)
{
	static const enum group by[] = { BY_STACK, BY_MODULE, BY_CATEGORY };

	for (size_t i = 0; i < N(by); i++) {
		struct world w = watched(by[i]);
		struct growth g;

		train(&w, CUDA(0), 60);
		g = judged(&w, "cuda:0");
		assert_int_equal(g.n, by[i] == BY_STACK ? 2 : 1);
		assert_int_equal(g.lines[0].trend.verdict, TREND_GROWS);
		assert_true(g.lines[0].per_step == (by[i] == BY_STACK ? 4.0 : 5.0) * KIB);
		growth__free(&g);
		world__free(&w);
	}
}

/* Calls of a model are steps until the optimizer's first step. */
static void test_calls_then_steps(void **state)
{
	struct world w = watched(BY_LINE);
	struct growth g;

	for (int i = 0; i < 30; i++) {
		feed(&w, (struct event){ .kind = EVENT_CALL });
		alloc(&w, CPU, 0x900000 + i, KIB, simple(&w, "/home/u/a.py", "g", 9));
	}
	train(&w, CPU, 40);
	g = judged(&w, "cpu");
	check_train(&g, 40, 1);
	growth__free(&g);
	world__free(&w);
}

static void test_calls(void **state)
{
	uint32_t line = 0;
	struct world w = watched(BY_LINE);
	struct growth g;

	line = simple(&w, "/home/u/a.py", "g", 9);
	for (int i = 0; i < 30; i++) {
		feed(&w, (struct event){ .kind = EVENT_CALL });
		alloc(&w, CPU, 0x900000 + i, 4 * KIB, line);
	}
	g = judged(&w, "cpu");
	assert_int_equal(g.clock, GROWTH_CALLS);
	assert_int_equal(g.n, 1);
	assert_int_equal(g.lines[0].trend.confidence, TREND_MEDIUM); /* few calls */
	growth__free(&g);
	world__free(&w);
}

/* Activations are live at the end of a call, and freed by the backward pass before the next one. If
 * the batches grow, so do they; nothing stays. */
static void test_calls_before_backward(void **state)
{
	struct world w = watched(BY_LINE);
	uint32_t net = module(&w, "", "Net", "Net"), forward, backward;
	struct growth g;

	forward = stack_of(&w,
			   (struct frame_spec[]){ { "/home/u/a.py", "main", 0 },
						  { "/home/u/a.py", "forward", net } },
			   2, MT_WALK_OK);
	backward = simple(&w, "/home/u/a.py", "main", 9);
	for (uint64_t i = 0; i < 60; i++) {
		uint64_t size = (1 + i / 4) * 1000 * KIB;

		feed(&w, (struct event){ .kind = EVENT_CALL, .module = net });
		alloc(&w, CPU, 0x900000, size, forward);
		alloc(&w, CPU, 0x10, KIB, backward); /* outside of the call: it has ended */
		dealloc(&w, CPU, 0x900000, size);
		dealloc(&w, CPU, 0x10, KIB);
	}
	g = judged(&w, "cpu");
	assert_int_equal(g.clock, GROWTH_CALLS);
	assert_int_equal(g.steps, 60);
	assert_int_equal(g.n, 0);
	assert_true(growth__peaks_grow(&g, TREND_MEDIUM));
	growth__free(&g);
	world__free(&w);
}

/* Each request has its own thread: a call ends when the next one begins, in any of them. */
static void test_calls_of_many_threads(void **state)
{
	struct world w = watched(BY_LINE);
	uint32_t net = module(&w, "", "Net", "Net"), line, other;
	struct growth g;
	struct model_step first, last;

	line = stack_of(&w,
			(struct frame_spec[]){ { "/home/u/a.py", "main", 0 },
					       { "/home/u/a.py", "handle", net } },
			2, MT_WALK_OK);
	other = simple(&w, "/home/u/a.py", "reply", 9);
	for (int i = 0; i < 60; i++) {
		uint32_t thread = dict__thread(
			w.d, (struct dict_thread){ .tid = 1000 + i, .name = str(&w, "python") });

		feed(&w, (struct event){ .kind = EVENT_CALL, .module = net, .thread = thread });
		feed(&w, (struct event){ .kind = EVENT_ALLOC,
					 .device = CPU,
					 .addr = 0x900000 + i,
					 .size = 64 * KIB,
					 .stack = line,
					 .thread = thread });
		/* a thread outside of the call does not end it */
		alloc(&w, CPU, 0x10, KIB, other);
		dealloc(&w, CPU, 0x10, KIB);
	}
	g = judged(&w, "cpu");
	assert_int_equal(g.clock, GROWTH_CALLS);
	assert_int_equal(g.steps, 60);
	assert_int_equal(g.n, 1);
	assert_true(g.lines[0].per_step == 64.0 * KIB);
	assert_int_equal(g.lines[0].trend.rises, 59); /* nothing ended the last call */
	model__step(w.m, 0, &first);
	model__step(w.m, 59, &last);
	assert_true(last.end_allocated - first.end_allocated == 59 * 64 * KIB);
	assert_true(last.end > last.start);
	growth__free(&g);
	world__free(&w);
}

/* The same line also allocates memory that each step frees: a leak has only what was live at one
 * moment, also if the program goes on after the last step. */
static void test_bytes_were_live(void **state)
{
	struct world w = watched(BY_LINE);
	uint32_t line = simple(&w, "/home/u/a.py", "f", 7);
	struct growth g;

	for (int i = 0; i < 60; i++) {
		alloc(&w, CUDA(0), 0x900000 + i, 16 * KIB, line);
		if (i < 59)
			alloc(&w, CUDA(0), 0x10, 32 * KIB, line);
		if (i < 59)
			dealloc(&w, CUDA(0), 0x10, 32 * KIB);
		step(&w);
	}
	/* a step that is not over */
	alloc(&w, CUDA(0), 0xa00000, 16 * KIB, line);
	name(&w, CUDA(0), 0xa00000, 16 * KIB, "local x");
	for (int i = 0; i < 3; i++) {
		alloc(&w, CUDA(0), 0x10, 32 * KIB, line);
		dealloc(&w, CUDA(0), 0x10, 32 * KIB);
	}
	g = judged(&w, "cuda:0");
	assert_int_equal(g.n, 1);
	assert_int_equal(g.lines[0].row.bytes, 61 * 16 * KIB); /* all are live */
	assert_int_equal(g.lines[0].row.count, 61);
	growth__free(&g);
	dealloc(&w, CUDA(0), 0xa00000, 16 * KIB); /* the program ends */
	for (int i = 0; i < 59; i++)
		dealloc(&w, CUDA(0), 0x900000 + i, 16 * KIB);
	g = judged(&w, "cuda:0");
	assert_int_equal(g.n, 1);
	assert_int_equal(g.lines[0].row.bytes, 60 * 16 * KIB); /* at the last step's end */
	assert_int_equal(g.lines[0].row.count, 60);
	assert_int_equal(g.lines[0].named, 0);
	growth__free(&g);
	world__free(&w);
}

/* A request allocates its prompt on two devices, calls the model some times, and keeps 4 of 8 KiB. */
static void serve(struct world *w, int requests)
{
	uint32_t prompt = simple(w, "/home/u/a.py", "f", 5),
		 keeps = simple(w, "/home/u/a.py", "g", 9),
		 other = simple(w, "/home/u/aa.py", "f", 5);

	for (int i = 0; i < requests; i++) {
		alloc(w, CPU, 0x10, 512, prompt);
		alloc(w, CUDA(0), 0x20, 512, prompt);
		alloc(w, CPU, 0x30, 512, other);
		for (int k = 0; k < 3 + i % 5; k++)
			feed(w, (struct event){ .kind = EVENT_CALL });
		alloc(w, CUDA(0), 0x100000 + i, 4 * KIB, keeps);
		alloc(w, CUDA(0), 0x40, 4 * KIB, keeps);
		dealloc(w, CUDA(0), 0x40, 4 * KIB);
		dealloc(w, CUDA(0), 0x20, 512);
		dealloc(w, CPU, 0x10, 512);
	}
}

static void test_requests(void **state)
{
	static const int sizes[] = { 60, 256, 257, 1000 };

	for (size_t i = 0; i < N(sizes); i++) {
		struct world w = watched(BY_LINE);
		uint64_t n = (uint64_t)sizes[i];
		struct growth g;

		assert_int_equal(growth__use_requests_at(w.m, "u/a.py", 5), 0);
		serve(&w, sizes[i]);
		g = judged(&w, "cuda:0");
		assert_int_equal(growth__requests(w.m), n);
		assert_int_equal(g.clock, GROWTH_REQUESTS);
		assert_int_equal(g.steps, n);
		assert_false(g.first_is_partial);
		assert_string_equal(g.request.device, "cpu");
		assert_int_equal(g.request.line, 5);
		assert_true(g.request.seconds > 0.010 && g.request.seconds < 0.014);
		assert_int_equal(g.n, 1);
		assert_int_equal(g.lines[0].row.line, 9);
		assert_int_equal(g.lines[0].trend.confidence, TREND_HIGH);
		assert_true(g.lines[0].per_step == 4.0 * KIB);
		assert_int_equal(g.lines[0].allocations, 2 * n);
		assert_true(g.lines[0].per_block == 2.0 * KIB);
		assert_int_equal(g.lines[0].kind, GROWTH_PILES_UP);
		/* blocks of the last request had none to survive */
		assert_true(g.lines[0].survives[0] > 0.49 && g.lines[0].survives[0] < 0.52);
		assert_true(g.lines[0].survives[g.lines[0].ages - 1] == g.lines[0].survives[0]);
		growth__free(&g);
		world__free(&w);
	}
}

/* No request, and no watch. */
static void test_no_request(void **state)
{
	struct world w = world__new(AT_END, 0);
	struct growth g;

	assert_int_equal(growth__use_requests_at(w.m, "a.py", 5), -EINVAL);
	assert_int_equal(growth__watch(w.m, BY_STACK), 0);
	assert_int_equal(growth__use_requests_at(w.m, "a.py", 6), 0);
	serve(&w, 20);
	g = judged(&w, "cuda:0");
	assert_int_equal(growth__requests(w.m), 0);
	assert_int_equal(g.clock, GROWTH_REQUESTS);
	assert_int_equal(g.n, 0);
	growth__free(&g);
	world__free(&w);
}

/* Without steps, slices of time; the end, where everything is freed, does not count. */
static void test_time(void **state)
{
	struct world w = watched(BY_LINE);
	uint32_t line = simple(&w, "/home/u/a.py", "g", 9);
	struct growth g;

	for (int i = 0; i < 5000; i++)
		alloc(&w, CPU, 0x900000 + i, 100, line);
	w.time += 3000 * MS;
	for (int i = 0; i < 5000; i++)
		dealloc(&w, CPU, 0x900000 + i, 100);
	g = judged(&w, "cpu");
	assert_int_equal(g.clock, GROWTH_TIME);
	assert_true(g.values > 60 && g.values <= TREND_MAX);
	assert_int_equal(g.n, 1);
	assert_int_equal(g.lines[0].trend.confidence, TREND_HIGH);
	/* 100 bytes per ms */
	assert_true(g.lines[0].per_step > 99e3 && g.lines[0].per_step < 101e3);
	growth__free(&g);
	world__free(&w);
}

/* Times in a file may be arbitrary. */
static void test_time_jumps(void **state)
{
	struct world w = watched(BY_LINE);
	uint32_t line = simple(&w, "/home/u/a.py", "g", 9);
	struct growth g;

	for (int i = 0; i < 10; i++) {
		w.time = i % 2 ? UINT64_MAX - MS * 3 : 0;
		alloc(&w, CPU, 0x900000 + i, 4096, line);
	}
	g = judged(&w, "cpu");
	assert_int_equal(g.clock, GROWTH_TIME);
	assert_true(g.values <= TREND_MAX);
	growth__free(&g);
	world__free(&w);
}

/* Memory from before attach has no line and can only shrink. */
static void test_before_attach(void **state)
{
	struct world w = watched(BY_LINE);
	struct growth g;

	for (int i = 0; i < 20; i++)
		feed(&w, (struct event){ .kind = EVENT_BLOCK,
					 .device = CUDA(0),
					 .addr = 0x700000 + i,
					 .size = 4096 });
	for (int i = 0; i < 20; i++) {
		feed(&w, (struct event){ .kind = EVENT_FREE,
					 .device = CUDA(0),
					 .addr = 0x700000 + i,
					 .size = 4096 });
		step(&w);
	}
	g = judged(&w, "cuda:0");
	assert_int_equal(g.n, 0);
	growth__free(&g);
	world__free(&w);
}

/* The device's totals include memory found later to be from before attach, as in a report of each
 * moment. */
static void test_sums_have_what_was_there_before(void **state)
{
	struct world w = watched(BY_LINE);
	uint32_t line = simple(&w, "/home/u/a.py", "f", 1);
	struct growth g;

	for (int i = 0; i < 20; i++) {
		alloc(&w, CPU, 0x1000 + i, 4096, line);
		if (i == 10)
			feed(&w, (struct event){ .kind = EVENT_TENSOR,
						 .device = CPU,
						 .addr = 0x900000,
						 .size = 1000000,
						 .flags = CENSUS_FIRST,
						 .category = CATEGORY_PARAMETER });
		step(&w);
	}
	g = judged(&w, "cpu");
	assert_int_equal(g.values, 20);
	for (int i = 0; i < 20; i++)
		assert_int_equal(g.allocated.values[i], 1000000 + 4096 * (i + 1));
	growth__free(&g);
	world__free(&w);
}

static void test_pool(void **state)
{
	struct world w = watched(BY_LINE);
	uint32_t line = simple(&w, "/home/u/a.py", "g", 9);
	struct growth g;

	for (int i = 0; i < 60; i++) {
		w.reserved = (i + 1) * KIB * KIB * 2;
		alloc(&w, CUDA(0), 0x10, KIB * KIB, line);
		dealloc(&w, CUDA(0), 0x10, KIB * KIB);
		step(&w);
	}
	g = judged(&w, "cuda:0");
	assert_int_equal(g.n, 0);
	assert_true(g.has_reserved);
	assert_int_equal(g.reserved.trend.verdict, TREND_GROWS);
	assert_true(g.reserved.per_step == 2.0 * 1024 * 1024);
	assert_int_equal(g.allocated.trend.verdict, TREND_FLAT);
	growth__free(&g);
	world__free(&w);
}

static void test_nobody_watched(void **state)
{
	struct world w = world__new(AT_END, 0);
	struct growth g;

	assert_int_equal(growth__watch(w.m, BY_THREAD), -EINVAL);
	train(&w, CPU, 3);
	model__finish(w.m, w.time);
	assert_int_equal(growth__judge(w.m, 0, 0, &g), -EINVAL);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_figures),
		cmocka_unit_test(test_slope),
		cmocka_unit_test(test_too_short),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_host_is_observed_at_readings),
		cmocka_unit_test(test_chance),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_pages_of_the_host),
		cmocka_unit_test(test_steps_are_whole),
		cmocka_unit_test(test_end_of_program),
		cmocka_unit_test(test_many_names),
		cmocka_unit_test(test_losses),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_calls_then_steps),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_calls_before_backward),
		cmocka_unit_test(test_calls_of_many_threads),
		cmocka_unit_test(test_bytes_were_live),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_no_request),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_time_jumps),
		cmocka_unit_test(test_before_attach),
		cmocka_unit_test(test_sums_have_what_was_there_before),
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_nobody_watched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
