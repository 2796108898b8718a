/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints growing lines of several recordings: where each grows, and its verdict in the others. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "report/leaks/internal.h"
#include "report/text.h"

struct page {
	FILE *out;
	size_t width;
	const struct leaks_ranks *r;
	size_t n;			    /* number of recordings */
	bool *named;			    /* [recording]: it is named in the text */
	const struct leaks_device *devices; /* devices of one kind */
	const struct leaks_line *lines;	    /* growing lines on them that are shown */
	size_t ndevices, shown;
	char list[640], text[REPORT_TEXT]; /* buffers */
};

static const char *cwd(const struct page *p)
{
	return p->n ? p->r->ranks->all[0].cwd : NULL;
}

/* Sets p->named of all recordings to false. */
static void forget_named(struct page *p)
{
	memset(p->named, 0, p->n * sizeof(*p->named));
}

/* Returns the number of recordings with a device of this kind, without worker processes. Changes
 * p->named. */
static size_t count_compared(struct page *p)
{
	size_t n = 0;

	forget_named(p);
	for (size_t i = 0; i < p->ndevices; i++) {
		uint32_t recording = p->devices[i].recording;

		n += !p->named[recording] && !p->r->ranks->all[recording].worker;
		p->named[recording] = true;
	}
	return n;
}

/* Writes "in all 4 ranks", "in rank 2 of 4 only", "in ranks 0-1 of 4", "in 1 of 3 recordings only,
 * a". */
static void say_who(struct page *p, const struct leaks_line *l, char *buf, size_t size)
{
	const struct leaks_cell *cells = &p->r->cells[l->first];
	size_t n_all = count_compared(p), n = 0, workers = 0;
	bool job = ranks__one_job(p->r->ranks);
	const char *only;

	forget_named(p);
	for (uint32_t i = 0; i < l->n; i++) {
		uint32_t recording = p->r->devices[cells[i].device].recording;

		if (!cells[i].counts || p->named[recording])
			continue;
		p->named[recording] = true;
		*(p->r->ranks->all[recording].worker ? &workers : &n) += 1;
	}
	only = n + workers == 1 && n_all > 1 ? " only" : "";
	ranks__list(p->r->ranks, p->named, p->list, sizeof(p->list));
	if (n == n_all && n > 1 && !workers)
		snprintf(buf, size, "in all %zu %s", n_all, job ? "ranks" : "recordings");
	else if (!job && n_all > 1)
		snprintf(buf, size, "in %zu of %zu recordings%s, %s", n + workers, n_all, only,
			 p->list);
	else if (workers || n_all < 2)
		snprintf(buf, size, "in %s%s", p->list, only);
	else
		snprintf(buf, size, "in %s of %zu%s", p->list, n_all, only);
}

/* Writes "+4.00 MiB a step", or "+3.90 MiB to +4.10 MiB a step". */
static void say_rate(const struct page *p, const struct leaks_line *l, const struct growth *g,
		     char *buf, size_t size)
{
	const struct leaks_cell *cells = &p->r->cells[l->first];
	double least = 0, most = 0;
	char least_text[40], most_text[40];
	bool any = false;

	for (uint32_t i = 0; i < l->n; i++) {
		if (!cells[i].counts)
			continue;
		least = !any || cells[i].at.per_step < least ? cells[i].at.per_step : least;
		most = !any || cells[i].at.per_step > most ? cells[i].at.per_step : most;
		any = true;
	}
	growth_summary__signed(least_text, sizeof(least_text), least);
	growth_summary__signed(most_text, sizeof(most_text), most);
	if (strcmp(least_text, most_text) != 0)
		snprintf(buf, size, "%s to %s a %s", least_text, most_text,
			 growth_summary__unit(g));
	else
		snprintf(buf, size, "%s a %s%s", most_text, growth_summary__unit(g),
			 l->counted > 1 ? " in each" : "");
}

