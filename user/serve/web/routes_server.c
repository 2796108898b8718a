/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls about the server, its targets and their processes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/web/openapi.h"
#include "serve/web/state_public.h"
#include "serve/web/web.h"

static const struct field session_body[] = {
	{ .name = "token",
	  .type = FIELD_STRING,
	  .required = true,
	  .longest = SECRET_TOKEN_MAX,
	  .help = "The server's token." },
	{ 0 },
};

static const struct field pid_path[] = {
	{ .name = "pid",
	  .type = FIELD_INTEGER,
	  .required = true,
	  .min = 1,
	  .max = 2147483647,
	  .help = "A process of a target.",
	  .example = "4242" },
	{ 0 },
};

static const struct field history_query[] = {
	{ .name = "since",
	  .type = FIELD_NUMBER,
	  .min = 0,
	  .max = 1e11,
	  .help = "Only samples after this time, in seconds since 1970." },
	{ 0 },
};

static const char *const dump_by[] = { "holder", "tensor", "module", "category", NULL };
static const struct field dump_query[] = {
	{ .name = "by", .type = FIELD_STRING, .choices = dump_by, .help = "What a row is." },
	{ .name = "top",
	  .type = FIELD_INTEGER,
	  .min = 0,
	  .max = 1000000,
	  .help = "Number of rows; the remaining rows are summed in one more. 0: all." },
	{ 0 },
};

/* Number of traces that have not ended. */
static size_t count_capturing(const struct state *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_traces; i++)
		n += !serve_state__trace_ended(s->traces[i]);
	return n;
}

#define STALE_AFTER 10.0 /* s; a search for processes starts every 2 s */

/* Answers GET /api/health. The functions below answer the requests of their names, too; an on_
 * function goes on when the broker has answered. */
static void send_health(struct request *r)
{
	struct state *s = request__state(r);
	double age = serve_state__scan_age(s);
	const char *scan = age > STALE_AFTER ? "stale" : "ok";
	const char *status = s->hello ? scan : "starting";
	json_t *o = json_pack("{s:s, s:s, s:i}", "status", status, "version", MEMTRACE_VERSION,
			      "api_version", HTTP_API_VERSION),
	       *names, *t;
	const char *why = json_string_value(json_object_get(s->hello, "why"));
	bool authorized;
	double uptime;
	size_t i;

	/* The route is open, but a client without a valid token gets only these members. */
	authorized = !r->verdict.status && (!auth__wants_token(r->web->guard) || r->known);
	if (!authorized || !s->hello) {
		request__json(r, 200, o);
		return;
	}
	names = json_array();
	json_array_foreach(s->targets, i, t)
		json_array_append(names, json_object_get(t, "name"));
	uptime = (double)clock__read(CLOCK_REALTIME) / 1e9 -
		 json_number_value(json_object_get(s->hello, "start"));
	json_object_set_new(o, "uptime_s", json_integer((json_int_t)uptime));
	json_object_set(o, "can_trace", json_object_get(s->hello, "can_trace"));
	json_object_set_new(o, "why", json_string(why ?: ""));
	json_object_set_new(o, "scan_age_s", age < 0 ? json_null() : json_real(age));
	json_object_set_new(o, "targets", names);
	json_object_set_new(o, "processes", json_integer((json_int_t)s->n_processes));
	json_object_set_new(o, "traces", json_integer((json_int_t)s->n_traces));
	json_object_set_new(o, "capturing", json_integer((json_int_t)count_capturing(s)));
	json_object_set(o, "limits", json_object_get(s->hello, "limits"));
	json_object_set(o, "formats", json_object_get(s->hello, "formats"));
	request__json(r, 200, o);
}

/* Clients measure how far this host's clock is from theirs: time_ns belongs to a moment between
 * their request and the answer. */
static void send_clock(struct request *r)
{
	request__json(r, 200,
		      json_pack("{s:I}", "time_ns", (json_int_t)clock__read(CLOCK_REALTIME)));
}

static void send_targets(struct request *r)
{
	struct state *s = request__state(r);
	json_t *processes = json_array(), *o;

	for (size_t i = 0; i < s->n_processes; i++)
		json_array_append_new(processes, state_public__process_now(s->processes[i]));
	o = json_pack("{s:o, s:o}", "targets", s->targets ? json_incref(s->targets) : json_array(),
		      "processes", processes);
	request__json(r, 200, o);
}

