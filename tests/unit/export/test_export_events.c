/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* csv, ndjson, tensorboard, openmetrics, snapshot: sums equal the model's, and hostile text cannot
 * break the format. */
#include "unit/export_world.h"

#include <errno.h>

#include "export/formats/pickle.h"
#include "model/words.h"
#include "record/varint.h"
#include "terminal.h"
#include "unit/pb_reader.h"

/* --- hostile text */

static const char *const hostile[] = {
	"</script><script>alert(1)</script>",
	"\"quoted\" \\ 'names'",
	"tab\tnewline\nreturn\r\x1b[31m\x7f",
	"\xff\xfe broken \xc3",
	"a,b,\"c\"\r\n",
	"=1+2",
	"\xc2\x85line",
	"\xe2\x80\xaexyz",
	"# EOF",
	"} 1",
};
#define HOSTILE (sizeof(hostile) / sizeof(hostile[0]))

static void run_hostile(struct world *w)
{
	for (size_t i = 0; i < HOSTILE; i++) {
		uint32_t s = dict__string(w->d, hostile[i], strlen(hostile[i]));
		struct dict_loc loc = { .file = s, .func = s, .line = 7 };
		struct dict_module m = { .name = s, .cls = s, .root = s };
		struct dict_frame frames[] = { { .loc = dict__loc(w->d, loc) },
					       { .loc = dict__loc(w->d, loc),
						 .module = dict__module(w->d, m) } };
		struct event e = alloc_of(dict__stack(w->d, frames, 2, MT_WALK_OK), MT_WALK_OK,
					  0x1000 * (i + 1), 100 + i);

		e.thread = dict__thread(w->d,
					(struct dict_thread){ .tid = 7 + (uint32_t)i, .name = s });
		e.device.type = DEVICE_CUDA;
		send(w, e);
		if (i % 2)
			send(w, (struct event){ .kind = EVENT_FREE,
						.device.type = DEVICE_CUDA,
						.addr = e.addr,
						.size = e.size });
	}
}

/* Counts lines; each must be safe on a terminal. */
static size_t check_lines(const struct world *w, const char *end)
{
	size_t n = 0, len;

	for (const char *line = w->text; line < w->text + w->size; line += len + strlen(end), n++) {
		const char *stop = strstr(line, end);

		assert_non_null(stop);
		len = (size_t)(stop - line);
		assert_true(terminal__harmless(line, len));
	}
	return n;
}

static void test_hostile(void **state)
{
	static const struct {
		const char *format, *end;
		size_t lines;
	} formats[] = { { "csv", "\r\n", 1 + HOSTILE + HOSTILE / 2 },
			{ "ndjson", "\n", 2 * HOSTILE + HOSTILE / 2 },
			{ "openmetrics", "\n", 0 } };

	for (size_t k = 0; k < 3; k++) {
		struct world w;
		size_t lines;

		world__open(&w, formats[k].format, AT_PEAK, "peak");
		facts__set(w.f, "comm", hostile[2]);
		run_hostile(&w);
		assert_int_equal(world__end(&w), 0);
		lines = check_lines(&w, formats[k].end);
		if (formats[k].lines)
			assert_int_equal(lines, formats[k].lines);
		world__close(&w);
	}
}

static void test_csv_field(void **state)
{
	static const char *const fields[][2] = {
		{ NULL, "" },
		{ "", "" },
		{ "plain", "plain" },
		{ "a,b", "\"a,b\"" },
		{ "say \"a\"", "\"say \"\"a\"\"\"" },
		{ "a\nb", "a\\x0ab" },
		{ "\xc3\xa9", "\xc3\xa9" },
		{ "\xff", "\\xff" },
		{ "\xc3\xa9,", "\"\xc3\xa9,\"" },
		{ "=1+1", "'=1+1" },
		{ "+a", "'+a" },
		{ "-a", "'-a" },
		{ "@SUM(1,2)", "\"'@SUM(1,2)\"" },
		{ "\xef\xbc\x9d"
		  "1",
		  "'\xef\xbc\x9d"
		  "1" },
		{ "a=1", "a=1" },
		{ "\t=1", "\\x09=1" },
		{ "main;=1+1;f", "main;'=1+1;f" },
		{ "=a;-b", "'=a;'-b" },
		{ "a;b=1", "a;b=1" },
		{ "a;@b,", "\"a;'@b,\"" },
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		char *text;
		size_t size;
		FILE *f = open_memstream(&text, &size);

		assert_non_null(f);
		csv__put(f, fields[i][0]);
		fclose(f);
		assert_string_equal(text, fields[i][1]);
		free(text);
	}
}

