/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* report of several recordings: which of them are one job, sums, differences between ranks. */
#include "unit/cmocka.h"

#include <jansson.h>
#include <locale.h>

#include "base/text.h"
#include "base/exit.h"
#include "report/ranks/ranks.h"
#include "unit/golden.h"
#include "unit/report_tape.h"
#include "terminal.h"
#include "unit/scratch.h"

#define RANKS 4

static char dir[] = "/tmp/test_ranks.XXXXXX";
static char ranks[RANKS][64], other[64], launcher[64], odd[2][64];

/* 64 MiB of a model, 16 MiB of activations in module `where`; rank 2 has 40 MiB in a list, rank 3
 * has 4 MiB less. */
static void write_rank(const char *path, int rank, const char *command, const char *where,
		       int world)
{
	struct tape t = tape__new(path);
	struct dict_frame make[] = { frame(&t, "/home/u/gemma/train.py", "main", 3, NULL) };
	struct dict_frame call[] = { frame(&t, "/home/u/gemma/model.py", "Net.forward", 20, NULL),
				     frame(&t, SP "nn/modules/module.py",
					   "Module._wrapped_call_impl", 1775, where) };
	struct dict_frame keep[] = { frame(&t, "/home/u/gemma/train.py", "main", 9, NULL) };
	struct device d = { .type = DEVICE_CUDA, .index = rank < 0 ? 0 : (uint16_t)rank };

	if (rank >= 0)
		facts__setf(t.f, "rank", "%d", rank);
	if (world)
		facts__setf(t.f, "world_size", "%d", world);
	if (command)
		facts__set(t.f, "cmdline", command);
	t.reserved = 128 * MIB;
	alloc(&t, d, 0x1000, 64 * MIB, dict__stack(t.d, make, 1, MT_WALK_OK));
	alloc(&t, d, 0x2000, (rank == 3 ? 12 : 16) * MIB, dict__stack(t.d, call, 2, MT_WALK_OK));
	if (rank == 2)
		alloc(&t, d, 0x3000, 40 * MIB, dict__stack(t.d, keep, 1, MT_WALK_OK));
	tape__close(&t);
}

static void write_launcher(void)
{
	struct tape t = tape__new(launcher);

	tape__close(&t);
}

static void write_odd(int i)
{
	struct tape t = tape__new(odd[i]);

	facts__setf(t.f, "rank", "%d", i);
	facts__set(t.f, "cwd", "/\x1b[2J");
	facts__set(t.f, "cmdline", "[\"py\\u001b[2Jthon\", \"\\u202e\"]");
	for (int k = 0; k < 30; k++) {
		char file[64], module[64];
		struct dict_frame f[1];

		snprintf(file, sizeof(file),
			 "/x/\x1b]0;%d\a\xe2\x80\xae\xff\n\xe6\xbc\xa2\xe5\xad\x97.py", k);
		snprintf(module, sizeof(module), "m.\x9b%d\n", k);
		f[0] = frame(&t, file, "f\r\n", (uint32_t)k, module);
		alloc(&t, CUDA, 0x1000 + (uint64_t)k, (2 + (uint64_t)k * (uint64_t)(i + 1)) * MIB,
		      dict__stack(t.d, f, 1, MT_WALK_OK));
	}
	tape__close(&t);
}

static int setup(void **state)
{
	setenv("COLUMNS", "80", 1);
	assert_non_null(mkdtemp(dir));
	for (int i = 0; i < RANKS; i++) {
		/* names are in the reverse order */
		snprintf(ranks[i], sizeof(ranks[i]), "%s/r%d.mtr", dir, RANKS - i);
		write_rank(ranks[i], i, NULL, "blocks.0", 4);
	}
	snprintf(other, sizeof(other), "%s/other.mtr", dir);
	write_rank(other, 7, "[\"python\", \"else.py\"]", "blocks.0", 0);
	snprintf(launcher, sizeof(launcher), "%s/launcher.mtr", dir);
	write_launcher();
	for (int i = 0; i < 2; i++) {
		snprintf(odd[i], sizeof(odd[i]), "%s/odd%d.mtr", dir, i);
		write_odd(i);
	}
	return 0;
}

