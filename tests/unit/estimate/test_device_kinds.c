/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimate/estimate.h"

static void test_find(void **state)
{
	const struct device_kind *k;

	k = device_kind__find("h100");
	assert_non_null(k);
	assert_string_equal(k->name, "NVIDIA H100 80GB HBM3");
	assert_int_equal(k->sm_major, 9);
	assert_int_equal(k->processors, 132);
	assert_ptr_equal(device_kind__find("H100"), k);
	assert_ptr_equal(device_kind__find("h100-80g"), k);
	assert_ptr_equal(device_kind__find("RTX4090"), device_kind__find("4090"));
	assert_ptr_equal(device_kind__find("rtx-4090"), device_kind__find("4090"));
	assert_ptr_equal(device_kind__find("a100-80g"), device_kind__find("a100"));
	assert_ptr_not_equal(device_kind__find("a100-40g"), device_kind__find("a100"));
	assert_null(device_kind__find(""));
	assert_null(device_kind__find("rtx"));
	assert_null(device_kind__find("h1000"));
	assert_null(device_kind__find("h10"));
}

/* Kinds accepted by the dry run: tools/dryrun/config.c. */
static void test_each(void **state)
{
	static const char *const sms[] = { "7.0", "7.5",  "8.0",  "8.6", "8.9",
					   "9.0", "10.0", "10.3", "12.0" };
	size_t n, i, j;
	const struct device_kind *all = device_kinds(&n);

	assert_true(n >= 10);
	for (i = 0; i < n; i++) {
		struct device_figure context;
		char sm[16];
		bool known = false;

		snprintf(sm, sizeof(sm), "%d.%d", all[i].sm_major, all[i].sm_minor);
		for (j = 0; j < sizeof(sms) / sizeof(*sms); j++)
			known |= !strcmp(sm, sms[j]);
		if (!known)
			fail_msg("%s: the dry run has no SM %s", all[i].option, sm);
		assert_true(strlen(all[i].name) < 256);
		assert_true(all[i].processors >= 40 && all[i].processors <= 200);
		assert_true(all[i].total_bytes > 14ULL << 30 && all[i].total_bytes < 192ULL << 30);
		assert_non_null(all[i].total_from);
		for (j = 0; j < i; j++)
			assert_string_not_equal(all[i].option, all[j].option);
		assert_ptr_equal(device_kind__find(all[i].option), &all[i]);
		assert_true(device_kind__context(&all[i], 0, &context));
		assert_true(context.source == FIGURE_REPORTED || context.source == FIGURE_ASSUMED);
		assert_true(context.bytes >= 100ULL << 20 && context.bytes <= 1ULL << 30);
		assert_true(strlen(context.from) > 0);
	}
}

static void test_context(void **state)
{
	struct device_figure f;

	/* measured for this version; for another version; for no device of the kind */
	assert_true(device_kind__context(device_kind__find("h100"), 12080, &f));
	assert_int_equal(f.source, FIGURE_REPORTED);
	assert_int_equal(f.bytes, 600ULL << 20);
	assert_true(device_kind__context(device_kind__find("h100"), 13000, &f));
	assert_int_equal(f.source, FIGURE_ASSUMED);
	assert_true(device_kind__context(device_kind__find("6000-ada"), 13000, &f));
	assert_int_equal(f.source, FIGURE_REPORTED);
	assert_true(device_kind__context(device_kind__find("h200"), 0, &f));
	assert_int_equal(f.source, FIGURE_ASSUMED);
	assert_true(device_kind__context(NULL, 12080, &f));
	assert_int_equal(f.source, FIGURE_ASSUMED);
	assert_int_equal(f.bytes, 512ULL << 20);
	assert_string_equal(figure_source__name(FIGURE_REPORTED), "reported");
	assert_string_equal(figure_source__name(FIGURE_UNKNOWN), "unknown");
}

static void test_nccl(void **state)
{
	struct device_figure f;

	assert_true(device_kind__nccl(device_kind__find("a100"), 2, &f));
	assert_int_equal(f.bytes, 544ULL << 20);
	assert_int_equal(f.source, FIGURE_REPORTED);
	assert_true(device_kind__nccl(NULL, 4, &f));
	assert_int_equal(f.bytes, 688ULL << 20);
	assert_int_equal(f.source, FIGURE_ASSUMED);
	assert_false(device_kind__nccl(device_kind__find("h100"), 8, &f));
	assert_int_equal(f.source, FIGURE_UNKNOWN);
	assert_int_equal(f.bytes, 0);
	assert_false(device_kind__nccl(device_kind__find("h100"), 0, &f));
}

static void test_cuda_version(void **state)
{
	assert_int_equal(device_kind__cuda_version("2.11.0+cu130"), 13000);
	assert_int_equal(device_kind__cuda_version("2.4.1+cu124"), 12040);
	assert_int_equal(device_kind__cuda_version("2.0.1+cu117.with.pypi.cudnn"), 11070);
	assert_int_equal(device_kind__cuda_version("2.4.1+cu1241"), 0);
	assert_int_equal(device_kind__cuda_version("2.4.1+cu"), 0);
	assert_int_equal(device_kind__cuda_version("2.4.1+cpu"), 0);
	assert_int_equal(device_kind__cuda_version("2.4.1"), 0);
	assert_int_equal(device_kind__cuda_version(NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),	cmocka_unit_test(test_each),
		cmocka_unit_test(test_context), cmocka_unit_test(test_cuda_version),
		cmocka_unit_test(test_nccl),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
