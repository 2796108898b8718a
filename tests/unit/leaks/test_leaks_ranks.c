/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* leaks of several recordings: the ranks where a line grows, and the other ranks' values;
 * workers in a job's report. */
#include "unit/cmocka.h"

#include <jansson.h>
#include <locale.h>

#include "base/exit.h"
#include "record/host.h"
#include "base/text.h"
#include "unit/report_tape.h"
#include "terminal.h"
#include "unit/scratch.h"

#define RANKS 3
#define STEPS 40

static char dir[] = "/tmp/test_leaks_ranks.XXXXXX";
static char ranks[RANKS][64], worker[64], lone[64], brief[64], longer[64];

static uint32_t line(struct tape *t, uint32_t number, const char *func)
{
	struct dict_frame f[] = { frame(t, "/home/u/gemma/train.py", func, number, NULL) };

	return dict__stack(t->d, f, 1, MT_WALK_OK);
}

/*
 * Line 5 grows by 1 MiB/step, in rank 2 by 2 MiB/step; line 7 grows in rank 1, and in rank 2 for
 * the first 20 steps. A worker grows at line 9, on the CPU.
 */
static void write_rank(const char *path, int rank, pid_t pid, pid_t parent, int steps)
{
	struct tape t = tape__new(path);
	struct device cuda = { .type = DEVICE_CUDA, .index = (uint16_t)rank };
	uint64_t addr = 0x1000;

	if (rank >= 0) {
		facts__setf(t.f, "rank", "%d", rank);
		facts__setf(t.f, "world_size", "%d", RANKS);
	}
	facts__setf(t.f, "pid", "%d", (int)pid);
	facts__setf(t.f, "parent", "%d", (int)parent);
	t.reserved = 1024 * MIB;
	for (int i = 0; i < steps; i++) {
		if (parent > 1)
			alloc(&t, CPU, addr += 0x1000, MIB, line(&t, 9, "load"));
		else
			alloc(&t, cuda, addr += 0x1000, (rank == 2 ? 2 : 1) * MIB,
			      line(&t, 5, "main"));
		if ((rank == 1 || (rank == 2 && i < 20)) && parent == 1)
			alloc(&t, cuda, addr += 0x1000, 4 * MIB, line(&t, 7, "step\x1b[2J"));
		put(&t, (struct event){ .kind = EVENT_STEP });
	}
	tape__close(&t);
}

static int setup(void **state)
{
	setenv("COLUMNS", "80", 1);
	assert_non_null(mkdtemp(dir));
	for (int i = 0; i < RANKS; i++) {
		snprintf(ranks[i], sizeof(ranks[i]), "%s/r%d.mtr", dir, RANKS - i);
		write_rank(ranks[i], i, 100 + i, 1, STEPS);
	}
	snprintf(worker, sizeof(worker), "%s/worker.mtr", dir);
	write_rank(worker, 1, 200, 101, STEPS);
	snprintf(lone, sizeof(lone), "%s/lone.mtr", dir);
	write_rank(lone, -1, 300, 1, STEPS);
	snprintf(brief, sizeof(brief), "%s/brief.mtr", dir);
	write_rank(brief, 0, 400, 1, 5);
	snprintf(longer, sizeof(longer), "%s/longer.mtr", dir);
	write_rank(longer, 0, 500, 1, 100);
	return 0;
}

static int teardown(void **state)
{
	return scratch__remove(dir);
}

static void has(const struct output *o, const char *text)
{
	if (!strstr(o->out, text))
		fail_msg("no '%s' in:\n%s%s", text, o->out, o->err);
}

