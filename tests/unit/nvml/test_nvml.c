/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/nvml.h"
#include "inspect/proc.h"

/* ---- order of devices ---- */

static const char *const uuids[] = { "GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333",
				     "GPU-cccc4444" };

static void check_order(const char *visible, bool sorted, int n, ...)
{
	unsigned order[NVML_DEVICES_MAX];
	int got = nvml__order(visible, uuids, 4, sorted, order), i;
	va_list ap;

	if (got != n)
		fail_msg("\"%s\": %d devices instead of %d", visible ? visible : "(not set)", got,
			 n);
	va_start(ap, n);
	for (i = 0; i < n; i++)
		assert_int_equal(order[i], va_arg(ap, int));
	va_end(ap);
}

static void test_order(void **state)
{
	check_order(NULL, true, 4, 0, 1, 2, 3);
	check_order(NULL, false, -1); /* default order: the fastest first, unknown */
	check_order("", true, 0);
	check_order("2", true, 1, 2);
	check_order("2", false, -1);
	check_order("3,1,0", true, 3, 3, 1, 0);
	check_order(" 3 , 1", true, 2, 3, 1);
	/* up to the first invalid entry */
	check_order("1,-1,0", true, 1, 1);
	check_order("1,7,0", true, 1, 1);
	check_order("4", true, 0);
	check_order("1,,0", true, 1, 1);
	check_order("1x,0", true, 0);
	check_order("99999999999999999999", true, 0);
	/* names or their prefixes */
	check_order("GPU-bbbb3333", true, 1, 2);
	check_order("GPU-c,GPU-aaaa2", false, 2, 3, 1);
	check_order("GPU-b,0", true, 2, 2, 0);
	check_order("GPU-aaaa", true, 0); /* ambiguous prefix */
	check_order("GPU-", true, 0);
	check_order("GPU-bbbb33334", true, 0);
	/* invalid */
	check_order("0,0", true, -1);
	check_order("GPU-b,2", true, -1);
	check_order("MIG-bbbb3333", true, -1);
	check_order("0,MIG-1", true, -1);
}

static void test_order_bounds(void **state)
{
	const char *many[NVML_DEVICES_MAX + 1];
	unsigned order[NVML_DEVICES_MAX], i;
	char names[NVML_DEVICES_MAX + 1][8], text[1024] = "";

	for (i = 0; i <= NVML_DEVICES_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "GPU-%03u", i);
		many[i] = names[i];
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%u,", i);
	}
	assert_int_equal(nvml__order(text, many, NVML_DEVICES_MAX, true, order), NVML_DEVICES_MAX);
	assert_int_equal(order[NVML_DEVICES_MAX - 1], NVML_DEVICES_MAX - 1);
	assert_int_equal(nvml__order(NULL, many, NVML_DEVICES_MAX + 1, true, order), -1);
	assert_int_equal(nvml__order("0", many, 0, true, order), 0);
}

/* ---- the dry run's table, in this process ---- */

struct usage {
	uint32_t magic, version, n_devices, pad;
	struct {
		uint64_t total, used, context, pad, held;
	} device[NVML_DEVICES_MAX];
	uint64_t reports;
};

static struct usage table;

struct told {
	unsigned n, device[8];
	uint64_t used[8];
	int answer;
};

static int note(void *ctx, unsigned device, uint64_t used)
{
	struct told *t = ctx;

	assert_true(t->n < 8);
	t->device[t->n] = device;
	t->used[t->n++] = used;
	return t->answer;
}

static struct told ask(struct nvml *s)
{
	struct told t = { .n = 0 };
	struct nvml_figures f;

	nvml__read(s, &f);
	assert_int_equal(nvml__report_used(s, &f, note, &t), 0);
	return t;
}