static int teardown(void **state)
{
	return scratch__remove(dir);
}

static void test_text(void **state)
{
	struct output *o = report(ranks[3], ranks[1], launcher, ranks[0], ranks[2], NULL);

	assert_int_equal(o->status, 0);
	assert_string_equal(o->err, "");
	expect_golden(o->out, "report-ranks.txt");
}

/* A scope has its moment in each recording, as a mark has. */
static void test_moment_of_scope(void **state)
{
	struct output *o = report("--at", "scope:main", ranks[0], ranks[1], NULL);

	(void)state;
	assert_int_equal(o->status, 0);
	assert_string_equal(o->err, "");
	assert_non_null(strstr(o->out, "At scope"));
	assert_null(strstr(o->out, "At 0 ns"));
}

/* A rank of a job on two devices: its model of 80 MiB on its own, and 64 MiB that each rank loads
 * onto cuda:0, before.. */
static void write_guest(const char *path, int rank, const char *host)
{
	struct tape t = tape__new(path);
	struct dict_frame load[] = { frame(&t, "/home/u/gemma/train.py", "load", 22, NULL) };
	struct dict_frame make[] = { frame(&t, "/home/u/gemma/train.py", "main", 3, NULL) };
	struct device own = { .type = DEVICE_CUDA, .index = (uint16_t)rank };

	facts__setf(t.f, "rank", "%d", rank);
	facts__set(t.f, "world_size", "4");
	facts__set(t.f, "hostname", host);
	t.reserved = 256 * MIB;
	alloc(&t, CUDA, 0x1000, 64 * MIB, dict__stack(t.d, load, 1, MT_WALK_OK));
	t.total = rank ? 0 : t.total;
	alloc(&t, own, 0x2000, 80 * MIB, dict__stack(t.d, make, 1, MT_WALK_OK));
	tape__close(&t);
}

/* A rank that has memory on another rank's device, too, is named, although the sums are equal. */
static void test_shared_device(void **state)
{
	char path[4][64];
	struct output *o;
	json_t *doc, *shared;

	for (int i = 0; i < 4; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/guest%d.mtr", dir, i);
		write_guest(path[i], i, i < 3 ? "one" : "two");
	}
	setenv("COLUMNS", "200", 1);
	o = report(path[0], path[1], NULL);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "rank 1 has 64.00 MiB on cuda:0 besides its own cuda:1 "
				       "(train.py:22). GPU 0 holds memory of 2 ranks."));
	assert_null(strstr(o->out, "None differs"));
	assert_non_null(strstr(o->out, "cuda:0-1"));
	assert_non_null(strstr(o->out, "rank 1     144.00 MiB  512.00 MiB     0.20 s"));
	/* With one device, its own rank is not compared with its guest. */
	o = report("--device", "cuda:0", path[0], path[1], NULL);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "rank 1 has 64.00 MiB on cuda:0"));
	assert_null(strstr(o->out, "rank 0: "));
	/* Rank 3 is on another host, where no process uses cuda:0. */
	o = report(path[0], path[1], path[2], path[3], NULL);
	assert_non_null(strstr(o->out, "ranks 1-2 have 128.00 MiB on cuda:0 on one besides their "
				       "own devices, most of it rank 1 with 64.00 MiB "
				       "(train.py:22). GPU 0 on one holds memory of 3 ranks."));
	setenv("COLUMNS", "80", 1);
	o = report("--together", "--format", "json", path[0], path[1], NULL);
	doc = json_loads(o->out, JSON_REJECT_DUPLICATES, NULL);
	shared = json_array_get(json_object_get(doc, "shared_devices"), 0);
	assert_string_equal(json_string_value(json_object_get(shared, "device")), "cuda:0");
	shared = json_array_get(json_object_get(shared, "ranks"), 1);
	assert_string_equal(json_string_value(json_object_get(shared, "own")), "cuda:1");
	assert_int_equal(json_integer_value(json_object_get(shared, "line")), 22);
	assert_int_equal(json_integer_value(json_object_get(shared, "allocated")), 64 * MIB);
	json_decref(doc);
	o = report(ranks[0], ranks[1], ranks[2], NULL);
	assert_null(strstr(o->out, "besides"));
}

