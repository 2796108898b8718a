/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The flight recorder: a file written at an out-of-memory event equals a recording from the start
 * at that moment. */
#include "unit/cmocka.h"
#include "unit/flight_box.h"
#include "record/host.h"

/* Runs n steps of a job with a recorder, then out of memory, then further steps. */
static void check_window(struct flight_opts opts, int n, bool whole, bool cut)
{
	struct box *b = box__new(opts);
	struct job *j = new_job(b);
	struct events all = { 0 };
	struct live got;
	const struct flight_report *r = &b->reports[0];
	const struct event *state = NULL;
	size_t i = 0;

	for (int k = 0; k < n; k++) {
		job__step(j, b);
		if (k % 10 == 0)
			assert_int_equal(flight__tick(b->fl, j->time), 0);
	}
	job__oom(j, b);
	assert_int_equal(b->n, 0); /* no file is written yet */
	assert_int_equal(flight__tick(b->fl, j->time + FLIGHT_AFTER), 0);
	assert_int_equal(b->n, 1);
	assert_int_equal(b->done_err, 0);
	got = read_box(b, 0, &all);
	assert_live(&got, &j->live);
	assert_true(r->oom.time == j->time && r->oom.size == 12345);
	assert_int_equal(r->ooms, 1);
	assert_int_equal(r->cut, cut);
	assert_true(r->to == j->time);
	/* First the live blocks, then the window's events. */
	while (i < all.n && (all.e[i].kind == EVENT_BLOCK || all.e[i].kind == EVENT_STATE)) {
		if (all.e[i].kind == EVENT_STATE)
			state = &all.e[i];
		assert_true(all.e[i].time == r->from);
		i++;
	}
	if (whole) {
		assert_int_equal(i, 1); /* only the event that the job began with */
		assert_null(state);
		assert_int_equal(r->blocks, 0);
		assert_int_equal(r->events, all.n);
	} else {
		assert_non_null(state);
		assert_true(state->totals);
		assert_int_equal(r->events, all.n - i);
		assert_true(r->blocks > 100);
		if (!cut)
			assert_true(r->from >= j->time - opts.window &&
				    r->from < j->time - opts.window + 2000000);
	}
	/* Totals continue from the state on. */
	for (uint64_t last = state ? state->allocated : 0; i < all.n && !whole; i++) {
		const struct event *e = &all.e[i];

		if (!e->totals)
			continue;
		last += e->kind == EVENT_ALLOC ? e->size : e->kind == EVENT_FREE ? -e->size : 0;
		assert_true(last == e->allocated);
	}
	free(got.e);
	events__free(&all);
	free_job(j);
	box__free(b);
}

static void test_window(void **state)
{
	check_window((struct flight_opts){ .window = 3600 * SECOND }, 3000, true, false);
	check_window((struct flight_opts){ .window = 3600 * SECOND, .max_files = 1 }, 90000, true,
		     false);
	check_window((struct flight_opts){ .window = SECOND / 2 }, 10000, false, false);
	check_window((struct flight_opts){ .window = 5 * SECOND }, 60000, false, false);
	check_window((struct flight_opts){ .window = 50 * SECOND, .max_events = 500 }, 10000, false,
		     true);
	check_window((struct flight_opts){ .window = 50 * SECOND, .max_events = 40 }, 10000, false,
		     true);
	check_window((struct flight_opts){ .window = 500 * SECOND, .max_bytes = 64 << 10 }, 90000,
		     false, true);
}

static void test_no_oom(void **state)
{
	struct box *b = box__new((struct flight_opts){ .window = SECOND });
	struct job *j = new_job(b);

	for (int i = 0; i < 5000; i++) {
		job__step(j, b);
		assert_int_equal(flight__tick(b->fl, j->time), 0);
	}
	assert_int_equal(flight__finish(b->fl), 0);
	assert_int_equal(b->n, 0);
	assert_int_equal(flight__files(b->fl), 0);
	assert_false(flight__full(b->fl));
	free_job(j);
	box__free(b);
}

