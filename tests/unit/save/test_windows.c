/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Starts and ends of windows on a generated stream, exact to the event, and the folder's index
 * entries. */
#include "unit/cmocka.h"

#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "capture/decode/step_clock.h"
#include "capture/save/windows.h"
#include "model/inputs.h"
#include "mtr_util.h"
#include "record/folder.h"
#include "unit/scratch.h"

#define MS UINT64_C(1000000)
#define MIB (UINT64_C(1) << 20)
#define GPU ((struct device){ DEVICE_CUDA, 0 })

/* Steps of 10 ms with 10 MiB of temporaries at 4 ms; each step keeps one more block. */
struct job {
	struct world w;
	struct windows *windows;
	struct folder *folder;
	char path[64];
	uint64_t time, allocated, steps;
};

static void make_job(struct job *j, const char *attached, struct windows_opts o)
{
	*j = (struct job){ .w = world__new() };
	strcpy(j->path, "/tmp/memtrace-test-XXXXXX");
	assert_non_null(mkdtemp(j->path));
	assert_int_equal(folder__create(j->path, false, &j->folder), 0);
	facts__set(j->w.f, "attached_at", attached);
	facts__set(j->w.f, "start", "2026-01-02T03:04:05.000Z");
	o.folder = j->folder;
	o.pid = 4242;
	j->windows = windows__new(j->w.d, j->w.f, &o);
	assert_non_null(j->windows);
	assert_int_equal(windows__attached(j->windows), 0);
}

static void drop_job(struct job *j)
{
	windows__free(j->windows);
	folder__free(j->folder);
	world__free(&j->w);
	assert_int_equal(scratch__remove(j->path), 0);
}

static void put(struct job *j, struct event e)
{
	struct sink *s = windows__sink(j->windows);

	e.time = j->time;
	if (e.kind == EVENT_ALLOC || e.kind == EVENT_FREE) {
		e.device = GPU;
		j->allocated += e.kind == EVENT_ALLOC ? e.size : -e.size;
		e.totals = true;
		e.allocated = j->allocated;
		e.reserved = 1024 * MIB;
	}
	assert_int_equal(s->event(s, &e), 0);
}

static void tick(struct job *j)
{
	struct sink *s = windows__sink(j->windows);

	assert_int_equal(s->tick(s, j->time), 0);
}

static void step(struct job *j)
{
	j->time += 2 * MS;
	put(j, (struct event){ .kind = EVENT_ALLOC,
			       .addr = 0x100000 + j->steps * 0x1000,
			       .size = MIB,
			       .stack = j->w.stack });
	j->time += 2 * MS;
	put(j, (struct event){ .kind = EVENT_ALLOC, .addr = 0x10000, .size = 10 * MIB });
	j->time += 2 * MS;
	put(j, (struct event){ .kind = EVENT_FREE, .addr = 0x10000, .size = 10 * MIB });
	tick(j);
	j->time += 4 * MS;
	put(j, (struct event){ .kind = EVENT_STEP });
	j->steps++;
}

static void mark(struct job *j, const char *name)
{
	put(j,
	    (struct event){ .kind = EVENT_MARK, .name = dict__string(j->w.d, name, strlen(name)) });
}

static void steps(struct job *j, int n)
{
	while (n--)
		step(j);
}

/* Checks the i-th window's steps and its MiB at peak and end. */
static void check(struct job *j, size_t i, int64_t first, int64_t last, uint64_t peak, uint64_t end)
{
	const struct folder_entry *e;
	size_t n;

	assert_int_equal(folder__read_again(j->folder), 0);
	e = folder__entries(j->folder, &n);
	assert_true(i < n);
	assert_int_equal(e[i].first_step, first);
	assert_int_equal(e[i].last_step, last);
	assert_int_equal(e[i].n_devices, 1);
	assert_string_equal(e[i].devices[0].name, "cuda:0");
	assert_int_equal(e[i].devices[0].peak_allocated, peak * MIB);
	assert_int_equal(e[i].devices[0].allocated, end * MIB);
}

static size_t count(struct job *j)
{
	size_t n;

	assert_int_equal(folder__read_again(j->folder), 0);
	folder__entries(j->folder, &n);
	return n;
}

