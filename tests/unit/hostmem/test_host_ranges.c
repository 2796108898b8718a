/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "unit/cmocka.h"

#include "inspect/hostmem/host_memory.h"
#include "memtrace.h"

#define PAGE 4096ULL
#define PAGES 64ULL
#define BASE 0x100000ULL

/* The owner of each page, according to the reported blocks. */
struct told {
	uint32_t owner[PAGES * 2]; /* owner of each page with a block; 0: none */
	uint64_t bytes, blocks;
	size_t fail_after; /* calls until one fails; 0: none does */
};

static int tell(void *ctx, const struct host_owner *owner, uint64_t addr, uint64_t size, bool comes)
{
	struct told *t = ctx;
	uint64_t i, first = (addr - BASE) / PAGE;

	if (t->fail_after && !--t->fail_after)
		return -5;
	assert_true(size && size % PAGE == 0 && addr >= BASE);
	for (i = first; i < first + size / PAGE; i++) {
		assert_true(i < PAGES * 2);
		assert_int_equal(t->owner[i], comes ? 0 : owner->stack);
		t->owner[i] = comes ? owner->stack : 0;
	}
	t->bytes += comes ? size : -size;
	t->blocks += comes ? 1 : -1ULL;
	return 0;
}

static struct host_range by(uint32_t stack)
{
	return (struct host_range){ .owner = { .stack = stack, .thread = 1 }, .writable = true };
}

static uint64_t page(uint64_t n)
{
	return BASE + n * PAGE;
}

static int map(struct host_ranges *h, uint64_t from, uint64_t to, uint32_t stack)
{
	struct host_range like = by(stack);

	return host_ranges__map(h, page(from), page(to), &like, 0);
}

static struct host_range *at(const struct host_ranges *h, uint64_t n)
{
	size_t i = host_ranges__find(h, page(n));

	assert_true(i < h->n && h->v[i]->start <= page(n));
	return h->v[i];
}

static void test_growth_keeps_older_blocks(void **state)
{
	struct told t = { 0 };
	struct host_ranges h;

	host_ranges__init(&h, tell, &t);
	assert_int_equal(map(&h, 0, 40, 7), 0);
	assert_int_equal(t.blocks, 0); /* nothing is resident yet */
	assert_int_equal(host_ranges__set(&h, at(&h, 0), 10 * PAGE), 0);
	assert_int_equal(host_ranges__set(&h, at(&h, 0), 15 * PAGE), 0);
	assert_int_equal(t.blocks, 2);
	assert_int_equal(at(&h, 0)->piece[0], 10 * PAGE);
	/* less than the second block */
	assert_int_equal(host_ranges__set(&h, at(&h, 0), 12 * PAGE), 0);
	assert_int_equal(t.bytes, 12 * PAGE);
	assert_int_equal(at(&h, 0)->piece[0], 10 * PAGE);
	/* more than fits */
	assert_int_equal(host_ranges__set(&h, at(&h, 0), 400 * PAGE), 0);
	assert_int_equal(t.bytes, 40 * PAGE);
	assert_int_equal(host_ranges__unmap(&h, page(0), page(40)), 0);
	assert_int_equal(t.bytes, 0);
	assert_int_equal(t.blocks, 0);
	host_ranges__free(&h);
}

static void test_blocks_of_a_range_are_bounded(void **state)
{
	struct told t = { 0 };
	struct host_ranges h;

	host_ranges__init(&h, tell, &t);
	assert_int_equal(map(&h, 0, 60, 7), 0);
	for (uint64_t n = 1; n <= 60; n++) {
		assert_int_equal(host_ranges__set(&h, at(&h, 0), n * PAGE), 0);
		assert_int_equal(t.bytes, n * PAGE);
		assert_true(t.blocks <= HOST_PIECES);
	}
	assert_int_equal(t.blocks, HOST_PIECES);
	host_ranges__free(&h);
}

static void test_cut_in_the_middle(void **state)
{
	struct told t = { 0 };
	struct host_ranges h;
	uint64_t id;

	host_ranges__init(&h, tell, &t);
	assert_int_equal(map(&h, 0, 30, 7), 0);
	id = at(&h, 0)->id;
	assert_int_equal(host_ranges__set(&h, at(&h, 0), 30 * PAGE), 0);
	assert_int_equal(host_ranges__unmap(&h, page(10), page(20)), 0);
	assert_int_equal(h.n, 2);
	assert_int_equal(t.bytes, 20 * PAGE); /* each rest has its share */
	assert_int_equal(at(&h, 0)->end, page(10));
	assert_int_equal(at(&h, 25)->start, page(20));
	assert_true(at(&h, 0)->id != id && at(&h, 25)->id != at(&h, 0)->id);
	assert_int_equal(at(&h, 25)->owner.stack, 7);
	/* A mapping replaces what it covers. */
	assert_int_equal(map(&h, 5, 25, 8), 0);
	assert_int_equal(h.n, 3);
	assert_int_equal(t.bytes, 10 * PAGE);
	assert_int_equal(at(&h, 15)->owner.stack, 8);
	host_ranges__free(&h);
}

