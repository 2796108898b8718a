/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Looks into containers, in the layouts of all versions of CPython that python.h names. */
#include "inspect/census/owners.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/pyobj.h"
#include "inspect/python.h"
#include "inspect/python/pylocals.h"
#include "inspect/python/pystr.h"

/* Searches objects of classes in C word by word, such as iterators, futures and contexts. */

#define ITEMS_MAX 1024u /* pointers at the end of an object */

/* Path component of a key: "['loss']", ".loss"; "[*]" if the key is not a short
 * string. */
static void key_word(struct census_owners *l, uint64_t key, const char *before, const char *after,
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

/* Adds what a word of an object points to, if it may be an object. */
static int add_pointer(struct census_owners *l, const struct node *of, uint64_t word,
		       const char *after)
{
	struct child c = { .of = of };
	enum shape shape;
	uint64_t type;
	int err;

	if (word % 8 || word < LOWEST || word > HIGHEST || word == of->obj)
		return 0;
	err = census_owners__shape_of(l, word, &type, &shape);
	if (err || shape == SHAPE_NONE)
		return err;
	strcpy(c.word, shape == SHAPE_TRACEBACK ? "'s traceback" : after);
	return census_owners__add_found(l, &c, word);
}

/* The values of a context are in a tree: a variable and its value follow each other. */
static int add_variable(struct census_owners *l, const struct node *of, uint64_t var,
			uint64_t value)
{
	char word[72];
	uint64_t name;
	int err = pymem__u64(&l->r->m, var + l->r->m.l->ob_type + 8, &name);

	if (err)
		return err;
	key_word(l, name, " ", "", word, sizeof(word));
	return add_pointer(l, of, value, word);
}

static int add_words(struct census_owners *l, const struct node *of, const uint64_t *w, uint64_t n,
		     unsigned skip)
{
	enum shape shape;
	uint64_t type;
	int err = 0;

	for (uint64_t i = 0; !err && i < n; i++) {
		if (i == skip || w[i] % 8 || w[i] < LOWEST || w[i] > HIGHEST)
			continue;
		err = census_owners__shape_of(l, w[i], &type, &shape);
		if (err)
			return err;
		if (shape == SHAPE_CONTEXT_VAR && i + 1 < n) {
			err = add_variable(l, of, w[i], w[i + 1]);
			i++;
		} else {
			err = add_pointer(l, of, w[i], of->shape == SHAPE_TENSOR ? "'s hooks" : "");
		}
	}
	return err;
}

/* Searches an object word by word. */
static int in_words(struct census_owners *l, const struct node *of, const struct owner_type *t)
{
	uint64_t w[OWNER_WORDS_MAX + ITEMS_MAX], n = t->words, more = 0;
	unsigned dict = t->dict ? t->dict / 8 - 2 : UINT_MAX;
	int err = 0;

	pymem__begin_unchecked(&l->r->m);
	if (t->items && pymem__u64(&l->r->m, of->obj + l->r->m.l->ob_size, &more))
		more = 0;
	if (more < ITEMS_MAX)
		n += more;
	if (n)
		err = pymem__read(&l->r->m, census_owners__field(l, of, 0), w, n * sizeof(*w));
	pymem__end_unchecked(&l->r->m);
	return err || !n ? err : add_words(l, of, w, n, dict);
}

/* Variables of functions that no thread runs: of suspended generators and coroutines, and of those
 * that an exception has left. */

#define FRAMES_MAX 20000u  /* frames examined */
#define TRACEBACK_MAX 512u /* frames of one traceback */
#define GENERATOR_WORDS 32u
#define OWNED_BY_GENERATOR 1
#define TYPE_EXCEPTION (1ul << 30)

static bool may_hold(void *ctx, uint64_t obj)
{
	struct census_owners *l = ctx;
	enum shape shape;
	uint64_t type;

	return !census_owners__shape_of(l, obj, &type, &shape) && shape != SHAPE_NONE;
}

/* Adds a variable: its name follows path, and the function ends the name. */
static int add_frame_variable(struct census_owners *l, const struct node *of, const char *path,
			      const struct pylocal *v)
{
	char text[PYLOCAL_TEXT], *in;
	struct child c = { .of = of };

	if (pylocal__text(&l->r->m, v, text, sizeof(text)) || !(in = strstr(text, " in ")))
		return 0;
	snprintf(c.word, sizeof(c.word), "%s%.*s", path, (int)(in - text), text);
	return census_owners__add_found(l, &c, v->obj);
}

/* Opens a root for a frame, by its first variable: " in f (x.py:3)". */
static int open_root(struct census_owners *l, const struct node *of, const struct pylocal *v,
		     bool is_end, uint32_t *ret)
{
	char text[PYLOCAL_TEXT], suffix[2 * PYLOCAL_TEXT], *in;

	*ret = of->root;
	if (pylocal__text(&l->r->m, v, text, sizeof(text)) || !(in = strstr(text, " in ")))
		return 0;
	snprintf(suffix, sizeof(suffix), "%s%s", in, is_end ? "" : l->roots[of->root].suffix);
	return census_owners__open_root(l, suffix, ret);
}

/* path: begins the names of variables, instead of the holder's if is_end. */
static int add_frame(struct census_owners *l, const struct node *of, uint64_t frame, uint64_t code,
		     const char *path, bool is_end)
{
	struct node from = *of;
	struct pylocal *v = NULL;
	size_t n = 0;
	int err;

	if (l->frames >= FRAMES_MAX) {
		l->full = true;
		return 0;
	}
	l->frames++;
	err = pylocals__of_frame(&l->r->m, frame, code, may_hold, l, &v, &n);
	if (is_end)
		from.path = 0;
	if (!err && n)
		err = open_root(l, of, &v[0], is_end, &from.root);
	for (size_t i = 0; !err && i < n; i++)
		err = add_frame_variable(l, &from, path, &v[i]);
	free(v);
	return err;
}

static bool is_code(struct census_owners *l, uint64_t obj)
{
	uint64_t type;

	return obj && !pydict__type_of(&l->r->m, obj, &type) &&
	       type == python__symbol(l->r->c->py, "PyCode_Type");
}

static int read_code(struct census_owners *l, uint64_t frame, uint64_t *code)
{
	int err = pymem__u64(&l->r->m, frame + l->r->m.l->fr_code, code);

	*code &= l->r->m.l->tag_mask;
	if (err)
		return err;
	return is_code(l, *code) ? 0 : -EBADMSG;
}

/* From CPython 3.11 on, a frame object points to the frame: {f_back, f_frame, ...}. */
static int in_frame_object(struct census_owners *l, const struct node *of, uint64_t obj,
			   const char *path)
{
	uint64_t frame = obj, code;
	int err = 0;

	if (l->r->m.l->minor >= 11)
		err = pymem__u64(&l->r->m, obj + 24, &frame);
	err = err ?: read_code(l, frame, &code);
	return err ?: add_frame(l, of, frame, code, path, false);
}

/* {tb_next, tb_frame, ...}, from the function that handles the exception to the one that raised
 * it. */
static int in_traceback(struct census_owners *l, const struct node *of)
{
	uint64_t w[4], at = of->obj, type;
	int err = 0;

	for (unsigned i = 0; !err && at && i < TRACEBACK_MAX && !census_owners__over_limit(l);
	     i++) {
		err = pydict__type_of(&l->r->m, at, &type);
		if (err)
			return err;
		if (type != of->type)
			return -EBADMSG;
		err = pymem__read(&l->r->m, at, w, sizeof(w));
		if (err)
			return err;
		err = in_frame_object(l, of, w[3], ": ");
		err = census_owners__fatal(err) ? err : 0;
		at = w[2];
	}
	return err;
}

int census_owners__add_exception(struct census_owners *l, const struct node *of, uint64_t obj,
				 const char *word)
{
	struct child c = { .of = of };
	enum shape shape;
	uint64_t type, flags;
	int err = census_owners__shape_of(l, obj, &type, &shape);

	if (err || shape != SHAPE_INSTANCE ||
	    pymem__old_u64(&l->r->m, type + l->r->m.l->tp_flags, &flags) ||
	    !(flags & TYPE_EXCEPTION))
		return err;
	snprintf(c.word, sizeof(c.word), "%s", word);
	return census_owners__add_found(l, &c, obj);
}

/* The frame inside a generator, from CPython 3.11 on: its code is the last of the words that point
 * to one. The last byte before the frame's word tells whether it is suspended. */
static int find_frame(struct census_owners *l, const struct node *of, uint64_t *frame,
		      uint64_t *code)
{
	const struct pylayout *y = l->r->m.l;
	uint64_t w[GENERATOR_WORDS];
	unsigned n = census_owners__type(l, of->type)->words;
	int8_t state;
	uint8_t owner;
	int err;

	n = n < GENERATOR_WORDS ? n : GENERATOR_WORDS;
	err = pymem__read(&l->r->m, of->obj + 16, w, n * sizeof(*w));
	*frame = 0;
	for (unsigned i = 0; !err && i < n; i++) {
		uint64_t at = of->obj + 16 + 8ull * i - y->fr_code;

		if (!*frame) /* an exception that it handles */
			err = census_owners__add_exception(l, of, w[i], "");
		if (at <= of->obj + 16 || !is_code(l, w[i] & y->tag_mask) ||
		    pymem__read(&l->r->m, at + y->fr_owner, &owner, 1) ||
		    owner != OWNED_BY_GENERATOR)
			continue;
		*frame = at;
		*code = w[i] & y->tag_mask;
	}
	if (err)
		return err;
	if (!*frame)
		return -ENOENT;
	err = pymem__read(&l->r->m, *frame - 5, &state, 1);
	if (err)
		return err;
	return state < 0 ? 0 : -ENOENT;
}

static int in_generator(struct census_owners *l, const struct node *of)
{
	uint64_t frame, code;
	int err;

	if (l->r->m.l->minor >= 11) {
		err = find_frame(l, of, &frame, &code);
	} else { /* {gi_frame, ...} */
		err = pymem__u64(&l->r->m, of->obj + 16, &frame);
		if (!err)
			err = frame ? read_code(l, frame, &code) : -ENOENT;
	}
	return err ?: add_frame(l, of, frame, code, "local ", true);
}

#define CHUNK 512
#define ARRAY_MAX (1u << 24) /* items of a list or tuple; one with more is left out */
#define TURN 4096u	     /* items of a container in a turn */
#define TURNS 8u	     /* each reads a dict or deque from its start, so there are few */
#define CELLS_MAX 256
/* Maximum size of a dict whose keys appear in names; larger ones show [*]. */
#define WORDS_MAX 16
#define FEW_ITEMS 64 /* entries of a dict or object that may come from pages */

#define DEQUE_BLOCK 64
#define TEE_MAX 57u
#define DIMS_MAX 64 /* dimensions of numpy's arrays */
#define ARRAY_CONTIGUOUS 1
#define THREADS_MAX 1024 /* threads whose values of one thread-local are examined */

/* End of a container's turn: index of the first item that it does not examine. n: its items. */
static uint64_t end_of_turn(const struct node *of, uint64_t n, uint64_t turn)
{
	return n > of->from && n - of->from > turn ? of->from + turn : n;
}

static uint64_t long_turn(uint64_t n)
{
	return n / TURNS > TURN ? n / TURNS : TURN;
}

/* Leaves out a container of n words if it has as many. The memory of one that is gone meanwhile may
 * have any number in its place. */
static void leave_out(struct census_owners *l, uint64_t at, uint64_t n)
{
	uint64_t last, size;

	if (!__builtin_mul_overflow(n - 1, 8, &size) && !__builtin_add_overflow(at, size, &at))
		l->full |= !pymem__u64(&l->r->m, at, &last);
}

static int array_of(struct census_owners *l, struct child *c, uint64_t at, uint64_t n)
{
	uint64_t v[CHUNK], end = end_of_turn(c->of, n, TURN);
	int err = 0;

	if (n > ARRAY_MAX) {
		leave_out(l, at, n);
		return 0;
	}
	for (uint64_t i = c->of->from; !err && i < end && !census_owners__over_limit(l);
	     i += CHUNK) {
		uint64_t k = end - i < CHUNK ? end - i : CHUNK;

		err = pymem__read(&l->r->m, at + i * 8, v, k * 8);
		for (uint64_t j = 0; !err && j < k; j++)
			err = census_owners__add_found(l, c, v[j]);
	}
	return err ?: census_owners__add_rest(l, c->of, end, n);
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
		err = census_owners__add_found(l, c, v[i]);
	if (few || census_owners__fatal(err))
		return err;
	err = array_head(l, c->of, &at, &n);
	return err ?: array_of(l, c, at, n);
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
	for (uint64_t at = head[1], k = head[3];
	     !err && i < end && at && !census_owners__over_limit(l);
	     at = block[DEQUE_BLOCK + 1], k = 0) {
		err = pymem__read(&l->r->m, at, block, sizeof(block));
		for (; !err && i < end && k < DEQUE_BLOCK; k++, i++)
			err = i < c->of->from ? 0 : census_owners__add_found(l, c, block[1 + k]);
	}
	return err ?: census_owners__add_rest(l, c->of, end, head[0]);
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
		for (size_t i = 0; !err && i < l->it.n &&
				   !(i % CHUNK == CHUNK - 1 && census_owners__over_limit(l));
		     i++) {
			struct child c = { .of = of, .state = state };
			uint64_t type;
			enum shape shape;

			/* Most attributes cannot hold a tensor; skip their names. */
			err = census_owners__shape_of(l, l->it.v[i].value, &type, &shape);
			if (err || shape == SHAPE_NONE)
				continue;
			key_word(l, l->it.v[i].key, before, after, c.word, sizeof(c.word));
			err = census_owners__add_found(l, &c, l->it.v[i].value);
		}
		return err;
	}
	end = end_of_turn(of, l->it.n, long_turn(l->it.n));
	for (size_t i = of->from;
	     !err && i < end && !(i % CHUNK == 0 && census_owners__over_limit(l)); i++) {
		struct child c = { .of = of, .state = state, .word = "[*]" };

		err = census_owners__add_found(l, &c, l->it.v[i].value);
	}
	return err ?: census_owners__add_rest(l, of, end, l->it.n);
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
	if (census_owners__fatal(err) || (!err && l->it.n <= FEW_ITEMS))
		return err;
	return read_items_now(l, obj, type);
}

