/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memtrace.h"
#include "record/dict.h"
#include "record/stream.h"
#include "record/stream/limits.h"

#define STR(d, s) dict__string(d, s, sizeof(s) - 1)

static void test_interning(void **state)
{
	struct dict *d = dict__new();
	struct dict_frame frames[] = { { 1, 0 }, { 2, 1 }, { 1, 0 } };
	struct dict_counts n;

	assert_int_equal(STR(d, ""), 0);
	assert_int_equal(STR(d, "a"), 1);
	assert_int_equal(STR(d, "b"), 2);
	assert_int_equal(STR(d, "a"), 1);
	assert_int_equal(dict__loc(d, (struct dict_loc){ 0 }), 0);
	assert_int_equal(dict__loc(d, (struct dict_loc){ 1, 2, 3 }), 1);
	assert_int_equal(dict__loc(d, (struct dict_loc){ 1, 2, 4 }), 2);
	assert_int_equal(dict__loc(d, (struct dict_loc){ 1, 2, 3 }), 1);
	assert_int_equal(dict__module(d, (struct dict_module){ 1, 2, 0 }), 1);
	assert_int_equal(dict__module(d, (struct dict_module){ 1, 2, 0 }), 1);
	assert_int_equal(dict__thread(d, (struct dict_thread){ 10, 1 }), 1);
	assert_int_equal(dict__thread(d, (struct dict_thread){ 10, 2 }), 2); /* another name */
	assert_int_equal(dict__thread(d, (struct dict_thread){ 10, 1 }), 1);
	assert_int_equal(dict__node(d, (struct dict_node){ 0 }), 0);
	assert_int_equal(dict__node(d, (struct dict_node){ 1, 2, 0, 0 }), 1);
	assert_int_equal(dict__node(d, (struct dict_node){ 1, 2, 0, 1 }), 2);
	assert_int_equal(dict__node(d, (struct dict_node){ 1, 2, 0, 0 }), 1);
	assert_int_equal(dict__stack(d, NULL, 0, MT_WALK_OK), 0);
	assert_int_equal(dict__stack(d, frames, 2, MT_WALK_OK), 1);
	assert_int_equal(dict__stack(d, frames, 3, MT_WALK_OK), 2);
	assert_int_equal(dict__stack(d, frames, 2, MT_WALK_FAULT_FRAME), 3); /* another outcome */
	assert_int_equal(dict__stack(d, frames, 2, MT_WALK_OK), 1);
	assert_int_equal(dict__stack(d, NULL, 0, MT_WALK_NO_FRAME), 4);
	n = dict__counts(d);
	assert_int_equal(n.strings, 3);
	assert_int_equal(n.locs, 3);
	assert_int_equal(n.modules, 2);
	assert_int_equal(n.stacks, 5);
	assert_int_equal(n.threads, 3);
	assert_int_equal(n.nodes, 3);
	assert_int_equal(dict__get_node(d, 2).module, 1);
	assert_int_equal(dict__get_node(d, 3).cls, 0); /* out of range */
	assert_int_equal(dict__get_loc(d, 2).line, 4);
	assert_int_equal(dict__get_module(d, 1).cls, 2);
	assert_int_equal(dict__get_thread(d, 2).name, 2);
	assert_int_equal(dict__get_stack(d, 2).n, 3);
	assert_memory_equal(dict__get_stack(d, 2).frames, frames, sizeof(frames));
	assert_int_equal(dict__get_stack(d, 3).walk, MT_WALK_FAULT_FRAME);
	dict__free(d);
	dict__free(NULL);
}

static void test_out_of_range(void **state)
{
	static const uint32_t ids[] = { 1, 2, 1000000, UINT32_MAX };
	struct dict *d = dict__new();

	for (size_t i = 0; i < 4; i++) {
		assert_string_equal(dict__str(d, ids[i]), "");
		assert_int_equal(dict__get_loc(d, ids[i]).line, 0);
		assert_int_equal(dict__get_module(d, ids[i]).name, 0);
		assert_int_equal(dict__get_stack(d, ids[i]).n, 0);
		assert_int_equal(dict__get_thread(d, ids[i]).tid, 0);
	}
	dict__free(d);
}

