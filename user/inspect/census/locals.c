/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Names tensors by the variable that holds them: of a running function or of the main module. A
 * variable counts only if its value is the same before and after the tensors are read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "inspect/census/internal.h"
#include "inspect/pyobj.h"
#include "inspect/python/pylocals.h"
#include "inspect/python/pystr.h"

static bool is_nameless_tensor(void *ctx, uint64_t obj)
{
	struct reading *r = ctx;
	uint64_t kind, i;

	return map64__get(r->seen, obj, &kind) && (kind == TYPE_TENSOR || kind == TYPE_WRAPPER) &&
	       !map64__get(r->by_obj, obj, &i);
}

/* Reads the main module's dictionary; no entries if it cannot be read. */
static int read_globals(struct reading *r, struct pyitems *it)
{
	uint64_t module, dict;
	int err;

	it->n = 0;
	err = pyobj__module(r->c->py, "__main__", &module);
	if (!err)
		err = pymem__u64(&r->m, module + r->m.l->md_dict, &dict);
	if (!err)
		err = pydict__items(&r->m, dict, it);
	if (!err)
		return 0;
	it->n = 0;
	return reading__is_local(err) ? 0 : err;
}

static int find_globals(struct reading *r, struct census_locals *ret)
{
	struct pyitems it = { 0 };
	int err = read_globals(r, &it);

	ret->globals = err ? NULL : calloc(it.n + 1, sizeof(*ret->globals));
	if (!err && !ret->globals)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < it.n; i++)
		if (is_nameless_tensor(r, it.v[i].value))
			ret->globals[ret->nglobals++] = it.v[i];
	pyitems__fini(&it);
	return err;
}

int census__find_locals(struct reading *r, struct census_locals *ret)
{
	int err;

	memset(ret, 0, sizeof(*ret));
	pymem__forget(&r->m);
	err = pylocals__read(&r->m, is_nameless_tensor, r, &ret->v, &ret->n);
	return err ? err : find_globals(r, ret);
}

void census_locals__free(struct census_locals *l)
{
	free(l->v);
	free(l->globals);
	memset(l, 0, sizeof(*l));
}

/* Sets for each variable whether it still has its value: first function variables, then globals. */
static int check(struct reading *r, const struct census_locals *l, bool *holds)
{
	struct map64 *now = map64__new();
	struct pyitems it = { 0 };
	uint64_t value;
	int err = now ? 0 : -ENOMEM;

	pymem__forget(&r->m);
	if (!err)
		err = pylocals__check(&r->m, l->v, l->n, holds);
	if (!err && l->nglobals)
		err = read_globals(r, &it);
	for (size_t i = 0; !err && i < it.n; i++)
		err = map64__set(now, it.v[i].key, it.v[i].value);
	for (size_t i = 0; !err && i < l->nglobals; i++)
		holds[l->n + i] = map64__get(now, l->globals[i].key, &value) &&
				  value == l->globals[i].value;
	pyitems__fini(&it);
	map64__free(now);
	return err;
}

/* Index in the list by object, for tensors without a name. */
static int index_nameless(const struct census_list *l, struct map64 *by_obj)
{
	int err = 0;

	for (size_t i = 0; !err && i < l->n; i++)
		if (l->v[i].obj && l->v[i].state == PYTENSOR_OK &&
		    l->labels[i].kind == CENSUS_OTHER && !l->labels[i].name)
			err = map64__set(by_obj, l->v[i].obj, i);
	return err;
}

static bool same_tensor(const struct pytensor *a, const struct pytensor *b)
{
	return a->state == PYTENSOR_OK && b->state == PYTENSOR_OK && a->impl == b->impl &&
	       a->storage == b->storage && a->addr == b->addr && a->size == b->size;
}

/* Text of a variable: "local x in GPT.forward (gpt.py:52)", "global x". */
static int text_of(struct reading *r, const struct census_locals *l, size_t i, char *buf,
		   size_t size)
{
	size_t at = snprintf(buf, size, i < l->n ? "local " : "global ");
	int err;

	if (i < l->n)
		return pylocal__text(&r->m, &l->v[i], buf + at, size - at);
	err = pystr__read(&r->m, l->globals[i - l->n].key, buf + at, size - at, NULL);
	return err < 0 ? err : 0;
}

static int give_names(struct reading *r, struct census_list *l, const struct census_locals *locals,
		      const struct map64 *by_obj, const struct pytensor *now, const bool *before,
		      const bool *after)
{
	char text[64 + PYOBJ_MAX_STRING];
	uint64_t ix;
	int err = 0;

	for (size_t i = 0; !err && i < locals->n + locals->nglobals; i++) {
		if (!before[i] || !after[i] || !map64__get(by_obj, now[i].obj, &ix) ||
		    l->labels[ix].name || !same_tensor(&l->v[ix], &now[i]))
			continue;
		err = text_of(r, locals, i, text, sizeof(text));
		if (!err)
			err = reading__add_text(r, text, &l->labels[ix].name);
		err = err && reading__is_local(err) ? 0 : err;
	}
	return err;
}

/* Checks the variables, reads their tensors again, and checks the variables once more. Then neither
 * changed meanwhile. */
int census__name_locals(struct reading *r, struct census_list *l,
			const struct census_locals *locals)
{
	size_t n = locals->n + locals->nglobals;
	struct map64 *by_obj = map64__new();
	struct pytensor *now = calloc(n + 1, sizeof(*now));
	bool *before = calloc(2 * n + 1, sizeof(*before)), *after = before + n;
	int err = by_obj && now && before ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < n; i++)
		now[i].obj = i < locals->n ? locals->v[i].obj
					   : locals->globals[i - locals->n].value;
	if (!err)
		err = index_nameless(l, by_obj);
	if (!err)
		err = check(r, locals, before);
	if (!err)
		err = pytensors__read(r->c->tensors, now, n);
	if (!err)
		err = check(r, locals, after);
	if (!err)
		err = give_names(r, l, locals, by_obj, now, before, after);
	map64__free(by_obj);
	free(now);
	free(before);
	return err;
}
