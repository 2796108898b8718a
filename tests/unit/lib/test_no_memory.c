/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* lib/ without memory: each allocation fails once. */
#include "unit/no_memory.h"

#include <stdio.h>
#include <unistd.h>

#include "base/array.h"
#include "base/grid.h"
#include "base/json.h"
#include "base/log.h"
#include "base/map64.h"
#include "base/outfile.h"
#include "export/formats/pb.h"
#include "base/hash.h"
#include "export/formats/gzip.h"
#include "export/formats/pickle.h"

static int fill_map(void *ctx)
{
	struct map64 *m = map64__new();
	int err = m ? 0 : -ENOMEM;
	uint64_t value, n = 0;
	size_t pos = 0;

	while (n < 2000 && !err) {
		err = map64__set(m, n * 4096, n);
		n += !err;
	}
	/* Entries added before the failure are kept. */
	if (m)
		assert_int_equal(map64__count(m), n);
	for (uint64_t key, i = 0; m && i < n; i++) {
		assert_true(map64__get(m, i * 4096, &value));
		assert_int_equal(value, i);
		assert_true(map64__next(m, &pos, &key, &value));
	}
	map64__free(m);
	return err;
}

static void test_map64(void **state)
{
	assert_true(no_memory__try(fill_map, NULL) > 5);
}

static int keep_strings(void *ctx)
{
	struct strings *s = strings__new();
	int err = s ? 0 : -ENOMEM;
	char text[32];

	for (int i = 0; i < 300 && !err; i++) {
		const char *kept = text;

		snprintf(text, sizeof(text), "layers.%d.weight", i % 200);
		err = strings__keep(s, &kept);
		if (!err) {
			assert_string_equal(kept, text);
			assert_ptr_not_equal(kept, text);
		}
	}
	strings__free(s);
	return err;
}

static void test_strings(void **state)
{
	assert_true(no_memory__try(keep_strings, NULL) > 200);
}

static int grow_array(void *ctx)
{
	uint64_t *v = NULL;
	size_t cap = 0;
	int err = 0;

	for (size_t n = 0; n < 500 && !err; n++) {
		err = array__grow(&v, &cap, n + 1, sizeof(*v));
		if (!err)
			v[n] = n;
	}
	free(v);
	return err;
}

static int grow_zeroed_array(void *ctx)
{
	uint64_t *v = NULL;
	size_t cap = 0;
	int err = 0;

	for (size_t n = 1; n < 500 && !err; n += 7) {
		err = array__grow_zero(&v, &cap, n, sizeof(*v));
		for (size_t i = n < 8 ? 0 : n - 7; i < cap && !err; i++)
			assert_int_equal(v[i], 0);
		if (!err)
			memset(v, 0xff, n * sizeof(*v));
	}
	free(v);
	return err;
}

static void test_array(void **state)
{
	uint64_t *v = NULL;
	size_t cap = 0;

	assert_true(no_memory__try(grow_array, NULL) > 2);
	assert_true(no_memory__try(grow_zeroed_array, NULL) > 2);
	/* Elements beyond 32 bits have no number. */
	assert_int_equal(array__grow_zero(&v, &cap, (size_t)UINT32_MAX + 1, 1), -ENOMEM);
	assert_null(v);
}

static int make_grid(void *ctx)
{
	static const struct column columns[] = { { "Size", true, 0, 12 }, { "%", true, 1, 0 } };
	struct grid *g = grid__new(columns, 2);
	int err = g ? 0 : -ENOMEM;

	for (int i = 0; i < 40 && g; i++) {
		grid__row(g);
		grid__put(g, 0, "9.7 MiB", NULL);
		grid__put(g, 1, "12.5", NULL);
		err = grid__error(g);
	}
	if (!err) {
		assert_true(grid__fit(g, 80, 20, 2) >= 20);
		grid__print_titles(g, ctx, false, "Location");
		grid__print(g, ctx, 39, "train.py:12");
	}
	grid__free(g);
	return err;
}

