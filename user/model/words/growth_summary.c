/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/detail.h"

/* ---- memory that autograd's graph keeps ---- */

/* Parts of names, as in "saved for MulBackward0, graph of global h" and "grad of w". */
#define SAVED "saved for "
#define GRAPH ", graph of "
#define GRADIENT "grad of "

bool growth_summary__graph_has(const char *name)
{
	return !strncmp(name, SAVED, strlen(SAVED));
}

#define AND " and "
#define MORE " more"

/* Returns the length of a name without " and 3 more" at its end, which stands for other names of
 * the same memory. */
static size_t own_length(const char *name)
{
	size_t len = strlen(name), end = 0;

	if (len > strlen(MORE) && !strcmp(name + len - strlen(MORE), MORE))
		end = len - strlen(MORE);
	/* the number before it: "3", "1,205", or "*" for several numbers of alike names */
	while (end && strchr("0123456789,*", name[end - 1]))
		end--;
	if (end <= strlen(AND) || !text__starts(name + end - strlen(AND), AND))
		return len;
	return end - strlen(AND);
}

size_t growth_summary__graph_keeper(const char *name, const char **at)
{
	const char *graph = growth_summary__graph_has(name) ? strstr(name, GRAPH) : NULL;

	if (!graph)
		return 0;
	graph += strlen(GRAPH);
	if (text__starts(graph, "global "))
		graph += strlen("global ");
	else if (text__starts(graph, "local "))
		graph += strlen("local ");
	*at = graph;
	return own_length(graph);
}

char *growth_summary__graph_words(const char *name, bool brief, char *buf, size_t size)
{
	const char *keeper;
	char holder[400], saved_for[400];
	size_t n = growth_summary__graph_keeper(name, &keeper);

	if (!n) {
		text__clean(saved_for, sizeof(saved_for), name, strlen(name));
		snprintf(buf, size, "autograd's graph, %s", saved_for);
		return buf;
	}
	text__clean(holder, sizeof(holder), keeper, n);
	text__clean(saved_for, sizeof(saved_for), name, strstr(name, GRAPH) - name);
	snprintf(buf, size, brief ? "the graph of %s" : "the graph of %s, %s", holder, saved_for);
	return buf;
}

const char *growth_summary__graph_remedy(const char *name, bool backward)
{
	const char *graph = strstr(name, GRAPH);

	if (graph && !strncmp(graph + strlen(GRAPH), GRADIENT, strlen(GRADIENT)))
		return "backward(create_graph=True) gives gradients a graph: set p.grad = None "
		       "after each step, or use torch.autograd.grad()";
	if (!backward)
		return "no backward pass runs: compute it under torch.no_grad() or "
		       "torch.inference_mode(), which each thread sets for itself";
	return "keep its value (loss.item()) or loss.detach()";
}

/* ---- judgement ---- */

#define KNOWN_NS UINT64_C(60000000000) /* a recording without steps must be longer for a verdict */
/* If the device is full only after so many steps or seconds, the summary does not say when. */
#define FAR_STEPS 1e9
#define FAR_SECONDS (3650.0 * 86400)

/* Returns the mean duration of the kept steps, in minutes. 0: not known, or a dry run, whose
 * durations mean nothing because it does not compute. */
static double step_minutes(const struct model *m, const struct facts *f, const struct growth *g)
{
	struct model_step first, last;
	size_t skip_first = model__first_step_whole(m) ? 0 : 1, kept = skip_first;

	if (facts__get(f, "dry_run"))
		return 0;
	if (g->clock == GROWTH_REQUESTS)
		return g->request.seconds / 60;
	if (g->after_steps || !model__step(m, skip_first, &first))
		return 0;
	while (model__step(m, kept, &last))
		kept++;
	model__step(m, kept - 1, &last);
	if (last.end <= first.start)
		return 0;
	return (double)(last.end - first.start) / 60e9 / (double)(kept - skip_first);
}

/* True if a series grows surely enough for the summary to mention it. After an out-of-memory error
 * people look for growth, so the confidence of `leaks` is enough. */
static bool is_mentioned(const struct growth_summary *s, const struct trend *t)
{
	return s->ran_out ? trend__counts(t, GROWTH_SUMMARY_CONFIDENCE)
			  : trend__is_sure(t, s->clock == GROWTH_STEPS);
}

/* True for growth by so few bytes a step that it is no finding. */
static bool is_negligible(const struct growth_summary *s, double rate)
{
	return s->clock != GROWTH_TIME && rate < GROWTH_SUMMARY_LITTLE;
}

/* Chooses the part that grows fastest: the first of the lines, or the pool or memory of other code
 * if it grows faster than all lines together. */
