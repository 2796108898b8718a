/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of the text report: as many columns as fit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/grid.h"
#include "base/text.h"
#include "model/growth_summary.h"
#include "model/holders.h"
#include "model/model.h"
#include "model/words.h"
#include "record/dict.h"
#include "record/stream.h"
#include "report/files.h"
#include "report/filter.h"
#include "report/recording/stacks.h"
#include "report/text.h"

/* ---- lines of libraries ---- */

#define SHOWN 5 /* most lines of libraries below a row */

struct lines {
	struct row *all; /* file, func, line and bytes */
	size_t n, cap;
};

/* True if both are NULL, or equal. */
static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool same_line(const struct row *a, const struct row *b)
{
	return a->line == b->line && same_text(a->file, b->file) && same_text(a->func, b->func);
}

/* Adds the row's bytes to the entry of its line. Returns 0 or -ENOMEM. */
static int add_line(struct lines *lines, const struct row *r)
{
	for (size_t i = 0; i < lines->n; i++) {
		if (same_line(&lines->all[i], r)) {
			lines->all[i].bytes += r->bytes;
			return 0;
		}
	}
	if (array__grow(&lines->all, &lines->cap, lines->n + 1, sizeof(*lines->all)))
		return -ENOMEM;
	lines->all[lines->n++] = *r;
	return 0;
}

/* Adds up the innermost lines of the stacks that belong to a row of the table. table_opts: options
 * of the table's rows. Returns 0 or -errno. */
static int collect_lines(const struct model *m, size_t device, const struct row_opts *table_opts,
			 const struct row *row, struct lines *lines)
{
	struct row_opts opts = { .when = table_opts->when,
				 .split = 1u << BY_LINE | 1u << BY_STACK | 1u << BY_PHASE |
					  1u << BY_CATEGORY };
	struct row *rows = NULL, innermost;
	struct row_frame frame;
	size_t n = 0;
	int err = model__rows(m, device, &opts, &rows, &n);

	for (size_t i = 0; !err && i < n; i++) {
		if (rows[i].before_attach || !same_line(&rows[i], row) ||
		    (!table_opts->any_phase && rows[i].phase != row->phase) ||
		    (!table_opts->any_category && !same_text(rows[i].category, row->category)) ||
		    !model__stack_line(m, rows[i].stack, FRAMES_ALL, &frame))
			continue;
		innermost = (struct row){ .bytes = rows[i].bytes,
					  .file = frame.file,
					  .func = frame.func,
					  .line = frame.line };
		err = add_line(lines, &innermost);
	}
	free(rows);
	return err;
}

