/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* --tree: the modules of a device, each under the one that it is in, largest first. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/text.h"
#include "report_text.h"
#include "report_words.h"

#define FIGURE 10 /* columns of a number of bytes */
#define COUNT 9
#define INDENT 2

struct node {
	const char *root, *name, *cls; /* root: class of the outermost module, name: dotted */
	uint64_t total, own, count;
	uint32_t parent, first, next; /* ids + 1, 0: none */
};

struct tree {
	FILE *out;
	size_t width, left; /* left: lines that --top still allows */
	uint64_t hidden;    /* nodes beyond */
	struct node *all;   /* sorted by root and name: a module comes before what is in it */
	size_t n;
	char text[REPORT_TEXT];
};

static int cmp_names(const char *root_a, const char *a, const char *root_b, const char *b)
{
	int c = strcmp(root_a, root_b);

	return c ? c : strcmp(a, b);
}

static int cmp_node(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	return cmp_names(x->root, x->name, y->root, y->name);
}

static struct node *find(const struct tree *t, const char *root, const char *name, size_t len)
{
	size_t lo = 0, hi = t->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		struct node *x = &t->all[mid];
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

/* The module that name lies in: of "a.b.c" the nearest of "a.b", "a" and the root "" that there is. */
static struct node *parent_of(const struct tree *t, const struct node *x)
{
	size_t len = strlen(x->name);
	struct node *p;

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

/* Largest last: each goes to the front of its list. */
static int cmp_total(const void *a, const void *b, void *ctx)
{
	const struct node *all = ctx, *x = &all[*(const uint32_t *)a], *y = &all[*(const uint32_t *)b];

	if (x->total != y->total)
		return x->total < y->total ? -1 : 1;
	return x < y ? 1 : x > y ? -1 : 0;
}

static int hang_up(struct tree *t, uint32_t *roots)
{
	uint32_t *order = calloc(t->n + 1, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++)
		order[i] = i;
	qsort_r(order, t->n, sizeof(*order), cmp_total, t->all);
	*roots = 0;
	for (size_t i = 0; i < t->n; i++) {
		struct node *x = &t->all[order[i]], *p = parent_of(t, x);
		uint32_t *first = p ? &p->first : roots;

		x->parent = p ? p - t->all + 1 : 0;
		x->next = *first;
		*first = order[i] + 1;
	}
	free(order);
	return 0;
}

static void print_figure(FILE *out, int width, const char *s)
{
	size_t w = text__width(s);

	fprintf(out, "%*s%s  ", (int)(w < (size_t)width ? width - w : 0), "", s);
}

static void print_line(struct tree *t, uint64_t total, bool has_own, uint64_t own, uint64_t count, size_t depth)
{
	char figure[32];
	size_t used = 2 * (FIGURE + 2) + COUNT + 2, room;

	print_figure(t->out, FIGURE, text__bytes(figure, 24, total));
	print_figure(t->out, FIGURE, has_own ? text__bytes(figure, 24, own) : "");
	print_figure(t->out, COUNT, count ? text__count(figure, sizeof(figure), count) : "-");
	depth = depth * INDENT < (t->width - used) / 2 ? depth * INDENT : (t->width - used) / 2;
	room = t->width - used - depth;
	fprintf(t->out, "%*s%s\n", (int)depth, "", report__cut(t->text, room));
}

/* "attn (CausalSelfAttention)": the name from its parent's on. */
static void print_node(struct tree *t, const struct node *x, size_t depth)
{
	const struct node *p = x->parent ? &t->all[x->parent - 1] : NULL;
	size_t skip = p && *p->name ? strlen(p->name) + 1 : 0, len;
	const char *name = x->name + skip;
	char cls[REPORT_TEXT / 2];

	text__clean(t->text, sizeof(t->text), name, strlen(name));
	text__clean(cls, sizeof(cls), x->cls, strlen(x->cls));
	len = strlen(t->text);
	if (*cls)
		snprintf(t->text + len, sizeof(t->text) - len, *t->text ? " (%s)" : "<%s>", cls);
	print_line(t, x->total, true, x->own, x->count, depth);
}

static void print_all(struct tree *t, uint32_t id)
{
	size_t depth = 0;

	while (id) {
		struct node *x = &t->all[id - 1];

		if (t->left) {
			print_node(t, x, depth);
			t->left--;
		} else {
			t->hidden++;
		}
		if (x->first) {
			id = x->first;
			depth++;
			continue;
		}
		while (!x->next && x->parent) {
			x = &t->all[x->parent - 1];
			depth--;
		}
		id = x->next;
	}
}

static bool is_module(const struct row *r)
{
	return !r->before_attach && (*r->module || *r->module_class);
}

/* Totals come from the rows by layer, what each holds itself from those by module. */
static int build(struct tree *t, const struct row *layers, size_t nlayers, const struct row *own, size_t nown, uint32_t *roots)
{
	t->all = calloc(nlayers + 1, sizeof(*t->all));
	if (!t->all)
		return -ENOMEM;
	for (size_t i = 0; i < nlayers; i++)
		if (is_module(&layers[i]))
			t->all[t->n++] = (struct node){
				.root = layers[i].module_root,
				.name = layers[i].module,
				.cls = layers[i].module_class,
				.total = layers[i].bytes,
				.count = layers[i].count,
			};
	qsort(t->all, t->n, sizeof(*t->all), cmp_node);
	for (size_t i = 0; i < nown; i++) {
		struct node *x = is_module(&own[i]) ? find(t, own[i].module_root, own[i].module, strlen(own[i].module)) : NULL;

		if (x)
			x->own += own[i].bytes;
	}
	return hang_up(t, roots);
}

static void print_rest(struct tree *t, const struct row *own, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (is_module(&own[i]))
			continue;
		strcpy(t->text, own[i].before_attach ? "before attach" : "(outside of modules)");
		print_line(t, own[i].bytes, false, 0, own[i].count, 0);
	}
}

int report_text__tree(FILE *out, const struct model *m, size_t device, const struct report_text_opts *o)
{
	struct row_opts by_layer = { .by = BY_LAYER, .when = o->when }, by_module = { .by = BY_MODULE, .when = o->when };
	struct tree *t = calloc(1, sizeof(*t));
	struct row *layers = NULL, *own = NULL;
	size_t nlayers = 0, nown = 0;
	struct model_device dev;
	uint32_t roots;
	int err = t ? model__rows(m, device, &by_layer, &layers, &nlayers) : -ENOMEM;

	if (!err)
		err = model__rows(m, device, &by_module, &own, &nown);
	if (!err)
		err = build(t, layers, nlayers, own, nown, &roots);
	if (!err) {
		t->out = out;
		t->width = report_text__width(out, o);
		t->left = o->top ? o->top : SIZE_MAX;
		model__device(m, device, &dev);
		report_text__sums(out, o, &dev);
		print_figure(out, FIGURE, "All inside");
		print_figure(out, FIGURE, "Itself");
		print_figure(out, COUNT, "Count");
		fputs("Module\n", out);
		print_all(t, roots);
		if (t->hidden)
			fprintf(out, "%*s(%s more)\n", 2 * (FIGURE + 2) + COUNT + 2, "", text__count(t->text, 32, t->hidden));
		print_rest(t, own, nown);
	}
	if (t)
		free(t->all);
	free(t);
	free(layers);
	free(own);
	return err;
}
