/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/detail.h"

#include <errno.h>
#include <inttypes.h>
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
		n += *p == ':';
	if (n / 3 >= DETAIL_MAX)
		return 0;
	return facts__setf(f, "cost.changes", "%s%s%" PRIu64 ":%" PRIu32 ":%" PRIu64 ":%" PRIu32,
			   was, *was ? " " : "", c->time, c->off, c->below, c->share);
}

static double number(const struct facts *f, const char *key, double unknown)
{
	const char *text = facts__get(f, key);
	char *end;
	double v = text ? strtod(text, &end) : 0;

	return text && end != text && v >= 0 && v < MILLION ? v : unknown;
}

bool detail__read(const struct facts *f, struct detail *ret)
{
	const char *text = facts__get(f, "cost.changes") ?: "";
	int len;

	*ret = (struct detail){ .limit = number(f, "cost.limit", 0),
				.share = number(f, "cost.share", -1) };
	for (; ret->n < DETAIL_MAX; text += len) {
		struct detail_change *c = &ret->at[ret->n];

		len = 0;
		if (sscanf(text, "%" SCNu64 ":%" SCNu32 ":%" SCNu64 ":%" SCNu32 "%n", &c->time,
			   &c->off, &c->below, &c->share, &len) != 4 ||
		    !len || (ret->n && c->time < c[-1].time))
			break;
		ret->n++;
	}
	return ret->limit > 0;
}

char *detail__words(char *buf, size_t size, uint32_t off, uint64_t below)
{
	char bytes[24], sampled[64] = "";

	if (below)
		snprintf(sampled, sizeof(sampled), "%smost stacks of blocks below %s",
			 off ? ", " : "", text__bytes(bytes, sizeof(bytes), below));
	snprintf(buf, size, "%s%s%s%s", off & MT_OFF_NODES ? "backward nodes" : "",
		 (off & MT_OFF_NODES) && (off & MT_OFF_MODULES) ? ", " : "",
		 off & MT_OFF_MODULES ? "module calls" : "", sampled);
	return buf;
}

/* Writes when the part was missing: "from 1.52 s", "1.52 s to 40.1 s". part: an enum mt_off; 0:
 * stacks of small blocks. Returns the largest bound of these blocks, or 1; 0: never missing. */
static uint64_t missing(char *buf, size_t size, const struct detail *d, uint32_t part)
{
	uint64_t most = 0, first = 0, last = 0;
	char from[24], to[24];

	for (size_t i = 0; i < d->n; i++) {
		uint64_t is = part ? !!(d->at[i].off & part) : d->at[i].below;

		if (is && !most)
			first = d->at[i].time;
		last = is || !most ? 0 : last ? last : d->at[i].time;
		most = is > most ? is : most;
	}
	text__time(from, sizeof(from), first);
	if (last)
		snprintf(buf, size, "%s to %s", from, text__time(to, sizeof(to), last));
	else
		snprintf(buf, size, "from %s on", from);
	return most;
}

/* Two digits, or all before the point. Returns buf. */
static const char *percents(char *buf, size_t size, double share)
{
	snprintf(buf, size, share < 0.1 ? "%.2g" : "%.0f", share * 100);
	return buf;
}

char *detail__sentence(char *buf, size_t size, const struct facts *f)
{
	static const struct {
		uint32_t part;
		const char *name;
	} parts[] = { { MT_OFF_NODES, "backward nodes" },
		      { MT_OFF_MODULES, "module calls" },
		      { 0, "most stacks of blocks below " } };
	struct detail d;
	char number[32];
	size_t len = 0;
	bool some = false;

	buf[0] = '\0';
	if (!detail__read(f, &d) || (!d.n && d.share <= d.limit))
		return buf;
	if (d.share >= 0)
		len += snprintf(buf, size, "tracing took %s %% of the target's time, ",
				percents(number, sizeof(number), d.share));
	len += snprintf(buf + len, size - len, "the limit was %s %%. ",
			percents(number, sizeof(number), d.limit));
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && len < size; i++) {
		char when[64], bytes[24] = "";
		uint64_t most = missing(when, sizeof(when), &d, parts[i].part);

		if (!most)
			continue;
		if (!parts[i].part)
			text__bytes(bytes, sizeof(bytes), most);
		len += snprintf(buf + len, size - len, "%s%s%s (%s)",
				some ? ", " : "Not recorded: ", parts[i].name, bytes, when);
		some = true;
	}
	if (len < size)
		snprintf(buf + len, size - len, "%sEvery byte is counted.", some ? ". " : "");
	return buf;
}

void detail__put(struct json *j, const struct facts *f)
{
	char text[DETAIL_TEXT];
	struct detail d;

	if (!detail__read(f, &d))
		return;
	json__open_object(j, "detail");
	json__double(j, "limit", d.limit, 6);
	if (d.share >= 0)
		json__double(j, "share", d.share, 6);
	else
		json__null(j, "share");
	json__string(j, "text", *detail__sentence(text, sizeof(text), f) ? text : NULL);
	json__open_array(j, "changes");
	for (size_t i = 0; i < d.n; i++) {
		json__open_object(j, NULL);
		json__seconds(j, "time", d.at[i].time, 9);
		json__bool(j, "backward_nodes", !(d.at[i].off & MT_OFF_NODES));
		json__bool(j, "module_calls", !(d.at[i].off & MT_OFF_MODULES));
		json__uint(j, "sampled_below", d.at[i].below);
		json__double(j, "share_before", d.at[i].share / MILLION, 6);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

char *detail__mark(char *buf, size_t size, uint32_t off, uint64_t below)
{
	char sampled[64] = "";

	if (below)
		snprintf(sampled, sizeof(sampled), "%s" MARK_BELOW "%" PRIu64 " B", off ? ", " : "",
			 below);
	snprintf(buf, size, MARK "%s%s%s%s%s", off || below ? "without " : "all",
		 off & MT_OFF_NODES ? "backward nodes" : "",
		 (off & MT_OFF_NODES) && (off & MT_OFF_MODULES) ? ", " : "",
		 off & MT_OFF_MODULES ? "module calls" : "", sampled);
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
