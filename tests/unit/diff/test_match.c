/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Pairs lines of two versions of a program. */
#include "unit/cmocka.h"

#include <stdbool.h>

#include "report/diff/match.h"

#define OLD MATCH_OLD
#define NEW MATCH_NEW

static struct match *new_match(void)
{
	struct match *m = match__new("/home/u/v1", "/home/u/v2");

	assert_non_null(m);
	return m;
}

static void add(struct match *m, enum match_side side, const char *file, const char *func,
		uint32_t line, const char *does, uint64_t size)
{
	assert_int_equal(match__add(m, side, file, func, line, match__hash(m, does, 0),
				    size ? match__hash(m, "size", size) : 0),
			 0);
}

static void settle(struct match *m)
{
	assert_int_equal(match__settle(m), 0);
}

static bool same(struct match *m, const char *old_file, uint32_t old, const char *new_file,
		 uint32_t new)
{
	uint32_t a = match__number(m, OLD, old_file, "f", old),
		 b = match__number(m, NEW, new_file, "f", new);

	assert_int_not_equal(a, 0);
	assert_int_not_equal(b, 0);
	return a == b;
}

static void test_unmoved(void **state)
{
	struct match *m = new_match();

	for (int side = OLD; side <= NEW; side++)
		for (uint32_t line = 10; line < 20; line++)
			add(m, side, "a.py", "f", line, "allocates", line);
	settle(m);
	for (uint32_t a = 10; a < 20; a++)
		for (uint32_t b = 10; b < 20; b++)
			assert_int_equal(same(m, "a.py", a, "a.py", b), a == b);
	assert_int_equal(match__number(m, OLD, "a.py", "f", 20), 0);
	assert_int_equal(match__number(m, OLD, "b.py", "f", 10), 0);
	match__free(m);
}

/* Two lines inserted above: line 26 exists in both, but line 24 became 26. */
static void test_moved(void **state)
{
	struct match *m = new_match();

	for (int i = 0; i < 3; i++) {
		static const uint32_t lines[] = { 24, 26, 27 };

		add(m, OLD, "a.py", "f", lines[i], "allocates", 0);
		add(m, NEW, "a.py", "f", lines[i] + 2, "allocates", 0);
	}
	settle(m);
	assert_true(same(m, "a.py", 24, "a.py", 26));
	assert_true(same(m, "a.py", 26, "a.py", 28));
	assert_true(same(m, "a.py", 27, "a.py", 29));
	assert_false(same(m, "a.py", 26, "a.py", 26));
	match__free(m);
}

/* One line inserted and one removed in the middle: the lines around them stay paired. */
static void test_inserted_and_removed(void **state)
{
	static const uint32_t old[] = { 10, 12, 14, 16, 20 }, new[] = { 10, 11, 13, 17, 21 };
	struct match *m = new_match();

	/* 12 is 13, 16 is 17, 20 is 21; sizes show that 14 is gone and 11 is new */
	for (int i = 0; i < 5; i++) {
		add(m, OLD, "a.py", "f", old[i], "allocates", old[i]);
		add(m, NEW, "a.py", "f", new[i], "allocates",
		    new[i] == 10   ? 10
		    : new[i] == 11 ? 99
				   : new[i] - 1);
	}
	settle(m);
	assert_true(same(m, "a.py", 10, "a.py", 10));
	assert_true(same(m, "a.py", 12, "a.py", 13));
	assert_true(same(m, "a.py", 16, "a.py", 17));
	assert_true(same(m, "a.py", 20, "a.py", 21));
	assert_false(same(m, "a.py", 14, "a.py", 11));
	match__free(m);
}

/* One line between two pairs: matches the nearest in order. */
static void test_order(void **state)
{
	struct match *m = new_match();

	add(m, OLD, "a.py", "f", 10, "allocates", 0);
	add(m, OLD, "a.py", "f", 14, "allocates", 0);
	add(m, OLD, "a.py", "f", 20, "allocates", 0);
	add(m, NEW, "a.py", "f", 10, "allocates", 0);
	add(m, NEW, "a.py", "f", 15, "allocates", 0);
	add(m, NEW, "a.py", "f", 17, "allocates", 0);
	add(m, NEW, "a.py", "f", 20, "allocates", 0);
	settle(m);
	assert_true(same(m, "a.py", 14, "a.py", 15));
	assert_false(same(m, "a.py", 14, "a.py", 17));
	match__free(m);
}

/* Pairs keep their order. */
static void test_never_crosses(void **state)
{
	struct match *m = new_match();

	add(m, OLD, "a.py", "f", 10, "calls g", 0);
	add(m, OLD, "a.py", "f", 11, "calls h", 0);
	add(m, NEW, "a.py", "f", 20, "calls h", 0);
	add(m, NEW, "a.py", "f", 21, "calls g", 0);
	settle(m);
	assert_int_equal(same(m, "a.py", 10, "a.py", 21) + same(m, "a.py", 11, "a.py", 20), 1);
	match__free(m);
}

/* A line with other allocations is another line, wherever it is. */
static void test_does_something_else(void **state)
{
	struct match *m = new_match();

	add(m, OLD, "a.py", "f", 10, "calls g", 0);
	add(m, NEW, "a.py", "f", 10, "calls h", 0);
	settle(m);
	assert_false(same(m, "a.py", 10, "a.py", 10));
	match__free(m);
}

