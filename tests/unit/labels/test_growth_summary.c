/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The sentence about growth: its figures, and when it appears. */
#include "unit/cmocka.h"

#include <jansson.h>
#include <locale.h>

#include "base/json.h"
#include "model/growth_summary.h"
#include "record/detail.h"
#include "unit/model_world.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define STEP (500 * MS)

static char text[GROWTH_SUMMARY_TEXT];

static struct world watched(void)
{
	struct world w = world__new(AT_END, 0);

	assert_int_equal(growth__watch(w.m, BY_LINE), 0);
	facts__set(w.f, "cwd", "/home/u");
	facts__set(w.f, "attached_at", "start");
	return w;
}

static void step(struct world *w, uint64_t ends)
{
	w->time = ends - MS;
	feed(w, (struct event){ .kind = EVENT_STEP });
}

static uint32_t at_line(struct world *w, uint32_t number)
{
	return simple(w, "/home/u/train.py", "train_step", number);
}

/* Each step keeps `size` more bytes at line 7. */
static void leak(struct world *w, struct device d, int steps, uint64_t size)
{
	uint32_t keeps = at_line(w, 7);

	for (int i = 0; i < steps; i++) {
		alloc(w, d, 0x100000 + i, size, keeps);
		step(w, (i + 1) * STEP);
	}
}

static void named(struct world *w, struct device d, int blocks, uint64_t size, const char *name)
{
	for (int i = 0; i < blocks; i++)
		feed(w, (struct event){ .kind = EVENT_TENSOR,
					.device = d,
					.addr = 0x100000 + i,
					.size = size,
					.name = str(w, name) });
}

static struct growth_summary judged(struct world *w, const char *dev)
{
	struct growth_summary s;

	model__finish(w->m, w->time);
	assert_int_equal(growth_summary__of(w->m, w->f, model__find_device(w->m, dev), w->time, &s),
			 0);
	assert_string_equal(s.device, dev);
	growth_summary__say(&s, text);
	return s;
}

static void says(struct world *w, const char *dev, const char *expected)
{
	struct growth_summary s = judged(w, dev);

	assert_string_equal(text, expected);
	growth_summary__free(&s);
	world__free(w);
}

static void is_unknown(struct world *w, const char *dev, const char *why, const char *said)
{
	struct growth_summary s = judged(w, dev);

	assert_int_equal(s.verdict, GROWTH_VERDICT_UNKNOWN);
	assert_false(growth_summary__is_known(&s));
	assert_string_equal(s.why, why);
	assert_string_equal(text, said);
	growth_summary__free(&s);
	world__free(w);
}

/* Tables mark the row of the line, and no other. */
static void test_mark(void **state)
{
	struct world w = watched();
	struct row row = { .file = "/home/u/train.py", .func = "train_step", .line = 7 };
	char mark[GROWTH_SUMMARY_MARK];
	const struct growth_line *line;
	struct growth_summary s;

	leak(&w, CPU, 60, 16 * KIB);
	s = judged(&w, "cpu");
	line = growth_summary__line(&s, &row);
	assert_ptr_equal(line, s.line);
	assert_string_equal(growth_summary__mark(&s, line, 80, mark), "<- grows 16.0 KiB/step");
	assert_string_equal(growth_summary__mark(&s, line, 22, mark), "<- grows 16.0 KiB/step");
	assert_string_equal(growth_summary__mark(&s, line, 21, mark), "<- grows");
	row.before_attach = true;
	assert_null(growth_summary__line(&s, &row));
	row.before_attach = false;
	row.line = 8;
	assert_null(growth_summary__line(&s, &row));
	row.line = 7;
	row.func = "other";
	assert_null(growth_summary__line(&s, &row));
	row.file = NULL;
	assert_null(growth_summary__line(&s, &row));
	growth_summary__free(&s);
	world__free(&w);
}

