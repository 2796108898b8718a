/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads the tensors in bulk, named and unnamed, with their gradients and the contents of
 * wrappers. */
#include "inspect/census/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "base/text.h"
#include "inspect/pyobj.h"
#include "inspect/python/pylocals.h"
#include "inspect/python/pystr.h"
#include "inspect/torch/pygraph.h"

/*
 * Adds tensors that autograd's graph saved for backward, from the nodes of the tensors known so
 * far. A saved tensor is an activation if a node of the graph made it: it is the node's own result,
 * or has a grad_fn. Other saved tensors, such as a batch or a mask, are named by the node that
 * saved them.
 */

#define KEEPER_MAX 300 /* bytes of a keeper's name within the name of a saved tensor */

static int check_time(void *ctx)
{
	return reading__check_time(ctx);
}

/* A pygraph__object_fn. Accepts only the context of a torch.autograd.Function: an object of the
 * class that PyTorch derives from census->function for each Function's backward. Returns 0 and
 * *size, bytes; -ENOENT: another object; or an error that ends the search, such as -ESRCH. */
static int on_object(void *ctx, uint64_t obj, char *name, size_t room, size_t *size)
{
	struct reading *reading = ctx;
	uint64_t mro[PYTYPE_MRO_MAX], type;
	int err;
	int n = pydict__type_of(&reading->mem, obj, &type)
			?: pytype__mro(&reading->mem, type, mro, PYTYPE_MRO_MAX);

	if (n == -ESRCH || n == -EPERM || n == -ENOMEM)
		return n;
	for (int i = 0; i < n; i++) {
		if (mro[i] != reading->census->function)
			continue;
		err = pytype__name(&reading->mem, type, name, room)
			      ?: pymem__constant_u64(&reading->mem,
						     type + reading->mem.layout->tp_basicsize,
						     size);
		return err && reading__is_local(err) ? -ENOENT : err;
	}
	return -ENOENT;
}

/* True if the tensor with this name may keep a graph longer than a call or a step, because a
 * container or a global variable holds it. */
static bool is_lasting(const char *name)
{
	return text__starts(name, "global ") || (text__starts(name, "local ") && strchr(name, '['));
}

/* Tensors that may keep a graph: lasting ones, and gradients. Each has been read again, because a
 * step replaces them. */
struct keepers {
	struct pytensor *v;
	uint32_t *name; /* by tensor: offset of its name in reading.text */
	size_t n;
	uint64_t *grad_fn; /* by tensor: address of its grad_fn; 0: none */
};

/* Adds an object whose tensor keeps a graph. name: its text. */
static void add_keeper(struct keepers *keepers, uint64_t obj, uint32_t name)
{
	keepers->v[keepers->n] = (struct pytensor){ .obj = obj };
	keepers->name[keepers->n++] = name;
}

/* Sets *name to "grad of PARAMETER". */
static int name_gradient(struct reading *reading, uint32_t parameter, uint32_t *name)
{
	char text[KEEPER_MAX + 16];

	snprintf(text, sizeof(text), "grad of %.*s", KEEPER_MAX, reading->text + parameter);
	return reading__add_text(reading, text, name);
}

/* Adds the gradients that have a graph of their own, as after backward(create_graph=True). First
 * reads the parameters with a gradient, then those gradients in their place. */
static int add_gradients(struct reading *reading, const struct census_list *list,
			 struct keepers *keepers)
{
	size_t from = keepers->n, n = from;
	int err;

	for (size_t i = 0; i < list->n; i++) {
		const struct label *label = census_list__label(list, i);

		if (label->kind == CENSUS_PARAMETER && label->name && list->v[i].obj != NO_OBJECT &&
		    list->v[i].grad)
			add_keeper(keepers, listed__obj(reading, &list->v[i]), label->name);
	}
	err = pytensors__read(reading->census->tensors, keepers->v + from, keepers->n - from);
	if (err)
		return err;
	for (size_t i = from; i < keepers->n; i++)
		keepers->v[i] = (struct pytensor){ .impl = keepers->v[i].grad };
	err = pytensors__read(reading->census->tensors, keepers->v + from, keepers->n - from);
	for (size_t i = from; !err && i < keepers->n; i++) {
		if (!keepers->v[i].impl || keepers->v[i].state != PYTENSOR_OK ||
		    !keepers->v[i].grad_fn)
			continue;
		keepers->v[n] = keepers->v[i];
		err = name_gradient(reading, keepers->name[i], &keepers->name[n]);
		n += !err;
	}
	keepers->n = n;
	return err;
}

