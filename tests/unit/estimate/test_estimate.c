/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The estimate's arithmetic: repeated steps, sums of parts, verdicts, the dry run's log. */
#include "unit/model_world.h"

#include <stdio.h>
#include <unistd.h>

#include "estimate/estimate.h"
#include "estimate/runs/known.h"
#include "estimate/runs/parts.h"
#include "estimate/runs/run.h"

#define GIB (UINT64_C(1) << 30)

/* ---- repeated steps ---- */

static void block(struct repeat *r, uint8_t kind, uint8_t index, uint64_t addr, uint64_t size,
		  uint64_t allocated, uint64_t reserved)
{
	const struct event e = { .kind = kind,
				 .device = { DEVICE_CUDA, index },
				 .addr = addr,
				 .size = size,
				 .totals = reserved != 0,
				 .allocated = allocated,
				 .reserved = reserved };

	assert_int_equal(repeat__event(r, &e), 0);
}

/* A step that rises to `peak` and ends at `end`. */
static bool step(struct repeat *r, uint32_t stack, uint64_t peak, uint64_t end, uint64_t reserved,
		 struct repeat_found *f)
{
	const struct event e = { .kind = EVENT_STEP, .stack = stack };

	block(r, EVENT_ALLOC, 0, 1, 1, peak, reserved);
	block(r, EVENT_FREE, 0, 1, 0, end, reserved);
	assert_int_equal(repeat__event(r, &e), 0);
	return repeat__found(r, f);
}

static void test_repeat_equal(void **state)
{
	struct repeat *r = repeat__new();
	struct repeat_found f;

	assert_false(repeat__found(r, &f));
	assert_false(step(r, 1, 100, 50, 200, &f)); /* the first step has no optimizer state */
	assert_false(step(r, 1, 150, 90, 200, &f));
	assert_false(step(r, 1, 150, 90, 200, &f));
	assert_true(step(r, 1, 150, 90, 200, &f));
	assert_int_equal(f.first, 2);
	assert_int_equal(f.last, 4);
	assert_int_equal(f.cycle, 1);
	/* A different step later keeps the result, but steps no longer repeat. */
	assert_false(step(r, 1, 151, 90, 200, &f));
	repeat__free(r);
}

/* A difference of one byte in any compared value matters. */
static void test_repeat_compares(void **state)
{
	static const uint64_t other[4][4] = {
		{ 1, 151, 90, 200 }, { 1, 150, 91, 200 }, { 1, 150, 90, 201 }, { 2, 150, 90, 200 }
	};
	struct repeat_found f;

	for (int i = 0; i < 4; i++) {
		struct repeat *r = repeat__new();

		assert_false(step(r, 1, 150, 90, 200, &f));
		assert_false(step(r, 1, 150, 90, 200, &f));
		assert_false(
			step(r, (uint32_t)other[i][0], other[i][1], other[i][2], other[i][3], &f));
		repeat__free(r);
	}
}

/* Small variations of the cache are ignored; one more block per step and more reserved memory
 * are not. */
static void test_repeat_close(void **state)
{
	static const uint64_t mib = 1 << 20;
	struct repeat_found f;

	for (int kind = 0; kind < 4; kind++) {
		struct repeat *r = repeat__new();
		bool found = false;

		for (uint64_t i = 0; i < 20; i++) {
			uint64_t other = i & 1;

			if (kind == 1)
				block(r, EVENT_ALLOC, 0, 100 + i, 512, 500 * mib, 2000 * mib);
			found |= step(r, 1, 1000 * mib + (kind == 2 ? i * 5 : other) * mib,
				      500 * mib + i * 512, 2000 * mib + (kind == 3 ? i : 0), &f);
		}
		assert_int_equal(found, kind == 0);
		if (!kind)
			assert_int_equal(f.spread, mib);
		repeat__free(r);
	}
}

/* Changes within a step below the peak are ignored; a second device is not. */
static void test_repeat_devices(void **state)
{
	struct repeat *r = repeat__new();
	struct repeat_found f;

	block(r, EVENT_ALLOC, 1, 9, 9, 10, 20);
	assert_false(step(r, 1, 150, 90, 200, &f));
	block(r, EVENT_ALLOC, 0, 9, 9, 120, 200);
	assert_false(step(r, 1, 150, 90, 200, &f));
	assert_true(step(r, 1, 150, 90, 200, &f));
	block(r, EVENT_ALLOC, 1, 9, 9, 11, 20);
	assert_false(step(r, 1, 150, 90, 200, &f));
	repeat__free(r);
}