static void test_grows(void **state)
{
	struct world w = watched();

	leak(&w, CPU, 60, 16 * KIB);
	named(&w, CPU, 60, 16 * KIB, "global history[*]");
	says(&w, "cpu",
	     "+16.0 KiB/step (1.88 MiB/min) at train.py:7 (train_step), held by history[*], "
	     "confidence high");

	w = watched();
	leak(&w, CPU, 60, 16 * KIB);
	named(&w, CPU, 60, 16 * KIB, "runs[*].best[*].0.weight");
	says(&w, "cpu",
	     "+16.0 KiB/step (1.88 MiB/min) at train.py:7 (train_step), held by runs[*].best[*] "
	     "(60 "
	     "models), confidence high");

	w = watched();
	leak(&w, CPU, 30, 16 * KIB);
	named(&w, CPU, 30, 16 * KIB, "model.weight\x1b");
	says(&w, "cpu",
	     "+16.0 KiB/step (1.88 MiB/min) at train.py:7 (train_step), it is model.weight\\x1b, "
	     "confidence medium");

	w = watched();
	leak(&w, CPU, 60, 16 * KIB);
	named(&w, CPU, 60, 16 * KIB, "saved for AddmmBackward0");
	says(&w, "cpu",
	     "+16.0 KiB/step (1.88 MiB/min) at train.py:7 (train_step), held by autograd's graph, "
	     "saved for AddmmBackward0, confidence high");

	w = watched();
	leak(&w, CPU, 60, 16 * KIB);
	named(&w, CPU, 60, 16 * KIB, "saved for TanhBackward0, graph of global m.h and 1 more");
	says(&w, "cpu",
	     "+16.0 KiB/step (1.88 MiB/min) at train.py:7 (train_step), held by the graph of m.h, "
	     "confidence high");
}

/* The row of all blocks without a sampled stack is not a line. Its holder is known. */
static void test_not_sampled(void **state)
{
	struct world w = watched();
	struct growth_summary s;
	char brief[GROWTH_SUMMARY_TEXT];
	uint32_t none = simple(&w, DETAIL_FILE, DETAIL_FUNCTION, 0);

	for (int i = 0; i < 60; i++) {
		alloc(&w, CPU, 0x100000 + i, 16 * KIB, none);
		step(&w, (i + 1) * STEP);
	}
	named(&w, CPU, 60, 16 * KIB, "local metrics.losses[*]");
	s = judged(&w, "cpu");
	assert_string_equal(text, "+16.0 KiB/step (1.88 MiB/min) in small blocks, whose stacks "
				  "were not recorded (--cost), held by metrics.losses[*], "
				  "confidence high");
	growth_summary__brief(&s, 70, brief);
	assert_string_equal(brief, "growth +16.0 KiB/step in small blocks, held by "
				   "metrics.losses[*]");
	growth_summary__brief(&s, 54, brief);
	assert_string_equal(brief, "growth +16.0 KiB/step, 1.88 MiB/min in small blocks");
	growth_summary__free(&s);
	world__free(&w);
}

/* Names as long as a dict takes them, all of it escaped. */
static void test_long_names(void **state)
{
	struct world w = watched();
	struct growth_summary s;
	char *name = malloc(DICT_MAX_STRING + 1), brief[GROWTH_SUMMARY_TEXT];
	uint32_t line;

	(void)state;
	memset(name, '\x1b', DICT_MAX_STRING);
	name[DICT_MAX_STRING] = '\0';
	line = simple(&w, name, name, 7);
	for (int i = 0; i < 60; i++) {
		alloc(&w, CPU, 0x100000 + i, MIB, line);
		step(&w, (i + 1) * STEP);
	}
	memcpy(name, "global ", 7);
	named(&w, CPU, 60, MIB, name);
	s = judged(&w, "cpu");
	assert_non_null(strstr(text, "confidence high"));
	assert_null(strchr(text, '\x1b'));
	growth_summary__brief(&s, 300, brief);
	assert_null(strchr(brief, '\x1b'));
	growth_summary__free(&s);
	world__free(&w);
	free(name);
}

/* A line allocates a temporary block within a module, and then one that stays, outside of it. After
 * the process has freed all, the module of the first block is not that of the growing line. */
