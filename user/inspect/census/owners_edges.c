/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Looks into containers, in the layouts of all versions of CPython that python.h names. */
#include "inspect/census/owners.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"
#include "inspect/python/pylocals.h"
#include "inspect/python/pystr.h"

/* ---- objects of classes in C, such as iterators, futures and contexts: word by word ---- */

#define ITEMS_MAX 1024u /* pointers at the end of an object */

/* Writes the path component of a key: "['loss']", ".loss"; "[*]" if the key is not a short string. */
static void key_word(struct census_owners *owners, uint64_t key, const char *before,
		     const char *after, char *word, size_t size)
{
	char text[64];
	bool is_text;

	pymem__begin_unchecked(&owners->reading->mem); /* a str does not change */
	is_text = !pydict__check_kind(&owners->reading->mem, key, PYTYPE_STR) &&
		  pystr__read(&owners->reading->mem, key, text, sizeof(text), /*cut=*/NULL) >= 0 &&
		  *text;
	pymem__end_unchecked(&owners->reading->mem);
	if (!is_text)
		snprintf(word, size, "[*]");
	else
		snprintf(word, size, "%s%s%s", before, text, after);
}

/* Adds the object that a word of a container points to, if any. word_after is its path component. */
static int add_pointer(struct census_owners *owners, const struct node *holder, uint64_t word,
		       const char *word_after)
{
	struct child child = { .holder = holder };
	enum shape shape;
	uint64_t type;
	int err;

	if (word % 8 || word < LOWEST || word > HIGHEST || word == holder->obj) /* no object */
		return 0;
	err = census_owners__shape_of(owners, word, &type, &shape);
	if (err || shape == SHAPE_NONE)
		return err;
	strcpy(child.word, shape == SHAPE_TRACEBACK ? "'s traceback" : word_after);
	return census_owners__add_found(owners, &child, word);
}

#define HEAD 16		  /* bytes of PyObject: reference count and type */
#define CONTEXTVAR_NAME 8 /* offset of a ContextVar's name from its ob_type */

/* Adds the value of var, a ContextVar: " NAME" is its path component. */
static int add_variable(struct census_owners *owners, const struct node *holder, uint64_t var,
			uint64_t value)
{
	char component[72];
	uint64_t name;
	int err = pymem__u64(&owners->reading->mem,
			     var + owners->reading->mem.layout->ob_type + CONTEXTVAR_NAME, &name);

	if (err)
		return err;
	key_word(owners, name, " ", "", component, sizeof(component));
	return add_pointer(owners, holder, value, component);
}

/* Adds the objects that n words of an object point to. skip: index of a word to leave out. */
static int add_words(struct census_owners *owners, const struct node *holder, const uint64_t *words,
		     uint64_t n, unsigned skip)
{
	enum shape shape;
	uint64_t type;
	int err = 0;

	for (uint64_t i = 0; !err && i < n; i++) {
		if (i == skip || words[i] % 8 || words[i] < LOWEST || words[i] > HIGHEST)
			continue;
		err = census_owners__shape_of(owners, words[i], &type, &shape);
		if (err)
			return err;
		/* In a context, a variable's value follows the variable. */
		if (shape == SHAPE_CONTEXT_VAR && i + 1 < n) {
			err = add_variable(owners, holder, words[i], words[i + 1]);
			i++;
		} else {
			err = add_pointer(owners, holder, words[i],
					  holder->shape == SHAPE_TENSOR ? "'s hooks" : "");
		}
	}
	return err;
}

/* Adds the objects that any word of an object points to, except its dictionary: search_attrs(). */
static int search_words(struct census_owners *owners, const struct node *holder,
			const struct owner_type *type)
{
	uint64_t words[OWNER_WORDS_MAX + ITEMS_MAX], n = type->words, n_items = 0;
	/* the word with the address of the dictionary */
	unsigned dict_index = type->dict ? (type->dict - HEAD) / 8 : UINT_MAX;
	int err = 0;

	pymem__begin_unchecked(&owners->reading->mem);
	if (type->items && pymem__u64(&owners->reading->mem,
				      holder->obj + owners->reading->mem.layout->ob_size, &n_items))
		n_items = 0;
	if (n_items < ITEMS_MAX)
		n += n_items;
	if (n)
		err = pymem__read(&owners->reading->mem, census_owners__field(owners, holder, 0),
				  words, n * sizeof(*words));
	pymem__end_unchecked(&owners->reading->mem);
	return err || !n ? err : add_words(owners, holder, words, n, dict_index);
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
	struct census_owners *owners = ctx;
	enum shape shape;
	uint64_t type;

	return !census_owners__shape_of(owners, obj, &type, &shape) && shape != SHAPE_NONE;
}