/* Two optimizers as in a GAN: consecutive steps always differ. */
static void test_repeat_cycle(void **state)
{
	struct repeat *r = repeat__new();
	struct repeat_found f;

	assert_false(step(r, 1, 100, 50, 200, &f));
	assert_false(step(r, 2, 150, 50, 200, &f));
	assert_false(step(r, 1, 110, 50, 200, &f));
	assert_false(step(r, 2, 150, 50, 200, &f));
	assert_true(step(r, 1, 110, 50, 200, &f));
	assert_int_equal(f.first, 2);
	assert_int_equal(f.last, 5);
	assert_int_equal(f.cycle, 2);
	repeat__free(r);
}

/* A job that grows a little in each step never repeats. */
static void test_repeat_never(void **state)
{
	struct repeat *r = repeat__new();
	struct repeat_found f;

	for (uint64_t i = 0; i < 100; i++)
		assert_false(step(r, 1, 100 + i, 50 + i, 400, &f));
	repeat__free(r);
}

/* Without totals, block sizes are summed up; frees have no size. */
static void test_repeat_no_totals(void **state)
{
	const struct event e = { .kind = EVENT_STEP, .stack = 1 };
	struct repeat *r = repeat__new();
	struct repeat_found f;

	for (uint64_t i = 0; i < 4; i++) {
		block(r, EVENT_ALLOC, 0, 0x1000, i < 3 ? 64 : 65, 0, 0);
		block(r, EVENT_FREE, 0, 0x1000, 0, 0, 0);
		assert_int_equal(repeat__event(r, &e), 0);
		assert_int_equal(repeat__found(r, &f), i == 2);
	}
	repeat__free(r);
}

static void test_repeat_cpu_only(void **state)
{
	const struct event alloc = { .kind = EVENT_ALLOC, .size = 100, .addr = 1 },
			   s = { .kind = EVENT_STEP, .stack = 1 };
	struct repeat *r = repeat__new();
	struct repeat_found f;

	for (int i = 0; i < 10; i++) {
		assert_int_equal(repeat__event(r, &alloc), 0);
		assert_int_equal(repeat__event(r, &s), 0);
		assert_false(repeat__found(r, &f));
	}
	repeat__free(r);
}

/* Steps that are alike but for what they keep end a run; steps that grow otherwise do not. */
static void test_repeat_grows(void **state)
{
	enum { LEAK, RARE, SMALL, CACHE, SAWTOOTH, LENGTHS, EQUAL, LATE, CASES };

	for (int c = 0; c < CASES; c++) {
		struct repeat *r = repeat__new();
		uint64_t end = 1000000;
		int grows = 0;

		for (int i = 1; i <= 200 && !grows; i++) {
			struct repeat_found f;
			uint64_t above = 500000;

			end += c == LEAK		      ? 4096
			       : c == RARE		      ? (i % 5 ? 0 : 4096)
			       : c == SMALL		      ? 1
			       : c == CACHE		      ? (i < 40 ? 4096 : 0)
			       : c == SAWTOOTH && i % 10 == 0 ? (uint64_t)0 - 9 * 4096
			       : c == SAWTOOTH		      ? 4096
			       : c == LENGTHS		      ? 4096
			       : c == LATE		      ? (i < 100 ? 0 : 4096)
							      : 0;
			if (c == LENGTHS)
				above += i * 7919 % 13 * 50000;
			step(r, 1, end + above, end, 0x1000000, &f);
			if (repeat__grows(r))
				grows = i;
		}
		if (c == LATE)
			assert_in_range(grows, 100 + REPEAT_GROWN / 2, 100 + REPEAT_GROWN);
		else
			assert_int_equal(grows, c <= SMALL ? REPEAT_GROWS : 0);
		repeat__free(r);
	}
}

/* ---- verdicts ---- */

static void test_verdict(void **state)
{
	assert_int_equal(verdict__of(true, 0), VERDICT_FITS);
	/* The script caught the error and continued. */
	assert_int_equal(verdict__of(true, 3), VERDICT_FITS);
	assert_int_equal(verdict__of(false, 1), VERDICT_DOES_NOT_FIT);
	/* Failed for another reason, or stopped by a limit. */
	assert_int_equal(verdict__of(false, 0), VERDICT_UNKNOWN);
}

