/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A capture exported through the model into the stack formats; the outputs are parsed and their
 * sums checked. */
#include <errno.h>
#include <stdbool.h>

#include "export/formats/frames.h"
#include "unit/export_world.h"

static uint64_t rows_sum(const struct model *m, size_t device, enum row_when when, uint64_t *count)
{
	const struct row_opts opts = { .by = BY_STACK, .when = when };
	struct row *rows;
	uint64_t sum = 0;
	size_t n;

	assert_int_equal(model__rows(m, device, &opts, &rows, &n), 0);
	for (size_t i = 0; i < n; i++) {
		sum += rows[i].bytes;
		if (count)
			*count += rows[i].count;
	}
	free(rows);
	return sum;
}

/* --- folded */

/* Sum of the lines with this root frame; checks each line's format. */
static uint64_t folded_sum(const char *text, const char *root)
{
	uint64_t sum = 0;

	while (*text) {
		const char *end = strchr(text, '\n'), *space = end;
		char *rest;
		uint64_t bytes;

		assert_non_null(end);
		while (space > text && space[-1] != ' ')
			space--;
		assert_true(space > text);
		bytes = strtoull(space, &rest, 10);
		assert_ptr_equal(rest, end);
		assert_true(bytes > 0);
		/* "name 3 100" could be read as two counts. */
		for (rest = (char *)space - 2;
		     rest > text && ((*rest >= '0' && *rest <= '9') || *rest == '.'); rest--)
			;
		assert_true(*rest != ' ' || rest == space - 2);
		for (const char *p = text; p < end; p++)
			assert_true((unsigned char)*p >= ' ' && *p != 0x7f);
		assert_null(memmem(text, end - text, ";;", 2));
		if (!strncmp(text, root, strlen(root)) && text[strlen(root)] == ';')
			sum += bytes;
		text = end + 1;
	}
	return sum;
}

static void test_folded_sums(void **state)
{
	struct model_device d;
	struct world w;

	world__open(&w, "folded", AT_PEAK, "peak");
	world__run(&w, small);
	assert_int_equal(world__end(&w), 0);
	assert_int_equal(model__devices(w.m), 2);
	for (size_t i = 0; i < 2; i++) {
		model__device(w.m, i, &d);
		assert_true(d.peak_allocated > 0);
		assert_int_equal(folded_sum(w.text, d.name), d.peak_allocated);
	}
	assert_non_null(strstr(w.text, "cuda:0;[before attach] 1272971264\n"));
	assert_non_null(strstr(
		w.text,
		";blocks.1.mlp.fc (Linear);Module._call_impl (module.py:1786);Linear.forward "
		"(linear.py:134) "));
	world__close(&w);
}

static void test_folded_one_device_at_end(void **state)
{
	struct model_device d;
	struct world w;

	world__open(&w, "folded", AT_END, "end");
	world__run(&w, small);
	w.ctx.device = 0;
	assert_int_equal(world__end(&w), 0);
	model__device(w.m, 0, &d);
	assert_string_equal(d.name, "cuda:0");
	assert_int_equal(folded_sum(w.text, "cuda:0"), d.allocated);
	assert_int_equal(folded_sum(w.text, "cpu"), 0);
	assert_non_null(strstr(w.text, "cuda:0;[backward, no Python frame] "));
	assert_non_null(strstr(w.text, "cuda:0;[native thread] "));
	world__close(&w);
}

