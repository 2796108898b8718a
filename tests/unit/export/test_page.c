/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The data that export html puts into a page: moments, blocks, and their limits. */
#include "unit/export_world.h"

#include <errno.h>
#include <zlib.h>

#include "export/page/html.h"
#include "record/varint.h"

/* The format's state is struct page_data. */
static struct page_data *open_page(struct world *w)
{
	world__open(w, "html", AT_PEAK, "peak");
	return w->state;
}

/* Finishes the model without writing the document. */
static void finish(struct world *w)
{
	model__finish(w->m, w->last);
	w->ctx.duration = w->last;
	assert_int_equal(html_moments__end(w->state), 0);
}

/* Live blocks of each block class after a moment; the caller frees the array. */
static uint64_t *live(const struct page_data *p, const struct page_device *d, int64_t moment)
{
	uint64_t *n = calloc(model__block_classes(p->c->model) + 1, sizeof(*n));

	assert_non_null(n);
	for (size_t i = 0; i < d->nblocks; i++)
		n[d->blocks[i].block_class] += d->blocks[i].born_no <= moment + 1 &&
					       (!d->blocks[i].gone_no ||
						d->blocks[i].gone_no > moment + 1);
	return n;
}

/* Blocks of each block class allocated after the first event; the caller frees the array. */
static uint64_t *came(const struct page_data *p, const struct page_device *d)
{
	uint64_t *n = calloc(model__block_classes(p->c->model) + 1, sizeof(*n));

	assert_non_null(n);
	for (size_t i = 0; i < d->nblocks; i++)
		n[d->blocks[i].block_class] += d->blocks[i].born_no > 0;
	for (size_t i = 0; i < d->n_brief; i++)
		n[d->brief[i].block_class] += d->brief[i].n;
	return n;
}

static void compare_moments(const struct page_data *every, const struct page_device *e,
			    const struct page_data *some, const struct page_device *s)
{
	int64_t last = -1, at;
	uint64_t *a, *b;

	for (size_t i = 0; i < s->n; i++, last = at) {
		const struct page_moment *m = &s->moments[i], *of;

		at = html_moments__of(e, m->seq);
		assert_true(at > last);
		of = &e->moments[at];
		assert_int_equal(of->seq, m->seq);
		assert_int_equal(of->time, m->time);
		assert_int_equal(of->allocated, m->allocated);
		assert_int_equal(of->unknown, m->unknown);
		assert_int_equal(of->reserved, m->reserved);
		a = live(every, e, at);
		b = live(some, s, i);
		assert_memory_equal(a, b, model__block_classes(every->c->model) * sizeof(*a));
		free(a);
		free(b);
	}
	a = came(every, e);
	b = came(some, s);
	assert_memory_equal(a, b, model__block_classes(every->c->model) * sizeof(*a));
	free(a);
	free(b);
}

/* The minimum and maximum of each time span are its events'. */
static void compare_curve(const struct page_device *e, const struct page_device *s)
{
	size_t at = 0;

	assert_true(s->curve.n > 100 && s->curve.n <= 8192);
	for (size_t i = 0; i < s->curve.n; i++) {
		const struct curve_part *c = &s->curve.parts[i];
		int64_t min = INT64_MAX, max = INT64_MIN;
		size_t begun = at;

		for (; at < e->n && e->moments[at].time / s->curve.width == c->number; at++) {
			min = e->moments[at].allocated < min ? e->moments[at].allocated : min;
			max = e->moments[at].allocated > max ? e->moments[at].allocated : max;
		}
		assert_true(at > begun);
		assert_int_equal(c->min, min);
		assert_int_equal(c->max, max);
		assert_int_equal(c->last, e->moments[at - 1].allocated);
		assert_int_equal(c->reserved, e->moments[at - 1].reserved);
	}
	assert_int_equal(at, e->n);
}