/* Allocates k's arrays for all tensors that find_keepers() may add. 0 or -ENOMEM. */
static int make_room(struct keepers *k, const struct reading *reading,
		     const struct census_list *list)
{
	size_t most = reading->npassing + 1; /* an array is never empty */

	for (size_t i = 0; i < list->n; i++)
		most += list->v[i].grad_fn || census_list__label(list, i)->kind == CENSUS_PARAMETER;
	k->v = calloc(most, sizeof(*k->v));
	k->name = calloc(most, sizeof(*k->name));
	k->grad_fn = calloc(most, sizeof(*k->grad_fn));
	return k->v && k->name && k->grad_fn ? 0 : -ENOMEM;
}

/* Finds all tensors that may keep a graph: those of the list in lasting places, gradients with a
 * graph, and those that were replaced in lasting places during the reading. The caller frees k's
 * arrays. */
static int find_keepers(struct reading *reading, const struct census_list *list, struct keepers *k)
{
	int err = make_room(k, reading, list);

	if (err)
		return err;
	for (size_t i = 0; i < list->n; i++) {
		uint32_t name = census_list__label(list, i)->name;

		if (list->v[i].obj != NO_OBJECT && list->v[i].state == PYTENSOR_OK &&
		    list->v[i].grad_fn && is_lasting(reading->text + name))
			add_keeper(k, listed__obj(reading, &list->v[i]), name);
	}
	err = pytensors__read(reading->census->tensors, k->v, k->n)
		      ?: add_gradients(reading, list, k);
	if (err)
		return err;
	for (size_t i = 0; i < k->n; i++)
		k->grad_fn[i] = k->v[i].state == PYTENSOR_OK ? k->v[i].grad_fn : 0;
	/* Those that were replaced. */
	for (size_t i = 0; i < reading->npassing; i++) {
		if (!is_lasting(reading->text + reading->passing[i].name))
			continue;
		k->grad_fn[k->n] = reading->passing[i].grad_fn;
		k->name[k->n++] = reading->passing[i].name;
	}
	return 0;
}

/* Reads the graph of autograd that the tensors of the list and the keepers lead to. */
static int find_graph(struct reading *reading, const struct census_list *list,
		      const struct keepers *keepers, struct pygraph *graph)
{
	struct pygraph_opts opts = { .object = reading->census->function ? on_object : NULL,
				     .go_on = check_time,
				     .ctx = reading };
	uint64_t *roots = calloc(list->nnodes + keepers->n + 1, sizeof(*roots));
	size_t n = list->nnodes;
	int err;

	if (!roots)
		return -ENOMEM;
	if (n)
		memcpy(roots, list->nodes, n * sizeof(*roots));
	for (size_t i = 0; i < keepers->n; i++)
		roots[n++] = keepers->grad_fn[i];
	pymem__forget(&reading->mem);
	err = pygraph__read(reading->census->tensors, roots, n, &opts, graph);
	free(roots);
	return err;
}

/* Names each saved tensor by the class of the autograd node that saved it, and by the tensor whose
 * graph has that node: "saved for MulBackward0, graph of loss". names: one for each of
 * graph->saved. */
static int add_names(struct reading *reading, const struct pygraph *graph, const struct keepers *k,
		     uint32_t *names)
{
	uint32_t *holder = calloc(graph->nsaved + 1, sizeof(*holder));
	struct map64 *known = map64__new();
	char text[PYGRAPH_CLASS + KEEPER_MAX + 64];
	int err = holder && known ? pygraph__holders(graph, k->grad_fn, k->n, holder) : -ENOMEM;

	for (size_t i = 0; !err && i < graph->nsaved; i++) {
		uint32_t keeper_name = holder[i] ? k->name[holder[i] - 1] : 0;
		uint64_t key = (uint64_t)graph->saved[i].cls << 32 | keeper_name, at;

		if (map64__get(known, key, &at)) {
			names[i] = (uint32_t)at;
			continue;
		}
		snprintf(text, sizeof(text), "saved for %s%s%.*s",
			 graph->classes[graph->saved[i].cls], keeper_name ? ", graph of " : "",
			 KEEPER_MAX, reading->text + keeper_name);
		err = reading__add_text(reading, text, &names[i]);
		if (!err)
			err = map64__set(known, key, names[i]);
	}
	free(holder);
	map64__free(known);
	return err;
}

