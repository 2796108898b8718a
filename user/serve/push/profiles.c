/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A round of profiles: for each process a short capture, its export to pprof, the push, and
 * deletion of the trace. One process at a time, because a capture slows its job. */
#include "serve/push/push.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"

/* 128 random bits, so that no profile contains the boundary. */
#define BOUNDARY "memtrace-bpf-5d1f0c7a9b3e48629f6a2c84d0e7b513"
#define PROFILE (16 << 20) /* largest profile, in bytes */
/* time that a capture and its export may take beyond the capture's own length, ns */
#define CAPTURE_SLACK 180000000000

/* ---- requests to Pyroscope ---- */

/* Profiles for Pyroscope's POST /ingest. The URL names the process; the body is a form with two
 * files. */

const char pyroscope_type[] = "multipart/form-data; boundary=" BOUNDARY;

/* Memory in use is averaged over time; allocated memory is added up. */
static const char config[] = "{\"inuse_space\":{\"units\":\"bytes\",\"display-name\":\"inuse_"
			     "space\",\"aggregation\":\"average\",\"sampled\":false},"
			     "\"inuse_objects\":{\"units\":\"objects\",\"display-name\":\"inuse_"
			     "objects\",\"aggregation\":\"average\",\"sampled\":false},"
			     "\"alloc_space\":{\"units\":\"bytes\",\"display-name\":\"alloc_"
			     "space\",\"aggregation\":\"sum\",\"sampled\":false},"
			     "\"alloc_objects\":{\"units\":\"objects\",\"display-name\":\"alloc_"
			     "objects\",\"aggregation\":\"sum\",\"sampled\":false}}";

#define PLAIN "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-"

static bool is_plain_char(char c)
{
	return c && strchr(PLAIN, c);
}

/* Writes s for a URL; replaces special characters with underscores. */
static void put_plain(FILE *out, const char *s)
{
	for (; *s; s++)
		fputc(is_plain_char(*s) ? *s : '_', out);
}

/* Writes "key=value", after a comma if more is true, with comma and equals sign percent-encoded. */
static void put_label(FILE *out, const char *key, const char *value, bool more)
{
	fprintf(out, "%s%s%%3D", more ? "%2C" : "", key);
	put_plain(out, value);
}

int profiles__url(const char *base, const struct profile_of *of, char **url)
{
	const struct state_process *p = of->process;
	size_t len = strlen(base), size;
	char *text = NULL, number[24];
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return -ENOMEM;
	while (len && base[len - 1] == '/')
		len--;
	fprintf(out, "%.*s/ingest?name=", (int)len, base);
	put_plain(out, *p->target ? p->target : "pytorch");
	fputs("%7B", out);
	snprintf(number, sizeof(number), "%u", p->slot);
	put_label(out, "process", number, /*more=*/false);
	if (p->rank >= 0) {
		snprintf(number, sizeof(number), "%" PRId64, p->rank);
		put_label(out, "rank", number, /*more=*/true);
	}
	if (of->host)
		put_label(out, "hostname", of->host, /*more=*/true);
	if (*p->pod)
		put_label(out, "pod_uid", p->pod, /*more=*/true);
	if (*p->container)
		put_label(out, "container_id", p->container, /*more=*/true);
	fprintf(out, "%%7D&from=%" PRIu64 "&until=%" PRIu64 "&format=pprof&spyName=memtrace-bpf",
		of->from / 1000000000, of->until / 1000000000);
	if (fclose(out)) {
		free(text);
		return -ENOMEM;
	}
	*url = text;
	return 0;
}

int profiles__body(const void *profile, size_t size, char **body, size_t *body_size)
{
	char *text = NULL;
	size_t all;
	FILE *out = open_memstream(&text, &all);

	if (!out)
		return -ENOMEM;
	fputs("--" BOUNDARY
	      "\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"profile.pprof\"\r\n"
	      "Content-Type: application/octet-stream\r\n\r\n",
	      out);
	fwrite(profile, 1, size, out);
	fputs("\r\n--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"sample_type_config\"; "
	      "filename=\"sample_type_config.json\"\r\n"
	      "Content-Type: application/json\r\n\r\n",
	      out);
	fputs(config, out);
	fputs("\r\n--" BOUNDARY "--\r\n", out);
	if (fclose(out)) {
		free(text);
		return -ENOMEM;
	}
	*body = text;
	*body_size = all;
	return 0;
}

/* ---- profiles of the traces ---- */

/* The pending request to the broker; WAIT: the capture runs; IDLE: no profile is being made. */
enum step { IDLE, CAPTURE, WAIT, EXPORT, OPEN, DELETE };

struct process_id {
	pid_t pid;
	double started;
};

