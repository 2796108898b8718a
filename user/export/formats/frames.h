/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Converts a model's rows to stacks of frames for stack formats. A module call becomes one frame
 * with the module's name, without the frames inside nn.Module. Memory without a complete Python
 * stack gets a frame in brackets with the reason. Equal frames have one number, assigned in order
 * of first use.
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
	/* "forward", "encoder.layers.0 (TransformerEncoderLayer)" or "[before attach]";
	 * untrusted text */
	const char *name;
	/* NULL: none, as for notes, and for modules without FRAMES_CALLS */
	const char *file;
	uint32_t line; /* line; 0: not known */
	enum frame_kind kind;
};

struct frames;

enum frames_show {
	/*
	 * Module calls are the function of nn.Module that makes the call, with file, line and
	 * module: "Module._wrapped_call_impl [blocks.0 (Block)]".
	 */
	FRAMES_CALLS = 1,
	/* Memory from before attach has a frame with the name of what holds it. For rows of
	 * frames__rows(). */
	FRAMES_HOLDERS = 2,
};

/* Borrows d and facts. show: enum frames_show. NULL: no memory. */
struct frames *frames__new(const struct dict *d, const struct facts *facts, unsigned show);
void frames__free(struct frames *f); /* NULL is fine */
struct holder_rows;
/* The model's rows, where memory from before attach has one row for each holder. Returns as
 * model__rows(); free ret with holder_rows__free(). */
int frames__rows(const struct model *m, size_t device, const struct row_opts *opts,
		 struct holder_rows *ret);
size_t frames__count(const struct frames *f);
/* The frame with number i, valid until the next frames__of_row(). */
const struct frame *frames__at(const struct frames *f, uint32_t i);
/* The frames of a row grouped BY_STACK, outermost first; at least one. *ret belongs to f and is
 * valid until the next call. Returns 0 or -ENOMEM. */
int frames__of_row(struct frames *f, const struct row *row, const uint32_t **ret, uint32_t *n);
/* The frame that stands for all rows a format leaves out. Returns 0 or -ENOMEM. */
int frames__smaller(struct frames *f, uint32_t *ret);

/* The kind of code a file belongs to; see files__origin(). */
enum frame_kind frames__kind_of_file(const char *file, const struct facts *facts);
