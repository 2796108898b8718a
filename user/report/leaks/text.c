/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints growing lines: a sentence per line, a table, and the limits of the result. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/stream.h"
#include "report/leaks/internal.h"
#include "report/recording/pools.h"
#include "report/text.h"

#define POOL_LINES 3  /* most segments, or lines of other libraries, to print */
#define HELD_MAX 1024 /* bytes of the text on what holds a line's memory */
#define OLDER_MAX 176 /* bytes that add_older() appends to it */

struct page {
	FILE *out;
	size_t width;
	const struct leaks_doc *doc;
	const struct leaks_opts *o;
	const char *cwd;
};

/* ---- parts ---- */

/* Appends what the line's first holder has from before attach: that memory has no line. */
static void add_older(struct page *p, size_t device, const struct growth_line *l, char *buf,
		      size_t size)
{
	const struct row_opts now = { .by = BY_LINE, .when = ROWS_NOW };
	const struct growth_name *name = l->nnames ? &l->names[0] : NULL;
	uint64_t bytes = 0, count = 0;
	char bytes_text[24], count_text[32];
	size_t n, len = strlen(buf);
	struct row *rows;

	if (!name || !growth_summary__is_holder(name) ||
	    model__rows(p->doc->model, device, &now, &rows, &n))
		return;
	for (size_t i = 0; i < n; i++)
		if (rows[i].before_attach && rows[i].name && !strcmp(rows[i].name, name->text)) {
			bytes += rows[i].bytes;
			count += rows[i].count;
		}
	free(rows);
	if (bytes)
		snprintf(buf + len, size - len, ". It also has %s from %s, %s",
			 text__counted(count_text, sizeof(count_text), count, "block"),
			 words__before(model__is_snapshot(p->doc->model)),
			 text__bytes(bytes_text, sizeof(bytes_text), bytes));
}

/* Prints the sentence about a growing line: "train.py:41 in attn: +16 KiB a step, ...". */
static void say_line(struct page *p, size_t device, const struct growth *g,
		     const struct growth_line *l)
{
	char slope[40], rises[96], keeps[160], by_block[120];
	char at[REPORT_TEXT], module[REPORT_TEXT], in_module[96] = "";
	char held[HELD_MAX + OLDER_MAX];

	leaks__where(p->o->by, &l->row, p->cwd, at, /*columns=*/200);
	if (p->o->by == BY_LINE && *l->row.module && strcmp(l->row.module, "*")) {
		words__module(module, &l->row);
		snprintf(in_module, sizeof(in_module), " in %.80s", module);
	}
	leaks__say_held(l, leaks__no_holder(p->doc->facts), held, HELD_MAX);
	add_older(p, device, l, held, sizeof(held));
	leaks__say_stays(g, l, keeps, sizeof(keeps));
	text__paragraph(p->out, p->width, "", "  ",
			"%s%s: %s a %s%s, in %s; %s. %s. Confidence: %s.", at, in_module,
			growth_summary__signed(slope, sizeof(slope), l->per_step),
			growth_summary__unit(g), leaks__by_block(g, l, by_block, sizeof(by_block)),
			leaks__rises(g, &l->trend, rises, sizeof(rises)), keeps, held,
			trend__confidence(l->trend.confidence));
}

