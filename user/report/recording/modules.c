/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The tree of a device's modules. */
#include "report/recording/modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/filter.h"

static int cmp_names(const char *root_a, const char *a, const char *root_b, const char *b)
{
	int c = strcmp(root_a, root_b);

	return c ? c : strcmp(a, b);
}

static int cmp_node(const void *a, const void *b)
{
	const struct module_node *x = a, *y = b;

	return cmp_names(x->root, x->name, y->root, y->name);
}

static struct module_node *find(const struct module_tree *t, const char *root, const char *name,
				size_t len)
{
	size_t lo = 0, hi = t->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		struct module_node *x = &t->all[mid];
		int c = strcmp(x->root, root);

		if (!c)
			c = strncmp(x->name, name, len);
		if (!c)
			c = x->name[len] != '\0';
		if (!c)
			return x;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

/* Finds the parent of "a.b.c": "a.b" if it exists, then "a", then the root "". */
static struct module_node *parent_of(const struct module_tree *t, const struct module_node *x)
{
	size_t len = strlen(x->name);
	struct module_node *p;

	if (!len)
		return NULL;
	do {
		while (len && x->name[len - 1] != '.')
			len--;
		len -= len > 0; /* the dot */
		p = find(t, x->root, x->name, len);
	} while (!p && len);
	return p;
}

/* Sorts the largest last, because link_nodes() puts each node at the front of its list. */
static int cmp_total(const void *a, const void *b, void *ctx)
{
	const struct module_node *all = ctx, *x = &all[*(const uint32_t *)a],
				 *y = &all[*(const uint32_t *)b];

	if (x->total != y->total)
		return x->total < y->total ? -1 : 1;
	return x < y ? 1 : x > y ? -1 : 0;
}

static int link_nodes(struct module_tree *t)
{
	uint32_t *order = calloc(t->n + 1, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++)
		order[i] = i;
	qsort_r(order, t->n, sizeof(*order), cmp_total, t->all);
	t->roots = 0;
	for (size_t i = 0; i < t->n; i++) {
		struct module_node *x = &t->all[order[i]], *p = parent_of(t, x);
		uint32_t *first = p ? &p->first : &t->roots;

		x->parent = p ? p - t->all + 1 : 0;
		x->next = *first;
		*first = order[i] + 1;
	}
	free(order);
	return 0;
}

static bool is_module(const struct row *r)
{
	return !r->before_attach && (*r->module || *r->module_class);
}

/* Takes totals from the rows by layer and each module's own bytes from the rows by module. */
static int build(struct module_tree *t, const struct row *layers, size_t nlayers,
		 const struct row *own, size_t nown)
{
	t->all = calloc(nlayers + 1, sizeof(*t->all));
	if (!t->all)
		return -ENOMEM;
	for (size_t i = 0; i < nlayers; i++)
		if (is_module(&layers[i]) && !layers[i].filtered)
			t->all[t->n++] = (struct module_node){
				.root = layers[i].module_root,
				.name = layers[i].module,
				.cls = layers[i].module_class,
				.total = layers[i].bytes,
				.count = layers[i].count,
			};
	qsort(t->all, t->n, sizeof(*t->all), cmp_node);
	for (size_t i = 0; i < nown; i++) {
		struct module_node *x = is_module(&own[i])
						? find(t, own[i].module_root, own[i].module,
						       strlen(own[i].module))
						: NULL;
		struct module_rest *rest = own[i].filtered	  ? &t->filtered
					   : own[i].before_attach ? &t->before
								  : &t->outside;

		if (x && !own[i].filtered) {
			x->own += own[i].bytes;
		} else {
			rest->bytes += own[i].bytes;
			rest->count += own[i].count;
		}
	}
	return link_nodes(t);
}

int report_modules__build(const struct model *m, size_t device, enum row_when when,
			  const struct report_select *select, struct module_tree *ret)
{
	struct row_opts by_layer = { .by = BY_LAYER, .when = when },
			by_module = { .by = BY_MODULE, .when = when };
	struct row *layers = NULL, *own = NULL;
	size_t nlayers = 0, nown = 0;
	int err;

	*ret = (struct module_tree){ 0 };
	report_select__apply(select, &by_layer);
	report_select__apply(select, &by_module);
	err = model__rows(m, device, &by_layer, &layers, &nlayers);
	if (!err)
		err = model__rows(m, device, &by_module, &own, &nown);
	if (!err)
		err = build(ret, layers, nlayers, own, nown);
	free(layers);
	free(own);
	if (err)
		report_modules__free(ret);
	return err;
}

void report_modules__free(struct module_tree *t)
{
	free(t->all);
	t->all = NULL;
}
