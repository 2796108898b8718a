/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The report of several recordings as one text. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "labels/words.h"
#include "lib/bar.h"
#include "lib/text.h"
#include "report/ranks.h"

#define GAP 2
#define FIGURE 10
#define COUNT 8
#define WHERE_MIN 24
#define MOST_RANKS 16 /* rows of the first table, unless --top gives more */
#define MOST_OUTLIERS 10

struct page {
	FILE *out;
	const struct ranks *r;
	const struct report_text_opts *o;
	size_t width, n;
	bool side, colour;
	char text[REPORT_TEXT], part[REPORT_TEXT];
};

static void right(const struct page *p, const char *s, size_t width)
{
	size_t w = text__width(s);

	fprintf(p->out, "%*s%s%*s", (int)(w < width ? width - w : 0), "", s, GAP, "");
}

static void left(const struct page *p, const char *s, size_t width)
{
	size_t w = text__width(s);

	fprintf(p->out, "%s%*s", s, (int)(w < width ? width - w : 0) + GAP, "");
}

static void bytes(const struct page *p, uint64_t n, size_t width)
{
	char text[24];

	right(p, text__bytes(text, sizeof(text), n), width);
}

static void bold(const struct page *p, bool on)
{
	if (p->colour)
		fputs(on ? "\033[1m" : "\033[0m", p->out);
}

/* ---- recordings ---- */

static void print_head(struct page *p)
{
	ranks__title(p->r, p->text, sizeof(p->text));
	words__cut(p->text, 2 * p->width);
	text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	if (ranks__empty(p->r))
		snprintf(p->text, sizeof(p->text), "%zu more without a memory event %s left aside",
			 ranks__empty(p->r), ranks__empty(p->r) == 1 ? "is" : "are");
	if (ranks__empty(p->r))
		text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
}

struct head {
	size_t label;
	bool reserved, time, name, bar; /* true for columns that are shown */
	size_t rest;			/* columns of the last one */
	uint64_t largest;
};

#define TIME 9
#define DEVICE 8

static struct head head_columns(const struct page *p)
{
	struct head h = { .label = 9 };
	size_t used;

	for (size_t i = 0; i < p->n; i++) {
		const struct rank *k = ranks__at(p->r, i);

		h.label = text__width(k->label) > h.label ? text__width(k->label) : h.label;
		h.largest = k->allocated > h.largest ? k->allocated : h.largest;
	}
	h.label = h.label < 18 ? h.label : 18;
	used = h.label + GAP + FIGURE + GAP;
	h.bar = report_text__bars(p->out, p->o,
				  used + 2 * (FIGURE + GAP) + TIME + GAP + DEVICE + GAP + 10 <=
					  p->width) &&
		used + REPORT_BAR + GAP + DEVICE <= p->width;
	used += h.bar ? REPORT_BAR + GAP : 0;
	h.reserved = used + FIGURE + GAP + DEVICE <= p->width;
	used += h.reserved ? FIGURE + GAP : 0;
	h.time = h.reserved && used + TIME + GAP + DEVICE <= p->width;
	used += h.time ? TIME + GAP : 0;
	h.name = h.time && used + DEVICE + GAP + 10 <= p->width;
	used += h.name ? DEVICE + GAP : 0;
	h.rest = p->width > used ? p->width - used : 1;
	return h;
}

static void print_rank(struct page *p, const struct rank *k, const struct head *h)
{
	char time[24], word[64], bar[BAR_TEXT];

	snprintf(word, sizeof(word), "%s", k->label);
	left(p, words__cut(word, h->label), h->label);
	bytes(p, k->allocated, FIGURE);
	if (h->bar)
		fprintf(p->out, "%s%s%s%*s", p->colour ? "\033[36m" : "",
			bar__draw(bar, k->allocated, h->largest, REPORT_BAR, bar__unicode(), true),
			p->colour ? "\033[0m" : "", GAP, "");
	if (h->reserved)
		bytes(p, k->reserved, FIGURE);
	if (h->time)
		right(p, text__time(time, sizeof(time), k->time), TIME);
	snprintf(word, sizeof(word), "%s", k->devices);
	if (!h->name) {
		fprintf(p->out, "%s\n", words__cut(word, h->rest));
		return;
	}
	left(p, words__cut(word, DEVICE), DEVICE);
	text__clean(p->text, sizeof(p->text), k->name, strlen(k->name));
	fprintf(p->out, "%s\n", words__cut(p->text, h->rest));
}