/* Prints a row for each of the first `shown` growing lines. */
static void print_table(struct page *p, const struct growth *g, size_t shown)
{
	char slope[40], live[24], grew[24], count[32], at[REPORT_TEXT], title[24], share[16];
	const char *less;
	unsigned percent;
	size_t room = p->width > 66 ? p->width - 55 : 12;

	snprintf(title, sizeof(title), "A %s", growth_summary__unit(g));
	fprintf(p->out, "\n%10s  %8s  %5s  %10s  %7s  %s\n", title, "Rose in", "Stays", "At end",
		"Blocks", words__where_title(p->o->by));
	for (size_t i = 0, printed = 0; i < g->n && printed < shown; i++) {
		const struct growth_line *l = &g->lines[i];

		if (!trend__counts(&l->trend, p->o->min_confidence))
			continue;
		printed++;
		snprintf(grew, sizeof(grew), "%u/%u", l->trend.rises, l->trend.intervals);
		percent = leaks__stays_percent(l, &less);
		snprintf(share, sizeof(share), g->pieces ? "-" : "%s%u %%", less, percent);
		fprintf(p->out, "%10s  %8s  %5s  %10s  %7s  %s\n",
			growth_summary__signed(slope, sizeof(slope), l->per_step), grew, share,
			text__bytes(live, sizeof(live), l->row.bytes),
			text__count(count, sizeof(count), l->row.count),
			leaks__where(p->o->by, &l->row, p->cwd, at, room));
	}
}

/* Prints the sum of all growing lines, and one remedy for those that autograd's graph keeps: they
 * have one cause. */
static void say_graph(struct page *p, const struct growth *g)
{
	const struct growth_name *name = NULL; /* a graph, if possible with a known keeper */
	const struct growth_name *kept = NULL; /* most blocks that came out of these lines */
	struct model_phase backward;
	size_t n_growing = 0, n_of_graph = 0;
	double sum = 0;
	char slope[40], text[256], by[320] = "", who[48];
	const char *at;

	for (size_t i = 0; i < g->n; i++) {
		const struct growth_line *l = &g->lines[i];

		if (!trend__counts(&l->trend, p->o->min_confidence))
			continue;
		n_growing++;
		sum += l->per_step;
		if (!l->nnames || !growth_summary__of_graph(&l->names[0]))
			continue;
		n_of_graph++;
		if (!name || !growth_summary__graph_keeper(name->text, &at))
			name = &l->names[0];
		for (size_t k = 1; k < l->nnames; k++)
			if (!growth_summary__of_graph(&l->names[k]) &&
			    (!kept || l->names[k].count > kept->count))
				kept = &l->names[k];
	}
	if (!n_of_graph && n_growing < 2)
		return;
	fputc('\n', p->out);
	if (n_growing > 1)
		text__paragraph(p->out, p->width, "", "  ", "%zu lines grow, %s a %s together.",
				n_growing, growth_summary__signed(slope, sizeof(slope), sum),
				growth_summary__unit(g));
	if (kept)
		snprintf(by, sizeof(by),
			 "; among what came out of these lines: %s (%" PRIu64 " blocks)",
			 text__clean(text, sizeof(text), kept->text, strlen(kept->text)),
			 kept->count);
	if (!n_of_graph)
		return;
	model__phase(p->doc->model, PHASE_BACKWARD, &backward);
	snprintf(who, sizeof(who), "%zu of them hold%s", n_of_graph, n_of_graph == 1 ? "s" : "");
	text__paragraph(
		p->out, p->width, "", "  ",
		"%s memory that autograd keeps for backward. A graph is freed with the last "
		"tensor computed from it: %s%s.",
		n_growing == 1 ? "The line holds" : who,
		growth_summary__graph_remedy(name->text, backward.count > 0), by);
}

/* Writes "; 640.00 MiB cached in 32 private pools of CUDA graphs, which nothing else can use", for
 * each kind of pools with free memory. Returns 0 or -ENOMEM. */
static int private_words(const struct model_segments *s, char *buf, size_t size)
{
	struct report_pool *pools;
	size_t n, len = 0;
	char bytes[24], count[48];
	int err = report_pools__of(s, &pools, &n);

	*buf = '\0';
	if (err)
		return err;
	for (int kind = 0; kind < PRIVATE_NR; kind++) {
		size_t of_kind = 0;

		for (size_t i = 0; i < n; i++)
			of_kind += (int)pools[i].kind == kind && pools[i].free;
		if (!of_kind || len >= size)
			continue;
		len += snprintf(buf + len, size - len,
				"; %s cached in %s of %ss, which nothing else can use",
				text__bytes(bytes, sizeof(bytes), s->private[kind].free),
				text__counted(count, sizeof(count), of_kind, "private pool"),
				words__private_pool(kind));
	}
	free(pools);
	return 0;
}

