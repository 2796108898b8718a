/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The job's number of the first recorded step, from readings of optimizers' own counts. */
#include "unit/cmocka.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "inspect/census.h"
#include "inspect/proc.h"

#define FLOAT32 6
#define MS UINT64_C(1000000)

static struct job_steps *new_steps(void)
{
	struct job_steps *j = job_steps__new();

	assert_non_null(j);
	return j;
}

static struct census_optimizer counted(uint64_t obj, uint64_t count, uint64_t begin)
{
	return (struct census_optimizer){ .obj = obj,
					  .count = count,
					  .begin = begin,
					  .end = begin + 1000,
					  .status = CENSUS_COUNT_KNOWN };
}

static void read_one(struct job_steps *j, uint64_t count, uint64_t begin)
{
	struct census_optimizer o = counted(1, count, begin);

	job_steps__read(j, &o, 1);
}

/* Steps of 10 ms, which end at 10 ms, 20 ms ... */
static void run_steps(struct job_steps *j, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i <= to; i++)
		job_steps__ended(j, i * 10 * MS);
}

static void is_first(const struct job_steps *j, uint64_t want)
{
	uint64_t first = 0;
	const char *why;

	if (!job_steps__first(j, &first, &why))
		fail_msg("not known: %s", why);
	assert_int_equal(first, want);
	assert_string_equal(why, "");
}

static void is_unknown(const struct job_steps *j, const char *want)
{
	uint64_t first;
	const char *why;

	assert_false(job_steps__first(j, &first, &why));
	assert_non_null(strstr(why, want));
}

/* Readings between the increment and the end of a step are one too high. */
static void test_within_a_step(void **state)
{
	struct job_steps *j = new_steps();

	for (uint64_t i = 1; i < 20; i++) { /* all but one are */
		read_one(j, 100 + (i - 1) + (i != 7), i * 10 * MS - 5 * MS);
		run_steps(j, i, i);
	}
	is_first(j, 101);
	job_steps__free(j);
}

/* A reading during the end of a step tells nothing; one that a late end is before is counted with
 * it. */
static void test_late_ends(void **state)
{
	struct job_steps *j = new_steps();

	run_steps(j, 1, 3);
	for (int i = 0; i < 3; i++)
		read_one(j, 105, 55 * MS); /* the ends at 40 and 50 ms have not come */
	run_steps(j, 4, 6);
	is_first(j, 101);
	job_steps__free(j);

	j = new_steps();
	for (int i = 0; i < 9; i++)
		read_one(j, 100, 10 * MS - 500);
	run_steps(j, 1, 1);
	job_steps__settle(j);
	is_unknown(j, "read too seldom");
	job_steps__free(j);

	/* the end is older than those that are kept */
	j = new_steps();
	run_steps(j, 1, 5000);
	for (int i = 0; i < 9; i++)
		read_one(j, 100, 5 * MS);
	job_steps__settle(j);
	is_unknown(j, "read too seldom");
	for (int i = 0; i < 3; i++)
		read_one(j, 5100, 50005 * MS);
	job_steps__settle(j);
	is_first(j, 101);
	job_steps__free(j);
}

/* One wrong reading of many changes nothing. */
static void test_majority(void **state)
{
	struct job_steps *j = new_steps();

	for (uint64_t i = 1; i < 20; i++) {
		read_one(j, i == 5 ? 3 : 200 + i - 1, i * 10 * MS - 5 * MS);
		run_steps(j, i, i);
	}
	is_first(j, 201);
	job_steps__free(j);
}

/* A count that was set during the recording belongs to two numberings. */
static void test_jump(void **state)
{
	struct job_steps *j = new_steps();

	for (uint64_t i = 1; i < 40; i++) {
		read_one(j, (i < 25 ? 200 : 1000) + i - 1, i * 10 * MS - 5 * MS);
		run_steps(j, i, i);
		if (i == 24)
			is_first(j, 201);
	}
	is_unknown(j, "does not go with");
	job_steps__free(j);
}

/* Two optimizers that take turns: each counts half of the recorded steps. */
static void test_two_in_turns(void **state)
{
	struct job_steps *j = new_steps();

	for (uint64_t i = 1; i < 200; i++) {
		struct census_optimizer v[2] = {
			counted(1, 50 + i / 2, i * 10 * MS - 5 * MS),
			counted(2, 50 + (i - 1) / 2, i * 10 * MS - 5 * MS),
		};

		if (i < 5 || i % 50 == 0)
			job_steps__read(j, v, 2);
		run_steps(j, i, i);
		is_unknown(j, i < 3 ? "read too seldom" : "several optimizers");
	}
	job_steps__free(j);
}

/* Another optimizer is there but does not step, such as a wrapper's: the count is known once it
 * went with the steps for a while. */
static void test_idle_other(void **state)
{
	struct job_steps *j = new_steps();

	for (uint64_t i = 1; i < 10; i++) {
		struct census_optimizer v[2] = { counted(1, 50 + i - 1, i * 10 * MS - 5 * MS),
						 { .obj = 2 } };

		if (i < 4 || i == 9)
			job_steps__read(j, v, 2);
		run_steps(j, i, i);
		if (i < 9)
			is_unknown(j, i < 3 ? "read too seldom" : "several optimizers");
	}
	is_first(j, 51);
	job_steps__free(j);
}

