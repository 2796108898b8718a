/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cond.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cond_growth.h"
#include "lib/text.h"

#define MOST_TERMS 32
#define MOST_TEXT 1024

enum op { OP_GT, OP_GE, OP_LT, OP_LE, OP_EQ, OP_NE };

static const char *const ops[] = {
	[OP_GT] = ">", [OP_GE] = ">=", [OP_LT] = "<", [OP_LE] = "<=", [OP_EQ] = "=", [OP_NE] = "!=",
};

static const struct figure {
	const char *name;
	enum cond_unit unit;
	enum cond_figure of; /* what the growth is of */
} figures[COND_NR] = {
	[COND_ALLOCATED] = { "allocated", COND_BYTES, 0 },
	[COND_RESERVED] = { "reserved", COND_BYTES, 0 },
	[COND_PEAK] = { "peak", COND_BYTES, 0 },
	[COND_PEAK_RESERVED] = { "peak_reserved", COND_BYTES, 0 },
	[COND_UNUSED] = { "unused", COND_BYTES, 0 },
	[COND_USED] = { "used", COND_BYTES, 0 },
	[COND_OTHER] = { "other", COND_BYTES, 0 },
	[COND_RSS] = { "rss", COND_BYTES, 0 },
	[COND_FRAGMENTATION] = { "fragmentation", COND_SHARE, 0 },
	[COND_STEP_TIME] = { "step_time", COND_TIME, 0 },
	[COND_OOMS] = { "ooms", COND_COUNT, 0 },
	[COND_RETRIES] = { "retries", COND_COUNT, 0 },
	[COND_LOST] = { "lost", COND_COUNT, 0 },
	[COND_LEAKS] = { "leaks", COND_COUNT, 0 },
	[COND_GROWTH] = { "growth", COND_BYTES, COND_ALLOCATED },
	[COND_RESERVED_GROWTH] = { "reserved_growth", COND_BYTES, COND_RESERVED },
	[COND_USED_GROWTH] = { "used_growth", COND_BYTES, COND_USED },
	[COND_OTHER_GROWTH] = { "other_growth", COND_BYTES, COND_OTHER },
	[COND_RSS_GROWTH] = { "rss_growth", COND_BYTES, COND_RSS },
};

struct term {
	enum cond_figure figure;
	enum op op;
	bool percent;
	uint64_t limit;	      /* bytes, ns, a count; with percent: over den */
	uint64_t den;
	bool ends; /* of those that "and" joins, it is the last one */
	struct growth_window window; /* of growth */
	struct growth_series **series; /* as they come up, COND_SERIES at most */
	size_t nseries;
};

struct cond {
	char *text;
	struct term terms[MOST_TERMS];
	size_t n;
};

const char *cond__figure_name(enum cond_figure f)
{
	return figures[f].name;
}

const char *cond__verdict_name(enum cond_verdict v)
{
	static const char *const names[] = { [COND_NO] = "no", [COND_HOLDS] = "holds", [COND_UNKNOWN] = "unknown" };

	return names[v];
}

static bool is_growth(enum cond_figure f)
{
	return f >= COND_GROWTH;
}

/* ---- parsing ---- */

struct parser {
	const char *text, *p;
	char word[128]; /* the last one read */
	char *why;
};

