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
#include "inspect/torch.h"
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
#define WORDS_READ 512		    /* words of it that are read at once */

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

void modules__free(struct modules *modules)
{
	if (!modules)
		return;
	for (uint32_t i = 0; i < modules->n_inside; i++)
		free(modules->inside[i].at);
	free(modules->inside);
	free(modules->name);
	map64__free(modules->types);
	map64__free(modules->names);
	map64__free(modules->threads);
	pymem__fini(&modules->mem);
	free(modules);
}

int modules__open(struct decoder *decoder)
{
	struct modules *modules = calloc(1, sizeof(*modules));

	if (!modules)
		return -ENOMEM;
	decoder->modules = modules;
	pymem__init(&modules->mem, decoder->target->python, true);
	modules->types = map64__new();
	modules->names = map64__new();
	modules->threads = map64__new();
	return modules->types && modules->names && modules->threads ? 0 : -ENOMEM;
}

/* ---- classes ---- */

/* Reads whether a class is a module's. 0: unreadable. */
static enum mt_module_type read_type(struct modules *modules, uint64_t type)
{
	int is_module;

	pymem__forget(&modules->mem);
	is_module = nnmodules__is_type(&modules->mem, type);
	if (is_module < 0)
		return 0;
	return is_module ? MT_TYPE_MODULE : MT_TYPE_OTHER;
}

/* Forgets which classes are modules, here and in the programs. */
static void forget_types(struct decoder *decoder)
{
	uint64_t type, unused;
	size_t pos = 0;

	while (map64__next(decoder->modules->types, &pos, &type, &unused))
		probes__set_module_type(decoder->probes, decoder->opts->number, type, 0);
	map64__clear(decoder->modules->types);
}

/* Sets *ret to what a class is, 0: unknown, and tells the programs. 0 or -ENOMEM. */
static int type_of(struct decoder *decoder, uint64_t type, enum mt_module_type *ret)
{
	struct modules *modules = decoder->modules;
	uint64_t known;

	if (map64__get(modules->types, type, &known)) {
		*ret = known;
		return 0;
	}
	*ret = read_type(modules, type);
	if (!*ret)
		return 0;
	if (probes__set_module_type(decoder->probes, decoder->opts->number, type, *ret)) {
		/* The programs have no room for another class. After they have forgotten all, they
		 * report those in use again. */
		forget_types(decoder);
		return 0;
	}
	return map64__set(modules->types, type, *ret);
}

/* Forgets classes whose address another object has now. 0 or -ENOMEM. */
static int recheck_types(struct decoder *decoder)
{
	struct modules *modules = decoder->modules;
	struct map64 *still = map64__new();
	uint64_t type, known_as;
	size_t pos = 0;
	int err = still ? 0 : -ENOMEM;

	while (!err && map64__next(modules->types, &pos, &type, &known_as)) {
		if (read_type(modules, type) == known_as)
			err = map64__set(still, type, known_as);
		else
			probes__set_module_type(decoder->probes, decoder->opts->number, type, 0);
	}
	if (err) {
		map64__free(still);
		return err;
	}
	map64__free(modules->types);
	modules->types = still;
	return 0;
}

/* ---- names ---- */

void modules__forget(struct decoder *decoder)
{
	if (!decoder->modules)
		return;
	map64__clear(decoder->modules->names);
	decoder->modules->n_names = 0;
}

/* Keeps a name, in place of an older one of the same address. 0 or -ENOMEM. */
static int keep_name(struct modules *modules, const struct name *n)
{
	uint64_t i;

	if (map64__get(modules->names, n->self, &i)) {
		modules->name[i] = *n;
		return 0;
	}
	if (array__grow(&modules->name, &modules->cap_names, modules->n_names + 1,
			sizeof(*modules->name)))
		return -ENOMEM;
	modules->name[modules->n_names] = *n;
	return map64__set(modules->names, n->self, modules->n_names++);
}

/* False if the module is not in its model's tree so far: then its name is looked up again at its
 * next call. */
static bool is_placed(const struct decoder *decoder, uint32_t module)
{
	const char *name = dict__str(decoder->dict, dict__get_module(decoder->dict, module).name);
	size_t len = strlen(name);

	return module && !(len && name[len - 1] == '?');
}

/* Sets *ret to the dictionary's number of a module, by its address, its class and the root and
 * parent of its call. 0: unknown. Returns 0 or -ENOMEM. */
