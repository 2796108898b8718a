/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_DIFF_DIFF_H
#define MT_DIFF_DIFF_H
/*
 * What changed between two recordings: their rows at one moment each, put beside each other. A row
 * is the same in both if its line is (diff/match.h), or its stack, line by line, and its module,
 * phase and category are.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "archive/analysis.h"
#include "diff/match.h"
#include "model/model.h"
#include "report/text.h"

struct json;

enum diff_status { DIFF_GREW, DIFF_SHRANK, DIFF_NEW, DIFF_GONE, DIFF_SAME, DIFF_NR };
const char *diff__status(enum diff_status s); /* "grew", ..., "unchanged" */

struct diff_side {
	const struct analysis *a;
	size_t number; /* of the device, in its model */
	struct model_device device;
	struct row *rows;
	size_t n;
	uint64_t sum; /* of the rows */
};

struct diff_row {
	const struct row *old, *new; /* one of them may be NULL */
	enum diff_status status;
	bool moved; /* the same line under another number */
};

struct diff_sum {
	uint64_t rows, bytes; /* bytes: of the changes, without their sign */
};

struct diff_opts {
	struct model_opts at[MATCH_SIDES];
	enum group by;
	bool any_module; /* with BY_LINE: the modules that share a line are one row */
	bool any_phase, any_category;
};

struct diff {
	struct diff_opts opts;
	struct diff_side side[MATCH_SIDES];
	struct match *match;
	struct diff_row *rows; /* largest change first */
	size_t n;
	struct diff_sum sums[DIFF_NR];
	bool overlap;	 /* rows by layer: they add up to nothing */
	bool adds_up;	 /* the changes are the difference of what was allocated, to the byte */
	int64_t missing; /* what they are short of it */
};

/* Both recordings were run; the devices' moments came. Borrows both. 0 or -ENOMEM. */
int diff__new(const struct analysis *old, size_t old_device, const struct analysis *new,
	      size_t new_device, const struct diff_opts *opts, struct diff **ret);
void diff__free(struct diff *d); /* NULL is fine */
/* Other rows of the same two: by, any_*. 0 or -ENOMEM, and then there are none. */
int diff__again(struct diff *d, const struct diff_opts *opts);

uint64_t diff__old(const struct diff_row *r);
uint64_t diff__new_bytes(const struct diff_row *r);
/* "+2.00 GiB", "-512 B", "0 B". buf of 24. */
char *diff__signed(char *buf, size_t size, uint64_t old, uint64_t new);
/* "-24.7 %"; "" where old is 0. buf of 24. */
char *diff__percent(char *buf, size_t size, uint64_t old, uint64_t new);

struct diff_text_opts {
	size_t top;	/* 0: all */
	unsigned width; /* 0: the terminal's */
	enum report_choice colour;
};
/* 0 or -ENOMEM. Errors of the stream are the caller's to check, here and below. */
int diff_text__print(FILE *out, struct diff *d, const struct diff_text_opts *o);
int diff_json__print(FILE *out, const struct diff *d, size_t top);
int diff_csv__print(FILE *out, const struct diff *d, size_t top);
/* One page for any browser; by stack, whatever d was by. */
int diff_flame__print(FILE *out, struct diff *d);

#endif
