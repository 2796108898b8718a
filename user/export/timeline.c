/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Every event as a JSON object, written as it passes: only the statistics at the end wait for the end. An
 * event is written when the next one comes, since the totals after it are the model's by then.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <linux/types.h>

#include "export/export.h"
#include "export/timeline.h"
#include "lib/json.h"
#include "memtrace.h"
#include "record/dict.h"

#define SNAPSHOT_EVERY 1000000000 /* ns */

static bool wanted(const struct export_ctx *c, const char *device)
{
	const char *want = c->device_name;
	size_t n = strlen(want ? want : "");

	if (!want || !strcmp(want, device))
		return true;
	/* "cuda" is "cuda:0". */
	return !strncmp(want, device, n) && !strcmp(device + n, ":0");
}

/*
 * A device as it was, with what is known only later to have been there: what tensors hold on the CPU is read when events
 * come already.
 */
static void look(const struct export_ctx *c, size_t i, struct model_device *ret)
{
	struct model_device ahead;
	int k;

	model__device(c->model, i, ret);
	k = c->ahead ? model__find_device(c->ahead, ret->name) : -1;
	if (k < 0)
		return;
	model__device(c->ahead, k, &ahead);
	ret->allocated += ahead.late - ret->late;
	ret->peak_allocated += ahead.late - ret->late;
}

/* The device of an event as the model has it now. False: not there (yet). */
static bool find_device(struct export_ctx *c, struct timeline *t, struct device want,
			struct model_device *ret)
{
	size_t n = model__devices(c->model);

	for (size_t i = 0; i < n; i++) {
		size_t k = (t->device + i) % n;

		look(c, k, ret);
		if (ret->device.type == want.type && ret->device.index == want.index) {
			t->device = k;
			return true;
		}
	}
	return false;
}

bool timeline__main_device(const struct export_ctx *c, struct model_device *ret)
{
	const struct model *whole = c->ahead ? c->ahead : c->model;
	int i = c->device_name ? model__find_device(whole, c->device_name) : model__main_device(whole), now;
	struct model_device d;

	memset(ret, 0, sizeof(*ret));
	if (i < 0)
		return false;
	model__device(whole, i, &d);
	now = model__find_device(c->model, d.name);
	if (now >= 0)
		look(c, now, ret);
	else
		memcpy(ret->name, d.name, sizeof(ret->name));
	return true;
}

static double fragmentation(const struct model_device *d)
{
	if (!d->has_totals || !d->reserved || d->allocated >= d->reserved)
		return 0;
	return (double)(d->reserved - d->allocated) / (double)d->reserved;
}

void timeline__open_event(struct timeline *t, uint64_t time, const char *type, uint64_t size, const char *layer,
			  const struct model_device *d)
{
	t->written++;
	json__open_object(t->j, NULL);
	json__double(t->j, "timestamp", (double)time / 1e9, 9);
	json__string(t->j, "event_type", type);
	json__uint(t->j, "size_bytes", size);
	json__string(t->j, "layer_name", layer);
	json__uint(t->j, "allocated_bytes", d->allocated);
	json__uint(t->j, "reserved_bytes", d->has_totals ? d->reserved : 0);
	json__double(t->j, "fragmentation_ratio", fragmentation(d), 4);
	json__string(t->j, "device", d->name);
}

static void put_snapshot(struct timeline *t, uint64_t time, const struct model_device *d, const char *reason)
{
	timeline__open_event(t, time, "snapshot", 0, NULL, d);
	json__string(t->j, "reason", reason);
	if (!strcmp(reason, "step"))
		json__uint(t->j, "step", t->steps);
	json__close_object(t->j);
}

static void put_snapshots(struct export_ctx *c, struct timeline *t, uint64_t time, const char *reason)
{
	struct model_device d;

	for (size_t i = 0; i < model__devices(c->model); i++) {
		look(c, i, &d);
		if (wanted(c, d.name))
			put_snapshot(t, time, &d, reason);
	}
}

/* d: just before memory goes down, or at the end. A peak that no snapshot has shown gets one. */
static int put_peak(struct timeline *t, const struct model_device *d)
{
	struct high *h = NULL, *all;

	if (!d->peak_allocated || d->allocated != d->peak_allocated)
		return 0;
	for (size_t i = 0; i < t->nhighs && !h; i++)
		if (t->highs[i].device.type == d->device.type && t->highs[i].device.index == d->device.index)
			h = &t->highs[i];
	if (!h) {
		all = reallocarray(t->highs, t->nhighs + 1, sizeof(*all));
		if (!all)
			return -ENOMEM;
		t->highs = all;
		h = &all[t->nhighs++];
		*h = (struct high){.device = d->device};
	}
	if (d->peak_allocated > h->shown) {
		h->shown = d->peak_allocated;
		put_snapshot(t, d->peak_time, d, "peak");
	}
	return 0;
}

