/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Conditions: parsing, rejections and their messages, and evaluation to the byte. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "record/cond.h"

#define GIB (UINT64_C(1) << 30)
#define S UINT64_C(1000000000)

static struct cond *parse(const char *text)
{
	struct cond *c = NULL;
	char *why;
	int err = cond__parse(text, &c, &why);

	if (err)
		fail_msg("%s: %s", text, why ? why : strerror(-err));
	assert_null(why);
	assert_string_equal(cond__text(c), text);
	return c;
}

static void refused(const char *text, const char *words)
{
	struct cond *c = NULL;
	char *why;

	assert_int_equal(cond__parse(text, &c, &why), -EINVAL);
	assert_null(c);
	if (!strstr(why, words))
		fail_msg("%s: '%s' does not say '%s'", text, why, words);
	free(why);
}

static struct cond_values values(void)
{
	struct cond_values v = { .time = S };

	v.v[COND_ALLOCATED] = (struct cond_value){ true, 64 * GIB, 80 * GIB };
	v.v[COND_RESERVED] = (struct cond_value){ true, 72 * GIB, 80 * GIB };
	v.v[COND_UNUSED] = (struct cond_value){ true, 8 * GIB, 80 * GIB };
	v.v[COND_FRAGMENTATION] = (struct cond_value){ true, 8 * GIB, 72 * GIB };
	v.v[COND_PEAK] = (struct cond_value){ true, 70 * GIB + 1, 80 * GIB };
	v.v[COND_STEP_TIME] = (struct cond_value){ true, 1500000000, 0 };
	v.v[COND_OOMS] = (struct cond_value){ true, 0, 0 };
	v.v[COND_LOST] = (struct cond_value){ true, 3, 0 };
	return v;
}

static void is(const char *text, enum cond_verdict want, const char *words)
{
	struct cond_values v = values();
	struct cond *c = parse(text);
	struct cond_result r;

	assert_int_equal(cond__eval(c, &v, &r), 0);
	if (r.verdict != want || strcmp(r.text, words))
		fail_msg("%s: %d, \"%s\" and not \"%s\"", text, (int)r.verdict, r.text, words);
	cond__free(c);
}

static void test_to_the_byte(void **state)
{
	is("peak>70G", COND_HOLDS, "peak 75,161,927,681 B > 75,161,927,680 B");
	is("peak > 70GiB", COND_HOLDS, "peak 75,161,927,681 B > 75,161,927,680 B");
	is("peak>75161927681", COND_NO, "peak 70.00 GiB is not > 70.00 GiB");
	is("peak>=75161927681", COND_HOLDS, "peak 70.00 GiB >= 70.00 GiB");
	is("peak<=70G", COND_NO, "peak 75,161,927,681 B is not <= 75,161,927,680 B");
	is("cached>=8G", COND_HOLDS, "cached 8.00 GiB >= 8.00 GiB");
	is("unused<8G", COND_NO, "cached 8.00 GiB is not < 8.00 GiB");
	is("allocated<65G", COND_HOLDS, "allocated 64.00 GiB < 65.00 GiB");
	is("allocated=64G", COND_HOLDS, "allocated 64.00 GiB = 64.00 GiB");
	is("allocated==64G", COND_HOLDS, "allocated 64.00 GiB = 64.00 GiB");
	is("allocated!=64G", COND_NO, "allocated 64.00 GiB is not != 64.00 GiB");
	is("step_time>1.5s", COND_NO, "step time 1.50 s is not > 1.50 s");
	is("step_time>1499ms", COND_HOLDS, "step time 1,500,000,000 ns > 1,499,000,000 ns");
	is("ooms>0", COND_NO, "ooms 0 is not > 0");
	is("lost>0", COND_HOLDS, "lost 3 > 0");
}

