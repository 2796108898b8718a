/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Texts about growth. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/host.h"
#include "report/leaks/internal.h"

#define MOST_VALUES 64 /* most values to print: the last ones */
#define BAR_COLUMNS 24 /* width of the longest bar */

const char *leaks__span(const struct growth *g, uint64_t duration, char *buf, size_t size)
{
	char count[48];

	if (g->clock == GROWTH_TIME)
		text__time(buf, size, duration);
	else
		snprintf(buf, size, "%s%s",
			 text__counted(count, sizeof(count), g->steps, growth_summary__unit(g)),
			 g->clock == GROWTH_CALLS ? " of the model" : "");
	if (g->after_steps)
		snprintf(buf + strlen(buf), size - strlen(buf), " since step %" PRIu64,
			 g->after_steps);
	return buf;
}

const char *leaks__heading(const struct growth *g, uint64_t duration, char *buf, size_t size)
{
	const char *name = g->request.file ? g->request.file : "";
	const char *slash = strrchr(name, '/');
	size_t len = strlen(leaks__span(g, duration, buf, size));
	char file[128];

	name = slash ? slash + 1 : name;
	buf += len;
	size -= len;
	if (g->clock == GROWTH_TIME && !g->values)
		snprintf(buf, size, " (no steps)");
	else if (g->clock == GROWTH_TIME)
		snprintf(buf, size, " in %zu equal slices (no steps)", g->values);
	else if (g->clock == GROWTH_REQUESTS)
		snprintf(buf, size, ", each a block of %.40s:%" PRIu32 "%s%s",
			 text__clean(file, sizeof(file), name, strlen(name)), g->request.line,
			 *g->request.device ? " on " : "", g->request.device);
	else if (g->clock == GROWTH_CALLS && !g->after_steps)
		snprintf(buf, size, " (no optimizer)");
	return buf - len;
}

void leaks__say_short(FILE *out, size_t width, const struct growth *g, const char *span)
{
	char longer[16] = "a minute";

	if (g->clock != GROWTH_TIME)
		snprintf(longer, sizeof(longer), "%d", TREND_STEADY);
	text__paragraph(out, width, "", "  ", "growth not known in %s: record %s", span, longer);
}

const char *leaks__nothing(const struct leaks_opts *o, enum growth_clock clock, char *buf,
			   size_t size)
{
	bool large = o->min_growth > GROWTH_SUMMARY_LEAST,
	     sure = o->min_confidence > GROWTH_SUMMARY_CONFIDENCE;
	const char *level = trend__confidence(o->min_confidence);
	char bytes[24];

	text__bytes(bytes, sizeof(bytes), o->min_growth);
	if (large && sure)
		snprintf(buf, size,
			 "nothing grew by %s with %s confidence (--min-growth, --min-confidence)",
			 bytes, level);
	else if (large)
		snprintf(buf, size, "nothing grew by %s (--min-growth)", bytes);
	else if (sure)
		snprintf(buf, size, "no growth with %s confidence (--min-confidence)", level);
	else
		snprintf(buf, size, "no growth%s", growth_summary__between(clock));
	return buf;
}

const char *leaks__rises(const struct growth *g, const struct trend *t, char *buf, size_t size)
{
	uint64_t stride = t == &g->peaks.trend ? g->peaks.stride : g->stride;

	if (g->clock == GROWTH_TIME)
		snprintf(buf, size, "%u of %u slices", t->rises, t->intervals);
	else if (stride > 1)
		snprintf(buf, size, "%u of %u intervals of %" PRIu64 " %ss", t->rises, t->intervals,
			 stride, growth_summary__unit(g));
	else
		snprintf(buf, size, "%u of %u %ss", t->rises, t->intervals,
			 growth_summary__unit(g));
	return buf;
}

const char *leaks__where(enum group by, const struct row *r, const char *cwd, char *buf,
			 size_t columns)
{
	switch (by) {
	case BY_CATEGORY:
		return strcpy(buf, words__role(r->category));
	case BY_MODULE:
		words__module(buf, r);
		return *buf ? words__cut_front(buf, columns) : strcpy(buf, "(no module)");
	default:
		return words__location(buf, r, cwd, columns);
	}
}

