/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/cond.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/text.h"

/* Growth of a figure over a window of steps or of time (cond.h). A window is divided into units. A
 * unit is one step, or several equal steps if the window has more than 4096, or 1/128 of the
 * window's time. The low of a unit is its lowest value. Growth is the low of the latest unit (of
 * time: of the latest four) minus the low one window earlier. A sampled series misses values. It
 * has slots instead of units: a slot covers at least 1/16 of the window, 16 samples (4 readings of
 * host memory) and a whole step. Growth is the difference of the lows of two slots that begin at
 * least a window apart, scaled to the length of one window.
 */

struct growth_window {
	bool steps;	 /* true: steps; false: time */
	uint64_t length; /* length in steps or ns */
	uint64_t unit;	 /* length of a unit in steps or ns */
	unsigned span;	 /* number of units in the window */
};

#define MOST_UNITS 4096u /* most units in a window of steps */
#define TIME_UNITS 128u	 /* units in a window of time */
#define TIME_WIDTH 4u	 /* units of a window of time that a low is taken over */
#define SLOTS 64u	 /* slots kept: more than three of the shortest windows */
#define SLOT_PART 16u	 /* a slot covers at least 1/16 of a window */
#define SLOT_SAMPLES 16u /* a slot has at least so many samples */
#define SLOT_READINGS 4u /* the same for host memory, whose samples are seconds apart */
/* Larger values are cut to this one, so that the difference of two values fits in an int64_t. */
#define MOST_VALUE (INT64_MAX / 2)

struct slot {
	uint64_t from; /* step or time at which the slot begins */
	int64_t low;
};

struct value {
	int64_t value;
	uint64_t seq;
};

struct found {
	int64_t amount;	       /* growth in a window, bytes */
	uint64_t at;	       /* time at which it was computed, ns */
	struct value from, to; /* the two lows; unset in a sampled series */
};

struct growth_series {
	unsigned room;		/* entries of the ring lows */
	unsigned width;		/* number of units that a low is taken over */
	uint64_t done;		/* number of finished units, or of finished slots */
	bool begun;		/* a value or sample came */
	uint64_t unit;		/* number of the current unit */
	struct value low;	/* lowest value of the current unit */
	struct value last;	/* latest value */
	bool known;		/* now and most are valid */
	struct found now, most; /* latest growth, and the largest so far */
	/* Sampled series only: the current slot, its number of samples, and the step at its start. */
	struct slot slot;
	unsigned samples, least_samples; /* least_samples: a slot covers so many */
	uint64_t step;
	uint64_t longest; /* ns or steps from the oldest kept slot to the latest finished one */
	/* Ring of SLOTS finished slots. NULL: the series is not sampled. */
	struct slot *slots;
	struct value lows[]; /* ring of the lows of finished units */
};

static void growth_window__of_steps(struct growth_window *w, uint64_t steps)
{
	w->steps = true;
	w->length = steps;
	w->unit = (steps - 1) / MOST_UNITS + 1;
	w->span = (unsigned)((steps - 1) / w->unit + 1);
}

static void growth_window__of_time(struct growth_window *w, uint64_t ns)
{
	w->steps = false;
	w->length = ns;
	w->unit = (ns - 1) / TIME_UNITS + 1;
	w->span = TIME_UNITS;
}

/* Writes the window's length, such as "100 steps" or "10 min 00 s", to buf. */
static const char *growth_window__say(const struct growth_window *w, char *buf, size_t size)
{
	char n[32];

	if (!w->steps)
		return text__time(buf, size, w->length);
	snprintf(buf, size, "%s step%s", text__count(n, sizeof(n), w->length),
		 w->length == 1 ? "" : "s");
	return buf;
}

/* Writes why growth is unknown, such as "12 of 100 steps so far". s: NULL before the first value. */
static const char *growth_window__say_short(const struct growth_window *w,
					    const struct growth_series *s, char *buf, size_t size)
{
	uint64_t length = 0;
	char whole[48], part[32];

	if (s)
		length = s->slots ? s->longest : s->done * w->unit;
	length = length < w->length ? length : w->length;
	growth_window__say(w, whole, sizeof(whole));
	if (w->steps)
		text__count(part, sizeof(part), length);
	else
		text__time(part, sizeof(part), length);
	snprintf(buf, size, "%s of %s so far%s", part, whole,
		 length == w->length ? ", and a little more is needed" : "");
	return buf;
}

