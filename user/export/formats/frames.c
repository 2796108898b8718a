/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/frames.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "memtrace.h"
#include "model/holders.h"
#include "record/dict.h"
#include "record/files.h"

/* Frames that stand for what a stack lacks. */
enum note {
	NOTE_BEFORE,
	NOTE_BEFORE_HISTORY,
	NOTE_BACKWARD,
	NOTE_NATIVE,
	NOTE_UNREADABLE,
	NOTE_OFF,
	NOTE_CUT,
	NOTE_OUTER_UNREADABLE,
	NOTE_UNRESOLVED,
	NOTE_SMALLER,
};

static const char *const notes[] = {
	[NOTE_BEFORE] = "[before attach]",
	[NOTE_BEFORE_HISTORY] = "[before the history]",
	[NOTE_BACKWARD] = "[backward, no Python frame]",
	[NOTE_NATIVE] = "[native thread]",
	[NOTE_UNREADABLE] = "[stack unreadable]",
	[NOTE_OFF] = "[Python stacks not read]",
	[NOTE_CUT] = "[outer frames cut off]",
	[NOTE_OUTER_UNREADABLE] = "[outer frames unreadable]",
	[NOTE_UNRESOLVED] = "[frame without a name]",
	[NOTE_SMALLER] = "[smaller stacks]",
};

/* Keys in frames.by_key: one of these flags, and in the low bits the number of the location,
 * module, note or holder. */
#define KEY_LOC (UINT64_C(1) << 32)
#define KEY_MODULE (UINT64_C(2) << 32)
#define KEY_NOTE (UINT64_C(3) << 32)
#define KEY_HOLDER (UINT64_C(4) << 32)
/* Key of an autograd node: this flag and the address of its class name. */
#define KEY_NODE (UINT64_C(1) << 63)

struct frames {
	const struct dict *dict;
	const struct facts *facts;
	struct map64 *by_key;
	struct map64 *calls;  /* (module, location) -> frame; NULL: modules have no location */
	struct dict *holders; /* names of the holders of memory from before attach; NULL: without
				 FRAMES_HOLDERS */
	struct frame *all;
	char **owned; /* owned[i]: the name of all[i] if frames owns it; NULL: the dict has the name
		       */
	size_t n, room, room_owned;
	uint32_t *row; /* the result of frames__of_row() */
	size_t row_room;
};

struct frames *frames__new(const struct dict *d, const struct facts *facts, unsigned show)
{
	struct frames *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->dict = d;
	f->facts = facts;
	f->by_key = map64__new();
	if (show & FRAMES_CALLS)
		f->calls = map64__new();
	if (show & FRAMES_HOLDERS)
		f->holders = dict__new();
	if (!f->by_key)
		goto no_memory;
	if (show & FRAMES_CALLS && !f->calls)
		goto no_memory;
	if (show & FRAMES_HOLDERS && !f->holders)
		goto no_memory;
	return f;
no_memory:
	frames__free(f);
	errno = ENOMEM;
	return NULL;
}

void frames__free(struct frames *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++)
		free(f->owned[i]);
	map64__free(f->by_key);
	map64__free(f->calls);
	dict__free(f->holders);
	free(f->owned);
	free(f->all);
	free(f->row);
	free(f);
}

int frames__rows(const struct model *m, size_t device, const struct row_opts *opts,
		 struct holder_rows *ret)
{
	return holder_rows__of(m, device, opts, opts->when != ROWS_TOTAL, ret);
}

size_t frames__count(const struct frames *f)
{
	return f->n;
}

const struct frame *frames__at(const struct frames *f, uint32_t i)
{
	return &f->all[i];
}

enum frame_kind frames__kind_of_file(const char *file, const struct facts *facts)
{
	static const enum frame_kind kinds[] = {
		[FILE_USER] = FRAME_USER,
		[FILE_TORCH] = FRAME_TORCH,
		[FILE_PACKAGE] = FRAME_LIBRARY,
		[FILE_STDLIB] = FRAME_STDLIB,
	};

	return kinds[files__origin(file, facts)];
}

