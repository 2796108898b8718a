/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/passing.h"

#include <string.h>

void passing__hold(const struct export_ctx *c, struct passing *p, const struct event *e)
{
	p->event = *e;
	p->any = true;
	if (!passing__device(c, p, e->device, &p->before))
		memset(&p->before, 0, sizeof(p->before));
}

bool passing__is_selected(const struct export_ctx *c, const char *device)
{
	const char *want = c->device_name;
	size_t n = strlen(want ? want : "");

	if (!want || !strcmp(want, device))
		return true;
	/* "cuda" means "cuda:0" */
	return !strncmp(want, device, n) && !strcmp(device + n, ":0");
}

void passing__device_at(const struct export_ctx *c, size_t i, struct model_device *ret)
{
	struct model_device ahead;
	int k;

	model__device(c->model, i, ret);
	if (ret->has_totals)
		return; /* allocator totals are correct from the first event */
	k = c->ahead ? model__find_device(c->ahead, ret->name) : -1;
	if (k < 0)
		return;
	model__device(c->ahead, k, &ahead);
	/* This model has yet to find these blocks, which were there before their first event. */
	ret->allocated += ahead.late - ret->late;
	ret->peak_allocated += ahead.late - ret->late;
}

bool passing__device(const struct export_ctx *c, struct passing *p, struct device want,
		     struct model_device *ret)
{
	size_t n = model__devices(c->model);

	for (size_t i = 0; i < n; i++) { /* the last one first: events of a device come in rows */
		size_t k = (p->device + i) % n;

		passing__device_at(c, k, ret);
		if (device__same(ret->device, want)) {
			p->device = k;
			return true;
		}
	}
	return false;
}

bool passing__main(const struct export_ctx *c, struct model_device *ret)
{
	const struct model *whole = c->ahead ? c->ahead : c->model;
	int i = c->device_name ? model__find_device(whole, c->device_name)
			       : model__main_device(whole),
	    now;
	struct model_device d;

	memset(ret, 0, sizeof(*ret));
	if (i < 0)
		return false;
	model__device(whole, i, &d);
	now = model__find_device(c->model, d.name);
	if (now >= 0) {
		passing__device_at(c, now, ret);
	} else {
		memcpy(ret->name, d.name, sizeof(ret->name));
		ret->device = d.device;
	}
	return true;
}

size_t passing__steps(const struct export_ctx *c)
{
	/* Before the first optimizer step, the model counts module calls as steps. */
	if (c->ahead && !model__steps_are_calls(c->ahead) && model__steps_are_calls(c->model))
		return 0;
	return model__steps(c->model);
}

enum phase passing__phase(const struct export_ctx *c, const struct event *e)
{
	return e->node ? PHASE_BACKWARD
		       : model__stack_phase(c->model, e->stack, e->thread, e->walk);
}