/* Memory from before attach has a frame for each of its holders, in all formats of stacks. */
static void test_holders_of_before_attach(void **state)
{
	static const struct {
		const char *name;
		bool is_folded, is_packed; /* is_packed: its texts are not in one piece */
	} formats[] = {
		{ .name = "folded", .is_folded = true },
		{ .name = "speedscope" },
		{ .name = "flamegraph" },
		{ .name = "pprof", .is_packed = true },
	};
	static const char *const names[] = { "global history[*]", "global history[*]",
					     "local cache; b" };
	struct device cuda = { .type = DEVICE_CUDA };

	for (size_t f = 0; f < sizeof(formats) / sizeof(*formats); f++) {
		struct world w;
		struct event e = { .device = cuda, .totals = true, .size = 1 << 20 };

		world__open(&w, formats[f].name, AT_END, "end");
		e.allocated = 5 << 20;
		e.reserved = 8 << 20;
		for (uint64_t i = 0; i < 4; i++) {
			e.kind = EVENT_BLOCK;
			e.addr = (i + 1) << 20;
			assert_int_equal(w.sink.event(&w.sink, &e), 0);
		}
		e.kind = EVENT_TENSOR;
		e.flags = CENSUS_FIRST;
		for (uint64_t i = 0; i < 3; i++) {
			e.addr = (i + 1) << 20;
			e.name = dict__string(w.d, names[i], strlen(names[i]));
			assert_int_equal(w.sink.event(&w.sink, &e), 0);
		}
		e = (struct event){ .kind = EVENT_ALLOC,
				    .device = cuda,
				    .addr = 9 << 20,
				    .size = 4096,
				    .totals = true,
				    .allocated = (5 << 20) + 4096,
				    .reserved = 8 << 20 };
		assert_int_equal(w.sink.event(&w.sink, &e), 0);
		assert_int_equal(world__end(&w), 0);
		if (formats[f].is_folded) {
			assert_non_null(strstr(
				w.text, "cuda:0;[before attach];global history[*] 2097152\n"));
			assert_non_null(
				strstr(w.text, "cuda:0;[before attach];local cache: b 1048576\n"));
			assert_non_null(strstr(w.text, "cuda:0;[before attach] 2097152\n"));
			assert_int_equal(folded_sum(w.text, "cuda:0"), (5 << 20) + 4096);
		} else if (!formats[f].is_packed) {
			assert_non_null(strstr(w.text, "global history[*]"));
			assert_non_null(strstr(w.text, "local cache; b"));
		}
		world__close(&w);
	}
}

/* --- speedscope */

static void check_profile(const json_t *profile, size_t nframes, uint64_t want)
{
	json_t *samples = json_object_get(profile, "samples"),
	       *weights = json_object_get(profile, "weights");
	uint64_t sum = 0;
	size_t i, k;
	json_t *v, *frame;

	assert_string_equal(json_string_value(json_object_get(profile, "type")), "sampled");
	assert_int_equal(json_integer_value(json_object_get(profile, "startValue")), 0);
	assert_int_equal(json_array_size(samples), json_array_size(weights));
	json_array_foreach(weights, i, v) {
		assert_true(json_integer_value(v) > 0);
		sum += json_integer_value(v);
	}
	json_array_foreach(samples, i, v) {
		assert_true(json_array_size(v) > 0);
		json_array_foreach(v, k, frame)
			assert_true(json_is_integer(frame) &&
				    (size_t)json_integer_value(frame) < nframes);
	}
	assert_int_equal(sum, want);
	assert_int_equal(json_integer_value(json_object_get(profile, "endValue")), want);
}

static void check_frames(const json_t *frames)
{
	json_t *seen = json_object(), *v;
	size_t i;

	json_array_foreach(frames, i, v) {
		char key[512];
		const char *file = json_string_value(json_object_get(v, "file"));

		assert_non_null(json_string_value(json_object_get(v, "name")));
		snprintf(key, sizeof(key), "%s|%s|%lld",
			 json_string_value(json_object_get(v, "name")), file ? file : "",
			 (long long)json_integer_value(json_object_get(v, "line")));
		assert_null(json_object_get(seen, key));
		json_object_set_new(seen, key, json_true());
	}
	json_decref(seen);
}