static void test_csv_raw(void **state)
{
	char *text;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	csv__set_raw(true);
	csv__put(f, "=1+1");
	csv__set_raw(false);
	fclose(f);
	assert_string_equal(text, "=1+1");
	free(text);
}

/* --- ndjson */

struct sums {
	uint64_t allocs, frees, bytes, steps, with_category, with_line;
};

static void add_line(struct sums *s, json_t *o, const char *device)
{
	const char *event = json_string_value(json_object_get(o, "event"));

	s->steps += !strcmp(event, "step");
	if (!json_object_get(o, "device") ||
	    strcmp(json_string_value(json_object_get(o, "device")), device))
		return;
	s->with_line += json_object_get(o, "line") != NULL;
	if (!strcmp(event, "alloc")) {
		s->allocs++;
		s->bytes += json_integer_value(json_object_get(o, "size"));
	} else if (!strcmp(event, "free")) {
		s->frees++;
		s->with_category += json_object_get(o, "category") != NULL;
	}
}

static void test_ndjson(void **state)
{
	struct sums s = { 0 };
	struct model_device d;
	struct world w;
	json_t *stacks = json_object();

	world__open(&w, "ndjson", AT_PEAK, "peak");
	world__run(&w, small);
	assert_int_equal(world__end(&w), 0);
	for (char *line = w.text, *end; (end = strchr(line, '\n')); line = end + 1) {
		json_t *o = parse(line, (size_t)(end - line)), *stack = json_object_get(o, "stack");
		char *key = stack ? json_dumps(stack, JSON_ENCODE_ANY) : NULL;

		if (stack && strcmp(json_string_value(json_object_get(o, "event")), "stack"))
			assert_non_null(json_object_get(stacks, key)); /* defined earlier */
		else if (stack)
			assert_int_equal(json_object_set_new(stacks, key, json_true()), 0);
		if (strcmp(json_string_value(json_object_get(o, "event")), "stack"))
			add_line(&s, o, "cuda:0");
		free(key);
		json_decref(o);
	}
	model__device(w.m, 0, &d);
	assert_int_equal(s.allocs, d.allocs);
	assert_int_equal(s.frees, d.frees);
	assert_int_equal(s.bytes, d.total_allocated);
	assert_int_equal(s.steps, model__steps(w.m));
	assert_int_equal(s.with_category, d.frees);
	assert_true(s.with_line > d.allocs / 2);
	json_decref(stacks);
	world__close(&w);
}

/* --- tensorboard */