/* True for a row of host memory that has no line: its mapping, or "before attach", is its name. */
static bool is_mapping(const struct row *r)
{
	return r->before_attach ||
	       (r->file && (!strcmp(r->file, HOST_BEFORE_ATTACH) ||
			    !strcmp(r->file, HOST_INHERITED) || !strcmp(r->file, HOST_UNSEEN)));
}

const char *leaks__by_block(const struct growth *g, const struct growth_line *l, char *buf,
			    size_t size)
{
	double block = l->row.count ? (double)l->row.bytes / (double)l->row.count : 0; /* mean */
	/* For a line that runs in each call, the mean of blocks that differ in size, as with a
	 * library's workspace, says little. So the line must run in fewer calls. */
	bool seldom = g->clock == GROWTH_TIME ||
		      (g->clock == GROWTH_CALLS && block >= 1.5 * l->per_step &&
		       (double)l->allocations * 1.5 <= (double)g->steps);
	char rate[40];

	*buf = '\0';
	/* A mapping from before attach was not allocated by a line of the program. */
	if (seldom && !is_mapping(&l->row) && l->kind == GROWTH_PILES_UP && l->per_step > 0 &&
	    l->per_block > 0)
		snprintf(buf, size, " (%s for each block allocated there)",
			 growth_summary__signed(rate, sizeof(rate), l->per_block));
	return buf;
}

/* Rounds a share to whole percent. */
static unsigned in_percent(double share)
{
	return (unsigned)(share * 100 + 0.5);
}

unsigned leaks__stays_percent(const struct growth_line *l, const char **less)
{
	double stays = l->ages ? l->survives[l->ages - 1] : 0;
	unsigned percent = in_percent(stays);
	bool below_one = !percent && stays > 0;

	*less = below_one ? "<" : "";
	return below_one ? 1 : percent;
}

void leaks__say_stays(const struct growth *g, const struct growth_line *l, char *buf, size_t size)
{
	uint64_t age = l->ages ? UINT64_C(1) << (l->ages - 1) : 0;
	const char *unit = growth_summary__unit(g), *less;
	unsigned stays = leaks__stays_percent(l, &less);
	char bytes[24], count[48], blocks[80], when[40] = "at the end";

	snprintf(blocks, sizeof(blocks), "%s in %s",
		 text__bytes(bytes, sizeof(bytes), l->row.bytes),
		 text__counted(count, sizeof(count), l->row.count, "block"));
	if (g->clock != GROWTH_REQUESTS)
		snprintf(when, sizeof(when), "after the last %s", unit);
	if (l->kind == GROWTH_ENLARGED)
		snprintf(buf, size,
			 "each block is freed and a larger one replaces it (a tensor that is "
			 "enlarged, or inputs that grow)");
	else if (g->pieces)
		snprintf(buf, size, "%s %s", blocks, when);
	else if (!l->ages)
		snprintf(buf, size, "no block of it was recorded for a whole %s", unit);
	else if (g->clock == GROWTH_TIME)
		snprintf(buf, size, "%s%u %% of what it allocates stays, %s at the end", less,
			 stays, blocks);
	else
		snprintf(buf, size,
			 "%s%u %% of what it allocates stays (followed for %" PRIu64
			 " %s%s), %s %s",
			 less, stays, age, unit, age == 1 ? "" : "s", blocks, when);
}

const char *leaks__no_holder(const struct facts *f)
{
	const char *source = facts__get(f, "source");

	if (source && !strcmp(source, "snapshot"))
		return " (a snapshot does not tell what holds memory)";
	if (!facts__get(f, "python"))
		return " (the program is not Python)";
	if (!facts__get(f, "census"))
		return " (the program's objects were not read)";
	if (facts__get(f, "counter.census.holders_cut"))
		return " (the program has too many containers to search)";
	return "";
}

/* Writes "best[*] (59 models: 0.weight)": the variable that holds models and the tensor's name in
 * them; or "0.weight (59 models)" without a variable. Returns as snprintf(). */
