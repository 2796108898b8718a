/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Memory grouped by the names of what holds it. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <string.h>

#include "model/holders.h"

static const struct held gpt[] = {
	{ "blocks.0.up.weight", "parameter", "blocks.0.up", "Linear", "GPT", "[8, 4] float32", 128,
	  1, 128 },
	{ "blocks.0.up.bias", "parameter", "blocks.0.up", "Linear", "GPT", "[8] float32", 32, 1,
	  32 },
	{ "blocks.1.up.weight", "parameter", "blocks.1.up", "Linear", "GPT", "[8, 4] float32", 128,
	  1, 128 },
	{ "wte.weight", "parameter", "wte", "Embedding", "GPT", "[99, 4] float32", 1584, 1, 1584 },
	{ "AdamW exp_avg of blocks.0.up.weight", "optimizer_state", "blocks.0.up", "Linear", "GPT",
	  NULL, 128, 1, 128 },
	{ "AdamW exp_avg_sq of blocks.1.up.weight", "optimizer_state", "blocks.1.up", "Linear",
	  "GPT", NULL, 128, 1, 128 },
	{ "grad of blocks.1.up.weight", "gradient", "blocks.1.up", "Linear", "GPT", NULL, 128, 1,
	  128 },
	{ "grad of blocks.1.up.bias", "gradient", "blocks.1.up", "Linear", "GPT", NULL, 32, 1, 32 },
	{ "scale", "parameter", "", "GPT", "GPT", "[1] float32", 4, 1, 4 },
	{ "global history[*]", "unknown", "", "", "", "[256, 16] float32", 16384, 1, 16384 },
	{ "global history[*]", "unknown", "", "", "", "[256, 16] float32", 32768, 2, 16384 },
	{ "blocks.0.cache", "unknown", "blocks.0", "Block", "GPT", "[2] float32", 8, 1, 8 },
	{ "blocks.1.cache", "unknown", "blocks.1", "Block", "GPT", "[3] float32", 12, 1, 12 },
	{ "global d[3]", "unknown", "", "", "", NULL, 5, 1, 5 },
	{ "global d[14]", "unknown", "", "", "", NULL, 5, 1, 5 },
	{ NULL, "unknown", NULL, NULL, NULL, NULL, 100, 3, 0 },
	{ "", "unknown", "", "", "", NULL, 11, 1, 11 },
};

static const struct holder *find(const struct holders *h, const char *name)
{
	for (size_t i = 0; i < h->n; i++)
		if (!strcmp(h->all[i].name, name))
			return &h->all[i];
	for (size_t i = 0; i < h->n; i++)
		print_error("'%s' %s\n", h->all[i].name, h->all[i].category);
	fail_msg("no holder '%s'", name);
	return NULL;
}

static void check(const struct holders *h, const char *name, const char *module, uint64_t bytes,
		  uint64_t count, uint64_t size, const char *detail)
{
	const struct holder *x = find(h, name);

	assert_string_equal(x->module, module);
	assert_int_equal(x->bytes, bytes);
	assert_int_equal(x->count, count);
	assert_int_equal(x->size, size);
	if (detail)
		assert_string_equal(x->detail, detail);
	else
		assert_null(x->detail);
}

static void adds_up(const struct holders *h, const struct held *v, size_t n)
{
	uint64_t sums[32] = { 0 };

	for (size_t i = 0; i < n; i++)
		sums[h->holder_of[i]] += v[i].bytes;
	for (size_t i = 0; i < h->n; i++) {
		assert_int_equal(sums[i], h->all[i].bytes);
		assert_true(!i || h->all[i].bytes <= h->all[i - 1].bytes);
	}
}