/* Adds a variable. Its path component is path and its name; the function is the root's suffix. */
static int add_frame_variable(struct census_owners *owners, const struct node *holder,
			      const char *path, const struct pylocal *local)
{
	char text[PYLOCAL_TEXT], *in;
	struct child child = { .holder = holder };

	if (pylocal__text(&owners->reading->mem, local, text, sizeof(text)) ||
	    !(in = strstr(text, " in ")))
		return 0;
	snprintf(child.word, sizeof(child.word), "%s%.*s", path, (int)(in - text), text);
	return census_owners__add_found(owners, &child, local->obj);
}

/* Opens a root for a frame, by its first variable: " in f (x.py:3)". */
static int open_root(struct census_owners *owners, const struct node *holder,
		     const struct pylocal *local, bool is_end, uint32_t *ret)
{
	char text[PYLOCAL_TEXT], suffix[2 * PYLOCAL_TEXT], *in;

	*ret = holder->root;
	if (pylocal__text(&owners->reading->mem, local, text, sizeof(text)) ||
	    !(in = strstr(text, " in ")))
		return 0;
	snprintf(suffix, sizeof(suffix), "%s%s", in,
		 is_end ? "" : owners->roots[holder->root].suffix);
	return census_owners__open_root(owners, suffix, ret);
}

/* Adds the variables of a frame. path begins their names, after the holder's path unless is_end. */
static int add_frame(struct census_owners *owners, const struct node *holder, uint64_t frame,
		     uint64_t code, const char *path, bool is_end)
{
	struct node from = *holder;
	struct pylocal *locals = NULL;
	size_t n = 0;
	int err;

	if (owners->frames >= FRAMES_MAX) {
		owners->full = true;
		return 0;
	}
	owners->frames++;
	err = pylocals__of_frame(&owners->reading->mem, frame, code, may_matter, owners, &locals,
				 &n);
	if (is_end)
		from.path = 0;
	if (!err && n)
		err = open_root(owners, holder, &locals[0], is_end, &from.root);
	for (size_t i = 0; !err && i < n; i++)
		err = add_frame_variable(owners, &from, path, &locals[i]);
	free(locals);
	return err;
}

static bool is_code(struct census_owners *owners, uint64_t obj)
{
	uint64_t type;

	return obj && !pydict__type_of(&owners->reading->mem, obj, &type) &&
	       type == python__symbol(owners->reading->census->py, "PyCode_Type");
}

/* Sets *code to a frame's code object. -EBADMSG: it has none. */
static int read_code(struct census_owners *owners, uint64_t frame, uint64_t *code)
{
	int err = pymem__u64(&owners->reading->mem, frame + owners->reading->mem.layout->fr_code,
			     code);

	*code &= owners->reading->mem.layout->tag_mask;
	if (err)
		return err;
	return is_code(owners, *code) ? 0 : -EBADMSG;
}

/* From CPython 3.11 on, a frame object points to the frame: {f_back, f_frame, ...}. */
static int search_frame_object(struct census_owners *owners, const struct node *holder,
			       uint64_t obj, const char *path)
{
	uint64_t frame = obj, code;
	int err = 0;

	if (owners->reading->mem.layout->minor >= 11)
		err = pymem__u64(&owners->reading->mem, obj + FRAME_OBJECT_FRAME, &frame);
	err = err ?: read_code(owners, frame, &code);
	return err ?: add_frame(owners, holder, frame, code, path, /*is_end=*/false);
}

/* Adds the variables of all frames of a traceback: {tb_next, tb_frame, ...}, from the function that
 * handles the exception to the one that raised it. */
static int search_traceback(struct census_owners *owners, const struct node *holder)
{
	uint64_t words[4], at = holder->obj,
			   type; /* words: reference count and type, then fields */
	int err = 0;

	for (unsigned i = 0; !err && at && i < TRACEBACK_MAX && !census_owners__over_limit(owners);
	     i++) {
		err = pydict__type_of(&owners->reading->mem, at, &type);
		if (err)
			return err;
		if (type != holder->type)
			return -EBADMSG;
		err = pymem__read(&owners->reading->mem, at, words, sizeof(words));
		if (err)
			return err;
		err = search_frame_object(owners, holder, words[3], ": "); /* tb_frame */
		err = census_owners__fatal(err) ? err : 0;
		at = words[2]; /* tb_next */
	}
	return err;
}

