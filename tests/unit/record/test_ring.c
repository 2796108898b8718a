/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A stream of any length in limited space: parts that can be read alone, a gap, and exact
 * totals. */
#include "unit/cmocka.h"

#include <inttypes.h>
#include <jansson.h>

#include "base/json.h"
#include "model/model.h"
#include "mtr_util.h"
#include "record/mtr/renumber.h"
#include "record/mtr_rolling.h"

#define SECOND UINT64_C(1000000000)
#define FILES 4096
#define SPACE (UINT64_C(1) << 20)
#define PART (UINT64_C(64) << 10)

/* Files in memory instead of a folder. */
struct disk {
	int fds[FILES]; /* by number; 0: no file */
	struct mtr_ring_part parts[FILES];
	uint64_t most, dropped_events;
	unsigned int n, n_ready, n_dropped;
	struct mtr_ring_span gap;
	struct events all;
	struct dict *dict;
	struct facts *facts;
	struct mtr_rolling *ring;
	struct gen gen;
	int open_err, drop_err;
};

static void check_disk(struct disk *d)
{
	uint64_t sum = 0;
	struct stat st;

	for (unsigned int i = 1; i <= d->n; i++) {
		if (!d->fds[i])
			continue;
		assert_int_equal(fstat(d->fds[i], &st), 0);
		sum += ((uint64_t)st.st_size + MTR_RING_ROUND - 1) / MTR_RING_ROUND *
		       MTR_RING_ROUND;
	}
	d->most = sum > d->most ? sum : d->most;
}

static int disk_open(void *ctx, const struct mtr_ring_part *s)
{
	struct disk *d = ctx;

	if (d->open_err)
		return d->open_err;
	assert_int_equal(s->number, d->n + 1);
	assert_true(s->number < FILES);
	d->n++;
	d->fds[s->number] = memory_file();
	return d->fds[s->number];
}

/* A part that a killed program leaves here has all blocks of the parts before it. */
static int disk_ready(void *ctx, const struct mtr_ring_part *s)
{
	struct disk *d = ctx;
	struct mtr_reader *r = open_fd(d->fds[s->number], NULL);
	struct model *m;
	struct event e;

	assert_non_null(r);
	m = model__new(mtr_reader__dict(r), mtr_reader__facts(r), NULL);
	while (mtr_reader__next(r, &e) > 0)
		assert_int_equal(model__event(m, &e), 0);
	assert_true(s->number == 1 || model__devices(m) > 0);
	for (size_t i = 0; i < model__devices(m); i++) {
		struct model_device is;
		uint64_t allocated, reserved;

		model__device(m, i, &is);
		mtr_rolling__level(d->ring, is.device, &allocated, &reserved);
		assert_true(is.live == allocated && is.reserved == reserved);
	}
	model__free(m);
	mtr_reader__free(r);
	d->n_ready++;
	return 0;
}

static int disk_done(void *ctx, const struct mtr_ring_part *s, int err)
{
	struct disk *d = ctx;

	d->parts[s->number] = *s;
	check_disk(d);
	return err;
}

static int disk_drop(void *ctx, const struct mtr_ring_part *s, const struct mtr_ring_span *gap)
{
	struct disk *d = ctx;

	check_disk(d);
	assert_int_equal(s->number, d->n_dropped + 1); /* drops the oldest part first */
	close(d->fds[s->number]);
	d->fds[s->number] = 0;
	d->n_dropped++;
	d->dropped_events += s->span.events;
	d->gap = *gap;
	return d->drop_err;
}

static int feed(void *arg, const struct event *e)
{
	struct disk *d = arg;

	events__add(&d->all, e);
	return mtr_rolling__event(d->ring, e);
}

static struct disk *disk__new(uint64_t space)
{
	struct disk *d = calloc(1, sizeof(*d));
	struct mtr_ring_opts opts = { .space = space,
				      .part_bytes = PART,
				      .open = disk_open,
				      .ready = disk_ready,
				      .done = disk_done,
				      .drop = disk_drop,
				      .ctx = d };

	assert_non_null(d);
	d->dict = dict__new();
	d->facts = facts__new();
	assert_int_equal(facts__set(d->facts, "comm", "python"), 0);
	gen__init(&d->gen, d->dict, 7, feed, d);
	d->ring = mtr_rolling__new(d->dict, d->facts, &opts);
	assert_non_null(d->ring);
	return d;
}

static void disk__free(struct disk *d)
{
	mtr_rolling__free(d->ring);
	for (unsigned int i = 1; i <= d->n; i++)
		if (d->fds[i])
			close(d->fds[i]);
	events__free(&d->all);
	dict__free(d->dict);
	facts__free(d->facts);
	free(d);
}