static void test_left(void **state)
{
	struct estimate_parts p = { .needs = 3 * GIB };

	assert_int_equal(estimate_parts__left(4 * GIB, &p), GIB);
	assert_int_equal(estimate_parts__left(2 * GIB, &p), -(int64_t)GIB);
	/* Memory comes in granules; a partial granule is unusable. */
	assert_int_equal(estimate_parts__left(4 * GIB + 1, &p), GIB);
	assert_int_equal(estimate_parts__left(4 * GIB - 1, &p), GIB - ESTIMATE_GRANULE);
	assert_int_equal(granule__up(1), ESTIMATE_GRANULE);
	assert_int_equal(granule__up(ESTIMATE_GRANULE), ESTIMATE_GRANULE);
}

/* ---- the answer ---- */

struct answer {
	struct world w;
	struct analysis full;
	struct estimate_args args;
	struct estimate e;
	char *command[2], *out;
};

/* A job of so many steps that keeps 4 MiB in each of them, or nothing. */
static struct answer *answer__new(int steps, bool leaks, enum verdict verdict)
{
	struct answer *a = calloc(1, sizeof(*a));
	uint32_t line;

	a->w = world__new(AT_PEAK, 0);
	assert_int_equal(growth__watch(a->w.m, BY_LINE), 0);
	facts__set(a->w.f, "dry_run", "1");
	facts__set(a->w.f, "attached_at", "start");
	facts__set(a->w.f, "device.0.total", "1073741824");
	line = simple(&a->w, "/home/u/train.py", "train_step", 8);
	for (int i = 0; i < steps; i++) {
		alloc(&a->w, CUDA(0), 0x100000 + (leaks ? i : 0), 4 << 20, line);
		if (!leaks)
			dealloc(&a->w, CUDA(0), 0x100000, 4 << 20);
		feed(&a->w, (struct event){ .kind = EVENT_STEP });
	}
	model__finish(a->w.m, a->w.time);
	a->command[0] = (char *)(uintptr_t) "train.py";
	a->args = (struct estimate_args){ .run.command = a->command, .vram = GIB };
	a->full = (struct analysis){ .model = a->w.m, .dict = a->w.d, .facts = a->w.f };
	a->e = (struct estimate){ .args = &a->args,
				  .named = &a->full,
				  .full = &a->full,
				  .full_vram = GIB,
				  .full_run = { .end = RUN_ENDED },
				  .context = { .from = "assumed" },
				  .verdict = verdict };
	assert_int_equal(estimate_parts(a->w.m, 0, 0, &a->e.parts), 0);
	assert_int_equal(growth_summary__of(a->w.m, a->w.f, 0, a->w.time, &a->e.growth), 0);
	return a;
}

static void answer__free(struct answer *a)
{
	growth_summary__free(&a->e.growth);
	world__free(&a->w);
	free(a->out);
	free(a);
}

static const char *answer__text(struct answer *a)
{
	size_t size;
	FILE *out = open_memstream(&a->out, &size);

	assert_int_equal(estimate_text(out, &a->e), 0);
	fclose(out);
	return a->out;
}

static void begins(struct answer *a, const char *text)
{
	if (strncmp(answer__text(a), text, strlen(text)) != 0)
		fail_msg("does not begin with '%s':\n%s", text, a->out);
	answer__free(a);
}

/* Growth is the first thing said. */
static void test_growth(void **state)
{
	struct answer *a = answer__new(60, true, VERDICT_FITS);

	begins(a, "fits, but memory grows 4.00 MiB per step: enough for about 190 more steps\n"
		  "  needs 240.00 MiB of 1.00 GiB, 784.00 MiB are left\n"
		  "  Growth  +4.00 MiB/step at /home/u/train.py:8 (train_step), confidence high; "
		  "full in about 190 steps\n");
	/* The run with unlimited memory says nothing about the device asked for. */
	a = answer__new(300, true, VERDICT_DOES_NOT_FIT);
	a->e.full_vram = 2 * GIB;
	begins(a, "does not fit, and memory grows 4.00 MiB per step\n  needs 1.17 GiB, but the "
		  "device has 1.00 GiB: 176.00 MiB are missing\n");
	/* The size that was run and fits leads, not the cache that PyTorch keeps without a limit. */
	a = answer__new(60, false, VERDICT_DOES_NOT_FIT);
	a->e.full_vram = 64 * GIB;
	a->e.parts.needs = 61 * GIB;
	a->e.parts.bytes[PART_CACHED] = 54 * GIB;
	a->e.growth.verdict = GROWTH_VERDICT_GROWS;
	a->e.growth.part = GROWTH_OF_POOL;
	a->e.smallest = (struct estimate_smallest){
		.asked = true, .found = true, .vram = 7 * GIB, .less_refused = true
	};
	begins(a, "does not fit: needs 7.00 GiB, but the device has 1.00 GiB: 6.00 GiB are "
		  "missing\n"
		  "  with more memory PyTorch would take up to 61.00 GiB, 54.00 GiB of it cached\n"
		  "  the smallest --vram that fits: 7168M (7.00 GiB), and 2 MiB less does not: "
		  "both were run\n");
	begins(answer__new(60, false, VERDICT_FITS), "fits: needs 4.00 MiB of 1.00 GiB, ");
	begins(answer__new(5, true, VERDICT_FITS), "fits: needs 20.00 MiB of 1.00 GiB, ");
}