static void choose_part(struct growth_summary *s)
{
	const struct growth *growth = &s->growth;

	for (size_t i = 0; i < growth->n; i++) {
		if (!is_mentioned(s, &growth->lines[i].trend))
			continue;
		if (is_negligible(s, growth->lines[i].per_step)) {
			/* for words about it if nothing grows by more */
			s->little = s->little ?: &growth->lines[i];
			continue;
		}
		if (!s->lines++)
			s->line = &growth->lines[i];
		s->lines_per_step += growth->lines[i].per_step;
	}
	if (s->line) {
		s->per_step = s->line->per_step;
		s->confidence = s->line->trend.confidence;
		s->holder = s->line->nnames ? &s->line->names[0] : NULL;
	}
	if (growth__pool_grows(growth, GROWTH_SUMMARY_CONFIDENCE) &&
	    is_mentioned(s, &growth->reserved.trend) &&
	    (!s->line || growth->reserved.per_step > s->lines_per_step)) {
		s->part = GROWTH_OF_POOL;
		s->per_step = growth->reserved.per_step;
		s->confidence = growth->reserved.trend.confidence;
	}
	if (growth__others_grow(growth, GROWTH_SUMMARY_CONFIDENCE) &&
	    is_mentioned(s, &growth->others.trend) &&
	    (s->confidence == TREND_NONE ||
	     growth->others.per_step >
		     (s->part == GROWTH_OF_LINE ? s->lines_per_step : s->per_step))) {
		s->part = GROWTH_OF_OTHERS;
		s->per_step = growth->others.per_step;
		s->confidence = growth->others.trend.confidence;
	}
	if (s->part != GROWTH_OF_LINE) {
		s->line = NULL;
		s->holder = NULL;
	}
}

/* Returns the bytes by which the chosen part has grown; 0: nothing grows. */
static double grown_bytes(const struct growth_summary *s)
{
	const struct growth *g = &s->growth;
	double sum = 0;

	if (s->confidence == TREND_NONE)
		return 0;
	if (s->part != GROWTH_OF_LINE)
		return (double)(s->part == GROWTH_OF_POOL ? g->reserved.trend.grown
							  : g->others.trend.grown);
	for (size_t i = 0; i < g->n; i++)
		if (is_mentioned(s, &g->lines[i].trend))
			sum += (double)growth__in_all_steps(g, &g->lines[i],
							    g->lines[i].trend.grown);
	return sum;
}

/* Makes `part` the part that grows most, with `line` (may be NULL), `rate` and the trend t. */
static void set_part(struct growth_summary *s, enum growth_part part,
		     const struct growth_line *line, double rate, const struct trend *t)
{
	s->part = part;
	s->line = line;
	s->lines = line != NULL;
	s->per_step = s->lines_per_step = rate;
	s->confidence = t->confidence;
	s->holder = line && line->nnames ? &line->names[0] : NULL;
}

/* Chooses peaks of steps, or calls within a step, if they grew by more bytes than the part chosen
 * so far. */
static void prefer_peaks_or_calls(struct growth_summary *s)
{
	struct growth *growth = &s->growth;
	const struct growth_inside *inside = &growth->inside;
	double most = grown_bytes(s);
	/* Growing peaks make the pool grow, too: they leave free pieces that are too small later. */
	double without_pool = s->part == GROWTH_OF_POOL ? 0 : most;
	bool calls = growth__inside_grows(growth, GROWTH_SUMMARY_CONFIDENCE) &&
		     is_mentioned(s, &inside->line->trend) && (double)inside->grown > most;

	if (growth__peaks_grow(growth, GROWTH_SUMMARY_CONFIDENCE) &&
	    is_mentioned(s, &growth->peaks.trend) &&
	    (double)growth->peaks.trend.grown > without_pool)
		set_part(s, GROWTH_OF_PEAKS, growth->peaks.line, growth->peaks.per_step,
			 &growth->peaks.trend);
	else if (calls && inside->open)
		set_part(s, GROWTH_OF_CALLS, inside->line, inside->line->per_step,
			 &inside->line->trend);
	else
		s->inside = calls && s->confidence == TREND_NONE;
	if (s->confidence != TREND_NONE || s->inside)
		s->little = NULL;
	if (s->part != GROWTH_OF_CALLS)
		return;
	s->lines = inside->lines;
	s->lines_per_step = inside->lines_per_call;
	s->clock = growth->clock = GROWTH_CALLS;
	s->steps = inside->calls;
	growth->after_steps = inside->step;
}

/* True if a series may grow, also unevenly. */
static bool may_grow(const struct trend *t)
{
	return t->verdict == TREND_SHORT || t->verdict == TREND_UNSURE || t->verdict == TREND_GROWS;
}

/* Returns the growth_summary.why of something that may grow but not surely, or NULL if nothing
 * does. */
static const char *why_uneven(const struct growth_summary *s)
{
	const struct growth *g = &s->growth;

	for (size_t i = 0; i < g->n; i++)
		if (may_grow(&g->lines[i].trend) &&
		    !(s->little && is_mentioned(s, &g->lines[i].trend)))
			return "uneven";
	if (g->coarse || (may_grow(&g->allocated.trend) &&
			  !(s->little && is_negligible(s, g->allocated.per_step))))
		return "no_line";
	if ((g->has_reserved && g->reserved.trend.verdict == TREND_GROWS) ||
	    (g->has_others && may_grow(&g->others.trend)))
		return "uneven";
	return NULL;
}