static void test_small_growth_joins(void **state)
{
	struct host_range large = by(7);
	struct told t = { 0 };
	struct host_ranges h;

	host_ranges__init(&h, tell, &t);
	for (uint64_t n = 0; n < 20; n++)
		assert_int_equal(map(&h, n, n + 1, 7), 0);
	assert_int_equal(h.n, 1);
	assert_int_equal(at(&h, 0)->end, page(20));
	assert_int_equal(map(&h, 20, 21, 8), 0); /* another line */
	assert_int_equal(h.n, 2);
	assert_int_equal(host_ranges__map(&h, page(21), page(21) + HOST_MERGE_BELOW, &large, 0), 0);
	assert_int_equal(h.n, 3);
	/* A mapping's name is no owner: two neighbours may be different mappings. */
	large.named = true;
	assert_int_equal(host_ranges__map(&h, page(0), page(1), &large, 0), 0);
	assert_int_equal(host_ranges__map(&h, page(1), page(2), &large, 0), 0);
	assert_int_equal(h.n, 5);
	host_ranges__free(&h);
}

static void test_moves_keep_the_owner(void **state)
{
	struct host_range like = by(9);
	struct told t = { 0 };
	struct host_ranges h;

	host_ranges__init(&h, tell, &t);
	assert_int_equal(map(&h, 0, 10, 7), 0);
	assert_int_equal(host_ranges__set(&h, at(&h, 0), 10 * PAGE), 0);
	/* to another place, and larger */
	assert_int_equal(host_ranges__move(&h, page(0), 10 * PAGE, page(40), 16 * PAGE, &like), 0);
	assert_int_equal(h.n, 2);
	assert_int_equal(at(&h, 40)->owner.stack, 7);
	assert_int_equal(at(&h, 40)->resident, 10 * PAGE);
	assert_int_equal(at(&h, 50)->owner.stack, 9);
	assert_int_equal(at(&h, 50)->end, page(56));
	assert_int_equal(t.owner[40], 7);
	/* in place, smaller */
	assert_int_equal(host_ranges__move(&h, page(40), 16 * PAGE, page(40), 4 * PAGE, &like), 0);
	assert_int_equal(h.n, 1);
	assert_int_equal(t.bytes, 4 * PAGE);
	/* addresses that wrap */
	assert_int_equal(host_ranges__move(&h, UINT64_MAX - 5, 100, page(1), PAGE, &like), 0);
	assert_int_equal(h.n, 1);
	host_ranges__free(&h);
}

static void test_reserved_memory_is_opened(void **state)
{
	struct host_range reserved = by(7), like = by(9);
	struct told t = { 0 };
	struct host_ranges h;

	host_ranges__init(&h, tell, &t);
	reserved.writable = false;
	assert_int_equal(host_ranges__map(&h, page(0), page(40), &reserved, 0), 0);
	assert_int_equal(host_ranges__make_writable(&h, page(0), page(4), &like), 0);
	assert_int_equal(host_ranges__make_writable(&h, page(0), page(6), &like), 0);
	assert_int_equal(h.n, 2);
	assert_int_equal(at(&h, 5)->owner.stack, 9);
	assert_int_equal(at(&h, 5)->start, page(0));
	assert_int_equal(at(&h, 6)->owner.stack, 7);
	/* Data that becomes writable stays with who mapped it. */
	assert_int_equal(host_ranges__set(&h, at(&h, 6), PAGE), 0);
	assert_int_equal(host_ranges__make_writable(&h, page(6), page(40), &like), 0);
	assert_int_equal(at(&h, 6)->owner.stack, 7);
	host_ranges__free(&h);
}

static void test_errors_of_the_function(void **state)
{
	struct told t = { .fail_after = 1 };
	struct host_ranges h;

	host_ranges__init(&h, tell, &t);
	assert_int_equal(map(&h, 0, 10, 7), 0);
	assert_int_equal(host_ranges__set(&h, at(&h, 0), PAGE), -5);
	host_ranges__free(&h);
}

