/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/files.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assets.h"
#include "base/exit.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "model/analysis.h"
#include "model/growth.h"
#include "model/growth_summary.h"
#include "model/holders.h"
#include "model/words.h"
#include "record/cond.h"
#include "record/stream.h"
#include "report/doc.h"
#include "report/recording/row_set.h"

/* ---- lines behind a figure that is too large ---- */

#define BLAME_ROWS 8 /* most lines for a condition */

enum blame_kind {
	BLAME_NONE,
	BLAME_LARGEST, /* bytes at the moment, at the peak or at the first out of memory */
	BLAME_GREW,    /* growth of each line, bytes */
	/* bytes of segments that cannot be returned to CUDA, for the line with most bytes in
	 * each */
	BLAME_HOLDS_BACK,
	BLAME_OTHERS, /* bytes that other code than the allocator took from CUDA */
};

struct blame {
	enum blame_kind kind;
	enum moment at;		     /* moment of BLAME_LARGEST */
	struct row rows[BLAME_ROWS]; /* largest first; report_fail.words owns their strings */
	size_t n;
	char note[320]; /* a further sentence to print, cleaned; "": none */
};

/* Returns "largest", "grew", "holds_back" or "others"; NULL for no kind. */
static const char *blame_name(enum blame_kind k)
{
	static const char *const names[] = {
		[BLAME_NONE] = NULL,	   [BLAME_LARGEST] = "largest",
		[BLAME_GREW] = "grew",	   [BLAME_HOLDS_BACK] = "holds_back",
		[BLAME_OTHERS] = "others",
	};

	return names[k];
}

/* Adds a row if it is one of the BLAME_ROWS largest. words: takes copies of its texts. Returns 0 or
 * -ENOMEM. */
static int add_row(struct blame *b, const struct row *r, struct strings *words)
{
	size_t i = b->n < BLAME_ROWS ? b->n : BLAME_ROWS - 1;
	struct row own = *r;

	if (!r->bytes || (b->n == BLAME_ROWS && b->rows[i].bytes >= r->bytes))
		return 0;
	if (row_set__keep(words, &own))
		return -ENOMEM;
	b->n = i + 1;
	for (; i && b->rows[i - 1].bytes < own.bytes; i--)
		b->rows[i] = b->rows[i - 1];
	b->rows[i] = own;
	return 0;
}

/* ---- the largest lines ---- */

/* Adds the largest lines at the moment that m has marked; none for a device without rows. Returns 0
 * or -ENOMEM. */
static int add_largest(struct blame *b, const struct model *m, size_t device,
		       enum frame_choice which_line, struct strings *words)
{
	/* One row for each line, over all modules, as in the text report. */
	const struct row_opts o = { .by = BY_LINE,
				    .when = ROWS_AT_MARK,
				    .which_line = which_line,
				    .any_module = true,
				    .any_phase = true };
	struct holder_rows rows;
	int err = holder_rows__of(m, device, &o, /*names=*/true, &rows);

	if (err)
		return err == -ENOENT ? 0 : err;
	b->kind = BLAME_LARGEST;
	for (size_t i = 0; i < rows.n && i < BLAME_ROWS && !err; i++)
		err = add_row(b, &rows.all[i], words);
	holder_rows__free(&rows);
	return err;
}

/* Reads the recording again for another moment, whose name messages have; if that fails, adds
 * nothing. Warnings are hidden, because the first run logged them. Returns 0 or -ENOMEM. */
static int add_largest_at(struct blame *b, const struct analysis *a, const struct model_opts *at,
			  const char *moment, const char *device, enum frame_choice which_line,
			  struct strings *words)
{
	struct analysis *again;
	int found, err = 0;

	if (!strcmp(a->path, "-")) {
		snprintf(b->note, sizeof(b->note),
			 "the lines at the %s are unknown: standard input can be read only once, "
			 "for --at",
			 moment);
		return 0;
	}
	log__hush(LOG_ERROR);
	if (analysis__open(a->path, at, &again))
		goto out;
	again->doing = "looking for the largest lines in";
	if (!analysis__run(again, NULL, NULL)) {
		found = model__find_device(again->model, device);
		if (found >= 0)
			err = add_largest(b, again->model, (size_t)found, which_line, words);
	}
	analysis__free(again);
out:
	log__hush(LOG_DEBUG);
	return err;
}

/* Finds the largest lines at the moment b->at. at: the moment of a's model. */
static int find_largest(struct blame *b, const struct analysis *a, size_t device,
			const struct model_opts *at, enum frame_choice which_line,
			struct strings *words)
{
	const struct model_opts other = { .at = b->at };
	const char *moment = b->at == AT_PEAK ? "peak" : "first out of memory";
	struct model_device d;

	if (b->at == at->at)
		return add_largest(b, a->model, device, which_line, words);
	model__device(a->model, device, &d);
	return add_largest_at(b, a, &other, moment, d.name, which_line, words);
}

/* True if the device had an event in a run of the scope. */
static bool has_peak(const struct model *m, size_t device, const char *name)
{
	struct model_scope_level level;
	struct model_scope scope;

	for (size_t i = 0; i < model__scopes(m); i++) {
		model__scope(m, i, &scope);
		if (model__scope_is(m, &scope, name) && model__scope_highest(m, i, device, &level))
			return true;
	}
	return false;
}

/* Finds the largest lines at a scope's highest peak. Returns 0 or -ENOMEM. */
static int find_largest_in_scope(struct blame *b, const struct analysis *a, size_t device,
				 const char *scope, enum frame_choice which_line,
				 struct strings *words)
{
	struct model_opts at = { .at = AT_TIME };
	struct model_device d;

