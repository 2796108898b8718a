/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names tensors by the container that holds them: a list, dict, attribute of an object, or closure.
 * The search starts at variables of the main module and of running functions. It takes the shortest
 * path: "global history[*]", "local trainer.outputs[*]['loss'] in main (train.py:31)". All items of
 * a list share a name, and so do the values of a thread-local in all threads. A path counts only if
 * it is the same before and after the tensors are read.
 * Large containers take turns: after some thousand items one goes to the end of the queue. So a
 * list of a million samples does not use up the limits before others are examined.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "lib/clock.h"
#include "lib/map64.h"
#include "census/owners.h"
#include "process/memcache.h"
#include "python/pylocals.h"
#include "python/pyobj.h"
#include "python/pystr.h"
#include "python/pytype.h"

#define DEPTH_MAX 5
#define PATH_MAX_LEN 200
#define NODES_MAX 300000u  /* containers examined */
#define ITEMS_MAX 2000000u /* items found in containers */
#define TEXT_MAX (32u << 20)
/* One search takes at most this much CPU time, ns, and this part of the reading's time. On a busy
 * machine it lasts longer, up to half of the time that is left. */
#define SEARCH_MAX_NS 300000000ull
#define SEARCH_SHARE 8
#define CLOCKS_EVERY 16 /* looks at the limits; the clock of CPU time is a system call */
#define CHUNK 512
#define ARRAY_MAX (1u << 24) /* items of a list or tuple; one with more is left out */
#define TURN 4096u	     /* items of a container in a turn */
#define TURNS 8u	     /* each reads a dict or deque from its start, so there are few */
#define CELLS_MAX 256
/* Maximum size of a dict whose keys appear in names; larger ones show [*]. */
#define WORDS_MAX 16
#define FEW_ITEMS 64 /* entries of a dict or object that may come from pages */

#define TYPE_HEAP (1ul << 9)
/* int, bytes, str, exceptions and types */
#define TYPE_ATOMS (1ul << 24 | PYTYPE_BYTES | PYTYPE_STR | 1ul << 30 | PYTYPE_TYPE)

#define DEQUE_BLOCK 64
#define THREADS_MAX 1024    /* threads whose values of one thread-local are examined */
#define MEMORY_MAX 1000000u /* objects whose memory is kept */
#define MEMORY_SIZE_MAX (UINT64_C(1) << 40) /* bytes of one */

enum shape {
	SHAPE_NONE,
	SHAPE_LIST,
	SHAPE_TUPLE,
	SHAPE_DICT,
	SHAPE_DEQUE,
	SHAPE_FUNCTION,
	SHAPE_CELL,
	SHAPE_METHOD,
	SHAPE_INSTANCE,
	SHAPE_THREAD_LOCAL, /* threading.local, or a class based on it */
	SHAPE_CONTEXT_VAR,
	SHAPE_TENSOR,
	/* Objects whose memory is looked at if the reading asks for it. */
	SHAPE_MEMORY,
	SHAPE_BYTES = SHAPE_MEMORY,
	SHAPE_STR,
	SHAPE_BYTEARRAY,
	SHAPE_ARRAY, /* numpy.ndarray */
	SHAPE_MMAP   /* mmap.mmap */
};

static bool fatal(int err)
{
	return err && !reading__is_local(err) && err != -ENOTSUP && err != -EINVAL;
}

static bool is_over_limit(struct census_owners *l)
{
	if (l->items >= ITEMS_MAX || l->text_len >= TEXT_MAX)
		l->cut = true;
	else if (l->looks++ % CLOCKS_EVERY == 0)
		l->cut |= clock__monotonic() > l->deadline ||
			  clock__read(CLOCK_THREAD_CPUTIME_ID) > l->cpu_end;
	return l->cut;
}

/* ---- types ---- */

static enum shape shape_by_name(struct reading *r, uint64_t type, uint64_t flags)
{
	char name[64];

