/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The content of perfetto and pprof files: spans nest, peaks are kept, sums are the model's. */
#include "unit/export_world.h"

#include <errno.h>
#include <zlib.h>

#include "base/text.h"
#include "export/formats/perfetto.h"
#include "unit/pb_reader.h"

/* --- perfetto */

static const char *str(json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key)) ?: "";
}

/* Checks that each thread's spans nest in order of time. Returns the number of spans. */
static size_t check_spans(json_t *events)
{
	struct {
		json_int_t tid;
		const char *open[64];
		size_t n;
		double last;
	} threads[8] = { 0 };
	size_t spans = 0, i;
	json_t *e;

	json_array_foreach(events, i, e) {
		bool begin = !strcmp(str(e, "ph"), "B");
		double ts = json_number_value(json_object_get(e, "ts"));
		json_int_t tid = json_integer_value(json_object_get(e, "tid"));
		size_t t = 0;

		if (!begin && strcmp(str(e, "ph"), "E"))
			continue;
		while (t < 7 && threads[t].tid && threads[t].tid != tid)
			t++;
		threads[t].tid = tid;
		assert_true(ts >= threads[t].last);
		threads[t].last = ts;
		if (begin) {
			assert_true(threads[t].n < 64);
			threads[t].open[threads[t].n++] = str(e, "name");
			spans++;
		} else {
			assert_true(threads[t].n > 0);
			assert_string_equal(threads[t].open[--threads[t].n], str(e, "name"));
		}
	}
	for (size_t t = 0; t < 8; t++)
		assert_int_equal(threads[t].n, 0);
	return spans;
}

static uint64_t largest(json_t *events, const char *counter)
{
	uint64_t max = 0, v;
	size_t i;
	json_t *e;

	json_array_foreach(events, i, e) {
		if (strcmp(str(e, "ph"), "C") || strcmp(str(e, "name"), counter))
			continue;
		assert_int_equal(json_object_size(json_object_get(e, "args")), 1);
		v = json_integer_value(json_object_get(json_object_get(e, "args"), "bytes"));
		max = v > max ? v : max;
	}
	return max;
}

static size_t count(json_t *events, const char *ph, const char *cat)
{
	size_t n = 0, i;
	json_t *e;

	json_array_foreach(events, i, e)
		n += !strcmp(str(e, "ph"), ph) && !strcmp(str(e, "cat"), cat);
	return n;
}

static void test_perfetto(void **state)
{
	struct synthetic_opts opts = small;
	struct model_device gpu, cpu;
	json_t *doc, *events;
	struct world w;

	opts.oom = true;
	world__open(&w, "perfetto", AT_PEAK, "peak");
	world__run(&w, opts);
	assert_int_equal(world__end(&w), 0);
	doc = parse(w.text, w.size);
	events = json_object_get(doc, "traceEvents");
	model__device(w.m, 0, &gpu);
	model__device(w.m, 1, &cpu);
	assert_true(check_spans(events) > 20);
	assert_int_equal(largest(events, "cuda:0 allocated"), gpu.peak_allocated);
	assert_int_equal(largest(events, "cuda:0 reserved"), gpu.peak_reserved);
	assert_int_equal(largest(events, "cpu allocated"), cpu.peak_allocated);
	assert_int_equal(largest(events, "cpu reserved"), 0);
	assert_int_equal(count(events, "X", "step"), model__steps(w.m));
	assert_true(count(events, "X", "phase") >= 3 * model__steps(w.m));
	assert_int_equal(count(events, "i", ""), 1); /* the out-of-memory event */
	json_decref(doc);
	world__close(&w);
}

static void test_perfetto_device(void **state)
{
	struct world w;
	json_t *doc, *events;

	world__open(&w, "perfetto", AT_PEAK, "peak");
	w.ctx.device_name = "cpu";
	world__run(&w, small);
	assert_int_equal(world__end(&w), 0);
	doc = parse(w.text, w.size);
	events = json_object_get(doc, "traceEvents");
	assert_int_equal(largest(events, "cuda:0 allocated"), 0);
	assert_true(largest(events, "cpu allocated") > 0);
	json_decref(doc);
	world__close(&w);
}

struct seen {
	uint64_t n, max, min, last, last_time;
};

static void see(void *ctx, const char *device, const char *what, uint64_t time, uint64_t value)
{
	struct seen *s = ctx;

	assert_string_equal(device, "cpu");
	assert_string_equal(what, "allocated");
	assert_true(time >= s->last_time);
	s->n++;
	s->max = value > s->max ? value : s->max;
	s->min = value < s->min ? value : s->min;
	s->last = value;
	s->last_time = time;
}

/* Few points for any number of events, with the extremes among them. */
static void test_counters(void **state)
{
	struct seen seen = { .min = UINT64_MAX };
	struct counters *c = perfetto_counters__new(10 * UINT64_C(1000000000), see, &seen);
	struct model_device d = { .name = "cpu" };

	assert_non_null(c);
	for (uint64_t i = 0; i < 1000000; i++) {
		d.allocated = 1000 + i % 7;
		if (i == 654321)
			d.allocated = 5000;
		if (i == 654322)
			d.allocated = 1;
		assert_int_equal(perfetto_counters__device(c, &d, i * 10000), 0);
	}
	perfetto_counters__end(c);
	assert_int_equal(seen.max, 5000);
	assert_int_equal(seen.min, 1);
	assert_int_equal(seen.last, d.allocated);
	assert_true(seen.n <= 3 * 10001);
	perfetto_counters__free(c);
}

