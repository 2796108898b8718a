/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/cond.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "record/cond/internal.h"

const char *cond__figure_name(enum cond_figure f)
{
	return cond_figures[f].name;
}

void cond__free(struct cond *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++) {
		for (size_t k = 0; k < c->terms[i].nseries; k++)
			growth_series__free(c->terms[i].series[k]);
		free(c->terms[i].series);
	}
	free(c->text);
	free(c);
}

const char *cond__text(const struct cond *c)
{
	return c->text;
}

/* ---- the figures of a condition ---- */

static enum cond_figure base_figure(const struct term *t)
{
	return is_growth(t->figure) ? cond_figures[t->figure].of : t->figure;
}

bool cond__needs(const struct cond *c, enum cond_figure figure)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->terms[i].figure == figure || base_figure(&c->terms[i]) == figure)
			return true;
	return false;
}

bool cond__needs_steps(const struct cond *c)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct term *t = &c->terms[i];

		if (t->figure == COND_STEP_TIME || (is_growth(t->figure) && t->window.steps))
			return true;
	}
	return false;
}

bool cond__needs_growth(const struct cond *c)
{
	for (size_t i = 0; i < c->n; i++)
		if (is_growth(c->terms[i].figure))
			return true;
	return false;
}

/* ---- growth ---- */

/* Returns the series, created on demand. NULL: memory is short, or the number is too large. */
static struct growth_series *series(struct term *t, unsigned number, bool sampled)
{
	if (number >= COND_SERIES)
		return NULL;
	if (array__grow_zero(&t->series, &t->nseries, number + 1, sizeof(struct growth_series *)))
		return NULL;
	if (!t->series[number])
		t->series[number] = growth_series__new(&t->window, sampled);
	return t->series[number];
}

int cond__feed(struct cond *c, const struct cond_values *v)
{
	for (size_t i = 0; i < c->n; i++) {
		struct term *t = &c->terms[i];
		const struct cond_value *of = &v->v[base_figure(t)];
		uint64_t where = t->window.steps ? v->step : v->time;
		struct growth_series *s;

		if (!is_growth(t->figure) || !of->known || (t->window.steps && !v->has_steps))
			continue;
		s = series(t, v->series, v->sampled);
		if (!s)
			return -ENOMEM;
		if (growth_series__sampled(s))
			growth_series__look(s, &t->window, where, v->time,
					    v->has_steps ? v->step : 0, (int64_t)of->value);
		else
			growth_series__add(s, &t->window, where, v->time, v->seq,
					   (int64_t)of->value);
	}
	return 0;
}

void cond__forget(struct cond *c, unsigned number)
{
	for (size_t i = 0; i < c->n; i++) {
		struct term *t = &c->terms[i];

		if (number >= t->nseries)
			continue;
		growth_series__free(t->series[number]);
		t->series[number] = NULL;
	}
}

/* ---- judging ---- */

static enum cond_verdict compare(enum op op, unsigned __int128 a, unsigned __int128 b)
{
	switch (op) {
	case OP_GT:
		return a > b;
	case OP_GE:
		return a >= b;
	case OP_LT:
		return a < b;
	case OP_LE:
		return a <= b;
	case OP_EQ:
		return a == b;
	case OP_NE:
		return a != b;
	}
	return COND_NO;
}

static const char *format_value(char *buf, size_t size, enum cond_unit unit, uint64_t value)
{
	if (unit == COND_BYTES)
		return text__bytes(buf, size, value);
	if (unit == COND_TIME)
		return text__time(buf, size, value);
	return text__count(buf, size, value);
}

/* Writes a figure's name for people, such as "step time". */
static const char *format_figure(char *buf, size_t size, enum cond_figure f)
{
	snprintf(buf, size, "%s", cond_figures[f].name);
	for (char *p = buf; *p; p++)
		if (*p == '_')
			*p = ' ';
	return buf;
}

static void add(struct cond_result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct cond_result *r, const char *fmt, ...)
{
	size_t len = strlen(r->text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->text + len, sizeof(r->text) - len, fmt, ap);
	va_end(ap);
}

/* Writes "allocated 71.20 GiB > 70.00 GiB", or "allocated 12.00 GiB is not > 70.00 GiB". */
static void write_text(const struct term *t, struct cond_result *r, uint64_t of)
{
	const char *not = r->verdict == COND_NO ? "is not " : "";
	char name[32], value[48], limit[48];

	add(r, "%s ", format_figure(name, sizeof(name), t->figure));
	if (r->unit == COND_SHARE) {
		add(r, "%.1f%% %s%s %g%%", 100 * r->share, not, cond_ops[t->op],
		    100 * r->share_limit);
		return;
	}
	format_value(value, sizeof(value), r->unit, r->value);
	format_value(limit, sizeof(limit), r->unit, r->limit);
	if (!strcmp(value, limit) && r->unit != COND_COUNT && r->value != r->limit) {
		text__count(value, sizeof(value), r->value);
		text__count(limit, sizeof(limit), r->limit);
		strcat(value, r->unit == COND_BYTES ? " B" : " ns");
		strcat(limit, r->unit == COND_BYTES ? " B" : " ns");
	}
	add(r, "%s %s%s %s", value, not, cond_ops[t->op], limit);
	if (t->percent)
		add(r, " (%g%% of %s)", (double)t->limit / (double)t->den,
		    text__bytes(limit, sizeof(limit), of));
	if (is_growth(t->figure))
		add(r, " in %s", growth_window__say(&t->window, limit, sizeof(limit)));
}

