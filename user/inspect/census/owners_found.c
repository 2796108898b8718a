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

bool census_owners__over_limit(struct census_owners *l)
{
	if (l->items >= ITEMS_MAX || l->text_len >= TEXT_MAX)
		l->cut = true;
	else if (l->limit_checks++ % CLOCKS_EVERY == 0)
		l->cut |= clock__monotonic() > l->deadline ||
			  clock__read(CLOCK_THREAD_CPUTIME_ID) > l->cpu_end;
	return l->cut;
}

/* ---- paths ---- */

int census_owners__add_text(struct census_owners *l, const char *s, uint32_t *ret)
{
	size_t len = strlen(s);
	int err = array__grow(&l->text, &l->text_cap, l->text_len + len + 1, 1);

	if (err)
		return err;
	memcpy(l->text + l->text_len, s, len + 1);
	*ret = l->text_len;
	l->text_len += len + 1;
	return 0;
}

/* Sets *ret to the path of a child, which this makes on first use. 0 or -ENOMEM. */
static int make_path(struct census_owners *l, struct child *c, uint32_t *ret)
{
	char path[PATH_MAX_LEN + 128];
	int err;

	if (!c->path) {
		snprintf(path, sizeof(path), "%.*s%s", PATH_MAX_LEN, l->text + c->holder->path,
			 c->word);
		err = census_owners__add_text(l, path, &c->path);
		if (err)
			return err;
	}
	*ret = c->path;
	return 0;
}

ARRAY_COMPARE(by_obj, struct owned, obj)

struct owned *census_owners__find(const struct census_owners *l, uint64_t obj)
{
	struct owned key = { .obj = obj };

	return l->nowned ? bsearch(&key, l->owned, l->nowned, sizeof(key), by_obj) : NULL;
}

/* The first search: records a tensor or model with its place. */
static int add_owned(struct census_owners *l, struct child *c, uint64_t obj)
{
	uint32_t path;
	int err = make_path(l, c, &path)
			  ?: array__grow(&l->owned, &l->capowned, l->nowned + 1, sizeof(*l->owned));

	if (!err)
		l->owned[l->nowned++] = (struct owned){
			obj, path,
			c->holder->root | (c->holder->is_state || c->is_state ? OWNED_STATE : 0)
		};
	return err;
}

/* Records the graph of a tensor that only the second search found. The graph's node is read at
 * once, because the tensor may be gone soon. */
static int add_fresh(struct census_owners *l, struct child *c, uint64_t obj)
{
	struct pytensor t = { .obj = obj };
	uint32_t path;
	int err = l->nfresh < FRESH_MAX ? pytensors__read(l->r->c->tensors, &t, 1) : 0;

	if (err || t.state != PYTENSOR_OK || !t.grad_fn)
		return err;
	err = make_path(l, c, &path)
		      ?: array__grow(&l->fresh, &l->capfresh, l->nfresh + 1, sizeof(*l->fresh));
	if (!err)
		l->fresh[l->nfresh++] = (struct owned){ t.grad_fn, path, c->holder->root };
	return err;
}

/* The two searches found a tensor at different paths. If one path begins at a function's variable
 * and the other at a global, the function ran during one search only, and the global's path counts.
 */
static int take_global(struct census_owners *before, struct owned *was, const char *path,
		       const char *suffix)
{
	bool was_local = text__starts(before->text + was->path, "local ");
	size_t len = strlen(path) + 1;
	int err = 0;

	if (was_local == text__starts(path, "local ") || (was_local && *suffix))
		return 0;
	if (was_local && before->text_len >= len &&
	    !memcmp(before->text + before->text_len - len, path, len))
		was->path = before->text_len - len; /* the text was just added for another tensor */
	else if (was_local)
		err = census_owners__add_text(before, path, &was->path);
	if (was_local)
		was->root = before->globals | (was->root & ~ROOT_MASK);
	was->root |= OWNED_SAME;
	return err;
}

/* The second search: notes in the first one's list whether the tensor is where it was. */
static int compare_found(struct census_owners *l, struct child *c, uint64_t obj)
{
	struct owned *was = census_owners__find(l->before, obj);
	const char *suffix = l->roots[c->holder->root].suffix;
	uint32_t path;
	int err;

	if (!was) /* a new tensor, which may have replaced another one */
		return add_fresh(l, c, obj);
	if (was->root & OWNED_AGAIN)
		return 0;
	was->root |= OWNED_AGAIN;
	err = make_path(l, c, &path);
	if (err)
		return err;
	if (strcmp(l->before->text + was->path, l->text + path) ||
	    strcmp(l->before->roots[was->root & ROOT_MASK].suffix, suffix))
		return take_global(l->before, was, l->text + path, suffix);
	was->root |= OWNED_SAME;
	return 0;
}

static int add_tensor(struct census_owners *l, struct child *c, uint64_t obj)
{
	return l->before ? compare_found(l, c, obj) : add_owned(l, c, obj);
}

/* Finds the memory of an object: its own, or the memory that it points to. 0, or -errno if it has
 * none. Layouts: the words after the head, from w[2] on. */