static const char *moment(const struct page *p, char *buf, size_t size)
{
	char time[24];

	switch (p->o->at) {
	case AT_PEAK:
		return "At peak";
	case AT_END:
		return "At end";
	case AT_OOM:
		return "At OOM";
	default:
		snprintf(buf, size, "At %s", text__time(time, sizeof(time), p->o->at_time));
		return words__cut(buf, FIGURE);
	}
}

static void print_ranks(struct page *p)
{
	size_t most = p->o->top > MOST_RANKS || !p->o->top ? p->n : MOST_RANKS;
	struct head h = head_columns(p);
	char when[40], count[32];

	fputc('\n', p->out);
	bold(p, true);
	left(p, "Recording", h.label);
	right(p, moment(p, when, sizeof(when)), FIGURE);
	if (h.bar)
		right(p, "", REPORT_BAR);
	if (h.reserved)
		right(p, "Reserved", FIGURE);
	if (h.time)
		right(p, "At", TIME);
	fputs(h.name ? "Device    Name\n" : "Device\n", p->out);
	bold(p, false);
	for (size_t i = 0; i < p->n && i < most; i++)
		print_rank(p, ranks__at(p->r, i), &h);
	if (most < p->n)
		fprintf(p->out, "(%s more)\n", text__count(count, sizeof(count), p->n - most));
}

/* ---- outliers ---- */

/* Writes what a row is about: one thing, or with --by several all of them. */
static char *words(struct page *p, char *buf, const struct row *r, size_t columns)
{
	static const enum group order[] = { BY_LINE, BY_MODULE, BY_THREAD, BY_PHASE, BY_CATEGORY };
	const struct ranks_opts *o = ranks__opts(p->r);
	const char *cwd = ranks__at(p->r, 0)->cwd;
	struct row row = *r;
	size_t len;

	if (!o->split)
		return words__where(buf, r, o->by, cwd, columns);
	strcpy(buf, r->before_attach ? "before attach" : "");
	row.before_attach = false;
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		bool said = order[i] == BY_CATEGORY || (order[i] == BY_MODULE && *r->module);

		if (!(o->split & 1U << order[i]) || (r->before_attach && !said))
			continue;
		words__where(p->part, &row, order[i], cwd, columns);
		len = strlen(buf);
		snprintf(buf + len, REPORT_TEXT - len, "%s%s", len ? ", " : "", p->part);
	}
	return words__cut(buf, columns);
}

static void print_outlier(struct page *p, const struct outlier *o)
{
	const struct rank *k = ranks__at(p->r, o->recording);
	char a[24], b[24], c[24], percent[32] = "";
	uint64_t d = o->bytes > o->others ? o->bytes - o->others : o->others - o->bytes;
	const char *others = p->n == 2 ? "the other has" : "the others' median is",
		   *more = o->bytes > o->others ? "more" : "less";

	if (o->others)
		snprintf(percent, sizeof(percent), " (%.0f %%)",
			 100.0 * (double)d / (double)o->others);
	text__bytes(a, sizeof(a), d);
	text__bytes(b, sizeof(b), o->bytes);
	text__bytes(c, sizeof(c), o->others);
	if (!o->line1) {
		snprintf(p->text, sizeof(p->text), "%s: %s %s%s in all: %s, %s %s", k->label, a,
			 more, percent, b, others, c);
	} else {
		char *where = malloc(REPORT_TEXT);

		if (where)
			snprintf(p->text, sizeof(p->text), "%s: %s %s%s at %s: %s, %s %s", k->label,
				 a, more, percent,
				 words(p, where, &ranks__line(p->r, o->line1 - 1)->row,
				       p->width > 56 ? p->width - 20 : 36),
				 b, others, c);
		free(where);
	}
	text__paragraph(p->out, p->width, "  ", "  ", "%s", p->text);
}

