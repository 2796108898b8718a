/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names tensors by the container that holds them: a list, dict, attribute of an object, or closure.
 * The search starts at globals of the program's modules and variables of running functions. It
 * takes the shortest path: "global history[*]",
 * "local trainer.outputs[*]['loss'] in main (train.py:31)". All items of a list share a name, and
 * so do the values of a thread-local in all threads. A path counts only if it is the same before
 * and after the tensors are read, or if a function ran at one of these times only. Large containers
 * take turns: after some thousand items one goes to the end of the queue. So a list of a million
 * samples does not use up the limits before others are examined.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/map64.h"
#include "inspect/census/owners.h"
#include "inspect/process/memcache.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"
#include "inspect/python/pylocals.h"
#include "inspect/python/pystr.h"

/* A search takes at most SEARCH_MAX_NS and at most 1/SEARCH_SHARE of the reading's limit, in CPU
 * time. On a busy machine it lasts longer, up to half of the time that is left. */
#define SEARCH_MAX_NS 300000000ull
#define SEARCH_SHARE 8
#define MODULES_MAX 32768u
#define THREADS_MAX 4096u
#define PARAMETERS_MAX 10000u
/* Words at the start of a thread's state, among which its context and its exceptions are. */
#define STATE_WORDS 48u

/*
 * ---- roots ----
 *
 * Globals of the program's own modules, variables of running functions, and what threads keep:
 * contexts, and exceptions that are handled.
 */

/* Whether a module is not the program's own: its file is in a folder of packages or of the standard
 * library, or it has none. l->it: the module's dictionary. file_key: see pystr__find(). */
static bool is_package_unchecked(struct census_owners *l, uint64_t *file_key)
{
	static const char *const folders[] = { "/site-packages/", "/dist-packages/",
					       "/lib/python3.", "/lib64/python3." };
	char file[1024];
	uint64_t value;

	if (pystr__find(&l->r->m, &l->it, "__file__", file_key, &value) ||
	    pystr__read(&l->r->m, value, file, sizeof(file), NULL) < 0)
		return true;
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		if (strstr(file, folders[i]))
			return true;
	return false;
}

static bool is_package(struct census_owners *l, uint64_t *file_key)
{
	bool package;

	pymem__begin_unchecked(&l->r->m); /* the file of a module does not change */
	package = is_package_unchecked(l, file_key);
	pymem__end_unchecked(&l->r->m);
	return package;
}

/* Prefix of the globals in a module of Python that the program may set: sys has the last exception
 * of an interactive session. NULL: the module has none. */
static const char *users_prefix(struct census_owners *l, uint64_t name)
{
	const char *ret = NULL;

	pymem__begin_unchecked(&l->r->m);
	if (pystr__equal(&l->r->m, name, "sys") == 1)
		ret = "last_";
	else if (pystr__equal(&l->r->m, name, "builtins") == 1)
		ret = "";
	pymem__end_unchecked(&l->r->m);
	return ret;
}

/* Adds the globals of a module whose names begin with prefix. */
static int add_module(struct census_owners *l, uint64_t name, uint64_t dict, const char *prefix)
{
	char path[64 + 8] = "global ";
	int err = census_owners__read_dict(l, dict), len;

	if (err)
		return err;
	pymem__begin_unchecked(&l->r->m); /* a str does not change */
	len = pystr__read(&l->r->m, name, path + 7, sizeof(path) - 7, NULL);
	pymem__end_unchecked(&l->r->m);
	if (len < 0)
		return 0;
	if (!strcmp(path, "global __main__"))
		return census_owners__add_globals(l, "global", " ", prefix);
	return census_owners__add_globals(l, path, ".", prefix);
}

