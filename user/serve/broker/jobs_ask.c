/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Jobs for requests. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "export/export.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/jobs_internal.h"
#include "serve/broker/processes.h"
#include "serve/broker/trace.h"

#define COMPARED 16 /* traces of one comparison */

/* Adds --KEY=TEXT in one argument, so that the text cannot become an option. */
static bool put_text(struct job *j, struct peer *p, json_t *msg, const char *key)
{
	const char *text = NULL;

	if (!ask__text(p, msg, key, &text))
		return false;
	if (text)
		job__put(j, "--%s=%s", key, text);
	return true;
}

static bool put_top(struct job *j, struct peer *p, json_t *msg)
{
	uint64_t top = UINT64_MAX;

	if (!ask__count(p, msg, "top", 0, 1000000, &top))
		return false;
	if (top != UINT64_MAX)
		job__put(j, "--top=%" PRIu64, top);
	return true;
}

static bool add_trace(struct job *j, struct peer *p, json_t *msg, const char *key, struct trace *t)
{
	t = t ? t : trace__asked(p, msg, key);
	if (!t)
		return false;
	if (t->state != TRACE_DONE && t->state != TRACE_FINISHING) {
		ask__refuse(p, j->id, 409, key,
			    t->state == TRACE_FAILED ? "%s: %s failed, and nothing was recorded"
						     : "%s: %s still captures",
			    key, t->id);
		return false;
	}
	if (j->n_traces == SPAWN_FILES) {
		ask__refuse(p, j->id, 422, key, "%s: %d at most", key, SPAWN_FILES);
		return false;
	}
	j->traces[j->n_traces++] = t;
	job__put(j, "%s", t->file);
	return true;
}

static bool add_traces(struct job *j, struct peer *p, json_t *msg, size_t least, size_t most)
{
	const json_t *list = json_object_get(msg, "traces"), *v;
	char clean[300];
	size_t i;

	if (json_array_size(list) < least || json_array_size(list) > most) {
		ask__refuse(p, j->id, 422, "traces",
			    "traces: must be an array of %zu to %zu trace ids", least, most);
		return false;
	}
	json_array_foreach(list, i, v)
	{
		const char *id = json_string_value(v);
		struct trace *t = id ? trace__find(p->b, id) : NULL;

		if (!t) {
			id = id ? id : "";
			ask__refuse(p, j->id, 404, "traces", "Trace %s not found",
				    text__clean(clean, sizeof(clean), id, strlen(id)));
			return false;
		}
		if (!add_trace(j, p, msg, "traces", t))
			return false;
	}
	return true;
}

static bool ask_report(struct job *j, struct peer *p, json_t *msg)
{
	job__put(j, "report");
	job__put(j, "--format=json");
	return put_text(j, p, msg, "at") && put_text(j, p, msg, "by") &&
	       put_text(j, p, msg, "device") && put_text(j, p, msg, "filter") &&
	       put_text(j, p, msg, "frames") && put_top(j, p, msg) &&
	       add_trace(j, p, msg, "trace_id", NULL);
}

static bool ask_leaks(struct job *j, struct peer *p, json_t *msg)
{
	job__put(j, "leaks");
	job__put(j, "--format=json");
	job__put(j, "--steps");
	return put_text(j, p, msg, "by") && put_text(j, p, msg, "device") && put_top(j, p, msg) &&
	       add_trace(j, p, msg, "trace_id", NULL);
}

static bool ask_diff(struct job *j, struct peer *p, json_t *msg)
{
	job__put(j, "diff");
	job__put(j, "--format=json");
	return put_text(j, p, msg, "by") && put_text(j, p, msg, "at") &&
	       put_text(j, p, msg, "device") && put_top(j, p, msg) &&
	       add_trace(j, p, msg, "old", NULL) && add_trace(j, p, msg, "new", NULL);
}

