/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The verdict on host memory: its kind, its sentence, and the bytes of its remedies. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/words.h"
#include "record/host.h"

#define MIB (UINT64_C(1) << 20)

static void set(struct host_sheet *s, unsigned part, uint64_t mib, uint64_t second)
{
	s->part[part] = (struct host_figure){ mib * MIB, second * MIB, true, true, false };
}

/* A process of 200 MiB: 100 in malloc, with `spare` of them free, and 20 in Python's arenas. */
static struct host_sheet sheet(uint64_t spare)
{
	struct host_sheet s = { 0 };

	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	set(&s, HOST_TOTAL, 200, 0);
	set(&s, HOST_MALLOC, 100, spare);
	set(&s, HOST_PYTHON, 20, 1);
	set(&s, HOST_LIBRARIES, 79, 0);
	set(&s, HOST_UNKNOWN, 1, 0);
	set(&s, HOST_MALLOC_TRIM, 0, 0);
	set(&s, HOST_MALLOC_ARENAS, 0, 0);
	set(&s, HOST_MALLOC_ENDS, 0, 0);
	s.part[HOST_MALLOC_ARENAS].second = 1;
	return s;
}

static const struct host_remedy *remedy(const struct host_verdict *v, const char *name)
{
	for (unsigned i = 0; i < v->n; i++)
		if (!strcmp(v->remedies[i].name, name))
			return &v->remedies[i];
	return NULL;
}

static void test_in_use(void **state)
{
	struct host_sheet s = sheet(5);
	struct host_verdict v;

	host_verdict__judge(&s, NULL, &v);
	assert_int_equal(v.kind, HOST_VERDICT_IN_USE);
	assert_int_equal(v.sure, HOST_SURE_HIGH);
	assert_true(v.in_use == 194 * MIB && v.free == 6 * MIB && v.unknown == MIB);
	assert_string_equal(
		v.sentence,
		"in use: 194.00 MiB of 200.00 MiB resident, the largest part of it "
		"malloc (95.00 MiB), 5.00 MiB free inside malloc (malloc_trim would return "
		"0 B)");
	assert_non_null(remedy(&v, "record"));
	assert_null(remedy(&v, "jemalloc"));
}

/* Readings of a recording tell whether memory in use grows, or free memory. */
static void test_growth(void **state)
{
	struct host_sheet s = sheet(5), before = sheet(5);
	struct host_history h = { .first = &before, .last = &s, .time = 12000000000, true };
	struct host_verdict v;

	set(&before, HOST_TOTAL, 150, 0);
	set(&before, HOST_MALLOC, 50, 5);
	host_verdict__judge(&s, &h, &v);
	assert_true(v.grew_known && v.grew == 50 * MIB && v.grew_in_use == 50 * MIB && !v.grows);
	assert_non_null(strstr(v.sentence, "; it grew by 50.00 MiB in 12.0 s, of it 50.00 MiB in "
					   "use"));
	assert_non_null(remedy(&v, "leaks"));
	set(&s, HOST_MALLOC, 100, 45);
	host_verdict__judge(&s, &h, &v);
	assert_true(v.grew == 50 * MIB && v.grew_in_use == 10 * MIB);
	before.part[HOST_MALLOC].has_second = false;
	host_verdict__judge(&s, &h, &v);
	assert_true(!v.grew_known && !strstr(v.sentence, "grew"));
}

static void test_kept(void **state)
{
	struct host_sheet s = sheet(60);
	const struct host_remedy *r;
	struct host_verdict v;
	char text[HOST_VERDICT_TEXT];

	set(&s, HOST_MALLOC_TRIM, 50, 0);
	host_verdict__judge(&s, NULL, &v);
	assert_int_equal(v.kind, HOST_VERDICT_KEPT);
	assert_string_equal(v.sentence,
			    "kept by malloc: 200.00 MiB resident, 139.00 MiB in use, 60.00 MiB "
			    "free inside malloc (malloc_trim would return 50.00 MiB), arenas: 1");
	r = remedy(&v, "malloc_trim");
	assert_true(r && r->known && r->exact && r->returns == 50 * MIB);
	r = remedy(&v, "jemalloc");
	assert_true(r && r->known && !r->exact && r->returns == 60 * MIB);
	assert_null(remedy(&v, "MALLOC_ARENA_MAX")); /* nothing is free in other arenas */
	host_verdict__remedies(&v, text, sizeof(text));
	assert_non_null(strstr(text, "returns 50.00 MiB; or "));
}

/* Free memory at the ends of threads' arenas stays after malloc_trim(), but is no fragmentation. */
static void test_ends_of_arenas(void **state)
{
	struct host_sheet s = sheet(60);
	const struct host_remedy *r;
	struct host_verdict v;

	set(&s, HOST_MALLOC_TRIM, 10, 0);
	set(&s, HOST_MALLOC_ENDS, 48, 45);
	set(&s, HOST_MALLOC_ARENAS, 55, 0);
	s.part[HOST_MALLOC_ARENAS].second = 9;
	host_verdict__judge(&s, NULL, &v);
	assert_int_equal(v.kind, HOST_VERDICT_KEPT);
	assert_non_null(strstr(v.sentence, "(malloc_trim would return 10.00 MiB, and leave "
					   "45.00 MiB at the ends of threads' arenas), arenas: 9"));
	r = remedy(&v, "MALLOC_ARENA_MAX");
	assert_true(r && r->returns == 55 * MIB && !r->exact);
	r = remedy(&v, "MALLOC_TRIM_THRESHOLD_");
	assert_true(r && r->returns == 48 * MIB && !r->exact);
}

