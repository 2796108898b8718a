/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* run: cpu=40 */
/*
 * Names the modules of tests/workloads/modules.py in every interpreter of $MEMTRACE_TORCH_PYTHONS
 * (paths separated by colons, each with torch) and compares them with named_modules().
 */
#include "unit/cmocka.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "base/map64.h"
#include "inspect/torch.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"
#include "live.h"

struct test {
	struct live live;
	struct proc *proc;
	struct maps maps;
	struct python *py;
	struct nnmodules *n;
	size_t names;
	uint64_t change[5];
	uint64_t big_root, big_last;
};

static uint64_t number(const char *s)
{
	return strtoull(s, NULL, 10);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void on_mod(struct test *t, char **f)
{
	char *name = live__unhex(f[4], NULL), *cls = live__unhex(f[5], NULL),
	     *root = live__unhex(f[6], NULL);
	struct nnmodule got = { 0 };
	int err = nnmodules__name(t->n, number(f[1]), number(f[2]), number(f[3]), &got);

	if (err)
		print_error("%s (%s): %d\n", name, cls, err);
	assert_int_equal(err, 0);
	assert_string_equal(got.name, name);
	assert_string_equal(got.cls, cls);
	assert_string_equal(got.root, root);
	t->names++;
	free(name);
	free(cls);
	free(root);
}

static void on_notmod(struct test *t, char **f)
{
	struct nnmodule got = { .name = "untouched" };
	int err = nnmodules__name(t->n, number(f[1]), number(f[2]), 0, &got);

	assert_int_equal(err, -EBADMSG);
	assert_string_equal(got.name, "untouched");
}

/* Times the first read of a big model and each further one. */
static void on_big(struct test *t, char **f)
{
	struct nnmodules *n = nnmodules__new(t->py);
	struct nnmodule got;
	uint64_t start = now_ns(), first, cost = 0;

	assert_non_null(n);
	assert_int_equal(nnmodules__name(n, number(f[2]), number(f[1]), 0, &got), 0);
	first = now_ns() - start;
	assert_string_equal(got.name, "blocks.109.mlp.3");
	assert_string_equal(got.cls, "Dropout");
	assert_string_equal(got.root, "Thousand");
	assert_false(nnmodules__recheck(n, &cost));
	print_message("  tree of %s modules: %.2f ms, again %.2f ms\n", f[3], first / 1e6,
		      cost / 1e6);
	nnmodules__free(n);
	t->big_root = number(f[1]);
	t->big_last = number(f[2]);
}

static void on_codes(struct test *t, char **f)
{
	const struct map *m;
	uint64_t codes[4] = { 0 }, addr = 0;
	struct pycode c;
	size_t n = 0;

	assert_int_equal(nnmodules__call_codes(t->py, codes, 4, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(codes[0], number(f[1]));
	assert_int_equal(pyobj__code(t->py, codes[0], &c), 0);
	assert_non_null(strstr(c.file, "torch/nn/modules/module.py"));
	pycode__free(&c);
	assert_int_equal(nnmodules__slot_call(t->py, &addr), 0);
	m = maps__find(&t->maps, addr);
	assert_non_null(m);
	assert_true(m->x);
}

static void tell(struct test *t, const char *command)
{
	char *f[LIVE_FIELDS];

	live__tell(&t->live, command);
	assert_int_equal(live__next(&t->live, f), 1);
	assert_string_equal(f[0], command);
}

static void expect_name(struct test *t, struct nnmodules *n, size_t i, const char *name)
{
	struct nnmodule got = { 0 };

	assert_int_equal(nnmodules__name(n, t->change[i], t->change[0], t->change[0], &got), 0);
	assert_string_equal(got.name, name);
}

/* Parts that a method of an uncalled model calls get their whole path. A front comes before it. */
static void told(struct test *t)
{
	struct nnmodules *n = nnmodules__new(t->py);
	struct map64 *roots = map64__new();
	struct nnmodule got = { 0 };
	uint64_t type;

	assert_non_null(n);
	assert_non_null(roots);
	assert_int_equal(nnmodules__model(n, t->change[2]), t->change[2]);
	assert_int_equal(nnmodules__name(n, t->change[3], t->change[2], 0, &got), 0);
	assert_string_equal(got.name, "0");
	assert_int_equal(map64__set(roots, t->change[2], t->change[0]), 0);
	assert_int_equal(map64__set(roots, t->change[4], t->change[0]), 0); /* wrong */
	nnmodules__set_models(n, roots);
	assert_true(nnmodules__is_urgent(n));
	assert_true(nnmodules__recheck(n, NULL));
	assert_int_equal(nnmodules__model(n, t->change[2]), t->change[0]);
	assert_int_equal(nnmodules__model(n, t->change[4]), t->change[4]);
	expect_name(t, n, 3, "1.0");
	assert_false(nnmodules__recheck(n, NULL));
	assert_int_equal(proc__read_u64(t->proc, t->change[0] + 8, &type), 0);
	assert_int_equal(nnmodules__set_prefix(n, t->change[0], type, "teacher"), 0);
	assert_true(nnmodules__is_urgent(n));
	assert_true(nnmodules__recheck(n, NULL));
	expect_name(t, n, 0, "teacher");
	expect_name(t, n, 3, "teacher.1.0");
	assert_int_equal(nnmodules__set_prefix(n, t->change[0], type, "teacher"), 0);
	assert_false(nnmodules__is_urgent(n));
	assert_int_equal(nnmodules__set_prefix(n, t->change[0], type + 16, "other"), 0);
	expect_name(t, n, 3, "1.0");
	nnmodules__set_models(n, NULL);
	nnmodules__free(n);
}

#define READ_PAUSE_US 60000 /* longer than the usual pause between two reads of a tree */
#define NAMED_WITHIN 50	    /* of these pauses */

/* A model that changes: new modules and new names. */
static void changes(struct test *t)
{
	struct nnmodules *n = nnmodules__new(t->py);

	assert_non_null(n);
	assert_false(nnmodules__recheck(n, NULL));
	expect_name(t, n, 0, "");
	expect_name(t, n, 1, "0");
	expect_name(t, n, 2, "1");
	expect_name(t, n, 3, "1.0");
	assert_false(nnmodules__recheck(n, NULL));
	tell(t, "nothing");
	assert_false(nnmodules__recheck(n, NULL));
	expect_name(t, n, 4, "?");
	assert_false(nnmodules__recheck(n, NULL));
	tell(t, "add");
	usleep(READ_PAUSE_US);
	expect_name(t, n, 4, "late");
	assert_true(nnmodules__recheck(n, NULL));
	assert_false(nnmodules__recheck(n, NULL));
	tell(t, "rename");
	assert_true(nnmodules__recheck(n, NULL));
	expect_name(t, n, 2, "renamed");
	expect_name(t, n, 3, "renamed.0");
	expect_name(t, n, 1, "0");
	assert_false(nnmodules__recheck(n, NULL));
	nnmodules__free(n);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

#define LOOKUPS 200u

/* Repeated lookups of missing modules must not read a big tree each time. */
static void limited(struct test *t)
{
	struct nnmodules *n = nnmodules__new(t->py);
	uint64_t began = cpu_ns(), first = 0;
	struct nnmodule got;

	assert_non_null(n);
	for (unsigned i = 0; i < LOOKUPS; i++) {
		assert_int_equal(nnmodules__name(n, t->change[1], t->big_root, t->big_root, &got),
				 0);
		assert_string_equal(got.name, "?");
		assert_string_equal(got.cls, "Linear");
		assert_string_equal(got.root, "Thousand");
		first = first ? first : cpu_ns() - began;
	}
	print_message("  a module that is not in a big tree: %.1f ms of CPU time, then %.3f ms\n",
		      first / 1e6, (cpu_ns() - began - first) / 1e6 / (LOOKUPS - 1));
	assert_true(cpu_ns() - began < LOOKUPS / 4 * first);
	nnmodules__free(n);
}

/* While the target changes the model, a module has its name. If each try to read its tree was torn,
 * it has none until the tree is read again. */
static void while_it_changes(struct test *t)
{
	struct nnmodules *n = nnmodules__new(t->py);
	uint64_t end = now_ns() + 1000000000, rounds = 0, alarms = 0, cost, sum = 0;
	struct nnmodule got;

	assert_non_null(n);
	tell(t, "churn");
	for (; now_ns() < end; rounds++) {
		unsigned tries = 0;

		do {
			if (tries)
				usleep(READ_PAUSE_US);
			assert_int_equal(nnmodules__name(n, t->big_last, t->big_root, 0, &got), 0);
		} while (!strcmp(got.name, "?") && tries++ < NAMED_WITHIN);
		assert_string_equal(got.name, "blocks.109.mlp.3");
		alarms += tries > 0;
		/* A tree that is torn in every try is dropped: a false alarm. */
		alarms += nnmodules__recheck(n, &cost);
		sum += cost;
	}
	assert_true(rounds > 0 && alarms <= 1 + rounds / 10);
	print_message("  while it changes: %.2f ms a tree, %llu of %llu torn\n", sum / 1e6 / rounds,
		      (unsigned long long)alarms, (unsigned long long)rounds);
	nnmodules__free(n);
}

static void open_target(struct test *t, const char *python)
{
	const char *why = "";
	int major, minor, micro;

	t->proc = proc__open(t->live.pid);
	assert_non_null(t->proc);
	assert_int_equal(proc__maps(t->proc, &t->maps), 0);
	t->py = python__open(t->proc, &t->maps, &why);
	if (!t->py)
		print_error("no Python: %s\n", why);
	assert_non_null(t->py);
	python__version(t->py, &major, &minor, &micro);
	print_message("%s: CPython %d.%d.%d\n", python, major, minor, micro);
	t->n = nnmodules__new(t->py);
	assert_non_null(t->n);
}

static void one_line(struct test *t, char *line)
{
	static const struct {
		const char *word;
		size_t fields;
		void (*fn)(struct test *t, char **f);
	} kinds[] = {
		{ "mod", 7, on_mod },
		{ "notmod", 3, on_notmod },
		{ "big", 4, on_big },
		{ "codes", 2, on_codes },
	};
	char *f[LIVE_FIELDS], *save = NULL;
	size_t n = 0, i;

	for (char *s = strtok_r(line, "\t", &save); s && n < LIVE_FIELDS;
	     s = strtok_r(NULL, "\t", &save))
		f[n++] = s;
	assert_true(n > 0);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].word, f[0]))
			continue;
		assert_int_equal(n, kinds[i].fields);
		kinds[i].fn(t, f);
		return;
	}
	if (!strcmp(f[0], "note")) {
		print_message("  note: %s\n", f[1]);
		return;
	}
	assert_string_equal(f[0], "change");
	assert_int_equal(n, 6);
	for (i = 0; i < 5; i++)
		t->change[i] = number(f[i + 1]);
}