static void print_outliers(struct page *p)
{
	const struct outlier *all;
	size_t n = ranks__outliers(p->r, &all);
	char count[32], mib[24];

	if (p->n < 2)
		return;
	snprintf(p->text, sizeof(p->text),
		 n ? "Different by more than %d %% and %s from %s:"
		   : "None differs by more than %d %% and %s from %s.",
		 OUTLIER_PERCENT, text__bytes(mib, sizeof(mib), OUTLIER_BYTES),
		 p->n == 2 ? "the other" : "the median of the others");
	fputc('\n', p->out);
	bold(p, n);
	text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	bold(p, false);
	for (size_t i = 0; i < n && i < MOST_OUTLIERS; i++)
		print_outlier(p, &all[i]);
	if (n > MOST_OUTLIERS)
		fprintf(p->out, "  (%s more)\n",
			text__count(count, sizeof(count), n - MOST_OUTLIERS));
}

/* ---- the rows ---- */

static bool overlap(const struct page *p)
{
	const struct ranks_opts *o = ranks__opts(p->r);

	return !o->split && o->by == BY_LAYER;
}

struct columns {
	bool cumulative, spread, count; /* spread: minimum, median and maximum over recordings */
	size_t recordings;		/* number of recordings with a column, chosen by shown() */
	bool others;			/* true for a column with the sum of the others */
	size_t where;
};

/* Returns whether a recording has a column if there is no room for all. Outliers come first,
 * then the others in order. */
static bool shown(const struct page *p, const struct columns *c, size_t recording)
{
	size_t differ = 0, before = 0, plain = 0;

	if (!c->others)
		return recording < c->recordings;
	for (size_t i = 0; i < p->n; i++) {
		bool differs = ranks__differs(p->r, NULL, i);

		differ += differs;
		before += i < recording && differs;
		plain += i < recording && !differs;
	}
	if (ranks__differs(p->r, NULL, recording))
		return before < c->recordings;
	return differ + plain < c->recordings;
}

static struct columns choose(const struct page *p)
{
	struct columns c = { .cumulative = !overlap(p), .spread = !p->side, .count = !p->side };
	size_t room = p->width - FIGURE - GAP - WHERE_MIN, one = FIGURE + 1 + GAP;

	if (p->side) {
		c.cumulative = false;
		c.recordings = room / one < p->n ? room / one : p->n;
		c.others = c.recordings < p->n;
		if (c.others && c.recordings)
			c.recordings--;
		c.where = p->width - FIGURE - GAP - (c.recordings + c.others) * one;
		return c;
	}
	c.count = room >= 4 * (FIGURE + GAP) + COUNT + GAP;
	c.spread = room >= 3 * (FIGURE + GAP);
	c.cumulative &= room >= (c.spread ? 4u : 1u) * (FIGURE + GAP);
	c.where = p->width - FIGURE - GAP - (c.cumulative + (c.spread ? 3u : 0)) * (FIGURE + GAP) -
		  (c.count ? COUNT + GAP : 0);
	return c;
}