/* Labels the saved tensors after they were read, and drops two kinds: tensors that their node has
 * released meanwhile, and tensors that are no leaf but seem to be the variable of an AccumulateGrad
 * node. Such a node has words that its constructor does not set. */
static int label_saved(struct reading *reading, const struct pygraph *graph, const uint32_t *names,
		       struct pytensor *tensors, struct label *labels)
{
	bool *holds = calloc(3 * graph->nsaved, sizeof(*holds)), *made = holds + graph->nsaved,
	     *known = made + graph->nsaved; /* made: a node of the graph made it */
	int err;

	if (!holds)
		return -ENOMEM;
	err = pygraph__check(reading->census->proc, graph, holds);
	if (err)
		goto out;
	for (size_t i = 0; i < graph->nsaved; i++) {
		if (!holds[i] || (graph->saved[i].leaf && !pytensor__is_leaf(&tensors[i])))
			tensors[i].state = PYTENSOR_NO_STORAGE;
		known[i] = tensors[i].state == PYTENSOR_OK;
		made[i] = known[i] && tensors[i].grad_fn;
	}
	if (!reading->census->saved_flags)
		reading->census->saved_flags = pygraph__find_flags(graph, made, known);
	for (size_t i = 0; i < graph->nsaved; i++) {
		enum pygraph_use use = pygraph__use(&graph->saved[i], reading->census->saved_flags,
						    known[i], made[i]);

		if (!graph->saved[i].leaf) /* also if its flags are not known */
			labels[i].name = names[i];
		if (use == PYGRAPH_MADE || (use == PYGRAPH_HELD && made[i]))
			labels[i].kind = CENSUS_ACTIVATION;
	}
out:
	free(holds);
	return err;
}

/* ---- the list of tensors ---- */

static int add_listed(struct census_list *list, const struct listed *tensor)
{
	int err = list->n < 3 * (size_t)CENSUS_MAX_TENSORS
			  ? array__grow(&list->v, &list->cap, list->n + 1, sizeof(*list->v))
			  : -E2BIG;

	if (!err)
		list->v[list->n++] = *tensor;
	return err;
}

/* Adds a tensor with a label to the list: its Python object obj or, without one, its TensorImpl
 * impl. */
static int add_tensor(struct reading *reading, struct census_list *list, uint64_t obj,
		      uint64_t impl, const struct label *label, bool wrapper)
{
	struct listed tensor = { .impl = impl, .obj = NO_OBJECT, .wrapper = wrapper };
	int err = obj ? reading__number(reading, obj, TYPE_OTHER, &tensor.obj) : 0;

	if (!err)
		err = census_list__add_label(list, label, &tensor.label)
			      ?: add_listed(list, &tensor);
	return err;
}

/* Keeps what was read of a tensor in the list. */
static void take_tensor(struct census_list *list, struct listed *to, const struct pytensor *from)
{
	if (to->label)
		list->storages[to->label] = from->storage;
	to->impl = from->impl;
	to->addr = from->addr;
	to->size = from->size;
	to->shape = from->shape;
	to->ndim = from->ndim;
	to->dtype = from->dtype;
	to->device_type = from->device_type;
	to->device_index = from->device_index;
	to->state = from->state;
	to->context = from->context;
	to->single = from->numel == 1;
	to->grad = from->grad != 0;
	to->grad_fn = from->grad_fn != 0;
}

/* Adds the saved tensors of a graph to the list. */
static int add_saved(struct reading *reading, struct census_list *list, const struct pygraph *graph,
		     const struct keepers *k)
{
	uint32_t *names = calloc(graph->nsaved + 1, sizeof(*names));
	struct pytensor *tensors = calloc(graph->nsaved + 1, sizeof(*tensors));
	struct label *labels = calloc(graph->nsaved + 1, sizeof(*labels));
	int err = names && tensors && labels ? add_names(reading, graph, k, names) : -ENOMEM;

	for (size_t i = 0; !err && i < graph->nsaved; i++) {
		labels[i] = (struct label){ .kind = CENSUS_OTHER, .leaf = graph->saved[i].leaf };
		tensors[i].impl = graph->saved[i].impl;
	}
	if (err)
		goto out;
	err = pytensors__read(reading->census->tensors, tensors, graph->nsaved)
		      ?: label_saved(reading, graph, names, tensors, labels);
	for (size_t i = 0; !err && i < graph->nsaved; i++) {
		err = add_tensor(reading, list, 0, tensors[i].impl, &labels[i], /*wrapper=*/false);
		if (!err)
			take_tensor(list, &list->v[list->n - 1], &tensors[i]);
	}
out:
	free(names);
	free(tensors);
	free(labels);
	return err;
}

