/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/autograd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map64.h"
#include "capture/decode/decode_ctx.h"
#include "capture/decode/symbolizer.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "inspect/pytensor.h"
#include "inspect/python.h"
#include "record/dict.h"
#include "record/files.h"

#define NODES_MAX (1u << 20)	/* nodes kept; a new one then replaces the oldest */
#define FIND_PAUSE 200000000ULL /* ns between two attempts to find PyTorch's functions */
#define FIND_MAX 50		/* attempts before we give up */
#define TYPES_MAX 4096		/* Python classes kept */
#define OBJECT_WORDS 64		/* words of a node that may point to its Python object */
#define OBJECT_TRIES 64		/* nodes whose Python object is searched */

/* A node that forward made. All but the stack identify it. */
struct made {
	uint64_t addr, vptr, sequence;
	uint32_t thread;
	uint32_t stack; /* dictionary number of the stack that made the node */
};

/* The name of a Python class at an address, as read at `checked`. Before `since`, another class may
 * have been there. */
struct class_name {
	uint64_t since, checked; /* CLOCK_MONOTONIC, ns */
	uint32_t cls;		 /* the dictionary's string, 0: not a Function's class */
};

struct autograd {
	struct made *made; /* a ring buffer once it is full */
	uint32_t n;	   /* entries of .made */
	uint32_t next;	   /* index of the oldest entry, once there are NODES_MAX */
	size_t cap;
	struct map64 *at;	  /* address of a node -> index in made */
	struct map64 *classes;	  /* vptr -> dictionary number of the C++ class's name, 0: none */
	struct map64 *types;	  /* address of a Python class -> index in names */
	struct class_name *names; /* TYPES_MAX of them */
	struct node_guess guess;  /* which layout the nodes seen so far agree with */
	const struct node_layout *layout; /* NULL: no layout fits */
	struct mt_node_layout given;	  /* the layout that the programs have */
	autograd_parameter parameter;
	void *parameter_ctx;
	uint64_t next_look; /* earliest time of the next autograd__look(), ns since start */
	uint64_t forward;   /* time when forward last made a node, CLOCK_MONOTONIC, ns */
	unsigned int looks, object_tries;
	uint32_t unknown; /* dictionary number of AUTOGRAD_UNKNOWN; 0: not in the dictionary yet */
	bool faults_warned;
	uint64_t graphless; /* calls of root modules in which forward made no node so far */
	/* Numbers of nodes that ran, by how they were named. */
	uint64_t joined, unjoined, accumulated, unnamed;
};

void autograd__free(struct autograd *a)
{
	if (!a)
		return;
	map64__free(a->at);
	map64__free(a->classes);
	map64__free(a->types);
	free(a->names);
	free(a->made);
	free(a);
}

/* Tells the programs where the fields of a node are. Without a layout, they read no more than the
 * first words of nodes. */
static void send_layout(struct decoder *d)
{
	struct autograd *a = d->autograd;

	a->given.extra = a->layout ? a->layout->size : 0;
	a->given.sequence = a->layout ? a->layout->sequence : 0;
	probes__set_node_layout(d->probes, d->opts->number, &a->given);
}

static void probe_functions(struct decoder *d)
{
	/* Nodes are made before they run, so probe the function that makes them first. */
	if (!decoder__is_probed(d, HOOK_EDGE))
		target__attach_optional(d->target, d->probes, HOOK_EDGE);
	if (decoder__is_probed(d, HOOK_EDGE) && !decoder__is_probed(d, HOOK_EVALUATE))
		target__attach_optional(d->target, d->probes, HOOK_EVALUATE);
}

int autograd__attach(struct decoder *d)
{
	struct autograd *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	d->autograd = a;
	a->at = map64__new();
	a->classes = map64__new();
	a->types = map64__new();
	a->names = calloc(TYPES_MAX, sizeof(*a->names));
	if (!a->at || !a->classes || !a->types || !a->names)
		return -ENOMEM;
	node_guess__init(&a->guess, d->target->torch.version);
	a->layout = node_guess__layout(&a->guess);
	send_layout(d);
	probe_functions(d);
	return 0;
}