	if (!has_peak(a->model, device, scope))
		return 0;
	model__device(a->model, device, &d);
	snprintf(at.at_scope, sizeof(at.at_scope), "%s", scope);
	at.at_device = d.name;
	b->at = AT_TIME;
	return add_largest_at(b, a, &at, "peak of the scope", d.name, which_line, words);
}

/* Notes the size, line, phase and time of the first request that was refused. */
static void say_oom(struct blame *b, const struct analysis *a, size_t device,
		    enum frame_choice which_line)
{
	char where[REPORT_TEXT], size[24], time[24], path[512];
	struct row_frame line;
	struct model_oom oom;

	if (!model__oom(a->model, device, 0, &oom))
		return;
	snprintf(where, sizeof(where), "unknown code");
	if (model__stack_line(a->model, oom.stack, which_line, &line))
		snprintf(where, sizeof(where), "%s:%u",
			 text__clean(path, sizeof(path), line.file, strlen(line.file)), line.line);
	snprintf(b->note, sizeof(b->note), "the first request was %s at %.160s (%s, at %s)",
		 text__bytes(size, sizeof(size), oom.size), where, words__phase(oom.phase),
		 text__time(time, sizeof(time), oom.time));
}

/* ---- lines that grew ---- */

/* Adds the lines that grow from step to step, with the bytes that each has grown by. Returns 0 or
 * -ENOMEM. */
static int blame_growth(const struct growth *g, struct strings *words, struct blame *ret)
{
	int err = 0;

	ret->kind = BLAME_GREW;
	for (size_t i = 0; i < g->n && !err; i++) {
		const struct trend *trend = &g->lines[i].trend;
		struct row grown = g->lines[i].row;

		if (trend->verdict == TREND_FLAT || trend->verdict == TREND_RELEASED)
			continue;
		/* A line that rose and fell again leaves nothing: add_row() ignores 0 bytes. */
		grown.bytes = trend->last > trend->first ? trend->last - trend->first : 0;
		err = add_row(ret, &grown, words);
	}
	if (!err && !ret->n)
		snprintf(ret->note, sizeof(ret->note),
			 "no line grows from step to step; the growth may last a few steps only");
	return err;
}

/* Two moments of growth, as numbers of events before them. */
struct between {
	struct model *m;
	uint64_t seen, from, to; /* seen: events so far */
};

/* Callback for analysis__run(): makes the model keep its rows at both moments. */
static int note_moments(void *ctx, const struct event *e)
{
	struct between *moments = ctx;

	if (moments->seen == moments->from)
		model__note(moments->m, ROWS_AT_BASE, e->time);
	if (moments->seen == moments->to)
		model__note(moments->m, ROWS_AT_STEP, e->time);
	moments->seen++;
	return 0;
}

static int cmp_line(const void *x, const void *y)
{
	const struct row *a = x, *b = y;
	int order = (int)a->before_attach - (int)b->before_attach;

	order = order ? order : row_set__compare(a->file, b->file);
	order = order ? order : (a->line > b->line) - (a->line < b->line);
	order = order ? order : row_set__compare(a->func, b->func);
	return order ? order : row_set__compare(a->source, b->source);
}

/* Gets the rows of a moment by line, in the order of cmp_line(). *n: their number. */
static int take_lines(const struct model *m, size_t device, enum row_when when,
		      enum frame_choice which_line, struct row **rows, size_t *n)
{
	const struct row_opts o = { .split = 1U << BY_LINE,
				    .when = when,
				    .which_line = which_line };
	int err = model__rows(m, device, &o, rows, n);

	if (!err && *n)
		qsort(*rows, *n, sizeof(**rows), cmp_line);
	return err;
}

/* Adds each line's growth between the two moments, with both lists in the order of cmp_line(). */
static int add_grown(struct blame *b, const struct model *m, size_t device,
		     enum frame_choice which_line, struct strings *words)
{
	struct row *first = NULL, *last = NULL;
	size_t nfirst = 0, nlast = 0, i_first = 0;
	int err = take_lines(m, device, ROWS_AT_BASE, which_line, &first, &nfirst);

	if (!err)
		err = take_lines(m, device, ROWS_AT_STEP, which_line, &last, &nlast);
	for (size_t i = 0; i < nlast && !err; i++) {
		struct row grown = last[i];

		while (i_first < nfirst && cmp_line(&first[i_first], &grown) < 0)
			i_first++;
		if (i_first < nfirst && !cmp_line(&first[i_first], &grown))
			grown.bytes -= first[i_first].bytes < grown.bytes ? first[i_first].bytes
									  : grown.bytes;
		err = add_row(b, &grown, words);
	}
	free(first);
	free(last);
	return err;
}

/* Finds lines that grow over the whole recording, when the two moments of the growth are not known
 * or cannot be read again. g: as for find_blame(). */
static int blame_whole_growth(struct blame *b, const struct analysis *a, const struct growth *g,
			      struct strings *words)
{
	int err = g ? blame_growth(g, words, b) : 0;

	if (!err && !*b->note && !strcmp(a->path, "-"))
		snprintf(b->note, sizeof(b->note),
			 "the lines are of the whole recording: standard input can be read only "
			 "once");
	return err;
}

/* Finds the lines that grew between the two moments of the growth. Reads the recording again for
 * that; if that fails, names no lines. Returns 0 or -ENOMEM. */
