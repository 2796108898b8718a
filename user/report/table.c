/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of the text report: as many columns as fit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "labels/words.h"
#include "lib/bar.h"
#include "lib/grid.h"
#include "lib/text.h"
#include "record/dict.h"
#include "record/stream.h"
#include "report/filter.h"
#include "report/text.h"

#define WHERE_MIN 28	/* least columns of the last one while Phase is shown */
#define WHERE_WANTED 40 /* the same while Category or Module is shown */
#define MODULE_MAX 32

enum {
	COL_MEM,
	COL_BAR,
	COL_CUMULATIVE,
	COL_MEDIAN,
	COL_COUNT,
	COL_CATEGORY,
	COL_PHASE,
	COL_THREAD,
	COL_MODULE,
	COL_WHERE,
	COL_NR
};

static const char *const titles[COL_WHERE] = { "Mem",	   "",	    "Cumulative", "Median", "Count",
					       "Category", "Phase", "Thread",	  "Module" };

struct table {
	FILE *out;
	const struct dict *d;
	const struct report_text_opts *o;
	const char *cwd;
	struct row *rows;
	size_t n, shown;
	struct row rest;     /* sum of the rows that --top leaves out */
	size_t nout;	     /* rows that --filter leaves out, after the n rows */
	struct row out_rest; /* sum of those rows */
	enum group last;     /* subject of the last column */
	struct column columns[COL_WHERE];
	struct grid *grid;
	size_t where_width, room; /* columns of the last one: of its longest text; available */
	char text[REPORT_TEXT];
};

unsigned report_text__width(FILE *out, const struct report_text_opts *o)
{
	return o->width ? (o->width < 40 ? 40 : o->width) : text__columns(out);
}

bool report_text__colour(FILE *out, const struct report_text_opts *o)
{
	return o->colour == REPORT_AUTO ? text__colour(out) : o->colour == REPORT_ALWAYS;
}

bool report_text__bars(FILE *out, const struct report_text_opts *o, bool room)
{
	return o->bars == REPORT_AUTO ? room && isatty(fileno(out)) : o->bars == REPORT_ALWAYS;
}

/* Returns the text of the last column. */
static const char *where(struct table *t, const struct row *r, size_t columns)
{
	return words__where(t->text, r, t->last, t->cwd, columns);
}

/* Writes the modules of a line: "blocks.*.mlp (4)". */
static const char *modules(struct table *t, const struct row *r, size_t columns)
{
	char count[24];

	if (r->modules > 1 && !strcmp(r->module, "*")) {
		snprintf(t->text, sizeof(t->text), "(%u modules)", r->modules);
		return words__cut(t->text, columns);
	}
	words__module(t->text, r);
	if (r->modules <= 1)
		return words__cut_front(t->text, columns);
	snprintf(count, sizeof(count), " (%u)", r->modules);
	if (columns > strlen(count))
		words__cut_front(t->text, columns - strlen(count));
	return strcat(t->text, count);
}

static const char *cell(struct table *t, const struct row *r, int col, size_t columns)
{
	switch (col) {
	case COL_MEM:
		return text__bytes(t->text, 24, r->bytes);
	case COL_BAR:
		return bar__draw(t->text, r->bytes, t->n ? t->rows[0].bytes : 0, REPORT_BAR,
				 bar__unicode(), true);
	case COL_CUMULATIVE:
		return text__bytes(t->text, 24, r->cumulative);
	case COL_MEDIAN:
		return r->count ? text__bytes(t->text, 24, r->median) : "-";
	case COL_COUNT:
		text__count(t->text, 32, r->count);
		/* Some blocks have no count: "12+". */
		return !r->count ? "-" : r->anonymous ? strcat(t->text, "+") : t->text;
	case COL_CATEGORY:
		return r->category ? r->category : "";
	case COL_THREAD:
		return words__cut(words__thread(t->text, r), MODULE_MAX);
	case COL_PHASE:
		return r->before_attach ? "" : phase__name(r->phase);
	case COL_MODULE:
		return modules(t, r, columns);
	}
	return where(t, r, columns);
}

static bool overlap(const struct table *t)
{
	return t->last == BY_LAYER;
}

