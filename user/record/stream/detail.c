/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/detail.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "memtrace.h"

#define MILLION 1e6
#define MARK "detail: "
#define MARK_BELOW "stacks of blocks below "

int detail__add(struct facts *f, const struct detail_change *c)
{
	const char *was = facts__get(f, "cost.changes") ?: "";
	size_t n = 0;

	for (const char *p = was; *p; p++)
		n += *p == ':'; /* three in each change */
	if (n / 3 >= DETAIL_MAX)
		return 0;
	return facts__setf(f, "cost.changes", "%s%s%" PRIu64 ":%" PRIu32 ":%" PRIu64 ":%" PRIu32,
			   was, *was ? " " : "", c->time, c->off, c->below, c->share);
}

/* Returns a fact that is a number below a million; `unknown` if it is missing or makes no sense. */
static double read_number(const struct facts *f, const char *key, double unknown)
{
	const char *text = facts__get(f, key);
	char *end;
	double v = text ? strtod(text, &end) : 0;

	return text && end != text && v >= 0 && v < MILLION ? v : unknown;
}

/* Reads the facts "cost.steps" and "cost.step". Damaged ones count as missing. */
static void read_steps(const struct facts *f, struct detail *ret)
{
	const char *steps = facts__get(f, "cost.steps") ?: "";
	const char *step = facts__get(f, "cost.step") ?: "";
	uint64_t whole, all = 0;

	if (facts__digits(&steps, &whole) && *steps++ == ':' && facts__digits(&steps, &all) &&
	    whole < all) {
		ret->whole = whole;
		ret->steps = all;
	}
	ret->longer_known = sscanf(step, "%lf:%lf:%lf", &ret->low, &ret->longer, &ret->high) == 3 &&
			    ret->low >= 0 && ret->low <= ret->longer && ret->longer <= ret->high &&
			    ret->high < MILLION;
}

bool detail__read(const struct facts *f, struct detail *ret)
{
	const char *text = facts__get(f, "cost.changes") ?: "";
	int len, got;

	*ret = (struct detail){ .limit = read_number(f, "cost.limit", 0),
				.share = read_number(f, "cost.share", /*unknown=*/-1) };
	read_steps(f, ret);
	for (; ret->n < DETAIL_MAX; text += len) {
		struct detail_change *c = &ret->at[ret->n];

		len = 0;
		got = sscanf(text, "%" SCNu64 ":%" SCNu32 ":%" SCNu64 ":%" SCNu32 "%n", &c->time,
			     &c->off, &c->below, &c->share, &len);
		if (got != 4 || !len)
			break;
		if (ret->n && c->time < c[-1].time)
			break;
		ret->n++;
	}
	return ret->limit > 0;
}

/* The parts that may be missing, with their bits of enum mt_off. */
static const struct {
	uint32_t off;
	const char *name;
} parts[] = { { MT_OFF_NODES, "backward nodes" },
	      { MT_OFF_MODULES, "module calls" },
	      { MT_OFF_SCOPES, "scopes" },
	      { 0, "most stacks of blocks below " } }; /* 0: as for say_missing() */
#define PARTS (sizeof(parts) / sizeof(parts[0]))

/* Lists what the flags `off` (enum mt_off) leave out, then the text `sampled` about stacks, which
 * may be "". Writes "" if nothing is missing. */
static void list_missing(char *buf, size_t size, uint32_t off, const char *sampled)
{
	size_t len = 0;

	*buf = '\0';
	for (size_t i = 0; i < PARTS; i++)
		if (off & parts[i].off && len < size)
			len += (size_t)snprintf(buf + len, size - len, "%s%s", len ? ", " : "",
						parts[i].name);
	if (*sampled && len < size)
		snprintf(buf + len, size - len, "%s%s", len ? ", " : "", sampled);
}

char *detail__words(char *buf, size_t size, uint32_t off, uint64_t below)
{
	char bytes[24], sampled[64] = "";

	if (below)
		snprintf(sampled, sizeof(sampled), "most stacks of blocks below %s",
			 text__bytes(bytes, sizeof(bytes), below));
	list_missing(buf, size, off, sampled);
	return buf;
}