static int find_grown(struct blame *b, const struct analysis *a, size_t device,
		      const struct cond_result *result, enum frame_choice which_line,
		      const struct growth *g, struct strings *words)
{
	const struct model_opts end = { .at = AT_END };
	struct between moments = { .from = result->from, .to = result->to };
	struct analysis *second_run;
	struct model_device dev;
	int found, err = 0;

	b->kind = BLAME_GREW;
	if (!result->lows_known || !strcmp(a->path, "-"))
		return blame_whole_growth(b, a, g, words);
	model__device(a->model, device, &dev);
	log__hush(LOG_ERROR); /* the first run printed the warnings */
	if (!analysis__open(a->path, &end, &second_run)) {
		second_run->doing = "looking for what grew in";
		moments.m = second_run->model;
		if (!analysis__run(second_run, note_moments, &moments)) {
			/* The growth may have lasted until the end. */
			if (!model__noted(moments.m, ROWS_AT_STEP, /*time=*/NULL))
				model__note(moments.m, ROWS_AT_STEP, second_run->duration);
			found = model__find_device(moments.m, dev.name);
			if (found >= 0)
				err = add_grown(b, moments.m, (size_t)found, which_line, words);
		}
		analysis__free(second_run);
	}
	log__hush(LOG_DEBUG); /* print all messages again */
	return err;
}

/* ---- segments and other memory ---- */

/* Compares file and line. All rows from before attach count as one. */
static bool is_same(const struct row *a, const struct row *b)
{
	if (a->before_attach || b->before_attach)
		return a->before_attach && b->before_attach;
	return a->line == b->line && a->file && b->file && !strcmp(a->file, b->file);
}

/* Charges the stuck bytes of each segment to the line with most bytes in it. */
static int find_holders(struct blame *b, const struct model *m, size_t device,
			enum frame_choice which_line, struct strings *words)
{
	struct model_segments segments;
	int err = model__segments(m, device, ROWS_AT_MARK, which_line, &segments);

	if (err)
		return err == -ENOMEM ? err : 0;
	b->kind = BLAME_HOLDS_BACK;
	for (size_t i = 0; i < segments.n && !err; i++) {
		struct row held, *same = NULL;

		if (!segments.all[i].stuck || !segments.all[i].npins)
			continue;
		held = segments.all[i].pins[0];
		held.bytes = segments.all[i].stuck;
		held.count = 1;
		for (size_t k = 0; k < b->n; k++)
			if (is_same(&b->rows[k], &held))
				same = &b->rows[k];
		if (same) {
			same->bytes += held.bytes;
			same->count++;
		} else {
			err = add_row(b, &held, words);
		}
	}
	if (!err)
		qsort(b->rows, b->n, sizeof(*b->rows), row__compare);
	model__free_segments(&segments);
	return err;
}

/* Adds the lines of memory that other code than the allocator took from CUDA, and notes what the
 * driver counts beyond that. */
static int find_others(struct blame *b, const struct model *m, size_t device,
		       enum frame_choice which_line, struct strings *words)
{
	struct model_segments segments;
	int err = model__segments(m, device, ROWS_AT_MARK, which_line, &segments);

	if (err)
		return err == -ENOMEM ? err : 0;
	b->kind = BLAME_OTHERS;
	for (size_t i = 0; i < segments.nothers && !err; i++)
		err = add_row(b, &segments.others[i].row, words);
	if (!err && segments.used_known &&
	    segments.used > segments.used_below + segments.used_others) {
		char size[24];

		snprintf(b->note, sizeof(b->note),
			 "the driver counts %s more for the process: CUDA's own memory, or memory "
			 "from %s",
			 text__bytes(size, sizeof(size),
				     segments.used - segments.used_below - segments.used_others),
			 words__before(model__is_snapshot(m)));
	}
	model__free_segments(&segments);
	return err;
}

/* Notes how many events were lost. */
static void say_lost(struct blame *b, const struct analysis *a)
{
	char count[32];

	snprintf(b->note, sizeof(b->note),
		 "%s lost: peaks and lines lack them. If the buffer was full, a larger --ring-size "
		 "helps",
		 text__counted(count, sizeof(count), words__lost(a->model, a->facts), "event"));
}

/*
 * Finds the lines for a condition's figure. Rows are by line and category, over all modules and
 * phases. Growth is by line, to the byte, between the two moments of the figure.
 *
 * The recording was run to its end. device: index in the model; at: the model's moment. For another
 * moment, the recording is read again; standard input is not, and the note says so. g: growth of
 * the device by line; NULL: not watched. Returns 0 or -ENOMEM.
 */
static int find_blame(struct analysis *a, size_t device, const struct cond_result *result,
		      const struct model_opts *at, enum frame_choice which_line,
		      const struct growth *g, struct strings *words, struct blame *ret)
{
	ret->at = at->at;
	switch (result->figure) {
	case COND_PEAK:
		ret->at = AT_PEAK;
		return find_largest(ret, a, device, at, which_line, words);
	case COND_OOMS:
		ret->at = AT_OOM;
		say_oom(ret, a, device, which_line);
		return find_largest(ret, a, device, at, which_line, words);
	case COND_ALLOCATED:
	case COND_RESERVED:
	case COND_USED:
	case COND_PEAK_RESERVED:
		return find_largest(ret, a, device, at, which_line, words);
	case COND_UNUSED:
	case COND_FRAGMENTATION:
		return find_holders(ret, a->model, device, which_line, words);
	case COND_OTHER:
	case COND_OTHER_GROWTH:
		return find_others(ret, a->model, device, which_line, words);
	case COND_GROWTH:
	case COND_RESERVED_GROWTH:
		return find_grown(ret, a, device, result, which_line, g, words);
	case COND_LEAKS:
	case COND_USED_GROWTH:
		return g ? blame_growth(g, words, ret) : 0;
	case COND_LOST:
		say_lost(ret, a);
		return 0;
	default:
		return 0;
	}
}

