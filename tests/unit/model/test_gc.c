/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A model that drops old data gives the same results as a model that keeps all; sums include
 * dropped data. */
#include "unit/model_world.h"

#define EVENTS 60000
#define KEPT 256
#define SLOTS 300

struct pair {
	struct world all; /* model without dropping */
	struct model *little;
	uint32_t stacks[20];
};

static struct pair pair__new(void)
{
	struct pair p = { .all = world__new(AT_PEAK, 0) };
	struct model_opts opts = { .at = AT_PEAK, .sites = KEPT };

	p.little = model__new(p.all.d, p.all.f, &opts);
	assert_non_null(p.little);
	for (uint32_t i = 0; i < 20; i++) {
		struct dict_frame f = {
			.loc = dict__loc(p.all.d, (struct dict_loc){ str(&p.all, "/job/a.py"),
								     str(&p.all, "f"), 1 + i })
		};

		p.stacks[i] = dict__stack(p.all.d, &f, 1, MT_WALK_OK);
	}
	return p;
}

static void pair__free(struct pair *p)
{
	model__free(p->little);
	world__free(&p->all);
}

static void feed_both(struct pair *p, struct event e)
{
	p->all.time += MS;
	e.time = p->all.time;
	assert_int_equal(model__event(p->all.m, &e), 0);
	assert_int_equal(model__event(p->little, &e), 0);
}

static uint64_t sum(const struct row *rows, size_t n)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += rows[i].bytes;
	return bytes;
}

/* Compares all rows and their texts. */
static void check_same(const struct pair *p, enum group by, enum row_when when)
{
	const struct row_opts opts = { .by = by, .when = when };
	struct row *x, *y;
	size_t n, m;

	assert_int_equal(model__rows(p->all.m, 0, &opts, &x, &n), 0);
	assert_int_equal(model__rows(p->little, 0, &opts, &y, &m), 0);
	assert_int_equal(n, m);
	assert_true(n > 1);
	for (size_t i = 0; i < n; i++) {
		assert_true(x[i].bytes == y[i].bytes && x[i].count == y[i].count &&
			    x[i].requested == y[i].requested);
		assert_true(x[i].line == y[i].line && x[i].tid == y[i].tid &&
			    x[i].phase == y[i].phase);
		assert_true((!x[i].name && !y[i].name) || !strcmp(x[i].name, y[i].name));
		if (when != ROWS_TOTAL)
			assert_true(x[i].median == y[i].median);
	}
	free(x);
	free(y);
}

static uint64_t size_of(uint64_t i, bool ever_new)
{
	return ever_new ? 512 * (1 + i) : 512 * (1 + i % 5);
}

/* threads: number of threads in turns. The number of live blocks sometimes rises, so new peaks
 * occur. */
static void run(struct pair *p, bool ever_new, uint32_t threads)
{
	uint64_t live[SLOTS] = { 0 }, allocated = 0;
	uint32_t name[3] = { str(&p->all, "a"), str(&p->all, "b"), str(&p->all, "c") };

	for (uint64_t i = 0; i < EVENTS; i++) {
		uint64_t slot = i * 7 % (100 + i * 200 / EVENTS), addr = 4096 + slot * 65536;
		struct event e = { .device = CUDA(0), .totals = true, .addr = addr };

		if (live[slot]) {
			allocated -= live[slot];
			e.kind = EVENT_FREE;
			e.size = live[slot];
			e.allocated = e.reserved = allocated;
			live[slot] = 0;
			feed_both(p, e);
			continue;
		}
		live[slot] = size_of(i, ever_new);
		allocated += live[slot];
		e.kind = EVENT_ALLOC;
		e.size = live[slot];
		e.allocated = e.reserved = allocated;
		e.stack = p->stacks[i % 20];
		e.thread = dict__thread(p->all.d,
					(struct dict_thread){ .tid = 1000 + (uint32_t)i % threads,
							      .name = name[0] });
		e.requested = live[slot] - 1 - i % 500; /* new sizes, too */
		feed_both(p, e);
		if (i % 11 == 0)
			feed_both(p, (struct event){ .kind = EVENT_TENSOR,
						     .device = CUDA(0),
						     .addr = addr,
						     .size = live[slot],
						     .category = CATEGORY_ACTIVATION,
						     .name = name[i % 3] });
		if (i % 1000 == 0)
			feed_both(p, (struct event){ .kind = EVENT_STEP });
	}
}

static void check_devices(const struct pair *p)
{
	struct model_device x, y;

	model__device(p->all.m, 0, &x);
	model__device(p->little, 0, &y);
	assert_int_equal(y.drift, 0);
	assert_true(x.peak_allocated == y.peak_allocated && x.allocated == y.allocated &&
		    x.live == y.live);
	assert_true(x.live_blocks == y.live_blocks && x.allocs == y.allocs &&
		    x.total_allocated == y.total_allocated);
}

static void test_ever_new_sizes(void **state)
{
	struct pair p = pair__new();
	const struct row_opts total = { .by = BY_LINE, .when = ROWS_TOTAL };
	struct model_device d;
	struct row *rows;
	size_t n;

	run(&p, true, 3);
	check_devices(&p);
	check_same(&p, BY_LINE, ROWS_NOW);
	check_same(&p, BY_LINE, ROWS_AT_MARK);
	check_same(&p, BY_THREAD, ROWS_AT_MARK);
	check_same(&p, BY_CATEGORY, ROWS_AT_MARK);
	/* 20 lines on 3 threads are few: each line is kept, but not its sizes. */
	check_same(&p, BY_LINE, ROWS_TOTAL);
	check_same(&p, BY_THREAD, ROWS_TOTAL);
	model__device(p.little, 0, &d);
	assert_int_equal(model__rows(p.little, 0, &total, &rows, &n), 0);
	assert_true(sum(rows, n) == d.total_allocated);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(rows[i].median, 0);
	free(rows);
	pair__free(&p);
}

/* With too many threads even per-thread sums are dropped; the total remains exact. */
static void test_ever_new_threads(void **state)
{
	struct pair p = pair__new();
	const struct row_opts total = { .by = BY_LINE, .when = ROWS_TOTAL };
	uint64_t unknown = 0;
	struct model_device d;
	struct row *rows;
	size_t n;

	run(&p, true, EVENTS);
	check_devices(&p);
	check_same(&p, BY_LINE, ROWS_NOW);
	check_same(&p, BY_THREAD, ROWS_AT_MARK);
	model__device(p.little, 0, &d);
	assert_int_equal(model__rows(p.little, 0, &total, &rows, &n), 0);
	assert_true(sum(rows, n) == d.total_allocated);
	for (size_t i = 0; i < n; i++)
		unknown += rows[i].file ? 0 : rows[i].bytes;
	assert_true(unknown > d.total_allocated / 2 && unknown < d.total_allocated);
	free(rows);
	pair__free(&p);
}

/* With few blocks nothing is dropped, also not medians. */
static void test_few(void **state)
{
	struct pair p = pair__new();
	const struct row_opts total = { .by = BY_LINE, .when = ROWS_TOTAL };
	struct row *rows;
	size_t n;

	run(&p, false, 1);
	check_same(&p, BY_LINE, ROWS_TOTAL);
	assert_int_equal(model__rows(p.all.m, 0, &total, &rows, &n), 0);
	for (size_t i = 0; i < n; i++)
		assert_true(rows[i].median > 0);
	free(rows);
	pair__free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ever_new_sizes),
		cmocka_unit_test(test_ever_new_threads),
		cmocka_unit_test(test_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
