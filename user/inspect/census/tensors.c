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

/* pygraph__object_fn for the context of a torch.autograd.Function: an object of the class that
 * PyTorch makes for its backward. */
static int on_object(void *ctx, uint64_t obj, char *name, size_t room, size_t *size)
{
	struct reading *r = ctx;
	uint64_t mro[PYTYPE_MRO_MAX], type;
	int err;
	int n = pydict__type_of(&r->m, obj, &type) ?: pytype__mro(&r->m, type, mro, PYTYPE_MRO_MAX);

	if (n == -ESRCH || n == -EPERM || n == -ENOMEM)
		return n;
	for (int i = 0; i < n; i++) {
		if (mro[i] != r->c->function)
			continue;
		err = pytype__name(&r->m, type, name, room)
			      ?: pymem__constant_u64(&r->m, type + r->m.l->tp_basicsize, size);
		return err && reading__is_local(err) ? -ENOENT : err;
	}
	return -ENOENT;
}

/* Whether the tensor with this name may keep a graph longer than a call or a step, because a
 * container or a global variable holds it. */
static bool is_lasting(const char *name)
{
	return !strncmp(name, "global ", 7) || (!strncmp(name, "local ", 6) && strchr(name, '['));
}

/* Tensors that may keep a graph: lasting ones, and gradients. Each has been read again, because a
 * step replaces them. */
struct keepers {
	struct pytensor *v;
	uint32_t *name; /* by tensor: offset of its name in reading.text */
	size_t n;
	uint64_t *grad_fn; /* by tensor: address of its grad_fn; 0: none */
};

static void add_keeper(struct keepers *k, uint64_t obj, uint32_t name)
{
	k->v[k->n] = (struct pytensor){ .obj = obj };
	k->name[k->n++] = name;
}

static int name_gradient(struct reading *r, uint32_t parameter, uint32_t *name)
{
	char text[KEEPER_MAX + 16];

	snprintf(text, sizeof(text), "grad of %.*s", KEEPER_MAX, r->text + parameter);
	return reading__add_text(r, text, name);
}

/* Adds the gradients that have a graph of their own, as after backward(create_graph=True). */
static int add_gradients(struct reading *r, const struct census_list *l, struct keepers *k)
{
	size_t from = k->n, n = from;
	int err;

	for (size_t i = 0; i < l->n; i++)
		if (l->labels[i].kind == CENSUS_PARAMETER && l->labels[i].name && l->v[i].obj &&
		    l->v[i].grad)
			add_keeper(k, l->v[i].obj, l->labels[i].name);
	err = pytensors__read(r->c->tensors, k->v + from, k->n - from);
	if (err)
		return err;
	for (size_t i = from; i < k->n; i++)
		k->v[i] = (struct pytensor){ .impl = k->v[i].grad };
	err = pytensors__read(r->c->tensors, k->v + from, k->n - from);
	for (size_t i = from; !err && i < k->n; i++) {
		if (!k->v[i].impl || k->v[i].state != PYTENSOR_OK || !k->v[i].grad_fn)
			continue;
		k->v[n] = k->v[i];
		err = name_gradient(r, k->name[i], &k->name[n]);
		n += !err;
	}
	k->n = n;
	return err;
}

/* Allocates k's arrays for all tensors that find_keepers() may add. 0 or -ENOMEM. */
static int make_room(struct keepers *k, const struct reading *r, const struct census_list *l)
{
	size_t most = r->npassing + 1; /* an array is never empty */

	for (size_t i = 0; i < l->n; i++)
		most += l->v[i].grad_fn || l->labels[i].kind == CENSUS_PARAMETER;
	k->v = calloc(most, sizeof(*k->v));
	k->name = calloc(most, sizeof(*k->name));
	k->grad_fn = calloc(most, sizeof(*k->grad_fn));
	return k->v && k->name && k->grad_fn ? 0 : -ENOMEM;
}

/* Finds all tensors that may keep a graph: those of the list in lasting places, gradients with a
 * graph, and those that were replaced in lasting places during the reading. The caller frees k's
 * arrays. */
