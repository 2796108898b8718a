/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <string.h>

#include "base/exit.h"

/* File names come from the target: messages must not pass on their control characters. */
static void test_names_do_not_act(void **state)
{
	struct failure f;
	char longer[2000];

	assert_int_equal(failure__set(&f, EXIT_UNUSABLE, -ENOENT, "%s: gone",
				      "/tmp/a\033[31m\n\xc2\x9b.so"),
			 -ENOENT);
	assert_int_equal(f.status, EXIT_UNUSABLE);
	assert_string_equal(f.text, "/tmp/a\\x1b[31m\\x0a\\xc2\\x9b.so: gone");
	memset(longer, '\a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	failure__set(&f, EXIT_FAILED, -EIO, "%s", longer);
	assert_true(strlen(f.text) < sizeof(f.text));
	assert_null(strchr(f.text, '\a'));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_names_do_not_act) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
