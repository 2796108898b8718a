/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of the text report: as many columns as fit, never a wrapped line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "labels/words.h"
#include "lib/bar.h"
#include "lib/text.h"
#include "record/dict.h"
#include "record/stream.h"
#include "report/filter.h"
#include "report/text.h"

#define GAP 2
#define WHERE_MIN 28	/* columns for the last one, or other columns go */
#define WHERE_WANTED 40 /* before Module and Category are shown */
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

static const char *const titles[COL_NR] = { "Mem",	"",	 "Cumulative", "Median", "Count",
					    "Category", "Phase", "Thread",     "Module", "" };

struct table {
	FILE *out;
	const struct dict *d;
	const struct report_text_opts *o;
	const char *cwd;
	struct row *rows;
	size_t n, shown;
	struct row rest;     /* the sum of what --top leaves out */
	size_t nout;	     /* rows of what --filter leaves out, behind the n ... */
	struct row out_rest; /* ... and their sum */
	enum group last;     /* what the last column is of */
	bool has[COL_NR];
	size_t width[COL_NR], where_width;
	char text[REPORT_TEXT];
};

static unsigned number(const char *s)
{
	unsigned long n = s ? strtoul(s, NULL, 10) : 0;

	return n > 1000 ? 1000 : n;
}

unsigned report_text__width(FILE *out, const struct report_text_opts *o)
{
	unsigned width = o->width ? o->width : number(getenv("COLUMNS"));
	struct winsize ws;

	if (!width && isatty(fileno(out)) && !ioctl(fileno(out), TIOCGWINSZ, &ws))
		width = ws.ws_col;
	if (!width)
		width = 80;
	return width < 40 ? 40 : width;
}

bool report_text__colour(FILE *out, const struct report_text_opts *o)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR");

	if (o->colour != REPORT_AUTO)
		return o->colour == REPORT_ALWAYS;
	return isatty(fileno(out)) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

bool report_text__bars(FILE *out, const struct report_text_opts *o, bool room)
{
	return o->bars == REPORT_AUTO ? room && isatty(fileno(out)) : o->bars == REPORT_ALWAYS;
}

/* The last column's text. */
static const char *where(struct table *t, const struct row *r, size_t columns)
{
	return words__where(t->text, r, t->last, t->cwd, columns);
}

/* "blocks.*.mlp (4)": the modules of one line. */
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
		/* Some of them have no number: "12+". */
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

static size_t used(const struct table *t)
{
	size_t sum = 0;

	for (int c = 0; c < COL_WHERE; c++)
		if (t->has[c])
			sum += t->width[c] + GAP;
	return sum;
}

/* As wide as what is in them; the last one takes the rest. */
static void measure(struct table *t, size_t width)
{
	t->where_width = 0;
	for (int c = 0; c < COL_NR; c++) {
		t->width[c] = text__width(titles[c]);
		for (size_t i = 0; i < t->shown; i++) {
			size_t w = text__width(
				cell(t, &t->rows[i], c, c == COL_MODULE ? MODULE_MAX : 200));

			if (c == COL_WHERE)
				t->where_width = w > t->where_width ? w : t->where_width;
			else if (w > t->width[c])
				t->width[c] = w;
		}
	}
	for (int c = COL_MEM; c <= COL_COUNT; c++) {
		size_t rest = t->shown < t->n ? text__width(cell(t, &t->rest, c, 0)) : 0;
		size_t out = t->nout ? text__width(cell(t, &t->out_rest, c, 0)) : 0;
		size_t w = rest > out ? rest : out;

		t->width[c] = w > t->width[c] ? w : t->width[c];
	}
	t->width[COL_WHERE] = width > used(t) ? width - used(t) : 8;
}

/* Does what is wanted for the last column, at most so much of it, fit beside the others? */
static bool fits(const struct table *t, size_t width, size_t most)
{
	return used(t) + (t->where_width < most ? t->where_width : most) <= width;
}

/* Of what rows are split by, the last column has what takes most room. */
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

static bool overlap(const struct table *t)
{
	return t->last == BY_LAYER;
}

/* Where nothing else has to go for them. */
static void add_bars(struct table *t, size_t width)
{
	t->has[COL_BAR] = report_text__bars(t->out, t->o,
					    used(t) + REPORT_BAR + GAP + t->where_width <= width);
}