static void test_steps(void **state)
{
	struct job j;
	size_t n;

	/* Recorded from the process's start, the first step counts ... */
	make_job(&j, "start",
		 (struct windows_opts){ .args = { .given = true, .skip = 2 }, .steps = 3 });
	steps(&j, 4);
	assert_null(windows__over(j.windows));
	step(&j);
	assert_string_equal(windows__over(j.windows), "steps");
	steps(&j, 3);
	assert_int_equal(windows__written(j.windows), 1);
	check(&j, 0, 2, 4, 15, 5);
	assert_string_equal(folder__entries(j.folder, &n)[0].began,
			    "step 3 began after 2 that were skipped");
	drop_job(&j);
	/* ... with attach, the active step does not. */
	make_job(&j, "live",
		 (struct windows_opts){ .args = { .given = true, .skip = 2 }, .steps = 3 });
	steps(&j, 6);
	check(&j, 0, 3, 5, 16, 6);
	drop_job(&j);
	make_job(&j, "start", (struct windows_opts){ .args = { .given = true }, .steps = 2 });
	steps(&j, 3);
	check(&j, 0, 0, 1, 12, 2);
	drop_job(&j);
}

static void calls(struct job *j, int n)
{
	while (n--) {
		put(j, (struct event){ .kind = EVENT_CALL });
		j->time += 2 * MS;
		put(j, (struct event){ .kind = EVENT_ALLOC,
				       .addr = 0x100000 + j->steps++ * 0x1000,
				       .size = MIB,
				       .stack = j->w.stack });
		tick(j);
	}
}

static bool writes(struct job *j)
{
	return windows__stop(j->windows, "test") != -EALREADY;
}

/* Without an optimizer, calls of the model count after a while. */
static void test_calls(void **state)
{
	struct job j;

	make_job(&j, "live", (struct windows_opts){ .args = { .given = true }, .steps = 3 });
	calls(&j, 10);
	j.time = STEP_CLOCK_WAIT - MS; /* the first call was at 0 */
	calls(&j, 1);
	assert_false(writes(&j));
	calls(&j, 3);
	assert_null(windows__over(j.windows));
	calls(&j, 1);
	assert_string_equal(windows__over(j.windows), "steps");
	check(&j, 0, 11, 13, 14, 14);
	drop_job(&j);

	/* The process has an optimizer, or a step has ended. */
	make_job(&j, "live", (struct windows_opts){ .args = { .given = true }, .steps = 3 });
	facts__set(j.w.f, "optimizers", "1");
	calls(&j, 1);
	j.time += STEP_CLOCK_WAIT;
	calls(&j, 10);
	assert_false(writes(&j));
	drop_job(&j);
	make_job(&j, "live", (struct windows_opts){ .args = { .given = true }, .steps = 3 });
	calls(&j, 1);
	steps(&j, 1);
	j.time += STEP_CLOCK_WAIT;
	calls(&j, 10);
	assert_null(windows__over(j.windows));
	steps(&j, 3);
	assert_string_equal(windows__over(j.windows), "steps");
	drop_job(&j);
}

static void test_time(void **state)
{
	const struct folder_entry *e;
	struct job j;
	size_t n;

	/* Events after a window's end are not in it, also before the clock is read again. */
	make_job(&j, "start",
		 (struct windows_opts){ .args = { .given = true }, .duration = 15 * MS });
	steps(&j, 3);
	check(&j, 0, 0, 0, 12, 12);
	e = folder__entries(j.folder, &n);
	assert_true(e[0].from <= 2 * MS && e[0].to == 14 * MS);
	assert_string_equal(e[0].begin, "2026-01-02T03:04:05.000Z");
	assert_string_equal(e[0].end, "2026-01-02T03:04:05.014Z");
	drop_job(&j);
}

