/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For random event streams, the page's data of a moment equals that of a model evaluated at the
 * moment. The streams are the same in each run.
 */
#include "unit/export_world.h"

#include "export/page/html.h"

#define EVENTS 400
#define PLACES 48 /* addresses in use */
#define MOMENTS 60

struct any {
	uint64_t random;
	struct dict *d;
	struct facts *f;
	uint32_t stacks[4], thread, names[3], module;
	struct event all[EVENTS + 64];
	size_t n;
	uint64_t now;
	struct {
		uint64_t size[2 * PLACES]; /* 0: free; second half: before attach */
		uint64_t sum;
	} dev[2]; /* one device with totals, one without */
};

static uint32_t below(struct any *a, uint32_t n)
{
	a->random = a->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)((a->random >> 33) % n);
}

static void make_words(struct any *a)
{
	uint32_t root;

	a->d = dict__new();
	a->f = facts__new();
	assert_non_null(a->d);
	assert_non_null(a->f);
	root = dict__string(a->d, "Net", 3);
	a->module = dict__module(a->d, (struct dict_module){ .name = dict__string(a->d, "layer", 5),
							     .cls = dict__string(a->d, "Linear", 6),
							     .root = root });
	a->thread = dict__thread(
		a->d, (struct dict_thread){ .tid = 7, .name = dict__string(a->d, "python", 6) });
	for (uint32_t i = 0; i < 4; i++) {
		struct dict_frame f[2] = { 0 };

		f[0].loc = dict__loc(a->d,
				     (struct dict_loc){ .file = dict__string(a->d, "net.py", 6),
							.func = dict__string(a->d, "f", 1),
							.line = 10 + i });
		f[1].loc = dict__loc(
			a->d, (struct dict_loc){
				      .file = dict__string(
					      a->d, i == 3 ? "/x/torch/optim/adam.py" : "main.py",
					      i == 3 ? 22 : 7),
				      .func = 0,
				      .line = 5 });
		f[1].module = i == 1 || i == 2 ? a->module : 0;
		a->stacks[i] = i ? dict__stack(a->d, f, 2, 0) : 0;
	}
	for (uint32_t i = 0; i < 3; i++)
		a->names[i] = i ? dict__string(a->d, &"weightbias"[6 * (i - 1)], i == 1 ? 6 : 4)
				: 0;
}

static void put(struct any *a, struct event e)
{
	/* Timestamps of two threads are slightly out of order. */
	a->now += below(a, 3) ? below(a, 2000) : 0;
	e.time = below(a, 10) ? a->now : a->now - (a->now > 500 ? 500 : a->now);
	a->all[a->n++] = e;
}

static uint64_t addr_of(uint32_t place)
{
	return 0x7f0000000000 + place * UINT64_C(0x10000);
}

static void put_block_event(struct any *a, uint32_t dev, uint32_t place, bool missed)
{
	uint64_t *size = &a->dev[dev].size[place];
	struct event e = { .device.type = dev ? DEVICE_CPU : DEVICE_CUDA,
			   .addr = addr_of(place),
			   .thread = a->thread,
			   .totals = !dev };

	if (*size) {
		e.kind = EVENT_FREE;
		e.size = dev ? 0 : *size;
		a->dev[dev].sum -= *size;
		*size = 0;
	} else {
		e.kind = EVENT_ALLOC;
		e.size = 512 * (1 + below(a, 5));
		e.stack = a->stacks[below(a, 4)];
		*size = e.size;
		a->dev[dev].sum += *size;
	}
	e.allocated = dev ? 0 : a->dev[dev].sum;
	e.reserved = dev ? 0 : (a->dev[dev].sum / 65536 + 1) * 65536;
	if (!missed)
		put(a, e);
}

/* A census: names new blocks, blocks from before, and freed ones. */
static void put_census(struct any *a, bool first)
{
	for (uint32_t i = 0; i < 12; i++) {
		uint32_t dev = below(a, 2), place = below(a, 2 * PLACES);
		uint64_t size = a->dev[dev].size[place];

		if (!size)
			continue;
		put(a,
		    (struct event){ .kind = EVENT_TENSOR,
				    .device.type = dev ? DEVICE_CPU : DEVICE_CUDA,
				    .addr = addr_of(place),
				    .size = first && place >= PLACES ? size : size - below(a, 100),
				    .flags = first ? CENSUS_FIRST : 0,
				    .category = below(a, 4),
				    .name = a->names[below(a, 3)],
				    .module = below(a, 2) ? a->module : 0 });
	}
	for (uint32_t dev = 0; dev < 2; dev++)
		put(a, (struct event){ .kind = EVENT_CENSUS,
				       .device.type = dev ? DEVICE_CPU : DEVICE_CUDA,
				       .flags = first ? CENSUS_FIRST : 0 });
}

