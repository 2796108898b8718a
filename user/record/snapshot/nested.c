/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/nested.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define STACK_MOST (1u << 26) /* most values on the stack */
#define MEMO_MOST (1u << 28)  /* largest index of the memo */

/* A list or dict under construction. A list whose values have consecutive numbers needs no items. */
struct box {
	struct value_list list;
	size_t cap;
	size_t memo_no; /* index in the memo, + 1; 0: none */
	size_t at;	/* index in the stack, unless other values went below it */
	bool dict, used;
	uint32_t next_no; /* links the boxes that can be used again */
};

void nested__init(struct nested *v, struct records *r)
{
	*v = (struct nested){ .records = r };
}

void nested__free(struct nested *v)
{
	for (size_t i = 0; i < v->n_boxes; i++)
		free(v->boxes[i].list.items);
	free(v->boxes);
	free(v->stack);
	free(v->memo);
	*v = (struct nested){ 0 };
}

/* Sets why the file cannot be read. Returns -EBADMSG. */
static int bad(struct nested *v, const char *why)
{
	v->why = why;
	return -EBADMSG;
}

int nested__push(struct nested *v, value x)
{
	if (x == UINT64_MAX)
		return -errno;
	if (v->n == STACK_MOST)
		return bad(v, "it nests or lists too much at once");
	if (array__grow(&v->stack, &v->cap, v->n + 1, sizeof(*v->stack)))
		return -ENOMEM;
	v->stack[v->n++] = x;
	return 0;
}

int nested__push_text(struct nested *v, const void *bytes, size_t len)
{
	return nested__push(v, records__text(v->records, bytes, len));
}

int nested__mark(struct nested *v)
{
	if (v->n_marks == NESTED_DEPTH)
		return bad(v, "it nests too deep");
	v->marks[v->n_marks++].at = v->n;
	return 0;
}

/* Index in the stack of the first value above the last mark, which it removes. SIZE_MAX: there is
 * no mark. */
static size_t take_mark(struct nested *v)
{
	return v->n_marks ? v->marks[--v->n_marks].at : SIZE_MAX;
}

/* The lowest index in the stack that an operation may take. */
static size_t floor_of(const struct nested *v)
{
	return v->n_marks ? v->marks[v->n_marks - 1].at : 0;
}

/* ---- containers ---- */

/* Makes all items explicit, with room for `more` others. Returns 0 or -ENOMEM. */
static int spread(struct box *b, size_t more)
{
	struct value_list *l = &b->list;
	bool run = b->cap == 0 && l->n;

	if (array__grow(&l->items, &b->cap, l->n + more, sizeof(*l->items)))
		return -ENOMEM;
	for (size_t i = 0; run && i < l->n; i++)
		l->items[i] = l->first + ((value)i << VALUE_BITS);
	return 0;
}

/* Adds a value to a container; without memory, as long as its values have consecutive numbers.
 * Returns 0 or -ENOMEM. */
static int add_item(struct box *b, value x)
{
	struct value_list *l = &b->list;
	bool is_next = !l->n || x == l->first + ((value)l->n << VALUE_BITS); /* consecutive */

	if (!b->cap && !b->dict && is_next) {
		l->first = l->n ? l->first : x;
		l->n++;
		return 0;
	}
	if (l->n >= b->cap && spread(b, 1))
		return -ENOMEM;
	l->items[l->n++] = x;
	return 0;
}

/* Makes a record of an open container, and puts it into *x. Other values stay. Returns 0 or -errno.
 */
static int close_value(struct nested *v, value *x)
{
	uint32_t i = (uint32_t)value__number(*x);
	struct box *b;
	value made;

	if (value__kind(*x) != VALUE_OPEN)
		return 0;
	b = &v->boxes[i];
	if (b->dict) {
		made = records__dict(v->records, b->list.items, b->list.n);
	} else {
		if (!b->cap)
			b->list.items = NULL;
		made = records__list(v->records, &b->list);
		b->list.items = NULL;
		b->cap = 0;
	}
	if (b->memo_no)
		v->memo[b->memo_no - 1] = made;
	b->used = false;
	b->next_no = v->free_no;
	v->free_no = i + 1;
	*x = made;
	return made == UINT64_MAX ? -errno : 0;
}