/* Creates an empty series. sampled: it has slots instead of units. NULL: memory is short. */
static struct growth_series *growth_series__new(const struct growth_window *w, bool sampled)
{
	unsigned width = w->steps ? 1 : TIME_WIDTH;
	unsigned room = sampled ? 0 : w->span + width;
	struct growth_series *s = calloc(1, sizeof(*s) + room * sizeof(*s->lows));

	if (!s)
		return NULL;
	s->room = room;
	s->width = width;
	s->least_samples = SLOT_SAMPLES;
	s->slots = sampled ? calloc(SLOTS, sizeof(*s->slots)) : NULL;
	if (sampled && !s->slots) {
		free(s);
		return NULL;
	}
	return s;
}

static void growth_series__free(struct growth_series *s)
{
	if (!s)
		return;
	free(s->slots);
	free(s);
}

/* Returns the lowest value of s->width consecutive units, whose last one finished `back` units ago.
 */
static struct value low_of(const struct growth_series *s, unsigned back)
{
	struct value low = { .value = INT64_MAX };

	for (unsigned i = 0; i < s->width; i++) {
		struct value v = s->lows[(s->done - 1 - back - i) % s->room];

		low = v.value <= low.value ? v : low;
	}
	return low;
}

/* Cuts a value to MOST_VALUE on both sides. */
static int64_t bound_value(int64_t value)
{
	if (value < -MOST_VALUE)
		return -MOST_VALUE;
	return value < MOST_VALUE ? value : MOST_VALUE;
}

/* Sets the latest growth, and the largest so far. */
static void record_growth(struct growth_series *s, struct found f)
{
	s->now = f;
	if (!s->known || f.amount > s->most.amount)
		s->most = f;
	s->known = true;
}

/* Stores the low of a finished unit. Computes growth if there is a unit one window earlier. */
static void end_unit(struct growth_series *s, const struct growth_window *w, struct value low,
		     uint64_t time)
{
	struct found f = { .at = time };

	s->lows[s->done % s->room] = low;
	s->done++;
	if (s->done < w->span + s->width)
		return;
	f.from = low_of(s, w->span);
	f.to = low_of(s, 0);
	f.amount = f.to.value - f.from.value;
	record_growth(s, f);
}

/* Adds a value that holds from now on. where: the present step or time, like the window's length;
 * one before the latest counts as the latest. seq: the caller's number of this moment. The value is
 * cut to 2^62 on both sides, because a target and a file may claim anything.
 */
static void growth_series__add_value(struct growth_series *s, const struct growth_window *w,
				     uint64_t where, uint64_t time, uint64_t seq, int64_t value)
{
	struct value now = { bound_value(value), seq };
	uint64_t unit = where / w->unit;

	if (!s->begun) {
		s->begun = true;
		s->unit = unit;
		s->low = s->last = now;
		return;
	}
	if (unit > s->unit) {
		uint64_t gap = unit - s->unit - 1;

		end_unit(s, w, s->low, time);
		/* In the units between, the value was the last one. More units than the ring has
		 * would have no effect. */
		for (gap = gap < 2 * s->room ? gap : 2 * s->room; gap; gap--)
			end_unit(s, w, s->last, time);
		s->unit = unit;
		s->low = s->last;
	}
	s->low = now.value < s->low.value ? now : s->low;
	s->last = now;
}

/* Stores the finished slot. Computes growth if a slot began at least one window before it. */
static void end_slot(struct growth_series *s, const struct growth_window *w, uint64_t time)
{
	uint64_t kept = s->done < SLOTS ? s->done : SLOTS - 1, apart;
	const struct slot *now = &s->slot, *then = NULL;
	int64_t amount;

	/* Find the latest slot at least a window before this one. */
	for (uint64_t i = 1; i <= kept && !then; i++) {
		const struct slot *earlier = &s->slots[(s->done - i) % SLOTS];

		s->longest = now->from - earlier->from;
		if (now->from - earlier->from >= w->length)
			then = earlier;
	}
	s->slots[s->done % SLOTS] = *now;
	s->done++;
	if (!then)
		return;
	apart = now->from - then->from;
	amount = now->low - then->low;
	if (apart > w->length)
		amount = (int64_t)((double)amount * ((double)w->length / (double)apart));
	record_growth(s, (struct found){ .amount = amount, .at = time });
}