/* ---- conditions ---- */

struct condition {
	struct cond *cond;
	char *scope;	  /* it is about the runs of this scope; NULL: about the recording */
	const char *text; /* as given, borrowed */
};

static void free_condition(const struct condition *c)
{
	cond__free(c->cond);
	free(c->scope);
}

/* The result of a condition for a device of a recording. */
struct failing {
	const char *condition;
	struct cond_result result;
	char *recording;
	char *device; /* NULL: result for the whole recording, or the recording has no device */
	char *cwd;    /* working directory; NULL: unknown */
	bool has_rank;
	bool empty; /* true if the recording has no events, such as a launcher's */
	uint64_t rank;
	struct blame blame; /* responsible lines, if the condition holds */
};

#define WARM_UP 2 /* steps before growth counts */

struct report_fail {
	struct condition *conds;
	size_t n, room;
	struct failing *failing;
	size_t nfailing, failing_room;
	struct strings *words;
	/* State of the current recording. */
	struct model *model;
	bool feed;	 /* some condition is about growth, so it needs all events */
	bool leaks;	 /* some condition needs the lines that grow */
	bool warm;	 /* WARM_UP steps have ended */
	uint32_t number; /* model's number of the last event's device; UINT32_MAX: none */
	uint64_t time;	 /* time of that event, ns */
	/* Reason why growth is not known; figures of struct judged point to it. */
	char too_few_steps[PATH_MAX + 64];
};

struct report_fail *report_fail__new(void)
{
	struct report_fail *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->words = strings__new();
	if (!f->words) {
		free(f);
		return NULL;
	}
	snprintf(f->too_few_steps, sizeof(f->too_few_steps), "too few steps to judge: see %s",
		 docs__path("guide/growth.md"));
	return f;
}

void report_fail__free(struct report_fail *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++)
		free_condition(&f->conds[i]);
	free(f->conds);
	for (size_t i = 0; i < f->nfailing; i++) {
		free(f->failing[i].recording);
		free(f->failing[i].device);
		free(f->failing[i].cwd);
	}
	free(f->failing);
	strings__free(f->words);
	free(f);
}

/* Refuses the condition `text`. Sets *why to the reason, for free(): what, and why_not. Returns
 * -EINVAL or -ENOMEM. */
static int refuse(const char *text, const char *what, const char *why_not, char **why)
{
	char reason[1600], clean[2048];

	snprintf(reason, sizeof(reason), "'%.800s': %s %s", text, what, why_not);
	*why = strdup(text__clean(clean, sizeof(clean), reason, strlen(reason)));
	return *why ? -EINVAL : -ENOMEM;
}

/* Refuses figures that recordings lack, and those that scopes lack. Returns 0, or as refuse(). */
static int check_figures(const struct condition *c, char **why)
{
	static const enum cond_figure not_recorded[] = { COND_FREE,
							 COND_RSS,
							 COND_RETRIES,
							 COND_RSS_GROWTH,
							 COND_HOST_LIVE_GROWTH,
							 COND_MALLOC_FREE_GROWTH,
							 COND_USED_GROWTH,
							 COND_OTHER_GROWTH,
							 COND_MACHINE_FREE,
							 COND_MACHINE_AVAILABLE,
							 COND_MACHINE_CACHE };

	for (int i = 0; i < COND_NR && c->scope; i++)
		if (i != COND_PEAK && i != COND_PEAK_RESERVED && cond__needs(c->cond, i))
			return refuse(c->text, cond__figure_name(i),
				      "is not a figure of a scope; use peak or peak_reserved", why);
	for (size_t i = 0; i < sizeof(not_recorded) / sizeof(*not_recorded); i++)
		if (cond__needs(c->cond, not_recorded[i]))
			return refuse(c->text, cond__figure_name(not_recorded[i]),
				      "is not in recordings; use it with `memtrace-bpf watch`",
				      why);
	return 0;
}

/* Takes the scope from "scope:NAME CONDITION", if it is there. A name with spaces is in double
 * quotes. *rest: the condition. Returns 0, or as refuse(). */
static int take_scope(struct condition *c, const char **rest, char **why)
{
	const char *name = c->text + strlen("scope:");
	bool quoted;
	size_t len;

	*rest = c->text;
	if (!text__starts(c->text, "scope:"))
		return 0;
	quoted = *name == '"';
	name += quoted;
	len = strcspn(name, quoted ? "\"" : " ");
	c->scope = strndup(name, len);
	if (!c->scope)
		return -ENOMEM;
	*rest = name + len;
	*rest += quoted && **rest; /* the quote */
	*rest += strspn(*rest, " ");
	if (facts__is_scope(c->scope) && **rest)
		return 0;
	return refuse(c->text, "scope:", "needs a name and a condition: scope:rollout peak>60G",
		      why);
}

/* Parses c->text. Returns 0, or as refuse(). */
static int parse_condition(struct condition *c, char **why)
{
	const char *rest;
	int err = take_scope(c, &rest, why);

	if (err)
		return err;
	err = cond__parse(rest, &c->cond, why);
	return err ? err : check_figures(c, why);
}