/* Makes a record of the open dict at the top of the stack, because another list or dict begins:
 * only a value of the same list can follow a dict like that. PyTorch's C++ code writes a list of
 * any length in one piece. */
static int finish_dict_below(struct nested *v)
{
	value *x = v->n > floor_of(v) ? &v->stack[v->n - 1] : NULL;

	if (!x || value__kind(*x) != VALUE_OPEN || !v->boxes[value__number(*x)].dict)
		return 0;
	return close_value(v, x);
}

/* Pushes an empty container. Returns 0, -ENOMEM, or -EBADMSG with v->why. */
static int open_box(struct nested *v, bool dict)
{
	uint32_t i;
	struct box *b;
	int err = finish_dict_below(v);

	if (err)
		return err;
	i = v->free_no;
	if (i) {
		i--;
		v->free_no = v->boxes[i].next_no;
	} else {
		if (array__grow(&v->boxes, &v->cap_boxes, v->n_boxes + 1, sizeof(*v->boxes)))
			return -ENOMEM;
		i = (uint32_t)v->n_boxes++;
		v->boxes[i] = (struct box){ .used = false };
	}
	b = &v->boxes[i];
	b->used = true;
	b->dict = dict;
	b->memo_no = 0;
	b->next_no = 0;
	b->at = v->n;
	b->list.n = 0;
	return nested__push(v, value__of(VALUE_OPEN, i));
}

int nested__open_list(struct nested *v)
{
	return open_box(v, /*dict=*/false);
}

int nested__open_dict(struct nested *v)
{
	return open_box(v, /*dict=*/true);
}

/* The open container below the values from index `first` on. NULL: no such container. */
static struct box *container(struct nested *v, size_t first, bool dict)
{
	value x = first > floor_of(v) && first <= v->n ? v->stack[first - 1] : 0;
	struct box *b = value__kind(x) == VALUE_OPEN ? &v->boxes[value__number(x)] : NULL;

	return b && b->dict == dict ? b : NULL;
}

/* Adds the values from index `first` on to the container below. Returns 0, -errno, or -EBADMSG with
 * v->why. */
static int add_all(struct nested *v, size_t first, bool dict)
{
	struct box *b;
	int err = 0;

	if (first > v->n || !container(v, first, dict) || (dict && (v->n - first) % 2))
		return bad(v, "an item has no list or dict");
	for (size_t i = first; i < v->n && !err; i++)
		err = close_value(v, &v->stack[i]);
	b = container(v, first, dict); /* closing moves no box, but may have failed */
	for (size_t i = first; i < v->n && !err; i++)
		err = add_item(b, v->stack[i]);
	v->n = first;
	return err;
}

int nested__append(struct nested *v, bool last)
{
	size_t first = last ? v->n - 1 : take_mark(v);

	return add_all(v, v->n || !last ? first : SIZE_MAX, /*dict=*/false);
}

int nested__set_items(struct nested *v, bool last)
{
	size_t first = last ? v->n - 2 : take_mark(v);

	return add_all(v, v->n > 1 || !last ? first : SIZE_MAX, /*dict=*/true);
}

int nested__tuple(struct nested *v, size_t n)
{
	size_t first = v->n - n;
	struct value_list l = { .n = n };
	int err = 0;
	value x;

	if (v->n < n || first < floor_of(v))
		return bad(v, "a tuple has no items");
	for (size_t i = first; i < v->n && !err; i++)
		err = close_value(v, &v->stack[i]);
	if (err)
		return err;
	if (n == 2) {
		x = records__pair(v->records, v->stack[first], v->stack[first + 1]);
	} else {
		l.items = n ? malloc(n * sizeof(*l.items)) : NULL;
		if (n && !l.items)
			return -ENOMEM;
		if (n)
			memcpy(l.items, v->stack + first, n * sizeof(*l.items));
		x = records__list(v->records, &l);
	}
	v->n = first;
	return nested__push(v, x);
}

