/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Events as lines on standard output: text for people, or JSON for journald and similar. */
#include "watch/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"

static const char *now_text(char buf[40])
{
	return text__date(buf, 40, clock__read(CLOCK_REALTIME));
}

/* Fields at the start of every line. Strings may be NULL or "": the field is left out. */
struct line {
	pid_t pid; /* process of the event; 0: none */
	const char *name, *container, *pod, *device;
	int64_t rank;
};

static struct json *begin_json(const char *event, const struct line *l)
{
	struct json *j = json__new(stdout, false);
	char time[40];

	if (!j)
		return NULL;
	json__open_object(j, NULL);
	json__string(j, "time", now_text(time));
	json__string(j, "event", event);
	if (l->pid) {
		json__uint(j, "pid", (uint64_t)l->pid);
		json__string(j, "name", l->name);
	}
	if (l->rank >= 0)
		json__uint(j, "rank", (uint64_t)l->rank);
	if (l->container && *l->container)
		json__string(j, "container", l->container);
	if (l->pod && *l->pod)
		json__string(j, "pod", l->pod);
	if (l->device && *l->device)
		json__string(j, "device", l->device);
	return j;
}

static void end_json(struct json *j)
{
	json__close_object(j);
	json__free(j);
}

static void begin_text(const char *event, const struct line *l)
{
	char time[40];

	printf("%s %s", now_text(time), event);
	if (l->pid) {
		printf(" PID %d (%s)", (int)l->pid, l->name);
		if (l->rank >= 0)
			printf(" rank %" PRId64, l->rank);
		if (l->device && *l->device)
			printf(" %s", l->device);
	}
	fputs(": ", stdout);
}

static void put_text(const char *text)
{
	char clean[4 * WATCH_TEXT];

	printf("%s", text__clean(clean, sizeof(clean), text, strlen(text)));
}

void watch_say__target(const struct watch *w, const char *event, const struct watch_target *t,
		       const char *text)
{
	struct line l = { .rank = -1 };
	struct json *j;

	if (t)
		l = (struct line){ t->pid,	  t->name, t->cgroup.container,
				   t->cgroup.pod, NULL,	   t->rank };
	if (!w->args.json) {
		begin_text(event, &l);
		put_text(text);
		putchar('\n');
		return;
	}
	j = begin_json(event, &l);
	if (!j)
		return;
	json__string(j, "text", text);
	end_json(j);
}

/* Writes a value of a condition: share if its unit is a share, otherwise value. */
static void put_amount(struct json *j, const char *key, const struct cond_result *r, uint64_t value,
		       double share)
{
	if (r->unit == COND_SHARE)
		json__double(j, key, share, /*decimals=*/6);
	else if (r->unit == COND_TIME)
		json__seconds(j, key, value, /*decimals=*/9);
	else
		json__uint(j, key, value);
}

void watch_say__rule(const struct watch *w, const char *event, const struct watch_target *t,
		     const struct watch_device *d, const char *rule, const struct cond_result *r,
		     const struct host_growth_verdict *grown)
{
	char device[16];
	struct line l = { t->pid,
			  t->name,
			  t->cgroup.container,
			  t->cgroup.pod,
			  watch_device__name(t, d, device),
			  t->rank };
	struct json *j;

	if (!w->args.json) {
		begin_text(event, &l);
		put_text(r->text);
		printf(" (rule ");
		put_text(rule);
		printf(")\n");
		return;
	}
	j = begin_json(event, &l);
	if (!j)
		return;
	json__string(j, "rule", rule);
	json__string(j, "text", r->text);
	json__string(j, "figure", cond__figure_name(r->figure));
	if (r->verdict != COND_UNKNOWN) {
		put_amount(j, "value", r, r->value, r->share);
		put_amount(j, "limit", r, r->limit, r->share_limit);
	}
	if (grown)
		host_growth__json(j, grown);
	end_json(j);
}

/* True for events about a complete recording, which name its file. */
static bool has_file(const char *event)
{
	return !strcmp(event, "captured") || !strcmp(event, "killed");
}

/* Writes a list of codes with commas as the array "findings". */
static void put_findings(struct json *j, const char *codes)
{
	char code[64];
	size_t len;

	json__open_array(j, "findings");
	for (; *codes; codes += len + (codes[len] == ',')) {
		len = strcspn(codes, ",");
		snprintf(code, sizeof(code), "%.*s", (int)len, codes);
		json__string(j, NULL, code);
	}
	json__close_array(j);
}

void watch_say__shot(const struct watch *w, const char *event, const struct watch_shot *s,
		     const char *text)
{
	struct line l = { s->pid, s->name, s->container, s->pod, s->device, s->rank };
	struct json *j;

	if (!w->args.json) {
		begin_text(event, &l);
		put_text(text);
		if (!strcmp(event, "snapshot") || has_file(event)) {
			printf(": ");
			put_text(!strcmp(event, "snapshot") ? s->snapshot : s->file);
		}
		putchar('\n');
		return;
	}
	j = begin_json(event, &l);
	if (!j)
		return;
	json__string(j, "rule", s->rule);
	json__string(j, "text", text);
	if (*s->snapshot)
		json__string(j, "snapshot", s->snapshot);
	if (has_file(event)) {
		json__string(j, "file", s->file);
		json__uint(j, "events", s->events);
		json__uint(j, "lost", s->lost);
		json__uint(j, "bytes", s->bytes);
		if (*s->detail)
			json__string(j, "detail", s->detail);
		if (*s->blame)
			json__string(j, "blame", s->blame);
		if (s->diagnosed)
			put_findings(j, s->findings);
	}
	end_json(j);
}

const char *watch_device__name(const struct watch_target *t, const struct watch_device *d,
			       char buf[16])
{
	if (!d || d == &t->self)
		return strcpy(buf, "");
	snprintf(buf, 16, "cuda:%u", (unsigned)(d - t->devices));
	return buf;
}