/* Writes when a part of the detail was missing: "from 1.52 s on" or "1.52 s to 40.1 s". part: a
 * flag of enum mt_off, or 0 for stacks of small blocks. Returns 0 if the part was never missing,
 * otherwise 1 or, for stacks, the largest bound of these blocks in bytes. */
static uint64_t say_missing(char *buf, size_t size, const struct detail *d, uint32_t part)
{
	uint64_t largest = 0, first = 0, last = 0;
	char from[24], to[24];

	for (size_t i = 0; i < d->n; i++) {
		uint64_t missing = part ? !!(d->at[i].off & part) : d->at[i].below;

		if (missing && !largest)
			first = d->at[i].time;
		if (missing)
			last = 0; /* the period goes on */
		else if (largest && !last)
			last = d->at[i].time;
		largest = missing > largest ? missing : largest;
	}
	text__time(from, sizeof(from), first);
	if (last)
		snprintf(buf, size, "%s to %s", from, text__time(to, sizeof(to), last));
	else
		snprintf(buf, size, "from %s on", from);
	return largest;
}

/* Writes a share as percents with two digits, or with all digits before the point. Returns buf. */
static const char *percents(char *buf, size_t size, double share)
{
	snprintf(buf, size, share < 0.1 ? "%.2g" : "%.0f", share * 100);
	return buf;
}

char *detail__sentence(char *buf, size_t size, const struct facts *f)
{
	struct detail d;
	char number[32], low[32], high[32], counts[2][32];
	size_t len = 0;
	bool some = false;

	buf[0] = '\0';
	if (!detail__read(f, &d) || (!d.n && !d.steps && d.share <= d.limit))
		return buf;
	if (d.longer_known)
		len += snprintf(buf, size, "a step took %s %% longer (%s to %s), ",
				percents(number, sizeof(number), d.longer),
				percents(low, sizeof(low), d.low),
				percents(high, sizeof(high), d.high));
	else if (d.share >= 0)
		len += snprintf(buf, size, "tracing took %s %% of the target's time, ",
				percents(number, sizeof(number), d.share));
	len += snprintf(buf + len, size - len, "the limit was %s %%. ",
			percents(number, sizeof(number), d.limit));
	if (d.longer_known && d.share >= 0)
		len += snprintf(buf + len, size - len, "Tracing took %s %% of its time. ",
				percents(number, sizeof(number), d.share));
	if (d.steps)
		len += snprintf(buf + len, size - len, "Lines are known in %s of %s steps. ",
				text__count(counts[0], sizeof(counts[0]), d.whole),
				text__count(counts[1], sizeof(counts[1]), d.steps));
	for (size_t i = 0; i < PARTS && len < size; i++) {
		char when[64], bytes[24] = "";
		uint64_t most = say_missing(when, sizeof(when), &d, parts[i].off);

		if (!most)
			continue;
		if (!parts[i].off)
			text__bytes(bytes, sizeof(bytes), most);
		len += snprintf(buf + len, size - len, "%s%s%s (%s)",
				some ? ", " : "Not recorded: ", parts[i].name, bytes, when);
		some = true;
	}
	if (len < size)
		snprintf(buf + len, size - len, "%sEvery byte is counted.", some ? ". " : "");
	return buf;
}

char *detail__reduced(char *buf, size_t size, const struct facts *f)
{
	struct detail d;

	buf[0] = '\0';
	if (detail__read(f, &d) && (d.n || d.steps))
		detail__sentence(buf, size, f);
	return buf;
}

