/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "kernel/packed.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define SIZE 5000

static unsigned char plain[SIZE], packed[2 * SIZE];

static size_t pack(void)
{
	uLongf n = sizeof(packed);

	for (int i = 0; i < SIZE; i++)
		plain[i] = i * i / 7;
	assert_int_equal(compress(packed, &n, plain, SIZE), Z_OK);
	return n;
}

static void test_unpacks_once(void **state)
{
	size_t n = pack();
	void *kept = NULL;
	const void *data = packed__unpack(packed, n, SIZE, &kept);

	(void)state;
	assert_memory_equal(data, plain, SIZE);
	assert_ptr_equal(data, kept);
	assert_ptr_equal(packed__unpack(packed, n, SIZE, &kept), data);
	free(kept);
}

/* The build made the data wrong. */
static void test_another_size(void **state)
{
	size_t n = pack();
	void *kept = NULL;

	(void)state;
	errno = 0;
	assert_null(packed__unpack(packed, n, SIZE + 1, &kept));
	assert_int_equal(errno, ENOMEM);
	assert_null(packed__unpack(packed, n, SIZE - 1, &kept));
	assert_null(packed__unpack(packed, n / 2, SIZE, &kept));
	assert_null(kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unpacks_once),
		cmocka_unit_test(test_another_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