static int find_keepers(struct reading *r, const struct census_list *l, struct keepers *k)
{
	int err = make_room(k, r, l);

	if (err)
		return err;
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].obj && l->v[i].state == PYTENSOR_OK && l->v[i].grad_fn &&
		    is_lasting(r->text + l->labels[i].name))
			add_keeper(k, l->v[i].obj, l->labels[i].name);
	err = pytensors__read(r->c->tensors, k->v, k->n) ?: add_gradients(r, l, k);
	if (err)
		return err;
	for (size_t i = 0; i < k->n; i++)
		k->grad_fn[i] = k->v[i].state == PYTENSOR_OK ? k->v[i].grad_fn : 0;
	for (size_t i = 0; i < r->npassing; i++) {
		if (!is_lasting(r->text + r->passing[i].name))
			continue;
		k->grad_fn[k->n] = r->passing[i].grad_fn;
		k->name[k->n++] = r->passing[i].name;
	}
	return 0;
}

/* Reads the graph of autograd that the tensors of the list and the keepers lead to. */
static int find_graph(struct reading *r, const struct census_list *l, const struct keepers *k,
		      struct pygraph *g)
{
	struct pygraph_opts o = { .object = r->c->function ? on_object : NULL,
				  .go_on = check_time,
				  .ctx = r };
	uint64_t *roots = calloc(l->n + k->n + 1, sizeof(*roots));
	size_t n = 0;
	int err;

	if (!roots)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].grad_fn &&
		    (l->v[i].state == PYTENSOR_OK || l->v[i].state == PYTENSOR_NO_STORAGE))
			roots[n++] = l->v[i].grad_fn;
	for (size_t i = 0; i < k->n; i++)
		roots[n++] = k->grad_fn[i];
	pymem__forget(&r->m);
	err = pygraph__read(r->c->tensors, roots, n, &o, g);
	free(roots);
	return err;
}

/* Names each saved tensor by the class of the autograd node that saved it, and by the tensor whose
 * graph has that node: "saved for MulBackward0, graph of loss". names: one for each of g->saved. */
