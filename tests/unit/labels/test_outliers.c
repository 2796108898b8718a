/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Lines that few of many recordings have: the short way gives the same as all values do. */
#include "unit/cmocka.h"

#include <stdlib.h>
#include <string.h>

#include "report/ranks/ranks.h"

#define MOST 40

static uint64_t random_state = 88172645463325252ull;

static uint64_t below(uint64_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (random_state >> 33) % n;
}

static void test_median_with_zeros(void **state)
{
	for (int round = 0; round < 20000; round++) {
		size_t n = below(MOST), some = n ? below(n + 1) : 0;
		uint64_t given[MOST] = { 0 }, all[MOST] = { 0 };

		for (size_t i = 0; i < some; i++)
			given[i] = all[i] = below(4) * (OUTLIER_BYTES + 1);
		outliers__sort(given, some);
		outliers__sort(all, n);
		assert_true(outliers__median_with_zeros(given, n, n - some) ==
			    outliers__median(all, n));
	}
}

static void test_lines_of_few_recordings(void **state)
{
	for (int round = 0; round < 20000; round++) {
		size_t n = 3 + below(MOST - 3), some = below(n / 2);
		struct outliers want = { 0 }, got = { 0 };
		uint64_t values[MOST] = { 0 }, sorted[MOST];

		if (2 * some + 1 >= n)
			continue;
		for (size_t i = 0; i < some; i++)
			values[i] = below(4) * (OUTLIER_BYTES / 2 + 1);
		memcpy(sorted, values, sizeof(sorted));
		outliers__sort(sorted, n);
		assert_int_equal(outliers__add(&want, values, sorted, n, OUTLIER_BYTES, 7), 0);
		for (size_t i = 0; i < some; i++)
			assert_int_equal(outliers__add_to_zeros(&got, (uint32_t)i, values[i],
								OUTLIER_BYTES, 7),
					 0);
		assert_int_equal(got.n, want.n);
		for (size_t i = 0; i < got.n; i++)
			assert_memory_equal(&got.all[i], &want.all[i], sizeof(*got.all));
		free(want.all);
		free(got.all);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_median_with_zeros),
		cmocka_unit_test(test_lines_of_few_recordings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
