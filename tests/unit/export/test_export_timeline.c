/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The timeline export parsed: totals follow the events, layers nest, statistics and summary
 * agree. */
#include "unit/export_world.h"

struct layer_stack {
	const char *names[64];
	size_t n;
};

/* Checks thread 4242's events: enters and exits nest, and each allocation is within the innermost
 * layer. */
static void check_layers(const json_t *events, uint64_t *enters)
{
	struct layer_stack s = { .n = 0 };
	json_t *e;
	size_t i;

	*enters = 0;
	json_array_foreach(events, i, e) {
		const char *type = json_string_value(json_object_get(e, "event_type"));
		const char *layer = json_string_value(json_object_get(e, "layer_name"));

		if (json_integer_value(json_object_get(e, "thread")) != 4242)
			continue;
		if (!strcmp(type, "layer_enter")) {
			assert_non_null(layer);
			assert_true(s.n < 64);
			s.names[s.n++] = layer;
			++*enters;
		} else if (!strcmp(type, "layer_exit")) {
			assert_true(s.n > 0);
			assert_string_equal(s.names[--s.n], layer);
		} else if (!strcmp(type, "alloc") && s.n) {
			assert_non_null(layer);
			assert_string_equal(layer, s.names[s.n - 1]);
		} else if (!strcmp(type, "alloc")) {
			assert_null(layer);
		}
	}
	assert_int_equal(s.n, 0);
}

static uint64_t field(const json_t *e, const char *name)
{
	const json_t *v = json_object_get(e, name);

	assert_true(json_is_integer(v));
	return json_integer_value(v);
}

/* Each allocation and free changes the device's total by its size; the peak is the model's. */
static void check_totals(const json_t *events, const struct model_device *d, uint64_t start)
{
	uint64_t now = start, peak = 0, allocs = 0, frees = 0, snapshots = 0, peak_shown = 0;
	json_t *e;
	size_t i;

	json_array_foreach(events, i, e) {
		const char *type = json_string_value(json_object_get(e, "event_type"));
		double frag = json_number_value(json_object_get(e, "fragmentation_ratio"));

		if (strcmp(json_string_value(json_object_get(e, "device")), d->name))
			continue;
		if (!strcmp(type, "alloc")) {
			now += field(e, "size_bytes");
			allocs++;
		} else if (!strcmp(type, "free")) {
			assert_true(field(e, "size_bytes") > 0);
			now -= field(e, "size_bytes");
			frees++;
		} else if (!strcmp(type, "snapshot")) {
			snapshots++;
			if (!strcmp(json_string_value(json_object_get(e, "reason")), "peak"))
				peak_shown = field(e, "allocated_bytes");
		}
		assert_int_equal(field(e, "allocated_bytes"), now);
		assert_true(frag >= 0 && frag <= 1);
		if (field(e, "reserved_bytes"))
			assert_true(frag * field(e, "reserved_bytes") -
					    (field(e, "reserved_bytes") - now) <
				    1e6);
		peak = now > peak ? now : peak;
	}
	assert_int_equal(peak, d->peak_allocated);
	assert_int_equal(peak_shown, d->peak_allocated);
	assert_int_equal(allocs, d->allocs);
	assert_int_equal(frees, d->frees);
	assert_true(snapshots >= 3);
}

static void test_timeline(void **state)
{
	json_t *j, *events, *stats, *summary, *layer;
	struct model_device d;
	uint64_t enters;
	struct world w;

	world__open(&w, "timeline", AT_PEAK, "peak");
	world__run(&w, small);
	assert_int_equal(world__end(&w), 0);
	j = parse(w.text, w.size);
	events = json_object_get(j, "events");
	check_layers(events, &enters);
	/* Per step: the root, an embedding, two blocks of 10 modules each, the head. */
	assert_int_equal(enters, 3 * (1 + 1 + 2 * 10 + 1));
	for (size_t i = 0; i < model__devices(w.m); i++) {
		model__device(w.m, i, &d);
		check_totals(events, &d, d.before_attach_start);
	}
	stats = json_object_get(j, "layer_stats");
	assert_int_equal(json_object_size(stats), model__layers(w.m));
	layer = json_object_get(stats, "blocks.0.attn.qkv");
	assert_non_null(layer);
	assert_int_equal(field(layer, "total_allocations"), 3);
	assert_int_equal(field(layer, "total_deallocations"), 3);
	assert_int_equal(field(layer, "peak_allocated"), 72 * SYN_MIB);
	assert_non_null(json_object_get(stats, "GPT"));
	summary = json_object_get(j, "summary");
	model__device(w.m, 0, &d);
	assert_int_equal(field(summary, "peak_allocated"), d.peak_allocated);
	assert_int_equal(field(summary, "steps"), 2); /* the first of three was active at attach */
	assert_int_equal(field(summary, "events"), model__events(w.m));
	json_decref(j);
	world__close(&w);
}

