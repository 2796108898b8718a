/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Combines tensors that share a storage and selects the storage's name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "base/numbers.h"
#include "inspect/census/internal.h"
#include "inspect/proc.h"

/* A tensor that is to be put into a storage. It lies in the memory of the list, over tensors that
 * have become candidates, and is later overwritten by storages. */
struct cand {
	uint64_t addr, size;
	uint32_t ix; /* index of the tensor in the list */
	uint32_t label, shape;
	uint32_t ndim : 8;
	uint32_t dtype : 6;
	uint32_t device_type : 5;
	uint32_t device_index : 6;
	uint32_t kind : 3;
	uint32_t leaf : 1;
	uint32_t context : 1;
};

_Static_assert(sizeof(struct cand) <= sizeof(struct listed), "candidates lie in the list");
_Static_assert(sizeof(struct census_tensor) <= sizeof(struct cand), "storages lie there, too");
_Static_assert(CENSUS_KINDS <= 8, "a kind has 3 bits");

/* Order by device and address. Among tensors at one address, the largest comes first, then the best
 * kind. */
static int by_place(const void *a, const void *b)
{
	const struct cand *x = a, *y = b;

	if (x->device_type != y->device_type)
		return x->device_type < y->device_type ? -1 : 1;
	if (x->device_index != y->device_index)
		return x->device_index < y->device_index ? -1 : 1;
	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->ix < y->ix ? -1 : x->ix > y->ix;
}

/* True if label a, rather than b, names the tensor that both belong to. */
static bool is_better(const struct label *a, const struct label *b)
{
	return a->kind != b->kind ? a->kind < b->kind : a->name && !b->name;
}

/* Lets a tensor's label and properties stand for a candidate. */
static void describe_cand(struct cand *to, const struct listed *tensor, const struct label *label,
			  uint32_t ix)
{
	to->ix = ix;
	to->kind = label->kind;
	to->label = tensor->label;
	to->shape = tensor->shape;
	to->ndim = tensor->ndim;
	to->dtype = tensor->dtype;
	to->context = tensor->context;
}

/* A parameter, for census__param(). */
struct param {
	uint64_t impl, storage;
	uint32_t ix;	/* index of the tensor in the list */
	uint32_t owner; /* index of the storage that it is in; NO_OWNER: none */
};

#define NO_OWNER UINT32_MAX

struct params {
	struct param *v; /* by ix */
	size_t n, cap;
};

static int add_param(struct params *params, const struct listed *tensor, uint64_t storage,
		     uint32_t ix)
{
	int err = array__grow(&params->v, &params->cap, params->n + 1, sizeof(*params->v));

	if (!err)
		params->v[params->n++] = (struct param){
			.impl = tensor->impl, .storage = storage, .ix = ix, .owner = NO_OWNER
		};
	return err;
}

/* The state of merging: `memory` has the list's tensors, then candidates, then storages. */
struct merge {
	struct reading *reading;
	const struct label *labels;
	const uint64_t *storages; /* as in census_list */
	char *memory;
	size_t n; /* number of tensors, then of candidates, then of storages */
	struct params params;
};

/* The three types overlap in memory, so they are copied. */
static void load_cand(const struct merge *merge, size_t i, struct cand *ret)
{
	memcpy(ret, merge->memory + i * sizeof(*ret), sizeof(*ret));
}

static void store_cand(struct merge *merge, size_t i, const struct cand *cand)
{
	memcpy(merge->memory + i * sizeof(*cand), cand, sizeof(*cand));
}

/* Adds a tensor to a candidate that has the same TensorImpl, which several Python objects can
 * have. */
static void join_cand(struct merge *merge, size_t at, const struct listed *tensor, uint32_t ix)
{
	const struct label *label = &merge->labels[tensor->label];
	struct cand cand;

	load_cand(merge, at, &cand);
	if (is_better(label, &merge->labels[cand.label]))
		describe_cand(&cand, tensor, label, ix);
	cand.leaf |= label->leaf;
	store_cand(merge, at, &cand);
}