static void test_fragmented(void **state)
{
	struct host_sheet s = sheet(60);
	struct host_verdict v;

	set(&s, HOST_MALLOC_TRIM, 10, 0);
	host_verdict__judge(&s, NULL, &v);
	assert_int_equal(v.kind, HOST_VERDICT_FRAGMENTED);
	assert_non_null(strstr(v.sentence, "(most between live blocks; malloc_trim would return "
					   "10.00 MiB), arenas: 1"));
	assert_true(remedy(&v, "holes") && !remedy(&v, "holes")->known);
}

/* malloc's lists could not be read: the verdict names no bytes that malloc could return. */
static void test_unread(void **state)
{
	struct host_sheet s = sheet(0);
	struct host_verdict v;

	s.part[HOST_MALLOC].has_second = false;
	for (unsigned i = HOST_MALLOC_TRIM; i <= HOST_MALLOC_ENDS; i++)
		s.part[i] = (struct host_figure){ 0 };
	host_verdict__judge(&s, NULL, &v);
	assert_int_equal(v.kind, HOST_VERDICT_UNKNOWN);
	assert_int_equal(v.sure, HOST_SURE_LOW);
	assert_true(v.unknown == 101 * MIB);
	assert_null(strstr(v.sentence, "malloc_trim"));
	set(&s, HOST_TOTAL, 1000, 0); /* a tenth is not known */
	host_verdict__judge(&s, NULL, &v);
	assert_int_equal(v.kind, HOST_VERDICT_IN_USE);
	assert_int_equal(v.sure, HOST_SURE_MEDIUM);
}

static void test_other_keepers(void **state)
{
	struct host_sheet s = sheet(60);
	struct host_verdict v;

	set(&s, HOST_PINNED, 90, 80);
	host_verdict__judge(&s, NULL, &v);
	assert_int_equal(v.kind, HOST_VERDICT_PINNED);
	assert_true(remedy(&v, "pinned_cached")->returns == 80 * MIB && v.kept == 80 * MIB);
	assert_true(host_verdict__of_keeper(&s, HOST_KEEPER_MALLOC, &v) && v.kept == 60 * MIB);
	assert_non_null(remedy(&v, "jemalloc"));
	assert_false(host_verdict__of_keeper(&s, HOST_KEEPER_PYTHON, &v)); /* less than 1 % */
	s = sheet(5);
	set(&s, HOST_PYTHON, 90, 70);
	host_verdict__judge(&s, NULL, &v);
	assert_int_equal(v.kind, HOST_VERDICT_PYTHON);
}

static void test_other_malloc(void **state)
{
	static const struct {
		unsigned part;
		const char *name, *setting;
	} v[] = {
		{ HOST_JEMALLOC, "jemalloc", "dirty_decay_ms" },
		{ HOST_MIMALLOC, "mimalloc", "MIMALLOC_PURGE_DELAY" },
		{ HOST_TCMALLOC, "tcmalloc", "TCMALLOC_RELEASE_RATE" },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(*v); i++) {
		struct host_sheet s = sheet(60);
		struct host_verdict verdict;
		const struct host_remedy *r;

		set(&s, v[i].part, 40, 60);
		host_verdict__judge(&s, NULL, &verdict);
		assert_int_equal(verdict.kind, HOST_VERDICT_KEPT);
		r = remedy(&verdict, v[i].name);
		assert_true(r && r->returns == 40 * MIB && strstr(r->text, v[i].setting));
		assert_null(remedy(&verdict, "malloc_trim"));
		assert_int_equal(verdict.n, 1);
		set(&s, v[i].part, 4, 60);
		host_verdict__judge(&s, NULL, &verdict);
		assert_int_equal(verdict.kind, HOST_VERDICT_FRAGMENTED);
	}
}

/* A damaged recording may have any figures. */
static void test_hostile(void **state)
{
	struct host_sheet s = { 0 };
	struct host_verdict v;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	for (unsigned i = 0; i < HOST_PART_NR; i++)
		s.part[i] = (struct host_figure){ UINT64_MAX, UINT64_MAX, true, true, false };
	host_verdict__judge(&s, NULL, &v);
	assert_true(v.in_use + v.free == v.resident);
	s.part[HOST_TOTAL].bytes = 0;
	host_verdict__judge(&s, NULL, &v);
	assert_true(!v.resident && !v.in_use && !v.free && !v.kept);
	host_verdict__text(out, &v, 40);
	fclose(out);
	assert_non_null(strstr(text, "resident"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_growth),	      cmocka_unit_test(test_in_use),
		cmocka_unit_test(test_kept),	      cmocka_unit_test(test_ends_of_arenas),
		cmocka_unit_test(test_fragmented),    cmocka_unit_test(test_unread),
		cmocka_unit_test(test_other_keepers), cmocka_unit_test(test_other_malloc),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