/* Begins a slot with its first sample. where: its step or time. step: number of the current step;
 * 0: unknown. */
static void begin_slot(struct growth_series *s, uint64_t where, uint64_t step, int64_t low)
{
	s->slot = (struct slot){ .from = where, .low = low };
	s->samples = 1;
	s->step = step;
	s->begun = true;
}

/* Adds a sample. where: the present step or time, like the window's length. time: ns. step: number
 * of the current step; 0: unknown. */
static void growth_series__add_sample(struct growth_series *s, const struct growth_window *w,
				      uint64_t where, uint64_t time, uint64_t step, int64_t value)
{
	uint64_t least = (w->length - 1) / SLOT_PART + 1, length;
	int64_t low = bound_value(value);
	bool step_ends;

	if (!s->begun) {
		begin_slot(s, where, step, low);
		return;
	}
	length = where > s->slot.from ? where - s->slot.from : 0;
	/* A slot ends with a step. It ends without one after four times the least length. */
	step_ends = !step || step > s->step || length / 4 >= least;
	if (length >= least && s->samples >= s->least_samples && step_ends) {
		end_slot(s, w, time);
		begin_slot(s, where, step, low);
		return;
	}
	s->samples++;
	s->slot.low = low < s->slot.low ? low : s->slot.low;
}

#define MOST_TERMS 32	  /* most comparisons in a condition */
#define MOST_TEXT 1024	  /* most bytes of a condition */
#define FIGURES_TEXT 1024 /* names of all figures */

enum op { OP_GT, OP_GE, OP_LT, OP_LE, OP_EQ, OP_NE };
#define OP_NR (OP_NE + 1)

struct cond_figure_info {
	const char *name;
	enum cond_unit unit;
	enum cond_figure of; /* if this is the growth of another figure: that figure */
	const char *shown;   /* the name for people; NULL: name, which JSON has */
	bool reads_host;     /* cond__reads_host() */
};

struct term {
	enum cond_figure figure;
	enum op op;
	bool percent;
	uint64_t limit; /* bytes, ns or a count; if percent is set, limit / den is the percentage */
	uint64_t den;	/* denominator of the percentage, a power of ten */
	bool ends;	/* this is the last of the terms that "and" joins */
	struct growth_window window; /* window of a growth figure */
	/* series[cond_values.series], created on demand; at most COND_SERIES */
	struct growth_series **series;
	size_t nseries;
};

struct cond {
	char *text;
	struct term terms[MOST_TERMS];
	size_t n;
};

/* COND_GROWTH is the first of the figures of growth, which are the last ones. */
static bool is_growth(enum cond_figure f)
{
	return f >= COND_GROWTH;
}

/* ---- parsing ---- */

static const char *const ops[OP_NR] = {
	[OP_GT] = ">", [OP_GE] = ">=", [OP_LT] = "<", [OP_LE] = "<=", [OP_EQ] = "=", [OP_NE] = "!=",
};