static void test_module_of_freed_blocks(void **state)
{
	struct world w = watched();
	struct dict_frame in_module = { .loc = loc(&w, "/home/u/train.py", "train_step", 7) };
	uint32_t keeps = at_line(&w, 7), temporary;
	struct growth_summary s;

	in_module.module = module(&w, "conv.0", "Conv2d", "Net");
	temporary = dict__stack(w.d, &in_module, 1, MT_WALK_OK);
	for (int i = 0; i < 60; i++) {
		alloc(&w, CPU, 0x10, MIB, temporary);
		dealloc(&w, CPU, 0x10, MIB);
		alloc(&w, CPU, 0x100000 + i, MIB, keeps);
		step(&w, (i + 1) * STEP);
	}
	for (int i = 0; i < 60; i++)
		dealloc(&w, CPU, 0x100000 + i, MIB);
	s = judged(&w, "cpu");
	assert_int_equal(s.line->row.count, 60);
	assert_string_equal(s.line->row.module, "");
	assert_string_equal(s.line->row.module_class, "");
	growth_summary__free(&s);
	world__free(&w);
}

static void test_several_lines(void **state)
{
	struct world w = watched();
	uint32_t a = at_line(&w, 7), b = at_line(&w, 9);

	for (int i = 0; i < 60; i++) {
		alloc(&w, CPU, 0x100000 + i, 16 * KIB, a);
		alloc(&w, CPU, 0x200000 + i, 48 * KIB, b);
		step(&w, (i + 1) * STEP);
	}
	says(&w, "cpu",
	     "+48.0 KiB/step (5.63 MiB/min) at train.py:9 (train_step), confidence high; 2 lines "
	     "grow by +64.0 KiB/step in all");
}

/* 60 MiB are allocated at the end, 340 MiB are outside of PyTorch, so that 624 MiB remain. */
static void test_full(void **state)
{
	struct world w = watched();
	struct growth_summary s;

	facts__set(w.f, "device.0.total", "1073741824");
	w.reserved = 100 * MIB;
	leak(&w, CUDA(0), 60, MIB);
	feed(&w, (struct event){ .kind = EVENT_USED, .device = CUDA(0), .size = 440 * MIB });
	s = judged(&w, "cuda:0");
	assert_string_equal(text, "+1.00 MiB/step (120.00 MiB/min) at train.py:7 (train_step), "
				  "confidence high; full in about 5 min (620 steps)");
	assert_int_equal(s.capacity, 1024 * MIB);
	assert_int_equal(s.room, 624 * MIB);
	growth_summary__brief(&s, 84, text);
	assert_string_equal(text, "growth +1.00 MiB/step, 120.00 MiB/min at train.py:7, full in "
				  "about 5 min (620 steps)");
	growth_summary__brief(&s, 83, text);
	assert_string_equal(text, "growth +1.00 MiB/step at train.py:7, full in about 5 min (620 "
				  "steps)");
	growth_summary__brief(&s, 60, text);
	assert_string_equal(text, "growth +1.00 MiB/step, 120.00 MiB/min at train.py:7");
	/* What holds the memory comes before the time that is left. */
	s.holder = &(struct growth_name){ .text = "global history[*]" };
	growth_summary__brief(&s, 83, text);
	assert_string_equal(text, "growth +1.00 MiB/step at train.py:7, held by history[*]");
	growth_summary__free(&s);
	world__free(&w);

	/* A dry run computes nothing, so its steps have no duration. */
	w = watched();
	facts__set(w.f, "dry_run", "1");
	facts__set(w.f, "device.0.total", "1073741824");
	leak(&w, CUDA(0), 60, MIB);
	says(&w, "cuda:0",
	     "+1.00 MiB/step at train.py:7 (train_step), confidence high; full in about 960 "
	     "steps");

	w = watched();
	facts__set(w.f, "device.0.total", "62914560");
	leak(&w, CUDA(0), 60, MIB);
	says(&w, "cuda:0",
	     "+1.00 MiB/step (120.00 MiB/min) at train.py:7 (train_step), confidence high; full "
	     "within a step");

	w = watched();
	facts__set(w.f, "device.0.total", "64487424");
	leak(&w, CUDA(0), 60, MIB);
	says(&w, "cuda:0",
	     "+1.00 MiB/step (120.00 MiB/min) at train.py:7 (train_step), confidence high; full "
	     "in about a second (1 step)");

	/* Ten years and more are not worth a word. */
	w = watched();
	facts__set(w.f, "device.0.total", "1073741824000000");
	leak(&w, CUDA(0), 60, 512);
	says(&w, "cuda:0",
	     "+512 B/step (60.0 KiB/min) at train.py:7 (train_step), confidence high");
}

