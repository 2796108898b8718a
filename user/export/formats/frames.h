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
	/* Source file; NULL for notes in brackets, and for modules unless FRAMES_CALLS is set. */
	const char *file;
	uint32_t line; /* line in the file; 0: unknown */
	enum frame_kind kind;
};

struct frames;

enum frames_show {
	/* The frame of a module call is the function of nn.Module that makes the call, with its
	 * file and line, and with the module in brackets: "Module._wrapped_call_impl [blocks.0
	 * (Block)]".
	 */
	FRAMES_CALLS = 1,
	/* Memory from before attach has a frame with the name of the object that holds it. The rows
	   must come from frames__rows(). */
	FRAMES_HOLDERS = 2,
};

/* Borrows d and facts. show: flags of enum frames_show. Returns NULL if memory is short. */
struct frames *frames__new(const struct dict *d, const struct facts *facts, unsigned show);
void frames__free(struct frames *f); /* NULL is fine */
struct holder_rows;
/* Gets the model's rows. Memory from before attach has one row for each object that holds it.
 * Returns as model__rows(). The caller frees ret with holder_rows__free(). */
int frames__rows(const struct model *m, size_t device, const struct row_opts *opts,
		 struct holder_rows *ret);
size_t frames__count(const struct frames *f); /* number of different frames so far */
/* Returns the frame with number i, which stays valid until the next frames__of_row(). */
const struct frame *frames__at(const struct frames *f, uint32_t i);
/* Sets *ret to the numbers of a row's frames, outermost first, and *n to their count, at least 1.
 * The row must be grouped BY_STACK. *ret belongs to f and is valid until the next call. Returns 0
 * or -ENOMEM. */
int frames__of_row(struct frames *f, const struct row *row, const uint32_t **ret, uint32_t *n);
/* Sets *ret to the frame "[smaller stacks]", for all rows that a format leaves out. Returns 0 or
 * -ENOMEM. */
int frames__smaller(struct frames *f, uint32_t *ret);

/* Returns the kind of code that a file has, according to files__origin(). */
enum frame_kind frames__kind_of_file(const char *file, const struct facts *facts);
