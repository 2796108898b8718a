/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Lists before the table: the moment's memory by category and by module. Each list adds up to
 * all of it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bar.h"
#include "base/text.h"
#include "model/words.h"
#include "report/filter.h"
#include "report/recording/modules.h"
#include "report/text.h"

#define ROWS 6	     /* rows of a list; smaller items share one more row */
#define LABEL_MIN 15 /* length of "optimizer_state" */
#define LABEL_MOST 32
#define BAR_MIN 6
#define BAR_WANTED 20
#define GAP 2
#define BETWEEN 3		       /* columns between lists side by side */
#define FIXED (2 + GAP + 10 + PERCENT) /* columns of a line without label and bar */
#define PERCENT (GAP + 5)	       /* columns of a percentage, and before it */
#define LEAST (FIXED + LABEL_MIN)

struct item {
	char label[160]; /* text, cleaned */
	uint64_t bytes;
};

struct list {
	const char *title;
	struct item all[ROWS + 4]; /* the largest items, then those of add_rest() */
	size_t n, named;
	uint64_t others, others_bytes; /* number and bytes of items without a row */
};

static void set(struct item *i, const char *label, uint64_t bytes)
{
	i->bytes = bytes;
	text__clean(i->label, sizeof(i->label), label, strlen(label));
}

/* Orders items by size, then by name: blocks.2 before blocks.10. */
static bool before(const struct item *a, const struct item *b)
{
	return a->bytes != b->bytes ? a->bytes > b->bytes : strverscmp(a->label, b->label) < 0;
}

/* Adds an item; only the largest get rows. */
static void add(struct list *l, const char *label, uint64_t bytes)
{
	size_t at = l->named;
	struct item i;

	set(&i, label, bytes);
	if (at == ROWS) {
		bool goes = before(&i, &l->all[--at]);

		l->others++;
		l->others_bytes += goes ? l->all[at].bytes : bytes;
		if (!goes)
			return;
	} else {
		l->n = ++l->named;
	}
	for (; at && before(&i, &l->all[at - 1]); at--)
		l->all[at] = l->all[at - 1];
	l->all[at] = i;
}

/* Adds a row after those of add(). */
static void add_rest(struct list *l, const char *label, uint64_t bytes)
{
	if (bytes && l->n < sizeof(l->all) / sizeof(*l->all))
		set(&l->all[l->n++], label, bytes);
}

/* Adds one row for all items without a row. */
static void add_others(struct list *l)
{
	char label[48];

	if (!l->others)
		return;
	l->n--; /* this row replaces the smallest item */
	snprintf(label, sizeof(label), "+ %" PRIu64 " more", l->others + 1);
	add_rest(l, label, l->others_bytes + l->all[l->n].bytes);
}

static int categories(const struct model *m, size_t device, const struct report_text_opts *o,
		      struct list *l)
{
	struct row_opts opts = { .by = BY_CATEGORY, .when = o->when };
	uint64_t before = 0, out, count;
	struct row *rows = NULL;
	size_t n = 0, kept;
	int err;

	report_select__apply(o->select, &opts);
	err = model__rows(m, device, &opts, &rows, &n);
	if (err)
		return err;
	kept = report_select__kept(rows, n, &out, &count);
	for (size_t i = 0; i < kept; i++)
		if (rows[i].before_attach)
			before += rows[i].bytes;
		else if (rows[i].bytes)
			add(l, words__role(rows[i].category), rows[i].bytes);
	add_others(l);
	add_rest(l, "before attach", before);
	add_rest(l, "(filtered out)", out);
	free(rows);
	return 0;
}

static uint64_t in_modules(const struct module_tree *t)
{
	uint64_t sum = 0;

	for (uint32_t id = t->roots; id; id = t->all[id - 1].next)
		sum += t->all[id - 1].total;
	return sum;
}

static void add_module(struct list *l, const struct module_node *x, uint64_t bytes, bool alone)
{
	char label[256];

	if (*x->name && !x->name[strspn(x->name, "0123456789")]) /* of nn.Sequential */
		snprintf(label, sizeof(label), "%s (%s)%s", x->name, x->cls,
			 alone ? " itself" : "");
	else
		snprintf(label, sizeof(label), *x->name ? "%s%s" : "%s (model)%s",
			 *x->name ? x->name : x->cls, alone ? " itself" : "");
	add(l, label, bytes);
}

/* Whether all siblings are numbered modules of one class, and there are several. */
static bool numbered(const struct module_tree *t, uint32_t first)
{
	const struct module_node *x = &t->all[first - 1];

	for (uint32_t id = first; id; id = t->all[id - 1].next) {
		const struct module_node *y = &t->all[id - 1];
		const char *name = strrchr(y->name, '.');

		name = name ? name + 1 : y->name;
		if (name == y->name || !*name || name[strspn(name, "0123456789")] ||
		    strcmp(y->cls, x->cls) != 0)
			return false;
	}
	return x->next;
}

/* Adds numbered siblings as one: "blocks.* (12)". */
static void add_numbered(const struct module_tree *t, uint32_t first, struct list *l)
{
	const char *name = t->all[first - 1].name, *dot = strrchr(name, '.');
	char label[256];
	uint64_t bytes = 0;
	unsigned n = 0;

	for (uint32_t id = first; id; id = t->all[id - 1].next, n++)
		bytes += t->all[id - 1].total;
	snprintf(label, sizeof(label), "%.*s%s* (%u)", dot ? (int)(dot - name) : 0, name,
		 dot ? "." : "", n);
	add(l, label, bytes);
}

