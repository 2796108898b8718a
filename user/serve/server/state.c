/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/server/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "serve/server/field.h"
#include "serve/server/summary.h"

#define TARGETS 128    /* most targets in a message */
#define WITH_LAYERS 16 /* newest finished traces whose summary keeps its layers */
/* Limit of a trace's facts as JSON text, in bytes. Most of it is the output of a command. */
#define FACT_BYTES 32768
#define VALUE_TEXT 512	       /* size of a name or path in a trace's facts, in bytes */
#define TIME_MAX 99999999999.0 /* latest accepted time, in s since 1970 */

void serve_state__init(struct state *s)
{
	memset(s, 0, sizeof(*s));
}

/* Frees a process with its history. */
static void free_process(struct state_process *p)
{
	for (size_t i = 0; i < STATE_HISTORY; i++)
		free(p->history[i]);
	free(p);
}

static void free_trace(struct state_trace *t)
{
	json_decref(t->facts);
	json_decref(t->summary);
	json_decref(t->report);
	free(t);
}

void serve_state__release(struct state *s)
{
	json_decref(s->hello);
	json_decref(s->targets);
	json_decref(s->push);
	json_decref(s->gpus);
	for (size_t i = 0; i < s->n_processes; i++)
		free_process(s->processes[i]);
	for (size_t i = 0; i < s->n_traces; i++)
		free_trace(s->traces[i]);
	memset(s, 0, sizeof(*s));
}

struct state_trace *serve_state__trace(struct state *s, const char *id)
{
	for (size_t i = 0; i < s->n_traces; i++)
		if (!strcmp(s->traces[i]->id, id))
			return s->traces[i];
	return NULL;
}

struct state_process *serve_state__process(struct state *s, pid_t pid)
{
	for (size_t i = 0; i < s->n_processes; i++)
		if (s->processes[i]->pid == pid)
			return s->processes[i];
	return NULL;
}

const json_t *serve_state__host(const struct state *s, pid_t pid, const char *member)
{
	/* newest first */
	for (size_t i = s->n_traces; i-- > 0;) {
		const json_t *facts = s->traces[i]->facts;
		const json_t *figures = json_object_get(facts, member);

		if (figures && json_integer_value(json_object_get(facts, "pid")) == pid)
			return figures;
	}
	return NULL;
}

const char *serve_state__trace_state(const struct state_trace *t)
{
	return json_string_value(json_object_get(t->facts, "state"));
}

bool serve_state__trace_ended(const struct state_trace *t)
{
	const char *state = serve_state__trace_state(t);

	return !strcmp(state, "done") || !strcmp(state, "failed");
}

/* ---- the members of messages ---- */

/* COUNT: an integer from 0. TIME: s since 1970. TEXT: optional, of less than `size` bytes. */
#define COUNT(key, ...) FIELD(key, INTEGER, .max = FIELD_COUNT_MAX, __VA_ARGS__)
#define TIME(key) FIELD(key, NUMBER, .required = true, .max = TIME_MAX)
#define TEXT(key, size) FIELD(key, RAW, .longest = (size)-1, .nullable = true)
#define REQUIRED_TEXT(key, size) FIELD(key, RAW, .required = true, .longest = (size)-1)
#define ID FIELD("trace_id", RAW, .required = true, .shortest = 1, .longest = STATE_ID - 1)
#define PID FIELD("pid", INTEGER, .required = true, .min = 1, .max = 1 << 22)
#define SIZE_IN_PROCESS(member) (sizeof(((struct state_process *)0)->member))
#define SIZE_IN_DEVICE(member) (sizeof(((struct state_device *)0)->member))

static const char *const trace_states[] = { "starting", "capturing", "finishing",
					    "done",	"failed",    NULL };

