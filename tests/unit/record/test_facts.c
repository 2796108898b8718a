/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Facts that are numbers, from files and targets that may claim anything. */
#include "unit/cmocka.h"

#include <string.h>

#include "record/stream.h"

static const char *const not_numbers[] = { "",
					   "-1",
					   "+1",
					   " 1",
					   "1 ",
					   "0x10",
					   "1e3",
					   "1.",
					   "nan",
					   "\t1",
					   "-",
					   "--1",
					   "9223372036854775808 " };

static void test_no_sign_and_no_rest(void **state)
{
	struct facts *f = facts__new();
	uint64_t n = 7;

	assert_non_null(f);
	assert_false(facts__number(f, "missing", &n));
	assert_int_equal(n, 0);
	for (size_t i = 0; i < sizeof(not_numbers) / sizeof(*not_numbers); i++) {
		n = 7;
		assert_int_equal(facts__set(f, "n", not_numbers[i]), 0);
		if (facts__number(f, "n", &n) || n)
			fail_msg("'%s' was read as a number", not_numbers[i]);
	}
	facts__free(f);
}

static void test_largest_number(void **state)
{
	static const struct {
		const char *text;
		uint64_t want;
	} all[] = {
		{ "0", 0 },
		{ "007", 7 },
		{ "4611686018427387903", STREAM_MOST - 1 },
		{ "4611686018427387904", STREAM_MOST },
		{ "4611686018427387905", STREAM_MOST },
		{ "18446744073709551615", STREAM_MOST },
		{ "18446744073709551616", STREAM_MOST },
		{ "99999999999999999999999999999999999999", STREAM_MOST },
	};
	struct facts *f = facts__new();
	uint64_t n;

	assert_non_null(f);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		assert_int_equal(facts__set(f, "n", all[i].text), 0);
		assert_true(facts__number(f, "n", &n));
		assert_true(n == all[i].want);
	}
	facts__free(f);
}

static void test_signed_numbers(void **state)
{
	struct facts *f = facts__new();
	int64_t n = 7;

	assert_non_null(f);
	assert_false(facts__signed(f, "missing", &n));
	assert_int_equal(n, 0);
	facts__set(f, "n", "-1500");
	assert_true(facts__signed(f, "n", &n));
	assert_true(n == -1500);
	facts__set(f, "n", "-9223372036854775808");
	assert_true(facts__signed(f, "n", &n));
	assert_true(n == -(int64_t)STREAM_MOST);
	facts__set(f, "n", "- 1");
	assert_false(facts__signed(f, "n", &n));
	facts__free(f);
}

static void test_digits_of_a_list(void **state)
{
	const char *at = "42:99999999999999999999:name";
	uint64_t n;

	assert_true(facts__digits(&at, &n));
	assert_int_equal(n, 42);
	assert_int_equal(*at++, ':');
	assert_true(facts__digits(&at, &n));
	assert_true(n == STREAM_MOST);
	assert_string_equal(at, ":name");
	at++;
	assert_false(facts__digits(&at, &n));
	assert_string_equal(at, "name");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_sign_and_no_rest),
		cmocka_unit_test(test_largest_number),
		cmocka_unit_test(test_signed_numbers),
		cmocka_unit_test(test_digits_of_a_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
