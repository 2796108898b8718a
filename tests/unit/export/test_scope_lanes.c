/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Spans of scopes never overlap in part in one lane. */
#include "unit/model_world.h"

#include "export/formats/scope_lanes.h"

static void tell(struct world *w, uint32_t thread, uint8_t flags, const char *name, uint64_t number)
{
	feed(w, (struct event){ .kind = EVENT_SCOPE,
				.thread = thread,
				.how = SCOPE_PHASE,
				.flags = flags,
				.name = str(w, name),
				.addr = number });
}

/* Coroutines that take turns get two lanes. Another thread gets its own lane. Nested runs share
 * one. */
static void test_lanes(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t other = dict__thread(w.d, (struct dict_thread){ .tid = 300 });
	const uint32_t lane[] = { 0, 0, 1, 2 };
	const uint8_t depth[] = { 0, 1, 0, 0 };
	struct scope_lanes lanes;

	(void)state;
	tell(&w, 0, SCOPE_BEGIN, "a", 1);
	feed(&w, (struct event){ .kind = EVENT_SCOPE, /* inside a */
				 .how = SCOPE_PHASE,
				 .flags = SCOPE_BEGIN,
				 .name = str(&w, "inner"),
				 .addr = 2,
				 .size = 1 });
	tell(&w, 0, SCOPE_END, "inner", 2);
	tell(&w, 0, SCOPE_SUSPEND, "a", 1);
	tell(&w, 0, SCOPE_BEGIN, "b", 3);
	tell(&w, other, SCOPE_BEGIN, "c", 4);
	tell(&w, other, SCOPE_END, "c", 4);
	tell(&w, 0, SCOPE_RESUME, "a", 1);
	tell(&w, 0, SCOPE_END, "a", 1);
	tell(&w, 0, SCOPE_END, "b", 3);
	model__finish(w.m, w.time);
	assert_int_equal(model__scope_runs(w.m), 4);
	assert_int_equal(scope_lanes__of(w.m, w.d, &lanes), 0);
	assert_int_equal(lanes.n, 3);
	for (size_t i = 0; i < N(lane); i++) {
		assert_int_equal(lanes.lane_of[i], lane[i]);
		assert_int_equal(lanes.depth_of[i], depth[i]);
	}
	assert_int_equal(lanes.all[0].deepest, 2);
	assert_int_equal(lanes.all[1].nth, 1);
	assert_int_equal(lanes.all[1].tid, lanes.all[0].tid);
	assert_int_equal(lanes.all[2].tid, 300);
	scope_lanes__drop(&lanes);
	world__free(&w);
}

/* Deeper spans than a lane has room for go to a further one. */
static void test_depth(void **state)
{
	struct world w = world__new(AT_END, 0);
	struct scope_lanes lanes;

	(void)state;
	for (uint64_t i = 0; i < SCOPE_LANE_DEPTH + 1; i++)
		tell(&w, 0, SCOPE_BEGIN, "deep", 0);
	for (uint64_t i = 0; i < SCOPE_LANE_DEPTH + 1; i++)
		tell(&w, 0, SCOPE_END, "deep", 0);
	model__finish(w.m, w.time);
	assert_int_equal(scope_lanes__of(w.m, w.d, &lanes), 0);
	assert_int_equal(lanes.n, 2);
	assert_int_equal(lanes.all[0].deepest, SCOPE_LANE_DEPTH);
	assert_int_equal(lanes.lane_of[SCOPE_LANE_DEPTH], 1);
	scope_lanes__drop(&lanes);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_depth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