static const struct field
	hello_fields[] = { FIELD("version", RAW, .required = true),
			   FIELD("limits", OBJECT, .required = true),
			   FIELD("formats", ARRAY, .required = true),
			   FIELD("can_trace", BOOLEAN, .required = true),
			   TEXT("why", 1024),
			   { 0 } },
	targets_fields[] = { FIELD("targets", ARRAY, .required = true, .longest = TARGETS), { 0 } },
	target_fields[] = { REQUIRED_TEXT("name", 128),
			    REQUIRED_TEXT("kind", 16),
			    TEXT("pattern", 4096),
			    FIELD("pids", INTEGERS, .max = FIELD_COUNT_MAX),
			    { 0 } },
	gone_process_fields[] = { PID, { 0 } },
	process_fields[] = { PID,
			     TIME("started"),
			     FIELD("name", RAW, .required = true),
			     TEXT("target", SIZE_IN_PROCESS(target)),
			     TEXT("container", SIZE_IN_PROCESS(container)),
			     TEXT("pod", SIZE_IN_PROCESS(pod)),
			     TEXT("container_name", SIZE_IN_PROCESS(container_name)),
			     TEXT("pod_name", SIZE_IN_PROCESS(pod_name)),
			     TEXT("namespace", SIZE_IN_PROCESS(namespace)),
			     TEXT("hpc_job", SIZE_IN_PROCESS(hpc_job)),
			     COUNT("rank", .nullable = true),
			     { 0 } },
	sample_fields[] = { PID,
			    TIME("time"),
			    COUNT("rss"),
			    FIELD("devices", ARRAY, .longest = STATE_DEVICES),
			    TEXT("why", 1024),
			    { 0 } },
	device_fields[] = { FIELD("device", RAW, .required = true, .shortest = 1,
				  .longest = SIZE_IN_DEVICE(name) - 1),
			    TEXT("uuid", SIZE_IN_DEVICE(uuid)),
			    FIELD("gpu", INTEGER, .max = 1 << 16),
			    { 0 } },
	trace_fields[] = { ID,
			   FIELD("state", RAW, .required = true, .choices = trace_states),
			   TIME("begun"),
			   REQUIRED_TEXT("model_name", VALUE_TEXT),
			   TEXT("process", VALUE_TEXT),
			   TEXT("file", VALUE_TEXT),
			   TEXT("error", 2048),
			   FIELD("status", INTEGER, .min = 400, .max = 599, .nullable = true),
			   COUNT("events", .nullable = true),
			   COUNT("lost", .nullable = true),
			   COUNT("steps", .nullable = true),
			   COUNT("bytes", .nullable = true),
			   COUNT("max_events", .nullable = true),
			   { 0 } },
	message_of_trace_fields[] = { FIELD("trace", OBJECT, .required = true), { 0 } },
	gone_fields[] = { ID, { 0 } }, no_fields[] = { { 0 } },
	figures_fields[] = { ID, PID, FIELD("devices", ARRAY, .required = true), { 0 } },
	push_fields[] = { COUNT("sent", .required = true),
			  COUNT("failed", .required = true),
			  COUNT("dropped", .required = true),
			  { 0 } };

/* True for a whole number from 0 on. */
static bool is_count(const json_t *v)
{
	return json_is_integer(v) && json_integer_value(v) >= 0;
}

/* Copies a text of a message without control characters; "" if it is missing. */
static void copy_text(char *to, size_t size, const json_t *msg, const char *key)
{
	const char *v = json_string_value(json_object_get(msg, key)) ?: "";

	text__clean(to, size, v, strlen(v));
}

static pid_t pid_of(const json_t *msg)
{
	return (pid_t)json_integer_value(json_object_get(msg, "pid"));
}

/* ---- one function per kind of message ---- */

/* The take_ functions take a message of their name, whose members are checked. They return 0, or
 * -EPROTO and change nothing. */
static int take_hello(struct state *s, json_t *msg)
{
	json_decref(s->hello);
	s->hello = json_deep_copy(msg);
	json_object_del(s->hello, "event");
	return 0;
}

static int take_targets(struct state *s, json_t *msg)
{
	json_t *targets = json_object_get(msg, "targets"), *t;
	json_t *left_out = json_object_get(msg, "left_out");
	size_t i;

	json_array_foreach(targets, i, t)
		if (field__wrong(target_fields, t))
			return -EPROTO;
	json_decref(s->targets);
	s->targets = json_deep_copy(targets);
	s->processes_left_out = is_count(left_out) ? (uint64_t)json_integer_value(left_out) : 0;
	return 0;
}

static bool has_slot(const struct state_process *p, const char *target, unsigned slot)
{
	return p->pid && p->slot == slot && !strcmp(p->target, target);
}

/* The smallest slot number that no other process of this target has. */
static unsigned free_slot(const struct state *s, const char *target)
{
	for (unsigned slot = 0;; slot++) {
		size_t i = 0;

		while (i < s->n_processes && !has_slot(s->processes[i], target, slot))
			i++;
		if (i == s->n_processes)
			return slot;
	}
}

