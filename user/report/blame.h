/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPORT_BLAME_H
#define MT_REPORT_BLAME_H
/* Which lines are to blame for a figure that is too large: what was largest, what grew most, what
 * holds memory back. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "archive/analysis.h"
#include "cond/cond.h"
#include "model/growth.h"
#include "model/model.h"

#define BLAME_ROWS 8

enum blame_kind {
	BLAME_NONE,
	BLAME_LARGEST,	  /* rows by bytes at the moment, the peak or the first out of memory */
	BLAME_GREW,	  /* bytes: by how much each line did */
	BLAME_HOLDS_BACK, /* bytes that cannot go back to CUDA, by the line that holds most of their
			     segment */
	BLAME_OTHERS,	  /* what other code than the allocator took */
};

struct blame {
	enum blame_kind kind;
	enum moment at;		     /* of BLAME_LARGEST */
	struct row rows[BLAME_ROWS]; /* words owned by the set that was given */
	size_t n;
	uint64_t whole; /* bytes of all there are; 0: not known */
	char note[320]; /* what else is to be said, cleaned; "" */
};

struct strings;
/*
 * Lines are rows by line and category, whatever module and phase. Growth is by line between the
 * same two moments as the figure's, to the byte.
 *
 * Of a figure of a device (its index), from a recording that was run. at: of what moment its model
 * is; where another is wanted it is read once more, unless it is standard input, and then the note
 * says so. g: growth of that device, by line; NULL: was not watched. 0 or -ENOMEM.
 */
int blame__find(struct analysis *a, size_t device, const struct cond_result *of,
		const struct model_opts *at, bool innermost, const struct growth *g,
		struct strings *words, struct blame *ret);
const char *blame__kind(
	enum blame_kind k); /* "largest", "grew", "holds_back", "others"; of none NULL */

#endif