/* Makes a candidate for each TensorImpl, with its best label. state: counts the tensors that could
 * not be read. 0 or -ENOMEM. */
static int find_candidates(struct merge *merge, struct census_state *state)
{
	struct numbers impls = { 0 }; /* TensorImpl -> number of its candidate */
	uint32_t at;
	int err = 0;

	for (size_t i = 0; err >= 0 && i < merge->n; i++) {
		const struct label *label;
		struct listed tensor;
		struct cand cand;
		bool ended;

		memcpy(&tensor, merge->memory + i * sizeof(tensor), sizeof(tensor));
		label = &merge->labels[tensor.label];
		/* Without a TensorImpl, the Python object has ended since it was found. */
		ended = tensor.state == PYTENSOR_BAD && !tensor.impl;
		state->torn += tensor.state == PYTENSOR_TORN;
		state->ended += ended;
		state->unreadable += tensor.state == PYTENSOR_BAD && !ended;
		if (tensor.state != PYTENSOR_OK)
			continue;
		if (label->kind == CENSUS_PARAMETER &&
		    add_param(&merge->params, &tensor, merge->storages[tensor.label], i)) {
			err = -ENOMEM;
			break;
		}
		err = numbers__add(&impls, tensor.impl, &at);
		if (!err)
			join_cand(merge, at, &tensor, i);
		if (err <= 0)
			continue;
		cand = (struct cand){ .addr = tensor.addr,
				      .size = tensor.size,
				      .leaf = label->leaf,
				      .device_type = tensor.device_type,
				      .device_index = tensor.device_index };
		describe_cand(&cand, &tensor, label, i);
		store_cand(merge, at, &cand);
	}
	merge->n = impls.n;
	numbers__fini(&impls);
	return err < 0 ? err : 0;
}

/* The tensor that names a storage, and the number of others with different names. */
struct best {
	uint32_t label, shape, more;
	/* If there are others: number of components at the start of the module's name that all of
	 * them have; no_root: they belong to several models. */
	uint32_t common;
	uint8_t ndim, dtype;
	bool no_root;
	bool leaf; /* one of the tensors is a leaf of autograd's graph */
};

static struct best best_of(const struct cand *cand)
{
	return (struct best){
		.label = cand->label, .shape = cand->shape, .ndim = cand->ndim, .dtype = cand->dtype
	};
}

/* Number of components at the start that both names have, at most `most`. The root's name "" has
 * none. */
static uint32_t common_part(const char *a, const char *b, uint32_t most)
{
	uint32_t n = 0;

	while (n < most && *a && *b) {
		size_t len = strcspn(a, ".");

		if (strcspn(b, ".") != len || memcmp(a, b, len) != 0)
			break;
		n++;
		a += len + (a[len] == '.');
		b += len + (b[len] == '.');
	}
	return n;
}

/* True if a candidate's memory lies in a storage. The sums cannot overflow. */
static bool is_inside(const struct census_tensor *storage, const struct cand *candidate)
{
	return storage->device_type == candidate->device_type &&
	       storage->device_index == candidate->device_index &&
	       candidate->addr >= storage->addr &&
	       candidate->addr - storage->addr <= storage->size &&
	       candidate->size <= storage->size - (candidate->addr - storage->addr);
}

/* Compares another tensor of the storage: the better kind or a non-empty name wins. Among equals
 * the first stays and the others are counted. */
static void compare_names(const struct merge *merge, const struct cand *cand,
			  struct census_tensor *tensor, struct best *best)
{
	const char *text = merge->reading->text;
	const struct label *was = &merge->labels[best->label], *other = &merge->labels[cand->label];
	bool leaf = best->leaf;