static void check_rows(const struct model *a, const struct model *b, size_t device)
{
	const struct row_opts opts = { .by = BY_STACK, .when = ROWS_NOW };
	struct row *x, *y;
	size_t n, m;

	assert_int_equal(model__rows(a, device, &opts, &x, &n), 0);
	assert_int_equal(model__rows(b, device, &opts, &y, &m), 0);
	assert_true(n > 10);
	assert_int_equal(n, m);
	for (size_t i = 0; i < n; i++) {
		assert_true(x[i].bytes == y[i].bytes);
		assert_true(x[i].before_attach == y[i].before_attach);
	}
	/* Equal rows may be in another order because stacks have other numbers: compare sums
	 * per line. */
	for (size_t i = 0; i < n; i++) {
		uint64_t of_x = 0, of_y = 0;

		for (size_t k = 0; k < n; k++) {
			of_x += x[k].line == x[i].line && x[k].func && !strcmp(x[k].func, x[i].func)
					? x[k].bytes
					: 0;
			of_y += y[k].line == x[i].line && y[k].func && !strcmp(y[k].func, x[i].func)
					? y[k].bytes
					: 0;
		}
		assert_true(of_x == of_y && of_x);
	}
	free(x);
	free(y);
}

/* A part alone shows the same state at its end as the whole stream up to there. */
static void check_alone(const struct disk *d, unsigned int number)
{
	const struct mtr_ring_part *s = &d->parts[number];
	struct model *whole = model__new(d->dict, d->facts, NULL), *alone;
	struct mtr_reader *r = open_fd(d->fds[number], NULL);
	uint64_t until = 0;
	struct event e;

	assert_non_null(r);
	for (unsigned int i = 1; i <= number; i++)
		until += d->parts[i].span.events;
	for (uint64_t i = 0; i < until; i++)
		assert_int_equal(model__event(whole, &d->all.e[i]), 0);
	alone = model__new(mtr_reader__dict(r), mtr_reader__facts(r), NULL);
	while (mtr_reader__next(r, &e) > 0)
		assert_int_equal(model__event(alone, &e), 0);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	assert_int_equal(model__devices(alone), model__devices(whole));
	for (size_t i = 0; i < model__devices(whole); i++) {
		struct model_device a, w;

		model__device(alone, i, &a);
		model__device(whole, i, &w);
		assert_string_equal(a.name, w.name);
		assert_true(a.allocated == w.allocated && a.reserved == w.reserved &&
			    a.live == w.live);
		assert_int_equal(a.drift, 0);
		assert_true(a.live_blocks == w.live_blocks);
		assert_true(s->span.devices[i].device.type != a.device.type ||
			    s->span.devices[i].peak_allocated == a.peak_allocated);
		if (a.device.type == DEVICE_CUDA)
			check_rows(alone, whole, i);
	}
	/* Its dictionary has only entries that it refers to. */
	assert_true(dict__counts(mtr_reader__dict(r)).stacks <= dict__counts(d->dict).stacks);
	assert_string_equal(facts__get(mtr_reader__facts(r), "comm"), "python");
	assert_string_equal(facts__get(mtr_reader__facts(r), "stop_reason"), "segment");
	model__free(alone);
	model__free(whole);
	mtr_reader__free(r);
}

static void test_rolls(void **state)
{
	struct disk *d = disk__new(SPACE);
	uint64_t sum = 0, steps = 0;
	const struct mtr_ring_part *s;
	unsigned int first;

	while (d->n < 40)
		gen__step(&d->gen);
	assert_int_equal(d->gen.err, 0);
	assert_int_equal(mtr_rolling__finish(d->ring), 0);
	assert_int_equal(d->n_ready, d->n);
	check_disk(d);
	assert_true(d->most <= SPACE);
	assert_true(mtr_rolling__most_used(d->ring) <= SPACE &&
		    mtr_rolling__most_used(d->ring) >= d->most);
	assert_true(d->n_dropped > 10);
	for (uint32_t i = 0; (s = mtr_rolling__part(d->ring, i)); i++) {
		sum += s->span.events;
		assert_true(s->span.first_step == d->gap.steps + steps);
		steps += s->span.steps;
	}
	assert_true(sum + d->dropped_events == d->gen.events);
	assert_true(d->gap.events == d->dropped_events);
	assert_true(d->gap.from == d->all.e[0].time &&
		    d->gap.to == d->all.e[d->gap.events - 1].time);
	first = d->n_dropped + 1;
	check_alone(d, first);
	check_alone(d, d->n - 1);
	disk__free(d);
}