static void test_other_function(void **state)
{
	struct match *m = new_match();

	add(m, OLD, "a.py", "f", 10, "allocates", 0);
	add(m, NEW, "a.py", "g", 10, "allocates", 0);
	settle(m);
	assert_int_not_equal(match__number(m, OLD, "a.py", "f", 10),
			     match__number(m, NEW, "a.py", "g", 10));
	match__free(m);
}

static void test_renamed_folder(void **state)
{
	static const char *const old[] = { "/w/one/net/model.py", "/w/one/net/data/model.py",
					   "/w/one/train.py" };
	static const char *const new[] = { "/x/two/net/model.py", "/x/two/net/data/model.py",
					   "/x/two/train.py" };
	struct match *m = new_match();
	const struct match_files *f;

	for (int i = 0; i < 3; i++) {
		add(m, OLD, old[i], "f", 10, "allocates", 0);
		add(m, NEW, new[i], "f", 15, "allocates", 0);
	}
	settle(m);
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 3; k++)
			assert_int_equal(same(m, old[i], 10, new[k], 15), i == k);
	assert_int_equal(match__renamed(m, &f), 3);
	assert_string_equal(f[0].path[OLD], old[1]);
	assert_string_equal(f[0].path[NEW], new[1]);
	match__free(m);
}

/* Both files end alike: the path below the program's folder decides. */
static void test_below_the_folder(void **state)
{
	struct match *m = new_match();

	add(m, OLD, "/home/u/v1/model.py", "f", 10, "allocates", 0);
	add(m, NEW, "/home/u/v2/model.py", "f", 10, "allocates", 0);
	add(m, NEW, "/home/u/v2/old/model.py", "f", 10, "allocates", 0);
	settle(m);
	assert_true(same(m, "/home/u/v1/model.py", 10, "/home/u/v2/model.py", 10));
	assert_false(same(m, "/home/u/v1/model.py", 10, "/home/u/v2/old/model.py", 10));
	match__free(m);
}

/* Two equally good candidates: none is chosen. */
static void test_ambiguous(void **state)
{
	struct match *m = new_match();
	const struct match_files *f;

	add(m, OLD, "/w/a/model.py", "f", 10, "allocates", 0);
	add(m, NEW, "/x/b/model.py", "f", 10, "allocates", 0);
	add(m, NEW, "/x/c/model.py", "f", 10, "allocates", 0);
	settle(m);
	assert_false(same(m, "/w/a/model.py", 10, "/x/b/model.py", 10));
	assert_false(same(m, "/w/a/model.py", 10, "/x/c/model.py", 10));
	assert_int_equal(match__renamed(m, &f), 0);
	match__free(m);
}

/* A file in both versions matches itself, not a file with an equal ending or other functions. */
static void test_same_path_first(void **state)
{
	struct match *m = new_match();

	add(m, OLD, "/w/net/model.py", "f", 10, "allocates", 0);
	add(m, NEW, "/w/net/model.py", "f", 10, "allocates", 0);
	add(m, NEW, "/x/net/model.py", "f", 10, "allocates", 0);
	add(m, OLD, "/w/utils.py", "f", 10, "allocates", 0);
	add(m, NEW, "/x/utils.py", "g", 10, "allocates", 0);
	settle(m);
	assert_true(same(m, "/w/net/model.py", 10, "/w/net/model.py", 10));
	assert_false(same(m, "/w/net/model.py", 10, "/x/net/model.py", 10));
	assert_int_not_equal(match__number(m, OLD, "/w/utils.py", "f", 10),
			     match__number(m, NEW, "/x/utils.py", "g", 10));
	match__free(m);
}

/* Too many lines to compare all pairs: unmoved lines are still matched, quickly. */
static void test_very_many(void **state)
{
	struct match *m = new_match();

	for (uint32_t line = 1; line <= 20000; line++) {
		add(m, OLD, "a.py", "f", line, "allocates", 0);
		add(m, NEW, "a.py", "f", line + 10000, "allocates", 0);
	}
	settle(m);
	assert_true(same(m, "a.py", 10001, "a.py", 10001));
	assert_true(same(m, "a.py", 20000, "a.py", 20000));
	assert_false(same(m, "a.py", 1, "a.py", 10001));
	match__free(m);
}

static void test_odd(void **state)
{
	struct match *m = new_match();

	settle(m);
	match__free(m);
	m = match__new(NULL, NULL);
	add(m, OLD, "", "f", 0, "x", 0);
	add(m, NEW, "", "f", UINT32_MAX, "x", 0);
	add(m, NEW, "/", "f", 1, "x", 0);
	add(m, OLD, "//", "f", 1, "x", 0);
	assert_int_equal(match__add(m, OLD, NULL, NULL, 1, 1, 1), 0);
	settle(m);
	assert_true(same(m, "", 0, "", UINT32_MAX));
	match__free(m);
	match__free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unmoved),
		cmocka_unit_test(test_moved),
		cmocka_unit_test(test_inserted_and_removed),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_never_crosses),
		cmocka_unit_test(test_does_something_else),
		cmocka_unit_test(test_other_function),
		cmocka_unit_test(test_renamed_folder),
		cmocka_unit_test(test_below_the_folder),
		cmocka_unit_test(test_ambiguous),
		cmocka_unit_test(test_same_path_first),
		cmocka_unit_test(test_very_many),
		cmocka_unit_test(test_odd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