	if (cand->kind < tensor->kind ||
	    (cand->kind == tensor->kind && !text[was->name] && text[other->name])) {
		*best = best_of(cand);
		best->leaf = leaf;
		tensor->kind = cand->kind;
	} else if (cand->kind == tensor->kind && text[other->name] &&
		   strcmp(text + was->name, text + other->name)) {
		best->common = common_part(text + was->module, text + other->module,
					   best->more ? best->common : UINT32_MAX);
		best->no_root |= strcmp(text + was->root, text + other->root) != 0;
		best->more++;
	}
}

/* Name of a storage. With several parameters in it: "NAME and N more". */
static int name_several(struct reading *reading, const struct label *label, uint32_t more,
			uint32_t *name)
{
	char text[CENSUS_NAME_ROOM];

	if (more) {
		snprintf(text, sizeof(text), "%s and %u more", reading->text + label->name, more);
		return reading__add_text(reading, text, name);
	}
	*name = label->name;
	return 0;
}

/* A census_about with offsets of its texts and the number of its shape. It has no padding, because
 * all its bytes are hashed and compared. */
struct about_key {
	uint32_t name, module, cls, root, shape;
	uint16_t ndim, dtype;
};

/* Sets the module of a flat buffer with several parameters to the innermost one that has all of
 * them. */
static int common_module(struct reading *reading, const struct best *best, struct about_key *k)
{
	char text[CENSUS_NAME_ROOM];
	size_t len = 0;

	if (!best->more)
		return 0;
	if (best->no_root) {
		k->module = k->cls = k->root = 0;
		return 0;
	}
	snprintf(text, sizeof(text), "%s", reading->text + k->module);
	for (uint32_t n = best->common; n; n--) /* len: end of the common components */
		len += strcspn(text + len, ".") + (n > 1);
	if (!text[len])
		return 0;
	text[len] = '\0';
	k->cls = len ? 0 : k->root;
	return reading__add_text(reading, text, &k->module);
}

struct abouts {
	struct about_key *v;
	size_t n, cap;
	struct map64 *at; /* hash -> index */
	struct hash_seed seed;
};

/* Finds the index of a key, or adds it. 0 or -ENOMEM. */
static int abouts__index(struct abouts *abouts, const struct about_key *k, uint32_t *ret)
{
	uint64_t hash = hash__bytes(abouts->seed, k, sizeof(*k)), at;
	int err;

	if (map64__get(abouts->at, hash, &at) && !memcmp(&abouts->v[at], k, sizeof(*k))) {
		*ret = (uint32_t)at;
		return 0;
	}
	err = array__grow(&abouts->v, &abouts->cap, abouts->n + 1, sizeof(*k))
		      ?: map64__set(abouts->at, hash, abouts->n);
	if (err)
		return err;
	abouts->v[abouts->n] = *k;
	*ret = (uint32_t)abouts->n++;
	return 0;
}

/* Makes the result of the keys. No text may be added afterwards, because texts would move. */
static int make_abouts(const struct reading *reading, const struct abouts *abouts,
		       struct census_state *state)
{
	state->about = calloc(abouts->n + 1, sizeof(*state->about));
	if (!state->about)
		return -ENOMEM;
	state->nabout = abouts->n;
	for (size_t i = 0; i < abouts->n; i++) {
		const struct about_key *key = &abouts->v[i];
		struct census_about *to = &state->about[i];

		*to = (struct census_about){ .name = reading->text + key->name,
					     .module = reading->text + key->module,
					     .cls = reading->text + key->cls,
					     .root = reading->text + key->root,
					     .ndim = (uint8_t)key->ndim,
					     .dtype = (uint8_t)key->dtype };
		memcpy(to->shape, pytensors__shape(reading->census->tensors, key->shape),
		       sizeof(to->shape));
	}
	return 0;
}

static bool is_same_about(const struct census_about *a, const struct census_about *b)
{
	return !strcmp(a->name, b->name) && !strcmp(a->module, b->module) &&
	       !strcmp(a->cls, b->cls) && !strcmp(a->root, b->root) && a->ndim == b->ndim &&
	       a->dtype == b->dtype && !memcmp(a->shape, b->shape, sizeof(a->shape));
}