/* Totals of dropped parts equal those of their events. */
static void test_gap(void **state)
{
	struct disk *d = disk__new(SPACE);
	uint64_t allocs = 0, bytes = 0, peak = 0;

	while (d->n_dropped < 5)
		gen__step(&d->gen);
	for (uint64_t i = 0; i < d->gap.events; i++) {
		const struct event *e = &d->all.e[i];

		if (e->device.type != DEVICE_CUDA ||
		    (e->kind != EVENT_ALLOC && e->kind != EVENT_FREE))
			continue;
		allocs += e->kind == EVENT_ALLOC;
		bytes += e->kind == EVENT_ALLOC ? e->size : 0;
		peak = e->allocated > peak ? e->allocated : peak;
	}
	for (uint32_t i = 0; i < d->gap.n_devices; i++) {
		if (d->gap.devices[i].device.type != DEVICE_CUDA)
			continue;
		assert_true(d->gap.devices[i].allocs == allocs);
		assert_true(d->gap.devices[i].total_allocated == bytes);
		assert_true(d->gap.devices[i].peak_allocated == peak);
		allocs = 0;
	}
	assert_true(allocs == 0);
	disk__free(d);
}

/* Live blocks exceed the space: an error, and no write beyond the limit. */
static void test_too_small(void **state)
{
	struct disk *d = disk__new(2 * PART);
	struct event e = { .kind = EVENT_ALLOC, .device = { DEVICE_CPU, 0 }, .size = 64 };
	int err = 0;

	for (uint64_t i = 0; i < 1000000 && !err; i++) {
		e.addr = (i * UINT64_C(0x9e3779b97f4a7c15)) & ~UINT64_C(63);
		e.time += 1000;
		err = mtr_rolling__event(d->ring, &e);
	}
	assert_int_equal(err, -EFBIG);
	assert_int_equal(mtr_rolling__event(d->ring, &e), -EFBIG);
	assert_int_equal(mtr_rolling__flush(d->ring), -EFBIG);
	check_disk(d);
	assert_true(d->most <= 2 * PART);
	disk__free(d);
}

static void test_errors(void **state)
{
	struct event e = {
		.kind = EVENT_ALLOC, .device = { DEVICE_CPU, 0 }, .size = 64, .addr = 4096
	};
	struct event bad = { .kind = EVENT_KINDS };
	struct mtr_ring_opts opts = { .space = PART, .part_bytes = PART };
	struct disk *d = disk__new(SPACE);

	assert_null(mtr_rolling__new(d->dict, d->facts, &opts));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(mtr_rolling__event(d->ring, &bad), -EINVAL);
	d->open_err = -ENOSPC;
	assert_int_equal(mtr_rolling__event(d->ring, &e), -ENOSPC);
	d->open_err = 0;
	assert_int_equal(mtr_rolling__event(d->ring, &e), -ENOSPC); /* permanently */
	assert_int_equal(mtr_rolling__finish(d->ring), -ENOSPC);
	disk__free(d);
	d = disk__new(SPACE);
	d->drop_err = -EIO;
	while (!d->gen.err)
		gen__step(&d->gen);
	assert_int_equal(d->gen.err, -EIO);
	disk__free(d);
}

/* ---- totals ---- */

static json_t *totals_as_json(const struct totals *t, size_t *bytes)
{
	json_error_t at;
	char *text = NULL;
	FILE *out = open_memstream(&text, bytes);
	struct json *j = json__new(out, false);
	json_t *ret;

	json__open_object(j, NULL);
	totals__json(t, j);
	json__close_object(j);
	json__free(j);
	fclose(out);
	ret = json_loads(text, 0, &at);
	assert_non_null(ret);
	free(text);
	return ret;
}

static json_t *level_of(const json_t *doc, const char *of, size_t level)
{
	json_t *s;
	size_t i;

	json_array_foreach(json_object_get(doc, "series"), i, s)
		if (!strcmp(json_string_value(json_object_get(s, "of")), of))
			return json_array_get(json_object_get(s, "levels"), level);
	fail();
	return NULL;
}

static uint64_t at_row(const json_t *row, size_t column)
{
	return (uint64_t)json_integer_value(json_array_get(row, column));
}