static void test_speedscope_sums(void **state)
{
	static const char *const names[] = { "cuda:0 peak",	   "cuda:0 end",     "cuda:0 total",
					     "cuda:0 allocations", "cpu peak",	     "cpu end",
					     "cpu total",	   "cpu allocations" };
	json_t *j, *profiles, *frames;
	uint64_t want[8], counts[2] = { 0 };
	struct model_device d;
	struct world w;

	world__open(&w, "speedscope", AT_PEAK, "peak");
	world__run(&w, small);
	assert_int_equal(world__end(&w), 0);
	for (size_t i = 0; i < 2; i++) {
		model__device(w.m, i, &d);
		want[4 * i] = d.peak_allocated;
		want[4 * i + 1] = d.allocated;
		want[4 * i + 2] = rows_sum(w.m, i, ROWS_TOTAL, &counts[i]);
		want[4 * i + 3] = counts[i];
		assert_int_equal(want[4 * i + 2], d.total_allocated);
		assert_int_equal(counts[i], d.allocs);
	}
	j = parse(w.text, w.size);
	assert_string_equal(json_string_value(json_object_get(j, "$schema")),
			    "https://www.speedscope.app/file-format-schema.json");
	assert_string_equal(json_string_value(json_object_get(j, "exporter")), "memtrace-bpf@0.1");
	assert_int_equal(json_integer_value(json_object_get(j, "activeProfileIndex")), 0);
	profiles = json_object_get(j, "profiles");
	frames = json_object_get(json_object_get(j, "shared"), "frames");
	check_frames(frames);
	assert_int_equal(json_array_size(profiles), 8);
	for (size_t i = 0; i < 8; i++) {
		const json_t *p = json_array_get(profiles, i);

		assert_string_equal(json_string_value(json_object_get(p, "name")), names[i]);
		assert_string_equal(json_string_value(json_object_get(p, "unit")),
				    i % 4 == 3 ? "none" : "bytes");
		check_profile(p, json_array_size(frames), want[i]);
	}
	json_decref(j);
	world__close(&w);
}

/* --- flame graph */

static json_t *page_data(const struct world *w)
{
	static const char open[] = "<script type=\"application/json\" id=\"data\">";
	const char *start = strstr(w->text, open), *end;

	assert_non_null(start);
	start += strlen(open);
	end = strstr(start, "</script>");
	assert_non_null(end);
	return parse(start, end - start);
}

static uint64_t array_sum(const json_t *array)
{
	uint64_t sum = 0;
	json_t *v;
	size_t i;

	json_array_foreach(array, i, v)
		sum += json_integer_value(v);
	return sum;
}

static const json_t *view_of(const json_t *data, size_t device, size_t view)
{
	const json_t *d = json_array_get(json_object_get(data, "devices"), device);

	return json_array_get(json_object_get(d, "views"), view);
}

static void check_tree(const json_t *data)
{
	const json_t *nodes = json_object_get(data, "nodes");
	const json_t *parents = json_object_get(nodes, "parent"),
		     *frames = json_object_get(nodes, "frame");
	size_t n = json_array_size(json_object_get(data, "frames")), i;
	json_t *v;

	assert_int_equal(n % 4, 0);
	assert_int_equal(json_array_size(parents), json_array_size(frames));
	json_array_foreach(parents, i, v)
		assert_true(json_integer_value(v) >= -1 && json_integer_value(v) < (json_int_t)i);
	json_array_foreach(frames, i, v)
		assert_true(json_integer_value(v) >= 0 && (size_t)json_integer_value(v) < n / 4);
	json_array_foreach(json_object_get(data, "frames"), i, v) {
		json_int_t x = json_integer_value(v);

		if (i % 4 < 2)
			assert_true(
				x >= -(json_int_t)(i % 4) &&
				x < (json_int_t)json_array_size(json_object_get(data, "strings")));
		else if (i % 4 == 3)
			assert_true(x >= 0 && x < FRAME_KIND_NR);
	}
}

static void test_flamegraph_sums(void **state)
{
	static const char *const ids[] = { "peak", "end", "total" };
	struct model_device d;
	struct world w;
	json_t *data;

	world__open(&w, "flamegraph", AT_PEAK, "peak");
	world__run(&w, small);
	assert_int_equal(world__end(&w), 0);
	data = page_data(&w);
	check_tree(data);
	for (size_t i = 0; i < 2; i++) {
		uint64_t want[3];

		model__device(w.m, i, &d);
		want[0] = d.peak_allocated;
		want[1] = d.allocated;
		want[2] = d.total_allocated;
		for (size_t k = 0; k < 3; k++) {
			const json_t *view = view_of(data, i, k);

			assert_string_equal(json_string_value(json_object_get(view, "id")), ids[k]);
			assert_int_equal(array_sum(json_object_get(view, "bytes")), want[k]);
			assert_int_equal(json_array_size(json_object_get(view, "bytes")),
					 json_array_size(json_object_get(view, "node")));
		}
	}
	/* All placeholders of the template are replaced. */
	assert_null(strstr(w.text, "@@"));
	assert_null(strstr(w.text, "src="));
	assert_null(strstr(w.text, "href="));
	assert_null(strstr(w.text, "url("));
	assert_null(strstr(w.text, "//www"));
	assert_non_null(strstr(w.text, "default-src 'none'"));
	json_decref(data);
	world__close(&w);
}

