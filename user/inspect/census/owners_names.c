/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Names of tensors and other memory by their containers. A name counts only if the search before
 * the tensors were read and the one after found the same path. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "inspect/census/owners.h"

int census__find_owners(struct reading *r, struct census_owners **ret)
{
	struct census_owners *l = calloc(1, sizeof(*l));
	int err = l ? census_owners__search(r, l, NULL) : -ENOMEM;

	if (err)
		census_owners__free(l);
	else
		*ret = l;
	return err;
}

void census_owners__free(struct census_owners *o)
{
	if (o)
		census_owners__fini(o);
	free(o);
}

/* Sets the name of a tensor. Tensors of one container share the name's text. names: path -> offset
 * of the name. */
static int set_name(struct reading *r, struct label *label, const struct census_owners *l,
		    const struct owned *o, struct map64 *names)
{
	char name[CENSUS_NAME_ROOM];
	uint64_t known;
	int err;

	if (map64__get(names, o->path, &known)) {
		label->name = (uint32_t)known;
		return 0;
	}
	snprintf(name, sizeof(name), "%s%s", l->text + o->path,
		 l->roots[o->root & ROOT_MASK].suffix);
	err = reading__add_text(r, name, &label->name);
	return err ?: map64__set(names, o->path, label->name);
}

/* ---- tensors that replace others ---- */

static uint64_t hash_place(const struct census_owners *l, const struct owned *o,
			   struct hash_seed seed)
{
	const char *path = l->text + o->path, *suffix = l->roots[o->root & ROOT_MASK].suffix;

	return hash__bytes(seed, path, strlen(path)) +
	       31 * hash__bytes(seed, suffix, strlen(suffix));
}

/* A variable such as "state" in "state = step(state)" has another tensor in each search. Keeps the
 * graphs of the second search's tensors at places where the first search had found a tensor. */
static int keep_replaced(struct reading *r, const struct census_owners *before,
			 const struct census_owners *after)
{
	struct hash_seed seed = hash__seed();
	struct map64 *places = map64__new();
	char name[CENSUS_NAME_ROOM];
	uint64_t known;
	int err = places ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < before->nowned; i++)
		if (!i || before->owned[i].path != before->owned[i - 1].path)
			err = map64__set(places, hash_place(before, &before->owned[i], seed), i);
	r->passing = calloc(after->nfresh + 1, sizeof(*r->passing));
	if (!err && !r->passing)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < after->nfresh; i++) {
		const struct owned *o = &after->fresh[i];

		if (!map64__get(places, hash_place(after, o, seed), &known))
			continue;
		snprintf(name, sizeof(name), "%s%s", after->text + o->path,
			 after->roots[o->root & ROOT_MASK].suffix);
		r->passing[r->npassing].grad_fn = o->obj;
		err = reading__add_text(r, name, &r->passing[r->npassing].name);
		r->npassing += !err;
	}
	map64__free(places);
	return err;
}

/* ---- other memory ---- */

/* Numbers the containers of a search by address. */
static int index_nodes(const struct census_owners *l, struct map64 *at)
{
	int err = 0;

	for (size_t i = 0; !err && i < l->nnodes; i++)
		err = map64__set(at, l->nodes[i].obj, i);
	return err;
}

/* Whether the container of an object's memory had the same path in the first search. */
static bool is_same_place(const struct census_owners *before, const struct map64 *nodes,
			  const struct census_owners *after, const struct owned_memory *m)
{
	const struct node *was;
	uint64_t i;

	if (!m->container)
		return true;
	if (!map64__get(nodes, m->container, &i))
		return false;
	was = &before->nodes[i];
	/* The path of the object begins with that of its container. */
	return !strncmp(after->text + m->path, before->text + was->path,
			strlen(before->text + was->path)) &&
	       !strcmp(before->roots[was->root].suffix, after->roots[m->root].suffix);
}

/* Sets *ret to the name of a place, which the objects of one container share. names: place ->
 * offset of the name. */
static int name_place(struct reading *r, const struct census_owners *l,
		      const struct owned_memory *m, struct map64 *names, uint32_t *ret)
{
	uint64_t key = (uint64_t)m->path << 32 | m->root, at;
	char name[CENSUS_NAME_ROOM];
	int err;

	if (map64__get(names, key, &at)) {
		*ret = (uint32_t)at;
		return 0;
	}
	snprintf(name, sizeof(name), "%s%s", l->text + m->path, l->roots[m->root].suffix);
	err = reading__add_text(r, name, ret);
	return err ?: map64__set(names, key, *ret);
}

/* Adds the memory that the second search found, if its container is where it was. */
static int take_memory(struct reading *r, const struct census_owners *before,
		       const struct census_owners *after)
{
	struct map64 *nodes = map64__new();
	struct map64 *names = map64__new();
	int err = nodes && names ? index_nodes(before, nodes) : -ENOMEM;
	size_t cap = 0;

	for (size_t i = 0; !err && i < after->nmemory; i++) {
		const struct owned_memory *m = &after->memory[i];
		struct held h = { m->addr, m->size, 0 };

		if (!is_same_place(before, nodes, after, m))
			continue;
		err = name_place(r, after, m, names, &h.name)
			      ?: array__grow(&r->held, &cap, r->nheld + 1, sizeof(h));
		if (!err)
			r->held[r->nheld++] = h;
	}
	map64__free(nodes);
	map64__free(names);
	return err;
}

/* Libraries keep gradients in attributes of their own: FSDP's unsharded_accumulated_grad,
 * Megatron's main_grad. */
static bool is_gradient(const char *path)
{
	const char *word = strrchr(path, '.');
	size_t len = word ? strlen(word) : 0;

	return len >= 5 && (!strcmp(word + len - 5, "_grad") || !strcmp(word, ".grad"));
}

/* Searches again, and names the tensors that are at the same place as in the first search. */
int census__name_owners(struct reading *r, struct census_list *list, struct census_owners *before)
{
	struct map64 *names = map64__new();
	struct census_owners after = { 0 };
	int err = names ? census_owners__search(r, &after, before) : -ENOMEM;

	for (size_t n = 0; !err && n < list->n; n++) {
		const struct pytensor *t = &list->v[n];
		const struct owned *o;

		if (!t->obj || t->state != PYTENSOR_OK || list->labels[n].kind != CENSUS_OTHER ||
		    list->labels[n].name)
			continue;
		o = census_owners__find(before, t->obj);
		if (!o || !(o->root & OWNED_SAME))
			continue;
		err = set_name(r, &list->labels[n], before, o, names);
		if (o->root & OWNED_STATE)
			list->labels[n].kind = CENSUS_OPTIMIZER;
		else if (is_gradient(before->text + o->path))
			list->labels[n].kind = CENSUS_GRADIENT;
	}
	r->holders_cut = before->cut || before->full || after.cut || after.full;
	if (err)
		goto out;
	err = census__reach_models(r, before);
	if (!err && after.nfresh)
		err = keep_replaced(r, before, &after);
	if (r->o->memory)
		err = err ?: take_memory(r, before, &after);
out:
	census_owners__fini(&after);
	map64__free(names);
	return err;
}
