/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What web and push ask. They speak to the outside, so nothing of what they say is believed. */
#include "serve/broker/broker.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/passed_files.h"
#include "lib/text.h"
#include "log/log.h"
#include "process/proc.h"

#define TEXT_MOST 1024			 /* 256 characters, as web counts them */
#define SCAN_WITHIN UINT64_C(3000000000) /* ns */

/* ---- answers ---- */

json_int_t ask__id(const json_t *msg)
{
	return json_integer_value(json_object_get(msg, "id"));
}

void broker__answer(struct peer *p, json_int_t id, json_t *doc, int fd)
{
	json_t *o = doc ? doc : json_object();

	/* Who asks without reading what is answered does not get all our descriptors. */
	if (fd >= 0 && p->link && link__crowded(p->link)) {
		close(fd);
		json_decref(o);
		broker__refuse(p, id, 503, NULL, "%d answers wait already: try again in a moment",
			       LINK_FDS);
		return;
	}
	if (o) {
		json_object_set_new(o, "id", json_integer(id));
		json_object_set_new(o, "ok", json_true());
	}
	peer__send(p, o, fd);
}

void broker__refuse(struct peer *p, json_int_t id, int status, const char *field, const char *fmt,
		    ...)
{
	char text[700], clean[700];
	va_list ap;
	json_t *o;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text__clean(clean, sizeof(clean), text, strlen(text));
	o = json_pack("{s:I,s:b,s:i,s:s}", "id", id, "ok", 0, "status", status, "detail", clean);
	if (o && field)
		json_object_set_new(o, "field", json_string(field));
	peer__send(p, o, -1);
}

/* ---- what comes with a question ---- */

bool ask__number(struct peer *p, json_t *msg, const char *key, double min, double max, double *ret)
{
	const json_t *v = json_object_get(msg, key);
	double d = json_number_value(v);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_number(v) || !isfinite(d) || d < min || d > max) {
		broker__refuse(p, ask__id(msg), 422, key, "%s: has to be a number from %g to %g",
			       key, min, max);
		return false;
	}
	*ret = d;
	return true;
}

bool ask__count(struct peer *p, json_t *msg, const char *key, uint64_t min, uint64_t max,
		uint64_t *ret)
{
	const json_t *v = json_object_get(msg, key);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)min ||
	    json_integer_value(v) > (json_int_t)max) {
		broker__refuse(p, ask__id(msg), 422, key,
			       "%s: has to be a whole number from %llu to %llu", key,
			       (unsigned long long)min, (unsigned long long)max);
		return false;
	}
	*ret = (uint64_t)json_integer_value(v);
	return true;
}

bool ask__text(struct peer *p, json_t *msg, const char *key, const char **ret)
{
	const json_t *v = json_object_get(msg, key);
	const char *s = json_string_value(v);

	if (!v || json_is_null(v))
		return true;
	if (!s || !*s || json_string_length(v) != strlen(s) || strlen(s) > TEXT_MOST) {
		broker__refuse(p, ask__id(msg), 422, key, "%s: has to be text of 1 to %d bytes",
			       key, TEXT_MOST);
		return false;
	}
	for (const char *c = s; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127) {
			broker__refuse(p, ask__id(msg), 422, key,
				       "%s: has a control character in it", key);
			return false;
		}
	*ret = s;
	return true;
}

struct trace *ask__trace(struct peer *p, json_t *msg, const char *key)
{
	const char *id = NULL;
	struct trace *t;
	char clean[300];

	if (!ask__text(p, msg, key, &id))
		return NULL;
	t = id ? trace__find(p->b, id) : NULL;
	if (!id)
		broker__refuse(p, ask__id(msg), 422, key, "%s: is missing", key);
	else if (!t)
		broker__refuse(p, ask__id(msg), 404, key, "Trace %s not found",
			       text__clean(clean, sizeof(clean), id, strlen(id)));
	return t;
}

/* ---- which process ---- */

