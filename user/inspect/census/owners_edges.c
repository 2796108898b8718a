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

/* ---- objects of classes in C, such as iterators, futures and contexts: word by word ---- */

#define ITEMS_MAX 1024u /* pointers at the end of an object */

/* Writes the path component of a key: "['loss']", ".loss"; "[*]" if the key is not a short string. */
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

/* Adds the object that a word of a container points to, if any. word_after is its path component. */
static int add_pointer(struct census_owners *l, const struct node *holder, uint64_t word,
		       const char *word_after)
{
	struct child c = { .holder = holder };
	enum shape shape;
	uint64_t type;
	int err;

	if (word % 8 || word < LOWEST || word > HIGHEST || word == holder->obj)
		return 0;
	err = census_owners__shape_of(l, word, &type, &shape);
	if (err || shape == SHAPE_NONE)
		return err;
	strcpy(c.word, shape == SHAPE_TRACEBACK ? "'s traceback" : word_after);
	return census_owners__add_found(l, &c, word);
}

#define HEAD 16		  /* bytes of PyObject: reference count and type */
#define CONTEXTVAR_NAME 8 /* offset of a ContextVar's name from its ob_type */

/* Adds the value of var, a ContextVar: " NAME" is its path component. */
static int add_variable(struct census_owners *l, const struct node *holder, uint64_t var,
			uint64_t value)
{
	char component[72];
	uint64_t name;
	int err = pymem__u64(&l->r->m, var + l->r->m.l->ob_type + CONTEXTVAR_NAME, &name);

	if (err)
		return err;
	key_word(l, name, " ", "", component, sizeof(component));
	return add_pointer(l, holder, value, component);
}

/* Adds the objects that n words of an object point to. skip: index of a word to leave out. */
static int add_words(struct census_owners *l, const struct node *holder, const uint64_t *w,
		     uint64_t n, unsigned skip)
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
			err = add_variable(l, holder, w[i], w[i + 1]);
			i++;
		} else {
			err = add_pointer(l, holder, w[i],
					  holder->shape == SHAPE_TENSOR ? "'s hooks" : "");
		}
	}
	return err;
}

/* Adds the objects that any word of an object points to, except its dictionary: search_attrs(). */
static int search_words(struct census_owners *l, const struct node *holder,
			const struct owner_type *t)
{
	uint64_t w[OWNER_WORDS_MAX + ITEMS_MAX], n = t->words, n_items = 0;
	unsigned dict_index = t->dict ? (t->dict - HEAD) / 8 : UINT_MAX;
	int err = 0;

	pymem__begin_unchecked(&l->r->m);
	if (t->items && pymem__u64(&l->r->m, holder->obj + l->r->m.l->ob_size, &n_items))
		n_items = 0;
	if (n_items < ITEMS_MAX)
		n += n_items;
	if (n)
		err = pymem__read(&l->r->m, census_owners__field(l, holder, 0), w, n * sizeof(*w));
	pymem__end_unchecked(&l->r->m);
	return err || !n ? err : add_words(l, holder, w, n, dict_index);
}

/* ---- variables of functions that no thread runs: suspended generators, tracebacks ---- */

#define FRAME_OBJECT_FRAME 24 /* PyFrameObject.f_frame, from CPython 3.11 on */
#define STATE_BEFORE_FRAME 5  /* bytes from a generator's gi_frame_state to its frame */

#define FRAMES_MAX 20000u  /* frames examined */
#define TRACEBACK_MAX 512u /* frames of one traceback */
#define GENERATOR_WORDS 32u
#define OWNED_BY_GENERATOR 1
#define TYPE_EXCEPTION (1ul << 30)

/* pylocals__of_frame(): whether the object of a variable may be or hold a tensor. */
static bool may_matter(void *ctx, uint64_t obj)
{
	struct census_owners *l = ctx;
	enum shape shape;
	uint64_t type;

	return !census_owners__shape_of(l, obj, &type, &shape) && shape != SHAPE_NONE;
}

