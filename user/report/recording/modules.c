/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A device's modules, with the memory of each one alone and with all inside: as a tree, and as
 * bars. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/words.h"
#include "report/filter.h"
#include "report/text.h"

struct module_node {
	/* The model owns these. root: class of the outermost module; name: dotted; cls: class. */
	const char *root, *name, *cls;
	uint64_t total, own, count; /* bytes with submodules, and without; blocks with submodules */
	/* Indices + 1 of parent, first child and next sibling; 0: none. Siblings are sorted,
	 * largest first. */
	uint32_t parent, first, next;
};

/* Memory that belongs to no module of the tree. */
struct module_rest {
	uint64_t bytes, count;
};

struct module_tree {
	/* modules sorted by root and name: a module precedes its children */
	struct module_node *all;
	size_t n;
	uint32_t roots; /* index + 1 of the first root; 0: none */
	/* Before attach; in no module; left out by --filter. With all `own`, they add up to all
	 * rows. */
	struct module_rest before, outside, filtered;
};

static int cmp_names(const char *root_a, const char *a, const char *root_b, const char *b)
{
	int order = strcmp(root_a, root_b);

	return order ? order : strcmp(a, b);
}

static int cmp_node(const void *a, const void *b)
{
	const struct module_node *x = a, *y = b;

	return cmp_names(x->root, x->name, y->root, y->name);
}

/* Finds the module whose name is the first len characters of name. NULL: none. */
static struct module_node *find_module(const struct module_tree *t, const char *root,
				       const char *name, size_t len)
{
	size_t low = 0, high = t->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		struct module_node *module = &t->all[mid];
		int order = strcmp(module->root, root);

		if (!order)
			order = strncmp(module->name, name, len);
		if (!order)
			order = module->name[len] != '\0';
		if (!order)
			return module;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* Finds the parent of "a.b.c": "a.b" if it exists, then "a", then the root "". */
static struct module_node *parent_of(const struct module_tree *t, const struct module_node *module)
{
	size_t len = strlen(module->name);
	struct module_node *parent;

	if (!len)
		return NULL;
	do {
		while (len && module->name[len - 1] != '.')
			len--;
		len -= len > 0; /* the dot */
		parent = find_module(t, module->root, module->name, len);
	} while (!parent && len);
	return parent;
}

/* Orders the largest last, because link_nodes() puts each node at the front of its list. */
static int cmp_total(const void *a, const void *b, void *ctx)
{
	const struct module_node *all = ctx, *x = &all[*(const uint32_t *)a],
				 *y = &all[*(const uint32_t *)b];

	if (x->total != y->total)
		return x->total < y->total ? -1 : 1;
	return (x < y) - (x > y);
}

/* Sets parent, first and next of all nodes; siblings follow each other from the largest on. Returns
 * 0 or -ENOMEM. */
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
		struct module_node *module = &t->all[order[i]], *parent = parent_of(t, module);
		uint32_t *first = parent ? &parent->first : &t->roots;

		module->parent = parent ? parent - t->all + 1 : 0;
		module->next = *first;
		*first = order[i] + 1;
	}
	free(order);
	return 0;
}

static bool is_module(const struct row *r)
{
	return !r->before_attach && (*r->module || *r->module_class);
}

/* Adds a node for each row by layer, and each module's own bytes from the rows by module. Returns 0
 * or -ENOMEM. */
static int add_nodes(struct module_tree *t, const struct row *layers, size_t nlayers,
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
		struct module_rest *rest = &t->outside;
		struct module_node *module = NULL;

		if (is_module(&own[i]) && !own[i].filtered)
			module = find_module(t, own[i].module_root, own[i].module,
					     strlen(own[i].module));
		if (module) {
			module->own += own[i].bytes;
			continue;
		}
		if (own[i].filtered)
			rest = &t->filtered;
		else if (own[i].before_attach)
			rest = &t->before;
		rest->bytes += own[i].bytes;
		rest->count += own[i].count;
	}
	return link_nodes(t);
}

/* Builds the tree. select may be NULL. Returns 0, -ENOMEM, or -ENOENT as model__rows() does. The
 * model must outlive *ret, which the caller frees. */