/* Repeated failures within a short time are one file. A later one is another file. */
static void test_again_and_again(void **state)
{
	struct box *b = box__new((struct flight_opts){ .window = SECOND, .max_files = 3 });
	struct job *j = new_job(b);
	struct events all = { 0 };
	struct live before, got;
	uint64_t ooms = 0;

	for (int i = 0; i < 1000; i++) {
		job__step(j, b);
		if (i == 500) {
			before = j->live;
			before.e = malloc(before.n * sizeof(*before.e));
			memcpy(before.e, j->live.e, before.n * sizeof(*before.e));
		}
		if (i >= 500)
			job__oom(j, b);
		assert_int_equal(flight__tick(b->fl, j->time), 0);
	}
	assert_int_equal(b->n, 0); /* 1.5 s */
	assert_int_equal(flight__tick(b->fl, j->time + SECOND), 0);
	assert_int_equal(b->n, 1);
	assert_int_equal(b->reports[0].ooms, 500);
	got = read_box(b, 0, &all);
	assert_live(&got, &before);
	for (size_t i = 0; i < all.n; i++)
		ooms += all.e[i].kind == EVENT_OOM;
	assert_int_equal(ooms, 500);
	free(got.e);
	events__free(&all);
	/* The next file describes the next failure only, with all blocks live then. */
	j->time += 10 * SECOND;
	for (int i = 0; i < 2000; i++)
		job__step(j, b);
	job__oom(j, b);
	assert_int_equal(flight__finish(b->fl), 0);
	assert_int_equal(b->n, 2);
	assert_int_equal(b->reports[1].ooms, 1);
	got = read_box(b, 1, &all);
	assert_live(&got, &j->live);
	free(got.e);
	free(before.e);
	events__free(&all);
	free_job(j);
	box__free(b);
}

/* Endless failures give a file, and at most as many files as requested. */
static void test_without_end(void **state)
{
	struct box *b = box__new((struct flight_opts){ .window = SECOND, .max_files = 3 });
	struct job *j = new_job(b);
	struct events all = { 0 };
	struct live got;

	for (int i = 0; i < 1000; i++)
		job__step(j, b);
	for (int i = 0; i < 10000; i++) {
		job__step(j, b);
		job__oom(j, b);
		assert_int_equal(flight__tick(b->fl, j->time), 0);
	}
	assert_int_equal(b->n, 3);
	assert_true(flight__full(b->fl));
	assert_int_equal(flight__finish(b->fl), 0);
	assert_int_equal(b->n, 3);
	for (unsigned int i = 0; i < 3; i++) {
		assert_true(b->reports[i].to - b->reports[i].oom.time <=
			    FLIGHT_AFTER_MAX + SECOND / 100);
		got = read_box(b, i, &all);
		assert_true(got.n > 100);
		free(got.e);
		events__free(&all);
	}
	free_job(j);
	box__free(b);
}

/* After a failure the window is limited: then the file is written at once, with the failure in
 * it. */
static void test_flood(void **state)
{
	struct box *b = box__new(
		(struct flight_opts){ .window = SECOND, .max_events = 1000, .max_files = 1 });
	struct job *j = new_job(b);
	struct events all = { 0 };
	struct live got;

	for (int i = 0; i < 3000; i++)
		job__step(j, b);
	job__oom(j, b);
	for (int i = 0; i < 3000; i++)
		feed(b, (struct event){ .kind = EVENT_STEP, .time = j->time });
	assert_int_equal(b->n, 1); /* without a tick */
	got = read_box(b, 0, &all);
	assert_live(&got, &j->live);
	assert_true(all.n < 2000);
	free(got.e);
	events__free(&all);
	free_job(j);
	box__free(b);
}

/* ---- below the blocks ---- */

/* The file's events up to the window's first event, which is a call; without times. */
static struct events events_before_window(struct event *list, size_t n)
{
	struct box *b = box__new((struct flight_opts){ .window = SECOND });
	struct events all = { 0 };
	struct live l;

	for (size_t i = 0; i < n; i++)
		feed(b, list[i]);
	assert_int_equal(flight__tick(b->fl, 20 * SECOND), 0);
	feed(b, (struct event){ .kind = EVENT_CALL, .time = 20 * SECOND });
	feed(b, (struct event){ .kind = EVENT_OOM, .time = 20 * SECOND });
	assert_int_equal(flight__finish(b->fl), 0);
	assert_int_equal(b->n, 1);
	l = read_box(b, 0, &all);
	free(l.e);
	for (size_t i = 0; i < all.n; i++) {
		assert_true(all.e[i].time == 20 * SECOND);
		all.e[i].time = 0;
		if (all.e[i].kind == EVENT_CALL)
			all.n = i;
	}
	box__free(b);
	return all;
}