static int complain(struct parser *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int complain(struct parser *s, const char *fmt, ...)
{
	char what[768], all[2048], clean[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	snprintf(all, sizeof(all), "'%.*s': %s", MOST_TEXT, s->text, what);
	s->why = strdup(text__clean(clean, sizeof(clean), all, strlen(all)));
	return s->why ? -EINVAL : -ENOMEM;
}

static void skip_spaces(struct parser *s)
{
	s->p += strspn(s->p, " \t\n");
}

/* What is before any of the ends, or all that is left; cut at the room that there is, which no right word needs. */
static const char *read_word(struct parser *s, const char *ends)
{
	size_t len = strcspn(s->p, ends);

	snprintf(s->word, sizeof(s->word), "%.*s", (int)(len < sizeof(s->word) ? len : sizeof(s->word) - 1), s->p);
	s->p += len;
	return s->word;
}

static char *say_figures(char *buf, size_t size)
{
	size_t len = 0;

	*buf = '\0';
	for (int i = 0; i < COND_NR; i++)
		len += snprintf(buf + len, size - len, "%s%s", i ? ", " : "", figures[i].name);
	return buf;
}

static int parse_figure(struct parser *s, struct term *t)
{
	char names[512];

	skip_spaces(s);
	read_word(s, " \t\n<>=!/");
	if (!*s->word)
		return complain(s, "at '%s': a figure is wanted, as in 'peak>16G'; there are: %s", s->p,
				say_figures(names, sizeof(names)));
	for (int i = 0; i < COND_NR; i++) {
		if (!strcmp(figures[i].name, s->word)) {
			t->figure = i;
			return 0;
		}
	}
	return complain(s, "no such figure '%s'; there are: %s", s->word, say_figures(names, sizeof(names)));
}

static int parse_op(struct parser *s, struct term *t)
{
	char op[3] = "";
	size_t len;

	skip_spaces(s);
	len = strspn(s->p, "<>=!");
	if (len && len <= 2)
		memcpy(op, s->p, len);
	if (!strcmp(op, "=="))
		op[1] = '\0';
	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		if (!strcmp(ops[i], op)) {
			t->op = i;
			s->p += len;
			return 0;
		}
	}
	return complain(s, "after '%s': one of > >= < <= = != is wanted, not '%s'", figures[t->figure].name, s->p);
}

/* "80", "12.5": whole over den. */
static int parse_decimal(const char *w, size_t len, uint64_t *num, uint64_t *den)
{
	bool point = false, digits = false;

	*num = 0;
	*den = 1;
	for (size_t i = 0; i < len; i++) {
		if (w[i] == '.' && !point) {
			point = true;
			continue;
		}
		if (w[i] < '0' || w[i] > '9' || *num > UINT32_MAX || *den > UINT32_MAX)
			return -EINVAL;
		digits = true;
		*num = *num * 10 + (uint64_t)(w[i] - '0');
		*den *= point ? 10 : 1;
	}
	return digits ? 0 : -EINVAL;
}

static int parse_percent(struct parser *s, struct term *t)
{
	size_t len = strlen(s->word);

	if (parse_decimal(s->word, len - 1, &t->limit, &t->den))
		return complain(s, "'%s' is no percentage; 80%% and 12.5%% are", s->word);
	t->percent = true;
	return 0;
}

static int parse_limit(struct parser *s, struct term *t)
{
	const char *name = figures[t->figure].name;
	size_t len;
	uint64_t den;

	skip_spaces(s);
	read_word(s, " \t\n/");
	len = strlen(s->word);
	t->den = 1;
	if (!len)
		return complain(s, "after '%s%s': what is it compared with?", name, ops[t->op]);
	switch (figures[t->figure].unit) {
	case COND_SHARE:
		if (s->word[len - 1] != '%')
			return complain(s, "%s is a percentage: '%s%s%s%%'?", name, name, ops[t->op], s->word);
		return parse_percent(s, t);
	case COND_BYTES:
		if (s->word[len - 1] == '%')
			return parse_percent(s, t);
		if (text__parse_size(s->word, &t->limit))
			return complain(s, "'%s' is no size; 64K, 1.5G and 80%% are", s->word);
		return 0;
	case COND_TIME:
		if (text__parse_time(s->word, &t->limit))
			return complain(s, "'%s' is no time; 250ms, 1.5s and 2m are", s->word);
		return 0;
	case COND_COUNT:
		if (parse_decimal(s->word, len, &t->limit, &den) || den != 1)
			return complain(s, "'%s' is no number; 0 and 10 are", s->word);
		return 0;
	}
	return -EINVAL;
}

/* "/100steps", "/10m", and with spaces within */
static int parse_window(struct parser *s, struct term *t)
{
	const char *name = figures[t->figure].name;
	char number[32], all[sizeof(number) + sizeof(s->word)];
	uint64_t n, den, time;
	size_t digits;

	skip_spaces(s);
	if (*s->p != '/') {
		if (!is_growth(t->figure))
			return 0;
		return complain(s, "%s is of a window: '%s>1G/100steps' or '%s>1G/10m'", name, name, name);
	}
	if (!is_growth(t->figure))
		return complain(s, "'%s': %s has no window; growth has", s->p, name);
	s->p++;
	skip_spaces(s);
	digits = strspn(s->p, "0123456789.");
	snprintf(number, sizeof(number), "%.*s", (int)(digits < sizeof(number) ? digits : 0), s->p);
	s->p += digits;
	skip_spaces(s);
	read_word(s, " \t\n/<>=");
	snprintf(all, sizeof(all), "%s%s", number, s->word);
	if (!strcasecmp(s->word, "step") || !strcasecmp(s->word, "steps")) {
		if (!parse_decimal(number, strlen(number), &n, &den) && den == 1 && n) {
			growth_window__of_steps(&t->window, n);
			return 0;
		}
	} else if (*number && *s->word && !text__parse_time(all, &time) && time) {
		growth_window__of_time(&t->window, time);
		return 0;
	}
	return complain(s, "'%s' is no window; 100steps, 30s and 10m are", all);
}

static int parse_term(struct parser *s, struct term *t)
{
	int err = parse_figure(s, t);

	if (!err)
		err = parse_op(s, t);
	if (!err)
		err = parse_limit(s, t);
	if (!err)
		err = parse_window(s, t);
	return err;
}

static int parse_all(struct parser *s, struct cond *c)
{
	for (;;) {
		struct term *t = &c->terms[c->n];
		int err;

		if (c->n == MOST_TERMS)
			return complain(s, "more than %d figures in one condition", MOST_TERMS);
		err = parse_term(s, t);
		if (err)
			return err;
		c->n++;
		t->ends = true;
		skip_spaces(s);
		if (!*s->p)
			return 0;
		read_word(s, " \t\n");
		t->ends = strcasecmp(s->word, "and") != 0;
		if (t->ends && strcasecmp(s->word, "or"))
			return complain(s, "at '%s': 'and' or 'or' is wanted between two figures", s->word);
	}
}

int cond__parse(const char *text, struct cond **ret, char **why)
{
	struct parser s = { .text = text, .p = text };
	struct cond *c;
	int err;

	*why = NULL;
	if (strlen(text) > MOST_TEXT) {
		err = complain(&s, "longer than %d characters", MOST_TEXT);
		*why = s.why;
		return err;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->text = strdup(text);
	err = c->text ? parse_all(&s, c) : -ENOMEM;
	if (err) {
		*why = s.why;
		cond__free(c);
		return err;
	}
	*ret = c;
	return 0;
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

/* ---- what it speaks of ---- */

static enum cond_figure base(const struct term *t)
{
	return is_growth(t->figure) ? figures[t->figure].of : t->figure;
}

bool cond__needs(const struct cond *c, enum cond_figure figure)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->terms[i].figure == figure || base(&c->terms[i]) == figure)
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

uint64_t cond__shortest_window(const struct cond *c)
{
	uint64_t shortest = 0;

	for (size_t i = 0; i < c->n; i++) {
		const struct term *t = &c->terms[i];

		if (is_growth(t->figure) && !t->window.steps && (!shortest || t->window.length < shortest))
			shortest = t->window.length;
	}
	return shortest;
}

/* ---- growth ---- */

/* NULL: no memory, or there are no more of them. */
static struct growth_series *series(struct term *t, unsigned number, bool sampled)
{
	if (number >= COND_SERIES)
		return NULL;
	if (number >= t->nseries) {
		struct growth_series **grown = realloc(t->series, (number + 1) * sizeof(*grown));

		if (!grown)
			return NULL;
		memset(grown + t->nseries, 0, (number + 1 - t->nseries) * sizeof(*grown));
		t->series = grown;
		t->nseries = number + 1;
	}
	if (!t->series[number])
		t->series[number] = growth_series__new(&t->window, sampled);
	return t->series[number];
}

int cond__feed(struct cond *c, const struct cond_values *v)
{
	for (size_t i = 0; i < c->n; i++) {
		struct term *t = &c->terms[i];
		const struct cond_value *of = &v->v[base(t)];
		uint64_t where = t->window.steps ? v->step : v->time;
		struct growth_series *s;

		if (!is_growth(t->figure) || !of->known || (t->window.steps && !v->has_steps))
			continue;
		s = series(t, v->series, v->sampled);
		if (!s)
			return -ENOMEM;
		if (growth_series__sampled(s))
			growth_series__look(s, &t->window, where, v->time, v->has_steps ? v->step : 0, of->value);
		else
			growth_series__add(s, &t->window, where, v->time, of->value);
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

static const char *say(char *buf, size_t size, enum cond_unit unit, uint64_t value)
{
	if (unit == COND_BYTES)
		return text__bytes(buf, size, value);
	if (unit == COND_TIME)
		return text__time(buf, size, value);
	return text__count(buf, size, value);
}

/* The name as people read it: "step time". */
static const char *say_figure(char *buf, size_t size, enum cond_figure f)
{
	snprintf(buf, size, "%s", figures[f].name);
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

/* "allocated 71.20 GiB > 70.00 GiB"; what does not hold: "allocated 12.00 GiB is not > 70.00 GiB". */
static void put_words(const struct term *t, struct cond_result *r, uint64_t of)
{
	const char *not = r->verdict == COND_NO ? "is not " : "";
	char name[32], value[48], limit[48];

	add(r, "%s ", say_figure(name, sizeof(name), t->figure));
	if (r->unit == COND_SHARE) {
		add(r, "%.1f%% %s%s %g%%", 100 * r->share, not, ops[t->op], 100 * r->share_limit);
		return;
	}
	say(value, sizeof(value), r->unit, r->value);
	say(limit, sizeof(limit), r->unit, r->limit);
	if (!strcmp(value, limit) && r->unit != COND_COUNT && r->value != r->limit) {
		text__count(value, sizeof(value), r->value);
		text__count(limit, sizeof(limit), r->limit);
		strcat(value, r->unit == COND_BYTES ? " B" : " ns");
		strcat(limit, r->unit == COND_BYTES ? " B" : " ns");
	}
	add(r, "%s %s%s %s", value, not, ops[t->op], limit);
	if (t->percent)
		add(r, " (%g%% of %s)", (double)t->limit / (double)t->den, text__bytes(limit, sizeof(limit), of));
	if (is_growth(t->figure))
		add(r, " in %s", growth_window__say(&t->window, limit, sizeof(limit)));
}

static void not_known(struct cond_result *r, const struct term *t, const char *why)
{
	char name[32];

	r->verdict = COND_UNKNOWN;
	add(r, "%s is not known: %s", say_figure(name, sizeof(name), t->figure), why);
}

/* The value of a growth. False: not known, and r says why. */
static bool grown(struct term *t, const struct cond_values *v, struct cond_result *r)
{
	struct growth_series *s = v->series < t->nseries ? t->series[v->series] : NULL;
	char why[128];
	int64_t by;

	if (!v->v[base(t)].known) {
		not_known(r, t, v->why[base(t)] ? v->why[base(t)] : "nothing says what there is");
		return false;
	}
	if (t->window.steps && !v->has_steps) {
		not_known(r, t, "no steps are seen; a window of time ('/10m') needs none");
		return false;
	}
	if (!s || !growth_series__is_known(s, v->most, &by, &r->at)) {
		not_known(r, t, growth_window__say_short(&t->window, s, why, sizeof(why)));
		return false;
	}
	r->value = by > 0 ? (uint64_t)by : 0;
	return true;
}

static void judge(struct term *t, const struct cond_values *v, struct cond_result *r)
{
	const struct cond_value *x = &v->v[base(t)];
	unsigned __int128 a, b = t->limit;

	r->figure = t->figure;
	r->unit = figures[t->figure].unit;
	r->limit = t->limit;
	if (is_growth(t->figure)) {
		if (!grown(t, v, r))
			return;
	} else if (!x->known) {
		not_known(r, t, v->why[t->figure] ? v->why[t->figure] : "nothing says what it is");
		return;
	} else {
		r->value = x->value;
	}
	a = r->value;
	if (t->percent) {
		if (!x->of) {
			not_known(r, t, "what 100% would be is not known");
			return;
		}
		a = a * t->den * 100;
		b = b * x->of;
		r->limit = (uint64_t)(b / t->den / 100 > UINT64_MAX ? UINT64_MAX : b / t->den / 100);
		r->share = (double)r->value / (double)x->of;
		r->share_limit = (double)t->limit / (double)t->den / 100;
	}
	r->verdict = compare(t->op, a, b) ? COND_HOLDS : COND_NO;
	put_words(t, r, x->of);
}

/* Adds what b says to a. */
static void join(struct cond_result *a, const struct cond_result *b)
{
	if (!*a->text) {
		*a = *b;
		return;
	}
	add(a, " and %s", b->text);
}

/* Terms that "and" joins, from i on: one that does not hold settles it, then one that is not known. Returns what comes after. */
static size_t judge_all(struct cond *c, size_t i, const struct cond_values *v, struct cond_result *ret)
{
	struct cond_result of[3] = { { .text = "" } };
	bool more = true;

	for (; more; i++) {
		struct cond_result r = { .text = "" };

		judge(&c->terms[i], v, &r);
		join(&of[r.verdict], &r);
		more = !c->terms[i].ends;
	}
	*ret = *of[COND_NO].text ? of[COND_NO] : *of[COND_UNKNOWN].text ? of[COND_UNKNOWN] : of[COND_HOLDS];
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
	*ret = *of[COND_HOLDS].text ? of[COND_HOLDS] : *of[COND_UNKNOWN].text ? of[COND_UNKNOWN] : of[COND_NO];
	return 0;
}
