/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Findings of the search for holders: tensors, other memory, and containers to examine, each with
 * its path. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/map64.h"
#include "base/text.h"
#include "inspect/census/owners.h"
#include "inspect/process/memcache.h"
#include "inspect/python/pystr.h"

#define DEPTH_MAX 10
#define PATH_MAX_LEN 200
#define NODES_MAX 300000u  /* containers examined */
#define ITEMS_MAX 2000000u /* items found in containers */
#define TEXT_MAX (32u << 20)
#define CLOCKS_EVERY 16 /* checks of the limits; the clock of CPU time is a system call */
#define FRESH_MAX 1024u
#define BYTES_OVERHEAD 33   /* bytes of a bytes object besides its data: head, ob_size, hash, NUL */
#define MEMORY_MAX 1000000u /* objects whose memory is kept */
#define MEMORY_SIZE_MAX (UINT64_C(1) << 40) /* bytes of one */

bool census_owners__over_limit(struct census_owners *owners)
{
	if (owners->items >= ITEMS_MAX || owners->text_len >= TEXT_MAX)
		owners->cut = true;
	else if (owners->limit_checks++ % CLOCKS_EVERY == 0)
		owners->cut |= clock__monotonic() > owners->deadline ||
			       clock__read(CLOCK_THREAD_CPUTIME_ID) > owners->cpu_end;
	return owners->cut;
}

/* ---- paths ---- */

int census_owners__add_text(struct census_owners *owners, const char *s, uint32_t *ret)
{
	size_t len = strlen(s);
	int err = array__grow(&owners->text, &owners->text_cap, owners->text_len + len + 1, 1);

	if (err)
		return err;
	memcpy(owners->text + owners->text_len, s, len + 1);
	*ret = owners->text_len;
	owners->text_len += len + 1;
	return 0;
}

/* Sets *ret to the path of a child, which this makes on first use. 0 or -ENOMEM. */
static int make_path(struct census_owners *owners, struct child *child, uint32_t *ret)
{
	char path[PATH_MAX_LEN + 128];
	int err;

	if (!child->path) {
		snprintf(path, sizeof(path), "%.*s%s", PATH_MAX_LEN,
			 owners->text + child->holder->path, child->word);
		err = census_owners__add_text(owners, path, &child->path);
		if (err)
			return err;
	}
	*ret = child->path;
	return 0;
}

/* Sets *ret to the number of an object. Containers often hold objects in the order in which they
 * were made, and so do the collector's lists: their numbers follow each other. */
static bool find_number(struct census_owners *owners, uint64_t obj, uint32_t *ret)
{
	const struct numbers *objects = &owners->reading->objects;

	if (owners->expected < objects->n && objects->keys[owners->expected] == obj)
		*ret = (uint32_t)owners->expected;
	else if (!numbers__get(objects, obj, ret))
		return false;
	owners->expected = *ret + 1;
	return true;
}

uint32_t *census_owners__find(struct census_owners *owners, uint64_t obj)
{
	uint32_t no;

	if (!find_number(owners, obj, &no) || no >= owners->nowned || !owners->owned[no])
		return NULL;
	return &owners->owned[no];
}

void census_owners__say(const struct census_owners *owners, const struct place *place, char *buf,
			size_t size)
{
	snprintf(buf, size, "%s%s", owners->text + place->path, owners->roots[place->root].suffix);
}

/* Sets *ret to the number of a place, from 1 on. Objects of one container share a place: they are
 * added one after another. 0 or -ENOMEM. */
static int add_place(struct census_owners *owners, const struct place *place, uint32_t *ret)
{
	const struct place *last = owners->nplaces ? &owners->places[owners->nplaces - 1] : NULL;
	int err = 0;

	if (!last || last->path != place->path || last->root != place->root ||
	    last->is_state != place->is_state) {
		err = owners->nplaces < PLACE_MASK - 1
			      ? array__grow(&owners->places, &owners->capplaces,
					    owners->nplaces + 1, sizeof(*owners->places))
			      : -ENOMEM;
		if (!err)
			owners->places[owners->nplaces++] = *place;
	}
	*ret = (uint32_t)owners->nplaces;
	return err;
}

/* The first search: records a tensor or model with its place. Paths are made in the order of the
 * search: the first path that was made counts. */