/* Prints the parts of the reserved memory at the end, and the lines that took and hold its first
 * segments. Returns 0 or -ENOMEM. */
static int say_segments(struct page *p, const struct model_segments *s)
{
	char all[24], used[24], stuck[24], size[24], at[REPORT_TEXT], pin[REPORT_TEXT];
	char pools[320], waits[64] = "", unknown[64] = "", before[48];
	uint64_t reserved = s->has_totals ? s->reserved : s->known, known = s->allocated;
	int err = private_words(s, pools, sizeof(pools));

	if (err || !s->n)
		return err;
	snprintf(before, sizeof(before), "memory from %s",
		 words__before(model__is_snapshot(p->doc->model)));
	known += s->stuck + s->releasable + s->pending;
	for (int kind = 0; kind < PRIVATE_NR; kind++)
		known += s->private[kind].free;
	if (s->pending)
		snprintf(waits, sizeof(waits), "; freed, but waiting for a stream: %s",
			 text__bytes(size, sizeof(size), s->pending));
	if (reserved > known)
		snprintf(unknown, sizeof(unknown), "; not known: %s",
			 text__bytes(size, sizeof(size), reserved - known));
	text__paragraph(p->out, p->width, "  ", "  ",
			"Reserved at the end: %s. Allocated: %s%s%s; cached in segments that have "
			"blocks in use, which cannot be returned to CUDA: %s; can be returned: "
			"%s%s.",
			text__bytes(all, sizeof(all), reserved),
			text__bytes(used, sizeof(used), s->allocated), pools, waits,
			text__bytes(stuck, sizeof(stuck), s->stuck),
			text__bytes(size, sizeof(size), s->releasable), unknown);
	for (size_t i = 0; i < s->n && i < POOL_LINES && s->all[i].stuck; i++) {
		const struct segment *segment = &s->all[i];
		const char *taken = before, *holder = "";

		if (segment__private_pool(segment) >= 0)
			continue;
		if (segment->seen)
			taken = words__location(at, &segment->taken, p->cwd, /*columns=*/60);
		if (segment->npins)
			holder = words__location(pin, &segment->pins[0], p->cwd, /*columns=*/60);
		text__paragraph(p->out, p->width, "  ", "    ",
				"segment of %s, %s unreturnable, taken by %s%s%s",
				text__bytes(size, sizeof(size), segment->size),
				text__bytes(stuck, sizeof(stuck), segment->stuck), taken,
				segment->npins ? ", held by " : "", holder);
	}
	return 0;
}

/* Prints the largest memory of other code than the allocator. */
static void say_others(struct page *p, size_t device)
{
	char bytes[24], at[REPORT_TEXT];
	struct model_segments s;

	if (model__segments(p->doc->model, device, ROWS_NOW, FRAMES_USER, &s))
		return;
	for (size_t i = 0; i < s.nothers && i < POOL_LINES; i++)
		text__paragraph(p->out, p->width, "  ", "    ", "%s of it by %s at %s",
				text__bytes(bytes, sizeof(bytes), s.others[i].row.bytes),
				facts__how_name(s.others[i].how),
				words__location(at, &s.others[i].row, p->cwd, /*columns=*/60));
	model__free_segments(&s);
}

/* Says that reserved memory grows without the tensors in it, and what keeps it. Returns 0 or
 * -ENOMEM. */