/* Returns growth_summary.why if the verdict "nothing grows" is not known, otherwise NULL. */
static const char *why_unknown(const struct growth_summary *s, uint64_t lost)
{
	const struct growth *g = &s->growth;

	if (lost)
		return "events_lost";
	if (g->observed < TREND_STEADY)
		return g->clock == GROWTH_TIME ? "too_short" : "too_few_steps";
	return why_uneven(s);
}

/*
 * Sets per_minute, and when the device is full: when the peak of a step reaches the memory that is
 * left for PyTorch. The rate is that of all lines and of other code, without the pool, because
 * PyTorch returns cached memory before it runs out. The CUDA context and the memory of other
 * libraries are the driver-reported use without reserved memory. It
 * assumes that other processes keep what they had at the driver's last figures. Returns 0 or
 * -ENOMEM.
 */
static int find_full(struct growth_summary *s, const struct model *m, const struct facts *f,
		     size_t device)
{
	const struct growth *growth = &s->growth;
	double rate = s->lines_per_step, minutes = step_minutes(m, f, growth);
	struct model_segments segments;
	struct model_device dev;
	uint64_t taken = 0; /* bytes at the peak, by PyTorch and others */
	uint64_t others;
	int err;

	model__device(m, device, &dev);
	s->capacity = words__device_total(f, &dev);
	if (s->clock == GROWTH_TIME)
		s->per_minute = s->per_step * 60;
	else if (minutes > 0)
		s->per_minute = s->per_step / minutes;
	if (!s->capacity)
		return 0;
	err = model__segments(m, device, ROWS_NOW, FRAMES_USER, &segments);
	if (err == -ENOMEM)
		return err;
	if (!err) {
		if (segments.used_known && segments.used > segments.used_below)
			taken = segments.used - segments.used_below;
		model__free_segments(&segments);
	}
	if (growth__others_grow(growth, GROWTH_SUMMARY_CONFIDENCE))
		rate += growth->others.per_step;
	words__other_processes(f, &dev, &others);
	taken += dev.peak_allocated + others;
	s->room = s->capacity > taken ? s->capacity - taken : 0;
	if (rate <= 0)
		return 0;
	if (s->clock == GROWTH_TIME)
		s->seconds_left = (double)s->room / rate;
	else
		s->steps_left = (double)s->room / rate;
	if (s->clock != GROWTH_TIME)
		s->seconds_left = s->steps_left * minutes * 60;
	s->full_known = s->steps_left < FAR_STEPS && s->seconds_left < FAR_SECONDS;
	return 0;
}

int growth_summary__of(const struct model *m, const struct facts *f, size_t device,
		       uint64_t duration, struct growth_summary *ret)
{
	struct growth_summary summary = { .why = NULL };
	struct model_device dev;
	int err;

	if (!growth__watches(m, BY_LINE))
		return -EINVAL;
	err = growth__judge(m, device, GROWTH_SUMMARY_LEAST, &summary.growth);
	if (err)
		return err;
	model__device(m, device, &dev);
	snprintf(summary.device, sizeof(summary.device), "%s", dev.name);
	summary.clock = summary.growth.clock;
	summary.steps = summary.growth.steps;
	summary.duration = model__length(m, duration);
	summary.cwd = facts__get(f, "cwd");
	summary.ran_out = dev.ooms;
	choose_part(&summary);
	prefer_peaks_or_calls(&summary);
	summary.judged = summary.growth.values >= TREND_MIN && summary.growth.observed >= TREND_MIN;
	summary.may_grow = why_uneven(&summary) || summary.confidence != TREND_NONE;
	if (summary.clock == GROWTH_TIME && summary.duration < KNOWN_NS) {
		summary.why = "too_short";
	} else if (summary.confidence != TREND_NONE) {
		summary.verdict = GROWTH_VERDICT_GROWS;
		err = find_full(&summary, m, f, device);
		summary.full_known &= !dev.ooms; /* it was full already */
	} else {
		summary.why = why_unknown(&summary, words__lost(m, f));
		summary.verdict = summary.why ? GROWTH_VERDICT_UNKNOWN : GROWTH_VERDICT_NONE;
	}
	if (err)
		growth_summary__free(&summary);
	else
		*ret = summary;
	return err;
}

void growth_summary__free(struct growth_summary *s)
{
	growth__free(&s->growth);
}

/* Copies the summary into one allocation, with its texts, one line and the line's holder. The line
 * is the first of s->line, the line inside a step, and the little one that is not NULL. */
struct growth_summary *growth_summary__copy(const struct growth_summary *s)
{
	struct {
		struct growth_summary s;
		struct growth_line line;
		struct growth_name holder;
		char texts[];
	} * copy;
	const struct growth_line *other = s->inside ? s->growth.inside.line : s->little;
	struct growth_line line = { .nnames = 0 };
	struct growth_name holder = { NULL };
	struct row input = { .file = s->growth.peaks.input.file,
			     .func = s->growth.peaks.input.func,
			     .line = s->growth.peaks.input.line,
			     .bytes = s->growth.peaks.input.bytes,
			     .source = "frame" };
	const char *cwd = s->cwd, **const texts[] = { &cwd,
						      &holder.text,
						      &line.row.file,
						      &line.row.func,
						      &line.row.module,
						      &line.row.module_class,
						      &line.row.module_root,
						      &line.row.category,
						      &line.row.name,
						      &line.row.source,
						      &line.row.node_class,
						      &line.row.thread,
						      &input.file,
						      &input.func };
	size_t size = sizeof(*copy);
	char *to;