static void make(struct any *a, uint64_t seed, bool losses)
{
	memset(a, 0, sizeof(*a));
	a->random = seed;
	make_words(a);
	for (uint32_t dev = 0; dev < 2; dev++)
		for (uint32_t i = PLACES; i < 2 * PLACES; i++) {
			a->dev[dev].size[i] = below(a, 2) ? 512 * (1 + below(a, 9)) : 0;
			a->dev[dev].sum += a->dev[dev].size[i];
		}
	while (a->n < EVENTS) {
		uint32_t what = below(a, 60), dev = below(a, 4) == 0;

		if (what == 0)
			put(a, (struct event){ .kind = EVENT_STEP, .thread = a->thread });
		else if (what == 1 && a->n > 20)
			put_census(a, a->n < EVENTS / 2);
		else if (what == 2)
			put(a, (struct event){ .kind = EVENT_OOM,
					       .device.type = DEVICE_CUDA,
					       .size = 1 << 30,
					       .totals = true,
					       .allocated = a->dev[0].sum,
					       .reserved = 1 << 20 });
		else if (what == 3 && losses) {
			put(a, (struct event){ .kind = EVENT_LOST, .size = 2 });
			put_block_event(a, dev, below(a, PLACES), true);
			put_block_event(a, dev, below(a, PLACES), true);
		} else if (a->n > 30 || dev == 0)
			put_block_event(a, dev,
					below(a, 8) ? below(a, PLACES) : PLACES + below(a, PLACES),
					false);
	}
}

/* Bytes by category, and without one. */
struct sums {
	uint64_t bytes[CATEGORY_NR], lines[16], unknown, allocated, reserved;
};

static int category_number(const char *name)
{
	for (int i = 0; i < CATEGORY_NR; i++)
		if (!strcmp(name, category__name(i)))
			return i;
	fail();
	return 0;
}

static void ask_model(struct any *a, enum moment at, uint64_t time, const char *device,
		      struct sums *ret)
{
	struct model_opts opts = { .at = at, .at_time = time };
	struct model *m = model__new(a->d, a->f, &opts);
	struct model_device info;
	struct row *rows;
	size_t n;
	int i;

	assert_non_null(m);
	for (size_t k = 0; k < a->n; k++)
		assert_int_equal(model__event(m, &a->all[k]), 0);
	model__finish(m, a->now);
	memset(ret, 0, sizeof(*ret));
	i = model__find_device(m, device);
	assert_true(i >= 0);
	model__device(m, i, &info);
	ret->allocated = info.mark_allocated;
	ret->reserved = info.mark_reserved;
	assert_int_equal(model__rows(m, i,
				     &(struct row_opts){ .by = BY_CATEGORY, .when = ROWS_AT_MARK },
				     &rows, &n),
			 0);
	for (size_t k = 0; k < n; k++) {
		ret->bytes[category_number(rows[k].category)] += rows[k].bytes - rows[k].anonymous;
		ret->unknown += rows[k].anonymous;
	}
	free(rows);
	assert_int_equal(model__rows(m, i,
				     &(struct row_opts){ .by = BY_LINE, .when = ROWS_AT_MARK },
				     &rows, &n),
			 0);
	for (size_t k = 0; k < n; k++)
		ret->lines[rows[k].before_attach ? 15 : rows[k].line % 15] += rows[k].bytes -
									      rows[k].anonymous;
	free(rows);
	model__free(m);
}

static void ask_page(const struct page_data *p, const struct page_device *d, int64_t moment,
		     struct sums *ret)
{
	struct model_now first;
	int64_t unknown, allocated;

	memset(ret, 0, sizeof(*ret));
	model__first(p->c->model, d->number, &first);
	unknown = moment < 0 ? (int64_t)first.unknown : d->moments[moment].unknown;
	allocated = moment < 0 ? (int64_t)first.allocated : d->moments[moment].allocated;
	unknown += (int64_t)d->last.late - (int64_t)d->last.known;
	ret->unknown = unknown > 0 ? unknown : 0;
	ret->allocated = html_moments__allocated(d, allocated);
	ret->reserved = moment < 0 ? first.reserved : d->moments[moment].reserved;
	for (size_t i = 0; i < d->nblocks; i++) {
		const struct page_block *b = &d->blocks[i];
		struct row row;
		uint64_t size = model__block_class(p->c->model, b->block_class, &row);

		if (b->born_no > moment + 1 || (b->gone_no && b->gone_no <= moment + 1))
			continue;
		ret->bytes[category_number(row.category)] += size;
		ret->lines[row.before_attach ? 15 : row.line % 15] += size;
	}
}

