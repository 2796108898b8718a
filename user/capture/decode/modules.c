/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/modules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/map64.h"
#include "capture/decode/autograd.h"
#include "capture/decode/decode_ctx.h"
#include "capture/decode/symbolizer.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "inspect/arch.h"
#include "inspect/nnmodule.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"
#include "record/dict.h"

#define MAX_THREADS 4096	    /* threads whose calls are kept */
#define MAX_NAMES (1u << 16)	    /* modules whose names are kept */
#define RECHECK 1000000000ULL	    /* ns between two checks of classes */
#define QUIET 5000000ULL	    /* ns without a record, after which a thread is checked */
#define LOOKS 32		    /* threads that one modules__pump() checks */
#define STACK_SEARCHED (256u << 10) /* bytes of a stack that are searched for a return address */

/* A call that a thread is in. */
struct call {
	uint64_t self;	  /* address of the object that was called */
	uint64_t sp, ret; /* stack pointer and return address at the entry; 0: unknown */
	uint32_t module;  /* the module's number in the dictionary, 0: unknown */
	bool entered;	  /* the object is a module: EVENT_ENTER was emitted */
};

/* The calls that a thread is in. */
struct inside {
	uint32_t tid;
	uint32_t n, cap; /* entries of .at, and room */
	struct call *at; /* the calls, the outermost one first */
	uint64_t outer;	 /* address of the outermost module on the stack, if its call has no record;
			    0: none */
	/* A call through a bound method, around all others. entered: there is one. */
	struct call bound;
	bool outside;  /* the thread was outside of all modules at some time since attach */
	uint64_t last; /* time of the thread's last record, ns since start */
	/* left: look_at() saw that the thread had left the calls at[left_from] and further in, at
	 * left_at (ns since start). modules__pump() emits that once no earlier record can come. */
	bool left;
	uint32_t left_from;
	uint64_t left_at;
};

/* A module's name, as long as type and root are the same. */
struct name {
	uint64_t self, type, root; /* addresses of the module, its class and its root module */
	uint32_t module;	   /* the module's number in the dictionary */
};

struct modules {
	bool no_bound;	     /* the probe on calls through bound methods cannot be attached */
	struct pymem mem;    /* for reading classes */
	struct map64 *types; /* address of a class -> enum mt_module_type, as the programs know it */
	struct map64 *names; /* address of a module -> index in name */
	struct name *name;
	uint32_t n_names;
	size_t cap_names;
	struct map64 *threads; /* tid -> index in inside */
	struct inside *inside;
	uint32_t n_inside, next_look;
	size_t cap_inside;
	uint64_t next_recheck;
	uint64_t entered, unnamed, seen_left; /* calls so far; seen_left: ended by look_at() */
	bool deep_warned, faults_warned;
};

void modules__free(struct modules *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_inside; i++)
		free(m->inside[i].at);
	free(m->inside);
	free(m->name);
	map64__free(m->types);
	map64__free(m->names);
	map64__free(m->threads);
	pymem__fini(&m->mem);
	free(m);
}

int modules__open(struct decoder *d)
{
	struct modules *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	d->modules = m;
	pymem__init(&m->mem, d->target->python, true);
	m->types = map64__new();
	m->names = map64__new();
	m->threads = map64__new();
	return m->types && m->names && m->threads ? 0 : -ENOMEM;
}

/* ---- classes ---- */

/* Reads whether a class is a module's. 0: unreadable. */
static enum mt_module_type read_type(struct modules *m, uint64_t type)
{
	int is_module;

	pymem__forget(&m->mem);
	is_module = nnmodules__is_type(&m->mem, type);
	if (is_module < 0)
		return 0;
	return is_module ? MT_TYPE_MODULE : MT_TYPE_OTHER;
}

/* Forgets which classes are modules, here and in the programs. */
static void forget_types(struct decoder *d)
{
	uint64_t type, unused;
	size_t pos = 0;

	while (map64__next(d->modules->types, &pos, &type, &unused))
		probes__set_module_type(d->probes, d->opts->number, type, 0);
	map64__clear(d->modules->types);
}