static int build_tree(const struct model *m, size_t device, enum row_when when,
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
	if (err)
		return err;
	err = model__rows(m, device, &by_module, &own, &nown);
	if (!err)
		err = add_nodes(ret, layers, nlayers, own, nown);
	free(layers);
	free(own);
	if (err)
		free(ret->all);
	return err;
}

/* ---- modules as a tree ---- */

#define FIGURE 10 /* columns of a number of bytes */
#define COUNT 9
#define PERCENT 3
#define DEPTH 64 /* levels whose lines are drawn */
#define INDENT 2
#define NAME_MIN 40 /* columns of names, before bars are left out */

struct tree {
	FILE *out;
	/* used: columns before names; left: lines that --top still allows */
	size_t width, used, left;
	uint64_t hidden;    /* number of nodes that --top leaves out */
	uint64_t all_bytes; /* 100 % */
	bool unicode, bars;
	const char *bold, *cyan, *plain; /* escape sequences, or "" */
	const char *before;		 /* name of memory from before attach */
	bool more[DEPTH];		 /* [depth]: siblings follow the node at that depth */
	struct module_tree modules;
	char text[REPORT_TEXT];
};

/* Prints a line: the figures, lead (the lines of the tree) and the name in t->text. */
static void print_line(struct tree *t, uint64_t total, bool has_own, uint64_t own, uint64_t count,
		       const char *lead)
{
	char all[24], itself[24] = "", blocks[32], bar[TEXT_BAR], percent[8];

	fprintf(t->out, "%*s  %*s  ", FIGURE, text__bytes(all, sizeof(all), total), PERCENT,
		text__percent(percent, total, t->all_bytes));
	if (t->bars)
		fprintf(t->out, "%s%s%s  ", t->cyan,
			text__bar(bar, total, t->all_bytes, REPORT_BAR, t->unicode, /*fill=*/true),
			t->plain);
	if (has_own)
		text__bytes(itself, sizeof(itself), own);
	fprintf(t->out, "%*s  %*s  %s%s\n", FIGURE, itself, COUNT,
		count ? text__count(blocks, sizeof(blocks), count) : "-", lead,
		words__cut_middle(t->text, t->width - t->used - text__width(lead)));
}

/* Writes the lines of the tree before a node; in deep trees only the innermost ones. */
static void lead_to(const struct tree *t, unsigned depth, char *buf, size_t size)
{
	size_t most_levels = (t->width - t->used) / 2 / INDENT, len = 0;
	unsigned from = depth > most_levels ? depth - (unsigned)most_levels : 0;

	buf[0] = '\0';
	for (unsigned i = from + 1; i <= depth && len + 8 < size; i++) {
		bool more = t->more[i % DEPTH];
		const char *piece = "  ";

		if (t->unicode && i < depth && more)
			piece = "\u2502 ";
		else if (t->unicode && i == depth)
			piece = more ? "\u251c " : "\u2514 ";
		len += snprintf(buf + len, size - len, "%s", piece);
	}
}

/* Returns the node with index id - 1; NULL for 0. */
static const struct module_node *node(const struct tree *t, uint32_t id)
{
	return id ? &t->modules.all[id - 1] : NULL;
}

/* Returns the module's name without its parent's name. */
static const char *own_name(const struct tree *t, const struct module_node *module)
{
	const struct module_node *parent = node(t, module->parent);

	return module->name + (parent && *parent->name ? strlen(parent->name) + 1 : 0);
}

/* True if two modules have equal figures and classes, and so have their submodules. */
static bool are_alike(const struct tree *t, const struct module_node *x,
		      const struct module_node *y)
{
	const struct module_node *child_x = node(t, x->first);
	const struct module_node *child_y = node(t, y->first);

	if (x->total != y->total || x->own != y->own || x->count != y->count ||
	    strcmp(x->cls, y->cls) != 0)
		return false;
	while (child_x && child_y && !strcmp(own_name(t, child_x), own_name(t, child_y)) &&
	       are_alike(t, child_x, child_y)) {
		child_x = node(t, child_x->next);
		child_y = node(t, child_y->next);
	}
	return !child_x && !child_y;
}