/* Ten steps after an incomplete one, whose number in the job is first. Those before step 110 of the
 * job take 100 ms in rank 0 and 400 ms in rank 1, later ones 200 ms. number, unknown: facts; NULL:
 * none. */
static void write_steps(const char *path, int rank, int first, const char *number,
			const char *unknown)
{
	struct tape t = tape__new(path);
	struct dict_frame make[] = { frame(&t, "/home/u/gemma/train.py", "main", 3, NULL) };

	facts__setf(t.f, "rank", "%d", rank);
	facts__set(t.f, "world_size", "2");
	if (number)
		facts__set(t.f, "job_step", number);
	if (unknown)
		facts__set(t.f, "job_step_unknown", unknown);
	alloc(&t, CUDA, 0x1000, 8 * MIB, dict__stack(t.d, make, 1, MT_WALK_OK));
	for (int i = first; i < first + 11; i++) {
		t.time += i >= 110 ? 100 * MS : rank ? 300 * MS : 0;
		put(&t, (struct event){ .kind = EVENT_STEP });
	}
	tape__close(&t);
}

/* Steps of ranks are compared by the job's numbers, if both ranks know them. */
static void test_step_match(void **state)
{
	static const struct {
		int first[2];
		const char *number1, *unknown1; /* facts of rank 1 */
		uint64_t from, to;		/* 0: by time */
		const char *text;		/* NULL: none */
		size_t slow;			/* ranks whose steps take longer */
	} cases[] = {
		{ { 104, 100 }, "100", "", 105, 110, "Steps 105 to 110 of the job, by the", 1 },
		{ { 110, 102 }, "102", "", 111, 112, "Steps 111 to 112 of the job, by the", 0 },
		{ { 104, 120 }, "120", "", 0, 0, "(no step is in all recordings)", 1 },
		{ { 104, 100 }, "", "no\x1b one", 0, 0, "(rank 1: no\\x1b one)", 1 },
		{ { 104, 100 }, NULL, NULL, 0, 0, NULL, 1 }, /* an older version */
	};
	char paths[2][64];
	struct output *o;
	json_t *doc, *match;

	for (int k = 0; k < 2; k++)
		snprintf(paths[k], sizeof(paths[k]), "%s/steps%d.mtr", dir, k);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char number[16];

		snprintf(number, sizeof(number), "%d", cases[i].first[0]);
		write_steps(paths[0], 0, cases[i].first[0], number, "");
		write_steps(paths[1], 1, cases[i].first[1], cases[i].number1, cases[i].unknown1);
		setenv("COLUMNS", "200", 1);
		o = report(paths[0], paths[1], NULL);
		setenv("COLUMNS", "80", 1);
		assert_int_equal(o->status, 0);
		if (cases[i].text)
			assert_non_null(strstr(o->out, cases[i].text));
		else
			assert_null(strstr(o->out, "of the job"));
		o = report("--together", "--format", "json", paths[0], paths[1], NULL);
		doc = json_loads(o->out, JSON_REJECT_DUPLICATES, NULL);
		match = json_object_get(doc, "step_match");
		assert_string_equal(json_string_value(json_object_get(match, "by")),
				    cases[i].from ? "optimizer" : "time");
		assert_int_equal(json_integer_value(json_object_get(match, "first")),
				 cases[i].from);
		assert_int_equal(json_integer_value(json_object_get(match, "last")), cases[i].to);
		assert_int_equal(json_array_size(json_object_get(doc, "step_outliers")),
				 cases[i].slow);
		json_decref(doc);
	}
}

