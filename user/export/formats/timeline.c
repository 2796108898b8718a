/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Writes each event as a JSON object when the next event arrives, because only then are the totals
 * after it known. The statistics follow at the end. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "export/export.h"
#include "export/formats/passing.h"
#include "export/formats/spans.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/dict.h"
#include "report/doc.h"

/* ---- statistics at the end ---- */

/* A layer under the name that the file shows. */
struct named {
	struct model_layer layer;
	size_t number;
	const char *name;
};

/* Comparison for qsort(): by name, then by number. */
static int by_name(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* Writes the statistics of a layer. reserved: the model knows reserved memory. */
static void put_layer(struct json *j, const struct named *n, const char *key, bool reserved)
{
	const struct model_layer *l = &n->layer;

	json__open_object(j, key);
	json__string(j, "layer_name", n->name);
	json__string(j, "layer_class", l->cls);
	report_json__layer(j, l, reserved);
	json__close_object(j);
}

/* Writes a layer. same: number of layers before it with its name. Object keys must differ, so
 * layers with equal names (two models in one program) get a number, except for the first. */
static int put_same_name(struct json *j, const struct named *n, size_t same, bool reserved)
{
	char *key;

	if (!same) {
		put_layer(j, n, n->name, reserved);
		return 0;
	}
	if (asprintf(&key, "%s #%zu", n->name, same + 1) < 0)
		return -ENOMEM;
	put_layer(j, n, key, reserved);
	free(key);
	return 0;
}

/* Writes the statistics of all layers, by name. Returns 0 or -ENOMEM. */
static int put_layer_stats(struct export_ctx *c, struct json *j)
{
	size_t n = model__layers(c->model), same = 0;
	struct named *all = calloc(n ? n : 1, sizeof(*all));
	int err = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		model__layer(c->model, i, &all[i].layer);
		all[i].number = i;
		all[i].name = *all[i].layer.name ? all[i].layer.name : all[i].layer.cls;
	}
	qsort(all, n, sizeof(*all), by_name);
	json__open_object(j, "layer_stats");
	for (size_t i = 0; i < n && !err; i++) {
		same = i && !strcmp(all[i - 1].name, all[i].name) ? same + 1 : 0;
		err = put_same_name(j, &all[i], same, model__reserves(c->model));
	}
	json__close_object(j);
	free(all);
	return err;
}

/* Writes the figures of a device into the open object. */
static void put_device(struct json *j, const struct model_device *d)
{
	json__string(j, "device", d->name);
	json__uint(j, "peak_allocated", d->peak_allocated);
	json__uint_or_null(j, "peak_reserved", d->has_totals, d->peak_reserved);
	json__seconds(j, "peak_time", d->peak_time, /*decimals=*/6);
	json__uint(j, "peak_step", d->peak_step);
	json__string(j, "peak_phase", phase__name(d->peak_phase));
	json__uint(j, "end_allocated", d->allocated);
	json__uint_or_null(j, "end_reserved", d->has_totals, d->reserved);
	json__uint_or_null(j, "before_attach", d->before_known, d->before_attach_start);
	json__uint(j, "total_allocated", d->total_allocated);
	json__uint(j, "total_allocations", d->allocs);
	json__uint(j, "total_deallocations", d->frees);
	json__uint(j, "ooms", d->ooms);
	json__uint_or_null(j, "drift", d->has_totals, d->drift);
}

