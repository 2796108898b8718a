/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/events.h"

#include <string.h>

#include "record/dict.h"
#include "record/host.h"

/* The values of the field "event". */
static const char *const kinds[EVENT_KINDS] = {
	[EVENT_ALLOC] = "alloc",     [EVENT_FREE] = "free",	 [EVENT_OOM] = "oom",
	[EVENT_STEP] = "step",	     [EVENT_CALL] = "call",	 [EVENT_LOST] = "lost",
	[EVENT_CUDA_ALLOC] = "take", [EVENT_CUDA_FREE] = "give", [EVENT_BLOCK] = "block",
	[EVENT_SEGMENT] = "segment", [EVENT_STATE] = "state",	 [EVENT_REQUESTED] = "asked",
	[EVENT_USED] = "used",	     [EVENT_TENSOR] = "tensor",	 [EVENT_CENSUS] = "census",
	[EVENT_ENTER] = "enter",     [EVENT_LEAVE] = "leave",	 [EVENT_MARK] = "mark",
	[EVENT_LEFT] = "left",	     [EVENT_HOST] = "host",	 [EVENT_SCOPE] = "scope",
};

/* True for events that have the stack of their own call. A free has none; it is shown at the place
 * of its allocation. */
static bool has_stack(uint8_t kind)
{
	return kind == EVENT_ALLOC || kind == EVENT_OOM || kind == EVENT_CUDA_ALLOC ||
	       kind == EVENT_BLOCK;
}

/* True for events of a device; false for those of the whole process or of a thread. */
static bool is_of_device(uint8_t kind)
{
	switch (kind) {
	case EVENT_STEP:
	case EVENT_CALL:
	case EVENT_LOST:
	case EVENT_ENTER:
	case EVENT_LEAVE:
	case EVENT_MARK:
	case EVENT_HOST:
	case EVENT_SCOPE:
		return false;
	default:
		return true;
	}
}

/* Returns s, or NULL if it is empty or missing: fields without a text are unknown. */
static const char *non_empty(const char *s)
{
	return s && *s ? s : NULL;
}

/* Sets the name and class of a module; leaves both for module 0. */
static void set_module(const struct export_ctx *c, uint32_t module, struct event_row *t)
{
	struct dict_module m = dict__get_module(c->dict, module);

	if (!module)
		return;
	t->module = dict__str(c->dict, m.name);
	t->module_class = dict__str(c->dict, m.cls);
}

/* Sets the place in the program that a stack stands for, as the report finds it. node: the autograd
 * node, or 0. walk: how the read of the stack ended (MT_WALK_*). */
static void set_stack(const struct export_ctx *c, uint32_t stack, uint32_t node, uint32_t thread,
		      uint8_t walk, struct event_row *t)
{
	struct row row;

	model__stack_row(c->model, stack, node, thread, walk, &row);
	t->stack = stack;
	t->phase = phase__name(row.phase);
	t->file = non_empty(row.file);
	t->function = non_empty(row.func);
	t->line = row.line;
	t->source = row.source;
	set_module(c, model__module(c->model, stack, node, walk), t);
}

void events__place(const struct export_ctx *c, const struct live_block *b, struct event_row *t)
{
	if (b->before_attach)
		t->source = "census";
	else
		set_stack(c, b->stack, b->node, b->thread, b->walk, t);
	set_module(c, b->module, t);
	t->requested = b->requested;
	t->category = category__name(b->category);
	t->name = b->name;
}

/* For a free: sets what is known about the freed block, and its lifetime if its allocation was
 * recorded. */
static void set_block(const struct export_ctx *c, const struct events *ev, struct event_row *t)
{
	const struct live_block *b = &ev->block;
	const struct event *e = t->event;

	if (!ev->block_known)
		return;
	events__place(c, b, t);
	t->size = e->size ? e->size : b->size;
	t->has_lifetime = !b->older && e->time >= b->time;
	t->lifetime = t->has_lifetime ? e->time - b->time : 0;
}

/* Sets the place in the program that an event belongs to, and its category and name. */
static void set_where(const struct export_ctx *c, const struct events *ev, struct event_row *t)
{
	struct event charged = *t->event;

	if (charged.kind == EVENT_FREE) {
		set_block(c, ev, t);
	} else if (charged.kind == EVENT_BLOCK && !charged.stack && !charged.walk) {
		t->source = "census";
	} else if (has_stack(charged.kind)) {
		model__charge(c->model, &charged);
		set_stack(c, charged.stack, charged.node, charged.thread, charged.walk, t);
	} else if (charged.module) {
		set_module(c, charged.module, t);
	}
	if (charged.kind == EVENT_TENSOR) {
		t->category = charged.category < CATEGORY_NR ? category__name(charged.category)
							     : NULL;
		t->name = non_empty(dict__str(c->dict, charged.name));
	}
	if (charged.kind == EVENT_MARK || charged.kind == EVENT_SCOPE)
		t->name = non_empty(dict__str(c->dict, charged.name));
}