/* Adds a variable. Its path component is path and its name; the function is the root's suffix. */
static int add_frame_variable(struct census_owners *l, const struct node *holder, const char *path,
			      const struct pylocal *v)
{
	char text[PYLOCAL_TEXT], *in;
	struct child c = { .holder = holder };

	if (pylocal__text(&l->r->m, v, text, sizeof(text)) || !(in = strstr(text, " in ")))
		return 0;
	snprintf(c.word, sizeof(c.word), "%s%.*s", path, (int)(in - text), text);
	return census_owners__add_found(l, &c, v->obj);
}

/* Opens a root for a frame, by its first variable: " in f (x.py:3)". */
static int open_root(struct census_owners *l, const struct node *holder, const struct pylocal *v,
		     bool is_end, uint32_t *ret)
{
	char text[PYLOCAL_TEXT], suffix[2 * PYLOCAL_TEXT], *in;

	*ret = holder->root;
	if (pylocal__text(&l->r->m, v, text, sizeof(text)) || !(in = strstr(text, " in ")))
		return 0;
	snprintf(suffix, sizeof(suffix), "%s%s", in, is_end ? "" : l->roots[holder->root].suffix);
	return census_owners__open_root(l, suffix, ret);
}

/* Adds the variables of a frame. path begins their names, after the holder's path unless is_end. */
static int add_frame(struct census_owners *l, const struct node *holder, uint64_t frame,
		     uint64_t code, const char *path, bool is_end)
{
	struct node from = *holder;
	struct pylocal *v = NULL;
	size_t n = 0;
	int err;

	if (l->frames >= FRAMES_MAX) {
		l->full = true;
		return 0;
	}
	l->frames++;
	err = pylocals__of_frame(&l->r->m, frame, code, may_matter, l, &v, &n);
	if (is_end)
		from.path = 0;
	if (!err && n)
		err = open_root(l, holder, &v[0], is_end, &from.root);
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
static int search_frame_object(struct census_owners *l, const struct node *holder, uint64_t obj,
			       const char *path)
{
	uint64_t frame = obj, code;
	int err = 0;

	if (l->r->m.l->minor >= 11)
		err = pymem__u64(&l->r->m, obj + FRAME_OBJECT_FRAME, &frame);
	err = err ?: read_code(l, frame, &code);
	return err ?: add_frame(l, holder, frame, code, path, false);
}

/* Adds the variables of all frames of a traceback: {tb_next, tb_frame, ...}, from the function that
 * handles the exception to the one that raised it. */
static int search_traceback(struct census_owners *l, const struct node *holder)
{
	uint64_t w[4], at = holder->obj, type;
	int err = 0;

	for (unsigned i = 0; !err && at && i < TRACEBACK_MAX && !census_owners__over_limit(l);
	     i++) {
		err = pydict__type_of(&l->r->m, at, &type);
		if (err)
			return err;
		if (type != holder->type)
			return -EBADMSG;
		err = pymem__read(&l->r->m, at, w, sizeof(w));
		if (err)
			return err;
		err = search_frame_object(l, holder, w[3], ": ");
		err = census_owners__fatal(err) ? err : 0;
		at = w[2];
	}
	return err;
}

int census_owners__add_exception(struct census_owners *l, const struct node *holder, uint64_t obj,
				 const char *word)
{
	struct child c = { .holder = holder };
	enum shape shape;
	uint64_t type, flags;
	int err = census_owners__shape_of(l, obj, &type, &shape);

	if (err || shape != SHAPE_INSTANCE ||
	    pymem__constant_u64(&l->r->m, type + l->r->m.l->tp_flags, &flags) ||
	    !(flags & TYPE_EXCEPTION))
		return err;
	snprintf(c.word, sizeof(c.word), "%s", word);
	return census_owners__add_found(l, &c, obj);
}

/* Finds the frame inside a generator, from CPython 3.11 on: of the words that point to a code
 * object, the last one is the frame's. gi_frame_state is negative if the frame exists and does not
 * run. 0 or -errno; -ENOENT: there is no such frame. */
static int find_generator_frame(struct census_owners *l, const struct node *holder, uint64_t *frame,
				uint64_t *code)
{
	const struct pylayout *y = l->r->m.l;
	uint64_t w[GENERATOR_WORDS];
	unsigned n = census_owners__type(l, holder->type)->words;
	int8_t state;
	uint8_t owner;
	int err;

	n = n < GENERATOR_WORDS ? n : GENERATOR_WORDS;
	err = pymem__read(&l->r->m, holder->obj + HEAD, w, n * sizeof(*w));
	*frame = 0;
	for (unsigned i = 0; !err && i < n; i++) {
		uint64_t at = holder->obj + HEAD + 8ull * i - y->fr_code;

		if (!*frame) /* an exception that it handles */
			err = census_owners__add_exception(l, holder, w[i], "");
		if (at <= holder->obj + HEAD || !is_code(l, w[i] & y->tag_mask) ||
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
	err = pymem__read(&l->r->m, *frame - STATE_BEFORE_FRAME, &state, 1);
	if (err)
		return err;
	return state < 0 ? 0 : -ENOENT;
}

static int search_generator(struct census_owners *l, const struct node *holder)
{
	uint64_t frame, code;
	int err;

	if (l->r->m.l->minor >= 11) {
		err = find_generator_frame(l, holder, &frame, &code);
	} else { /* {gi_frame, ...} */
		err = pymem__u64(&l->r->m, holder->obj + HEAD, &frame);
		if (!err)
			err = frame ? read_code(l, frame, &code) : -ENOENT;
	}
	return err ?: add_frame(l, holder, frame, code, "local ", true);
}

/* ---- containers by their shapes ---- */

#define CHUNK 512	     /* items read at once */
#define ARRAY_MAX (1u << 24) /* items of a list or tuple; one with more is left out */
/* A large container is examined in turns, TURN items in each, with others in between. A dict or
 * deque has TURNS turns at most, because each turn must read the items before it again. */
#define TURN 4096u
#define TURNS 8u
#define CELLS_MAX 256 /* variables of a closure */
/* Maximum entries of a dict whose keys appear in names; larger dicts show [*]. */
#define WORDS_MAX 16
#define FEW_ITEMS 64 /* entries of a small dict or object, which is read from cached pages */

#define DEQUE_BLOCK 64
#define TEE_MAX 57u	   /* items of an itertools.tee's block: LINKCELLS */
#define DIMS_MAX 64	   /* dimensions of numpy's arrays */
#define ARRAY_CONTIGUOUS 1 /* NPY_ARRAY_C_CONTIGUOUS */
#define THREADS_MAX 1024   /* threads whose values of one thread-local are examined */

/* End of a container's turn: index of the first item that it does not examine. n: its items. */
static uint64_t end_of_turn(const struct node *holder, uint64_t n, uint64_t turn)
{
	return n > holder->examined && n - holder->examined > turn ? holder->examined + turn : n;
}

/* Items in a turn of a dict or deque of n items, so that it needs at most TURNS turns. */
static uint64_t turn_of_table(uint64_t n)
{
	return n / TURNS > TURN ? n / TURNS : TURN;
}

/* Notes that a container of n words at `at` is left out, because it has too many. If its last word
 * cannot be read, it was freed meanwhile, and n is some other number. */
static void note_left_out(struct census_owners *l, uint64_t at, uint64_t n)
{
	uint64_t last, size;

	if (!__builtin_mul_overflow(n - 1, 8, &size) && !__builtin_add_overflow(at, size, &at))
		l->full |= !pymem__u64(&l->r->m, at, &last);
}

/* Adds the objects that n words at `at` point to, as many as a turn has. */
static int add_array(struct census_owners *l, struct child *c, uint64_t at, uint64_t n)
{
	uint64_t v[CHUNK], end = end_of_turn(c->holder, n, TURN);
	int err = 0;

	if (n > ARRAY_MAX) {
		note_left_out(l, at, n);
		return 0;
	}
	for (uint64_t i = c->holder->examined; !err && i < end && !census_owners__over_limit(l);
	     i += CHUNK) {
		uint64_t k = end - i < CHUNK ? end - i : CHUNK;

		err = pymem__read(&l->r->m, at + i * 8, v, k * 8);
		for (uint64_t j = 0; !err && j < k; j++)
			err = census_owners__add_found(l, c, v[j]);
	}
	return err ?: census_owners__add_rest(l, c->holder, end, n);
}

/* Finds the address and the number of the items of a list or tuple. */
static int find_items(struct census_owners *l, const struct node *holder, uint64_t *at, uint64_t *n)
{
	const struct pylayout *y = l->r->m.l;
	uint64_t head[2]; /* ob_size, ob_item */
	int err;

	if (holder->shape == SHAPE_TUPLE) {
		*at = holder->obj + y->tuple_item;
		return pymem__u64(&l->r->m, holder->obj + y->ob_size, n);
	}
	err = pymem__read(&l->r->m, holder->obj + y->ob_size, head, sizeof(head));
	*n = head[0];
	*at = head[1];
	return err;
}

/* Adds the items of a list or tuple. A program may have very many with few items, so these are read
 * from cached pages: see read_entries_cached(). */
static int search_list(struct census_owners *l, struct child *c)
{
	uint64_t v[FEW_ITEMS], at, n;
	bool few;
	int err;

	strcpy(c->word, "[*]");
	pymem__begin_unchecked(&l->r->m);
	err = find_items(l, c->holder, &at, &n);
	few = !err && n <= FEW_ITEMS;
	if (few && n)
		err = pymem__read(&l->r->m, at, v, n * sizeof(*v));
	pymem__end_unchecked(&l->r->m);
	for (uint64_t i = 0; few && !err && i < n; i++)
		err = census_owners__add_found(l, c, v[i]);
	if (few || census_owners__fatal(err))
		return err;
	err = find_items(l, c->holder, &at, &n);
	return err ?: add_array(l, c, at, n);
}

/* Adds the items of a deque: {ob_size, leftblock, rightblock, leftindex, rightindex}, with blocks
 * of {left, items[64], right}. */
static int search_deque(struct census_owners *l, struct child *c)
{
	uint64_t head[5], block[DEQUE_BLOCK + 2], i = 0, end;
	int err = pymem__read(&l->r->m, c->holder->obj + l->r->m.l->ob_size, head, sizeof(head));

	strcpy(c->word, "[*]");
	if (err || head[3] >= DEQUE_BLOCK)
		return err;
	end = end_of_turn(c->holder, head[0], turn_of_table(head[0]));
	for (uint64_t at = head[1], k = head[3];
	     !err && i < end && at && !census_owners__over_limit(l);
	     at = block[DEQUE_BLOCK + 1], k = 0) {
		err = pymem__read(&l->r->m, at, block, sizeof(block));
		for (; !err && i < end && k < DEQUE_BLOCK; k++, i++)
			err = i < c->holder->examined
				      ? 0
				      : census_owners__add_found(l, c, block[1 + k]);
	}
	return err ?: census_owners__add_rest(l, c->holder, end, head[0]);
}

/* Whether the keys in l->it are parameters: optimizers of other libraries, too, keep
 * state[parameter]. Only the first key is checked, and its type is read once, because very many
 * dicts have the same first key. */
static bool has_parameters(struct census_owners *l, const struct node *holder)
{
	uint64_t key = l->it.n ? l->it.v[0].key : 0, type;

	if (holder->shape != SHAPE_DICT || !key)
		return false;
	if (key != l->first_key) {
		l->first_key = key;
		l->is_parameter = !pydict__type_of(&l->r->m, key, &type) &&
				  type == l->r->c->parameter;
	}
	return l->is_parameter;
}

/* Adds the values in l->it, with their keys in the paths, between before and after, if
 * keys_in_path; otherwise as [*] and in turns. */
static int add_items(struct census_owners *l, const struct node *holder, const char *before,
		     const char *after, bool keys_in_path)
{
	bool state = has_parameters(l, holder);
	size_t end;
	int err = 0;

	if (keys_in_path) {
		for (size_t i = 0; !err && i < l->it.n &&
				   !(i % CHUNK == CHUNK - 1 && census_owners__over_limit(l));
		     i++) {
			struct child c = { .holder = holder, .is_state = state };
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
	end = end_of_turn(holder, l->it.n, turn_of_table(l->it.n));
	for (size_t i = holder->examined;
	     !err && i < end && !(i % CHUNK == 0 && census_owners__over_limit(l)); i++) {
		struct child c = { .holder = holder, .is_state = state, .word = "[*]" };

		err = census_owners__add_found(l, &c, l->it.v[i].value);
	}
	return err ?: census_owners__add_rest(l, holder, end, l->it.n);
}

/* Reads the entries of a dict (type 0), or the attributes of an object of this type. */
static int read_entries(struct census_owners *l, uint64_t obj, uint64_t type)
{
	return type ? pydict__attrs(&l->r->m, obj, type, &l->it)
		    : pydict__items(&l->r->m, obj, &l->it);
}

/*
 * As read_entries(), but few entries come from pages that this search has read before: a program
 * may have very many small objects, and a path counts only if the other search finds it, too. If
 * there are many entries, they are read again, because their memory may have moved as they grew.
 */
static int read_entries_cached(struct census_owners *l, uint64_t obj, uint64_t type)
{
	int err;

	pymem__begin_unchecked(&l->r->m);
	err = read_entries(l, obj, type);
	pymem__end_unchecked(&l->r->m);
	if (census_owners__fatal(err) || (!err && l->it.n <= FEW_ITEMS))
		return err;
	return read_entries(l, obj, type);
}

/* Adds the values of a dict: as ['key'], or as [*] if there are too many for a path each. */
static int search_dict(struct census_owners *l, const struct node *holder)
{
	int err = read_entries_cached(l, holder->obj, 0);

	return err ?: add_items(l, holder, "['", "']", l->it.n <= WORDS_MAX);
}

/* Adds the attributes of an object, whose words are ".name" without an end. As many as there are. */
static int search_attrs(struct census_owners *l, const struct node *holder)
{
	int err = read_entries_cached(l, holder->obj, holder->type);

	return err ?: add_items(l, holder, ".", "", true);
}

/*
 * Finds the dict with each thread's attributes of a threading.local: the last field of {key, args,
 * kw, weakreflist, dummies} until CPython 3.12, of {args, kw, weakreflist, localdicts} later. Its
 * keys are weak references that die with the thread.
 */
static int find_dicts(struct census_owners *l, const struct node *holder, uint64_t *ret)
{
	int err = -ENOENT;

	for (unsigned n = 3; err && n < 5; n++)
		err = pymem__u64(&l->r->m, census_owners__field(l, holder, n), ret)
			      ?: pydict__check_kind(&l->r->m, *ret, PYTYPE_DICT);
	return err;
}

static int search_thread_local(struct census_owners *l, const struct node *holder)
{
	uint64_t dicts, attrs[THREADS_MAX];
	size_t n = 0;
	int err = find_dicts(l, holder, &dicts) ?: pydict__items(&l->r->m, dicts, &l->it);

	if (err)
		return err;
	for (; n < l->it.n && n < THREADS_MAX; n++)
		attrs[n] = l->it.v[n].value;
	for (size_t i = 0; i < n && !census_owners__fatal(err) && !census_owners__over_limit(l);
	     i++)
		err = pydict__items(&l->r->m, attrs[i], &l->it)
			      ?: add_items(l, holder, ".", "", true);
	return err;
}

/* Adds the object whose address is in the word at slot, if any. */
static int add_pointee(struct census_owners *l, struct child *c, uint64_t slot)
{
	uint64_t obj;
	int err = pymem__u64(&l->r->m, slot, &obj);

	return err || !obj ? err : census_owners__add_found(l, c, obj);
}

/* Fields of a function: PyFunctionObject of Include/cpython/funcobject.h, all versions. */
struct function_fields {
	uint64_t defaults, kwdefaults, closure;
};

/* Reads the fields of a function. From CPython 3.10 on, three more fields come before these. */
static int read_function(struct census_owners *l, const struct node *holder,
			 struct function_fields *f)
{
	bool old = l->r->m.l->minor < 10;
	uint64_t w[8]; /* the 8 words after the function's PyObject_HEAD */
	int err = pymem__read(&l->r->m, census_owners__field(l, holder, 0), w, sizeof(w));

	f->defaults = old ? w[2] : w[5];
	f->kwdefaults = old ? w[3] : w[6];
	f->closure = old ? w[4] : w[7];
	return err;
}

/* Examines a function's closure: one cell for each variable, by name. */
static int search_closure(struct census_owners *l, const struct node *holder, uint64_t closure)
{
	const struct pylayout *y = l->r->m.l;
	uint64_t code, n;
	char name[64];
	int err;

	if (!closure || pydict__check_kind(&l->r->m, closure, PYTYPE_TUPLE))
		return 0;
	err = pymem__u64(&l->r->m, closure + y->ob_size, &n)
		      ?: pymem__u64(&l->r->m, holder->obj + y->func_code, &code);
	for (uint64_t i = 0; !err && i < n && i < CELLS_MAX; i++) {
		struct child c = { .holder = holder };

		if (pylocals__free_name(&l->r->m, code, i, name, sizeof(name)))
			strcpy(name, "?");
		snprintf(c.word, sizeof(c.word), "'s cell %s", name);
		err = add_pointee(l, &c, closure + y->tuple_item + 8 * i);
	}
	return err;
}

/* Adds an object, if any, whose path component is word. */
static int add_field(struct census_owners *l, const struct node *holder, const char *word,
		     uint64_t obj)
{
	struct child c = { .holder = holder };

	if (!obj)
		return 0;
	strcpy(c.word, word);
	return census_owners__add_found(l, &c, obj);
}

static int search_function(struct census_owners *l, const struct node *holder)
{
	struct function_fields f;
	int err;

	pymem__begin_unchecked(&l->r->m); /* functions are many, and rarely change */
	err = read_function(l, holder, &f);
	pymem__end_unchecked(&l->r->m);
	if (err)
		return err;
	err = search_closure(l, holder, f.closure)
		      ?: add_field(l, holder, "'s defaults", f.defaults);
	return err ?: add_field(l, holder, "'s defaults", f.kwdefaults);
}

/* Adds the items of a set: {fill, used, mask, table}; an entry is {key, hash}. The key of a deleted
 * entry is no object. Include/cpython/setobject.h, all versions. */
static int search_set(struct census_owners *l, struct child *c)
{
	uint64_t head[4], v[2 * CHUNK], n, end;
	int err = pymem__read(&l->r->m, census_owners__field(l, c->holder, 0), head, sizeof(head));

	strcpy(c->word, "[*]");
	n = head[2] + 1;
	if (err || !head[1])
		return err;
	if (head[2] >= ARRAY_MAX) {
		note_left_out(l, head[3], 2 * head[2]);
		return 0;
	}
	end = end_of_turn(c->holder, n, TURN);
	for (uint64_t i = c->holder->examined; !err && i < end && !census_owners__over_limit(l);
	     i += CHUNK) {
		uint64_t k = end - i < CHUNK ? end - i : CHUNK;

		err = pymem__read(&l->r->m, head[3] + i * 16, v, k * 16);
		for (uint64_t j = 0; !err && j < k; j++)
			err = v[2 * j] ? census_owners__add_found(l, c, v[2 * j]) : 0;
	}
	return err ?: census_owners__add_rest(l, c->holder, end, n);
}

/* Adds arguments and results in a functools.lru_cache: {root: five words, wrapper, typed, cache,
 * ...} until CPython 3.15 (lru_cache_object). A cache with a limit has links as values. */
static int search_cache(struct census_owners *l, const struct node *holder)
{
	uint64_t dict;
	int err = -ENOENT;

	for (unsigned n = 6; err && n < 10; n++)
		err = pymem__u64(&l->r->m, census_owners__field(l, holder, n), &dict)
			      ?: pydict__check_kind(&l->r->m, dict, PYTYPE_DICT);
	err = err ?: read_entries_cached(l, dict, 0);
	for (size_t i = 0; !err && i < l->it.n && !(i % CHUNK == 0 && census_owners__over_limit(l));
	     i++) {
		struct child c = { .holder = holder, .word = "'s cache[*]" };

		/* The key is a tuple of the arguments. */
		err = census_owners__add_found(l, &c, l->it.v[i].value)
			      ?: census_owners__add_found(l, &c, l->it.v[i].key);
	}
	return err;
}

static int search_partial(struct census_owners *l, const struct node *holder)
{
	uint64_t w[3]; /* fn, args, kw: partialobject of CPython's functools */
	int err = pymem__read(&l->r->m, census_owners__field(l, holder, 0), w, sizeof(w));

	if (err)
		return err;
	err = add_field(l, holder, ".func", w[0]) ?: add_field(l, holder, ".args", w[1]);
	return err ?: add_field(l, holder, ".keywords", w[2]);
}

/* Adds a class's attributes. Built-in classes keep theirs elsewhere, and hold nothing of the
 * program. */
static int search_class(struct census_owners *l, const struct node *holder)
{
	uint64_t flags, dict;
	int err = pymem__constant_u64(&l->r->m, holder->obj + l->r->m.l->tp_flags, &flags);

	if (err || !(flags & TYPE_HEAP))
		return err;
	err = pymem__constant_u64(&l->r->m, holder->obj + l->r->m.l->tp_dict, &dict)
		      ?: read_entries_cached(l, dict, 0);
	return err ?: add_items(l, holder, ".", "", true);
}

/* Adds the items of a queue.SimpleQueue from CPython 3.13 on: {has_threads_waiting, put_idx,
 * get_idx, items, items_cap, num_items}, a ring. Before 3.13 they are in a list. */
static int search_simple_queue(struct census_owners *l, struct child *c)
{
	uint64_t w[6];
	int err = pymem__read(&l->r->m, census_owners__field(l, c->holder, 0), w, sizeof(w));

	if (err)
		return err;
	strcpy(c->word, "[*]");
	return w[5] ? add_array(l, c, w[3], w[4]) : 0;
}

/* Adds the items of an itertools.tee: {it, numread, nextlink, values}. Only numread values are
 * initialized. */
static int search_tee(struct census_owners *l, struct child *c)
{
	uint64_t n;
	int err = pymem__u64(&l->r->m, census_owners__field(l, c->holder, 1), &n);

	if (err)
		return err;
	err = add_pointee(l, c, census_owners__field(l, c->holder, 0))
		      ?: add_pointee(l, c, census_owners__field(l, c->holder, 2));
	if (err)
		return err;
	strcpy(c->word, "[*]");
	c->path = 0;
	n = (uint32_t)n;
	return add_array(l, c, census_owners__field(l, c->holder, 3), n < TEE_MAX ? n : TEE_MAX);
}

/* Adds the objects in a numpy.ndarray without gaps: {data, nd, dimensions, strides, base, descr,
 * flags}. */
static int search_ndarray(struct census_owners *l, struct child *c)
{
	uint64_t w[7], dims[DIMS_MAX], n = 1, nd;
	int err = pymem__read(&l->r->m, census_owners__field(l, c->holder, 0), w, sizeof(w));

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
	return add_array(l, c, w[0], n);
}

static int search_slots(struct census_owners *l, const struct node *holder,
			const struct owner_type *t)
{
	char name[64];
	int err = 0;

	for (unsigned i = 0; !err && i < t->nslots; i++) {
		const struct owner_slot *s = &l->slots[t->slots + i];
		struct child c = { .holder = holder };

		if (pytype__text(&l->r->m, s->name, name, sizeof(name)) < 0)
			strcpy(name, "?");
		snprintf(c.word, sizeof(c.word), ".%s", name);
		err = add_pointee(l, &c, holder->obj + s->offset);
		err = census_owners__fatal(err) ? err : 0;
	}
	return err;
}

static int search_by_shape(struct census_owners *l, const struct node *n)
{
	struct child c = { .holder = n };

	switch (n->shape) {
	case SHAPE_LIST:
	case SHAPE_TUPLE:
		return search_list(l, &c);
	case SHAPE_DEQUE:
		return search_deque(l, &c);
	case SHAPE_DICT:
		return search_dict(l, n);
	case SHAPE_FUNCTION:
		return search_function(l, n);
	case SHAPE_CELL:
		return add_pointee(l, &c, n->obj + l->r->m.l->cell_ref);
	case SHAPE_THREAD_LOCAL:
		return search_thread_local(l, n);
	case SHAPE_CONTEXT_VAR: /* name, default value; values are in contexts */
		strcpy(c.word, "'s default");
		return add_pointee(l, &c, census_owners__field(l, n, 1));
	case SHAPE_SET:
		return search_set(l, &c);
	case SHAPE_CACHE:
		return search_cache(l, n);
	case SHAPE_LINK: /* prev, next, hash, key, result: lru_list_elem */
		return add_pointee(l, &c, census_owners__field(l, n, 4));
	case SHAPE_PARTIAL:
		return search_partial(l, n);
	case SHAPE_CLASS:
		return search_class(l, n);
	case SHAPE_METHOD: /* im_func, im_self */
		strcpy(c.word, ".__self__");
		return add_pointee(l, &c, census_owners__field(l, n, 1));
	case SHAPE_GENERATOR:
		return search_generator(l, n);
	case SHAPE_FRAME:
		return search_frame_object(l, n, n->obj, "'s variable ");
	case SHAPE_TRACEBACK:
		return search_traceback(l, n);
	case SHAPE_QUEUE:
		return l->r->m.l->minor < 13 ? 0 : search_simple_queue(l, &c);
	case SHAPE_TEE:
		return search_tee(l, &c);
	case SHAPE_OBJECTS:
		return search_ndarray(l, &c);
	}
	return 0;
}

/* Each turn examines items. The first one also examines attributes, slots and words. */
int census_owners__examine(struct census_owners *l, const struct node *n)
{
	const struct owner_type *t = census_owners__type(l, n->type);
	struct owner_type type = *t; /* a copy: the table moves as it grows */
	int err = search_by_shape(l, n);

	/* The first turn examined the attributes. */
	if (n->examined || census_owners__fatal(err))
		return err;
	err = type.attrs ? search_attrs(l, n) : 0;
	if (census_owners__fatal(err))
		return err;
	err = type.nslots ? search_slots(l, n, &type) : 0;
	if (!err && n->shape != SHAPE_GENERATOR && (type.words || type.items))
		err = search_words(l, n, &type);
	return err;
}

int census_owners__add_globals(struct census_owners *l, const char *path, const char *separator,
			       const char *prefix)
{
	struct node holder = { .root = l->globals };
	int err = census_owners__add_text(l, path, &holder.path);

	for (size_t i = 0; !err && i < l->it.n && !(i % CHUNK == 0 && census_owners__over_limit(l));
	     i++) {
		struct child c = { .holder = &holder };
		enum shape shape;
		uint64_t type;

		err = census_owners__shape_of(l, l->it.v[i].value, &type, &shape);
		if (err || shape == SHAPE_NONE)
			continue;
		key_word(l, l->it.v[i].key, separator, "", c.word, sizeof(c.word));
		/* __builtins__, __annotations__ */
		if (strncmp(c.word + strlen(separator), "__", 2) &&
		    !strncmp(c.word + strlen(separator), prefix, strlen(prefix)))
			err = census_owners__add_found(l, &c, l->it.v[i].value);
	}
	return err;
}

int census_owners__read_dict(struct census_owners *l, uint64_t dict)
{
	int err;

	pymem__begin_unchecked(&l->r->m);
	err = read_entries(l, dict, 0);
	pymem__end_unchecked(&l->r->m);
	return census_owners__fatal(err) || !err ? err : read_entries(l, dict, 0);
}
