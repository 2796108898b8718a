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

void autograd__free(struct autograd *autograd)
{
	if (!autograd)
		return;
	map64__free(autograd->at);
	map64__free(autograd->classes);
	map64__free(autograd->types);
	free(autograd->names);
	free(autograd->made);
	free(autograd);
}

/* Tells the programs where the fields of a node are. Without a layout, they read no more than the
 * first words of nodes. */
static void send_layout(struct decoder *decoder)
{
	struct autograd *autograd = decoder->autograd;

	autograd->given.extra = autograd->layout ? autograd->layout->size : 0;
	autograd->given.sequence = autograd->layout ? autograd->layout->sequence : 0;
	probes__set_node_layout(decoder->probes, decoder->opts->number, &autograd->given);
}

/* Probes those of the two functions that are not probed yet. */
static void probe_functions(struct decoder *decoder)
{
	/* Nodes are made before they run, so probe the function that makes them first. */
	if (!decoder__is_probed(decoder, HOOK_EDGE))
		target__attach_optional(decoder->target, decoder->probes, HOOK_EDGE);
	if (decoder__is_probed(decoder, HOOK_EDGE) && !decoder__is_probed(decoder, HOOK_EVALUATE))
		target__attach_optional(decoder->target, decoder->probes, HOOK_EVALUATE);
}

int autograd__attach(struct decoder *decoder)
{
	struct autograd *autograd = calloc(1, sizeof(*autograd));

	if (!autograd)
		return -ENOMEM;
	decoder->autograd = autograd;
	autograd->at = map64__new();
	autograd->classes = map64__new();
	autograd->types = map64__new();
	autograd->names = calloc(TYPES_MAX, sizeof(*autograd->names));
	if (!autograd->at || !autograd->classes || !autograd->types || !autograd->names)
		return -ENOMEM;
	node_guess__init(&autograd->guess, decoder->target->torch.version);
	autograd->layout = node_guess__layout(&autograd->guess);
	send_layout(decoder);
	probe_functions(decoder);
	return 0;
}

bool autograd__is_due(const struct decoder *decoder, uint64_t now)
{
	const struct autograd *autograd = decoder->autograd;

	return autograd && autograd->looks < FIND_MAX && now >= autograd->next_look &&
	       !decoder__is_probed(decoder, HOOK_EVALUATE) &&
	       !probes__is_off(decoder->probes, HOOK_EVALUATE);
}

/* Takes over those of the two functions that are not probed from all hooks of PyTorch. Once its
 * version is known, begins to guess the layout of nodes. Then probes the functions. */
void autograd__look(struct decoder *decoder, uint64_t now)
{
	static const enum hook_id ids[] = { HOOK_EDGE, HOOK_EVALUATE };
	struct autograd *autograd = decoder->autograd;
	struct hook *hooks;

	autograd->next_look = now + FIND_PAUSE;
	autograd->looks++;
	hooks = calloc(HOOK_NR, sizeof(*hooks));
	if (!hooks)
		return;
	(void)torch__hooks(decoder->target->proc, &decoder->target->maps, hooks);
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		struct hook old_hook = decoder->target->hooks[ids[i]];

		if (decoder__is_probed(decoder, ids[i]))
			continue;
		decoder->target->hooks[ids[i]] = hooks[ids[i]];
		hooks[ids[i]] = old_hook;
	}
	hook__close_all(hooks);
	free(hooks);
	if (decoder->target->torch.version[0] && !autograd->guess.seen) {
		node_guess__init(&autograd->guess, decoder->target->torch.version);
		autograd->layout = node_guess__layout(&autograd->guess);
		send_layout(decoder);
	}
	probe_functions(decoder);
}

void autograd__set_parameters(struct decoder *decoder, autograd_parameter fn, void *ctx)
{
	if (!decoder->autograd)
		return;
	decoder->autograd->parameter = fn;
	decoder->autograd->parameter_ctx = ctx;
}