/* 8 MiB from before attach, which the reading of objects names in some ranks only, and 4 MiB. */
static void write_attached(const char *path, int rank, bool named)
{
	struct tape t = tape__new(path);
	struct dict_frame make[] = { frame(&t, "/home/u/gemma/train.py", "main", 3, NULL) };

	facts__setf(t.f, "rank", "%d", rank);
	facts__set(t.f, "world_size", "4");
	t.total = 8 * MIB;
	t.reserved = 128 * MIB;
	if (named)
		put(&t, (struct event){ .kind = EVENT_BLOCK,
					.device = CUDA,
					.addr = 0x10000000,
					.size = 8 * MIB });
	alloc(&t, CUDA, 0x1000, 4 * MIB, dict__stack(t.d, make, 1, MT_WALK_OK));
	if (named) {
		put(&t, (struct event){ .kind = EVENT_TENSOR,
					.device = CUDA,
					.addr = 0x10000000,
					.size = 8 * MIB,
					.flags = CENSUS_FIRST,
					.name = str(&t, "global history[*]") });
		put(&t, (struct event){ .kind = EVENT_CENSUS,
					.device = CUDA,
					.size = 8 * MIB,
					.flags = CENSUS_FIRST });
	}
	tape__close(&t);
}

/* Equal memory from before attach is no difference where only some ranks have names for it. */
static void test_names_of_some_ranks(void **state)
{
	char path[RANKS][64];
	struct output *o;

	for (int i = 0; i < RANKS; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/attached%d.mtr", dir, i);
		write_attached(path[i], i, i == 0);
	}
	o = report(path[0], path[1], path[2], path[3], NULL);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "global history[*]"));
	assert_non_null(strstr(o->out, "before attach"));
	assert_non_null(strstr(o->out, "None differs by more than 10 %"));
}

static void test_side_by_side(void **state)
{
	struct output *o = report("--side-by-side", ranks[0], ranks[1], ranks[2], ranks[3], NULL);

	assert_non_null(strstr(
		o->out,
		"       All       rank 0       rank 2     2 others  Location\n"
		"256.00 MiB   64.00 MiB    64.00 MiB    128.00 MiB  train.py:3 (main)\n"
		" 60.00 MiB   16.00 MiB    16.00 MiB     28.00 MiB  model.py:20 (Net.forward)\n"
		" 40.00 MiB           -    40.00 MiB*          0 B  train.py:9 (main)\n"));
	setenv("COLUMNS", "120", 1);
	o = report("--side-by-side", "--top", "1", "--filter", "line:train.py", ranks[0], ranks[1],
		   ranks[2], ranks[3], NULL);
	setenv("COLUMNS", "80", 1);
	assert_non_null(strstr(
		o->out,
		"       All       rank 0       rank 1       rank 2       rank 3  Location\n"
		"256.00 MiB   64.00 MiB    64.00 MiB    64.00 MiB    64.00 MiB   train.py:3 "
		"(main)\n"
		" 40.00 MiB           -            -    40.00 MiB            -   + 1 more row\n"
		" 60.00 MiB   16.00 MiB    16.00 MiB    16.00 MiB    12.00 MiB   + 1 filtered "
		"row\n"));
}

static void test_bars(void **state)
{
	struct output *o;

	setlocale(LC_ALL, "C");
	o = report("--bars", ranks[0], ranks[2], NULL);
	setlocale(LC_ALL, "C.UTF-8");
	assert_non_null(
		strstr(o->out,
		       "Recording     At peak                Reserved         At  Device    Name\n"
		       "rank 0      80.00 MiB  ######      128.00 MiB     0.20 s  cuda:0    r4\n"
		       "rank 2     120.00 MiB  ##########  128.00 MiB     0.30 s  cuda:2    r2\n"));
}

static bool apart(struct output *o)
{
	return o->status == 0 && strstr(o->out, "== ") && strstr(o->out, "  peak ") &&
	       !strstr(o->out, "Together: ");
}