	if (other) {
		line.row = other->row;
		line.per_step = other->per_step;
	}
	if (s->line)
		line.row = s->line->row;
	if (s->holder)
		holder = *s->holder;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		size += *texts[i] ? strlen(*texts[i]) + 1 : 0;
	copy = malloc(size);
	if (!copy)
		return NULL;
	to = copy->texts;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (*texts[i]) {
			const char *text = *texts[i];

			*texts[i] = to;
			to = stpcpy(to, text) + 1;
		}
	copy->s = *s;
	copy->line = line;
	copy->holder = holder;
	copy->s.cwd = cwd;
	copy->s.line = s->line ? &copy->line : NULL;
	copy->s.holder = s->holder ? &copy->holder : NULL;
	copy->s.growth = (struct growth){ .clock = s->growth.clock,
					  .after_steps = s->growth.after_steps };
	copy->s.growth.peaks.input = input;
	copy->s.growth.peaks.line = copy->s.part == GROWTH_OF_PEAKS ? copy->s.line : NULL;
	copy->s.growth.inside = s->growth.inside;
	copy->s.growth.inside.line = &copy->line;
	copy->s.little = s->little ? &copy->line : NULL;
	return &copy->s;
}

bool growth_summary__is_known(const struct growth_summary *s)
{
	return s->verdict != GROWTH_VERDICT_UNKNOWN;
}

bool growth_summary__is_finding(const struct growth_summary *s)
{
	return s->verdict == GROWTH_VERDICT_GROWS || s->inside;
}

const struct growth_line *growth_summary__line(const struct growth_summary *s, const struct row *r)
{
	if (s->verdict != GROWTH_VERDICT_GROWS || r->before_attach || !r->file)
		return NULL;
	for (size_t i = 0; i < s->growth.n; i++) {
		const struct growth_line *line = &s->growth.lines[i];

		if (line->row.file && line->row.line == r->line &&
		    !strcmp(line->row.file, r->file) && !strcmp(line->row.func, r->func) &&
		    is_mentioned(s, &line->trend))
			return line;
	}
	return NULL;
}

/* ---- text ---- */

static const struct {
	const char *unit, *between;
	const char *steps_key, *rate_key, *lines_key; /* JSON keys */
} clock_words[] = {
	[GROWTH_STEPS] = { "step", " from step to step", "steps", "bytes_per_step",
			   "lines_per_step" },
	[GROWTH_CALLS] = { "call", " from call to call", "steps", "bytes_per_step",
			   "lines_per_step" },
	[GROWTH_TIME] = { "second", "", "slices", "bytes_per_second", "lines_per_second" },
	[GROWTH_REQUESTS] = { "request", " from request to request", "requests",
			      "bytes_per_request", "lines_per_request" },
};

const char *growth_summary__unit(const struct growth *g)
{
	return clock_words[g->clock].unit;
}

const char *growth_summary__between(enum growth_clock c)
{
	return clock_words[c].between;
}

const char *growth_summary__rate_key(enum growth_clock c)
{
	return clock_words[c].rate_key;
}

const char *growth_summary__steps_key(enum growth_clock c)
{
	return clock_words[c].steps_key;
}

char *growth_summary__signed(char *buf, size_t size, double bytes)
{
	double limit = (double)(UINT64_MAX / 2); /* fits into a uint64_t after rounding */
	char text[24];

	text__bytes(text, sizeof(text), (uint64_t)(fmin(fabs(bytes), limit) + 0.5));
	snprintf(buf, size, "%c%s", bytes < 0 ? '-' : '+', text);
	return buf;
}

bool growth_summary__of_graph(const struct growth_name *n)
{
	return growth_summary__graph_has(n->text);
}

bool growth_summary__is_holder(const struct growth_name *n)
{
	return growth_summary__of_graph(n) || text__starts(n->text, "global ") ||
	       text__starts(n->text, "local ");
}

size_t growth_summary__models(const struct growth_name *n, size_t *at)
{
	const char *name = n->text, *of, *end = NULL; /* end: after the last "[*]" before a "." */

	if (growth_summary__is_holder(n))
		return 0;
	while ((of = strstr(name, " of ")))
		name = of + 4;
	for (const char *p = strstr(name, "[*]."); p; p = strstr(p + 1, "[*]."))
		end = p + 3;
	*at = name - n->text;
	return end ? (size_t)(end - name) : 0;
}

bool growth_summary__in_models(const struct growth_line *l, const struct growth_name *n)
{
	const char *role = l->row.category ? l->row.category : "";
	size_t at;

	if (growth_summary__models(n, &at))
		return true;
	return n->same > 1 && !strpbrk(n->text, " [") &&
	       (!strcmp(role, "parameter") || !strcmp(role, "buffer"));
}