/* Adds a row. sum: the row is the sum of rows that are not shown. */
static void put_row(struct table *t, const struct row *r, bool sum)
{
	const char *bar = report_text__colour(t->out, t->o) ? "\033[36m" : NULL;

	grid__row(t->grid);
	for (int c = 0; c < COL_WHERE; c++)
		if (!sum ||
		    (!overlap(t) && (c == COL_MEM || c == COL_CUMULATIVE || c == COL_COUNT)))
			grid__put(t->grid, c, cell(t, r, c, MODULE_MAX), c == COL_BAR ? bar : NULL);
}

/* Fills the grid with the rows. Hidden columns stay hidden. Returns 0 or -ENOMEM. */
static int fill(struct table *t)
{
	struct grid *before = t->grid;

	t->grid = grid__new(t->columns, COL_WHERE);
	for (int c = 0; t->grid && before && c < COL_WHERE; c++)
		grid__show(t->grid, c, grid__shown(before, c));
	grid__free(before);
	if (!t->grid)
		return -ENOMEM;
	t->where_width = 0;
	for (size_t i = 0; i < t->shown; i++) {
		size_t w = text__width(where(t, &t->rows[i], 200));

		t->where_width = w > t->where_width ? w : t->where_width;
		put_row(t, &t->rows[i], false);
	}
	if (t->shown < t->n)
		put_row(t, &t->rest, true);
	if (t->nout)
		put_row(t, &t->out_rest, true);
	return grid__error(t->grid);
}

/* Leaves out columns up to goes until the last one has room for its longest text, or for most
 * columns. */
static void fit(struct table *t, size_t width, size_t most, int goes)
{
	t->room = grid__fit(t->grid, width, t->where_width < most ? t->where_width : most, goes);
}

/* Returns the subject of the last column: the widest of those that rows are split by. */
static enum group last_column(const struct report_text_opts *o)
{
	static const enum group order[] = { BY_LINE, BY_MODULE, BY_THREAD, BY_PHASE };

	if (!o->split)
		return o->by;
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++)
		if (o->split & 1U << order[i])
			return order[i];
	return BY_CATEGORY;
}

/* Shows bars if there is room for them without leaving out a column. */
static void add_bars(struct table *t, size_t width)
{
	bool bars;

	grid__show(t->grid, COL_BAR, false);
	fit(t, width, 0, 0);
	bars = report_text__bars(t->out, t->o, t->room >= REPORT_BAR + 2 + t->where_width);
	grid__show(t->grid, COL_BAR, bars);
}

/* Sets which columns go first where there is no room. */
static void order_columns(struct table *t)
{
	static const int plain[COL_WHERE] = { [COL_CATEGORY] = 1,
					      [COL_MODULE] = 2,
					      [COL_PHASE] = 3,
					      [COL_MEDIAN] = 4,
					      [COL_CUMULATIVE] = 5 };
	static const int split[COL_WHERE] = {
		/* the user asked for these columns: figures go first */
		[COL_MEDIAN] = 1, [COL_CUMULATIVE] = 2, [COL_COUNT] = 3, [COL_CATEGORY] = 4,
		[COL_THREAD] = 5, [COL_MODULE] = 6,	[COL_PHASE] = 7
	};

	for (int c = 0; c < COL_WHERE; c++)
		t->columns[c] = (struct column){ .title = titles[c],
						 .right = c <= COL_COUNT,
						 .goes = t->o->split ? split[c] : plain[c] };
}

/* Hides columns without information. */
static void hide_columns(struct table *t)
{
	static const enum group groups[COL_WHERE] = {
		[COL_CATEGORY] = BY_CATEGORY,
		[COL_PHASE] = BY_PHASE,
		[COL_THREAD] = BY_THREAD,
		[COL_MODULE] = BY_MODULE,
	};
	unsigned of = words__speaks_of(t->o->by, t->o->split);
	bool known = t->o->split, modules = t->o->split;

	for (size_t i = 0; i < t->n; i++) {
		known |= t->rows[i].category &&
			 strcmp(t->rows[i].category, category__name(CATEGORY_UNKNOWN)) != 0;
		modules |= t->rows[i].modules != 0;
	}
	for (int c = COL_CATEGORY; c < COL_WHERE; c++)
		grid__show(t->grid, c,
			   (of & 1U << groups[c]) && groups[c] != t->last &&
				   (c != COL_CATEGORY || known) && (c != COL_MODULE || modules));
	grid__show(t->grid, COL_CUMULATIVE, !overlap(t)); /* rows overlap */
	grid__show(t->grid, COL_BAR, t->o->bars == REPORT_ALWAYS);
}

