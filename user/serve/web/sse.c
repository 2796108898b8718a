/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Server-sent events. A slow reader first gets no more samples and steps and is then disconnected.
 * After reconnecting, it gets the whole current state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "serve/web/state_public.h"
#include "serve/web/web.h"

#define STREAMS 128		    /* most open streams */
#define FULL (256 << 10)	    /* queued bytes; above this, no samples are added */
#define FULL_OF_FIGURES (768 << 10) /* above this, no steps and scopes */
/* queued bytes after the initial state; above this, the stream is closed */
#define OVERFULL (1 << 20)
#define HEARTBEAT_NS 15000000000ull

struct stream {
	struct request *r;
	char trace[STATE_ID]; /* ID of a trace; "": events of all traces */
	char *text;	      /* events; the bytes from `at` to `size` are not sent yet */
	size_t at, size, room;
	size_t max_queued; /* limit of queued bytes */
	uint64_t wrote;	   /* when the last event was queued, in ns */
	bool ended;	   /* closes after the queued text */
	bool cut;	   /* closes with an error, without the queued text */
};

/* Queues text. Cuts the stream off if its client reads too slowly. */
static void queue_text(struct stream *s, const char *text, size_t size)
{
	if (s->ended || s->cut)
		return;
	if (s->at) {
		memmove(s->text, s->text + s->at, s->size - s->at);
		s->size -= s->at;
		s->at = 0;
	}
	if (s->size + size > s->max_queued || array__grow(&s->text, &s->room, s->size + size, 1)) {
		s->cut = true;
		request__resume(s->r);
		return;
	}
	memcpy(s->text + s->size, text, size);
	s->size += size;
	s->wrote = s->r->web->now;
	request__resume(s->r);
}

/* One event in the text format of server-sent events; from malloc(). */
static char *event_text(struct web *web, const char *name, const json_t *data)
{
	char *json = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(16)), *text = NULL;

	if (json && asprintf(&text, "id: %llu\nevent: %s\ndata: %s\n\n",
			     (unsigned long long)++web->stream_events, name, json) < 0)
		text = NULL;
	free(json);
	return text;
}

/* Queues an event; nothing without memory. */
static void put_event(struct stream *s, const char *name, const json_t *data)
{
	char *text = event_text(s->r->web, name, data);

	if (text)
		queue_text(s, text, strlen(text));
	free(text);
}

/* Queues the trace's facts. A stream of one trace then ends if the trace has ended. */
static void put_trace(struct stream *s, const struct state_trace *t)
{
	json_t *public = state_public__trace(t), *end;

	put_event(s, "trace", public);
	json_decref(public);
	if (!*s->trace || !serve_state__trace_ended(t))
		return;
	end = json_pack("{s:s, s:s}", "trace_id", t->id, "state", serve_state__trace_state(t));
	put_event(s, "end", end);
	json_decref(end);
	s->ended = true;
}

/* libmicrohttpd has room for max bytes: gives queued text, or suspends the connection. */
static ssize_t on_read(void *ctx, uint64_t pos, char *buf, size_t max)
{
	struct stream *s = ctx;
	size_t n = s->size - s->at;

	(void)pos;
	if (s->cut)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (!n && s->ended)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (!n) {
		if (s->room > FULL) {
			free(s->text);
			s->text = NULL;
			s->room = 0;
		}
		s->at = s->size = 0;
		s->r->suspended = true;
		MHD_suspend_connection(s->r->mhd);
		return 0;
	}
	n = n < max ? n : max;
	memcpy(buf, s->text + s->at, n);
	s->at += n;
	return (ssize_t)n;
}

/* Queues the current state as a sequence of events. */
static void put_state(struct stream *s, struct state *state)
{
	json_t *o;

	if (state->hello)
		put_event(s, "hello", state->hello);
	if (state->targets) {
		o = json_pack("{s:O}", "targets", state->targets);
		put_event(s, "targets", o);
		json_decref(o);
	}
	for (size_t i = 0; i < state->n_processes; i++) {
		o = state_public__process(state->processes[i]);
		put_event(s, "process", o);
		json_decref(o);
	}
	for (size_t i = 0; i < state->n_traces; i++)
		put_trace(s, state->traces[i]);
	if (state->push)
		put_event(s, "push", state->push);
}

/* Counts the open streams of the request's peer. A single peer must not use up all streams. */
static size_t count_peer_streams(const struct request *r)
{
	const struct auth_peer *peer = &r->conn->peer;
	size_t n = 0;

	for (const struct request *o = r->web->requests; o; o = o->next)
		n += o->stream && o->conn->peer.is_unix == peer->is_unix &&
		     !memcmp(o->conn->peer.key, peer->key, sizeof(peer->key));
	return n;
}