/* Losses that are logged: no growth that matters. */
static void test_negligible(void **state)
{
	struct world w = watched();

	(void)state;
	leak(&w, CPU, 400, 4);
	says(&w, "cpu",
	     "no growth from step to step in 400 steps, but for +4 B/step at train.py:7 "
	     "(train_step)");
}

static void test_pool_and_others(void **state)
{
	struct world w = watched();
	uint32_t line = at_line(&w, 7);

	facts__set(w.f, "device.0.total", "1073741824");
	for (int i = 0; i < 60; i++) {
		w.reserved = (i + 1) * 2 * MIB;
		alloc(&w, CUDA(0), 0x10, MIB, line);
		dealloc(&w, CUDA(0), 0x10, MIB);
		step(&w, (i + 1) * STEP);
	}
	says(&w, "cuda:0",
	     "+2.00 MiB/step (240.00 MiB/min) in reserved memory, but not in the tensors in it, "
	     "confidence high");

	w = watched();
	line = at_line(&w, 7);
	alloc(&w, CUDA(0), 0x10, MIB, line);
	for (int i = 0; i < 60; i++) {
		feed(&w, (struct event){ .kind = EVENT_CUDA_ALLOC,
					 .how = MEM_DEVICE,
					 .device = CUDA(0),
					 .addr = 0x7000000 + i * MIB,
					 .size = MIB,
					 .stack = line });
		step(&w, (i + 1) * STEP);
	}
	says(&w, "cuda:0",
	     "+1.00 MiB/step (120.00 MiB/min) in memory allocated outside PyTorch's allocator, "
	     "confidence high");
}

/* "No growth" appears only after enough steps. */
static void test_healthy(void **state)
{
	static const int steps[] = { 5, 20, 60, 99, 100, 1000 };

	for (size_t i = 0; i < N(steps); i++) {
		struct world w = watched();
		uint32_t line = at_line(&w, 7);
		char expected[96];

		for (int k = 0; k < steps[i]; k++) {
			alloc(&w, CPU, 0x1000, MIB, line);
			dealloc(&w, CPU, 0x1000, MIB);
			step(&w, (k + 1) * STEP);
		}
		snprintf(expected, sizeof(expected),
			 "no growth from step to step in %d steps (not sure: record 100)",
			 steps[i]);
		if (steps[i] < 100) {
			is_unknown(&w, "cpu", "too_few_steps",
				   steps[i] < 10 ? "growth not known in 5 steps: record 100"
						 : expected);
			continue;
		}
		snprintf(expected, sizeof(expected), "no growth from step to step in %s steps",
			 steps[i] == 1000 ? "1,000" : "100");
		says(&w, "cpu", expected);
	}
}

/* Calls of the model within one step: an evaluation that keeps its outputs. */
static void test_calls_within_a_step(void **state)
{
	struct world w = watched();
	uint32_t line = at_line(&w, 7), outputs = at_line(&w, 9);

	for (int i = 0; i < 120; i++) {
		for (int k = 0; k < (i == 20 ? 60 : 1); k++) {
			feed(&w, (struct event){ .kind = EVENT_CALL });
			alloc(&w, CPU, 0x1000, MIB, line);
			dealloc(&w, CPU, 0x1000, MIB);
			if (i == 20)
				alloc(&w, CPU, 0x100000 + k, MIB, outputs);
		}
		for (int k = 0; i == 20 && k < 60; k++)
			dealloc(&w, CPU, 0x100000 + k, MIB);
		step(&w, (i + 1) * STEP);
	}
	says(&w, "cpu",
	     "no growth from step to step in 120 steps, but 60 calls of the model in step 21 kept "
	     "1.00 MiB each at train.py:9 (train_step)");

	w = watched();
	outputs = at_line(&w, 9);
	for (int i = 0; i < 120; i++) {
		feed(&w, (struct event){ .kind = EVENT_CALL });
		if (i >= 60)
			alloc(&w, CPU, 0x100000 + i, MIB, outputs);
		if (i < 60)
			step(&w, (i + 1) * STEP);
	}
	named(&w, CPU, 200, MIB, "local outputs[*]");
	says(&w, "cpu",
	     "+1.00 MiB/call in 60 calls of the model since step 60 at train.py:9 (train_step), "
	     "held "
	     "by outputs[*], confidence high");
}

