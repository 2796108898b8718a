/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Windows of a stream: each file begins with the live blocks and ends like a recording from
 * the start. */
#include "unit/cmocka.h"
#include "unit/flight_box.h"

static struct live copy_of(const struct live *l)
{
	struct live c = { .n = l->n, .room = l->n };

	c.e = malloc((l->n + 1) * sizeof(*c.e));
	assert_non_null(c.e);
	memcpy(c.e, l->e, l->n * sizeof(*c.e));
	return c;
}

/* Readers judge the first events by the facts of the window. */
static void assert_facts_come_first(int fd, const char *start)
{
	struct mtr_reader *r = open_fd(fd, NULL);
	struct event e;

	assert_non_null(r);
	assert_int_equal(mtr_reader__next(r, &e), 1);
	assert_string_equal(facts__get(mtr_reader__facts(r), "window_start_ns"), start);
	assert_string_equal(facts__get(mtr_reader__facts(r), "comm"), "python");
	mtr_reader__free(r);
}

/* Reads a file's events. Returns the blocks live at its end; *in_front: those at its beginning. */
static struct live read_window(const struct box *b, unsigned int file, struct live *in_front,
			       uint64_t *peak, const char *reason)
{
	const struct flight_report *rep = &b->reports[file];
	struct events all = { 0 };
	struct live l = { 0 };
	struct mtr_reader *r = read_all(b->fds[file], &all);
	const struct facts *f = mtr_reader__facts(r);
	uint64_t front = 0, follows = 0;
	char number[24];

	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	assert_string_equal(facts__get(f, "stop_reason"), reason);
	assert_string_equal(facts__get(f, "window_began"), "because");
	assert_string_equal(facts__get(f, "attached_at"), "live");
	snprintf(number, sizeof(number), "%" PRIu64, rep->from);
	assert_string_equal(facts__get(f, "window_start_ns"), number);
	assert_facts_come_first(b->fds[file], number);
	*peak = 0;
	for (size_t i = 0; i < all.n; i++) {
		const struct event *e = &all.e[i];

		front += i == front && (e->kind == EVENT_BLOCK || e->kind == EVENT_STATE);
		live__event(&l, e);
		if (i < front)
			live__event(in_front, e);
		if (!e->totals)
			continue;
		/* Totals continue from the initial state on. */
		follows += e->kind == EVENT_ALLOC ? e->size : e->kind == EVENT_FREE ? -e->size : 0;
		if (e->kind == EVENT_STATE)
			follows = e->allocated;
		assert_true(follows == e->allocated);
		if (e->allocated > *peak)
			*peak = e->allocated;
	}
	assert_int_equal(rep->events, all.n - front);
	mtr_reader__free(r);
	events__free(&all);
	return l;
}

static uint64_t gpu_peak(const struct flight *fl, uint64_t *allocated)
{
	struct flight_level l;

	for (size_t i = 0; flight__level(fl, i, &l); i++) {
		if (l.device.type == DEVICE_CUDA) {
			*allocated = l.allocated;
			return l.peak_allocated;
		}
	}
	return 0;
}

/* Several windows of one job; steps: approximate number of events in each. */
static void check_windows(struct flight_opts opts, uint64_t before, int steps)
{
	struct box *b = box__new(opts);
	struct job *j = new_job(b);

	for (unsigned int n = 0; n < 5; n++) {
		struct live in_front = { 0 }, at_begin, got;
		struct flight_report rep;
		uint64_t peak, mine, allocated = 0, at;

		for (int k = 0; k < 3000; k++) {
			job__step(j, b);
			if (k % 10 == 0)
				assert_int_equal(flight__tick(b->fl, j->time), 0);
		}
		at_begin = copy_of(&j->live);
		at = j->time;
		assert_int_equal(flight__begin(b->fl, before, false, "because"), 0);
		assert_int_equal(flight__begin(b->fl, before, false, "because"), -EBUSY);
		assert_int_equal(flight__save(b->fl, "now"), -EBUSY);
		for (int k = 0; k < steps; k++) {
			job__step(j, b);
			assert_int_equal(flight__tick(b->fl, j->time), 0);
		}
		assert_true(flight__writing(b->fl, &rep));
		assert_int_equal(b->n, n);
		mine = gpu_peak(b->fl, &allocated);
		assert_int_equal(flight__end(b->fl, "mark", "enough"), 0);
		assert_int_equal(flight__end(b->fl, "mark", "enough"), -EALREADY);
		assert_false(flight__writing(b->fl, NULL));
		assert_int_equal(b->n, n + 1);
		assert_int_equal(b->done_err, 0);
		got = read_window(b, n, &in_front, &peak, "mark");
		assert_live(&got, &j->live);
		if (!before)
			assert_live(&in_front, &at_begin);
		else
			assert_true(rep.from >= at - before &&
				    rep.from < at - before + SECOND / 10);
		assert_true(rep.from <= at && b->reports[n].to == j->time &&
			    b->reports[n].blocks > 100);
		assert_true(peak == mine && allocated == j->allocated);
		assert_string_equal(b->reports[n].ended, "enough");
		free(in_front.e);
		free(at_begin.e);
		free(got.e);
	}
	free_job(j);
	box__free(b);
}