/* Splits modules that hold more than half of all modules' memory into their parts, recursively. */
static void add_parts(const struct module_tree *t, uint32_t first, uint64_t all, struct list *l)
{
	if (first && numbered(t, first)) {
		add_numbered(t, first, l);
		return;
	}
	for (uint32_t id = first; id; id = t->all[id - 1].next) {
		const struct module_node *x = &t->all[id - 1];

		if (x->total <= all / 2 || !x->first) {
			add_module(l, x, x->total, false);
			continue;
		}
		if (x->own)
			add_module(l, x, x->own, true);
		add_parts(t, x->first, all, l); /* at most 32 levels, the parts of a name */
	}
}

static int modules(const struct model *m, size_t device, const struct report_text_opts *o,
		   struct list *l)
{
	struct module_tree t;
	int err = report_modules__build(m, device, o->when, o->select, &t);

	if (err)
		return err;
	if (t.n) { /* without modules, the list has no information */
		add_parts(&t, t.roots, in_modules(&t), l);
		add_others(l);
		add_rest(l, "(no module)", t.outside.bytes);
		add_rest(l, "before attach", t.before.bytes);
		add_rest(l, "(filtered out)", t.filtered.bytes);
	}
	report_modules__free(&t);
	return 0;
}

struct shape {
	size_t label, bar; /* widths in columns; bar 0: none */
	uint64_t all;
	bool unicode, colour;
};

static size_t shape__width(const struct shape *s)
{
	return FIXED + s->label + (s->bar ? GAP + s->bar : 0);
}

/* Prints an item as wide as the shape. fill: pad with spaces, for a list to the right. */
static void print_item(FILE *out, const struct shape *s, const struct item *i, bool fill)
{
	char bar[BAR_TEXT], bytes[24], label[sizeof(i->label)], percent[16];
	strcpy(label, i->label);
	words__cut_middle(label, s->label);
	fprintf(out, "  %s%*s  %10s  %3s %%", label, (int)(s->label - text__width(label)), "",
		text__bytes(bytes, sizeof(bytes), i->bytes),
		text__percent(percent, i->bytes, s->all));
	if (!s->bar)
		return;
	bar__draw(bar, i->bytes, s->all, s->bar, s->unicode, fill);
	fprintf(out, "  %s%s%s", s->colour ? "\033[36m" : "", bar, s->colour ? "\033[0m" : "");
}

static void print_title(FILE *out, const struct shape *s, const char *title, size_t columns)
{
	fprintf(out, "%s%s%s%*s", s->colour ? "\033[1m" : "", title, s->colour ? "\033[0m" : "",
		(int)(columns > strlen(title) ? columns - strlen(title) : 0), "");
}

/* Computes the widths for this many columns. */
static struct shape measure(const struct list *l, size_t columns)
{
	struct shape s = { .label = LABEL_MIN };
	size_t room = columns - FIXED;

	for (size_t i = 0; i < l->n; i++) {
		size_t w = text__width(l->all[i].label);

		s.label = w > s.label ? w : s.label;
	}
	s.label = s.label < LABEL_MOST ? s.label : LABEL_MOST;
	s.label = s.label < room ? s.label : room;
	room -= s.label;
	s.bar = room < GAP + BAR_MIN ? 0 : room - GAP < BAR_WANTED ? room - GAP : BAR_WANTED;
	return s;
}

static void print_beside(FILE *out, struct list l[2], const struct shape s[2])
{
	size_t width = shape__width(&s[0]);

	print_title(out, &s[0], l[0].title, width + BETWEEN);
	print_title(out, &s[1], l[1].title, 0);
	fputc('\n', out);
	for (size_t i = 0; i < l[0].n || i < l[1].n; i++) {
		bool beside = i < l[1].n;

		if (i < l[0].n)
			print_item(out, &s[0], &l[0].all[i], beside);
		if (beside) {
			fprintf(out, "%*s", (int)(BETWEEN + (i < l[0].n ? 0 : width)), "");
			print_item(out, &s[1], &l[1].all[i], false);
		}
		fputc('\n', out);
	}
}

static void print_alone(FILE *out, const struct list *l, const struct shape *s)
{
	if (!l->n)
		return;
	print_title(out, s, l->title, 0);
	fputc('\n', out);
	for (size_t i = 0; i < l->n; i++) {
		print_item(out, s, &l->all[i], false);
		fputc('\n', out);
	}
}

static void print_lists(FILE *out, struct list l[2], uint64_t all, const struct report_text_opts *o)
{
	size_t width = report_text__width(out, o), half = (width - BETWEEN) / 2;
	bool beside = half >= LEAST && l[0].n && l[1].n;
	struct shape s[2];

	for (int k = 0; k < 2; k++) {
		s[k] = measure(&l[k], beside ? half : width);
		s[k].all = all;
		s[k].unicode = bar__unicode();
		s[k].colour = report_text__colour(out, o);
	}
	if (beside) {
		print_beside(out, l, s);
		return;
	}
	for (int k = 0; k < 2; k++)
		print_alone(out, &l[k], &s[k]);
}

int report_text__overview(FILE *out, const struct model *m, size_t device,
			  const struct report_text_opts *o)
{
	struct list l[2] = { { .title = "By role" }, { .title = "By module" } };
	struct model_device d;
	int err = categories(m, device, o, &l[0]);

	if (!err)
		err = modules(m, device, o, &l[1]);
	if (!err) {
		model__device(m, device, &d);
		print_lists(out, l, o->when == ROWS_AT_MARK ? d.mark_allocated : d.allocated, o);
		if (l[0].n || l[1].n)
			fputc('\n', out);
	}
	return err;
}