/* Inputs that get longer: the peak of each step grows. */
static void test_peaks(void **state)
{
	struct world w = watched();
	uint32_t line = at_line(&w, 7);

	for (int i = 0; i < 60; i++) {
		alloc(&w, CPU, 0x1000, (i + 8) * MIB, line);
		dealloc(&w, CPU, 0x1000, (i + 8) * MIB);
		step(&w, (i + 1) * STEP);
	}
	says(&w, "cpu",
	     "+1.00 MiB/step (120.00 MiB/min) in the peak of each step, most of it at train.py:7 "
	     "(train_step), confidence high");
}

/* A cache that is full after 12 steps, and a list that is emptied every ten steps. */
static void test_looks_like_a_leak(void **state)
{
	struct world w = watched();
	uint32_t cache = at_line(&w, 7), list = at_line(&w, 8);

	for (int i = 0; i < 120; i++) {
		if (i < 12)
			alloc(&w, CPU, 0x100000 + i, MIB, cache);
		alloc(&w, CPU, 0x200000 + i % 10, MIB, list);
		for (int k = 0; i % 10 == 9 && k < 10; k++)
			dealloc(&w, CPU, 0x200000 + k, MIB);
		step(&w, (i + 1) * STEP);
	}
	says(&w, "cpu", "no growth from step to step in 120 steps");
}

static void test_unknown(void **state)
{
	struct world w = watched();
	uint32_t line;

	leak(&w, CPU, 5, MIB);
	is_unknown(&w, "cpu", "too_few_steps", "growth not known in 5 steps: record 100");
	w = watched();
	alloc(&w, CPU, 0x10, MIB, at_line(&w, 7));
	is_unknown(&w, "cpu", "too_short", "growth not known in 1.0 ms: record a minute");

	/* `leaks` has these with medium confidence: 12 steps, and calls of a model, which a
	 * sequence of generation looks like. */
	w = watched();
	leak(&w, CPU, 12, MIB);
	is_unknown(&w, "cpu", "too_few_steps", "growth not known in 12 steps: record 100");
	w = watched();
	facts__set(w.f, "device.0.total", "1073741824");
	leak(&w, CUDA(0), 12, MIB);
	oom(&w, CUDA(0), MIB);
	says(&w, "cuda:0",
	     "+1.00 MiB/step (120.00 MiB/min) at train.py:7 (train_step), confidence medium");
	for (int calls = 40; calls <= 50; calls += 10) {
		w = watched();
		line = at_line(&w, 7);
		for (int i = 0; i < calls; i++) {
			feed(&w, (struct event){ .kind = EVENT_CALL });
			alloc(&w, CPU, 0x100000 + i, MIB, line);
		}
		if (calls < 48)
			is_unknown(&w, "cpu", "too_few_steps",
				   "growth not known in 40 calls: record 100");
		else
			says(&w, "cpu",
			     "+1.00 MiB/call (29.30 GiB/min) at train.py:7 (train_step), "
			     "confidence high");
	}

	/* grew at three steps: neither even nor flat */
	w = watched();
	line = at_line(&w, 7);
	for (int i = 0; i < 120; i++) {
		if (i == 30 || i == 80 || i == 114)
			alloc(&w, CPU, 0x100000 + i, MIB, line);
		alloc(&w, CPU, 0x10, KIB, line);
		dealloc(&w, CPU, 0x10, KIB);
		step(&w, (i + 1) * STEP);
	}
	is_unknown(&w, "cpu", "uneven", "growth not known: memory changes too unevenly");

	w = watched();
	line = at_line(&w, 7);
	for (int i = 0; i < 60; i++) {
		alloc(&w, CPU, 0x10, KIB, line);
		dealloc(&w, CPU, 0x10, KIB);
		step(&w, (i + 1) * STEP);
	}
	feed(&w, (struct event){ .kind = EVENT_LOST, .size = 5 });
	is_unknown(&w, "cpu", "events_lost", "growth not known: events were lost");
}