/* Writes "+16.0 KiB/step (1.90 MiB/min)" or "+1.90 MiB/min". */
static char *rate_words(const struct growth_summary *s, char *buf, size_t size)
{
	char step[40], minute[40];

	growth_summary__signed(step, sizeof(step), s->per_step);
	growth_summary__signed(minute, sizeof(minute), s->per_minute);
	if (s->clock == GROWTH_TIME)
		snprintf(buf, size, "%s/min", minute);
	else if (s->per_minute > 0)
		snprintf(buf, size, "%s/%s (%s/min)", step, growth_summary__unit(&s->growth),
			 minute + 1);
	else
		snprintf(buf, size, "%s/%s", step, growth_summary__unit(&s->growth));
	return buf;
}

char *growth_summary__mark(const struct growth_summary *s, const struct growth_line *line,
			   size_t columns, char buf[GROWTH_SUMMARY_MARK])
{
	struct growth_summary of_line = { .clock = s->clock, .growth.clock = s->clock };
	char rate[48];

	of_line.per_step = line->per_step;
	of_line.per_minute = s->clock == GROWTH_TIME ? line->per_step * 60 : 0;
	rate_words(&of_line, rate, sizeof(rate));
	snprintf(buf, GROWTH_SUMMARY_MARK, "<- grows %s", rate + 1);
	if (text__width(buf) > columns)
		strcpy(buf, "<- grows");
	return buf;
}

uint64_t growth_summary__steps_left(const struct growth_summary *s)
{
	uint64_t steps = s->steps_left < 1e18 ? (uint64_t)s->steps_left : (uint64_t)1e18, unit = 1;

	/* Two digits stay. */
	while (steps / unit >= 100)
		unit *= 10;
	return steps / unit * unit;
}

/* Writes a rounded duration: "40 s", "12 min", "3 h", "5 days". */
static const char *rough_time(char *buf, size_t size, double seconds)
{
	static const struct {
		double limit, unit;
		const char *name;
	} units[] = { { 90, 1, "s" }, { 5400, 60, "min" }, { 172800, 3600, "h" } };

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (seconds < units[i].limit) {
			snprintf(buf, size, "%.0f %s", seconds / units[i].unit, units[i].name);
			return buf;
		}
	snprintf(buf, size, "%.0f days", seconds / 86400);
	return buf;
}

/* Writes when the device is full: "full in about 3 h (5,700 steps)"; "": not known. */
static char *full_words(const struct growth_summary *s, char *buf, size_t size)
{
	const char *unit = growth_summary__unit(&s->growth);
	char time[24], count[32];
	uint64_t steps = growth_summary__steps_left(s);

	buf[0] = '\0';
	if (s->verdict != GROWTH_VERDICT_GROWS || !s->full_known)
		return buf;
	rough_time(time, sizeof(time), s->seconds_left);
	if (s->seconds_left < 1)
		strcpy(time, "a second");
	text__count(count, sizeof(count), steps);
	if (s->clock == GROWTH_TIME)
		snprintf(buf, size, "full in about %s", time);
	else if (!steps)
		snprintf(buf, size, "full within a %s", unit);
	else if (s->seconds_left > 0)
		snprintf(buf, size, "full in about %s (%s %s%s)", time, count, unit,
			 steps == 1 ? "" : "s");
	else
		snprintf(buf, size, "full in about %s %s%s", count, unit, steps == 1 ? "" : "s");
	return buf;
}

/* Writes ", held by history[*]", or ", it is NAME" if the name is not a holder's. */
static void say_holder(const struct growth_line *line, const struct growth_name *holder, char *buf,
		       size_t size)
{
	size_t at = 0, len = growth_summary__models(holder, &at);
	const char *text = holder->text;
	char name[512], count[32];

	text__count(count, sizeof(count), holder->same);
	if (len) {
		text__clean(name, sizeof(name), text + at, len);
		snprintf(buf, size, ", held by %s (%s model%s)", name, count,
			 holder->same == 1 ? "" : "s");
		return;
	}
	if (growth_summary__in_models(line, holder)) {
		text__clean(name, sizeof(name), text, strlen(text));
		snprintf(buf, size, ", it is %s of %s models", name, count);
		return;
	}
	if (growth_summary__of_graph(holder)) {
		snprintf(buf, size, ", held by %s",
			 growth_summary__graph_words(text, /*brief=*/true, name, sizeof(name)));
		return;
	}
	if (text__starts(text, "global "))
		text += strlen("global ");
	else if (text__starts(text, "local "))
		text += strlen("local ");
	text__clean(name, sizeof(name), text, strlen(text));
	snprintf(buf, size, "%s%s", growth_summary__is_holder(holder) ? ", held by " : ", it is ",
		 name);
}