int nested__close_tuple(struct nested *v)
{
	size_t first = take_mark(v);

	return first > v->n ? bad(v, "a tuple has no begin") : nested__tuple(v, v->n - first);
}

/* Makes a container of the values above the last mark. Returns 0, -errno, or -EBADMSG with v->why. */
static int close_container(struct nested *v, bool dict)
{
	size_t first = take_mark(v);
	value made;
	int err;

	if (first > v->n)
		return bad(v, "a list has no begin");
	err = open_box(v, dict);
	if (err)
		return err;
	/* the container goes below its items */
	made = v->stack[v->n - 1];
	memmove(v->stack + first + 1, v->stack + first, (v->n - 1 - first) * sizeof(*v->stack));
	v->stack[first] = made;
	return add_all(v, first + 1, dict);
}

int nested__close_list(struct nested *v)
{
	return close_container(v, /*dict=*/false);
}

int nested__close_dict(struct nested *v)
{
	return close_container(v, /*dict=*/true);
}

/* ---- memo ---- */

int nested__put(struct nested *v, uint64_t index)
{
	value x = v->n > floor_of(v) ? v->stack[v->n - 1] : UINT64_MAX;

	if (x == UINT64_MAX)
		return bad(v, "the memo stores a value that is not there");
	/* Picklers number their memo from 0 or 1 on: one index may be left out. */
	if (index > v->n_memo + 1 || index > MEMO_MOST)
		return bad(v, "the numbers of its memo have gaps");
	if (index >= v->n_memo) {
		if (array__grow(&v->memo, &v->cap_memo, index + 1, sizeof(*v->memo)))
			return -ENOMEM;
		for (; v->n_memo <= index; v->n_memo++)
			v->memo[v->n_memo] = value__of(VALUE_OTHER, 0);
	}
	v->memo[index] = x;
	if (value__kind(x) == VALUE_OPEN) {
		struct box *b = &v->boxes[value__number(x)];

		if (b->memo_no)
			return bad(v, "the memo stores a list or dict twice");
		b->memo_no = index + 1;
	}
	return 0;
}

int nested__memoize(struct nested *v)
{
	return nested__put(v, v->n_memo);
}

/* Makes a record of an open list or dict that is needed again, as the frame of a recursive function
 * in one list of frames. It must be complete. With a mark above it, it is around the place that
 * needs it, and so within itself. One that takes a single item, without a mark, is around it, too:
 * that item then has no list or dict. */
static int close_again(struct nested *v, value x)
{
	size_t at = v->boxes[value__number(x)].at;

	for (size_t i = 0; i < v->n_marks; i++)
		if (v->marks[i].at == at + 1)
			return bad(v, "a list or dict is within itself");
	if (at >= v->n || v->stack[at] != x)
		return bad(v, "a list or dict is within itself");
	return close_value(v, &v->stack[at]);
}

int nested__get(struct nested *v, uint64_t index)
{
	if (index >= v->n_memo)
		return bad(v, "it uses a value that its memo does not have");
	if (value__kind(v->memo[index]) == VALUE_OPEN) {
		int err = close_again(v, v->memo[index]);

		if (err)
			return err;
	}
	return nested__push(v, v->memo[index]);
}

int nested__finish(struct nested *v, value *ret)
{
	int err;

	if (v->n != 1 || v->n_marks)
		return bad(v, "it ends within a value");
	err = close_value(v, &v->stack[0]);
	*ret = v->stack[0];
	v->n = 0;
	return err;
}