static int find_memory(struct census_owners *l, uint64_t obj, enum shape shape,
		       struct owned_memory *ret)
{
	uint64_t w[8], dims, strides;
	int err = shape == SHAPE_STR ? 0 : memcache__read(l->r->c->cache, obj, w, sizeof(w));

	if (err)
		return err;
	switch (shape) {
	case SHAPE_STR:
		ret->addr = obj;
		return pystr__size(&l->r->m, obj, &ret->size);
	case SHAPE_BYTES: /* ob_size, and a hash before the bytes */
		ret->addr = obj;
		ret->size = w[2] + BYTES_OVERHEAD;
		return 0;
	case SHAPE_BYTEARRAY: /* ob_size, ob_alloc, ob_bytes */
		ret->addr = w[4];
		ret->size = w[3];
		return 0;
	case SHAPE_MMAP: /* data, size */
		ret->addr = w[2];
		ret->size = w[3];
		return 0;
	case SHAPE_ARRAY: /* data, nd, dimensions, strides, base; in C order */
		ret->addr = w[2];
		/* an array with a base does not own its memory */
		if (w[6] || !(uint32_t)w[3] || pymem__u64(&l->r->m, w[4], &dims) ||
		    pymem__u64(&l->r->m, w[5], &strides))
			return -ENOENT;
		return __builtin_mul_overflow(dims, strides, &ret->size) ? -EBADMSG : 0;
	default:
		return -ENOENT;
	}
}

/* Records the memory of an object. */
static int add_memory(struct census_owners *l, struct child *c, uint64_t obj, enum shape shape)
{
	struct owned_memory m = { .container = c->holder->obj, .root = c->holder->root };
	int err = 0;

	if (l->nmemory >= MEMORY_MAX || find_memory(l, obj, shape, &m) || m.size > MEMORY_SIZE_MAX)
		return 0;
	err = map64__set(l->visited, obj, 1) ?: make_path(l, c, &m.path);
	if (err)
		return err;
	err = array__grow(&l->memory, &l->capmemory, l->nmemory + 1, sizeof(m));
	if (!err)
		l->memory[l->nmemory++] = m;
	return err;
}

/* Handles an object found in a container: records a tensor or memory, or queues a container. */
int census_owners__add_found(struct census_owners *l, struct child *c, uint64_t obj)
{
	uint64_t type, unused;
	enum shape shape;
	uint32_t path;
	int err;

	l->items++;
	err = census_owners__shape_of(l, obj, &type, &shape);
	if (!err && shape == SHAPE_TENSOR) {
		err = add_tensor(l, c, obj);
		if (err || c->holder->depth) /* a variable's tensor may have attributes */
			return err;
	}
	if (err || shape == SHAPE_NONE || map64__get(l->visited, obj, &unused))
		return err;
	if (shape >= SHAPE_MEMORY)
		return add_memory(l, c, obj, shape);
	if (map64__get(l->r->model_at, obj, &unused)) /* models get paths, as tensors do */
		err = add_tensor(l, c, obj);
	if (err)
		return err;
	if (c->holder->depth >= DEPTH_MAX)
		return 0;
	if (l->nnodes >= NODES_MAX) { /* the containers in the queue are still examined */
		l->full = true;
		return 0;
	}
	err = map64__set(l->visited, obj, 1) ?: make_path(l, c, &path);
	if (err)
		return err;
	err = array__grow(&l->nodes, &l->capnodes, l->nnodes + 1, sizeof(*l->nodes));
	if (!err)
		l->nodes[l->nnodes++] = (struct node){ .obj = obj,
						       .type = type,
						       .path = path,
						       .root = c->holder->root,
						       .shape = shape,
						       .is_state = c->holder->is_state ||
								   c->is_state,
						       .depth = c->holder->depth + 1 };
	return err;
}

/* Queues a container once more if its turn ended at item `end` of n. NODES_MAX does not count
 * these: a turn has thousands of items, so they are few. */
int census_owners__add_rest(struct census_owners *l, const struct node *holder, uint64_t end,
			    uint64_t n)
{
	int err;

	if (end >= n || census_owners__over_limit(l))
		return 0;
	err = array__grow(&l->nodes, &l->capnodes, l->nnodes + 1, sizeof(*l->nodes));
	if (err)
		return err;
	l->nodes[l->nnodes] = *holder;
	l->nodes[l->nnodes++].examined = end;
	return 0;
}

/* ---- roots ---- */

int census_owners__open_root(struct census_owners *l, const char *suffix, uint32_t *ret)
{
	int err = l->nroots < ROOT_MASK
			  ? array__grow(&l->roots, &l->caproots, l->nroots + 1, sizeof(*l->roots))
			  : -E2BIG;

	if (err)
		return err;
	l->roots[l->nroots].suffix = strdup(suffix);
	if (!l->roots[l->nroots].suffix)
		return -ENOMEM;
	*ret = l->nroots++;
	return 0;
}

int census_owners__add_local(struct census_owners *l, const char *name, const char *suffix,
			     uint64_t obj)
{
	struct node none = { .depth = 0 };
	struct child c = { .holder = &none };
	int err = census_owners__open_root(l, suffix, &none.root);

	if (err)
		return err;
	snprintf(c.word, sizeof(c.word), "%s", name);
	return census_owners__add_found(l, &c, obj);
}