static int in_dict(struct census_owners *l, const struct node *of)
{
	int err = read_items(l, of->obj, 0);

	return err ?: in_items(l, of, "['", "']", l->it.n <= WORDS_MAX);
}

static int in_attrs(struct census_owners *l, const struct node *of)
{
	int err = read_items(l, of->obj, of->type);

	return err ?: in_items(l, of, ".", "", true);
}

/*
 * {key, args, kw, weakreflist, dummies} until CPython 3.12, {args, kw, weakreflist, localdicts}
 * later. The last one is a dict of each thread's attributes, by a weak reference that dies with the
 * thread.
 */
static int find_dicts(struct census_owners *l, const struct node *of, uint64_t *ret)
{
	int err = -ENOENT;

	for (unsigned n = 3; err && n < 5; n++)
		err = pymem__u64(&l->r->m, census_owners__field(l, of, n), ret)
			      ?: pydict__check_kind(&l->r->m, *ret, PYTYPE_DICT);
	return err;
}

static int in_thread_local(struct census_owners *l, const struct node *of)
{
	uint64_t dicts, own[THREADS_MAX];
	size_t n = 0;
	int err = find_dicts(l, of, &dicts) ?: pydict__items(&l->r->m, dicts, &l->it);

	if (err)
		return err;
	for (; n < l->it.n && n < THREADS_MAX; n++)
		own[n] = l->it.v[n].value;
	for (size_t i = 0; i < n && !census_owners__fatal(err) && !census_owners__over_limit(l);
	     i++)
		err = pydict__items(&l->r->m, own[i], &l->it) ?: in_items(l, of, ".", "", true);
	return err;
}