/* Numbers and pointers stay valid when entries are added. */
static void test_stable(void **state)
{
	struct dict *d = dict__new();
	const char *first, *second;
	const struct dict_frame *frames;
	char text[32];

	assert_int_equal(STR(d, "first"), 1);
	first = dict__str(d, 1);
	second = dict__str(d, 0);
	assert_int_equal(dict__stack(d, &(struct dict_frame){ 5, 6 }, 1, 0), 1);
	frames = dict__get_stack(d, 1).frames;
	for (uint32_t i = 0; i < 200000; i++) {
		struct dict_frame f[2] = { { i, 1 }, { i / 7, 0 } };

		snprintf(text, sizeof(text), "string %u", i);
		assert_int_equal(dict__string(d, text, strlen(text)), i + 2);
		assert_int_equal(dict__loc(d, (struct dict_loc){ i, i, i + 1 }), i + 1);
		assert_int_equal(dict__stack(d, f, 2, 0), i + 2);
	}
	for (uint32_t i = 0; i < 200000; i += 999) {
		snprintf(text, sizeof(text), "string %u", i);
		assert_string_equal(dict__str(d, i + 2), text);
		assert_int_equal(dict__string(d, text, strlen(text)), i + 2);
	}
	assert_ptr_equal(dict__str(d, 1), first);
	assert_string_equal(first, "first");
	assert_ptr_equal(dict__str(d, 0), second);
	assert_ptr_equal(dict__get_stack(d, 1).frames, frames);
	assert_int_equal(frames[0].module, 6);
	dict__free(d);
}

static void test_hostile_text(void **state)
{
	struct dict *d = dict__new();
	char *text = malloc(3 * DICT_MAX_STRING);
	const char *s;

	assert_string_equal(dict__str(d, STR(d, "a\xff"
						"b")),
			    "a\xef\xbf\xbd"
			    "b");
	assert_string_equal(dict__str(d, STR(d, "a\0b\0")), "a\xef\xbf\xbd"
							    "b\xef\xbf\xbd");
	assert_string_equal(dict__str(d, STR(d, "tab\tnew\n")), "tab\tnew\n");
	/* The maximum length; one more; only invalid bytes; cut within a character. */
	memset(text, 'x', 3 * DICT_MAX_STRING);
	assert_int_equal(strlen(dict__str(d, dict__string(d, text, DICT_MAX_STRING))),
			 DICT_MAX_STRING);
	s = dict__str(d, dict__string(d, text, DICT_MAX_STRING + 1));
	assert_int_equal(strlen(s), DICT_MAX_STRING);
	assert_string_equal(s + DICT_MAX_STRING - 4, "x...");
	/* Longer texts with an equal start become one. */
	assert_ptr_equal(dict__str(d, dict__string(d, text, 3 * DICT_MAX_STRING)), s);
	memset(text, 0, 3 * DICT_MAX_STRING);
	s = dict__str(d, dict__string(d, text, 3 * DICT_MAX_STRING));
	assert_true(strlen(s) <= DICT_MAX_STRING && strlen(s) > DICT_MAX_STRING - 4);
	assert_string_equal(s + strlen(s) - 3, "...");
	for (size_t i = 0; i < 3 * DICT_MAX_STRING; i++)
		text[i] = "\xe6\xbc\xa2"[i % 3];
	s = dict__str(d, dict__string(d, text, 3 * DICT_MAX_STRING));
	assert_string_equal(s + strlen(s) - 6, "\xe6\xbc\xa2...");
	free(text);
	dict__free(d);
}

static void test_deep_stack(void **state)
{
	struct dict *d = dict__new();
	struct dict_frame *frames = calloc(DICT_MAX_STACK_FRAMES + 5, sizeof(*frames));
	struct dict_stack s;
	uint32_t id;

	for (uint32_t i = 0; i < DICT_MAX_STACK_FRAMES + 5; i++)
		frames[i].loc = i;
	id = dict__stack(d, frames, DICT_MAX_STACK_FRAMES, MT_WALK_OK);
	assert_int_equal(dict__get_stack(d, id).walk, MT_WALK_OK);
	id = dict__stack(d, frames, DICT_MAX_STACK_FRAMES + 5, MT_WALK_OK);
	s = dict__get_stack(d, id);
	assert_int_equal(s.n, DICT_MAX_STACK_FRAMES);
	assert_int_equal(s.walk, MT_WALK_TRUNCATED);
	assert_int_equal(s.frames[0].loc, 0);
	assert_int_equal(dict__stack(d, frames, DICT_MAX_STACK_FRAMES + 4, MT_WALK_OK), id);
	free(frames);
	dict__free(d);
}

/* CPython 3.13 and newer: the frame around a class's __init__ is in no stack. A reader's numbers
 * are those of the recording. */