/* Adds or updates a process, or removes one that is gone. */
static int take_process(struct state *s, json_t *msg)
{
	const json_t *rank = json_object_get(msg, "rank");
	const json_t *started = json_object_get(msg, "started");
	char target[sizeof(((struct state_process *)0)->target)];
	struct state_process *p;
	pid_t pid = pid_of(msg);

	copy_text(target, sizeof(target), msg, "target");
	p = serve_state__process(s, pid);
	if (json_is_true(json_object_get(msg, "gone"))) {
		for (size_t i = 0; p && i < s->n_processes; i++) {
			if (s->processes[i] != p)
				continue;
			memmove(s->processes + i, s->processes + i + 1,
				(s->n_processes - i - 1) * sizeof(*s->processes));
			s->n_processes--;
			free_process(p);
			break;
		}
		return 0;
	}
	if (field__wrong(process_fields, msg))
		return -EPROTO;
	if (!p) {
		if (s->n_processes == STATE_PROCESSES)
			/* The broker reports how many processes it watches; those beyond this
			 * limit are not shown. */
			return 0;
		p = calloc(1, sizeof(*p));
		if (!p)
			return 0;
		s->processes[s->n_processes++] = p;
	} else if (p->started != json_number_value(started)) {
		/* The PID was reused by a new process. */
		for (size_t i = 0; i < STATE_HISTORY; i++)
			free(p->history[i]);
		memset(p, 0, sizeof(*p));
	}
	/* PID 0: no slot in the target yet. A process that moved to another target needs a new one.
	 */
	if (p->pid && strcmp(p->target, target))
		p->pid = 0;
	if (!p->pid)
		p->slot = free_slot(s, target);
	p->pid = pid;
	p->started = json_number_value(started);
	memcpy(p->target, target, sizeof(target));
	copy_text(p->name, sizeof(p->name), msg, "name");
	copy_text(p->container, sizeof(p->container), msg, "container");
	copy_text(p->pod, sizeof(p->pod), msg, "pod");
	copy_text(p->container_name, sizeof(p->container_name), msg, "container_name");
	copy_text(p->pod_name, sizeof(p->pod_name), msg, "pod_name");
	copy_text(p->namespace, sizeof(p->namespace), msg, "namespace");
	copy_text(p->hpc_job, sizeof(p->hpc_job), msg, "hpc_job");
	p->rank = json_is_integer(rank) ? json_integer_value(rank) : -1;
	return 0;
}

/* True for valid figures of a device. */
static bool is_device(const json_t *d)
{
	if (field__wrong(device_fields, d))
		return false;
	for (size_t i = 0; i < FIG_NR; i++) {
		const json_t *v = json_object_get(d, device_figures[i].json);

		if (v && !is_count(v))
			return false;
	}
	return true;
}

/* Adds a sample to the process's history and takes it over. As text: JSON objects for many
 * processes would need hundreds of megabytes. */
static void add_sample(struct state_process *p, char *sample)
{
	size_t at = (p->history_first + p->n_history) % STATE_HISTORY;

	if (p->n_history == STATE_HISTORY)
		p->history_first = (p->history_first + 1) % STATE_HISTORY;
	else
		p->n_history++;
	free(p->history[at]);
	p->history[at] = sample;
}

/* Adds the last sample to the process's lows: the memory allocated on all devices or, if none is
 * known, RSS. The lows start again when the figure changes from one to the other. */
static void add_low(struct state_process *p)
{
	uint64_t sum = 0;
	bool known = false;

	for (size_t i = 0; i < p->n_devices; i++) {
		if (!(p->devices[i].has & 1u << FIG_ALLOCATED))
			continue;
		sum += p->devices[i].figures[FIG_ALLOCATED];
		known = true;
	}
	if (!known && !p->has_rss)
		return;
	if (known == p->lows_of_host) {
		p->lows_of_host = !known;
		p->lows = (struct lows){ 0 };
	}
	lows__add(&p->lows, p->time, known ? sum : p->rss);
}

static int take_sample(struct state *s, json_t *msg)
{
	json_t *devices = json_object_get(msg, "devices"), *d, *kept;
	json_t *rss = json_object_get(msg, "rss");
	struct state_process *p;
	char *text;
	size_t i;

	json_array_foreach(devices, i, d)
		if (!is_device(d))
			return -EPROTO;
	p = serve_state__process(s, pid_of(msg));
	if (!p)
		return 0; /* the process was skipped for lack of room, or has ended */
	p->time = json_number_value(json_object_get(msg, "time"));
	p->has_rss = rss;
	p->rss = (uint64_t)json_integer_value(rss);
	copy_text(p->why, sizeof(p->why), msg, "why");
	p->n_devices = json_array_size(devices);
	json_array_foreach(devices, i, d) {
		struct state_device *device = &p->devices[i];

		memset(device, 0, sizeof(*device));
		copy_text(device->name, sizeof(device->name), d, "device");
		copy_text(device->uuid, sizeof(device->uuid), d, "uuid");
		device->gpu = (unsigned)json_integer_value(json_object_get(d, "gpu"));
		for (size_t k = 0; k < FIG_NR; k++) {
			const json_t *v = json_object_get(d, device_figures[k].json);

			device->has |= v ? 1u << k : 0;
			device->figures[k] = (uint64_t)json_integer_value(v);
		}
	}
	add_low(p);
	kept = json_pack("{s:O, s:O*, s:O*}", "time", json_object_get(msg, "time"), "rss", rss,
			 "devices", devices);
	text = kept ? json_dumps(kept, JSON_COMPACT) : NULL;
	json_decref(kept);
	if (text)
		add_sample(p, text);
	s->samples++;
	return 0;
}