static bool is_number(const char *s)
{
	return *s && !s[strspn(s, "0123456789")];
}

/* Returns how many siblings from x on are alike, and shown as one. *next: the sibling after
 * them. */
static uint32_t count_alike(const struct tree *t, const struct module_node *x, uint32_t *next)
{
	const struct module_node *sibling = node(t, x->next);
	uint32_t alike = 1;

	*next = x->next;
	if (!is_number(own_name(t, x)))
		return 1;
	for (; sibling && is_number(own_name(t, sibling)) && are_alike(t, x, sibling);
	     sibling = node(t, sibling->next)) {
		*next = sibling->next;
		alike++;
	}
	return alike;
}

/* Writes the name of n alike siblings: "3", "0-3", or "*" for numbers that do not follow. */
static void write_name(struct tree *t, const struct module_node *x, uint32_t n)
{
	unsigned long least = ULONG_MAX, most = 0, number;
	const char *name = own_name(t, x);

	text__clean(t->text, sizeof(t->text), name, strlen(name));
	if (n == 1)
		return;
	for (uint32_t k = 0; k < n; k++, x = node(t, x->next)) {
		number = strtoul(own_name(t, x), NULL, 10);
		least = number < least ? number : least;
		most = number > most ? number : most;
	}
	if (most - least + 1 == n)
		snprintf(t->text, sizeof(t->text), "%lu-%lu", least, most);
	else
		strcpy(t->text, "*");
}

/* Prints "attn (CausalSelfAttention)", or "0-11 (Block) x12" for n alike siblings from x on.
 * factor: number of all modules that the line stands for, with those in parents that are alike. */
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
	print_line(t, x->total * factor, /*has_own=*/true, x->own * factor, x->count * factor,
		   lead);
}

/* Prints siblings from id on with their submodules. factor: number of alike modules that each
 * stands for. The recursion is at most 32 deep, the parts of a name. */
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

/* Prints a line of memory outside the tree, unless there is none. */
static void print_rest(struct tree *t, const struct module_rest *rest, const char *name)
{
	if (!rest->bytes)
		return;
	strcpy(t->text, name);
	print_line(t, rest->bytes, /*has_own=*/false, 0, rest->count, "");
}

static void print_tree(struct tree *t)
{
	fprintf(t->out, "%s%*s  %*s%*s  %*s  %*s  Module%s\n", t->bold, FIGURE, "Size", PERCENT,
		"%", t->bars ? REPORT_BAR + 2 : 0, "", FIGURE, "Itself", COUNT, "Blocks", t->plain);
	print_siblings(t, t->modules.roots, 0, 1);
	if (t->hidden)
		fprintf(t->out, "%*s+ %s\n", (int)t->used, "",
			text__counted(t->text, 48, t->hidden, "more row"));
	print_rest(t, &t->modules.before, t->before);
	print_rest(t, &t->modules.outside, "(no module)");
	print_rest(t, &t->modules.filtered, "(filtered out)");
}

/* Chooses whether there are bars, and sums the columns before the names. */
static void set_columns(struct tree *tree, const struct report_text_opts *o)
{
	size_t bar = REPORT_BAR + 2, figures, for_names;

	figures = FIGURE + 2 + PERCENT + 2 + FIGURE + 2 + COUNT + 2;
	for_names = tree->width > figures + bar ? tree->width - figures - bar : 0;
	/* Even if the user asks for bars, names have 8 columns. */
	tree->bars = report_text__bars(tree->out, o, for_names >= NAME_MIN) && for_names >= 8;
	tree->used = figures + (tree->bars ? bar : 0);
}

int report_text__tree(FILE *out, const struct model *m, size_t device,
		      const struct report_text_opts *o)
{
	struct tree *tree = calloc(1, sizeof(*tree));
	bool colour = report_text__colour(out, o);
	struct model_device dev;
	int err;

	if (!tree)
		return -ENOMEM;
	err = build_tree(m, device, o->when, o->select, &tree->modules);
	if (err) {
		free(tree);
		return err;
	}
	model__device(m, device, &dev);
	tree->out = out;
	tree->before = words__before(model__is_snapshot(m));
	tree->width = report_text__width(out, o);
	tree->left = o->top ? o->top : SIZE_MAX;
	tree->unicode = text__unicode();
	tree->bold = colour ? "\033[1m" : "";
	tree->cyan = colour ? "\033[36m" : "";
	tree->plain = colour ? "\033[0m" : "";
	set_columns(tree, o);
	tree->all_bytes = report_text__all(&dev, o->when);
	report_text__sums(out, o, &dev);
	print_tree(tree);
	free(tree->modules.all);
	free(tree);
	return 0;
}

