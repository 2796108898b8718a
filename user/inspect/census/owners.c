/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names tensors by the container that holds them: a list, dict, attribute of an object, or closure.
 * The search starts at globals of the program's modules and variables of running functions. It
 * takes the shortest path: "global history[*]",
 * "local trainer.outputs[*]['loss'] in main (train.py:31)". All items of a list share a name, and
 * so do the values of a thread-local in all threads. A path counts only if it is the same before
 * and after the tensors are read. Large containers take turns: after some thousand items one goes
 * to the end of the queue. So a list of a million samples does not use up the limits before others
 * are examined.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/map64.h"
#include "inspect/census/owners.h"
#include "inspect/process/memcache.h"
#include "inspect/python/pystr.h"

#define DEPTH_MAX 10
#define PATH_MAX_LEN 200
#define NODES_MAX 300000u  /* containers examined */
#define ITEMS_MAX 2000000u /* items found in containers */
#define TEXT_MAX (32u << 20)
/* One search takes at most this much CPU time, ns, and this part of the reading's time. On a busy
 * machine it lasts longer, up to half of the time that is left. */
#define SEARCH_MAX_NS 300000000ull
#define SEARCH_SHARE 8
#define CLOCKS_EVERY 16 /* looks at the limits; the clock of CPU time is a system call */
#define FRESH_MAX 1024u
#define MEMORY_MAX 1000000u		    /* objects whose memory is kept */
#define MEMORY_SIZE_MAX (UINT64_C(1) << 40) /* bytes of one */

bool census_owners__fatal(int err)
{
	return err && !reading__is_local(err) && err != -ENOTSUP && err != -EINVAL;
}

