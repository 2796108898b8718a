/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Each capture is a process, `record` or `run`, that writes to a file created here. It reports its
 * state through a pipe (capture/save/output.h). Its exit status and messages go into the
 * trace. */
#include "serve/broker/capture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/broker/broker.h"
#include "serve/broker/jobs.h"
#include "serve/broker/peers.h"
#include "serve/broker/spawn.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"

#define LOG_SHOWN 2048 /* bytes of a command's output that go into its trace */
#define SECOND UINT64_C(1000000000)
#define URGE_AFTER (8 * SECOND) /* time between two requests to end */

/* ---- ending a capture ---- */

/* Sends the next stronger signal. A command gets SIGTERM first, so that it can save its data. */
static void send_end_signal(struct trace *t)
{
	switch (t->urged++) {
	case 0:
		subprocess__signal(&t->run.process, t->is_command ? SIGTERM : SIGINT);
		break;
	case 1:
		/* `run` is the parent and still waits for the command, so the PID is valid. */
		if (t->is_command && spawned__has_started(&t->run, t->pid))
			kill(t->pid, SIGKILL);
		else
			subprocess__signal(&t->run.process, SIGINT);
		break;
	default:
		subprocess__signal(&t->run.process, SIGKILL);
	}
	t->deadline = clock__monotonic() + URGE_AFTER;
}

void capture__stop(struct broker *b, struct trace *t)
{
	(void)b;
	if (!trace__runs(t) || t->stopping)
		return;
	t->stopping = true;
	send_end_signal(t);
}

void trace__delete(struct broker *b, struct trace *t)
{
	if (trace__runs(t)) {
		if (!t->dropping)
			peers__tell(b, json_pack("{s:s,s:s}", "event", "gone", "trace_id", t->id),
				    -1, false);
		t->dropping = true;
		/* The recorder has the file open and needs no name. */
		store__remove(&b->store, t->file);
		trace__forget_note(b, t);
		capture__stop(b, t);
		return;
	}
	if (!t->dropping)
		peers__tell(b, json_pack("{s:s,s:s}", "event", "gone", "trace_id", t->id), -1,
			    false);
	jobs__forget(b, NULL, t);
	if (t->given < 0) {
		store__remove(&b->store, t->file);
		trace__forget_note(b, t);
	}
	for (size_t i = 0; i < t->n_exports; i++)
		store__remove(&b->store, t->exports[i].file);
	for (size_t i = 0; i < b->traces.n; i++) {
		if (b->traces.v[i] != t)
			continue;
		memmove(&b->traces.v[i], &b->traces.v[i + 1],
			(b->traces.n - i - 1) * sizeof(*b->traces.v));
		b->traces.n--;
		break;
	}
	trace__free(t);
}

void trace__finish(struct broker *b, struct trace *t)
{
	int err;

	t->state = TRACE_FINISHING;
	trace__tell(b, t, false);
	trace__note(b, t);
	err = jobs__report(b, t);
	if (err)
		trace__fail(b, t, 503, strerror(-err));
}

/* ---- status lines ---- */

static uint64_t count(const json_t *o, const char *key, uint64_t before)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v)
								: before;
}

/* How long the recorder waits for the start of its window, s. */
static double waits(const struct trace *t)
{
	double ahead = t->start_at > 0 ? t->start_at - clock__date() : t->align_s;

	return ahead > 0 ? ahead : 0;
}

/* The recorder has attached: sets the state and the deadline. */
static void begin_capturing(struct broker *b, struct trace *t)
{
	double longest = (double)b->args->max_duration / 1e9,
	       wanted = (t->duration_s > 0 ? t->duration_s : longest) + waits(t);

	t->attached = true;
	if (t->is_command) /* the process now runs the command's program, not our own */
		peer__send(&b->peers[PEER_LOOK],
			   json_pack("{s:s,s:i,s:s}", "do", "add", "pid", (int)t->pid, "target",
				     t->model),
			   -1);
	if (t->state == TRACE_STARTING)
		t->state = TRACE_CAPTURING;
	if (!t->stopping)
		t->deadline = clock__monotonic() + (uint64_t)(wanted * 1e9) +
			      (t->duration_s > 0 ? CAPTURE_GRACE : 0);
	log_event(LOG_DEBUG, "attached",
		  LOG_FIELDS(LOG_STRING("trace", t->id), LOG_INT("target", t->pid)),
		  "%s: PID %d is traced", t->id, (int)t->pid);
	trace__tell(b, t, false);
}

/* The last reading of the process's host memory. NULL: none yet. */
static void take_host(struct trace *t, const json_t *parts)
{
	for (unsigned i = 0; parts && i < HOST_PARTS_END; i++) {
		const json_t *v = json_object_get(parts, host_part__name(i));

		t->host_part[i] = json_is_integer(v) ? json_integer_value(v) : -1;
	}
}

static void take_status(struct broker *b, struct trace *t, const json_t *o)
{
	const char *state = json_string_value(json_object_get(o, "state")),
		   *reason = json_string_value(json_object_get(o, "reason"));
	const json_t *seconds = json_object_get(o, "seconds");
	pid_t before = t->pid;

	t->pid = (pid_t)count(o, "pid", (uint64_t)t->pid);
	t->dropped = count(o, "dropped", t->dropped);
	t->events = count(o, "events", t->events + t->dropped);
	/* dropped events are not in the file */
	t->events -= t->dropped < t->events ? t->dropped : t->events;
	t->lost = count(o, "lost", t->lost);
	t->steps = count(o, "steps", t->steps);
	t->bytes = count(o, "bytes", t->bytes);
	if (json_is_number(seconds) && json_number_value(seconds) >= 0 &&
	    json_number_value(seconds) < 1e9)
		t->seconds = json_number_value(seconds);
	take_host(t, json_object_get(o, "host"));
	if (reason)
		text__clean(t->stop_reason, sizeof(t->stop_reason), reason, strlen(reason));
	t->opened = true;
	if (state && strcmp(state, "opened") != 0 && !t->attached && seconds)
		begin_capturing(b, t);
	else if (t->pid != before)
		trace__tell(b, t, false);
	/* The recording has ended before the command, so end the command, too. */
	if (state && !strcmp(state, "ended") && t->is_command && t->attached &&
	    strcmp(t->stop_reason, "target exited") != 0)
		capture__stop(b, t);
}

