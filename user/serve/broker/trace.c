/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/peers.h"
#include "serve/broker/spawn.h"
#include "serve/broker/store.h"

#define NOTE_MOST 65536 /* limit of a file with facts, in bytes */

static const char *const states[] = { [TRACE_STARTING] = "starting",
				      [TRACE_CAPTURING] = "capturing",
				      [TRACE_FINISHING] = "finishing",
				      [TRACE_DONE] = "done",
				      [TRACE_FAILED] = "failed" };

struct trace *trace__new(struct broker *b, const char *id)
{
	struct trace *t = b->traces.n < TRACES ? calloc(1, sizeof(*t)) : NULL;

	if (!t)
		return NULL;
	snprintf(t->id, sizeof(t->id), "%s", id);
	snprintf(t->file, sizeof(t->file), "%s.mtr", id);
	t->given = t->tell = t->report = t->exit_status = -1;
	t->run.err_fd = -1;
	memset(t->host_part, -1, sizeof(t->host_part));
	t->host_live = t->host_free = -1;
	t->deadline = UINT64_MAX;
	b->traces.v[b->traces.n++] = t;
	return t;
}

/* Ends an upload and closes its descriptors, but keeps its file. */
static void close_upload(struct trace *t)
{
	struct trace_upload *u = t->upload;

	t->upload = NULL;
	if (!u)
		return;
	if (u->from >= 0)
		close(u->from);
	if (u->out >= 0)
		close(u->out);
	free(u);
}

void trace__end_upload(const struct broker *b, struct trace *t, bool remove)
{
	if (t->upload && remove)
		store__remove(&b->store, t->upload->part);
	close_upload(t);
}

void trace__free(struct trace *t)
{
	close_upload(t);
	spawned__close(&t->run);
	if (t->tell >= 0)
		close(t->tell);
	if (t->given >= 0)
		close(t->given);
	if (t->report >= 0)
		close(t->report);
	free(t->exports);
	free(t->log);
	free(t);
}

struct trace *trace__find(const struct broker *b, const char *id)
{
	for (size_t i = 0; i < b->traces.n; i++)
		if (!strcmp(b->traces.v[i]->id, id) && !b->traces.v[i]->dropping)
			return b->traces.v[i];
	return NULL;
}

struct trace *trace__of_recording(const struct broker *b, const char *file)
{
	for (size_t i = 0; i < b->traces.n; i++)
		if (!strcmp(b->traces.v[i]->file, file) && !b->traces.v[i]->dropping)
			return b->traces.v[i];
	return NULL;
}

/* The PID is 0 before the recorder starts, and after its end was handled. */
bool trace__runs(const struct trace *t)
{
	return t->run.process.pid;
}

size_t traces__running(const struct broker *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->traces.n; i++)
		n += trace__runs(b->traces.v[i]);
	return n;
}

/* Sums the bytes that captures and uploads may still write. store__used() counts those already
 * written. */
uint64_t traces__reserved(const struct broker *b)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < b->traces.n; i++) {
		const struct trace *t = b->traces.v[i];

		sum += t->upload ? t->upload->size - t->upload->got : 0;
		if (trace__runs(t) && t->reserved > t->bytes)
			sum += t->reserved - t->bytes;
	}
	return sum;
}

struct trace *trace__asked(struct peer *p, json_t *msg, const char *key)
{
	const struct field fields[] = { ASK_TEXT(key), { 0 } };
	const char *id;
	struct trace *t;
	char clean[300];

	if (!ask__fits(p, msg, fields))
		return NULL;
	id = ask__text(msg, key);
	t = id ? trace__find(p->b, id) : NULL;
	if (!id)
		ask__refuse(p, ask__id(msg), 422, key, "%s: is missing", key);
	else if (!t)
		ask__refuse(p, ask__id(msg), 404, key, "Trace %s not found",
			    text__clean(clean, sizeof(clean), id, strlen(id)));
	return t;
}

/* ---- facts ---- */

/* The facts of a trace: members of an object in messages, in answers over HTTP and in the trace's
 * file of facts. */