/* --- pprof */

static size_t unzip(const struct world *w, char *out, size_t room)
{
	z_stream z = { .next_in = (unsigned char *)w->text,
		       .avail_in = (unsigned int)w->size,
		       .next_out = (unsigned char *)out,
		       .avail_out = (unsigned int)room };

	assert_int_equal(inflateInit2(&z, 16 + MAX_WBITS), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	inflateEnd(&z);
	return room - z.avail_out;
}

struct profile {
	uint64_t values[4];
	size_t samples, locations, functions, strings, time;
	const char *device; /* label as length and data of a string: counts only samples with it */
	struct pb_field string[4096];
};

static bool string_is(const struct profile *p, uint64_t i, const char *s)
{
	assert_true(i < p->strings);
	return p->string[i].len == strlen(s) && !memcmp(p->string[i].data, s, strlen(s));
}

static void read_sample(struct profile *p, struct pb_reader r)
{
	uint64_t values[4], key = 0, str_of_key = 0;
	size_t n = 0, locations = 0;
	bool counts = false;
	struct pb_field f, l;

	while (pb_next(&r, &f)) {
		struct pb_reader label = { f.data, f.data + f.len };

		if (f.number == 1) {
			assert_in_range(f.value, 1, p->locations);
			locations++;
		} else if (f.number == 2) {
			assert_true(n < 4);
			values[n++] = f.value;
		} else {
			assert_int_equal(f.number, 3);
			key = str_of_key = 0;
			while (pb_next(&label, &l))
				*(l.number == 1 ? &key : &str_of_key) = l.value;
			if (string_is(p, key, "device"))
				counts = string_is(p, str_of_key, p->device);
		}
	}
	assert_int_equal(n, 4);
	assert_true(locations > 0);
	p->samples++;
	for (size_t i = 0; i < 4 && counts; i++)
		p->values[i] += values[i];
}

static void read_profile(struct profile *p, const char *data, size_t size)
{
	struct pb_reader r = { data, data + size };
	struct pb_field f;
	size_t types = 0;

	while (pb_next(&r, &f)) {
		types += f.number == 1;
		p->locations += f.number == 4;
		p->functions += f.number == 5;
		if (f.number == 9)
			p->time = f.value;
		if (f.number == 6) {
			assert_true(p->strings < 4096);
			p->string[p->strings++] = f;
		}
	}
	assert_int_equal(types, 4);
	assert_int_equal(p->string[0].len, 0);
	assert_int_equal(p->locations, p->functions);
	for (r.p = data; pb_next(&r, &f);)
		if (f.number == 2)
			read_sample(p, (struct pb_reader){ f.data, f.data + f.len });
}

static void test_pprof(void **state)
{
	static const char *const devices[] = { "cuda:0", "cpu" };
	char *data = malloc(1 << 20);
	struct world w;
	size_t size;

	assert_non_null(data);
	world__open(&w, "pprof", AT_PEAK, "peak");
	world__run(&w, small);
	assert_int_equal(world__end(&w), 0);
	size = unzip(&w, data, 1 << 20);
	for (size_t i = 0; i < 2; i++) {
		struct profile *p = calloc(1, sizeof(*p));
		struct model_device d;

		assert_non_null(p);
		model__device(w.m, i, &d);
		assert_string_equal(d.name, devices[i]);
		p->device = devices[i];
		read_profile(p, data, size);
		assert_int_equal(p->values[0], d.allocs);
		assert_int_equal(p->values[1], d.total_allocated);
		assert_int_equal(p->values[3], d.peak_allocated);
		assert_int_equal(p->time, UINT64_C(1767323045000000000));
		free(p);
	}
	free(data);
	world__close(&w);
}

static void test_pprof_moments(void **state)
{
	struct world w;

	world__open(&w, "pprof", AT_PEAK, "peak");
	assert_int_equal(world__end(&w), -ENODATA);
	world__close(&w);
	world__open(&w, "pprof", AT_OOM, "oom");
	world__run(&w, small);
	assert_int_equal(world__end(&w), -ENOENT);
	world__close(&w);
}

static void test_dates(void **state)
{
	static const char *const bad[] = { "",
					   "2026-01-02",
					   "2026-01-02T03:04:05",
					   "2026-01-02T03:04:05+01:00",
					   "1969-01-01T00:00:00Z",
					   "9999-01-01T00:00:00Z",
					   "2026-01-02T03:04:05.5" };
	uint64_t ns;

	assert_int_equal(text__parse_date("2026-01-02T03:04:05.678Z", &ns), 0);
	assert_int_equal(ns, UINT64_C(1767323045678000000));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(text__parse_date(bad[i], &ns), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_perfetto),      cmocka_unit_test(test_perfetto_device),
		cmocka_unit_test(test_counters),      cmocka_unit_test(test_pprof),
		cmocka_unit_test(test_pprof_moments), cmocka_unit_test(test_dates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