	if (pytype__name(&r->m, type, name, sizeof(name)) < 0)
		return SHAPE_NONE;
	if (!strcmp(name, "function"))
		return SHAPE_FUNCTION;
	if (!strcmp(name, "cell"))
		return SHAPE_CELL;
	if (!strcmp(name, "method"))
		return SHAPE_METHOD;
	if (!strcmp(name, "collections.deque"))
		return SHAPE_DEQUE;
	if (r->o->memory && !strcmp(name, "bytearray"))
		return SHAPE_BYTEARRAY;
	if (r->o->memory && !strcmp(name, "numpy.ndarray"))
		return SHAPE_ARRAY;
	if (!strcmp(name, "mmap.mmap"))
		return r->o->memory ? SHAPE_MMAP : SHAPE_NONE;
	if (!strcmp(name, "ContextVar") || !strcmp(name, "_contextvars.ContextVar"))
		return SHAPE_CONTEXT_VAR;
	if (pytype__is_a(&r->m, type, "_thread._local", NULL) > 0)
		return SHAPE_THREAD_LOCAL;
	return flags & TYPE_HEAP ? SHAPE_INSTANCE : SHAPE_NONE;
}

static int shape_of_type(struct census_owners *l, uint64_t type, enum shape *ret)
{
	uint64_t known, flags;
	enum type_kind kind;
	int err;

	*ret = SHAPE_NONE;
	if (map64__get(l->types, type, &known)) {
		*ret = known;
		return 0;
	}
	err = reading__type_kind(l->r, type, &kind);
	if (err)
		return err;
	if (kind == TYPE_TENSOR || kind == TYPE_WRAPPER)
		*ret = SHAPE_TENSOR;
	else if (pymem__old_u64(&l->r->m, type + l->r->m.l->tp_flags, &flags))
		*ret = SHAPE_NONE;
	else if (l->r->o->memory && flags & (PYTYPE_BYTES | PYTYPE_STR))
		*ret = flags & PYTYPE_BYTES ? SHAPE_BYTES : SHAPE_STR;
	else if (flags & TYPE_ATOMS)
		*ret = SHAPE_NONE;
	else if (flags & PYTYPE_LIST)
		*ret = SHAPE_LIST;
	else if (flags & PYTYPE_TUPLE)
		*ret = SHAPE_TUPLE;
	else if (flags & PYTYPE_DICT)
		*ret = SHAPE_DICT;
	else
		*ret = shape_by_name(l->r, type, flags);
	return map64__set(l->types, type, *ret);
}

static int shape_of(struct census_owners *l, uint64_t obj, uint64_t *type, enum shape *ret)
{
	*ret = SHAPE_NONE;
	if (!obj || obj % 8)
		return 0;
	if (memcache__read(l->r->c->cache, obj + l->r->m.l->ob_type, type, sizeof(*type)) ||
	    !*type || *type % 8)
		return 0;
	return shape_of_type(l, *type, ret);
}

/* ---- paths ---- */

static int add_text(struct census_owners *l, const char *s, uint32_t *ret)
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

/* A child of a node. Its path is made on first use and shared by all children with the same
 * word. */
struct child {
	const struct node *of;
	char word[96];
	uint32_t path; /* offset in text, 0: not made yet */
	bool state;    /* a parameter is its key */
};

