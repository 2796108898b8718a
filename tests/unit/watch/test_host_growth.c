/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What grows in the host memory of a process, by made-up readings at made-up times. */
#include "unit/cmocka.h"

#include <stdlib.h>
#include <string.h>

#include "record/host.h"
#include "watch/watch.h"

#define MIB (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)
#define WINDOW (600 * SECOND)

/* A process whose memory is read every ten seconds. Sizes are MiB. */
struct world {
	struct host_growth growth;
	uint64_t time, keep;
	struct host_growth_verdict verdict;
	char text[512];
};

static struct world *world(void)
{
	static struct world w;

	w = (struct world){ .time = 77 * SECOND, .keep = WINDOW };
	return &w;
}

static void read_memory(struct world *w, uint64_t live, uint64_t free, uint64_t unexplained)
{
	struct host_sheet s = { 0 };
	struct host_use use;

	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	s.part[HOST_LIBRARIES].bytes = 10 * MIB;
	s.part[HOST_UNKNOWN].bytes = unexplained * MIB;
	s.part[HOST_MALLOC].bytes = (live + free) * MIB;
	s.part[HOST_MALLOC].second = free * MIB;
	s.part[HOST_MALLOC].has_second = true;
	host_sheet__use(&s, &use);
	host_growth__add(&w->growth, w->time, &use, w->keep);
	w->time += 10 * SECOND;
}

static void expect(struct world *w, enum host_grows what, double live, double free,
		   const char *words)
{
	const struct host_growth_verdict *v = &w->verdict;

	host_growth__judge(&w->growth, WINDOW, &w->verdict);
	host_growth__say(w->text, sizeof(w->text), v, "made up");
	if (v->what != what || !strstr(w->text, words))
		fail_msg("%d: %s", v->what, w->text);
	if (what != HOST_GROWS_UNKNOWN) {
		assert_int_equal((int64_t)(v->live / MIB + 0.5), (int64_t)(live + 0.5));
		assert_int_equal((int64_t)(v->free / MIB + 0.5), (int64_t)(free + 0.5));
		assert_true(v->rss == v->live + v->free);
	}
}

static void test_live(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 100; i++)
		read_memory(w, 100 + 2 * i, 20, 0);
	expect(w, HOST_GROWS_LIVE, 12, 0,
	       "host memory grows 12.00 MiB/min: live objects (in use 308.00 MiB of 328.00 MiB, "
	       "6% of malloc's memory is free)");
	assert_true(w->verdict.time == WINDOW);
}

static void test_kept(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 100; i++)
		read_memory(w, 120, 2 * i, 0);
	expect(w, HOST_GROWS_FREE, 0, 12,
	       "host memory grows 12.00 MiB/min: free memory inside malloc (kept by malloc: in use "
	       "stays 130.00 MiB)");
}

/* A burst that is freed again, and kept. */
static void test_burst(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 30; i++)
		read_memory(w, 50, 0, 0);
	for (unsigned i = 0; i < 5; i++)
		read_memory(w, 250, 0, 0);
	for (unsigned i = 0; i < 25; i++)
		read_memory(w, 50, 200, 0);
	expect(w, HOST_GROWS_FREE, 0, 27, "inside malloc (kept by malloc: in use stays 60.00 MiB");
	read_memory(w, 250, 0, 0); /* in the middle of the next burst */
	expect(w, HOST_GROWS_FREE, 0, 27, "inside malloc (kept by malloc: in use stays 60.00 MiB");
	for (unsigned i = 0; i < 100; i++)
		read_memory(w, 50, 200, 0);
	expect(w, HOST_GROWS_NOTHING, 0, 0, "does not grow: in use 60.00 MiB of 260.00 MiB, 80%");
}

static void test_both(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 61; i++)
		read_memory(w, 100 + i, i, 0);
	expect(w, HOST_GROWS_SEVERAL, 6, 6,
	       "grows 12.00 MiB/min: live objects by 6.00 MiB/min, free memory inside allocators "
	       "by 6.00 MiB/min");
}

static void test_neither(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 100; i++)
		read_memory(w, 1000 + i / 20, 100, 0); /* less than 1/100 */
	expect(w, HOST_GROWS_NOTHING, 0, 0, "does not grow");
	expect(world(), HOST_GROWS_UNKNOWN, 0, 0, "too few readings");
	read_memory(w, 1, 1, 1);
	expect(w, HOST_GROWS_UNKNOWN, 0, 0, "too few readings");
}