/* Writes " in 60 calls of the model since step 12". */
static char *call_words(uint64_t calls, uint64_t after_steps, char *buf, size_t size)
{
	char count[32], step[32];

	snprintf(buf, size, " in %s calls of the model since step %s",
		 text__count(count, sizeof(count), calls),
		 text__count(step, sizeof(step), after_steps));
	return buf;
}

char *growth_summary__inside(const struct growth_inside *in, const char *cwd,
			     char buf[GROWTH_SUMMARY_TEXT])
{
	char count[32], step[40], rate[40], where[REPORT_TEXT];

	snprintf(buf, GROWTH_SUMMARY_TEXT, "%s calls of the model in %s kept %s each at %.1100s",
		 text__count(count, sizeof(count), in->calls), text__step(step, in->step),
		 growth_summary__signed(rate, sizeof(rate), in->line->per_step) + 1,
		 words__location(where, &in->line->row, cwd, /*columns=*/200));
	return buf;
}

char *growth_summary__drivers(const struct growth_peaks *p, const char *cwd,
			      char buf[GROWTH_SUMMARY_TEXT])
{
	char where[REPORT_TEXT], bytes[24];
	size_t len = 0;

	*buf = '\0';
	if (p->line)
		len = snprintf(buf, GROWTH_SUMMARY_TEXT, "most of it at %.900s",
			       words__location(where, &p->line->row, cwd, /*columns=*/200));
	if (p->input.file)
		snprintf(buf + len, GROWTH_SUMMARY_TEXT - len,
			 "%swith the input of %.900s, %s in the last one", len ? ", " : "",
			 words__location(where, &p->input, cwd, /*columns=*/200),
			 text__bytes(bytes, sizeof(bytes), p->input.bytes));
	return buf;
}

/* Writes "for +8 B/step at train.py:9 (main)", the growth that the verdict leaves out. */
static void say_little(const struct growth_summary *s, char *buf, size_t size)
{
	char rate[40], where[REPORT_TEXT];

	snprintf(buf, size, "for %s/%s at %.1100s",
		 growth_summary__signed(rate, sizeof(rate), s->little->per_step),
		 growth_summary__unit(&s->growth),
		 words__location(where, &s->little->row, s->cwd, /*columns=*/200));
}

/* Writes what was judged: "43 steps", "40.0 s". */
static const char *say_length(const struct growth_summary *s, char *buf, size_t size)
{
	char count[32], recorded[32];

	if (s->clock == GROWTH_TIME)
		return text__time(buf, size, s->duration);
	if (s->growth.recorded)
		snprintf(buf, size, "%s of %s %ss",
			 text__count(recorded, sizeof(recorded), s->growth.recorded),
			 text__count(count, sizeof(count), s->steps),
			 growth_summary__unit(&s->growth));
	else
		snprintf(buf, size, "%s %s%s", text__count(count, sizeof(count), s->steps),
			 growth_summary__unit(&s->growth), s->steps == 1 ? "" : "s");
	return buf;
}

/* Writes why growth is not known. brief: without " from step to step". */
static void say_unknown(const struct growth_summary *s, bool brief, char buf[GROWTH_SUMMARY_TEXT])
{
	bool time = s->clock == GROWTH_TIME;
	char length[64], record[40];

	say_length(s, length, sizeof(length));
	if (time)
		strcpy(record, s->duration < KNOWN_NS ? "a minute" : "longer");
	else
		snprintf(record, sizeof(record), "%d", TREND_STEADY);
	if (!strcmp(s->why, "events_lost"))
		strcpy(buf, "growth not known: events were lost");
	else if (!strcmp(s->why, "no_line"))
		strcpy(buf, "growth not known: memory grew, but in no single line");
	else if (!strcmp(s->why, "uneven"))
		strcpy(buf, "growth not known: memory changes too unevenly");
	else if (s->may_grow || !s->judged)
		snprintf(buf, GROWTH_SUMMARY_TEXT, "growth not known in %s: record %s", length,
			 record);
	else
		snprintf(buf, GROWTH_SUMMARY_TEXT, "no growth%s in %s (not sure: record %s)",
			 brief ? "" : growth_summary__between(s->clock), length, record);
}

/* Writes the text if the verdict is not GROWTH_VERDICT_GROWS. brief: the shortest form. */
static void say_none(const struct growth_summary *s, bool brief, char buf[GROWTH_SUMMARY_TEXT])
{
	const char *between = brief ? "" : growth_summary__between(s->clock);
	char length[64], inside[GROWTH_SUMMARY_TEXT] = "";

	if (s->inside && !brief)
		growth_summary__inside(&s->growth.inside, s->cwd, inside);
	if (s->little && !brief)
		say_little(s, inside, sizeof(inside));
	if (s->verdict != GROWTH_VERDICT_UNKNOWN)
		snprintf(buf, GROWTH_SUMMARY_TEXT, "no growth%s in %s%s%.1500s", between,
			 say_length(s, length, sizeof(length)), *inside ? ", but " : "", inside);
	else if (s->inside && !brief)
		strcpy(buf, inside);
	else
		say_unknown(s, brief, buf);
}