static void check_told(struct event *list, size_t n, const struct event *want, size_t n_want)
{
	struct events got = events_before_window(list, n);

	if (got.n != n_want) {
		for (size_t i = 0; i < got.n; i++)
			print_message("%u at %" PRIx64 ", %" PRIu64 "\n", got.e[i].kind,
				      got.e[i].addr, got.e[i].size);
	}
	assert_int_equal(got.n, n_want);
	for (size_t i = 0; i < n_want; i++)
		assert_event(&got.e[i], &want[i]);
	events__free(&got);
}

#define TOLD(list, ...)                                                                            \
	do {                                                                                       \
		const struct event want_[] = { __VA_ARGS__ };                                      \
		check_told(list, sizeof(list) / sizeof((list)[0]), want_,                          \
			   sizeof(want_) / sizeof(want_[0]));                                      \
	} while (0)

#define TAKE(h, a, s, f)                                                                           \
	{                                                                                          \
		.kind = EVENT_CUDA_ALLOC, .device = GPU, .how = h, .addr = a, .size = s,           \
		.flags = f, .stack = 1                                                             \
	}
#define GIVE(h, a, s)                                                                              \
	{                                                                                          \
		.kind = EVENT_CUDA_FREE, .device = GPU, .how = h, .addr = a, .size = s             \
	}
#define HOST_PART(p, s)                                                                            \
	{                                                                                          \
		.kind = EVENT_HOST, .device = { DEVICE_HOST, 0 }, .how = p, .size = s              \
	}
#define SEGMENT(a, s, f)                                                                           \
	{                                                                                          \
		.kind = EVENT_SEGMENT, .device = GPU, .addr = a, .size = s, .flags = f,            \
		.pool = { 0, 1 }, .cuda_stream = 3                                                 \
	}
#define BLOCK(a, s)                                                                                \
	{                                                                                          \
		.kind = EVENT_BLOCK, .device = GPU, .addr = a, .size = s                           \
	}
#define STATE(a, r, f)                                                                             \
	{                                                                                          \
		.kind = EVENT_STATE, .device = GPU, .totals = true, .allocated = a, .reserved = r, \
		.flags = f                                                                         \
	}
#define EXACT (STATE_EXACT | STATE_SEGMENTS_EXACT)
#define MB (1u << 20)

