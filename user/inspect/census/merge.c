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

/* Whether label a, rather than b, names the tensor that both belong to. */
static bool is_better(const struct label *a, const struct label *b)
{
	return a->kind != b->kind ? a->kind < b->kind : a->name && !b->name;
}

/* Makes a candidate for each TensorImpl, with its best label. */
static int find_candidates(const struct pytensor *v, const struct label *labels, size_t n,
			   struct cand **ret, size_t *count, struct census_state *s)
{
	struct map64 *impls = map64__new();
	struct cand *c = calloc(n + 1, sizeof(*c));
	size_t n_cand = 0;
	uint64_t at;
	int err = impls && c ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < n; i++) {
		/* Without a TensorImpl, the Python object has ended since it was found. */
		bool ended = v[i].state == PYTENSOR_BAD && !v[i].impl;

		s->torn += v[i].state == PYTENSOR_TORN;
		s->ended += ended;
		s->unreadable += v[i].state == PYTENSOR_BAD && !ended;
		if (v[i].state != PYTENSOR_OK)
			continue;
		if (map64__get(impls, v[i].impl, &at)) {
			if (is_better(&labels[i], &labels[c[at].ix])) {
				c[at].kind = labels[i].kind;
				c[at].ix = i;
			}
			c[at].leaf |= labels[i].leaf;
			continue;
		}
		err = map64__set(impls, v[i].impl, n_cand);
		c[n_cand++] = (struct cand){
			.addr = v[i].addr,
			.size = v[i].size,
			.ix = i,
			.kind = labels[i].kind,
			.leaf = labels[i].leaf,
			.device_type = v[i].device_type,
			.device_index = v[i].device_index,
		};
	}
	map64__free(impls);
	if (err) {
		free(c);
		return err;
	}
	*ret = c;
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

/* Whether a tensor's memory lies in a storage. */
static bool is_inside(const struct census_tensor *t, const struct cand *c)
{
	return t->device_type == c->device_type && t->device_index == c->device_index &&
	       c->addr >= t->addr && c->addr - t->addr <= t->size &&
	       c->size <= t->size - (c->addr - t->addr);
}

/* Compares another tensor of the storage: the better kind or a non-empty name wins. Among equals
 * the first stays and the others are counted. */
static void compare_names(const struct reading *r, const struct label *labels, uint32_t ix,
			  uint8_t kind, struct census_tensor *t, struct best *b)
{
	const char *now = r->text + labels[b->ix].name, *other = r->text + labels[ix].name;

	if (kind < t->kind || (kind == t->kind && !*now && *other)) {
		*b = (struct best){ .ix = ix, .leaf = b->leaf };
		t->kind = kind;
	} else if (kind == t->kind && *other && strcmp(now, other)) {
		b->common = common_part(r->text + labels[b->ix].module, r->text + labels[ix].module,
					b->more ? b->common : UINT32_MAX);
		b->no_root |= strcmp(r->text + labels[b->ix].root, r->text + labels[ix].root) != 0;
		b->more++;
	}
}

/* Groups sorted candidates into storages. owner: index of each tensor's storage. */
static void group_storages(const struct reading *r, const struct pytensor *v,
			   const struct label *labels, const struct cand *c, size_t n,
			   struct census_state *s, uint32_t *owner, struct best *best)
{
	for (size_t i = 0; i < n; i++) {
		struct census_tensor *t = s->ntensors ? &s->tensors[s->ntensors - 1] : NULL;

		if (!t || !is_inside(t, &c[i])) {
			best[s->ntensors] = (struct best){ .ix = c[i].ix };
			t = &s->tensors[s->ntensors++];
			t->addr = c[i].addr;
			t->size = c[i].size;
			t->device_type = c[i].device_type;
			t->device_index = c[i].device_index;
			t->kind = c[i].kind;
			t->allocated = !v[c[i].ix].context;
		} else {
			compare_names(r, labels, c[i].ix, c[i].kind, t, &best[s->ntensors - 1]);
		}
		t->views++;
		best[s->ntensors - 1].leaf |= c[i].leaf;
		owner[c[i].ix] = s->ntensors - 1;
	}
}

