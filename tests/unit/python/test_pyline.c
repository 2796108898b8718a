/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/python.h"
#include "last_python.h"

static size_t unhex(const char *hex, uint8_t *out, size_t max)
{
	size_t n = 0;
	unsigned byte;

	while (n < max && sscanf(hex + 2 * n, "%2x", &byte) == 1)
		out[n++] = (uint8_t)byte;
	return n;
}

struct replay {
	int minor;
	char line[32768];
	char name[256];
	uint8_t table[16384];
	size_t len;
	unsigned first;
	size_t codes, positions;
};

static void replay_range(struct replay *r)
{
	unsigned start, end, line;

	if (sscanf(r->line, "%u %u %u", &start, &end, &line) != 3 || start >= end)
		fail_msg("3.%d: bad line %s", r->minor, r->line);
	for (unsigned at = start; at < end; at++) {
		unsigned got = pyline__find(r->minor, r->table, r->len, r->first, (int32_t)at);

		if (got != line)
			fail_msg("3.%d %s at %u: line %u, the interpreter says %u", r->minor,
				 r->name, at, got, line);
		r->positions++;
	}
}

/* Each position of each code object in a data file must have the interpreter's line. */
static void replay_version(int minor)
{
	struct replay *r = calloc(1, sizeof(*r));
	char path[64];
	int major, got_minor;
	FILE *f;

	assert_non_null(r);
	r->minor = minor;
	snprintf(path, sizeof(path), "tests/data/linetables-3.%d.txt", minor);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "python %d.%d.%*d\n", &major, &got_minor), 2);
	assert_int_equal(major, 3);
	assert_int_equal(got_minor, minor);
	while (fgets(r->line, sizeof(r->line), f)) {
		assert_non_null(strchr(r->line, '\n'));
		if (sscanf(r->line, "code %255s %u", r->name, &r->first) == 2)
			r->codes++;
		else if (!strncmp(r->line, "table ", 6))
			r->len = unhex(r->line + 6, r->table, sizeof(r->table));
		else if (strcmp(r->line, "end\n"))
			replay_range(r);
	}
	fclose(f);
	print_message("3.%d: %zu code objects, %zu positions\n", minor, r->codes, r->positions);
	assert_true(r->codes > 50 && r->positions > 5000);
	free(r);
}

static void lines_equal_the_interpreters(void **state)
{
	for (int minor = 8; minor <= LAST_MINOR; minor++)
		replay_version(minor);
}

static void unstarted_has_first_line(void **state)
{
	static const uint8_t table[] = { 0x80, 0x00 };

	for (int minor = 8; minor <= LAST_MINOR; minor++) {
		assert_int_equal(pyline__find(minor, table, sizeof(table), 42, -1), 42);
		assert_int_equal(pyline__find(minor, NULL, 0, 42, INT32_MIN), 42);
	}
}

static void no_line_is_zero(void **state)
{
	static const uint8_t table310[] = { 2, 1, 4, 0x80, 2, 1 };
	/* no columns, +1; no line, 2 units; one line + 1 */
	static const uint8_t table311[] = { 0xe8, 0x02, 0xf9, 0xd8, 0x00, 0x00 };

	assert_int_equal(pyline__find(10, table310, sizeof(table310), 10, 0), 11);
	assert_int_equal(pyline__find(10, table310, sizeof(table310), 10, 2), 0);
	assert_int_equal(pyline__find(10, table310, sizeof(table310), 10, 5), 0);
	assert_int_equal(pyline__find(10, table310, sizeof(table310), 10, 6), 12);
	assert_int_equal(pyline__find(10, table310, sizeof(table310), 10, 8), 0);
	assert_int_equal(pyline__find(11, table311, sizeof(table311), 10, 0), 11);
	assert_int_equal(pyline__find(11, table311, sizeof(table311), 10, 2), 0);
	assert_int_equal(pyline__find(11, table311, sizeof(table311), 10, 5), 0);
	assert_int_equal(pyline__find(11, table311, sizeof(table311), 10, 6), 12);
	assert_int_equal(pyline__find(11, table311, sizeof(table311), 10, 8), 0);
}

static void empty_and_torn_tables(void **state)
{
	static const uint8_t open_varint[] = { 0xe8, 0x7f, 0x7f, 0x7f, 0x7f,
					       0x7f, 0x7f, 0x7f, 0x7f, 0x01 };
	static const uint8_t headless[] = { 0x05, 0x05 };
	static const uint8_t half_pair[] = { 2, 1, 2 };
	static const uint8_t below_zero[] = { 0, 0x81, 4, 0 };

	assert_int_equal(pyline__find(9, NULL, 0, 7, 0), 7);
	assert_int_equal(pyline__find(10, NULL, 0, 7, 0), 0);
	assert_int_equal(pyline__find(11, NULL, 0, 7, 0), 0);
	assert_int_equal(pyline__find(12, open_varint, sizeof(open_varint), 7, 0), 0);
	assert_int_equal(pyline__find(12, open_varint, 1, 7, 0), 0);
	assert_int_equal(pyline__find(12, headless, sizeof(headless), 7, 0), 0);
	assert_int_equal(pyline__find(10, half_pair, sizeof(half_pair), 7, 2), 0);
	assert_int_equal(pyline__find(9, half_pair, sizeof(half_pair), 7, 2), 8);
	assert_int_equal(pyline__find(9, below_zero, sizeof(below_zero), 7, 0), 0);
	assert_int_equal(pyline__find(10, below_zero, sizeof(below_zero), 7, 0), 0);
	assert_int_equal(pyline__find(9, NULL, 0, UINT32_MAX, 0), 0);
}

/* Random bytes in memory of their exact size: sanitizers find reads beyond it. */
static void random_tables_stay_inside(void **state)
{
	static const int32_t ats[] = { 0, 1, 2, 7, 64, 1000, INT32_MAX };
	uint64_t seed = 0x9e3779b97f4a7c15ULL;

	for (int i = 0; i < 20000; i++) {
		size_t len = (size_t)i % 67;
		uint8_t *table = malloc(len ? len : 1);

		assert_non_null(table);
		for (size_t k = 0; k < len; k++) {
			seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
			table[k] = (uint8_t)(seed >> 56);
		}
		for (int minor = 8; minor <= LAST_MINOR; minor++) {
			for (size_t a = 0; a < sizeof(ats) / sizeof(ats[0]); a++)
				assert_true(pyline__find(minor, table, len, 1, ats[a]) <=
					    INT32_MAX);
		}
		free(table);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_equal_the_interpreters),
		cmocka_unit_test(unstarted_has_first_line),
		cmocka_unit_test(no_line_is_zero),
		cmocka_unit_test(empty_and_torn_tables),
		cmocka_unit_test(random_tables_stay_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