static void test_percent(void **state)
{
	struct cond_values v = values();
	struct cond_result r;
	struct cond *c;

	is("reserved>=90%", COND_HOLDS, "reserved 72.00 GiB >= 72.00 GiB (90% of 80.00 GiB)");
	is("reserved>90%", COND_NO, "reserved 72.00 GiB is not > 72.00 GiB (90% of 80.00 GiB)");
	is("reserved>89.99%", COND_HOLDS, "reserved 72.00 GiB > 71.99 GiB (89.99% of 80.00 GiB)");
	is("fragmentation>11.111111%", COND_HOLDS, "fragmentation 11.1% > 11.1111%");
	is("fragmentation>11.111112%", COND_NO, "fragmentation 11.1% is not > 11.1111%");
	/* A third of three bytes is one byte. */
	v.v[COND_ALLOCATED] = (struct cond_value){ true, UINT64_MAX, UINT64_MAX };
	c = parse("allocated>=100%");
	assert_int_equal(cond__eval(c, &v, &r), 0);
	assert_int_equal(r.verdict, COND_HOLDS);
	assert_true(r.limit == UINT64_MAX && r.unit == COND_BYTES);
	v.v[COND_ALLOCATED].value--;
	assert_int_equal(cond__eval(c, &v, &r), 0);
	assert_int_equal(r.verdict, COND_NO);
	v.v[COND_ALLOCATED].whole = 0;
	assert_int_equal(cond__eval(c, &v, &r), 0);
	assert_int_equal(r.verdict, COND_UNKNOWN);
	assert_non_null(strstr(r.text, "total memory"));
	cond__free(c);
}

static void test_and_or(void **state)
{
	is("allocated>60G and reserved>70G", COND_HOLDS,
	   "allocated 64.00 GiB > 60.00 GiB and reserved 72.00 GiB > 70.00 GiB");
	is("allocated>60G AND reserved>75G", COND_NO, "reserved 72.00 GiB is not > 75.00 GiB");
	is("allocated>70G or reserved>70G", COND_HOLDS, "reserved 72.00 GiB > 70.00 GiB");
	/* "and" binds more tightly than "or". */
	is("lost>0 or lost>0 and ooms>0", COND_HOLDS, "lost 3 > 0");
	is("ooms>0 and lost>0 or lost>0", COND_HOLDS, "lost 3 > 0");
	is("ooms>0 or lost>5", COND_NO, "ooms 0 is not > 0 and lost 3 is not > 5");
	/* An unknown figure matters only if the other terms do not decide. */
	is("rss>1G or lost>0", COND_HOLDS, "lost 3 > 0");
	is("rss>1G and ooms>0", COND_NO, "ooms 0 is not > 0");
	is("rss>1G and lost>0", COND_UNKNOWN, "rss is not known: no value was reported");
	is("rss>1G or ooms>0", COND_UNKNOWN, "rss is not known: no value was reported");
}

static void test_refused(void **state)
{
	char longest[2000];

	refused("alocated>70G", "'alocated>70G': unknown figure 'alocated'; did you mean "
				"allocated?");
	refused("", "a figure is missing");
	refused("peak", "after 'peak': expected > >= < <= = or !=");
	refused("peak>", "after 'peak>': a value is missing");
	refused("cached>", "after 'cached>': a value is missing");
	refused("unused", "after 'cached': expected");
	refused("cached>8G/10m", "cached has no window");
	refused("peak=>3", "!=, not '=>3'");
	refused("peak>>3", "expected >");
	refused("peak>70X", "'70X' is not a size");
	refused("peak>-1", "'-1' is not a size");
	refused("peak>99999999999999999999", "is not a size");
	refused("peak>%", "'%' is not a percentage");
	refused("peak>1.2.3%", "is not a percentage");
	refused("fragmentation>20", "did you mean 'fragmentation>20%'?");
	refused("step_time>2X", "'2X' is not a time");
	refused("ooms>1.5", "is not a whole number");
	refused("ooms>1K", "is not a whole number");
	refused("growth>1G", "growth needs a window");
	refused("growth>1G/", "is not a window");
	refused("growth>1G/0steps", "'0steps' is not a window");
	refused("growth>1G/1.5steps", "is not a window");
	refused("growth>1G/steps", "is not a window");
	refused("growth>1G/10", "is not a window");
	refused("growth>1G/0s", "is not a window");
	refused("growth>1G/10 parsecs", "'10parsecs' is not a window");
	refused("peak>1G/10s", "peak has no window");
	refused("peak>1G lost>0", "at 'lost>0': expected 'and' or 'or'");
	refused("peak>1G and", "a figure is missing");
	refused("and", "unknown figure 'and'");
	refused("peak>1\x1b[2J", "\\x1b");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	refused(longest, "longer than");
	longest[1000] = '\0';
	refused(longest, "unknown figure");
	longest[0] = '\0';
	for (int i = 0; i < 33; i++)
		strcat(longest, i ? " or lost>0" : "lost>0");
	refused(longest, "more than 32");
}