static void choose_columns(struct table *t, size_t width)
{
	bool bars = t->o->bars == REPORT_ALWAYS;

	hide_columns(t);
	if (t->o->split) {
		fit(t, width, WHERE_MIN / 2, COL_WHERE);
	} else {
		fit(t, width, WHERE_WANTED, 2);
		fit(t, width, WHERE_MIN, 3);
		fit(t, width, bars ? WHERE_MIN : WHERE_MIN / 2, 4);
		if (bars)
			fit(t, width, WHERE_MIN, 5);
	}
	add_bars(t, width);
}

static void print_titles(struct table *t)
{
	char title[32];

	snprintf(title, sizeof(title), "%s", words__where_title(t->last));
	grid__print_titles(t->grid, t->out, report_text__colour(t->out, t->o),
			   words__cut(title, t->room));
}

/* Frames from the root on, as in tracebacks. */
static void print_stack(struct table *t, const struct row *r)
{
	struct dict_stack s = dict__get_stack(t->d, r->stack);
	char frame[REPORT_TEXT];

	for (uint32_t i = s.n; i-- > 0;) {
		words__frame(frame, t->d, s.frames[i]);
		text__clean(t->text, sizeof(t->text), frame, strlen(frame));
		fprintf(t->out, "    %s\n", t->text);
	}
	if (s.walk)
		fprintf(t->out, "    (%s)\n", facts__walk_name(s.walk));
	if (row__has_leaf(r)) {
		text__clean(t->text, sizeof(t->text), r->node_class, strlen(r->node_class));
		fprintf(t->out, "    %s\n", t->text);
	}
	fputc('\n', t->out);
}

void report_text__left_out(const struct grid *g, FILE *out, size_t row, size_t n,
			   const char *before, const char *behind, size_t room)
{
	char words[64], count[32];

	snprintf(words, sizeof(words), "(%s %s%s%s)", text__count(count, sizeof(count), n), before,
		 n == 1 ? "" : "s", behind);
	grid__print(g, out, row, words__cut(words, room));
}

static void print_rows(struct table *t)
{
	for (size_t i = 0; i < t->shown; i++) {
		grid__print(t->grid, t->out, i, where(t, &t->rows[i], t->room));
		if (t->last == BY_STACK && !t->rows[i].before_attach)
			print_stack(t, &t->rows[i]);
	}
	if (t->shown < t->n)
		report_text__left_out(t->grid, t->out, t->shown, t->n - t->shown, "more row", "",
				      t->room);
	if (t->nout)
		report_text__left_out(t->grid, t->out, t->shown + (t->shown < t->n), t->nout, "row",
				      " not shown", t->room);
}

void report_text__sums(FILE *out, const struct report_text_opts *o, const struct model_device *dev)
{
	enum figure is = o->when == ROWS_AT_MARK ? dev->mark_is : dev->allocated_is;
	uint64_t mem = o->when == ROWS_AT_MARK ? dev->mark_allocated : dev->allocated;
	char bytes[24], time[24], title[64];

	if (o->when == ROWS_NOW)
		strcpy(title, "Mem now");
	else if (o->when == ROWS_TOTAL)
		strcpy(title, "");
	else if (o->at == AT_PEAK)
		strcpy(title, "Max mem");
	else if (o->at == AT_END)
		strcpy(title, "Mem at the end");
	else
		snprintf(title, sizeof(title), "Mem at %s%s",
			 o->at == AT_OOM ? "the first out of memory, " : "",
			 text__time(time, sizeof(time),
				    o->at == AT_OOM ? dev->mark_time : o->at_time));
	if (*title)
		fprintf(out, "%s: %s%s\n", title, words__about(is),
			text__bytes(bytes, sizeof(bytes), mem));
	/* The sum lacks allocations that were lost. */
	is = dev->peak_is == FIGURE_EXACT ? FIGURE_EXACT : FIGURE_LOWER_BOUND;
	fprintf(out, "Total mem allocated: %s%s\n", words__about(is),
		text__bytes(bytes, sizeof(bytes), dev->total_allocated));
}

