/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Parquet's hybrid of runs and packed bits, decoded as the format's document says. */
#include "unit/cmocka.h"

#include "export/tables/parquet.h"

#include <stdlib.h>
#include <string.h>

static uint64_t varint(const uint8_t **p)
{
	uint64_t v = 0;

	for (unsigned shift = 0;; shift += 7) {
		uint8_t b = *(*p)++;

		v |= (uint64_t)(b & 127) << shift;
		if (b < 128)
			return v;
	}
}

/* Decodes n numbers and checks that nothing is left. */
static void decode(const struct thrift *t, unsigned width, uint32_t *v, size_t n)
{
	const uint8_t *p = t->buf, *end = t->buf + t->n;
	size_t at = 0;

	while (at < n) {
		uint64_t head = varint(&p), count = head >> 1;

		if (head & 1) {
			for (size_t i = 0; i < count * 8; i++) {
				uint32_t x = 0;

				for (unsigned b = 0; b < width; b++)
					x |= (uint32_t)(p[(i * width + b) / 8] >>
								(i * width + b) % 8 &
							1)
					     << b;
				if (at < n)
					v[at++] = x;
			}
			p += count * width;
			continue;
		}
		for (uint64_t i = 0; i < count; i++) {
			uint32_t x = 0;

			for (unsigned b = 0; b < (width + 7) / 8; b++)
				x |= (uint32_t)p[b] << 8 * b;
			assert_true(at < n);
			v[at++] = x;
		}
		p += (width + 7) / 8;
	}
	assert_ptr_equal(p, end);
}

static void test_round_trips(void **state)
{
	uint32_t seed = 1, *in = calloc(5000, sizeof(*in)), *out = calloc(5000, sizeof(*out));

	(void)state;
	assert_non_null(in);
	assert_non_null(out);
	for (unsigned width = 1; width <= 32; width++)
		for (size_t n = 0; n < 5000; n = n * 2 + 1) {
			struct thrift t = { 0 };

			/* Runs of 1 to 40 equal numbers. */
			for (size_t i = 0, left = 0; i < n; i++) {
				seed = seed * 1664525 + 1013904223;
				if (!left)
					left = 1 + (seed >> 24) % (width % 2 ? 40 : 4);
				left--;
				in[i] = left && i ? in[i - 1] : seed >> (32 - width);
			}
			parquet__put_levels(&t, in, n, width);
			assert_int_equal(t.err, 0);
			decode(&t, width, out, n);
			assert_memory_equal(in, out, n * sizeof(*in));
			free(t.buf);
		}
	free(in);
	free(out);
}

static void test_widths(void **state)
{
	(void)state;
	assert_int_equal(parquet__level_width(0), 1);
	assert_int_equal(parquet__level_width(2), 1);
	assert_int_equal(parquet__level_width(3), 2);
	assert_int_equal(parquet__level_width(256), 8);
	assert_int_equal(parquet__level_width(257), 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_widths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