/* Adds the globals of a module in sys.modules. type: class of ordinary modules. */
static int examine_module(struct census_owners *l, const struct pyitem *m, uint64_t type,
			  uint64_t *file_key)
{
	const char *prefix;
	uint64_t dict, own_type;
	int err;

	pymem__begin_unchecked(&l->r->m);
	err = pydict__type_of(&l->r->m, m->value, &own_type)
		      ?: pymem__u64(&l->r->m, m->value + l->r->m.l->md_dict, &dict);
	pymem__end_unchecked(&l->r->m);
	if (err)
		return err;
	if (own_type != type && pytype__is_a(&l->r->m, own_type, "module", NULL) != 1)
		return 0;
	err = census_owners__read_dict(l, dict);
	if (err)
		return err;
	prefix = is_package(l, file_key) ? users_prefix(l, m->key) : "";
	return prefix ? add_module(l, m->key, dict, prefix) : 0;
}

/* Adds the main module's globals, also if it has no file, as in an interactive session. *type:
 * class of modules. */
static int add_main(struct census_owners *l, const struct pyitems *modules, uint64_t *type)
{
	uint64_t module, dict, key = 0;
	int err = pystr__find(&l->r->m, modules, "__main__", &key, &module)
			  ?: pydict__type_of(&l->r->m, module, type);

	if (err)
		return err;
	return pymem__u64(&l->r->m, module + l->r->m.l->md_dict, &dict)
		       ?: add_module(l, key, dict, "");
}

static int add_modules(struct census_owners *l)
{
	uint64_t at = python__modules(l->r->c->py), type = 0, file_key = 0;
	struct pyitems it = { 0 };
	int err = at ? pydict__items(&l->r->m, at, &it) : -ENOENT;

	if (!err) /* the search does not look into sys.modules itself */
		err = map64__set(l->visited, at, 1) ?: add_main(l, &it, &type);
	err = census_owners__fatal(err) ? err : 0;
	for (size_t i = 0; !err && i < it.n && i < MODULES_MAX; i++) {
		err = examine_module(l, &it.v[i], type, &file_key);
		err = census_owners__fatal(err) ? err : 0;
	}
	pyitems__fini(&it);
	return err;
}

static int add_locals(struct census_owners *l)
{
	char text[64 + PYOBJ_MAX_STRING], name[80], *in;
	struct pylocal *v = NULL;
	size_t n = 0;
	int err = pylocals__read(&l->r->m, census_owners__is_container, l, &v, &n);

	for (size_t i = 0; !err && i < n; i++) {
		int at = snprintf(text, sizeof(text), "local ");

		if (pylocal__text(&l->r->m, &v[i], text + at, sizeof(text) - at) ||
		    !(in = strstr(text, " in ")))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(in - text), text);
		err = census_owners__add_local(l, name, in, v[i].obj);
		err = census_owners__fatal(err) ? err : 0;
	}
	free(v);
	return err;
}

/* Adds objects that a thread's state points to: the values of its context variables, and
 * exceptions. Their offsets differ between versions of CPython, so all words are examined. */
static int add_thread_state(struct census_owners *l, uint64_t tstate)
{
	struct node holder = { .root = l->globals };
	uint64_t w[STATE_WORDS], type;
	char name[64];
	int err = pymem__read(&l->r->m, tstate, w, sizeof(w));

	for (unsigned i = 0; !err && i < STATE_WORDS; i++) {
		if (w[i] < LOWEST || w[i] % 8)
			continue;
		err = census_owners__add_exception(l, &holder, w[i], "local handled exception");
		if (err || pydict__type_of(&l->r->m, w[i], &type) ||
		    pytype__name(&l->r->m, type, name, sizeof(name)) < 0)
			continue;
		if (!strcmp(name, "Context") || !strcmp(name, "_contextvars.Context"))
			err = census_owners__add_local(l, "local contextvar", "", w[i]);
	}
	return err;
}

static int add_thread_states(struct census_owners *l)
{
	struct pythread *t = NULL;
	size_t n = 0;
	int err = python__threads(l->r->c->py, &t, &n);

	for (size_t i = 0; !err && i < n && i < THREADS_MAX; i++) {
		err = add_thread_state(l, t[i].tstate);
		err = census_owners__fatal(err) ? err : 0;
	}
	free(t);
	return census_owners__fatal(err) ? err : 0;
}