/* Without steps a minute is needed: loading a model grows for seconds. */
static void test_time(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct world w = watched();
		uint32_t line = at_line(&w, 7);

		for (int k = 0; k < 1000; k++) {
			w.time = (k + 1) * (i ? 100 : 10) * MS - MS;
			alloc(&w, CPU, 0x100000 + k, KIB, line);
		}
		if (i)
			says(&w, "cpu",
			     "+600.0 KiB/min at train.py:7 (train_step), confidence high");
		else
			is_unknown(&w, "cpu", "too_short",
				   "growth not known in 10.0 s: record a minute");
	}
}

/* The minute is of the window, which may begin long after the capture. */
static void test_time_of_a_window(void **state)
{
	struct world w = watched();
	uint32_t line = at_line(&w, 7);

	facts__set(w.f, "window_start_ns", "90000000000");
	for (int k = 0; k < 1000; k++) {
		w.time = 90000 * MS + (k + 1) * 10 * MS - MS;
		alloc(&w, CPU, 0x100000 + k, KIB, line);
	}
	is_unknown(&w, "cpu", "too_short", "growth not known in 10.0 s: record a minute");
}

static void test_json(void **state)
{
	struct world w = watched();
	struct json *j;
	char *out = NULL;
	size_t size;
	FILE *f = open_memstream(&out, &size);
	json_t *doc, *g;

	facts__set(w.f, "device.0.total", "1073741824");
	leak(&w, CUDA(0), 60, MIB);
	model__finish(w.m, w.time);
	j = json__new(f, false);
	json__open_object(j, NULL);
	assert_int_equal(growth_summary__device_json(j, w.m, w.f, 0, w.time), 0);
	json__close_object(j);
	json__free(j);
	fclose(f);
	doc = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
	g = json_object_get(doc, "growth");
	assert_string_equal(json_string_value(json_object_get(g, "verdict")), "grows");
	assert_string_equal(json_string_value(json_object_get(g, "part")), "line");
	assert_string_equal(json_string_value(json_object_get(g, "file")), "/home/u/train.py");
	assert_int_equal(json_integer_value(json_object_get(g, "line")), 7);
	assert_true(json_number_value(json_object_get(g, "bytes_per_step")) == (double)MIB);
	assert_true(json_number_value(json_object_get(g, "bytes_per_minute")) == 120.0 * MIB);
	assert_string_equal(json_string_value(json_object_get(g, "confidence")), "high");
	assert_true(json_is_null(json_object_get(g, "held_by")));
	g = json_object_get(g, "full");
	assert_int_equal(json_integer_value(json_object_get(g, "steps")), 964);
	assert_int_equal(json_integer_value(json_object_get(g, "room")), 964 * MIB);
	json_decref(doc);
	free(out);
	world__free(&w);
}

/* A model that watches nothing, or modules, has nothing to say. */
static void test_not_watched(void **state)
{
	struct world w = world__new(AT_END, 0);
	struct growth_summary s;

	leak(&w, CPU, 3, MIB);
	assert_int_equal(growth_summary__of(w.m, w.f, 0, w.time, &s), -EINVAL);
	world__free(&w);
	w = world__new(AT_END, 0);
	assert_int_equal(growth__watch(w.m, BY_MODULE), 0);
	assert_int_equal(growth__watch(w.m, BY_MODULE), 0);
	assert_int_equal(growth__watch(w.m, BY_LINE), -EINVAL);
	leak(&w, CPU, 3, MIB);
	assert_int_equal(growth_summary__of(w.m, w.f, 0, w.time, &s), -EINVAL);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_mark),
		cmocka_unit_test(test_not_sampled),
		cmocka_unit_test(test_long_names),
		cmocka_unit_test(test_module_of_freed_blocks),
		cmocka_unit_test(test_several_lines),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_negligible),
		cmocka_unit_test(test_pool_and_others),
		cmocka_unit_test(test_healthy),
		cmocka_unit_test(test_calls_within_a_step),
		cmocka_unit_test(test_peaks),
		cmocka_unit_test(test_looks_like_a_leak),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_time_of_a_window),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_not_watched),
	};

	setlocale(LC_ALL, "C.UTF-8");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