static uint32_t le32(const char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t masked(const void *p, size_t n)
{
	uint32_t c = crc32c(p, n);

	return ((c >> 15) | (c << 17)) + 0xa282ead8;
}

/* Largest value of a tag in an event's summary; also checks the event's format. */
static float value_of(struct pb_reader r, const char *tag)
{
	struct pb_field f, v, part;
	float ret = -1;

	while (pb_next(&r, &f)) {
		struct pb_reader summary = { f.data, f.data + f.len };

		while (f.number == 5 && pb_next(&summary, &v)) {
			struct pb_reader value = { v.data, v.data + v.len };
			bool ours = false;

			while (pb_next(&value, &part)) {
				if (part.number == 1)
					ours = part.len == strlen(tag) &&
					       !memcmp(part.data, tag, part.len);
				else if (ours)
					memcpy(&ret, &part.value, sizeof(ret));
			}
		}
	}
	return ret;
}

static void test_tensorboard(void **state)
{
	struct model_device d;
	float peak = 0, v;
	size_t steps = 0, records = 0;
	struct world w;

	world__open_ahead(&w, "tensorboard", AT_PEAK, "peak", small);
	world__run(&w, small);
	assert_int_equal(world__end(&w), 0);
	for (const char *p = w.text, *end = w.text + w.size; p < end; records++) {
		uint64_t len;

		assert_true(end - p >= 16);
		memcpy(&len, p, sizeof(len));
		assert_int_equal(le32(p + 8), masked(p, 8));
		assert_true(len <= (uint64_t)(end - p) - 16);
		assert_int_equal(le32(p + 12 + len), masked(p + 12, len));
		v = value_of((struct pb_reader){ p + 12, p + 12 + len }, "cuda:0/peak_MiB");
		steps += v >= 0;
		peak = v > peak ? v : peak;
		p += len + 16;
	}
	model__device(w.m, 0, &d);
	assert_int_equal(steps, model__steps(w.m));
	assert_true(records >= steps + 2);
	assert_true(peak == (float)((double)d.peak_allocated / 1048576));
	world__close(&w);
}

static void test_tensorboard_pipe(void **state)
{
	const struct export_format *f = export__find("tensorboard");
	struct export_ctx c = { 0 };
	void *own = NULL;

	assert_int_equal(f->begin(&c, &own), -ESPIPE);
	assert_null(own);
}

/* --- openmetrics */

static uint64_t sum_of(const char *text, const char *family)
{
	uint64_t sum = 0;

	for (const char *p = text; (p = strstr(p, family)); p++) {
		const char *close;

		if (p > text && p[-1] != '\n')
			continue;
		close = strstr(p, "} ");
		assert_non_null(close);
		sum += strtoull(close + 2, NULL, 10);
	}
	return sum;
}

static void test_openmetrics(void **state)
{
	struct model_device d;
	struct world w;

	world__open(&w, "openmetrics", AT_PEAK, "peak");
	world__run(&w, small);
	w.ctx.device = 0;
	assert_int_equal(world__end(&w), 0);
	model__device(w.m, 0, &d);
	assert_int_equal(sum_of(w.text, "memtrace_moment_line_bytes{"), d.peak_allocated);
	assert_int_equal(sum_of(w.text, "memtrace_moment_category_bytes{"), d.peak_allocated);
	assert_int_equal(sum_of(w.text, "memtrace_moment_phase_bytes{"), d.peak_allocated);
	assert_int_equal(sum_of(w.text, "memtrace_device_allocations_total{"), d.allocs);
	assert_string_equal(w.text + w.size - 6, "# EOF\n");
	world__close(&w);
}

/* Unknown figures have no sample. A label has the name used elsewhere. */
static void test_openmetrics_of_the_cpu(void **state)
{
	static const char *const unknown[] = { "before_attach_bytes", "reserved_bytes",
					       "peak_reserved_bytes", "drift_bytes",
					       "fragmentation_ratio" };
	struct world w;
	char sample[96];

	world__open(&w, "openmetrics", AT_PEAK, "peak");
	world__run(&w, small);
	w.ctx.device = -1;
	assert_int_equal(world__end(&w), 0);
	assert_non_null(strstr(w.text, "memtrace_device_peak_allocated_bytes{device=\"cpu\"}"));
	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++) {
		snprintf(sample, sizeof(sample), "memtrace_device_%s{device=\"cpu\"}", unknown[i]);
		if (strstr(w.text, sample))
			fail_msg("%s is known", sample);
	}
	assert_non_null(strstr(w.text, "memtrace_device_before_attach_bytes{device=\"cuda:0\"}"));
	assert_null(strstr(w.text, "rank=\""));
	assert_non_null(strstr(w.text, ",top=\"1\",file=\""));
	assert_null(strstr(w.text, "file=\"before attach\""));
	assert_null(strstr(w.text, "file=\"other lines\""));
	world__close(&w);
}