static void test_timeline_one_device(void **state)
{
	json_t *j, *e;
	struct world w;
	size_t i;

	world__open(&w, "timeline", AT_PEAK, "peak");
	w.ctx.device_name = "cuda";
	world__run(&w, small);
	w.ctx.device = 0;
	assert_int_equal(world__end(&w), 0);
	j = parse(w.text, w.size);
	json_array_foreach(json_object_get(j, "events"), i, e)
		assert_string_equal(json_string_value(json_object_get(e, "device")), "cuda:0");
	assert_true(i > 50);
	assert_int_equal(json_array_size(json_object_get(json_object_get(j, "summary"), "devices")),
			 1);
	json_decref(j);
	world__close(&w);
}

static uint32_t module_of(struct world *w, const char *name)
{
	return dict__module(w->d,
			    (struct dict_module){ .name = dict__string(w->d, name, strlen(name)),
						  .cls = dict__string(w->d, "C", 1) });
}

/* A stack of module calls, innermost first. */
static uint32_t module_stack(struct world *w, uint8_t walk, uint32_t n, const uint32_t *modules)
{
	struct dict_frame frames[8] = { { 0 } };
	struct dict_loc loc = { .file = dict__string(w->d, "m.py", 4),
				.func = dict__string(w->d, "f", 1),
				.line = 1 };

	assert_true(n <= 8);
	for (uint32_t i = 0; i < n; i++)
		frames[i] = (struct dict_frame){ .loc = dict__loc(w->d, loc),
						 .module = modules[i] };
	return dict__stack(w->d, frames, n, walk);
}

/* Modules that a partial stack does not show are not taken as left. */
static void test_timeline_partial_stacks(void **state)
{
	uint32_t a, b, c, whole, cut;
	char order[256] = "";
	struct world w;
	json_t *j, *e;
	size_t i;

	world__open(&w, "timeline", AT_PEAK, "peak");
	a = module_of(&w, "a");
	b = module_of(&w, "a.b");
	c = module_of(&w, "a.b.c");
	whole = module_stack(&w, MT_WALK_OK, 2, (uint32_t[]){ b, a });
	cut = module_stack(&w, MT_WALK_TRUNCATED, 2, (uint32_t[]){ c, b });
	send(&w, alloc_of(whole, MT_WALK_OK, 0x1000, 10));
	send(&w, alloc_of(0, MT_WALK_BUSY, 0x2000, 10));
	send(&w, alloc_of(cut, MT_WALK_TRUNCATED, 0x3000, 10));
	send(&w, alloc_of(0, MT_WALK_OK, 0x4000, 10));
	assert_int_equal(world__end(&w), 0);
	j = parse(w.text, w.size);
	json_array_foreach(json_object_get(j, "events"), i, e) {
		const char *type = json_string_value(json_object_get(e, "event_type"));

		if (!strncmp(type, "layer", 5)) {
			strcat(order, type[6] == 'e' && type[7] == 'n' ? "+" : "-");
			strcat(order, json_string_value(json_object_get(e, "layer_name")));
			strcat(order, " ");
		}
	}
	assert_string_equal(order, "+a +a.b +a.b.c -a.b.c -a.b -a ");
	json_decref(j);
	world__close(&w);
}

static void test_empty_timeline(void **state)
{
	struct world w;
	json_t *j;

	world__open(&w, "timeline", AT_PEAK, "peak");
	assert_int_equal(world__end(&w), 0);
	j = parse(w.text, w.size);
	assert_int_equal(json_array_size(json_object_get(j, "events")), 0);
	assert_int_equal(json_object_size(json_object_get(j, "layer_stats")), 0);
	json_decref(j);
	world__close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timeline),
		cmocka_unit_test(test_timeline_one_device),
		cmocka_unit_test(test_timeline_partial_stacks),
		cmocka_unit_test(test_empty_timeline),
	};

	return cmocka_run_group_tests_name("export timeline", tests, NULL, NULL);
}