static void test_text(void **state)
{
	struct output *o;

	setenv("COLUMNS", "400", 1);
	o = leaks(ranks[2], worker, ranks[0], ranks[1], NULL);
	setenv("COLUMNS", "80", 1);
	assert_int_equal(o->status, EXIT_OK);
	assert_string_equal(o->err, "");
	has(o, "4 recordings of one job, ranks 0-2 of 3 and 1 worker: python train.py\n");
	has(o, "\ncuda \xc2\xb7 39 steps\n"
	       "train.py:7 (step\\x1b[2J) grows in rank 1 of 3 only: +4.00 MiB a step, in 39 of 39 "
	       "steps; ");
	has(o, " Confidence: high. In rank 2 it grew and then stopped.\n");
	has(o, "\ntrain.py:5 (main) grows in all 3 ranks: +1.00 MiB to +2.00 MiB a step; in rank 2 "
	       "in 39 of 39 steps; ");
	has(o, "\n +4.00 MiB      1/3     39/39  160.00 MiB       40  train.py:7 (step");
	has(o, "\n +2.00 MiB      3/3     39/39  160.00 MiB      120  train.py:5 (main)\n");
	has(o, "\ncpu \xc2\xb7 39 steps\ntrain.py:9 (load) grows in rank 1 worker 1: +1.00 MiB a "
	       "step, ");
	assert_true(terminal__harmless(o->out, strcspn(o->out, "\n")));
}

/* A report of all names the ranks that grow, and the line of the one that grows most. */
static void test_report(void **state)
{
	struct output *o;

	setenv("COLUMNS", "400", 1);
	o = report("--together", ranks[2], ranks[0], ranks[1], NULL);
	assert_int_equal(o->status, EXIT_OK);
	has(o, "\n\nGrowth in ranks 0-2; most in rank 1: +4.00 MiB/step (800.00 MiB/min) at "
	       "train.py:7 "
	       "(step\\x1b[2J), confidence high; 2 lines grow by +5.00 MiB/step in all\n");
	has(report("--together", ranks[2], ranks[0], NULL), "of one job, ranks 0, 2 of");
	has(report("--together", "--by", "category,module", ranks[2], ranks[0], NULL),
	    "  Module, Role\n");
	o = report("--together", brief, longer, NULL);
	has(o, "\n\nGrowth in longer: +1.00 MiB/step (300.00 MiB/min) at train.py:5 (main), "
	       "confidence "
	       "high\n");
	o = report("--together", brief, brief, NULL);
	has(o, "\n\nIn ");
	has(o, ": growth not known in 4 steps: record 100\n");
	setenv("COLUMNS", "80", 1);
}

/* Captures of CUDA graphs keep a pool each: the answer names them, and its figures add up. */
static void test_graph_pools(void **state)
{
	char path[64];
	struct tape t;
	struct output *o;

	snprintf(path, sizeof(path), "%s/graphs.mtr", dir);
	t = tape__new(path);
	t.reserved = 20 * MIB;
	put(&t, (struct event){ .kind = EVENT_CUDA_ALLOC,
				.device = CUDA,
				.addr = 0x10000000,
				.size = 20 * MIB,
				.how = MEM_DEVICE,
				.flags = MEM_BY_ALLOCATOR });
	alloc(&t, CUDA, 0x10000000, 4 * MIB, line(&t, 5, "main"));
	for (uint64_t i = 1; i <= 32; i++) {
		uint64_t addr = 0x100000000 + i * 20 * MIB;

		t.reserved += 20 * MIB;
		put(&t, (struct event){ .kind = EVENT_CUDA_ALLOC,
					.device = CUDA,
					.addr = addr,
					.size = 20 * MIB,
					.how = MEM_DEVICE,
					.flags = MEM_BY_ALLOCATOR });
		put(&t, (struct event){ .kind = EVENT_SEGMENT,
					.device = CUDA,
					.addr = addr,
					.size = 20 * MIB,
					.pool = { i, 0 } });
		alloc(&t, CUDA, addr, 2 * MIB, line(&t, 7, "capture"));
		put(&t,
		    (struct event){
			    .kind = EVENT_FREE, .device = CUDA, .addr = addr, .size = 2 * MIB });
		put(&t, (struct event){ .kind = EVENT_STEP });
	}
	tape__close(&t);
	setenv("COLUMNS", "400", 1);
	o = leaks(path, NULL);
	setenv("COLUMNS", "80", 1);
	has(o, "The pool grows, but the tensors in it do not: reserved +20.00 MiB a step");
	has(o, "Most of the cached memory is in private pools of CUDA graphs.");
	assert_null(strstr(o->out, "fragmentation"));
	has(o, "Reserved at the end: 660.00 MiB. Allocated: 4.00 MiB; 640.00 MiB cached in 32 "
	       "private pools of CUDA graphs, which nothing else can use; cached in segments that "
	       "have blocks in use, which cannot be returned to CUDA: 16.00 MiB; can be returned: "
	       "0 B.");
}