static int path_of(struct census_owners *l, struct child *c, uint32_t *ret)
{
	char path[PATH_MAX_LEN + 128];
	int err;

	if (!c->path) {
		snprintf(path, sizeof(path), "%.*s%s", PATH_MAX_LEN, l->text + c->of->path,
			 c->word);
		err = add_text(l, path, &c->path);
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

/* The second search: notes in the first one's list whether the tensor is where it was. */
static int compare_found(struct census_owners *l, struct child *c, uint64_t obj)
{
	struct owned *was = census_owners__find(l->before, obj);
	const char *suffix = l->roots[c->of->root].suffix;
	uint32_t path;
	int err;

	if (!was || was->root & OWNED_AGAIN)
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
	uint32_t path;
	int err;

	if (l->before)
		return compare_found(l, c, obj);
	err = path_of(l, c, &path);
	if (!err)
		err = array__grow(&l->owned, &l->capowned, l->nowned + 1, sizeof(*l->owned));
	if (!err)
		l->owned[l->nowned++] = (struct owned){
			obj, path, c->of->root | (c->of->state || c->state ? OWNED_STATE : 0)
		};
	return err;
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
static int add_found(struct census_owners *l, struct child *c, uint64_t obj)
{
	uint64_t type, one;
	enum shape shape;
	uint32_t path;
	int err;

	l->items++;
	err = shape_of(l, obj, &type, &shape);
	if (!err && shape == SHAPE_TENSOR)
		return add_tensor(l, c, obj);
	if (err || shape == SHAPE_NONE || map64__get(l->visited, obj, &one))
		return err;
	if (shape >= SHAPE_MEMORY)
		return add_memory(l, c, obj, shape);
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
static int add_rest(struct census_owners *l, const struct node *of, uint64_t end, uint64_t n)
{
	int err;

	if (end >= n || is_over_limit(l))
		return 0;
	err = array__grow(&l->nodes, &l->capnodes, l->nnodes + 1, sizeof(*l->nodes));
	if (err)
		return err;
	l->nodes[l->nnodes] = *of;
	l->nodes[l->nnodes++].from = end;
	return 0;
}

/* End of a container's turn: index of the first item that it does not examine. n: its items. */
static uint64_t end_of_turn(const struct node *of, uint64_t n, uint64_t turn)
{
	return n > of->from && n - of->from > turn ? of->from + turn : n;
}

static uint64_t long_turn(uint64_t n)
{
	return n / TURNS > TURN ? n / TURNS : TURN;
}

/* ---- what is in a container ---- */

static int array_of(struct census_owners *l, struct child *c, uint64_t at, uint64_t n)
{
	uint64_t v[CHUNK], end = end_of_turn(c->of, n, TURN);
	int err = 0;

	if (n > ARRAY_MAX) {
		l->full = true;
		return 0;
	}
	for (uint64_t i = c->of->from; !err && i < end && !is_over_limit(l); i += CHUNK) {
		uint64_t k = end - i < CHUNK ? end - i : CHUNK;

		err = pymem__read(&l->r->m, at + i * 8, v, k * 8);
		for (uint64_t j = 0; !err && j < k; j++)
			err = add_found(l, c, v[j]);
	}
	return err ? err : add_rest(l, c->of, end, n);
}

/* Address and number of the items of a list or tuple. */
static int array_head(struct census_owners *l, const struct node *of, uint64_t *at, uint64_t *n)
{
	const struct pylayout *y = l->r->m.l;
	uint64_t head[2]; /* ob_size, ob_item */
	int err;

	if (of->shape == SHAPE_TUPLE) {
		*at = of->obj + y->tuple_item;
		return pymem__u64(&l->r->m, of->obj + y->ob_size, n);
	}
	err = pymem__read(&l->r->m, of->obj + y->ob_size, head, sizeof(head));
	*n = head[0];
	*at = head[1];
	return err;
}

/* Lists and tuples. Those with few items can be very many: see read_items(). */
static int in_array(struct census_owners *l, struct child *c)
{
	uint64_t v[FEW_ITEMS], at, n;
	bool few;
	int err;

	strcpy(c->word, "[*]");
	pymem__begin_unchecked(&l->r->m);
	err = array_head(l, c->of, &at, &n);
	few = !err && n <= FEW_ITEMS;
	if (few && n)
		err = pymem__read(&l->r->m, at, v, n * sizeof(*v));
	pymem__end_unchecked(&l->r->m);
	for (uint64_t i = 0; few && !err && i < n; i++)
		err = add_found(l, c, v[i]);
	if (few || fatal(err))
		return err;
	err = array_head(l, c->of, &at, &n);
	return err ? err : array_of(l, c, at, n);
}

/* Layout: {ob_size, leftblock, rightblock, leftindex, rightindex}; block: {left, items[64],
 * right}. */
static int in_deque(struct census_owners *l, struct child *c)
{
	uint64_t head[5], block[DEQUE_BLOCK + 2], i = 0, end;
	int err = pymem__read(&l->r->m, c->of->obj + l->r->m.l->ob_size, head, sizeof(head));

	strcpy(c->word, "[*]");
	if (err || head[3] >= DEQUE_BLOCK)
		return err;
	end = end_of_turn(c->of, head[0], long_turn(head[0]));
	for (uint64_t at = head[1], k = head[3]; !err && i < end && at && !is_over_limit(l);
	     at = block[DEQUE_BLOCK + 1], k = 0) {
		err = pymem__read(&l->r->m, at, block, sizeof(block));
		for (; !err && i < end && k < DEQUE_BLOCK; k++, i++)
			err = i < c->of->from ? 0 : add_found(l, c, block[1 + k]);
	}
	return err ? err : add_rest(l, c->of, end, head[0]);
}

/* Path component of a key: "['loss']", ".loss"; "[*]" if the key is not a short string. */
static void word_of(struct census_owners *l, uint64_t key, const char *before, const char *after,
		    char *word, size_t size)
{
	char text[64];
	bool is_text;

	pymem__begin_unchecked(&l->r->m); /* a str does not change */
	is_text = !pydict__check_kind(&l->r->m, key, PYTYPE_STR) &&
		  pystr__read(&l->r->m, key, text, sizeof(text), NULL) >= 0 && *text;
	pymem__end_unchecked(&l->r->m);
	if (!is_text)
		snprintf(word, size, "[*]");
	else
		snprintf(word, size, "%s%s%s", before, text, after);
}

/* Optimizers of other libraries keep their state as PyTorch's do: state[parameter]. The first key
 * speaks for all. Very many dicts have the same one, mostly a string, which is read once. */
static bool has_parameters(struct census_owners *l, const struct node *of)
{
	uint64_t key = l->it.n ? l->it.v[0].key : 0, type;

	if (of->shape != SHAPE_DICT || !key)
		return false;
	if (key != l->first_key) {
		l->first_key = key;
		l->is_parameter = !pydict__type_of(&l->r->m, key, &type) &&
				  type == l->r->c->parameter;
	}
	return l->is_parameter;
}

static int in_items(struct census_owners *l, const struct node *of, const char *before,
		    const char *after, bool words)
{
	bool state = has_parameters(l, of);
	size_t end;
	int err = 0;

	if (words) {
		for (size_t i = 0; !err && i < l->it.n; i++) {
			struct child c = { .of = of, .state = state };
			uint64_t type;
			enum shape shape;

			/* Most attributes cannot hold a tensor; skip their names. */
			err = shape_of(l, l->it.v[i].value, &type, &shape);
			if (err || shape == SHAPE_NONE)
				continue;
			word_of(l, l->it.v[i].key, before, after, c.word, sizeof(c.word));
			err = add_found(l, &c, l->it.v[i].value);
		}
		return err;
	}
	end = end_of_turn(of, l->it.n, long_turn(l->it.n));
	for (size_t i = of->from; !err && i < end && !(i % CHUNK == 0 && is_over_limit(l)); i++) {
		struct child c = { .of = of, .state = state, .word = "[*]" };

		err = add_found(l, &c, l->it.v[i].value);
	}
	return err ? err : add_rest(l, of, end, l->it.n);
}

static int read_items_now(struct census_owners *l, uint64_t obj, uint64_t type)
{
	return type ? pydict__attrs(&l->r->m, obj, type, &l->it)
		    : pydict__items(&l->r->m, obj, &l->it);
}

/*
 * Reads the entries of a dict, or the attributes of an object if type is not 0. Those with few
 * entries can be very many, so they come from pages that this search has read before. The paths
 * that it finds count only if another search finds them, too. One with many entries may have been
 * moved as it grew, so it is read again.
 */
static int read_items(struct census_owners *l, uint64_t obj, uint64_t type)
{
	int err;

	pymem__begin_unchecked(&l->r->m);
	err = read_items_now(l, obj, type);
	pymem__end_unchecked(&l->r->m);
	if (fatal(err) || (!err && l->it.n <= FEW_ITEMS))
		return err;
	return read_items_now(l, obj, type);
}

static int in_dict(struct census_owners *l, const struct node *of)
{
	int err = read_items(l, of->obj, 0);

	return err ? err : in_items(l, of, "['", "']", l->it.n <= WORDS_MAX);
}

static int in_instance(struct census_owners *l, const struct node *of)
{
	int err = read_items(l, of->obj, of->type);

	return err ? err : in_items(l, of, ".", "", true);
}

/* A field of an object: the n-th word after its head. */
static uint64_t field(const struct census_owners *l, const struct node *of, unsigned n)
{
	return of->obj + l->r->m.l->ob_type + 8 + 8ul * n;
}

/*
 * {key, args, kw, weakreflist, dummies} until CPython 3.12, {args, kw, weakreflist, localdicts}
 * later. The last one is a dict of each thread's attributes, by a weak reference that dies with the
 * thread.
 */
static int find_dicts(struct census_owners *l, const struct node *of, uint64_t *ret)
{
	int err = -ENOENT;

	for (unsigned n = 3; err && n < 5; n++) {
		err = pymem__u64(&l->r->m, field(l, of, n), ret);
		if (!err)
			err = pydict__check_kind(&l->r->m, *ret, PYTYPE_DICT);
	}
	return err;
}

static int in_thread_local(struct census_owners *l, const struct node *of)
{
	uint64_t dicts, own[THREADS_MAX];
	size_t n = 0;
	int err = find_dicts(l, of, &dicts);

	if (!err)
		err = pydict__items(&l->r->m, dicts, &l->it);
	if (err)
		return err;
	for (; n < l->it.n && n < THREADS_MAX; n++)
		own[n] = l->it.v[n].value;
	for (size_t i = 0; i < n && !fatal(err) && !is_over_limit(l); i++) {
		err = pydict__items(&l->r->m, own[i], &l->it);
		if (!err)
			err = in_items(l, of, ".", "", true);
	}
	return err;
}

static uint16_t closure_at(const struct pylayout *l)
{
	return l->minor < 10 ? 48 : 72;
}

static int in_slot(struct census_owners *l, struct child *c, uint64_t slot)
{
	uint64_t obj;
	int err = pymem__u64(&l->r->m, slot, &obj);

	return err || !obj ? err : add_found(l, c, obj);
}

/* Examines a function's closure: one cell for each variable, by name. */
static int in_function(struct census_owners *l, const struct node *of)
{
	const struct pylayout *y = l->r->m.l;
	uint64_t closure, code, n;
	char name[64];
	int err = pymem__u64(&l->r->m, of->obj + closure_at(y), &closure);

	if (err || !closure || pydict__check_kind(&l->r->m, closure, PYTYPE_TUPLE))
		return err;
	err = pymem__u64(&l->r->m, closure + y->ob_size, &n);
	if (!err)
		err = pymem__u64(&l->r->m, of->obj + y->func_code, &code);
	for (uint64_t i = 0; !err && i < n && i < CELLS_MAX; i++) {
		struct child c = { .of = of };

		if (pylocals__free_name(&l->r->m, code, i, name, sizeof(name)))
			strcpy(name, "?");
		snprintf(c.word, sizeof(c.word), "'s cell %s", name);
		err = in_slot(l, &c, closure + y->tuple_item + 8 * i);
	}
	return err;
}

static int in_node(struct census_owners *l, const struct node *n)
{
	struct child c = { .of = n };

	switch (n->shape) {
	case SHAPE_LIST:
	case SHAPE_TUPLE:
		return in_array(l, &c);
	case SHAPE_DEQUE:
		return in_deque(l, &c);
	case SHAPE_DICT:
		return in_dict(l, n);
	case SHAPE_INSTANCE:
		return in_instance(l, n);
	case SHAPE_FUNCTION:
		return in_function(l, n);
	case SHAPE_CELL:
		return in_slot(l, &c, n->obj + l->r->m.l->cell_ref);
	case SHAPE_THREAD_LOCAL:
		return in_thread_local(l, n);
	case SHAPE_CONTEXT_VAR: /* name, default value; values are in the contexts of threads and
				   tasks */
		strcpy(c.word, "'s default");
		return in_slot(l, &c, field(l, n, 1));
	case SHAPE_METHOD:
		strcpy(c.word, ".__self__");
		return in_slot(l, &c, n->obj + l->r->m.l->ob_type + 16);
	}
	return 0;
}

/* ---- start of the search ---- */

/* Adds a variable. suffix: text after the path. */
static int add_root(struct census_owners *l, const char *name, const char *suffix, uint64_t obj)
{
	struct node none = { .depth = 0 };
	struct child c = { .of = &none };
	int err = l->nroots < ROOT_MASK
			  ? array__grow(&l->roots, &l->caproots, l->nroots + 1, sizeof(*l->roots))
			  : -E2BIG;

	if (err)
		return err;
	l->roots[l->nroots].suffix = strdup(suffix);
	if (!l->roots[l->nroots].suffix)
		return -ENOMEM;
	none.root = l->nroots++;
	none.path = 0; /* "" */
	snprintf(c.word, sizeof(c.word), "%s", name);
	return add_found(l, &c, obj);
}

static int add_globals(struct census_owners *l)
{
	struct reading *r = l->r;
	uint64_t module, dict;
	struct pyitems it = { 0 };
	char name[64 + 8];
	int err;

	err = pyobj__module(r->c->py, "__main__", &module);
	if (!err)
		err = pymem__u64(&r->m, module + r->m.l->md_dict, &dict);
	if (!err)
		err = pydict__items(&r->m, dict, &it);
	for (size_t i = 0; !err && i < it.n; i++) {
		strcpy(name, "global ");
		if (pystr__read(&r->m, it.v[i].key, name + 7, 64, NULL) >= 0)
			err = add_root(l, name, "", it.v[i].value);
		err = fatal(err) ? err : 0;
	}
	pyitems__fini(&it);
	return fatal(err) ? err : 0;
}

static bool is_container(void *ctx, uint64_t obj)
{
	struct census_owners *l = ctx;
	enum shape shape;
	uint64_t type;

	return !shape_of(l, obj, &type, &shape) && shape != SHAPE_NONE && shape < SHAPE_TENSOR;
}

static int add_locals(struct census_owners *l)
{
	char text[64 + PYOBJ_MAX_STRING], name[80], *in;
	struct pylocal *v = NULL;
	size_t n = 0;
	int err = pylocals__read(&l->r->m, is_container, l, &v, &n);

	for (size_t i = 0; !err && i < n; i++) {
		int at = snprintf(text, sizeof(text), "local ");

		if (pylocal__text(&l->r->m, &v[i], text + at, sizeof(text) - at) ||
		    !(in = strstr(text, " in ")))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(in - text), text);
		err = add_root(l, name, in, v[i].obj);
		err = fatal(err) ? err : 0;
	}
	free(v);
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
	free(l->nodes);
	free(l->owned);
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
	err = add_globals(l);
	if (!err)
		err = add_locals(l);
	for (size_t i = 0; !err && i < l->nnodes && !is_over_limit(l); i++) {
		struct node n = l->nodes[i]; /* a copy: the queue moves as it grows */

		err = in_node(l, &n);
		err = fatal(err) ? err : 0;
		if (!err && i % 1024 == 0)
			err = reading__check_time(r);
	}
	end_search(l);
	sort_owned(l);
	return err;
}
