/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* --tree: the modules of a device as a tree, largest first. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/bar.h"
#include "base/text.h"
#include "model/words.h"
#include "report/recording/modules.h"
#include "report/text.h"

#define FIGURE 10 /* columns of a number of bytes */
#define COUNT 9
#define PERCENT 3
#define DEPTH 64
#define INDENT 2
#define NAME_MIN 40 /* columns of names, before bars are left out */

struct tree {
	FILE *out;
	/* used: columns before names; left: lines that --top still allows */
	size_t width, used, left;
	uint64_t hidden; /* nodes without a line */
	uint64_t all_bytes;
	bool unicode, bars, colour;
	bool more[DEPTH]; /* by depth: siblings follow */
	struct module_tree modules;
	char text[REPORT_TEXT];
};

/* Prints a line with the name in t->text, after lead. */
static void print_line(struct tree *t, uint64_t total, bool has_own, uint64_t own, uint64_t count,
		       const char *lead)
{
	char all[24], itself[24], blocks[32], bar[BAR_TEXT], percent[8];

	fprintf(t->out, "%*s  %*s  ", FIGURE, text__bytes(all, sizeof(all), total), PERCENT,
		text__percent(percent, total, t->all_bytes));
	if (t->bars)
		fprintf(t->out, "%s%s%s  ", t->colour ? "\033[36m" : "",
			bar__draw(bar, total, t->all_bytes, REPORT_BAR, t->unicode, true),
			t->colour ? "\033[0m" : "");
	fprintf(t->out, "%*s  %*s  %s%s\n", FIGURE,
		has_own ? text__bytes(itself, sizeof(itself), own) : "", COUNT,
		count ? text__count(blocks, sizeof(blocks), count) : "-", lead,
		words__cut_middle(t->text, t->width - t->used - text__width(lead)));
}

/* Writes the lines of the tree before a node; in deep trees only the innermost ones. */
static void lead_to(const struct tree *t, unsigned depth, char *buf, size_t size)
{
	size_t most = (t->width - t->used) / 2 / INDENT, len = 0;
	unsigned from = depth > most ? depth - (unsigned)most : 0;

	buf[0] = '\0';
	for (unsigned i = from + 1; i <= depth && len + 8 < size; i++) {
		const char *s = !t->unicode	     ? "  "
				: i < depth	     ? (t->more[i % DEPTH] ? "\u2502 " : "  ")
				: t->more[i % DEPTH] ? "\u251c "
						     : "\u2514 ";

		len += snprintf(buf + len, size - len, "%s", s);
	}
}

static const struct module_node *node(const struct tree *t, uint32_t id)
{
	return id ? &t->modules.all[id - 1] : NULL;
}

/* The name without the parent's. */
static const char *own_name(const struct tree *t, const struct module_node *x)
{
	const struct module_node *p = node(t, x->parent);

	return x->name + (p && *p->name ? strlen(p->name) + 1 : 0);
}

/* Whether two modules differ only in their numbers: all inside is alike, too. */
static bool alike(const struct tree *t, const struct module_node *x, const struct module_node *y)
{
	const struct module_node *a = node(t, x->first), *b = node(t, y->first);

	if (x->total != y->total || x->own != y->own || x->count != y->count ||
	    strcmp(x->cls, y->cls) != 0)
		return false;
	while (a && b && !strcmp(own_name(t, a), own_name(t, b)) && alike(t, a, b)) {
		a = node(t, a->next);
		b = node(t, b->next);
	}
	return !a && !b;
}

static bool is_number(const char *s)
{
	return *s && !s[strspn(s, "0123456789")];
}

/* Counts the siblings from x on that are shown as one, and finds the one after them. */
static uint32_t count_alike(const struct tree *t, const struct module_node *x, uint32_t *next)
{
	const struct module_node *y = node(t, x->next);
	uint32_t n = 1;

	*next = x->next;
	if (!is_number(own_name(t, x)))
		return 1;
	for (; y && is_number(own_name(t, y)) && alike(t, x, y); y = node(t, y->next)) {
		*next = y->next;
		n++;
	}
	return n;
}