/* --- all formats */

static bool ends_in(const struct export_format *f, const char *suffix)
{
	const char *dot = strrchr(f->suffix, '.');

	return dot && !strcmp(dot, suffix);
}

static bool is_json(const struct export_format *f)
{
	return ends_in(f, ".json");
}

static bool is_text(const struct export_format *f)
{
	return ends_in(f, ".txt") || ends_in(f, ".csv") || ends_in(f, ".ndjson");
}

/* A text has no control characters but the ends of its lines, which are "\r\n" in CSV. */
static void check_plain(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		bool ends = text[i] == '\n' || (text[i] == '\r' && text[i + 1] == '\n');

		assert_true(ends || ((unsigned char)text[i] >= 0x20 && text[i] != 0x7f));
	}
}

static void test_hostile_names(void **state)
{
	static const char *const names[] = {
		"</script><script>alert(1)</script>",
		"<!--<script>",
		"\"quoted\" \\ 'names'",
		"tab\tnewline\nreturn\r\x1b[31m\x7f",
		"\xff\xfe broken \xc3",
		"a;b;c",
		"ends in 3",
		"ends in 3.5",
		"-",
		"--",
		"kernel_[k]",
		" ",
		"\xc2\x85line",
		"\xe2\x80\xa8separator",
		"\xe2\x80\xaexyz",
		"{\"events\":[",
		"__proto__",
		"constructor",
	};
	const size_t n = sizeof(names) / sizeof(names[0]);

	size_t tried = 0;

	for (size_t k = 0; export_formats[k]; k++) {
		const struct export_format *f = export_formats[k];
		bool flamegraph = f == &export_flamegraph, folded = f == &export_folded;
		struct world w;
		json_t *j = NULL;

		if (!flamegraph && !is_text(f) && !is_json(f))
			continue;
		tried++;
		world__open(&w, f->name, AT_PEAK, "peak");
		facts__set(w.f, "cmdline", "[\"</script><img src=x onerror=alert(1)>\"]");
		for (size_t i = 0; i < n; i++) {
			uint32_t s = dict__string(w.d, names[i], strlen(names[i]));
			struct dict_loc loc = { .file = i % 2 ? s : 0,
						.func = s,
						.line = i % 2 ? 7 : 0 };
			struct dict_module m = { .name = s, .cls = i % 2 ? s : 0 };
			struct dict_frame frames[] = { { .loc = dict__loc(w.d, loc) },
						       { .loc = dict__loc(w.d, loc),
							 .module = dict__module(w.d, m) } };

			send(&w, alloc_of(dict__stack(w.d, frames, 2, MT_WALK_OK), MT_WALK_OK,
					  0x1000 * (i + 1), 100 + i));
			send(&w, alloc_of(dict__stack(w.d, frames, 1, MT_WALK_OK), MT_WALK_OK,
					  0x1000 * (i + 1) + 512, 1));
		}
		assert_int_equal(world__end(&w), 0);
		if (flamegraph) {
			j = page_data(&w);
			check_tree(j);
			assert_int_equal(array_sum(json_object_get(view_of(j, 0, 0), "bytes")),
					 n * 101 + n * (n - 1) / 2);
			assert_null(strstr(w.text, "</script><script>alert"));
		} else if (folded) {
			assert_int_equal(folded_sum(w.text, "cpu"), n * 101 + n * (n - 1) / 2);
		} else {
			j = is_json(f) ? parse(w.text, w.size) : NULL;
		}
		if (is_text(f))
			check_plain(w.text, w.size);
		json_decref(j);
		world__close(&w);
	}
	assert_true(tried >= 5);
}