/* Drops the layers of older summaries: a thousand traces of 10^5 layers would need too much
 * memory. */
static void forget_layers(struct state *s)
{
	size_t n_with_layers = 0;

	for (size_t i = s->n_traces; i-- > 0;)
		if (json_object_get(s->traces[i]->summary, "layer_stats") &&
		    ++n_with_layers > WITH_LAYERS)
			json_object_del(s->traces[i]->summary, "layer_stats");
}

/* Takes a trace off the list. */
static void unlink_trace(struct state *s, const struct state_trace *t)
{
	size_t i = 0;

	while (s->traces[i] != t)
		i++;
	memmove(s->traces + i, s->traces + i + 1, (s->n_traces - i - 1) * sizeof(*s->traces));
	s->n_traces--;
}

static void remove_trace(struct state *s, struct state_trace *t)
{
	unlink_trace(s, t);
	free_trace(t);
}

/* Inserts t in order of start time, after traces with the same time. */
static void place_trace(struct state *s, struct state_trace *t, double begun)
{
	size_t at = s->n_traces;

	while (at && json_number_value(json_object_get(s->traces[at - 1]->facts, "begun")) > begun)
		at--;
	memmove(s->traces + at + 1, s->traces + at, (s->n_traces - at) * sizeof(*s->traces));
	s->traces[at] = t;
	s->n_traces++;
}

/* Adds a trace, in place of the one that began first if there are too many. NULL: no memory. */
static struct state_trace *add_trace(struct state *s, const char *id, double begun)
{
	struct state_trace *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	if (s->n_traces == STATE_TRACES)
		remove_trace(s, s->traces[0]);
	place_trace(s, t, begun);
	memcpy(t->id, id, strlen(id) + 1);
	return t;
}

/* Counts an ended capture. Recordings from before the server's start do not count. */
static void count_ended(struct state *s, const struct state_trace *t)
{
	if (json_number_value(json_object_get(t->facts, "begun")) <
	    json_number_value(json_object_get(s->hello, "start")))
		return;
	/* Recordings given on the command line, and those that clients sent, do not count. */
	if (json_is_true(json_object_get(t->facts, "given")) ||
	    json_is_true(json_object_get(t->facts, "uploaded")))
		return;
	if (strcmp(serve_state__trace_state(t), "done")) {
		s->captures_failed++;
		return;
	}
	s->captures_done++;
	s->events += (uint64_t)json_integer_value(json_object_get(t->facts, "events"));
	s->lost += (uint64_t)json_integer_value(json_object_get(t->facts, "lost"));
}

/* For a recording given on the command line: takes its PID and start time from its report, because
 * the broker does not read recordings. The new start time moves the trace in the list. */
static void take_origin(struct state *s, struct state_trace *t, const json_t *report)
{
	const json_t *pid = json_object_get(json_object_get(report, "target"), "pid");
	const char *start = json_string_value(
		json_object_get(json_object_get(report, "capture"), "start"));
	uint64_t ns;

	if (!json_is_true(json_object_get(t->facts, "given")))
		return;
	if (json_integer_value(pid) > 0 && json_integer_value(pid) <= INT32_MAX)
		json_object_set_new(t->facts, "pid", json_integer(json_integer_value(pid)));
	if (!start || text__parse_date(start, &ns) || !ns)
		return;
	unlink_trace(s, t);
	place_trace(s, t, (double)ns / 1e9);
	json_object_set_new(t->facts, "begun", json_real((double)ns / 1e9));
}

/* Adds or updates the trace of a message from the broker. fd: its report, once it is done,
 * borrowed; -1: none. *trace is unchanged without room for the trace. Returns 0 or -EPROTO. */