static int name_of(struct decoder *decoder, uint64_t self, uint64_t type, uint64_t root,
		   uint64_t parent, uint32_t *ret)
{
	struct modules *modules = decoder->modules;
	struct name name = { .self = self, .type = type, .root = root };
	uint64_t i, type_now;

	if (map64__get(modules->names, self, &i) && modules->name[i].type == type &&
	    modules->name[i].root == root) {
		*ret = modules->name[i].module;
		return 0;
	}
	*ret = 0;
	/* Give no name if another object has its address type_now. */
	if (proc__read_u64(decoder->target->proc,
			   self + python__layout(decoder->target->python)->ob_type, &type_now) ||
	    type_now != type)
		return 0;
	name.module = symbolizer__module(decoder->names, self, root, parent);
	if (name.module == UINT32_MAX)
		return -ENOMEM;
	*ret = name.module;
	if (modules->n_names >= MAX_NAMES)
		modules__forget(decoder);
	return is_placed(decoder, name.module) ? keep_name(modules, &name) : 0;
}

/* ---- calls ---- */

/* The calls of a thread, none at first. NULL: out of memory. */
static struct inside *inside_of(struct modules *modules, uint32_t tid)
{
	uint64_t i;

	if (map64__get(modules->threads, tid, &i))
		return &modules->inside[i];
	if (modules->n_inside == MAX_THREADS) {
		/* Most of these threads have ended. */
		for (i = 0; i < modules->n_inside; i++)
			free(modules->inside[i].at);
		map64__clear(modules->threads);
		modules->n_inside = 0;
	}
	if (array__grow(&modules->inside, &modules->cap_inside, modules->n_inside + 1,
			sizeof(*modules->inside)))
		return NULL;
	if (map64__set(modules->threads, tid, modules->n_inside))
		return NULL;
	modules->inside[modules->n_inside] = (struct inside){ .tid = tid };
	return &modules->inside[modules->n_inside++];
}

/* Ends all but the outermost `keep` calls of a thread, from the innermost on. A call that look_at()
 * has seen left ended then, otherwise at `time` (ns since start). */
static int emit_leaves(struct decoder *decoder, struct inside *in, uint32_t keep, uint64_t time)
{
	struct thread *thread = decoder__thread(decoder, in->tid);
	int err = 0;

	if (!thread)
		return -ENOMEM;
	while (in->n > keep && !err) {
		const struct call *call = &in->at[--in->n];
		struct event event = { .kind = EVENT_LEAVE,
				       .time = time,
				       .thread = thread->number,
				       .module = call->module };

		if (in->left && in->n >= in->left_from && in->left_at < time)
			event.time = in->left_at;
		if (call->entered)
			err = decoder__emit(decoder, &event);
	}
	in->left = false;
	return err;
}

/* Ends the call through a bound method, if the thread is in one, and the calls in it. */
static int end_bound_call(struct decoder *decoder, struct inside *in, uint64_t time)
{
	struct thread *thread = decoder__thread(decoder, in->tid);
	struct event event = { .kind = EVENT_LEAVE, .time = time, .module = in->bound.module };
	int err;

	if (!thread)
		return -ENOMEM;
	if (!in->bound.entered)
		return 0;
	err = emit_leaves(decoder, in, 0, time);
	in->bound.entered = false;
	event.thread = thread->number;
	return err ?: decoder__emit(decoder, &event);
}

/* Ends the thread's last call through a bound method, and begins this one. */
int modules__bound(struct decoder *decoder, const struct mt_rec_enter *record, uint64_t self,
		   uint32_t module)
{
	struct event event = { .kind = EVENT_ENTER, .module = module };
	struct modules *modules = decoder->modules;
	struct thread *thread;
	struct inside *in;
	int err;

	if (!modules)
		return 0;
	in = inside_of(modules, record->h.tid);
	thread = decoder__thread(decoder, record->h.tid);
	if (!in || !thread)
		return -ENOMEM;
	event.time = decoder__since(decoder, record->h.time);
	err = end_bound_call(decoder, in, event.time);
	if (err)
		return err;
	in->bound = (struct call){ .self = self, .module = module, .entered = true };
	modules->entered++;
	modules->unnamed += !module;
	event.thread = thread->number;
	err = autograd__node(decoder, thread, &record->h, &event.node);
	return err ?: decoder__emit(decoder, &event);
}