/* All formats of a moment; streaming formats have no moment that could be missing. */
static void test_nothing_to_show(void **state)
{
	size_t tried = 0;

	for (size_t k = 0; export_formats[k]; k++) {
		const struct export_format *f = export_formats[k];
		struct world w;

		if (f->begin)
			continue;
		world__open(&w, f->name, AT_PEAK, "peak");
		assert_int_equal(world__end(&w), -ENODATA);
		world__close(&w);
		world__open(&w, f->name, AT_OOM, "oom");
		world__run(&w, small);
		assert_int_equal(world__end(&w), -ENOENT);
		world__close(&w);
		tried++;
	}
	assert_true(tried >= 3);
}

static void test_oom_moment(void **state)
{
	struct synthetic_opts opts = small;
	struct model_device d;
	struct world w;
	json_t *j;

	opts.oom = true;
	world__open(&w, "flamegraph", AT_OOM, "oom");
	world__run(&w, opts);
	assert_int_equal(world__end(&w), 0);
	j = page_data(&w);
	model__device(w.m, 0, &d);
	assert_string_equal(json_string_value(json_object_get(view_of(j, 0, 0), "label")),
			    "Out of memory");
	assert_int_equal(array_sum(json_object_get(view_of(j, 0, 0), "bytes")), d.mark_allocated);
	json_decref(j);
	world__close(&w);
}

static void test_kinds_of_files(void **state)
{
	static const struct {
		const char *file;
		enum frame_kind kind;
	} files[] = {
		{ "/home/ada/train.py", FRAME_USER },
		{ "train.py", FRAME_USER },
		{ "<string>", FRAME_USER },
		{ "/home/ada/torch/train.py", FRAME_USER },
		{ "/venv/lib/python3.12/site-packages/torch/nn/functional.py", FRAME_TORCH },
		{ "/venv/lib/python3.12/site-packages/torchvision/models/resnet.py",
		  FRAME_LIBRARY },
		{ "/usr/lib/python3/dist-packages/numpy/core.py", FRAME_LIBRARY },
		{ "/src/pytorch/torch/nn/modules/module.py", FRAME_TORCH },
		{ "<eval_with_key>.1", FRAME_TORCH },
		{ "/usr/lib/python3.11/threading.py", FRAME_STDLIB },
		{ "/opt/py/lib/python3.13t/threading.py", FRAME_STDLIB },
		{ "<frozen runpy>", FRAME_STDLIB },
		{ "/opt/app/lib/python312.zip/threading.py", FRAME_STDLIB },
		{ "/tmp/torchinductor_ada/ab/cab.py", FRAME_TORCH },
		{ "<__array_function__ internals>", FRAME_LIBRARY },
		{ "/home/ada/python3/x.py", FRAME_USER },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		assert_int_equal(frames__kind_of_file(files[i].file, NULL), files[i].kind);
}

static void test_formats_are_found(void **state)
{
	static const char *const words[] = { WORD_ARRAY(EXPORT_WORDS) };
	size_t n = 0;

	for (; export_formats[n]; n++) {
		assert_string_equal(export_formats[n]->name, words[n]);
		assert_ptr_equal(export__find(export_formats[n]->name), export_formats[n]);
		assert_non_null(export_formats[n]->help);
		assert_non_null(export_formats[n]->next);
		assert_int_equal(export_formats[n]->suffix[0], '.');
		/* A format may begin without a state of its own. */
		assert_true(export_formats[n]->begin || !export_formats[n]->release);
	}
	assert_int_equal(n, sizeof(words) / sizeof(*words));
	assert_null(export__find("nothing"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_folded_sums),
		cmocka_unit_test(test_holders_of_before_attach),
		cmocka_unit_test(test_folded_one_device_at_end),
		cmocka_unit_test(test_speedscope_sums),
		cmocka_unit_test(test_flamegraph_sums),
		cmocka_unit_test(test_hostile_names),
		cmocka_unit_test(test_nothing_to_show),
		cmocka_unit_test(test_oom_moment),
		cmocka_unit_test(test_kinds_of_files),
		cmocka_unit_test(test_formats_are_found),
	};

	return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