int census_owners__add_exception(struct census_owners *owners, const struct node *holder,
				 uint64_t obj, const char *word)
{
	struct child child = { .holder = holder };
	enum shape shape;
	uint64_t type, flags;
	int err = census_owners__shape_of(owners, obj, &type, &shape);

	if (err || shape != SHAPE_INSTANCE ||
	    pymem__constant_u64(&owners->reading->mem, type + owners->reading->mem.layout->tp_flags,
				&flags) ||
	    !(flags & TYPE_EXCEPTION))
		return err;
	snprintf(child.word, sizeof(child.word), "%s", word);
	return census_owners__add_found(owners, &child, obj);
}

/* Finds the frame inside a generator, from CPython 3.11 on: of the words that point to a code
 * object, the last one is the frame's. gi_frame_state is negative if the frame exists and does not
 * run. 0 or -errno; -ENOENT: there is no such frame. */
static int find_generator_frame(struct census_owners *owners, const struct node *holder,
				uint64_t *frame, uint64_t *code)
{
	const struct pylayout *layout = owners->reading->mem.layout;
	uint64_t words[GENERATOR_WORDS];
	unsigned n = census_owners__type(owners, holder->type)->words;
	int8_t state;
	uint8_t owner;
	int err;

	n = n < GENERATOR_WORDS ? n : GENERATOR_WORDS;
	err = pymem__read(&owners->reading->mem, holder->obj + HEAD, words, n * sizeof(*words));
	*frame = 0;
	for (unsigned i = 0; !err && i < n; i++) {
		uint64_t at = holder->obj + HEAD + 8ull * i - layout->fr_code;

		if (!*frame) /* an exception that it handles */
			err = census_owners__add_exception(owners, holder, words[i], "");
		if (at <= holder->obj + HEAD || !is_code(owners, words[i] & layout->tag_mask) ||
		    pymem__read(&owners->reading->mem, at + layout->fr_owner, &owner, 1) ||
		    owner != OWNED_BY_GENERATOR)
			continue;
		*frame = at;
		*code = words[i] & layout->tag_mask;
	}
	if (err)
		return err;
	if (!*frame)
		return -ENOENT;
	err = pymem__read(&owners->reading->mem, *frame - STATE_BEFORE_FRAME, &state, 1);
	if (err)
		return err;
	return state < 0 ? 0 : -ENOENT;
}