static const struct cond_figure_info known_figures[COND_NR] = {
	[COND_ALLOCATED] = { "allocated", COND_BYTES, 0 },
	[COND_RESERVED] = { "reserved", COND_BYTES, 0 },
	[COND_PEAK] = { "peak", COND_BYTES, 0 },
	[COND_PEAK_RESERVED] = { "peak_reserved", COND_BYTES, 0 },
	[COND_UNUSED] = { "unused", COND_BYTES, 0, "cached" },
	[COND_USED] = { "used", COND_BYTES, 0 },
	[COND_OTHER] = { "other", COND_BYTES, 0 },
	[COND_FREE] = { "free", COND_BYTES, 0 },
	[COND_RSS] = { "rss", COND_BYTES, 0 },
	[COND_HOST_TENSORS] = { "host_tensors", COND_BYTES, .reads_host = true },
	[COND_HOST_MALLOC] = { "host_malloc", COND_BYTES, .reads_host = true },
	[COND_HOST_PYTHON] = { "host_python", COND_BYTES, .reads_host = true },
	[COND_HOST_PINNED] = { "host_pinned", COND_BYTES, .reads_host = true },
	[COND_HOST_SHARED] = { "host_shared", COND_BYTES, .reads_host = true },
	[COND_HOST_UNKNOWN] = { "host_unknown", COND_BYTES, .reads_host = true },
	[COND_HOST_LIVE] = { "host_live", COND_BYTES, .reads_host = true },
	[COND_MALLOC_FREE] = { "malloc_free", COND_BYTES, .reads_host = true },
	[COND_HOST_CGROUP] = { "host_cgroup", COND_BYTES, 0 },
	[COND_FRAGMENTATION] = { "fragmentation", COND_SHARE, 0 },
	[COND_STEP_TIME] = { "step_time", COND_TIME, 0 },
	[COND_OOMS] = { "ooms", COND_COUNT, 0 },
	[COND_RETRIES] = { "retries", COND_COUNT, 0 },
	[COND_LOST] = { "lost", COND_COUNT, 0 },
	[COND_LEAKS] = { "leaks", COND_COUNT, 0 },
	[COND_MACHINE_FREE] = { "machine_free", COND_BYTES, 0 },
	[COND_MACHINE_AVAILABLE] = { "machine_available", COND_BYTES, 0 },
	[COND_MACHINE_CACHE] = { "machine_cache", COND_BYTES, 0 },
	[COND_GROWTH] = { "growth", COND_BYTES, COND_ALLOCATED },
	[COND_RESERVED_GROWTH] = { "reserved_growth", COND_BYTES, COND_RESERVED },
	[COND_USED_GROWTH] = { "used_growth", COND_BYTES, COND_USED },
	[COND_OTHER_GROWTH] = { "other_growth", COND_BYTES, COND_OTHER },
	[COND_RSS_GROWTH] = { "rss_growth", COND_BYTES, COND_RSS },
	[COND_HOST_LIVE_GROWTH] = { "host_live_growth", COND_BYTES, COND_HOST_LIVE },
	[COND_MALLOC_FREE_GROWTH] = { "malloc_free_growth", COND_BYTES, COND_MALLOC_FREE },
};

struct parser {
	const char *text, *p;
	char word[128]; /* last word read */
	char *why;
};

static int set_error(struct parser *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sets s->why to the condition and the reason. Returns -EINVAL or, if memory is short, -ENOMEM. */
static int set_error(struct parser *s, const char *fmt, ...)
{
	char reason[FIGURES_TEXT + 256], message[MOST_TEXT + sizeof(reason) + 8],
		clean[2 * sizeof(message)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	snprintf(message, sizeof(message), "'%.*s': %s", MOST_TEXT, s->text, reason);
	s->why = strdup(text__clean(clean, sizeof(clean), message, strlen(message)));
	return s->why ? -EINVAL : -ENOMEM;
}

static void skip_spaces(struct parser *s)
{
	s->p += strspn(s->p, " \t\n");
}

/* Reads a word into s->word: the text before the next character that is in ends. A word that is
 * longer than any valid one is cut. */
static const char *read_word(struct parser *s, const char *ends)
{
	size_t len = strcspn(s->p, ends);

	snprintf(s->word, sizeof(s->word), "%.*s",
		 (int)(len < sizeof(s->word) ? len : sizeof(s->word) - 1), s->p);
	s->p += len;
	return s->word;
}

/* The figure's name for people. */
static const char *word_of(enum cond_figure f)
{
	return known_figures[f].shown ?: known_figures[f].name;
}

/* Writes the names of all figures for people, "allocated, reserved, ...". */
static char *list_figures(char *buf, size_t size)
{
	size_t len = 0;

	*buf = '\0';
	for (int i = 0; i < COND_NR && len < size; i++)
		len += snprintf(buf + len, size - len, "%s%s", i ? ", " : "", word_of(i));
	return buf;
}

/* Reads the name of a figure, that of JSON or that for people. Returns 0 or the error of
 * set_error(). */
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
		if (!strcmp(known_figures[i].name, s->word) || !strcmp(word_of(i), s->word)) {
			t->figure = i;
			return 0;
		}
		nearest__try(&n, word_of(i));
	}
	if (n.best)
		return set_error(s, "unknown figure '%s'; did you mean %s?", s->word, n.best);
	return set_error(s, "unknown figure '%s'; use one of %s", s->word,
			 list_figures(names, sizeof(names)));
}