/* Sets *ret to what a class is, 0: unknown, and tells the programs. 0 or -ENOMEM. */
static int type_of(struct decoder *d, uint64_t type, enum mt_module_type *ret)
{
	struct modules *m = d->modules;
	uint64_t known;

	if (map64__get(m->types, type, &known)) {
		*ret = known;
		return 0;
	}
	*ret = read_type(m, type);
	if (!*ret)
		return 0;
	if (probes__set_module_type(d->probes, d->opts->number, type, *ret)) {
		/* The programs have no room for another class. After they have forgotten all, they
		 * report those in use again. */
		forget_types(d);
		return 0;
	}
	return map64__set(m->types, type, *ret);
}

/* Forgets classes whose address another object has now. 0 or -ENOMEM. */
static int recheck_types(struct decoder *d)
{
	struct modules *m = d->modules;
	struct map64 *still = map64__new();
	uint64_t type, known_as;
	size_t pos = 0;
	int err = still ? 0 : -ENOMEM;

	while (!err && map64__next(m->types, &pos, &type, &known_as)) {
		if (read_type(m, type) == known_as)
			err = map64__set(still, type, known_as);
		else
			probes__set_module_type(d->probes, d->opts->number, type, 0);
	}
	if (err) {
		map64__free(still);
		return err;
	}
	map64__free(m->types);
	m->types = still;
	return 0;
}

/* ---- names ---- */

void modules__forget(struct decoder *d)
{
	if (!d->modules)
		return;
	map64__clear(d->modules->names);
	d->modules->n_names = 0;
}

/* Keeps a name, in place of an older one of the same address. 0 or -ENOMEM. */
static int keep_name(struct modules *m, const struct name *n)
{
	uint64_t i;

	if (map64__get(m->names, n->self, &i)) {
		m->name[i] = *n;
		return 0;
	}
	if (array__grow(&m->name, &m->cap_names, m->n_names + 1, sizeof(*m->name)))
		return -ENOMEM;
	m->name[m->n_names] = *n;
	return map64__set(m->names, n->self, m->n_names++);
}

/* False if the module is not in its model's tree so far: then its name is looked up again at its
 * next call. */
static bool is_placed(const struct decoder *d, uint32_t module)
{
	const char *name = dict__str(d->dict, dict__get_module(d->dict, module).name);
	size_t len = strlen(name);

	return module && !(len && name[len - 1] == '?');
}

/* Sets *ret to the dictionary's number of a module, by its address, its class and the root and
 * parent of its call. 0: unknown. Returns 0 or -ENOMEM. */
static int name_of(struct decoder *d, uint64_t self, uint64_t type, uint64_t root, uint64_t parent,
		   uint32_t *ret)
{
	struct modules *m = d->modules;
	struct name n = { .self = self, .type = type, .root = root };
	uint64_t i, type_now;

	if (map64__get(m->names, self, &i) && m->name[i].type == type && m->name[i].root == root) {
		*ret = m->name[i].module;
		return 0;
	}
	*ret = 0;
	/* Give no name if another object has its address type_now. */
	if (proc__read_u64(d->target->proc, self + python__layout(d->target->python)->ob_type,
			   &type_now) ||
	    type_now != type)
		return 0;
	n.module = symbolizer__module(d->names, self, root, parent);
	if (n.module == UINT32_MAX)
		return -ENOMEM;
	*ret = n.module;
	if (m->n_names >= MAX_NAMES)
		modules__forget(d);
	return is_placed(d, n.module) ? keep_name(m, &n) : 0;
}

/* ---- calls ---- */

/* The calls of a thread, none at first. NULL: out of memory. */
static struct inside *inside_of(struct modules *m, uint32_t tid)
{
	uint64_t i;

