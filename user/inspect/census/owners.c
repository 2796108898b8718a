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

/* True if a module is not the program's own: its file is in a folder of packages or of the standard
 * library, or it has none. owners->it: the module's dictionary. file_key: see pystr__find(). */
static bool is_package_unchecked(struct census_owners *owners, uint64_t *file_key)
{
	static const char *const folders[] = { "/site-packages/", "/dist-packages/",
					       "/lib/python3.", "/lib64/python3." };
	char file[1024];
	uint64_t value;

	if (pystr__find(&owners->reading->mem, &owners->it, "__file__", file_key, &value) ||
	    pystr__read(&owners->reading->mem, value, file, sizeof(file), /*cut=*/NULL) < 0)
		return true;
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		if (strstr(file, folders[i]))
			return true;
	return false;
}

/* is_package_unchecked() without notes for the check of the snapshot. *file_key: address of the str
 * "__file__", 0 until it was met. */
static bool is_package(struct census_owners *owners, uint64_t *file_key)
{
	bool package;

	pymem__begin_unchecked(&owners->reading->mem); /* the file of a module does not change */
	package = is_package_unchecked(owners, file_key);
	pymem__end_unchecked(&owners->reading->mem);
	return package;
}

/* Prefix of the globals in a module of Python that the program may set: sys has the last exception
 * of an interactive session. NULL: the module has none. */
static const char *users_prefix(struct census_owners *owners, uint64_t name)
{
	const char *ret = NULL;

	pymem__begin_unchecked(&owners->reading->mem);
	if (pystr__equal(&owners->reading->mem, name, "sys") == 1)
		ret = "last_";
	else if (pystr__equal(&owners->reading->mem, name, "builtins") == 1)
		ret = "";
	pymem__end_unchecked(&owners->reading->mem);
	return ret;
}

/* Adds the globals of a module whose names begin with prefix. name: address of the str with the
 * module's name; dict: of its globals. */
static int add_module(struct census_owners *owners, uint64_t name, uint64_t dict,
		      const char *prefix)
{
	char path[64 + 8] = "global ", *text = path + strlen("global ");
	int err = census_owners__read_dict(owners, dict), len;

	if (err)
		return err;
	pymem__begin_unchecked(&owners->reading->mem); /* a str does not change */
	len = pystr__read(&owners->reading->mem, name, text, sizeof(path) - (size_t)(text - path),
			  /*cut=*/NULL);
	pymem__end_unchecked(&owners->reading->mem);
	if (len < 0)
		return 0;
	if (!strcmp(path, "global __main__"))
		return census_owners__add_globals(owners, "global", " ", prefix);
	return census_owners__add_globals(owners, path, ".", prefix);
}

/* Adds the globals of a module in sys.modules. type: class of ordinary modules. *file_key: as in
 * is_package(). */
static int examine_module(struct census_owners *owners, const struct pyitem *m, uint64_t type,
			  uint64_t *file_key)
{
	const char *prefix;
	uint64_t dict, own_type;
	int err;

	pymem__begin_unchecked(&owners->reading->mem);
	err = pydict__type_of(&owners->reading->mem, m->value, &own_type)
		      ?: pymem__u64(&owners->reading->mem,
				    m->value + owners->reading->mem.layout->md_dict, &dict);
	pymem__end_unchecked(&owners->reading->mem);
	if (err)
		return err;
	if (own_type != type &&
	    pytype__is_a(&owners->reading->mem, own_type, "module", /*module=*/NULL) != 1)
		return 0;
	err = census_owners__read_dict(owners, dict);
	if (err)
		return err;
	prefix = is_package(owners, file_key) ? users_prefix(owners, m->key) : "";
	return prefix ? add_module(owners, m->key, dict, prefix) : 0;
}

/* Adds the main module's globals, also if it has no file, as in an interactive session. *type:
 * class of modules. */
static int add_main(struct census_owners *owners, const struct pyitems *modules, uint64_t *type)
{
	uint64_t module, dict, key = 0;
	int err = pystr__find(&owners->reading->mem, modules, "__main__", &key, &module)
			  ?: pydict__type_of(&owners->reading->mem, module, type);

	if (err)
		return err;
	return pymem__u64(&owners->reading->mem, module + owners->reading->mem.layout->md_dict,
			  &dict)
		       ?: add_module(owners, key, dict, "");
}

/* Adds the globals of the modules in sys.modules. */
static int add_modules(struct census_owners *owners)
{
	uint64_t at = python__modules(owners->reading->census->py), type = 0, file_key = 0;
	struct pyitems modules = { 0 };
	int err = at ? pydict__items(&owners->reading->mem, at, &modules) : -ENOENT;

	if (!err) /* sys.modules itself is not searched */
		err = map64__set(owners->visited, at, 1) ?: add_main(owners, &modules, &type);
	err = census_owners__fatal(err) ? err : 0;
	for (size_t i = 0; !err && i < modules.n && i < MODULES_MAX; i++) {
		err = examine_module(owners, &modules.v[i], type, &file_key);
		err = census_owners__fatal(err) ? err : 0;
	}
	pyitems__fini(&modules);
	return err;
}

/* Adds the local variables of all threads' frames. */
static int add_locals(struct census_owners *owners)
{
	char text[64 + PYOBJ_MAX_STRING], name[80], *in;
	struct pylocal *locals = NULL;
	size_t n = 0;
	int err = pylocals__read(&owners->reading->mem, census_owners__is_container, owners,
				 &locals, &n);

	for (size_t i = 0; !err && i < n; i++) {
		int at = snprintf(text, sizeof(text), "local ");

		if (pylocal__text(&owners->reading->mem, &locals[i], text + at,
				  sizeof(text) - at) ||
		    !(in = strstr(text, " in ")))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(in - text), text);
		err = census_owners__add_local(owners, name, in, locals[i].obj);
		err = census_owners__fatal(err) ? err : 0;
	}
	free(locals);
	return err;
}

