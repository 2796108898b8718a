/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Traces of one job: of each rank the last, with its workers. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/web/web.h"

/* A finished trace; rank -1: not known. */
static void add(struct state *s, const char *id, const char *model, const char *folder, int rank,
		double begun, double seconds)
{
	struct state_trace *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	snprintf(t->id, sizeof(t->id), "%s", id);
	t->facts = json_pack("{s:s, s:s, s:s*, s:f, s:f}", "model_name", model, "state", "done",
			     "folder", folder, "begun", begun, "seconds", seconds);
	t->report = rank >= 0 ? json_pack("{s:{s:i}}", "target", "rank", rank) : NULL;
	assert_non_null(t->facts);
	s->traces[s->n_traces++] = t;
}

static void clear(struct state *s)
{
	for (size_t i = 0; i < s->n_traces; i++) {
		json_decref(s->traces[i]->facts);
		json_decref(s->traces[i]->report);
		json_decref(s->traces[i]->summary);
		free(s->traces[i]);
	}
	free(s);
}

static void check(const struct state *s, const char *job, const char *want)
{
	json_t *ids = routes_trace__last_of_job(s, job), *id;
	char text[200] = "";
	size_t i, n = 0;

	assert_non_null(ids);
	json_array_foreach(ids, i, id)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? " " : "",
				      json_string_value(id));
	assert_string_equal(text, want);
	json_decref(ids);
}

static void test_last_of_each_rank(void **unused)
{
	struct state *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	check(s, NULL, "");
	add(s, "a0", "train", NULL, 0, 100, 10);
	add(s, "a1", "train", NULL, 1, 100, 10);
	add(s, "a0-worker", "train", NULL, 0, 100.5, 10);
	add(s, "x", "other", NULL, 0, 105, 10);
	add(s, "b0", "train", NULL, 0, 110, 10);
	add(s, "b0-worker", "train", NULL, 0, 112, 10);
	add(s, "unknown", "train", NULL, -1, 120, 10);
	add(s, "again", "train", NULL, -1, 130, 10);
	add(s, "running", "train", NULL, 1, 140, 10);
	json_object_set_new(s->traces[s->n_traces - 1]->facts, "state", json_string("capturing"));
	add(s, "profile", "train", NULL, 1, 150, 10);
	json_object_set_new(s->traces[s->n_traces - 1]->facts, "keep", json_false());
	/* a0 ended as b0 began. a0-worker still ran then, but not when b0-worker began. */
	check(s, NULL, "a1 x b0 b0-worker unknown again");
	check(s, "train", "a1 b0 b0-worker unknown again");
	check(s, "other", "x");
	check(s, "trai", "");
	clear(s);
}

static void test_folders(void **unused)
{
	struct state *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	add(s, "a0", "", "first", 0, 100, 0);
	add(s, "b0", "", "second", 0, 200, 0);
	add(s, "c0", "", NULL, 0, 300, 0);
	/* The length is that of the report: both at the same time. */
	add(s, "d0", "", NULL, 0, 310, 0);
	s->traces[2]->summary = json_pack("{s:f}", "tracing_time_ms", 15000.0);
	check(s, NULL, "a0 b0 c0 d0");
	check(s, "first", "a0");
	check(s, "second", "b0");
	clear(s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(test_last_of_each_rank),
						   cmocka_unit_test(test_folders) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
