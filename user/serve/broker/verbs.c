/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of requests, and those that need no worker. */
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/capture.h"
#include "serve/broker/jobs.h"
#include "serve/broker/peers.h"
#include "serve/broker/processes.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"
#include "serve/broker/upload.h"

/* The functions below handle the requests of their names, and answer them. */
static void stop_capture(struct peer *p, json_t *msg)
{
	struct trace *t = trace__asked(p, msg, "trace_id");

	if (!t)
		return;
	if (t->uploaded) {
		ask__refuse(p, ask__id(msg), 409, "trace_id",
			    "trace_id: %s is an upload, not a capture; DELETE ends it", t->id);
		return;
	}
	if (t->state != TRACE_STARTING && t->state != TRACE_CAPTURING) {
		ask__refuse(p, ask__id(msg), 409, "trace_id", "trace_id: %s is no longer capturing",
			    t->id);
		return;
	}
	capture__stop(t);
	ask__answer(p, ask__id(msg), json_pack("{s:o}", "trace", trace__facts(t)), /*fd=*/-1);
}

static void delete_trace(struct peer *p, json_t *msg)
{
	struct trace *t = trace__asked(p, msg, "trace_id");
	size_t left = 0;

	if (!t)
		return;
	trace__delete(p->b, t);
	for (size_t i = 0; i < p->b->traces.n; i++)
		left += !p->b->traces.v[i]->dropping;
	ask__answer(p, ask__id(msg), json_pack("{s:I}", "remaining", (json_int_t)left), /*fd=*/-1);
}

static void cancel_job(struct peer *p, json_t *msg)
{
	static const struct field fields[] = { FIELD("asked", INTEGER, .required = true, .min = 1,
						     .max = FIELD_COUNT_MAX, .nullable = true,
						     .help = "must be the id of a request"),
					       { 0 } };

	if (!ask__fits(p, msg, fields))
		return;
	jobs__cancel(p->b, p, (json_int_t)ask__count(msg, "asked", 0));
	ask__answer(p, ask__id(msg), /*doc=*/NULL, /*fd=*/-1);
}

/* The trace whose recording (*export NULL) or exported file (*export) has this name; NULL: none. */
static struct trace *trace_of_file(struct broker *b, const char *file,
				   const struct trace_export **export)
{
	*export = NULL;
	for (size_t i = 0; i < b->traces.n; i++) {
		struct trace *t = b->traces.v[i];

		if (t->dropping)
			continue;
		/* A finishing trace is excluded, because no worker has checked the file yet. */
		if (!strcmp(t->file, file) && t->state == TRACE_DONE)
			return t;
		for (size_t k = 0; k < t->n_exports; k++) {
			if (!strcmp(t->exports[k].file, file)) {
				*export = &t->exports[k];
				return t;
			}
		}
	}
	return NULL;
}

/* Compares the name with known files; the request's text is never used as a path. */
static void open_file(struct peer *p, json_t *msg)
{
	const struct trace_export *e;
	static const struct field fields[] = { ASK_TEXT("file"), { 0 } };
	const char *file;
	struct trace *t;
	uint64_t size = 0;
	char clean[300];
	int fd;

	if (!ask__fits(p, msg, fields))
		return;
	file = ask__text(msg, "file") ?: "";
	t = *file ? trace_of_file(p->b, file, &e) : NULL;
	if (!t) {
		ask__refuse(p, ask__id(msg), *file ? 404 : 422, "file", "file: no file named '%s'",
			    text__clean(clean, sizeof(clean), file, strlen(file)));
		return;
	}
	fd = e ? store__open_file(&p->b->store, e->file, &size) : trace__open(p->b, t, &size);
	if (fd < 0) {
		ask__refuse(p, ask__id(msg), 503, "file", "file: %s cannot be opened: %s",
			    e ? e->file : t->file, strerror(-fd));
		return;
	}
	ask__answer(p, ask__id(msg),
		    json_pack("{s:I,s:s}", "size", (json_int_t)size, "type",
			      e ? e->type : jobs__content_type(t->file)),
		    fd);
}

/* Forwards the counts of pushed profiles and metrics, for /metrics. */
static void forward_counts(struct peer *p, json_t *msg)
{
	static const char *const ways[] = { "pyroscope", "otlp", "otlp_profiles" },
				 *const counts[] = { "sent", "failed", "dropped" };
	json_t *o = json_pack("{s:s}", "event", "push");

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		const json_t *way = json_object_get(msg, ways[i]);
		json_t *copy;

		if (!way)
			continue;
		copy = json_object();
		for (size_t k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
			json_int_t n = json_integer_value(json_object_get(way, counts[k]));

			json_object_set_new(copy, counts[k], json_integer(n > 0 ? n : 0));
		}
		json_object_set_new(o, ways[i], copy);
	}
	peers__tell(p->b, o, /*fd=*/-1, /*soft=*/false);
	ask__answer(p, ask__id(msg), /*doc=*/NULL, /*fd=*/-1);
}

/* ---- the table of requests ---- */

enum verb_flags {
	OF_PROCESS = 1, /* about a process; a new process needs a search first */
	OF_PUSH = 2,	/* from push only */
};

static const struct verb {
	const char *name;
	void (*handle)(struct peer *p, json_t *msg);
	unsigned flags; /* enum verb_flags */
} verbs[] = {
	{ "cancel", cancel_job, 0 },   { "capture", capture__asked, OF_PROCESS },
	{ "compare", jobs__asked, 0 }, { "delete", delete_trace, 0 },
	{ "devices", jobs__asked, 0 }, { "diagnose", jobs__asked, 0 },
	{ "diff", jobs__asked, 0 },    { "dump", jobs__asked, OF_PROCESS },
	{ "export", jobs__asked, 0 },  { "leaks", jobs__asked, 0 },
	{ "open", open_file, 0 },      { "pushed", forward_counts, OF_PUSH },
	{ "ranks", jobs__asked, 0 },   { "report", jobs__asked, 0 },
	{ "stop", stop_capture, 0 },   { "upload", upload__asked, 0 },
};

void ask__handle(struct peer *p, json_t *msg)
{
	const char *action = json_string_value(json_object_get(msg, "do"));
	json_int_t id = ask__id(msg);

	if (!action || id < 1 || (p->kind != PEER_WEB && p->kind != PEER_PUSH)) {
		log_err("received a message that is not a request: stopping its sender");
		p->broken = true;
		return;
	}
	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		const struct verb *v = &verbs[i];

		if (strcmp(action, v->name) != 0 || ((v->flags & OF_PUSH) && p->kind != PEER_PUSH))
			continue;
		/* If processes__hold() keeps the request, it is handled after the search. */
		if (!(v->flags & OF_PROCESS) || !processes__hold(p, msg, v->handle))
			v->handle(p, msg);
		return;
	}
	ask__refuse(p, id, 422, "do", "do: unknown action");
}