static int in_slot(struct census_owners *l, struct child *c, uint64_t slot)
{
	uint64_t obj;
	int err = pymem__u64(&l->r->m, slot, &obj);

	return err || !obj ? err : census_owners__add_found(l, c, obj);
}

/* Fields of a function: PyFunctionObject of Include/cpython/funcobject.h, all versions. */
struct function_fields {
	uint64_t defaults, kwdefaults, closure;
};

static int read_function(struct census_owners *l, const struct node *of, struct function_fields *f)
{
	bool old = l->r->m.l->minor < 10;
	uint64_t w[8]; /* the fields after the head */
	int err = pymem__read(&l->r->m, census_owners__field(l, of, 0), w, sizeof(w));

	f->defaults = old ? w[2] : w[5];
	f->kwdefaults = old ? w[3] : w[6];
	f->closure = old ? w[4] : w[7];
	return err;
}

/* Examines a function's closure: one cell for each variable, by name. */
static int in_closure(struct census_owners *l, const struct node *of, uint64_t closure)
{
	const struct pylayout *y = l->r->m.l;
	uint64_t code, n;
	char name[64];
	int err;

	if (!closure || pydict__check_kind(&l->r->m, closure, PYTYPE_TUPLE))
		return 0;
	err = pymem__u64(&l->r->m, closure + y->ob_size, &n)
		      ?: pymem__u64(&l->r->m, of->obj + y->func_code, &code);
	for (uint64_t i = 0; !err && i < n && i < CELLS_MAX; i++) {
		struct child c = { .of = of };

		if (pylocals__free_name(&l->r->m, code, i, name, sizeof(name)))
			strcpy(name, "?");
		snprintf(c.word, sizeof(c.word), "'s cell %s", name);
		err = in_slot(l, &c, closure + y->tuple_item + 8 * i);
	}
	return err;
}

