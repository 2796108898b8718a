/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Statistics of the timeline: layers and totals. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "export/formats/timeline.h"
#include "model/words.h"
#include "record/detail.h"
#include "report/doc.h"

struct named {
	struct model_layer layer;
	size_t number;
	const char *name;
};

static int by_name(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x->number > y->number) - (x->number < y->number);
}

static void put_layer(struct json *j, const struct named *n, const char *key, bool reserved)
{
	const struct model_layer *l = &n->layer;

	json__open_object(j, key);
	json__string(j, "layer_name", n->name);
	json__string(j, "layer_class", l->cls);
	report_json__layer(j, l, reserved);
	json__close_object(j);
}

/* Object keys must differ, so layers with equal names (two models in one program) get a number,
 * except for the first. */
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

int timeline__layers(struct export_ctx *c, struct json *j)
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

static void put_device(struct json *j, const struct model_device *d)
{
	json__string(j, "device", d->name);
	json__uint(j, "peak_allocated", d->peak_allocated);
	json__uint_or_null(j, "peak_reserved", d->has_totals, d->peak_reserved);
	json__seconds(j, "peak_time", d->peak_time, 6);
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

void timeline__summary(struct export_ctx *c, struct json *j, uint64_t written)
{
	int main_device = c->device >= 0 ? c->device : model__main_device(c->model);
	char detail[DETAIL_TEXT];
	struct model_device d;

	json__open_object(j, "summary");
	json__string(j, "recording", c->name);
	json__string(j, "pid", facts__get(c->facts, "pid"));
	json__string(j, "torch", facts__get(c->facts, "torch"));
	json__string(j, "start", facts__get(c->facts, "start"));
	json__seconds(j, "duration", c->duration, 6);
	words__put_window(j, c->model);
	json__uint(j, "events", model__events(c->model));
	json__uint(j, "events_written", written);
	json__uint(j, "lost", words__lost(c->model, c->facts));
	if (*detail__sentence(detail, sizeof(detail), c->facts))
		json__string(j, "reduced_detail", detail);
	json__uint(j, "total_layers", model__layers(c->model));
	json__uint(j, "steps", model__whole_steps(c->model));
	json__seconds(j, "step_time", model__step_time(c->model), 6);
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