static int say_reserved(struct page *p, const struct growth *g, size_t device)
{
	struct model_segments segments;
	bool known = !model__segments(p->doc->model, device, ROWS_NOW, FRAMES_USER, &segments);
	bool graphs = known && model_segments__graphs_keep(&segments);
	char slope[40], rises[96];
	int err = 0;

	text__paragraph(
		p->out, p->width, "\n", "  ",
		"The pool grows, but the tensors in it do not: reserved %s a %s, in "
		"%s. %s Confidence: %s.",
		growth_summary__signed(slope, sizeof(slope), g->reserved.per_step),
		growth_summary__unit(g), leaks__rises(g, &g->reserved.trend, rises, sizeof(rises)),
		graphs ? "Most of the cached memory is in private pools of CUDA graphs. A pool is "
			 "freed with the last graph that uses it, and never after a capture that "
			 "failed. Capture once and replay, reset() graphs that are no longer "
			 "needed, or give all captures one pool (pool=torch.cuda."
			 "graph_pool_handle())."
		       : "The allocator takes more from CUDA although enough is free: "
			 "fragmentation, or sizes that never fit again.",
		trend__confidence(g->reserved.trend.confidence));
	if (known) {
		err = say_segments(p, &segments);
		model__free_segments(&segments);
	}
	return err;
}

/* Prints growth of reserved memory and of memory outside of the allocator. *ret: true if any
 * grows. Returns 0 or -ENOMEM. */
static int say_pool(struct page *p, const struct growth *g, size_t device, bool *ret)
{
	bool reserved_grows = growth__pool_grows(g, p->o->min_confidence);
	bool others_grow = growth__others_grow(g, p->o->min_confidence);
	char slope[40], rises[96];
	int err = reserved_grows ? say_reserved(p, g, device) : 0;

	if (others_grow) {
		text__paragraph(p->out, p->width, "\n", "  ",
				"Memory outside PyTorch's allocator grows: %s a %s, in %s. "
				"Confidence: %s.",
				growth_summary__signed(slope, sizeof(slope), g->others.per_step),
				growth_summary__unit(g),
				leaks__rises(g, &g->others.trend, rises, sizeof(rises)),
				trend__confidence(g->others.trend.confidence));
		say_others(p, device);
	}
	*ret = reserved_grows || others_grow;
	return err;
}

/* Prints that peaks of steps grow, if they do. */
static void say_peaks(struct page *p, const struct growth *g)
{
	char slope[40], rises[96], drivers[GROWTH_SUMMARY_TEXT], first[24], last[24];
	const char *unit = growth_summary__unit(g);
	const struct trend *trend = &g->peaks.trend;

	if (!growth__peaks_grow(g, p->o->min_confidence))
		return;
	growth_summary__drivers(&g->peaks, p->cwd, drivers);
	if (*drivers) { /* "most in ..." begins a sentence here */
		drivers[0] = 'M';
		snprintf(drivers + strlen(drivers), sizeof(drivers) - strlen(drivers), ". ");
	}
	text__paragraph(
		p->out, p->width, "", "  ",
		"The peak of each %s grows: %s a %s, from %s to %s, in %s. %sMemory at the ends of "
		"%ss does not: inputs that get longer, for example. Confidence: %s.",
		unit, growth_summary__signed(slope, sizeof(slope), g->peaks.per_step), unit,
		text__bytes(first, sizeof(first), trend->first),
		text__bytes(last, sizeof(last), trend->last),
		leaks__rises(g, trend, rises, sizeof(rises)), drivers, unit,
		trend__confidence(trend->confidence));
}

/* Says which memory calls of the model piled up within one step. *found: it is still there. */
static void say_inside(struct page *p, const struct growth *g, bool *found)
{
	const struct growth_inside *in = &g->inside;
	char what[GROWTH_SUMMARY_TEXT], held[1024], bytes[24], more[96] = "", rate[40];

	if (!growth__inside_grows(g, p->o->min_confidence))
		return;
	growth_summary__inside(in, p->cwd, what);
	if (in->open)
		leaks__say_held(in->line, leaks__no_holder(p->doc->facts), held, sizeof(held));
	else
		strcpy(held, "The step freed it");
	if (in->lines > 1)
		snprintf(more, sizeof(more), "; %zu lines, %s a call together", in->lines,
			 growth_summary__signed(rate, sizeof(rate), in->lines_per_call));
	text__paragraph(p->out, p->width, "", "  ", "%s, %s at the top%s. %s. %sConfidence: %s.",
			what, text__bytes(bytes, sizeof(bytes), in->line->row.bytes), more, held,
			in->line->row.phase == PHASE_FORWARD
				? "Without a backward pass, use torch.no_grad() and keep numbers "
				  "(loss.item()). "
				: "",
			trend__confidence(in->line->trend.confidence));
	*found |= in->open;
}