static void compare_at(struct any *a, const struct page_data *p, const struct page_device *d,
		       int64_t moment, enum moment at, uint64_t time)
{
	const char *name = d->number == model__number_of(p->c->model,
							 (struct device){ .type = DEVICE_CPU })
				   ? "cpu"
				   : "cuda:0";
	struct sums want, got;

	ask_model(a, at, time, name, &want);
	ask_page(p, d, moment, &got);
	if (memcmp(&want, &got, sizeof(want))) {
		print_error("%s, moment %lld at %llu: allocated %llu, %llu; reserved %llu, %llu; "
			    "unknown %llu, %llu\n",
			    name, (long long)moment, (unsigned long long)time,
			    (unsigned long long)want.allocated, (unsigned long long)got.allocated,
			    (unsigned long long)want.reserved, (unsigned long long)got.reserved,
			    (unsigned long long)want.unknown, (unsigned long long)got.unknown);
		for (int i = 0; i < CATEGORY_NR; i++)
			print_error("  %s %llu, %llu\n", category__name(i),
				    (unsigned long long)want.bytes[i],
				    (unsigned long long)got.bytes[i]);
	}
	assert_memory_equal(&want, &got, sizeof(want));
}

/* Counts of rare cases over all streams. */
static struct {
	uint64_t known, late, unknown, drift, overwritten, labels;
} odd;

static void note_odd(const struct page_data *p, const struct page_device *d)
{
	struct model_device info;

	odd.known += d->last.known;
	odd.late += d->last.late;
	odd.unknown += d->last.unknown;
	for (size_t i = 0; i < d->nblocks; i++) {
		struct row row;

		model__block_class(p->c->model, d->blocks[i].block_class, &row);
		odd.labels += row.name != NULL;
	}
	for (size_t i = 0; i < model__devices(p->c->model); i++) {
		model__device(p->c->model, i, &info);
		odd.drift += info.drift_events;
		odd.overwritten += info.overwritten;
	}
}

static void run(uint64_t seed, bool losses)
{
	struct any *a = malloc(sizeof(*a));
	struct world w = { 0 };
	const struct page_data *p;

	assert_non_null(a);
	make(a, seed, losses);
	w.sink.event = on_event;
	w.opts.at = AT_PEAK;
	w.d = a->d;
	w.f = a->f;
	w.m = model__new(w.d, w.f, &w.opts);
	w.format = export__find("html");
	assert_non_null(w.m);
	w.ctx = (struct export_ctx){ .out = open_memstream(&w.text, &w.size),
				     .dict = w.d,
				     .facts = w.f,
				     .model = w.m,
				     .device = -1,
				     .name = "any",
				     .moment = "peak" };
	assert_int_equal(w.format->begin(&w.ctx, &w.state), 0);
	for (size_t i = 0; i < a->n; i++)
		assert_int_equal(w.sink.event(&w.sink, &a->all[i]), 0);
	model__finish(w.m, a->now);
	w.ctx.duration = a->now;
	assert_int_equal(html_moments__end(w.state), 0);
	p = w.state;
	assert_int_equal(p->n, 2);
	for (size_t i = 0; i < p->n; i++) {
		const struct page_device *d = &p->devices[i];

		for (int k = 0; k < MOMENTS; k++) {
			uint64_t time = below(a, (uint32_t)a->now);
			int64_t moment = -1;

			while (moment + 1 < (int64_t)d->n && d->moments[moment + 1].time <= time)
				moment++;
			compare_at(a, p, d, moment, AT_TIME, time);
		}
		compare_at(a, p, d, html_moments__of(d, d->last.peak_seq), AT_PEAK, 0);
		compare_at(a, p, d, (int64_t)d->n - 1, AT_END, 0);
		note_odd(p, d);
	}
	world__close(&w);
	free(a);
}

static void test_whole(void **state)
{
	memset(&odd, 0, sizeof(odd));
	for (uint64_t seed = 1; seed <= 30; seed++)
		run(seed, false);
	assert_true(odd.known && odd.late && odd.unknown && odd.labels);
	assert_int_equal(odd.drift + odd.overwritten, 0);
}

static void test_with_losses(void **state)
{
	memset(&odd, 0, sizeof(odd));
	for (uint64_t seed = 101; seed <= 130; seed++)
		run(seed, true);
	assert_true(odd.known && odd.late && odd.unknown && odd.labels && odd.drift &&
		    odd.overwritten);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_with_losses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
