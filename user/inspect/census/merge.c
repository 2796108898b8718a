/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Combines tensors that share a storage and selects the storage's name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "inspect/census/internal.h"
#include "inspect/proc.h"

/* A tensor that is to be put into a storage. */
struct cand {
	uint64_t addr, size;
	uint32_t ix; /* index of the tensor */
	uint8_t kind, device_type, device_index;
	bool leaf;
};

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

/* Makes a candidate for each TensorImpl, with its best label. *ret and *count: the candidates,
 * which the caller frees. state: counts the tensors that could not be read. 0 or -ENOMEM. */
static int find_candidates(const struct pytensor *tensors, const struct label *labels, size_t n,
			   struct cand **ret, size_t *count, struct census_state *state)
{
	struct map64 *impls = map64__new();
	struct cand *candidates = calloc(n + 1, sizeof(*candidates));
	size_t n_cand = 0;
	uint64_t at;
	int err = impls && candidates ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < n; i++) {
		/* Without a TensorImpl, the Python object has ended since it was found. */
		bool ended = tensors[i].state == PYTENSOR_BAD && !tensors[i].impl;

		state->torn += tensors[i].state == PYTENSOR_TORN;
		state->ended += ended;
		state->unreadable += tensors[i].state == PYTENSOR_BAD && !ended;
		if (tensors[i].state != PYTENSOR_OK)
			continue;
		/* Several Python objects can have one TensorImpl. */
		if (map64__get(impls, tensors[i].impl, &at)) {
			if (is_better(&labels[i], &labels[candidates[at].ix])) {
				candidates[at].kind = labels[i].kind;
				candidates[at].ix = i;
			}
			candidates[at].leaf |= labels[i].leaf;
			continue;
		}
		err = map64__set(impls, tensors[i].impl, n_cand);
		candidates[n_cand++] = (struct cand){
			.addr = tensors[i].addr,
			.size = tensors[i].size,
			.ix = i,
			.kind = labels[i].kind,
			.leaf = labels[i].leaf,
			.device_type = tensors[i].device_type,
			.device_index = tensors[i].device_index,
		};
	}
	map64__free(impls);
	if (err) {
		free(candidates);
		return err;
	}
	*ret = candidates;
	*count = n_cand;
	return 0;
}

/* The tensor that names a storage, and the number of others with different names. */
struct best {
	uint32_t ix, more;
	uint32_t about; /* index of its census_about */
	/* If there are others: number of components at the start of the module's name that all of
	 * them have; no_root: they belong to several models. */
	uint32_t common;
	bool no_root;
	bool leaf; /* one of the tensors is a leaf of autograd's graph */
};

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
static void compare_names(const struct reading *reading, const struct label *labels, uint32_t ix,
			  uint8_t kind, struct census_tensor *tensor, struct best *best)
{
	const char *now = reading->text + labels[best->ix].name,
		   *other = reading->text + labels[ix].name;

	if (kind < tensor->kind || (kind == tensor->kind && !*now && *other)) {
		*best = (struct best){ .ix = ix, .leaf = best->leaf };
		tensor->kind = kind;
	} else if (kind == tensor->kind && *other && strcmp(now, other)) {
		best->common = common_part(reading->text + labels[best->ix].module,
					   reading->text + labels[ix].module,
					   best->more ? best->common : UINT32_MAX);
		best->no_root |= strcmp(reading->text + labels[best->ix].root,
					reading->text + labels[ix].root) != 0;
		best->more++;
	}
}

