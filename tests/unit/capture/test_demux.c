/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>

#include "capture/probes/probes_internal.h"

struct taker {
	unsigned int n;
	uint64_t last;
	int ret;
};

static int take(void *ctx, const void *rec, size_t len)
{
	struct taker *t = ctx;

	assert_int_equal(len, sizeof(struct mt_rec_free));
	t->n++;
	t->last = ((const struct mt_rec_free *)rec)->addr;
	return t->ret;
}

static int deal(struct demux *f, unsigned int type, unsigned int member, uint64_t addr)
{
	const struct mt_rec_free r = { .h = { .type = type, .member = member, .sleepable = 1 },
				       .addr = addr };

	return demux__deal(f, &r, sizeof(r));
}

static void test_by_number(void **state)
{
	struct taker a = { 0 }, b = { .ret = -EAGAIN };
	struct demux f = { 0 };

	demux__set(&f, 1, take, &a);
	demux__set(&f, MT_MEMBERS - 1, take, &b);
	assert_int_equal(deal(&f, MT_REC_CPU_DELETE, 1, 10), 0);
	assert_int_equal(deal(&f, MT_REC_CPU_DELETE, MT_MEMBERS - 1, 20), -EAGAIN);
	assert_int_equal(deal(&f, MT_REC_CPU_DELETE, 5, 30), 0);
	assert_true(a.n == 1 && a.last == 10 && b.n == 1 && b.last == 20);
	demux__set(&f, 1, NULL, NULL);
	assert_int_equal(deal(&f, MT_REC_CPU_DELETE, 1, 40), 0);
	assert_int_equal(a.n, 1);
}

/* All members get the ends of code objects, also if one member's queue is full. Only missing memory
 * counts as a loss. */
static void test_ends(void **state)
{
	struct taker a = { .ret = -ENOMEM }, b = { .ret = -EAGAIN }, c = { 0 };
	struct demux f = { 0 };

	demux__set(&f, 1, take, &a);
	demux__set(&f, 2, take, &b);
	demux__set(&f, 3, take, &c);
	assert_int_equal(deal(&f, MT_REC_CODE_GONE, 3, 7), -ENOMEM);
	assert_true(a.n == 1 && b.n == 1 && c.n == 1 && c.last == 7);
	a.ret = 0;
	assert_int_equal(deal(&f, MT_REC_CODE_GONE, 9, 8), -EAGAIN);
	assert_true(a.n == 2 && b.n == 2 && c.n == 2);
}

static struct taker late;

static void add_member(void *ctx)
{
	demux__set(ctx, 4, take, &late);
}

static void test_unknown(void **state)
{
	struct demux f = { .unknown = add_member };

	f.unknown_ctx = &f;
	assert_int_equal(deal(&f, MT_REC_CPU_DELETE, 4, 1), 0);
	assert_int_equal(deal(&f, MT_REC_CPU_DELETE, 4, 2), 0);
	assert_true(late.n == 2 && late.last == 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_number),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