static int put_host(void *tape, const struct event *e)
{
	return mtr_writer__event(((struct tape *)tape)->w, e);
}

/* Readings of a process that was forked: RSS stays, and its own pages or its pinned memory grow, by
 * 1 MiB each second for a minute. */
static void write_readings(const char *path, pid_t pid, pid_t parent, bool copies,
			   uint64_t readings)
{
	struct tape t = tape__new(path);
	struct host_sheet s = { 0 };

	facts__setf(t.f, "pid", "%d", (int)pid);
	facts__setf(t.f, "parent", "%d", (int)parent);
	alloc(&t, CPU, 1, 3000, line(&t, 5, "main"));
	alloc(&t, (struct device){ .type = DEVICE_HOST }, 0x1000, 200 * MIB, line(&t, 5, "main"));
	for (unsigned int i = 0; i < HOST_PART_NR; i++)
		s.part[i].known = true;
	s.part[HOST_TOTAL].bytes = 200 * MIB;
	for (uint64_t i = 0; i < 60; i += 60 / readings) {
		s.part[HOST_USS].bytes = (50 + (copies ? i : 0)) * MIB;
		s.part[HOST_PINNED].bytes = (20 + (copies ? 0 : i)) * MIB;
		s.part[HOST_PINNED_CACHED].bytes = s.part[HOST_PINNED].bytes - 10 * MIB;
		assert_int_equal(host_sheet__emit(&s, (i + 1) * 1000 * MS, put_host, &t), 0);
		t.time = (i + 1) * 1000 * MS;
	}
	tape__close(&t);
}

/* A minute with three readings, and pinned memory: 1 MiB each second until a time, of which tensors
 * have a part. */
static void write_pinned(const char *path, uint64_t until, uint64_t tensors)
{
	struct tape t = tape__new(path);
	struct host_sheet s = { 0 };

	alloc(&t, CPU, 1, 3000, line(&t, 5, "main"));
	alloc(&t, (struct device){ .type = DEVICE_HOST }, 0x1000, 200 * MIB, line(&t, 5, "main"));
	for (unsigned int i = 0; i < HOST_PART_NR; i++)
		s.part[i].known = true;
	s.part[HOST_TOTAL].bytes = 200 * MIB;
	for (uint64_t i = 0; i <= 60; i++) {
		struct event e = { .kind = EVENT_CUDA_ALLOC, .how = MEM_HOST, .size = MIB };

		e.addr = (i + 1) << 24;
		e.time = t.time = (i + 1) * 1000 * MS;
		e.stack = line(&t, 7, "load");
		if (i < until)
			assert_int_equal(mtr_writer__event(t.w, &e), 0);
		s.part[HOST_PINNED].bytes = (20 + (i < until ? i : until)) * MIB;
		s.part[HOST_PINNED_REQUESTED].bytes = tensors * MIB;
		s.part[HOST_PINNED_CACHED].bytes = 2 * MIB;
		if (i % 30 == 0)
			assert_int_equal(host_sheet__emit(&s, t.time, put_host, &t), 0);
	}
	tape__close(&t);
}

/* Calls of CUDA show that pinned memory grows where readings are too few. Not if the growth ended,
 * or if tensors have the memory. */
static void test_pinned(void **state)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/pinned.mtr", dir);
	setenv("COLUMNS", "400", 1);
	write_pinned(path, 61, 0);
	has(leaks(path, NULL),
	    "Pinned memory grows: +1.00 MiB a second; 2.00 MiB of 80.00 MiB are in "
	    "PyTorch's cache.");
	write_pinned(path, 30, 0);
	assert_null(strstr(leaks(path, NULL)->out, "Pinned memory grows"));
	write_pinned(path, 61, 60);
	assert_null(strstr(leaks(path, NULL)->out, "Pinned memory grows"));
}

