/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Other processes on a device as facts. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <string.h>

#include "record/oom.h"

static const struct device first = { .type = DEVICE_CUDA }, second = { DEVICE_CUDA, 1 };

static void as_written(void **state)
{
	struct neighbours n, v = { .n = 2, .all = 7, .read = 600 };
	struct facts *f = facts__new();

	v.v[0] = (struct neighbour){ 42, true, true, 5000, 1000, "alice", "python a b.py", "web" };
	v.v[1] = (struct neighbour){ .pid = 43, .user = "", .command = "x\ty\nz", .container = "" };
	assert_int_equal(neighbours__add(f, 0, 500, 0, &v), 0);
	assert_false(neighbours__read(f, 501, first, &n));
	assert_int_equal(n.n, 0);
	neighbours__free(&n);
	assert_false(neighbours__read(f, 500, second, &n));
	neighbours__free(&n);
	assert_false(neighbours__read_end(f, first, &n));
	neighbours__free(&n);
	assert_true(neighbours__read(f, 500, first, &n));
	assert_true(n.n == 2 && n.all == 7 && n.read == 600);
	assert_true(n.v[0].pid == 42 && n.v[0].bytes_known && n.v[0].bytes == 5000);
	assert_true(n.v[0].uid_known && n.v[0].uid == 1000);
	assert_string_equal(n.v[0].user, "alice");
	assert_string_equal(n.v[0].command, "python a b.py");
	assert_string_equal(n.v[0].container, "web");
	assert_true(n.v[1].pid == 43 && !n.v[1].bytes_known && !n.v[1].uid_known);
	assert_string_equal(n.v[1].command, "x?y?z");
	neighbours__free(&n);
	facts__free(f);
}

/* The first eight failures stay, and the last eight; the end is apart. */
static void first_and_last(void **state)
{
	struct neighbours n, v = { .all = 0 };
	struct facts *f = facts__new();
	bool found;

	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(neighbours__add(f, i, 1000 + i, 0, &v), 0);
	assert_int_equal(neighbours__add(f, NEIGHBOURS_AT_END, 5000, 1, &v), 0);
	assert_int_equal(facts__count(f), OOM_FACTS + 1);
	for (uint64_t i = 0; i < 100; i++) {
		found = neighbours__read(f, 1000 + i, first, &n);
		assert_int_equal(found, i < 8 || i >= 92);
		neighbours__free(&n);
	}
	assert_true(neighbours__read_end(f, second, &n));
	assert_int_equal(n.all, 0);
	neighbours__free(&n);
	facts__free(f);
}

/* Damaged lines of a recording are left out. */
static void hostile(void **state)
{
	static const char *const damaged[] = {
		"",
		"500",
		"500 0",
		"500 0 1",
		"500 0 1 ",
		"500 0 1 x",
		"500 9 1 1\n1 1 1",
		"500 0 1 1x\n",
		"x 0 1 1",
	};
	static const char *const lines[] = {
		"1",	   "1 2",    "1 2 ",	       "x 2 3\ta\tb\tc", "-1 2 3",
		"1 2 3 4", "1  2 3", "4294967296 2 3", "1 2 4294967296", "\t\t\t\t",
	};
	struct neighbours n;
	char text[32 * NEIGHBOURS_MAX + 64];
	struct facts *f = facts__new();
	size_t len;

	for (size_t i = 0; i < sizeof(damaged) / sizeof(*damaged); i++) {
		facts__set(f, "neighbours.3", damaged[i]);
		if (neighbours__read(f, 500, first, &n))
			fail_msg("taken: %s", damaged[i]);
		neighbours__free(&n);
	}
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		snprintf(text, sizeof(text), "500 0 1 1\n%s\n8 9 10\tu\tc", lines[i]);
		facts__set(f, "neighbours.3", text);
		assert_true(neighbours__read(f, 500, first, &n));
		assert_true(n.n == 1 && n.all == 1 && n.v[0].pid == 8);
		assert_string_equal(n.v[0].container, "");
		neighbours__free(&n);
	}
	len = (size_t)snprintf(text, sizeof(text), "500 0 1 1");
	for (int i = 0; i < NEIGHBOURS_MAX + 9; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "\n%d ? ?\tu", i);
	facts__set(f, "neighbours.3", text);
	assert_true(neighbours__read(f, 500, first, &n));
	assert_true(n.n == NEIGHBOURS_MAX && n.all == NEIGHBOURS_MAX);
	neighbours__free(&n);
	facts__free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_written),
		cmocka_unit_test(first_and_last),
		cmocka_unit_test(hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