/* Name of a storage. With several parameters in it: "NAME and N more". */
static int name_several(struct reading *r, const struct label *l, uint32_t more, uint32_t *name)
{
	char text[CENSUS_NAME_ROOM];

	if (more) {
		snprintf(text, sizeof(text), "%s and %u more", r->text + l->name, more);
		return reading__add_text(r, text, name);
	}
	*name = l->name;
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
static int common_module(struct reading *r, const struct best *b, struct about_key *k)
{
	char text[CENSUS_NAME_ROOM];
	size_t len = 0;

	if (!b->more)
		return 0;
	if (b->no_root) {
		k->module = k->cls = k->root = 0;
		return 0;
	}
	snprintf(text, sizeof(text), "%s", r->text + k->module);
	for (uint32_t n = b->common; n; n--) /* len: end of the common components */
		len += strcspn(text + len, ".") + (n > 1);
	if (!text[len])
		return 0;
	text[len] = '\0';
	k->cls = len ? 0 : k->root;
	return reading__add_text(r, text, &k->module);
}

struct abouts {
	struct about_key *v;
	size_t n, cap;
	struct map64 *at; /* hash -> index */
	struct hash_seed seed;
};

/* Finds the index of a key, or adds it. 0 or -ENOMEM. */
static int abouts__index(struct abouts *a, const struct about_key *k, uint32_t *ret)
{
	uint64_t hash = hash__bytes(a->seed, k, sizeof(*k)), at;
	int err;

	if (map64__get(a->at, hash, &at) && !memcmp(&a->v[at], k, sizeof(*k))) {
		*ret = (uint32_t)at;
		return 0;
	}
	err = array__grow(&a->v, &a->cap, a->n + 1, sizeof(*k)) ?: map64__set(a->at, hash, a->n);
	if (err)
		return err;
	a->v[a->n] = *k;
	*ret = (uint32_t)a->n++;
	return 0;
}

/* Makes the result of the keys. No text may be added afterwards, because texts would move. */
static int make_abouts(const struct reading *r, const struct abouts *a, struct census_state *s)
{
	s->about = calloc(a->n + 1, sizeof(*s->about));
	if (!s->about)
		return -ENOMEM;
	s->nabout = a->n;
	for (size_t i = 0; i < a->n; i++) {
		const struct about_key *k = &a->v[i];
		struct census_about *to = &s->about[i];

		*to = (struct census_about){ .name = r->text + k->name,
					     .module = r->text + k->module,
					     .cls = r->text + k->cls,
					     .root = r->text + k->root,
					     .ndim = (uint8_t)k->ndim,
					     .dtype = (uint8_t)k->dtype };
		memcpy(to->shape, pytensors__shape(r->c->tensors, k->shape), sizeof(to->shape));
	}
	return 0;
}

/* Sets name, module, shape and type of all storages. */
static int describe_storages(struct reading *r, const struct pytensor *v,
			     const struct label *labels, struct census_state *s, struct best *best)
{
	struct abouts a = { .at = map64__new(), .seed = hash__seed() };
	int err = a.at ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < s->ntensors; i++) {
		const struct pytensor *from = &v[best[i].ix];
		const struct label *l = &labels[best[i].ix];
		struct about_key k = { .module = l->module,
				       .cls = l->cls,
				       .root = l->root,
				       .shape = from->shape,
				       .ndim = from->ndim,
				       .dtype = from->dtype };

		err = name_several(r, l, best[i].more, &k.name) ?: common_module(r, &best[i], &k);
		err = err ?: abouts__index(&a, &k, &best[i].about);
	}
	err = err ?: make_abouts(r, &a, s);
	for (size_t i = 0; !err && i < s->ntensors; i++) {
		struct census_tensor *t = &s->tensors[i];

		t->about = &s->about[best[i].about];
		/* A view of a graph's leaf is made by the graph, but its memory is not. */
		if (t->kind == CENSUS_ACTIVATION && best[i].leaf)
			t->kind = CENSUS_OTHER;
	}
	map64__free(a.at);
	free(a.v);
	return err;
}

/* Adds the bytes of parameters and buffers to their models. */
static void sum_models(struct reading *r, const struct label *labels, const struct census_state *s,
		       const struct best *best)
{
	for (size_t i = 0; i < s->ntensors; i++) {
		const struct label *l = &labels[best[i].ix];

		if (l->model_no &&
		    (s->tensors[i].kind == CENSUS_PARAMETER || s->tensors[i].kind == CENSUS_BUFFER))
			r->models[l->model_no - 1].bytes += s->tensors[i].size;
	}
}

static int sum_devices(struct census_state *s)
{
	struct census_device *d = NULL;
	size_t cap = 0;
	int err;

	for (size_t i = 0; i < s->ntensors; i++) {
		const struct census_tensor *t = &s->tensors[i];

		if (!d || d->type != t->device_type || d->index != t->device_index) {
			err = array__grow(&s->devices, &cap, s->ndevices + 1, sizeof(*s->devices));
			if (err)
				return err;
			d = &s->devices[s->ndevices++];
			*d = (struct census_device){ .type = t->device_type,
						     .index = t->device_index };
		}
		d->bytes[t->kind] += t->size;
		d->count[t->kind]++;
	}
	return 0;
}

/* Indexes the parameters for census__param(). */
static int index_params(const struct pytensor *v, const struct label *labels, size_t n,
			const uint32_t *owner, struct census_state *s)
{
	int err = 0;

	s->params = map64__new();
	s->param_storages = map64__new();
	if (!s->params || !s->param_storages)
		return -ENOMEM;
	for (size_t i = 0; !err && i < n; i++)
		if (labels[i].kind == CENSUS_PARAMETER && v[i].state == PYTENSOR_OK &&
		    owner[i] != UINT32_MAX)
			err = map64__set(s->params, v[i].impl, owner[i])
				      ?: map64__set(s->param_storages, v[i].impl, v[i].storage);
	return err;
}