static void test_needs(void **state)
{
	struct cond *c = parse("growth>1G/100steps or rss>1G and reserved_growth > 10% / 10 m");

	assert_true(cond__needs(c, COND_ALLOCATED) && cond__needs(c, COND_GROWTH) &&
		    cond__needs(c, COND_RSS));
	assert_true(cond__needs(c, COND_RESERVED));
	assert_false(cond__needs(c, COND_PEAK) || cond__needs(c, COND_RSS_GROWTH));
	assert_true(cond__needs_steps(c) && cond__needs_growth(c));
	cond__free(c);
	c = parse("step_time>1s");
	assert_true(cond__needs_steps(c) && !cond__needs_growth(c));
	cond__free(c);
}

static struct cond_result at(struct cond *c, unsigned series, uint64_t step, uint64_t time,
			     uint64_t allocated, bool most)
{
	struct cond_values v = { .time = time,
				 .step = step,
				 .has_steps = step != UINT64_MAX,
				 .series = series,
				 .judge_largest = most };
	struct cond_result r;

	v.v[COND_ALLOCATED] = (struct cond_value){ true, allocated, 0 };
	assert_int_equal(cond__eval(c, &v, &r), 0);
	return r;
}

/* A step allocates 1000 bytes and frees most; 10 bytes per step stay. */
static void test_growth_by_steps(void **state)
{
	struct cond *c = parse("growth>=1000/100steps"), *more = parse("growth>1000/100steps");
	struct cond_result r, rm;

	for (uint64_t i = 0; i <= 300; i++) {
		for (uint64_t in = 0; in < 5; in++) {
			uint64_t now = 5000 + i * 10 + (in == 2 ? 1000 : 0);

			r = at(c, 0, i, i * S, now, false);
			rm = at(more, 0, i, i * S, now, false);
			/* Step 100 must end before it counts. The start of the first step was not
			 * seen. */
			assert_int_equal(r.verdict, i > 101   ? COND_HOLDS
						    : i > 100 ? COND_NO
							      : COND_UNKNOWN);
			assert_int_equal(rm.verdict, i > 100 ? COND_NO : COND_UNKNOWN);
		}
		if (i == 13)
			assert_string_equal(r.text, "growth is not known: 13 of 100 steps so far");
		if (i > 100)
			assert_true(r.value == (i > 101 ? 1000 : 990) && r.unit == COND_BYTES);
	}
	assert_string_equal(r.text, "growth 1000 B >= 1000 B in 100 steps");
	/* The condition holds, then the values fall: the largest value and its time stay known. */
	for (uint64_t i = 301; i < 600; i++)
		r = at(c, 0, i, i * S, 100, true);
	assert_true(r.verdict == COND_HOLDS && r.value == 1000 && r.at < 302 * S);
	r = at(c, 0, 600, 600 * S, 100, false);
	assert_true(r.verdict == COND_NO && r.value == 0);
	/* Another device is another series. A process that ended is forgotten. */
	assert_int_equal(at(c, 7, 600, S, 100, false).verdict, COND_UNKNOWN);
	cond__forget(c, 0);
	cond__forget(c, 1000);
	assert_int_equal(at(c, 0, 601, S, 100, false).verdict, COND_UNKNOWN);
	assert_int_equal(at(c, 0, UINT64_MAX, S, 100, false).verdict, COND_UNKNOWN);
	cond__free(c);
	cond__free(more);
}