/* The process of the path. NULL: there is none, and the request was answered with 404. */
static struct state_process *process_of(struct request *r)
{
	/* check_path() in web.c has checked that it is a PID in digits */
	pid_t pid = (pid_t)strtol(request__path(r, "pid"), NULL, 10);
	struct state_process *p = serve_state__process(request__state(r), pid);

	if (!p)
		request__error(r, 404, /*field=*/NULL,
			       "Process %d not found among those of the targets; GET /api/targets "
			       "lists them",
			       (int)pid);
	return p;
}

static void send_history(struct request *r)
{
	struct state_process *p = process_of(r);
	double since = 0;
	char *text = NULL;
	size_t size = 0;
	bool first = true;
	FILE *out;

	if (!p)
		return;
	request__number(r, "since", &since);
	out = open_memstream(&text, &size);
	if (!out) {
		request__error(r, 503, NULL, "no memory");
		return;
	}
	fprintf(out, "{\"pid\":%d,\"samples\":[", (int)p->pid);
	for (size_t i = 0; i < p->n_history; i++) {
		const char *sample = p->history[(p->history_first + i) % STATE_HISTORY];

		/* serve_state__take() writes the time first. */
		if (strtod(sample + strlen("{\"time\":"), NULL) <= since)
			continue;
		fprintf(out, "%s%s", first ? "" : ",", sample);
		first = false;
	}
	fputs("]}", out);
	fclose(out);
	request__data(r, 200, "application/json", text, size);
}

static void on_dump(struct request *r, json_t *answer, int fd)
{
	(void)answer;
	request__whole(r, "application/json", NULL, fd);
}

static void send_dump(struct request *r)
{
	struct state_process *p = process_of(r);
	const char *by = request__query(r, "by");
	json_t *msg;
	double top;

	if (!p)
		return;
	msg = json_pack("{s:s, s:i, s:s*}", "do", "dump", "pid", (int)p->pid, "by", by);
	if (request__number(r, "top", &top))
		json_object_set_new(msg, "top", json_integer((json_int_t)top));
	request__ask(r, msg, on_dump);
}

static void send_devices(struct request *r)
{
	request__ask(r, json_pack("{s:s}", "do", "devices"), on_dump);
}

static void stream_all(struct request *r)
{
	request__stream(r, /*trace=*/NULL);
}

static void log_in(struct request *r)
{
	const char *token = json_string_value(json_object_get(request__body(r), "token"));
	char cookie[256], seconds[16];
	struct guard_verdict v = { .status = 0 };

	if (!auth__wants_token(r->web->guard)) {
		request__json(r, 200, json_pack("{s:s}", "message", "this server needs no token"));
	} else if (!auth__log_in(r->web->guard, &r->who, token, cookie, &v)) {
		request__header(r, "Set-Cookie", cookie);
		request__json(r, 200,
			      json_pack("{s:s}", "message", "the cookie now replaces the token"));
	} else {
		snprintf(seconds, sizeof(seconds), "%u", v.retry_after);
		if (v.status == 429)
			request__header(r, "Retry-After", seconds);
		request__error(r, v.status, "token", "%s", v.why);
	}
}

static void log_out(struct request *r)
{
	char cookie[256] = "";

	auth__log_out(r->web->guard, &r->who, cookie);
	if (*cookie)
		request__header(r, "Set-Cookie", cookie);
	request__json(r, 200, json_pack("{s:s}", "message", "the session has ended"));
}

static void send_openapi(struct request *r)
{
	struct web *w = r->web;
	char *copy;

	if (!w->openapi)
		w->openapi = openapi__text(w->routes, json_object_get(w->state.hello, "limits"),
					   auth__wants_token(w->guard) ? auth__cookie(w->guard)
								       : NULL,
					   &w->openapi_size);
	copy = w->openapi ? malloc(w->openapi_size) : NULL;
	if (copy)
		memcpy(copy, w->openapi, w->openapi_size);
	request__data(r, 200, "application/json", copy, w->openapi_size);
}

#define NOT_THERE                                                                                  \
	{                                                                                          \
		404, JSON, "Error", "The targets have no such process."                            \
	}