static void test_chosen_moments_are_exact(void **state)
{
	struct synthetic_opts opts = { .layers = 2, .steps = 120, .cpu = true, .oom = true };
	struct world every, some;
	struct page_data *e = open_page(&every), *s = open_page(&some);
	uint64_t last = 0;

	s->limits = s->next_limits = (struct limits){ .moments = 300,
						      .blocks = 20000,
						      .brief = 50000 };
	world__run(&every, opts);
	finish(&every);
	world__run(&some, opts);
	finish(&some);
	assert_false(e->thinned);
	assert_true(s->thinned);
	assert_int_equal(model__block_classes(every.m), model__block_classes(some.m));
	assert_int_equal(e->n, s->n);
	for (size_t i = 0; i < e->n; i++)
		compare_curve(&e->devices[i], &s->devices[i]);
	for (int round = 0; round < 6; round++) {
		for (size_t i = 0; i < e->n; i++) {
			assert_true(s->devices[i].n < e->devices[i].n || e->devices[i].n < 400);
			compare_moments(e, &e->devices[i], s, &s->devices[i]);
		}
		assert_int_equal(html_moments__thin(s), 0);
		assert_true(s->bucket > last);
		last = s->bucket;
	}
	world__close(&every);
	world__close(&some);
}

/* Blocks stay near the limit while moments can be dropped. */
static void test_limits(void **state)
{
	struct synthetic_opts opts = { .layers = 4, .steps = 300, .cpu = true };
	struct world w;
	struct page_data *p = open_page(&w);
	size_t blocks = 0, moments = 0;

	p->limits = p->next_limits = (struct limits){ .moments = 3000,
						      .blocks = 3000,
						      .brief = 6000 };
	world__run(&w, opts);
	finish(&w);
	for (size_t i = 0; i < p->n; i++) {
		blocks += p->devices[i].nblocks;
		moments += p->devices[i].n;
		assert_true(p->devices[i].n_brief <= 6000);
	}
	assert_true(p->thinned);
	assert_true(blocks <= 3000 + 200 && blocks > 1000);
	assert_true(moments > 50);
	world__close(&w);
}

/* The important moments stay, however few there are. */
static void test_kept_moments(void **state)
{
	struct synthetic_opts opts = { .layers = 2, .steps = 12, .cpu = true, .oom = true };
	struct world w;
	struct page_data *p = open_page(&w);
	struct page_device *d;
	size_t ooms = 0, steps = 0;
	int err;

	world__run(&w, opts);
	finish(&w);
	while (!(err = html_moments__thin(p)))
		;
	assert_int_equal(err, -EFBIG);
	d = &p->devices[0];
	assert_true(d->n > 12 && d->n < 40);
	assert_int_equal(d->moments[html_moments__of(d, d->last.peak_seq)].seq, d->last.peak_seq);
	for (size_t i = 0; i < d->n; i++) {
		ooms += !!(d->moments[i].keep & KEEP_OOM);
		steps += !!(d->moments[i].keep & KEEP_STEP);
	}
	assert_int_equal(ooms, 1);
	assert_int_equal(steps, 12);
	world__close(&w);
}

static const struct device cuda = { .type = DEVICE_CUDA };

