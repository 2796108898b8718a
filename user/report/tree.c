/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* --tree: the modules of a device as a tree, largest first. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "labels/words.h"
#include "lib/bar.h"
#include "lib/text.h"
#include "report/modules.h"
#include "report/text.h"

#define FIGURE 10 /* columns of a number of bytes */
#define COUNT 9
#define INDENT 2
#define NAME_MIN 40 /* columns of names, before bars are left out */

struct tree {
	FILE *out;
	/* used: columns before names; left: lines that --top still allows */
	size_t width, used, left;
	uint64_t hidden; /* nodes without a line */
	uint64_t all_bytes;
	bool unicode, bars, colour;
	struct module_tree modules;
	char text[REPORT_TEXT];
};

/* Prints a line with the name in t->text, after lead. */
static void print_line(struct tree *t, uint64_t total, bool has_own, uint64_t own, uint64_t count,
		       const char *lead)
{
	char all[24], itself[24], blocks[32], bar[BAR_TEXT];

	fprintf(t->out, "%*s  ", FIGURE, text__bytes(all, sizeof(all), total));
	if (t->bars)
		fprintf(t->out, "%s%s%s  ", t->colour ? "\033[36m" : "",
			bar__draw(bar, total, t->all_bytes, REPORT_BAR, t->unicode, true),
			t->colour ? "\033[0m" : "");
	fprintf(t->out, "%*s  %*s  %s%s\n", FIGURE,
		has_own ? text__bytes(itself, sizeof(itself), own) : "", COUNT,
		count ? text__count(blocks, sizeof(blocks), count) : "-", lead,
		words__cut(t->text, t->width - t->used - text__width(lead)));
}

/* Writes the lines of the tree before a node; in deep trees only the innermost ones. */
static void lead_to(const struct tree *t, const struct module_node *x, char *buf, size_t size)
{
	const struct module_node *way[64];
	size_t most = (t->width - t->used) / 2 / INDENT, n = 0, len = 0;

	most = most < 64 ? most : 64;
	buf[0] = '\0';
	for (; x->parent && n < most; x = &t->modules.all[x->parent - 1])
		way[n++] = x;
	while (n--) {
		const char *s = !t->unicode    ? "  "
				: n	       ? (way[n]->next ? "\u2502 " : "  ")
				: way[n]->next ? "\u251c "
					       : "\u2514 ";

		len += snprintf(buf + len, size - len, "%s", s);
	}
}

/* Prints "attn (CausalSelfAttention)", without the parent's name. */
static void print_node(struct tree *t, const struct module_node *x)
{
	const struct module_node *p = x->parent ? &t->modules.all[x->parent - 1] : NULL;
	size_t skip = p && *p->name ? strlen(p->name) + 1 : 0, len;
	const char *name = x->name + skip;
	char cls[REPORT_TEXT / 2], lead[64 * 5];

	text__clean(t->text, sizeof(t->text), name, strlen(name));
	text__clean(cls, sizeof(cls), x->cls, strlen(x->cls));
	len = strlen(t->text);
	if (*cls)
		snprintf(t->text + len, sizeof(t->text) - len, *t->text ? " (%s)" : "%s (model)",
			 cls);
	lead_to(t, x, lead, sizeof(lead));
	print_line(t, x->total, true, x->own, x->count, lead);
}

static void print_all(struct tree *t, uint32_t id)
{
	while (id) {
		struct module_node *x = &t->modules.all[id - 1];

		if (t->left) {
			print_node(t, x);
			t->left--;
		} else {
			t->hidden++;
		}
		if (x->first) {
			id = x->first;
			continue;
		}
		while (!x->next && x->parent)
			x = &t->modules.all[x->parent - 1];
		id = x->next;
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
	fprintf(t->out, "%s%*s  %*s%*s  %*s  Module%s\n", t->colour ? "\033[1m" : "", FIGURE,
		"All inside", t->bars ? REPORT_BAR + 2 : 0, "", FIGURE, "Itself", COUNT, "Count",
		t->colour ? "\033[0m" : "");
	print_all(t, t->modules.roots);
	if (t->hidden)
		fprintf(t->out, "%*s(%s more)\n", (int)t->used, "",
			text__count(t->text, 32, t->hidden));
	print_rest(t, &t->modules.before, "before attach");
	print_rest(t, &t->modules.outside, "(no module)");
	print_rest(t, &t->modules.filtered, "(not shown)");
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
		t->used = 2 * (FIGURE + 2) + COUNT + 2;
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