static void test_conditions(void **state)
{
	struct job j;

	/* A peak between two readings of the clock is seen; while the condition holds there is no
	 * second window. */
	make_job(&j, "live",
		 (struct windows_opts){ .args = { .given = true,
						  .on = "allocated>14M",
						  .until = "allocated>16M" } });
	steps(&j, 20);
	check(&j, 0, 5, 5, 17, 17); /* from within step 5 to within step 7 */
	drop_job(&j);
	make_job(
		&j, "live",
		(struct windows_opts){ .args = { .given = true, .on = "allocated>14M", .count = 2 },
				       .steps = 1 });
	steps(&j, 4);
	assert_int_equal(count(&j), 0);
	steps(&j, 12);
	assert_int_equal(count(&j), 2);
	assert_string_equal(windows__over(j.windows), "steps");
	drop_job(&j);
}

static void test_marks(void **state)
{
	struct job j;

	make_job(&j, "live",
		 (struct windows_opts){
			 .args = { .given = true, .from_mark = "a", .to_mark = "b" } });
	steps(&j, 2);
	mark(&j, "b");
	mark(&j, "ab");
	steps(&j, 1);
	mark(&j, "a");
	steps(&j, 2);
	mark(&j, "b");
	steps(&j, 1);
	mark(&j, "a");
	steps(&j, 1);
	assert_int_equal(windows__finish(j.windows, "target exited"), 0);
	assert_int_equal(count(&j), 2);
	check(&j, 0, 4, 4, 15, 5);
	check(&j, 1, -1, -1, 17, 7);
	drop_job(&j);
}

/* A pattern stands for marks whose names have figures. */
static void test_mark_patterns(void **state)
{
	struct job j;

	make_job(&j, "live",
		 (struct windows_opts){ .args = { .given = true,
						  .from_mark = "memory unmapped*",
						  .to_mark = "memory mapped [a]gain*" } });
	steps(&j, 2);
	mark(&j, "no memory unmapped");
	mark(&j, "memory unmapped: 1.20 GiB (sleep)");
	steps(&j, 2);
	mark(&j, "memory mapped again: 1.20 GiB (wake-up)");
	steps(&j, 1);
	mark(&j, "memory unmapped*"); /* the name itself */
	steps(&j, 1);
	assert_int_equal(windows__finish(j.windows, "target exited"), 0);
	assert_int_equal(count(&j), 2);
	drop_job(&j);
}

static void test_clock(void **state)
{
	const struct folder_entry *e;
	const struct folder_gap *g;
	struct job j;
	size_t n;

	make_job(&j, "live",
		 (struct windows_opts){
			 .args = { .given = true, .every = 100 * MS, .keep = 2, .label = "x" },
			 .steps = 2 });
	steps(&j, 55);
	assert_int_equal(windows__finish(j.windows, "signal"), 0);
	assert_int_equal(windows__written(j.windows), 6);
	e = folder__entries(j.folder, &n);
	assert_int_equal(n, 2);
	assert_string_equal(e[0].name, "x-005");
	assert_string_equal(e[1].file, "x-006.mtr");
	assert_int_equal(e[1].last_step - e[1].first_step, 1);
	g = folder__gaps(j.folder, &n);
	assert_int_equal(n, 4);
	assert_string_equal(g[0].why, "keep");
	drop_job(&j);
}

/* --at: the window begins at that moment of the wall clock, to the event, and --every counts from
 * it. */
static void test_wall(void **state)
{
	uint64_t kernel, wall = clock__wall(&kernel), zero = wall - 5 * MS, n;
	char text[32];
	struct job j;

	(void)state;
	make_job(&j, "live", (struct windows_opts){ .args = { .wait = true } });
	windows__free(j.windows);
	snprintf(text, sizeof(text), "%" PRIu64, zero);
	facts__set(j.w.f, "clock_zero_ns", text);
	j.windows = windows__new(j.w.d, j.w.f,
				 &(struct windows_opts){ .folder = j.folder,
							 .pid = 4242,
							 .duration = 20 * MS,
							 .args = { .at = zero + 3600000 * MS,
								   .every = 100 * MS,
								   .count = 2 } });
	j.time = 3599985 * MS;
	tick(&j);
	steps(&j, 15);
	assert_string_equal(windows__over(j.windows), "duration");
	assert_int_equal(windows__finish(j.windows, "target exited"), 0);
	folder__read_again(j.folder);
	for (size_t i = 0; i < 2; i++) {
		const struct folder_entry *e = &folder__entries(j.folder, &n)[i];
		uint64_t due = (3600000 + 100 * i) * MS;

		assert_int_equal(n, 2);
		/* The first event of the window is at most 4 ms after its begin. The clocks are
		 * read one after the other, so a moment may be wrong by as long as that takes. */
		assert_in_range(e->from, due - MS, due + 5 * MS);
		assert_memory_equal(e->began, "at 20", 5);
	}
	drop_job(&j);
}

