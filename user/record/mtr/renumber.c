/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr/renumber.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "record/dict.h"
#include "record/stream/limits.h"

enum kind { STRINGS, LOCS, MODULES, STACKS, THREADS, NODES, KINDS };

struct renumber {
	const struct dict *from;
	struct dict *to;
	uint32_t *number[KINDS]; /* new number by old number; 0: none yet */
	size_t room[KINDS];
	struct dict_frame frames[DICT_MAX_STACK_FRAMES];
};

struct renumber *renumber__new(const struct dict *from)
{
	struct renumber *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->from = from;
	r->to = dict__new();
	if (!r->to) {
		free(r);
		return NULL;
	}
	return r;
}

void renumber__free(struct renumber *r)
{
	if (!r)
		return;
	for (int k = 0; k < KINDS; k++)
		free(r->number[k]);
	dict__free(r->to);
	free(r);
}

struct dict *renumber__dict(struct renumber *r)
{
	return r->to;
}

/* Looks up the new number of an old one. Returns 0 and sets *ret; 1 if the new dict does not have
 * the entry yet; or -ENOMEM. */
static int look_up(struct renumber *r, enum kind kind, uint32_t old, uint32_t *ret)
{
	*ret = 0;
	if (!old)
		return 0;
	if (array__grow_zero(&r->number[kind], &r->room[kind], (size_t)old + 1,
			     sizeof(**r->number)))
		return -ENOMEM;
	*ret = r->number[kind][old];
	return !*ret;
}

/* Stores `made` as the new number of an old one, and sets *ret to it. made is UINT32_MAX if the new
 * dict had no memory; it cannot be at a bound, because both dicts have the same bounds. Returns 0
 * or -ENOMEM. */
static int set_number(struct renumber *r, enum kind kind, uint32_t old, uint32_t made,
		      uint32_t *ret)
{
	if (made == UINT32_MAX)
		return -ENOMEM;
	r->number[kind][old] = *ret = made;
	return 0;
}

/* The map_ functions set *ret to the new number of an old one, and add the entry to the new dict on
 * first use. They return 0 or -ENOMEM. */
static int map_string(struct renumber *r, uint32_t old, uint32_t *ret)
{
	const char *s;
	int err = look_up(r, STRINGS, old, ret);

	if (err <= 0)
		return err;
	s = dict__str(r->from, old);
	return set_number(r, STRINGS, old, dict__string(r->to, s, strlen(s)), ret);
}

static int map_loc(struct renumber *r, uint32_t old, uint32_t *ret)
{
	struct dict_loc l;
	uint32_t made;
	int err = look_up(r, LOCS, old, ret);

	if (err <= 0)
		return err;
	l = dict__get_loc(r->from, old);
	if (map_string(r, l.file, &l.file) || map_string(r, l.func, &l.func))
		return -ENOMEM;
	made = dict__is_native(r->from, old) ? dict__native_loc(r->to, l) : dict__loc(r->to, l);
	return set_number(r, LOCS, old, made, ret);
}

static int map_module(struct renumber *r, uint32_t old, uint32_t *ret)
{
	struct dict_module m;
	int err = look_up(r, MODULES, old, ret);

	if (err <= 0)
		return err;
	m = dict__get_module(r->from, old);
	if (map_string(r, m.name, &m.name) || map_string(r, m.cls, &m.cls) ||
	    map_string(r, m.root, &m.root))
		return -ENOMEM;
	return set_number(r, MODULES, old, dict__module(r->to, m), ret);
}

static int map_stack(struct renumber *r, uint32_t old, uint32_t *ret)
{
	struct dict_stack s;
	int err = look_up(r, STACKS, old, ret);

	if (err <= 0)
		return err;
	s = dict__get_stack(r->from, old);
	for (uint32_t i = 0; i < s.n; i++)
		if (map_loc(r, s.frames[i].loc, &r->frames[i].loc) ||
		    map_module(r, s.frames[i].module, &r->frames[i].module))
			return -ENOMEM;
	return set_number(r, STACKS, old, dict__stack(r->to, r->frames, s.n, s.walk), ret);
}

static int map_thread(struct renumber *r, uint32_t old, uint32_t *ret)
{
	struct dict_thread t;
	int err = look_up(r, THREADS, old, ret);

	if (err <= 0)
		return err;
	t = dict__get_thread(r->from, old);
	err = map_string(r, t.name, &t.name);
	return err ?: set_number(r, THREADS, old, dict__thread(r->to, t), ret);
}

static int map_node(struct renumber *r, uint32_t old, uint32_t *ret)
{
	struct dict_node n;
	int err = look_up(r, NODES, old, ret);

	if (err <= 0)
		return err;
	n = dict__get_node(r->from, old);
	if (map_string(r, n.cls, &n.cls) || map_stack(r, n.stack, &n.stack) ||
	    map_string(r, n.name, &n.name) || map_module(r, n.module, &n.module))
		return -ENOMEM;
	return set_number(r, NODES, old, dict__node(r->to, n), ret);
}

int renumber__event(struct renumber *r, struct event *e)
{
	struct dict_counts have = dict__counts(r->from);

	if (e->stack >= have.stacks)
		e->stack = 0;
	if (e->thread >= have.threads)
		e->thread = 0;
	if (e->node >= have.nodes)
		e->node = 0;
	if (e->module >= have.modules)
		e->module = 0;
	if (e->name >= have.strings)
		e->name = 0;
	if (map_stack(r, e->stack, &e->stack) || map_thread(r, e->thread, &e->thread) ||
	    map_node(r, e->node, &e->node) || map_module(r, e->module, &e->module) ||
	    map_string(r, e->name, &e->name))
		return -ENOMEM;
	return 0;
}