static struct broker_process *process_of(struct broker *b, pid_t pid)
{
	for (size_t i = 0; i < b->n_processes; i++)
		if (b->processes[i].pid == pid)
			return &b->processes[i];
	return NULL;
}

static const struct serve_target *target_named(const struct broker *b, const char *name)
{
	for (size_t i = 0; i < b->args->n_targets; i++)
		if (*b->args->targets[i].name && !strcmp(b->args->targets[i].name, name))
			return &b->args->targets[i];
	return NULL;
}

/* The one process of a target now. NULL: refused. */
static struct broker_process *only_one(struct peer *p, json_int_t id, const struct serve_target *t)
{
	const json_t *pids = NULL, *o;
	size_t i, n;

	json_array_foreach(json_object_get(p->b->targets, "targets"), i, o)
	{
		const char *name = json_string_value(json_object_get(o, "name"));

		if (name && !strcmp(name, t->name))
			pids = json_object_get(o, "pids");
	}
	n = json_array_size(pids);
	if (n > 1) {
		broker__refuse(
			p, id, 409, "model_name",
			"%zu processes are of target '%s' now: ask for one of them by its pid", n,
			t->name);
		return NULL;
	}
	if (n == 1) {
		struct broker_process *q = process_of(
			p->b, (pid_t)json_integer_value(json_array_get(pids, 0)));

		if (q)
			return q;
	}
	broker__refuse(p, id, 404, "model_name", "no process of target '%s' is there now", t->name);
	return NULL;
}

/* Is it still the process that was looked at? */
static bool still_there(const struct broker_process *q)
{
	struct proc *proc = proc__open(q->pid);
	bool there = proc && proc__alive(proc) && proc__started(proc) == q->boot_ns;

	proc__free(proc);
	return there;
}

static const struct serve_target *of_process(const struct broker *b, const struct broker_process *q)
{
	const char *name = json_string_value(json_object_get(q->msg, "target"));

	return name ? target_named(b, name) : NULL;
}

struct broker_process *broker__find(struct peer *p, json_int_t id, json_t *msg,
				    const struct serve_target **target)
{
	struct broker *b = p->b;
	struct broker_process *q;
	const char *name = NULL;
	uint64_t pid = 0;
	char clean[300];

	*target = NULL;
	if (!ask__count(p, msg, "pid", 1, INT32_MAX, &pid) ||
	    !ask__text(p, msg, "model_name", &name))
		return NULL;
	if (!pid && !name) {
		broker__refuse(p, id, 422, "model_name",
			       "model_name or pid: one of them has to say what is meant");
		return NULL;
	}
	if (!b->can_trace) {
		broker__refuse(p, id, 503, NULL, "nothing can be traced here: %s", b->why);
		return NULL;
	}
	*target = name ? target_named(b, name) : NULL;
	if (name && !*target) {
		broker__refuse(p, id, 404, "model_name",
			       "Target %s not found; GET /api/targets lists them",
			       text__clean(clean, sizeof(clean), name, strlen(name)));
		return NULL;
	}
	if (!pid && (*target)->kind == TARGET_COMMAND)
		return NULL;
	q = pid ? process_of(b, (pid_t)pid) : only_one(p, id, *target);
	if (pid && !q) {
		*target = NULL;
		broker__refuse(p, id, 404, "pid",
			       "Process %d not found among those of the targets; GET /api/targets "
			       "lists them",
			       (int)pid);
	}
	if (q && !still_there(q)) {
		*target = NULL;
		broker__refuse(p, id, 404, pid ? "pid" : "model_name",
			       "PID %d has ended, or may not be traced", (int)q->pid);
		return NULL;
	}
	if (!q)
		*target = NULL;
	if (q && !*target)
		*target = of_process(b, q);
	return q;
}

/* ---- a process that has come a moment ago ---- */

