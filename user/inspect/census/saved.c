/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Adds tensors that autograd's graph saved for backward, from the nodes of the tensors known so
 * far. A saved tensor is an activation if a node of the graph made it: it is the node's own result,
 * or has a grad_fn. Other saved tensors, such as a batch or a mask, are named by the node that
 * saved them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "inspect/census/internal.h"
#include "inspect/pytype.h"
#include "inspect/torch/pygraph.h"

#define KEEPER_MAX 300 /* bytes of a name in another */

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
	int n, err = pydict__type_of(&r->m, obj, &type);

	n = err ? err : pytype__mro(&r->m, type, mro, PYTYPE_MRO_MAX);
	if (n == -ESRCH || n == -EPERM || n == -ENOMEM)
		return n;
	for (int i = 0; i < n; i++) {
		if (mro[i] != r->c->function)
			continue;
		err = pytype__name(&r->m, type, name, room)
			      ?: pymem__old_u64(&r->m, type + r->m.l->tp_basicsize, size);
		return err && reading__is_local(err) ? -ENOENT : err;
	}
	return -ENOENT;
}

/* Whether a tensor may keep a graph longer than a call or a step: one that a container or a global
 * variable holds. */
static bool is_lasting(const char *name)
{
	return !strncmp(name, "global ", 7) || (!strncmp(name, "local ", 6) && strchr(name, '['));
}

/* Tensors that may keep a graph: lasting ones, and gradients. They are read again, because a step
 * replaces them. */
struct keepers {
	struct pytensor *v;
	uint32_t *name;
	size_t n;
	uint64_t *grad_fn; /* of each; 0: none */
};

static void add_keeper(struct keepers *k, uint64_t obj, uint32_t name)
{
	k->v[k->n] = (struct pytensor){ .obj = obj };
	k->name[k->n++] = name;
}

static int keeps_grad(struct reading *r, uint32_t of, uint32_t *name)
{
	char text[KEEPER_MAX + 16];

	snprintf(text, sizeof(text), "grad of %.*s", KEEPER_MAX, r->text + of);
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
	for (size_t i = from; !err && i < k->n; i++)
		k->v[i] = (struct pytensor){ .impl = k->v[i].grad };
	if (!err)
		err = pytensors__read(r->c->tensors, k->v + from, k->n - from);
	for (size_t i = from; !err && i < k->n; i++) {
		if (!k->v[i].impl || k->v[i].state != PYTENSOR_OK || !k->v[i].grad_fn)
			continue;
		k->v[n] = k->v[i];
		err = keeps_grad(r, k->name[i], &k->name[n]);
		n += !err;
	}
	k->n = n;
	return err;
}

static int find_keepers(struct reading *r, const struct census_list *l, struct keepers *k)
{
	size_t max = r->npassing + 1;
	int err;

	for (size_t i = 0; i < l->n; i++)
		max += l->v[i].grad_fn || l->labels[i].kind == CENSUS_PARAMETER;
	k->v = calloc(max, sizeof(*k->v));
	k->name = calloc(max, sizeof(*k->name));
	k->grad_fn = calloc(max, sizeof(*k->grad_fn));
	if (!k->v || !k->name || !k->grad_fn)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].obj && l->v[i].state == PYTENSOR_OK && l->v[i].grad_fn &&
		    is_lasting(r->text + l->labels[i].name))
			add_keeper(k, l->v[i].obj, l->labels[i].name);
	err = pytensors__read(r->c->tensors, k->v, k->n);
	if (!err)
		err = add_gradients(r, l, k);
	for (size_t i = 0; !err && i < k->n; i++)
		k->grad_fn[i] = k->v[i].state == PYTENSOR_OK ? k->v[i].grad_fn : 0;
	for (size_t i = 0; !err && i < r->npassing; i++) {
		if (!is_lasting(r->text + r->passing[i].name))
			continue;
		k->grad_fn[k->n] = r->passing[i].grad_fn;
		k->name[k->n++] = r->passing[i].name;
	}
	return err;
}

static void free_keepers(struct keepers *k)
{
	free(k->v);
	free(k->name);
	free(k->grad_fn);
}

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