/* Adds tensors that autograd's graph saved for backward. */
static int read_saved(struct reading *reading, struct census_list *list)
{
	struct keepers keepers = { 0 };
	struct pygraph graph = { 0 };
	int err;

	if (!pytensors__know_grad(reading->census->tensors))
		return 0;
	err = find_keepers(reading, list, &keepers) ?: find_graph(reading, list, &keepers, &graph);
	if (!err && graph.nsaved)
		err = add_saved(reading, list, &graph, &keepers);
	pygraph__free(&graph); /* the graph is empty after an error */
	free(keepers.v);
	free(keepers.name);
	free(keepers.grad_fn);
	return err;
}

/* ---- tensors by the variable that holds them, if it has the same value before and after ---- */

/* Variables of running functions and of the main module that hold tensors without a name. */
struct variables {
	struct pylocal *v;	/* variables of running functions */
	struct pyitem *globals; /* variables of the main module */
	size_t n, nglobals;
};

/* Callback of pylocals__read(): takes tensors without a name. */
static bool is_nameless_tensor(void *ctx, uint64_t obj)
{
	struct reading *reading = ctx;
	uint64_t i;
	uint32_t no;

	return numbers__get(&reading->objects, obj, &no) &&
	       type_kind__is_tensor(reading->kinds[no]) && !map64__get(reading->by_obj, obj, &i);
}

/* Reads the main module's dictionary; no entries if it cannot be read. */
static int read_globals(struct reading *reading, struct pyitems *it)
{
	uint64_t module, dict;
	int err;

	err = pyobj__module(reading->census->py, "__main__", &module)
		      ?: pymem__u64(&reading->mem, module + reading->mem.layout->md_dict, &dict);
	if (!err)
		err = pydict__items(&reading->mem, dict, it);
	if (err)
		it->n = 0;
	return reading__is_local(err) ? 0 : err;
}

/* Finds the variables of the main module that hold tensors without a name. */
static int find_globals(struct reading *reading, struct variables *ret)
{
	struct pyitems it = { 0 };
	int err = read_globals(reading, &it);

	ret->globals = err ? NULL : calloc(it.n + 1, sizeof(*ret->globals));
	if (!err && !ret->globals)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < it.n; i++)
		if (is_nameless_tensor(reading, it.v[i].value))
			ret->globals[ret->nglobals++] = it.v[i];
	pyitems__fini(&it);
	return err;
}

/* Finds the local and global variables that hold tensors without a name. */
static int find_variables(struct reading *reading, struct variables *ret)
{
	pymem__forget(&reading->mem);
	return pylocals__read(&reading->mem, is_nameless_tensor, reading, &ret->v, &ret->n)
		       ?: find_globals(reading, ret);
}

/* Sets for each variable whether it still has its value: first function variables, then globals. */
static int check_variables(struct reading *reading, const struct variables *variables, bool *holds)
{
	struct map64 *now = map64__new();
	struct pyitems it = { 0 };
	uint64_t value;
	int err = -ENOMEM;

	if (!now)
		goto out;
	pymem__forget(&reading->mem);
	err = pylocals__check(&reading->mem, variables->v, variables->n, holds);
	if (!err && variables->nglobals)
		err = read_globals(reading, &it);
	for (size_t i = 0; !err && i < it.n; i++)
		err = map64__set(now, it.v[i].key, it.v[i].value);
	for (size_t i = 0; !err && i < variables->nglobals; i++)
		holds[variables->n + i] = map64__get(now, variables->globals[i].key, &value) &&
					  value == variables->globals[i].value;
out:
	pyitems__fini(&it);
	map64__free(now);
	return err;
}

/* Sets by_obj: object -> index in the list, for the tensors of variables that have no name. now: n
 * tensors of variables. */
static int index_nameless(const struct reading *reading, const struct census_list *list,
			  const struct pytensor *now, size_t n, struct map64 *by_obj)
{
	bool *wanted = calloc(reading->objects.n + 1, sizeof(*wanted));
	uint32_t no;
	int err = wanted ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < n; i++)
		if (numbers__get(&reading->objects, now[i].obj, &no))
			wanted[no] = true;
	for (size_t i = 0; !err && i < list->n; i++) {
		const struct label *label = census_list__label(list, i);

		if (list->v[i].obj != NO_OBJECT && wanted[list->v[i].obj] &&
		    list->v[i].state == PYTENSOR_OK && label->kind == CENSUS_OTHER && !label->name)
			err = map64__set(by_obj, listed__obj(reading, &list->v[i]), i);
	}
	free(wanted);
	return err;
}