static void test_windows(void **state)
{
	check_windows((struct flight_opts){ .no_oom = true }, 0, 2000);
	check_windows((struct flight_opts){ .no_oom = true }, 0, 1);
	check_windows((struct flight_opts){ .no_oom = true, .window = SECOND }, 0, 500);
	check_windows((struct flight_opts){ .no_oom = true, .window = 2 * SECOND }, SECOND, 500);
}

/* Saving on request writes the kept window; without one, the live blocks. */
static void test_save(void **state)
{
	for (int keep = 0; keep < 2; keep++) {
		struct box *b = box__new(
			(struct flight_opts){ .no_oom = true, .window = keep ? SECOND : 0 });
		struct job *j = new_job(b);
		struct live in_front = { 0 }, got;
		uint64_t peak;

		for (int k = 0; k < 5000; k++) {
			job__step(j, b);
			assert_int_equal(flight__tick(b->fl, j->time), 0);
		}
		assert_int_equal(flight__save(b->fl, "because"), 0);
		assert_int_equal(b->n, 1);
		assert_true(keep ? b->reports[0].events > 500 : b->reports[0].events == 0);
		got = read_window(b, 0, &in_front, &peak, "save");
		assert_live(&got, &j->live);
		free(in_front.e);
		free(got.e);
		free_job(j);
		box__free(b);
	}
}

/* An out-of-memory event in a window adds no file. */
static void test_oom_in_a_window(void **state)
{
	struct box *b = box__new((struct flight_opts){ .no_oom = true, .window = SECOND });
	struct job *j = new_job(b);

	job__oom(j, b);
	assert_int_equal(flight__tick(b->fl, j->time + FLIGHT_AFTER_MAX), 0);
	assert_int_equal(flight__begin(b->fl, 0, false, "because"), 0);
	job__oom(j, b);
	assert_int_equal(flight__tick(b->fl, j->time + FLIGHT_AFTER_MAX), 0);
	assert_int_equal(b->n, 0);
	assert_int_equal(flight__end(b->fl, "mark", ""), 0);
	assert_int_equal(flight__finish(b->fl), 0);
	assert_int_equal(b->n, 1);
	assert_int_equal(b->reports[0].ooms, 0);
	free_job(j);
	box__free(b);
}

/* A process that waits has no events: its window lasts as long as it was open. */
static void test_idle_window(void **state)
{
	struct box *b = box__new((struct flight_opts){ .no_oom = true, .window = SECOND });
	struct job *j = new_job(b);
	uint64_t end;

	job__step(j, b);
	assert_int_equal(flight__begin(b->fl, 0, false, "because"), 0);
	end = j->time + 4 * SECOND;
	assert_int_equal(flight__tick(b->fl, end), 0);
	assert_int_equal(flight__end(b->fl, "duration", ""), 0);
	assert_true(b->reports[0].to == end);
	assert_true(b->reports[0].from == j->time);
	free_job(j);
	box__free(b);
}

/* Without events a file that is saved has the time that was kept, and that no other file has. */
static void test_save_of_idle(void **state)
{
	struct box *b = box__new((struct flight_opts){ .no_oom = true, .window = 5 * SECOND });

	assert_int_equal(flight__tick(b->fl, 3 * SECOND), 0);
	assert_int_equal(flight__save(b->fl, "because"), 0);
	assert_int_equal(flight__tick(b->fl, 4 * SECOND), 0);
	assert_int_equal(flight__save(b->fl, "because"), 0);
	assert_int_equal(flight__tick(b->fl, 10 * SECOND), 0);
	assert_int_equal(flight__save(b->fl, "because"), 0);
	assert_int_equal(b->n, 3);
	for (int i = 0; i < 3; i++) {
		static const uint64_t from[] = { 0, 3, 5 }, to[] = { 3, 4, 10 };

		assert_true(b->reports[i].from == from[i] * SECOND);
		assert_true(b->reports[i].to == to[i] * SECOND);
	}
	box__free(b);
}

/* Limits apply per file; a full disk ends the file and is reported. */
static void test_bounds(void **state)
{
	struct box *b = box__new((struct flight_opts){ .no_oom = true, .bounds.max_events = 700 });
	struct job *j = new_job(b);
	const char *reason = "";
	int fd;

	for (int n = 0; n < 2; n++) {
		assert_int_equal(flight__begin(b->fl, 0, false, "because"), 0);
		for (int k = 0; k < 1000 && !flight__bounded(b->fl, &reason); k++)
			job__step(j, b);
		assert_string_equal(reason, "max-events");
		assert_int_equal(flight__end(b->fl, reason, ""), 0);
	}
	b->open_err = -EACCES;
	assert_int_equal(flight__begin(b->fl, 0, false, "because"), -EACCES);
	assert_false(flight__writing(b->fl, NULL));
	b->open_err = 0;
	assert_int_equal(flight__begin(b->fl, 0, false, "because"), 0);
	fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && dup2(fd, b->fds[2]) >= 0);
	close(fd);
	job__step(j, b);
	assert_int_equal(flight__tick(b->fl, j->time + 2 * SECOND), -ENOSPC);
	assert_int_equal(b->done_err, -ENOSPC);
	assert_false(flight__writing(b->fl, NULL));
	free_job(j);
	box__free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_windows),	     cmocka_unit_test(test_save),
		cmocka_unit_test(test_save_of_idle), cmocka_unit_test(test_oom_in_a_window),
		cmocka_unit_test(test_idle_window),  cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