/* Rows are in order, aligned to their interval, and the coarsest level is complete. */
static void check_levels(const json_t *doc, uint64_t allocs, uint64_t peak)
{
	for (size_t k = 0; k < 5; k++) {
		const json_t *level = level_of(doc, "cuda:0", k),
			     *rows = json_object_get(level, "rows"), *row;
		uint64_t step = (uint64_t)json_integer_value(json_object_get(level, "step")),
			 last = 0, sum = 0, max = 0;
		size_t i;

		json_array_foreach(rows, i, row) {
			assert_int_equal(at_row(row, 0) % step, 0);
			assert_true(!i || at_row(row, 0) > last);
			assert_true(at_row(row, 1) <= at_row(row, 3) &&
				    at_row(row, 3) <= at_row(row, 2));
			last = at_row(row, 0);
			sum += at_row(row, 7);
			max = at_row(row, 2) > max ? at_row(row, 2) : max;
		}
		assert_true(sum <= allocs && max <= peak);
		if (k == 4)
			assert_true(sum == allocs && max == peak);
	}
}

static void test_totals(void **state)
{
	static const uint64_t pauses[] = { SECOND / 7, 3 * SECOND, 700 * SECOND, 40000 * SECOND };
	struct event e = {
		.kind = EVENT_ALLOC, .device = { DEVICE_CUDA, 0 }, .totals = true, .size = 512
	};
	const uint64_t max = 256 << 10;
	struct totals *t = totals__new(max);
	uint64_t allocated = 0, peak = 0, n = 0, steps = 0;
	struct totals_whole whole;
	struct totals_device dev;
	size_t bytes;
	json_t *doc;

	for (size_t p = 0; p < sizeof(pauses) / sizeof(*pauses); p++) {
		for (int i = 0; i < 20000; i++) {
			e.time += pauses[p];
			e.size = 512 * (1 + (uint64_t)i % 9);
			allocated = i % 100 ? allocated + e.size : e.size;
			peak = allocated > peak ? allocated : peak;
			n++;
			assert_int_equal(totals__event(t, &e, allocated, 2 * allocated), 0);
			if (i % 1000 == 999) {
				assert_int_equal(totals__event(t,
							       &(struct event){ .kind = EVENT_STEP,
										.time = e.time },
							       0, 0),
						 0);
				steps++;
			}
			/* A slightly late thread's event belongs to the current step. */
			if (i % 5000 == 1) {
				e.time -= 900000;
				assert_int_equal(totals__event(t, &e, allocated, 2 * allocated), 0);
				e.time += 900000;
				n++;
			}
		}
		doc = totals_as_json(t, &bytes);
		assert_true(bytes <= max);
		check_levels(doc, n, peak);
		json_decref(doc);
	}
	totals__whole(t, &whole);
	assert_true(whole.events == n + steps && whole.steps == steps && whole.last == e.time);
	assert_true(totals__device(t, 0, &dev) && !totals__device(t, 1, &dev));
	assert_true(dev.allocs == n && dev.peak_allocated == peak &&
		    dev.peak_reserved == 2 * peak && dev.allocated == allocated);
	totals__free(t);
}

/* ---- numbers ---- */

static void test_renumber(void **state)
{
	struct world w = world__new();
	struct renumber *r;
	struct event e = { .kind = EVENT_ALLOC,
			   .stack = w.cut_stack,
			   .thread = w.thread,
			   .node = w.node,
			   .name = w.name,
			   .module = w.module };
	struct event own = e, other = {
		.stack = 99999, .thread = 99999, .node = 99999, .name = 99999, .module = 99999
	};
	const struct dict *to;

	for (int i = 0; i < 1000; i++)
		gen__str(w.d, "nobody speaks of %d", i);
	r = renumber__new(w.d);
	assert_non_null(r);
	to = renumber__dict(r);
	assert_int_equal(renumber__event(r, &own), 0);
	assert_int_equal(renumber__event(r, &e), 0); /* renumbering again keeps the numbers */
	assert_int_equal(own.stack, e.stack);
	assert_string_equal(dict__str(to, own.name), "fc.weight");
	assert_int_equal(dict__get_thread(to, own.thread).tid, 4242);
	assert_int_equal(dict__get_stack(to, own.stack).walk, MT_WALK_FAULT_FRAME);
	assert_int_equal(dict__get_stack(to, dict__get_node(to, own.node).stack).n, 2);
	assert_string_equal(dict__str(to, dict__get_module(to, own.module).name), "main");
	assert_true(dict__counts(to).strings < 10);
	assert_int_equal(renumber__event(r, &other), 0);
	assert_int_equal(other.stack + other.thread + other.node + other.name + other.module, 0);
	renumber__free(r);
	dict__free(w.d);
	facts__free(w.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rolls),	  cmocka_unit_test(test_gap),
		cmocka_unit_test(test_too_small), cmocka_unit_test(test_errors),
		cmocka_unit_test(test_totals),	  cmocka_unit_test(test_renumber),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
