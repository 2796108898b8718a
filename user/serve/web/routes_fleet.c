/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls for monitoring systems: metrics, and profiles captured on demand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/grammar.h"
#include "serve/web/web.h"

#define DEFAULT_SECONDS 5 /* default length of a capture; scrapers time out after 10 */

/* ---- metrics ---- */

/* Answers GET /metrics. */
static void send_metrics(struct request *r)
{
	const char *accept = MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, "Accept");
	bool openmetrics = accept && strcasestr(accept, "application/openmetrics-text");
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	web_devices__renew(r->web);
	if (out)
		metrics__write(out, request__state(r), &r->web->metrics, openmetrics);
	if (!out || fclose(out)) {
		free(text);
		request__error(r, 503, NULL, "no memory");
		return;
	}
	request__data(r, 200,
		      openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
				  : "text/plain; version=0.0.4; charset=utf-8",
		      text, size);
}

/* ---- profiles ---- */

static const struct field profile_query[] = {
	{ .name = "seconds",
	  .type = FIELD_NUMBER,
	  .min = 0.001,
	  .max = 3600,
	  .help = "How long to capture, in seconds (default 5).",
	  .example = "10" },
	{ .name = "target",
	  .type = FIELD_STRING,
	  .shortest = 1,
	  .longest = 64,
	  .help = "The name of a target; optional if there is only one." },
	{ .name = "pid",
	  .type = FIELD_INTEGER,
	  .min = 1,
	  .max = 2147483647,
	  .help = "A process of a target; overrides `target`." },
	{ .name = "trace_id",
	  .type = FIELD_STRING,
	  .shortest = 1,
	  .longest = STATE_ID - 1,
	  .help = "An existing trace to use instead of a new capture; overrides `pid` and "
		  "`target`." },
	{ .name = "at",
	  .type = FIELD_STRING,
	  .pattern = PATTERN_AT,
	  .help = "The moment that inuse_space shows: " HELP_AT "." },
	{ .name = "device",
	  .type = FIELD_STRING,
	  .pattern = PATTERN_DEVICE,
	  .help = "Only this device, such as cuda:0 or cpu. With host, the capture also records "
		  "all memory that the process maps on the host." },
	{ 0 },
};

/* A profile being made from a trace. */
struct profile {
	struct web *web;
	bool temporary;	   /* the trace was made for this profile and is deleted with it */
	char id[STATE_ID]; /* of the trace; "": not known yet */
};

/* Deletes a temporary trace. The broker's answer is ignored: no request waits for it. */
static void release_profile(void *ctx)
{
	struct profile *p = ctx;
	json_t *msg;

	if (p->temporary && *p->id) {
		msg = json_pack("{s:I, s:s, s:s}", "id", (json_int_t)++p->web->last_id, "do",
				"delete", "trace_id", p->id);
		if (msg)
			link__send(p->web->link, msg, /*fd=*/-1);
	}
	free(p);
}

/* The broker has opened the file: sends it. */
static void on_profile_opened(struct request *r, json_t *answer, int fd)
{
	struct profile *p = request__kept(r);
	char name[STATE_ID + 8];

	(void)answer;
	snprintf(name, sizeof(name), "%s.pb.gz", p->id);
	request__whole(r, "application/octet-stream", name, fd);
}

/* The broker has made the file: asks for it. */
static void on_profile_exported(struct request *r, json_t *answer, int fd)
{
	const char *file = json_string_value(json_object_get(answer, "file"));

	if (fd >= 0)
		close(fd);
	if (file)
		request__ask(r, json_pack("{s:s, s:s}", "do", "open", "file", file),
			     on_profile_opened);
	else
		request__error(r, 503, NULL, "cannot make the profile");
}

/* Asks the broker to make the file of the trace, which has ended. */
static void export_profile(struct request *r)
{
	const struct profile *p = request__kept(r);

	request__ask(r,
		     json_pack("{s:s, s:s, s:s, s:s*, s:s*}", "do", "export", "trace_id", p->id,
			       "format", "pprof", "at", request__query(r, "at"), "device",
			       request__query(r, "device")),
		     on_profile_exported);
}

/* Goes on to the export, or answers with an error, if the trace has ended; otherwise waits on. */
static void wait_for_end(struct request *r)
{
	const struct profile *p = request__kept(r);
	struct state_trace *t = serve_state__trace(request__state(r), p->id);
	const char *error;
	bool gone;

	if (!t) {
		request__error(r, 503, NULL, "the capture was deleted before it ended");
		return;
	}
	if (!serve_state__trace_ended(t))
		return;
	request__wait(r, NULL);
	if (!strcmp(serve_state__trace_state(t), "done")) {
		export_profile(r);
		return;
	}
	error = json_string_value(json_object_get(t->facts, "error"));
	if (!error)
		error = "the capture failed for an unknown reason";
	gone = json_integer_value(json_object_get(t->facts, "status")) == 404;
	request__error(r, gone ? 404 : 503, /*field=*/NULL, "%s", error);
}

/* The broker has started the capture: waits for its end. */
static void on_capture(struct request *r, json_t *answer, int fd)
{
	json_t *msg = json_pack("{s:s, s:O*}", "event", "trace", "trace",
				json_object_get(answer, "trace"));
	struct profile *p = request__kept(r);
	struct state_trace *t = NULL;

	r->held = false;
	if (fd >= 0)
		close(fd);
	if (!msg || serve_state__take(request__state(r), msg, /*fd=*/-1, &t) || !t) {
		request__error(r, 503, NULL, "the capture started, but its result is unknown");
	} else {
		memcpy(p->id, t->id, sizeof(p->id));
		request__wait(r, wait_for_end);
		wait_for_end(r);
	}
	json_decref(msg);
}

