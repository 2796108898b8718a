/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads the objects of tests/workloads/objects.py in every interpreter of $MEMTRACE_PYTHONS (paths
 * separated by colons; default: python3 of $PATH) and compares them with the workload's output.
 */
#include "unit/cmocka.h"

#include <errno.h>
#include <inttypes.h>

#include "inspect/torch.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"
#include "live.h"

#define UNTOUCHED 0x5a5a5a5a5a5a5a5aull
#define MAX_PAIRS 1000

struct test {
	struct live live;
	struct proc *proc;
	struct python *py;
	size_t checks;
	uint64_t pairs[MAX_PAIRS][2], churn_dict, churn_obj;
	size_t npairs;
	uint64_t first_str; /* an address on the heap */
};

#define check(t, what, ...)                                                                        \
	do {                                                                                       \
		(t)->checks++;                                                                     \
		if (!(what)) {                                                                     \
			print_error("%s: ", #what);                                                \
			print_error(__VA_ARGS__);                                                  \
			fail();                                                                    \
		}                                                                                  \
	} while (0)

static uint64_t number(const char *s)
{
	return strtoull(s, NULL, 10);
}

/* Compares an address with the expected value; 0 must give -ENOENT. */
static void want_value(struct test *t, int err, uint64_t got, const char *want, const char *what,
		       const char *name)
{
	if (!number(want))
		check(t, err == -ENOENT && got == UNTOUCHED, "%s %s: %d, not -ENOENT", what, name,
		      err);
	else
		check(t, !err && got == number(want), "%s %s: %d, %#" PRIx64 " for %s", what, name,
		      err, got, want);
}

static void on_str(struct test *t, char **f)
{
	char buf[PYOBJ_MAX_STRING + 1], small[8];
	size_t len, n;
	char *want = live__unhex(f[2], &len);
	int err = pyobj__str(t->py, number(f[1]), buf, sizeof(buf));

	t->first_str = number(f[1]);
	check(t, !err && !strcmp(buf, want), "str at %s: %d, \"%.40s\" for \"%.40s\"", f[1], err,
	      buf, want);
	check(t, strlen(buf) == len, "length of str at %s", f[1]);
	/* A small buffer gets as many whole characters as fit. */
	err = pyobj__str(t->py, number(f[1]), small, sizeof(small));
	n = len < sizeof(small) - 1 ? len : sizeof(small) - 1;
	while (n < len && ((unsigned char)want[n] & 0xc0) == 0x80)
		n--;
	check(t, !err && strlen(small) == n && !memcmp(small, want, n), "cut of str at %s", f[1]);
	free(want);
}

static void on_notstr(struct test *t, char **f)
{
	char buf[16] = "untouched";

	check(t,
	      pyobj__str(t->py, number(f[1]), buf, sizeof(buf)) == -EBADMSG &&
		      !strcmp(buf, "untouched"),
	      "object at %s", f[1]);
}

struct fold {
	uint64_t n, hash;
};

static int fold(uint64_t key, uint64_t value, void *ctx)
{
	struct fold *s = ctx;

	s->n++;
	s->hash = (s->hash * 1099511628211u) ^ key;
	s->hash = (s->hash * 1099511628211u) ^ value;
	return 0;
}

static int stop_at_third(uint64_t key, uint64_t value, void *ctx)
{
	return ++*(int *)ctx == 3 ? 33 : 0;
}

static void on_dict(struct test *t, char **f)
{
	struct fold s = { .hash = 14695981039346656037u };
	int err = pyobj__dict_each(t->py, number(f[1]), fold, &s), n = 0;

	check(t, !err && s.n == number(f[2]), "dict at %s: %d, %" PRIu64 " entries for %s", f[1],
	      err, s.n, f[2]);
	check(t, s.hash == strtoull(f[3], NULL, 16),
	      "dict at %s of %s entries: wrong entries or order", f[1], f[2]);
	err = pyobj__dict_each(t->py, number(f[1]), stop_at_third, &n);
	check(t, s.n < 3 ? !err && n == (int)s.n : err == 33 && n == 3, "dict at %s: %d after %d",
	      f[1], err, n);
}

static void on_notdict(struct test *t, char **f)
{
	struct fold s = { 0 };
	uint64_t v = UNTOUCHED;

	check(t, pyobj__dict_each(t->py, number(f[1]), fold, &s) == -EBADMSG && !s.n,
	      "object at %s", f[1]);
	check(t, pyobj__dict_get(t->py, number(f[1]), "a", &v) == -EBADMSG && v == UNTOUCHED,
	      "object at %s", f[1]);
}

static void on_get(struct test *t, char **f)
{
	char *key = live__unhex(f[2], NULL);
	uint64_t v = UNTOUCHED;
	int err = pyobj__dict_get(t->py, number(f[1]), key, &v);

	want_value(t, err, v, f[3], "key", key);
	free(key);
}

static void on_attr(struct test *t, char **f)
{
	uint64_t v = UNTOUCHED;
	int err = pyobj__attr(t->py, number(f[1]), f[2], &v);

	want_value(t, err, v, f[3], "attribute", f[2]);
}

static void on_type(struct test *t, char **f)
{
	uint64_t v = UNTOUCHED;
	int err = pyobj__type(t->py, number(f[1]), &v);

	want_value(t, err, v, f[2], "type", f[1]);
	v = UNTOUCHED;
	check(t, pyobj__type(t->py, number(f[1]) + 4, &v) == -EBADMSG && v == UNTOUCHED,
	      "misaligned");
}

static void on_tname(struct test *t, char **f)
{
	char buf[4096], small[4];
	char *want = live__unhex(f[2], NULL);
	int err = pyobj__type_name(t->py, number(f[1]), buf, sizeof(buf));

	check(t, !err && !strcmp(buf, want), "type at %s: %d, %s for %s", f[1], err, buf, want);
	err = pyobj__type_name(t->py, number(f[1]), small, sizeof(small));
	check(t, !err && strlen(small) <= 3 && !strncmp(small, want, strlen(small)),
	      "cut of type at %s", f[1]);
	free(want);
}

static void on_isa(struct test *t, char **f)
{
	bool yes = pyobj__is_a(t->py, number(f[1]), f[2], strcmp(f[3], "-") ? f[3] : NULL);

	check(t, yes == (number(f[4]) == 1), "type at %s, %s of %s: %d", f[1], f[2], f[3], yes);
}

static void on_tattr(struct test *t, char **f)
{
	uint64_t v = UNTOUCHED;
	int err = pyobj__type_attr(t->py, number(f[1]), f[2], &v);

	want_value(t, err, v, f[3], "type attribute", f[2]);
}

static void on_func(struct test *t, char **f)
{
	uint64_t v = UNTOUCHED;
	int err = pyobj__func_code(t->py, number(f[1]), &v);

	want_value(t, err, v, f[2], "code of function", f[1]);
	v = UNTOUCHED;
	check(t, pyobj__func_code(t->py, number(f[2]), &v) == -EBADMSG && v == UNTOUCHED,
	      "not a function");
}

static void on_code(struct test *t, char **f)
{
	char *name = live__unhex(f[2], NULL), *file = live__unhex(f[3], NULL);
	size_t len;
	char *table = live__unhex(f[5], &len);
	struct pycode c;
	int err = pyobj__code(t->py, number(f[1]), &c);

	check(t, !err, "code at %s: %d", f[1], err);
	check(t, !strcmp(c.name, name), "name %s for %s", c.name, name);
	check(t, !strcmp(c.file, file), "file %s for %s", c.file, file);
	check(t, c.firstlineno == number(f[4]), "line %u for %s", c.firstlineno, f[4]);
	check(t, c.linetable_len == len && !memcmp(c.linetable, table, len), "line table of %s",
	      name);
	pycode__free(&c);
	pycode__free(&c);
	free(name);
	free(file);
	free(table);
}

static void on_notcode(struct test *t, char **f)
{
	struct pycode c = { .firstlineno = 77 };

	check(t, pyobj__code(t->py, number(f[1]), &c) == -EBADMSG && c.firstlineno == 77,
	      "object at %s", f[1]);
}

static void on_module(struct test *t, char **f)
{
	char *name = live__unhex(f[1], NULL);
	uint64_t v = UNTOUCHED;
	int err = pyobj__module(t->py, name, &v);

	want_value(t, err, v, f[2], "module", name);
	free(name);
}

static void on_mattr(struct test *t, char **f)
{
	uint64_t v = UNTOUCHED;
	int err = pyobj__module_attr(t->py, number(f[1]), f[2], &v);

	want_value(t, err, v, f[3], "module attribute", f[2]);
}

static void on_pair(struct test *t, char **f)
{
	assert_true(t->npairs < MAX_PAIRS);
	t->pairs[t->npairs][0] = number(f[1]);
	t->pairs[t->npairs++][1] = number(f[2]);
}

static void on_churn(struct test *t, char **f)
{
	t->churn_dict = number(f[1]);
	t->churn_obj = number(f[2]);
}

static const struct {
	const char *word;
	size_t fields;
	void (*fn)(struct test *t, char **f);
} kinds[] = {
	{ "str", 3, on_str },	      { "notstr", 2, on_notstr }, { "dict", 4, on_dict },
	{ "notdict", 2, on_notdict }, { "get", 4, on_get },	  { "attr", 4, on_attr },
	{ "type", 3, on_type },	      { "tname", 3, on_tname },	  { "isa", 5, on_isa },
	{ "tattr", 4, on_tattr },     { "func", 3, on_func },	  { "code", 6, on_code },
	{ "notcode", 2, on_notcode }, { "module", 3, on_module }, { "mattr", 4, on_mattr },
	{ "pair", 3, on_pair },	      { "churn", 3, on_churn },
};

struct churn {
	struct test *t;
	uint64_t n;
};

static int check_pair(uint64_t key, uint64_t value, void *ctx)
{
	struct churn *c = ctx;

	c->n++;
	for (size_t i = 0; i < c->t->npairs; i++)
		if (c->t->pairs[i][0] == key)
			return c->t->pairs[i][1] == value ? 0 : 1;
	return 2;
}

/* While the target changes a dict and an instance, a read gives a right pair or an error. */
static void while_it_changes(struct test *t)
{
	uint64_t good = 0, bad = 0, seen = 0, v;
	char *f[LIVE_FIELDS];

	live__tell(&t->live, "churn");
	assert_int_equal(live__next(&t->live, f), 1);
	assert_string_equal(f[0], "churning");
	while (good < 1500 || !seen) {
		struct churn c = { .t = t };
		int err = pyobj__dict_each(t->py, t->churn_dict, check_pair, &c);

		check(t, !err || err == -EBADMSG || err == -EFAULT,
		      "changing dict: %d at entry %" PRIu64, err, c.n);
		good += !err;
		bad += !!err;
		seen += c.n;
		err = pyobj__attr(t->py, t->churn_obj, "k3", &v);
		check(t, !err || err == -EBADMSG || err == -EFAULT || err == -ENOENT,
		      "changing instance: %d", err);
		check(t, err || v == t->pairs[3][1], "changing instance: wrong value");
	}
	print_message("  while it changes: %" PRIu64 " reads, %" PRIu64 " given up, %" PRIu64
		      " entries\n",
		      good, bad, seen);
}

/* A process without torch. */
static void without_torch(struct test *t)
{
	uint64_t codes[1] = { UNTOUCHED }, addr = UNTOUCHED;
	size_t n = 7;

	check(t, nnmodules__call_codes(t->py, codes, 1, &n) == -ENOENT && n == 7,
	      "codes of Module without torch");
	check(t, nnmodules__slot_call(t->py, &addr) == -ENOENT && addr == UNTOUCHED,
	      "tp_call without torch");
}

/* Any address is accepted. */
static void read_any_address(struct test *t)
{
	uint64_t seed = 88172645463325252u, v;
	char buf[64];
	struct pycode c;

	for (int i = 0; i < 4000; i++) {
		uint64_t addr;
		struct fold s = { 0 };

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		addr = i % 50 ? t->first_str + (int64_t)(seed % (1 << 21)) - (1 << 20) : seed;
		addr &= ~7ull;
		pyobj__str(t->py, addr, buf, sizeof(buf));
		pyobj__dict_each(t->py, addr, fold, &s);
		pyobj__attr(t->py, addr, "x", &v);
		pyobj__type_name(t->py, addr, buf, sizeof(buf));
		pyobj__is_a(t->py, addr, "Module", NULL);
		pyobj__module_attr(t->py, addr, "x", &v);
		pyobj__func_code(t->py, addr, &v);
		if (!pyobj__code(t->py, addr, &c))
			pycode__free(&c);
		t->checks++;
	}
	for (size_t i = 0; i < 8; i++) {
		static const uint64_t odd[8] = {
			0, 8, 16, 4096, 1ull << 47, UINT64_MAX - 7, UINT64_MAX - 23, 1ull << 63
		};

		check(t, pyobj__str(t->py, odd[i], buf, sizeof(buf)), "%#" PRIx64, odd[i]);
		check(t, pyobj__code(t->py, odd[i], &c), "%#" PRIx64, odd[i]);
		check(t, pyobj__dict_get(t->py, odd[i], "x", &v), "%#" PRIx64, odd[i]);
		check(t, pyobj__attr(t->py, odd[i], "x", &v), "%#" PRIx64, odd[i]);
		check(t, pyobj__type(t->py, odd[i], &v), "%#" PRIx64, odd[i]);
		check(t, !pyobj__is_a(t->py, odd[i], "x", NULL), "%#" PRIx64, odd[i]);
	}
}

static void open_target(struct test *t)
{
	const char *why = "";
	struct maps maps;
	int minor, major, micro;

	t->proc = proc__open(t->live.pid);
	assert_non_null(t->proc);
	assert_int_equal(proc__maps(t->proc, &maps), 0);
	t->py = python__open(t->proc, &maps, &why);
	maps__free(&maps);
	if (!t->py)
		print_error("no Python: %s\n", why);
	assert_non_null(t->py);
	python__version(t->py, &major, &minor, &micro);
	print_message("  CPython %d.%d.%d\n", major, minor, micro);
}

static void run_one(struct test *t, const char *python)
{
	char *f[LIVE_FIELDS], *lines = NULL;
	size_t n, len = 0, i, lines_seen = 0;
	FILE *kept = open_memstream(&lines, &len);
	bool ready = false;

	print_message("%s\n", python);
	live__start(&t->live, python, "tests/workloads/objects.py");
	/* Read all lines first: they hold only while the workload is idle. */
	while (!ready && (n = live__next(&t->live, f))) {
		ready = !strcmp(f[0], "ready");
		for (i = 0; i < n; i++)
			fprintf(kept, "%s%c", f[i], i + 1 < n ? '\t' : '\n');
	}
	fclose(kept);
	assert_true(ready);
	open_target(t);
	for (char *line = lines, *next; *line; line = next, lines_seen++) {
		next = strchr(line, '\n') + 1;
		next[-1] = '\0';
		for (n = 0; n < LIVE_FIELDS && line; line = strchr(line, '\t')) {
			if (n)
				*line++ = '\0';
			f[n++] = line;
		}
		for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && strcmp(kinds[i].word, f[0]);
		     i++)
			;
		if (i == sizeof(kinds) / sizeof(kinds[0])) {
			assert_string_equal(f[0], "ready");
			continue;
		}
		assert_int_equal(n, kinds[i].fields);
		kinds[i].fn(t, f);
	}
	free(lines);
	check(t, lines_seen > 500, "the workload said only %zu things", lines_seen);
	without_torch(t);
	read_any_address(t);
	while_it_changes(t);
	print_message("  %zu checks\n", t->checks);
	python__free(t->py);
	proc__free(t->proc);
	assert_true(live__stop(&t->live));
}

static void test_objects(void **state)
{
	const char *env = getenv("MEMTRACE_PYTHONS");
	char *list = strdup(env && *env ? env : "python3"), *save = NULL;
	struct test *t;

	for (char *p = strtok_r(list, ":", &save); p; p = strtok_r(NULL, ":", &save)) {
		t = calloc(1, sizeof(*t));
		assert_non_null(t);
		run_one(t, p);
		free(t);
	}
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