static void read_status(struct broker *b, struct trace *t)
{
	for (int i = 0; i < 64 && t->tell >= 0; i++) {
		ssize_t n = read(t->tell, t->line + t->n_line, sizeof(t->line) - t->n_line);
		char *end;

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n > 0)
			t->n_line += (size_t)n;
		while ((end = memchr(t->line, '\n', t->n_line))) {
			json_t *o = json_loadb(t->line, (size_t)(end - t->line), 0, NULL);

			if (json_is_object(o))
				take_status(b, t, o);
			json_decref(o);
			t->n_line -= (size_t)(end + 1 - t->line);
			memmove(t->line, end + 1, t->n_line);
		}
		if (n <= 0 || t->n_line == sizeof(t->line)) {
			close(t->tell);
			t->tell = -1;
		}
	}
}

/* ---- end ---- */

static int http_status(int status)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_UNUSABLE ? 404 : 503;
}

static void keep_log(struct trace *t)
{
	size_t n = t->run.n_last < LOG_SHOWN ? t->run.n_last : LOG_SHOWN;
	const char *text = t->run.last + t->run.n_last - n;
	char line[512], *log = calloc(1, 4 * LOG_SHOWN);
	size_t at = 0;

	/* Clean each line separately, so that line ends stay. */
	while (log && n) {
		const char *end = memchr(text, '\n', n);
		size_t len = end ? (size_t)(end - text) : n;

		text__clean(line, sizeof(line), text, len);
		at += (size_t)snprintf(log + at, 4 * LOG_SHOWN - at, "%s%s", at ? "\n" : "", line);
		if (at >= 4 * LOG_SHOWN)
			break;
		n -= len + (end != NULL);
		text = end ? end + 1 : text + len;
	}
	free(t->log);
	t->log = log;
}

static void explain_failure(const struct broker *b, const struct trace *t, int status, char *buf,
			    size_t size)
{
	char words[360];

	spawned__words(&t->run, words, sizeof(words));
	if (*words && t->is_command && !b->args->command_user && WIFEXITED(status) &&
	    WEXITSTATUS(status) >= 126)
		snprintf(buf, size,
			 "%s; commands run as user %s: choose another with --command-user", words,
			 *b->command_user ? b->command_user : "who serves");
	else if (*words && t->is_command && strstr(words, "which the command has started"))
		snprintf(buf, size,
			 "PyTorch runs in a process that the command started, not in the command "
			 "itself: start that process with exec");
	else if (*words)
		snprintf(buf, size, "%s", words);
	else if (t->stopping)
		snprintf(buf, size, "it was stopped before it recorded anything");
	else if (t->urged && !t->is_command)
		snprintf(buf, size, "PID %d %s within %d s", (int)t->pid,
			 t->opened ? "has not loaded PyTorch" : "could not be attached to",
			 (int)(CAPTURE_START_WITHIN / SECOND));
	else if (WIFSIGNALED(status))
		snprintf(buf, size, "signal %d (%s) ended the recorder", WTERMSIG(status),
			 sigdescr_np(WTERMSIG(status)));
	else if (t->is_command)
		snprintf(buf, size,
			 "the command ended with status %d, and nothing was recorded: does it use "
			 "PyTorch?",
			 WEXITSTATUS(status));
	else
		snprintf(buf, size, "the recorder ended with status %d and recorded nothing",
			 WEXITSTATUS(status));
}

static void ended(struct broker *b, struct trace *t, int status)
{
	uint64_t size = 0;
	char why[512];
	int fd;

	read_status(b, t);
	if (t->tell >= 0)
		close(t->tell);
	t->tell = -1;
	if (t->is_command) {
		t->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		keep_log(t);
	}
	explain_failure(b, t, status, why, sizeof(why));
	spawned__close(&t->run);
	fd = store__open_file(&b->store, t->file, &size);
	if (fd >= 0)
		close(fd);
	t->bytes = size;
	log_event(LOG_DEBUG, "recorded",
		  LOG_FIELDS(LOG_STRING("trace", t->id), LOG_INT("target", t->pid),
			     LOG_STRING("path", t->file), LOG_UINT("events", t->events),
			     LOG_UINT("lost", t->lost), LOG_UINT("bytes", size),
			     LOG_UINT("steps", t->steps), LOG_STRING("reason", t->stop_reason)),
		  "%s: the recorder has ended", t->id);
	if (t->dropping) {
		trace__delete(b, t);
	} else if (!t->attached || !size) {
		store__remove(&b->store, t->file);
		t->bytes = 0;
		trace__fail(b, t, http_status(status), why);
	} else {
		/* The recorder failed, but the recording before the failure is readable. */
		if (!t->is_command && status && !(WIFSIGNALED(status) && t->stopping))
			snprintf(t->error, sizeof(t->error), "%s", why);
		trace__finish(b, t);
	}
}

void capture__pump(struct broker *b, struct trace *t, uint64_t now)
{
	int status;

	spawned__read(&t->run);
	read_status(b, t);
	if (spawned__ended(&t->run, &status))
		ended(b, t, status);
	else if (now >= t->deadline)
		send_end_signal(t);
}
