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

int census__find_owners(struct reading *reading, struct census_owners **ret)
{
	struct census_owners *owners = calloc(1, sizeof(*owners));
	int err = owners ? census_owners__search(reading, owners, /*before=*/NULL) : -ENOMEM;

	if (err)
		census_owners__free(owners);
	else
		*ret = owners;
	return err;
}

void census_owners__free(struct census_owners *o)
{
	if (o)
		census_owners__fini(o);
	free(o);
}

/* Libraries keep gradients in attributes of their own: FSDP's unsharded_accumulated_grad,
 * Megatron's main_grad. */
static bool is_gradient(const char *path)
{
	const char *word = strrchr(path, '.');
	size_t len = word ? strlen(word) : 0;

	return len >= strlen("_grad") &&
	       (!strcmp(word + len - strlen("_grad"), "_grad") || !strcmp(word, ".grad"));
}

/* Name and label of the tensors at a place. */
struct place_name {
	uint32_t name;	/* offset of its text; 0: not made yet */
	uint32_t label; /* of tensors that had no label of their own; 0: not made yet */
};

/* Sets name and role in a label by the place of its tensor. */
static int label_by_place(struct reading *reading, const struct census_owners *owners,
			  const struct place *place, struct place_name *known, struct label *label)
{
	char name[CENSUS_NAME_ROOM];
	int err = 0;

	if (!known->name) {
		census_owners__say(owners, place, name, sizeof(name));
		err = reading__add_text(reading, name, &known->name);
	}
	label->name = known->name;
	if (place->is_state)
		label->kind = CENSUS_OPTIMIZER;
	else if (is_gradient(owners->text + place->path))
		label->kind = CENSUS_GRADIENT;
	return err;
}

/* Names a tensor by its place. Tensors of one place that had no label share the new one. names: by
 * place. */
static int name_by_place(struct reading *reading, struct census_list *list, size_t i,
			 const struct census_owners *owners, uint32_t owned,
			 struct place_name *names)
{
	const struct place *place = census_owners__place(owners, owned);
	struct place_name *known = &names[place - owners->places];
	struct label label;
	int err;

	if (list->v[i].label)
		return label_by_place(reading, owners, place, known,
				      &list->labels[list->v[i].label]);
	if (!known->label) {
		label = list->labels[0];
		err = label_by_place(reading, owners, place, known, &label)
			      ?: census_list__add_label(list, &label, &known->label);
		if (err)
			return err;
	}
	list->v[i].label = known->label;
	return 0;
}

/* ---- tensors that replace others ---- */

/* A hash of the path and the root's text, which name a place in both searches. */
static uint64_t hash_place(const struct census_owners *owners, const struct place *place,
			   struct hash_seed seed)
{
	const char *path = owners->text + place->path, *suffix = owners->roots[place->root].suffix;

	return hash__bytes(seed, path, strlen(path)) +
	       31 * hash__bytes(seed, suffix, strlen(suffix));
}

/* A variable such as "state" in "state = step(state)" has another tensor in each search. Keeps the
 * graphs of the second search's tensors at places where the first search had found a tensor. */
static int keep_replaced(struct reading *reading, const struct census_owners *before,
			 const struct census_owners *after)
{
	struct hash_seed seed = hash__seed();
	struct map64 *places = map64__new();
	bool *used = calloc(before->nplaces + 1, sizeof(*used));
	char name[CENSUS_NAME_ROOM];
	uint64_t known;
	int err = places && used ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < before->nowned; i++)
		used[before->owned[i] & PLACE_MASK] = true;
	for (size_t i = 0; !err && i < before->nplaces; i++)
		if (used[i + 1])
			err = map64__set(places, hash_place(before, &before->places[i], seed), i);
	free(used);
	reading->passing = calloc(after->nfresh + 1, sizeof(*reading->passing));
	if (!err && !reading->passing)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < after->nfresh; i++) {
		const struct fresh *fresh = &after->fresh[i];

		if (!map64__get(places, hash_place(after, &fresh->place, seed), &known))
			continue;
		census_owners__say(after, &fresh->place, name, sizeof(name));
		reading->passing[reading->npassing].grad_fn = fresh->grad_fn;
		err = reading__add_text(reading, name, &reading->passing[reading->npassing].name);
		reading->npassing += !err;
	}
	map64__free(places);
	return err;
}