static int add_names(struct reading *r, const struct pygraph *g, const struct keepers *k,
		     uint32_t *names)
{
	uint32_t *holder = calloc(g->nsaved + 1, sizeof(*holder));
	struct map64 *known = map64__new();
	char text[PYGRAPH_CLASS + KEEPER_MAX + 64];
	int err = holder && known ? pygraph__holders(g, k->grad_fn, k->n, holder) : -ENOMEM;

	for (size_t i = 0; !err && i < g->nsaved; i++) {
		uint32_t keeper_name = holder[i] ? k->name[holder[i] - 1] : 0;
		uint64_t key = (uint64_t)g->saved[i].cls << 32 | keeper_name, at;

		if (map64__get(known, key, &at)) {
			names[i] = (uint32_t)at;
			continue;
		}
		snprintf(text, sizeof(text), "saved for %s%s%.*s", g->classes[g->saved[i].cls],
			 keeper_name ? ", graph of " : "", KEEPER_MAX, r->text + keeper_name);
		err = reading__add_text(r, text, &names[i]);
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
static int label_saved(struct reading *r, const struct pygraph *g, const uint32_t *names,
		       struct pytensor *v, struct label *labels)
{
	bool *holds = calloc(3 * g->nsaved, sizeof(*holds)), *made = holds + g->nsaved,
	     *known = made + g->nsaved;
	int err;

	if (!holds)
		return -ENOMEM;
	err = pygraph__check(r->c->proc, g, holds);
	if (err)
		goto out;
	for (size_t i = 0; i < g->nsaved; i++) {
		if (!holds[i] || (g->saved[i].leaf && !pytensor__is_leaf(&v[i])))
			v[i].state = PYTENSOR_NO_STORAGE;
		known[i] = v[i].state == PYTENSOR_OK;
		made[i] = known[i] && v[i].grad_fn;
	}
	if (!r->c->saved_flags)
		r->c->saved_flags = pygraph__find_flags(g, made, known);
	for (size_t i = 0; i < g->nsaved; i++) {
		enum pygraph_use use = pygraph__use(&g->saved[i], r->c->saved_flags, known[i],
						    made[i]);

		if (!g->saved[i].leaf) /* also if its flags are not known */
			labels[i].name = names[i];
		if (use == PYGRAPH_MADE || (use == PYGRAPH_HELD && made[i]))
			labels[i].kind = CENSUS_ACTIVATION;
	}
out:
	free(holds);
	return err;
}

/* ---- the list of tensors ---- */

/* Adds a tensor to the list: its Python object obj or, without one, its TensorImpl impl. */
static int add_tensor(struct census_list *l, uint64_t obj, uint64_t impl, const struct label *label,
		      bool wrapper)
{
	size_t cap[3] = { l->cap, l->cap, l->cap };
	int err;

	if (l->n >= 3 * (size_t)CENSUS_MAX_TENSORS)
		return -E2BIG;
	err = array__grow(&l->v, &cap[0], l->n + 1, sizeof(*l->v))
		      ?: array__grow(&l->labels, &cap[1], l->n + 1, sizeof(*l->labels));
	if (!err)
		err = array__grow(&l->wrapper, &cap[2], l->n + 1, sizeof(*l->wrapper));
	if (err)
		return err;
	l->cap = cap[0];
	l->v[l->n] = (struct pytensor){ .obj = obj, .impl = impl };
	l->labels[l->n] = *label;
	l->wrapper[l->n++] = wrapper;
	return 0;
}

/* Adds the saved tensors of a graph to the list. */
static int add_saved(struct reading *r, struct census_list *l, const struct pygraph *g,
		     const struct keepers *k)
{
	uint32_t *names = calloc(g->nsaved + 1, sizeof(*names));
	size_t from = l->n;
	int err = names ? add_names(r, g, k, names) : -ENOMEM;

	for (size_t i = 0; !err && i < g->nsaved; i++) {
		struct label label = { .kind = CENSUS_OTHER, .leaf = g->saved[i].leaf };

		err = add_tensor(l, 0, g->saved[i].impl, &label, false);
	}
	if (err)
		goto out;
	err = pytensors__read(r->c->tensors, l->v + from, g->nsaved)
		      ?: label_saved(r, g, names, l->v + from, l->labels + from);
out:
	free(names);
	return err;
}

/* Adds tensors that autograd's graph saved for backward. */
static int read_saved(struct reading *r, struct census_list *l)
{
	struct keepers k = { 0 };
	struct pygraph g = { 0 };
	int err;

	if (!pytensors__know_grad(r->c->tensors))
		return 0;
	err = find_keepers(r, l, &k) ?: find_graph(r, l, &k, &g);
	if (!err && g.nsaved)
		err = add_saved(r, l, &g, &k);
	pygraph__free(&g); /* the graph is empty after an error */
	free(k.v);
	free(k.name);
	free(k.grad_fn);
	return err;
}

/* ---- tensors by the variable that holds them, if it has the same value before and after ---- */

/* Variables of running functions and of the main module that hold tensors without a name. */
struct variables {
	struct pylocal *v;	/* variables of running functions */
	struct pyitem *globals; /* variables of the main module */
	size_t n, nglobals;
};

static bool is_nameless_tensor(void *ctx, uint64_t obj)
{
	struct reading *r = ctx;
	uint64_t kind, i;

	return map64__get(r->seen, obj, &kind) && type_kind__is_tensor(kind) &&
	       !map64__get(r->by_obj, obj, &i);
}

/* Reads the main module's dictionary; no entries if it cannot be read. */
static int read_globals(struct reading *r, struct pyitems *it)
{
	uint64_t module, dict;
	int err;

	err = pyobj__module(r->c->py, "__main__", &module)
		      ?: pymem__u64(&r->m, module + r->m.l->md_dict, &dict);
	if (!err)
		err = pydict__items(&r->m, dict, it);
	if (err)
		it->n = 0;
	return reading__is_local(err) ? 0 : err;
}

/* Finds the variables of the main module that hold tensors without a name. */
static int find_globals(struct reading *r, struct variables *ret)
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

static int find_variables(struct reading *r, struct variables *ret)
{
	pymem__forget(&r->m);
	return pylocals__read(&r->m, is_nameless_tensor, r, &ret->v, &ret->n)
		       ?: find_globals(r, ret);
}

/* Sets for each variable whether it still has its value: first function variables, then globals. */
static int check_variables(struct reading *r, const struct variables *l, bool *holds)
{
	struct map64 *now = map64__new();
	struct pyitems it = { 0 };
	uint64_t value;
	int err = -ENOMEM;

	if (!now)
		goto out;
	pymem__forget(&r->m);
	err = pylocals__check(&r->m, l->v, l->n, holds);
	if (!err && l->nglobals)
		err = read_globals(r, &it);
	for (size_t i = 0; !err && i < it.n; i++)
		err = map64__set(now, it.v[i].key, it.v[i].value);
	for (size_t i = 0; !err && i < l->nglobals; i++)
		holds[l->n + i] = map64__get(now, l->globals[i].key, &value) &&
				  value == l->globals[i].value;
out:
	pyitems__fini(&it);
	map64__free(now);
	return err;
}

/* Sets by_obj: object -> index in the list, for tensors without a name. */
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
static int variable_text(struct reading *r, const struct variables *l, size_t i, char *buf,
			 size_t size)
{
	size_t at = snprintf(buf, size, i < l->n ? "local " : "global ");
	int err;

	if (i < l->n)
		return pylocal__text(&r->m, &l->v[i], buf + at, size - at);
	err = pystr__read(&r->m, l->globals[i - l->n].key, buf + at, size - at, NULL);
	return err < 0 ? err : 0;
}

/* Names the tensors whose variable and memory are as before. */
static int set_names(struct reading *r, struct census_list *l, const struct variables *locals,
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
		err = variable_text(r, locals, i, text, sizeof(text))
			      ?: reading__add_text(r, text, &l->labels[ix].name);
		if (reading__is_local(err))
			err = 0;
	}
	return err;
}

/* Checks the variables, reads their tensors again, and checks the variables once more. Then neither
 * changed meanwhile. */
static int name_variables(struct reading *r, struct census_list *l, const struct variables *locals)
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
	err = index_nameless(l, by_obj) ?: check_variables(r, locals, before);
	if (err)
		goto out;
	err = pytensors__read(r->c->tensors, now, n) ?: check_variables(r, locals, after);
	if (!err)
		err = set_names(r, l, locals, by_obj, now, before, after);
out:
	map64__free(by_obj);
	free(now);
	free(before);
	return err;
}