	if (map64__get(m->threads, tid, &i))
		return &m->inside[i];
	if (m->n_inside == MAX_THREADS) {
		/* Most of these threads have ended. */
		for (i = 0; i < m->n_inside; i++)
			free(m->inside[i].at);
		map64__clear(m->threads);
		m->n_inside = 0;
	}
	if (array__grow(&m->inside, &m->cap_inside, m->n_inside + 1, sizeof(*m->inside)))
		return NULL;
	if (map64__set(m->threads, tid, m->n_inside))
		return NULL;
	m->inside[m->n_inside] = (struct inside){ .tid = tid };
	return &m->inside[m->n_inside++];
}

/* Ends all but the outermost `keep` calls of a thread, from the innermost on. A call that look_at()
 * has seen left ended then, otherwise at `time` (ns since start). */
static int emit_leaves(struct decoder *d, struct inside *in, uint32_t keep, uint64_t time)
{
	struct thread *t = decoder__thread(d, in->tid);
	int err = 0;

	if (!t)
		return -ENOMEM;
	while (in->n > keep && !err) {
		const struct call *c = &in->at[--in->n];
		struct event e = {
			.kind = EVENT_LEAVE, .time = time, .thread = t->number, .module = c->module
		};

		if (in->left && in->n >= in->left_from && in->left_at < time)
			e.time = in->left_at;
		if (c->entered)
			err = decoder__emit(d, &e);
	}
	in->left = false;
	return err;
}

/* Ends the call through a bound method, if the thread is in one, and the calls in it. */
static int end_bound_call(struct decoder *d, struct inside *in, uint64_t time)
{
	struct thread *t = decoder__thread(d, in->tid);
	struct event e = { .kind = EVENT_LEAVE, .time = time, .module = in->bound.module };
	int err;

	if (!t)
		return -ENOMEM;
	if (!in->bound.entered)
		return 0;
	err = emit_leaves(d, in, 0, time);
	in->bound.entered = false;
	e.thread = t->number;
	return err ?: decoder__emit(d, &e);
}

/* Ends the thread's last call through a bound method, and begins this one. */
int modules__bound(struct decoder *d, const struct mt_rec_enter *r, uint64_t self, uint32_t module)
{
	struct event e = { .kind = EVENT_ENTER, .module = module };
	struct modules *m = d->modules;
	struct thread *t;
	struct inside *in;
	int err;

	if (!m)
		return 0;
	in = inside_of(m, r->h.tid);
	t = decoder__thread(d, r->h.tid);
	if (!in || !t)
		return -ENOMEM;
	e.time = decoder__since(d, r->h.time);
	err = end_bound_call(d, in, e.time);
	if (err)
		return err;
	in->bound = (struct call){ .self = self, .module = module, .entered = true };
	m->entered++;
	m->unnamed += !module;
	e.thread = t->number;
	err = autograd__node(d, t, &r->h, &e.node);
	return err ?: decoder__emit(d, &e);
}

/* Called when a stack has a module without a recorded call, although the thread has been outside of
 * all modules since attach: the module was called through a bound method. Probes such calls from
 * now on. In other programs, which are most, that probe would double the price of a call. */
static void probe_bound_calls(struct decoder *d)
{
	if (d->modules->no_bound || decoder__is_probed(d, HOOK_MODULE_BOUND) ||
	    probes__is_off(d->probes, HOOK_MODULE_BOUND))
		return;
	target__attach_optional(d->target, d->probes, HOOK_MODULE_BOUND);
	d->modules->no_bound = !decoder__is_probed(d, HOOK_MODULE_BOUND);
	log_debug("calls of modules through bound methods %s",
		  d->modules->no_bound ? "cannot be recorded" : "are recorded from now on");
	/* The calls under way have that module around them. */
	probes__forget_calls(d->probes);
}

/* Ends a call through a bound method whose module is not on the stack any more. Otherwise finds out
 * whether such calls are to be probed. */
