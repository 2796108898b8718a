/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Groups of recordings that allocate alike, and which of them are compared with each other. */
#include "unit/cmocka.h"

#include "report/ranks/ranks.h"

#define MIB (UINT64_C(1) << 20)
#define LINES 4
#define MOST 64

struct case_of {
	struct rank_cell cells[MOST * LINES];
	size_t n_cells, n;
	bool out_lines[LINES], out[MOST];
};

/* Cells are sorted by line. mib: LINES values for each of n recordings; 0: it lacks the line. */
static void make(struct case_of *c, const unsigned *mib, size_t n)
{
	*c = (struct case_of){ .n = n };
	for (uint32_t line = 0; line < LINES; line++)
		for (uint32_t i = 0; i < n; i++)
			if (mib[i * LINES + line])
				c->cells[c->n_cells++] = (struct rank_cell){
					.recording = i,
					.line = line,
					.bytes = mib[i * LINES + line] * MIB,
				};
}

/* groups, families: a letter for each recording, "-": none. */
static void check(const struct case_of *c, const char *groups, const char *families)
{
	struct rank_groups g;

	assert_int_equal(rank_groups__make(c->cells, c->n_cells, c->out_lines, c->out, c->n, &g),
			 0);
	for (size_t i = 0; i < c->n; i++) {
		char group = g.of[i] == RANK_GROUPS_NONE ? '-' : (char)('a' + g.of[i]);

		assert_int_equal(group, groups[i]);
		if (group != '-')
			assert_int_equal('a' + g.all[g.of[i]].family, families[i]);
	}
	for (size_t i = 0; i < g.n; i++)
		for (uint32_t k = 0; k < g.all[i].n; k++)
			assert_int_equal(g.of[g.members[g.all[i].first + k]], i);
	rank_groups__free(&g);
}

static void test_stages(void **state)
{
	/* Two stages of three, and a rank of the first that has one line more. */
	static const unsigned mib[] = {
		100, 50, 0,   0, 100, 50, 0,   0,  100, 0, 80,	0,  100, 0,
		80,  0,	 100, 0, 80,  0,  100, 50, 0,	0, 100, 50, 0,	 300
	};
	struct case_of c;

	(void)state;
	make(&c, mib, 7);
	check(&c, "aabbbac", "aabbbaa");
	/* Without that line, it is like them. */
	c.out_lines[3] = true;
	check(&c, "aabbbaa", "aabbbaa");
	/* A worker is in no group. */
	c.out[0] = true;
	check(&c, "-abbbaa", "-abbbaa"); /* a: the first group that is seen */
}

static void test_limits(void **state)
{
	/* 9 % at a line; 1 MiB; a large part of a line, but 2 % of all. */
	static const unsigned alike[] = { 100, 5, 400, 0, 109, 5,  400, 0,
					  100, 6, 400, 0, 100, 15, 400, 0 };
	/* 3 % of all, at two lines that are each less than 2 %. */
	static const unsigned not_alike[] = { 20, 20, 400, 0, 20, 20, 400, 0, 28, 28, 400, 0 };
	struct case_of c;

	(void)state;
	make(&c, alike, 4);
	check(&c, "aaaa", "aaaa");
	make(&c, not_alike, 3);
	check(&c, "aab", "aaa");
}

static void test_all_different(void **state)
{
	static const unsigned mib[] = { 100, 0, 0, 0, 300, 0, 0, 0, 900, 0, 0, 0 };
	static const unsigned strange[] = { 100, 0, 0, 0, 100, 0, 0, 0, 0, 0, 500, 0 };
	struct case_of c;

	(void)state;
	/* Nothing says which are equal: all are compared. */
	make(&c, mib, 3);
	check(&c, "abc", "aaa");
	/* The third has nothing in common with the others. */
	make(&c, strange, 3);
	check(&c, "aab", "aab");
	make(&c, mib, 0);
	check(&c, "", "");
	make(&c, mib, 1);
	check(&c, "a", "a");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_stages),
					    cmocka_unit_test(test_limits),
					    cmocka_unit_test(test_all_different) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