/* Makes the names of saved tensors: the class of the node, and the tensor that keeps it. */
static int add_names(struct reading *r, const struct pygraph *g, const struct keepers *k,
		     uint32_t *names)
{
	uint32_t *holder = calloc(g->nsaved + 1, sizeof(*holder));
	struct map64 *known = map64__new();
	char text[PYGRAPH_CLASS + KEEPER_MAX + 64];
	int err = holder && known ? pygraph__holders(g, k->grad_fn, k->n, holder) : -ENOMEM;

	for (size_t i = 0; !err && i < g->nsaved; i++) {
		uint32_t of = holder[i] ? k->name[holder[i] - 1] : 0;
		uint64_t key = (uint64_t)g->saved[i].cls << 32 | of, at;

		if (map64__get(known, key, &at)) {
			names[i] = (uint32_t)at;
			continue;
		}
		snprintf(text, sizeof(text), "saved for %s%s%.*s", g->classes[g->saved[i].cls],
			 of ? ", graph of " : "", KEEPER_MAX, r->text + of);
		err = reading__add_text(r, text, &names[i]);
		if (!err)
			err = map64__set(known, key, names[i]);
	}
	free(holder);
	map64__free(known);
	return err;
}

/* Labels the saved tensors after they were read. A tensor that its node has released meanwhile is
 * dropped. So is what a word of an AccumulateGrad node points to that its constructor did not set,
 * such as spare room for a second shape: only a leaf is the node's variable. */
static int label_saved(struct reading *r, const struct pygraph *g, const uint32_t *names,
		       struct pytensor *v, struct label *labels)
{
	bool *holds = calloc(3 * g->nsaved, sizeof(*holds)), *made = holds + g->nsaved,
	     *known = made + g->nsaved;
	int err;

	if (!holds)
		return -ENOMEM;
	err = pygraph__check(r->c->proc, g, holds);
	for (size_t i = 0; !err && i < g->nsaved; i++) {
		if (!holds[i] || (g->saved[i].leaf && !pytensor__is_leaf(&v[i])))
			v[i].state = PYTENSOR_NO_STORAGE;
		known[i] = v[i].state == PYTENSOR_OK;
		made[i] = known[i] && v[i].grad_fn;
	}
	if (!err && !r->c->saved_flags)
		r->c->saved_flags = pygraph__find_flags(g, made, known);
	for (size_t i = 0; !err && i < g->nsaved; i++) {
		enum pygraph_use use = pygraph__use(&g->saved[i], r->c->saved_flags, known[i],
						    made[i]);

		if (!g->saved[i].leaf) /* also if its flags are not known */
			labels[i].name = names[i];
		if (use == PYGRAPH_MADE || (use == PYGRAPH_HELD && made[i]))
			labels[i].kind = CENSUS_ACTIVATION;
	}
	free(holds);
	return err;
}

static int add(struct reading *r, struct census_list *l, const struct pygraph *g,
	       const struct keepers *k)
{
	uint32_t *names = calloc(g->nsaved + 1, sizeof(*names));
	size_t from = l->n;
	int err = names ? add_names(r, g, k, names) : -ENOMEM;

	for (size_t i = 0; !err && i < g->nsaved; i++) {
		struct label label = { .kind = CENSUS_OTHER, .leaf = g->saved[i].leaf };

		err = census_list__add(l, 0, g->saved[i].impl, &label, false);
	}
	if (!err)
		err = pytensors__read(r->c->tensors, l->v + from, g->nsaved);
	if (!err)
		err = label_saved(r, g, names, l->v + from, l->labels + from);
	free(names);
	return err;
}

int census__add_saved(struct reading *r, struct census_list *l)
{
	struct keepers k = { 0 };
	struct pygraph g = { 0 };
	int err;

	if (!pytensors__know_grad(r->c->tensors))
		return 0;
	err = find_keepers(r, l, &k);
	if (!err)
		err = find_graph(r, l, &k, &g);
	if (!err && g.nsaved)
		err = add(r, l, &g, &k);
	pygraph__free(&g); /* the graph is empty after an error */
	free_keepers(&k);
	return err;
}