/* Adds the variables of a generator, unless it runs or has ended. */
static int search_generator(struct census_owners *owners, const struct node *holder)
{
	uint64_t frame, code;
	int err;

	if (owners->reading->mem.layout->minor >= 11) {
		err = find_generator_frame(owners, holder, &frame, &code);
	} else { /* {gi_frame, ...} */
		err = pymem__u64(&owners->reading->mem, holder->obj + HEAD, &frame);
		if (!err)
			err = frame ? read_code(owners, frame, &code) : -ENOENT;
	}
	return err ?: add_frame(owners, holder, frame, code, "local ", /*is_end=*/true);
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
static void note_left_out(struct census_owners *owners, uint64_t at, uint64_t n)
{
	uint64_t last, size;

	if (!__builtin_mul_overflow(n - 1, 8, &size) && !__builtin_add_overflow(at, size, &at))
		owners->full |= !pymem__u64(&owners->reading->mem, at, &last);
}

/* Adds the objects that n words at `at` point to, as many as a turn has. */
static int add_array(struct census_owners *owners, struct child *child, uint64_t at, uint64_t n)
{
	uint64_t values[CHUNK], end = end_of_turn(child->holder, n, TURN);
	int err = 0;

	if (n > ARRAY_MAX) {
		note_left_out(owners, at, n);
		return 0;
	}
	for (uint64_t i = child->holder->examined;
	     !err && i < end && !census_owners__over_limit(owners); i += CHUNK) {
		uint64_t k = end - i < CHUNK ? end - i : CHUNK;

		err = pymem__read(&owners->reading->mem, at + i * 8, values, k * 8);
		for (uint64_t j = 0; !err && j < k; j++)
			err = census_owners__add_found(owners, child, values[j]);
	}
	return err ?: census_owners__add_rest(owners, child->holder, end, n);
}

/* Finds the address (*at) and the number (*n) of the items of a list or tuple. */
static int find_items(struct census_owners *owners, const struct node *holder, uint64_t *at,
		      uint64_t *n)
{
	const struct pylayout *layout = owners->reading->mem.layout;
	uint64_t head[2]; /* ob_size, ob_item */
	int err;

	if (holder->shape == SHAPE_TUPLE) {
		*at = holder->obj + layout->tuple_item;
		return pymem__u64(&owners->reading->mem, holder->obj + layout->ob_size, n);
	}
	err = pymem__read(&owners->reading->mem, holder->obj + layout->ob_size, head, sizeof(head));
	*n = head[0];
	*at = head[1];
	return err;
}

/* Adds the items of a list or tuple. A program may have very many with few items, so these are read
 * from cached pages: see read_entries_cached(). */
static int search_list(struct census_owners *owners, struct child *child)
{
	uint64_t values[FEW_ITEMS], at, n;
	bool few;
	int err;

	strcpy(child->word, "[*]");
	pymem__begin_unchecked(&owners->reading->mem);
	err = find_items(owners, child->holder, &at, &n);
	few = !err && n <= FEW_ITEMS;
	if (few && n)
		err = pymem__read(&owners->reading->mem, at, values, n * sizeof(*values));
	pymem__end_unchecked(&owners->reading->mem);
	for (uint64_t i = 0; few && !err && i < n; i++)
		err = census_owners__add_found(owners, child, values[i]);
	if (few || census_owners__fatal(err))
		return err;
	err = find_items(owners, child->holder, &at, &n);
	return err ?: add_array(owners, child, at, n);
}

/* Adds the items of a deque: {ob_size, leftblock, rightblock, leftindex, rightindex}, with blocks
 * of {left, items[64], right}. */
static int search_deque(struct census_owners *owners, struct child *child)
{
	uint64_t head[5], block[DEQUE_BLOCK + 2]; /* fields in the order above */
	uint64_t i = 0,
		 end; /* i: number of the item; items before examined were in earlier turns */
	int err = pymem__read(&owners->reading->mem,
			      child->holder->obj + owners->reading->mem.layout->ob_size, head,
			      sizeof(head));

	strcpy(child->word, "[*]");
	if (err || head[3] >= DEQUE_BLOCK)
		return err;
	end = end_of_turn(child->holder, head[0], turn_of_table(head[0]));
	for (uint64_t at = head[1], index = head[3];
	     !err && i < end && at && !census_owners__over_limit(owners);
	     at = block[DEQUE_BLOCK + 1], index = 0) {
		err = pymem__read(&owners->reading->mem, at, block, sizeof(block));
		for (; !err && i < end && index < DEQUE_BLOCK; index++, i++)
			err = i < child->holder->examined
				      ? 0
				      : census_owners__add_found(owners, child, block[1 + index]);
	}
	return err ?: census_owners__add_rest(owners, child->holder, end, head[0]);
}

/* True if the keys in owners->it are parameters: optimizers of other libraries, too, keep
 * state[parameter]. Only the first key is checked, and its type is read once, because very many
 * dicts have the same first key. */
static bool has_parameters(struct census_owners *owners, const struct node *holder)
{
	uint64_t key = owners->it.n ? owners->it.v[0].key : 0, type;

	if (holder->shape != SHAPE_DICT || !key)
		return false;
	if (key != owners->first_key) {
		owners->first_key = key;
		owners->is_parameter = !pydict__type_of(&owners->reading->mem, key, &type) &&
				       type == owners->reading->census->parameter;
	}
	return owners->is_parameter;
}

/* Adds the values in owners->it. keys_in_path: their path components are their keys between before
 * and after; otherwise all are [*], and are added in turns. */
static int add_items(struct census_owners *owners, const struct node *holder, const char *before,
		     const char *after, bool keys_in_path)
{
	bool state = has_parameters(owners, holder);
	size_t end;
	int err = 0;

	if (keys_in_path) {
		for (size_t i = 0; !err && i < owners->it.n &&
				   !(i % CHUNK == CHUNK - 1 && census_owners__over_limit(owners));
		     i++) {
			struct child child = { .holder = holder, .is_state = state };
			uint64_t type;
			enum shape shape;

			/* Most attributes cannot hold a tensor; skip their names. */
			err = census_owners__shape_of(owners, owners->it.v[i].value, &type, &shape);
			if (err || shape == SHAPE_NONE)
				continue;
			key_word(owners, owners->it.v[i].key, before, after, child.word,
				 sizeof(child.word));
			err = census_owners__add_found(owners, &child, owners->it.v[i].value);
		}
		return err;
	}
	end = end_of_turn(holder, owners->it.n, turn_of_table(owners->it.n));
	for (size_t i = holder->examined;
	     !err && i < end && !(i % CHUNK == 0 && census_owners__over_limit(owners)); i++) {
		struct child child = { .holder = holder, .is_state = state, .word = "[*]" };

		err = census_owners__add_found(owners, &child, owners->it.v[i].value);
	}
	return err ?: census_owners__add_rest(owners, holder, end, owners->it.n);
}

/* Reads the entries of a dict (type 0), or the attributes of an object of this type. */
static int read_entries(struct census_owners *owners, uint64_t obj, uint64_t type)
{
	return type ? pydict__attrs(&owners->reading->mem, obj, type, &owners->it)
		    : pydict__items(&owners->reading->mem, obj, &owners->it);
}

/*
 * As read_entries(), but few entries come from pages that this search has read before: a program
 * may have very many small objects, and a path counts only if the other search finds it, too. If
 * there are many entries, they are read again, because their memory may have moved as they grew.
 */
static int read_entries_cached(struct census_owners *owners, uint64_t obj, uint64_t type)
{
	int err;

	pymem__begin_unchecked(&owners->reading->mem);
	err = read_entries(owners, obj, type);
	pymem__end_unchecked(&owners->reading->mem);
	if (census_owners__fatal(err) || (!err && owners->it.n <= FEW_ITEMS))
		return err;
	return read_entries(owners, obj, type);
}

/* Adds the values of a dict: as ['key'], or as [*] if there are too many for a path each. */
static int search_dict(struct census_owners *owners, const struct node *holder)
{
	int err = read_entries_cached(owners, holder->obj, 0);

	return err ?: add_items(owners, holder, "['", "']", owners->it.n <= WORDS_MAX);
}

/* Adds all attributes of an object: in a path, ".name" follows the object. Returns 0 or -errno. */
static int search_attrs(struct census_owners *owners, const struct node *holder)
{
	int err = read_entries_cached(owners, holder->obj, holder->type);

	return err ?: add_items(owners, holder, ".", "", /*keys_in_path=*/true);
}

/*
 * Finds the dict with each thread's attributes of a threading.local: the last field of {key, args,
 * kw, weakreflist, dummies} until CPython 3.12, of {args, kw, weakreflist, localdicts} later. Its
 * keys are weak references that die with the thread.
 */
static int find_dicts(struct census_owners *owners, const struct node *holder, uint64_t *ret)
{
	int err = -ENOENT;

	for (unsigned n = 3; err && n < 5; n++) /* field 4 or 3 */
		err = pymem__u64(&owners->reading->mem, census_owners__field(owners, holder, n),
				 ret)
			      ?: pydict__check_kind(&owners->reading->mem, *ret, PYTYPE_DICT);
	return err;
}

/* Adds the attributes of a threading.local in all threads. */
static int search_thread_local(struct census_owners *owners, const struct node *holder)
{
	uint64_t dicts, attrs[THREADS_MAX];
	size_t n = 0;
	int err = find_dicts(owners, holder, &dicts)
			  ?: pydict__items(&owners->reading->mem, dicts, &owners->it);

	if (err)
		return err;
	for (; n < owners->it.n && n < THREADS_MAX; n++)
		attrs[n] = owners->it.v[n].value;
	for (size_t i = 0;
	     i < n && !census_owners__fatal(err) && !census_owners__over_limit(owners); i++)
		err = pydict__items(&owners->reading->mem, attrs[i], &owners->it)
			      ?: add_items(owners, holder, ".", "", /*keys_in_path=*/true);
	return err;
}

/* Adds the object whose address is in the word at slot, if any. */
static int add_pointee(struct census_owners *owners, struct child *child, uint64_t slot)
{
	uint64_t obj;
	int err = pymem__u64(&owners->reading->mem, slot, &obj);

	return err || !obj ? err : census_owners__add_found(owners, child, obj);
}

/* Fields of a function: PyFunctionObject of Include/cpython/funcobject.h, all versions. */
struct function_fields {
	uint64_t defaults, kwdefaults, closure;
};

/* Reads the fields of a function. From CPython 3.10 on, three more fields come before these. */
static int read_function(struct census_owners *owners, const struct node *holder,
			 struct function_fields *fields)
{
	bool old = owners->reading->mem.layout->minor < 10;
	uint64_t words[8]; /* the 8 words after the function's PyObject_HEAD */
	int err = pymem__read(&owners->reading->mem, census_owners__field(owners, holder, 0), words,
			      sizeof(words));

	fields->defaults = old ? words[2] : words[5];
	fields->kwdefaults = old ? words[3] : words[6];
	fields->closure = old ? words[4] : words[7];
	return err;
}

/* Examines a function's closure: one cell for each variable, by name. */
static int search_closure(struct census_owners *owners, const struct node *holder, uint64_t closure)
{
	const struct pylayout *layout = owners->reading->mem.layout;
	uint64_t code, n;
	char name[64];
	int err;

	if (!closure || pydict__check_kind(&owners->reading->mem, closure, PYTYPE_TUPLE))
		return 0;
	err = pymem__u64(&owners->reading->mem, closure + layout->ob_size, &n)
		      ?: pymem__u64(&owners->reading->mem, holder->obj + layout->func_code, &code);
	for (uint64_t i = 0; !err && i < n && i < CELLS_MAX; i++) {
		struct child child = { .holder = holder };

		if (pylocals__free_name(&owners->reading->mem, code, i, name, sizeof(name)))
			strcpy(name, "?");
		snprintf(child.word, sizeof(child.word), "'s cell %s", name);
		err = add_pointee(owners, &child, closure + layout->tuple_item + 8 * i);
	}
	return err;
}

/* Adds an object, if any, whose path component is word. */
static int add_field(struct census_owners *owners, const struct node *holder, const char *word,
		     uint64_t obj)
{
	struct child child = { .holder = holder };

	if (!obj)
		return 0;
	strcpy(child.word, word);
	return census_owners__add_found(owners, &child, obj);
}

/* Adds a function's closure and default values. */
static int search_function(struct census_owners *owners, const struct node *holder)
{
	struct function_fields fields;
	int err;

	pymem__begin_unchecked(&owners->reading->mem); /* functions are many, and rarely change */
	err = read_function(owners, holder, &fields);
	pymem__end_unchecked(&owners->reading->mem);
	if (err)
		return err;
	err = search_closure(owners, holder, fields.closure)
		      ?: add_field(owners, holder, "'s defaults", fields.defaults);
	return err ?: add_field(owners, holder, "'s defaults", fields.kwdefaults);
}

/* Adds the items of a set: {fill, used, mask, table}; an entry is {key, hash}. The key of a deleted
 * entry is no object. Include/cpython/setobject.h, all versions. */
static int search_set(struct census_owners *owners, struct child *child)
{
	uint64_t head[4], values[2 * CHUNK], n, end;
	int err = pymem__read(&owners->reading->mem, census_owners__field(owners, child->holder, 0),
			      head, sizeof(head));

	strcpy(child->word, "[*]");
	n = head[2] + 1; /* mask + 1: entries of the table */
	if (err || !head[1])
		return err;
	if (head[2] >= ARRAY_MAX) {
		note_left_out(owners, head[3], 2 * head[2]);
		return 0;
	}
	end = end_of_turn(child->holder, n, TURN);
	for (uint64_t i = child->holder->examined;
	     !err && i < end && !census_owners__over_limit(owners); i += CHUNK) {
		uint64_t chunk = end - i < CHUNK ? end - i : CHUNK;

		err = pymem__read(&owners->reading->mem, head[3] + i * 16, values, chunk * 16);
		for (uint64_t j = 0; !err && j < chunk; j++)
			err = values[2 * j] ? census_owners__add_found(owners, child, values[2 * j])
					    : 0;
	}
	return err ?: census_owners__add_rest(owners, child->holder, end, n);
}

/* Adds arguments and results in a functools.lru_cache: {root: five words, wrapper, typed, cache,
 * ...} until CPython 3.15 (lru_cache_object). A cache with a limit has links as values. */
static int search_cache(struct census_owners *owners, const struct node *holder)
{
	uint64_t dict;
	int err = -ENOENT;

	/* cache is the first field after the root that is a dict */
	for (unsigned n = 6; err && n < 10; n++)
		err = pymem__u64(&owners->reading->mem, census_owners__field(owners, holder, n),
				 &dict)
			      ?: pydict__check_kind(&owners->reading->mem, dict, PYTYPE_DICT);
	err = err ?: read_entries_cached(owners, dict, 0);
	for (size_t i = 0;
	     !err && i < owners->it.n && !(i % CHUNK == 0 && census_owners__over_limit(owners));
	     i++) {
		struct child child = { .holder = holder, .word = "'s cache[*]" };

		/* The key is a tuple of the arguments. */
		err = census_owners__add_found(owners, &child, owners->it.v[i].value)
			      ?: census_owners__add_found(owners, &child, owners->it.v[i].key);
	}
	return err;
}

/* Adds the function and the arguments of a functools.partial. */
static int search_partial(struct census_owners *owners, const struct node *holder)
{
	uint64_t words[3]; /* fn, args, kw: partialobject of CPython's functools */
	int err = pymem__read(&owners->reading->mem, census_owners__field(owners, holder, 0), words,
			      sizeof(words));

	if (err)
		return err;
	err = add_field(owners, holder, ".func", words[0])
		      ?: add_field(owners, holder, ".args", words[1]);
	return err ?: add_field(owners, holder, ".keywords", words[2]);
}

/* Adds a class's attributes. Built-in classes keep theirs elsewhere, and hold nothing of the
 * program. */
static int search_class(struct census_owners *owners, const struct node *holder)
{
	uint64_t flags, dict;
	int err = pymem__constant_u64(&owners->reading->mem,
				      holder->obj + owners->reading->mem.layout->tp_flags, &flags);

	if (err || !(flags & TYPE_HEAP))
		return err;
	err = pymem__constant_u64(&owners->reading->mem,
				  holder->obj + owners->reading->mem.layout->tp_dict, &dict)
		      ?: read_entries_cached(owners, dict, 0);
	return err ?: add_items(owners, holder, ".", "", /*keys_in_path=*/true);
}

/* Adds the items of a queue.SimpleQueue from CPython 3.13 on: {has_threads_waiting, put_idx,
 * get_idx, items, items_cap, num_items}, a ring. Before 3.13 they are in a list. */
static int search_simple_queue(struct census_owners *owners, struct child *child)
{
	uint64_t words[6];
	int err = pymem__read(&owners->reading->mem, census_owners__field(owners, child->holder, 0),
			      words, sizeof(words));

	if (err)
		return err;
	strcpy(child->word, "[*]");
	return words[5] ? add_array(owners, child, words[3], words[4]) : 0;
}

/* Adds the items of an itertools.tee: {it, numread, nextlink, values}. Only numread values are
 * initialized. */
static int search_tee(struct census_owners *owners, struct child *child)
{
	uint64_t n;
	int err = pymem__u64(&owners->reading->mem, census_owners__field(owners, child->holder, 1),
			     &n);

	if (err)
		return err;
	err = add_pointee(owners, child, census_owners__field(owners, child->holder, 0))
		      ?: add_pointee(owners, child, census_owners__field(owners, child->holder, 2));
	if (err)
		return err;
	strcpy(child->word, "[*]");
	child->path = 0;
	n = (uint32_t)n;
	return add_array(owners, child, census_owners__field(owners, child->holder, 3),
			 n < TEE_MAX ? n : TEE_MAX);
}

/* Adds the objects in a numpy.ndarray without gaps: {data, nd, dimensions, strides, base, descr,
 * flags}. */
static int search_ndarray(struct census_owners *owners, struct child *child)
{
	uint64_t words[7] /* fields in the order above */, dims[DIMS_MAX], n = 1, nd;
	int err = pymem__read(&owners->reading->mem, census_owners__field(owners, child->holder, 0),
			      words, sizeof(words));

	if (err)
		return err;
	nd = (uint32_t)words[1];
	if (nd > DIMS_MAX || !(words[6] & ARRAY_CONTIGUOUS))
		return -EBADMSG;
	err = nd ? pymem__read(&owners->reading->mem, words[2], dims, nd * sizeof(*dims)) : 0;
	if (err)
		return err;
	for (uint64_t i = 0; i < nd; i++)
		if (__builtin_mul_overflow(n, dims[i], &n))
			return -EBADMSG;
	strcpy(child->word, "[*]");
	return add_array(owners, child, words[0], n);
}

/* Adds the objects in the __slots__ of an instance. */
static int search_slots(struct census_owners *owners, const struct node *holder,
			const struct owner_type *type)
{
	char name[64];
	int err = 0;

	for (unsigned i = 0; !err && i < type->nslots; i++) {
		const struct owner_slot *slot = &owners->slots[type->slots + i];
		struct child child = { .holder = holder };

		if (pytype__text(&owners->reading->mem, slot->name, name, sizeof(name)) < 0)
			strcpy(name, "?");
		snprintf(child.word, sizeof(child.word), ".%s", name);
		err = add_pointee(owners, &child, holder->obj + slot->offset);
		err = census_owners__fatal(err) ? err : 0;
	}
	return err;
}

/* Adds what a container holds, by its shape. Attributes and slots are not included. */
static int search_by_shape(struct census_owners *owners, const struct node *node)
{
	struct child child = { .holder = node };

	switch (node->shape) {
	case SHAPE_LIST:
	case SHAPE_TUPLE:
		return search_list(owners, &child);
	case SHAPE_DEQUE:
		return search_deque(owners, &child);
	case SHAPE_DICT:
		return search_dict(owners, node);
	case SHAPE_FUNCTION:
		return search_function(owners, node);
	case SHAPE_CELL:
		return add_pointee(owners, &child,
				   node->obj + owners->reading->mem.layout->cell_ref);
	case SHAPE_THREAD_LOCAL:
		return search_thread_local(owners, node);
	case SHAPE_CONTEXT_VAR: /* name, default value; values are in contexts */
		strcpy(child.word, "'s default");
		return add_pointee(owners, &child, census_owners__field(owners, node, 1));
	case SHAPE_SET:
		return search_set(owners, &child);
	case SHAPE_CACHE:
		return search_cache(owners, node);
	case SHAPE_LINK: /* prev, next, hash, key, result: lru_list_elem */
		return add_pointee(owners, &child, census_owners__field(owners, node, 4));
	case SHAPE_PARTIAL:
		return search_partial(owners, node);
	case SHAPE_CLASS:
		return search_class(owners, node);
	case SHAPE_METHOD: /* im_func, im_self */
		strcpy(child.word, ".__self__");
		return add_pointee(owners, &child, census_owners__field(owners, node, 1));
	case SHAPE_GENERATOR:
		return search_generator(owners, node);
	case SHAPE_FRAME:
		return search_frame_object(owners, node, node->obj, "'s variable ");
	case SHAPE_TRACEBACK:
		return search_traceback(owners, node);
	case SHAPE_QUEUE:
		return owners->reading->mem.layout->minor < 13
			       ? 0
			       : search_simple_queue(owners, &child);
	case SHAPE_TEE:
		return search_tee(owners, &child);
	case SHAPE_OBJECTS:
		return search_ndarray(owners, &child);
	}
	return 0;
}

/* Whether the page of the walk that has the node's object has it with the type that was found. */
static bool has_its_type(struct census_owners *owners, const struct node *n)
{
	uint64_t type;
	bool same;

	pymem__begin_unchecked(&owners->reading->mem);
	same = !pydict__type_of(&owners->reading->mem, n->obj, &type) && type == n->type;
	pymem__end_unchecked(&owners->reading->mem);
	return same;
}

/* Whether the node's object is still the one that was found. Its memory may have had another object
 * when the walk read the page, and may have another one by now; the pointers of that one must not
 * pass as this one's. */
static bool is_still_there(struct census_owners *owners, const struct node *n)
{
	if (has_its_type(owners, n))
		return true;
	pymem__forget(&owners->reading->mem);
	return has_its_type(owners, n);
}

/* Each turn examines items. The first one also examines attributes, slots and words. */
int census_owners__examine(struct census_owners *owners, const struct node *n)
{
	const struct owner_type *t = census_owners__type(owners, n->type);
	struct owner_type type = *t; /* a copy: the table moves as it grows */
	int err;

	if (!is_still_there(owners, n))
		return 0;
	err = search_by_shape(owners, n);
	/* The first turn examined the attributes. */
	if (n->examined || census_owners__fatal(err))
		return err;
	err = type.attrs ? search_attrs(owners, n) : 0;
	if (census_owners__fatal(err))
		return err;
	err = type.nslots ? search_slots(owners, n, &type) : 0;
	if (!err && n->shape != SHAPE_GENERATOR && (type.words || type.items))
		err = search_words(owners, n, &type);
	return err;
}

int census_owners__add_globals(struct census_owners *owners, const char *path,
			       const char *separator, const char *prefix)
{
	struct node holder = { .root = owners->globals };
	int err = census_owners__add_text(owners, path, &holder.path);

	for (size_t i = 0;
	     !err && i < owners->it.n && !(i % CHUNK == 0 && census_owners__over_limit(owners));
	     i++) {
		struct child child = { .holder = &holder };
		enum shape shape;
		uint64_t type;

		err = census_owners__shape_of(owners, owners->it.v[i].value, &type, &shape);
		if (err || shape == SHAPE_NONE)
			continue;
		key_word(owners, owners->it.v[i].key, separator, "", child.word,
			 sizeof(child.word));
		/* __builtins__, __annotations__ */
		if (!text__starts(child.word + strlen(separator), "__") &&
		    !strncmp(child.word + strlen(separator), prefix, strlen(prefix)))
			err = census_owners__add_found(owners, &child, owners->it.v[i].value);
	}
	return err;
}

int census_owners__read_dict(struct census_owners *owners, uint64_t dict)
{
	int err;

	pymem__begin_unchecked(&owners->reading->mem);
	err = read_entries(owners, dict, 0);
	pymem__end_unchecked(&owners->reading->mem);
	return census_owners__fatal(err) || !err ? err : read_entries(owners, dict, 0);
}