static void test_by_module(void **state)
{
	const size_t n = sizeof(gpt) / sizeof(*gpt);
	struct holders h;

	assert_int_equal(holders__group(gpt, n, false, &h), 0);
	assert_int_equal(h.n, 9);
	check(&h, "global history[*]", "", 49152, 3, 16384, "[256, 16] float32");
	check(&h, "blocks.*.up.weight, .bias", "blocks.*.up", 288, 3, 0, NULL);
	check(&h, "wte.weight", "wte", 1584, 1, 1584, "[99, 4] float32");
	check(&h, "AdamW exp_avg, exp_avg_sq of blocks.*.up", "blocks.*.up", 256, 2, 128, NULL);
	check(&h, "grad of blocks.1.up.weight, .bias", "blocks.1.up", 160, 2, 0, NULL);
	check(&h, "scale", "", 4, 1, 4, "[1] float32");
	check(&h, "blocks.*.cache", "blocks.*", 20, 2, 0, NULL);
	check(&h, "global d[*]", "", 10, 2, 5, NULL);
	check(&h, "", "", 111, 4, 0, NULL); /* no name */
	assert_int_equal(find(&h, "blocks.*.up.weight, .bias")->modules, 2);
	assert_string_equal(find(&h, "blocks.*.up.weight, .bias")->module_class, "Linear");
	assert_int_equal(find(&h, "scale")->modules, 1);
	assert_int_equal(find(&h, "global history[*]")->modules, 0);
	adds_up(&h, gpt, n);
	holders__free(&h);
}

static void test_by_role(void **state)
{
	const size_t n = sizeof(gpt) / sizeof(*gpt);
	struct holders h;

	assert_int_equal(holders__group(gpt, n, true, &h), 0);
	assert_int_equal(h.n, 7);
	check(&h, "*.weight, .bias, .scale", "*", 128 + 32 + 128 + 1584 + 4, 5, 0, NULL);
	check(&h, "AdamW exp_avg, exp_avg_sq of blocks.*.up", "blocks.*.up", 256, 2, 128, NULL);
	check(&h, "global history[*]", "", 49152, 3, 16384, "[256, 16] float32");
	adds_up(&h, gpt, n);
	holders__free(&h);
}

/* Many modules that differ in one key, as in a ModuleDict of adapters, are one holder. */
static void test_adapters(void **state)
{
	char names[80][80], modules[80][64];
	struct held v[82];
	struct holders h;

	for (int i = 0; i < 80; i++) {
		snprintf(modules[i], 64, "layers.%d.lora.user%d", i % 2, i / 2);
		snprintf(names[i], 80, "%s.A", modules[i]);
		v[i] = (struct held){
			names[i], "parameter", modules[i], "Lora", "M", NULL, 8, 1, 8
		};
	}
	v[80] = (struct held){ "q.A", "parameter", "q", "Lora", "M", NULL, 8, 1, 8 };
	v[81] = (struct held){ "k.A", "parameter", "k", "Lora", "M", NULL, 8, 1, 8 };
	assert_int_equal(holders__group(v, 82, false, &h), 0);
	assert_int_equal(h.n, 3);
	check(&h, "layers.*.lora.*.A", "layers.*.lora.*", 640, 80, 8, NULL);
	check(&h, "q.A", "q", 8, 1, 8, NULL);
	holders__free(&h);
	/* few of them keep their names */
	assert_int_equal(holders__group(v, 32, false, &h), 0);
	assert_int_equal(h.n, 16);
	check(&h, "layers.*.lora.user3.A", "layers.*.lora.user3", 16, 2, 8, NULL);
	holders__free(&h);
}

static void test_many_leaves(void **state)
{
	static const struct held v[] = {
		{ "a.w1", "parameter", "a", "M", "N", NULL, 1, 1, 1 },
		{ "a.w2", "parameter", "a", "M", "N", NULL, 1, 1, 1 },
		{ "a.w3", "parameter", "a", "M", "N", NULL, 1, 1, 1 },
		{ "a.w4 and 11 more", "parameter", "a", "M", "N", NULL, 1, 1, 1 },
		{ "b.x and 2 more", "unknown", "", "", "", NULL, 2, 1, 2 },
		{ "b.x and 3 more", "unknown", "", "", "", NULL, 2, 1, 2 },
	};
	struct holders h;

	assert_int_equal(holders__group(v, 6, false, &h), 0);
	assert_int_equal(h.n, 2);
	check(&h, "a.w1, .w2, .w3, ...", "a", 4, 4, 1, NULL);
	check(&h, "b.x and * more", "", 4, 2, 2, NULL);
	holders__free(&h);
	assert_int_equal(holders__group(NULL, 0, false, &h), 0);
	assert_int_equal(h.n, 0);
	holders__free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_module),
		cmocka_unit_test(test_by_role),
		cmocka_unit_test(test_adapters),
		cmocka_unit_test(test_many_leaves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
