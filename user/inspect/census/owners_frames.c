/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Variables of functions that no thread runs: of suspended generators and coroutines, and of those
 * that an exception has left. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/census/owners.h"
#include "inspect/python.h"
#include "inspect/python/pylocals.h"

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
static int add_variable(struct census_owners *l, const struct node *of, const char *path,
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
		err = add_variable(l, &from, path, &v[i]);
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
	return err ? err : is_code(l, *code) ? 0 : -EBADMSG;
}

/* From CPython 3.11 on, a frame object points to the frame: {f_back, f_frame, ...}. */
static int in_frame_object(struct census_owners *l, const struct node *of, uint64_t obj,
			   const char *path)
{
	uint64_t frame = obj, code;
	int err = 0;

	if (l->r->m.l->minor >= 11)
		err = pymem__u64(&l->r->m, obj + 24, &frame);
	if (!err)
		err = read_code(l, frame, &code);
	return err ? err : add_frame(l, of, frame, code, path, false);
}

int census_owners__in_frame(struct census_owners *l, const struct node *of)
{
	return in_frame_object(l, of, of->obj, "'s variable ");
}

/* {tb_next, tb_frame, ...}, from the function that handles the exception to the one that raised
 * it. */
int census_owners__in_traceback(struct census_owners *l, const struct node *of)
{
	uint64_t w[4], at = of->obj, type;
	int err = 0;

	for (unsigned i = 0; !err && at && i < TRACEBACK_MAX && !census_owners__over_limit(l);
	     i++) {
		err = pydict__type_of(&l->r->m, at, &type);
		if (!err && type != of->type)
			err = -EBADMSG;
		if (!err)
			err = pymem__read(&l->r->m, at, w, sizeof(w));
		if (err)
			break;
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
	if (!err && *frame)
		err = pymem__read(&l->r->m, *frame - 5, &state, 1);
	return err ? err : *frame && state < 0 ? 0 : -ENOENT;
}

int census_owners__in_generator(struct census_owners *l, const struct node *of)
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
	return err ? err : add_frame(l, of, frame, code, "local ", true);
}