static int add_word(struct census_owners *l, const struct node *of, const char *word, uint64_t obj)
{
	struct child c = { .of = of };

	if (!obj)
		return 0;
	strcpy(c.word, word);
	return census_owners__add_found(l, &c, obj);
}

static int in_function(struct census_owners *l, const struct node *of)
{
	struct function_fields f;
	int err;

	pymem__begin_unchecked(&l->r->m); /* functions are many, and rarely change */
	err = read_function(l, of, &f);
	pymem__end_unchecked(&l->r->m);
	if (err)
		return err;
	err = in_closure(l, of, f.closure) ?: add_word(l, of, "'s defaults", f.defaults);
	return err ?: add_word(l, of, "'s defaults", f.kwdefaults);
}

/* {fill, used, mask, table}; an entry is {key, hash}: Include/cpython/setobject.h, all versions.
 * The key of a deleted entry is no object. */
static int in_set(struct census_owners *l, struct child *c)
{
	uint64_t head[4], v[2 * CHUNK], n, end;
	int err = pymem__read(&l->r->m, census_owners__field(l, c->of, 0), head, sizeof(head));

	strcpy(c->word, "[*]");
	n = head[2] + 1;
	if (err || !head[1])
		return err;
	if (head[2] >= ARRAY_MAX) {
		leave_out(l, head[3], 2 * head[2]);
		return 0;
	}
	end = end_of_turn(c->of, n, TURN);
	for (uint64_t i = c->of->from; !err && i < end && !census_owners__over_limit(l);
	     i += CHUNK) {
		uint64_t k = end - i < CHUNK ? end - i : CHUNK;

		err = pymem__read(&l->r->m, head[3] + i * 16, v, k * 16);
		for (uint64_t j = 0; !err && j < k; j++)
			err = v[2 * j] ? census_owners__add_found(l, c, v[2 * j]) : 0;
	}
	return err ?: census_owners__add_rest(l, c->of, end, n);
}