/* Writes the figures of the whole recording. written: number of written events. */
static void put_summary(struct export_ctx *c, struct json *j, uint64_t written)
{
	int main_device = c->device >= 0 ? c->device : model__main_device(c->model);
	char detail[DETAIL_TEXT];
	struct model_device d;

	json__open_object(j, "summary");
	json__string(j, "recording", c->name);
	json__string(j, "pid", facts__get(c->facts, "pid"));
	json__string(j, "torch", facts__get(c->facts, "torch"));
	json__string(j, "start", facts__get(c->facts, "start"));
	json__seconds(j, "duration", c->duration, /*decimals=*/6);
	words__put_window(j, c->model);
	json__uint(j, "events", model__events(c->model));
	json__uint(j, "events_written", written);
	json__uint(j, "lost", words__lost(c->model, c->facts));
	if (*detail__reduced(detail, sizeof(detail), c->facts))
		json__string(j, "reduced_detail", detail);
	json__uint(j, "total_layers", model__layers(c->model));
	json__uint(j, "steps", model__whole_steps(c->model));
	json__seconds(j, "step_time", model__step_time(c->model), /*decimals=*/6);
	if (main_device >= 0) {
		model__device(c->model, main_device, &d);
		/* figures of the main device, in addition to the list of all devices */
		put_device(j, &d);
	}
	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(c->model); i++) {
		if (c->device >= 0 && (size_t)c->device != i)
			continue;
		model__device(c->model, i, &d);
		json__open_object(j, NULL);
		put_device(j, &d);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

/* ---- events ---- */

struct snapshot_peak {
	struct device device;
	uint64_t shown; /* the highest peak for which a snapshot was written, bytes */
};

struct timeline {
	struct json *j;
	const struct dict *dict;
	struct passing wait;
	struct spans *spans;
	/* The device that layer events show, because module calls have no device. */
	struct model_device layer_device;
	uint64_t written;	/* number of written events */
	uint64_t next_snapshot; /* time of the next snapshot with reason "interval", ns */
	size_t steps;		/* number of steps for which snapshots were written */
	struct snapshot_peak *highs;
	size_t nhighs, room_highs;
};

#define SNAPSHOT_EVERY 1000000000 /* ns between two snapshots */

/* Opens an event with the members that all have. time: ns. layer: NULL: none. d: the device after
 * the event. */
static void open_event(struct timeline *t, uint64_t time, const char *type, uint64_t size,
		       const char *layer, const struct model_device *d)
{
	uint64_t reserved = d->has_totals ? d->reserved : 0;

	t->written++;
	json__open_object(t->j, NULL);
	json__seconds(t->j, "timestamp", time, /*decimals=*/9);
	json__string(t->j, "event_type", type);
	json__uint(t->j, "size_bytes", size);
	json__string(t->j, "layer_name", layer);
	json__uint(t->j, "allocated_bytes", d->allocated);
	json__uint(t->j, "reserved_bytes", reserved);
	json__double(t->j, "fragmentation_ratio", words__fragmentation(d->allocated, reserved),
		     /*decimals=*/4);
	json__string(t->j, "device", d->name);
}

/* For spans__new(): writes a module call with the device of the last event. */
static void put_layer_event(void *ctx, uint64_t time, bool enter, uint32_t module, uint32_t thread)
{
	struct timeline *t = ctx;
	struct dict_module m = dict__get_module(t->dict, module);

	open_event(t, time, enter ? "layer_enter" : "layer_exit", 0, spans__name(t->dict, module),
		   &t->layer_device);
	json__string(t->j, "layer_class", dict__str(t->dict, m.cls));
	json__uint(t->j, "thread", dict__get_thread(t->dict, thread).tid);
	json__close_object(t->j);
}

/* Writes the state of a device. reason: "peak", "step", "interval" or "end". */
static void put_snapshot(struct timeline *t, uint64_t time, const struct model_device *d,
			 const char *reason)
{
	open_event(t, time, "snapshot", 0, /*layer=*/NULL, d);
	json__string(t->j, "reason", reason);
	if (!strcmp(reason, "step"))
		json__uint(t->j, "step", t->steps);
	json__close_object(t->j);
}

/* Writes the state of each chosen device. time: ns. */
static void put_snapshots(struct export_ctx *c, struct timeline *t, uint64_t time,
			  const char *reason)
{
	struct model_device d;

	for (size_t i = 0; i < model__devices(c->model); i++) {
		passing__device_at(c, i, &d);
		if (passing__is_selected(c, d.name))
			put_snapshot(t, time, &d, reason);
	}
}

/* Writes a snapshot if the device is at a new peak. d: its state before memory shrinks, or at the
 * end. Returns 0 or -ENOMEM. */
static int put_peak(struct timeline *t, const struct model_device *d)
{
	struct snapshot_peak *h = NULL;

	if (!d->peak_allocated || d->allocated != d->peak_allocated)
		return 0;
	for (size_t i = 0; i < t->nhighs && !h; i++)
		if (device__same(t->highs[i].device, d->device))
			h = &t->highs[i];
	if (!h) {
		if (array__grow(&t->highs, &t->room_highs, t->nhighs + 1, sizeof(*t->highs)))
			return -ENOMEM;
		h = &t->highs[t->nhighs++];
		*h = (struct snapshot_peak){ .device = d->device };
	}
	if (d->peak_allocated > h->shown) {
		h->shown = d->peak_allocated;
		put_snapshot(t, d->peak_time, d, "peak");
	}
	return 0;
}

/* Writes an allocation, a free or an out-of-memory event. A free has no place in the program.
 * after: the device after it. */
static void put_memory(struct export_ctx *c, struct timeline *t, const struct event *e,
		       const char *type, uint64_t size, const struct model_device *after)
{
	bool has_place = e->kind != EVENT_FREE;
	uint32_t module;
	struct event charged = *e;
	struct row_frame line;
	char address[24];

	model__charge(c->model, &charged);
	module = has_place ? model__stack_module(c->model, charged.stack) : 0;
	open_event(t, e->time, type, size, spans__name(c->dict, module), after);
	if (e->addr) {
		snprintf(address, sizeof(address), "0x%" PRIx64, e->addr);
		json__string(t->j, "address", address);
	}
	json__uint(t->j, "thread", dict__get_thread(c->dict, e->thread).tid);
	if (has_place) {
		json__string(t->j, "phase", phase__name(passing__phase(c, e)));
		if (model__event_line(c->model, e, &line)) {
			json__string(t->j, "file", line.file);
			json__uint(t->j, "line", line.line);
			json__string(t->j, "function", line.func);
		}
	}
	json__close_object(t->j);
}

/* Writes that records were lost, which no device is known for. */
static void put_lost(struct timeline *t, const struct event *e)
{
	static const struct model_device none = { .name = "" };

	open_event(t, e->time, "lost", 0, /*layer=*/NULL, &none);
	json__uint(t->j, "records", e->size);
	json__close_object(t->j);
}

/* Writes an event of a device, if it is of a kind that the file has. Returns 0 or -ENOMEM. */
static int put_on_device(struct export_ctx *c, struct timeline *t, const struct event *e)
{
	const struct model_device *before = &t->wait.before;
	struct model_device after;
	uint64_t size = e->size;
	int err = 0;

	if (!passing__device(c, &t->wait, e->device, &after) ||
	    !passing__is_selected(c, after.name))
		return 0;
	switch (e->kind) {
	case EVENT_ALLOC:
		t->layer_device = before->name[0] ? *before : after;
		err = spans__alloc(t->spans, e);
		if (!err)
			put_memory(c, t, e, "alloc", size, &after);
		break;
	case EVENT_FREE:
		err = put_peak(t, before);
		/* If the free event has no size, use the difference of the totals. */
		if (!size && before->allocated > after.allocated)
			size = before->allocated - after.allocated;
		if (!err)
			put_memory(c, t, e, "free", size, &after);
		break;
	case EVENT_OOM:
		put_memory(c, t, e, "oom", size, &after);
		break;
	}
	return err;
}

/* Writes the waiting event, and the snapshots that are due. Call when the model has processed it,
 * but no later event. Returns 0 or -ENOMEM. */
static int flush(struct export_ctx *c, struct timeline *t)
{
	const struct event *e = &t->wait.event;
	size_t steps = passing__steps(c);
	int err = 0;
	if (!t->wait.any)
		return 0;
	t->wait.any = false;
	if (e->kind == EVENT_LOST && e->size)
		put_lost(t, e);
	if (e->kind == EVENT_ENTER || e->kind == EVENT_LEAVE) {
		passing__main(c, &t->layer_device);
		err = spans__call(t->spans, e);
	} else if (e->kind != EVENT_MARK && e->kind != EVENT_HOST && e->kind != EVENT_SCOPE) {
		err = put_on_device(c, t, e);
	}
	if (steps != t->steps) {
		/* Fewer: from a pipe, optimizer steps replaced the calls counted so far. */
		bool ended = steps > t->steps;

		t->steps = steps;
		if (ended)
			put_snapshots(c, t, e->time, "step");
	}
	if (e->time >= t->next_snapshot && e->time < UINT64_MAX - SNAPSHOT_EVERY) {
		t->next_snapshot = e->time + SNAPSHOT_EVERY;
		put_snapshots(c, t, e->time, "interval");
	}
	return err;
}

static int timeline_event(struct export_ctx *c, void *state, const struct event *e)
{
	struct timeline *t = state;
	int err = flush(c, t);

	passing__hold(c, &t->wait, e);
	return err;
}

static void timeline_release(void *state)
{
	struct timeline *t = state;

	if (!t)
		return;
	json__free(t->j);
	spans__free(t->spans);
	free(t->highs);
	free(t);
}

static int timeline_begin(struct export_ctx *c, void **state)
{
	struct timeline *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->dict = c->dict;
	t->j = json__new(c->out, false);
	t->spans = spans__new(c->dict, c->ahead && model__sees_calls(c->ahead), put_layer_event, t);
	if (!t->j || !t->spans) {
		timeline_release(t);
		return -ENOMEM;
	}
	json__open_object(t->j, NULL);
	json__open_array(t->j, "events");
	*state = t;
	return 0;
}

static int timeline_end(struct export_ctx *c, void *state)
{
	struct timeline *t = state;
	uint64_t last = t->wait.event.time;
	uint64_t end = c->duration > last ? c->duration : last;
	struct model_device d;
	int err = flush(c, t);

	for (size_t i = 0; i < model__devices(c->model) && !err; i++) {
		passing__device_at(c, i, &d);
		if (passing__is_selected(c, d.name))
			err = put_peak(t, &d);
	}
	if (err)
		return err;
	passing__main(c, &t->layer_device);
	spans__close(t->spans, last);
	put_snapshots(c, t, end, "end");
	json__close_array(t->j);
	err = put_layer_stats(c, t->j);
	if (err)
		return err;
	put_summary(c, t->j, t->written);
	json__close_object(t->j);
	json__free(t->j); /* writes the final line end, while the stream is still open */
	t->j = NULL;
	return 0;
}

const struct export_format export_timeline = {
	.name = "timeline",
	.suffix = ".json",
	.whole = true,
	.looks_ahead = true,
	.help = "events, layers and totals as JSON, for pandas and matplotlib",
	.next = "json.load() reads it, pandas.DataFrame(t[\"events\"]) makes a table of it",
	.begin = timeline_begin,
	.event = timeline_event,
	.end = timeline_end,
	.release = timeline_release,
};