static void test_growth_by_time(void **state)
{
	struct cond *c = parse("growth>1M/128s");
	struct cond_result r = { 0 };

	/* 10 KiB/s; one of three samples per second is in the middle of a step. */
	for (uint64_t ms = 0; ms < 300000; ms += 333) {
		r = at(c, 0, UINT64_MAX, ms * 1000000,
		       4096 + ms / 1000 * 10240 + (ms % 999 ? 0 : 1 << 20), false);
		if (ms < 128000)
			assert_int_equal(r.verdict, COND_UNKNOWN);
	}
	assert_true(r.verdict == COND_HOLDS && r.value == 128 * 10240);
	assert_string_equal(r.text, "growth 1.25 MiB > 1.00 MiB in 2m 08s");
	/* An hour without values: the last value stays. */
	r = at(c, 0, UINT64_MAX, 4000 * S, 4096, false);
	assert_true(r.verdict == COND_NO && !r.value);
	cond__free(c);
}

/* Samples at arbitrary times within the steps of a job that does not grow. */
static void test_sampled(void **state)
{
	struct cond *c = parse("growth>1000/100steps");
	struct cond_values v = { .has_steps = true, .sampled = true };
	struct cond_result r;
	uint64_t x = 1;

	for (uint64_t i = 0; i < 20000; i++) {
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		v.step = i / 2;
		v.v[COND_ALLOCATED] = (struct cond_value){
			true, 5000 + (x >> 62 ? 100000 : 0) * (i % 2) + (x >> 61 & 1 ? 10 : 0), 0
		};
		assert_int_equal(cond__eval(c, &v, &r), 0);
		assert_int_not_equal(r.verdict, COND_HOLDS);
	}
	cond__free(c);
}

/* Host memory that grows by 1 byte a second is judged each second and read every ten. Between two
 * readings there is no sample. */
static void test_readings(void **state)
{
	struct cond *c = parse("host_live_growth>500/10m or host_live_growth>5K/2h");
	struct cond_values v = { .sampled = true };
	struct cond_result r;
	uint64_t first = 0;

	assert_int_equal(cond__window(c, COND_HOST_LIVE), 600 * S);
	assert_int_equal(cond__window(c, COND_HOST_LIVE_GROWTH), 600 * S);
	assert_int_equal(cond__window(c, COND_MALLOC_FREE_GROWTH), 0);
	for (uint64_t i = 0; i < 3600; i++) {
		v.time = i * S;
		v.host_repeats = i % 10;
		if (!v.host_repeats)
			v.v[COND_HOST_LIVE] = (struct cond_value){ true, i, 0 };
		assert_int_equal(cond__eval(c, &v, &r), 0);
		first = !first && r.verdict == COND_HOLDS ? i : first;
	}
	assert_true(first > 600 && first < 720);
	assert_true(r.verdict == COND_HOLDS && r.value > 590 && r.value < 610);
	cond__free(c);
	/* One reading only. */
	c = parse("host_live_growth>=0/10m");
	for (uint64_t i = 0; i < 3600; i++) {
		v.time = i * S;
		v.host_repeats = i;
		assert_int_equal(cond__eval(c, &v, &r), 0);
		assert_int_equal(r.verdict, COND_UNKNOWN);
	}
	cond__free(c);
}

/*
 * 20 samples/s of a job whose activations rise to 20 GiB and fall in each step of 0.7 s, for two
 * hours: without a leak, and with a leak of 2 GiB in ten minutes.
 */