/* Sets same[i] to the first entry that is equal to entry i: one text may stand at several offsets,
 * because a large container is examined in several turns. Returns 0 or -ENOMEM. */
static int find_equal_abouts(const struct census_state *state, uint32_t *same)
{
	struct hash_seed seed = hash__seed();
	struct map64 *firsts = map64__new();
	uint64_t first;
	int err = firsts ? 0 : -ENOMEM;

	for (size_t i = 0; i < state->nabout && !err; i++) {
		const struct census_about *about = &state->about[i];
		uint64_t hash = hash__bytes(seed, about->name, strlen(about->name)) ^
				hash__bytes(seed, about->shape, sizeof(about->shape));

		same[i] = (uint32_t)i;
		if (!map64__get(firsts, hash, &first))
			err = map64__set(firsts, hash, i);
		else if (is_same_about(&state->about[first], about))
			same[i] = (uint32_t)first;
	}
	map64__free(firsts);
	return err;
}

/* Describes a storage that has all its tensors, and adds its bytes to its model. *about: index of
 * its census_about. 0 or -ENOMEM. */
static int describe_storage(struct merge *merge, struct abouts *abouts, const struct best *best,
			    struct census_tensor *storage, uint32_t *about)
{
	struct reading *reading = merge->reading;
	const struct label *label = &merge->labels[best->label];
	struct about_key key = { .module = label->module,
				 .cls = label->cls,
				 .root = label->root,
				 .shape = best->shape,
				 .ndim = best->ndim,
				 .dtype = best->dtype };
	int err = name_several(reading, label, best->more, &key.name)
			  ?: common_module(reading, best, &key);

	if (label->model_no &&
	    (storage->kind == CENSUS_PARAMETER || storage->kind == CENSUS_BUFFER))
		reading->models[label->model_no - 1].bytes += storage->size;
	/* A view of a graph's leaf is made by the graph, but its memory is not. */
	if (storage->kind == CENSUS_ACTIVATION && best->leaf)
		storage->kind = CENSUS_OTHER;
	return err ?: abouts__index(abouts, &key, about);
}

static struct census_tensor storage_of(const struct cand *cand)
{
	return (struct census_tensor){ .addr = cand->addr,
				       .size = cand->size,
				       .device_type = cand->device_type,
				       .device_index = cand->device_index,
				       .kind = cand->kind,
				       .allocated = !cand->context };
}

ARRAY_COMPARE(by_ix, struct param, ix)

/* Notes in which storage a parameter is. */
static void set_owner(struct params *params, const struct cand *cand, size_t owner)
{
	struct param key = { .ix = cand->ix }, *param = NULL;

	if (cand->kind == CENSUS_PARAMETER && params->n)
		param = bsearch(&key, params->v, params->n, sizeof(key), by_ix);
	if (param)
		param->owner = (uint32_t)owner;
}

/* Groups the sorted candidates into storages, which take their place. about: gets the index of each
 * storage's census_about. 0 or -ENOMEM. */
static int group_storages(struct merge *merge, struct abouts *abouts, uint32_t *about)
{
	struct census_tensor storage = { 0 };
	struct best best = { 0 };
	size_t n = 0; /* storages, of which the last one is still in `storage` */
	int err = 0;

	for (size_t i = 0; !err && i < merge->n; i++) {
		struct cand cand;

		load_cand(merge, i, &cand);
		if (n && is_inside(&storage, &cand)) {
			compare_names(merge, &cand, &storage, &best);
		} else {
			if (n) {
				err = describe_storage(merge, abouts, &best, &storage,
						       &about[n - 1]);
				memcpy(merge->memory + (n - 1) * sizeof(storage), &storage,
				       sizeof(storage));
			}
			storage = storage_of(&cand);
			best = best_of(&cand);
			n++;
		}
		storage.views++;
		best.leaf |= cand.leaf;
		set_owner(&merge->params, &cand, n - 1);
	}
	if (!err && n) {
		err = describe_storage(merge, abouts, &best, &storage, &about[n - 1]);
		memcpy(merge->memory + (n - 1) * sizeof(storage), &storage, sizeof(storage));
	}
	merge->n = n;
	return err;
}

