/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Lows of a figure, and the growth of a process that is judged from them. */
#include "unit/cmocka.h"

#include <string.h>

#include "serve/server/state.h"
#include "serve/web/state_public.h"

#define MIB (UINT64_C(1) << 20)

static void test_each_low_is_of_four(void **state)
{
	const uint64_t samples[] = { 9, 7, 8, 9, 5, 6, 7, 4, 3 };
	struct lows l = { 0 };

	for (size_t i = 0; i < sizeof(samples) / sizeof(*samples); i++)
		lows__add(&l, 100 + i, samples[i]);
	assert_int_equal(l.n, 2);
	assert_int_equal(l.v[0], 7);
	assert_int_equal(l.v[1], 4);
	assert_true(l.from == 100 && l.to == 107);
}

static void test_lows_are_joined(void **state)
{
	struct lows l = { 0 };

	for (uint64_t i = 0; i < LOWS_MAX * LOWS_SAMPLES; i++)
		lows__add(&l, (double)i, 1000 - i);
	assert_int_equal(l.n, LOWS_MAX / 2);
	assert_int_equal(l.per_low, 2 * LOWS_SAMPLES);
	assert_int_equal(l.v[0], 1000 - 7);
	assert_int_equal(l.v[l.n - 1], 1000 - (LOWS_MAX * LOWS_SAMPLES - 1));
}

/* A sample a second of one device; memory of a step comes and goes. */
static struct state_process process_of(unsigned seconds, uint64_t first, uint64_t each)
{
	struct state_process p = { .n_devices = 1, .devices = { { .has = (1u << FIG_NR) - 1 } } };

	for (unsigned i = 0; i < seconds; i++)
		lows__add(&p.lows, i, first + i * each + i % 3 * 100 * MIB);
	p.devices[0].figures[FIG_TOTAL] = 1000 * MIB;
	p.devices[0].figures[FIG_USED] = 700 * MIB;
	p.devices[0].figures[FIG_RESERVED] = 500 * MIB;
	p.devices[0].figures[FIG_ALLOCATED] = 400 * MIB;
	return p;
}

static double number_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	assert_true(json_is_number(v));
	return json_number_value(v);
}

static void test_growth_and_time_to_full(void **state)
{
	struct state_process p = process_of(120, 200 * MIB, MIB);
	json_t *o = state_public__growth(&p);

	assert_string_equal(json_string_value(json_object_get(o, "verdict")), "grows");
	assert_string_equal(json_string_value(json_object_get(o, "of")), "devices");
	assert_true(number_of(o, "bytes_per_minute") > 55 * MIB &&
		    number_of(o, "bytes_per_minute") < 65 * MIB);
	/* 300 MiB are free, 100 MiB are cached. */
	assert_true(number_of(o, "full_s") > 370 && number_of(o, "full_s") < 430);
	assert_int_equal(json_array_size(json_object_get(o, "values")), 30);
	json_decref(o);
	p.lows_of_host = true;
	o = state_public__growth(&p);
	assert_null(json_object_get(o, "full_s"));
	json_decref(o);
}

static void test_no_growth(void **state)
{
	struct state_process p = process_of(120, 200 * MIB, 0),
			     few = process_of(20, 200 * MIB, MIB), none = { 0 };
	json_t *o = state_public__growth(&p);

	assert_string_equal(json_string_value(json_object_get(o, "verdict")), "flat");
	assert_null(json_object_get(o, "bytes_per_minute"));
	json_decref(o);
	o = state_public__growth(&few);
	assert_string_equal(json_string_value(json_object_get(o, "verdict")), "too_short");
	assert_null(json_object_get(o, "bytes_per_minute"));
	json_decref(o);
	assert_null(state_public__growth(&none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_low_is_of_four),
		cmocka_unit_test(test_lows_are_joined),
		cmocka_unit_test(test_growth_and_time_to_full),
		cmocka_unit_test(test_no_growth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