bool autograd__is_due(const struct decoder *d, uint64_t now)
{
	const struct autograd *a = d->autograd;

	return a && a->looks < FIND_MAX && now >= a->next_look &&
	       !decoder__is_probed(d, HOOK_EVALUATE) && !probes__is_off(d->probes, HOOK_EVALUATE);
}

/* Takes over those of the two functions that are not probed from all hooks of PyTorch. Once its
 * version is known, begins to guess the layout of nodes. Then probes the functions. */
void autograd__look(struct decoder *d, uint64_t now)
{
	static const enum hook_id ids[] = { HOOK_EDGE, HOOK_EVALUATE };
	struct autograd *a = d->autograd;
	struct hook *hooks;

	a->next_look = now + FIND_PAUSE;
	a->looks++;
	hooks = calloc(HOOK_NR, sizeof(*hooks));
	if (!hooks)
		return;
	(void)torch__hooks(d->target->proc, &d->target->maps, hooks);
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		struct hook old_hook = d->target->hooks[ids[i]];

		if (decoder__is_probed(d, ids[i]))
			continue;
		d->target->hooks[ids[i]] = hooks[ids[i]];
		hooks[ids[i]] = old_hook;
	}
	hook__close_all(hooks);
	free(hooks);
	if (d->target->torch.version[0] && !a->guess.seen) {
		node_guess__init(&a->guess, d->target->torch.version);
		a->layout = node_guess__layout(&a->guess);
		send_layout(d);
	}
	probe_functions(d);
}

void autograd__set_parameters(struct decoder *d, autograd_parameter fn, void *ctx)
{
	if (!d->autograd)
		return;
	d->autograd->parameter = fn;
	d->autograd->parameter_ctx = ctx;
}

/* ---- made ---- */

/* Compares the record of a node with the layouts of all versions of PyTorch, and changes the layout
 * if another one fits better. */
static void refine_layout(struct decoder *d, const struct mt_rec_node *r)
{
	struct autograd *a = d->autograd;
	const struct node_layout *old_layout = a->layout;

	node_guess__see(&a->guess, r->h.tid, r->node, r->head);
	a->layout = node_guess__layout(&a->guess);
	if (a->layout == old_layout)
		return;
	/* Nodes read by different layouts cannot be compared. */
	map64__clear(a->at);
	a->n = a->next = 0;
	send_layout(d);
	if (a->layout && !old_layout)
		log_warn("memory allocated in backward is linked to lines of forward again, from "
			 "step %" PRIu64 " on",
			 d->steps + 1);
	else if (a->layout)
		log_debug(
			"autograd nodes differ from this version of PyTorch: another layout fits");
	else
		log_warn("the layout of PyTorch's autograd nodes is unknown: memory allocated in "
			 "backward is not linked to lines of forward");
}

static struct made identity(const struct autograd *a, const struct mt_rec_node *r)
{
	return (struct made){ .addr = r->node,
			      .vptr = r->head[0],
			      .sequence = r->head[a->layout->sequence],
			      .thread = (uint32_t)r->head[a->layout->thread] };
}

static bool is_same_node(const struct made *a, const struct made *b)
{
	return a->addr == b->addr && a->vptr == b->vptr && a->sequence == b->sequence &&
	       a->thread == b->thread;
}

/* Sets *ret to the index of an entry of a->made for a new node: the oldest one's if the table is
 * full. 0 or -ENOMEM. */
static int take_entry(struct autograd *a, uint32_t *ret)
{
	uint64_t i;

	if (a->n < NODES_MAX) {
		if (array__grow(&a->made, &a->cap, a->n + 1, sizeof(*a->made)))
			return -ENOMEM;
		*ret = a->n++;
		return 0;
	}
	*ret = a->next;
	a->next = (a->next + 1) % NODES_MAX;
	if (map64__get(a->at, a->made[*ret].addr, &i) && i == *ret)
		map64__del(a->at, a->made[*ret].addr, NULL);
	return 0;
}