/* ---- reading the tensors ---- */

#define SAMPLES 200 /* tensors used to find the layout, of each kind */
#define ENOUGH 8    /* named samples that suffice */
#define WRAPPED_DEPTH 3
#define DESCR_MEMBER 40	 /* PyMemberDescrObject.d_member */
#define MEMBER_OFFSET 16 /* PyMemberDef.offset */

/* Finds the layout from samples of the tensors: named ones, and unnamed ones if need be. */
int census__calibrate(struct reading *r, bool all, const char **why)
{
	uint64_t objs[2 * SAMPLES];
	size_t n = 0, i;
	bool unnamed;
	int err;

	if (pytensors__calibrated(r->c->tensors) && pytensors__know_grad(r->c->tensors))
		return 0;
	for (i = 0; i < r->nnamed && n < SAMPLES; i += 1 + r->nnamed / SAMPLES)
		if (!r->named[i].wrapper)
			objs[n++] = r->named[i].obj;
	/* Unnamed tensors come and go; use them only if there are few others, or these say nothing:
	 * weights that are offloaded have no memory. */
	unnamed = all || n < ENOUGH;
	for (i = 0; unnamed && i < r->tensors.n && n < 2 * SAMPLES; i += 1 + r->tensors.n / SAMPLES)
		objs[n++] = r->tensors.v[i].obj;
	err = pytensors__calibrate(r->c->tensors, objs, n, why);
	/* Success if the layout is known, even if gradients are not. */
	return pytensors__calibrated(r->c->tensors) ? 0 : err;
}

/* Lists the named tensors, then the others unless named_only is set. */
static int list_tensors(struct reading *r, struct census_list *l)
{
	static const struct label unnamed = { .kind = CENSUS_OTHER };
	uint64_t i;
	int err = 0;

	for (size_t k = 0; !err && k < r->nnamed; k++)
		err = add_tensor(l, r->named[k].obj, 0, &r->named[k].label, r->named[k].wrapper);
	for (size_t k = 0; !err && !r->o->named_only && k < r->tensors.n; k++)
		if (!map64__get(r->by_obj, r->tensors.v[k].obj, &i))
			err = add_tensor(l, r->tensors.v[k].obj, 0, &unnamed, false);
	return err;
}