/* Memory of the host that grows without a line: copied pages, and the cache of pinned memory. */
static void test_host(void **state)
{
	char path[3][64];
	struct output *o;

	for (int i = 0; i < 3; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/host%d.mtr", dir, i);
		write_readings(path[i], 600 + i, i ? 600 : 1, i == 0, i == 2 ? 3 : 60);
	}
	setenv("COLUMNS", "400", 1);
	o = leaks(path[0], NULL);
	has(o, "Private memory grows: +1.00 MiB a second, from 50.00 MiB to 109.00 MiB, but "
	       "resident memory (RSS) does not.");
	assert_null(strstr(o->out, "pinned"));
	o = leaks(path[1], NULL);
	has(o, "Pinned memory grows: +1.00 MiB a second; 69.00 MiB of 79.00 MiB are in PyTorch's "
	       "cache.");
	assert_null(strstr(o->out, "Private memory"));
	assert_int_equal(leaks("--fail", path[1], NULL)->status, EXIT_FAILED);
	/* Readings are seldom: three say that it grew. */
	o = leaks(path[2], NULL);
	has(o, "Pinned memory grew from 20.00 MiB to 60.00 MiB (3 readings are too few to say "
	       "whether it goes on); 50.00 MiB of 60.00 MiB are in PyTorch's cache.");
	assert_int_equal(leaks("--fail", path[2], NULL)->status, EXIT_OK);
	o = leaks(path[0], path[1], NULL);
	setenv("COLUMNS", "80", 1);
	has(o, "Private memory of ");
	has(o, "Pinned memory of ");
}

/* A program that allocates nothing while it is recorded, without steps. */
static void test_idle(void **state)
{
	char path[64];
	struct tape t;

	snprintf(path, sizeof(path), "%s/idle.mtr", dir);
	t = tape__new(path);
	alloc(&t, CPU, 1, 3000, line(&t, 5, "main"));
	tape__close(&t);
	has(leaks(path, NULL), "cpu \u00b7 31.4 s (no steps)\n"
			       "growth not known in 31.4 s: record a minute\n");
}

/* ASCII locale: no middle dots. */
static void test_plain_locale(void **state)
{
	setlocale(LC_ALL, "C");
	for (int i = 0; i < 2; i++)
		for (const char *c = leaks("--steps", ranks[1], i ? NULL : ranks[2], NULL)->out; *c;
		     c++)
			assert_true(*c > 0);
	has(leaks(ranks[1], NULL), " - 120 events, 0 lost");
	setlocale(LC_ALL, "C.UTF-8");
}

static void test_when(void **state)
{
	struct output *o;

	assert_int_equal(leaks("--fail", ranks[0], ranks[1], NULL)->status, EXIT_FAILED);
	assert_int_equal(leaks("--fail", "--min-growth", "1G", ranks[0], ranks[1], NULL)->status,
			 EXIT_OK);
	has(leaks("--min-growth", "1G", ranks[0], ranks[1], NULL),
	    "nothing grew by 1.00 GiB (--min-growth) in 39 steps in any recording; memory at\n  "
	    "the ends of steps varies by 170.00 MiB");
	/* The options exclude the line of the summary, too. */
	has(leaks(ranks[0], NULL), "\nGrowth  +");
	o = leaks("--min-growth", "1G", "--min-confidence", "high", ranks[0], NULL);
	has(o, "\nnothing grew by 1.00 GiB with high confidence (--min-growth, "
	       "--min-confidence)\n  in 39 steps");
	assert_null(strstr(o->out, "Growth  "));
	assert_int_equal(leaks("--device", "cuda:7", ranks[0], ranks[1], NULL)->status,
			 EXIT_UNUSABLE);
	assert_int_equal(leaks(ranks[0], "/nonexistent", NULL)->status, EXIT_UNUSABLE);
	o = leaks("--device", "cuda:1", ranks[0], ranks[1], ranks[2], NULL);
	has(o, "train.py:7 (step\\x1b[2J) grows in rank 1");
	assert_null(strstr(o->out, "2.00 MiB a step"));
	setenv("COLUMNS", "400", 1);
	has(leaks(ranks[0], lone, NULL), "train.py:5 (main) grows in all 2 recordings: +1.00 MiB a "
					 "step in each; in r3 in 39 of 39 steps");
	has(leaks(ranks[1], lone, NULL),
	    "train.py:7 (step\\x1b[2J) grows in 1 of 2 recordings only, r2: +4.00 MiB");
	has(leaks(ranks[1], brief, NULL), "train.py:5 (main) grows in rank 1 of 2 only: +1.00 MiB");
	has(leaks(ranks[1], brief, NULL), " In rank 0 the steps are too few to judge.\n");
	setenv("COLUMNS", "80", 1);
	has(leaks("--steps", ranks[1], ranks[2], NULL),
	    "\ntrain.py:7 (step\\x1b[2J), rank 1, live at the end of each step\n");
	/* The list says what it omits. Number 0 is the end of the step active at attach, so the
	 * last number is the number of steps. */
	o = leaks("--steps", longer, NULL);
	has(o, "\ncuda:0 \xc2\xb7 99 steps\n");
	has(o, "\ncuda:0, live at the end of each step: the last 64 of 100\n      37   37.00 MiB   "
	       " +1.00 MiB  ");
	has(o, "\n     100  100.00 MiB    +1.00 MiB  ");
	has(leaks("--steps", brief, NULL),
	    ", live at the end of each step\n       1    1.00 MiB    +1.00 MiB  ");
	has(leaks("--by", "stack", ranks[1], ranks[2], NULL), "grows in rank 1 of 2 only");
}