/* Adds objects that a thread's state points to: the values of its context variables, and
 * exceptions. Their offsets differ between versions of CPython, so all words are examined. */
static int add_thread_state(struct census_owners *owners, uint64_t tstate)
{
	struct node holder = { .root = owners->globals };
	uint64_t words[STATE_WORDS], type;
	char name[64];
	int err = pymem__read(&owners->reading->mem, tstate, words, sizeof(words));

	for (unsigned i = 0; !err && i < STATE_WORDS; i++) {
		if (words[i] < LOWEST || words[i] % 8) /* no object's address */
			continue;
		err = census_owners__add_exception(owners, &holder, words[i],
						   "local handled exception");
		if (err || pydict__type_of(&owners->reading->mem, words[i], &type) ||
		    pytype__name(&owners->reading->mem, type, name, sizeof(name)) < 0)
			continue;
		if (!strcmp(name, "Context") || !strcmp(name, "_contextvars.Context"))
			err = census_owners__add_local(owners, "local contextvar", "", words[i]);
	}
	return err;
}

/* Adds what the states of threads hold. */
static int add_thread_states(struct census_owners *owners)
{
	struct pythread *threads = NULL;
	size_t n = 0;
	int err = python__threads(owners->reading->census->py, &threads, &n);

	for (size_t i = 0; !err && i < n && i < THREADS_MAX; i++) {
		err = add_thread_state(owners, threads[i].tstate);
		err = census_owners__fatal(err) ? err : 0;
	}
	free(threads);
	return census_owners__fatal(err) ? err : 0;
}

/* Parameters may have attributes, such as main_grad, and hooks. */
static int add_parameters(struct census_owners *owners)
{
	struct reading *reading = owners->reading;
	int err = 0;

	for (size_t i = 0; !err && i < reading->nnamed && i < PARAMETERS_MAX; i++) {
		struct node holder = { .root = owners->globals };
		struct child child = { .holder = &holder };

		if (reading->named[i].label.kind != CENSUS_PARAMETER)
			continue;
		err = census_owners__add_text(owners, reading->text + reading->named[i].label.name,
					      &holder.path)
			      ?: census_owners__add_found(owners, &child, reading->named[i].obj);
	}
	return err;
}

/* Adds all variables that the search begins with. */
static int add_roots(struct census_owners *owners)
{
	int err = census_owners__open_root(owners, "", &owners->globals) ?: add_modules(owners);

	if (err)
		return err;
	err = add_locals(owners) ?: add_thread_states(owners);
	return err ?: add_parameters(owners);
}

/* ---- the search ---- */

/* Examines the containers in the queue, which grows meanwhile. */
static int search_queue(struct census_owners *owners)
{
	int err = 0;

	for (size_t i = 0; !err && i < owners->nnodes && !census_owners__over_limit(owners); i++) {
		struct node node = owners->nodes[i]; /* a copy: the queue moves as it grows */

		err = census_owners__examine(owners, &node);
		err = census_owners__fatal(err) ? err : 0;
		if (!err && i % 1024 == 0)
			err = reading__check_time(owners->reading);
	}
	return err;
}

/* Frees what only a search needs. */
static void end_search(struct census_owners *owners)
{
	/* With opts->memory, owners_names.c compares the containers of other memory. */
	if (!owners->reading->opts->memory) {
		free(owners->nodes);
		owners->nodes = NULL;
		owners->nnodes = 0;
	}
	map64__free(owners->types);
	map64__free(owners->visited);
	owners->types = owners->visited = NULL;
	pyitems__fini(&owners->it);
}

void census_owners__fini(struct census_owners *owners)
{
	if (owners->reading)
		end_search(owners);
	for (size_t i = 0; i < owners->nroots; i++)
		free(owners->roots[i].suffix);
	free(owners->roots);
	free(owners->kinds);
	free(owners->slots);
	free(owners->nodes);
	free(owners->places);
	free(owners->owned);
	free(owners->fresh);
	free(owners->memory);
	free(owners->text);
}

int census_owners__search(struct reading *reading, struct census_owners *owners,
			  struct census_owners *before)
{
	uint64_t now = clock__monotonic(), share = reading->opts->limit_ns / SEARCH_SHARE;
	/* READING_WAITS: on a busy machine, a reading may last longer than its limit */
	uint64_t end = reading->began + READING_WAITS * reading->opts->limit_ns;
	int err;

	*owners = (struct census_owners){
		.reading = reading, .before = before, .types = map64__new(), .visited = map64__new()
	};
	owners->deadline = now + (end > now ? (end - now) / 2 : 0);
	owners->cpu_end = clock__read(CLOCK_THREAD_CPUTIME_ID) +
			  (share < SEARCH_MAX_NS ? share : SEARCH_MAX_NS);
	err = owners->types && owners->visited ? array__grow(&owners->text, &owners->text_cap, 1, 1)
					       : -ENOMEM;
	if (err)
		return err;
	owners->text[owners->text_len++] = '\0';
	pymem__forget(&reading->mem);
	memcache__forget(reading->census->cache);
	err = pymem__constant_u64(&reading->mem,
				  reading->census->python_class + reading->mem.layout->tp_dealloc,
				  &owners->python_dealloc);
	if (err)
		return census_owners__fatal(err) ? err : 0;
	err = add_roots(owners) ?: search_queue(owners);
	end_search(owners);
	return err;
}