/* lru_cache_object of CPython's functools: {root: five words, wrapper, typed, cache, ...}
 * until CPython 3.15. A cache with a limit has links as values. */
static int in_cache(struct census_owners *l, const struct node *of)
{
	uint64_t dict;
	int err = -ENOENT;

	for (unsigned n = 6; err && n < 10; n++)
		err = pymem__u64(&l->r->m, census_owners__field(l, of, n), &dict)
			      ?: pydict__check_kind(&l->r->m, dict, PYTYPE_DICT);
	err = err ?: read_items(l, dict, 0);
	for (size_t i = 0; !err && i < l->it.n && !(i % CHUNK == 0 && census_owners__over_limit(l));
	     i++) {
		struct child c = { .of = of, .word = "'s cache[*]" };

		/* The key is a tuple of the arguments. */
		err = census_owners__add_found(l, &c, l->it.v[i].value)
			      ?: census_owners__add_found(l, &c, l->it.v[i].key);
	}
	return err;
}

static int in_partial(struct census_owners *l, const struct node *of)
{
	uint64_t w[3]; /* fn, args, kw: partialobject of CPython's functools */
	int err = pymem__read(&l->r->m, census_owners__field(l, of, 0), w, sizeof(w));

	if (err)
		return err;
	err = add_word(l, of, ".func", w[0]) ?: add_word(l, of, ".args", w[1]);
	return err ?: add_word(l, of, ".keywords", w[2]);
}