static int take_held(const struct reading *r, struct census_state *s)
{
	if (!r->nheld)
		return 0;
	s->memory = calloc(r->nheld, sizeof(*s->memory));
	if (!s->memory)
		return -ENOMEM;
	for (size_t i = 0; i < r->nheld; i++)
		s->memory[i] = (struct census_memory){ r->held[i].addr, r->held[i].size,
						       r->text + r->held[i].name };
	s->nmemory = r->nheld;
	return 0;
}

/* owner[i]: index of the storage of tensor i. best[i]: the tensor that names storage i. */
int census__merge(struct reading *r, const struct pytensor *v, const struct label *labels, size_t n,
		  struct census_state *s)
{
	struct cand *c = NULL;
	uint32_t *owner = malloc((n + 1) * sizeof(*owner));
	struct best *best = NULL;
	size_t count = 0;
	int err = -ENOMEM;

	if (!owner)
		goto out;
	memset(owner, 0xff, n * sizeof(*owner)); /* UINT32_MAX: in no storage */
	err = find_candidates(v, labels, n, &c, &count, s);
	if (err)
		goto out;
	s->tensors = calloc(count + 1, sizeof(*s->tensors));
	best = calloc(count + 1, sizeof(*best));
	err = -ENOMEM;
	if (!s->tensors || !best)
		goto out;
	qsort(c, count, sizeof(*c), by_place);
	group_storages(r, v, labels, c, count, s, owner, best);
	sum_models(r, labels, s, best);
	err = describe_storages(r, v, labels, s, best) ?: sum_devices(s);
	if (err)
		goto out;
	s->storage_at = pytensors__storage_at(r->c->tensors);
	err = index_params(v, labels, n, owner, s) ?: take_held(r, s);
	if (err)
		goto out;
	err = census__take_models(r, s);
	if (err)
		goto out;
	s->text = r->text;
	r->text = NULL;
out:
	free(best);
	free(c);
	free(owner);
	return err;
}

const struct census_tensor *census__param(const struct census_state *s, const struct proc *p,
					  uint64_t impl)
{
	uint64_t i, storage_then, storage_now;

	if (!s->params || !map64__get(s->params, impl, &i) ||
	    !map64__get(s->param_storages, impl, &storage_then))
		return NULL;
	return !proc__read_u64(p, impl + s->storage_at, &storage_now) && storage_now == storage_then
		       ? &s->tensors[i]
		       : NULL;
}

uint64_t census_state__hash_lasting(const struct census_state *s)
{
	static const bool lasts[CENSUS_KINDS] = {
		[CENSUS_PARAMETER] = true,
		[CENSUS_BUFFER] = true,
		[CENSUS_OPTIMIZER] = true,
		[CENSUS_KV_CACHE] = true,
	};
	struct hash_seed seed = hash__seed();
	uint64_t ret = 0, n = 0;

	for (size_t i = 0; i < s->ntensors; i++) {
		const struct census_tensor *t = &s->tensors[i];

		if (!lasts[t->kind])
			continue;
		/* a sum, because the order of storages does not matter */
		ret += hash__u64(seed, t->addr ^ hash__u64(seed, t->size) ^ t->kind);
		n++;
	}
	return ret + n;
}

void census_state__keep_params(struct census_state *s)
{
	uint32_t *new_index = s->params ? calloc(s->ntensors + 1, sizeof(*new_index)) : NULL;
	struct census_about *about = s->params ? calloc(map64__count(s->params) + 1, sizeof(*about))
					       : NULL;
	struct census_tensor *kept;
	uint64_t impl, i;
	size_t pos = 0, n = 0;

	if (!new_index || !about) {
		free(new_index);
		free(about);
		return;
	}
	while (map64__next(s->params, &pos, &impl, &i))
		new_index[i] = 1; /* it stays */
	/* Entries only move towards the start. */
	for (i = 0; i < s->ntensors; i++) {
		if (!new_index[i])
			continue;
		s->tensors[n] = s->tensors[i];
		about[n] = *s->tensors[i].about;
		s->tensors[n].about = &about[n];
		new_index[i] = n++;
	}
	free(s->about);
	s->about = about;
	s->nabout = n;
	for (pos = 0; map64__next(s->params, &pos, &impl, &i);)
		map64__set(s->params, impl, new_index[i]); /* needs no memory: the key exists */
	free(s->memory);
	s->memory = NULL;
	s->nmemory = 0;
	s->ntensors = n;
	kept = realloc(s->tensors, (n ? n : 1) * sizeof(*kept));
	if (kept)
		s->tensors = kept;
	free(new_index);
}

void census_state__free(struct census_state *s)
{
	map64__free(s->params);
	map64__free(s->param_storages);
	map64__free(s->module_roots);
	free(s->models);
	free(s->fronts);
	free(s->tensors);
	free(s->about);
	free(s->devices);
	free(s->memory);
	free(s->counts);
	free(s->text);
	memset(s, 0, sizeof(*s));
}