static void test_looks_at_a_job(void **state)
{
	for (uint64_t leak = 0; leak < 2; leak++) {
		struct cond *c = parse("growth>1G/10m"), *all = parse("growth>10M/10m");
		struct cond_values v = { .sampled = true };
		struct cond_result r, x;
		uint64_t first = 0;

		for (uint64_t i = 0; i < 2 * 3600 * 20; i++) {
			uint64_t ms = i * 50 + i * 7919 % 13, phase = ms % 700;
			uint64_t part = phase < 350 ? phase : 700 - phase;

			v.time = ms * 1000000;
			v.v[COND_ALLOCATED] = (struct cond_value){
				true,
				4 * GIB + leak * ms * (2 * GIB / 600000) + 20 * GIB / 350 * part, 0
			};
			assert_int_equal(cond__eval(c, &v, &r), 0);
			assert_int_equal(cond__eval(all, &v, &x), 0);
			first = !first && r.verdict == COND_HOLDS ? ms : first;
			if (!leak && (r.verdict == COND_HOLDS ||
				      (x.verdict == COND_HOLDS && x.value > GIB / 4)))
				fail_msg("at %lu ms: %s", (unsigned long)ms, x.text);
		}
		if (leak) {
			assert_true(first > 600000 && first < 720000);
			assert_true(r.verdict == COND_HOLDS && r.value > 19 * GIB / 10 &&
				    r.value < 21 * GIB / 10);
		}
		cond__free(c);
		cond__free(all);
	}
}

/* Very long windows, jumps in time, and the numbers of damaged recordings. */
static void test_extremes(void **state)
{
	struct cond *c = parse("growth>1G/1000000steps");
	struct cond_result r = { 0 };

	for (uint64_t i = 0; i < 1100000; i += 50)
		r = at(c, 0, i, i, i * 2000, false);
	assert_true(r.verdict == COND_HOLDS && r.value >= UINT64_C(2000000000) - 2000 * 250 &&
		    r.value < UINT64_C(2001000000));
	at(c, 0, UINT64_MAX - 1, UINT64_MAX, UINT64_MAX, false);
	at(c, 0, 0, 0, 0, false);
	r = at(c, 0, 5, 5, UINT64_MAX, true);
	assert_int_equal(r.verdict, COND_HOLDS);
	cond__free(c);
	c = parse("growth>1/4294967295steps or growth>0/1ns");
	at(c, COND_SERIES - 1, 1, 1, 1, false);
	at(c, COND_SERIES - 1, UINT64_MAX - 1, UINT64_MAX, 2, false);
	cond__free(c);
	c = parse("growth>0/1step");
	at(c, 0, 1, 0, 10, false);
	at(c, 0, 2, 0, 11, false);
	assert_int_equal(at(c, 0, 3, 0, 11, false).verdict, COND_NO);
	at(c, 0, 3, 0, 12, false);
	cond__free(c);
	cond__free(NULL);
}

/* A target and a file may report any total. */
static void test_growth_of_any_totals(void **state)
{
	struct cond *c = parse("growth>1G/1step");
	struct cond_result r = { 0 };

	at(c, 0, 1, S, (uint64_t)INT64_MIN, false);
	at(c, 0, 2, 2 * S, (uint64_t)INT64_MIN, false);
	for (uint64_t i = 3; i < 6; i++)
		r = at(c, 0, i, i * S, INT64_MAX, false);
	assert_int_equal(r.verdict, COND_HOLDS);
	assert_true(r.value == INT64_MAX - 1);
	at(c, 1, 1, S, INT64_MAX, false);
	at(c, 1, 2, 2 * S, INT64_MAX, false);
	for (uint64_t i = 3; i < 6; i++)
		r = at(c, 1, i, i * S, (uint64_t)INT64_MIN, false);
	assert_int_equal(r.verdict, COND_NO);
	cond__free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_to_the_byte),    cmocka_unit_test(test_percent),
		cmocka_unit_test(test_and_or),	       cmocka_unit_test(test_refused),
		cmocka_unit_test(test_needs),	       cmocka_unit_test(test_growth_by_steps),
		cmocka_unit_test(test_growth_by_time), cmocka_unit_test(test_sampled),
		cmocka_unit_test(test_readings),       cmocka_unit_test(test_looks_at_a_job),
		cmocka_unit_test(test_extremes),       cmocka_unit_test(test_growth_of_any_totals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