static int add_owned(struct census_owners *owners, struct child *child, uint64_t obj)
{
	struct place place = { .root = child->holder->root,
			       .is_state = child->holder->is_state || child->is_state };
	uint32_t no, was;
	int err = make_path(owners, child, &place.path);

	if (!err && !find_number(owners, obj, &no))
		err = reading__number(owners->reading, obj, TYPE_OTHER, &no);
	if (err)
		return err;
	err = array__grow_zero(&owners->owned, &owners->nowned, (size_t)no + 1,
			       sizeof(*owners->owned));
	if (err)
		return err;
	was = owners->owned[no];
	if (was && census_owners__place(owners, was)->path <= place.path)
		return 0;
	return add_place(owners, &place, &owners->owned[no]);
}

/* Records the graph of a tensor that only the second search found. The graph's node is read at
 * once, because the tensor may be gone soon. */
static int add_fresh(struct census_owners *owners, struct child *child, uint64_t obj)
{
	struct pytensor tensor = { .obj = obj };
	struct fresh fresh = { .place.root = child->holder->root };
	int err = owners->nfresh < FRESH_MAX
			  ? pytensors__read(owners->reading->census->tensors, &tensor, 1)
			  : 0;

	if (err || tensor.state != PYTENSOR_OK || !tensor.grad_fn)
		return err;
	fresh.grad_fn = tensor.grad_fn;
	err = make_path(owners, child, &fresh.place.path)
		      ?: array__grow(&owners->fresh, &owners->capfresh, owners->nfresh + 1,
				     sizeof(*owners->fresh));
	if (!err)
		owners->fresh[owners->nfresh++] = fresh;
	return err;
}

/* The two searches found a tensor at different paths: the first at was, the second at path with
 * suffix. If one path begins at a function's variable and the other at a global, the function ran
 * during one search only, and the global's path counts. */
static int take_global(struct census_owners *before, uint32_t *was, const char *path,
		       const char *suffix)
{
	struct place place = *census_owners__place(before, *was);
	bool was_local = text__starts(before->text + place.path, "local ");
	size_t len = strlen(path) + 1;
	uint32_t no;
	int err = 0;

	if (was_local == text__starts(path, "local ") || (was_local && *suffix))
		return 0;
	*was |= OWNED_SAME;
	if (!was_local)
		return 0;
	if (before->text_len >= len && !memcmp(before->text + before->text_len - len, path, len))
		place.path = before->text_len - len; /* just added for another tensor */
	else
		err = census_owners__add_text(before, path, &place.path);
	place.root = before->globals;
	err = err ?: add_place(before, &place, &no);
	if (!err)
		*was = (*was & ~PLACE_MASK) | no;
	return err;
}

/* The second search: notes in the first one's list whether the tensor is where it was. */
static int compare_found(struct census_owners *owners, struct child *child, uint64_t obj)
{
	uint32_t *was = census_owners__find(owners->before, obj), path;
	const char *suffix = owners->roots[child->holder->root].suffix;
	const struct place *place;
	int err;

	if (!was) /* a new tensor, which may have replaced another one */
		return add_fresh(owners, child, obj);
	if (*was & OWNED_AGAIN)
		return 0;
	*was |= OWNED_AGAIN;
	err = make_path(owners, child, &path);
	if (err)
		return err;
	place = census_owners__place(owners->before, *was);
	if (strcmp(owners->before->text + place->path, owners->text + path) ||
	    strcmp(owners->before->roots[place->root].suffix, suffix))
		return take_global(owners->before, was, owners->text + path, suffix);
	*was |= OWNED_SAME;
	return 0;
}

/* The first search notes where a tensor is; the second compares. */
static int add_tensor(struct census_owners *owners, struct child *child, uint64_t obj)
{
	return owners->before ? compare_found(owners, child, obj) : add_owned(owners, child, obj);
}

/* Finds the memory of an object: its own, or the memory that it points to. 0, or -errno if it has
 * none. words: the object's, of which the first two are reference count and type; each case names
 * the others that it uses. */
static int find_memory(struct census_owners *owners, uint64_t obj, enum shape shape,
		       struct owned_memory *ret)
{
	uint64_t words[8], dims, strides;
	int err = shape == SHAPE_STR ? 0
				     : memcache__read(owners->reading->census->cache, obj, words,
						      sizeof(words));

	if (err)
		return err;
	switch (shape) {
	case SHAPE_STR:
		ret->addr = obj;
		return pystr__size(&owners->reading->mem, obj, &ret->size);
	case SHAPE_BYTES: /* words[2]: ob_size, and a hash before the bytes */
		ret->addr = obj;
		ret->size = words[2] + BYTES_OVERHEAD;
		return 0;
	case SHAPE_BYTEARRAY: /* words[2]: ob_size, ob_alloc, ob_bytes */
		ret->addr = words[4];
		ret->size = words[3];
		return 0;
	case SHAPE_MMAP: /* words[2]: data, size */
		ret->addr = words[2];
		ret->size = words[3];
		return 0;
	case SHAPE_ARRAY: /* words[2]: data, nd, dimensions, strides, base; in C order */
		ret->addr = words[2];
		/* an array with a base does not own its memory */
		if (words[6] || !(uint32_t)words[3] ||
		    pymem__u64(&owners->reading->mem, words[4], &dims) ||
		    pymem__u64(&owners->reading->mem, words[5], &strides))
			return -ENOENT;
		return __builtin_mul_overflow(dims, strides, &ret->size) ? -EBADMSG : 0;
	default:
		return -ENOENT;
	}
}