void detail__put(struct json *j, const struct facts *f)
{
	char text[DETAIL_TEXT];
	struct detail d;

	if (!detail__read(f, &d))
		return;
	json__open_object(j, "detail");
	json__double(j, "limit", d.limit, /*decimals=*/6);
	if (d.share >= 0)
		json__double(j, "share", d.share, /*decimals=*/6);
	else
		json__null(j, "share");
	json__string(j, "text", *detail__reduced(text, sizeof(text), f) ? text : NULL);
	if (d.longer_known) {
		json__open_object(j, "step");
		json__double(j, "low", d.low, 6);
		json__double(j, "longer", d.longer, 6);
		json__double(j, "high", d.high, 6);
		json__close_object(j);
	} else {
		json__null(j, "step");
	}
	if (d.steps) {
		json__open_object(j, "steps");
		json__uint(j, "whole", d.whole);
		json__uint(j, "all", d.steps);
		json__close_object(j);
	} else {
		json__null(j, "steps");
	}
	json__open_array(j, "changes");
	for (size_t i = 0; i < d.n; i++) {
		json__open_object(j, NULL);
		json__seconds(j, "time", d.at[i].time, /*decimals=*/9);
		json__bool(j, "backward_nodes", !(d.at[i].off & MT_OFF_NODES));
		json__bool(j, "module_calls", !(d.at[i].off & MT_OFF_MODULES));
		json__bool(j, "scopes", !(d.at[i].off & MT_OFF_SCOPES));
		json__uint(j, "sampled_below", d.at[i].below);
		json__double(j, "share_before", d.at[i].share / MILLION, /*decimals=*/6);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

char *detail__mark(char *buf, size_t size, uint32_t off, uint64_t below)
{
	char missing[128], sampled[64] = "";

	if (below)
		snprintf(sampled, sizeof(sampled), MARK_BELOW "%" PRIu64 " B", below);
	list_missing(missing, sizeof(missing), off, sampled);
	snprintf(buf, size, *missing ? MARK "without %s" : MARK "all", missing);
	return buf;
}

bool detail__from_mark(const char *name, uint64_t *below)
{
	const char *at;

	if (strncmp(name, MARK, strlen(MARK)) != 0)
		return false;
	at = strstr(name, MARK_BELOW);
	*below = at ? strtoull(at + strlen(MARK_BELOW), NULL, 10) : 0;
	return true;
}

#define FIRST_BOUND 65536ULL /* bytes */
#define TAIL 0.025	     /* probability that the value is below the interval, and above it */
#define NORMAL 1.959964	     /* quantile of the normal distribution at 1 - TAIL */
#define EXACT 50 /* the limits for larger counts come from an approximation within 0.1 % */
#define TURNS 60 /* halvings of an interval that find a mean to the last digit */

/* Returns the number of the bound of `below` bytes, from 1; 0: it is none of the possible bounds. */
static uint8_t bound_no_of(uint64_t below)
{
	for (uint8_t i = 1; i <= SAMPLING_BOUNDS; i++)
		if (sampling__bound(i) == below)
			return i;
	return 0;
}

uint64_t sampling__bound(uint8_t bound_no)
{
	/* 65536 * 4^(bound_no - 1): each bound is four times the one before. */
	return bound_no ? FIRST_BOUND << 2 * (bound_no - 1) : 0;
}

/* Adds a change of the bound. time: ns. A change that does not follow the last one is left out. */
static void add_change(struct sampling *s, uint64_t time, uint64_t below)
{
	if (s->n == DETAIL_MAX || (s->n && time <= s->at[s->n - 1].time))
		return;
	s->at[s->n].time = time;
	s->at[s->n++].bound_no = bound_no_of(below);
}

void sampling__load(struct sampling *s, const struct facts *f)
{
	struct detail d;

	if (s->loaded)
		return;
	s->loaded = true;
	detail__read(f, &d);
	for (size_t i = 0; i < d.n; i++)
		add_change(s, d.at[i].time, d.at[i].below);
}

void sampling__mark(struct sampling *s, const char *name, uint64_t time)
{
	uint64_t below;

	if (detail__from_mark(name, &below))
		add_change(s, time, below);
}

uint8_t sampling__bound_no(const struct sampling *s, uint64_t time, uint64_t size)
{
	size_t i = s->n;

	/* Events come nearly in the order of time. */
	while (i && s->at[i - 1].time > time)
		i--;
	return i && size < sampling__bound(s->at[i - 1].bound_no) ? s->at[i - 1].bound_no : 0;
}

/* Returns the probability of at most n events in a Poisson distribution with this mean. */
static double at_most(uint64_t n, double mean)
{
	double p = exp(-mean), sum = p;

	for (uint64_t i = 1; i <= n; i++) {
		p *= mean / (double)i;
		sum += p;
	}
	return sum;
}

/* Returns the mean for which at_most(n, mean) is this probability, by bisection. */
static double mean_for(uint64_t n, double probability)
{
	double low = 0, high = (double)n + 10 * sqrt((double)n + 1) + 10;

	for (int i = 0; i < TURNS; i++) {
		double middle = (low + high) / 2;

		if (at_most(n, middle) > probability)
			low = middle;
		else
			high = middle;
	}
	return high;
}

/* Wilson and Hilferty's approximation of mean_for(): x is the count, z the quantile of the normal
 * distribution. */
static double approximate_mean(double x, double z)
{
	double root = 1 - 1 / (9 * x) + z / (3 * sqrt(x));

	return x * root * root * root;
}

/* The limits of the mean of a Poisson distribution of which n events were seen, at 95 %. With the
 * lower one, n or more events have the probability TAIL; with the upper one, n or fewer. The number
 * of blocks in the sample varies less than a Poisson number does, so the interval is rather too
 * wide. Both are approximate from EXACT events on. */
static double lower_limit(uint64_t n)
{
	if (!n)
		return 0;
	if (n > EXACT)
		return approximate_mean((double)n, -NORMAL);
	return mean_for(n - 1, 1 - TAIL); /* n - 1 or fewer: all but TAIL */
}

static double upper_limit(uint64_t n)
{
	if (n >= EXACT)
		return approximate_mean((double)n + 1, NORMAL);
	return mean_for(n, TAIL);
}

/* Rounds v down and cuts it to the range from `least` to `most`. */
static uint64_t clamp(double v, uint64_t least, uint64_t most)
{
	if (v <= (double)least)
		return least;
	return v >= (double)most ? most : (uint64_t)v;
}

struct sampled sampling__estimate(uint64_t bytes, const struct drawn drawn[SAMPLING_BOUNDS])
{
	struct sampled e = { bytes, bytes, bytes };

	for (uint8_t i = 0; i < SAMPLING_BOUNDS; i++) {
		const struct drawn *d = &drawn[i];
		double bound = (double)sampling__bound(i + 1), low;
		uint64_t most = d->bytes + d->others;

		if (!d->others) /* every block has a stack: nothing to estimate */
			continue;
		low = lower_limit(d->count) * bound;
		/* The row has at least its blocks in the sample, and at most all blocks without a
		 * stack in addition. A lower limit above that is wrong. */
		e.bytes += clamp((double)d->count * bound, d->bytes, most) - d->bytes;
		e.low += clamp(low > (double)most ? 0 : low, d->bytes, most) - d->bytes;
		e.high += clamp(upper_limit(d->count) * bound, d->bytes, most) - d->bytes;
	}
	return e;
}

struct sampled sampling__pieces(uint64_t bytes, const struct pieces *p)
{
	struct sampled e = { bytes, bytes, bytes };
	double size, n, low, high, sure = (double)(bytes - p->bytes);

	if (!p->bytes || p->squares <= 0)
		return e;
	/* Treat the pieces as n pieces of equal size whose sum varies as much. A single piece
	 * counts as one even if little of it is resident. */
	size = p->squares / (double)p->bytes;
	n = (double)p->bytes / size;
	if (n < 1)
		n = 1;
	low = sure + size * (n <= EXACT ? lower_limit((uint64_t)n) : approximate_mean(n, -NORMAL));
	high = sure + size * (n < EXACT ? upper_limit((uint64_t)ceil(n))
					: approximate_mean(n + 1, NORMAL));
	e.low = clamp(low, bytes - p->bytes, bytes);
	e.high = clamp(high, bytes, bytes + p->others);
	return e;
}