/* True if two readings are of the same tensor with the same memory. */
static bool same_tensor(const struct listed *a, const struct pytensor *b)
{
	return a->state == PYTENSOR_OK && b->state == PYTENSOR_OK && a->impl == b->impl &&
	       a->addr == b->addr && a->size == b->size;
}

/* Text of a variable: "local x in GPT.forward (gpt.py:52)", "global x". */
static int variable_text(struct reading *reading, const struct variables *variables, size_t i,
			 char *buf, size_t size)
{
	size_t at = snprintf(buf, size, i < variables->n ? "local " : "global ");
	int err;

	if (i < variables->n)
		return pylocal__text(&reading->mem, &variables->v[i], buf + at, size - at);
	err = pystr__read(&reading->mem, variables->globals[i - variables->n].key, buf + at,
			  size - at, /*cut=*/NULL);
	return err < 0 ? err : 0;
}

/* Names the tensors whose variable and memory are as before. */
static int set_names(struct reading *reading, struct census_list *list,
		     const struct variables *locals, const struct map64 *by_obj,
		     const struct pytensor *now, const bool *before, const bool *after)
{
	char text[64 + PYOBJ_MAX_STRING];
	struct label *label;
	uint64_t ix;
	int err = 0;

	for (size_t i = 0; !err && i < locals->n + locals->nglobals; i++) {
		if (!before[i] || !after[i] || !map64__get(by_obj, now[i].obj, &ix) ||
		    census_list__label(list, ix)->name || !same_tensor(&list->v[ix], &now[i]))
			continue;
		err = variable_text(reading, locals, i, text, sizeof(text))
			      ?: census_list__own_label(list, ix, &label);
		if (!err)
			err = reading__add_text(reading, text, &label->name);
		if (reading__is_local(err))
			err = 0;
	}
	return err;
}

/* Checks the variables, reads their tensors again, and checks the variables once more. Then neither
 * changed meanwhile. */
static int name_variables(struct reading *reading, struct census_list *list,
			  const struct variables *locals)
{
	size_t n = locals->n + locals->nglobals;
	struct map64 *by_obj = map64__new();
	struct pytensor *now = calloc(n + 1, sizeof(*now));
	bool *before = calloc(2 * n + 1, sizeof(*before)), *after = before + n;
	int err = -ENOMEM;

	if (!by_obj || !now || !before)
		goto out;
	for (size_t i = 0; i < n; i++)
		now[i].obj = i < locals->n ? locals->v[i].obj
					   : locals->globals[i - locals->n].value;
	err = index_nameless(reading, list, now, n, by_obj)
		      ?: check_variables(reading, locals, before);
	if (err)
		goto out;
	err = pytensors__read(reading->census->tensors, now, n)
		      ?: check_variables(reading, locals, after);
	if (!err)
		err = set_names(reading, list, locals, by_obj, now, before, after);
out:
	map64__free(by_obj);
	free(now);
	free(before);
	return err;
}

/* ---- reading the tensors ---- */

#define LISTED_AT_ONCE 8192 /* tensors in one call of pytensors__read() */
#define SAMPLES 200	    /* tensors used to find the layout, of each kind */
#define ENOUGH 8	    /* named samples that suffice */
#define WRAPPED_DEPTH 3
#define DESCR_MEMBER 40	 /* PyMemberDescrObject.d_member */
#define MEMBER_OFFSET 16 /* PyMemberDef.offset */
#define HEAD 16		 /* bytes of PyObject */
#define SLOT_MOST 4096	 /* offset of a slot, at most */

/* Finds the layout from samples of the tensors: named ones, and unnamed ones if need be. */
int census__calibrate(struct reading *reading, bool all, const char **why)
{
	uint64_t objs[2 * SAMPLES];
	size_t n = 0, i;
	bool unnamed;
	int err;

	if (pytensors__calibrated(reading->census->tensors) &&
	    pytensors__know_grad(reading->census->tensors))
		return 0;
	for (i = 0; i < reading->nnamed && n < SAMPLES; i += 1 + reading->nnamed / SAMPLES)
		if (!reading->named[i].wrapper)
			objs[n++] = reading->named[i].obj;
	/* Unnamed tensors come and go; use them only if there are few others, or these say nothing:
	 * weights that are offloaded have no memory. */
	unnamed = all || n < ENOUGH;
	for (i = 0; unnamed && i < reading->ntensors && n < 2 * SAMPLES;
	     i += 1 + reading->ntensors / SAMPLES)
		objs[n++] = reading->objects.keys[i];
	err = pytensors__calibrate(reading->census->tensors, objs, n, why);
	/* Success if the layout is known, even if gradients are not. */
	return pytensors__calibrated(reading->census->tensors) ? 0 : err;
}