static size_t say_models(const struct growth_name *n, char *buf, size_t size)
{
	size_t at = 0, len = growth_summary__models(n, &at);
	char name[256], variable[256], count[48];
	const char *rest = n->text + (len ? at + len + 1 : 0);

	text__clean(name, sizeof(name), rest, strlen(rest));
	text__counted(count, sizeof(count), n->same, "model");
	if (!len)
		return snprintf(buf, size, "%s (%s)", name, count);
	text__clean(variable, sizeof(variable), n->text + at, len);
	return snprintf(buf, size, "%s (%s: %s)", variable, count, name);
}

void leaks__say_held(const struct growth_line *l, const char *why, char *buf, size_t size)
{
	char name[512];
	size_t len = 0, shown, at;
	bool of_models, held;

	if (!l->nnames) {
		bool has_role = l->row.category && strcmp(l->row.category, "unknown") != 0;

		snprintf(buf, size, "The holder is not known%s", has_role ? "" : why);
		return;
	}
	of_models = growth_summary__models(&l->names[0], &at) > 0;
	shown = of_models ? 1 : 2;
	held = of_models || growth_summary__is_holder(&l->names[0]);
	len = snprintf(buf, size, held ? "Held by " : "It is ");
	for (size_t i = 0; i < l->nnames && i < shown && len < size; i++) {
		const struct growth_name *n = &l->names[i];

		if (i)
			len += snprintf(buf + len, size - len, ", ");
		if (len >= size)
			break;
		if (growth_summary__in_models(l, n)) {
			len += say_models(n, buf + len, size - len);
			continue;
		}
		if (growth_summary__of_graph(n))
			growth_summary__graph_words(n->text, /*brief=*/false, name, sizeof(name));
		else
			text__clean(name, sizeof(name), n->text, strlen(n->text));
		len += snprintf(buf + len, size - len, "%s (%" PRIu64 " block%s)", name, n->count,
				n->count == 1 ? "" : "s");
	}
	if (len < size && l->nnames > shown)
		len += snprintf(buf + len, size - len, " and others");
	if (len < size && l->row.bytes && l->named < l->row.bytes / 4 * 3) {
		unsigned unknown = in_percent(1 - (double)l->named / (double)l->row.bytes);

		snprintf(buf + len, size - len,
			 "; unknown for %u %%, newer than the last reading of names or held by no "
			 "Python object",
			 unknown < 100 ? unknown : 99); /* a part is known, so not 100 % */
	}
}

void leaks__figures(FILE *out, const struct growth *g, const char *title, const uint64_t *values,
		    const struct trend *t)
{
	size_t n = t->values, first = n > MOST_VALUES ? n - MOST_VALUES : 0;
	uint64_t largest = 1, previous = first ? values[first - 1] : 0;
	uint64_t stride = g->clock == GROWTH_TIME ? 1 : g->stride; /* steps from value to value */
	const char *unit = g->clock == GROWTH_TIME ? "slice" : growth_summary__unit(g);
	const char *moment = g->clock == GROWTH_REQUESTS ? "start" : "end";
	char live[24], change[40];

	for (size_t i = first; i < n; i++)
		largest = values[i] > largest ? values[i] : largest;
	fprintf(out, "\n%s, live at the %s of each %s%s", title, moment, unit,
		stride > 1 ? " that is kept" : "");
	if (first)
		fprintf(out, ": the last %zu of %zu", n - first, n);
	fputc('\n', out);
	for (size_t i = first; i < n; i++) {
		unsigned bar = (unsigned)((double)values[i] / (double)largest * BAR_COLUMNS + 0.5);

		*change = '\0';
		if (values[i] != previous)
			growth_summary__signed(change, sizeof(change),
					       (double)values[i] - (double)previous);
		fprintf(out, "%8" PRIu64 "  %10s  %11s  %.*s%s\n",
			(uint64_t)(i + 1 + g->values - n) * stride,
			text__bytes(live, sizeof(live), values[i]), change, (int)bar,
			"########################", i < t->warmup ? " (warm-up)" : "");
		previous = values[i];
	}
}