/* Writes the name of n alike siblings: "3", "0-3", or "*" for numbers that do not follow. */
static void write_name(struct tree *t, const struct module_node *x, uint32_t n)
{
	unsigned long least = ULONG_MAX, most = 0, i;
	const char *name = own_name(t, x);

	text__clean(t->text, sizeof(t->text), name, strlen(name));
	if (n == 1)
		return;
	for (uint32_t k = 0; k < n; k++, x = node(t, x->next)) {
		i = strtoul(own_name(t, x), NULL, 10);
		least = i < least ? i : least;
		most = i > most ? i : most;
	}
	if (most - least + 1 == n)
		snprintf(t->text, sizeof(t->text), "%lu-%lu", least, most);
	else
		strcpy(t->text, "*");
}

/* Prints "attn (CausalSelfAttention)", or "0-11 (Block) x12" for n modules. */
static void print_node(struct tree *t, const struct module_node *x, uint32_t n, unsigned depth,
		       uint64_t factor)
{
	char cls[REPORT_TEXT / 2], lead[64 * 5];
	size_t len;

	write_name(t, x, n);
	text__clean(cls, sizeof(cls), x->cls, strlen(x->cls));
	len = strlen(t->text);
	if (*cls)
		snprintf(t->text + len, sizeof(t->text) - len, *t->text ? " (%s)" : "%s (model)",
			 cls);
	len = strlen(t->text);
	if (n > 1)
		snprintf(t->text + len, sizeof(t->text) - len, " x%" PRIu32, n);
	lead_to(t, depth, lead, sizeof(lead));
	print_line(t, x->total * factor, true, x->own * factor, x->count * factor, lead);
}

/* Prints siblings and all inside; factor: modules for which these stand. Names have at most 32
 * parts. */
static void print_siblings(struct tree *t, uint32_t id, unsigned depth, uint64_t factor)
{
	while (id) {
		const struct module_node *x = node(t, id);
		uint32_t n = count_alike(t, x, &id);

		t->more[depth % DEPTH] = id != 0;
		if (t->left) {
			print_node(t, x, n, depth, factor * n);
			t->left--;
		} else {
			t->hidden++;
		}
		print_siblings(t, x->first, depth + 1, factor * n);
	}
}

static void print_rest(struct tree *t, const struct module_rest *rest, const char *name)
{
	if (!rest->bytes)
		return;
	strcpy(t->text, name);
	print_line(t, rest->bytes, false, 0, rest->count, "");
}

static void print_tree(struct tree *t)
{
	fprintf(t->out, "%s%*s  %*s%*s  %*s  %*s  Module%s\n", t->colour ? "\033[1m" : "", FIGURE,
		"Size", PERCENT, "%", t->bars ? REPORT_BAR + 2 : 0, "", FIGURE, "Itself", COUNT,
		"Blocks", t->colour ? "\033[0m" : "");
	print_siblings(t, t->modules.roots, 0, 1);
	if (t->hidden)
		fprintf(t->out, "%*s+ %s more row%s\n", (int)t->used, "",
			text__count(t->text, 32, t->hidden), t->hidden == 1 ? "" : "s");
	print_rest(t, &t->modules.before, "before attach");
	print_rest(t, &t->modules.outside, "(no module)");
	print_rest(t, &t->modules.filtered, "(filtered out)");
}

int report_text__tree(FILE *out, const struct model *m, size_t device,
		      const struct report_text_opts *o)
{
	struct tree *t = calloc(1, sizeof(*t));
	struct model_device dev;
	int err = t ? report_modules__build(m, device, o->when, o->select, &t->modules) : -ENOMEM;

	if (!err) {
		model__device(m, device, &dev);
		t->out = out;
		t->width = report_text__width(out, o);
		t->left = o->top ? o->top : SIZE_MAX;
		t->unicode = bar__unicode();
		t->colour = report_text__colour(out, o);
		t->used = 2 * (FIGURE + 2) + PERCENT + 2 + COUNT + 2;
		t->bars = report_text__bars(out, o,
					    t->used + REPORT_BAR + 2 + NAME_MIN <= t->width) &&
			  t->width >= t->used + REPORT_BAR + 10;
		t->used += t->bars ? REPORT_BAR + 2 : 0;
		t->all_bytes = o->when == ROWS_AT_MARK ? dev.mark_allocated
			       : o->when == ROWS_NOW   ? dev.allocated
						       : dev.total_allocated;
		report_text__sums(out, o, &dev);
		print_tree(t);
		report_modules__free(&t->modules);
	}
	free(t);
	return err;
}