static void test_dry_run(void **state)
{
	struct proc *p = proc__open(getpid());
	struct told t = { .answer = -5 };
	struct nvml_figures f;
	char uuid[NVML_UUID];
	const char *name;
	uint64_t total;
	struct nvml *s;

	assert_non_null(p);
	table = (struct usage){ .magic = 0x4d544452, .version = 3 };
	s = nvml__open(p, (uintptr_t)&table);
	assert_non_null(s);
	assert_true(nvml__is_dry_run(s));
	assert_int_equal(nvml__devices(s), 0); /* CUDA is not used yet */
	assert_int_equal(ask(s).n, 0);
	table.n_devices = 2;
	table.device[0].total = 80;
	table.device[1].total = 90;
	assert_int_equal(ask(s).n, 0); /* devices without use give no record */
	assert_int_equal(nvml__devices(s), 2);
	assert_true(nvml__device(s, 1, &name, &total));
	assert_int_equal(total, 90);
	assert_string_equal(nvml__uuid(s, 1, uuid), "GPU-64727920-7275-6e20-6465-766963650001");
	assert_string_equal(nvml__uuid(s, 2, uuid), "");
	assert_false(nvml__device(s, 2, &name, &total));
	table.device[1].used = 7;
	table.device[1].held = 50; /* by other processes */
	nvml__read(s, &f);
	assert_int_equal(f.free[0], 80);
	assert_int_equal(f.free[1], 90 - 7 - 50);
	table.device[1].held = 84; /* more than there is */
	nvml__read(s, &f);
	assert_true(f.has_free[1]);
	assert_int_equal(f.free[1], 0);
	assert_int_equal(f.n, 2);
	assert_true(f.known[0] && f.known[1]);
	assert_int_equal(f.used[0], 0);
	assert_int_equal(f.used[1], 7);
	f.known[1] = false;
	assert_int_equal(nvml__report_used(s, &f, note, &t), 0); /* unknown: no record */
	f.known[1] = true;
	assert_int_equal(nvml__report_used(s, &f, note, &t), -5);
	assert_int_equal(t.n, 1);
	assert_int_equal(t.device[0], 1);
	assert_int_equal(t.used[0], 7);
	assert_int_equal(ask(s).n, 0); /* unchanged: no record */
	table.device[0].used = 1;
	table.device[1].used = 0;
	t = ask(s);
	assert_int_equal(t.n, 2);
	assert_int_equal(t.used[0], 1);
	assert_int_equal(t.used[1], 0); /* back to 0: a record */
	nvml__free(s);
	proc__free(p);
}

/* The target's table is not trusted: missing or invalid tables. */
static void test_hostile_table(void **state)
{
	static const struct {
		uint32_t magic, version, n_devices;
	} bad[] = { { 0, 3, 1 },
		    { 0x4d544452, 2, 1 },
		    { 0x4d544452, 3, NVML_DEVICES_MAX + 1 },
		    { 0x4d544452, 3, UINT32_MAX } };
	struct proc *p = proc__open(getpid());
	struct nvml_figures f;
	struct nvml *s;
	uint64_t reports;
	size_t i;

	assert_non_null(p);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		table = (struct usage){ .magic = bad[i].magic,
					.version = bad[i].version,
					.n_devices = bad[i].n_devices };
		table.device[0].used = 5;
		s = nvml__open(p, (uintptr_t)&table);
		assert_non_null(s);
		nvml__read(s, &f);
		assert_int_equal(f.n, 0);
		assert_int_equal(nvml__devices(s), 0);
		assert_false(nvml__count_reports(s, &reports));
		nvml__free(s);
	}
	/* a valid table, then one with more devices than at first, then none */
	table = (struct usage){ .magic = 0x4d544452, .version = 3, .n_devices = 1 };
	s = nvml__open(p, (uintptr_t)&table);
	assert_non_null(s);
	table.n_devices = NVML_DEVICES_MAX;
	table.reports = 7;
	assert_true(nvml__count_reports(s, &reports));
	assert_int_equal(reports, 7);
	nvml__read(s, &f);
	assert_int_equal(f.n, 1);
	table.magic = 0;
	nvml__read(s, &f);
	assert_int_equal(f.n, 0);
	nvml__free(s);
	s = nvml__open(p, 8); /* the table's address is unmapped */
	assert_non_null(s);
	nvml__read(s, &f);
	assert_int_equal(f.n, 0);
	nvml__free(s);
	proc__free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_order_bounds),
		cmocka_unit_test(test_dry_run),
		cmocka_unit_test(test_hostile_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