/* ---- made ---- */

/* Compares the record of a node with the layouts of all versions of PyTorch, and changes the layout
 * if another one fits better. */
static void refine_layout(struct decoder *decoder, const struct mt_rec_node *record)
{
	struct autograd *autograd = decoder->autograd;
	const struct node_layout *old_layout = autograd->layout;

	node_guess__see(&autograd->guess, record->h.tid, record->node, record->head);
	autograd->layout = node_guess__layout(&autograd->guess);
	if (autograd->layout == old_layout)
		return;
	/* Nodes read by different layouts cannot be compared. */
	map64__clear(autograd->at);
	autograd->n = autograd->next = 0;
	send_layout(decoder);
	if (autograd->layout && !old_layout)
		log_warn("memory allocated in backward is linked to lines of forward again, from "
			 "step %" PRIu64 " on",
			 decoder->steps + 1);
	else if (autograd->layout)
		log_debug(
			"autograd nodes differ from this version of PyTorch: another layout fits");
	else
		log_warn("the layout of PyTorch's autograd nodes is unknown: memory allocated in "
			 "backward is not linked to lines of forward");
}

/* What a node is recognised by when it runs. */
static struct made identity(const struct autograd *autograd, const struct mt_rec_node *record)
{
	return (struct made){ .addr = record->node,
			      .vptr = record->head[0],
			      .sequence = record->head[autograd->layout->sequence],
			      .thread = (uint32_t)record->head[autograd->layout->thread] };
}

static bool is_same_node(const struct made *a, const struct made *b)
{
	return a->addr == b->addr && a->vptr == b->vptr && a->sequence == b->sequence &&
	       a->thread == b->thread;
}

/* Sets *ret to the index of an entry of autograd->made for a new node: the oldest one's if the
 * table is full. 0 or -ENOMEM. */
static int take_entry(struct autograd *autograd, uint32_t *ret)
{
	uint64_t i;

	if (autograd->n < NODES_MAX) {
		if (array__grow(&autograd->made, &autograd->cap, autograd->n + 1,
				sizeof(*autograd->made)))
			return -ENOMEM;
		*ret = autograd->n++;
		return 0;
	}
	*ret = autograd->next;
	autograd->next = (autograd->next + 1) % NODES_MAX;
	if (map64__get(autograd->at, autograd->made[*ret].addr, &i) && i == *ret)
		map64__del(autograd->at, autograd->made[*ret].addr, /*old=*/NULL);
	return 0;
}

/* True if autograd's engine made the node: its thread runs no Python code, or only the call that
 * started the engine. */
static bool made_by_engine(const struct decoder *decoder, uint32_t stack, uint8_t walk)
{
	struct dict_stack st = dict__get_stack(decoder->dict, stack);
	struct dict_loc loc;

	if (!stack)
		return walk == MT_WALK_NO_THREAD || walk == MT_WALK_NO_FRAME;
	if (!st.n || !st.frames[0].loc)
		return false;
	loc = dict__get_loc(decoder->dict, st.frames[0].loc);
	return files__starts_engine(dict__str(decoder->dict, loc.file),
				    dict__str(decoder->dict, loc.func));
}

/* The dictionary's stack for a node that was made. In a double backward, a running node makes
 * others: they get the stack of that node. 0: unknown. */
static uint32_t stack_of_maker(struct decoder *decoder, const struct mt_rec_node *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	uint8_t walk = record->h.walk;
	uint32_t stack = decoder__stack(decoder, record->stack, &walk);

	if (!thread || record->h.node != MT_NODE_CURRENT || !thread->node ||
	    !made_by_engine(decoder, stack, walk))
		return stack;
	if (thread->accumulates) /* an AccumulateGrad node has no stack */
		return 0;
	return dict__get_node(decoder->dict, thread->node).stack;
}