/* True if autograd's engine made the node: its thread runs no Python code, or only the call that
 * started the engine. */
static bool made_by_engine(const struct decoder *d, uint32_t stack, uint8_t walk)
{
	struct dict_stack st = dict__get_stack(d->dict, stack);
	struct dict_loc loc;

	if (!stack)
		return walk == MT_WALK_NO_THREAD || walk == MT_WALK_NO_FRAME;
	if (!st.n || !st.frames[0].loc)
		return false;
	loc = dict__get_loc(d->dict, st.frames[0].loc);
	return files__starts_engine(dict__str(d->dict, loc.file), dict__str(d->dict, loc.func));
}

/* The dictionary's stack for a node that was made. In a double backward, a running node makes
 * others: they get the stack of that node. 0: unknown. */
static uint32_t stack_of_maker(struct decoder *d, const struct mt_rec_node *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	uint8_t walk = r->h.walk;
	uint32_t stack = decoder__stack(d, r->stack, &walk);

	if (!t || r->h.node != MT_NODE_CURRENT || !t->node || !made_by_engine(d, stack, walk))
		return stack;
	return t->accumulates ? 0 : dict__get_node(d->dict, t->node).stack;
}

void autograd__called(struct decoder *d, struct thread *t, uint64_t root)
{
	if (!d->autograd)
		return;
	d->autograd->graphless++;
	t->called_root = root;
}

/* Forward made a node in a thread's last call of a root module. 0 or -ENOMEM. */
static int note_graph(struct decoder *d, const struct mt_rec_node *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);

	if (!t)
		return -ENOMEM;
	if (!t->called_root || decoder__outer_module(d, r->stack) != t->called_root)
		return 0;
	t->called_root = 0;
	d->autograd->graphless--;
	return 0;
}

int autograd__made(struct decoder *d, const struct mt_rec_node *r)
{
	struct autograd *a = d->autograd;
	struct made m;
	uint32_t place;
	uint64_t i;
	int err;

	if (!a)
		return -EBADMSG;
	if (r->h.node == MT_NODE_NONE) {
		a->forward = r->h.time;
		err = note_graph(d, r);
		if (err)
			return err;
	}
	refine_layout(d, r);
	if (!a->layout)
		return 0;
	m = identity(a, r);
	/*
	 * The record may come again, for other outputs of the node or from the sleepable programs:
	 * the first one has the stack that made it.
	 */
	if (map64__get(a->at, m.addr, &i) && is_same_node(&a->made[i], &m))
		return 0;
	m.stack = stack_of_maker(d, r);
	err = take_entry(a, &place);
	if (err)
		return err;
	a->made[place] = m;
	return map64__set(a->at, m.addr, place);
}

/* ---- running ---- */

/* The dictionary's string for a node's C++ class, by its vptr. 0: no name, UINT32_MAX: out of
 * memory. */
static uint32_t class_by_vptr(struct decoder *d, uint64_t vptr)
{
	struct autograd *a = d->autograd;
	char name[256];
	uint64_t v;

	if (map64__get(a->classes, vptr, &v))
		return (uint32_t)v;
	v = 0;
	if (!autograd_node__class(d->target->proc, vptr, name, sizeof(name)))
		v = decoder__string(d, name);
	if (v == UINT32_MAX || map64__set(a->classes, vptr, v))
		return UINT32_MAX;
	return (uint32_t)v;
}

/* The name of the Python class that PyTorch makes for a torch.autograd.Function's backward:
 * "MyFunctionBackward". Returns as class_by_vptr(). */
static uint32_t read_type(struct decoder *d, uint64_t type)
{
	static const char end[] = "Backward";
	struct pymem m;
	char name[256];
	uint64_t v = 0;
	size_t len;

	pymem__init(&m, d->target->python, false);
	if (!pytype__name(&m, type, name, sizeof(name))) {
		len = strlen(name);
		if (len > sizeof(end) - 1 && !strcmp(name + len - (sizeof(end) - 1), end))
			v = decoder__string(d, name);
	}
	pymem__fini(&m);
	return (uint32_t)v;
}