int report_fail__add(struct report_fail *f, const char *text, char **why)
{
	struct condition c = { .text = text };
	int err;

	*why = NULL;
	err = parse_condition(&c, why);
	if (!err)
		err = array__grow(&f->conds, &f->room, f->n + 1, sizeof(*f->conds));
	if (err) {
		free_condition(&c);
		return err;
	}
	f->conds[f->n++] = c;
	f->feed |= cond__needs_growth(c.cond);
	f->leaks |= cond__needs(c.cond, COND_LEAKS);
	return 0;
}

size_t report_fail__count(const struct report_fail *f)
{
	return f->nfailing;
}

/* ---- during the run ---- */

/* Makes the conditions about growth forget all values so far. */
static void forget_series(struct report_fail *f)
{
	for (size_t i = 0; i < f->n; i++)
		for (unsigned k = 0; k < COND_SERIES; k++)
			cond__forget(f->conds[i].cond, k);
}

int report_fail__begin(struct report_fail *f, struct analysis *a)
{
	f->model = a->model;
	f->warm = false;
	f->number = UINT32_MAX;
	forget_series(f);
	for (size_t i = 0; i < f->n; i++) {
		int err = f->conds[i].scope ? model__add_scope(a->model, f->conds[i].scope) : 0;

		if (err)
			return err;
	}
	return f->feed || f->leaks ? growth__watch(a->model, BY_LINE) : 0;
}

/* Feeds the conditions with the figures of the last event's device, f->number, after that event.
 * After the first steps the conditions forget what they were fed: memory always grows then. */
static int feed_conds(struct report_fail *f)
{
	struct cond_values values = { .time = f->time, .has_steps = true, .series = f->number };
	struct model_now now;

	if (f->number >= COND_SERIES || !model__now(f->model, f->number, &now))
		return 0;
	values.step = model__steps(f->model);
	values.seq = now.seq;
	if (!f->warm && values.step >= WARM_UP) {
		forget_series(f);
		f->warm = true;
	}
	/* Memory found to be from before attach is no growth. It is subtracted, and the figure
	 * may be below 0. */
	values.v[COND_ALLOCATED] = (struct cond_value){ .known = true,
							.value = now.allocated - now.late };
	values.v[COND_RESERVED] = (struct cond_value){ .known = true, .value = now.reserved };
	for (size_t i = 0; i < f->n; i++) {
		int err = cond__feed(f->conds[i].cond, &values);

		if (err)
			return err;
	}
	return 0;
}

int report_fail__event(void *ctx, const struct event *e)
{
	struct report_fail *f = ctx;
	int err = 0;

	/* The model gets this event only after this call, so feed the one before. */
	if (f->feed && f->number != UINT32_MAX)
		err = feed_conds(f);
	f->number = UINT32_MAX;
	if (e->kind == EVENT_ALLOC || e->kind == EVENT_FREE) {
		f->number = model__number_of(f->model, e->device);
		f->time = e->time;
	} else if (e->kind == EVENT_STEP && f->feed) {
		f->time = e->time;
	}
	return err;
}

/* ---- results ---- */

/* A device of a recording, with the figures for its conditions. */
struct judged {
	struct analysis *a;
	size_t device;
	struct model_device d;
	const struct model_opts *at;
	enum frame_choice which_line;
	bool grown; /* true if g is set */
	struct growth g;
	/* Bounds: high has the largest possible value of figures that are not exact, low the
	 * smallest. */
	struct cond_values high, low;
};

/* Sets both bounds of a figure. whole: the value that 100 % is. Memory since attach counts as
 * exact, since conditions are about it if the rest is unknown. why: the reason if it is not known.
 */
static void put_value(struct judged *judged, enum cond_figure figure, bool known, uint64_t value,
		      uint64_t whole, enum figure exactness, const char *why)
{
	/* A lower bound has no upper bound; of an inexact value neither is known. */
	uint64_t low = exactness == FIGURE_NOT_EXACT ? 0 : value;
	uint64_t high = exactness <= FIGURE_SINCE_ATTACH ? value : UINT64_MAX;

	judged->low.v[figure] = (struct cond_value){ known, low, whole };
	judged->high.v[figure] = (struct cond_value){ known, high, whole };
	judged->low.why[figure] = judged->high.why[figure] = why;
}

/* Sets the figures of the device's allocator. */
static void put_device(struct judged *judged)
{
	const struct model_device *device = &judged->d;
	uint64_t total = words__device_total(judged->a->facts, device);
	uint64_t unused = device->mark_reserved > device->mark_allocated
				  ? device->mark_reserved - device->mark_allocated
				  : 0;
	bool cuda = !device__on_host(device->device),
	     reserved_known = device->has_totals && device->marked;
	const char *no_totals = cuda ? "the allocator has no totals"
				     : "the CPU allocator reserves no memory";
	const char *no_moment = device->marked ? ""
					       : "the recording does not reach the chosen moment";
	const char *no_reserved = device->has_totals ? no_moment : no_totals;

	put_value(judged, COND_ALLOCATED, device->marked, device->mark_allocated, total,
		  device->mark_is, no_moment);
	put_value(judged, COND_PEAK, /*known=*/true, device->peak_allocated, total, device->peak_is,
		  "");
	put_value(judged, COND_RESERVED, reserved_known, device->mark_reserved, total,
		  device->mark_is, no_reserved);
	put_value(judged, COND_UNUSED, reserved_known, unused, total, device->mark_is, no_reserved);
	put_value(judged, COND_PEAK_RESERVED, device->has_totals, device->peak_reserved, total,
		  device->peak_is, no_totals);
	put_value(judged, COND_FRAGMENTATION, reserved_known, unused, device->mark_reserved,
		  FIGURE_EXACT, no_reserved);
	if (reserved_known &&
	    !device->mark_reserved) /* 0 of 1 byte is 0 %; 0 of 0 would be unknown */
		judged->low.v[COND_FRAGMENTATION].whole = judged->high.v[COND_FRAGMENTATION]
								  .whole = 1;
	put_value(judged, COND_OOMS, cuda, device->ooms, 0, FIGURE_EXACT,
		  "the CPU allocator does not report out-of-memory errors");
}