/* True if the growing line stands for all small blocks whose stacks were not sampled. */
static bool is_not_sampled(const struct growth_summary *s)
{
	return s->line && s->line->row.file && !strcmp(s->line->row.file, DETAIL_FILE);
}

/* Writes " in the peak of each step, most of it at train.py:9 (main)". */
static void say_peaks(const struct growth_summary *s, char *buf, size_t size)
{
	char drivers[GROWTH_SUMMARY_TEXT];

	growth_summary__drivers(&s->growth.peaks, s->cwd, drivers);
	snprintf(buf, size, " in the peak of each %s%s%s", growth_summary__unit(&s->growth),
		 *drivers ? ", " : "", drivers);
}

/* Writes where memory grows: " at leaky.py:22 (train_step)", or words for the part of s that has no
 * line. */
static void say_where(const struct growth_summary *s, char *buf, size_t size)
{
	char place[REPORT_TEXT];

	if (s->part == GROWTH_OF_POOL)
		snprintf(buf, size, " in reserved memory, but not in the tensors in it");
	else if (s->part == GROWTH_OF_OTHERS)
		snprintf(buf, size, " in memory allocated outside PyTorch's allocator");
	else if (s->part == GROWTH_OF_PEAKS)
		say_peaks(s, buf, size);
	else if (is_not_sampled(s))
		snprintf(buf, size, " in small blocks, whose stacks were not recorded (--cost)");
	else
		snprintf(buf, size, " at %s",
			 words__location(place, &s->line->row, s->cwd, /*columns=*/200));
}

char *growth_summary__say(const struct growth_summary *s, char buf[GROWTH_SUMMARY_TEXT])
{
	char rate[96], full[96], held[600] = "", more[96] = "", all[40], calls[96] = "";
	char where[GROWTH_SUMMARY_TEXT + 64];

	if (s->verdict != GROWTH_VERDICT_GROWS) {
		say_none(s, /*brief=*/false, buf);
		return buf;
	}
	say_where(s, where, sizeof(where));
	if (s->growth.after_steps)
		call_words(s->steps, s->growth.after_steps, calls, sizeof(calls));
	if (s->holder)
		say_holder(s->line, s->holder, held, sizeof(held));
	if (s->line && s->lines > 1)
		snprintf(more, sizeof(more), "; %zu lines grow by %s/%s in all", s->lines,
			 growth_summary__signed(all, sizeof(all), s->lines_per_step),
			 growth_summary__unit(&s->growth));
	full_words(s, full, sizeof(full));
	snprintf(buf, GROWTH_SUMMARY_TEXT, "%s%s%.1100s%s, confidence %s%s%s%s",
		 rate_words(s, rate, sizeof(rate)), calls, where, held,
		 trend__confidence(s->confidence), more, *full ? "; " : "", full);
	return buf;
}

/* Writes " at leaky.py:22": the file's name without its folder, and the line. "": not known. */
static void short_place(const struct growth_summary *s, char *buf, size_t size)
{
	const struct row *row = s->line ? &s->line->row : NULL;
	char file[128];
	const char *name;

	buf[0] = '\0';
	if (!row || !row->file)
		return;
	if (is_not_sampled(s)) {
		snprintf(buf, size, " in small blocks");
		return;
	}
	name = strrchr(row->file, '/');
	name = name ? name + 1 : row->file;
	text__clean(file, sizeof(file), name, strlen(name));
	snprintf(buf, size, row->line ? " at %s:%" PRIu32 : " at %s", file, row->line);
}

char *growth_summary__brief(const struct growth_summary *s, size_t columns,
			    char buf[GROWTH_SUMMARY_TEXT])
{
	char step[40], minute[40] = "", at[160] = "", full[96], held[600] = "", forms[8][1024];
	const char *comma;

	/* forms: from the longest to the shortest; the first one that fits is taken. */
	buf[0] = '\0';
	if (s->verdict != GROWTH_VERDICT_GROWS) {
		say_none(s, /*brief=*/false, buf);
		if (text__width(buf) > columns)
			say_none(s, /*brief=*/true, buf);
		if (text__width(buf) > columns)
			buf[0] = '\0';
		return buf;
	}
	growth_summary__signed(step, sizeof(step),
			       s->clock == GROWTH_TIME ? s->per_minute : s->per_step);
	strcat(strcat(step, "/"),
	       s->clock == GROWTH_TIME ? "min" : growth_summary__unit(&s->growth));
	if (s->clock != GROWTH_TIME && s->per_minute > 0) {
		strcpy(minute, ", ");
		growth_summary__signed(minute + 1, sizeof(minute) - 1, s->per_minute);
		minute[1] = ' ';
		strcat(minute, "/min");
	}
	if (s->part == GROWTH_OF_PEAKS)
		strcpy(at, " in peaks");
	short_place(s, at + strlen(at), sizeof(at) - strlen(at));
	if (s->holder && *at)
		say_holder(s->line, s->holder, held, sizeof(held));
	full_words(s, full, sizeof(full));
	comma = *full ? ", " : "";
	snprintf(forms[0], sizeof(forms[0]), "growth %s%s%s%s%s%s", step, minute, at, held, comma,
		 full);
	snprintf(forms[1], sizeof(forms[1]), "growth %s%s%s%s%s", step, at, held, comma, full);
	if (*held)
		snprintf(forms[2], sizeof(forms[2]), "growth %s%s%s", step, at, held);
	else
		memcpy(forms[2], forms[1], sizeof(forms[2])); /* too long as well */
	snprintf(forms[3], sizeof(forms[3]), "growth %s%s%s%s%s", step, minute, at, comma, full);
	snprintf(forms[4], sizeof(forms[4]), "growth %s%s%s%s", step, at, comma, full);
	snprintf(forms[5], sizeof(forms[5]), "growth %s%s%s", step, minute, at);
	snprintf(forms[6], sizeof(forms[6]), "growth %s%s", step, at);
	snprintf(forms[7], sizeof(forms[7]), "growth %s", step);
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
		if (text__width(forms[i]) <= columns)
			return strcpy(buf, forms[i]);
	return buf;
}