/* Built-in classes keep their attributes elsewhere, and hold nothing of the program. */
static int in_class(struct census_owners *l, const struct node *of)
{
	uint64_t flags, dict;
	int err = pymem__old_u64(&l->r->m, of->obj + l->r->m.l->tp_flags, &flags);

	if (err || !(flags & TYPE_HEAP))
		return err;
	err = pymem__old_u64(&l->r->m, of->obj + l->r->m.l->tp_dict, &dict)
		      ?: read_items(l, dict, 0);
	return err ?: in_items(l, of, ".", "", true);
}

/* Items of a SimpleQueue from CPython 3.13 on: {has_threads_waiting, put_idx, get_idx, items,
 * items_cap, num_items}, a ring. Before, they are in a list. */
static int in_queue(struct census_owners *l, struct child *c)
{
	uint64_t w[6];
	int err = pymem__read(&l->r->m, census_owners__field(l, c->of, 0), w, sizeof(w));

	if (err)
		return err;
	strcpy(c->word, "[*]");
	return w[5] ? array_of(l, c, w[3], w[4]) : 0;
}

/* {it, numread, nextlink, values}: the values that were not read are not initialized. */
static int in_tee(struct census_owners *l, struct child *c)
{
	uint64_t n;
	int err = pymem__u64(&l->r->m, census_owners__field(l, c->of, 1), &n);

	if (err)
		return err;
	err = in_slot(l, c, census_owners__field(l, c->of, 0))
		      ?: in_slot(l, c, census_owners__field(l, c->of, 2));
	if (err)
		return err;
	strcpy(c->word, "[*]");
	c->path = 0;
	n = (uint32_t)n;
	return array_of(l, c, census_owners__field(l, c->of, 3), n < TEE_MAX ? n : TEE_MAX);
}

/* Data of an array of numpy without gaps: {data, nd, dimensions, strides, base, descr, flags}. */
static int in_objects(struct census_owners *l, struct child *c)
{
	uint64_t w[7], dims[DIMS_MAX], n = 1, nd;
	int err = pymem__read(&l->r->m, census_owners__field(l, c->of, 0), w, sizeof(w));

	if (err)
		return err;
	nd = (uint32_t)w[1];
	if (nd > DIMS_MAX || !(w[6] & ARRAY_CONTIGUOUS))
		return -EBADMSG;
	err = nd ? pymem__read(&l->r->m, w[2], dims, nd * sizeof(*dims)) : 0;
	if (err)
		return err;
	for (uint64_t i = 0; i < nd; i++)
		if (__builtin_mul_overflow(n, dims[i], &n))
			return -EBADMSG;
	strcpy(c->word, "[*]");
	return array_of(l, c, w[0], n);
}

