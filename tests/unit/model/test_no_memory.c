/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The model without memory: each allocation fails once. */
#include "unit/no_memory.h"

#include "memtrace.h"
#include "model/model.h"
#include "record/dict.h"
#include "unit/event_tape.h"

/* A dictionary with two stacks, one in a module, and facts. Made before anything fails. */
struct words {
	struct dict *d;
	struct facts *f;
	uint32_t stack, deep, thread, module, node;
};

static void make_words(struct words *w)
{
	uint32_t file, func;

	w->d = dict__new();
	w->f = facts__new();
	assert_non_null(w->d);
	assert_non_null(w->f);
	file = dict__string(w->d, "/src/train.py", 13);
	func = dict__string(w->d, "train", 5);
	w->module = dict__module(w->d, (struct dict_module){ file, func, func });
	struct dict_frame frames[2] = {
		{ .loc = dict__loc(w->d, (struct dict_loc){ file, func, 3 }) },
		{ .loc = dict__loc(w->d, (struct dict_loc){ file, func, 9 }), .module = w->module },
	};
	w->stack = dict__stack(w->d, frames, 1, MT_WALK_OK);
	w->deep = dict__stack(w->d, frames, 2, MT_WALK_OK);
	w->thread = dict__thread(w->d, (struct dict_thread){ .tid = 7, .name = func });
	w->node = dict__node(w->d, (struct dict_node){ .cls = func, .stack = w->deep });
}

/* Event i of the tape with numbers of w. */
static struct event with_words(const struct words *w, size_t i)
{
	struct event e = event_tape[i];

	e.thread = w->thread;
	if (e.kind == EVENT_ALLOC || e.kind == EVENT_OOM) {
		e.stack = i % 2 ? w->stack : w->deep;
		e.node = i % 3 ? 0 : w->node;
	}
	if (e.kind == EVENT_CALL || e.kind == EVENT_ENTER || e.kind == EVENT_LEAVE)
		e.module = w->module;
	return e;
}

static int on_block(void *ctx, const struct model_block *b)
{
	++*(size_t *)ctx;
	return 0;
}

static int on_segment(void *ctx, const struct model_extent *e)
{
	return 0;
}

static int ask_rows(struct model *m, size_t device)
{
	static const struct row_opts opts[] = {
		{ .by = BY_LINE, .when = ROWS_AT_MARK },
		{ .by = BY_MODULE, .when = ROWS_NOW },
		{ .by = BY_STACK, .when = ROWS_TOTAL, .any_category = true },
	};
	static const uint64_t sums[] = { 39 * TAPE_MIB, 4 * TAPE_MIB + 512, 60 * TAPE_MIB + 512 };
	int err = 0;

	for (size_t i = 0; i < sizeof(opts) / sizeof(*opts) && !err; i++) {
		struct row *rows = NULL;
		size_t n;

		err = model__rows(m, device, &opts[i], &rows, &n);
		if (!err)
			assert_int_equal(n ? rows[n - 1].cumulative : 0, sums[i]);
		free(rows);
	}
	return err;
}

static int ask(struct model *m)
{
	int device = model__find_device(m, "cuda:0"), err;
	struct model_segments segments;
	struct live_block *blocks;
	size_t n;

	assert_true(device >= 0);
	err = ask_rows(m, (size_t)device);
	if (!err) {
		err = model__segments(m, (size_t)device, ROWS_NOW, false, &segments);
		if (!err)
			model__free_segments(&segments);
	}
	if (!err) {
		err = model__live_blocks(m, (size_t)device, ROWS_NOW, &blocks, &n);
		if (!err)
			free(blocks);
	}
	return err;
}

struct run {
	struct words words;
	bool watched;
};

static int run(void *ctx)
{
	struct run *r = ctx;
	struct model *m = model__new(r->words.d, r->words.f, &(struct model_opts){ .at = AT_PEAK });
	size_t gone = 0;
	int err = m ? 0 : -ENOMEM;

	if (m && r->watched)
		model__watch(m, &(struct model_watch){ .on_block = on_block,
						       .on_segment = on_segment,
						       .ctx = &gone });
	for (size_t i = 0; i < TAPE_LENGTH && !err; i++) {
		struct event e = with_words(&r->words, i);

		err = model__event(m, &e);
		if (i == TAPE_LENGTH / 2)
			model__note(m, ROWS_AT_BASE, e.time);
	}
	if (!err)
		model__finish(m, 10000);
	if (!err)
		err = r->watched ? model__watch_error(m) : ask(m);
	model__free(m);
	return err;
}

static void test_model(void **state)
{
	struct run r = { 0 };

	make_words(&r.words);
	no_memory.caches = true;
	assert_true(no_memory__try(run, &r) > 30);
	r.watched = true;
	assert_true(no_memory__try(run, &r) > 30);
	dict__free(r.words.d);
	facts__free(r.words.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
