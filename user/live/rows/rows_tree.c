/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sorts inclusive module rows as a tree: children follow their parent, siblings in the requested
 * order. */
#include "live/rows/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 64 /* deeper modules are shown at this depth */

struct node {
	size_t row, parent; /* index of the row and of its parent; SIZE_MAX: none */
	size_t first, next; /* first child and next sibling as index + 1; 0: none */
	unsigned depth;
};

struct tree {
	struct live_rows *r;
	struct node *all;
	size_t n;
	bool (*is_open)(void *ctx, uint64_t key, unsigned depth);
	void *ctx;
};

static const char *root_of(const struct row *r)
{
	return r->module_root ? r->module_root : "";
}

/* True if module a contains b or is b. */
static bool is_in(const struct row *a, const struct row *b)
{
	size_t len = strlen(a->module);

	if (a->before_attach || b->before_attach || a->filtered != b->filtered ||
	    strcmp(root_of(a), root_of(b)) != 0)
		return false;
	if (!len)
		return *b->module && *root_of(a);
	return !strncmp(a->module, b->module, len) && b->module[len] == '.';
}

/* Orders a module before its children: "." sorts before all other characters of a name. */
static int compare_names(const char *a, const char *b)
{
	for (; *a && *a == *b; a++, b++)
		;
	if (*a == *b)
		return 0;
	if (!*a || !*b)
		return *a ? 1 : -1;
	if (*a == '.' || *b == '.')
		return *a == '.' ? -1 : 1;
	return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

static int by_place(const void *x, const void *y)
{
	const struct row *a = &((const struct live_row *)x)->row,
			 *b = &((const struct live_row *)y)->row;
	int c = strcmp(root_of(a), root_of(b));

	if (a->filtered != b->filtered)
		return a->filtered ? 1 : -1;
	if (a->before_attach != b->before_attach)
		return a->before_attach ? 1 : -1;
	return c ? c : compare_names(a->module, b->module);
}

/* Finds the parents of rows in tree order: a parent is an ancestor of the row before. */
static void link_parents(struct tree *t)
{
	size_t above = SIZE_MAX;

	for (size_t i = 0; i < t->n; i++) {
		struct node *x = &t->all[i];

		while (above != SIZE_MAX && !is_in(&t->r->all[above].row, &t->r->all[i].row))
			above = t->all[above].parent;
		*x = (struct node){ .row = i,
				    .parent = above,
				    .depth = above == SIZE_MAX ? 0 : t->all[above].depth + 1 };
		if (x->depth < DEEPEST)
			above = i;
	}
}

/* Builds the child lists from the last row to the first, so that prepending keeps the order. */
static void link_children(struct tree *t, const size_t *order, size_t *roots)
{
	for (size_t i = t->n; i-- > 0;) {
		struct node *x = &t->all[order[i]];
		size_t *head = x->parent == SIZE_MAX ? roots : &t->all[x->parent].first;

		x->next = *head;
		*head = order[i] + 1;
	}
}

/* Writes the visible rows in display order, then the hidden ones. */
static void lay_out(struct tree *t, size_t roots, struct live_row *to)
{
	size_t shown = 0, hidden = t->n, id = roots;

	while (id) {
		struct node *x = &t->all[id - 1];
		struct live_row *row = &t->r->all[x->row];
		bool open = x->first && t->is_open(t->ctx, row->key, x->depth);
		struct node *up;

		row->depth = x->depth;
		row->has_inside = x->first;
		row->open = open;
		row->under = x->parent == SIZE_MAX ? NULL
						   : t->r->all[t->all[x->parent].row].row.module;
		to[shown++] = *row;
		row->taken = true;
		if (open) {
			id = x->first;
			continue;
		}
		for (up = x; !up->next && up->parent != SIZE_MAX;)
			up = &t->all[up->parent];
		id = up->next;
	}
	t->r->shown = shown;
	for (size_t i = 0; i < t->n; i++)
		if (!t->r->all[i].taken)
			to[--hidden] = t->r->all[i];
	for (size_t i = 0; i < t->n; i++)
		to[i].taken = false;
}

struct sorting {
	const struct live_rows *r;
	enum live_sort sort;
};

static int by_sort(const void *a, const void *b, void *ctx)
{
	const struct sorting *s = ctx;

	return live_row__compare(&s->r->all[*(const size_t *)a], &s->r->all[*(const size_t *)b],
				 s->sort);
}

int live_rows__tree(struct live_rows *r, enum live_sort sort,
		    bool (*is_open)(void *ctx, uint64_t key, unsigned depth), void *ctx)
{
	struct tree t = { .r = r, .n = r->n, .is_open = is_open, .ctx = ctx };
	struct live_row *to = calloc(r->n + 1, sizeof(*to));
	size_t *order = calloc(r->n + 1, sizeof(*order)), roots = 0;
	struct sorting sorting = { r, sort };

	t.all = calloc(r->n + 1, sizeof(*t.all));
	if (!to || !order || !t.all) {
		free(to);
		free(order);
		free(t.all);
		return -ENOMEM;
	}
	if (r->n)
		qsort(r->all, r->n, sizeof(*r->all), by_place);
	link_parents(&t);
	for (size_t i = 0; i < r->n; i++)
		order[i] = i;
	if (r->n)
		qsort_r(order, r->n, sizeof(*order), by_sort, &sorting);
	link_children(&t, order, &roots);
	lay_out(&t, roots, to);
	free(r->all);
	r->all = to;
	free(order);
	free(t.all);
	return 0;
}