static int in_slots(struct census_owners *l, const struct node *of, const struct owner_type *t)
{
	char name[64];
	int err = 0;

	for (unsigned i = 0; !err && i < t->nslots; i++) {
		const struct owner_slot *s = &l->slots[t->slots + i];
		struct child c = { .of = of };

		if (pytype__text(&l->r->m, s->name, name, sizeof(name)) < 0)
			strcpy(name, "?");
		snprintf(c.word, sizeof(c.word), ".%s", name);
		err = in_slot(l, &c, of->obj + s->offset);
		err = census_owners__fatal(err) ? err : 0;
	}
	return err;
}

static int in_shape(struct census_owners *l, const struct node *n)
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
	case SHAPE_FUNCTION:
		return in_function(l, n);
	case SHAPE_CELL:
		return in_slot(l, &c, n->obj + l->r->m.l->cell_ref);
	case SHAPE_THREAD_LOCAL:
		return in_thread_local(l, n);
	case SHAPE_CONTEXT_VAR: /* name, default value; values are in contexts */
		strcpy(c.word, "'s default");
		return in_slot(l, &c, census_owners__field(l, n, 1));
	case SHAPE_SET:
		return in_set(l, &c);
	case SHAPE_CACHE:
		return in_cache(l, n);
	case SHAPE_LINK: /* prev, next, hash, key, result: lru_list_elem */
		return in_slot(l, &c, census_owners__field(l, n, 4));
	case SHAPE_PARTIAL:
		return in_partial(l, n);
	case SHAPE_CLASS:
		return in_class(l, n);
	case SHAPE_METHOD: /* im_func, im_self */
		strcpy(c.word, ".__self__");
		return in_slot(l, &c, census_owners__field(l, n, 1));
	case SHAPE_GENERATOR:
		return in_generator(l, n);
	case SHAPE_FRAME:
		return in_frame_object(l, n, n->obj, "'s variable ");
	case SHAPE_TRACEBACK:
		return in_traceback(l, n);
	case SHAPE_QUEUE:
		return l->r->m.l->minor < 13 ? 0 : in_queue(l, &c);
	case SHAPE_TEE:
		return in_tee(l, &c);
	case SHAPE_OBJECTS:
		return in_objects(l, &c);
	}
	return 0;
}

int census_owners__examine(struct census_owners *l, const struct node *n)
{
	const struct owner_type *t = census_owners__type(l, n->type);
	struct owner_type type = *t; /* a copy: the table moves as it grows */
	int err = in_shape(l, n);

	if (n->from || census_owners__fatal(err)) /* not its first turn */
		return err;
	err = type.attrs ? in_attrs(l, n) : 0;
	if (census_owners__fatal(err))
		return err;
	err = type.nslots ? in_slots(l, n, &type) : 0;
	if (!err && n->shape != SHAPE_GENERATOR && (type.words || type.items))
		err = in_words(l, n, &type);
	return err;
}

int census_owners__add_globals(struct census_owners *l, const char *path, const char *before,
			       const char *only)
{
	struct node of = { .root = l->globals };
	int err = census_owners__add_text(l, path, &of.path);

	for (size_t i = 0; !err && i < l->it.n && !(i % CHUNK == 0 && census_owners__over_limit(l));
	     i++) {
		struct child c = { .of = &of };
		enum shape shape;
		uint64_t type;

		err = census_owners__shape_of(l, l->it.v[i].value, &type, &shape);
		if (err || shape == SHAPE_NONE)
			continue;
		key_word(l, l->it.v[i].key, before, "", c.word, sizeof(c.word));
		/* __builtins__, __annotations__ */
		if (strncmp(c.word + strlen(before), "__", 2) &&
		    !strncmp(c.word + strlen(before), only, strlen(only)))
			err = census_owners__add_found(l, &c, l->it.v[i].value);
	}
	return err;
}

int census_owners__read_dict(struct census_owners *l, uint64_t dict)
{
	int err;

	pymem__begin_unchecked(&l->r->m);
	err = read_items_now(l, dict, 0);
	pymem__end_unchecked(&l->r->m);
	return census_owners__fatal(err) || !err ? err : read_items_now(l, dict, 0);
}