/* Is it asked for one that is not known, and may be there all the same? */
static bool may_have_come(const struct broker *b, const json_t *msg)
{
	const json_t *pid = json_object_get(msg, "pid");
	const char *name = json_string_value(json_object_get(msg, "model_name"));
	const struct serve_target *t = name ? target_named(b, name) : NULL;
	const json_t *o;
	size_t i;

	if (!b->can_trace || !b->peers[PEER_LOOK].link)
		return false;
	if (json_is_integer(pid))
		return !process_of((struct broker *)b, (pid_t)json_integer_value(pid));
	if (!t || t->kind == TARGET_COMMAND)
		return false;
	json_array_foreach(json_object_get(b->targets, "targets"), i, o)
	{
		const char *its = json_string_value(json_object_get(o, "name"));

		if (its && !strcmp(its, t->name))
			return !json_array_size(json_object_get(o, "pids"));
	}
	return true;
}

/* True: it waits until somebody has looked. */
static bool hold(struct peer *p, json_t *msg)
{
	struct broker *b = p->b;

	if (b->n_held == BROKER_WAITING || !may_have_come(b, msg))
		return false;
	b->held[b->n_held++] = (struct held){ .peer = p, .msg = json_incref(msg) };
	if (!b->scanning) {
		b->scanning = true;
		b->scan_until = clock__monotonic() + SCAN_WITHIN;
		peer__send(&b->peers[PEER_LOOK], json_pack("{s:s}", "do", "scan"), -1);
	}
	return true;
}

void broker__forget_held(struct broker *b, const struct peer *p)
{
	size_t n = 0;

	for (size_t i = 0; i < b->n_held; i++) {
		if (b->held[i].peer == p)
			json_decref(b->held[i].msg);
		else
			b->held[n++] = b->held[i];
	}
	b->n_held = n;
}

/* ---- the questions that are answered at once ---- */

static void stop(struct peer *p, json_t *msg)
{
	struct trace *t = ask__trace(p, msg, "trace_id");

	if (!t)
		return;
	if (t->state != TRACE_STARTING && t->state != TRACE_CAPTURING) {
		broker__refuse(p, ask__id(msg), 409, "trace_id",
			       "trace_id: %s does not capture any more", t->id);
		return;
	}
	capture__stop(p->b, t);
	broker__answer(p, ask__id(msg), json_pack("{s:o}", "trace", trace__facts(t)), -1);
}

static void delete (struct peer *p, json_t *msg)
{
	struct trace *t = ask__trace(p, msg, "trace_id");
	size_t left = 0;

	if (!t)
		return;
	trace__delete(p->b, t);
	for (size_t i = 0; i < p->b->n_traces; i++)
		left += !p->b->traces[i]->dropping;
	broker__answer(p, ask__id(msg), json_pack("{s:I}", "remaining", (json_int_t)left), -1);
}

static void cancel(struct peer *p, json_t *msg)
{
	uint64_t asked = 0;

	if (!ask__count(p, msg, "asked", 1, INT64_MAX, &asked))
		return;
	if (!asked) {
		broker__refuse(p, ask__id(msg), 422, "asked",
			       "asked: has to be the id of a question");
		return;
	}
	jobs__cancel(p->b, p, (json_int_t)asked);
	broker__answer(p, ask__id(msg), NULL, -1);
}

