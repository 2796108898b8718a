/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Conditions on parts of host memory, from readings in a capture and from a sheet. */
#include "unit/cmocka.h"

#include <stdlib.h>
#include <string.h>

#include "capture/save/windows.h"
#include "record/cond.h"
#include "record/stream.h"

#define MIB (UINT64_C(1) << 20)

static void expect(const struct cond_values *v, const char *text, enum cond_verdict verdict,
		   const char *words)
{
	struct cond_result r;
	struct cond *c;
	char *why;

	assert_int_equal(cond__parse(text, &c, &why), 0);
	assert_int_equal(cond__eval(c, v, &r), 0);
	if (r.verdict != verdict || !strstr(r.text, words))
		fail_msg("%s: verdict %d: %s", text, r.verdict, r.text);
	cond__free(c);
}

static struct host_sheet sheet(void)
{
	struct host_sheet s = { 0 };

	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	s.part[HOST_TENSORS].bytes = 5 * MIB;
	s.part[HOST_MALLOC].bytes = 70 * MIB;
	s.part[HOST_SHARED_LOADER].bytes = 1;
	s.part[HOST_SHARED_NCCL].bytes = 2;
	s.part[HOST_SHARED].bytes = 4;
	s.part[HOST_PYTHON] = (struct host_figure){ .bytes = 9, .known = false };
	s.part[HOST_GROUP] = (struct host_figure){ 90, 100, true, true, false };
	return s;
}

static void test_sheet(void **state)
{
	struct cond_values v = { 0 };
	struct host_sheet s = sheet();

	host_figures__put(&v, &s, 100 * MIB, "");
	expect(&v, "host_tensors>=5M", COND_HOLDS, "host tensors 5.00 MiB >= 5.00 MiB");
	expect(&v, "host_tensors>5M", COND_NO, "is not >");
	expect(&v, "host_malloc>=70%", COND_HOLDS, "(70% of 100.00 MiB)");
	expect(&v, "host_shared=7", COND_HOLDS, "");
	expect(&v, "host_pinned=0 and host_unknown=0", COND_HOLDS, "");
	expect(&v, "host_python>0", COND_UNKNOWN, "tables");
	expect(&v, "host_cgroup>=90%", COND_HOLDS, "");
	expect(&v, "host_cgroup>90%", COND_NO, "");
	s.part[HOST_GROUP].has_second = false;
	host_figures__put(&v, &s, 0, "");
	expect(&v, "host_cgroup>89", COND_HOLDS, "");
	expect(&v, "host_cgroup>1%", COND_UNKNOWN, "has no limit");
	expect(&v, "host_malloc>1%", COND_UNKNOWN, "total memory");
	s.part[HOST_GROUP].known = false;
	host_figures__put(&v, &s, 0, "");
	expect(&v, "host_cgroup>0", COND_UNKNOWN, "no memory control group");
	host_figures__put(&v, NULL, 0, "nothing was read");
	expect(&v, "host_tensors>=0 or host_cgroup>=0", COND_UNKNOWN, "nothing was read");
}

static struct host_figure figure(uint64_t mib, uint64_t second_mib)
{
	return (struct host_figure){ mib * MIB, second_mib * MIB, true, true, false };
}

/* Memory in use and memory that is free inside allocators add up to RSS. */
static void test_use(void **state)
{
	struct cond_values v = { 0 };
	struct host_sheet s = { 0 };

	s.part[HOST_MALLOC] = figure(80, 20);
	s.part[HOST_PINNED] = figure(10, 4);
	s.part[HOST_LIBRARIES] = figure(9, 7);
	s.part[HOST_UNKNOWN] = (struct host_figure){ .bytes = 1 * MIB, .known = true };
	host_figures__put(&v, &s, 200 * MIB, "");
	expect(&v, "host_live=76M", COND_HOLDS, "host live 76.00 MiB = 76.00 MiB");
	expect(&v, "host_live=38%", COND_HOLDS, "(38% of 200.00 MiB)");
	expect(&v, "malloc_free=20M", COND_HOLDS, "malloc free 20.00 MiB = 20.00 MiB");
	expect(&v, "malloc_free=25%", COND_HOLDS, "(25% of 80.00 MiB)");
	/* CPython's arenas: their free memory is in neither until it is known. */
	s.part[HOST_PYTHON] = (struct host_figure){ .bytes = 40 * MIB, .known = true };
	host_figures__put(&v, &s, 0, "");
	expect(&v, "host_live>0 and malloc_free>0", COND_UNKNOWN, "could not be read");
	s.part[HOST_PYTHON].second = 30 * MIB;
	s.part[HOST_PYTHON].has_second = true;
	host_figures__put(&v, &s, 0, "");
	expect(&v, "host_live=86M", COND_HOLDS, "");
	/* Another malloc, or a program without one that is known. */
	s.part[HOST_MALLOC].has_second = false;
	host_figures__put(&v, &s, 0, "");
	expect(&v, "malloc_free>0 or host_live>0", COND_UNKNOWN, "could not be read");
	s.part[HOST_MALLOC] = figure(80, 500);
	host_figures__put(&v, &s, 0, "");
	expect(&v, "host_live=0", COND_HOLDS, "");
	host_figures__put(&v, NULL, 0, "nothing was read");
	expect(&v, "malloc_free>0 or host_live>0", COND_UNKNOWN, "nothing was read");
}

struct feed {
	struct values *v;
	bool news;
};

static int take(void *ctx, const struct event *e)
{
	struct feed *f = ctx;

	return values__event(f->v, e, &f->news);
}

static enum cond_verdict judge(struct values *v, const char *text)
{
	struct cond_result r;
	struct cond *c;
	char *why;

	assert_int_equal(cond__parse(text, &c, &why), 0);
	assert_int_equal(values__judge(v, c, 0, &r), 0);
	cond__free(c);
	return r.verdict;
}

/* During a capture: the last whole reading. */
static void test_capture(void **state)
{
	struct event block = { .kind = EVENT_ALLOC,
			       .device = { .type = DEVICE_CPU },
			       .addr = 64,
			       .size = 64 },
		     part = { .kind = EVENT_HOST,
			      .device = { .type = DEVICE_HOST },
			      .how = HOST_MALLOC,
			      .size = 1 };
	struct facts *facts = facts__new();
	struct host_sheet s = sheet();
	struct feed f = { .v = values__new(facts) };

	assert_non_null(f.v);
	assert_int_equal(take(&f, &block), 0);
	assert_int_equal(judge(f.v, "host_malloc>0"), COND_UNKNOWN);
	assert_int_equal(host_sheet__emit(&s, 5, take, &f), 0);
	assert_true(f.news);
	assert_int_equal(judge(f.v, "host_malloc=70M"), COND_HOLDS);
	assert_int_equal(take(&f, &part), 0); /* of the next reading, which is not whole */
	assert_int_equal(judge(f.v, "host_malloc=70M"), COND_HOLDS);
	assert_int_equal(judge(f.v, "host_cgroup>90"), COND_NO);
	values__free(f.v);
	facts__free(facts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sheet),
		cmocka_unit_test(test_use),
		cmocka_unit_test(test_capture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
