/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The source lines behind a figure that is too large: the largest, the fastest growing, or those
 * that hold memory back. */
#include <stdbool.h>
#include <stddef.h>

#include "model/analysis.h"
#include "model/growth.h"
#include "model/model.h"
#include "record/cond.h"

#define BLAME_ROWS 8

enum blame_kind {
	BLAME_NONE,
	BLAME_LARGEST, /* bytes at the moment, at the peak or at the first out of memory */
	BLAME_GREW,    /* growth of each line in bytes */
	/* bytes that cannot go back to CUDA, for the line with most bytes in the segment */
	BLAME_HOLDS_BACK,
	BLAME_OTHERS, /* bytes that other code than the allocator took */
};

struct blame {
	enum blame_kind kind;
	enum moment at;		     /* moment of BLAME_LARGEST */
	struct row rows[BLAME_ROWS]; /* strings owned by the set passed to the functions below */
	size_t n;
	char note[320]; /* a further sentence, cleaned; "": none */
};

struct strings;
/*
 * Finds the lines for a condition's figure. Rows are by line and category, over all modules and
 * phases. Growth is by line, to the byte, between the two moments of the figure.
 *
 * The recording was run to its end. device: index in the model; at: the model's moment. For another
 * moment, the recording is read again; standard input is not, and the note says so. g: growth of
 * the device by line; NULL: not watched. Returns 0 or -ENOMEM.
 */
int blame__find(struct analysis *a, size_t device, const struct cond_result *of,
		const struct model_opts *at, enum frame_choice which_line, const struct growth *g,
		struct strings *words, struct blame *ret);
const char *blame__kind(
	/* Returns "largest", "grew", "holds_back" or "others"; NULL for no kind. */
	enum blame_kind k);