/* A census finds two tensors from before attach, then one is freed. */
static void test_learnt_late(void **state)
{
	struct world w;
	struct page_data *p = open_page(&w);
	struct event tensor = { .kind = EVENT_TENSOR,
				.device = cuda,
				.flags = CENSUS_FIRST,
				.category = CATEGORY_PARAMETER };
	struct page_device *d;
	struct row row;

	send(&w, (struct event){ .kind = EVENT_ALLOC,
				 .device = cuda,
				 .addr = 0x1000,
				 .size = 1000,
				 .totals = true,
				 .allocated = 9000,
				 .reserved = 20000 });
	tensor.addr = 0x100000;
	tensor.size = 3000;
	send(&w, tensor);
	tensor.addr = 0x200000;
	tensor.size = 700;
	tensor.device.type = DEVICE_CPU;
	send(&w, (struct event){ .kind = EVENT_ALLOC, .addr = 0x9000, .size = 50 });
	send(&w, tensor);
	send(&w, (struct event){ .kind = EVENT_FREE,
				 .device = cuda,
				 .addr = 0x100000,
				 .size = 3000,
				 .totals = true,
				 .allocated = 6000,
				 .reserved = 20000 });
	send(&w, (struct event){ .kind = EVENT_FREE, .addr = 0x200000 });
	finish(&w);

	assert_int_equal(p->n, 2);
	d = &p->devices[0];
	assert_int_equal(d->n, 2);
	assert_int_equal(html_moments__allocated(d, d->moments[0].allocated), 9000);
	/* 3000 of the 8000 bytes from before attach become known after this moment. */
	assert_int_equal(d->moments[0].unknown, 8000);
	assert_int_equal(d->last.known, 3000);
	assert_int_equal(d->moments[1].unknown - (int64_t)d->last.known, 5000);
	assert_int_equal(d->nblocks, 2);
	assert_int_equal(d->blocks[0].born_no, 0);
	assert_int_equal(d->blocks[0].gone_no, 2);
	assert_int_equal(model__block_class(w.m, d->blocks[0].block_class, &row), 3000);
	assert_string_equal(row.category, "parameter");
	assert_true(row.before_attach);
	assert_int_equal(d->blocks[1].born_no, 1);
	assert_int_equal(d->blocks[1].gone_no, GONE_NEVER);

	d = &p->devices[1];
	assert_int_equal(d->last.late, 700);
	assert_int_equal(html_moments__allocated(d, d->moments[0].allocated), 750);
	assert_int_equal(html_moments__allocated(d, d->moments[d->n - 1].allocated), 50);
	assert_int_equal(d->blocks[0].born_no, 0);
	assert_int_equal(d->blocks[0].gone_no, d->n);
	world__close(&w);
}

/* A missed free: another block is at the address now. */
static void test_overwritten(void **state)
{
	struct world w;
	struct page_data *p = open_page(&w);
	const struct page_device *d;

	send(&w, alloc_of(0, 0, 0x1000, 64));
	send(&w, alloc_of(0, 0, 0x1000, 96));
	finish(&w);
	d = &p->devices[0];
	assert_int_equal(d->nblocks, 2);
	assert_int_equal(d->blocks[0].born_no, 1);
	assert_int_equal(d->blocks[0].gone_no, 2);
	assert_int_equal(d->blocks[1].born_no, 2);
	assert_int_equal(d->blocks[1].gone_no, GONE_NEVER);
	assert_int_equal(d->moments[1].allocated, 96);
	world__close(&w);
}

static void test_segments(void **state)
{
	struct world w;
	struct page_data *p = open_page(&w);
	struct event take = { .kind = EVENT_CUDA_ALLOC,
			      .how = MEM_DEVICE,
			      .flags = MEM_BY_ALLOCATOR,
			      .device = cuda,
			      .addr = 0x1000000,
			      .size = 2 << 20 };
	const struct page_device *d;

	send(&w, take);
	send(&w, (struct event){ .kind = EVENT_ALLOC,
				 .device = cuda,
				 .addr = 0x1000000,
				 .size = 512,
				 .totals = true,
				 .allocated = 512,
				 .reserved = 2 << 20 });
	/* A repeated record: the same segment. */
	take.kind = EVENT_SEGMENT;
	take.how = 0;
	take.flags = SEGMENT_SMALL;
	send(&w, take);
	send(&w, (struct event){ .kind = EVENT_STATE,
				 .device = cuda,
				 .totals = true,
				 .allocated = 512,
				 .reserved = 2 << 20,
				 .flags = STATE_EXACT });
	send(&w, (struct event){ .kind = EVENT_FREE,
				 .device = cuda,
				 .addr = 0x1000000,
				 .size = 512,
				 .totals = true,
				 .reserved = 2 << 20 });
	send(&w, (struct event){ .kind = EVENT_CUDA_FREE,
				 .how = MEM_DEVICE,
				 .flags = MEM_BY_ALLOCATOR,
				 .device = cuda,
				 .addr = 0x1000000 });
	finish(&w);
	d = &p->devices[0];
	/* A reading with a stream and a pool starts a new segment entry. */
	assert_int_equal(d->nsegments, 2);
	assert_false(d->segments[0].x.listed);
	assert_true(d->segments[1].x.listed);
	assert_int_equal(d->segments[0].gone_no, d->segments[1].born_no);
	assert_int_equal(d->segments[1].gone_no, d->n);
	assert_int_equal(d->moments[d->n - 1].reserved, 0);
	world__close(&w);
}