struct profiles {
	struct profiles_opts opts;
	struct process_id todo[STATE_PROCESSES]; /* processes of the round */
	size_t n, at;				 /* their number, and the current one */
	enum step step;
	enum push_to to; /* the server that the profile is exported for */
	/* asked: ID of the pending request to the broker; deadline: ns, monotonic */
	uint64_t asked, deadline;
	char trace[40]; /* ID of the temporary trace; "": none */
	struct profile_of of;
	struct process_id logged[STATE_PROCESSES]; /* processes whose failure was logged */
	size_t n_logged;
	uint64_t failed; /* profiles that could not be made */
};

struct profiles *profiles__new(const struct profiles_opts *o)
{
	struct profiles *p = calloc(1, sizeof(*p));

	if (p)
		p->opts = *o;
	return p;
}

void profiles__free(struct profiles *p)
{
	free(p);
}

uint64_t profiles__failed(const struct profiles *p)
{
	return p->failed;
}

void profiles__begin(struct profiles *p)
{
	const struct state *s = p->opts.state;

	if (p->step != IDLE || p->at < p->n)
		return;
	p->n = p->at = 0;
	for (size_t i = 0; i < s->n_processes; i++)
		p->todo[p->n++] = (struct process_id){ s->processes[i]->pid,
						       s->processes[i]->started };
}

/* The current process. NULL: it has ended, or its PID was reused. */
static const struct state_process *find_current(struct profiles *p)
{
	const struct process_id *id = &p->todo[p->at];
	const struct state_process *found = serve_state__process(p->opts.state, id->pid);

	return found && found->started == id->started ? found : NULL;
}

/* Sends a request to the broker and sets the step. False: it cannot be sent. */
static bool send_request(struct profiles *p, enum step step, json_t *msg)
{
	p->asked = ++*p->opts.last_id;
	p->step = step;
	if (!msg || json_object_set_new(msg, "id", json_integer((json_int_t)p->asked))) {
		json_decref(msg);
		return false;
	}
	return !link__send(p->opts.link, msg, /*fd=*/-1);
}

/* Deletes the temporary trace, then goes on to the next process. */
static void end_process(struct profiles *p)
{
	if (*p->trace &&
	    send_request(p, DELETE, json_pack("{s:s, s:s}", "do", "delete", "trace_id", p->trace)))
		return;
	*p->trace = '\0';
	p->step = IDLE;
	p->at++;
}

/* True if a failure of this process was logged before; remembers it otherwise. */
static bool was_logged(struct profiles *p, const struct process_id *id)
{
	for (size_t i = 0; i < p->n_logged; i++)
		if (p->logged[i].pid == id->pid && p->logged[i].started == id->started)
			return true;
	if (p->n_logged == STATE_PROCESSES)
		p->n_logged = 0;
	p->logged[p->n_logged++] = *id;
	return false;
}

/* Counts and, once for each process, logs a failure. Then goes on to the next process. */
static void fail_profile(struct profiles *p, const char *why)
{
	const struct process_id *id = &p->todo[p->at];
	char clean[400];

	p->failed++;
	if (!was_logged(p, id)) {
		text__clean(clean, sizeof(clean), why, strlen(why));
		log_warn("no profile of PID %d to push: %s", (int)id->pid, clean);
	}
	end_process(p);
}

/* Asks for the export of the trace for the next server after `to`, or ends with this process.
 * PUSH_NR: for the first one. */
static void export_for_next(struct profiles *p, enum push_to to)
{
	const char *format = NULL;

	if (to == PUSH_NR && p->opts.pyroscope) {
		p->to = PUSH_PYROSCOPE;
		format = "pprof";
	} else if (to != PUSH_OTLP_PROFILES && p->opts.otlp) {
		p->to = PUSH_OTLP_PROFILES;
		format = "otlp";
	}
	if (!format)
		end_process(p);
	else if (!send_request(p, EXPORT,
			       json_pack("{s:s, s:s, s:s}", "do", "export", "trace_id", p->trace,
					 "format", format)))
		fail_profile(p, "the request could not be sent");
}

/* Asks for a capture of the current process, or skips the process if it has ended. */
static void begin_capture(struct profiles *p, uint64_t now)
{
	if (!find_current(p)) {
		p->at++;
		return;
	}
	p->deadline = now + (uint64_t)(p->opts.seconds * 1e9) + CAPTURE_SLACK;
	p->of = (struct profile_of){ .from = clock__read(CLOCK_REALTIME) };
	if (!send_request(p, CAPTURE,
			  json_pack("{s:s, s:i, s:f, s:b}", "do", "capture", "pid",
				    (int)p->todo[p->at].pid, "duration_s", p->opts.seconds, "keep",
				    0)))
		fail_profile(p, "the request could not be sent");
}