static void test_grid(void **state)
{
	FILE *out = fopen("/dev/null", "w");

	assert_non_null(out);
	assert_true(no_memory__try(make_grid, out) > 10);
	fclose(out);
}

static int write_json(void *ctx)
{
	struct json *j = json__new(ctx, true);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__string(j, "name", "a\n\"b\"");
	json__open_array(j, "rows");
	for (uint64_t i = 0; i < 50; i++)
		json__uint(j, NULL, i);
	json__close_array(j);
	json__close_object(j);
	json__free(j);
	return 0;
}

static int write_gzip(void *ctx)
{
	struct gzip *z = gzip__new(ctx);

	if (!z)
		return -ENOMEM;
	gzip__write(z, "text", 4);
	gzip__end(z);
	return 0;
}

static int write_pickle(void *ctx)
{
	struct pickle *p = pickle__new(ctx);

	if (!p)
		return -ENOMEM;
	pickle__open_dict(p);
	pickle__key(p, "segments");
	pickle__open_list(p);
	for (uint64_t i = 0; i < 100; i++)
		pickle__uint(p, i);
	pickle__close_list(p);
	pickle__close_dict(p);
	pickle__end(p);
	return 0;
}

static void test_writers(void **state)
{
	FILE *out = fopen("/dev/null", "w");

	assert_non_null(out);
	assert_true(no_memory__try(write_json, out) > 0);
	assert_true(no_memory__try(write_gzip, out) > 0);
	assert_true(no_memory__try(write_pickle, out) > 0);
	fclose(out);
}

static int make_pb(void *ctx)
{
	struct pb outer = { 0 }, inner = { 0 };
	bool failed;

	for (uint32_t i = 0; i < 100; i++) {
		pb__clear(&inner);
		pb__uint(&inner, 1, i);
		pb__string(&inner, 2, "name");
		pb__message(&outer, 3, &inner);
	}
	failed = outer.failed;
	pb__free(&inner);
	pb__free(&outer);
	return failed ? -ENOMEM : 0;
}

static void test_pb(void **state)
{
	assert_true(no_memory__try(make_pb, NULL) > 2);
}

/* No file is left in the folder. */
static int write_outfile(void *ctx)
{
	struct outfile *o;
	FILE *out;
	int err = outfile__create(ctx, OUTFILE_RENAME, false, &o);

	if (err)
		return err;
	out = outfile__stream(o);
	if (!out) {
		err = -errno;
		outfile__discard(o);
		return err;
	}
	fputs("text\n", out);
	err = outfile__commit(o);
	if (!err)
		assert_int_equal(unlink(ctx), 0);
	return err;
}

static void test_outfile(void **state)
{
	char folder[] = "/tmp/test_no_memory.XXXXXX", path[64];

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/report", folder);
	assert_true(no_memory__try(write_outfile, path) > 0);
	assert_int_equal(rmdir(folder), 0);
}

/* A log's file that was set before is kept when another text cannot be parsed. */
static int parse_log_config(void *ctx)
{
	struct log_config c = LOG_CONFIG_INIT;
	char why[128] = "";
	int err = log_config__parse(&c, "file=/a", false, why, sizeof(why));

	if (!err) {
		err = log_config__parse(&c, "debug", false, why, sizeof(why));
		assert_non_null(c.file);
		assert_string_equal(c.file, "/a");
	}
	assert_string_equal(why, err ? "out of memory" : "");
	free(c.file);
	return err;
}

static void test_log_config(void **state)
{
	assert_int_equal(no_memory__try(parse_log_config, NULL), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_map64),	cmocka_unit_test(test_strings),
		cmocka_unit_test(test_array),	cmocka_unit_test(test_grid),
		cmocka_unit_test(test_writers), cmocka_unit_test(test_pb),
		cmocka_unit_test(test_outfile), cmocka_unit_test(test_log_config),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