static void choose_columns(struct table *t, size_t width)
{
	static const enum group groups[COL_NR] = {
		[COL_CATEGORY] = BY_CATEGORY,
		[COL_PHASE] = BY_PHASE,
		[COL_THREAD] = BY_THREAD,
		[COL_MODULE] = BY_MODULE,
	};
	unsigned of = words__speaks_of(t->o->by, t->o->split);
	bool known = false, modules = false;

	for (size_t i = 0; i < t->n; i++) {
		known |= t->rows[i].category &&
			 strcmp(t->rows[i].category, category__name(CATEGORY_UNKNOWN)) != 0;
		modules |= t->rows[i].modules != 0;
	}
	for (int c = 0; c < COL_NR; c++)
		t->has[c] = c < COL_CATEGORY || c == COL_WHERE ||
			    ((of & 1U << groups[c]) && groups[c] != t->last);
	t->has[COL_CUMULATIVE] = !overlap(t); /* nothing adds up */
	t->has[COL_BAR] = t->o->bars == REPORT_ALWAYS;
	if (t->o->split) { /* asked for: figures go first */
		static const int order[] = { COL_MEDIAN, COL_CUMULATIVE, COL_COUNT, COL_CATEGORY,
					     COL_THREAD, COL_MODULE,	 COL_PHASE };

		measure(t, width);
		for (size_t i = 0;
		     i < sizeof(order) / sizeof(*order) && !fits(t, width, WHERE_MIN / 2); i++)
			t->has[order[i]] = false;
		add_bars(t, width);
		return;
	}
	t->has[COL_CATEGORY] &= known; /* a column that says nothing is none */
	t->has[COL_MODULE] &= modules;
	measure(t, width);
	if (!fits(t, width, WHERE_WANTED))
		t->has[COL_CATEGORY] = false;
	if (!fits(t, width, WHERE_WANTED))
		t->has[COL_MODULE] = false;
	if (!fits(t, width, WHERE_MIN))
		t->has[COL_PHASE] = false;
	if (!fits(t, width, t->has[COL_BAR] ? WHERE_MIN : WHERE_MIN / 2))
		t->has[COL_MEDIAN] = false;
	if (t->has[COL_BAR] && !fits(t, width, WHERE_MIN))
		t->has[COL_CUMULATIVE] = false;
	add_bars(t, width);
}

static void print_cell(const struct table *t, int col, const char *s)
{
	bool colour = col == COL_BAR && *s && report_text__colour(t->out, t->o);
	size_t pad = text__width(s) < t->width[col] ? t->width[col] - text__width(s) : 0;

	if (col == COL_WHERE)
		fputs(s, t->out);
	else if (col <= COL_COUNT)
		fprintf(t->out, "%*s%s%s%s%*s", (int)pad, "", colour ? "\033[36m" : "", s,
			colour ? "\033[0m" : "", GAP, "");
	else
		fprintf(t->out, "%s%*s", s, (int)pad + GAP, "");
}

static void print_titles(struct table *t)
{
	bool colour = report_text__colour(t->out, t->o);
	char title[32];

	snprintf(title, sizeof(title), "%s", words__where_title(t->last));
	words__cut(title, t->width[COL_WHERE]);
	if (colour)
		fputs("\033[1m", t->out);
	for (int c = 0; c < COL_NR; c++)
		if (t->has[c])
			print_cell(t, c, c == COL_WHERE ? title : titles[c]);
	fputs(colour ? "\033[0m\n" : "\n", t->out);
}

/* Root first, as tracebacks have it. */
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

/* The sum of n rows that are not shown, with what they are. */
static void print_sum(struct table *t, const struct row *sum, size_t n, const char *before,
		      const char *behind)
{
	char words[64], count[32];

	snprintf(words, sizeof(words), "(%s %s%s%s)", text__count(count, sizeof(count), n), before,
		 n == 1 ? "" : "s", behind);
	for (int c = 0; c < COL_NR; c++) {
		if (!t->has[c])
			continue;
		if (c == COL_WHERE)
			print_cell(t, c, words__cut(words, t->width[c]));
		else if (c >= COL_CATEGORY || c == COL_MEDIAN || c == COL_BAR || overlap(t))
			print_cell(t, c, "");
		else
			print_cell(t, c, cell(t, sum, c, 0));
	}
	fputc('\n', t->out);
}

static void print_rows(struct table *t)
{
	for (size_t i = 0; i < t->shown; i++) {
		for (int c = 0; c < COL_NR; c++)
			if (t->has[c])
				print_cell(t, c, cell(t, &t->rows[i], c, t->width[c]));
		fputc('\n', t->out);
		if (t->last == BY_STACK && !t->rows[i].before_attach)
			print_stack(t, &t->rows[i]);
	}
	if (t->shown < t->n)
		print_sum(t, &t->rest, t->n - t->shown, "more row", "");
	if (t->nout)
		print_sum(t, &t->out_rest, t->nout, "row", " not shown");
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
	/* What was not seen to be allocated is not in the sum. */
	is = dev->peak_is == FIGURE_EXACT ? FIGURE_EXACT : FIGURE_LOWER_BOUND;
	fprintf(out, "Total mem allocated: %s%s\n", words__about(is),
		text__bytes(bytes, sizeof(bytes), dev->total_allocated));
}

/* The rows must add up to what the allocator says; where events were lost they cannot, and that is
 * said. */
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
	/* A line is one row for all the layers that run it; what it is called in them stands
	 * beside. */
	opts.any_module = t->o->by == BY_LINE;
	err = fetch(t, m, device, &opts);
	if (err)
		return err;
	choose_columns(t, width);
	/* Rows that differ only in what is not shown become one. */
	opts.any_phase = !t->has[COL_PHASE];
	opts.any_category = !t->has[COL_CATEGORY];
	if (!t->o->split && t->o->by == BY_LINE && (opts.any_phase || opts.any_category))
		err = fetch(t, m, device, &opts);
	measure(t, width);
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
	free(t->rows);
	free(t);
	return err;
}