/* Goes on to the export if the capture is done. */
static void check_trace(struct profiles *p)
{
	const struct state_trace *t = serve_state__trace(p->opts.state, p->trace);
	const char *state = t ? json_string_value(json_object_get(t->facts, "state")) : NULL;
	const char *why;

	/* Wait, up to the deadline: the trace's first event may arrive after the answer. */
	if (!state)
		return;
	if (!strcmp(state, "failed")) {
		why = json_string_value(json_object_get(t->facts, "error"));
		fail_profile(p, why ? why : "the capture failed");
	} else if (!strcmp(state, "done")) {
		p->of.until = clock__read(CLOCK_REALTIME);
		export_for_next(p, PUSH_NR);
	}
}

/* A step that takes too long counts as failed, and the next process follows. */
void profiles__step(struct profiles *p, uint64_t now)
{
	while (p->step == IDLE && p->at < p->n)
		begin_capture(p, now);
	if (p->step == WAIT)
		check_trace(p);
	if (p->step == IDLE || now < p->deadline)
		return;
	if (p->step == DELETE) {
		*p->trace = '\0';
		end_process(p);
		return;
	}
	fail_profile(p, "it takes too long");
}

/* Queues the profile for Pyroscope. Returns 0 or -ENOMEM. */
static int to_pyroscope(struct profiles *p, const void *data, size_t size)
{
	char *url, *body;
	size_t body_size;
	int err = profiles__url(p->opts.pyroscope, &p->of, &url);

	if (err)
		return err;
	err = profiles__body(data, size, &body, &body_size);
	if (!err)
		sender__post(p->opts.sender, PUSH_PYROSCOPE, url, pyroscope_type, body, body_size);
	free(url);
	return err;
}

/* Queues the profile for the OTLP collector. Returns 0, -ENOMEM or -EBADMSG. */
static int to_otlp(struct profiles *p, const void *data, size_t size)
{
	size_t body_size;
	char *body;
	int err = otlp__profile(data, size, &p->of, &body, &body_size);

	if (err)
		return err;
	sender__post(p->opts.sender, PUSH_OTLP_PROFILES, p->opts.otlp, "application/x-protobuf",
		     body, body_size);
	return 0;
}

/* Queues the exported profile, an open file, for sending. */
static void post_profile(struct profiles *p, int fd)
{
	char *data;
	size_t size;
	int err;

	p->of.process = find_current(p);
	p->of.host = p->opts.host;
	if (!p->of.process) {
		end_process(p);
		return;
	}
	data = io__load(fd, PROFILE, &size);
	if (!data) {
		fail_profile(p, "its file is unreadable or too large");
		return;
	}
	err = p->to == PUSH_PYROSCOPE ? to_pyroscope(p, data, size) : to_otlp(p, data, size);
	free(data);
	if (err)
		fail_profile(p, err == -ENOMEM ? "no memory" : "its file is damaged");
	else
		export_for_next(p, p->to);
}

/* Takes the trace of the capture that the broker has begun. */
static void keep_trace_id(struct profiles *p, const json_t *msg)
{
	const char *id = json_string_value(
		json_object_get(json_object_get(msg, "trace"), "trace_id"));

	if (!id || strlen(id) >= sizeof(p->trace)) {
		fail_profile(p, "the broker gave no trace");
		return;
	}
	memcpy(p->trace, id, strlen(id) + 1);
	p->step = WAIT;
}

/* Asks the broker for the exported file. */
static void open_profile(struct profiles *p, const json_t *msg)
{
	const char *file = json_string_value(json_object_get(msg, "file"));

	if (!file || !send_request(p, OPEN, json_pack("{s:s, s:s}", "do", "open", "file", file)))
		fail_profile(p, "the request could not be sent");
}

bool profiles__answered(struct profiles *p, const json_t *msg, int fd, uint64_t now)
{
	const char *why = json_string_value(json_object_get(msg, "detail"));

	if (p->step == IDLE || p->step == WAIT) /* no request is pending */
		return false;
	if (json_integer_value(json_object_get(msg, "id")) != (json_int_t)p->asked)
		return false;
	if (p->step == DELETE) {
		*p->trace = '\0';
		end_process(p);
	} else if (!json_is_true(json_object_get(msg, "ok"))) {
		fail_profile(p, why ? why : "the broker gave no reason");
	} else if (p->step == CAPTURE) {
		keep_trace_id(p, msg);
	} else if (p->step == EXPORT) {
		open_profile(p, msg);
	} else {
		post_profile(p, fd);
	}
	if (fd >= 0)
		close(fd);
	profiles__step(p, now);
	return true;
}