static void test_segments(void **state)
{
	struct event list[] = {
		SEGMENT(20 * MB, 2 * MB, SEGMENT_SMALL),
		SEGMENT(40 * MB, 20 * MB, 0),
		BLOCK(40 * MB, MB),
		BLOCK(20 * MB, 512),
		{ .kind = EVENT_BLOCK,
		  .device = GPU,
		  .addr = 21 * MB,
		  .size = 512,
		  .flags = BLOCK_PENDING },
		STATE(MB + 512, 22 * MB, EXACT),
		TAKE(MEM_DEVICE, 80 * MB, 20 * MB, MEM_BY_ALLOCATOR),
		TAKE(MEM_DEVICE, 120 * MB, 20 * MB, 0), /* another library's memory */
		TAKE(MEM_MANAGED, 160 * MB, 5 * MB, 0),
		TAKE(MEM_HOST, 160 * MB, 5 * MB, 0),
		{ .kind = EVENT_ALLOC,
		  .device = GPU,
		  .addr = 80 * MB,
		  .size = 3 * MB,
		  .stack = 1,
		  .totals = true,
		  .allocated = 4 * MB + 512,
		  .reserved = 42 * MB },
		GIVE(MEM_DEVICE, 160 * MB, 0), /* cudaFree */
		GIVE(MEM_DEVICE, 20 * MB, 0),
		GIVE(MEM_DEVICE, 999 * MB, 0), /* allocated before attach */
		{ .kind = EVENT_FREE,
		  .device = GPU,
		  .addr = 20 * MB,
		  .size = 512,
		  .totals = true,
		  .allocated = 4 * MB,
		  .reserved = 40 * MB },
		{ .kind = EVENT_LOST, .size = 3 },
		{ .kind = EVENT_LOST, .size = 4 },
		{ .kind = EVENT_USED, .device = GPU, .size = 100 * MB },
		{ .kind = EVENT_USED, .device = GPU, .size = 101 * MB },
		{ .kind = EVENT_LEFT, .device = GPU, .size = 7 * MB },
		{ .kind = EVENT_LEFT, .device = GPU, .size = 6 * MB },
		HOST_PART(HOST_TENSORS, 3 * MB),
		HOST_PART(HOST_TOTAL, 9 * MB),
		HOST_PART(HOST_MALLOC, 5 * MB),
		HOST_PART(HOST_TOTAL, 5 * MB),
		HOST_PART(HOST_TENSORS, 1 * MB), /* a reading without an end */
	};

	TOLD(list, { .kind = EVENT_LOST, .size = 7 }, SEGMENT(40 * MB, 20 * MB, 0),
	     TAKE(MEM_DEVICE, 80 * MB, 20 * MB, MEM_BY_ALLOCATOR),
	     TAKE(MEM_DEVICE, 120 * MB, 20 * MB, 0), TAKE(MEM_HOST, 160 * MB, 5 * MB, 0),
	     { .kind = EVENT_BLOCK,
	       .device = GPU,
	       .addr = 21 * MB,
	       .size = 512,
	       .flags = BLOCK_PENDING },
	     BLOCK(40 * MB, MB),
	     { .kind = EVENT_BLOCK, .device = GPU, .addr = 80 * MB, .size = 3 * MB, .stack = 1 },
	     STATE(4 * MB, 40 * MB, EXACT), { .kind = EVENT_USED, .device = GPU, .size = 101 * MB },
	     { .kind = EVENT_LEFT, .device = GPU, .size = 6 * MB }, HOST_PART(1, 0),
	     HOST_PART(2, 0), HOST_PART(3, 0), HOST_PART(4, 0), HOST_PART(5, 0), HOST_PART(6, 0),
	     HOST_PART(7, 0), HOST_PART(8, 0), HOST_PART(9, 0), HOST_PART(HOST_MALLOC, 5 * MB),
	     HOST_PART(11, 0), HOST_PART(HOST_TOTAL, 5 * MB));
}

#define SCOPE(thread_, flags_, number)                                                             \
	{                                                                                          \
		.kind = EVENT_SCOPE, .how = SCOPE_PHASE, .thread = thread_, .flags = flags_,       \
		.addr = number                                                                     \
	}

/* A window begins with the scopes that are open. */
static void test_scopes(void **state)
{
	struct event list[] = {
		SCOPE(0, SCOPE_BEGIN, 1),
		SCOPE(0, SCOPE_BEGIN, 2),
		SCOPE(0, SCOPE_SUSPEND, 2),
		SCOPE(1, SCOPE_END, 1), /* another thread ends it by its number */
		SCOPE(1, SCOPE_BEGIN, 3),
		SCOPE(1, SCOPE_SUSPEND, 3),
		SCOPE(1, SCOPE_RESUME, 3),
		SCOPE(0, SCOPE_BEGIN, 0),
		SCOPE(0, SCOPE_BEGIN, 0),
		SCOPE(1, SCOPE_END, 0), /* begun before; not that of thread 0 */
		SCOPE(0, SCOPE_END, 0),
	};

	TOLD(list, SCOPE(0, SCOPE_BEGIN | SCOPE_EARLIER, 2), SCOPE(0, SCOPE_SUSPEND, 2),
	     SCOPE(1, SCOPE_BEGIN | SCOPE_EARLIER, 3), SCOPE(0, SCOPE_BEGIN | SCOPE_EARLIER, 0));
}