/* Returns the line's cell of a device; NULL: the line is not there. */
static const struct leaks_cell *cell_on(const struct page *p, const struct leaks_line *l,
					const struct leaks_device *d)
{
	const struct leaks_cell *cells = &p->r->cells[l->first];

	for (uint32_t i = 0; i < l->n; i++)
		if (&p->r->devices[cells[i].device] == d)
			return &cells[i];
	return NULL;
}

/* Returns why a line does not count on a device: TREND_SHORT if the device has too few values, or
 * the line's verdict; -1: the line is not there (cell NULL) or flat. */
static int verdict_on(const struct leaks_cell *cell, const struct leaks_device *d)
{
	if (d->growth.values < TREND_MIN)
		return TREND_SHORT;
	return cell && cell->at.trend.verdict != TREND_FLAT ? (int)cell->at.trend.verdict : -1;
}

/* Writes the verdicts in other recordings: " In rank 1 it grew and then stopped.". */
static void say_elsewhere(struct page *p, const struct leaks_line *l, char *buf, size_t size)
{
	static const struct {
		int verdict;
		const char *words;
	} all[] = {
		{ TREND_STOPPED, "it grew and then stopped" },
		{ TREND_RELEASED, "it grows and is freed again" },
		{ TREND_UNSURE, "it grew too unevenly or too shortly to judge" },
		{ TREND_GROWS, "it grows, with less than the requested confidence" },
		{ TREND_SHORT, "the steps are too few to judge" },
	};
	size_t len = 0;

	buf[0] = '\0';
	for (size_t v = 0; v < sizeof(all) / sizeof(*all); v++) {
		bool any = false;

		forget_named(p);
		for (size_t i = 0; i < p->ndevices; i++) {
			const struct leaks_device *d = &p->devices[i];
			const struct leaks_cell *cell = cell_on(p, l, d);

			if (!(cell && cell->counts) && verdict_on(cell, d) == all[v].verdict)
				any = p->named[d->recording] = true;
		}
		if (!any || len + sizeof(p->list) + 64 > size)
			continue;
		ranks__list(p->r->ranks, p->named, p->list, sizeof(p->list));
		len += snprintf(buf + len, size - len, " In %s %s.", p->list, all[v].words);
	}
}

/* Prints the sentence about a line, with the figures of the recording where it grows most. */
static void say_line(struct page *p, const struct leaks_line *l)
{
	const struct leaks_cell *most_cell = &p->r->cells[l->most];
	const struct leaks_device *device = &p->r->devices[most_cell->device];
	char who[800], rate[120], rises[96], held[1024], keeps[160], other[2048], at[REPORT_TEXT],
		module[128] = "", most_label[80] = "", by_block[120] = "";

	leaks__where(p->r->opts->by, &most_cell->at.row, cwd(p), at, /*columns=*/200);
	if (p->r->opts->by == BY_LINE && *most_cell->at.row.module &&
	    strcmp(most_cell->at.row.module, "*"))
		snprintf(module, sizeof(module), " in %.80s",
			 words__module(p->text, &most_cell->at.row));
	say_who(p, l, who, sizeof(who));
	say_rate(p, l, &device->growth, rate, sizeof(rate));
	say_elsewhere(p, l, other, sizeof(other));
	leaks__say_held(&most_cell->at, device->no_holder, held, sizeof(held));
	leaks__say_stays(&device->growth, &most_cell->at, keeps, sizeof(keeps));
	if (l->counted == 1)
		leaks__by_block(&device->growth, &most_cell->at, by_block, sizeof(by_block));
	if (l->counted > 1)
		snprintf(most_label, sizeof(most_label), "; in %s",
			 p->r->ranks->all[device->recording].label);
	text__paragraph(p->out, p->width, "", "  ",
			"%s%s grows %s: %s%s%s in %s; %s. %s. Confidence: %s.%s", at, module, who,
			rate, by_block, l->counted > 1 ? most_label : ",",
			leaks__rises(&device->growth, &most_cell->at.trend, rises, sizeof(rises)),
			keeps, held, trend__confidence(most_cell->at.trend.confidence), other);
}

/* Prints a line's row. all: number of recordings that are no workers. room: columns of the last
 * column. */