static json_int_t integer(json_t *o, const char *key)
{
	assert_true(json_is_integer(json_object_get(o, key)));
	return json_integer_value(json_object_get(o, key));
}

static void test_json(void **state)
{
	static const char *const by[] = { "line", "stack", "module", "category" };

	for (size_t b = 0; b < sizeof(by) / sizeof(*by); b++) {
		struct output *o = leaks("--format", "json", "--by", by[b], ranks[0], ranks[1],
					 ranks[2], worker, NULL);
		json_t *doc = json_loads(o->out, JSON_REJECT_DUPLICATES, NULL), *all, *first, *cell;
		size_t i, counted = 0;

		assert_non_null(doc);
		assert_true(json_is_true(json_object_get(doc, "one_job")));
		all = json_object_get(doc, "recordings");
		assert_int_equal(json_array_size(all), 4);
		assert_int_equal(integer(json_array_get(all, 1), "rank"), 1);
		assert_true(json_is_true(json_object_get(json_array_get(all, 2), "worker")));
		assert_int_equal(json_array_size(json_object_get(doc, "devices")), 4);
		json_array_foreach(json_object_get(doc, "devices"), i, cell)
			counted += (size_t)integer(cell, "leaks");
		json_array_foreach(json_object_get(doc, "leaks"), i, first)
			counted -= json_array_size(json_object_get(first, "grows_in"));
		assert_int_equal(counted, 0);
		first = json_array_get(json_object_get(doc, "leaks"), 0);
		if (b < 2) {
			assert_int_equal(integer(first, "line"), 7);
			assert_int_equal(json_array_size(json_object_get(first, "grows_in")), 1);
			assert_int_equal(json_integer_value(json_array_get(
						 json_object_get(first, "grows_in"), 0)),
					 1);
			assert_int_equal(json_array_size(json_object_get(first, "recordings")), 2);
			assert_int_equal(
				integer(json_array_get(json_object_get(first, "recordings"), 0),
					"bytes"),
				STEPS * 4 * MIB);
			assert_true(!json_object_get(first, "stack") == (b == 0));
		}
		json_decref(doc);
	}
}

/* A worker belongs to the job but is not compared. */
static void test_workers(void **state)
{
	struct output *o = report("--at", "end", ranks[0], worker, ranks[1], ranks[2], NULL);

	has(o, "4 recordings of one job, ranks 0-2 of 3 and 1 worker: python train.py\n");
	has(o, "\nrank 1 worker 1   40.00 MiB");
	has(o, "  rank 1: ");
	assert_null(strstr(o->out, "  rank 1 worker 1: "));
	has(o, "Together: 440.00 MiB\n");
	has(o, "\n160.00 MiB   40.00 MiB   40.00 MiB   80.00 MiB  ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),	     cmocka_unit_test(test_when),
		cmocka_unit_test(test_report),	     cmocka_unit_test(test_idle),
		cmocka_unit_test(test_plain_locale), cmocka_unit_test(test_json),
		cmocka_unit_test(test_workers),	     cmocka_unit_test(test_graph_pools),
		cmocka_unit_test(test_host),	     cmocka_unit_test(test_pinned),
	};

	setlocale(LC_ALL, "C.UTF-8");
	return cmocka_run_group_tests(tests, setup, teardown);
}
