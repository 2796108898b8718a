/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The tensors of an out of memory as facts, written by the recorder or by anybody. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <string.h>

#include "record/oom.h"

static struct oom_tensor tensor(const char *name)
{
	return (struct oom_tensor){ .impl = 0x1000,
				    .bytes = 24,
				    .storage = 48,
				    .depth = 2,
				    .line = 7,
				    .device = { .type = DEVICE_CUDA, .index = 3 },
				    .sized = true,
				    .ndim = 2,
				    .shape = { 2, 3 },
				    .dtype = "float32",
				    .name = name,
				    .func = "Net.forward",
				    .file = "/srv/a b.py" };
}

static void as_written(void **state)
{
	struct oom_tensor v[3] = { tensor("x"), tensor("y"), tensor("z") };
	struct facts *f = facts__new();
	struct oom_tensors t;

	assert_non_null(f);
	v[1].ndim = 0;
	v[2].ndim = 12;
	v[2].sized = false;
	assert_int_equal(oom__add(f, 0, 500, v, 3), 0);
	assert_int_equal(oom__read(f, 501, &t), 0);
	assert_int_equal(t.n, 0);
	oom__free(&t);
	assert_int_equal(oom__read(f, 500, &t), 0);
	assert_int_equal(t.n, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(t.v[i].order, i);
		assert_int_equal(t.v[i].impl, 0x1000);
		assert_true(t.v[i].bytes == 24 && t.v[i].storage == 48 && t.v[i].depth == 2);
		assert_true(t.v[i].line == 7 && device__same(t.v[i].device, v[0].device));
		assert_int_equal(t.v[i].ndim, v[i].ndim);
		assert_int_equal(t.v[i].sized, v[i].sized);
		assert_string_equal(t.v[i].name, v[i].name);
		assert_string_equal(t.v[i].dtype, "float32");
		assert_string_equal(t.v[i].func, "Net.forward");
		assert_string_equal(t.v[i].file, "/srv/a b.py");
	}
	assert_true(t.v[0].shape[0] == 2 && t.v[0].shape[1] == 3);
	oom__free(&t);
	facts__free(f);
}

/* The first eight events stay, and the last eight. */
static void many(void **state)
{
	struct oom_tensor v = tensor("x");
	struct facts *f = facts__new();
	struct oom_tensors t;

	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(oom__add(f, i, 1000 + i, &v, 1), 0);
	assert_int_equal(facts__count(f), OOM_FACTS);
	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(oom__read(f, 1000 + i, &t), 0);
		assert_int_equal(t.n, i < 8 || i >= 92);
		oom__free(&t);
	}
	facts__free(f);
}

static void hostile_texts(void **state)
{
	char name[1000], path[1000];
	struct oom_tensor v[2] = { tensor("\ta\n1 2 3"), tensor(name) };
	struct facts *f = facts__new();
	struct oom_tensors t;

	memset(name, 'n', sizeof(name));
	memset(path, 'p', sizeof(path));
	name[999] = path[999] = '\0';
	path[998] = 'e';
	v[1].file = path;
	assert_int_equal(oom__add(f, 0, 1, v, 2), 0);
	assert_int_equal(oom__read(f, 1, &t), 0);
	assert_int_equal(t.n, 2);
	assert_string_equal(t.v[0].name, "?a?1 2 3");
	assert_int_equal(strlen(t.v[1].name), 256);
	assert_int_equal(strlen(t.v[1].file), 256);
	assert_int_equal(t.v[1].file[255], 'e');
	oom__free(&t);
	facts__free(f);
}

static void hostile_facts(void **state)
{
	static const char *const lines[] = {
		"",
		"1",
		"0 1 ff 8 8 1 0 1",
		"0 1 ff 8 8 1 0 1 2",
		"0 1 ff 8 8 1 0 1 2\tf\t\tg\th",
		"0 1 ff 8 8 1 0 65 2\tf\tx",
		"0 1 ff 8 8 1 0 2 2\tf\tx",
		"0 1 ff 8 8 1 0 2 2,\tf\tx",
		"0 1 ff 8 8 1 0 2 2,3,4\tf\tx",
		"0 1 ff 8 8 1 0 2 2,-3\tf\tx",
		"0 1 ff 8 8 1 0 0 1\tf\tx",
		"0 1 ff 8 8 256 0 1 2\tf\tx",
		"0 1 ff 8 8 1 256 1 2\tf\tx",
		"0 4294967295 ff 8 8 1 0 1 2\tf\tx",
		"0 1 ff 18446744073709551615 8 1 0 1 2\tf\tx",
		"0 1 ff 8 18446744073709551615 1 0 1 2\tf\tx",
	};
	char value[40000] = "7", *at;
	struct facts *f = facts__new();
	struct oom_tensors t;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		snprintf(value, sizeof(value), "7\n%s", lines[i]);
		assert_int_equal(facts__set(f, "oom.3", value), 0);
		assert_int_equal(oom__read(f, 7, &t), 0);
		if (t.n)
			fail_msg("'%s' was read as a tensor", lines[i]);
		oom__free(&t);
	}
	/* without the last texts, and with more lines than there may be */
	at = value + 1;
	for (size_t i = 0; i < 2 * OOM_TENSORS; i++)
		at += snprintf(at, 40, "\n0 1 ff 8 8 1 0 1 9\tf\tx%zu", i);
	assert_int_equal(facts__set(f, "oom.3", value), 0);
	assert_int_equal(oom__read(f, 7, &t), 0);
	assert_int_equal(t.n, OOM_TENSORS);
	assert_string_equal(t.v[1].name, "x1");
	assert_string_equal(t.v[1].file, "");
	oom__free(&t);
	/* another time, and none */
	assert_int_equal(facts__set(f, "oom.3", "70\n0 1 ff 8 8 1 0 1 9\tf\tx"), 0);
	assert_int_equal(oom__read(f, 7, &t), 0);
	assert_int_equal(t.n, 0);
	oom__free(&t);
	facts__free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_written),
		cmocka_unit_test(many),
		cmocka_unit_test(hostile_texts),
		cmocka_unit_test(hostile_facts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