/* Parameters may have attributes, such as main_grad, and hooks. */
static int add_parameters(struct census_owners *l)
{
	struct reading *r = l->r;
	int err = 0;

	for (size_t i = 0; !err && i < r->nnamed && i < PARAMETERS_MAX; i++) {
		struct node holder = { .root = l->globals };
		struct child c = { .holder = &holder };

		if (r->named[i].label.kind != CENSUS_PARAMETER)
			continue;
		err = census_owners__add_text(l, r->text + r->named[i].label.name, &holder.path)
			      ?: census_owners__add_found(l, &c, r->named[i].obj);
	}
	return err;
}

static int add_roots(struct census_owners *l)
{
	int err = census_owners__open_root(l, "", &l->globals) ?: add_modules(l);

	if (err)
		return err;
	err = add_locals(l) ?: add_thread_states(l);
	return err ?: add_parameters(l);
}

/* ---- the search ---- */

static int search_queue(struct census_owners *l)
{
	int err = 0;

	for (size_t i = 0; !err && i < l->nnodes && !census_owners__over_limit(l); i++) {
		struct node n = l->nodes[i]; /* a copy: the queue moves as it grows */

		err = census_owners__examine(l, &n);
		err = census_owners__fatal(err) ? err : 0;
		if (!err && i % 1024 == 0)
			err = reading__check_time(l->r);
	}
	return err;
}

/* Frees what only a search needs. */
static void end_search(struct census_owners *l)
{
	if (!l->r->o->memory) { /* owners_names.c compares the containers of other memory */
		free(l->nodes);
		l->nodes = NULL;
		l->nnodes = 0;
	}
	map64__free(l->types);
	map64__free(l->visited);
	l->types = l->visited = NULL;
	pyitems__fini(&l->it);
}

void census_owners__fini(struct census_owners *l)
{
	if (l->r)
		end_search(l);
	for (size_t i = 0; i < l->nroots; i++)
		free(l->roots[i].suffix);
	free(l->roots);
	free(l->kinds);
	free(l->slots);
	free(l->nodes);
	free(l->owned);
	free(l->fresh);
	free(l->memory);
	free(l->text);
}

/* Paths are made in the order of the search, so the first place of an object comes first. */
static int by_obj_and_path(const void *a, const void *b)
{
	const struct owned *x = a, *y = b;

	if (x->obj != y->obj)
		return x->obj < y->obj ? -1 : 1;
	return (x->path > y->path) - (x->path < y->path);
}

/* Sorts the tensors found. Each stays once, where the search found it first. */
static void sort_owned(struct census_owners *l)
{
	size_t n = 0;

	if (l->nowned)
		qsort(l->owned, l->nowned, sizeof(*l->owned), by_obj_and_path);
	for (size_t i = 0; i < l->nowned; i++)
		if (!n || l->owned[i].obj != l->owned[n - 1].obj)
			l->owned[n++] = l->owned[i];
	l->nowned = n;
}

int census_owners__search(struct reading *r, struct census_owners *l, struct census_owners *before)
{
	uint64_t now = clock__monotonic(), share = r->o->limit_ns / SEARCH_SHARE;
	uint64_t end = r->began + READING_WAITS * r->o->limit_ns;
	int err;

	*l = (struct census_owners){
		.r = r, .before = before, .types = map64__new(), .visited = map64__new()
	};
	l->deadline = now + (end > now ? (end - now) / 2 : 0);
	l->cpu_end = clock__read(CLOCK_THREAD_CPUTIME_ID) +
		     (share < SEARCH_MAX_NS ? share : SEARCH_MAX_NS);
	err = l->types && l->visited ? array__grow(&l->text, &l->text_cap, 1, 1) : -ENOMEM;
	if (err)
		return err;
	l->text[l->text_len++] = '\0';
	pymem__forget(&r->m);
	memcache__forget(r->c->cache);
	err = pymem__constant_u64(&r->m, r->c->python_class + r->m.l->tp_dealloc,
				  &l->python_dealloc);
	if (err)
		return census_owners__fatal(err) ? err : 0;
	err = add_roots(l) ?: search_queue(l);
	end_search(l);
	sort_owned(l);
	return err;
}
