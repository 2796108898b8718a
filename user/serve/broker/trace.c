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
	t->run.said = -1;
	memset(t->host_part, -1, sizeof(t->host_part));
	t->deadline = UINT64_MAX;
	b->traces.v[b->traces.n++] = t;
	return t;
}

void trace__free(struct trace *t)
{
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

uint64_t traces__reserved(const struct broker *b)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < b->traces.n; i++)
		if (trace__runs(b->traces.v[i]) && b->traces.v[i]->reserved > b->traces.v[i]->bytes)
			sum += b->traces.v[i]->reserved - b->traces.v[i]->bytes;
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

static void put_count(json_t *o, const char *key, uint64_t n)
{
	json_object_set_new(o, key, json_integer((json_int_t)(n > INT64_MAX ? INT64_MAX : n)));
}

static void put_text(json_t *o, const char *key, const char *text)
{
	if (*text)
		json_object_set_new(o, key, json_string(text));
}

static void put_asked(json_t *o, const struct trace *t)
{
	json_t *shape = t->n_shape ? json_array() : NULL;

	if (t->host)
		json_object_set_new(o, "host", json_true());
	if (t->duration_s > 0)
		json_object_set_new(o, "duration_s", json_real(t->duration_s));
	if (t->start_at > 0)
		json_object_set_new(o, "start_at", json_real(t->start_at));
	if (t->align_s > 0)
		json_object_set_new(o, "align_s", json_real(t->align_s));
	if (t->steps_wanted)
		put_count(o, "steps_wanted", t->steps_wanted);
	if (t->batch_size)
		put_count(o, "batch_size", t->batch_size);
	for (size_t i = 0; i < t->n_shape; i++)
		json_array_append_new(shape, json_integer(t->shape[i]));
	if (shape)
		json_object_set_new(o, "input_shape", shape);
}

/* A finished trace has them in its report. */
static void put_host(json_t *o, const struct trace *t)
{
	json_t *parts = json_object();

	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		if (host_part__adds_up(i) && t->host_part[i] >= 0)
			put_count(parts, host_part__name(i), (uint64_t)t->host_part[i]);
	if (t->state == TRACE_CAPTURING && json_object_size(parts))
		json_object_set(o, "host_parts", parts);
	json_decref(parts);
}

json_t *trace__facts(const struct trace *t)
{
	json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:f,s:f,s:s,s:b}", "trace_id", t->id, "model_name",
			      t->model, "process", t->name, "state", states[t->state], "begun",
			      t->begun, "seconds", t->seconds, "file", t->file,
			      "enable_fragmentation", t->fragmentation);

	if (!o)
		return NULL;
	json_object_set_new(o, "pid", t->pid ? json_integer(t->pid) : json_null());
	put_count(o, "events", t->events);
	put_count(o, "lost", t->lost);
	put_count(o, "steps", t->steps);
	put_count(o, "bytes", t->bytes);
	if (t->max_events)
		put_count(o, "max_events", t->max_events);
	put_text(o, "stop_reason", t->stop_reason);
	put_text(o, "error", t->error);
	if (t->status)
		json_object_set_new(o, "status", json_integer(t->status));
	if (t->exit_status >= 0)
		json_object_set_new(o, "exit_status", json_integer(t->exit_status));
	if (t->log)
		put_text(o, "log", t->log);
	if (t->given >= 0)
		json_object_set_new(o, "given", json_true());
	put_text(o, "folder", t->folder);
	if (t->asker)
		json_object_set_new(o, "keep", json_false());
	put_asked(o, t);
	put_host(o, t);
	return o;
}

static json_t *message(const struct trace *t)
{
	return json_pack("{s:s,s:o}", "event", "trace", "trace", trace__facts(t));
}

void trace__tell(struct broker *b, const struct trace *t, bool soft)
{
	if (!t->dropping)
		peers__tell(b, message(t), t->state == TRACE_DONE ? t->report : -1, soft);
}

void trace__tell_one(struct peer *p, const struct trace *t)
{
	if (!t->dropping)
		peer__send(p, message(t),
			   t->state == TRACE_DONE && t->report >= 0 ? dup(t->report) : -1);
}

/* ---- files with facts ---- */

/* The old file stays until the new one is complete, so that a kill or a full disk loses nothing. */
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
	json_t *facts;
	int err;

	if (t->given >= 0 || b->store.own || t->dropping)
		return;
	snprintf(name, sizeof(name), "%s.json", t->id);
	facts = trace__facts(t);
	text = facts ? json_dumps(facts, JSON_COMPACT) : NULL;
	err = text ? write_note(&b->store, name, text) : -ENOMEM;
	if (err)
		log_warn("%s/%s: cannot be written: %s", b->store.path, name, strerror(-err));
	free(text);
	json_decref(facts);
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
	trace__tell(b, t, false);
	if (!t->bytes)
		trace__forget_note(b, t);
	else
		trace__note(b, t);
}

void trace__done(struct broker *b, struct trace *t, int report)
{
	t->state = TRACE_DONE;
	t->report = report;
	trace__tell(b, t, false);
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