static void run_one(struct test *t, const char *python)
{
	char *f[LIVE_FIELDS], *lines = NULL, *save = NULL;
	FILE *kept;
	size_t n, len = 0;
	bool ready = false;

	kept = open_memstream(&lines, &len);
	assert_non_null(kept);
	live__start(&t->live, python, "tests/workloads/modules.py");
	while (!ready && (n = live__next(&t->live, f))) {
		ready = !strcmp(f[0], "ready");
		for (size_t i = 0; !ready && i < n; i++)
			fprintf(kept, "%s%c", f[i], i + 1 < n ? '\t' : '\n');
	}
	fclose(kept);
	assert_true(ready);
	open_target(t, python);
	for (char *line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		one_line(t, line);
	free(lines);
	assert_true(t->names > 1000);
	assert_true(t->change[0] && t->big_root);
	assert_false(nnmodules__recheck(t->n, NULL));
	told(t);
	changes(t);
	limited(t);
	while_it_changes(t);
	print_message("  %zu names right\n", t->names);
	nnmodules__free(t->n);
	python__free(t->py);
	maps__free(&t->maps);
	proc__free(t->proc);
	assert_true(live__stop(&t->live));
}

static void test_modules(void **state)
{
	const char *env = getenv("MEMTRACE_TORCH_PYTHONS");
	char *list, *save = NULL;

	if (!env || !*env) {
		print_message(
			"skipped: MEMTRACE_TORCH_PYTHONS names no interpreter that has torch\n");
		skip();
	}
	list = strdup(env);
	for (char *p = strtok_r(list, ":", &save); p; p = strtok_r(NULL, ":", &save)) {
		struct test t = { 0 };

		run_one(&t, p);
	}
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