/* Makes room for one more frame, whose index must fit 32 bits. Returns 0 or -ENOMEM. */
static int make_room(struct frames *f)
{
	if (f->n >= UINT32_MAX)
		return -ENOMEM;
	return array__grow(&f->all, &f->room, f->n + 1, sizeof(*f->all))
		       ?: array__grow(&f->owned, &f->room_owned, f->n + 1, sizeof(*f->owned));
}

/* Adds a frame under a key of the map. owned: its name, if that must be freed later; the function
 * frees it on failure. Returns 0 and sets *ret, or returns -ENOMEM. */
static int add_to_map(struct frames *f, struct map64 *map, uint64_t key, struct frame frame,
		      char *owned, uint32_t *ret)
{
	int err = make_room(f);

	if (!err)
		err = map64__set(map, key, f->n);
	if (err) {
		free(owned);
		return err;
	}
	f->all[f->n] = frame;
	f->owned[f->n] = owned;
	*ret = f->n++;
	return 0;
}

/* As add_to_map(), for the keys KEY_*. */
static int add_frame(struct frames *f, uint64_t key, struct frame frame, char *owned, uint32_t *ret)
{
	return add_to_map(f, f->by_key, key, frame, owned, ret);
}

/* Sets *ret to the frame of a note. Returns 0 or -ENOMEM. */
static int add_note(struct frames *f, enum note which, uint32_t *ret)
{
	uint64_t i;

	if (map64__get(f->by_key, KEY_NOTE | which, &i)) {
		*ret = i;
		return 0;
	}
	return add_frame(f, KEY_NOTE | which,
			 (struct frame){ .name = notes[which], .kind = FRAME_NOTE }, /*owned=*/NULL,
			 ret);
}

/* Sets *ret to the frame of a module: "name (class)". Returns 0 or -ENOMEM. */
static int add_module(struct frames *f, uint32_t id, uint32_t *ret)
{
	struct dict_module m = dict__get_module(f->dict, id);
	const char *name = dict__str(f->dict, m.name);
	const char *cls = dict__str(f->dict, m.cls);
	struct frame frame = { .kind = FRAME_MODULE };
	char *label = NULL;
	uint64_t i;

	if (map64__get(f->by_key, KEY_MODULE | id, &i)) {
		*ret = i;
		return 0;
	}
	/* The root module has no name. */
	frame.name = *name ? name : "[module without a name]";
	if (*cls) {
		int n = *name ? asprintf(&label, "%s (%s)", name, cls)
			      : asprintf(&label, "%s (model)", cls);

		if (n < 0)
			return -ENOMEM;
		frame.name = label;
	}
	return add_frame(f, KEY_MODULE | id, frame, label, ret);
}

/* Sets *ret to the frame of a line of a function, or to a note if nothing is known about it.
 * Returns 0 or -ENOMEM. */
static int add_location(struct frames *f, uint32_t id, uint32_t *ret)
{
	struct dict_loc l = dict__get_loc(f->dict, id);
	struct frame frame = {
		.name = dict__str(f->dict, l.func),
		.file = dict__str(f->dict, l.file),
		.line = l.line,
	};
	uint64_t i;

	if (map64__get(f->by_key, KEY_LOC | id, &i)) {
		*ret = i;
		return 0;
	}
	if (!*frame.name && !*frame.file)
		return add_note(f, NOTE_UNRESOLVED, ret);
	frame.kind = frames__kind_of_file(frame.file, f->facts);
	if (!*frame.file)
		frame.file = NULL;
	if (!*frame.name)
		frame.name = "[function without a name]";
	return add_frame(f, KEY_LOC | id, frame, /*owned=*/NULL, ret);
}

/* Sets *ret to the frame of a module call as FRAMES_CALLS says. Returns 0 or -ENOMEM. */
static int add_call(struct frames *f, const struct dict_frame *call, uint32_t *ret)
{
	struct dict_loc l = dict__get_loc(f->dict, call->loc);
	uint64_t key = (uint64_t)call->module << 32 | call->loc, i;
	struct frame frame;
	const char *file = dict__str(f->dict, l.file);
	char *label;
	int err;

	if (map64__get(f->calls, key, &i)) {
		*ret = i;
		return 0;
	}
	err = add_module(f, call->module, ret);
	if (err)
		return err;
	if (asprintf(&label, "%s [%s]", dict__str(f->dict, l.func), f->all[*ret].name) < 0)
		return -ENOMEM;
	frame = (struct frame){
		.name = label, .file = *file ? file : NULL, .line = l.line, .kind = FRAME_MODULE
	};
	return add_to_map(f, f->calls, key, frame, label, ret);
}

