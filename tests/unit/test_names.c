/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "capture/names.h"
#include "lib/log.h"
#include "record/dict.h"
#include "record/limits.h"

/* A capture that has met as many threads as a recording can hold goes on, and counts those without a number. */
static void test_full_dict(void **state)
{
	struct dict *d = dict__new();
	struct names *n = names__new(d, NULL);
	uint32_t i;

	(void)state;
	assert_non_null(n);
	log__set_level(LOG_ERROR);
	for (i = 1; i < DICT_MAX_THREADS; i++)
		if (names__number(n, dict__thread(d, (struct dict_thread){ .tid = i })) != i)
			fail();
	assert_int_equal(names__stats(n).no_room, 0);
	assert_int_equal(names__number(n, dict__thread(d, (struct dict_thread){ .tid = i })), 0);
	assert_int_equal(names__number(n, dict__thread(d, (struct dict_thread){ .tid = i + 1 })), 0);
	assert_int_equal(names__stats(n).no_room, 2);
	/* What is known keeps its number. */
	assert_int_equal(names__number(n, dict__thread(d, (struct dict_thread){ .tid = 7 })), 7);
	names__free(n);
	dict__free(d);
}

static void test_no_memory_is_an_error(void **state)
{
	struct dict *d = dict__new();
	struct names *n = names__new(d, NULL);

	(void)state;
	assert_non_null(n);
	errno = ENOMEM;
	assert_int_equal(names__number(n, UINT32_MAX), UINT32_MAX);
	assert_int_equal(names__stats(n).no_room, 0);
	names__free(n);
	dict__free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_dict),
		cmocka_unit_test(test_no_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