/* ---- categories and modules as bars ---- */

#define ROWS 6	     /* rows of a list; smaller items share one more row */
#define LABEL_MIN 15 /* length of "optimizer_state" */
#define LABEL_MOST 32
#define BAR_MIN 6
#define BAR_WANTED 20
#define GAP 2
#define BETWEEN 3			   /* columns between lists side by side */
#define FIXED (2 + GAP + 10 + BAR_PERCENT) /* columns of a line without label and bar */
#define BAR_PERCENT (GAP + 5)		   /* columns of a percentage, and before it */
#define LEAST (FIXED + LABEL_MIN)

struct item {
	char label[160]; /* text, cleaned */
	uint64_t bytes;
};

struct list {
	const char *title;
	struct item all[ROWS + 4];     /* the largest items, then those of add_rest() */
	size_t n, named;	       /* rows; those of add_item() */
	uint64_t others, others_bytes; /* number and bytes of items without a row */
};

static void set_item(struct item *item, const char *label, uint64_t bytes)
{
	item->bytes = bytes;
	text__clean(item->label, sizeof(item->label), label, strlen(label));
}

/* Orders items by size, then by name: blocks.2 before blocks.10. */
static bool goes_before(const struct item *a, const struct item *b)
{
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes;
	return strverscmp(a->label, b->label) < 0;
}

/* Adds an item in its order; only the ROWS largest have rows. */
static void add_item(struct list *l, const char *label, uint64_t bytes)
{
	size_t place = l->named;
	struct item item;

	set_item(&item, label, bytes);
	if (l->named < ROWS) {
		l->named++;
		l->n = l->named;
	} else { /* the smallest loses its row, or the item gets none */
		const struct item *last = &l->all[ROWS - 1];

		l->others++;
		if (!goes_before(&item, last)) {
			l->others_bytes += bytes;
			return;
		}
		l->others_bytes += last->bytes;
		place = ROWS - 1;
	}
	for (; place && goes_before(&item, &l->all[place - 1]); place--)
		l->all[place] = l->all[place - 1];
	l->all[place] = item;
}