static void test_phantom_frames(void **state)
{
	struct dict *d = dict__new();
	uint32_t init = STR(d, "__init__"), file = STR(d, "/app/__init__");
	uint32_t phantom = dict__loc(d, (struct dict_loc){ init, init, 0 });
	uint32_t real[] = { dict__loc(d, (struct dict_loc){ file, init, 0 }),
			    dict__loc(d, (struct dict_loc){ init, init, 3 }) };
	struct dict_frame with[] = { { real[0], 0 }, { phantom, 0 }, { real[1], 0 } };
	struct dict_frame without[] = { { real[0], 0 }, { real[1], 0 } };
	struct dict *reader = dict__new();

	assert_int_equal(dict__stack(d, without, 2, MT_WALK_OK), 1);
	assert_int_equal(dict__stack(d, with, 3, MT_WALK_OK), 1);
	assert_int_equal(dict__stack(d, with + 1, 1, MT_WALK_OK), 0);
	assert_int_equal(dict__counts(d).stacks, 2);
	STR(reader, "__init__");
	STR(reader, "/app/__init__");
	for (uint32_t i = 1; i < dict__counts(d).locs; i++)
		assert_int_equal(dict__loc(reader, dict__get_loc(d, i)), i);
	assert_int_equal(dict__recorded_stack(reader, without, 2, MT_WALK_OK), 1);
	assert_int_equal(dict__recorded_stack(reader, with, 3, MT_WALK_OK), 2);
	assert_int_equal(dict__recorded_stack(reader, without, 2, MT_WALK_OK), 1);
	assert_int_equal(dict__get_stack(reader, 2).n, 2);
	assert_memory_equal(dict__get_stack(reader, 2).frames, without, sizeof(without));
	dict__free(reader);
	dict__free(d);
}

/* A full table reports an error and keeps its entries. */
static void test_full(void **state)
{
	struct dict *d = dict__new();

	for (uint32_t i = 1; i < DICT_MAX_THREADS; i++)
		assert_int_equal(dict__thread(d, (struct dict_thread){ i, 0 }), i);
	errno = 0;
	assert_int_equal(dict__thread(d, (struct dict_thread){ DICT_MAX_THREADS, 0 }), UINT32_MAX);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(dict__thread(d, (struct dict_thread){ 7, 0 }), 7);
	assert_int_equal(dict__counts(d).threads, DICT_MAX_THREADS);
	dict__free(d);
}

static void test_facts(void **state)
{
	struct facts *f = facts__new();
	const char *key, *value;
	char *big;

	assert_int_equal(facts__count(f), 0);
	assert_null(facts__get(f, "pid"));
	assert_int_equal(facts__setf(f, "pid", "%d", 42), 0);
	assert_int_equal(facts__set(f, "comm", "py\xff"), 0);
	assert_int_equal(facts__set(f, "counter.hit", ""), 0);
	assert_int_equal(facts__set(f, "pid", "43"), 0); /* replaces the value */
	assert_int_equal(facts__count(f), 3);
	facts__at(f, 0, &key, &value);
	assert_string_equal(key, "pid");
	assert_string_equal(value, "43");
	facts__at(f, 2, &key, &value);
	assert_string_equal(key, "counter.hit");
	assert_string_equal(value, "");
	assert_string_equal(facts__get(f, "comm"), "py\xef\xbf\xbd");
	assert_int_equal(facts__set(f, "", "x"), -EINVAL);
	assert_int_equal(facts__set(f, "with space", "x"), -EINVAL);
	assert_int_equal(facts__set(f, "\xc3\xa4", "x"), -EINVAL);
	big = malloc(FACTS_MAX_VALUE + 2);
	memset(big, 'v', FACTS_MAX_VALUE + 1);
	big[FACTS_MAX_VALUE + 1] = '\0';
	assert_int_equal(facts__set(f, "pid", big), -E2BIG);
	assert_string_equal(facts__get(f, "pid"), "43"); /* unchanged */
	big[FACTS_MAX_VALUE] = '\0';
	for (int i = 0; i < 3; i++) /* the fourth MiB is incomplete */
		assert_int_equal(facts__set(f, (char[]){ 'a', (char)('a' + i), '\0' }, big), 0);
	assert_int_equal(facts__set(f, "overflow", big), -E2BIG);
	assert_int_equal(facts__set(f, "aa", "small"), 0);
	assert_int_equal(facts__set(f, "overflow", big), 0);
	free(big);
	for (size_t i = facts__count(f); i < FACTS_MAX; i++) {
		char name[] = { 'k', (char)('!' + i % 90), (char)('!' + i / 90), '\0' };

		assert_int_equal(facts__set(f, name, "1"), 0);
	}
	assert_int_equal(facts__count(f), FACTS_MAX);
	assert_int_equal(facts__set(f, "one_more", "1"), -E2BIG);
	assert_int_equal(facts__set(f, "pid", "44"), 0);
	facts__free(f);
	facts__free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interning),      cmocka_unit_test(test_out_of_range),
		cmocka_unit_test(test_stable),	       cmocka_unit_test(test_hostile_text),
		cmocka_unit_test(test_phantom_frames), cmocka_unit_test(test_deep_stack),
		cmocka_unit_test(test_full),	       cmocka_unit_test(test_facts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
