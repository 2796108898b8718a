/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/assets.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define SIZE 5000

static unsigned char plain[SIZE], compressed[2 * SIZE];

static struct packed pack(void)
{
	z_stream z = { .next_in = plain,
		       .avail_in = SIZE,
		       .next_out = compressed,
		       .avail_out = sizeof(compressed) };

	for (int i = 0; i < SIZE; i++)
		plain[i] = i * i / 7;
	assert_int_equal(deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8,
				      Z_DEFAULT_STRATEGY),
			 Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return (struct packed){ .data = compressed, .size = z.total_out, .full = SIZE };
}

static void test_unpacks_once(void **state)
{
	struct packed p = pack();
	const void *data = packed__unpack(&p);

	(void)state;
	assert_memory_equal(data, plain, SIZE);
	assert_ptr_equal(packed__unpack(&p), data);
	free(p.unpacked);
}

static void test_writes(void **state)
{
	struct packed p = pack();
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	(void)state;
	assert_int_equal(packed__write(&p, out), 0);
	fclose(out);
	assert_int_equal(n, SIZE);
	assert_memory_equal(text, plain, SIZE);
	free(text);
	free(p.unpacked);
}

/* The build made the data wrong. */
static void test_another_size(void **state)
{
	(void)state;
	for (int wrong = 0; wrong < 3; wrong++) {
		struct packed p = pack();

		p.full += wrong == 0;
		p.full -= wrong == 1;
		p.size /= wrong == 2 ? 2 : 1;
		errno = 0;
		assert_null(packed__unpack(&p));
		assert_int_equal(errno, ENOMEM);
		assert_int_equal(packed__write(&p, NULL), -ENOMEM);
		assert_null(p.unpacked);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unpacks_once),
		cmocka_unit_test(test_writes),
		cmocka_unit_test(test_another_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
