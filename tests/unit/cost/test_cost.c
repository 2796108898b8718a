/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "capture/cost/cost_control.h"
#include "capture/cost/measure.h"
#include "record/detail.h"

#define SECOND 1000000000ULL

/* ---- control ---- */

/* Looks for so long at this share. Returns the number of changes. */
static unsigned look(struct cost_control *c, uint64_t *now, uint64_t time, double share)
{
	unsigned n = 0;

	for (uint64_t end = *now + time; *now < end; *now += COST_EVERY)
		n += cost_control__look(c, *now, share, 0.5);
	return n;
}

static void test_drops(void **state)
{
	struct cost_control c = { .limit = 0.01 };
	uint64_t now = SECOND;

	assert_int_equal(look(&c, &now, 60 * SECOND, 0.009), 0);
	/* One dear look is not enough, two are. */
	assert_int_equal(look(&c, &now, COST_EVERY, 0.02), 0);
	assert_int_equal(look(&c, &now, COST_EVERY, 0.009), 0);
	assert_int_equal(look(&c, &now, COST_EVERY, 0.02), 0);
	assert_int_equal(look(&c, &now, COST_EVERY, 0.02), 1);
	assert_int_equal(c.level, COST_NO_NODES);
	/* Much too dear: two levels at once. The look after a change does not count. */
	assert_int_equal(look(&c, &now, 3 * COST_EVERY, 0.1), 1);
	assert_int_equal(c.level, COST_NO_SCOPES);
	look(&c, &now, 60 * SECOND, 0.1);
	assert_int_equal(c.level, COST_LAST);
	assert_int_equal(look(&c, &now, 60 * SECOND, 0.1), 0);
}

static void test_gives_back(void **state)
{
	struct cost_control c = { .limit = 0.01, .level = COST_NO_MODULES };
	uint64_t now = SECOND;

	assert_int_equal(look(&c, &now, 60 * SECOND, 0.007), 0); /* near the limit */
	assert_int_equal(look(&c, &now, 29 * SECOND, 0.002), 0);
	assert_int_equal(look(&c, &now, 2 * SECOND, 0.002), 1);
	assert_int_equal(c.level, COST_NO_NODES);
	/* Too dear again at once: wait twice as long. */
	assert_int_equal(look(&c, &now, 2 * SECOND, 0.02), 1);
	assert_int_equal(look(&c, &now, 55 * SECOND, 0.002), 0);
	assert_int_equal(look(&c, &now, 10 * SECOND, 0.002), 1);
}

static void test_no_gain(void **state)
{
	struct cost_control c = { .limit = 0.01, .level = COST_SAMPLED };

	/* The hits alone are too dear: stacks of larger blocks stay. */
	for (uint64_t now = SECOND; now < 60 * SECOND; now += COST_EVERY)
		assert_false(cost_control__look(&c, now, 0.3, 0.01));
	c.level = COST_NO_NODES;
	for (uint64_t now = SECOND; now < 5 * SECOND; now += COST_EVERY)
		cost_control__look(&c, now, 0.02, 0.01);
	assert_int_equal(c.level, COST_SAMPLED);
}

/* A job whose cost lies above the limit with a detail and far below without it. */
static void test_does_not_oscillate(void **state)
{
	struct cost_control c = { .limit = 0.01 };
	uint64_t now = SECOND, end = now + 3600 * SECOND;
	unsigned changes = 0;

	while (now < end)
		changes += look(&c, &now, COST_EVERY, c.level ? 0.001 : 0.02);
	assert_in_range(changes, 3, 16);
}

static void test_no_limit(void **state)
{
	struct cost_control c = { 0 };
	uint64_t now = SECOND;

	assert_int_equal(look(&c, &now, 60 * SECOND, 5), 0);
}

static void test_levels(void **state)
{
	struct cost_detail d = cost_control__detail(COST_ALL);

	assert_int_equal(d.off, 0);
	assert_int_equal(d.below, 0);
	assert_int_equal(cost_control__detail(COST_NO_NODES).off, MT_OFF_NODES);
	assert_int_equal(cost_control__detail(COST_NO_MODULES).off, MT_OFF_NODES | MT_OFF_MODULES);
	assert_int_equal(cost_control__detail(COST_NO_SCOPES).off,
			 MT_OFF_NODES | MT_OFF_MODULES | MT_OFF_SCOPES);
	assert_int_equal(cost_control__detail(COST_NO_SCOPES).below, 0);
	assert_int_equal(cost_control__detail(COST_SAMPLED).below, 65536);
	assert_int_equal(cost_control__detail(COST_LAST).below, 1u << 30);
}

/* ---- measure ---- */