/* Lists the named tensors, then the others unless named_only is set. */
static int list_tensors(struct reading *reading, struct census_list *list)
{
	static const struct label unnamed = { .kind = CENSUS_OTHER };
	uint32_t no;
	uint64_t i;
	int err = census_list__add_label(list, &unnamed, &no);

	for (size_t k = 0; !err && k < reading->nnamed; k++)
		err = add_tensor(reading, list, reading->named[k].obj, 0, &reading->named[k].label,
				 reading->named[k].wrapper);
	for (size_t k = 0; !err && !reading->opts->named_only && k < reading->ntensors; k++)
		if (!map64__get(reading->by_obj, reading->objects.keys[k], &i))
			err = add_listed(list, &(struct listed){ .obj = (uint32_t)k });
	return err;
}

/* A tensor that was read, and the address of its Python object and of its gradient; 0: none. */
struct lead {
	size_t i; /* in the list */
	uint64_t obj, grad;
};

/* Tensors that have a gradient or may contain tensors. */
struct leads {
	struct lead *v;
	size_t n, cap;
};

/* Returns a tensor of the list as pytensors__read() begins with it. */
static struct pytensor start_of(const struct reading *reading, const struct listed *tensor)
{
	if (tensor->obj == NO_OBJECT)
		return (struct pytensor){ .impl = tensor->impl };
	return (struct pytensor){ .obj = listed__obj(reading, tensor) };
}

/* Adds the gradients that tensors led to. */
static int add_grads(struct reading *reading, struct census_list *list, const struct leads *leads)
{
	char name[CENSUS_NAME_ROOM];
	int err = 0;

	for (size_t k = 0; !err && k < leads->n; k++) {
		size_t i = leads->v[k].i;
		struct label label = *census_list__label(list, i);

		if (!leads->v[k].grad || list->v[i].state == PYTENSOR_BAD ||
		    list->v[i].state == PYTENSOR_TORN)
			continue;
		label.kind = CENSUS_GRADIENT;
		label.optimizer_no = 0;
		label.grad = true;
		label.parent_no = i + 1;
		if (label.name) {
			snprintf(name, sizeof(name), "grad of %s", reading->text + label.name);
			err = reading__add_text(reading, name, &label.name);
			label.front_at += strlen("grad of ");
		}
		err = err
			      ?: add_tensor(reading, list, 0, leads->v[k].grad, &label,
					    /*wrapper=*/true);
	}
	return err;
}

/* Offset of a __slots__ attribute in an instance, such as DTensor's local part. -ENOENT: no such
 * slot. */
static int slot_offset(struct reading *reading, uint64_t type, const char *name, uint64_t *ret)
{
	uint64_t mro[PYTYPE_MRO_MAX], descr, member, at, offset;
	char text[64] = "";
	int n = pytype__mro(&reading->mem, type, mro, PYTYPE_MRO_MAX);

	/* The class has a descriptor with this name, which leads to a PyMemberDef. */
	for (int i = 0; i < n; i++) {
		if (pytype__attr(&reading->mem, mro[i], name, &descr))
			continue;
		if (pymem__u64(&reading->mem, descr + DESCR_MEMBER, &member) ||
		    pymem__u64(&reading->mem, member, &at) ||
		    pymem__read(&reading->mem, at, text, strlen(name) + 1) ||
		    pymem__u64(&reading->mem, member + MEMBER_OFFSET, &offset))
			return -ENOENT;
		if (memcmp(text, name, strlen(name) + 1) || offset < HEAD || offset > SLOT_MOST)
			return -ENOENT;
		*ret = offset;
		return 0;
	}
	return n < 0 ? n : -ENOENT;
}