static void test_when(void **state)
{
	assert_true(apart(report("--apart", ranks[0], ranks[1], NULL)));
	assert_true(apart(report(ranks[0], ranks[0], NULL))); /* the same rank twice */
	assert_true(apart(report(ranks[0], other, NULL)));    /* another command */
	assert_true(apart(report(other, ranks[0], NULL)));
	assert_true(apart(report(ranks[0], launcher, NULL)));
	assert_true(apart(report("--by", "stack", ranks[0], ranks[1], NULL)));
	assert_false(apart(report(launcher, ranks[1], ranks[0], NULL)));
	assert_false(apart(report("--together", ranks[0], other, NULL)));
	assert_memory_equal(report("--together", other, NULL)->out, "1 recording\n", 12);
	assert_int_equal(report("--together", "--by", "stack", ranks[0], ranks[1], NULL)->status,
			 EXIT_USAGE);
	assert_int_equal(report("--together", "--tree", ranks[0], ranks[1], NULL)->status,
			 EXIT_USAGE);
	assert_int_equal(
		report("--side-by-side", "--format", "json", ranks[0], ranks[1], NULL)->status,
		EXIT_USAGE);
	assert_int_equal(report("--together", "/nonexistent", NULL)->status, EXIT_UNUSABLE);
	assert_non_null(strstr(report("--together", ranks[0], other, NULL)->out,
			       "2 recordings together; they do not say that"));
	assert_non_null(
		strstr(report("--together", launcher, NULL)->out, "No memory event was seen.\n"));
}

static json_t *parse(const char *text)
{
	json_error_t e;
	json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);

	if (!j)
		fail_msg("line %d: %s", e.line, e.text);
	return j;
}

static json_int_t integer(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	if (!json_is_integer(v))
		fail_msg("%s is no integer", key);
	return json_integer_value(v);
}

static void test_json(void **state)
{
	static const char *const by[] = { "line",  "module", "category",
					  "phase", "thread", "line,category" };

	for (size_t b = 0; b < sizeof(by) / sizeof(*by); b++) {
		struct output *o = report("--together", "--format", "json", "--by", by[b], ranks[0],
					  ranks[1], ranks[2], ranks[3], NULL);
		json_t *doc = parse(o->out), *rows = json_object_get(doc, "rows"), *row, *rank;
		json_int_t sum = 0, mine[RANKS] = { 0 };
		size_t i, k;

		assert_true(json_is_true(json_object_get(doc, "one_job")));
		json_array_foreach(rows, i, row) {
			json_int_t all = 0;

			json_array_foreach(json_object_get(row, "recordings"), k, rank) {
				mine[k] += json_integer_value(rank);
				all += json_integer_value(rank);
			}
			assert_int_equal(k, RANKS);
			assert_int_equal(integer(row, "bytes"), all);
			sum += all;
			assert_int_equal(integer(row, "cumulative"), sum);
			assert_true(integer(row, "min") <= integer(row, "median") &&
				    integer(row, "median") <= integer(row, "max"));
		}
		assert_int_equal(sum, 356 * MIB);
		assert_int_equal(integer(doc, "allocated"), sum);
		json_array_foreach(json_object_get(doc, "recordings"), i, rank) {
			assert_int_equal(integer(rank, "rank"), i);
			assert_int_equal(integer(rank, "world_size"), 4);
			assert_int_equal(integer(rank, "allocated"), mine[i]);
			assert_int_equal(integer(rank, "rows_bytes"), mine[i]);
		}
		row = json_array_get(json_object_get(doc, "outliers"), 0);
		assert_true(json_is_null(json_object_get(row, "row")));
		assert_int_equal(integer(row, "recording"), 2);
		assert_int_equal(integer(row, "difference"), 40 * MIB);
		json_decref(doc);
	}
}