static void test_reasons(void **state)
{
	static const struct {
		enum census_count is;
		const char *why;
	} cases[] = {
		{ CENSUS_COUNT_NONE, "keeps no count" },
		{ CENSUS_COUNT_ON_DEVICE, "on the device" },
		{ CENSUS_COUNT_UNREADABLE, "could not be read" },
	};
	struct census_optimizer o = { .obj = 1 };
	struct job_steps *j = new_steps();

	is_unknown(j, "was not read");
	job_steps__read(j, NULL, 0);
	is_unknown(j, "no optimizer");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		o.status = cases[i].is;
		job_steps__read(j, &o, 1);
		is_unknown(j, cases[i].why);
	}
	for (int i = 0; i < 3; i++) {
		job_steps__settle(j);
		is_unknown(j, i ? "read too seldom" : "");
		read_one(j, 10, 5 * MS);
	}
	job_steps__settle(j);
	is_first(j, 11);
	job_steps__lost(j);
	is_unknown(j, "lost");
	job_steps__free(j);
	job_steps__free(NULL);
}

/* More optimizers and readings than are kept. */
static void test_bounds(void **state)
{
	struct census_optimizer v[100];
	struct job_steps *j = new_steps();

	for (uint64_t i = 1; i < 300; i++) {
		for (size_t k = 0; k < 100; k++)
			v[k] = counted(k + i, UINT64_MAX - k, i * 10 * MS - 5 * MS);
		job_steps__read(j, v, 100);
		run_steps(j, i, i);
	}
	is_unknown(j, "");
	job_steps__free(j);
}

static void parse(double v, int64_t want)
{
	uint64_t n = 7, raw = 0;
	float f = (float)v;

	memcpy(&raw, &f, sizeof(f));
	assert_int_equal(job_steps__parse(FLOAT32, &raw, &n), want >= 0);
	if (want >= 0)
		assert_int_equal(n, want);
	memcpy(&raw, &v, sizeof(v));
	assert_int_equal(job_steps__parse(7, &raw, &n), want >= 0);
}

static void test_hostile_values(void **state)
{
	int64_t i64 = -1;
	int32_t i32 = 4812;
	uint64_t n, raw = 0;
	float most = 16777216.0F;

	parse(0, 0);
	parse(4812, 4812);
	parse(16777215, 16777215);
	parse(-0.0, 0);
	parse(-1, -1);
	parse(0.5, -1);
	parse(1e30, -1);
	parse((double)NAN, -1);
	parse((double)INFINITY, -1);
	parse(-(double)INFINITY, -1);
	memcpy(&raw, &most, sizeof(most)); /* adding 1 does not change it */
	assert_false(job_steps__parse(FLOAT32, &raw, &n));
	assert_false(job_steps__parse(4, &i64, &n));
	assert_true(job_steps__parse(3, &i32, &n));
	assert_int_equal(n, 4812);
	for (unsigned dtype = 0; dtype < 256; dtype++) {
		bool known = dtype == 3 || dtype == 4 || dtype == 6 || dtype == 7;

		assert_int_equal(job_steps__item_size((uint8_t)dtype) != 0, known);
		raw = 0;
		assert_int_equal(job_steps__parse((uint8_t)dtype, &raw, &n), known);
	}
}

static uint64_t clock_of(void *ctx)
{
	return *(uint64_t *)ctx += 1000;
}

/* A look reads the same places again, as they are by then. */
static void test_look(void **state)
{
	static float values[3];
	struct proc *self = proc__open(getpid());
	struct job_steps *j = new_steps();
	struct census_optimizer o = counted(1, 0, 5 * MS);
	uint64_t now = 0;

	assert_non_null(self);
	for (o.n = 0; o.n < 3; o.n++) {
		o.at[o.n] = (uint64_t)(uintptr_t)&values[o.n];
		o.dtype[o.n] = FLOAT32;
	}
	o.count = 300;
	for (int i = 0; i < 3; i++)
		job_steps__read(j, &o, 1);
	job_steps__settle(j);
	is_first(j, 301);
	assert_true(job_steps__has_few(j));
	job_steps__read_again(j, self, clock_of, &now);
	for (uint64_t i = 1; i <= 12; i++) {
		run_steps(j, i, i);
		now = i * 10 * MS + MS;
		assert_true(job_steps__is_due(j, now));
		values[0] = values[2] = 299.0F + (float)i;
		values[1] = i == 4   ? NAN
			    : i == 5 ? 1e30F
			    : i == 6 ? -1
				     : 3; /* 3: has no gradients */
		job_steps__read_again(j, self, clock_of, &now);
		assert_false(job_steps__is_due(j, now));
	}
	job_steps__settle(j);
	assert_false(job_steps__has_few(j));
	is_first(j, 300);				 /* the first readings were within a step */
	assert_true(job_steps__is_due(j, now + 5 * MS)); /* without the end of a step */

	/* Memory that is gone, and an element that ends beyond it. */
	o.at[0] = 8;
	o.at[1] = UINT64_MAX - 1;
	now += 20 * 1000 * MS;
	o.begin = o.end = now;
	o.count = 300 + 12;
	job_steps__read(j, &o, 1);
	job_steps__ended(j, now + MS);
	job_steps__read_again(j, self, clock_of, &now);
	job_steps__settle(j);
	is_first(j, 300);
	job_steps__free(j);
	proc__free(self);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_within_a_step),  cmocka_unit_test(test_late_ends),
		cmocka_unit_test(test_majority),       cmocka_unit_test(test_jump),
		cmocka_unit_test(test_two_in_turns),   cmocka_unit_test(test_idle_other),
		cmocka_unit_test(test_reasons),	       cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_hostile_values), cmocka_unit_test(test_look),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