static const struct fact {
	const char *key;
	enum {
		FACT_TEXT,
		FACT_COUNT,
		FACT_NUMBER,
		FACT_FLAG,
		FACT_STATE,
		FACT_PID,
		FACT_STATUS,
		FACT_EXIT_STATUS,
		FACT_LOG,
		FACT_GIVEN,
		FACT_KEEP
	} kind;
	size_t at, size; /* offset and size of the member of struct trace */
	bool always;	 /* the fact is written also if the member is "", 0 or false */
	bool kept;	 /* the next server reads the fact from the file */
} facts[] = {
#define FACT(name, type, member, ...)                                                              \
	{                                                                                          \
		.key = (name), .kind = FACT_##type, .at = offsetof(struct trace, member),          \
		.size = sizeof(((struct trace *)0)->member), __VA_ARGS__                           \
	}
	FACT("trace_id", TEXT, id, .always = true),
	FACT("model_name", TEXT, model, .always = true, .kept = true),
	FACT("process", TEXT, name, .always = true, .kept = true),
	FACT("state", STATE, state),
	FACT("begun", NUMBER, begun, .always = true, .kept = true),
	FACT("seconds", NUMBER, seconds, .always = true, .kept = true),
	FACT("file", TEXT, file, .always = true),
	FACT("enable_fragmentation", FLAG, fragmentation, .always = true, .kept = true),
	FACT("pid", PID, pid, .kept = true),
	FACT("events", COUNT, events, .always = true, .kept = true),
	FACT("lost", COUNT, lost, .always = true, .kept = true),
	FACT("steps", COUNT, steps, .always = true, .kept = true),
	FACT("bytes", COUNT, bytes, .always = true),
	FACT("max_events", COUNT, max_events, .kept = true),
	FACT("stop_reason", TEXT, stop_reason, .kept = true),
	FACT("error", TEXT, error, .kept = true),
	FACT("status", STATUS, status),
	FACT("exit_status", EXIT_STATUS, exit_status, .kept = true),
	FACT("log", LOG, log),
	FACT("given", GIVEN, given),
	FACT("folder", TEXT, folder),
	FACT("uploaded", FLAG, uploaded, .kept = true),
	FACT("keep", KEEP, asker),
	FACT("host", FLAG, host, .kept = true),
	FACT("duration_s", NUMBER, duration_s, .kept = true),
	FACT("start_at", NUMBER, start_at),
	FACT("align_s", NUMBER, align_s),
	FACT("steps_wanted", COUNT, steps_wanted, .kept = true),
	FACT("batch_size", COUNT, batch_size, .kept = true),
#undef FACT
};

#define FACTS (sizeof(facts) / sizeof(*facts))

/* A number for JSON, which has signed ones. */
static json_t *count_json(uint64_t n)
{
	return json_integer((json_int_t)(n > INT64_MAX ? INT64_MAX : n));
}

/* The value of a fact, a new reference. NULL: the trace has no such fact. */
static json_t *fact_json(const struct trace *t, const struct fact *f)
{
	const void *at = (const char *)t + f->at;

	switch (f->kind) {
	case FACT_TEXT:
		return *(const char *)at || f->always ? json_string(at) : NULL;
	case FACT_COUNT:
		return *(const uint64_t *)at || f->always ? count_json(*(const uint64_t *)at)
							  : NULL;
	case FACT_NUMBER:
		return *(const double *)at > 0 || f->always ? json_real(*(const double *)at) : NULL;
	case FACT_FLAG:
		return *(const bool *)at || f->always ? json_boolean(*(const bool *)at) : NULL;
	case FACT_STATE:
		return json_string(states[t->state]);
	case FACT_PID:
		return t->pid ? json_integer(t->pid) : json_null();
	case FACT_STATUS:
		return t->status ? json_integer(t->status) : NULL;
	case FACT_EXIT_STATUS:
		return t->exit_status >= 0 ? json_integer(t->exit_status) : NULL;
	case FACT_LOG:
		return t->log && *t->log ? json_string(t->log) : NULL;
	case FACT_GIVEN:
		return t->given >= 0 ? json_true() : NULL;
	case FACT_KEEP:
		return t->asker ? json_false() : NULL;
	}
	return NULL;
}

/* Sets a fact from the file; v NULL: the file lacks it. The value is checked: the file may be
 * damaged, or of another version. */
static void set_fact(struct trace *t, const struct fact *f, const json_t *v)
{
	json_int_t n = json_integer_value(v) > 0 ? json_integer_value(v) : 0;
	double d = json_number_value(v);
	void *at = (char *)t + f->at;

	switch (f->kind) {
	case FACT_TEXT:
		if (json_is_string(v))
			text__clean(at, f->size, json_string_value(v), json_string_length(v));
		break;
	case FACT_COUNT:
		*(uint64_t *)at = (uint64_t)n;
		break;
	case FACT_NUMBER:
		*(double *)at = d > 0 && d < 1e12 ? d : 0;
		break;
	case FACT_FLAG:
		*(bool *)at = json_is_true(v);
		break;
	case FACT_PID:
		t->pid = (pid_t)(n & INT32_MAX);
		break;
	case FACT_EXIT_STATUS:
		if (json_is_integer(v))
			t->exit_status = (int)(n & 255);
		break;
	default:
		break;
	}
}

/* Adds the last reading of host memory of a running capture. A finished trace has the reading in
 * its report. */
static void add_host_parts(json_t *o, const struct trace *t)
{
	json_t *parts = json_object();

	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		if (host_part__adds_up(i) && t->host_part[i] >= 0)
			json_object_set_new(parts, host_part__name(i),
					    json_integer(t->host_part[i]));
	if (t->state == TRACE_CAPTURING && json_object_size(parts))
		json_object_set(o, "host_parts", parts);
	json_decref(parts);
	if (t->state == TRACE_CAPTURING && t->host_live >= 0 && t->host_free >= 0)
		json_object_set_new(o, "host_use",
				    json_pack("{s:I,s:I}", "live", (json_int_t)t->host_live, "free",
					      (json_int_t)t->host_free));
}