/* Random operations, compared with a table that has the owner of each page. */
static void test_at_random(void **state)
{
	uint32_t owner[PAGES] = { 0 };
	struct told t = { 0 };
	struct host_ranges h;

	srand(11);
	host_ranges__init(&h, tell, &t);
	for (int turn = 0; turn < 20000; turn++) {
		uint64_t from = (uint64_t)rand() % PAGES,
			 to = from + (uint64_t)rand() % (PAGES - from + 1);
		uint32_t stack = 1 + (uint32_t)rand() % 3;
		uint64_t bytes = 0;

		switch (rand() % 4) {
		case 0:
			assert_int_equal(map(&h, from, to, stack), 0);
			for (uint64_t i = from; i < to; i++)
				owner[i] = stack;
			break;
		case 1:
			assert_int_equal(host_ranges__unmap(&h, page(from), page(to)), 0);
			for (uint64_t i = from; i < to; i++)
				owner[i] = 0;
			break;
		default:
			if (h.n)
				assert_int_equal(host_ranges__set(&h, h.v[(size_t)rand() % h.n],
								  from * PAGE),
						 0);
		}
		for (size_t i = 0; i < h.n; i++) {
			assert_true(h.v[i]->start < h.v[i]->end && h.v[i]->n <= HOST_PIECES);
			assert_true(!i || h.v[i - 1]->end <= h.v[i]->start);
			assert_true(h.v[i]->resident <= h.v[i]->end - h.v[i]->start);
			bytes += h.v[i]->resident;
		}
		assert_int_equal(bytes, t.bytes);
		for (uint64_t i = 0; i < PAGES; i++) {
			size_t r = host_ranges__find(&h, page(i));
			bool in = r < h.n && h.v[r]->start <= page(i);

			assert_int_equal(in ? h.v[r]->owner.stack : 0, owner[i]);
		}
	}
	host_ranges__free(&h);
}

/* Two pieces of one owner that become one range have the mean of their grains. */
static void test_grain_of_joined_ranges(void **state)
{
	struct told t = { 0 };
	struct host_ranges h;
	struct host_range like = by(7);

	host_ranges__init(&h, tell, &t);
	like.owner.grain = 4000;
	assert_int_equal(host_ranges__map(&h, page(0), page(1), &like, 0), 0);
	like.owner.grain = 8000;
	assert_int_equal(host_ranges__map(&h, page(1), page(4), &like, 0), 0);
	assert_int_equal(h.n, 1);
	assert_int_equal(h.v[0]->owner.grain, 7000);
	assert_int_equal(host_ranges__unmap(&h, page(1), page(2)), 0);
	assert_int_equal(h.n, 2);
	assert_int_equal(h.v[1]->owner.grain, 7000);
	host_ranges__free(&h);
}

/* Growth that no reading has seen is that of the newest memory. */
static void test_fill(void **state)
{
	struct host_range fresh = by(7), old = by(8);
	struct told t = { 0 };
	struct host_ranges h;
	uint64_t added;

	host_ranges__init(&h, tell, &t);
	fresh.fresh = UINT64_MAX;
	assert_int_equal(host_ranges__map(&h, page(0), page(10), &fresh, 0), 0);
	assert_int_equal(host_ranges__map(&h, page(20), page(30), &old, 0), 0);
	fresh.owner.stack = 9;
	assert_int_equal(host_ranges__map(&h, page(40), page(44), &fresh, 0), 0);
	assert_int_equal(host_ranges__charge(&h, 6 * PAGE + 100, &added), 0);
	assert_int_equal(added, 6 * PAGE);
	assert_int_equal(at(&h, 40)->resident, 4 * PAGE);
	assert_int_equal(at(&h, 0)->resident, 2 * PAGE);
	/* Each part of a range has its share of the memory that may have come. */
	assert_int_equal(host_ranges__unmap(&h, page(5), page(6)), 0);
	assert_int_equal(at(&h, 0)->fresh + at(&h, 6)->fresh, 7 * PAGE);
	/* All that is fresh, and no more. */
	assert_int_equal(host_ranges__charge(&h, 100 * PAGE, &added), 0);
	assert_int_equal(at(&h, 20)->resident, 0);
	assert_true(t.bytes <= 13 * PAGE && t.bytes >= 11 * PAGE);
	assert_int_equal(host_ranges__charge(&h, 100 * PAGE, &added), 0);
	assert_int_equal(added, 0);
	host_ranges__free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_growth_keeps_older_blocks),
		cmocka_unit_test(test_blocks_of_a_range_are_bounded),
		cmocka_unit_test(test_cut_in_the_middle),
		cmocka_unit_test(test_small_growth_joins),
		cmocka_unit_test(test_moves_keep_the_owner),
		cmocka_unit_test(test_reserved_memory_is_opened),
		cmocka_unit_test(test_errors_of_the_function),
		cmocka_unit_test(test_fill),
		cmocka_unit_test(test_at_random),
		cmocka_unit_test(test_grain_of_joined_ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