/* Reads an operator; "==" is "=". Returns 0 or the error of set_error(). */
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
		if (!strcmp(ops[i], op)) {
			t->op = i;
			s->p += len;
			return 0;
		}
	}
	return set_error(s, "after '%s': expected > >= < <= = or !=, not '%s'", word_of(t->figure),
			 s->p);
}

/* Parses "80" or "12.5" as *num / *den. Returns 0, or -EINVAL also for more than about ten digits. */
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

/* Parses s->word, which ends in "%". Returns 0 or the error of set_error(). */
static int parse_percent(struct parser *s, struct term *t)
{
	size_t len = strlen(s->word);

	if (parse_decimal(s->word, len - 1, &t->limit, &t->den))
		return set_error(s, "'%s' is not a percentage; try 80%% or 12.5%%", s->word);
	t->percent = true;
	return 0;
}

/* Reads the value that the figure is compared with, in its unit. Returns 0 or the error of
 * set_error(). */
static int parse_limit(struct parser *s, struct term *t)
{
	const char *name = word_of(t->figure);
	size_t len;
	uint64_t den;

	skip_spaces(s);
	read_word(s, " \t\n/");
	len = strlen(s->word);
	t->den = 1;
	if (!len)
		return set_error(s, "after '%s%s': a value is missing", name, ops[t->op]);
	switch (known_figures[t->figure].unit) {
	case COND_SHARE:
		if (s->word[len - 1] != '%')
			return set_error(s, "%s is a percentage; did you mean '%s%s%s%%'?", name,
					 name, ops[t->op], s->word);
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

/* Parses "/100steps" or "/10m"; spaces are allowed. Only growth has a window, and must have one.
 * Returns 0 or the error of set_error(). */
static int parse_window(struct parser *s, struct term *t)
{
	const char *name = word_of(t->figure);
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

/* Reads a comparison, such as "growth>1G/10m". Returns 0 or the error of set_error(). */
static int parse_term(struct parser *s, struct term *t)
{
	int err = parse_figure(s, t);

	err = err ?: parse_op(s, t);
	err = err ?: parse_limit(s, t);
	return err ?: parse_window(s, t);
}

/* Reads the comparisons up to the end of the text. Returns 0 or the error of set_error(). */
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

/* ---- conditions ---- */

bool cond__is_of_machine(enum cond_figure f)
{
	return f >= COND_MACHINE_FREE && f <= COND_MACHINE_CACHE;
}

const char *cond__figure_name(enum cond_figure f)
{
	return known_figures[f].name;
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

enum cond_figure cond__base_figure(enum cond_figure f)
{
	return is_growth(f) ? known_figures[f].of : f;
}

bool cond__reads_host(enum cond_figure f)
{
	return known_figures[cond__base_figure(f)].reads_host;
}

/* Returns the figure whose value a term needs: growth needs the figure that grows. */
static enum cond_figure base_figure(const struct term *t)
{
	return cond__base_figure(t->figure);
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

uint64_t cond__window(const struct cond *c, enum cond_figure figure)
{
	uint64_t shortest = 0;

	for (size_t i = 0; i < c->n; i++) {
		const struct term *t = &c->terms[i];

		if (!is_growth(t->figure) || base_figure(t) != cond__base_figure(figure) ||
		    t->window.steps)
			continue;
		shortest = shortest && shortest < t->window.length ? shortest : t->window.length;
	}
	return shortest;
}

/* ---- growth ---- */
/* Returns the series with this number, which it creates on demand. NULL: memory is short, or the
 * number is COND_SERIES or more. */
static struct growth_series *series_of(struct term *t, unsigned number, bool sampled)
{
	if (number >= COND_SERIES)
		return NULL;
	if (array__grow_zero(&t->series, &t->nseries, number + 1, sizeof(struct growth_series *)))
		return NULL;
	if (t->series[number])
		return t->series[number];
	t->series[number] = growth_series__new(&t->window, sampled);
	if (t->series[number] && cond__reads_host(t->figure))
		t->series[number]->least_samples = SLOT_READINGS;
	return t->series[number];
}

int cond__feed(struct cond *c, const struct cond_values *v)
{
	for (size_t i = 0; i < c->n; i++) {
		struct term *t = &c->terms[i];
		const struct cond_value *value = &v->v[base_figure(t)];
		uint64_t where = t->window.steps ? v->step : v->time;
		struct growth_series *s;

		if (!is_growth(t->figure) || !value->known || (t->window.steps && !v->has_steps))
			continue;
		if (v->host_repeats && cond__reads_host(t->figure))
			continue;
		s = series_of(t, v->series, v->sampled);
		if (!s)
			return -ENOMEM;
		if (s->slots)
			growth_series__add_sample(s, &t->window, where, v->time,
						  v->has_steps ? v->step : 0,
						  (int64_t)value->value);
		else
			growth_series__add_value(s, &t->window, where, v->time, v->seq,
						 (int64_t)value->value);
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

/* True if the comparison holds. a: the figure; b: the limit. */
static bool compare(enum op op, unsigned __int128 a, unsigned __int128 b)
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
	return false;
}

/* Writes a value in its unit. */
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
	snprintf(buf, size, "%s", word_of(f));
	for (char *p = buf; *p; p++)
		if (*p == '_')
			*p = ' ';
	return buf;
}

static void add_text(struct cond_result *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Appends to r->text, which is cut at its end. */
static void add_text(struct cond_result *r, const char *fmt, ...)
{
	size_t len = strlen(r->text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->text + len, sizeof(r->text) - len, fmt, ap);
	va_end(ap);
}

/* Writes "allocated 71.20 GiB > 70.00 GiB", or "allocated 12.00 GiB is not > 70.00 GiB". whole: the
 * value of 100%. */
static void write_text(const struct term *t, struct cond_result *r, uint64_t whole)
{
	const char *not = r->verdict == COND_NO ? "is not " : "";
	char name[32], value[48], limit[48];

	add_text(r, "%s ", format_figure(name, sizeof(name), t->figure));
	if (r->unit == COND_SHARE) {
		add_text(r, "%.1f%% %s%s %g%%", 100 * r->share, not, ops[t->op],
			 100 * r->share_limit);
		return;
	}
	format_value(value, sizeof(value), r->unit, r->value);
	format_value(limit, sizeof(limit), r->unit, r->limit);
	/* Rounded texts can be equal though the values are not: write all digits. */
	if (!strcmp(value, limit) && r->unit != COND_COUNT && r->value != r->limit) {
		text__count(value, sizeof(value), r->value);
		text__count(limit, sizeof(limit), r->limit);
		strcat(value, r->unit == COND_BYTES ? " B" : " ns");
		strcat(limit, r->unit == COND_BYTES ? " B" : " ns");
	}
	add_text(r, "%s %s%s %s", value, not, ops[t->op], limit);
	if (t->percent)
		add_text(r, " (%g%% of %s)", (double)t->limit / (double)t->den,
			 text__bytes(limit, sizeof(limit), whole));
	if (is_growth(t->figure))
		add_text(r, " in %s", growth_window__say(&t->window, limit, sizeof(limit)));
}

/* Says that the figure is not known. why: follows its name. */
static void set_unknown(struct cond_result *r, const struct term *t, const char *why)
{
	char name[32];

	r->verdict = COND_UNKNOWN;
	add_text(r, "%s is not known: %s", format_figure(name, sizeof(name), t->figure), why);
}

/* Sets r to the growth that a term compares. Returns false if it is unknown, with the reason in r. */
static bool judge_growth(struct term *t, const struct cond_values *v, struct cond_result *r)
{
	struct growth_series *s = v->series < t->nseries ? t->series[v->series] : NULL;
	const struct found *f;
	char why[128];

	if (!v->v[base_figure(t)].known) {
		set_unknown(r, t, v->why[base_figure(t)] ?: "no value was reported");
		return false;
	}
	if (t->window.steps && !v->has_steps) {
		set_unknown(r, t,
			    "the recording has no steps; use a window of time, such as '/10m'");
		return false;
	}
	if (!s || !s->known) {
		set_unknown(r, t, growth_window__say_short(&t->window, s, why, sizeof(why)));
		return false;
	}
	f = v->judge_largest ? &s->most : &s->now;
	r->value = f->amount > 0 ? (uint64_t)f->amount : 0;
	r->at = f->at;
	r->from = f->from.seq;
	r->to = f->to.seq;
	r->lows_known = !s->slots;
	return true;
}

/* Compares one figure with its limit and sets *r: COND_HOLDS, COND_NO, or unknown with the reason.
 * A limit in percent is of value->whole. */
static void judge_term(struct term *t, const struct cond_values *v, struct cond_result *r)
{
	const struct cond_value *value = &v->v[base_figure(t)];
	unsigned __int128 a, b = t->limit;

	r->figure = t->figure;
	r->unit = known_figures[t->figure].unit;
	r->limit = t->limit;
	if (is_growth(t->figure)) {
		if (!judge_growth(t, v, r))
			return;
	} else if (!value->known) {
		set_unknown(r, t, v->why[t->figure] ?: "no value was reported");
		return;
	} else {
		r->value = value->value;
	}
	a = r->value; /* a and b: what is compared */
	if (t->percent) {
		if (!value->whole) {
			set_unknown(
				r, t,
				t->figure == COND_HOST_CGROUP
					? "the control group has no limit; give a size"
					: "a percentage needs the total memory, which is unknown");
			return;
		}
		/* Compares value / whole with limit / den / 100 without a division, which would
		 * round. */
		a = a * t->den * 100;
		b = b * value->whole;
		r->limit = (uint64_t)(b / t->den / 100 > UINT64_MAX ? UINT64_MAX
								    : b / t->den / 100);
		r->share = (double)r->value / (double)value->whole;
		r->share_limit = (double)t->limit / (double)t->den / 100;
	}
	r->verdict = compare(t->op, a, b) ? COND_HOLDS : COND_NO;
	write_text(t, r, value->whole);
}

/* Adds the text of b to that of a. If a has no text yet, a becomes b. */
static void join_text(struct cond_result *a, const struct cond_result *b)
{
	if (!*a->text) {
		*a = *b;
		return;
	}
	add_text(a, " and %s", b->text);
}

/* Picks from the results by verdict: that of the verdict `first` if there is one, otherwise that of
 * COND_UNKNOWN, otherwise that of `last`. */
static struct cond_result first_decided(const struct cond_result by_verdict[3], int first, int last)
{
	if (*by_verdict[first].text)
		return by_verdict[first];
	return by_verdict[*by_verdict[COND_UNKNOWN].text ? COND_UNKNOWN : last];
}

/* Judges the terms that "and" joins, from the i-th on. A term that does not hold decides, otherwise
 * an unknown one. Returns the index after the last of them. */
static size_t judge_group(struct cond *c, size_t i, const struct cond_values *v,
			  struct cond_result *ret)
{
	struct cond_result by_verdict[3] = { { .text = "" } };
	bool more = true;

	for (; more; i++) {
		struct cond_result r = { .text = "" };

		judge_term(&c->terms[i], v, &r);
		join_text(&by_verdict[r.verdict], &r);
		more = !c->terms[i].ends;
	}
	*ret = first_decided(by_verdict, COND_NO, COND_HOLDS);
	return i;
}

int cond__eval(struct cond *c, const struct cond_values *v, struct cond_result *ret)
{
	struct cond_result by_verdict[3] = { { .text = "" } };
	int err = cond__feed(c, v);

	if (err)
		return err;
	/* "or" joins the groups: one that holds decides. */
	for (size_t i = 0; i < c->n;) {
		struct cond_result r = { .text = "" };

		i = judge_group(c, i, v, &r);
		join_text(&by_verdict[r.verdict], &r);
	}
	*ret = first_decided(by_verdict, COND_HOLDS, COND_NO);
	return 0;
}