static void set_unknown(struct cond_result *r, const struct term *t, const char *why)
{
	char name[32];

	r->verdict = COND_UNKNOWN;
	add(r, "%s is not known: %s", format_figure(name, sizeof(name), t->figure), why);
}

/* Computes a growth figure. False: unknown, with the reason in r. */
static bool judge_growth(struct term *t, const struct cond_values *v, struct cond_result *r)
{
	struct growth_series *s = v->series < t->nseries ? t->series[v->series] : NULL;
	char why[128];
	int64_t by;

	if (!v->v[base_figure(t)].known) {
		set_unknown(r, t,
			    v->why[base_figure(t)] ? v->why[base_figure(t)]
						   : "no value was reported");
		return false;
	}
	if (t->window.steps && !v->has_steps) {
		set_unknown(r, t,
			    "the recording has no steps; use a window of time, such as '/10m'");
		return false;
	}
	if (!s || !growth_series__is_known(s, v->most, &by, &r->at)) {
		set_unknown(r, t, growth_window__say_short(&t->window, s, why, sizeof(why)));
		return false;
	}
	r->value = by > 0 ? (uint64_t)by : 0;
	r->lows_known = growth_series__lows(s, v->most, &r->from, &r->to);
	return true;
}

static void judge(struct term *t, const struct cond_values *v, struct cond_result *r)
{
	const struct cond_value *x = &v->v[base_figure(t)];
	unsigned __int128 a, b = t->limit;

	r->figure = t->figure;
	r->unit = cond_figures[t->figure].unit;
	r->limit = t->limit;
	if (is_growth(t->figure)) {
		if (!judge_growth(t, v, r))
			return;
	} else if (!x->known) {
		set_unknown(r, t, v->why[t->figure] ? v->why[t->figure] : "no value was reported");
		return;
	} else {
		r->value = x->value;
	}
	a = r->value;
	if (t->percent) {
		if (!x->of) {
			set_unknown(
				r, t,
				t->figure == COND_HOST_CGROUP
					? "the control group has no limit; give a size"
					: "a percentage needs the total memory, which is unknown");
			return;
		}
		a = a * t->den * 100;
		b = b * x->of;
		r->limit = (uint64_t)(b / t->den / 100 > UINT64_MAX ? UINT64_MAX
								    : b / t->den / 100);
		r->share = (double)r->value / (double)x->of;
		r->share_limit = (double)t->limit / (double)t->den / 100;
	}
	r->verdict = compare(t->op, a, b) ? COND_HOLDS : COND_NO;
	write_text(t, r, x->of);
}

/* Appends the text of b to a. */
static void join(struct cond_result *a, const struct cond_result *b)
{
	if (!*a->text) {
		*a = *b;
		return;
	}
	add(a, " and %s", b->text);
}

/* Judges the terms joined by "and" from i on. A false term decides first, then an unknown one.
 * Returns the index after them. */
static size_t judge_all(struct cond *c, size_t i, const struct cond_values *v,
			struct cond_result *ret)
{
	struct cond_result of[3] = { { .text = "" } };
	bool more = true;

	for (; more; i++) {
		struct cond_result r = { .text = "" };

		judge(&c->terms[i], v, &r);
		join(&of[r.verdict], &r);
		more = !c->terms[i].ends;
	}
	*ret = *of[COND_NO].text	? of[COND_NO]
	       : *of[COND_UNKNOWN].text ? of[COND_UNKNOWN]
					: of[COND_HOLDS];
	return i;
}

int cond__eval(struct cond *c, const struct cond_values *v, struct cond_result *ret)
{
	struct cond_result of[3] = { { .text = "" } };
	int err = cond__feed(c, v);

	if (err)
		return err;
	for (size_t i = 0; i < c->n;) {
		struct cond_result r = { .text = "" };

		i = judge_all(c, i, v, &r);
		join(&of[r.verdict], &r);
	}
	*ret = *of[COND_HOLDS].text	? of[COND_HOLDS]
	       : *of[COND_UNKNOWN].text ? of[COND_UNKNOWN]
					: of[COND_NO];
	return 0;
}