void autograd__called(struct decoder *decoder, struct thread *thread, uint64_t root)
{
	if (!decoder->autograd)
		return;
	decoder->autograd->graphless++;
	thread->called_root = root;
}

/* Forward made a node in a thread's last call of a root module. 0 or -ENOMEM. */
static int note_graph(struct decoder *decoder, const struct mt_rec_node *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);

	if (!thread)
		return -ENOMEM;
	if (!thread->called_root ||
	    decoder__outer_module(decoder, record->stack) != thread->called_root)
		return 0;
	thread->called_root = 0;
	decoder->autograd->graphless--;
	return 0;
}

int autograd__made(struct decoder *decoder, const struct mt_rec_node *record)
{
	struct autograd *autograd = decoder->autograd;
	struct made made;
	uint32_t place;
	uint64_t i;
	int err;

	if (!autograd)
		return -EBADMSG;
	if (record->h.node == MT_NODE_NONE) {
		autograd->forward = record->h.time;
		err = note_graph(decoder, record);
		if (err)
			return err;
	}
	refine_layout(decoder, record);
	if (!autograd->layout)
		return 0;
	made = identity(autograd, record);
	/*
	 * The record may come again, for other outputs of the node or from the sleepable programs:
	 * the first one has the stack that made it.
	 */
	if (map64__get(autograd->at, made.addr, &i) && is_same_node(&autograd->made[i], &made))
		return 0;
	made.stack = stack_of_maker(decoder, record);
	err = take_entry(autograd, &place);
	if (err)
		return err;
	autograd->made[place] = made;
	return map64__set(autograd->at, made.addr, place);
}

/* ---- running ---- */

/* The dictionary's string for a node's C++ class, by its vptr. 0: no name, UINT32_MAX: out of
 * memory. */
static uint32_t class_by_vptr(struct decoder *decoder, uint64_t vptr)
{
	struct autograd *autograd = decoder->autograd;
	char name[256];
	uint64_t number;

	if (map64__get(autograd->classes, vptr, &number))
		return (uint32_t)number;
	number = 0;
	if (!autograd_node__class(decoder->target->proc, vptr, name, sizeof(name)))
		number = decoder__string(decoder, name);
	if (number == UINT32_MAX || map64__set(autograd->classes, vptr, number))
		return UINT32_MAX;
	return (uint32_t)number;
}

/* The name of the Python class that PyTorch makes for a torch.autograd.Function's backward:
 * "MyFunctionBackward". Returns as class_by_vptr(). */
static uint32_t read_type(struct decoder *decoder, uint64_t type)
{
	static const char end[] = "Backward";
	struct pymem mem;
	char name[256];
	uint64_t number = 0;
	size_t len;

	pymem__init(&mem, decoder->target->python, false);
	if (!pytype__name(&mem, type, name, sizeof(name))) {
		len = strlen(name);
		if (len > sizeof(end) - 1 && !strcmp(name + len - (sizeof(end) - 1), end))
			number = decoder__string(decoder, name);
	}
	pymem__fini(&mem);
	return (uint32_t)number;
}

/*
 * The class at an address when a node ran, at `time`. A class may end and another take its address.
 * So a name holds for nodes that ran until it was read; for later nodes it is read again, once per
 * drain. If it differs then, nodes that ran in between have no name: 0.
 */
static uint32_t class_by_type(struct decoder *decoder, uint64_t type, uint64_t time)
{
	struct autograd *autograd = decoder->autograd;
	struct class_name now = { .checked = clock__kernel() }, *known;
	uint64_t i;

	known = map64__get(autograd->types, type, &i) ? &autograd->names[i] : NULL;
	if (known && time <= known->checked)
		return time >= known->since ? known->cls : 0;
	now.cls = read_type(decoder, type);
	if (now.cls == UINT32_MAX)
		return UINT32_MAX;
	if (known && now.cls != known->cls) {
		/* A process that has ended has no memory: keep the name. */
		if (!proc__alive(decoder->target->proc))
			return known->cls;
		now.since = now.checked;
	} else if (known) {
		now.since = known->since;
	}
	if (!known) {
		if (map64__count(autograd->types) == TYPES_MAX)
			map64__clear(autograd->types);
		i = map64__count(autograd->types);
		if (map64__set(autograd->types, type, i))
			return UINT32_MAX;
		known = &autograd->names[i];
	}
	*known = now;
	return time >= now.since ? now.cls : 0;
}

