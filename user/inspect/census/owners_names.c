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

/* Sets the name of a tensor. Tensors of one container share the name's text. names: path -> offset
 * of the name. */
static int set_name(struct reading *reading, struct label *label,
		    const struct census_owners *owners, const struct owned *owned,
		    struct map64 *names)
{
	char name[CENSUS_NAME_ROOM];
	uint64_t known;
	int err;

	if (map64__get(names, owned->path, &known)) {
		label->name = (uint32_t)known;
		return 0;
	}
	snprintf(name, sizeof(name), "%s%s", owners->text + owned->path,
		 owners->roots[owned->root & ROOT_MASK].suffix);
	err = reading__add_text(reading, name, &label->name);
	return err ?: map64__set(names, owned->path, label->name);
}

/* ---- tensors that replace others ---- */

/* A hash of the path and the root's text, which name a place in both searches. */
static uint64_t hash_place(const struct census_owners *owners, const struct owned *owned,
			   struct hash_seed seed)
{
	const char *path = owners->text + owned->path,
		   *suffix = owners->roots[owned->root & ROOT_MASK].suffix;

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
	char name[CENSUS_NAME_ROOM];
	uint64_t known;
	int err = places ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < before->nowned; i++)
		if (!i || before->owned[i].path != before->owned[i - 1].path)
			err = map64__set(places, hash_place(before, &before->owned[i], seed), i);
	reading->passing = calloc(after->nfresh + 1, sizeof(*reading->passing));
	if (!err && !reading->passing)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < after->nfresh; i++) {
		const struct owned *owned = &after->fresh[i];

		if (!map64__get(places, hash_place(after, owned, seed), &known))
			continue;
		snprintf(name, sizeof(name), "%s%s", after->text + owned->path,
			 after->roots[owned->root & ROOT_MASK].suffix);
		reading->passing[reading->npassing].grad_fn = owned->obj;
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

/* Libraries keep gradients in attributes of their own: FSDP's unsharded_accumulated_grad,
 * Megatron's main_grad. */
static bool is_gradient(const char *path)
{
	const char *word = strrchr(path, '.');
	size_t len = word ? strlen(word) : 0;

	return len >= strlen("_grad") &&
	       (!strcmp(word + len - strlen("_grad"), "_grad") || !strcmp(word, ".grad"));
}

/* Searches again, and names the tensors that are at the same place as in the first search. */
int census__name_owners(struct reading *reading, struct census_list *list,
			struct census_owners *before)
{
	struct map64 *names = map64__new();
	struct census_owners after = { 0 };
	int err = names ? census_owners__search(reading, &after, before) : -ENOMEM;

	for (size_t i = 0; !err && i < list->n; i++) {
		const struct pytensor *tensor = &list->v[i];
		const struct owned *owned;

		if (!tensor->obj || tensor->state != PYTENSOR_OK ||
		    list->labels[i].kind != CENSUS_OTHER || list->labels[i].name)
			continue;
		owned = census_owners__find(before, tensor->obj);
		if (!owned || !(owned->root & OWNED_SAME))
			continue;
		err = set_name(reading, &list->labels[i], before, owned, names);
		if (owned->root & OWNED_STATE)
			list->labels[i].kind = CENSUS_OPTIMIZER;
		else if (is_gradient(before->text + owned->path))
			list->labels[i].kind = CENSUS_GRADIENT;
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
	map64__free(names);
	return err;
}