/* Called when a stack has a module without a recorded call, although the thread has been outside of
 * all modules since attach: the module was called through a bound method. Probes such calls from
 * now on. In other programs, which are most, that probe would double the price of a call. */
static void probe_bound_calls(struct decoder *decoder)
{
	if (decoder->modules->no_bound || decoder__is_probed(decoder, HOOK_MODULE_BOUND) ||
	    probes__is_off(decoder->probes, HOOK_MODULE_BOUND))
		return;
	target__attach_optional(decoder->target, decoder->probes, HOOK_MODULE_BOUND);
	decoder->modules->no_bound = !decoder__is_probed(decoder, HOOK_MODULE_BOUND);
	log_debug("calls of modules through bound methods %s",
		  decoder->modules->no_bound ? "cannot be recorded" : "are recorded from now on");
	/* The calls under way have that module around them. */
	probes__forget_calls(decoder->probes);
}

/* Ends a call through a bound method whose module is not on the stack any more. Otherwise finds out
 * whether such calls are to be probed. */
int modules__seen(struct decoder *decoder, const struct mt_hdr *header, uint64_t stack)
{
	struct inside *in;
	uint64_t outer;

	if (!decoder->modules || !stack || header->walk != MT_WALK_OK)
		return 0;
	in = inside_of(decoder->modules, header->tid);
	if (!in)
		return -ENOMEM;
	outer = decoder__outer_module(decoder, stack);
	if (in->bound.entered)
		return outer == in->bound.self
			       ? 0
			       : end_bound_call(decoder, in, decoder__since(decoder, header->time));
	if (!outer)
		in->outside = true;
	else if (in->outside && (!in->n || (in->at[0].entered && in->at[0].self != outer)))
		probe_bound_calls(decoder);
	return 0;
}

