/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdlib.h>

#include "base/numbers.h"

static void test_any_key(void **state)
{
	static const uint64_t keys[] = { 0, 1, UINT64_MAX, UINT64_MAX - 1, 1ull << 63 };
	struct numbers s = { 0 };
	uint32_t no = 77;

	for (size_t i = 0; i < 5; i++) {
		assert_false(numbers__get(&s, keys[i], &no));
		assert_int_equal(no, i ? i - 1 : 77); /* unchanged */
		assert_int_equal(numbers__add(&s, keys[i], &no), 1);
		assert_int_equal(no, i);
	}
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(numbers__add(&s, keys[i], &no), 0);
		assert_int_equal(no, i);
		assert_true(s.keys[i] == keys[i]);
	}
	assert_int_equal(s.n, 5);
	numbers__fini(&s);
	assert_false(numbers__get(&s, 1, &no));
	numbers__fini(&s);
}

#define KEYS 200000

/* The table grows many times, with keys like the addresses of objects. */
static void test_many(void **state)
{
	struct numbers s = { 0 };
	uint32_t no;

	for (uint64_t i = 0; i < KEYS; i++)
		assert_int_equal(numbers__add(&s, 0x7f0000000000 + i * 112, &no), 1);
	assert_int_equal(s.n, KEYS);
	for (uint64_t i = 0; i < KEYS; i++) {
		assert_true(numbers__get(&s, 0x7f0000000000 + i * 112, &no));
		assert_int_equal(no, i);
		assert_false(numbers__get(&s, 0x7f0000000000 + i * 112 + 8, &no));
	}
	numbers__fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_key),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