/* Adds an attribute of a wrapper if it is a tensor. name: "" for DTensor's local part. */
static int add_inner(struct reading *reading, struct census_list *list, size_t outer, uint64_t obj,
		     const char *name, enum type_kind kind)
{
	struct label label = *census_list__label(list, outer);
	char text[CENSUS_NAME_ROOM];
	int err;

	label.grad = false;
	label.optimizer_no = 0;
	label.parent_no = outer + 1;
	/* A tensor with its own storage is not a wrapper; its attributes are other tensors. */
	if (*name && list->v[outer].state != PYTENSOR_NO_STORAGE)
		return 0;
	if (*name && label.name) {
		snprintf(text, sizeof(text), "%s.%s", reading->text + label.name, name);
		err = reading__add_text(reading, text, &label.name);
		if (err)
			return err;
	}
	return add_tensor(reading, list, obj, 0, &label, kind == TYPE_WRAPPER);
}

/* Adds the tensors inside a wrapper. */
static int open_wrapper(struct reading *reading, struct census_list *list, size_t outer,
			uint64_t obj)
{
	static const char *const local[] = { "_local_tensor", "elem" };
	struct pyitems attrs = { 0 };
	uint64_t type, offset, value;
	enum type_kind kind;
	char key[READING_KEY];
	int err;

	err = pydict__type_of(&reading->mem, obj, &type);
	for (size_t i = 0; !err && i < sizeof(local) / sizeof(local[0]); i++) {
		if (slot_offset(reading, type, local[i], &offset) ||
		    pymem__u64(&reading->mem, obj + offset, &value))
			continue;
		err = reading__kind_of(reading, value, &kind);
		if (!err && type_kind__is_tensor(kind))
			err = add_inner(reading, list, outer, value, "", kind);
	}
	err = err ?: pydict__attrs(&reading->mem, obj, type, &attrs);
	for (size_t i = 0; !err && i < attrs.n; i++) {
		err = reading__kind_of(reading, attrs.v[i].value, &kind);
		if (err || !type_kind__is_tensor(kind) ||
		    reading__key(reading, attrs.v[i].key, key, sizeof(key)))
			continue;
		if (!strcmp(key, local[0]) || !strcmp(key, local[1]))
			key[0] = '\0';
		err = add_inner(reading, list, outer, attrs.v[i].value, key, kind);
	}
	pyitems__fini(&attrs);
	return reading__is_local(err) ? 0 : err;
}

/* Adds the tensors inside the wrappers among those that leads has. */
static int open_wrappers(struct reading *reading, struct census_list *list,
			 const struct leads *leads)
{
	int err = 0;

	for (size_t k = 0; !err && k < leads->n; k++) {
		size_t i = leads->v[k].i;
		uint64_t obj = leads->v[k].obj;
		enum type_kind kind;

		if (!list->v[i].wrapper || !obj || list->v[i].state == PYTENSOR_BAD)
			continue;
		err = reading__kind_of(reading, obj, &kind);
		if (!err && kind == TYPE_WRAPPER)
			err = reading__check_time(reading) ?: open_wrapper(reading, list, i, obj);
	}
	return err;
}

/* True if a second reading of a gradient and of its tensor has the same gradient, with the same
 * memory. grad, storage: first reading of the gradient. */
static bool has_same_grad(const struct pytensor *owner_again, const struct pytensor *grad_again,
			  const struct listed *grad, uint64_t storage)
{
	if (owner_again->state == PYTENSOR_BAD || owner_again->state == PYTENSOR_TORN ||
	    owner_again->grad != grad->impl)
		return false;
	return grad_again->state == grad->state && grad_again->storage == storage &&
	       grad_again->addr == grad->addr;
}

/*
 * Gradients are freed at each step and their memory is reused. So a gradient may belong to another
 * tensor by the time it is read. It is kept if its tensor still has it, with the same memory, when
 * read again. What was found inside a gradient that is dropped is dropped, too.
 */
static int confirm_grads(struct reading *reading, struct census_list *list)
{
	bool *gone = calloc(list->n + 1, sizeof(*gone));
	struct pytensor *owners, *grads;
	size_t n = 0, n_read = 0;
	int err = -ENOMEM;

	for (size_t i = 0; i < list->n; i++)
		n += census_list__label(list, i)->grad;
	owners = calloc(2 * n + 1, sizeof(*owners));
	if (!gone || !owners)
		goto out;
	grads = owners + n;
	for (size_t i = 0; i < list->n; i++) {
		const struct label *label = census_list__label(list, i);
		const struct listed *owner;

		if (!label->grad)
			continue;
		owner = &list->v[label->parent_no - 1];
		owners[n_read] = start_of(reading, owner);
		grads[n_read++] = (struct pytensor){ .impl = list->v[i].impl };
	}
	err = pytensors__read(reading->census->tensors, owners, n)
		      ?: pytensors__read(reading->census->tensors, grads, n);
	if (err)
		goto out;
	n_read = 0;
	for (size_t i = 0; i < list->n; i++) {
		const struct label *label = census_list__label(list, i);

		gone[i] = label->parent_no && gone[label->parent_no - 1];
		if (label->grad) {
			gone[i] |= !has_same_grad(&owners[n_read], &grads[n_read], &list->v[i],
						  list->storages[list->v[i].label]);
			n_read++;
		}
		if (gone[i])
			list->v[i].label = 0;
	}
out:
	free(owners);
	free(gone);
	return err;
}