/* Live memory comes and goes. With or without malloc_trim() it does not grow. */
static void test_sawtooth(void **state)
{
	for (unsigned trims = 0; trims < 2; trims++) {
		struct world *w = world();

		for (unsigned i = 0; i < 123; i++)
			read_memory(w, 50 + 20 * (i % 10), trims ? 0 : 200 - 20 * (i % 10), 0);
		expect(w, HOST_GROWS_NOTHING, 0, 0, "does not grow");
	}
	/* The lows of the teeth rise. */
	struct world *w = world();

	for (unsigned i = 0; i < 120; i++)
		read_memory(w, 50 + 20 * (i % 10) + i / 10 * 10, 200 - 20 * (i % 10), 0);
	host_growth__judge(&w->growth, WINDOW, &w->verdict);
	assert_int_equal(w->verdict.what, HOST_GROWS_LIVE);
	assert_true(w->verdict.live > 5 * MIB && w->verdict.live < 7 * MIB);
	assert_true(w->verdict.free == 0);
}

/* CPython keeps its arenas, and malloc keeps nothing. */
static void test_arenas(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 61; i++) {
		struct host_use use = { .malloc_known = true,
					.known = true,
					.malloc_free = 5 * MIB };

		use.live = 100 * MIB;
		use.free = (5 + 2 * i) * MIB;
		use.rss = use.live + use.free;
		host_growth__add(&w->growth, w->time, &use, WINDOW);
		w->time += 10 * SECOND;
	}
	expect(w, HOST_GROWS_FREE, 0, 12,
	       "free memory inside CPython's arenas and PyTorch's pinned memory (kept there: in "
	       "use "
	       "stays 100.00 MiB)");
}

/* Live objects move into memory that was free: RSS does not show it. */
static void test_refill(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 61; i++)
		read_memory(w, 100 + 2 * i, 200 - 2 * i, 0);
	expect(w, HOST_GROWS_LIVE, 12, -12,
	       "live objects grow 12.00 MiB/min into memory that was free");
}

/* Memory that no table explains is no live object. */
static void test_unexplained(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 61; i++)
		read_memory(w, 100, 10, 2 * i);
	expect(w, HOST_GROWS_UNEXPLAINED, 12, 0, "12.00 MiB/min: memory outside of malloc");
}

/* The allocator cannot be read. */
static void test_unknown(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 61; i++) {
		struct host_use use = { .rss = (100 + i) * MIB };

		host_growth__add(&w->growth, w->time, &use, w->keep);
		w->time += 10 * SECOND;
	}
	expect(w, HOST_GROWS_UNKNOWN, 0, 0,
	       "host memory grows 6.00 MiB/min; whether live or free memory grows is not known: "
	       "made up");
	assert_true(w->verdict.rate_known);
}

/* A program that starts again in the same process is small again: no growth until the window has
 * only readings of the new program. */
static void test_restart(void **state)
{
	struct world *w = world();

	for (unsigned i = 0; i < 60; i++)
		read_memory(w, 100 + 10 * i, 0, 0);
	for (unsigned i = 0; i < 30; i++)
		read_memory(w, 20 + 3 * i, 0, 0);
	host_growth__judge(&w->growth, WINDOW, &w->verdict);
	assert_int_equal(w->verdict.what, HOST_GROWS_NOTHING);
	for (unsigned i = 30; i < 100; i++)
		read_memory(w, 20 + 3 * i, 0, 0);
	expect(w, HOST_GROWS_LIVE, 18, 0, "live objects");
}

/* Readings of many hours: they reach back as long as a rule needs, the short windows included. */
static void test_hours(void **state)
{
	const uint64_t hours = 20 * 3600 * SECOND;
	struct world *w = world();

	w->keep = hours;
	for (unsigned i = 0; i < 100000; i++) {
		read_memory(w, 100 + i % 7 + i / 10, 20, 0);
		assert_true(w->growth.n <= HOST_GROWTH_READINGS);
	}
	host_growth__judge(&w->growth, hours, &w->verdict);
	assert_int_equal(w->verdict.what, HOST_GROWS_LIVE);
	assert_true(w->verdict.time > hours / 100 * 99 && w->verdict.time <= hours);
	assert_true(w->verdict.live > 0.58 * MIB && w->verdict.live < 0.62 * MIB);
	assert_true(w->growth.v[w->growth.n - 1].time == w->time - 10 * SECOND);
	/* One window only: no reading of it is dropped. */
	w = world();
	for (unsigned i = 0; i < 1000; i++)
		read_memory(w, 100, 0, 0);
	for (size_t i = 1; i < w->growth.n; i++)
		assert_true(w->growth.v[i].time - w->growth.v[i - 1].time == 10 * SECOND);
	assert_true(w->growth.n * 10 * SECOND > WINDOW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_live),	    cmocka_unit_test(test_kept),
		cmocka_unit_test(test_burst),	    cmocka_unit_test(test_both),
		cmocka_unit_test(test_neither),	    cmocka_unit_test(test_sawtooth),
		cmocka_unit_test(test_arenas),	    cmocka_unit_test(test_refill),
		cmocka_unit_test(test_unexplained), cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_restart),	    cmocka_unit_test(test_hours),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
