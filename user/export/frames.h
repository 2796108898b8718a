/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_FRAMES_H
#define MT_EXPORT_FRAMES_H
/*
 * The rows of a model as stacks of frames to show. What all stack formats share: a call of a module
 * is a frame with the module's name instead of nn.Module's own machinery, and memory without a
 * whole Python stack gets a frame in brackets that says why. Frames are numbered in order of first
 * use and alike ones have one number.
 */
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

enum frame_kind {
	FRAME_USER,
	FRAME_MODULE,
	FRAME_TORCH,
	FRAME_LIBRARY,
	FRAME_STDLIB,
	FRAME_NOTE,
	FRAME_KIND_NR
};

struct frame {
	const char *name; /* "forward", "encoder.layers.0 (TransformerEncoderLayer)", "[before
			     attach]"; hostile text */
	const char *file; /* NULL: none, as for notes, and for modules unless frames__keep_calls() */
	uint32_t line;	  /* 0: unknown */
	enum frame_kind kind;
};

struct frames;

struct frames *frames__new(const struct dict *d,
			   const struct facts *facts); /* borrows both. NULL on ENOMEM */
void frames__free(struct frames *f);		       /* NULL is fine */
/*
 * From now on a module's frame is that of nn.Module's function which calls it, with its file and
 * line and the module behind the function's name: "Module._wrapped_call_impl [blocks.0 (Block)]".
 * Before the first row. 0 or -ENOMEM.
 */
int frames__keep_calls(struct frames *f);
size_t frames__count(const struct frames *f);
const struct frame *frames__at(const struct frames *f,
			       uint32_t i); /* good until the next frames__of_row() */
/* The frames of a row grouped BY_STACK, outermost first, never none; *ret is f's, good until the
 * next call. 0 or -ENOMEM. */
int frames__of_row(struct frames *f, const struct row *row, const uint32_t **ret, uint32_t *n);
/* The frame for what a format does not show one by one. 0 or -ENOMEM. */
int frames__smaller(struct frames *f, uint32_t *ret);

/* What a file is part of: see files__origin(). */
enum frame_kind frames__kind_of_file(const char *file, const struct facts *facts);

#endif
