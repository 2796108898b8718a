/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <string.h>

/* Includes the code: the library's objects are never built with sanitizers. */
#include "../../../tools/dryrun/space.c"

#define BASE 0x7f0000000000ull
#define UNIT 512ull

static struct space new_space(uint64_t units)
{
	struct space s = { .align = UNIT };

	assert_int_equal(space__extend(&s, BASE, units * UNIT), 0);
	return s;
}

static uint64_t take(struct space *s, uint64_t units)
{
	uint64_t addr = 0;

	assert_int_equal(space__alloc(s, units * UNIT, &addr), 0);
	assert_true(addr >= BASE && addr % UNIT == 0);
	return (addr - BASE) / UNIT;
}

static void test_first_fit(void **state)
{
	struct space s = new_space(10);

	assert_int_equal(take(&s, 2), 0);
	assert_int_equal(take(&s, 3), 2);
	assert_int_equal(take(&s, 1), 5);
	assert_int_equal(take(&s, 1), 6);
	assert_int_equal(space__free(&s, BASE), 2 * UNIT);
	assert_int_equal(space__free(&s, BASE + 5 * UNIT), UNIT);
	assert_int_equal(take(&s, 3), 7); /* too large for the gaps */
	assert_int_equal(take(&s, 1), 0); /* first fit, not best fit */
	assert_int_equal(take(&s, 1), 1);
	assert_int_equal(take(&s, 1), 5);
	space__destroy(&s);
}

static void test_sizes_are_rounded(void **state)
{
	struct space s = new_space(4);
	uint64_t addr = 77;

	assert_int_equal(space__alloc(&s, 1, &addr), 0);
	assert_true(addr == BASE);
	assert_int_equal(s.used_bytes, UNIT);
	assert_int_equal(space__alloc(&s, UNIT + 1, &addr), 0);
	assert_true(addr == BASE + UNIT);
	assert_int_equal(s.used_bytes, 3 * UNIT);
	addr = 77;
	assert_int_equal(space__alloc(&s, 0, &addr), -EINVAL);
	assert_int_equal(space__alloc(&s, UINT64_MAX, &addr), -EINVAL);
	assert_int_equal(space__alloc(&s, UINT64_MAX - UNIT + 1, &addr), -EINVAL);
	assert_int_equal(space__alloc(&s, UINT64_MAX - UNIT, &addr), -ENOSPC);
	assert_int_equal(addr, 77);
	space__destroy(&s);
}

static void test_exhaustion_and_merging(void **state)
{
	struct space s = new_space(8);
	uint64_t addr = 77;

	for (unsigned int i = 0; i < 8; i++)
		assert_int_equal(take(&s, 1), i);
	assert_int_equal(space__alloc(&s, 1, &addr), -ENOSPC);
	for (unsigned int i = 1; i < 8; i += 2)
		assert_int_equal(space__free(&s, BASE + i * UNIT), UNIT);
	/* half is free, but no two adjacent units */
	assert_int_equal(space__alloc(&s, 2 * UNIT, &addr), -ENOSPC);
	assert_int_equal(addr, 77);
	assert_int_equal(space__free(&s, BASE + 4 * UNIT), UNIT);
	assert_int_equal(take(&s, 3), 3);
	for (unsigned int i = 0; i < 8; i++) /* 3 joins 4 and 5; the others are free already */
		space__free(&s, BASE + i * UNIT);
	assert_int_equal(s.used_bytes, 0);
	assert_int_equal(take(&s, 8), 0);
	space__destroy(&s);
}

static void test_invalid_frees(void **state)
{
	struct space s = new_space(8);
	struct space_range range = { 1, 2 };

	assert_int_equal(take(&s, 4), 0);
	assert_int_equal(space__free(&s, BASE + UNIT), 0);     /* inside an allocation */
	assert_int_equal(space__free(&s, BASE + 4 * UNIT), 0); /* after the last allocation */
	assert_int_equal(space__free(&s, 0), 0);
	assert_int_equal(space__free(&s, UINT64_MAX), 0);
	assert_int_equal(s.used_bytes, 4 * UNIT);
	assert_false(space__find(&s, BASE - 1, &range));
	assert_false(space__find(&s, BASE + 4 * UNIT, &range));
	assert_true(range.addr == 1 && range.size == 2); /* unchanged */
	assert_true(space__find(&s, BASE + 4 * UNIT - 1, &range));
	assert_true(range.addr == BASE && range.size == 4 * UNIT);
	assert_int_equal(space__free(&s, BASE), 4 * UNIT);
	assert_int_equal(space__free(&s, BASE), 0);
	space__destroy(&s);
}

/* Adjacent extents stay separate: no allocation crosses them. shrink() removes the highest
 * empty one. */
static void test_extents(void **state)
{
	struct space s = new_space(4);
	struct space_range range;
	uint64_t addr;

	assert_int_equal(space__extend(&s, BASE + 4 * UNIT, 4 * UNIT), 0);
	assert_int_equal(space__extend(&s, BASE - 4 * UNIT, 4 * UNIT), 0);
	assert_int_equal(s.extent_bytes, 12 * UNIT);
	assert_int_equal(space__alloc(&s, 5 * UNIT, &addr), -ENOSPC);
	assert_int_equal(space__alloc(&s, 3 * UNIT, &addr), 0);
	assert_true(addr == BASE - 4 * UNIT);
	assert_int_equal(space__alloc(&s, 2 * UNIT, &addr), 0);
	assert_true(addr == BASE);
	assert_false(space__shrink(&s, 9 * UNIT, &range)); /* too few would remain */
	assert_true(space__shrink(&s, 8 * UNIT, &range));
	assert_true(range.addr == BASE + 4 * UNIT && range.size == 4 * UNIT);
	assert_false(space__shrink(&s, 0, &range)); /* both remaining extents are in use */
	assert_int_equal(space__free(&s, BASE - 4 * UNIT), 3 * UNIT);
	assert_true(space__shrink(&s, 0, &range));
	assert_true(range.addr == BASE - 4 * UNIT);
	assert_int_equal(s.extent_bytes, 4 * UNIT);
	assert_int_equal(space__alloc(&s, 3 * UNIT, &addr), -ENOSPC);
	assert_int_equal(space__alloc(&s, 2 * UNIT, &addr), 0);
	assert_true(addr == BASE + 2 * UNIT);
	space__destroy(&s);
}