/* Records the memory of an object. */
static int add_memory(struct census_owners *owners, struct child *child, uint64_t obj,
		      enum shape shape)
{
	struct owned_memory memory = { .container = child->holder->obj,
				       .root = child->holder->root };
	int err = 0;

	if (owners->nmemory >= MEMORY_MAX || find_memory(owners, obj, shape, &memory) ||
	    memory.size > MEMORY_SIZE_MAX)
		return 0;
	err = map64__set(owners->visited, obj, 1) ?: make_path(owners, child, &memory.path);
	if (err)
		return err;
	err = array__grow(&owners->memory, &owners->capmemory, owners->nmemory + 1, sizeof(memory));
	if (!err)
		owners->memory[owners->nmemory++] = memory;
	return err;
}

/* Handles an object found in a container: records a tensor or memory, or queues a container. */
int census_owners__add_found(struct census_owners *owners, struct child *child, uint64_t obj)
{
	uint64_t type, unused;
	enum shape shape;
	uint32_t path;
	int err;

	owners->items++;
	err = census_owners__shape_of(owners, obj, &type, &shape);
	if (!err && shape == SHAPE_TENSOR) {
		err = add_tensor(owners, child, obj);
		if (err || child->holder->depth) /* a variable's tensor may have attributes */
			return err;
	}
	if (err || shape == SHAPE_NONE || map64__get(owners->visited, obj, &unused))
		return err;
	if (shape >= SHAPE_MEMORY)
		return add_memory(owners, child, obj, shape);
	if (map64__get(owners->reading->model_at, obj,
		       &unused)) /* models get paths, as tensors do */
		err = add_tensor(owners, child, obj);
	if (err)
		return err;
	if (child->holder->depth >= DEPTH_MAX)
		return 0;
	if (owners->nnodes >= NODES_MAX) { /* the containers in the queue are still examined */
		owners->full = true;
		return 0;
	}
	err = map64__set(owners->visited, obj, 1) ?: make_path(owners, child, &path);
	if (err)
		return err;
	err = array__grow(&owners->nodes, &owners->capnodes, owners->nnodes + 1,
			  sizeof(*owners->nodes));
	if (!err)
		owners->nodes[owners->nnodes++] = (struct node){
			.obj = obj,
			.type = type,
			.path = path,
			.root = child->holder->root,
			.shape = shape,
			.is_state = child->holder->is_state || child->is_state,
			.depth = child->holder->depth + 1
		};
	return err;
}

/* Queues a container once more if its turn ended at item `end` of n. NODES_MAX does not count
 * these: a turn has thousands of items, so they are few. */
int census_owners__add_rest(struct census_owners *owners, const struct node *holder, uint64_t end,
			    uint64_t n)
{
	int err;

	if (end >= n || census_owners__over_limit(owners))
		return 0;
	err = array__grow(&owners->nodes, &owners->capnodes, owners->nnodes + 1,
			  sizeof(*owners->nodes));
	if (err)
		return err;
	owners->nodes[owners->nnodes] = *holder;
	owners->nodes[owners->nnodes++].examined = end;
	return 0;
}

/* ---- roots ---- */

int census_owners__open_root(struct census_owners *owners, const char *suffix, uint32_t *ret)
{
	int err = owners->nroots < UINT32_MAX
			  ? array__grow(&owners->roots, &owners->caproots, owners->nroots + 1,
					sizeof(*owners->roots))
			  : -E2BIG;

	if (err)
		return err;
	owners->roots[owners->nroots].suffix = strdup(suffix);
	if (!owners->roots[owners->nroots].suffix)
		return -ENOMEM;
	*ret = owners->nroots++;
	return 0;
}

int census_owners__add_local(struct census_owners *owners, const char *name, const char *suffix,
			     uint64_t obj)
{
	struct node none = { .depth = 0 };
	struct child child = { .holder = &none };
	int err = census_owners__open_root(owners, suffix, &none.root);

	if (err)
		return err;
	snprintf(child.word, sizeof(child.word), "%s", name);
	return census_owners__add_found(owners, &child, obj);
}
