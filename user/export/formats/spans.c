/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/spans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "memtrace.h"
#include "record/dict.h"

#define MAX_DEPTH 256 /* most nested modules per thread; deeper ones are not shown */

struct inside { /* the modules that a thread has entered and not left */
	uint32_t n;
	uint32_t deeper;    /* number of calls that are nested deeper than MAX_DEPTH */
	uint64_t last;	    /* time of the last enter or leave, ns */
	uint32_t modules[]; /* numbers of the modules, outermost first */
};

struct spans {
	const struct dict *dict;
	spans_put *put;
	void *ctx;
	bool calls; /* calls come from events; false: they are inferred from allocations */
	struct inside **threads; /* state of each thread, by its number */
	size_t nthreads;
};

const char *spans__name(const struct dict *d, uint32_t module)
{
	struct dict_module m = dict__get_module(d, module);
	const char *name = dict__str(d, m.name);

	if (!module)
		return NULL;
	/* The root module has no name, so use its class. */
	return *name ? name : dict__str(d, m.cls);
}

struct spans *spans__new(const struct dict *d, bool calls, spans_put *put, void *ctx)
{
	struct spans *s = calloc(1, sizeof(*s));

	if (s)
		*s = (struct spans){ .dict = d, .calls = calls, .put = put, .ctx = ctx };
	return s;
}

void spans__free(struct spans *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->nthreads; i++)
		free(s->threads[i]);
	free(s->threads);
	free(s);
}

/* Enters a module. Times of different threads may differ, so they are kept from going back. */
static void enter(struct spans *s, struct inside *in, uint32_t thread, uint32_t module,
		  uint64_t time)
{
	in->last = time > in->last ? time : in->last;
	in->modules[in->n++] = module;
	s->put(s->ctx, in->last, true, module, thread);
}

/* Leaves the innermost module. */
static void leave(struct spans *s, struct inside *in, uint32_t thread, uint64_t time)
{
	in->last = time > in->last ? time : in->last;
	s->put(s->ctx, in->last, false, in->modules[--in->n], thread);
}

/* Sets ret to the modules of an allocation's stack, outermost first, and returns their number. A
 * module in two successive frames is one call. */
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

/* Returns how many modules, counted from the outermost, the thread was in at its last allocation
 * (was) and is still in (now). Adds to `now` the modules that a cut stack lacks. */
static uint32_t still_inside(const struct inside *was, const struct dict_stack *s, uint32_t *now,
			     uint32_t *n)
{
	uint32_t kept = 0, skip = 0;

	/* If the outer frames are missing, the modules that the thread was in, up to the first
	 * visible one, are still there. */
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

/* True if no frame of the stack was read. walk: MT_WALK_*. */
static bool walk_failed(uint8_t walk)
{
	return walk == MT_WALK_FAULT_THREAD || walk == MT_WALK_BUSY || walk == MT_WALK_LOST ||
	       walk == MT_WALK_OFF;
}

/* Sets *ret to the modules that a thread is in, which it creates on first use. A number that the
 * dict does not know counts as thread 0. Returns 0 or -ENOMEM. */
static int inside_of(struct spans *s, uint32_t thread, struct inside **ret)
{
	uint32_t need = dict__counts(s->dict).threads;

	if (thread >= need)
		thread = 0;
	if (array__grow_zero(&s->threads, &s->nthreads, (size_t)thread + 1, sizeof(*s->threads)))
		return -ENOMEM;
	if (!s->threads[thread])
		s->threads[thread] = calloc(1, sizeof(**s->threads) + MAX_DEPTH * sizeof(uint32_t));
	*ret = s->threads[thread];
	return *ret ? 0 : -ENOMEM;
}

void spans__close(struct spans *s, uint64_t time)
{
	for (uint32_t i = 0; i < s->nthreads; i++)
		while (s->threads[i] && s->threads[i]->n)
			leave(s, s->threads[i], i, time);
}

int spans__call(struct spans *s, const struct event *e)
{
	struct inside *in;
	uint32_t i;
	int err = inside_of(s, e->thread, &in);

	if (err)
		return err;
	if (!s->calls) {
		/* End the calls inferred from allocations. Happens when reading from a pipe. */
		s->calls = true;
		spans__close(s, e->time);
	}
	if (e->kind == EVENT_ENTER) {
		if (in->n == MAX_DEPTH)
			in->deeper++;
		else
			enter(s, in, e->thread, e->module, e->time);
		return 0;
	}
	if (in->deeper) {
		in->deeper--;
		return 0;
	}
	/* Leave the innermost call of this module, if any, with all calls inside it, whose ends
	 * were lost. */
	for (i = in->n; i && in->modules[i - 1] != e->module; i--)
		;
	while (i && in->n >= i)
		leave(s, in, e->thread, e->time);
	return 0;
}

int spans__alloc(struct spans *s, const struct event *e)
{
	struct dict_stack stack = dict__get_stack(s->dict, e->stack);
	uint32_t now[MAX_DEPTH], n, kept;
	struct inside *was;
	int err;

	if (s->calls || (!stack.n && walk_failed(e->walk)))
		return 0; /* the thread's position is not known */
	n = modules_of(&stack, now);
	err = inside_of(s, e->thread, &was);
	if (err)
		return err;
	kept = still_inside(was, &stack, now, &n);
	while (was->n > kept)
		leave(s, was, e->thread, e->time);
	while (was->n < n)
		enter(s, was, e->thread, now[was->n], e->time);
	return 0;
}