/* Counts the lines with each verdict that is no leak. */
static void say_rest(struct page *p, const struct growth *g)
{
	static const struct {
		enum trend_verdict verdict;
		const char *words, *of_one;
	} all[] = {
		{ TREND_STOPPED, "grew and then stopped", NULL },
		{ TREND_RELEASED, "grow and are released again", "grows and is released again" },
		{ TREND_UNSURE, "grew too unevenly or too shortly to judge (--min-confidence low)",
		  NULL },
		{ TREND_SHORT, "grew, but the steps are too few to judge", NULL },
	};
	char text[512] = "";
	size_t len = 0;

	for (size_t v = 0; v < sizeof(all) / sizeof(*all); v++) {
		const char *words = all[v].words;
		size_t n = 0;

		for (size_t i = 0; i < g->n; i++)
			n += g->lines[i].trend.verdict == all[v].verdict &&
			     !trend__counts(&g->lines[i].trend, p->o->min_confidence);
		if (!n || len >= sizeof(text))
			continue;
		if (n == 1 && all[v].of_one)
			words = all[v].of_one;
		len += snprintf(text + len, sizeof(text) - len, "%s%zu %s", len ? "; " : "", n,
				words);
	}
	if (len)
		text__paragraph(p->out, p->width, "", "  ",
				"Not a leak as far as this recording shows, by %s: %s.",
				group_names[p->o->by], text);
	if (g->coarse)
		text__paragraph(p->out, p->width, "", "  ",
				"There are too many lines to list them all.");
}

/* Writes the observed length: "60 steps". */
static const char *length_words(const struct page *p, const struct growth *g, char buf[LEAKS_SPAN])
{
	return leaks__span(g, model__length(p->doc->model, p->doc->duration), buf, LEAKS_SPAN);
}

/* Prints that nothing grows, or why that is unknown. summary: the sentence of
 * growth_summary__say() if print_summary() did not print it; otherwise "". */
static void say_nothing(struct page *p, const struct growth *g, const char *summary)
{
	bool narrowed = p->o->min_growth > GROWTH_SUMMARY_LEAST ||
			p->o->min_confidence > GROWTH_SUMMARY_CONFIDENCE;
	const char *unit = g->clock == GROWTH_TIME ? "slice" : growth_summary__unit(g);
	char range[24], span[LEAKS_SPAN], slope[40], none[LEAKS_NOTHING + LEAKS_SPAN];
	size_t len;

	length_words(p, g, span);
	if (g->values < TREND_MIN) {
		if (*summary)
			text__paragraph(p->out, p->width, "", "  ", "%s", summary);
		else
			leaks__say_short(p->out, p->width, g, span);
		return;
	}
	if (g->observed < TREND_MIN) {
		text__paragraph(p->out, p->width, "", "  ", "growth not known: %u readings in %s",
				g->observed, span);
		return;
	}
	if (growth__sum_grows(g)) {
		text__paragraph(p->out, p->width, "", "  ",
				"no single %s is shown to grow, but their sum %s, by %s a %s: %s",
				group_names[p->o->by],
				g->allocated.trend.verdict == TREND_GROWS ? "grows" : "may grow",
				growth_summary__signed(slope, sizeof(slope), g->allocated.per_step),
				growth_summary__unit(g), span);
		return;
	}
	if (!*summary || narrowed) {
		leaks__nothing(p->o, g->clock, none, sizeof(none));
		len = strlen(none);
		snprintf(none + len, sizeof(none) - len, " in %s", span);
		summary = none;
	}
	text__paragraph(p->out, p->width, "", "  ", "%s; memory at the %ss of %ss varies by %s",
			summary, g->clock == GROWTH_REQUESTS ? "start" : "end", unit,
			text__bytes(range, sizeof(range), g->allocated.trend.range));
}

