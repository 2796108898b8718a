/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The HTTP API exports what `export` does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "export/export.h"
#include "serve/web/formats.h"

static void test_formats(void **state)
{
	size_t n = 0;

	(void)state;
	for (; export_formats[n]; n++)
		assert_string_equal(serve_formats[n], export_formats[n]->name);
	assert_null(serve_formats[n]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_formats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