static void test_measure(void **state)
{
	struct measure m = { .hit = { .emulated = 1000, .stepped = 10000 } };
	struct mt_timed timed[MEASURE_TYPES] = { 0 };
	uint64_t c[MT_CNT_NR] = { 0 };

	m.stepped[MT_REC_CPU_DELETE] = true;
	assert_true(measure__look(&m, c, timed, 0, 0) == 0);
	/* 1000 allocations of 1000 + 1500 ns, 100 frees of 10000 + 500 ns (not timed), records of
	 * stacks, which are no hits: 3.55 ms in a second of CPU time. */
	c[MT_CNT_HIT + MT_REC_CPU_NEW] = 1000;
	c[MT_CNT_HIT + MT_REC_CPU_DELETE] = 100;
	c[MT_CNT_HIT + MT_REC_STACK] = 50;
	timed[MT_REC_CPU_NEW] = (struct mt_timed){ 10, 15000 };
	assert_true(fabs(measure__look(&m, c, timed, 2 * SECOND, SECOND) -
			 3.55e6 / (1e9 - 3.55e6)) < 1e-9);
	/* Several threads: of the wall time. */
	c[MT_CNT_NODE_RUN] += 1000; /* 1000 + 500 ns */
	assert_true(fabs(measure__look(&m, c, timed, 3 * SECOND, 9 * SECOND) -
			 1.5e6 / (1e9 - 1.5e6)) < 1e-9);
	assert_true(fabs(measure__share(&m) - 5.05e6 / (2e9 - 5.05e6)) < 1e-9);
	/* It did nothing. */
	assert_true(measure__look(&m, c, timed, 4 * SECOND, 9 * SECOND) == 0);
}

/* ---- the facts ---- */

static void test_detail(void **state)
{
	struct facts *f = facts__new();
	char text[DETAIL_TEXT];
	struct detail d;

	assert_false(detail__read(f, &d));
	assert_string_equal(detail__sentence(text, sizeof(text), f), "");
	facts__set(f, "cost.limit", "0.01");
	facts__set(f, "cost.share", "0.005");
	assert_true(detail__read(f, &d));
	assert_int_equal(d.n, 0);
	assert_string_equal(detail__sentence(text, sizeof(text), f), "");
	facts__set(f, "cost.share", "0.034");
	assert_string_equal(detail__sentence(text, sizeof(text), f),
			    "tracing took 3.4 % of the target's time, the limit was 1 %. "
			    "Every byte is counted.");
	assert_string_equal(detail__reduced(text, sizeof(text), f), "");
	detail__add(f, &(struct detail_change){ SECOND, 0, MT_OFF_NODES, 40000 });
	detail__add(f, &(struct detail_change){ 2 * SECOND, 65536, 7, 30000 });
	detail__add(f, &(struct detail_change){ 40 * SECOND, 0, 0, 1000 });
	assert_true(detail__read(f, &d));
	assert_int_equal(d.n, 3);
	assert_int_equal(d.at[1].below, 65536);
	assert_int_equal(d.at[1].share, 30000);
	assert_string_equal(detail__sentence(text, sizeof(text), f),
			    "tracing took 3.4 % of the target's time, the limit was 1 %. Not "
			    "recorded: backward nodes (1.00 s to 40.0 s), module calls (2.00 s to "
			    "40.0 s), scopes (2.00 s to 40.0 s), most stacks of blocks below "
			    "64.0 KiB (2.00 s to 40.0 s). "
			    "Every byte is counted.");
	facts__set(f, "cost.limit", "1");
	facts__set(f, "cost.share", "1.070627");
	assert_memory_equal(detail__sentence(text, sizeof(text), f),
			    "tracing took 107 % of the target's time, the limit was 100 %. Not ",
			    65);
	/* Damage ends the list. */
	facts__set(f, "cost.changes", "5:1:0:1 4:0:0:1 9:1:0:1");
	assert_true(detail__read(f, &d));
	assert_int_equal(d.n, 1);
	facts__set(f, "cost.changes", "5:1 nonsense");
	facts__set(f, "cost.share", "nan");
	assert_true(detail__read(f, &d));
	assert_int_equal(d.n, 0);
	assert_true(d.share < 0);
	facts__free(f);
}

static void test_detail_steps(void **state)
{
	struct facts *f = facts__new();
	char text[DETAIL_TEXT];
	struct detail d;

	facts__set(f, "cost.limit", "0.01");
	facts__set(f, "cost.share", "0.034");
	facts__set(f, "cost.steps", "56:1646");
	facts__set(f, "cost.step", "0.0071:0.0092:0.011");
	assert_string_equal(detail__sentence(text, sizeof(text), f),
			    "a step took 0.92 % longer (0.71 to 1.1), the limit was 1 %. Tracing "
			    "took 3.4 % of its time. Lines are known in 56 of 1,646 steps. Every "
			    "byte is counted.");
	/* Measured and below the limit, but steps have no lines. */
	facts__set(f, "cost.share", "0.005");
	assert_true(*detail__reduced(text, sizeof(text), f));
	/* Damage. */
	facts__set(f, "cost.steps", "57:56");
	facts__set(f, "cost.step", "0.02:0.01:nan");
	assert_true(detail__read(f, &d));
	assert_int_equal(d.steps, 0);
	assert_false(d.longer_known);
	assert_string_equal(detail__sentence(text, sizeof(text), f), "");
	facts__free(f);
}

static void test_many_changes(void **state)
{
	struct facts *f = facts__new();
	struct detail d;

	facts__set(f, "cost.limit", "0.01");
	for (uint64_t i = 0; i < DETAIL_MAX + 5; i++)
		assert_int_equal(detail__add(f, &(struct detail_change){ i, 0, i % 2, 0 }), 0);
	assert_true(detail__read(f, &d));
	assert_int_equal(d.n, DETAIL_MAX);
	facts__free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_drops),
		cmocka_unit_test(test_gives_back),
		cmocka_unit_test(test_does_not_oscillate),
		cmocka_unit_test(test_no_gain),
		cmocka_unit_test(test_no_limit),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_measure),
		cmocka_unit_test(test_detail),
		cmocka_unit_test(test_detail_steps),
		cmocka_unit_test(test_many_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