bool census_owners__over_limit(struct census_owners *l)
{
	if (l->items >= ITEMS_MAX || l->text_len >= TEXT_MAX)
		l->cut = true;
	else if (l->looks++ % CLOCKS_EVERY == 0)
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

static int path_of(struct census_owners *l, struct child *c, uint32_t *ret)
{
	char path[PATH_MAX_LEN + 128];
	int err;

	if (!c->path) {
		snprintf(path, sizeof(path), "%.*s%s", PATH_MAX_LEN, l->text + c->of->path,
			 c->word);
		err = census_owners__add_text(l, path, &c->path);
		if (err)
			return err;
	}
	*ret = c->path;
	return 0;
}

ARRAY_COMPARE(by_obj, struct owned, obj)

/* Paths are made in the order of the search. */
static int by_obj_and_path(const void *a, const void *b)
{
	const struct owned *x = a, *y = b;

	return x->obj != y->obj ? (x->obj < y->obj ? -1 : 1)
				: (x->path > y->path) - (x->path < y->path);
}

struct owned *census_owners__find(const struct census_owners *l, uint64_t obj)
{
	struct owned key = { .obj = obj };

	return l->nowned ? bsearch(&key, l->owned, l->nowned, sizeof(key), by_obj) : NULL;
}

static int record(struct census_owners *l, struct child *c, uint64_t obj)
{
	uint32_t path;
	int err = path_of(l, c, &path);

	if (!err)
		err = array__grow(&l->owned, &l->capowned, l->nowned + 1, sizeof(*l->owned));
	if (!err)
		l->owned[l->nowned++] = (struct owned){
			obj, path, c->of->root | (c->of->state || c->state ? OWNED_STATE : 0)
		};
	return err;
}

/* Its graph is read at once, because the tensor may be gone soon. */
static int add_new(struct census_owners *l, struct child *c, uint64_t obj)
{
	struct pytensor t = { .obj = obj };
	uint32_t path;
	int err = l->nfresh < FRESH_MAX ? pytensors__read(l->r->c->tensors, &t, 1) : 0;

	if (err || t.state != PYTENSOR_OK || !t.grad_fn)
		return err;
	err = path_of(l, c, &path);
	if (!err)
		err = array__grow(&l->fresh, &l->capfresh, l->nfresh + 1, sizeof(*l->fresh));
	if (!err)
		l->fresh[l->nfresh++] = (struct owned){ t.grad_fn, path, c->of->root };
	return err;
}

/* The second search: notes in the first one's list whether the tensor is where it was. */
static int compare_found(struct census_owners *l, struct child *c, uint64_t obj)
{
	struct owned *was = census_owners__find(l->before, obj);
	const char *suffix = l->roots[c->of->root].suffix;
	uint32_t path;
	int err;

	if (!was) /* it is new: its place may hold one tensor after the other */
		return add_new(l, c, obj);
	if (was->root & OWNED_AGAIN)
		return 0;
	was->root |= OWNED_AGAIN;
	err = path_of(l, c, &path);
	if (!err && !strcmp(l->before->text + was->path, l->text + path) &&
	    !strcmp(l->before->roots[was->root & ROOT_MASK].suffix, suffix))
		was->root |= OWNED_SAME;
	return err;
}

static int add_tensor(struct census_owners *l, struct child *c, uint64_t obj)
{
	return l->before ? compare_found(l, c, obj) : record(l, c, obj);
}

/* Finds the memory of an object: its own, or that which it points to. 0 or -errno: it has none. */
static int memory_of(struct census_owners *l, uint64_t obj, enum shape shape,
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
		ret->size = w[2] + 33;
		return 0;
	case SHAPE_BYTEARRAY: /* ob_size, ob_alloc, ob_bytes */
		ret->addr = w[4];
		ret->size = w[3];
		return 0;
	case SHAPE_MMAP: /* data, size */
		ret->addr = w[2];
		ret->size = w[3];
		return 0;
	case SHAPE_ARRAY: /* data, nd, dimensions, strides, base: of C order, with its own memory */
		ret->addr = w[2];
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
	struct owned_memory m = { .in = c->of->obj, .root = c->of->root };
	int err = 0;

	if (l->nmemory >= MEMORY_MAX || memory_of(l, obj, shape, &m) || m.size > MEMORY_SIZE_MAX)
		return 0;
	err = map64__set(l->visited, obj, 1);
	if (!err)
		err = path_of(l, c, &m.path);
	if (!err)
		err = array__grow(&l->memory, &l->capmemory, l->nmemory + 1, sizeof(m));
	if (!err)
		l->memory[l->nmemory++] = m;
	return err;
}

/* Handles an object found in a container: records a tensor or memory, or queues a container. */
int census_owners__add_found(struct census_owners *l, struct child *c, uint64_t obj)
{
	uint64_t type, one;
	enum shape shape;
	uint32_t path;
	int err;

	l->items++;
	err = census_owners__shape_of(l, obj, &type, &shape);
	if (!err && shape == SHAPE_TENSOR) {
		err = add_tensor(l, c, obj);
		if (err || c->of->depth) /* a variable's tensor may have attributes */
			return err;
	}
	if (err || shape == SHAPE_NONE || map64__get(l->visited, obj, &one))
		return err;
	if (shape >= SHAPE_MEMORY)
		return add_memory(l, c, obj, shape);
	if (map64__get(l->r->model_at, obj, &one)) /* a model: its variable is named, too */
		err = add_tensor(l, c, obj);
	if (err)
		return err;
	if (c->of->depth >= DEPTH_MAX)
		return 0;
	if (l->nnodes >= NODES_MAX) { /* the search of those in the queue goes on */
		l->full = true;
		return 0;
	}
	err = map64__set(l->visited, obj, 1);
	if (!err)
		err = path_of(l, c, &path);
	if (!err)
		err = array__grow(&l->nodes, &l->capnodes, l->nnodes + 1, sizeof(*l->nodes));
	if (!err)
		l->nodes[l->nnodes++] = (struct node){ .obj = obj,
						       .type = type,
						       .path = path,
						       .root = c->of->root,
						       .shape = shape,
						       .state = c->of->state || c->state,
						       .depth = c->of->depth + 1 };
	return err;
}

/* Queues a container once more if its turn ended at item `end` of n. NODES_MAX does not count
 * these: a turn has thousands of items, so they are few. */
int census_owners__add_rest(struct census_owners *l, const struct node *of, uint64_t end,
			    uint64_t n)
{
	int err;

	if (end >= n || census_owners__over_limit(l))
		return 0;
	err = array__grow(&l->nodes, &l->capnodes, l->nnodes + 1, sizeof(*l->nodes));
	if (err)
		return err;
	l->nodes[l->nnodes] = *of;
	l->nodes[l->nnodes++].from = end;
	return 0;
}

/* ---- start of the search ---- */

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
	struct child c = { .of = &none };
	int err = census_owners__open_root(l, suffix, &none.root);

	if (err)
		return err;
	snprintf(c.word, sizeof(c.word), "%s", name);
	return census_owners__add_found(l, &c, obj);
}