/* Keeps the i-th tensor of the list, its node in autograd's graph, and what else it leads to. */
static int take_read(struct reading *reading, struct census_list *list, size_t i,
		     const struct pytensor *from, struct leads *leads)
{
	struct listed *to = &list->v[i];
	struct lead lead = { .i = i, .obj = listed__obj(reading, to) ?: from->pyobj };
	int err = 0;

	take_tensor(list, to, from);
	if (from->grad_fn && (from->state == PYTENSOR_OK || from->state == PYTENSOR_NO_STORAGE)) {
		err = array__grow(&list->nodes, &list->capnodes, list->nnodes + 1,
				  sizeof(*list->nodes));
		if (!err)
			list->nodes[list->nnodes++] = from->grad_fn;
	}
	lead.grad = from->grad;
	if (err || (!lead.grad && !to->wrapper))
		return err;
	err = array__grow(&leads->v, &leads->cap, leads->n + 1, sizeof(*leads->v));
	if (!err)
		leads->v[leads->n++] = lead;
	return err;
}

/* Reads the tensors from index `from` on, some thousands at once. */
static int read_from(struct reading *reading, struct census_list *list, size_t from,
		     struct leads *leads)
{
	struct pytensor *tensors = calloc(LISTED_AT_ONCE, sizeof(*tensors));
	int err = tensors ? 0 : -ENOMEM;

	for (size_t n; !err && from < list->n; from += n) {
		n = list->n - from < LISTED_AT_ONCE ? list->n - from : LISTED_AT_ONCE;
		for (size_t k = 0; k < n; k++)
			tensors[k] = start_of(reading, &list->v[from + k]);
		err = pytensors__read(reading->census->tensors, tensors, n);
		for (size_t k = 0; !err && k < n; k++)
			err = take_read(reading, list, from + k, &tensors[k], leads);
	}
	free(tensors);
	return err;
}

/* Reads the tensors of the list, then adds and reads their gradients and the contents of wrappers,
 * which may be wrappers again. */
static int read_listed(struct reading *reading, struct census_list *list)
{
	struct leads leads = { 0 };
	size_t from = 0, to;
	int err = 0;

	pymem__forget(&reading->mem);
	for (int depth = 0; from < list->n && depth < WRAPPED_DEPTH; depth++) {
		to = list->n;
		leads.n = 0;
		err = reading__check_time(reading) ?: read_from(reading, list, from, &leads);
		if (err)
			goto out;
		err = add_grads(reading, list, &leads) ?: open_wrappers(reading, list, &leads);
		if (err)
			goto out;
		from = to;
	}
	/* The last level is read but not searched for wrappers. */
	if (from < list->n)
		err = read_from(reading, list, from, &leads);
	if (!err)
		err = confirm_grads(reading, list) ?: census__read_counts(reading, list);
out:
	free(leads.v);
	return err;
}

/* Searches variables and containers before the tensors are read and again after, then reads
 * autograd's graph. */
int census__read_tensors(struct reading *reading, struct census_list *list)
{
	struct variables locals = { 0 };
	struct census_owners *owners = NULL;
	int err = list_tensors(reading, list);

	if (err)
		return err;
	if (reading->opts->named_only)
		return read_listed(reading, list) ?: census__front_names(reading, list);
	err = find_variables(reading, &locals) ?: census__find_owners(reading, &owners);
	if (err)
		goto out;
	err = read_listed(reading, list);
	if (!err && (locals.n || locals.nglobals))
		err = name_variables(reading, list, &locals);
	if (err)
		goto out;
	err = census__name_owners(reading, list, owners) ?: census__front_names(reading, list);
	if (err)
		goto out;
	err = read_saved(reading, list);
out:
	census_owners__free(owners);
	free(locals.v);
	free(locals.globals);
	return err;
}