/* Makes the storages of the candidates, with their descriptions. 0 or -ENOMEM; they are in
 * merge->memory. */
static int make_storages(struct merge *merge, struct census_state *state)
{
	struct abouts abouts = { .at = map64__new(), .seed = hash__seed() };
	uint32_t *about = malloc((merge->n + 1) * sizeof(*about)), *same = NULL;
	int err = -ENOMEM;

	if (!abouts.at || !about)
		goto out;
	err = group_storages(merge, &abouts, about) ?: make_abouts(merge->reading, &abouts, state);
	if (err)
		goto out;
	same = malloc((abouts.n + 1) * sizeof(*same));
	err = same ? find_equal_abouts(state, same) : -ENOMEM;
	for (size_t i = 0; !err && i < merge->n; i++) {
		struct census_tensor *storage = (struct census_tensor *)(void *)merge->memory + i;

		storage->about = &state->about[same[about[i]]];
	}
out:
	map64__free(abouts.at);
	free(abouts.v);
	free(about);
	free(same);
	return err;
}

/* Adds up the storages by device and kind. They are sorted by device. */
static int sum_devices(struct census_state *state)
{
	struct census_device *device = NULL;
	size_t cap = 0;
	int err;

	for (size_t i = 0; i < state->ntensors; i++) {
		const struct census_tensor *tensor = &state->tensors[i];

		if (!device || device->type != tensor->device_type ||
		    device->index != tensor->device_index) {
			err = array__grow(&state->devices, &cap, state->ndevices + 1,
					  sizeof(*state->devices));
			if (err)
				return err;
			device = &state->devices[state->ndevices++];
			*device = (struct census_device){ .type = tensor->device_type,
							  .index = tensor->device_index };
		}
		device->bytes[tensor->kind] += tensor->size;
		device->count[tensor->kind]++;
	}
	return 0;
}

/* Indexes the parameters for census__param(). */
static int index_params(const struct params *params, struct census_state *state)
{
	int err = 0;

	state->params = map64__new();
	state->param_storages = map64__new();
	if (!state->params || !state->param_storages)
		return -ENOMEM;
	for (size_t i = 0; !err && i < params->n; i++) {
		const struct param *param = &params->v[i];

		if (param->owner != NO_OWNER)
			err = map64__set(state->params, param->impl, param->owner)
				      ?: map64__set(state->param_storages, param->impl,
						    param->storage);
	}
	return err;
}

/* Copies the memory that containers hold to the result, which gets reading->text, too. */
static int take_held(const struct reading *reading, struct census_state *state)
{
	if (!reading->nheld)
		return 0;
	state->memory = calloc(reading->nheld, sizeof(*state->memory));
	if (!state->memory)
		return -ENOMEM;
	for (size_t i = 0; i < reading->nheld; i++)
		state->memory[i] = (struct census_memory){ reading->held[i].addr,
							   reading->held[i].size,
							   reading->text + reading->held[i].name };
	state->nmemory = reading->nheld;
	return 0;
}

/* Gives memory that is not used any more back. */
static void shrink(struct merge *merge, size_t size)
{
	char *memory = realloc(merge->memory, (merge->n + 1) * size);

	if (memory)
		merge->memory = memory;
}