int modules__seen(struct decoder *d, const struct mt_hdr *h, uint64_t stack)
{
	struct inside *in;
	uint64_t outer;

	if (!d->modules || !stack || h->walk != MT_WALK_OK)
		return 0;
	in = inside_of(d->modules, h->tid);
	if (!in)
		return -ENOMEM;
	outer = decoder__outer_module(d, stack);
	if (in->bound.entered)
		return outer == in->bound.self ? 0
					       : end_bound_call(d, in, decoder__since(d, h->time));
	if (!outer)
		in->outside = true;
	else if (in->outside && (!in->n || (in->at[0].entered && in->at[0].self != outer)))
		probe_bound_calls(d);
	return 0;
}

int modules__left(struct decoder *d, const struct mt_hdr *h, uint32_t keep)
{
	struct inside *in;

	if (!d->modules)
		return 0;
	in = inside_of(d->modules, h->tid);
	if (!in)
		return -ENOMEM;
	in->last = decoder__since(d, h->time);
	return emit_leaves(d, in, keep, in->last);
}

/* The entry for the call at this depth, 0: the outermost. The records of the calls between it and
 * the known ones are lost: their entries are empty. NULL: out of memory. */
static struct call *call_at(struct inside *in, uint32_t depth)
{
	if (depth >= in->cap) {
		struct call *v = realloc(in->at, MT_MODULE_DEPTH * sizeof(*v));

		if (!v)
			return NULL;
		in->at = v;
		in->cap = MT_MODULE_DEPTH;
	}
	while (in->n <= depth)
		in->at[in->n++] = (struct call){ 0 };
	return &in->at[depth];
}

/* Sets *root and *parent to the outermost and the innermost module around the call at this depth;
 * 0: none. */
static void around(const struct inside *in, uint32_t depth, uint64_t *root, uint64_t *parent)
{
	*root = in->outer;
	*parent = in->outer;
	for (uint32_t i = 0; i < depth; i++) {
		if (!in->at[i].entered)
			continue;
		*parent = in->at[i].self;
		if (!*root)
			*root = in->at[i].self;
	}
}

/* Keeps the call, at its depth. If its object is a module, emits EVENT_ENTER. At depth 0, first
 * ends a call through a bound method that is not around it. */
int modules__entered(struct decoder *d, const struct mt_rec_enter *r)
{
	struct event e = { .kind = EVENT_ENTER, .time = decoder__since(d, r->h.time) };
	struct modules *m = d->modules;
	enum mt_module_type type = 0;
	uint64_t root, parent;
	struct inside *in;
	struct thread *t;
	struct call *c;
	int err = 0;

	if (!m)
		return 0;
	if (r->depth >= MT_MODULE_DEPTH || r->keep > r->depth)
		return -EBADMSG;
	in = inside_of(m, r->h.tid);
	c = in ? call_at(in, r->depth) : NULL;
	t = decoder__thread(d, r->h.tid);
	if (!c || !t)
		return -ENOMEM;
	if (!r->depth) {
		in->outer = decoder__outer_module(d, r->stack);
		if (in->bound.entered && in->outer != in->bound.self)
			err = end_bound_call(d, in, e.time);
		if (err)
			return err;
		c = call_at(in, 0);
	}
	err = type_of(d, r->type, &type);
	*c = (struct call){
		.self = r->self, .sp = r->sp, .ret = r->ret, .entered = type == MT_TYPE_MODULE
	};
	if (err || !c->entered)
		return err;
	around(in, r->depth, &root, &parent);
	err = name_of(d, r->self, r->type, root ? root : r->self, parent, &c->module);
	if (err)
		return err;
	m->entered++;
	m->unnamed += !c->module;
	e.thread = t->number;
	e.module = c->module;
	err = autograd__node(d, t, &r->h, &e.node);
	return err ? err : decoder__emit(d, &e);
}

/* ---- threads without records ---- */

/* The mapping of the uprobes' trampoline; NULL: none. */
static const struct map *trampoline(const struct decoder *d)
{
	const struct maps *m = &d->target->maps;

	for (size_t i = 0; i < m->n; i++) {
		if (!strcmp(m->v[i].path, "[uprobes]"))
			return &m->v[i];
	}
	return NULL;
}