/* Sets the driver's figures for the process: all its use, and the use by other code than the
 * allocator. */
static void put_below(struct judged *judged)
{
	const char *why = "the recording has no driver figure";
	uint64_t total = words__device_total(judged->a->facts, &judged->d), other = 0;
	struct model_segments segments;

	if (model__segments(judged->a->model, judged->device, ROWS_AT_MARK, judged->which_line,
			    &segments)) {
		put_value(judged, COND_USED, /*known=*/false, 0, 0, FIGURE_EXACT, why);
		put_value(judged, COND_OTHER, /*known=*/false, 0, 0, FIGURE_EXACT, why);
		return;
	}
	if (segments.used > segments.used_below) /* used_below: what the allocator reserved then */
		other = segments.used - segments.used_below;
	put_value(judged, COND_USED, segments.used_known, segments.used, total, FIGURE_EXACT, why);
	put_value(judged, COND_OTHER, segments.used_known, other, total, FIGURE_EXACT, why);
	model__free_segments(&segments);
}

/* Subtracts from *value, down to 0. */
static void lower(uint64_t *value, uint64_t by)
{
	*value -= *value < by ? *value : by;
}

/* Sets the figures of the whole recording. */
static void put_whole(struct judged *judged)
{
	static const char unread[] = "the recording has no reading of host memory";
	const struct model *m = judged->a->model;
	const struct model_host *host = model__host(m);
	uint64_t time = model__step_time(m);

	put_value(judged, COND_STEP_TIME, time, time, 0, FIGURE_EXACT,
		  "no whole step was recorded");
	put_value(judged, COND_LOST, /*known=*/true, words__lost(m, judged->a->facts), 0,
		  FIGURE_EXACT, "");
	host_figures__put(&judged->low, host ? &host->at_moment.sheet : NULL, 0, unread);
	host_figures__put(&judged->high, host ? &host->at_moment.sheet : NULL, 0, unread);
	/* Memory of an allocator that was not read may be free. */
	if (host)
		lower(&judged->low.v[COND_HOST_LIVE].value,
		      host->at_moment.sheet.part[HOST_UNKNOWN].bytes);
	judged->low.has_steps = judged->high.has_steps = model__steps(m) > 0;
	judged->low.series = judged->high.series = model__number(m, judged->device);
	judged->low.judge_largest = judged->high.judge_largest = true;
}

/* After lost events, only the allocator's own totals are right again. */
static bool growth_is_known(const struct judged *x)
{
	return x->d.has_totals || x->d.allocated_is <= FIGURE_SINCE_ATTACH;
}

/* Sets the number of leaks, and makes growth unknown where the recording cannot tell it. */
static void put_growth(struct report_fail *f, struct judged *judged)
{
	if (!f->feed && !f->leaks)
		return;
	judged->grown = !growth__judge(judged->a->model, judged->device, GROWTH_SUMMARY_LEAST,
				       &judged->g);
	put_value(judged, COND_LEAKS, judged->grown && judged->g.values >= TREND_MIN,
		  judged->grown ? growth__count(&judged->g, TREND_MEDIUM) : 0, 0, FIGURE_EXACT,
		  f->too_few_steps);
	if (growth_is_known(judged))
		return;
	put_value(judged, COND_ALLOCATED, /*known=*/false, 0, 0, FIGURE_EXACT,
		  "events were lost, and without the allocator's totals later figures are unknown");
}

/* Makes a result unknown because its figure is only a lower bound. */
static void say_at_least(struct cond_result *r)
{
	const char *why = r->figure == COND_HOST_LIVE
				  ? "the use of some memory is not known, so live is at least that"
				  : "events were lost, so the figures are lower bounds";
	char text[COND_TEXT];

	snprintf(text, sizeof(text), "%s: %.300s", why, r->text);
	memcpy(r->text, text, sizeof(text));
	r->verdict = COND_UNKNOWN;
}

/* Judges a condition with the lower and the upper bounds. If the verdicts differ, it is unknown.
 * Returns 0 or -ENOMEM. */
static int judge_cond(struct cond *c, const struct judged *judged, struct cond_result *ret)
{
	struct cond_result high;
	int err = cond__eval(c, &judged->low, ret);

	if (err)
		return err;
	err = cond__eval(c, &judged->high, &high);
	if (err)
		return err;
	if (ret->verdict != high.verdict)
		say_at_least(ret);
	return 0;
}

/* Judges a condition on a scope. Its figures are the highest ones of all its runs. Returns 0 or
 * -ENOMEM. */
static int judge_scope(const struct condition *c, const struct judged *judged,
		       struct cond_result *ret)
{
	static const char none[] = "there is no such scope, and no allocation has this function "
				   "on its stack";
	uint64_t whole = words__device_total(judged->a->facts, &judged->d), peak = 0, reserved = 0;
	bool found = false, has_totals = judged->d.has_totals;
	const struct model *m = judged->a->model;
	struct judged scoped = *judged;
	struct model_scope_level level;
	enum figure peak_is = judged->d.peak_is;
	struct model_scope scope;

