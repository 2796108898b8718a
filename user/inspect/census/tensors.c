/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads the tensors in bulk, named and unnamed, with their gradients and the contents of
 * wrappers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "inspect/census/internal.h"

#define SAMPLES 200 /* tensors used to find the layout, of each kind */
#define ENOUGH 8    /* named samples that suffice */
#define WRAPPED_DEPTH 3

int census__calibrate(struct reading *r, bool all, const char **why)
{
	uint64_t objs[2 * SAMPLES];
	size_t n = 0, i;
	bool unnamed;

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
	i = pytensors__calibrate(r->c->tensors, objs, n, why);
	/* Success if the layout is known, even if gradients are not. */
	return pytensors__calibrated(r->c->tensors) ? 0 : (int)i;
}

static int gather(struct reading *r, struct census_list *l)
{
	static const struct label unnamed = { .kind = CENSUS_OTHER };
	uint64_t i;
	int err = 0;

	for (size_t k = 0; !err && k < r->nnamed; k++)
		err = census_list__add(l, r->named[k].obj, 0, &r->named[k].label,
				       r->named[k].wrapper);
	for (size_t k = 0; !err && !r->o->named_only && k < r->tensors.n; k++)
		if (!map64__get(r->by_obj, r->tensors.v[k].obj, &i))
			err = census_list__add(l, r->tensors.v[k].obj, 0, &unnamed, false);
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
		label.count_of = 0;
		label.grad = true;
		label.of = i + 1;
		if (label.name) {
			snprintf(name, sizeof(name), "grad of %s", r->text + label.name);
			err = reading__add_text(r, name, &label.name);
			label.at += strlen("grad of ");
		}
		if (!err)
			err = census_list__add(l, 0, l->v[i].grad, &label, true);
	}
	return err;
}

struct inner {
	struct census_list *l;
	size_t outer;
};

static int on_inner(struct reading *r, uint64_t obj, const char *name, void *ctx)
{
	struct inner *in = ctx;
	struct label label = in->l->labels[in->outer];
	char text[CENSUS_NAME_ROOM];
	enum type_kind kind;
	int err;

	label.grad = false;
	label.count_of = 0;
	label.of = in->outer + 1;
	/* A tensor with its own storage is not a wrapper; its attributes are other tensors. */
	if (*name && in->l->v[in->outer].state != PYTENSOR_NO_STORAGE)
		return 0;
	if (*name && label.name) {
		snprintf(text, sizeof(text), "%s.%s", r->text + label.name, name);
		err = reading__add_text(r, text, &label.name);
		if (err)
			return err;
	}
	err = reading__kind_of(r, obj, &kind);
	return err ? err : census_list__add(in->l, obj, 0, &label, kind == TYPE_WRAPPER);
}

/* Adds the tensors inside the wrappers among [from, to). */
static int add_inner(struct reading *r, struct census_list *l, size_t from, size_t to)
{
	int err = 0;

	for (size_t i = from; !err && i < to; i++) {
		struct inner in = { l, i };
		uint64_t obj = l->v[i].obj ? l->v[i].obj : l->v[i].pyobj;
		enum type_kind kind;

		if (!l->wrapper[i] || !obj || l->v[i].state == PYTENSOR_BAD)
			continue;
		err = reading__kind_of(r, obj, &kind);
		if (!err && kind == TYPE_WRAPPER)
			err = reading__check_time(r) ?: census__inner(r, obj, on_inner, &in);
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
	size_t n = 0, k = 0;
	int err;

	for (size_t i = 0; i < l->n; i++)
		n += l->labels[i].grad;
	owners = calloc(2 * n + 1, sizeof(*owners));
	grads = owners ? owners + n : NULL;
	err = gone && owners ? 0 : -ENOMEM;
	for (size_t i = 0; !err && i < l->n; i++) {
		const struct pytensor *owner;

		if (!l->labels[i].grad)
			continue;
		owner = &l->v[l->labels[i].of - 1];
		owners[k] = (struct pytensor){ .obj = owner->obj,
					       .impl = owner->obj ? 0 : owner->impl };
		grads[k++] = (struct pytensor){ .impl = l->v[i].impl };
	}
	if (!err)
		err = pytensors__read(r->c->tensors, owners, n);
	if (!err)
		err = pytensors__read(r->c->tensors, grads, n);
	k = 0;
	for (size_t i = 0; !err && i < l->n; i++) {
		const struct label *label = &l->labels[i];

		gone[i] = label->of && gone[label->of - 1];
		if (label->grad) {
			gone[i] |= owners[k].state == PYTENSOR_BAD ||
				   owners[k].state == PYTENSOR_TORN ||
				   owners[k].grad != l->v[i].impl ||
				   grads[k].state != l->v[i].state ||
				   grads[k].storage != l->v[i].storage ||
				   grads[k].addr != l->v[i].addr;
			k++;
		}
		if (gone[i])
			l->labels[i] = (struct label){ .kind = CENSUS_OTHER };
	}
	free(owners);
	free(gone);
	return err;
}

static int read_listed(struct reading *r, struct census_list *l)
{
	size_t from = 0, to;
	int err = 0;

	pymem__forget(&r->m);
	for (int depth = 0; !err && from < l->n && depth < WRAPPED_DEPTH; depth++) {
		to = l->n;
		err = reading__check_time(r);
		if (!err)
			err = pytensors__read(r->c->tensors, l->v + from, to - from);
		if (!err)
			err = add_grads(r, l, from, to);
		if (!err)
			err = add_inner(r, l, from, to);
		from = to;
	}
	/* The last level is read but not searched for wrappers. */
	if (!err && from < l->n)
		err = pytensors__read(r->c->tensors, l->v + from, l->n - from);
	return err ?: confirm_grads(r, l) ?: census__read_counts(r, l);
}

int census__read_tensors(struct reading *r, struct census_list *l)
{
	struct census_locals locals = { 0 };
	struct census_owners *owners = NULL;
	int err;

	err = gather(r, l);
	if (r->o->named_only)
		return err ?: read_listed(r, l) ?: census__front_names(r, l);
	if (!err)
		err = census__find_locals(r, &locals);
	if (!err)
		err = census__find_owners(r, &owners);
	if (!err)
		err = read_listed(r, l);
	if (!err && (locals.n || locals.nglobals))
		err = census__name_locals(r, l, &locals);
	if (!err)
		err = census__name_owners(r, l, owners) ?: census__front_names(r, l);
	if (!err)
		err = census__add_saved(r, l);
	census_owners__free(owners);
	census_locals__free(&locals);
	return err;
}