static void print_table_row(struct page *p, const struct leaks_line *l, size_t all, size_t room)
{
	const struct leaks_cell *cells = &p->r->cells[l->first];
	const struct leaks_cell *most = &p->r->cells[l->most];
	char slope[40], live[24], grew[24], where_grows[32], count[32], at[REPORT_TEXT];
	uint64_t bytes = 0, blocks = 0;
	size_t n_ranks = 0;

	forget_named(p);
	for (uint32_t i = 0; i < l->n; i++) {
		uint32_t recording = p->r->devices[cells[i].device].recording;

		if (!cells[i].counts)
			continue;
		bytes += cells[i].at.row.bytes;
		blocks += cells[i].at.row.count;
		n_ranks += !p->named[recording] && !p->r->ranks->all[recording].worker;
		p->named[recording] = true;
	}
	snprintf(where_grows, sizeof(where_grows), n_ranks ? "%zu/%zu" : "worker", n_ranks, all);
	snprintf(grew, sizeof(grew), "%u/%u", most->at.trend.rises, most->at.trend.intervals);
	fprintf(p->out, "%10s  %7s  %8s  %10s  %7s  %s\n",
		growth_summary__signed(slope, sizeof(slope), most->at.per_step), where_grows, grew,
		text__bytes(live, sizeof(live), bytes), text__count(count, sizeof(count), blocks),
		leaks__where(p->r->opts->by, &most->at.row, cwd(p), at, room));
}

static void print_table(struct page *p)
{
	size_t room = p->width > 66 ? p->width - 55 : 12, all = count_compared(p);
	char title[24];
	bool job = ranks__one_job(p->r->ranks);

	snprintf(title, sizeof(title), "A %s", growth_summary__unit(&p->devices[0].growth));
	fprintf(p->out, "\n%10s  %7s  %8s  %10s  %7s  %s\n", title, job ? "Ranks" : "Files",
		"Rose in", "At end", "Blocks", words__where_title(p->r->opts->by));
	for (size_t i = 0; i < p->shown; i++)
		print_table_row(p, &p->lines[i], all, room);
}

/* Prints the values of each line where it grows most, for --steps. */
static void print_figures(struct page *p)
{
	char at[REPORT_TEXT], title[REPORT_TEXT + 64];

	for (size_t i = 0; i < p->shown; i++) {
		const struct leaks_line *line = &p->lines[i];
		const struct leaks_cell *most = &p->r->cells[line->most];

		leaks__where(p->r->opts->by, &most->at.row, cwd(p), at,
			     p->width > 80 ? p->width - 56 : 24);
		snprintf(title, sizeof(title), "%s, %s", at,
			 p->r->ranks->all[p->r->devices[most->device].recording].label);
		leaks__figures(p->out, &p->r->devices[most->device].growth, title, most->at.values,
			       &most->at.trend);
	}
}

/* Writes "rank 2", or "rank 2 (cuda:1)" if it has several devices. */
static const char *say_owner(const struct page *p, const struct leaks_device *d, char *buf,
			     size_t size)
{
	const char *label = p->r->ranks->all[d->recording].label;
	size_t n_devices = 0;

	for (size_t i = 0; i < p->ndevices; i++)
		n_devices += p->devices[i].recording == d->recording;
	snprintf(buf, size, n_devices > 1 ? "%s (%s)" : "%s", label, d->name);
	return buf;
}

/* Says which pools and which memory of other code grow. Returns whether any does. */
static bool say_pools(struct page *p)
{
	char slope[40], rises[96], who[96];
	bool any = false;

	for (size_t i = 0; i < p->ndevices; i++) {
		const struct leaks_device *d = &p->devices[i];
		const struct growth_sum *sum = &d->growth.others;
		const char *subject = "Memory outside PyTorch's allocator", *but = "";

		if (!d->pool && !d->others)
			continue;
		if (d->pool) {
			sum = &d->growth.reserved;
			subject = "The pool";
			but = ", but the tensors in it do not";
		}
		any = true;
		text__paragraph(p->out, p->width, "\n", "  ",
				"%s of %s grows%s: %s a %s, in %s. Confidence: %s. For details, "
				"run leaks on that recording.",
				subject, say_owner(p, d, who, sizeof(who)), but,
				growth_summary__signed(slope, sizeof(slope), sum->per_step),
				growth_summary__unit(&d->growth),
				leaks__rises(&d->growth, &sum->trend, rises, sizeof(rises)),
				trend__confidence(sum->trend.confidence));
	}
	return any;
}

