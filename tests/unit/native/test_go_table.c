/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of functions of Go programs, made by hand. */
#include "unit/cmocka.h"

#include <string.h>

#include "inspect/native/go_table.h"

#define TEXT 0x401000u
#define BYTES 512u

/* Offsets of the parts. */
enum { NAMES = 72, UNITS = 96, FILES = 104, PCS = 120, DATA = 160, OF_A = 32, OF_B = 72 };

struct made {
	uint8_t v[BYTES];
};

static void put(struct made *m, size_t at, const void *bytes, size_t size)
{
	assert_true(at + size <= BYTES);
	memcpy(m->v + at, bytes, size);
}

static void put4(struct made *m, size_t at, uint32_t value)
{
	put(m, at, &value, sizeof(value));
}

static void put_function(struct made *m, size_t at, uint32_t entry, uint32_t name, uint32_t lines)
{
	put4(m, DATA + at, entry);
	put4(m, DATA + at + 4, name);
	put4(m, DATA + at + 4 * 5, 0);
	put4(m, DATA + at + 4 * 6, lines);
	put4(m, DATA + at + 4 * 8, 0);
}

/* main.a has 32 bytes with the lines 7 and 8 of /x/a.go, main.b 32 with line 300. */
static struct made make(void)
{
	/* Each step: by how much the value grows, twice that, and the address. */
	static const uint8_t file[] = { 2, 64, 0 }, a[] = { 16, 16, 2, 16, 0 },
			     b[] = { 0xda, 0x04, 32, 0 };
	static const uint64_t parts[] = { 2, 1, 0, NAMES, UNITS, FILES, PCS, DATA };
	struct made m = { { 0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8 } };

	put(&m, 8, parts, sizeof(parts));
	put(&m, NAMES, "main.a\0main.b", 14);
	put(&m, FILES, "/x/a.go", 8);
	put(&m, PCS, file, sizeof(file));
	put(&m, PCS + 8, a, sizeof(a));
	put(&m, PCS + 16, b, sizeof(b));
	put4(&m, DATA + 4, OF_A);
	put4(&m, DATA + 8, 32);
	put4(&m, DATA + 12, OF_B);
	put4(&m, DATA + 16, 64);
	put_function(&m, OF_A, 0, 0, 8);
	put_function(&m, OF_B, 32, 7, 16);
	return m;
}

static void expect(const struct go_table *t, uint64_t address, const char *function, int line)
{
	struct go_place p;

	assert_true(go_table__find(t, address, &p));
	assert_string_equal(p.function, function);
	assert_string_equal(p.file, "/x/a.go");
	assert_int_equal(p.line, line);
}

static void test_places(void **state)
{
	struct made m = make();
	struct go_place p;
	struct go_table t;

	assert_true(go_table__read(m.v, sizeof(m.v), TEXT, &t));
	expect(&t, TEXT, "main.a", 7);
	expect(&t, TEXT + 15, "main.a", 7);
	expect(&t, TEXT + 16, "main.a", 8);
	expect(&t, TEXT + 31, "main.a", 8);
	expect(&t, TEXT + 32, "main.b", 300);
	assert_false(go_table__find(&t, TEXT - 1, &p));
	/* the table says where the code is */
	put4(&m, 8 + 2 * 8, 0x500000);
	assert_true(go_table__read(m.v, sizeof(m.v), TEXT, &t));
	expect(&t, 0x500000, "main.a", 7);
}

static void test_refused(void **state)
{
	struct made m = make();
	struct go_table t;

	for (size_t size = 0; size < DATA; size++)
		assert_false(go_table__read(m.v, size, TEXT, &t));
	m.v[0] = 0xfb; /* Go 1.2 to 1.15 */
	assert_false(go_table__read(m.v, sizeof(m.v), TEXT, &t));
	m = make();
	m.v[7] = 4; /* of 32 bits */
	assert_false(go_table__read(m.v, sizeof(m.v), TEXT, &t));
	m = make();
	put4(&m, 8 + 4, 1); /* more functions than bytes */
	assert_false(go_table__read(m.v, sizeof(m.v), TEXT, &t));
	m = make();
	put4(&m, 8 + 7 * 8, BYTES + 1);
	assert_false(go_table__read(m.v, sizeof(m.v), TEXT, &t));
}

/* Any byte may be wrong. */
static void test_damaged(void **state)
{
	struct go_place p;
	struct go_table t;

	for (size_t at = 0; at < BYTES; at++) {
		for (int value = 0; value < 256; value += 51) {
			struct made m = make();

			m.v[at] = (uint8_t)value;
			if (!go_table__read(m.v, sizeof(m.v), TEXT, &t))
				continue;
			for (uint64_t i = 0; i < 80; i += 9)
				if (go_table__find(&t, t.text + i, &p))
					assert_true(strlen(p.function) < BYTES);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