/* Sets *ret to the frame of an autograd node. cls: a string of the dict, which has each string
 * once. Returns 0 or -ENOMEM. */
static int add_node(struct frames *f, const char *cls, uint32_t *ret)
{
	uint64_t key = KEY_NODE | (uintptr_t)cls, i;

	if (map64__get(f->by_key, key, &i)) {
		*ret = i;
		return 0;
	}
	return add_frame(f, key, (struct frame){ .name = cls, .kind = FRAME_TORCH }, /*owned=*/NULL,
			 ret);
}

/* Sets *ret to the frame of an object that holds memory from before attach. Returns 0 or -ENOMEM. */
static int add_holder(struct frames *f, const char *name, uint32_t *ret)
{
	uint32_t id = dict__string(f->holders, name, strlen(name));
	char *copy;
	uint64_t i;

	if (id == UINT32_MAX)
		return -ENOMEM;
	if (map64__get(f->by_key, KEY_HOLDER | id, &i)) {
		*ret = i;
		return 0;
	}
	copy = strdup(dict__str(f->holders, id));
	if (!copy)
		return -ENOMEM;
	return add_frame(f, KEY_HOLDER | id, (struct frame){ .name = copy, .kind = FRAME_NOTE },
			 copy, ret);
}

/* Returns the note that says why a row has no Python frames. */
static enum note why_empty(const struct row *row, const struct dict_stack *s)
{
	if (row->before_attach)
		return row->history ? NOTE_BEFORE_HISTORY : NOTE_BEFORE;
	switch (row->stack ? s->walk : MT_WALK_OK) {
	case MT_WALK_OFF:
		return NOTE_OFF;
	case MT_WALK_FAULT_THREAD:
	case MT_WALK_FAULT_FRAME:
	case MT_WALK_BUSY:
	case MT_WALK_LOST:
		return NOTE_UNREADABLE;
	}
	if (row->phase == PHASE_BACKWARD)
		return NOTE_BACKWARD;
	return row->source && !strcmp(row->source, "untraced") ? NOTE_UNREADABLE : NOTE_NATIVE;
}

/* Besides the frames of its stack, a row may have a note, a holder and an autograd node. */
#define EXTRA_FRAMES 3

int frames__of_row(struct frames *f, const struct row *row, const uint32_t **ret, uint32_t *n)
{
	struct dict_stack s = dict__get_stack(f->dict, row->before_attach ? 0 : row->stack);
	uint32_t used = 0;
	int err = 0;

	if (array__grow(&f->row, &f->row_room, (size_t)s.n + EXTRA_FRAMES, sizeof(*f->row)))
		return -ENOMEM;
	if (!s.n)
		err = add_note(f, why_empty(row, &s), &f->row[used++]);
	else if (s.walk == MT_WALK_TRUNCATED)
		err = add_note(f, NOTE_CUT, &f->row[used++]);
	else if (s.walk == MT_WALK_FAULT_FRAME)
		err = add_note(f, NOTE_OUTER_UNREADABLE, &f->row[used++]);
	for (uint32_t i = s.n; i > 0 && !err; i--) { /* the dict has the innermost first */
		const struct dict_frame *frame = &s.frames[i - 1];

		if (frame->module && frame->loc && f->calls)
			err = add_call(f, frame, &f->row[used++]);
		else if (frame->module)
			err = add_module(f, frame->module, &f->row[used++]);
		else
			err = add_location(f, frame->loc, &f->row[used++]);
	}
	if (!err && f->holders && row->before_attach && row->name && *row->name)
		err = add_holder(f, row->name, &f->row[used++]);
	if (err)
		return err;
	if (row__has_leaf(row))
		err = add_node(f, row->node_class, &f->row[used++]);
	if (err)
		return err;
	*ret = f->row;
	*n = used;
	return 0;
}

int frames__smaller(struct frames *f, uint32_t *ret)
{
	return add_note(f, NOTE_SMALLER, ret);
}