json_t *trace__facts(const struct trace *t)
{
	json_t *shape = t->n_shape ? json_array() : NULL;
	json_t *o = json_object();

	for (size_t i = 0; i < FACTS; i++) {
		json_t *v = fact_json(t, &facts[i]);

		if (v)
			json_object_set_new(o, facts[i].key, v);
	}
	for (size_t i = 0; i < t->n_shape; i++)
		json_array_append_new(shape, json_integer(t->shape[i]));
	if (shape)
		json_object_set_new(o, "input_shape", shape);
	add_host_parts(o, t);
	return o;
}

/* The message about a trace; NULL: no memory. */
static json_t *make_message(const struct trace *t)
{
	return json_pack("{s:s,s:o}", "event", "trace", "trace", trace__facts(t));
}

void trace__tell(struct broker *b, const struct trace *t, bool soft)
{
	if (!t->dropping)
		peers__tell(b, make_message(t), t->state == TRACE_DONE ? t->report : -1, soft);
}

void trace__tell_one(struct peer *p, const struct trace *t)
{
	if (!t->dropping)
		peer__send(p, make_message(t),
			   t->state == TRACE_DONE && t->report >= 0 ? dup(t->report) : -1);
}

/* ---- files with facts ---- */

/* Writes a file of facts. The old file stays until the new one is complete, so that a kill or a
 * full disk loses nothing. Returns 0 or -errno. */
static int write_note(const struct store *s, const char *name, const char *text)
{
	char part[160];
	int fd, err;

	snprintf(part, sizeof(part), ".%s.part-facts", name);
	store__remove(s, part); /* left by a killed server */
	fd = store__create(s, part);
	if (fd < 0)
		return fd;
	err = io__write(fd, text, strlen(text));
	close(fd);
	if (!err && renameat(s->dir, part, s->dir, name))
		err = -errno;
	if (err)
		store__remove(s, part);
	return err;
}

void trace__note(const struct broker *b, const struct trace *t)
{
	char name[128], *text;
	json_t *o;
	int err;

	if (t->given >= 0 || b->store.own || t->dropping)
		return;
	snprintf(name, sizeof(name), "%s.json", t->id);
	o = trace__facts(t);
	text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	err = text ? write_note(&b->store, name, text) : -ENOMEM;
	if (err)
		log_warn("%s/%s: cannot be written: %s", b->store.path, name, strerror(-err));
	free(text);
	json_decref(o);
}

/* False: the note says that the trace was not to be kept. Without a note, all is as in a new
 * trace. */
bool trace__read_note(const struct broker *b, struct trace *t)
{
	uint64_t size = 0;
	char name[128], *text;
	const json_t *shape, *v;
	json_t *o = NULL;
	size_t i;
	bool keep;
	int fd;

	t->fragmentation = true;
	snprintf(name, sizeof(name), "%s.json", t->id);
	fd = store__open_file(&b->store, name, &size);
	if (fd < 0)
		return true;
	text = size <= NOTE_MOST ? malloc(size + 1) : NULL;
	if (text && io__read(fd, text, size) == (ssize_t)size)
		o = json_loadb(text, size, 0, NULL);
	free(text);
	close(fd);
	for (i = 0; json_is_object(o) && i < FACTS; i++)
		if (facts[i].kept)
			set_fact(t, &facts[i], json_object_get(o, facts[i].key));
	shape = json_object_get(o, "input_shape");
	json_array_foreach(shape, i, v)
		if (t->n_shape < TRACE_SHAPE && json_integer_value(v) > 0)
			t->shape[t->n_shape++] = json_integer_value(v);
	keep = !json_is_false(json_object_get(o, "keep"));
	json_decref(o);
	return keep;
}

void trace__forget_note(const struct broker *b, const struct trace *t)
{
	char name[128];

	snprintf(name, sizeof(name), "%s.json", t->id);
	if (t->given < 0)
		store__remove(&b->store, name);
}

/* ---- end ---- */

void trace__fail(struct broker *b, struct trace *t, int status, const char *text)
{
	t->state = TRACE_FAILED;
	t->status = status;
	snprintf(t->error, sizeof(t->error), "%s",
		 *text ? text : "the capture failed without a message");
	trace__tell(b, t, /*soft=*/false);
	if (!t->bytes)
		trace__forget_note(b, t);
	else
		trace__note(b, t);
}

void trace__done(struct broker *b, struct trace *t, int report)
{
	t->state = TRACE_DONE;
	t->report = report;
	trace__tell(b, t, /*soft=*/false);
	trace__note(b, t);
	/* The report is not needed again: a restarted push process does not send old reports. */
	close(t->report);
	t->report = -1;
}

int trace__open(const struct broker *b, const struct trace *t, uint64_t *size)
{
	char name[48];
	off_t end;
	int fd;

	if (t->given < 0)
		return store__open_file(&b->store, t->file, size);
	/* Open the file again, for a separate offset. */
	snprintf(name, sizeof(name), "/proc/self/fd/%d", t->given);
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return -errno;
	end = lseek(fd, 0, SEEK_END);
	if (end < 0 || lseek(fd, 0, SEEK_SET) < 0) {
		close(fd);
		return -EINVAL;
	}
	*size = (uint64_t)end;
	return fd;
}