/*
 * Reads the class of a Function's node from outside. The node points to a Python object, behind the
 * fields that all nodes have, or among them (PyTorch 2.15). The place is found in a node that ran a
 * moment ago and still exists; later the programs read it. Returns as class_by_type().
 */
static uint32_t class_from_outside(struct decoder *decoder, const struct mt_rec_node *record)
{
	struct autograd *autograd = decoder->autograd;
	uint64_t words[OBJECT_WORDS], type;
	const struct pylayout *layout = python__layout(decoder->target->python);
	uint32_t cls;

	if (autograd->object_tries >= OBJECT_TRIES)
		return 0;
	autograd->object_tries++;
	if (proc__read(decoder->target->proc, record->node, words, sizeof(words)) ||
	    words[0] != record->head[0] ||
	    words[autograd->layout->sequence] != record->head[autograd->layout->sequence] ||
	    words[autograd->layout->thread] != record->head[autograd->layout->thread])
		return 0;
	for (size_t i = OBJECT_WORDS; i-- > MT_NODE_WORDS;) {
		if (!words[i] || words[i] % 8 ||
		    proc__read_u64(decoder->target->proc, words[i] + layout->ob_type, &type))
			continue;
		cls = class_by_type(decoder, type, record->h.time);
		if (!cls || cls == UINT32_MAX)
			continue;
		autograd->given.object_vptr = record->head[0];
		autograd->given.object = i * sizeof(words[0]);
		autograd->given.object_type = layout->ob_type;
		send_layout(decoder);
		return cls;
	}
	return 0;
}

/* The dictionary's string for a node's class: the Python class of a torch.autograd.Function,
 * otherwise the C++ class. 0: no name. UINT32_MAX: out of memory. */
static uint32_t class_of(struct decoder *decoder, const struct mt_rec_node *record)
{
	struct autograd *autograd = decoder->autograd;
	uint32_t cls = class_by_vptr(decoder, record->head[0]), python_cls = 0;

	if (cls == UINT32_MAX || strcmp(dict__str(decoder->dict, cls), "PyNode") ||
	    !decoder->target->python)
		return cls;
	if (autograd->given.object_vptr == record->head[0] && record->extra)
		python_cls = class_by_type(decoder, record->extra, record->h.time);
	if (!python_cls) /* the programs did not know yet where the class is */
		python_cls = class_from_outside(decoder, record);
	return python_cls ? python_cls : cls;
}

/* Sets *node to the dictionary's node of class AUTOGRAD_UNKNOWN. 0 or -ENOMEM. */
static int set_unknown_node(struct decoder *decoder, uint32_t *node)
{
	struct autograd *autograd = decoder->autograd;
	struct dict_node unknown = { 0 };

	if (!autograd->unknown) {
		unknown.cls = decoder__string(decoder, AUTOGRAD_UNKNOWN);
		autograd->unknown = unknown.cls == UINT32_MAX
					    ? unknown.cls
					    : symbolizer__number(decoder->names,
								 dict__node(decoder->dict,
									    unknown));
	}
	*node = autograd->unknown == UINT32_MAX ? 0 : autograd->unknown;
	return autograd->unknown == UINT32_MAX ? -ENOMEM : 0;
}