const struct route server_routes[] = {
	{ .method = "GET",
	  .path = "/api/health",
	  .id = "getHealth",
	  .tag = "server",
	  .summary = "State and abilities of the server",
	  .help = "Without a valid token: status and version only.",
	  .answers = ANSWERS({ 200, JSON, "Health", "It works." }),
	  .flags = ROUTE_OPEN,
	  .handle = send_health },
	{ .method = "GET",
	  .path = "/api/clock",
	  .id = "getClock",
	  .tag = "server",
	  .summary = "The clock of the server's host",
	  .help = "For clients that compare the clocks of several hosts.",
	  .answers = ANSWERS({ 200, JSON, "Clock", "The time when the server made the answer." }),
	  .handle = send_clock },
	{ .method = "GET",
	  .path = "/api/openapi.json",
	  .id = "getSchema",
	  .tag = "server",
	  .summary = "This document",
	  .answers = ANSWERS({ 200, JSON, NULL, "The document." }),
	  .flags = ROUTE_OPEN,
	  .handle = send_openapi },
	{ .method = "GET",
	  .path = "/api/stream",
	  .id = "streamAll",
	  .tag = "server",
	  .summary = "Events as they happen",
	  .help = "Server-sent events: `hello`, `targets`, `process`, `sample`, `trace`, `gone`, "
		  "and with --figures `step` and `scope`. The first events describe the present "
		  "state.",
	  .answers = ANSWERS({ 200, "text/event-stream", NULL, "The events." }),
	  .handle = stream_all },
	{ .method = "POST",
	  .path = "/api/session",
	  .id = "logIn",
	  .tag = "server",
	  .summary = "A cookie instead of the token",
	  .help = "For browsers, which cannot send a header with every request.",
	  .in_body = session_body,
	  .answers = ANSWERS({ 200, JSON, "Message", "The answer sets the cookie." },
			     { 401, JSON, "Error", "Wrong token." }),
	  .flags = ROUTE_OPEN | ROUTE_CHANGES,
	  .handle = log_in },
	{ .method = "DELETE",
	  .path = "/api/session",
	  .id = "logOut",
	  .tag = "server",
	  .summary = "End the session of the cookie",
	  .answers = ANSWERS({ 200, JSON, "Message", "The session has ended." }),
	  .flags = ROUTE_OPEN | ROUTE_CHANGES,
	  .handle = log_out },
	{ .method = "GET",
	  .path = "/api/targets",
	  .id = "listTargets",
	  .tag = "targets",
	  .summary = "Targets and processes that can be captured",
	  .help = "The targets and their processes, each with its latest figures.",
	  .answers = ANSWERS({ 200, JSON, "Targets", "The targets and processes." }),
	  .handle = send_targets },
	{ .method = "GET",
	  .path = "/api/devices",
	  .id = "listDevices",
	  .tag = "targets",
	  .summary = "All that hold the memory of this machine's GPUs",
	  .help = "For each GPU the processes that hold its memory, also those of no target and of "
		  "other users, the driver's reserve, and the rest. What is probably left over "
		  "comes "
		  "first.",
	  .answers = ANSWERS(
		  { 200, JSON, "Document", "The document of `ps --device --format json`." },
		  { 503, JSON, "Error",
		    "Not possible on this host or at this time; `detail` gives the reason." }),
	  .flags = ROUTE_COSTLY,
	  .handle = send_devices },
	{ .method = "GET",
	  .path = "/api/targets/{pid}/history",
	  .id = "getHistory",
	  .tag = "targets",
	  .summary = "Recent figures of a process",
	  .in_path = pid_path,
	  .in_query = history_query,
	  .answers = ANSWERS({ 200, JSON, "History", "Samples, oldest first." }, NOT_THERE),
	  .handle = send_history },
	{ .method = "GET",
	  .path = "/api/targets/{pid}/dump",
	  .id = "getDump",
	  .tag = "targets",
	  .summary = "Tensors that a process holds now",
	  .help = "Reads the process from outside, without a probe.",
	  .in_path = pid_path,
	  .in_query = dump_query,
	  .answers = ANSWERS(
		  { 200, JSON, "Document", "The document of `dump --format json`." }, NOT_THERE,
		  { 409, JSON, "Error", "The process cannot be read in its present state." },
		  { 503, JSON, "Error",
		    "Not possible on this host or at this time; `detail` gives the reason." }),
	  .flags = ROUTE_COSTLY,
	  .handle = send_dump },
	{ 0 },
};