static int search_queue(struct census_owners *l)
{
	int err = 0;

	for (size_t i = 0; !err && i < l->nnodes && !census_owners__over_limit(l); i++) {
		struct node n = l->nodes[i]; /* a copy: the queue moves as it grows */

		err = census_owners__examine(l, &n);
		err = census_owners__fatal(err) ? err : 0;
		if (!err && i % 1024 == 0)
			err = reading__check_time(l->r);
	}
	return err;
}

/* Frees what only a search needs. */
static void end_search(struct census_owners *l)
{
	if (!l->r->o->memory) { /* owners_names.c compares the containers of other memory */
		free(l->nodes);
		l->nodes = NULL;
		l->nnodes = 0;
	}
	map64__free(l->types);
	map64__free(l->visited);
	l->types = l->visited = NULL;
	pyitems__fini(&l->it);
}

void census_owners__fini(struct census_owners *l)
{
	if (l->r)
		end_search(l);
	for (size_t i = 0; i < l->nroots; i++)
		free(l->roots[i].suffix);
	free(l->roots);
	free(l->kinds);
	free(l->slots);
	free(l->nodes);
	free(l->owned);
	free(l->fresh);
	free(l->memory);
	free(l->text);
}

/* Sorts the tensors found. Each stays once, where the search found it first. */
static void sort_owned(struct census_owners *l)
{
	size_t n = 0;

	if (l->nowned)
		qsort(l->owned, l->nowned, sizeof(*l->owned), by_obj_and_path);
	for (size_t i = 0; i < l->nowned; i++)
		if (!n || l->owned[i].obj != l->owned[n - 1].obj)
			l->owned[n++] = l->owned[i];
	l->nowned = n;
}

int census_owners__search(struct reading *r, struct census_owners *l, struct census_owners *before)
{
	uint64_t now = clock__monotonic(), share = r->o->limit_ns / SEARCH_SHARE;
	uint64_t end = r->began + READING_WAITS * r->o->limit_ns;
	int err;

	*l = (struct census_owners){
		.r = r, .before = before, .types = map64__new(), .visited = map64__new()
	};
	l->deadline = now + (end > now ? (end - now) / 2 : 0);
	l->cpu_end = clock__read(CLOCK_THREAD_CPUTIME_ID) +
		     (share < SEARCH_MAX_NS ? share : SEARCH_MAX_NS);
	err = l->types && l->visited ? array__grow(&l->text, &l->text_cap, 1, 1) : -ENOMEM;
	if (err)
		return err;
	l->text[l->text_len++] = '\0';
	pymem__forget(&r->m);
	memcache__forget(r->c->cache);
	err = pymem__old_u64(&r->m, r->c->module + r->m.l->tp_dealloc, &l->python_dealloc);
	if (err)
		return census_owners__fatal(err) ? err : 0;
	err = census_owners__add_roots(l);
	if (!err)
		err = search_queue(l);
	end_search(l);
	sort_owned(l);
	return err;
}