/* A second reading of the tables replaces the first. */
static void test_second_reading(void **state)
{
	struct event list[] = {
		SEGMENT(20 * MB, 2 * MB, SEGMENT_SMALL),
		SEGMENT(40 * MB, 20 * MB, 0),
		STATE(0, 22 * MB, EXACT),
		TAKE(MEM_DEVICE, 80 * MB, 20 * MB, MEM_BY_ALLOCATOR),
		TAKE(MEM_DEVICE, 120 * MB, 20 * MB, MEM_BY_ALLOCATOR),
		TAKE(MEM_DEVICE, 160 * MB, 20 * MB, 0),
		SEGMENT(40 * MB, 20 * MB, SEGMENT_EXPANDABLE),
		SEGMENT(80 * MB, 20 * MB, 0),
		STATE(512, 40 * MB, STATE_SEGMENTS_EXACT),
	};

	TOLD(list, TAKE(MEM_DEVICE, 80 * MB, 20 * MB, MEM_BY_ALLOCATOR),
	     TAKE(MEM_DEVICE, 160 * MB, 20 * MB, 0), SEGMENT(40 * MB, 20 * MB, SEGMENT_EXPANDABLE),
	     SEGMENT(80 * MB, 20 * MB, 0), STATE(512, 40 * MB, STATE_SEGMENTS_EXACT));
}

static void test_expandable(void **state)
{
	struct event list[] = {
		SEGMENT(20 * MB, 8 * MB, SEGMENT_EXPANDABLE),
		STATE(0, 8 * MB, EXACT),
		TAKE(MEM_MAPPED, 28 * MB, 2 * MB, MEM_BY_ALLOCATOR),
		TAKE(MEM_MAPPED, 30 * MB, 2 * MB, MEM_BY_ALLOCATOR),
		GIVE(MEM_MAPPED, 30 * MB, 2 * MB), /* unmaps a mapping as it was recorded */
		GIVE(MEM_MAPPED, 22 * MB, 2 * MB), /* unmaps the middle of a mapping */
		GIVE(MEM_MAPPED, 24 * MB, 2 * MB),
		TAKE(MEM_MAPPED, 24 * MB, 2 * MB, MEM_BY_ALLOCATOR),
		TAKE(MEM_PHYSICAL, 1, 2 * MB, MEM_BY_ALLOCATOR),
		TAKE(MEM_PHYSICAL, 2, 2 * MB, MEM_BY_ALLOCATOR),
		GIVE(MEM_PHYSICAL, 1, 0),
	};

	TOLD(list, SEGMENT(20 * MB, 8 * MB, SEGMENT_EXPANDABLE),
	     TAKE(MEM_MAPPED, 28 * MB, 2 * MB, MEM_BY_ALLOCATOR), GIVE(MEM_MAPPED, 22 * MB, 2 * MB),
	     TAKE(MEM_MAPPED, 24 * MB, 2 * MB, MEM_BY_ALLOCATOR),
	     TAKE(MEM_PHYSICAL, 2, 2 * MB, MEM_BY_ALLOCATOR), STATE(0, 8 * MB, 0));
}

/* ---- errors ---- */

/* A block's name is written with it when it leaves the window. A later block at the address has no
 * name. */