/* Prints growth of host memory without a line, with the figures of the recording where it is
 * largest. pinned: pinned memory; otherwise copies of pages. Returns true if there is any. */
static bool say_host(struct page *p, bool pinned)
{
	const struct leaks_host *most = NULL;
	char who[700];
	size_t n_devices = 0;

	forget_named(p);
	for (size_t i = 0; i < p->ndevices; i++) {
		const struct leaks_host *h = &p->devices[i].host;

		bool grows = pinned ? h->pinned || h->pinned_before : h->copies || h->copied_before;

		if (!grows)
			continue;
		p->named[p->devices[i].recording] = true;
		n_devices++;
		if (!most ||
		    (pinned ? h->pinned_rate > most->pinned_rate : h->copied > most->copied))
			most = h;
	}
	if (!most)
		return false;
	ranks__list(p->r->ranks, p->named, p->list, sizeof(p->list));
	snprintf(who, sizeof(who), " of %s%s", p->list,
		 n_devices > 1 ? " (figures: where it grows most)" : "");
	(pinned ? leaks_host__say_pinned : leaks_host__say_copies)(p->out, p->width, most, who);
	return true;
}

/* Writes "12 steps", or the range over the recordings: "11 steps to 12 steps". describe:
 * leaks__span() or leaks__heading(). */
static void say_range(const struct page *p,
		      const char *(*describe)(const struct growth *, uint64_t, char *, size_t),
		      char *buf, size_t size)
{
	const struct leaks_device *least = p->devices, *most = p->devices;
	char a[LEAKS_SPAN], b[LEAKS_SPAN];

	for (size_t i = 0; i < p->ndevices; i++) {
		const struct leaks_device *d = &p->devices[i];

		if (p->r->ranks->all[d->recording].worker)
			continue;
		least = d->growth.steps < least->growth.steps ? d : least;
		most = d->growth.steps > most->growth.steps ? d : most;
	}
	describe(&least->growth, least->duration, a, sizeof(a));
	describe(&most->growth, most->duration, b, sizeof(b));
	snprintf(buf, size, strcmp(a, b) != 0 ? "%s to %s" : "%s", a, b);
}

/* Prints that nothing grows, or why that is unknown. span: the length, from leaks__span(). */
static void say_nothing(struct page *p, const char *span)
{
	uint64_t range = 0;
	bool long_enough = false, sum_grows = false, sure = true;
	enum growth_clock clock = p->devices->growth.clock;
	const char *unit = clock == GROWTH_TIME ? "slice"
						: growth_summary__unit(&p->devices->growth);
	char text[24], nothing[LEAKS_NOTHING], record[48] = "";
	bool narrowed = p->r->opts->min_growth > GROWTH_SUMMARY_LEAST ||
			p->r->opts->min_confidence > GROWTH_SUMMARY_CONFIDENCE;

	for (size_t i = 0; i < p->ndevices; i++) {
		uint64_t here = p->devices[i].growth.allocated.trend.range;

		range = here > range ? here : range;
		long_enough |= p->devices[i].growth.values >= TREND_MIN;
		sure &= p->devices[i].growth.observed >= TREND_STEADY;
		sum_grows |= growth__sum_grows(&p->devices[i].growth);
	}
	/* The words of growth_summary__say() about one recording. */
	if (!sure && !narrowed && clock == GROWTH_TIME)
		strcpy(record, " (not sure: record longer)");
	else if (!sure && !narrowed)
		snprintf(record, sizeof(record), " (not sure: record %d)", TREND_STEADY);
	if (long_enough && sum_grows)
		text__paragraph(p->out, p->width, "", "  ",
				"no single line is shown to grow in any recording, but the sum of "
				"all lines may: %s. `leaks` of one recording says more.",
				span);
	else if (long_enough)
		text__paragraph(p->out, p->width, "", "  ",
				"%s in %s in any recording%s; memory at the %ss of %ss varies by "
				"%s",
				leaks__nothing(p->r->opts, clock, nothing, sizeof(nothing)), span,
				record, clock == GROWTH_REQUESTS ? "start" : "end", unit,
				text__bytes(text, sizeof(text), range));
	else
		leaks__say_short(p->out, p->width, &p->devices->growth, span);
}