/*
 * True if the call's return address, or the uprobe's trampoline in its place, is still on the
 * stack: the call may be under way. sp: the thread's stack pointer. On aarch64 each function
 * decides where to save the return address, so all of the stack below the call is searched. There,
 * a frame that was left may still hold it: then only the thread's next record ends the call.
 */
static bool is_on_stack(const struct decoder *d, const struct call *c, uint64_t sp)
{
	uint64_t from = ARCH_RETURN_ON_STACK ? c->sp : sp, words[512], n;
	uint64_t end = ARCH_RETURN_ON_STACK ? c->sp + sizeof(words[0]) : c->sp;
	const struct map *map = trampoline(d);

	if (!c->ret || end - from > STACK_SEARCHED)
		return true; /* not worth a search */
	for (; from < end; from += n * sizeof(words[0])) {
		n = (end - from) / sizeof(words[0]);
		n = n < 512 ? n : 512;
		if (!n || proc__read(d->target->proc, from, words, n * sizeof(words[0])))
			return true;
		for (uint64_t i = 0; i < n; i++) {
			uint64_t word = words[i] & ARCH_CODE_ADDRESS;

			if (word == c->ret || (map && word >= map->start && word < map->end))
				return true;
		}
	}
	return false;
}

/* Notes in `in` which calls a thread has left, by its stack pointer. now: ns since start. */
static void look_at(struct decoder *d, struct inside *in, uint64_t now)
{
	uint32_t keep = in->n;
	uint64_t sp = 0; /* 0: the thread runs */
	int err = proc__thread_sp(d->target->proc, (pid_t)in->tid, &sp);

	if (err == -ENOENT || err == -ESRCH)
		keep = 0; /* the thread has ended */
	else if (err && err != -EBUSY)
		return;
	while (keep && (in->at[keep - 1].sp <= sp || !is_on_stack(d, &in->at[keep - 1], sp)))
		keep--;
	if (keep == in->n)
		return;
	in->left = true;
	in->left_from = keep;
	in->left_at = now;
}

int modules__pump(struct decoder *d, uint64_t now)
{
	struct modules *m = d->modules;
	int err = 0;

	if (!m)
		return 0;
	for (uint32_t i = 0; i < m->n_inside && i < LOOKS && !err; i++) {
		struct inside *in = &m->inside[m->next_look++ % m->n_inside];

		if (!in->n || in->last + QUIET > now)
			continue;
		if (in->left) {
			/* Since look_at() all records up to left_at were decoded, and none was
			 * this thread's. */
			m->seen_left += in->n - in->left_from;
			err = emit_leaves(d, in, in->left_from, in->left_at);
		} else {
			look_at(d, in, decoder__now(d));
		}
	}
	if (err || now < m->next_recheck)
		return err;
	m->next_recheck = now + RECHECK;
	return recheck_types(d);
}

void modules__set_facts(struct decoder *d, const uint64_t c[MT_CNT_NR])
{
	struct modules *m = d->modules;

	if (!m)
		return;
	facts__setf(d->facts, "counter.modules.entered", "%" PRIu64, m->entered);
	facts__setf(d->facts, "counter.modules.seen_left", "%" PRIu64, m->seen_left);
	if (m->unnamed)
		facts__setf(d->facts, "counter.modules.unnamed", "%" PRIu64, m->unnamed);
	if (c[MT_CNT_MODULE_FAULT]) {
		facts__setf(d->facts, "counter.modules.faults", "%" PRIu64, c[MT_CNT_MODULE_FAULT]);
		if (!m->faults_warned)
			log_warn("the kernel is out of memory for module calls: some calls of "
				 "modules are not recorded");
		m->faults_warned = true;
	}
	if (!c[MT_CNT_MODULE_DEEP])
		return;
	facts__setf(d->facts, "counter.modules.too_deep", "%" PRIu64, c[MT_CNT_MODULE_DEEP]);
	if (!m->deep_warned)
		log_warn("module calls are nested more than %d deep: deeper calls are not recorded",
			 MT_MODULE_DEPTH);
	m->deep_warned = true;
}