static void test_tensors(void **state)
{
	struct box *b = box__new((struct flight_opts){ .window = SECOND });
	const struct device cpu = { DEVICE_CPU, 0 };
	const struct event tensor = { .kind = EVENT_TENSOR,
				      .device = GPU,
				      .time = 2000,
				      .size = 500,
				      .name = b->w.name,
				      .module = b->w.module,
				      .category = CATEGORY_PARAMETER };
	struct events all = { 0 };
	struct event e;
	struct live got;
	size_t i = 0;

	for (uint64_t k = 1; k <= 4; k++)
		feed(b, (struct event){ .kind = EVENT_ALLOC,
					.device = GPU,
					.time = 1000 * k,
					.addr = k << 12,
					.size = 512 });
	/* the third and fourth are newer than the census; nothing is at the fifth */
	for (uint64_t k = 1; k <= 4; k++) {
		e = tensor;
		e.addr = (k == 4 ? 5 : k) << 12;
		e.category = (uint8_t)k;
		feed(b, e);
	}
	feed(b, (struct event){ .kind = EVENT_FREE,
				.device = GPU,
				.time = 5000,
				.addr = 2 << 12,
				.size = 512 });
	feed(b, (struct event){ .kind = EVENT_ALLOC,
				.device = GPU,
				.time = 6000,
				.addr = 2 << 12,
				.size = 512 });
	/* The CPU allocator reports no blocks from before attach; one is freed later. */
	for (uint64_t k = 1; k <= 2; k++) {
		e = tensor;
		e.device = cpu;
		e.addr = k << 12;
		e.flags = CENSUS_FIRST;
		feed(b, e);
	}
	feed(b, (struct event){ .kind = EVENT_CENSUS,
				.device = GPU,
				.time = 7000,
				.size = 2000,
				.flags = CENSUS_TORN });
	feed(b, (struct event){ .kind = EVENT_FREE, .device = cpu, .time = 8000, .addr = 2 << 12 });
	assert_int_equal(flight__tick(b->fl, SECOND), 0);
	assert_int_equal(flight__tick(b->fl, 10 * SECOND), 0);
	feed(b, (struct event){ .kind = EVENT_OOM,
				.device = GPU,
				.time = 10 * SECOND,
				.size = 1,
				.node = b->w.node });
	assert_int_equal(flight__finish(b->fl), 0);
	assert_int_equal(b->n, 1);
	got = read_box(b, 0, &all);
	assert_int_equal(got.n, 4);
	assert_int_equal(all.n, 8);
	while (i < all.n && all.e[i].device.type != DEVICE_CUDA)
		i++;
	assert_true(i == 0 || i == 1);
	/* Each name follows its block; the name on the CPU replaces its block. */
	e = all.e[i ? 0 : 6];
	assert_true(e.kind == EVENT_TENSOR && e.addr == 1 << 12 && e.size == 500 &&
		    e.flags == CENSUS_FIRST);
	assert_true(e.name == b->w.name && e.module == b->w.module &&
		    e.category == CATEGORY_PARAMETER);
	e = all.e[i + 1];
	assert_true(all.e[i].kind == EVENT_BLOCK && e.kind == EVENT_TENSOR &&
		    e.addr == all.e[i].addr);
	assert_true(e.addr == 1 << 12 && e.size == 500 && e.flags == CENSUS_FIRST &&
		    e.name == b->w.name);
	assert_true(e.module == b->w.module && e.category == 1);
	for (size_t k = i + 2; k < i + 5; k++)
		assert_int_equal(all.e[k].kind, EVENT_BLOCK);
	e = all.e[i + 5];
	assert_true(e.kind == EVENT_CENSUS && e.size == 2000 &&
		    e.flags == (CENSUS_FIRST | CENSUS_TORN));
	assert_int_equal(all.e[7].node, b->w.node);
	free(got.e);
	events__free(&all);
	box__free(b);
}

static void test_errors(void **state)
{
	struct box *b = box__new((struct flight_opts){ .window = SECOND });
	struct event e = { .kind = EVENT_OOM, .time = 5 * SECOND };
	const struct event bad[] = {
		{ .kind = 0 },
		{ .kind = EVENT_KINDS },
		{ .kind = EVENT_OOM, .stack = 77 },
		{ .kind = EVENT_OOM, .thread = 77 },
		{ .kind = EVENT_CALL, .module = 77 },
		{ .kind = EVENT_OOM, .walk = MT_WALK_NR },
		{ .kind = EVENT_CUDA_ALLOC, .how = MEM_HOW_NR },
	};
	int fd;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(flight__event(b->fl, &bad[i]), -EINVAL);
	assert_int_equal(flight__tick(b->fl, 100 * SECOND), 0);
	assert_int_equal(b->n, 0);
	assert_int_equal(flight__event(b->fl, &e), 0);
	b->open_err = -EACCES;
	assert_int_equal(flight__tick(b->fl, 6 * SECOND), -EACCES);
	assert_int_equal(flight__files(b->fl), 0);
	box__free(b);

	/* A disk that is full. */
	b = box__new((struct flight_opts){ .window = SECOND });
	assert_int_equal(flight__event(b->fl, &e), 0);
	fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	b->open_err = fd;
	assert_int_equal(flight__finish(b->fl), -ENOSPC);
	assert_int_equal(b->done_err, -ENOSPC);
	assert_int_equal(flight__files(b->fl), 0);
	close(fd);
	b->n = 0;
	box__free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window),		cmocka_unit_test(test_no_oom),
		cmocka_unit_test(test_again_and_again), cmocka_unit_test(test_without_end),
		cmocka_unit_test(test_flood),		cmocka_unit_test(test_segments),
		cmocka_unit_test(test_scopes),		cmocka_unit_test(test_second_reading),
		cmocka_unit_test(test_expandable),	cmocka_unit_test(test_tensors),
		cmocka_unit_test(test_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