static int take_trace(struct state *s, json_t *msg, int fd, struct state_trace **trace)
{
	json_t *facts = json_object_get(msg, "trace"), *report, *summary;
	const char *id = json_string_value(json_object_get(facts, "trace_id"));
	struct state_trace *t;
	bool ended;

	if (field__wrong(trace_fields, facts) ||
	    json_dumpb(facts, NULL, 0, JSON_COMPACT) > FACT_BYTES)
		return -EPROTO;
	t = serve_state__trace(s, id);
	ended = t && serve_state__trace_ended(t);
	if (!t)
		t = add_trace(s, id, json_number_value(json_object_get(facts, "begun")));
	if (!t)
		return 0;
	json_decref(t->facts);
	t->facts = json_deep_copy(facts);
	if (!ended && serve_state__trace_ended(t))
		count_ended(s, t);
	if (fd >= 0 && !strcmp(serve_state__trace_state(t), "done")) {
		report = summary__read(fd);
		take_origin(s, t, report);
		summary = report ? summary__make(t->facts, report) : NULL;
		if (summary) {
			json_decref(t->summary);
			json_decref(t->report);
			t->summary = summary;
			t->report = summary__figures(report);
			forget_layers(s);
		}
		json_decref(report);
	}
	*trace = t;
	return 0;
}

static int take_gone(struct state *s, json_t *msg)
{
	const char *id = json_string_value(json_object_get(msg, "trace_id"));
	struct state_trace *t = serve_state__trace(s, id);

	if (t)
		remove_trace(s, t);
	return 0;
}

/* Counts reported by the push process. */
static int take_push(struct state *s, json_t *msg)
{
	static const char *const ways[] = { "pyroscope", "otlp", "otlp_profiles" };

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		const json_t *way = json_object_get(msg, ways[i]);

		if (way && !json_is_null(way) && field__wrong(push_fields, way))
			return -EPROTO;
	}
	json_decref(s->push);
	s->push = json_deep_copy(msg);
	json_object_del(s->push, "event");
	return 0;
}

/* Clients see by the age whether the figures are up to date. */
double serve_state__scan_age(const struct state *s)
{
	uint64_t now = clock__monotonic();

	if (!s->hello || !json_is_true(json_object_get(s->hello, "can_trace")))
		return -1;
	return now > s->scanned ? (double)(now - s->scanned) / 1e9 : 0;
}

static const struct kind {
	const char *event;
	const struct field *fields; /* checked before take() */
	int (*take)(struct state *s, json_t *msg);
} kinds[] = {
	{ "hello", hello_fields, take_hello },
	{ "targets", targets_fields, take_targets },
	{ "process", gone_process_fields, take_process },
	{ "sample", sample_fields, take_sample },
	{ "trace", message_of_trace_fields, NULL /* take_trace(): may have a file */ },
	{ "gone", gone_fields, take_gone },
	{ "push", no_fields, take_push },
	{ "scan", no_fields, NULL },
	{ "step", figures_fields, NULL }, /* only clients get them */
	{ "scope", figures_fields, NULL },
	{ 0 },
};

/* The table says what each kind of message must contain before its function takes it. */
int serve_state__take(struct state *s, json_t *msg, int fd, struct state_trace **trace)
{
	const char *event = json_string_value(json_object_get(msg, "event"));
	const struct kind *k = kinds;
	int err = 0;

	*trace = NULL;
	while (event && k->event && strcmp(event, k->event) != 0)
		k++;
	if (!event || !k->event || field__wrong(k->fields, msg))
		err = -EPROTO;
	else if (k->take)
		err = k->take(s, msg);
	else if (!strcmp(event, "trace"))
		err = take_trace(s, msg, fd, trace);
	if (fd >= 0)
		close(fd);
	if (err)
		return err;
	/* Until the first search for processes ends, its age counts from the first message. */
	if (!strcmp(event, "scan") || !s->scanned)
		s->scanned = clock__monotonic();
	s->messages++;
	return 0;
}

/* ---- lows ---- */

/* Merges each pair of lows into one, so that there is room. */
static void halve_lows(struct lows *l)
{
	for (size_t i = 0; i < LOWS_MAX / 2; i++) {
		uint64_t a = l->v[2 * i], b = l->v[2 * i + 1];

		l->v[i] = a < b ? a : b;
	}
	l->n = LOWS_MAX / 2;
	l->per_low *= 2;
}

/* A low is finished, and goes into v, after per_low samples. */
void lows__add(struct lows *l, double time, uint64_t value)
{
	if (!l->per_low) { /* the first sample */
		l->per_low = LOWS_SAMPLES;
		l->from = time;
	}
	if (!l->filled++ || value < l->low)
		l->low = value;
	if (l->filled < l->per_low)
		return;
	l->v[l->n++] = l->low;
	l->to = time;
	l->filled = 0;
	if (l->n == LOWS_MAX)
		halve_lows(l);
}