static struct trace *trace_of_file(struct broker *b, const char *file,
				   const struct trace_export **export)
{
	*export = NULL;
	for (size_t i = 0; i < b->n_traces; i++) {
		struct trace *t = b->traces[i];

		if (t->dropping)
			continue;
		/* While it is finishing, no worker has seen yet whether it is a recording. */
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

/* A name is looked up among those that were told; what is opened is never made of it. */
static void open_file(struct peer *p, json_t *msg)
{
	const struct trace_export *e;
	const char *file = NULL;
	struct trace *t;
	uint64_t size = 0;
	char clean[300];
	int fd;

	if (!ask__text(p, msg, "file", &file))
		return;
	t = file ? trace_of_file(p->b, file, &e) : NULL;
	if (!t) {
		broker__refuse(p, ask__id(msg), file ? 404 : 422, "file",
			       "file: there is none of the name '%s'",
			       text__clean(clean, sizeof(clean), file ? file : "",
					   file ? strlen(file) : 0));
		return;
	}
	fd = e ? store__open_file(&p->b->store, e->file, &size) : trace__open(p->b, t, &size);
	if (fd < 0) {
		broker__refuse(p, ask__id(msg), 503, "file", "file: %s cannot be opened: %s",
			       e ? e->file : t->file, strerror(-fd));
		return;
	}
	broker__answer(p, ask__id(msg),
		       json_pack("{s:I,s:s}", "size", (json_int_t)size, "type",
				 e ? e->type : broker_formats__content_type(t->file)),
		       fd);
}

/* What has been sent to other servers: for /metrics. */
static void pushed(struct peer *p, json_t *msg)
{
	static const char *const ways[] = { "pyroscope", "otlp" }, *const counts[] = { "sent",
										       "failed",
										       "dropped" };
	json_t *o = json_pack("{s:s}", "event", "push");

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		json_t *way = json_object_get(msg, ways[i]), *to = way ? json_object() : NULL;

		for (size_t k = 0; to && k < sizeof(counts) / sizeof(*counts); k++) {
			json_int_t n = json_integer_value(json_object_get(way, counts[k]));

			json_object_set_new(to, counts[k], json_integer(n > 0 ? n : 0));
		}
		if (to)
			json_object_set_new(o, ways[i], to);
	}
	broker__tell(p->b, o, -1, false);
	broker__answer(p, ask__id(msg), NULL, -1);
}

/* ---- at the beginning ---- */

static json_t *hello(const struct broker *b)
{
	const struct serve_args *a = b->args;
	json_t *limits = json_pack("{s:I,s:i,s:i,s:f,s:I}", "max_events", (json_int_t)a->max_events,
				   "max_traces", (int)a->max_traces, "max_captures",
				   (int)a->max_captures, "max_duration_s",
				   (double)a->max_duration / 1e9, "disk_bytes",
				   (json_int_t)(a->max_disk > INT64_MAX ? INT64_MAX : a->max_disk));
	json_t *o = json_pack("{s:s,s:s,s:f,s:b,s:o,s:o,s:f}", "event", "hello", "version",
			      MEMTRACE_VERSION, "start", b->start, "can_trace", b->can_trace,
			      "limits", limits, "formats", broker_formats__all(), "interval",
			      (double)a->interval / 1e9);

	if (o && !b->can_trace)
		json_object_set_new(o, "why", json_string(b->why));
	return o;
}

/* Those of commands and those that nobody looks at yet are known, too. */
static json_t *first_targets(const struct broker *b)
{
	static const char *const kinds[] = { [TARGET_PID] = "pid",
					     [TARGET_PATTERN] = "pattern",
					     [TARGET_COMMAND] = "command",
					     [TARGET_ALL] = "all" };
	json_t *list = json_array();

	for (size_t i = 0; i < b->args->n_targets; i++) {
		const struct serve_target *t = &b->args->targets[i];
		json_t *o = json_pack("{s:s,s:s,s:[]}", "name", t->name, "kind", kinds[t->kind],
				      "pids");

		if (o && t->kind == TARGET_PATTERN)
			json_object_set_new(o, "pattern", json_string(t->text));
		json_array_append_new(list, o);
	}
	return json_pack("{s:s,s:o}", "event", "targets", "targets", list);
}

static void meet(struct peer *p)
{
	struct broker *b = p->b;

	if (!b->targets)
		b->targets = first_targets(b);
	peer__send(p, hello(b), -1);
	peer__send(p, json_incref(b->targets), -1);
	for (size_t i = 0; i < b->n_processes; i++)
		peer__send(p, json_incref(b->processes[i].msg), -1);
	for (size_t i = 0; i < b->n_traces; i++)
		trace__tell_one(p, b->traces[i]);
	p->met = true;
}

void peer__meet(struct peer *p)
{
	if (p->link && !p->met)
		meet(p);
}

static void of_process_asked(struct peer *p, json_t *msg)
{
	if (!strcmp(json_string_value(json_object_get(msg, "do")), "capture"))
		capture__asked(p, msg);
	else
		jobs__asked(p, msg, "dump");
}

void broker__release(struct broker *b)
{
	struct held held[BROKER_WAITING];
	size_t n = b->n_held;

	memcpy(held, b->held, n * sizeof(*held));
	b->n_held = 0;
	b->scanning = false;
	for (size_t i = 0; i < n; i++) {
		of_process_asked(held[i].peer, held[i].msg);
		json_decref(held[i].msg);
	}
}

void broker__asked(struct peer *p, json_t *msg)
{
	static const char *const jobs[] = { "report", "leaks", "diff", "compare", "export" };
	const char *what = json_string_value(json_object_get(msg, "do"));
	json_int_t id = ask__id(msg);

	if (!what || id < 1 || (p->kind != PEER_WEB && p->kind != PEER_PUSH)) {
		log_err("a message that is no question: its sender is ended");
		p->broken = true;
		return;
	}
	if (!strcmp(what, "capture") || !strcmp(what, "dump")) {
		if (!hold(p, msg))
			of_process_asked(p, msg);
		return;
	}
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
		if (!strcmp(what, jobs[i])) {
			jobs__asked(p, msg, jobs[i]);
			return;
		}
	}
	if (!strcmp(what, "stop"))
		stop(p, msg);
	else if (!strcmp(what, "delete"))
		delete (p, msg);
	else if (!strcmp(what, "cancel"))
		cancel(p, msg);
	else if (!strcmp(what, "open"))
		open_file(p, msg);
	else if (!strcmp(what, "pushed") && p->kind == PEER_PUSH)
		pushed(p, msg);
	else
		broker__refuse(p, id, 422, "do", "do: there is no such thing");
}