/* Sets p->lines to the growing lines of this kind of device, which are adjacent: those that count
 * first. Returns the number of those. */
static size_t find_lines(struct page *p)
{
	size_t n = p->r->nlines, n_counted = 0;

	p->lines = p->r->lines;
	for (; n && strcmp(p->lines->kind, p->devices[0].kind) != 0; n--)
		p->lines++;
	while (n_counted < n && p->lines[n_counted].counted &&
	       !strcmp(p->lines[n_counted].kind, p->devices[0].kind))
		n_counted++;
	return n_counted;
}

/* Prints all devices of one kind. */
static void print_kind(struct page *p)
{
	size_t counted = find_lines(p);
	char span[2 * LEAKS_SPAN];
	bool any;

	p->shown = p->r->opts->top && p->r->opts->top < counted ? p->r->opts->top : counted;
	say_range(p, leaks__heading, span, sizeof(span));
	fprintf(p->out, "\n%s%s%s\n", p->devices[0].kind, text__dot(), span);
	say_range(p, leaks__span, span, sizeof(span));
	for (size_t i = 0; i < p->shown; i++)
		say_line(p, &p->lines[i]);
	if (p->shown < counted)
		fprintf(p->out, "+ %zu more (--top 0 shows all)\n", counted - p->shown);
	if (counted)
		print_table(p);
	any = say_pools(p);
	any |= say_host(p, /*pinned=*/false);
	any |= say_host(p, /*pinned=*/true);
	if (!any && !counted)
		say_nothing(p, span);
	if (counted)
		text__paragraph(p->out, p->width, "", "  ",
				"Memory that is freed less than once in %s looks like a leak, too: "
				"record longer to be sure.",
				span);
	if (p->r->opts->figures)
		print_figures(p);
}

/* Prints the title, and how many events were lost. */
static void print_head(struct page *p)
{
	uint64_t events = 0, lost = 0;
	char a[32], b[32];

	ranks__print_title(p->out, p->width, p->r->ranks);
	for (size_t i = 0; i < p->n; i++) {
		events += p->r->ranks->all[i].events;
		lost += p->r->ranks->all[i].lost;
	}
	text__paragraph(p->out, p->width, "", "  ", "%s, %s lost",
			text__counted(a, sizeof(a), events, "event"),
			text__count(b, sizeof(b), lost));
	if (lost)
		text__paragraph(p->out, p->width, "", "  ",
				"Events were lost: a block whose free was lost looks as if it had "
				"stayed. Growth below may be that.");
	ranks__print_lacks(p->out, p->width, p->r->ranks);
}

int leaks_ranks__text(FILE *out, const struct leaks_ranks *r)
{
	const struct report_text_opts ro = { .width = 0 };
	struct page *page = calloc(1, sizeof(*page));

	if (!page)
		return -ENOMEM;
	page->out = out;
	page->r = r;
	page->width = report_text__width(out, &ro);
	page->n = r->ranks->n;
	page->named = calloc(page->n + 1, sizeof(*page->named));
	if (!page->named) {
		free(page);
		return -ENOMEM;
	}
	if (page->n)
		print_head(page);
	else
		fprintf(out, "nothing was allocated\n");
	for (size_t from = 0; from < r->ndevices; from += page->ndevices) {
		page->devices = &r->devices[from];
		page->ndevices = 1;
		while (from + page->ndevices < r->ndevices &&
		       !strcmp(page->devices[page->ndevices].kind, page->devices->kind))
			page->ndevices++;
		print_kind(page);
	}
	free(page->named);
	free(page);
	return 0;
}