/*
 * The class at an address when a node ran, at `time`. A class may end and another take its address.
 * So a name holds for nodes that ran until it was read; for later nodes it is read again, once per
 * drain. If it differs then, nodes that ran in between have no name: 0.
 */
static uint32_t class_by_type(struct decoder *d, uint64_t type, uint64_t time)
{
	struct autograd *a = d->autograd;
	struct class_name now = { .checked = clock__kernel() }, *known;
	uint64_t i;

	known = map64__get(a->types, type, &i) ? &a->names[i] : NULL;
	if (known && time <= known->checked)
		return time >= known->since ? known->cls : 0;
	now.cls = read_type(d, type);
	if (now.cls == UINT32_MAX)
		return UINT32_MAX;
	if (known && now.cls != known->cls) {
		/* A process that has ended has no memory: keep the name. */
		if (!proc__alive(d->target->proc))
			return known->cls;
		now.since = now.checked;
	} else if (known) {
		now.since = known->since;
	}
	if (!known) {
		if (map64__count(a->types) == TYPES_MAX)
			map64__clear(a->types);
		i = map64__count(a->types);
		if (map64__set(a->types, type, i))
			return UINT32_MAX;
		known = &a->names[i];
	}
	*known = now;
	return time >= now.since ? now.cls : 0;
}

/*
 * Reads the class of a Function's node from outside. The node points to a Python object, behind the
 * fields that all nodes have, or among them (PyTorch 2.15). The place is found in a node that ran a
 * moment ago and still exists; later the programs read it. Returns as class_by_type().
 */
static uint32_t class_from_outside(struct decoder *d, const struct mt_rec_node *r)
{
	struct autograd *a = d->autograd;
	uint64_t words[OBJECT_WORDS], type;
	const struct pylayout *l = python__layout(d->target->python);
	uint32_t cls;

	if (a->object_tries >= OBJECT_TRIES)
		return 0;
	a->object_tries++;
	if (proc__read(d->target->proc, r->node, words, sizeof(words)) || words[0] != r->head[0] ||
	    words[a->layout->sequence] != r->head[a->layout->sequence] ||
	    words[a->layout->thread] != r->head[a->layout->thread])
		return 0;
	for (size_t i = OBJECT_WORDS; i-- > MT_NODE_WORDS;) {
		if (!words[i] || words[i] % 8 ||
		    proc__read_u64(d->target->proc, words[i] + l->ob_type, &type))
			continue;
		cls = class_by_type(d, type, r->h.time);
		if (!cls || cls == UINT32_MAX)
			continue;
		a->given.object_vptr = r->head[0];
		a->given.object = i * sizeof(words[0]);
		a->given.object_type = l->ob_type;
		send_layout(d);
		return cls;
	}
	return 0;
}

/* The dictionary's string for a node's class: the Python class of a torch.autograd.Function,
 * otherwise the C++ class. 0: no name. UINT32_MAX: out of memory. */
static uint32_t class_of(struct decoder *d, const struct mt_rec_node *r)
{
	struct autograd *a = d->autograd;
	uint32_t cls = class_by_vptr(d, r->head[0]), python_cls = 0;

	if (cls == UINT32_MAX || strcmp(dict__str(d->dict, cls), "PyNode") || !d->target->python)
		return cls;
	if (a->given.object_vptr == r->head[0] && r->extra)
		python_cls = class_by_type(d, r->extra, r->h.time);
	if (!python_cls) /* the programs did not know yet where the class is */
		python_cls = class_from_outside(d, r);
	return python_cls ? python_cls : cls;
}

/* Sets *node to the dictionary's node of class AUTOGRAD_UNKNOWN. 0 or -ENOMEM. */
static int set_unknown_node(struct decoder *d, uint32_t *node)
{
	struct autograd *a = d->autograd;
	struct dict_node n = { 0 };

	if (!a->unknown) {
		n.cls = decoder__string(d, AUTOGRAD_UNKNOWN);
		a->unknown = n.cls == UINT32_MAX
				     ? n.cls
				     : symbolizer__number(d->names, dict__node(d->dict, n));
	}
	*node = a->unknown == UINT32_MAX ? 0 : a->unknown;
	return a->unknown == UINT32_MAX ? -ENOMEM : 0;
}

