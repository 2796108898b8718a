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

#include "census/internal.h"
#include "python/pytype.h"
#include "torch/pygraph.h"

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

static int find_graph(struct reading *r, const struct census_list *l, struct pygraph *g)
{
	struct pygraph_opts o = { .object = r->c->function ? on_object : NULL,
				  .go_on = check_time,
				  .ctx = r };
	uint64_t *roots = calloc(l->n + 1, sizeof(*roots));
	size_t n = 0;
	int err;

	if (!roots)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].grad_fn &&
		    (l->v[i].state == PYTENSOR_OK || l->v[i].state == PYTENSOR_NO_STORAGE))
			roots[n++] = l->v[i].grad_fn;
	pymem__forget(&r->m);
	err = pygraph__read(r->c->tensors, roots, n, &o, g);
	free(roots);
	return err;
}

/* Makes a text for each class of nodes that saved tensors. */
static int add_texts(struct reading *r, const struct pygraph *g, uint32_t *names)
{
	char text[sizeof("saved for ") + PYGRAPH_CLASS];
	int err = 0;

	for (size_t i = 0; !err && i < g->nclasses; i++) {
		snprintf(text, sizeof(text), "saved for %s", g->classes[i]);
		err = reading__add_text(r, text, &names[i]);
	}
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

		if (use != PYGRAPH_HELD)
			labels[i].name = names[g->saved[i].cls];
		if (use == PYGRAPH_MADE)
			labels[i].kind = CENSUS_ACTIVATION;
	}
	free(holds);
	return err;
}

static int add(struct reading *r, struct census_list *l, const struct pygraph *g)
{
	uint32_t *names = calloc(g->nclasses + 1, sizeof(*names));
	size_t from = l->n;
	int err = names ? add_texts(r, g, names) : -ENOMEM;

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
	struct pygraph g;
	int err;

	if (!pytensors__know_grad(r->c->tensors))
		return 0;
	err = find_graph(r, l, &g);
	if (!err && g.nsaved)
		err = add(r, l, &g);
	pygraph__free(&g); /* the graph is empty after an error */
	return err;
}