int census__merge(struct reading *reading, struct census_list *list, struct census_state *state)
{
	struct merge merge = { .reading = reading,
			       .labels = list->labels,
			       .storages = list->storages,
			       .memory = (char *)list->v,
			       .n = list->n };
	int err;

	list->v = NULL;
	list->n = list->cap = 0;
	err = find_candidates(&merge, state);
	if (err)
		goto out;
	shrink(&merge, sizeof(struct cand));
	if (merge.n)
		qsort(merge.memory, merge.n, sizeof(struct cand), by_place);
	err = make_storages(&merge, state);
	if (err)
		goto out;
	shrink(&merge, sizeof(struct census_tensor));
	state->tensors = (struct census_tensor *)(void *)merge.memory;
	state->ntensors = merge.n;
	merge.memory = NULL;
	err = sum_devices(state);
	if (err)
		goto out;
	state->storage_at = pytensors__storage_at(reading->census->tensors);
	err = index_params(&merge.params, state) ?: take_held(reading, state);
	if (err)
		goto out;
	err = census__take_models(reading, state);
	if (err)
		goto out;
	state->text = reading->text;
	reading->text = NULL;
out:
	free(merge.memory);
	free(merge.params.v);
	return err;
}

const struct census_tensor *census__param(const struct census_state *state, const struct proc *proc,
					  uint64_t impl)
{
	uint64_t i, storage_then, storage_now;

	if (!state->params || !map64__get(state->params, impl, &i) ||
	    !map64__get(state->param_storages, impl, &storage_then))
		return NULL;
	return !proc__read_u64(proc, impl + state->storage_at, &storage_now) &&
			       storage_now == storage_then
		       ? &state->tensors[i]
		       : NULL;
}

uint64_t census_state__hash_lasting(const struct census_state *state)
{
	static const bool lasts[CENSUS_KINDS] = {
		[CENSUS_PARAMETER] = true,
		[CENSUS_BUFFER] = true,
		[CENSUS_OPTIMIZER] = true,
		[CENSUS_KV_CACHE] = true,
	};
	struct hash_seed seed = hash__seed();
	uint64_t ret = 0, n = 0;

	for (size_t i = 0; i < state->ntensors; i++) {
		const struct census_tensor *tensor = &state->tensors[i];

		if (!lasts[tensor->kind])
			continue;
		/* a sum, because the order of storages does not matter */
		ret += hash__u64(seed, tensor->addr ^ hash__u64(seed, tensor->size) ^ tensor->kind);
		n++;
	}
	return ret + n;
}

void census_state__keep_params(struct census_state *state)
{
	uint32_t *new_index = state->params ? calloc(state->ntensors + 1, sizeof(*new_index))
					    : NULL;
	struct census_about *about = state->params ? calloc(map64__count(state->params) + 1,
							    sizeof(*about))
						   : NULL;
	struct census_tensor *kept;
	uint64_t impl, i;
	size_t pos = 0, n = 0;

	if (!new_index || !about) {
		free(new_index);
		free(about);
		return;
	}
	while (map64__next(state->params, &pos, &impl, &i))
		new_index[i] = 1; /* it stays */
	/* Entries only move towards the start. */
	for (i = 0; i < state->ntensors; i++) {
		if (!new_index[i])
			continue;
		state->tensors[n] = state->tensors[i];
		about[n] = *state->tensors[i].about;
		state->tensors[n].about = &about[n];
		new_index[i] = n++;
	}
	free(state->about);
	state->about = about;
	state->nabout = n;
	for (pos = 0; map64__next(state->params, &pos, &impl, &i);)
		map64__set(state->params, impl, new_index[i]); /* needs no memory: the key exists */
	free(state->memory);
	state->memory = NULL;
	state->nmemory = 0;
	state->ntensors = n;
	kept = realloc(state->tensors, (n ? n : 1) * sizeof(*kept));
	if (kept)
		state->tensors = kept;
	free(new_index);
}

void census_state__free(struct census_state *state)
{
	map64__free(state->params);
	map64__free(state->param_storages);
	map64__free(state->module_roots);
	free(state->models);
	free(state->fronts);
	free(state->tensors);
	free(state->about);
	free(state->devices);
	free(state->memory);
	free(state->counts);
	free(state->text);
	memset(state, 0, sizeof(*state));
}
