/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Times and counts of layers from calls of modules. */
#include "unit/model_world.h"

static void call(struct world *w, uint8_t kind, uint32_t module, uint64_t at, uint32_t thread,
		 uint32_t node)
{
	struct event e = {
		.kind = kind, .module = module, .time = at * MS, .thread = thread, .node = node
	};

	assert_int_equal(model__event(w->m, &e), 0);
}

static void enter(struct world *w, uint32_t module, uint64_t at)
{
	call(w, EVENT_ENTER, module, at, w->main_thread, 0);
}

static void leave(struct world *w, uint32_t module, uint64_t at)
{
	call(w, EVENT_LEAVE, module, at, w->main_thread, 0);
}

static struct model_layer layer(const struct world *w, const char *name)
{
	struct model_layer l;

	for (size_t i = 0; i < model__layers(w->m); i++) {
		model__layer(w->m, i, &l);
		if (!strcmp(l.name, name))
			return l;
	}
	fail_msg("no layer %s", name);
	return l;
}

static void expect(const struct world *w, const char *name, uint64_t calls, uint64_t forward,
		   uint64_t backward)
{
	struct model_layer l = layer(w, name);

	assert_true(l.calls_known);
	assert_int_equal(l.all.calls, calls);
	assert_int_equal(l.forward.duration, forward * MS);
	assert_int_equal(l.backward.duration, backward * MS);
	assert_int_equal(l.all.duration, (forward + backward) * MS);
}

static void test_containers(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t root = module(&w, "", "Net", "Net"), a = module(&w, "blocks.0", "Block", "Net"),
		 b = module(&w, "blocks.1", "Block", "Net"),
		 deep = module(&w, "blocks.1.fc", "Linear", "Net");

	enter(&w, root, 1);
	enter(&w, a, 2);
	leave(&w, a, 5);
	enter(&w, b, 6);
	enter(&w, deep, 7);
	leave(&w, deep, 9);
	leave(&w, b, 10);
	leave(&w, root, 20);
	enter(&w, a, 30); /* alone: its model's time too */
	leave(&w, a, 31);
	model__finish(w.m, 40 * MS);
	expect(&w, "", 1, 20, 0);
	expect(&w, "blocks", 0, 8, 0);
	expect(&w, "blocks.0", 2, 4, 0);
	expect(&w, "blocks.1", 1, 4, 0);
	expect(&w, "blocks.1.fc", 1, 2, 0);
	assert_int_equal(layer(&w, "").all.allocs, 0);
	world__free(&w);
}

/* A recursive module, a wrapper and its module, one module on two threads. */
static void test_within_itself(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t net = module(&w, "", "Net", "Net"),
		 wrapper = module(&w, "", "OptimizedModule", "Net"),
		 again = module(&w, "again", "Again", "Net");

	enter(&w, wrapper, 0);
	enter(&w, net, 1);
	enter(&w, again, 2);
	enter(&w, again, 3);
	call(&w, EVENT_ENTER, again, 4, w.autograd_thread, 0);
	leave(&w, again, 5);
	leave(&w, again, 6);
	call(&w, EVENT_LEAVE, again, 7, w.autograd_thread, 0);
	leave(&w, net, 8);
	leave(&w, wrapper, 9);
	model__finish(w.m, 10 * MS);
	expect(&w, "", 1, 9 + 3, 0);
	expect(&w, "again", 3, 4 + 3, 0);
	world__free(&w);
}

/* A recomputation by checkpointing runs in a node. */
static void test_backward(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t net = module(&w, "", "Net", "Net"), old = module(&w, "old", "Block", "Net"),
		 inner = module(&w, "old.fc", "Linear", "Net");
	uint32_t node = dict__node(
		w.d, (struct dict_node){ .cls = str(&w, "CheckpointFunctionBackward") });

	enter(&w, net, 0);
	enter(&w, old, 1);
	leave(&w, old, 3);
	leave(&w, net, 4);
	call(&w, EVENT_ENTER, old, 10, w.main_thread, node);
	enter(&w, inner, 11);
	leave(&w, inner, 12);
	leave(&w, old, 15);
	model__finish(w.m, 20 * MS);
	expect(&w, "old", 2, 2, 5);
	expect(&w, "old.fc", 1, 0, 1);
	assert_int_equal(layer(&w, "old").backward.calls, 1);
	assert_int_equal(layer(&w, "old").forward.calls, 1);
	world__free(&w);
}

/* A leave without an entry, an entry without a leave, an unknown module, a module number without an
 * entry in the dictionary. */
static void test_incomplete(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t net = module(&w, "", "Net", "Net"), fc = module(&w, "fc", "Linear", "Net");

	leave(&w, fc, 1);
	leave(&w, net, 2);
	enter(&w, net, 10);
	enter(&w, 0, 11);
	enter(&w, 77, 12);
	enter(&w, fc, 13);
	leave(&w, 0, 14); /* also leaves the calls in it */
	enter(&w, fc, 15);
	model__finish(w.m, 20 * MS);
	expect(&w, "", 1, 10, 0);
	expect(&w, "fc", 2, 1 + 5, 0);
	world__free(&w);
}

/* Extreme depths, and times that run backwards. */
static void test_hostile(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t net = module(&w, "a.b.c.d", "Net", "Net");

	for (uint64_t i = 0; i < 10000; i++)
		enter(&w, net, 10000 - i);
	for (int i = 0; i < 20000; i++)
		leave(&w, net, 3);
	model__finish(w.m, 1);
	assert_true(layer(&w, "a.b.c.d").all.calls > 0);
	assert_int_equal(layer(&w, "a.b.c.d").all.duration, 0);
	world__free(&w);
}

/* Without recorded calls, times are the spans between allocations, and counts are unknown. */
static void test_allocations_alone(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	struct dict_frame f = { .loc = loc(&w, "/x/net.py", "forward", 3),
				.module = module(&w, "fc", "Linear", "Net") };
	uint32_t stack = dict__stack(w.d, &f, 1, MT_WALK_OK);

	alloc(&w, CPU, 0x1000, 64, stack);
	alloc(&w, CPU, 0x2000, 64, stack);
	model__finish(w.m, 10 * MS);
	assert_false(model__sees_calls(w.m));
	assert_false(layer(&w, "fc").calls_known);
	assert_int_equal(layer(&w, "fc").all.duration, MS);
	world__free(&w);
}

/* Reserved memory while a thread was in a module, also without allocations in it. */
static void test_reserved(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t fc = module(&w, "fc", "Linear", "Net");

	w.reserved = 2 << 20;
	alloc(&w, CUDA(0), 0x1000, 512, simple(&w, "/x/train.py", "main", 3));
	enter(&w, fc, 5);
	leave(&w, fc, 6);
	model__finish(w.m, 10 * MS);
	assert_int_equal(layer(&w, "fc").forward.peak_reserved, 2 << 20);
	assert_int_equal(layer(&w, "fc").backward.peak_reserved, 0);
	assert_int_equal(layer(&w, "fc").all.peak_allocated, 0);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_containers), cmocka_unit_test(test_within_itself),
		cmocka_unit_test(test_backward),   cmocka_unit_test(test_incomplete),
		cmocka_unit_test(test_hostile),	   cmocka_unit_test(test_allocations_alone),
		cmocka_unit_test(test_reserved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