int autograd__node(struct decoder *d, const struct thread *t, const struct mt_hdr *h,
		   uint32_t *node)
{
	*node = 0;
	if (!d->autograd || h->node == MT_NODE_NONE)
		return 0;
	*node = h->node == MT_NODE_CURRENT ? t->node : 0;
	return *node ? 0 : set_unknown_node(d, node);
}

/* The dictionary's stack for an AccumulateGrad node: the one of the node that ran before on this
 * thread and passed the gradient on. 0 if that node ran in an earlier backward, since forward has
 * made nodes after it. */
static uint32_t passed_on_by(const struct decoder *d, const struct thread *t)
{
	return t->node_began > d->autograd->forward ? dict__get_node(d->dict, t->node).stack : 0;
}

/* Names the node that begins to run: its class, and the forward stack of the record that made it.
 * An AccumulateGrad node gets the stack of the node before, and its parameter. */
int autograd__runs(struct decoder *d, const struct mt_rec_node *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct autograd *a = d->autograd;
	struct dict_node node = { 0 };
	struct made m;
	uint32_t stack_before;
	uint64_t i;

	if (!a)
		return -EBADMSG;
	if (!t)
		return -ENOMEM;
	stack_before = passed_on_by(d, t);
	t->node = 0;
	t->node_began = r->h.time;
	t->accumulates = false;
	if (!a->layout || !r->head[0])
		return 0;
	node.cls = class_of(d, r);
	if (node.cls == UINT32_MAX)
		return -ENOMEM;
	m = identity(a, r);
	if (m.sequence == NODE_NO_SEQUENCE) {
		a->accumulated++;
		t->accumulates = true;
		node.stack = stack_before;
		if (a->parameter && r->extra &&
		    !a->parameter(a->parameter_ctx, r->extra, &node.name, &node.module))
			node.name = node.module = 0;
	} else if (map64__get(a->at, m.addr, &i) && is_same_node(&a->made[i], &m)) {
		a->joined++;
		node.stack = a->made[i].stack;
	} else {
		a->unjoined++;
	}
	a->unnamed += !node.cls;
	t->node = symbolizer__number(d->names, dict__node(d->dict, node));
	return t->node == UINT32_MAX ? -ENOMEM : 0;
}

void autograd__set_facts(struct decoder *d, const uint64_t c[MT_CNT_NR])
{
	const struct autograd *a = d->autograd;

	if (!a)
		return;
	facts__setf(d->facts, "counter.autograd.run", "%" PRIu64, c[MT_CNT_NODE_RUN]);
	if (decoder__is_probed(d, HOOK_EDGE))
		facts__setf(d->facts, "counter.autograd.graphless", "%" PRIu64, a->graphless);
	facts__setf(d->facts, "counter.autograd.joined", "%" PRIu64, a->joined);
	facts__setf(d->facts, "counter.autograd.unjoined", "%" PRIu64, a->unjoined);
	facts__setf(d->facts, "counter.autograd.accumulated", "%" PRIu64, a->accumulated);
	if (a->unnamed)
		facts__setf(d->facts, "counter.autograd.unnamed", "%" PRIu64, a->unnamed);
	if (c[MT_CNT_NODE_FAULT]) {
		facts__setf(d->facts, "counter.autograd.faults", "%" PRIu64, c[MT_CNT_NODE_FAULT]);
		if (!d->autograd->faults_warned)
			log_warn("some autograd nodes could not be read or stored: their memory "
				 "has no line of forward");
		d->autograd->faults_warned = true;
	}
	if (c[MT_CNT_NODE_DEEP])
		facts__setf(d->facts, "counter.autograd.too_deep", "%" PRIu64, c[MT_CNT_NODE_DEEP]);
}