	for (size_t i = 0; i < model__scopes(m); i++) {
		model__scope(m, i, &scope);
		if (!model__scope_is(m, &scope, c->scope) ||
		    !(model__scope_highest(m, i, judged->device, &level) ||
		      model__scope_idle(m, i, judged->device, &level)))
			continue;
		found = true;
		peak = level.peak > peak ? level.peak : peak;
		reserved = level.peak_reserved > reserved ? level.peak_reserved : reserved;
	}
	/* A run that was left out may have a higher peak. */
	if (model__scopes_left_out(m) && peak_is < FIGURE_LOWER_BOUND)
		peak_is = FIGURE_LOWER_BOUND;
	put_value(&scoped, COND_PEAK, found, peak, whole, peak_is, none);
	put_value(&scoped, COND_PEAK_RESERVED, found && has_totals, reserved, whole, peak_is,
		  found ? "the allocator has no totals" : none);
	return judge_cond(c->cond, &scoped, ret);
}

/* Adds an entry for a recording; x NULL: without a device. Valid until the next call. NULL: out of
 * memory. */
static struct failing *add_failing(struct report_fail *f, const struct analysis *a,
				   const struct judged *x)
{
	const char *cwd = facts__get(a->facts, "cwd");
	struct failing *entry;

	if (array__grow(&f->failing, &f->failing_room, f->nfailing + 1, sizeof(*f->failing)))
		return NULL;
	entry = &f->failing[f->nfailing];
	*entry = (struct failing){ .recording = strdup(a->name) };
	if (x)
		entry->device = strdup(x->d.name);
	if (cwd)
		entry->cwd = strdup(cwd);
	entry->has_rank = facts__number(a->facts, "rank", &entry->rank);
	f->nfailing++;
	return entry->recording && (entry->device || !x) ? entry : NULL;
}

/* Returns whether the condition needs no figure of a device. */
static bool is_of_all(const struct cond *c)
{
	for (int i = 0; i < COND_NR; i++)
		if (i != COND_STEP_TIME && i != COND_LOST && i != COND_HOST_CGROUP &&
		    !cond__reads_host(i) && cond__needs(c, i))
			return false;
	return true;
}

/* Finds the lines to blame for a condition that holds. Returns 0 or -ENOMEM. */
static int blame_lines(struct report_fail *f, const struct condition *c, struct judged *judged,
		       struct failing *r)
{
	if (c->scope)
		return find_largest_in_scope(&r->blame, judged->a, judged->device, c->scope,
					     judged->which_line, f->words);
	return find_blame(judged->a, judged->device, &r->result, judged->at, judged->which_line,
			  judged->grown ? &judged->g : NULL, f->words, &r->blame);
}

/* Judges the conditions for a device; those of the whole recording only for the first one. Returns
 * 0 or -ENOMEM. */
static int judge_device(struct report_fail *f, struct judged *judged, bool first)
{
	int err = 0;

	model__device(judged->a->model, judged->device, &judged->d);
	put_device(judged);
	put_below(judged);
	put_whole(judged);
	put_growth(f, judged);
	for (size_t i = 0; i < f->n && !err; i++) {
		const struct condition *c = &f->conds[i];
		struct failing *r;

		if (is_of_all(c->cond) && !first)
			continue;
		r = add_failing(f, judged->a, is_of_all(c->cond) ? NULL : judged);
		if (!r)
			return -ENOMEM;
		r->condition = c->text;
		err = c->scope ? judge_scope(c, judged, &r->result)
			       : judge_cond(c->cond, judged, &r->result);
		if (!err && r->result.verdict == COND_HOLDS)
			err = blame_lines(f, c, judged, r);
	}
	if (judged->grown)
		growth__free(&judged->g);
	return err;
}

/* Adds unknown results for a recording without memory events. */
static int judge_nothing(struct report_fail *f, struct analysis *a)
{
	for (size_t i = 0; i < f->n; i++) {
		struct failing *r = add_failing(f, a, NULL);

		if (!r)
			return -ENOMEM;
		r->condition = f->conds[i].text;
		r->empty = true;
		r->result.verdict = COND_UNKNOWN;
		snprintf(r->result.text, sizeof(r->result.text),
			 "the recording has no memory events");
	}
	return 0;
}

int report_fail__judge(struct report_fail *f, struct analysis *a, int device,
		       const struct model_opts *at, enum frame_choice which_line)
{
	size_t n = model__devices(a->model);
	bool first = true;
	int err = 0;

	if (!n)
		return judge_nothing(f, a);
	if (f->feed && f->number != UINT32_MAX)
		err = feed_conds(f);
	f->number = UINT32_MAX;
	for (size_t i = 0; i < n && !err; i++) {
		struct judged x = { .a = a, .device = i, .at = at, .which_line = which_line };

		model__device(a->model, i, &x.d);
		if (device >= 0 ? i != (size_t)device : device__on_host(x.d.device) && n > 1)
			continue;
		err = judge_device(f, &x, first);
		first = false;
	}
	return err;
}

/* ---- saying it ---- */

#define COLUMNS 100 /* columns of a location */

/* Writes a value in its unit; share: the value if the unit is a share. */
static void put_amount(struct json *j, const char *key, enum cond_unit unit, uint64_t value,
		       double share)
{
	if (unit == COND_SHARE)
		json__double(j, key, share, /*decimals=*/6);
	else if (unit == COND_TIME)
		json__seconds(j, key, value, /*decimals=*/9);
	else
		json__uint(j, key, value);
}