/* For request__keep(): the request has ended. */
static void release_stream(void *p)
{
	struct stream *s = p;

	s->r->web->n_streams--;
	free(s->text);
	free(s);
}

/* The first state has no limit: it may be larger than OVERFULL. */
void request__stream(struct request *r, const char *trace)
{
	struct state_trace *t = trace ? serve_state__trace(&r->web->state, trace) : NULL;
	struct MHD_Response *response;
	struct stream *s;

	if (trace && !t) {
		request__error(r, 404, /*field=*/NULL, "Trace %s not found", trace);
		return;
	}
	if (r->web->n_streams >= STREAMS || count_peer_streams(r) >= STREAMS / 2) {
		request__error(r, 429, NULL,
			       "too many streams: at most %d in all, and %d from one address",
			       STREAMS, STREAMS / 2);
		return;
	}
	s = calloc(1, sizeof(*s));
	response = s ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, on_read, s, NULL)
		     : NULL;
	if (!response) {
		free(s);
		request__error(r, 503, NULL, "no memory");
		return;
	}
	s->r = r;
	s->max_queued = SIZE_MAX;
	r->stream = s;
	request__keep(r, s, release_stream);
	r->web->n_streams++;
	if (t)
		snprintf(s->trace, sizeof(s->trace), "%s", t->id);
	queue_text(s, "retry: 2000\n\n", 13);
	if (t)
		put_trace(s, t);
	else
		put_state(s, &r->web->state);
	s->max_queued = s->size + OVERFULL;
	request__header(r, "X-Accel-Buffering", "no"); /* stops nginx from buffering the stream */
	request__respond(r, 200, response, "text/event-stream");
}

/* True if the sample is of the process that the stream's trace captures. */
static bool is_of_trace(struct stream *s, const json_t *msg)
{
	struct state_trace *t = serve_state__trace(&s->r->web->state, s->trace);
	const json_t *pid = t ? json_object_get(t->facts, "pid") : NULL;

	return json_is_integer(pid) &&
	       json_integer_value(pid) == json_integer_value(json_object_get(msg, "pid"));
}

static bool is_figures(const char *event)
{
	return !strcmp(event, "step") || !strcmp(event, "scope");
}

/* Queues an event if it concerns the stream. text: the event as it is sent to streams of all
 * traces. */
static void send_event(struct stream *s, const char *name, const json_t *msg, const char *text,
		       struct state_trace *trace)
{
	const char *id = json_string_value(json_object_get(msg, "trace_id"));
	bool sample = !strcmp(name, "sample");
	bool gone = !strcmp(name, "gone");
	bool figures = is_figures(name);
	size_t queued = s->size - s->at;

	if ((sample && queued > FULL) || (figures && queued > FULL_OF_FIGURES))
		return;
	if (!*s->trace) {
		queue_text(s, text, strlen(text));
	} else if (trace && !strcmp(trace->id, s->trace)) {
		put_trace(s, trace);
	} else if (sample ? is_of_trace(s, msg)
			  : (gone || figures) && id && !strcmp(id, s->trace)) {
		queue_text(s, text, strlen(text));
		s->ended = gone; /* the stream's trace was deleted */
		request__resume(s->r);
	}
}

/* Adds the growth of its process to a sample. */
static void put_growth(struct web *web, json_t *sample)
{
	const json_t *pid = json_object_get(sample, "pid");
	const struct state_process *p = serve_state__process(&web->state,
							     (pid_t)json_integer_value(pid));
	json_t *growth = p ? state_public__growth(p) : NULL;

	if (growth)
		json_object_set_new(sample, "growth", growth);
}

/* Makes the event's text once, for all streams. */
void sse__publish(struct web *web, json_t *msg, struct state_trace *trace)
{
	const char *name = json_string_value(json_object_get(msg, "event"));
	json_t *data;
	char *text;

	if (!web->n_streams)
		return;
	if (trace) {
		data = state_public__trace(trace);
	} else {
		data = json_copy(msg);
		json_object_del(data, "event");
		if (!strcmp(name, "sample"))
			put_growth(web, data);
	}
	text = event_text(web, name, data);
	for (struct request *r = web->requests; text && r; r = r->next)
		if (r->stream)
			send_event(r->stream, name, msg, text, trace);
	free(text);
	json_decref(data);
}

void sse__sweep(struct web *web)
{
	for (struct request *r = web->requests; r; r = r->next) {
		if (!r->stream)
			continue;
		/* A disconnect is noticed only when data is sent, so check for it. */
		if (request__client_gone(r)) {
			r->stream->cut = true;
			request__resume(r);
		} else if (web->now - r->stream->wrote > HEARTBEAT_NS) {
			queue_text(r->stream, ": here\n\n", 8);
		}
	}
}