/* Adds the gradients of tensors [from, to). */
static int add_grads(struct reading *r, struct census_list *l, size_t from, size_t to)
{
	char name[CENSUS_NAME_ROOM];
	int err = 0;

	for (size_t i = from; !err && i < to; i++) {
		struct label label = l->labels[i];

		if (!l->v[i].grad || l->v[i].state == PYTENSOR_BAD ||
		    l->v[i].state == PYTENSOR_TORN)
			continue;
		label.kind = CENSUS_GRADIENT;
		label.optimizer_no = 0;
		label.grad = true;
		label.parent_no = i + 1;
		if (label.name) {
			snprintf(name, sizeof(name), "grad of %s", r->text + label.name);
			err = reading__add_text(r, name, &label.name);
			label.front_at += strlen("grad of ");
		}
		err = err ?: add_tensor(l, 0, l->v[i].grad, &label, true);
	}
	return err;
}

/* Offset of a __slots__ attribute in an instance, such as DTensor's local part. -ENOENT: no such
 * slot. */
static int slot_offset(struct reading *r, uint64_t type, const char *name, uint64_t *ret)
{
	uint64_t mro[PYTYPE_MRO_MAX], descr, member, at, offset;
	char text[64] = "";
	int n = pytype__mro(&r->m, type, mro, PYTYPE_MRO_MAX);

	for (int i = 0; i < n; i++) {
		if (pytype__attr(&r->m, mro[i], name, &descr))
			continue;
		if (pymem__u64(&r->m, descr + DESCR_MEMBER, &member) ||
		    pymem__u64(&r->m, member, &at) ||
		    pymem__read(&r->m, at, text, strlen(name) + 1) ||
		    pymem__u64(&r->m, member + MEMBER_OFFSET, &offset))
			return -ENOENT;
		if (memcmp(text, name, strlen(name) + 1) || offset < 16 || offset > 4096)
			return -ENOENT;
		*ret = offset;
		return 0;
	}
	return n < 0 ? n : -ENOENT;
}

/* Adds an attribute of a wrapper if it is a tensor. name: "" for DTensor's local part. */
static int add_inner(struct reading *r, struct census_list *l, size_t outer, uint64_t obj,
		     const char *name, enum type_kind kind)
{
	struct label label = l->labels[outer];
	char text[CENSUS_NAME_ROOM];
	int err;

	label.grad = false;
	label.optimizer_no = 0;
	label.parent_no = outer + 1;
	/* A tensor with its own storage is not a wrapper; its attributes are other tensors. */
	if (*name && l->v[outer].state != PYTENSOR_NO_STORAGE)
		return 0;
	if (*name && label.name) {
		snprintf(text, sizeof(text), "%s.%s", r->text + label.name, name);
		err = reading__add_text(r, text, &label.name);
		if (err)
			return err;
	}
	return add_tensor(l, obj, 0, &label, kind == TYPE_WRAPPER);
}

/* Adds the tensors inside a wrapper. */
static int open_wrapper(struct reading *r, struct census_list *l, size_t outer, uint64_t obj)
{
	static const char *const local[] = { "_local_tensor", "elem" };
	struct pyitems attrs = { 0 };
	uint64_t type, offset, value;
	enum type_kind kind;
	char key[READING_KEY];
	int err;

	err = pydict__type_of(&r->m, obj, &type);
	for (size_t i = 0; !err && i < sizeof(local) / sizeof(local[0]); i++) {
		if (slot_offset(r, type, local[i], &offset) ||
		    pymem__u64(&r->m, obj + offset, &value))
			continue;
		err = reading__kind_of(r, value, &kind);
		if (!err && type_kind__is_tensor(kind))
			err = add_inner(r, l, outer, value, "", kind);
	}
	err = err ?: pydict__attrs(&r->m, obj, type, &attrs);
	for (size_t i = 0; !err && i < attrs.n; i++) {
		err = reading__kind_of(r, attrs.v[i].value, &kind);
		if (err || !type_kind__is_tensor(kind) ||
		    reading__key(r, attrs.v[i].key, key, sizeof(key)))
			continue;
		if (!strcmp(key, local[0]) || !strcmp(key, local[1]))
			key[0] = '\0';
		err = add_inner(r, l, outer, attrs.v[i].value, key, kind);
	}
	pyitems__fini(&attrs);
	return reading__is_local(err) ? 0 : err;
}