/* ---- what is looked at ---- */

/* The last one takes its place; what was the last one's holds nothing any more, for whoever comes
 * there next. */
static void drop_process(struct broker *b, struct broker_process *q)
{
	json_decref(q->msg);
	*q = b->processes[--b->n_processes];
	b->processes[b->n_processes] = (struct broker_process){ 0 };
}

static void process_changed(struct broker *b, json_t *msg)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(msg, "pid"));
	const char *name = json_string_value(json_object_get(msg, "name"));
	struct broker_process *q = process_of(b, pid);

	if (json_is_true(json_object_get(msg, "gone"))) {
		if (q) {
			drop_process(b, q);
		}
	} else {
		if (!q && b->n_processes == BROKER_PROCESSES)
			return;
		q = q ? q : &b->processes[b->n_processes++];
		json_decref(q->msg);
		*q = (struct broker_process){ .pid = pid,
					      .boot_ns = (uint64_t)json_integer_value(
						      json_object_get(msg, "boot_ns")),
					      .msg = json_incref(msg) };
		snprintf(q->name, sizeof(q->name), "%s", name ? name : "");
	}
	broker__tell(b, json_incref(msg), -1, false);
}

/* The one who looks now has looked at all: what the one before it told of and it did not is there
 * no more. */
static void drop_stale(struct broker *b)
{
	for (size_t i = b->n_processes; i-- > 0;) {
		struct broker_process *q = &b->processes[i];
		json_t *gone = q->stale ? json_copy(q->msg) : NULL;

		if (!q->stale)
			continue;
		if (gone)
			json_object_set_new(gone, "gone", json_true());
		broker__tell(b, gone, -1, false);
		drop_process(b, q);
	}
}

void broker__looked(struct broker *b, json_t *msg)
{
	const char *event = json_string_value(json_object_get(msg, "event"));

	if (!event)
		return;
	if (!strcmp(event, "targets")) {
		drop_stale(b);
		json_decref(b->targets);
		b->targets = json_incref(msg);
		broker__tell(b, json_incref(msg), -1, false);
	} else if (!strcmp(event, "scanned")) {
		broker__release(b);
	} else if (!strcmp(event, "process")) {
		process_changed(b, msg);
	} else if (!strcmp(event, "sample")) {
		broker__tell(b, json_incref(msg), -1, true);
	}
}