/* The target used if the request names none: the only target with processes. NULL: several
 * targets, or none. */
static const char *only_target(const struct state *s)
{
	const char *ret = NULL;

	for (size_t i = 0; i < s->n_processes; i++) {
		if (ret && strcmp(ret, s->processes[i]->target))
			return NULL;
		ret = s->processes[i]->target;
	}
	return ret && *ret ? ret : NULL;
}

/* The message that asks the broker for the capture. NULL: the request was answered with an
 * error. */
static json_t *capture_message(struct request *r)
{
	const struct state *s = request__state(r);
	const json_t *limits = json_object_get(s->hello, "limits");
	double max_seconds = json_number_value(json_object_get(limits, "max_duration_s"));
	const char *target = request__query(r, "target");
	const char *device = request__query(r, "device");
	json_t *msg = json_pack("{s:s, s:b}", "do", "capture", "keep", 0);
	double seconds = DEFAULT_SECONDS, pid;

	if (max_seconds > 0 && max_seconds < seconds)
		seconds = max_seconds;
	request__number(r, "seconds", &seconds);
	if (max_seconds > 0 && seconds > max_seconds) {
		json_decref(msg);
		request__error(r, 422, "seconds", "seconds: must be at most %.15g, not %.15g",
			       max_seconds, seconds);
		return NULL;
	}
	json_object_set_new(msg, "duration_s", json_real(seconds));
	json_object_set_new(msg, "host", json_boolean(device && !strcmp(device, "host")));
	if (request__number(r, "pid", &pid)) {
		json_object_set_new(msg, "pid", json_integer((json_int_t)pid));
		return msg;
	}
	if (!target)
		target = only_target(s);
	/* a process of --all, which has no target's name */
	if (!target && s->n_processes == 1) {
		json_object_set_new(msg, "pid", json_integer(s->processes[0]->pid));
		return msg;
	}
	if (target) {
		json_object_set_new(msg, "model_name", json_string(target));
		return msg;
	}
	json_decref(msg);
	if (s->n_processes)
		request__error(r, 409, "target",
			       "target or pid: give one, because there are %zu processes",
			       s->n_processes);
	else
		request__error(r, 404, NULL, "No target has a process now");
	return NULL;
}

/* Answers GET /debug/pprof/: of a trace, or of a new capture. */
static void send_profile(struct request *r)
{
	const char *id = request__query(r, "trace_id");
	struct profile *p;
	json_t *msg;

	if (id && !serve_state__trace(request__state(r), id)) {
		request__error(r, 404, /*field=*/NULL, "Trace %.40s not found", id);
		return;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		request__error(r, 503, NULL, "no memory");
		return;
	}
	*p = (struct profile){ .web = r->web, .temporary = !id };
	request__keep(r, p, release_profile);
	if (id) {
		snprintf(p->id, sizeof(p->id), "%s", id);
		request__wait(r, wait_for_end);
		wait_for_end(r);
		return;
	}
	msg = capture_message(r);
	if (!msg)
		return;
	/* Hold until the trace's ID is known, so that release_profile() can delete the trace. */
	r->held = true;
	request__ask(r, msg, on_capture);
}

#define PROFILE(name, operation, words)                                                            \
	{                                                                                          \
		.method = "GET", .path = "/debug/pprof/" name, .id = operation, .tag = "fleet",    \
		.summary = words,                                                                  \
		.help = "Captures for `seconds` and returns a profile for pprof, Pyroscope and "   \
			"Parca. inuse_space shows the moment of the peak, alloc_space all "        \
			"allocations. The capture is deleted afterwards. With `trace_id`, "        \
			"returns "                                                                 \
			"the profile of that trace once it has ended, and keeps the trace.",       \
		.in_query = profile_query,                                                         \
		.answers = ANSWERS(                                                                \
			{ 200, "application/octet-stream", NULL, "The profile, compressed." },     \
			{ 404, JSON, "Error", "No such target, process or trace." },               \
			{ 409, JSON, "Error", "Not possible in the present state." },              \
			{ 503, JSON, "Error",                                                      \
			  "The process cannot be captured; `detail` gives the reason." }),         \
		.flags = ROUTE_COSTLY | ROUTE_ANY_QUERY, .handle = send_profile                    \
	}

const struct route fleet_routes[] = {
	{ .method = "GET",
	  .path = "/metrics",
	  .id = "getMetrics",
	  .tag = "fleet",
	  .summary = "Figures for Prometheus",
	  .help = "Prometheus text format, or OpenMetrics if Accept asks for it.",
	  .answers = ANSWERS({ 200, "text/plain", NULL, "The figures." },
			     { 200, "application/openmetrics-text", NULL, "The figures." },
			     { 503, JSON, "Error", "The server is out of memory." }),
	  .flags = ROUTE_ANY_QUERY,
	  .handle = send_metrics },
	PROFILE("memory", "profileMemory", "A profile of allocated memory"),
	/* Scrapers use these names by default. */
	PROFILE("heap", "profileHeap", "The same, at the path that pprof uses"),
	PROFILE("allocs", "profileAllocs", "The same, at the path that scrapers use"),
	{ 0 },
};