/* Names the line that grew most among those that cannot be judged, as a lead for a job that is
 * killed early. any: true: also if there are fewer than TREND_MIN values. */
static void say_lead(struct page *p, const struct growth *g, bool any)
{
	char slope[40], rises[96], live[24], at[REPORT_TEXT];

	for (size_t i = 0; i < g->n; i++) {
		const struct growth_line *l = &g->lines[i];

		if ((l->trend.verdict != TREND_SHORT && l->trend.verdict != TREND_UNSURE) ||
		    l->per_step <= 0 || (!any && g->values < TREND_MIN))
			continue;
		text__paragraph(
			p->out, p->width, "", "  ",
			"Grew most, not proven: %s, by %s a %s, in %s; %s at the end. "
			"Confidence: %s.",
			leaks__where(p->o->by, &l->row, p->cwd, at, /*columns=*/200),
			growth_summary__signed(slope, sizeof(slope), l->per_step),
			growth_summary__unit(g), leaks__rises(g, &l->trend, rises, sizeof(rises)),
			text__bytes(live, sizeof(live), l->row.bytes),
			l->trend.verdict == TREND_SHORT ? "none, there are too few values" : "low");
		return;
	}
}

/* True if a line is one of the growing lines in g. */
static bool is_among(const struct growth *g, const struct growth_line *l,
		     enum trend_confidence least)
{
	for (size_t i = 0; i < g->n; i++)
		if (trend__counts(&g->lines[i].trend, least) && g->lines[i].row.file &&
		    l->row.file && g->lines[i].row.line == l->row.line &&
		    !strcmp(g->lines[i].row.file, l->row.file))
			return true;
	return false;
}

/*
 * Prints growing lines of the device cpu that the host's lines lack. The host's lines are those
 * that made the process grow. For tensors in malloc's memory, another line may have allocated the
 * tensors that stay. The rows of the device cpu are exact.
 */
static int say_tensors(struct page *p, const struct growth *host)
{
	int cpu = model__find_device(p->doc->model, "cpu");
	char slope[40], at[REPORT_TEXT];
	struct growth cpu_growth;
	int err;

	if (p->o->by != BY_LINE || cpu < 0)
		return 0;
	err = growth__judge(p->doc->model, (size_t)cpu, p->o->min_growth, &cpu_growth);
	if (err)
		return err;
	for (size_t i = 0; i < cpu_growth.n; i++) {
		const struct growth_line *l = &cpu_growth.lines[i];

		if (!trend__counts(&l->trend, TREND_MEDIUM) ||
		    is_among(host, l, p->o->min_confidence))
			continue;
		text__paragraph(
			p->out, p->width, "", "  ",
			"Tensors on the CPU, which are a part of this memory, grow at %s by %s "
			"a %s. Confidence: %s.",
			leaks__where(BY_LINE, &l->row, p->cwd, at, /*columns=*/200),
			growth_summary__signed(slope, sizeof(slope), l->per_step),
			growth_summary__unit(&cpu_growth), trend__confidence(l->trend.confidence));
	}
	growth__free(&cpu_growth);
	return 0;
}