/* ---- the log ---- */

static struct known_list read_log(const char *text)
{
	char path[] = "/tmp/test-estimate-XXXXXX";
	struct known_list l;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	assert_int_equal(known__read(path, &l), 0);
	unlink(path);
	return l;
}

static void test_log(void **state)
{
	struct known_list l = read_log("unmodelled cufftXtExec\n"
				       "assumed cudnn_workspace 33554432\n"
				       "assumed true_at /a b/eval.py:31\n"
				       "assumed value_at /a/train.py:8 2.5\n"
				       "depends\tvalue\titem\t1\t/a/train.py\t12\tstep\n"
				       "depends\tshape\tnonzero\t2\t/a/moe.py\t7\troute\n"
				       "depends\tvalue\titem\t4\t/a/train.py\t12\tstep\n"
				       "depends\tvalue\ttolist\t3\t\t0\t\n"
				       "depends\tvalue\titem\t2\t/a/train.py\t12\tstep\n");

	assert_int_equal(l.n, 7);
	assert_int_equal(l.kinds[KNOWN_VALUE], 2);
	assert_string_equal(l.all[0].name, "cufftXtExec");
	assert_int_equal(l.all[1].count, 33554432);
	assert_string_equal(l.all[2].file, "/a b/eval.py");
	assert_int_equal(l.all[2].line, 31);
	assert_null(l.all[2].value);
	assert_string_equal(l.all[3].value, "2.5");
	assert_int_equal(l.all[4].kind, KNOWN_DATA_DEPENDENT);
	assert_string_equal(l.all[4].func, "route");
	/* The largest count of a line is used. */
	assert_int_equal(l.all[5].count, 4);
	assert_int_equal(l.all[5].line, 12);
	assert_null(l.all[6].file);
	known__free(&l);
}

/* The script can write to the log, too. */
static void test_log_hostile(void **state)
{
	char *big = malloc(100001), *many = malloc(200000), *at = many;
	struct known_list l = read_log(
		"depends\n"
		"depends\tshape\n"
		"depends\tother\tx\t1\ta\t1\tb\n"
		"depends\tshape\tx\t-1\ta\t1\tb\n"
		"depends\tshape\tx\t99999999999999999999999\ta\t1\tb\n"
		"depends\tshape\ty\t1\ta\t99999999999\tb\n"
		"\n \nassumed\nassumed x\nassumed x y\nassumed x :1\nassumed x y:\nassumed x "
		"y:1z\nunmodelled\nunmodelled \nwhatever else\n");

	assert_int_equal(l.n, 1);
	assert_string_equal(l.all[0].name, "y");
	assert_int_equal(l.all[0].line, 0);
	known__free(&l);
	memset(big, 'x', 100000);
	big[100000] = '\0';
	l = read_log(big);
	assert_int_equal(l.n, 0);
	known__free(&l);
	for (int i = 0; i < 6000; i++)
		at += sprintf(at, "unmodelled name_%d\n", i);
	l = read_log(many);
	assert_int_equal(l.n, 4096);
	assert_true(l.more);
	known__free(&l);
	free(big);
	free(many);
	assert_int_equal(known__read("/nowhere/at/all", &l), 0);
	assert_int_equal(l.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_repeat_equal),
		cmocka_unit_test(test_repeat_compares),
		cmocka_unit_test(test_repeat_close),
		cmocka_unit_test(test_repeat_devices),
		cmocka_unit_test(test_repeat_cycle),
		cmocka_unit_test(test_repeat_never),
		cmocka_unit_test(test_repeat_no_totals),
		cmocka_unit_test(test_repeat_cpu_only),
		cmocka_unit_test(test_repeat_grows),
		cmocka_unit_test(test_verdict),
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_log_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