/* Thousands of short-lived segments are not kept one by one. */
static void test_many_segments(void **state)
{
	struct event take = { .kind = EVENT_CUDA_ALLOC,
			      .how = MEM_DEVICE,
			      .flags = MEM_BY_ALLOCATOR,
			      .device = cuda,
			      .size = 2 << 20 };
	struct world w;
	struct page_data *p = open_page(&w);
	uint32_t seen = 0;

	p->limits = p->next_limits = (struct limits){
		.moments = 100000, .blocks = 1000, .brief = 1000, .payload = SIZE_MAX
	};
	send(&w, (struct event){ .kind = EVENT_ALLOC,
				 .device = cuda,
				 .addr = 512,
				 .size = 512,
				 .totals = true,
				 .allocated = 512 });
	for (uint64_t i = 1; i <= 10000; i++) {
		take.kind = EVENT_CUDA_ALLOC;
		take.addr = i << 24;
		send(&w, take);
		if (i % 100 == 0) /* every 100th segment stays */
			continue;
		take.kind = EVENT_CUDA_FREE;
		send(&w, take);
		assert_true(p->devices[0].nsegments <= 1000 + 200);
	}
	finish(&w);
	for (size_t i = 0; i < p->devices[0].nsegments; i++)
		seen += p->devices[0].segments[i].x.there && !p->devices[0].segments[i].gone_no;
	assert_int_equal(seen, 100);
	assert_int_equal(p->devices[0].moments[p->devices[0].n - 1].reserved, 200 << 20);
	world__close(&w);
}

/* --- bytes */

static char *base64(const char *s)
{
	struct bytes b = { .p = (uint8_t *)(uintptr_t)s, .n = strlen(s) };
	char *text;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	html_payload__base64(f, &b);
	fclose(f);
	return text;
}

static void test_base64(void **state)
{
	static const char *const pairs[][2] = { { "f", "Zg==" },
						{ "fo", "Zm8=" },
						{ "foo", "Zm9v" },
						{ "foob", "Zm9vYg==" },
						{ "\xff\xfe\xfd", "//79" } };
	char lots[10000], *text;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		text = base64(pairs[i][0]);
		assert_string_equal(text, pairs[i][1]);
		free(text);
	}
	memset(lots, 'a', sizeof(lots) - 1);
	lots[sizeof(lots) - 1] = '\0';
	text = base64(lots);
	assert_int_equal(strlen(text), (sizeof(lots) - 1) / 3 * 4);
	assert_int_equal(strspn(text, "YWFh"), strlen(text));
	free(text);
}

static uint8_t *unzip(const struct bytes *b, size_t room, size_t *n)
{
	uint8_t *p = malloc(room);
	z_stream z = { .next_in = b->p, .avail_in = b->n, .next_out = p, .avail_out = room };

	assert_non_null(p);
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	*n = room - z.avail_out;
	inflateEnd(&z);
	return p;
}

/* A column of the directory by name; malloc'd. */
static uint64_t *read_column(const uint8_t *payload, size_t size, const char *name, size_t *n)
{
	uint32_t length = payload[0] | payload[1] << 8 | payload[2] << 16 |
			  (uint32_t)payload[3] << 24;
	json_t *directory = parse((const char *)payload + 4, length), *column;
	const uint8_t *p = payload + 4 + length, *end = payload + size;
	uint64_t *ret = NULL;
	size_t i;

	json_array_foreach(json_object_get(directory, "columns"), i, column) {
		const uint8_t *next = p + json_integer_value(json_array_get(column, 1));

		assert_true(next <= end);
		if (!strcmp(json_string_value(json_array_get(column, 0)), name)) {
			*n = json_integer_value(json_array_get(column, 2));
			ret = calloc(*n + 1, sizeof(*ret));
			assert_non_null(ret);
			for (size_t k = 0; k < *n; k++)
				assert_true(varint__get(&p, next, &ret[k]));
			assert_ptr_equal(p, next);
		}
		p = next;
	}
	assert_ptr_equal(p, end);
	json_decref(directory);
	assert_non_null(ret);
	return ret;
}