/* Prints the recording's name, length and losses. */
static void print_head(struct page *p)
{
	const struct leaks_doc *doc = p->doc;
	char name[512], count[32], lost[32], time[24], window[48], detail[DETAIL_TEXT],
		models[WORDS_MODELS];

	words__window(doc->model, doc->facts, window, sizeof(window));
	text__paragraph(p->out, p->width, "", "  ", "%s%s%s%s%s%s%s, %s lost",
			text__clean(name, sizeof(name), doc->name, strlen(doc->name)), text__dot(),
			text__time(time, sizeof(time), model__length(doc->model, doc->duration)),
			*window ? text__dot() : "", window, text__dot(),
			text__counted(count, sizeof(count), model__events(doc->model), "event"),
			text__count(lost, sizeof(lost), words__lost(doc->model, doc->facts)));
	if (*detail__sentence(detail, sizeof(detail), doc->facts))
		text__paragraph(p->out, p->width, "Detail  ", "  ", "%s", detail);
	if (*words__models(models, sizeof(models), doc->facts))
		text__paragraph(p->out, p->width, "Models  ", "  ", "%s", models);
	if (words__lost(doc->model, doc->facts))
		text__paragraph(p->out, p->width, "", "  ",
				"Events were lost: a block whose free was lost looks as if it had "
				"stayed. Growth below may be that.");
}

/* True if growth in a summary also counts with the command's --min-growth and --min-confidence. */
static bool is_wanted(const struct page *p, const struct growth_summary *s)
{
	const struct trend *t;

	if (s->part == GROWTH_OF_POOL)
		t = &s->growth.reserved.trend;
	else if (s->part == GROWTH_OF_OTHERS)
		t = &s->growth.others.trend;
	else if (s->part == GROWTH_OF_PEAKS)
		t = &s->growth.peaks.trend;
	else
		t = &s->line->trend;
	return t->grown >= p->o->min_growth && trend__counts(t, p->o->min_confidence);
}

/* Prints the growth sentence of report and the live view, if it is about growth or lines follow.
 * lines: their number. Otherwise leaves it in text, for say_nothing(); "": there is none. Returns 0
 * or -ENOMEM. */
static int print_summary(struct page *p, size_t device, size_t lines,
			 char text[GROWTH_SUMMARY_TEXT])
{
	struct growth_summary summary;
	int err = growth_summary__of(p->doc->model, p->doc->facts, device, p->doc->duration,
				     &summary);

	*text = '\0';
	if (err)
		return err == -EINVAL ? 0 : err;
	growth_summary__say(&summary, text);
	if ((summary.verdict == GROWTH_VERDICT_GROWS && is_wanted(p, &summary)) ||
	    (summary.verdict == GROWTH_VERDICT_NONE && summary.little))
		text__paragraph(p->out, text__one_line(p->width), "", "  ", "Growth  %s", text);
	else if (summary.verdict == GROWTH_VERDICT_UNKNOWN && lines && *text)
		text__paragraph(p->out, p->width, "", "  ", "%s", text);
	if (growth_summary__is_finding(&summary) || summary.little || lines)
		*text = '\0';
	growth_summary__free(&summary);
	return 0;
}

/* Prints host memory that grows without a line. Returns true if any still grows. */
static bool say_host(struct page *p)
{
	struct leaks_host h;

	leaks_host__judge(p->doc->model, p->o, &h);
	if (h.copies || h.copied_before)
		leaks_host__say_copies(p->out, p->width, &h, "");
	if (h.pinned || h.pinned_before)
		leaks_host__say_pinned(p->out, p->width, &h, "");
	return h.copies || h.pinned;
}

/* Prints the values of the device and of its lines that are shown, for --steps. */
static void print_figures(struct page *p, const struct growth *g, const char *device, size_t shown)
{
	char at[REPORT_TEXT];

	leaks__figures(p->out, g, device, g->allocated.values, &g->allocated.trend);
	for (size_t i = 0; i < g->n && shown; i++) {
		const struct growth_line *l = &g->lines[i];

		if (!trend__counts(&l->trend, p->o->min_confidence))
			continue;
		shown--;
		leaks__where(p->o->by, &l->row, p->cwd, at, p->width - 36);
		leaks__figures(p->out, g, at, l->values, &l->trend);
	}
}