int modules__left(struct decoder *decoder, const struct mt_hdr *header, uint32_t keep)
{
	struct inside *in;

	if (!decoder->modules)
		return 0;
	in = inside_of(decoder->modules, header->tid);
	if (!in)
		return -ENOMEM;
	in->last = decoder__since(decoder, header->time);
	return emit_leaves(decoder, in, keep, in->last);
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
int modules__entered(struct decoder *decoder, const struct mt_rec_enter *record)
{
	struct event event = { .kind = EVENT_ENTER,
			       .time = decoder__since(decoder, record->h.time) };
	struct modules *modules = decoder->modules;
	enum mt_module_type type = 0;
	uint64_t root, parent;
	struct inside *in;
	struct thread *thread;
	struct call *call;
	int err = 0;

	if (!modules)
		return 0;
	if (record->depth >= MT_MODULE_DEPTH || record->keep > record->depth)
		return -EBADMSG;
	in = inside_of(modules, record->h.tid);
	call = in ? call_at(in, record->depth) : NULL;
	thread = decoder__thread(decoder, record->h.tid);
	if (!call || !thread)
		return -ENOMEM;
	if (!record->depth) {
		in->outer = decoder__outer_module(decoder, record->stack);
		if (in->bound.entered && in->outer != in->bound.self)
			err = end_bound_call(decoder, in, event.time);
		if (err)
			return err;
		call = call_at(in, 0);
	}
	err = type_of(decoder, record->type, &type);
	*call = (struct call){ .self = record->self,
			       .sp = record->sp,
			       .ret = record->ret,
			       .entered = type == MT_TYPE_MODULE };
	if (err || !call->entered)
		return err;
	around(in, record->depth, &root, &parent);
	err = name_of(decoder, record->self, record->type, root ? root : record->self, parent,
		      &call->module);
	if (err)
		return err;
	modules->entered++;
	modules->unnamed += !call->module;
	event.thread = thread->number;
	event.module = call->module;
	err = autograd__node(decoder, thread, &record->h, &event.node);
	return err ? err : decoder__emit(decoder, &event);
}

/* ---- threads without records ---- */

/* The mapping of the uprobes' trampoline; NULL: none. */
static const struct map *trampoline(const struct decoder *decoder)
{
	const struct maps *maps = &decoder->target->maps;

	for (size_t i = 0; i < maps->n; i++) {
		if (!strcmp(maps->v[i].path, "[uprobes]"))
			return &maps->v[i];
	}
	return NULL;
}

/*
 * True if the call's return address, or the uprobe's trampoline in its place, is still on the
 * stack: the call may be under way. sp: the thread's stack pointer. On aarch64 each function
 * decides where to save the return address, so all of the stack below the call is searched. There,
 * a frame that was left may still hold it: then only the thread's next record ends the call.
 */
static bool is_on_stack(const struct decoder *decoder, const struct call *call, uint64_t sp)
{
	uint64_t from = ARCH_RETURN_ON_STACK ? call->sp : sp, words[WORDS_READ], n;
	uint64_t end = ARCH_RETURN_ON_STACK ? call->sp + sizeof(words[0]) : call->sp;
	const struct map *map = trampoline(decoder);

	if (!call->ret || end - from > STACK_SEARCHED)
		return true; /* not worth a search */
	for (; from < end; from += n * sizeof(words[0])) {
		n = (end - from) / sizeof(words[0]);
		n = n < WORDS_READ ? n : WORDS_READ;
		if (!n || proc__read(decoder->target->proc, from, words, n * sizeof(words[0])))
			return true;
		for (uint64_t i = 0; i < n; i++) {
			uint64_t word = words[i] & ARCH_CODE_ADDRESS;

			if (word == call->ret || (map && word >= map->start && word < map->end))
				return true;
		}
	}
	return false;
}

/* Notes in `in` which calls a thread has left, by its stack pointer. now: ns since start. */
static void look_at(struct decoder *decoder, struct inside *in, uint64_t now)
{
	uint32_t keep = in->n;
	uint64_t sp = 0; /* 0: the thread runs */
	int err = proc__thread_sp(decoder->target->proc, (pid_t)in->tid, &sp);

	if (err == -ENOENT || err == -ESRCH)
		keep = 0; /* the thread has ended */
	else if (err && err != -EBUSY)
		return;
	while (keep && (in->at[keep - 1].sp <= sp || !is_on_stack(decoder, &in->at[keep - 1], sp)))
		keep--;
	if (keep == in->n)
		return;
	in->left = true;
	in->left_from = keep;
	in->left_at = now;
}

int modules__pump(struct decoder *decoder, uint64_t now)
{
	struct modules *modules = decoder->modules;
	int err = 0;

	if (!modules)
		return 0;
	for (uint32_t i = 0; i < modules->n_inside && i < LOOKS && !err; i++) {
		struct inside *in = &modules->inside[modules->next_look++ % modules->n_inside];

		if (!in->n || in->last + QUIET > now)
			continue;
		if (in->left) {
			/* Since look_at() all records up to left_at were decoded, and none was
			 * this thread's. */
			modules->seen_left += in->n - in->left_from;
			err = emit_leaves(decoder, in, in->left_from, in->left_at);
		} else {
			look_at(decoder, in, decoder__now(decoder));
		}
	}
	if (err || now < modules->next_recheck)
		return err;
	modules->next_recheck = now + RECHECK;
	return recheck_types(decoder);
}

void modules__set_facts(struct decoder *decoder, const uint64_t counters[MT_CNT_NR])
{
	struct modules *modules = decoder->modules;

	if (!modules)
		return;
	facts__setf(decoder->facts, "counter.modules.entered", "%" PRIu64, modules->entered);
	facts__setf(decoder->facts, "counter.modules.seen_left", "%" PRIu64, modules->seen_left);
	if (modules->unnamed)
		facts__setf(decoder->facts, "counter.modules.unnamed", "%" PRIu64,
			    modules->unnamed);
	if (counters[MT_CNT_MODULE_FAULT]) {
		facts__setf(decoder->facts, "counter.modules.faults", "%" PRIu64,
			    counters[MT_CNT_MODULE_FAULT]);
		if (!modules->faults_warned)
			log_warn("the kernel is out of memory for module calls: some calls of "
				 "modules are not recorded");
		modules->faults_warned = true;
	}
	if (!counters[MT_CNT_MODULE_DEEP])
		return;
	facts__setf(decoder->facts, "counter.modules.too_deep", "%" PRIu64,
		    counters[MT_CNT_MODULE_DEEP]);
	if (!modules->deep_warned)
		log_warn("module calls are nested more than %d deep: deeper calls are not recorded",
			 MT_MODULE_DEPTH);
	modules->deep_warned = true;
}