/* Adds a row after those of add_item(). */
static void add_rest(struct list *l, const char *label, uint64_t bytes)
{
	if (bytes && l->n < sizeof(l->all) / sizeof(*l->all))
		set_item(&l->all[l->n++], label, bytes);
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

/* Lists the moment's bytes by role. Returns 0 or -errno. */
static int list_categories(const struct model *m, size_t device, const struct report_text_opts *o,
			   struct list *l)
{
	struct row_opts opts = { .by = BY_CATEGORY, .when = o->when };
	uint64_t before = 0, filtered_bytes, filtered_count;
	struct row *rows = NULL;
	size_t n = 0, kept;
	int err;

	report_select__apply(o->select, &opts);
	err = model__rows(m, device, &opts, &rows, &n);
	if (err)
		return err;
	kept = report_select__kept(rows, n, &filtered_bytes, &filtered_count);
	for (size_t i = 0; i < kept; i++)
		if (rows[i].before_attach)
			before += rows[i].bytes;
		else if (rows[i].bytes)
			add_item(l, words__role(rows[i].category), rows[i].bytes);
	add_others(l);
	add_rest(l, words__before(model__is_snapshot(m)), before);
	add_rest(l, "(filtered out)", filtered_bytes);
	free(rows);
	return 0;
}

/* True if some memory has a known role. */
static bool tells_roles(const struct list *l)
{
	return l->n != 1 || strcmp(l->all[0].label, words__role(category__name(CATEGORY_UNKNOWN)));
}

/* Returns the bytes in all modules. */
static uint64_t in_modules(const struct module_tree *t)
{
	uint64_t sum = 0;

	for (uint32_t id = t->roots; id; id = t->all[id - 1].next)
		sum += t->all[id - 1].total;
	return sum;
}

/* Adds a module. alone: the bytes are without its submodules. */
static void add_module(struct list *l, const struct module_node *x, uint64_t bytes, bool alone)
{
	const char *itself = alone ? " itself" : "";
	char label[256];

	if (!*x->name)
		snprintf(label, sizeof(label), "%s (model)%s", x->cls, itself);
	else if (is_number(x->name)) /* of nn.Sequential */
		snprintf(label, sizeof(label), "%s (%s)%s", x->name, x->cls, itself);
	else
		snprintf(label, sizeof(label), "%s%s", x->name, itself);
	add_item(l, label, bytes);
}

/* True if there are several siblings, all with numbers for names and of one class. */
static bool are_numbered(const struct module_tree *t, uint32_t first)
{
	const struct module_node *first_module = &t->all[first - 1];

	for (uint32_t id = first; id; id = t->all[id - 1].next) {
		const struct module_node *sibling = &t->all[id - 1];
		const char *name = strrchr(sibling->name, '.');

		name = name ? name + 1 : sibling->name;
		if (name == sibling->name || !is_number(name) ||
		    strcmp(sibling->cls, first_module->cls) != 0)
			return false;
	}
	return first_module->next;
}

/* Adds numbered siblings as one: "blocks.* (12)". */
static void add_numbered(const struct module_tree *t, uint32_t first, struct list *l)
{
	const char *name = t->all[first - 1].name;
	char label[256];
	uint64_t bytes = 0;
	unsigned n = 0;

	for (uint32_t id = first; id; id = t->all[id - 1].next, n++)
		bytes += t->all[id - 1].total;
	/* The name has a dot: see are_numbered(). */
	snprintf(label, sizeof(label), "%.*s.* (%u)", (int)(strrchr(name, '.') - name), name, n);
	add_item(l, label, bytes);
}

/* Adds siblings from id `first` on. Splits those that hold more than half of all modules' bytes
 * into their parts, recursively. */
static void add_parts(const struct module_tree *t, uint32_t first, uint64_t all, struct list *l)
{
	if (first && are_numbered(t, first)) {
		add_numbered(t, first, l);
		return;
	}
	for (uint32_t id = first; id; id = t->all[id - 1].next) {
		const struct module_node *module = &t->all[id - 1];

		if (module->total <= all / 2 || !module->first) {
			add_module(l, module, module->total, /*alone=*/false);
			continue;
		}
		if (module->own)
			add_module(l, module, module->own, /*alone=*/true);
		add_parts(t, module->first, all, l); /* at most 32 levels, the parts of a name */
	}
}

/* Lists the moment's bytes by module. Returns 0 or -errno. */
static int list_modules(const struct model *m, size_t device, const struct report_text_opts *o,
			struct list *l)
{
	struct module_tree tree;
	int err = build_tree(m, device, o->when, o->select, &tree);

	if (err)
		return err;
	if (tree.n) { /* without modules, the list has no information */
		add_parts(&tree, tree.roots, in_modules(&tree), l);
		add_others(l);
		add_rest(l, "(no module)", tree.outside.bytes);
		add_rest(l, words__before(model__is_snapshot(m)), tree.before.bytes);
		add_rest(l, "(filtered out)", tree.filtered.bytes);
	}
	free(tree.all);
	return 0;
}

/* Format of a list. */
struct shape {
	size_t label, bar; /* widths in columns; bar 0: none */
	uint64_t all;	   /* bytes that are 100 % */
	bool unicode;
	const char *bold, *cyan, *plain; /* escape sequences, or "" */
};

/* Returns the columns of a line. */
static size_t shape_width(const struct shape *s)
{
	return FIXED + s->label + (s->bar ? GAP + s->bar : 0);
}

/* Prints an item as wide as the shape. fill: pad with spaces, for a list to the right. */
static void print_item(FILE *out, const struct shape *s, const struct item *item, bool fill)
{
	char bar[TEXT_BAR], bytes[24], label[sizeof(item->label)], percent[16];
	strcpy(label, item->label);
	words__cut_middle(label, s->label);
	fprintf(out, "  %s%*s  %10s  %3s %%", label, (int)(s->label - text__width(label)), "",
		text__bytes(bytes, sizeof(bytes), item->bytes),
		text__percent(percent, item->bytes, s->all));
	if (!s->bar)
		return;
	text__bar(bar, item->bytes, s->all, s->bar, s->unicode, fill);
	fprintf(out, "  %s%s%s", s->cyan, bar, s->plain);
}

/* Prints a title, padded to this many columns. */
static void print_title(FILE *out, const struct shape *s, const char *title, size_t columns)
{
	fprintf(out, "%s%s%s%*s", s->bold, title, s->plain,
		(int)(columns > strlen(title) ? columns - strlen(title) : 0), "");
}

/* Computes the widths for this many columns. */
static struct shape choose_shape(const struct list *l, size_t columns)
{
	struct shape shape = { .label = LABEL_MIN };
	size_t room = columns - FIXED;

	for (size_t i = 0; i < l->n; i++) {
		size_t width = text__width(l->all[i].label);

		shape.label = width > shape.label ? width : shape.label;
	}
	shape.label = shape.label < LABEL_MOST ? shape.label : LABEL_MOST;
	shape.label = shape.label < room ? shape.label : room;
	room -= shape.label;
	if (room >= GAP + BAR_MIN)
		shape.bar = room - GAP < BAR_WANTED ? room - GAP : BAR_WANTED;
	return shape;
}

/* Prints both lists side by side. */
static void print_beside(FILE *out, struct list lists[2], const struct shape shapes[2])
{
	size_t width = shape_width(&shapes[0]);

	print_title(out, &shapes[0], lists[0].title, width + BETWEEN);
	print_title(out, &shapes[1], lists[1].title, 0);
	fputc('\n', out);
	for (size_t i = 0; i < lists[0].n || i < lists[1].n; i++) {
		bool beside = i < lists[1].n;

		if (i < lists[0].n)
			print_item(out, &shapes[0], &lists[0].all[i], beside);
		if (beside) {
			fprintf(out, "%*s", (int)(BETWEEN + (i < lists[0].n ? 0 : width)), "");
			print_item(out, &shapes[1], &lists[1].all[i], /*fill=*/false);
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
		print_item(out, s, &l->all[i], /*fill=*/false);
		fputc('\n', out);
	}
}

/* Prints both lists, side by side if they fit. all: bytes that are 100 %. */
static void print_lists(FILE *out, struct list lists[2], uint64_t all,
			const struct report_text_opts *o)
{
	size_t width = report_text__width(out, o), half = (width - BETWEEN) / 2;
	bool beside = half >= LEAST && lists[0].n && lists[1].n,
	     colour = report_text__colour(out, o);
	struct shape shapes[2];

	for (int i = 0; i < 2; i++) {
		shapes[i] = choose_shape(&lists[i], beside ? half : width);
		shapes[i].all = all;
		shapes[i].unicode = text__unicode();
		shapes[i].bold = colour ? "\033[1m" : "";
		shapes[i].cyan = colour ? "\033[36m" : "";
		shapes[i].plain = colour ? "\033[0m" : "";
	}
	if (beside) {
		print_beside(out, lists, shapes);
		return;
	}
	for (int i = 0; i < 2; i++)
		print_alone(out, &lists[i], &shapes[i]);
}

int report_text__overview(FILE *out, const struct model *m, size_t device,
			  const struct report_text_opts *o)
{
	struct list lists[2] = { { .title = "By role" }, { .title = "By module" } };
	struct model_device dev;
	int err = list_categories(m, device, o, &lists[0]);

	if (err)
		return err;
	if (!tells_roles(&lists[0]))
		lists[0].n = 0;
	err = list_modules(m, device, o, &lists[1]);
	if (err)
		return err;
	model__device(m, device, &dev);
	print_lists(out, lists, o->when == ROWS_AT_MARK ? dev.mark_allocated : dev.allocated, o);
	if (lists[0].n || lists[1].n)
		fputc('\n', out);
	return 0;
}
