/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The stack and the memo of a reader of nested data (a pickle, JSON). A list or dict is open until
 * its container takes it; then records.h makes a record of it. An open one has only the keys and
 * values of its own level, so memory stays small. All functions return 0, -ENOMEM, -ENOSPC (a
 * bound of records.h), or -EBADMSG with the reason in nested.why.
 */
#include <stddef.h>
#include <stdint.h>

#include "record/snapshot/records.h"

#define NESTED_DEPTH 64 /* marks that may be open at once, which bounds the depth of nesting */

struct nested {
	struct records *records;
	const char *why; /* static text for -EBADMSG */
	value *stack;
	size_t n, cap;
	struct {
		size_t at; /* index in the stack of the first value above the mark */
	} marks[NESTED_DEPTH];
	size_t n_marks;
	value *memo;
	size_t n_memo, cap_memo;
	struct box *boxes;
	size_t n_boxes, cap_boxes;
	uint32_t free_no; /* a box that can be used again; 0: none */
};

void nested__init(struct nested *v, struct records *r);
void nested__free(struct nested *v);

int nested__push(struct nested *v, value x);
int nested__push_text(struct nested *v, const void *bytes, size_t len);
int nested__open_list(struct nested *v); /* pushes an empty list */
int nested__open_dict(struct nested *v);
int nested__mark(struct nested *v);
/* Takes the values above the last mark, or with `last` the last one (of a dict, two), and adds them
 * to the container below. */
int nested__append(struct nested *v, bool last);
int nested__set_items(struct nested *v, bool last);
/* Makes a tuple of the last n values. */
int nested__tuple(struct nested *v, size_t n);
/* The same of the values above the last mark, which it removes. */
int nested__close_tuple(struct nested *v);
int nested__close_list(struct nested *v);
int nested__close_dict(struct nested *v);
/* The memo of a pickle: values by index, to be used again. nested__put() stores the last value of
 * the stack, which stays there; nested__get() pushes the value at an index. An index may be at most
 * one above the next free one. */
int nested__put(struct nested *v, uint64_t index);
int nested__memoize(struct nested *v); /* nested__put() at the next free index */
int nested__get(struct nested *v, uint64_t index);
/* Takes the only value of the stack. */
int nested__finish(struct nested *v, value *ret);