static void test_csv(void **state)
{
	struct output *o = report("--together", "--format", "csv", "--by", "category", "--filter",
				  "size:>20M", ranks[0], ranks[2], NULL);

	assert_string_equal(o->out,
			    "bytes,count,cumulative,min,median,max,file,line,function,module,"
			    "module_class,phase,category,source,thread,name,scope,rank 0,rank 2\r\n"
			    "176160768,3,176160768,67108864,88080384,109051904,,,,,,,unknown,frame,"
			    ",,,67108864,109051904\r\n"
			    "33554432,2,209715200,,,,,,,,,,,filtered,,,,16777216,16777216\r\n");
}

/* Any terminal width, unusual names. */
static void test_widths(void **state)
{
	static const char *const by[] = { "line", "module", "layer", "thread",
					  "line,module,category" };

	for (size_t b = 0; b < sizeof(by) / sizeof(*by); b++)
		for (int columns = 40; columns <= 200; columns += 20)
			for (int side = 0; side < 2; side++) {
				const char *bars = columns % 40 ? "--bars" : "--no-bars";
				char number[16], *line;
				struct output *o;

				snprintf(number, sizeof(number), "%d", columns);
				setenv("COLUMNS", number, 1);
				o = report("--by", by[b], side ? "--side-by-side" : "--together",
					   bars, odd[0], odd[1], NULL);
				setenv("COLUMNS", "80", 1);
				assert_int_equal(o->status, 0);
				for (line = strtok(o->out, "\n"); line; line = strtok(NULL, "\n")) {
					assert_true(terminal__harmless(line, strlen(line)));
					if (text__width(line) > (size_t)columns)
						fail_msg("%d columns, by %s: '%s'", columns, by[b],
							 line);
				}
			}
}

static void test_outliers(void **state)
{
	static const struct {
		uint64_t mib[5];
		size_t n, out;
		uint32_t first;
		uint64_t others;
	} cases[] = {
		{ { 100, 100, 100, 100, 100 }, 5, 0, 0, 0 },
		{ { 100, 100, 150, 100, 100 }, 5, 1, 2, 100 },
		{ { 100, 109, 91, 100 }, 4, 0, 0, 0 },
		{ { 0, 100, 100 }, 3, 1, 0, 100 },
		{ { 0, 0, 0, 2 }, 4, 1, 3, 0 },
		{ { 0, 0, 0, 1 }, 4, 0, 0, 0 },
		{ { 5, 50 }, 2, 1, 1, 5 },
		{ { 50 }, 1, 0, 0, 0 },
		{ { 10, 20, 10, 20 }, 4, 4, 1, 10 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint64_t values[5], sorted[5];
		struct outliers o = { 0 };

		for (size_t k = 0; k < 5; k++)
			values[k] = sorted[k] = cases[i].mib[k] * MIB;
		outliers__sort(sorted, cases[i].n);
		assert_int_equal(outliers__add(&o, values, sorted, cases[i].n, OUTLIER_BYTES, 0),
				 0);
		outliers__order(&o);
		if (o.n != cases[i].out)
			fail_msg("case %zu: %zu", i, o.n);
		if (o.n && i + 1 < sizeof(cases) / sizeof(*cases)) {
			assert_int_equal(o.all[0].recording, cases[i].first);
			assert_int_equal(o.all[0].others, cases[i].others * MIB);
		}
		free(o.all);
	}
	assert_int_equal(outliers__median((uint64_t[]){ 1, 2, 3, UINT64_MAX }, 4), 2);
	assert_int_equal(outliers__median((uint64_t[]){ UINT64_MAX - 2, UINT64_MAX }, 2),
			 UINT64_MAX - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outliers),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_moment_of_scope),
		cmocka_unit_test(test_step_match),
		cmocka_unit_test(test_names_of_some_ranks),
		cmocka_unit_test(test_side_by_side),
		cmocka_unit_test(test_bars),
		cmocka_unit_test(test_when),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_csv),
		cmocka_unit_test(test_widths),
		cmocka_unit_test(test_shared_device),
	};

	setlocale(LC_ALL, "C.UTF-8");
	return cmocka_run_group_tests(tests, setup, teardown);
}
