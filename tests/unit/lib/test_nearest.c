/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <limits.h>
#include <string.h>

#include "base/text.h"

static void test_distance(void **state)
{
	char longest[64], too_long[65];

	assert_int_equal(nearest__distance("", ""), 0);
	assert_int_equal(nearest__distance("", "abc"), 3);
	assert_int_equal(nearest__distance("abc", ""), 3);
	assert_int_equal(nearest__distance("report", "report"), 0);
	assert_int_equal(nearest__distance("reprot", "report"), 1);  /* swapped */
	assert_int_equal(nearest__distance("reort", "report"), 1);   /* removed */
	assert_int_equal(nearest__distance("repport", "report"), 1); /* added */
	assert_int_equal(nearest__distance("rebort", "report"), 1);  /* changed */
	assert_int_equal(nearest__distance("kitten", "sitting"), 3);
	memset(longest, 'x', 63);
	longest[63] = '\0';
	assert_int_equal(nearest__distance(longest, ""), 63);
	memset(too_long, 'x', 64);
	too_long[64] = '\0';
	assert_int_equal(nearest__distance(too_long, too_long), UINT_MAX);
}

static const char *best(const char *word)
{
	static const char *const there[] = { "record", "run",	 "report", "compare",
					     "diff",   "replay", "dump",   "check" };
	struct nearest n = { .word = word };

	for (size_t i = 0; i < sizeof(there) / sizeof(*there); i++)
		nearest__try(&n, there[i]);
	return n.best;
}

static void test_best(void **state)
{
	assert_string_equal(best("reprot"), "report");
	assert_string_equal(best("replayy"), "replay");
	assert_string_equal(best("dif"), "diff");
	assert_string_equal(best("rn"), "run");
	assert_string_equal(best("chekc"), "check");
	/* As near as "record", which comes first. */
	assert_string_equal(best("repord"), "report");
	/* No suggestion for words of one or two letters or for unrelated words. */
	assert_string_equal(best("repo"), "report"); /* a prefix */
	assert_null(best("re"));
	assert_null(best("x"));
	assert_null(best(""));
	assert_null(best("serve"));
	assert_null(best("train.py"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_distance),
		cmocka_unit_test(test_best),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