/* ---- JSON ---- */

static const char *const verdicts[] = {
	[GROWTH_VERDICT_UNKNOWN] = "unknown",
	[GROWTH_VERDICT_NONE] = "no_growth",
	[GROWTH_VERDICT_GROWS] = "grows",
};

static const char *const parts[] = {
	[GROWTH_OF_LINE] = "line",   [GROWTH_OF_POOL] = "reserved", [GROWTH_OF_OTHERS] = "others",
	[GROWTH_OF_PEAKS] = "peaks", [GROWTH_OF_CALLS] = "calls",
};

/* Writes the growing line, what holds it, and the sum of all lines. */
static void put_line(struct json *j, const struct growth_summary *s)
{
	const struct row *r = &s->line->row;

	json__string(j, "file", r->file);
	json__uint_or_null(j, "line", r->file && r->line, r->line);
	json__string(j, "function", r->func);
	json__string(j, "module", r->module);
	json__string(j, "held_by", s->holder ? s->holder->text : NULL);
	json__uint(j, "bytes", r->bytes);
	json__uint(j, "count", r->count);
	json__uint(j, "lines", s->lines);
	json__double(j, clock_words[s->clock].lines_key, s->lines_per_step, /*decimals=*/3);
}

/* Writes when the device is full; null: not known. */
static void put_full(struct json *j, const struct growth_summary *s)
{
	if (!s->full_known) {
		json__null(j, "full");
		return;
	}
	json__open_object(j, "full");
	json__uint(j, "capacity", s->capacity);
	json__uint(j, "room", s->room);
	json__uint_or_null(j, "steps", s->clock != GROWTH_TIME, (uint64_t)s->steps_left);
	if (s->seconds_left > 0)
		json__double(j, "seconds", s->seconds_left, /*decimals=*/1);
	else
		json__null(j, "seconds");
	json__close_object(j);
}

void growth_summary__put_input(struct json *j, const struct growth_peaks *p)
{
	if (!p->input.file) {
		json__null(j, "input");
		return;
	}
	json__open_object(j, "input");
	json__string(j, "file", p->input.file);
	json__uint(j, "line", p->input.line);
	json__string(j, "function", p->input.func);
	json__uint(j, "bytes", p->input.bytes);
	json__close_object(j);
}

void growth_summary__json_keys(struct json *j, const struct growth_summary *s)
{
	char text[GROWTH_SUMMARY_TEXT];

	json__string(j, "verdict", verdicts[s->verdict]);
	if (s->why)
		json__string(j, "why", s->why);
	json__string(j, "clock", growth__clock(s->clock));
	json__uint(j, growth_summary__steps_key(s->clock), s->steps);
	if (s->growth.after_steps)
		json__uint(j, "after_steps", s->growth.after_steps);
	if (s->growth.recorded)
		json__uint(j, "recorded", s->growth.recorded);
	json__string(j, "text", growth_summary__say(s, text));
	if (s->verdict == GROWTH_VERDICT_GROWS) {
		json__string(j, "part", parts[s->part]);
		json__double(j, growth_summary__rate_key(s->clock), s->per_step, /*decimals=*/3);
		if (s->per_minute > 0)
			json__double(j, "bytes_per_minute", s->per_minute, /*decimals=*/3);
		else
			json__null(j, "bytes_per_minute");
		json__string(j, "confidence", trend__confidence(s->confidence));
		if (s->line)
			put_line(j, s);
		if (s->part == GROWTH_OF_PEAKS)
			growth_summary__put_input(j, &s->growth.peaks);
		put_full(j, s);
	}
}

void growth_summary__json(struct json *j, const struct growth_summary *s)
{
	json__open_object(j, "growth");
	growth_summary__json_keys(j, s);
	json__close_object(j);
}

int growth_summary__device_json(struct json *j, const struct model *m, const struct facts *f,
				size_t device, uint64_t duration)
{
	struct growth_summary s;
	int err = growth_summary__of(m, f, device, duration, &s);

	if (err)
		return err == -EINVAL ? 0 : err;
	growth_summary__json(j, &s);
	growth_summary__free(&s);
	return 0;
}