/* ---- other memory ---- */

/* Numbers the containers of a search by address. */
static int index_nodes(const struct census_owners *owners, struct map64 *at)
{
	int err = 0;

	for (size_t i = 0; !err && i < owners->nnodes; i++)
		err = map64__set(at, owners->nodes[i].obj, i);
	return err;
}

/* True if the container of an object's memory had the same path in the first search. */
static bool is_same_place(const struct census_owners *before, const struct map64 *nodes,
			  const struct census_owners *after, const struct owned_memory *memory)
{
	const struct node *was;
	uint64_t i;

	if (!memory->container)
		return true;
	if (!map64__get(nodes, memory->container, &i))
		return false;
	was = &before->nodes[i];
	/* The path of the object begins with that of its container. */
	return !strncmp(after->text + memory->path, before->text + was->path,
			strlen(before->text + was->path)) &&
	       !strcmp(before->roots[was->root].suffix, after->roots[memory->root].suffix);
}

/* Sets *ret to the name of a place, which the objects of one container share. names: place ->
 * offset of the name. */
static int name_place(struct reading *reading, const struct census_owners *owners,
		      const struct owned_memory *memory, struct map64 *names, uint32_t *ret)
{
	uint64_t key = (uint64_t)memory->path << 32 | memory->root, at;
	char name[CENSUS_NAME_ROOM];
	int err;

	if (map64__get(names, key, &at)) {
		*ret = (uint32_t)at;
		return 0;
	}
	snprintf(name, sizeof(name), "%s%s", owners->text + memory->path,
		 owners->roots[memory->root].suffix);
	err = reading__add_text(reading, name, ret);
	return err ?: map64__set(names, key, *ret);
}

/* Adds the memory that the second search found, if its container is where it was. */
static int take_memory(struct reading *reading, const struct census_owners *before,
		       const struct census_owners *after)
{
	struct map64 *nodes = map64__new();
	struct map64 *names = map64__new();
	int err = nodes && names ? index_nodes(before, nodes) : -ENOMEM;
	size_t cap = 0;

	for (size_t i = 0; !err && i < after->nmemory; i++) {
		const struct owned_memory *memory = &after->memory[i];
		struct held held = { memory->addr, memory->size, 0 };

		if (!is_same_place(before, nodes, after, memory))
			continue;
		err = name_place(reading, after, memory, names, &held.name)
			      ?: array__grow(&reading->held, &cap, reading->nheld + 1,
					     sizeof(held));
		if (!err)
			reading->held[reading->nheld++] = held;
	}
	map64__free(nodes);
	map64__free(names);
	return err;
}

/* Searches again, and names the tensors that are at the same place as in the first search. */
int census__name_owners(struct reading *reading, struct census_list *list,
			struct census_owners *before)
{
	struct place_name *names = NULL;
	struct census_owners after = { 0 };
	int err = census_owners__search(reading, &after, before);

	if (!err) {
		names = calloc(before->nplaces + 1, sizeof(*names));
		err = names ? 0 : -ENOMEM;
	}
	for (size_t i = 0; !err && i < list->n; i++) {
		const struct listed *tensor = &list->v[i];
		const struct label *label = census_list__label(list, i);

		if (tensor->obj >= before->nowned || !(before->owned[tensor->obj] & OWNED_SAME) ||
		    tensor->state != PYTENSOR_OK || label->kind != CENSUS_OTHER || label->name)
			continue;
		err = name_by_place(reading, list, i, before, before->owned[tensor->obj], names);
	}
	reading->holders_cut = before->cut || before->full || after.cut || after.full;
	if (err)
		goto out;
	err = census__reach_models(reading, before);
	if (!err && after.nfresh)
		err = keep_replaced(reading, before, &after);
	if (reading->opts->memory)
		err = err ?: take_memory(reading, before, &after);
out:
	census_owners__fini(&after);
	free(names);
	return err;
}