static void print_titles(struct page *p, const struct columns *c)
{
	const struct ranks_opts *o = ranks__opts(p->r);
	char title[64];

	bold(p, true);
	right(p, p->side ? "All" : "Mem", FIGURE);
	if (c->cumulative)
		right(p, "Cumulative", FIGURE);
	if (c->spread) {
		right(p, "Least", FIGURE);
		right(p, "Median", FIGURE);
		right(p, "Most", FIGURE);
	}
	if (c->count)
		right(p, "Count", COUNT);
	for (size_t i = 0; i < p->n; i++) {
		if (!shown(p, c, i))
			continue;
		snprintf(title, sizeof(title), "%s", ranks__at(p->r, i)->label);
		right(p, words__cut_front(title, FIGURE), FIGURE + 1);
	}
	if (c->others) {
		snprintf(title, sizeof(title), "%zu %s", p->n - c->recordings,
			 c->recordings ? "others" : "of them");
		right(p, words__cut(title, FIGURE + 1), FIGURE + 1);
	}
	snprintf(title, sizeof(title), "%s", o->split ? "" : words__where_title(o->by));
	fprintf(p->out, "%s", words__cut(title, c->where));
	bold(p, false);
	fputc('\n', p->out);
}

static void print_side(struct page *p, const struct columns *c, const struct rank_line *l)
{
	uint64_t rest = l->row.bytes;
	char text[32];

	for (size_t i = 0; i < p->n; i++) {
		uint64_t n = ranks__bytes(p->r, l, i);
		bool differs = ranks__differs(p->r, l, i);

		if (!shown(p, c, i))
			continue;
		text__bytes(text, 24, n);
		rest -= n;
		if (p->colour && differs)
			fputs("\033[33m", p->out);
		right(p, strcat(n ? text : strcpy(text, "-"), differs ? "*" : " "), FIGURE + 1);
		if (p->colour && differs)
			fputs("\033[0m", p->out);
	}
	if (c->others)
		bytes(p, rest, FIGURE + 1);
}

static void print_line(struct page *p, const struct columns *c, const struct rank_line *l)
{
	char count[40];

	bytes(p, l->row.bytes, FIGURE);
	if (c->cumulative)
		bytes(p, l->row.cumulative, FIGURE);
	if (c->spread) {
		bytes(p, l->min, FIGURE);
		bytes(p, l->median, FIGURE);
		bytes(p, l->max, FIGURE);
	}
	text__count(count, 32, l->row.count);
	if (c->count)
		right(p,
		      !l->row.count	 ? "-"
		      : l->row.anonymous ? strcat(count, "+")
					 : count,
		      COUNT);
	print_side(p, c, l);
	fprintf(p->out, "%s\n", words(p, p->text, &l->row, c->where));
}

/* Prints the sum of lines that are not shown. */
static void print_sum(struct page *p, const struct columns *c, size_t from, size_t to,
		      const char *what)
{
	uint64_t sum = 0, count = 0;
	char words_[64], text[32];
	uint64_t rest;

	if (from >= to)
		return;
	for (size_t i = from; i < to; i++) {
		sum += ranks__line(p->r, i)->row.bytes;
		count += ranks__line(p->r, i)->row.count;
	}
	if (overlap(p))
		right(p, "", FIGURE);
	else
		bytes(p, sum, FIGURE);
	if (c->cumulative)
		bytes(p, ranks__line(p->r, to - 1)->row.cumulative, FIGURE);
	for (int i = 0; i < 3 && c->spread; i++)
		right(p, "", FIGURE);
	if (c->count)
		right(p, overlap(p) ? "" : text__count(text, sizeof(text), count), COUNT);
	rest = sum;
	for (size_t i = 0; i < p->n; i++) {
		uint64_t n = 0;

		if (!shown(p, c, i))
			continue;
		for (size_t k = from; k < to; k++)
			n += ranks__bytes(p->r, ranks__line(p->r, k), i);
		rest -= n;
		text__bytes(text, 24, n);
		right(p, overlap(p) ? "" : strcat(n ? text : strcpy(text, "-"), " "), FIGURE + 1);
	}
	if (c->others && overlap(p))
		right(p, "", FIGURE + 1);
	else if (c->others)
		bytes(p, rest, FIGURE + 1);
	snprintf(words_, sizeof(words_), "(%s %s%s%s)", text__count(text, sizeof(text), to - from),
		 *what == ' ' ? "row" : what, to - from == 1 ? "" : "s", *what == ' ' ? what : "");
	fprintf(p->out, "%s\n", words__cut(words_, c->where));
}