static void put_memory(struct export_ctx *c, struct timeline *t, const struct event *e, const char *type,
		       uint64_t size, const struct model_device *after)
{
	bool stack = e->kind != EVENT_FREE;
	uint32_t module;
	struct event charged = *e;
	struct row_frame line;
	char address[24];

	model__charge(c->model, &charged);
	module = stack ? model__stack_module(c->model, charged.stack) : 0;
	timeline__open_event(t, e->time, type, size, timeline__layer_name(c, module), after);
	if (e->addr) {
		snprintf(address, sizeof(address), "0x%" PRIx64, e->addr);
		json__string(t->j, "address", address);
	}
	json__uint(t->j, "thread", dict__get_thread(c->dict, e->thread).tid);
	if (stack) {
		json__string(t->j, "phase",
			     phase__name(e->node ? PHASE_BACKWARD :
						   model__stack_phase(c->model, e->stack, e->thread, e->walk)));
		if (model__stack_line(c->model, charged.stack, false, &line)) {
			json__string(t->j, "file", line.file);
			json__uint(t->j, "line", line.line);
			json__string(t->j, "function", line.func);
		}
	}
	json__close_object(t->j);
}

static void put_lost(struct timeline *t, const struct event *e)
{
	static const struct model_device none = {.name = ""};

	timeline__open_event(t, e->time, "lost", 0, NULL, &none);
	json__uint(t->j, "records", e->size);
	json__close_object(t->j);
}

static int put_on_device(struct export_ctx *c, struct timeline *t, const struct event *e)
{
	const struct model_device *before = &t->before;
	struct model_device after;
	uint64_t size = e->size;
	int err = 0;

	if (!find_device(c, t, e->device, &after) || !wanted(c, after.name))
		return 0;
	switch (e->kind) {
	case EVENT_ALLOC:
		err = t->calls ? 0 : timeline__layers_of(c, t, e, before->name[0] ? before : &after);
		if (!err)
			put_memory(c, t, e, "alloc", size, &after);
		break;
	case EVENT_FREE:
		err = put_peak(t, before);
		/* An allocator that does not tell how much it frees has no totals: then the block's size
		 * shows here. */
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

/* Writes the event that waits; the model has seen it and none after it. */
static int flush(struct export_ctx *c, struct timeline *t)
{
	const struct event *e = &t->event;
	size_t steps = model__steps(c->model);
	int err;

	if (!t->any)
		return 0;
	t->any = false;
	if (e->kind == EVENT_LOST && e->size)
		put_lost(t, e);
	if (e->kind == EVENT_ENTER || e->kind == EVENT_LEAVE)
		err = timeline__call(c, t, e);
	else
		err = put_on_device(c, t, e);
	if (steps != t->steps) {
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

	t->event = *e;
	t->any = true;
	if (!find_device(c, t, e->device, &t->before))
		memset(&t->before, 0, sizeof(t->before));
	return err;
}

static int timeline_begin(struct export_ctx *c, void **state)
{
	struct timeline *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->j = json__new(c->out, false);
	if (!t->j) {
		free(t);
		return -ENOMEM;
	}
	json__open_object(t->j, NULL);
	json__open_array(t->j, "events");
	t->calls = c->ahead && model__sees_calls(c->ahead);
	*state = t;
	return 0;
}

static int timeline_end(struct export_ctx *c, void *state)
{
	struct timeline *t = state;
	uint64_t last = t->event.time;
	uint64_t end = c->duration > last ? c->duration : last;
	struct model_device d;
	int err = flush(c, t);

	for (size_t i = 0; i < model__devices(c->model) && !err; i++) {
		look(c, i, &d);
		if (wanted(c, d.name))
			err = put_peak(t, &d);
	}
	if (err)
		return err;
	timeline__close_layers(c, t, last);
	put_snapshots(c, t, end, "end");
	json__close_array(t->j);
	err = timeline__layers(c, t->j);
	if (err)
		return err;
	timeline__summary(c, t->j, t->written);
	json__close_object(t->j);
	json__free(t->j); /* writes the last line end: not later, when the stream may be gone */
	t->j = NULL;
	return 0;
}

static void timeline_release(void *state)
{
	struct timeline *t = state;

	if (!t)
		return;
	for (uint32_t i = 0; i < t->nthreads; i++)
		free(t->threads[i]);
	json__free(t->j);
	free(t->threads);
	free(t->highs);
	free(t);
}

const struct export_format export_timeline = {
	.name = "timeline",
	.suffix = ".json",
	.looks_ahead = true,
	.help = "events, layers and totals as JSON: pandas, matplotlib",
	.next = "json.load() reads it, pandas.DataFrame(t[\"events\"]) makes a table of it",
	.begin = timeline_begin,
	.event = timeline_event,
	.end = timeline_end,
	.release = timeline_release,
};