/* Prints what grows on a device, or that nothing does. shown: number of lines to print. Sets *found
 * to true if anything grows. Returns 0 or -ENOMEM. */
static int say_growth(struct page *p, const struct growth *g, size_t device, bool is_host,
		      size_t shown, bool *found)
{
	size_t n_growing = growth__count(g, p->o->min_confidence);
	char summary[GROWTH_SUMMARY_TEXT];
	bool without_line;
	int err = print_summary(p, device, n_growing, summary);

	if (err)
		return err;
	for (size_t i = 0, printed = 0; i < g->n && printed < shown; i++) {
		if (!trend__counts(&g->lines[i].trend, p->o->min_confidence))
			continue;
		say_line(p, device, g, &g->lines[i]);
		printed++;
	}
	if (shown < n_growing)
		fprintf(p->out, "+ %zu more (--top 0 shows all)\n", n_growing - shown);
	if (n_growing > 1) /* the sentence about one line has the same figures */
		print_table(p, g, shown);
	if (n_growing)
		say_graph(p, g);
	err = say_pool(p, g, device, &without_line);
	if (err)
		return err;
	if (is_host)
		without_line |= say_host(p);
	without_line |= growth__peaks_grow(g, p->o->min_confidence);
	say_peaks(p, g);
	if (without_line || n_growing)
		*found = true;
	else
		say_nothing(p, g, summary);
	if (n_growing || !without_line)
		say_inside(p, g, found);
	if (!without_line && !n_growing)
		say_lead(p, g, is_host);
	return is_host ? say_tensors(p, g) : 0;
}

/* Prints a device: what grows, what does not, and the limits of the result. Sets *found to true if
 * anything grows. Returns 0 or -ENOMEM. */
static int print_device(struct page *p, size_t device, bool *found)
{
	struct model_device dev;
	struct growth growth;
	size_t n_growing, shown;
	char span[LEAKS_SPAN];
	int err = growth__judge(p->doc->model, device, p->o->min_growth, &growth);

	if (err)
		return err;
	model__device(p->doc->model, device, &dev);
	n_growing = growth__count(&growth, p->o->min_confidence);
	shown = p->o->top && p->o->top < n_growing ? p->o->top : n_growing;
	fprintf(p->out, "\n%s%s%s\n", dev.name, text__dot(),
		leaks__heading(&growth, model__length(p->doc->model, p->doc->duration), span,
			       sizeof(span)));
	err = say_growth(p, &growth, device, !strcmp(dev.name, "host"), shown, found);
	if (err)
		goto out;
	say_rest(p, &growth);
	if (n_growing)
		text__paragraph(p->out, p->width, "", "  ",
				"Memory that is freed less than once in %s looks like a leak, too: "
				"record longer to be sure.",
				length_words(p, &growth, span));
	if (n_growing && (growth.clock == GROWTH_CALLS || growth.clock == GROWTH_TIME))
		text__paragraph(p->out, p->width, "", "  ", "%s", LEAKS_HINT);
	if (p->o->figures)
		print_figures(p, &growth, dev.name, shown);
out:
	growth__free(&growth);
	return err;
}

int leaks__text(FILE *out, const struct leaks_doc *doc, const struct leaks_opts *o, bool *found)
{
	const struct report_text_opts ro = { .width = 0 };
	struct page *page = malloc(sizeof(*page));
	bool any = false;
	int err = 0;

	if (!page)
		return -ENOMEM;
	page->out = out;
	page->width = report_text__width(out, &ro);
	page->doc = doc;
	page->o = o;
	page->cwd = facts__get(doc->facts, "cwd");
	for (size_t i = 0; !err && i < model__devices(doc->model); i++) {
		if (!leaks__wants(o, doc->model, i))
			continue;
		if (!any)
			print_head(page);
		any = true;
		err = print_device(page, i, found);
	}
	free(page);
	if (err || any)
		return err;
	if (o->device)
		return -ENOENT;
	fprintf(out, "nothing was allocated\n");
	return 0;
}