static int cmp_bytes(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* Prints the lines of libraries that allocated a row's memory, if they differ from the row's
 * line. Arguments are as for collect_lines(). Returns 0 or -errno. */
static int print_library_lines(FILE *out, const struct model *m, size_t device,
			       const struct row_opts *table_opts, const struct row *row,
			       const char *cwd, size_t columns)
{
	char at[REPORT_TEXT], bytes[24];
	struct lines found = { 0 };
	int err = collect_lines(m, device, table_opts, row, &found);

	if (!err && found.n && !(found.n == 1 && same_line(&found.all[0], row))) {
		qsort(found.all, found.n, sizeof(*found.all), cmp_bytes);
		for (size_t i = 0; i < found.n && i < SHOWN; i++)
			fprintf(out, "%12s%10s  in %s\n", "",
				text__bytes(bytes, sizeof(bytes), found.all[i].bytes),
				words__location(at, &found.all[i], cwd,
						columns > 47 ? columns - 27 : 20));
		if (found.n > SHOWN)
			fprintf(out, "%24s+ %zu more lines (--frames all)\n", "", found.n - SHOWN);
	}
	free(found.all);
	return err;
}

/* ---- the table ---- */

#define WHERE_MIN 24	/* least width of the last column while Module or Role is shown */
#define WHERE_WANTED 26 /* the same while Phase is shown */
#define MODULE_MAX 32
#define MODULE_NARROW 18 /* the same if another column then fits */
#define LARGE 30	 /* percent; larger shares are red */

#define COLUMN_TITLE(id, name, title, fields, groups) title,
static const char *const titles[COL_NR] = { REPORT_COLUMNS(COLUMN_TITLE) };

struct table {
	FILE *out;
	const struct dict *d;
	const struct report_text_opts *o;
	const char *cwd;
	struct holder_rows model_rows;
	struct row *rows; /* model_rows, after merging */
	size_t n, shown;
	struct row rest;	      /* sum of the rows that --top leaves out */
	size_t nfiltered;	      /* rows that --filter leaves out, after the n rows */
	struct row filtered;	      /* sum of those rows */
	struct report_frames *frames; /* for --by stack */
	uint64_t all;		      /* 100 %: the allocator's figure */
	uint64_t sum;		      /* sum of all rows, bytes */
	bool lost;		      /* events were lost */
	bool on_host;		      /* the device is "host" */
	bool snapshot;		      /* blocks have names that the program gave them */
	enum group last;	      /* what the last column shows */
	struct column columns[COL_WHERE];
	struct grid *grid;
	size_t where_width, room;     /* width of the last column: of its longest text; available */
	size_t module_max;	      /* most columns of Module and of Name */
	struct growth_summary growth; /* unknown unless rows are by line */
	const struct growth_line **growing; /* for each row: its line, at the largest row */
	bool short_names;		    /* functions without their class in all rows */
	char text[REPORT_TEXT];
};

unsigned report_text__width(FILE *out, const struct report_text_opts *o)
{
	unsigned width = o->width ? o->width : text__columns(out);

	return width < 40 ? 40 : width;
}

bool report_text__colour(FILE *out, const struct report_text_opts *o)
{
	return o->colour == REPORT_AUTO ? text__colour(out) : o->colour == REPORT_ALWAYS;
}

bool report_text__bars(FILE *out, const struct report_text_opts *o, bool room)
{
	return o->bars == REPORT_AUTO ? room && isatty(fileno(out)) : o->bars == REPORT_ALWAYS;
}

/* Returns the text of the last column without a mark. */
static const char *say_place(struct table *t, const struct row *r, size_t columns)
{
	bool line = t->last == BY_LINE || t->last == BY_STACK;

	if (line && t->short_names)
		return words__location_short(t->text, r, t->cwd, columns);
	return words__where(t->text, r, t->last, t->cwd, columns);
}

/* Writes the modules of a line: "blocks.*.mlp (4)". */
static const char *say_modules(struct table *t, const struct row *r, size_t columns)
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

#define MARK_SHORT 10 /* columns of "  <- grows" */
#define MARKED_MIN 12 /* least columns of a place before a mark */

/* Returns the growing line that the row is marked with; NULL: none. */
static const struct growth_line *growth_of(const struct table *t, const struct row *r)
{
	return t->growing ? t->growing[r - t->rows] : NULL;
}

/* Returns the text of the last column: the place, and a mark if the line grows. */
static const char *say_where(struct table *t, const struct row *r, size_t columns)
{
	const struct growth_line *line = growth_of(t, r);
	char mark[GROWTH_SUMMARY_MARK];
	size_t used;

	if (!line || columns < MARKED_MIN + MARK_SHORT)
		return say_place(t, r, columns);
	used = text__width(say_place(t, r, columns - MARK_SHORT));
	growth_summary__mark(&t->growth, line, columns - used - 2, mark);
	snprintf(t->text + strlen(t->text), sizeof(t->text) - strlen(t->text), "  %s", mark);
	return t->text;
}

/* Returns the name of the row's blocks. columns: most columns of it. */
static const char *say_name(struct table *t, const struct row *r, size_t columns)
{
	if (r->several_names)
		return "(several)";
	if (!r->name)
		return "-";
	text__clean(t->text, sizeof(t->text), r->name, strlen(r->name));
	return words__cut(t->text, columns);
}

/* Returns the text of a cell. columns: room in Module and in the last column. */
static const char *say_cell(struct table *t, const struct row *r, int col, size_t columns)
{
	switch (col) {
	case COL_SIZE:
		return text__bytes(t->text, 24, r->bytes);
	case COL_PERCENT:
		return text__percent(t->text, r->bytes, t->all);
	case COL_BAR:
		return text__bar(t->text, r->bytes, t->n ? t->rows[0].bytes : 0, REPORT_BAR,
				 text__unicode(), /*fill=*/true);
	case COL_CUMULATIVE:
		return text__bytes(t->text, 24, r->cumulative);
	case COL_MEDIAN:
		return r->count && r->median ? text__bytes(t->text, 24, r->median) : "-";
	case COL_REQUESTED:
		return r->requested ? text__bytes(t->text, 24, r->requested) : "-";
	case COL_BLOCKS:
		if (!r->count)
			return "-";
		text__count(t->text, 32, r->count);
		/* Some blocks have no count: "12+". */
		return r->anonymous ? strcat(t->text, "+") : t->text;
	case COL_ROLE:
		return words__role(r->category);
	case COL_THREAD:
		return words__cut(words__thread(t->text, r), MODULE_MAX);
	case COL_SCOPE:
		if (r->before_attach)
			return words__before(r->history);
		return words__cut_front(words__scope(t->text, r), MODULE_MAX);
	case COL_PHASE:
		return r->before_attach ? words__before(r->history) : words__phase(r->phase);
	case COL_MODULE:
		return r->modules || *r->module_class ? say_modules(t, r, columns) : "(no module)";
	case COL_NAME:
		return say_name(t, r, columns);
	}
	return say_where(t, r, columns);
}

/* Memory of a layer is also in the rows of the layers around it. */
static bool rows_overlap(const struct table *t)
{
	return t->last == BY_LAYER;
}

/* Returns the escape sequence of a cell; NULL: none. */
static const char *colour_of(const struct table *t, const struct row *r, int col)
{
	if (!report_text__colour(t->out, t->o))
		return NULL;
	if (col == COL_PERCENT && t->all && r->bytes / LARGE >= t->all / 100)
		return "\033[31m";
	return col == COL_BAR ? "\033[36m" : NULL;
}

/* Adds a row to the grid. is_sum: it is the sum of rows that are not shown. */
static void put_row(struct table *t, const struct row *r, bool is_sum)
{
	const unsigned summed_columns = 1U << COL_SIZE | 1U << COL_PERCENT | 1U << COL_CUMULATIVE |
					1U << COL_BLOCKS;

	grid__row(t->grid);
	for (int col = 0; col < COL_WHERE; col++)
		if (!is_sum || (!rows_overlap(t) && (summed_columns & 1U << col)))
			grid__put(t->grid, col, say_cell(t, r, col, t->module_max),
				  is_sum ? NULL : colour_of(t, r, col));
}

/* Fills the grid with the rows. Hidden columns stay hidden. Returns 0 or -ENOMEM. */
static int fill_table(struct table *t)
{
	struct grid *previous = t->grid;

	t->grid = grid__new(t->columns, COL_WHERE);
	for (int col = 0; t->grid && previous && col < COL_WHERE; col++)
		grid__show(t->grid, col, grid__shown(previous, col));
	grid__free(previous);
	if (!t->grid)
		return -ENOMEM;
	t->where_width = 0;
	for (size_t i = 0; i < t->shown; i++) {
		size_t width = text__width(say_where(t, &t->rows[i], /*columns=*/200));

		t->where_width = width > t->where_width ? width : t->where_width;
		put_row(t, &t->rows[i], /*is_sum=*/false);
	}
	if (t->shown < t->n)
		put_row(t, &t->rest, /*is_sum=*/true);
	if (t->nfiltered)
		put_row(t, &t->filtered, /*is_sum=*/true);
	return grid__error(t->grid);
}

/* Hides columns whose rank is at most `goes` until the last column is as wide as its longest text,
 * or `most` wide. */
static void fit_table(struct table *t, size_t width, size_t most, int goes)
{
	t->room = grid__fit(t->grid, width, t->where_width < most ? t->where_width : most, goes);
}

/* Returns what the last column shows: the widest text among those that rows are split by. */
static enum group last_column(const struct report_text_opts *o)
{
	static const enum group order[] = { BY_LINE, BY_MODULE, BY_SCOPE, BY_THREAD, BY_PHASE };

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

	/* Measure t->room without bars, and without leaving out a column. */
	grid__show(t->grid, COL_BAR, false);
	fit_table(t, width, /*most=*/0, /*goes=*/0);
	bars = report_text__bars(t->out, t->o, t->room >= REPORT_BAR + 2 + t->where_width);
	grid__show(t->grid, COL_BAR, bars);
}

/* Sets the order of hiding columns if there is no room. Columns that the user named stay. */
static void order_columns(struct table *t)
{
	static const int plain[COL_WHERE] = {
		[COL_PHASE] = 1, [COL_BLOCKS] = 2, [COL_MODULE] = 3, [COL_ROLE] = 4, [COL_NAME] = 5
	};
	static const int split[COL_WHERE] = {
		[COL_BLOCKS] = 1, [COL_ROLE] = 2,  [COL_THREAD] = 3, [COL_MODULE] = 4,
		[COL_PHASE] = 5,  [COL_SCOPE] = 6, [COL_NAME] = 7
	};

	for (int col = 0; col < COL_WHERE; col++) {
		t->columns[col] = (struct column){ .title = titles[col], .right = col < COL_ROLE };
		if (!t->o->columns)
			t->columns[col].goes = t->o->split ? split[col] : plain[col];
	}
	t->columns[COL_SIZE].least = 10;
	t->columns[COL_PERCENT].least = 3;
}

/* Hides columns that the user did not choose, or that have no information. */
static void hide_columns(struct table *t)
{
	unsigned groups = words__row_properties(t->o->by, t->o->split);
	unsigned wanted = t->o->columns ? t->o->columns : COLUMNS_DEFAULT;
	bool has_role = t->o->split || t->o->columns, has_module = has_role, has_phase = has_role;
	bool has_name = t->o->columns;

	for (size_t i = 0; i < t->n; i++) {
		/* On the host, the location says what is from before attach. */
		has_phase |= t->rows[i].before_attach ? !t->on_host
						      : t->rows[i].phase != PHASE_OTHER;
		has_role |= t->rows[i].category &&
			    strcmp(t->rows[i].category, category__name(CATEGORY_UNKNOWN)) != 0;
		has_module |= t->rows[i].modules != 0;
		/* Names from the program's objects are those of its modules, and in the way. */
		has_name |= t->snapshot && (t->rows[i].name || t->rows[i].several_names);
	}
	for (int col = 0; col < COL_WHERE; col++) {
		bool in_last = col >= COL_ROLE && col != COL_NAME &&
			       report_columns__is_of(col, 1U << t->last);
		bool empty = (col == COL_ROLE && !has_role) || (col == COL_MODULE && !has_module) ||
			     (col == COL_PHASE && !has_phase) || (col == COL_NAME && !has_name);

		grid__show(t->grid, col,
			   (wanted & 1U << col) && report_columns__is_of(col, groups) && !in_last &&
				   !empty);
	}
	grid__show(t->grid, COL_BAR, t->o->bars == REPORT_ALWAYS);
}

/* Hides columns until the last one has room, the least important first, and adds bars if there is
 * room. */
static void choose_columns(struct table *t, size_t width)
{
	hide_columns(t);
	if (t->o->split) {
		fit_table(t, width, WHERE_MIN / 2, COL_WHERE);
	} else {
		fit_table(t, width, WHERE_WANTED, /*goes=*/1);
		fit_table(t, width, WHERE_MIN, /*goes=*/3);
		fit_table(t, width, WHERE_MIN / 2, /*goes=*/5);
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

void report_text__left_out(const struct grid *g, FILE *out, size_t row, size_t n, const char *what,
			   size_t room)
{
	char words[64], count[32];

	snprintf(words, sizeof(words), "+ %s %s%s", text__count(count, sizeof(count), n), what,
		 n == 1 ? "" : "s");
	grid__print(g, out, row, words__cut(words, room));
}

/* True if the row is a line of the user's code that has more than 90 % of the memory. */
static bool is_most(const struct table *t, const struct row *r)
{
	return t->last == BY_LINE && !t->o->split && t->o->which_line == FRAMES_USER &&
	       t->o->when != ROWS_TOTAL && !r->before_attach && r->file && !t->nfiltered &&
	       r->bytes / 9 > t->all / 10;
}

/* Prints the rows, with lines of libraries or stacks below them, and the sums of those left out.
 * Returns 0 or -errno. */
static int print_rows(struct table *t, const struct model *m, size_t device)
{
	struct row_opts table_opts = { .when = t->o->when,
				       .any_phase = !grid__shown(t->grid, COL_PHASE),
				       .any_category = !grid__shown(t->grid, COL_ROLE) };
	int err = 0;

	for (size_t i = 0; i < t->shown && !err; i++) {
		grid__print(t->grid, t->out, i, say_where(t, &t->rows[i], t->room));
		if (is_most(t, &t->rows[i]))
			err = print_library_lines(t->out, m, device, &table_opts, &t->rows[i],
						  t->cwd, report_text__width(t->out, t->o));
		if (t->last == BY_STACK && !t->rows[i].before_attach)
			report_frames__print(t->frames, t->out, &t->rows[i]);
	}
	if (t->shown < t->n)
		report_text__left_out(t->grid, t->out, t->shown, t->n - t->shown, "more row",
				      t->room);
	if (t->nfiltered)
		report_text__left_out(t->grid, t->out, t->shown + (t->shown < t->n), t->nfiltered,
				      "filtered row", t->room);
	return err;
}

void report_text__sums(FILE *out, const struct report_text_opts *o, const struct model_device *dev)
{
	enum figure is = o->when == ROWS_AT_MARK ? dev->mark_is : dev->allocated_is;
	char bytes[24], time[24], title[64];

	/* Print nothing about the peak, which the device's line has. */
	if (o->when == ROWS_TOTAL || (o->when == ROWS_AT_MARK && o->at == AT_PEAK))
		return;
	if (o->when == ROWS_NOW)
		strcpy(title, "Now");
	else if (o->at == AT_END)
		strcpy(title, "At the end");
	else if (o->at == AT_TIME && !o->at_time)
		strcpy(title, "At the start");
	else if (o->at == AT_OOM)
		snprintf(title, sizeof(title), "At the first out of memory, %s",
			 text__time(time, sizeof(time), dev->mark_time));
	else
		snprintf(title, sizeof(title), "At %s", text__time(time, sizeof(time), o->at_time));
	fprintf(out, "%s: %s%s\n", title, words__about(is),
		text__bytes(bytes, sizeof(bytes), report_text__all(dev, o->when)));
}

/* Prints a warning if the rows do not add up to the allocator's figure, as after lost events. */
static void print_check(const struct table *t)
{
	bool above = t->sum > t->all;
	uint64_t difference = above ? t->sum - t->all : t->all - t->sum;
	const char *why = t->lost ? " because events were lost" : "";
	char sum[24], figure[24], off[24];

	if (!rows_overlap(t) && difference)
		fprintf(t->out,
			"These rows add up to %s, not to the %s of the allocator: %s %s%s.\n",
			text__bytes(sum, sizeof(sum), t->sum),
			text__bytes(figure, sizeof(figure), t->all),
			text__bytes(off, sizeof(off), difference),
			above ? "too much" : "are missing", why);
}

/* Fills t->growing: marks the largest row of each line that grows. Returns 0 or -ENOMEM. */
static int mark_rows(struct table *t)
{
	const struct growth_line *line;

	free(t->growing);
	t->growing = NULL;
	if (t->growth.verdict != GROWTH_VERDICT_GROWS)
		return 0;
	t->growing = calloc(t->model_rows.n + 1, sizeof(*t->growing));
	if (!t->growing)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++) {
		bool marked = false; /* a larger row has the mark */

		line = growth_summary__line(&t->growth, &t->rows[i]);
		for (size_t larger = 0; larger < i && line && !marked; larger++)
			marked = t->growing[larger] == line;
		t->growing[i] = marked ? NULL : line;
	}
	return 0;
}

/* Gets the rows from the model, and sums up those that --top and --filter leave out. Returns 0,
 * -ENOMEM or -ENOENT. */
static int take_rows(struct table *t, const struct model *m, size_t device,
		     const struct row_opts *opts)
{
	bool names = !t->o->split && (t->o->by == BY_LINE || t->o->by == BY_STACK);
	int err;

	holder_rows__free(&t->model_rows);
	err = holder_rows__of(m, device, opts, names && t->o->when != ROWS_TOTAL, &t->model_rows);
	if (err)
		return err;
	t->rows = t->model_rows.all;
	t->sum = t->model_rows.n ? t->rows[t->model_rows.n - 1].cumulative : 0;
	t->n = report_select__kept(t->rows, t->model_rows.n, &t->filtered.bytes,
				   &t->filtered.count);
	t->nfiltered = t->model_rows.n - t->n;
	t->filtered.cumulative = t->sum;
	if (t->frames)
		err = report_frames__merge(t->frames, t->rows, &t->n);
	if (err)
		return err;
	row__sort(t->rows, t->n);
	t->shown = t->o->top && t->o->top < t->n ? t->o->top : t->n;
	t->rest = (struct row){ .cumulative = t->n ? t->rows[t->n - 1].cumulative : 0 };
	for (size_t i = t->shown; i < t->n; i++) {
		t->rest.bytes += t->rows[i].bytes;
		t->rest.count += t->rows[i].count;
	}
	return mark_rows(t);
}

/* True if the columns that are hidden first have room. Columns that the user named always stay. */
static bool has_all_columns(const struct table *t)
{
	return t->o->columns ||
	       (grid__shown(t->grid, COL_PHASE) && grid__shown(t->grid, COL_BLOCKS));
}

/* Fills the grid and chooses columns. If some are hidden, tries again with a narrower Module.
 * Returns 0 or -ENOMEM. */
static int lay_out(struct table *t, size_t width)
{
	int err;

	t->module_max = MODULE_MAX;
	err = fill_table(t);
	if (err)
		return err;
	choose_columns(t, width);
	/* As the last column, Module takes the rest of the line anyway. */
	if (t->last == BY_MODULE || has_all_columns(t))
		return 0;
	t->module_max = MODULE_NARROW;
	err = fill_table(t);
	if (!err)
		choose_columns(t, width);
	return err;
}

/* Leaves out the classes of functions in all rows if they do not fit in one. */
static void choose_names(struct table *t)
{
	t->short_names = false;
	for (size_t i = 0; i < t->shown && !t->short_names; i++) {
		const struct row *r = &t->rows[i];
		size_t mark = growth_of(t, r) ? MARK_SHORT : 0;

		if (!r->before_attach)
			t->short_names = text__width(say_place(t, r, /*columns=*/SIZE_MAX)) + mark >
					 t->room;
	}
}

/* Gets the rows, and chooses columns that fit. Returns 0, -ENOMEM or -ENOENT. */
static int prepare_table(struct table *t, const struct model *m, size_t device)
{
	struct row_opts opts = {
		.by = t->o->by,
		.split = t->o->split,
		.when = t->o->when,
		.which_line = t->o->which_line,
	};
	size_t width = report_text__width(t->out, t->o);
	int err;

	report_select__apply(t->o->select, &opts);
	/* One row for a line in all layers that run it; the Module column names them. */
	opts.any_module = t->o->by == BY_LINE;
	order_columns(t);
	err = take_rows(t, m, device, &opts);
	if (!err)
		err = lay_out(t, width);
	if (err)
		return err;
	/* Merge rows that differ only in hidden columns. */
	opts.any_phase = !grid__shown(t->grid, COL_PHASE);
	opts.any_category = !grid__shown(t->grid, COL_ROLE);
	if (!t->o->split && t->o->by == BY_LINE && (opts.any_phase || opts.any_category)) {
		err = take_rows(t, m, device, &opts);
		if (!err)
			err = fill_table(t);
	}
	t->room = grid__fit(t->grid, width, 0, 0);
	t->room = t->room ? t->room : 8;
	choose_names(t);
	return err;
}

static void free_table(struct table *t)
{
	grid__free(t->grid);
	report_frames__free(t->frames);
	growth_summary__free(&t->growth);
	free(t->growing);
	holder_rows__free(&t->model_rows);
	free(t);
}

int report_text__table(FILE *out, const struct model *m, size_t device, const struct dict *d,
		       const struct facts *f, const struct report_text_opts *o)
{
	uint64_t duration = o->duration ? o->duration : words__fact_number(f, "duration_ns");
	struct table *table = calloc(1, sizeof(*table));
	struct model_device dev;
	int err = 0;

	if (!table)
		return -ENOMEM;
	*table = (struct table){
		.out = out, .d = d, .o = o, .cwd = facts__get(f, "cwd"), .last = last_column(o)
	};
	model__device(m, device, &dev);
	table->lost = words__lost(m, f);
	table->on_host = dev.device.type == DEVICE_HOST;
	table->snapshot = model__is_snapshot(m);
	table->all = report_text__all(&dev, o->when);
	if (table->last == BY_STACK) {
		table->frames = report_frames__new(d, f, o->which_line);
		err = table->frames ? 0 : -ENOMEM;
	} else if (table->last == BY_LINE && o->when != ROWS_TOTAL) {
		err = growth_summary__of(m, f, device, duration, &table->growth);
	}
	if (err && err != -EINVAL) /* -EINVAL: growth is not watched */
		goto out;
	err = prepare_table(table, m, device);
	if (err)
		goto out;
	if (!o->no_sums)
		report_text__sums(out, o, &dev);
	print_titles(table);
	err = print_rows(table, m, device);
	print_check(table);
out:
	free_table(table);
	return err;
}
