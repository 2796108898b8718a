/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The heap state machine: sequences with known results, and random ones compared with a naive
 * model. */
#include "unit/model_world.h"

static void test_peak_rises_twice(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/home/u/a.py", "f", 1), b = simple(&w, "/home/u/a.py", "f", 2);
	struct model_device d;
	struct row *r;
	size_t n;

	w.reserved = 4096;
	alloc(&w, CUDA(0), 0x10, 100, a);
	alloc(&w, CUDA(0), 0x20, 50, b); /* first peak: 150 */
	dealloc(&w, CUDA(0), 0x20, 50);
	alloc(&w, CUDA(0), 0x30, 20, b);
	w.reserved = 8192;
	alloc(&w, CUDA(0), 0x40, 300, b); /* second: 420, at 5 ms */
	alloc(&w, CUDA(0), 0x50, 0, b);	  /* equal to the peak, so no new peak */
	dealloc(&w, CUDA(0), 0x10, 100);
	dealloc(&w, CUDA(0), 0x40, 300);
	alloc(&w, CUDA(0), 0x60, 1, a);
	model__finish(w.m, w.time);
	d = device(&w, "cuda:0");
	assert_int_equal(d.peak_allocated, 420);
	assert_int_equal(d.peak_time, 5 * MS);
	assert_int_equal(d.peak_reserved, 8192);
	assert_int_equal(d.allocated, 21);
	assert_int_equal(d.live, 21);
	assert_int_equal(d.live_blocks, 3);
	assert_int_equal(d.before_attach_start, 0);
	assert_int_equal(d.total_allocated, 471);
	assert_int_equal(d.allocs, 6);
	assert_int_equal(d.frees, 3);
	assert_int_equal(d.drift, 0);
	assert_true(d.marked);
	assert_int_equal(d.mark_allocated, 420);
	assert_int_equal(d.mark_time, 5 * MS);
	r = rows(&w, "cuda", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(n, 2);
	assert_int_equal(rows_sum(r, n), 420);
	assert_int_equal(by_line(r, n, 2)->bytes, 320);
	assert_int_equal(by_line(r, n, 2)->count, 2);
	assert_int_equal(by_line(r, n, 2)->median, 300);
	assert_int_equal(by_line(r, n, 1)->bytes, 100);
	free(r);
	r = rows(&w, "cuda:0", BY_LINE, ROWS_NOW, &n);
	assert_int_equal(rows_sum(r, n), 21);
	free(r);
	r = rows(&w, "cuda:0", BY_LINE, ROWS_TOTAL, &n);
	assert_int_equal(rows_sum(r, n), 471);
	assert_int_equal(by_line(r, n, 2)->count, 4);
	free(r);
	world__free(&w);
}

static void test_end(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
	struct row_opts o = { .by = BY_LINE };
	struct row *r;
	size_t n;

	alloc(&w, CUDA(0), 1, 100, a);
	alloc(&w, CUDA(0), 2, 7, a);
	dealloc(&w, CUDA(0), 1, 100);
	assert_int_equal(model__rows(w.m, 0, &o, &r, &n), -ENOENT);
	assert_false(device(&w, "cuda").marked);
	model__finish(w.m, 10 * MS);
	r = rows(&w, "cuda:0", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(n, 1);
	assert_int_equal(r[0].bytes, 7);
	assert_int_equal(device(&w, "cuda").mark_time, 10 * MS);
	free(r);
	world__free(&w);
}

static void check_now(struct world *w, uint64_t sum)
{
	for (int by = BY_LINE; by <= BY_STACK; by++) {
		size_t n;
		struct row *r = rows(w, "cuda:0", by, ROWS_NOW, &n);

		assert_int_equal(rows_sum(r, n), sum);
		free(r);
	}
}

/* A model that has ended keeps classes of blocks for the next rows, until it changes. */
static void test_rows_after_the_end(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
	struct row *r;
	size_t n;

	alloc(&w, CUDA(0), 1, 100, a);
	check_now(&w, 100);
	model__finish(w.m, 10 * MS);
	check_now(&w, 100);
	alloc(&w, CUDA(0), 2, 7, a);
	check_now(&w, 107);
	dealloc(&w, CUDA(0), 1, 100);
	check_now(&w, 7);
	model__note(w.m, ROWS_AT_BASE, 11 * MS);
	r = rows(&w, "cuda:0", BY_LINE, ROWS_AT_BASE, &n);
	assert_int_equal(rows_sum(r, n), 7);
	free(r);
	model__note(w.m, ROWS_AT_BASE, 12 * MS);
	r = rows(&w, "cuda:0", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(rows_sum(r, n), 100);
	free(r);
	world__free(&w);
}

static void test_oom_is_the_first(void **state)
{
	struct world w = world__new(AT_OOM, 0);
	uint32_t a = simple(&w, "/home/u/a.py", "f", 1), b = simple(&w, "/home/u/a.py", "f", 2);
	struct row_opts o = { .by = BY_LINE };
	struct row *r;
	size_t n;

	alloc(&w, CUDA(0), 1, 100, a);
	assert_int_equal(model__rows(w.m, 0, &o, &r, &n), -ENOENT);
	oom(&w, CUDA(0), 1000);
	alloc(&w, CUDA(0), 2, 7, b);
	dealloc(&w, CUDA(0), 1, 100);
	oom(&w, CUDA(0), 1000);
	model__finish(w.m, w.time);
	r = rows(&w, "cuda:0", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(n, 1);
	assert_int_equal(r[0].bytes, 100);
	assert_int_equal(r[0].line, 1);
	assert_int_equal(device(&w, "cuda").ooms, 2);
	assert_int_equal(device(&w, "cuda").mark_time, 2 * MS);
	free(r);
	world__free(&w);
}

/* Events at 1, 2, 3 ms; the live blocks at each moment. */
static void test_time(void **state)
{
	static const struct {
		uint64_t at, bytes;
	} cases[] = {
		{ 0, 500 },	 { 1 * MS, 600 }, { 2 * MS - 1, 600 },
		{ 2 * MS, 607 }, { 3 * MS, 507 }, { 900 * MS, 507 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct world w = world__new(AT_TIME, cases[i].at);
		uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
		struct row *r;
		size_t n;

		w.allocated[0] = 500; /* bytes from before attach */
		alloc(&w, CUDA(0), 1, 100, a);
		alloc(&w, CUDA(0), 2, 7, a);
		dealloc(&w, CUDA(0), 1, 100);
		model__finish(w.m, 3 * MS);
		r = rows(&w, "cuda:0", BY_LINE, ROWS_AT_MARK, &n);
		assert_int_equal(rows_sum(r, n), cases[i].bytes);
		assert_int_equal(device(&w, "cuda").mark_allocated, cases[i].bytes);
		free(r);
		world__free(&w);
	}
}

/* A moment before the first event of a window is the window's start, with the blocks that a reading
 * found. Only events of an allocator with totals have them. */
static void test_time_before_a_window(void **state)
{
	for (uint64_t at = 0; at <= 40 * MS; at += 20 * MS) {
		for (int cuda = 0; cuda < 2; cuda++) {
			struct world w = world__new(AT_TIME, at);
			uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
			struct device where = cuda ? CUDA(0) : CPU;
			const char *name = cuda ? "cuda:0" : "cpu";
			struct row *r;
			size_t n;

			for (int i = 0; i < 4; i++) {
				struct event e = { .kind = EVENT_BLOCK,
						   .device = where,
						   .time = 40 * MS,
						   .addr = 100 + i,
						   .size = 1000 };

				if (i == 3)
					e = (struct event){ .kind = EVENT_STATE,
							    .device = where,
							    .time = 40 * MS,
							    .totals = true,
							    .flags = STATE_EXACT,
							    .allocated = 3000,
							    .reserved = 4000 };
				if (i < 3 || cuda)
					assert_int_equal(model__event(w.m, &e), 0);
			}
			w.allocated[0] = 3000;
			w.time = 41 * MS;
			alloc(&w, where, 1, 100, a);
			dealloc(&w, where, 100, 1000);
			model__finish(w.m, 50 * MS);
			r = rows(&w, name, BY_LINE, ROWS_AT_MARK, &n);
			assert_int_equal(rows_sum(r, n), 3000);
			assert_int_equal(device(&w, name).mark_allocated, 3000);
			assert_int_equal(model__opts(w.m).at_time, 40 * MS);
			free(r);
			world__free(&w);
		}
	}
}

static void set_mark(struct world *w, const char *name)
{
	feed(w, (struct event){ .kind = EVENT_MARK, .name = str(w, name) });
}

/* A moment given as a mark is that of the first one of this name or pattern. */
static void test_at_mark(void **state)
{
	static const struct {
		const char *asked;
		uint64_t bytes;
		bool there;
	} cases[] = {
		{ "a 1", 100, true }, { "a*", 100, true }, { "b", 107, true },
		{ "[b]", 107, true }, { "*", 0, true }, /* before all of them */
		{ "c", 1107, false },
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct world w = world__new(AT_END, 0);
		struct model_opts opts = { .at = AT_TIME, .at_time = UINT64_MAX };
		uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
		uint64_t time;

		strcpy(opts.at_mark, cases[i].asked);
		model__free(w.m);
		w.m = model__new(w.d, w.f, &opts);
		assert_non_null(w.m);
		set_mark(&w, "first");
		alloc(&w, CUDA(0), 1, 100, a);
		set_mark(&w, "a 1");
		alloc(&w, CUDA(0), 2, 7, a);
		set_mark(&w, "b");
		alloc(&w, CUDA(0), 3, 1000, a);
		for (int more = 0; more < MODEL_MARKS; more++)
			set_mark(&w, "a 2");
		model__finish(w.m, w.time);
		assert_int_equal(device(&w, "cuda").mark_allocated, cases[i].bytes);
		assert_int_equal(*model__opts(w.m).at_mark == '\0', cases[i].there);
		assert_int_equal(model__marks(w.m), MODEL_MARKS + 3);
		assert_string_equal(model__mark(w.m, 1, &time), "a 1");
		assert_int_equal(time, 3 * MS);
		assert_string_equal(model__mark(w.m, MODEL_MARKS - 1, &time), "a 2");
		world__free(&w);
	}
}

static void test_before_attach(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
	struct model_device d;
	struct row *r;
	size_t n;

	w.allocated[0] = 1000;
	dealloc(&w, CUDA(0), 0x99, 300); /* a block from before attach; the peak is earlier */
	alloc(&w, CUDA(0), 0x10, 200, a);
	d = device(&w, "cuda");
	assert_int_equal(d.before_attach_start, 1000);
	assert_int_equal(d.before_attach, 700);
	assert_int_equal(d.frees_unknown, 1);
	assert_int_equal(d.peak_allocated, 1000);
	assert_int_equal(d.mark_before_attach, 1000);
	assert_int_equal(d.drift, 0);
	r = rows(&w, "cuda", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(n, 1);
	assert_true(r[0].before_attach);
	assert_int_equal(r[0].bytes, 1000);
	assert_string_equal(r[0].source, "census");
	assert_null(r[0].file);
	free(r);
	alloc(&w, CUDA(0), 0x20, 600, a);
	r = rows(&w, "cuda", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(n, 2);
	assert_int_equal(rows_sum(r, n), 1500);
	assert_int_equal(r[0].bytes, 800);
	assert_int_equal(r[1].bytes, 700);
	assert_true(r[1].before_attach);
	free(r);
	assert_int_equal(device(&w, "cuda").drift, 0);
	world__free(&w);
}

/* Losses reported after the moment may be from before it: figures are inexact until totals
 * arrive. */
static void test_moment_and_losses(void **state)
{
	static const struct {
		bool totals_between, cpu;
		enum figure is;
	} cases[] = {
		{ false, false, FIGURE_NOT_EXACT },
		{ true, false, FIGURE_EXACT },
		{ false, true, FIGURE_NOT_EXACT },
		{ true, true, FIGURE_NOT_EXACT },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world w = world__new(AT_TIME, MS * 3 / 2);
		uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
		struct device where = cases[i].cpu ? CPU : CUDA(0);

		alloc(&w, where, 1, 100, a);
		if (cases[i].totals_between)
			alloc(&w, where, 2, 100, a);
		feed(&w, (struct event){ .kind = EVENT_LOST, .size = 3 });
		alloc(&w, where, 3, 100, a);
		assert_int_equal(device(&w, cases[i].cpu ? "cpu" : "cuda").mark_is, cases[i].is);
		world__free(&w);
	}
}

/* Without totals and without the start, memory from before attach is missing. */
static void test_exact_means_exact(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/home/u/a.py", "f", 1);

	(void)state;
	facts__set(w.f, "attached_at", "live");
	alloc(&w, CPU, 1, 100, a);
	alloc(&w, CUDA(0), 2, 100, a);
	assert_int_equal(device(&w, "cpu").allocated_is, FIGURE_SINCE_ATTACH);
	assert_int_equal(device(&w, "cpu").peak_is, FIGURE_SINCE_ATTACH);
	assert_int_equal(device(&w, "cuda").allocated_is, FIGURE_EXACT);
	facts__set(w.f, "attached_at", "start");
	assert_int_equal(device(&w, "cpu").allocated_is, FIGURE_EXACT);
	facts__set(w.f, "attached_at", "live");
	feed(&w, (struct event){ .kind = EVENT_LOST, .size = 3 });
	assert_int_equal(device(&w, "cpu").allocated_is, FIGURE_NOT_EXACT);
	world__free(&w);
}

/* The driver reports use of a device on which PyTorch has nothing: that is known. */
static void test_empty_device(void **state)
{
	struct world w = world__new(AT_PEAK, 0);

	(void)state;
	facts__set(w.f, "attached_at", "live");
	facts__set(w.f, "allocator", "native");
	feed(&w, (struct event){ .kind = EVENT_USED, .device = CUDA(0), .size = 500 });
	assert_int_equal(device(&w, "cuda").peak_is, FIGURE_NOT_EXACT);
	assert_false(device(&w, "cuda").empty);
	facts__set(w.f, "census", "1");
	assert_int_equal(device(&w, "cuda").peak_is, FIGURE_SINCE_ATTACH);
	assert_true(device(&w, "cuda").empty);
	/* Reports show the CPU, unless CUDA was out of memory at once. */
	assert_int_equal(model__main_device(w.m), 0);
	alloc(&w, CPU, 1, 100, simple(&w, "/home/u/a.py", "f", 1));
	assert_int_equal(model__main_device(w.m), 1);
	feed(&w, (struct event){ .kind = EVENT_OOM, .device = CUDA(0), .size = 500 });
	assert_int_equal(model__main_device(w.m), 0);
	world__free(&w);
}

static void test_drift(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
	struct model_device d;

	alloc(&w, CUDA(0), 1, 100, a);
	w.allocated[0] += 40; /* a lost allocation */
	assert_int_equal(device(&w, "cuda").peak_is, FIGURE_EXACT);
	feed(&w, (struct event){ .kind = EVENT_LOST, .size = 3 });
	assert_int_equal(device(&w, "cuda").allocated_is, FIGURE_NOT_EXACT);
	alloc(&w, CUDA(0), 2, 8, a);
	d = device(&w, "cuda");
	/* it may be from before the loss */
	assert_int_equal(d.allocated_is, FIGURE_NOT_EXACT);
	feed(&w, (struct event){ .kind = EVENT_LOST });
	assert_int_equal(device(&w, "cuda").allocated_is, FIGURE_NOT_EXACT);
	assert_int_equal(d.drift, 40);
	assert_int_equal(d.drift_events, 1);
	assert_int_equal(d.allocated, 148); /* the allocator reports 148 bytes */
	assert_int_equal(d.live, 108);
	w.allocated[0] -= 100; /* the free of 1 was lost: its address is allocated again */
	alloc(&w, CUDA(0), 1, 60, a);
	d = device(&w, "cuda");
	assert_int_equal(d.peak_is, FIGURE_LOWER_BOUND); /* permanently */
	assert_int_equal(d.allocated_is, FIGURE_EXACT);
	assert_int_equal(d.overwritten, 1);
	assert_int_equal(d.live, 68);
	assert_int_equal(d.live_blocks, 2);
	assert_int_equal(d.drift, 40);
	assert_int_equal(d.drift_events, 2);
	assert_int_equal(d.frees, 0);
	dealloc(&w, CUDA(0), 77, 40); /* frees the lost block */
	d = device(&w, "cuda");
	assert_int_equal(d.before_attach, 0);
	assert_int_equal(d.drift, 40);
	assert_int_equal(model__lost(w.m), 3);
	assert_int_equal(model__events(w.m), 4);
	dealloc(&w, CUDA(0), 1, 60);
	dealloc(&w, CUDA(0), 2, 8); /* the recorded sum is -40 */
	assert_int_equal(device(&w, "cuda").drift, 40);
	assert_int_equal(device(&w, "cuda").allocated, 0);
	world__free(&w);
}

static void test_two_devices_and_cpu(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
	struct model_device d;
	struct row *r;
	size_t n;

	alloc(&w, CPU, 1, 1000000, a);
	alloc(&w, CUDA(1), 1, 300, a);
	alloc(&w, CUDA(0), 1, 100, a); /* three blocks follow one another at one address */
	dealloc(&w, CUDA(1), 1, 300);
	alloc(&w, CPU, 2, 5, a);
	dealloc(&w, CPU, 1, 0);	  /* the CPU allocator does not report sizes of frees */
	dealloc(&w, CPU, 777, 0); /* a free of a block that was not recorded */
	assert_int_equal(model__devices(w.m), 3);
	assert_int_equal(model__find_device(w.m, "cuda:0"), 0);
	assert_int_equal(model__find_device(w.m, "cuda"), 0);
	assert_int_equal(model__find_device(w.m, "cuda:1"), 1);
	assert_int_equal(model__find_device(w.m, "cpu"), 2);
	assert_int_equal(model__find_device(w.m, "cuda:2"), -1);
	assert_int_equal(model__find_device(w.m, ""), -1);
	assert_int_equal(model__main_device(w.m), 1);
	d = device(&w, "cpu");
	assert_false(d.has_totals);
	assert_int_equal(d.peak_allocated, 1000005);
	assert_int_equal(d.allocated, 5);
	assert_int_equal(d.frees_unknown, 1);
	assert_int_equal(d.before_attach, 0);
	assert_int_equal(d.drift, 0);
	assert_int_equal(device(&w, "cuda:1").allocated, 0);
	assert_int_equal(device(&w, "cuda:0").live, 100);
	r = rows(&w, "cpu", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(rows_sum(r, n), 1000005);
	free(r);
	r = rows(&w, "cuda:1", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(rows_sum(r, n), 300);
	free(r);
	world__free(&w);
}

static void test_median(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/home/u/a.py", "f", 1);
	static const uint64_t sizes[] = { 9, 1, 5, 5, 100, 2, 1000 };
	struct row *r;
	size_t n;

	for (size_t i = 0; i < 7; i++)
		alloc(&w, CUDA(0), i, sizes[i], a);
	r = rows(&w, "cuda", BY_LINE, ROWS_NOW, &n);
	assert_int_equal(r[0].median, 5); /* 1 2 5 [5] 9 100 1000 */
	free(r);
	dealloc(&w, CUDA(0), 1, 1);
	r = rows(&w, "cuda", BY_LINE, ROWS_NOW, &n);
	assert_int_equal(r[0].median, 9); /* 2 5 5 [9] 100 1000 */
	free(r);
	world__free(&w);
}

/* Missing dictionary numbers, unknown kinds, extreme sizes: no crash. */
static void test_hostile(void **state)
{
	struct world w = world__new(AT_TIME, 5 * MS);
	struct row *r;
	size_t n;

	for (int i = 0; i < 2000; i++) {
		struct event e = {
			.kind = i % 16,
			.how = i % 11,
			.flags = i / 16,
			.walk = i,
			.totals = i % 3,
			.device = { .type = i % 7 ? i % 3 : i % 256, .index = i % 5 },
			.thread = UINT32_MAX - i,
			.stack = UINT32_MAX - i,
			.module = UINT32_MAX,
			.addr = i % 17,
			.size = i % 4 ? UINT64_MAX / 2 : 1,
			.allocated = i % 5 ? UINT64_MAX : 0,
			.time = i % 6 ? (uint64_t)i : UINT64_MAX,
		};

		assert_int_equal(model__event(w.m, &e), 0);
		if (i % 1000 < 2)
			model__note(w.m, i % 1000 ? ROWS_AT_BASE : ROWS_AT_STEP, e.time);
	}
	model__finish(w.m, 0);
	for (size_t i = 0; i < model__devices(w.m); i++)
		for (int by = 0; by < BY_NR; by++)
			for (int when = ROWS_AT_MARK; when <= ROWS_TOTAL; when++) {
				struct row_opts o = { .by = by, .when = when };

				assert_int_equal(model__rows(w.m, i, &o, &r, &n), 0);
				free(r);
			}
	for (size_t i = 0; i < model__devices(w.m); i++)
		for (int when = ROWS_AT_MARK; when <= ROWS_NOW; when++) {
			struct model_segments s;
			int err = model__segments(w.m, i, when, false, &s);

			assert_true(!err || err == -EINVAL);
			if (!err)
				model__free_segments(&s);
		}
	assert_int_equal(model__rows(w.m, 999999, &(struct row_opts){ 0 }, &r, &n), -ENOENT);
	world__free(&w);
}

/* --- compared with a naive model: a list of blocks, copied at the requested moment */

#define NAIVE_BLOCKS 512
struct naive {
	struct naive_block {
		uint64_t addr, size;
		uint32_t stack;
	} live[NAIVE_BLOCKS], mark[NAIVE_BLOCKS];
	size_t nlive, nmark;
	uint64_t total, before, mark_before, peak;
	bool marked;
};

static void naive__mark(struct naive *v)
{
	memcpy(v->mark, v->live, sizeof(v->live));
	v->nmark = v->nlive;
	v->mark_before = v->before;
	v->marked = true;
}

static void naive__check(struct world *w, const struct naive *v, const char *dev,
			 const uint32_t *stacks, size_t nstacks)
{
	size_t n, used = 0;
	struct row *r = rows(w, dev, BY_STACK, ROWS_AT_MARK, &n);

	for (size_t s = 0; s < nstacks; s++) {
		uint64_t bytes = 0, count = 0, got = 0, got_count = 0;

		for (size_t i = 0; i < v->nmark; i++)
			if (v->mark[i].stack == stacks[s]) {
				bytes += v->mark[i].size;
				count++;
			}
		for (size_t i = 0; i < n; i++)
			if (!r[i].before_attach && r[i].stack == stacks[s]) {
				got = r[i].bytes;
				got_count = r[i].count;
			}
		assert_int_equal(got, bytes);
		assert_int_equal(got_count, count);
		used += count > 0;
	}
	assert_int_equal(n, used + (v->mark_before > 0));
	assert_int_equal(rows_sum(r, n), device(w, dev).mark_allocated);
	free(r);
}

static void random_run(unsigned seed, enum moment at)
{
	uint64_t at_time = (50 + seed * 37 % 900) * MS;
	struct world w = world__new(at, at_time);
	static struct naive v[2];
	uint32_t stacks[12];
	bool oomed[2] = { false, false }, passed = false;
	char file[32];

	memset(v, 0, sizeof(v));
	srand(seed);
	for (size_t i = 0; i < N(stacks); i++) {
		snprintf(file, sizeof(file), "/u/%zu.py", i);
		stacks[i] = simple(&w, file, "f", i + 1);
	}
	for (int i = 0; i < 2; i++)
		/* and 300 simulated blocks of 10 bytes at 1000..1299 */
		v[i].before = v[i].total = w.allocated[i] = 3000;
	for (int step_no = 0; step_no < 1000; step_no++) {
		int d = rand() % 2, what = rand() % 100;
		struct naive *x = &v[d];

		/* Both devices must be known before the moment: otherwise their first event
		 * marks it. */
		if (step_no < 2) {
			d = step_no;
			x = &v[d];
			what = 0;
		}
		if (at == AT_TIME && !passed && w.time + MS > at_time) {
			naive__mark(&v[0]);
			naive__mark(&v[1]);
			passed = true;
		}
		if (what < 52 && x->nlive < NAIVE_BLOCKS) {
			struct naive_block b = { .addr = 2000 + step_no,
						 .size = 1 + rand() % 5 * 100,
						 .stack = stacks[rand() % 12] };

			x->live[x->nlive++] = b;
			x->total += b.size;
			alloc(&w, CUDA(d), b.addr, b.size, b.stack);
		} else if (what < 94 && x->nlive) {
			size_t i = rand() % x->nlive;
			struct naive_block b = x->live[i];

			x->live[i] = x->live[--x->nlive];
			x->total -= b.size;
			dealloc(&w, CUDA(d), b.addr, b.size);
		} else if (what < 98 && x->before) {
			x->before -= 10;
			x->total -= 10;
			dealloc(&w, CUDA(d), 1000 + x->before / 10, 10);
		} else {
			oom(&w, CUDA(d), 1);
			if (!oomed[d] && at == AT_OOM)
				naive__mark(x);
			oomed[d] = true;
		}
		if (at == AT_PEAK && x->total > x->peak)
			naive__mark(x);
		x->peak = x->total > x->peak ? x->total : x->peak;
	}
	model__finish(w.m, w.time);
	for (int i = 0; i < 2; i++) {
		struct model_device dev = device(&w, i ? "cuda:1" : "cuda:0");

		if (at == AT_END)
			naive__mark(&v[i]);
		assert_int_equal(dev.peak_allocated, v[i].peak);
		assert_int_equal(dev.drift, 0);
		assert_int_equal(dev.before_attach, v[i].before);
		assert_int_equal(dev.marked, v[i].marked);
		if (dev.marked)
			naive__check(&w, &v[i], dev.name, stacks, N(stacks));
	}
	world__free(&w);
}

static void test_random(void **state)
{
	for (unsigned seed = 1; seed <= 60; seed++)
		for (int at = AT_PEAK; at <= AT_TIME; at++)
			random_run(seed, at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peak_rises_twice),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_rows_after_the_end),
		cmocka_unit_test(test_oom_is_the_first),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_time_before_a_window),
		cmocka_unit_test(test_at_mark),
		cmocka_unit_test(test_before_attach),
		cmocka_unit_test(test_exact_means_exact),
		cmocka_unit_test(test_empty_device),
		cmocka_unit_test(test_drift),
		cmocka_unit_test(test_moment_and_losses),
		cmocka_unit_test(test_two_devices_and_cpu),
		cmocka_unit_test(test_median),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