/* Writes the lines behind a figure. */
static void put_blame(struct json *j, const struct blame *b)
{
	if (b->kind == BLAME_LARGEST)
		json__string(j, "blame_at", moment_names[b->at]);
	json__string(j, "blame_is", blame_name(b->kind));
	if (*b->note)
		json__string(j, "note", b->note);
	json__open_array(j, "blame");
	for (size_t i = 0; i < b->n; i++) {
		const struct row *r = &b->rows[i];

		json__open_object(j, NULL);
		json__uint(j, "bytes", r->bytes);
		json__uint(j, "count", r->count);
		report_json__line(j, r);
		json__string(j, "category", r->category);
		if (r->name)
			json__string(j, "name", r->name);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_failing(struct json *j, const struct failing *r)
{
	const struct cond_result *result = &r->result;

	json__open_object(j, NULL);
	json__string(j, "condition", r->condition);
	if (result->verdict == COND_UNKNOWN)
		json__null(j, "holds");
	else
		json__bool(j, "holds", result->verdict == COND_HOLDS);
	json__string(j, "text", result->text);
	json__string(j, "recording", r->recording);
	if (r->has_rank)
		json__uint(j, "rank", r->rank);
	json__string(j, "device", r->device);
	if (result->verdict != COND_UNKNOWN) {
		json__string(j, "figure", cond__figure_name(result->figure));
		put_amount(j, "value", result->unit, result->value, result->share);
		put_amount(j, "limit", result->unit, result->limit, result->share_limit);
		if (result->figure >= COND_GROWTH)
			json__seconds(j, "until", result->at, /*decimals=*/9);
	}
	put_blame(j, &r->blame);
	json__close_object(j);
}

void report_fail__json(struct json *j, const struct report_fail *f, size_t from)
{
	json__open_array(j, "failed");
	for (size_t i = from; i < f->nfailing; i++)
		put_failing(j, &f->failing[i]);
	json__close_array(j);
}

/* Writes " on cuda:0 of rank 2 (job.2)". */
static void say_where(const struct failing *r, char *buf, size_t size)
{
	char name[256], rank[40] = "", device[64] = "";

	if (r->device)
		snprintf(device, sizeof(device), " on %s", r->device);
	if (r->has_rank)
		snprintf(rank, sizeof(rank), " of rank %" PRIu64, r->rank);
	snprintf(buf, size, "%s%s (%s)", device, rank,
		 text__clean(name, sizeof(name), r->recording, strlen(r->recording)));
}

/* Prints the lines behind a figure. */
static void say_blame(const struct failing *r)
{
	static const char *const titles[] = {
		[BLAME_GREW] = "largest growth, by line",
		[BLAME_HOLDS_BACK] =
			"memory that cannot be returned to CUDA, by the line that holds "
			"most of the same segment",
		[BLAME_OTHERS] = "memory allocated outside PyTorch's allocator",
	};
	static const char *const moments[] = {
		[AT_PEAK] = "peak",
		[AT_END] = "end",
		[AT_OOM] = "first out of memory",
		[AT_TIME] = "moment asked for",
	};
	const struct blame *b = &r->blame;
	char at[REPORT_TEXT], module[REPORT_TEXT], bytes[24];

	if (*b->note)
		fprintf(stderr, "  %s\n", b->note);
	if (!b->n)
		return;
	if (b->kind == BLAME_LARGEST)
		fprintf(stderr, "  largest at the %s:\n", moments[b->at]);
	else
		fprintf(stderr, "  %s:\n", titles[b->kind]);
	for (size_t i = 0; i < b->n; i++) {
		const struct row *row = &b->rows[i];

		words__location(at, row, r->cwd, COLUMNS);
		words__cut(words__module(module, row), /*columns=*/40);
		fprintf(stderr, *module ? "  %10s  %-15s  %s [%s]\n" : "  %10s  %-15s  %s\n",
			text__bytes(bytes, sizeof(bytes), row->bytes), words__role(row->category),
			at, module);
	}
}

/* Logs a result that is not "no". others: another recording was judged, so an empty one is no
 * failure. Returns the exit code. */
static int say_failing(const struct failing *r, bool others)
{
	const struct cond_result *result = &r->result;
	char where[400], by[40] = "", when[40] = "", text[24];

	say_where(r, where, sizeof(where));
	switch (result->verdict) {
	case COND_NO:
		return EXIT_OK;
	case COND_UNKNOWN:
		if (r->empty && others) {
			log_info("--fail-if '%s' was not judged%s: %s", r->condition, where,
				 result->text);
			return EXIT_OK;
		}
		log_err("--fail-if '%s' cannot be judged%s: %s", r->condition, where, result->text);
		return EXIT_FAILED;
	case COND_HOLDS:
		break;
	}
	if (result->unit == COND_BYTES && result->value > result->limit)
		snprintf(by, sizeof(by), ", by %s",
			 text__bytes(text, sizeof(text), result->value - result->limit));
	if (result->figure >= COND_GROWTH)
		snprintf(when, sizeof(when), " until %s",
			 text__time(text, sizeof(text), result->at));
	log_err("--fail-if '%s' holds%s: %s%s%s", r->condition, where, result->text, when, by);
	say_blame(r);
	return EXIT_HELD;
}

int report_fail__say(const struct report_fail *f, int status)
{
	bool others = false;

	fflush(stdout);
	for (size_t i = 0; i < f->nfailing; i++)
		others |= !f->failing[i].empty;
	for (size_t i = 0; i < f->nfailing; i++) {
		int mine = say_failing(&f->failing[i], others);

		status = mine > status ? mine : status;
	}
	return status;
}