/*
 * Compared with a naive model: one byte per unit with the allocation's number, 0 if free, NOWHERE
 * outside of extents.
 */
#define UNITS 200
#define EXTENTS 5 /* rows of UNITS / EXTENTS units each */
#define ROW (UNITS / EXTENTS)
#define NOWHERE 0xffff

struct naive {
	unsigned short unit[UNITS];
	uint64_t rng;
};

static unsigned int draw(struct naive *n, unsigned int below)
{
	n->rng = n->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned int)((n->rng >> 33) % below);
}

static int naive_fit(const struct naive *n, unsigned int size)
{
	for (unsigned int at = 0; at + size <= UNITS; at++) {
		unsigned int free = 0;

		while (free < size && !n->unit[at + free] && at / ROW == (at + free) / ROW)
			free++;
		if (free == size)
			return (int)at;
	}
	return -1;
}

static void compare_all(const struct space *s, const struct naive *n)
{
	uint64_t used = 0, extents = 0;

	for (unsigned int at = 0; at < UNITS; at++) {
		bool in = n->unit[at] && n->unit[at] != NOWHERE;
		struct space_range range = { 0 };

		assert_int_equal(space__find(s, BASE + at * UNIT + UNIT / 2, &range), in);
		if (in) {
			unsigned int first = (unsigned int)((range.addr - BASE) / UNIT);

			assert_true(range.addr >= BASE && n->unit[first] == n->unit[at]);
			assert_true(!first || n->unit[first - 1] != n->unit[at]);
			used += UNIT;
		}
		extents += n->unit[at] != NOWHERE ? UNIT : 0;
	}
	assert_int_equal(s->used_bytes, used);
	assert_int_equal(s->extent_bytes, extents);
}

static void one_alloc(struct space *s, struct naive *n, unsigned short *id)
{
	unsigned int size = 1 + draw(n, draw(n, 4) ? 6 : ROW + 2);
	int expected = naive_fit(n, size);
	uint64_t addr = 0;

	assert_int_equal(space__alloc(s, size * UNIT - draw(n, UNIT), &addr),
			 expected < 0 ? -ENOSPC : 0);
	if (expected < 0)
		return;
	assert_true(addr == BASE + (unsigned int)expected * UNIT);
	*id = *id == NOWHERE - 1 ? 1 : *id + 1;
	for (unsigned int i = 0; i < size; i++)
		n->unit[(unsigned int)expected + i] = *id;
}

static void one_free(struct space *s, struct naive *n)
{
	unsigned int at = draw(n, UNITS), size = 0;
	unsigned short id = n->unit[at];

	if (id && id != NOWHERE && (!at || n->unit[at - 1] != id)) {
		for (; at + size < UNITS && n->unit[at + size] == id; size++)
			n->unit[at + size] = 0;
	}
	assert_int_equal(space__free(s, BASE + at * UNIT), size * UNIT);
}

static void one_extent(struct space *s, struct naive *n)
{
	unsigned int row = draw(n, EXTENTS);
	struct space_range range;
	int highest = -1;

	if (n->unit[row * ROW] == NOWHERE) {
		memset(&n->unit[row * ROW], 0, ROW * sizeof(*n->unit));
		assert_int_equal(space__extend(s, BASE + row * ROW * UNIT, ROW * UNIT), 0);
		return;
	}
	for (unsigned int r = 0; r < EXTENTS; r++) {
		bool empty = true;

		for (unsigned int i = 0; i < ROW; i++)
			empty = empty && !n->unit[r * ROW + i];
		highest = empty ? (int)r : highest;
	}
	assert_int_equal(space__shrink(s, 0, &range), highest >= 0);
	if (highest < 0)
		return;
	assert_true(range.addr == BASE + (unsigned int)highest * ROW * UNIT &&
		    range.size == ROW * UNIT);
	for (unsigned int i = 0; i < ROW; i++)
		n->unit[(unsigned int)highest * ROW + i] = NOWHERE;
}

static void test_against_units(void **state)
{
	struct space s = { .align = UNIT };
	static struct naive n;
	unsigned short id = 0;

	n.rng = 20240229;
	for (unsigned int i = 0; i < UNITS; i++)
		n.unit[i] = NOWHERE;
	for (unsigned int round = 0; round < 60000; round++) {
		unsigned int what = draw(&n, 100);

		if (what < 3)
			one_extent(&s, &n);
		else if (what < 40)
			one_alloc(&s, &n, &id);
		else
			one_free(&s, &n);
		if (round % 16 == 0)
			compare_all(&s, &n);
	}
	space__destroy(&s);
	assert_int_equal(s.used.n, 0);
	assert_int_equal(s.align, UNIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_fit),
		cmocka_unit_test(test_sizes_are_rounded),
		cmocka_unit_test(test_exhaustion_and_merging),
		cmocka_unit_test(test_invalid_frees),
		cmocka_unit_test(test_extents),
		cmocka_unit_test(test_against_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