int autograd__node(struct decoder *decoder, const struct thread *thread,
		   const struct mt_hdr *header, uint32_t *node)
{
	*node = 0;
	if (!decoder->autograd || header->node == MT_NODE_NONE)
		return 0;
	*node = header->node == MT_NODE_CURRENT ? thread->node : 0;
	return *node ? 0 : set_unknown_node(decoder, node);
}

/* The dictionary's stack for an AccumulateGrad node: the one of the node that ran before on this
 * thread and passed the gradient on. 0 if that node ran in an earlier backward, since forward has
 * made nodes after it. */
static uint32_t passed_on_by(const struct decoder *decoder, const struct thread *thread)
{
	return thread->node_began > decoder->autograd->forward
		       ? dict__get_node(decoder->dict, thread->node).stack
		       : 0;
}

/* Names the node that begins to run: its class, and the forward stack of the record that made it.
 * An AccumulateGrad node gets the stack of the node before, and its parameter. */
int autograd__runs(struct decoder *decoder, const struct mt_rec_node *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct autograd *autograd = decoder->autograd;
	struct dict_node node = { 0 };
	struct made made;
	uint32_t stack_before;
	uint64_t i;

	if (!autograd)
		return -EBADMSG;
	if (!thread)
		return -ENOMEM;
	stack_before = passed_on_by(decoder, thread);
	thread->node = 0;
	thread->node_began = record->h.time;
	thread->accumulates = false;
	if (!autograd->layout || !record->head[0])
		return 0;
	node.cls = class_of(decoder, record);
	if (node.cls == UINT32_MAX)
		return -ENOMEM;
	made = identity(autograd, record);
	if (made.sequence == NODE_NO_SEQUENCE) {
		autograd->accumulated++;
		thread->accumulates = true;
		node.stack = stack_before;
		if (autograd->parameter && record->extra &&
		    !autograd->parameter(autograd->parameter_ctx, record->extra, &node.name,
					 &node.module))
			node.name = node.module = 0;
	} else if (map64__get(autograd->at, made.addr, &i) &&
		   is_same_node(&autograd->made[i], &made)) {
		autograd->joined++;
		node.stack = autograd->made[i].stack;
	} else {
		autograd->unjoined++;
	}
	autograd->unnamed += !node.cls;
	thread->node = symbolizer__number(decoder->names, dict__node(decoder->dict, node));
	return thread->node == UINT32_MAX ? -ENOMEM : 0;
}

void autograd__set_facts(struct decoder *decoder, const uint64_t counters[MT_CNT_NR])
{
	const struct autograd *autograd = decoder->autograd;

	if (!autograd)
		return;
	facts__setf(decoder->facts, "counter.autograd.run", "%" PRIu64, counters[MT_CNT_NODE_RUN]);
	if (decoder__is_probed(decoder, HOOK_EDGE))
		facts__setf(decoder->facts, "counter.autograd.graphless", "%" PRIu64,
			    autograd->graphless);
	facts__setf(decoder->facts, "counter.autograd.joined", "%" PRIu64, autograd->joined);
	facts__setf(decoder->facts, "counter.autograd.unjoined", "%" PRIu64, autograd->unjoined);
	facts__setf(decoder->facts, "counter.autograd.accumulated", "%" PRIu64,
		    autograd->accumulated);
	if (autograd->unnamed)
		facts__setf(decoder->facts, "counter.autograd.unnamed", "%" PRIu64,
			    autograd->unnamed);
	if (counters[MT_CNT_NODE_FAULT]) {
		facts__setf(decoder->facts, "counter.autograd.faults", "%" PRIu64,
			    counters[MT_CNT_NODE_FAULT]);
		if (!decoder->autograd->faults_warned)
			log_warn("some autograd nodes could not be read or stored: their memory "
				 "has no line of forward");
		decoder->autograd->faults_warned = true;
	}
	if (counters[MT_CNT_NODE_DEEP])
		facts__setf(decoder->facts, "counter.autograd.too_deep", "%" PRIu64,
			    counters[MT_CNT_NODE_DEEP]);
}