static void test_columns(void **state)
{
	struct world w;
	struct page_data *p = open_page(&w);
	const struct page_device *d;
	struct bytes b = { 0 };
	uint64_t *a, sum = 0;
	uint8_t *payload;
	size_t size, n;

	world__run(&w, small);
	finish(&w);
	assert_int_equal(html_payload__make(p, &b), 0);
	payload = unzip(&b, 16 << 20, &size);
	d = &p->devices[0];
	a = read_column(payload, size, "0.time", &n);
	assert_int_equal(n, d->n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(sum += a[i], d->moments[i].time);
	free(a);
	a = read_column(payload, size, "0.life", &n);
	assert_int_equal(n, d->nblocks);
	free(a);
	a = read_column(payload, size, "kin.size", &n);
	assert_int_equal(n, model__block_classes(w.m));
	free(a);
	a = read_column(payload, size, "0.rest.at", &n);
	assert_int_equal(n, 0); /* the recording has no losses */
	free(a);
	free(payload);
	bytes__free(&b);
	world__close(&w);
}

/* Blocks with random lifetimes, which gzip cannot compress. */
static void send_many(struct world *w, int n)
{
	struct event e = { .device = cuda, .totals = true, .reserved = 1 << 30 };
	uint64_t random = 1, time = 0;

	for (int i = 0; i < n; i++) {
		random = random * UINT64_C(6364136223846793005) + 1;
		e.kind = i % 2 ? EVENT_FREE : EVENT_ALLOC;
		e.addr = i % 2 ? e.addr : 0x1000000 + (random >> 40) * 512;
		e.size = 512;
		e.allocated = i % 2 ? 0 : 512;
		e.time = time += random >> 48;
		assert_int_equal(w->sink.event(&w->sink, &e), 0);
	}
}

/* If space is short, addresses are dropped, then moments; other data that does not fit is an
 * error. */
static void test_room(void **state)
{
	struct event take = { .kind = EVENT_CUDA_ALLOC,
			      .how = MEM_DEVICE,
			      .flags = MEM_BY_ALLOCATOR,
			      .device = cuda,
			      .addr = 0x1000000,
			      .size = 2 << 20 };
	size_t room[] = { SIZE_MAX, 0, 0, 1 }, n[4];
	struct world w;

	for (int i = 0; i < 4; i++) {
		struct page_data *p = open_page(&w);
		struct bytes b = { 0 };

		p->limits.payload = room[i];
		assert_int_equal(w.sink.event(&w.sink, &take), 0);
		send_many(&w, 80000);
		assert_int_equal(world__end(&w), i == 3 ? -EFBIG : 0);
		assert_int_equal(p->no_addresses, i > 0);
		assert_int_equal(p->thinned, i > 1);
		n[i] = p->devices[0].n;
		if (i < 2) { /* the next one has slightly too little space */
			assert_int_equal(html_payload__make(p, &b), 0);
			room[i + 1] = b.n - 1;
			bytes__free(&b);
		}
		world__close(&w);
	}
	assert_int_equal(n[0], 80000);
	assert_int_equal(n[1], 80000);
	assert_true(n[2] > 500 && n[2] < 8192);
	assert_true(n[3] < 10);
}

/* The first picture is small for any recording, and text from the target cannot end its HTML
 * element. */
static void test_head(void **state)
{
	struct world w;
	const char *begin, *end;
	json_t *head, *device;
	size_t i;

	open_page(&w);
	world__run(&w, (struct synthetic_opts){ .layers = 4, .steps = 200, .cpu = true });
	facts__set(w.f, "cmdline", "[\"</script><!--<script>\"]");
	assert_int_equal(world__end(&w), 0);
	begin = strstr(w.text, "id=\"head\">");
	assert_non_null(begin);
	begin += strlen("id=\"head\">");
	end = strstr(begin, "</script>");
	assert_non_null(end);
	assert_true(end - begin < 300000);
	assert_null(memmem(begin, end - begin, "<!--", 4));
	head = parse(begin, end - begin);
	assert_string_equal(
		json_string_value(json_array_get(
			json_object_get(json_object_get(head, "target"), "cmdline"), 0)),
		"</script><!--<script>");
	assert_string_equal(json_string_value(json_object_get(head, "moments")), "every");
	assert_int_equal(json_array_size(json_object_get(head, "devices")), 2);
	assert_int_equal(json_array_size(json_object_get(head, "steps")), 200);
	assert_true(json_array_size(json_object_get(head, "phases")) > 100);
	json_array_foreach(json_object_get(head, "devices"), i, device) {
		json_t *series = json_object_get(device, "series");
		size_t n = json_array_size(json_object_get(series, "t"));

		assert_true(n > 400 && n <= 1600);
		assert_int_equal(json_array_size(json_object_get(series, "allocated_min")), n);
		assert_int_equal(json_array_size(json_object_get(series, "reserved_max")), n);
	}
	json_decref(head);
	world__close(&w);
}

/* The page has the last 4096 steps, and knows the number of the first of them. */
static void test_many_steps(void **state)
{
	const char *begin;
	struct world w;
	json_t *head;

	open_page(&w);
	world__run(&w, (struct synthetic_opts){ .layers = 1, .steps = 4200, .steady = true });
	assert_int_equal(world__end(&w), 0);
	begin = strstr(w.text, "id=\"head\">");
	assert_non_null(begin);
	begin += strlen("id=\"head\">");
	head = parse(begin, strstr(begin, "</script>") - begin);
	assert_int_equal(json_array_size(json_object_get(head, "steps")), 4096);
	assert_int_equal(json_integer_value(json_object_get(head, "first_step")), 104);
	json_decref(head);
	world__close(&w);
}

/* The moment of a scope is that of an event. Others may have the same time. */
static void test_moment_of_event(void **state)
{
	struct world w = { .opts = { .at_time = 5, .at_event = 2 } };
	struct page_data *p;
	const char *begin;
	json_t *head, *device;

	world__prepare(&w, "html", AT_TIME, "scope");
	p = w.state;
	for (uint64_t i = 0; i < 4; i++)
		send(&w, (struct event){ .kind = EVENT_ALLOC,
					 .device = cuda,
					 .time = 5,
					 .addr = 0x1000 * (i + 1),
					 .size = 512 });
	assert_int_equal(world__end(&w), 0);
	begin = strstr(w.text, "id=\"head\">");
	assert_non_null(begin);
	begin += strlen("id=\"head\">");
	head = parse(begin, strstr(begin, "</script>") - begin);
	device = json_array_get(json_object_get(head, "devices"), 0);
	assert_int_equal(json_integer_value(json_object_get(device, "at_moment")), 1);
	assert_int_equal(p->devices[0].n, 4);
	assert_int_equal(p->devices[0].moments[1].seq, 2);
	assert_int_equal(p->devices[0].moments[1].keep & KEEP_ASKED, KEEP_ASKED);
	json_decref(head);
	world__close(&w);
}

static void test_nothing_to_show(void **state)
{
	struct world w;

	open_page(&w);
	assert_int_equal(world__end(&w), -ENODATA);
	world__close(&w);
	world__open(&w, "html", AT_OOM, "oom");
	world__run(&w, small);
	assert_int_equal(world__end(&w), -ENOENT);
	world__close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chosen_moments_are_exact),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_kept_moments),
		cmocka_unit_test(test_learnt_late),
		cmocka_unit_test(test_overwritten),
		cmocka_unit_test(test_segments),
		cmocka_unit_test(test_many_segments),
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_many_steps),
		cmocka_unit_test(test_moment_of_event),
		cmocka_unit_test(test_nothing_to_show),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
