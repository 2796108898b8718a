/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Rows of lines run by several modules: one row per line, with the common part of the modules'
 * names. */
#include "unit/model_world.h"

struct named {
	const char *names[4];
	const char *pattern;
	uint32_t modules;
};

static const struct named cases[] = {
	{ { "blocks.0.mlp.act", "blocks.1.mlp.act", "blocks.11.mlp.act" }, "blocks.*.mlp.act", 3 },
	{ { "blocks.0.norm1", "blocks.1.norm2" }, "blocks.*.*", 2 },
	{ { "encoder.layers.0", "encoder.layers.0.linear" }, "encoder.layers.0.*", 2 },
	{ { "encoder.a.b.c", "encoder.x" }, "encoder.*", 2 },
	{ { "encoder", "decoder" }, "*", 2 },
	{ { "a.b", "c" }, "*", 2 },
	{ { "", "head" }, "*", 2 },
	{ { "head" }, "head", 1 },
	{ { "head", "head" }, "head", 1 },
	{ { "a..b", "a.x.b" },
	  "a..b",
	  2 }, /* an empty module name, which is invalid but harmless */
	{ { ".", "a.b", "c.d.e" }, NULL, 3 },
	{ { "....", "a.b.c.d.e", "x" }, NULL, 3 },
};

static void test_patterns(void **state)
{
	for (size_t c = 0; c < N(cases); c++) {
		struct world w = world__new(AT_PEAK, 0);
		struct row_opts o = { .by = BY_LINE, .when = ROWS_NOW, .any_module = true };
		struct row *r;
		size_t n;

		for (size_t i = 0; i < N(cases[c].names) && cases[c].names[i]; i++) {
			struct dict_frame f[] = {
				{ .loc = loc(&w, "/home/me/net.py", "forward", 7) },
				{ .loc = loc(&w, SP "nn/modules/module.py", "_wrapped_call_impl",
					     1),
				  .module = module(&w, cases[c].names[i], "Block", "Net") },
			};

			alloc(&w, CPU, 0x1000 * (i + 1), 64, dict__stack(w.d, f, 2, MT_WALK_OK));
		}
		assert_int_equal(model__rows(w.m, 0, &o, &r, &n), 0);
		assert_int_equal(n, 1);
		assert_int_equal(r->modules, cases[c].modules);
		if (cases[c].pattern)
			assert_string_equal(r->module, cases[c].pattern);
		free(r);
		o.any_module = false;
		assert_int_equal(model__rows(w.m, 0, &o, &r, &n), 0);
		assert_int_equal(n, cases[c].modules);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(r[i].modules, 1);
		free(r);
		world__free(&w);
	}
}

/* Blocks outside of modules in a row keep the name of its only module. */
static void test_none_among_them(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	struct row_opts o = {
		.by = BY_LINE, .when = ROWS_NOW, .any_module = true, .any_phase = true
	};
	struct dict_frame f[] = { { .loc = loc(&w, "/home/me/net.py", "helper", 7) },
				  { .loc = loc(&w, SP "nn/modules/module.py", "_wrapped_call_impl",
					       1) } };
	struct row *r;
	size_t n;

	alloc(&w, CPU, 0x1000, 64, dict__stack(w.d, f, 1, MT_WALK_OK));
	f[1].module = module(&w, "head", "Linear", "Net");
	alloc(&w, CPU, 0x2000, 128, dict__stack(w.d, f, 2, MT_WALK_OK));
	assert_int_equal(model__rows(w.m, 0, &o, &r, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(r->modules, 1);
	assert_string_equal(r->module, "head");
	assert_int_equal(r->bytes, 192);
	free(r);
	world__free(&w);
}

/* Of equal parts, the one allocated first describes the row, whatever the seed of the hash tables. */
static void test_equal_parts(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	struct row_opts o = { .by = BY_PHASE, .when = ROWS_NOW };
	uint32_t first = 0;
	struct row *r;
	size_t n;

	for (uint32_t i = 0; i < 64; i++) {
		struct dict_frame f = { .loc = loc(&w, "/home/me/net.py", "forward", i + 1) };
		uint32_t stack = dict__stack(w.d, &f, 1, MT_WALK_OK);

		first = i ? first : stack;
		alloc(&w, CPU, 0x1000 * (i + 1), 64, stack);
	}
	assert_int_equal(model__rows(w.m, 0, &o, &r, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(r->bytes, 64 * 64);
	assert_int_equal(r->stack, first);
	free(r);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_parts),
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_none_among_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