/* Growth has a sample once it is known: here the rate of a leak, and 0 without one. */
static void test_openmetrics_growth(void **state)
{
	static const char *const families[] = { "growth_bytes_per_step", "growth_bytes_per_minute",
						"growth_full_seconds" };
	static const struct {
		bool leaks;
		int steps;
		const char *samples[3]; /* NULL: none */
	} cases[] = {
		{ true, 40, { "10000.000", "1200000.000", "180.000" } },
		{ false, 110, { "0.000", "0.000", NULL } },
		{ true, 5, { NULL, NULL, NULL } },
	};
	char sample[96];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct event e = { .device = { DEVICE_CUDA, 0 }, .totals = true };
		struct world w;

		world__open(&w, "openmetrics", AT_PEAK, "peak");
		facts__set(w.f, "device.0.total", "4000000");
		facts__set(w.f, "attached_at", "start");
		for (int k = 0; k < cases[i].steps; k++) {
			e.time += UINT64_C(500000000);
			e.kind = EVENT_ALLOC;
			e.addr = 0x1000 + k;
			e.size = 10000;
			e.allocated += 10000;
			assert_int_equal(w.sink.event(&w.sink, &e), 0);
			e.kind = EVENT_FREE;
			e.allocated -= 10000;
			if (!cases[i].leaks)
				assert_int_equal(w.sink.event(&w.sink, &e), 0);
			else
				e.allocated += 10000;
			e.kind = EVENT_STEP;
			assert_int_equal(w.sink.event(&w.sink, &e), 0);
		}
		assert_int_equal(world__end(&w), 0);
		for (size_t f = 0; f < 3; f++) {
			snprintf(sample, sizeof(sample), "\nmemtrace_%s{device=\"cuda:0\"} %s\n",
				 families[f], cases[i].samples[f] ? cases[i].samples[f] : "");
			if (!cases[i].samples[f])
				sample[strlen(sample) - 1] = '\0';
			if (!strstr(w.text, sample) != !cases[i].samples[f])
				fail_msg("case %zu: '%s' in:\n%s", i, sample, w.text);
		}
		world__close(&w);
	}
}

/* --- pickle */

static void test_pickle(void **state)
{
	/* Pickle of {"a": [0, 256, 65536, 2**31, 2**32, 2**63, -1, -2**40, True, (1, 2)],
	 * "b": "x"}, and "a" once more */
	static const char want[] =
		"\x80\x02}(X\x01\0\0\0aq\0](K\0M\0\1J\0\0\1\0\x8a\5\0\0\0\x80\0\x8a\5\0\0\0\0\1"
		"\x8a\x09\0\0\0\0\0\0\0\x80\0J\xff\xff\xff\xff\x8a\x08\0\0\0\0\0\xff\xff\xff\x88K"
		"\1K\2\x86"
		"eX\x01\0\0\0bq\1X\x01\0\0\0xq\2h\0h\2u.";
	static const char a[] = "a", b[] = "b";
	char *text;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	struct pickle *p = pickle__new(f);
	uint32_t x;

	assert_non_null(p);
	pickle__open_dict(p);
	pickle__key(p, a);
	pickle__open_list(p);
	pickle__uint(p, 0);
	pickle__uint(p, 256);
	pickle__uint(p, 65536);
	pickle__uint(p, UINT64_C(1) << 31);
	pickle__uint(p, UINT64_C(1) << 32);
	pickle__uint(p, UINT64_C(1) << 63);
	pickle__int(p, -1);
	pickle__int(p, -(INT64_C(1) << 40));
	pickle__bool(p, true);
	pickle__pair(p, 1, 2);
	pickle__close_list(p);
	pickle__key(p, b);
	pickle__string(p, "x");
	x = pickle__keep(p);
	pickle__key(p, a);
	pickle__again(p, x);
	pickle__close_dict(p);
	pickle__end(p);
	fclose(f);
	assert_int_equal(size, sizeof(want) - 1);
	assert_memory_equal(text, want, size);
	free(text);
}

static void test_snapshot_needs_a_gpu(void **state)
{
	struct world w;

	world__open(&w, "snapshot", AT_END, "end");
	send(&w, alloc_of(0, MT_WALK_NO_THREAD, 0x1000, 64));
	assert_int_equal(world__end(&w), -ENODEV);
	world__close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_csv_field),
		cmocka_unit_test(test_csv_raw),
		cmocka_unit_test(test_ndjson),
		cmocka_unit_test(test_tensorboard),
		cmocka_unit_test(test_tensorboard_pipe),
		cmocka_unit_test(test_openmetrics),
		cmocka_unit_test(test_openmetrics_of_the_cpu),
		cmocka_unit_test(test_openmetrics_growth),
		cmocka_unit_test(test_pickle),
		cmocka_unit_test(test_snapshot_needs_a_gpu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
