/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * layer_enter and layer_exit: those that the recording has. In one that has none they are read off the allocations: a thread
 * is inside the modules of the stack of its last allocation. They nest, and each thread's balance.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <linux/types.h>

#include "export/timeline.h"
#include "memtrace.h"
#include "record/dict.h"

#define MAX_DEPTH 256 /* modules that a thread is in at a time */

struct inside {
	uint32_t n;
	uint32_t deeper;    /* calls entered beyond those that there is room for */
	uint32_t modules[]; /* outermost first */
};

const char *timeline__layer_name(const struct export_ctx *c, uint32_t module)
{
	struct dict_module m = dict__get_module(c->dict, module);
	const char *name = dict__str(c->dict, m.name);

	/* The outermost module has no name: its class is all that can be said. */
	return !module ? NULL : *name ? name : dict__str(c->dict, m.cls);
}

static void put_layer(struct export_ctx *c, struct timeline *t, uint64_t time, const char *type,
		      uint32_t module, uint32_t thread, const struct model_device *d)
{
	struct dict_module m = dict__get_module(c->dict, module);

	t->layer_events++;
	timeline__open_event(t, time, type, 0, timeline__layer_name(c, module), d);
	json__string(t->j, "layer_class", dict__str(c->dict, m.cls));
	json__uint(t->j, "thread", dict__get_thread(c->dict, thread).tid);
	json__close_object(t->j);
}

/* The modules around an allocation, outermost first. A module whose frame shows twice in a row is one call. */
static uint32_t modules_of(const struct dict_stack *s, uint32_t *ret)
{
	uint32_t n = 0;

	for (uint32_t i = s->n; i > 0 && n < MAX_DEPTH; i--) {
		uint32_t module = s->frames[i - 1].module;

		if (module && (!n || ret[n - 1] != module))
			ret[n++] = module;
	}
	return n;
}

/* How many of the modules that the thread was in it has not left. */
static uint32_t still_inside(const struct inside *was, const struct dict_stack *s, uint32_t *now, uint32_t *n)
{
	uint32_t kept = 0, skip = 0;

	/* Where the outer frames are missing, what can be seen continues some module that the thread was in.
	 */
	if (s->walk == MT_WALK_TRUNCATED || s->walk == MT_WALK_FAULT_FRAME) {
		while (*n && skip < was->n && was->modules[skip] != now[0])
			skip++;
		if (!*n || skip == was->n)
			skip = 0;
		if (skip + *n > MAX_DEPTH)
			*n = MAX_DEPTH - skip;
		memmove(now + skip, now, *n * sizeof(*now));
		memcpy(now, was->modules, skip * sizeof(*now));
		*n += skip;
	}
	while (kept < was->n && kept < *n && was->modules[kept] == now[kept])
		kept++;
	return kept;
}

static bool walk_failed(uint8_t walk)
{
	return walk == MT_WALK_FAULT_THREAD || walk == MT_WALK_BUSY || walk == MT_WALK_LOST ||
	       walk == MT_WALK_OFF;
}

static int thread_slot(struct export_ctx *c, struct timeline *t, uint32_t thread, struct inside ***ret)
{
	uint32_t need = dict__counts(c->dict).threads;

	if (thread >= need)
		thread = 0;
	if (thread >= t->nthreads) {
		struct inside **all = reallocarray(t->threads, need ? need : 1, sizeof(struct inside *));

		if (!all)
			return -ENOMEM;
		memset(all + t->nthreads, 0, ((need ? need : 1) - t->nthreads) * sizeof(struct inside *));
		t->threads = all;
		t->nthreads = need ? need : 1;
	}
	*ret = &t->threads[thread];
	return 0;
}

static int inside_of(struct export_ctx *c, struct timeline *t, uint32_t thread, struct inside **ret)
{
	struct inside **slot;
	int err = thread_slot(c, t, thread, &slot);

	if (!err && !*slot) {
		*slot = calloc(1, sizeof(**slot) + MAX_DEPTH * sizeof(uint32_t));
		err = *slot ? 0 : -ENOMEM;
	}
	if (!err)
		*ret = *slot;
	return err;
}

void timeline__close_layers(struct export_ctx *c, struct timeline *t, uint64_t time)
{
	struct model_device d;

	if (!timeline__main_device(c, &d))
		return;
	for (uint32_t i = 0; i < t->nthreads; i++)
		while (t->threads[i] && t->threads[i]->n)
			put_layer(c, t, time, "layer_exit", t->threads[i]->modules[--t->threads[i]->n], i, &d);
}

int timeline__call(struct export_ctx *c, struct timeline *t, const struct event *e)
{
	struct model_device d;
	struct inside *in = NULL;
	uint32_t i;
	int err = inside_of(c, t, e->thread, &in);

	if (err)
		return err;
	if (!t->calls) {
		/* What was read off the allocations so far, in a recording that cannot be looked at twice. */
		t->calls = true;
		timeline__close_layers(c, t, e->time);
	}
	timeline__main_device(c, &d);
	if (e->kind == EVENT_ENTER) {
		if (in->n == MAX_DEPTH) {
			in->deeper++;
			return 0;
		}
		in->modules[in->n++] = e->module;
		put_layer(c, t, e->time, "layer_enter", e->module, e->thread, &d);
		return 0;
	}
	if (in->deeper) {
		in->deeper--;
		return 0;
	}
	for (i = in->n; i && in->modules[i - 1] != e->module; i--)
		;
	while (i && in->n >= i)
		put_layer(c, t, e->time, "layer_exit", in->modules[--in->n], e->thread, &d);
	return 0;
}

int timeline__layers_of(struct export_ctx *c, struct timeline *t, const struct event *e,
			const struct model_device *d)
{
	struct dict_stack s = dict__get_stack(c->dict, e->stack);
	uint32_t now[MAX_DEPTH], n, kept;
	struct inside *was = NULL;
	int err;

	if (!s.n && walk_failed(e->walk))
		return 0; /* nothing is known of where the thread is */
	n = modules_of(&s, now);
	err = inside_of(c, t, e->thread, &was);
	if (err)
		return err;
	kept = still_inside(was, &s, now, &n);
	for (uint32_t i = was->n; i > kept; i--)
		put_layer(c, t, e->time, "layer_exit", was->modules[i - 1], e->thread, d);
	for (uint32_t i = kept; i < n; i++)
		put_layer(c, t, e->time, "layer_enter", now[i], e->thread, d);
	memcpy(was->modules, now, n * sizeof(*now));
	was->n = n;
	return 0;
}
