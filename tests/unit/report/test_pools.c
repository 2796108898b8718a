/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Private pools: sums over segments, and which segment made the pool. */
#include "unit/cmocka.h"

#include <stdlib.h>
#include <string.h>

#include "model/words.h"
#include "report/recording/pools.h"

#define MB (UINT64_C(1) << 20)

static struct row rows[] = {
	{ .file = "/u/a.py", .func = "f", .line = 1, .bytes = 2 * MB },
	{ .file = "/u/b.py", .func = "g", .line = 2, .bytes = 9 * MB },
};

static struct segment segment(uint64_t addr, uint64_t size, uint64_t graph, uint64_t pool,
			      uint64_t time, int row)
{
	return (struct segment){ .addr = addr,
				 .size = size,
				 .allocated = row < 0 ? 0 : rows[row].bytes,
				 .free = size - (row < 0 ? 0 : rows[row].bytes),
				 .blocks = row >= 0,
				 .pool_known = true,
				 .pool = { graph, pool },
				 .seen = time != 0,
				 .time = time,
				 .pins = row < 0 ? NULL : &rows[row],
				 .npins = row >= 0 };
}

static void test_sums(void **state)
{
	struct segment all[] = {
		segment(0x1000, 20 * MB, 0, 0, 1, 1), segment(0x2000, 2 * MB, 3, 0, 9, 0),
		segment(0x3000, 20 * MB, 3, 0, 5, 1), segment(0x4000, 30 * MB, 0, 3, 7, -1),
		segment(0x5000, 4 * MB, 0, 3, 0, -1), /* from before attach: the oldest */
	};
	struct model_segments s = { .all = all, .n = 5 };
	struct report_pool *p;
	size_t n;

	assert_int_equal(report_pools__of(&s, &p, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(p[0].id[1], 3);
	assert_int_equal(p[0].size, 34 * MB);
	assert_int_equal(p[0].segments, 2);
	assert_int_equal(p[0].free, 34 * MB);
	assert_int_equal(p[0].empty, 34 * MB);
	assert_ptr_equal(p[0].first, &all[4]);
	assert_null(p[0].most);
	assert_string_equal(words__private_pool(p[0].kind), "MemPool");
	assert_int_equal(p[1].id[0], 3);
	assert_int_equal(p[1].size, 22 * MB);
	assert_int_equal(p[1].allocated, 11 * MB);
	assert_int_equal(p[1].free, 11 * MB);
	assert_int_equal(p[1].empty, 0);
	assert_ptr_equal(p[1].first, &all[2]);
	assert_ptr_equal(p[1].most, &rows[1]);
	assert_string_equal(words__private_pool(p[1].kind), "CUDA graph");
	free(p);
}

static void test_words(void **state)
{
	struct model_segments s = { .private = { { .free = 9 * MB }, { 9 * MB, 4 * MB, 2 } } };
	char text[REPORT_POOLS_TEXT];

	assert_string_equal(report_pools__say_free(&s, PRIVATE_GRAPH, text),
			    "cached for CUDA graphs only");
	assert_string_equal(
		report_pools__say_free(&s, PRIVATE_MEMPOOL, text),
		"cached for MemPools only, 4.00 MiB of it in 2 segments without blocks");
	s.private[PRIVATE_MEMPOOL].empties = 1;
	assert_string_equal(report_pools__say_free(&s, PRIVATE_MEMPOOL, text),
			    "cached for MemPools only, 4.00 MiB of it in 1 segment without blocks");
}

static void test_none(void **state)
{
	struct segment one = segment(0x1000, 20 * MB, 0, 0, 1, 1);
	struct model_segments s = { .all = &one, .n = 1 };
	struct report_pool *p;
	size_t n, size;
	char *text;
	FILE *out = open_memstream(&text, &size);

	assert_int_equal(report_pools__of(&s, &p, &n), 0);
	assert_int_equal(n, 0);
	free(p);
	assert_int_equal(report_pools__print(out, &s, NULL, 80, false), 0);
	fclose(out);
	assert_string_equal(text, "");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
