/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Parses a condition. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"
#include "base/text.h"
#include "record/cond/internal.h"

#define MOST_TEXT 1024
#define FIGURES_TEXT 768 /* names of all figures */

const char *const cond_ops[OP_NR] = {
	[OP_GT] = ">", [OP_GE] = ">=", [OP_LT] = "<", [OP_LE] = "<=", [OP_EQ] = "=", [OP_NE] = "!=",
};

const struct cond_figure_info cond_figures[COND_NR] = {
	[COND_ALLOCATED] = { "allocated", COND_BYTES, 0 },
	[COND_RESERVED] = { "reserved", COND_BYTES, 0 },
	[COND_PEAK] = { "peak", COND_BYTES, 0 },
	[COND_PEAK_RESERVED] = { "peak_reserved", COND_BYTES, 0 },
	[COND_UNUSED] = { "unused", COND_BYTES, 0 },
	[COND_USED] = { "used", COND_BYTES, 0 },
	[COND_OTHER] = { "other", COND_BYTES, 0 },
	[COND_RSS] = { "rss", COND_BYTES, 0 },
	[COND_HOST_TENSORS] = { "host_tensors", COND_BYTES, 0 },
	[COND_HOST_MALLOC] = { "host_malloc", COND_BYTES, 0 },
	[COND_HOST_PYTHON] = { "host_python", COND_BYTES, 0 },
	[COND_HOST_PINNED] = { "host_pinned", COND_BYTES, 0 },
	[COND_HOST_SHARED] = { "host_shared", COND_BYTES, 0 },
	[COND_HOST_UNKNOWN] = { "host_unknown", COND_BYTES, 0 },
	[COND_HOST_CGROUP] = { "host_cgroup", COND_BYTES, 0 },
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

struct parser {
	const char *text, *p;
	char word[128]; /* last word read */
	char *why;
};

static int set_error(struct parser *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int set_error(struct parser *s, const char *fmt, ...)
{
	char what[FIGURES_TEXT + 256], all[MOST_TEXT + sizeof(what) + 8], clean[2 * sizeof(all)];
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

/* Reads up to one of the ends or the end of the text. Longer words than any valid one are cut. */
static const char *read_word(struct parser *s, const char *ends)
{
	size_t len = strcspn(s->p, ends);

	snprintf(s->word, sizeof(s->word), "%.*s",
		 (int)(len < sizeof(s->word) ? len : sizeof(s->word) - 1), s->p);
	s->p += len;
	return s->word;
}

static char *list_figures(char *buf, size_t size)
{
	size_t len = 0;

	*buf = '\0';
	for (int i = 0; i < COND_NR && len < size; i++)
		len += snprintf(buf + len, size - len, "%s%s", i ? ", " : "", cond_figures[i].name);
	return buf;
}

static int parse_figure(struct parser *s, struct term *t)
{
	struct nearest n = { .word = s->word };
	char names[FIGURES_TEXT];

	skip_spaces(s);
	read_word(s, " \t\n<>=!/");
	if (!*s->word)
		return set_error(s, "at '%s': a figure is missing, as in 'peak>16G'; use one of %s",
				 s->p, list_figures(names, sizeof(names)));
	for (int i = 0; i < COND_NR; i++) {
		if (!strcmp(cond_figures[i].name, s->word)) {
			t->figure = i;
			return 0;
		}
		nearest__try(&n, cond_figures[i].name);
	}
	if (n.best)
		return set_error(s, "unknown figure '%s'; did you mean %s?", s->word, n.best);
	return set_error(s, "unknown figure '%s'; use one of %s", s->word,
			 list_figures(names, sizeof(names)));
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
	for (size_t i = 0; i < OP_NR; i++) {
		if (!strcmp(cond_ops[i], op)) {
			t->op = i;
			s->p += len;
			return 0;
		}
	}
	return set_error(s, "after '%s': expected > >= < <= = or !=, not '%s'",
			 cond_figures[t->figure].name, s->p);
}

/* Parses "80" or "12.5" as *num / *den. */
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
		return set_error(s, "'%s' is not a percentage; try 80%% or 12.5%%", s->word);
	t->percent = true;
	return 0;
}

static int parse_limit(struct parser *s, struct term *t)
{
	const char *name = cond_figures[t->figure].name;
	size_t len;
	uint64_t den;

	skip_spaces(s);
	read_word(s, " \t\n/");
	len = strlen(s->word);
	t->den = 1;
	if (!len)
		return set_error(s, "after '%s%s': a value is missing", name, cond_ops[t->op]);
	switch (cond_figures[t->figure].unit) {
	case COND_SHARE:
		if (s->word[len - 1] != '%')
			return set_error(s, "%s is a percentage; did you mean '%s%s%s%%'?", name,
					 name, cond_ops[t->op], s->word);
		return parse_percent(s, t);
	case COND_BYTES:
		if (s->word[len - 1] == '%')
			return parse_percent(s, t);
		if (text__parse_size(s->word, &t->limit))
			return set_error(s, "'%s' is not a size; try 64K, 1.5G or 80%%", s->word);
		return 0;
	case COND_TIME:
		if (text__parse_time(s->word, &t->limit))
			return set_error(s, "'%s' is not a time; try 250ms, 1.5s or 2m", s->word);
		return 0;
	case COND_COUNT:
		if (parse_decimal(s->word, len, &t->limit, &den) || den != 1)
			return set_error(s, "'%s' is not a whole number; try 0 or 10", s->word);
		return 0;
	}
	return -EINVAL;
}

/* Parses "/100steps" or "/10m"; spaces are allowed. */
static int parse_window(struct parser *s, struct term *t)
{
	const char *name = cond_figures[t->figure].name;
	char number[32], all[sizeof(number) + sizeof(s->word)];
	uint64_t n, den, time;
	size_t digits;

	skip_spaces(s);
	if (*s->p != '/') {
		if (!is_growth(t->figure))
			return 0;
		return set_error(s, "%s needs a window; try '%s>1G/100steps' or '%s>1G/10m'", name,
				 name, name);
	}
	if (!is_growth(t->figure))
		return set_error(s, "'%s': %s has no window; only growth has one", s->p, name);
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
	return set_error(s, "'%s' is not a window; try 100steps, 30s or 10m", all);
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
			return set_error(s, "more than %d figures in one condition", MOST_TERMS);
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
			return set_error(s, "at '%s': expected 'and' or 'or' between two figures",
					 s->word);
	}
}

int cond__parse(const char *text, struct cond **ret, char **why)
{
	struct parser s = { .text = text, .p = text };
	struct cond *c;
	int err;

	*why = NULL;
	if (strlen(text) > MOST_TEXT) {
		err = set_error(&s, "longer than %d characters", MOST_TEXT);
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