/* Groups sorted candidates into storages. owner: index of each tensor's storage. */
static void group_storages(const struct reading *reading, const struct pytensor *tensors,
			   const struct label *labels, const struct cand *candidates, size_t n,
			   struct census_state *state, uint32_t *owner, struct best *best)
{
	for (size_t i = 0; i < n; i++) {
		struct census_tensor *storage = state->ntensors
							? &state->tensors[state->ntensors - 1]
							: NULL;

		if (!storage || !is_inside(storage, &candidates[i])) {
			best[state->ntensors] = (struct best){ .ix = candidates[i].ix };
			storage = &state->tensors[state->ntensors++];
			storage->addr = candidates[i].addr;
			storage->size = candidates[i].size;
			storage->device_type = candidates[i].device_type;
			storage->device_index = candidates[i].device_index;
			storage->kind = candidates[i].kind;
			storage->allocated = !tensors[candidates[i].ix].context;
		} else {
			compare_names(reading, labels, candidates[i].ix, candidates[i].kind,
				      storage, &best[state->ntensors - 1]);
		}
		storage->views++;
		best[state->ntensors - 1].leaf |= candidates[i].leaf;
		owner[candidates[i].ix] = state->ntensors - 1;
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

/* Sets name, module, shape and type of all storages. */
static int describe_storages(struct reading *reading, const struct pytensor *tensors,
			     const struct label *labels, struct census_state *state,
			     struct best *best)
{
	struct abouts abouts = { .at = map64__new(), .seed = hash__seed() };
	uint32_t *same = NULL;
	int err = abouts.at ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < state->ntensors; i++) {
		const struct pytensor *from = &tensors[best[i].ix];
		const struct label *label = &labels[best[i].ix];
		struct about_key key = { .module = label->module,
					 .cls = label->cls,
					 .root = label->root,
					 .shape = from->shape,
					 .ndim = from->ndim,
					 .dtype = from->dtype };

		err = name_several(reading, label, best[i].more, &key.name)
			      ?: common_module(reading, &best[i], &key);
		err = err ?: abouts__index(&abouts, &key, &best[i].about);
	}
	err = err ?: make_abouts(reading, &abouts, state);
	same = malloc((abouts.n + 1) * sizeof(*same));
	if (!err)
		err = same ? find_equal_abouts(state, same) : -ENOMEM;
	for (size_t i = 0; !err && i < state->ntensors; i++) {
		struct census_tensor *tensor = &state->tensors[i];

		tensor->about = &state->about[same[best[i].about]];
		/* A view of a graph's leaf is made by the graph, but its memory is not. */
		if (tensor->kind == CENSUS_ACTIVATION && best[i].leaf)
			tensor->kind = CENSUS_OTHER;
	}
	map64__free(abouts.at);
	free(abouts.v);
	free(same);
	return err;
}

/* Adds the bytes of parameters and buffers to their models. */
static void sum_models(struct reading *reading, const struct label *labels,
		       const struct census_state *state, const struct best *best)
{
	for (size_t i = 0; i < state->ntensors; i++) {
		const struct label *label = &labels[best[i].ix];

		if (label->model_no && (state->tensors[i].kind == CENSUS_PARAMETER ||
					state->tensors[i].kind == CENSUS_BUFFER))
			reading->models[label->model_no - 1].bytes += state->tensors[i].size;
	}
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
static int index_params(const struct pytensor *tensors, const struct label *labels, size_t n,
			const uint32_t *owner, struct census_state *state)
{
	int err = 0;

	state->params = map64__new();
	state->param_storages = map64__new();
	if (!state->params || !state->param_storages)
		return -ENOMEM;
	for (size_t i = 0; !err && i < n; i++)
		if (labels[i].kind == CENSUS_PARAMETER && tensors[i].state == PYTENSOR_OK &&
		    owner[i] != UINT32_MAX)
			err = map64__set(state->params, tensors[i].impl, owner[i])
				      ?: map64__set(state->param_storages, tensors[i].impl,
						    tensors[i].storage);
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

/* owner[i]: index of the storage of tensor i. best[i]: the tensor that names storage i. */
int census__merge(struct reading *reading, const struct pytensor *tensors,
		  const struct label *labels, size_t n, struct census_state *state)
{
	struct cand *candidates = NULL;
	uint32_t *owner = malloc((n + 1) * sizeof(*owner));
	struct best *best = NULL;
	size_t n_candidates = 0;
	int err = -ENOMEM;

	if (!owner)
		goto out;
	memset(owner, 0xff, n * sizeof(*owner)); /* UINT32_MAX: in no storage */
	err = find_candidates(tensors, labels, n, &candidates, &n_candidates, state);
	if (err)
		goto out;
	state->tensors = calloc(n_candidates + 1, sizeof(*state->tensors));
	best = calloc(n_candidates + 1, sizeof(*best));
	err = -ENOMEM;
	if (!state->tensors || !best)
		goto out;
	qsort(candidates, n_candidates, sizeof(*candidates), by_place);
	group_storages(reading, tensors, labels, candidates, n_candidates, state, owner, best);
	sum_models(reading, labels, state, best);
	err = describe_storages(reading, tensors, labels, state, best) ?: sum_devices(state);
	if (err)
		goto out;
	state->storage_at = pytensors__storage_at(reading->census->tensors);
	err = index_params(tensors, labels, n, owner, state) ?: take_held(reading, state);
	if (err)
		goto out;
	err = census__take_models(reading, state);
	if (err)
		goto out;
	state->text = reading->text;
	reading->text = NULL;
out:
	free(best);
	free(candidates);
	free(owner);
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