/* The rows add up to the allocator's figure, unless events were lost. */
static void print_check(const struct table *t, const struct model_device *dev)
{
	uint64_t mem = t->o->when == ROWS_AT_MARK ? dev->mark_allocated : dev->allocated;
	uint64_t sum = t->n + t->nout ? t->rows[t->n + t->nout - 1].cumulative : 0;
	char a[24], b[24], c[24];

	if (overlap(t))
		return;
	if (t->o->when == ROWS_TOTAL)
		mem = dev->total_allocated;
	if (sum != mem)
		fprintf(t->out,
			"These rows add up to %s, not to the %s that the allocator says: %s %s, "
			"since events were missed.\n",
			text__bytes(a, sizeof(a), sum), text__bytes(b, sizeof(b), mem),
			text__bytes(c, sizeof(c), sum > mem ? sum - mem : mem - sum),
			sum > mem ? "too much" : "are missing");
}

static int fetch(struct table *t, const struct model *m, size_t device, const struct row_opts *opts)
{
	struct row *rows;
	size_t n;
	int err = model__rows(m, device, opts, &rows, &n);

	if (err)
		return err;
	free(t->rows);
	t->rows = rows;
	t->n = report_select__kept(rows, n, &t->out_rest.bytes, &t->out_rest.count);
	t->nout = n - t->n;
	t->out_rest.cumulative = n ? rows[n - 1].cumulative : 0;
	n = t->n;
	t->shown = t->o->top && t->o->top < n ? t->o->top : n;
	t->rest = (struct row){ 0 };
	for (size_t i = t->shown; i < n; i++) {
		t->rest.bytes += rows[i].bytes;
		t->rest.count += rows[i].count;
		t->rest.cumulative = rows[i].cumulative;
	}
	return 0;
}

static int prepare(struct table *t, const struct model *m, size_t device)
{
	struct row_opts opts = {
		.by = t->o->by,
		.split = t->o->split,
		.when = t->o->when,
		.innermost = t->o->innermost,
	};
	size_t width = report_text__width(t->out, t->o);
	int err;

	report_select__apply(t->o->select, &opts);
	/* One row for a line in all layers that run it; the Module column names them. */
	opts.any_module = t->o->by == BY_LINE;
	order_columns(t);
	err = fetch(t, m, device, &opts);
	if (!err)
		err = fill(t);
	if (err)
		return err;
	choose_columns(t, width);
	/* Merge rows that differ only in hidden columns. */
	opts.any_phase = !grid__shown(t->grid, COL_PHASE);
	opts.any_category = !grid__shown(t->grid, COL_CATEGORY);
	if (!t->o->split && t->o->by == BY_LINE && (opts.any_phase || opts.any_category)) {
		err = fetch(t, m, device, &opts);
		if (!err)
			err = fill(t);
	}
	t->room = grid__fit(t->grid, width, 0, 0);
	t->room = t->room ? t->room : 8;
	return err;
}

int report_text__table(FILE *out, const struct model *m, size_t device, const struct dict *d,
		       const struct facts *f, const struct report_text_opts *o)
{
	struct table *t = calloc(1, sizeof(*t));
	struct model_device dev;
	int err;

	if (!t)
		return -ENOMEM;
	*t = (struct table){
		.out = out, .d = d, .o = o, .cwd = facts__get(f, "cwd"), .last = last_column(o)
	};
	err = prepare(t, m, device);
	if (!err) {
		model__device(m, device, &dev);
		if (!o->no_sums)
			report_text__sums(out, o, &dev);
		print_titles(t);
		print_rows(t);
		print_check(t, &dev);
	}
	grid__free(t->grid);
	free(t->rows);
	free(t);
	return err;
}