static void print_sums(struct page *p)
{
	uint64_t mem = 0, total = 0;
	enum figure is = FIGURE_EXACT;
	char a[24];

	for (size_t i = 0; i < p->n; i++) {
		mem += ranks__at(p->r, i)->allocated;
		total += ranks__at(p->r, i)->total_allocated;
		is = ranks__at(p->r, i)->is > is ? ranks__at(p->r, i)->is : is;
	}
	snprintf(p->text, sizeof(p->text), "Mem in all: %s%s%s", words__about(is),
		 text__bytes(a, sizeof(a), mem),
		 p->o->at == AT_PEAK ? ", each at its own peak" : "");
	fputc('\n', p->out);
	text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	fprintf(p->out, "Total mem allocated: %s%s\n",
		words__about(is == FIGURE_EXACT ? is : FIGURE_LOWER_BOUND),
		text__bytes(a, sizeof(a), total));
}

static void print_rows(struct page *p)
{
	struct columns c = choose(p);
	size_t kept, n = ranks__lines(p->r, &kept),
		     shown = p->o->top && p->o->top < kept ? p->o->top : kept;

	print_sums(p);
	print_titles(p, &c);
	for (size_t i = 0; i < shown; i++)
		print_line(p, &c, ranks__line(p->r, i));
	print_sum(p, &c, shown, kept, "more row");
	print_sum(p, &c, kept, n, " not shown");
}

/* Names the recordings whose sums do not match. */
static void print_trust(struct page *p)
{
	uint64_t events = 0, lost = 0, drift = 0;
	bool totals = false;
	char a[32], b[32], c[24];

	for (size_t i = 0; i < p->n; i++) {
		const struct rank *k = ranks__at(p->r, i);

		events += k->events;
		lost += k->lost;
		drift = k->drift > drift ? k->drift : drift;
		totals |= k->has_totals;
		if (overlap(p) || k->rows == k->allocated)
			continue;
		snprintf(p->text, sizeof(p->text),
			 "The rows of %s add up to %s, not to the %s that the allocator says: %s "
			 "%s, since events were missed.",
			 k->label, text__bytes(a, 24, k->rows), text__bytes(b, 24, k->allocated),
			 text__bytes(c, sizeof(c),
				     k->rows > k->allocated ? k->rows - k->allocated
							    : k->allocated - k->rows),
			 k->rows > k->allocated ? "too much" : "are missing");
		text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	}
	snprintf(p->text, sizeof(p->text), "events %s%slost %s%sdrift %s%s--apart: each by itself",
		 text__count(a, sizeof(a), events), text__dot(), text__count(b, sizeof(b), lost),
		 text__dot(), totals ? text__bytes(c, sizeof(c), drift) : "unknown", text__dot());
	fputc('\n', p->out);
	text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	for (size_t i = 0; i < p->n; i++) {
		if (ranks__at(p->r, i)->complete)
			continue;
		snprintf(p->text, sizeof(p->text), "%s is not complete", ranks__at(p->r, i)->label);
		text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	}
}

int ranks__text(FILE *out, const struct ranks *r, const struct report_text_opts *o, bool side)
{
	struct page *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	*p = (struct page){ .out = out,
			    .r = r,
			    .o = o,
			    .width = report_text__width(out, o),
			    .n = ranks__count(r),
			    .side = side,
			    .colour = report_text__colour(out, o) };
	if (!p->n) {
		fputs("No memory event was seen.\n", out);
		free(p);
		return 0;
	}
	print_head(p);
	print_ranks(p);
	print_outliers(p);
	print_rows(p);
	print_trust(p);
	free(p);
	return 0;
}