static bool ask_compare(struct job *j, struct peer *p, json_t *msg)
{
	job__put(j, "compare");
	job__put(j, "--format=json");
	return put_text(j, p, msg, "device") && add_traces(j, p, msg, 2, COMPARED);
}

static bool ask_ranks(struct job *j, struct peer *p, json_t *msg)
{
	job__put(j, "report");
	job__put(j, "--format=json");
	job__put(j, "--together");
	job__put(j, "--outliers");
	return put_text(j, p, msg, "at") && put_text(j, p, msg, "by") &&
	       put_text(j, p, msg, "device") && add_traces(j, p, msg, 1, SPAWN_FILES);
}

static bool ask_dump(struct job *j, struct peer *p, json_t *msg)
{
	const struct serve_target *target;
	struct broker_process *q = processes__find(p, j->id, msg, &target);

	if (!q) {
		if (target)
			ask__refuse(p, j->id, 422, "model_name",
				    "model_name: '%s' is a command, which runs only while it is "
				    "captured",
				    target->name);
		return false;
	}
	job__put(j, "dump");
	job__put(j, "--format=json");
	job__put(j, "-p");
	job__put(j, "%d", (int)q->pid);
	return put_text(j, p, msg, "by") && put_top(j, p, msg);
}

static bool ask_export(struct job *j, struct peer *p, json_t *msg)
{
	const char *format = NULL, *at = NULL, *device = NULL;
	const struct export_format *f;
	const struct trace_export *e;
	struct trace *t;
	char clean[300];

	if (!ask__text(p, msg, "format", &format) || !ask__text(p, msg, "at", &at) ||
	    !ask__text(p, msg, "device", &device))
		return false;
	f = format ? export__find(format) : NULL;
	if (!f) {
		format = format ? format : "";
		ask__refuse(p, j->id, 422, "format",
			    "format: unknown format '%s'; GET /api/health lists the formats",
			    text__clean(clean, sizeof(clean), format, strlen(format)));
		return false;
	}
	job__put(j, "export");
	if (at)
		job__put(j, "--at=%s", at);
	if (device)
		job__put(j, "--device=%s", device);
	job__put(j, "-o");
	job__put(j, "-");
	job__put(j, "%s", f->name);
	if (!add_trace(j, p, msg, "trace_id", NULL))
		return false;
	t = j->traces[0];
	snprintf(j->key, sizeof(j->key), "%s\n%s\n%s", f->name, at ? at : "", device ? device : "");
	e = job__use_export(t, j->key);
	if (e) {
		job__answer_export(p, j->id, e);
		return false;
	}
	j->format = f;
	j->plain = !at && !device;
	return true;
}

static const struct sort {
	const char *name;
	enum job_kind kind;
	bool (*ask)(struct job *j, struct peer *p, json_t *msg);
} sorts[] = {
	{ "compare", JOB_DOCUMENT, ask_compare }, { "diff", JOB_DOCUMENT, ask_diff },
	{ "dump", JOB_DUMP, ask_dump },		  { "export", JOB_EXPORT, ask_export },
	{ "leaks", JOB_DOCUMENT, ask_leaks },	  { "ranks", JOB_DOCUMENT, ask_ranks },
	{ "report", JOB_DOCUMENT, ask_report },	  { 0 },
};

void jobs__asked(struct peer *p, json_t *msg)
{
	const char *what = json_string_value(json_object_get(msg, "do"));
	const struct sort *s = sorts;
	json_int_t id = ask__id(msg);
	struct job *j;

	if (jobs__waiting(p->b) >= BROKER_WAITING) {
		ask__refuse(p, id, 429, NULL,
			    "%d requests already wait for a worker: try again in a moment",
			    BROKER_WAITING);
		return;
	}
	while (s->name && strcmp(s->name, what) != 0)
		s++;
	j = s->name ? job__new(s->kind, p, id) : NULL;
	if (!j)
		ask__refuse(p, id, 503, NULL, "out of memory");
	else if (s->ask(j, p, msg))
		job__append(p->b, j);
	else
		job__free(j);
}