/* Adds the tensors inside the wrappers among [from, to). */
static int open_wrappers(struct reading *r, struct census_list *l, size_t from, size_t to)
{
	int err = 0;

	for (size_t i = from; !err && i < to; i++) {
		uint64_t obj = l->v[i].obj ?: l->v[i].pyobj;
		enum type_kind kind;

		if (!l->wrapper[i] || !obj || l->v[i].state == PYTENSOR_BAD)
			continue;
		err = reading__kind_of(r, obj, &kind);
		if (!err && kind == TYPE_WRAPPER)
			err = reading__check_time(r) ?: open_wrapper(r, l, i, obj);
	}
	return err;
}

/*
 * Gradients are freed at each step and their memory is reused. So a gradient may belong to another
 * tensor by the time it is read. It is kept if its tensor still has it, with the same memory, when
 * read again.
 */
static int confirm_grads(struct reading *r, struct census_list *l)
{
	bool *gone = calloc(l->n + 1, sizeof(*gone));
	struct pytensor *owners, *grads;
	size_t n = 0, n_read = 0;
	int err = -ENOMEM;

	for (size_t i = 0; i < l->n; i++)
		n += l->labels[i].grad;
	owners = calloc(2 * n + 1, sizeof(*owners));
	if (!gone || !owners)
		goto out;
	grads = owners + n;
	for (size_t i = 0; i < l->n; i++) {
		const struct pytensor *owner;

		if (!l->labels[i].grad)
			continue;
		owner = &l->v[l->labels[i].parent_no - 1];
		owners[n_read] = (struct pytensor){ .obj = owner->obj,
						    .impl = owner->obj ? 0 : owner->impl };
		grads[n_read++] = (struct pytensor){ .impl = l->v[i].impl };
	}
	err = pytensors__read(r->c->tensors, owners, n) ?: pytensors__read(r->c->tensors, grads, n);
	if (err)
		goto out;
	n_read = 0;
	for (size_t i = 0; i < l->n; i++) {
		const struct label *label = &l->labels[i];

		gone[i] = label->parent_no && gone[label->parent_no - 1];
		if (label->grad) {
			gone[i] |= owners[n_read].state == PYTENSOR_BAD ||
				   owners[n_read].state == PYTENSOR_TORN ||
				   owners[n_read].grad != l->v[i].impl ||
				   grads[n_read].state != l->v[i].state ||
				   grads[n_read].storage != l->v[i].storage ||
				   grads[n_read].addr != l->v[i].addr;
			n_read++;
		}
		if (gone[i])
			l->labels[i] = (struct label){ .kind = CENSUS_OTHER };
	}
out:
	free(owners);
	free(gone);
	return err;
}

/* Reads the tensors of the list, then adds and reads their gradients and the contents of wrappers,
 * which may be wrappers again. */
static int read_listed(struct reading *r, struct census_list *l)
{
	size_t from = 0, to;
	int err = 0;

	pymem__forget(&r->m);
	for (int depth = 0; from < l->n && depth < WRAPPED_DEPTH; depth++) {
		to = l->n;
		err = reading__check_time(r)
			      ?: pytensors__read(r->c->tensors, l->v + from, to - from);
		if (err)
			return err;
		err = add_grads(r, l, from, to) ?: open_wrappers(r, l, from, to);
		if (err)
			return err;
		from = to;
	}
	/* The last level is read but not searched for wrappers. */
	if (from < l->n)
		err = pytensors__read(r->c->tensors, l->v + from, l->n - from);
	if (err)
		return err;
	return confirm_grads(r, l) ?: census__read_counts(r, l);
}

/* Searches variables and containers before the tensors are read and again after, then reads
 * autograd's graph. */
int census__read_tensors(struct reading *r, struct census_list *l)
{
	struct variables locals = { 0 };
	struct census_owners *owners = NULL;
	int err = list_tensors(r, l);

	if (err)
		return err;
	if (r->o->named_only)
		return read_listed(r, l) ?: census__front_names(r, l);
	err = find_variables(r, &locals) ?: census__find_owners(r, &owners);
	if (err)
		goto out;
	err = read_listed(r, l);
	if (!err && (locals.n || locals.nglobals))
		err = name_variables(r, l, &locals);
	if (err)
		goto out;
	err = census__name_owners(r, l, owners) ?: census__front_names(r, l);
	if (err)
		goto out;
	err = read_saved(r, l);
out:
	census_owners__free(owners);
	free(locals.v);
	free(locals.globals);
	return err;
}