static void test_told(void **state)
{
	struct job j;

	make_job(&j, "live",
		 (struct windows_opts){
			 .args = { .given = true, .wait = true, .before = 15 * MS } });
	steps(&j, 30);
	assert_int_equal(windows__stop(j.windows, "ctl"), -EALREADY);
	assert_int_equal(windows__start(j.windows, "ctl"), 0);
	assert_int_equal(windows__start(j.windows, "signal"), -EBUSY);
	assert_int_equal(windows__save(j.windows, "ctl"), -EBUSY);
	steps(&j, 2);
	assert_int_equal(windows__stop(j.windows, "signal"), 0);
	step(&j);
	assert_int_equal(windows__save(j.windows, "ctl"), 0);
	assert_int_equal(windows__finish(j.windows, "signal"), 0);
	assert_int_equal(count(&j), 2);
	check(&j, 0, 31, 31, 42, 32);
	assert_null(windows__over(j.windows));
	drop_job(&j);
}

static size_t expand(const struct job *j, const char *what, enum inputs_of of, int want,
		     const char *first)
{
	char arg[96], path[128], *const args[] = { arg };
	struct inputs in;
	size_t n;

	snprintf(arg, sizeof(arg), "%s%s", j->path, what);
	assert_int_equal(inputs__expand(args, 1, of, &in), want);
	if (want)
		return 0;
	snprintf(path, sizeof(path), "%s/%s", j->path, first);
	assert_string_equal(in.paths[0], path);
	n = in.n;
	inputs__free(&in);
	return n;
}

/* Folders as command-line arguments. */
static void test_inputs(void **state)
{
	char *const file[] = { (char *)"/nonexistent/x#2" };
	struct inputs in;
	struct job j;

	make_job(&j, "live",
		 (struct windows_opts){ .args = { .given = true, .every = 100 * MS, .label = "x" },
					.steps = 2 });
	assert_int_equal(expand(&j, "", INPUTS_EACH, EXIT_UNUSABLE, NULL), 0);
	steps(&j, 35);
	assert_int_equal(expand(&j, "", INPUTS_EACH, 0, "x-001.mtr"), 4);
	assert_int_equal(expand(&j, "", INPUTS_ENDS, 0, "x-001.mtr"), 2);
	assert_int_equal(expand(&j, "/#2", INPUTS_ONE, 0, "x-002.mtr"), 1);
	assert_int_equal(expand(&j, "#x-003", INPUTS_PROCESSES, 0, "x-003.mtr"), 1);
	assert_int_equal(expand(&j, "#x-003.mtr", INPUTS_EACH, 0, "x-003.mtr"), 1);
	expand(&j, "", INPUTS_ONE, EXIT_USAGE, NULL);
	expand(&j, "", INPUTS_PROCESSES, EXIT_USAGE, NULL);
	expand(&j, "#5", INPUTS_ONE, EXIT_USAGE, NULL);
	expand(&j, "#0", INPUTS_ONE, EXIT_USAGE, NULL);
	expand(&j, "#../x", INPUTS_ONE, EXIT_USAGE, NULL);
	drop_job(&j);
	/* Not a folder: a file, whose error is reported when it is opened. */
	assert_int_equal(inputs__expand(file, 1, INPUTS_ONE, &in), 0);
	assert_string_equal(in.paths[0], file[0]);
	assert_null(in.names[0]);
	inputs__free(&in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps), cmocka_unit_test(test_calls),
		cmocka_unit_test(test_time),  cmocka_unit_test(test_conditions),
		cmocka_unit_test(test_marks), cmocka_unit_test(test_mark_patterns),
		cmocka_unit_test(test_clock), cmocka_unit_test(test_wall),
		cmocka_unit_test(test_told),  cmocka_unit_test(test_inputs),
	};

	log__set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