/* Returns the name of what caused the event, of the part of host memory, or what a scope does;
 * NULL: unknown. */
static const char *how_of(const struct event *e)
{
	if (e->kind == EVENT_HOST)
		return host_part__name(e->how);
	if (e->kind == EVENT_SCOPE)
		return scope_flag__name(e->flags);
	return e->how ? facts__how_name(e->how) : NULL;
}

void events__fields(const struct event_row *t, struct event_field ret[EVENT_FIELDS])
{
	const struct event *e = t->event;
	bool has_address = e->addr && e->kind != EVENT_SCOPE;
	const struct event_field all[] = {
		{ "number", FIELD_NUMBER, true, t->number, NULL },
		{ "time", FIELD_NS, true, e->time, NULL },
		{ "event", FIELD_TEXT, t->kind, 0, t->kind },
		{ "device", FIELD_TEXT, t->device, 0, t->device },
		{ "address", FIELD_ADDRESS, has_address, e->addr, NULL },
		{ "size", FIELD_NUMBER, t->size, t->size, NULL },
		{ "requested", FIELD_NUMBER, t->requested, t->requested, NULL },
		{ "allocated", FIELD_NUMBER, t->has_totals, t->allocated, NULL },
		{ "reserved", FIELD_NUMBER, t->has_reserved, t->reserved, NULL },
		{ "tid", FIELD_NUMBER, t->tid, t->tid, NULL },
		{ "thread", FIELD_TEXT, t->thread, 0, t->thread },
		{ "step", FIELD_NUMBER, true, t->step, NULL },
		{ "phase", FIELD_TEXT, t->phase, 0, t->phase },
		{ "module", FIELD_TEXT, t->module, 0, t->module },
		{ "module_class", FIELD_TEXT, t->module_class, 0, t->module_class },
		{ "file", FIELD_TEXT, t->file, 0, t->file },
		{ "line", FIELD_NUMBER, t->line, t->line, NULL },
		{ "function", FIELD_TEXT, t->function, 0, t->function },
		{ "source", FIELD_TEXT, t->source, 0, t->source },
		{ "category", FIELD_TEXT, t->category, 0, t->category },
		{ "name", FIELD_TEXT, t->name, 0, t->name },
		{ "lifetime", FIELD_NS, t->has_lifetime, t->lifetime, NULL },
		{ "call", FIELD_TEXT, t->how, 0, t->how },
	};

	_Static_assert(sizeof(all) / sizeof(*all) == EVENT_FIELDS, "fields of an event");
	memcpy(ret, all, sizeof(all));
}

/* Passes the waiting event on to ev->put(). The model must have processed it, but no later event.
 * Returns 0 or the error of put(). */
static int flush(struct export_ctx *c, struct events *ev, void *state)
{
	const struct event *e = &ev->wait.event;
	struct dict_thread thread = dict__get_thread(c->dict, e->thread);
	struct model_device d;
	struct event_row t = {
		.event = e,
		.number = ev->number,
		.kind = e->kind < EVENT_KINDS && kinds[e->kind] ? kinds[e->kind] : "unknown",
		.how = how_of(e),
		.size = e->size,
		.requested = e->requested,
		.tid = thread.tid,
		.thread = non_empty(dict__str(c->dict, thread.name)),
		.step = passing__steps(c),
	};

	ev->wait.any = false;
	if (e->kind == EVENT_SCOPE)
		t.size = 0; /* not of memory */
	if (e->kind == EVENT_STEP && t.step)
		t.step--; /* the event belongs to the step that it ended */
	if (is_of_device(e->kind) && passing__device(c, &ev->wait, e->device, &d)) {
		if (!passing__is_selected(c, d.name))
			return 0;
		t.device = d.name;
		t.has_totals = true;
		t.allocated = d.allocated;
		t.has_reserved = d.has_totals;
		t.reserved = d.has_totals ? d.reserved : 0;
	} else if (is_of_device(e->kind) && c->device_name) {
		return 0; /* its device is unknown, so it is not the chosen one */
	}
	set_where(c, ev, &t);
	return ev->put(c, state, &t);
}

int events__pass(struct export_ctx *c, struct events *ev, void *state, const struct event *e)
{
	int err = ev->wait.any ? flush(c, ev, state) : 0;

	ev->number++;
	ev->block_known = e->kind == EVENT_FREE &&
			  model__live_block(c->model, e->device, e->addr, &ev->block);
	passing__hold(c, &ev->wait, e);
	return err;
}

int events__end(struct export_ctx *c, struct events *ev, void *state)
{
	return ev->wait.any ? flush(c, ev, state) : 0;
}
