/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Checks requests for captures and starts the captures. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/capture.h"
#include "serve/broker/jobs.h"
#include "serve/broker/peers.h"
#include "serve/broker/processes.h"
#include "serve/broker/spawn.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"
#include "serve/serve.h"

#define DEFAULT_SECONDS 10.0
#define DEFAULT_EVENTS 1000000
#define START_WITHIN 600.0		       /* s: a capture starts at most this long from now */
#define CLOCKS_APART INT64_C(9000000000000000) /* ns: largest offset of a client's clock */
#define BYTES_AN_EVENT                                                                             \
	40 /* upper bound of an event's size in a recording, without names;                        \
	      docs/reference/mtr.md: usually 4 to 12 */
#define BYTES_ANYWAY (UINT64_C(8) << 20)
#define BYTES_LEAST (UINT64_C(1) << 20)

/* ---- checking a request ---- */

struct wanted {
	struct broker_process *process; /* process to capture; NULL: a command */
	const struct serve_target *target;
	double duration_s;
	double start_at, align_s; /* 0: not given */
	struct clock_apart {
		int64_t offset; /* ns */
		uint64_t error; /* ns; UINT64_MAX: not given */
	} clock;
	uint64_t steps, max_events, batch_size;
	int64_t shape[TRACE_SHAPE];
	size_t n_shape;
	bool fragmentation, host, keep;
	uint64_t bytes; /* bytes of the folder, reserved for the capture */
};

static bool take_shape(struct peer *p, json_t *msg, struct wanted *w)
{
	const json_t *a = json_object_get(msg, "input_shape");

	if (!a || json_is_null(a))
		return true;
	w->n_shape = json_array_size(a);
	if (!json_is_array(a) || !w->n_shape || w->n_shape > TRACE_SHAPE) {
		ask__refuse(p, ask__id(msg), 422, "input_shape",
			    "input_shape: must be an array of 1 to %d whole numbers", TRACE_SHAPE);
		return false;
	}
	for (size_t i = 0; i < w->n_shape; i++) {
		const json_t *v = json_array_get(a, i);

		w->shape[i] = json_integer_value(v);
		if (!json_is_integer(v) || w->shape[i] < 1 || w->shape[i] > INT32_MAX) {
			ask__refuse(p, ask__id(msg), 422, "input_shape",
				    "input_shape: each must be a whole number from 1 to %d",
				    INT32_MAX);
			return false;
		}
	}
	return true;
}

static bool take_flag(struct peer *p, json_t *msg, const char *key, bool *ret)
{
	const json_t *v = json_object_get(msg, key);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_boolean(v)) {
		ask__refuse(p, ask__id(msg), 422, key, "%s: must be true or false", key);
		return false;
	}
	*ret = json_is_true(v);
	return true;
}

static bool take_start(struct peer *p, json_t *msg, double longest, struct wanted *w)
{
	double now = clock__date();

	if (!ask__number(p, msg, "start_at", 0, 9e9, &w->start_at) ||
	    !ask__number(p, msg, "align_s", 0.1, longest, &w->align_s))
		return false;
	if (w->start_at <= now + longest)
		return true;
	ask__refuse(p, ask__id(msg), 409, "start_at",
		    "start_at: must be at most %g s (--max-duration) after %.3f, the time of this "
		    "host",
		    longest, now);
	return false;
}

/* One of the two without the other says nothing and is ignored. */
static bool take_clock(struct peer *p, json_t *msg, struct wanted *w)
{
	const json_t *v = json_object_get(msg, "clock_offset_ns");

	w->clock.error = UINT64_MAX;
	if (!ask__count(p, msg, "clock_offset_error_ns", 0, CLOCKS_APART, &w->clock.error))
		return false;
	if (!v || json_is_null(v)) {
		w->clock.error = UINT64_MAX;
		return true;
	}
	w->clock.offset = json_integer_value(v);
	if (json_is_integer(v) && w->clock.offset <= CLOCKS_APART &&
	    w->clock.offset >= -CLOCKS_APART)
		return true;
	ask__refuse(p, ask__id(msg), 422, "clock_offset_ns",
		    "clock_offset_ns: must be a whole number of nanoseconds");
	return false;
}

static bool take_wanted(struct peer *p, json_t *msg, struct wanted *w)
{
	const struct serve_args *a = p->b->args;
	double longest = (double)a->max_duration / 1e9;

	*w = (struct wanted){ .fragmentation = true,
			      .keep = true,
			      .max_events = a->max_events < DEFAULT_EVENTS ? a->max_events
									   : DEFAULT_EVENTS };
	if (!ask__number(p, msg, "duration_s", 0.001, longest, &w->duration_s) ||
	    !ask__count(p, msg, "steps", 1, 1000000000, &w->steps) ||
	    !ask__count(p, msg, "max_events", 1, a->max_events, &w->max_events) ||
	    !ask__count(p, msg, "batch_size", 1, INT32_MAX, &w->batch_size) ||
	    !take_start(p, msg, longest, w) || !take_clock(p, msg, w) || !take_shape(p, msg, w) ||
	    !take_flag(p, msg, "enable_fragmentation", &w->fragmentation) ||
	    !take_flag(p, msg, "host", &w->host) || !take_flag(p, msg, "keep", &w->keep))
		return false;
	w->process = processes__find(p, ask__id(msg), msg, &w->target);
	return w->process || (w->target && w->target->kind == TARGET_COMMAND);
}

/* Bytes of the folder for a new capture: an equal share of the free bytes for each capture that may
 * still start. 0: not enough is left. */
static uint64_t set_aside(const struct broker *b, uint64_t max_events)
{
	uint64_t used = store__used(&b->store) + traces__reserved(b) + jobs__reserved(b);
	uint64_t want = max_events * BYTES_AN_EVENT + BYTES_ANYWAY, share;

	share = used < b->args->max_disk
			? (b->args->max_disk - used) / (b->args->max_captures - traces__running(b))
			: 0;
	if (share < BYTES_LEAST)
		return 0;
	return want < share ? want : share;
}

static bool has_room(struct peer *p, json_int_t id, struct wanted *w)
{
	struct broker *b = p->b;
	size_t kept = 0;

	if (traces__running(b) >= b->args->max_captures) {
		ask__refuse(p, id, 429, NULL,
			    "%u captures are running, the most that may run at once "
			    "(--max-captures): try again when one has ended",
			    b->args->max_captures);
		return false;
	}
	for (size_t i = 0; i < b->traces.n; i++)
		kept += b->traces.v[i]->given < 0;
	/* Failed traces make room for new traces. */
	for (size_t i = 0; kept >= b->args->max_traces && i < b->traces.n;) {
		if (b->traces.v[i]->state == TRACE_FAILED && b->traces.v[i]->given < 0 &&
		    !b->traces.v[i]->dropping) {
			trace__delete(b, b->traces.v[i]);
			kept--;
		} else {
			i++;
		}
	}
	if (kept >= b->args->max_traces) {
		ask__refuse(p, id, 429, NULL,
			    "%u traces are stored, the most that may be kept (--max-traces): "
			    "delete some",
			    b->args->max_traces);
		return false;
	}
	w->bytes = set_aside(b, w->max_events);
	if (!w->bytes) {
		ask__refuse(p, id, 429, NULL,
			    "the server's folder is full (--max-disk): delete some traces");
		return false;
	}
	return true;
}

/* ---- starting ---- */

struct argv {
	const char *v[SPAWN_ARGS + 1];
	size_t n;
	char text[640];
	size_t at;
	char *env[4];
	char *shell;
};

static void put(struct argv *a, const char *word)
{
	if (a->n < SPAWN_ARGS)
		a->v[a->n++] = word;
}

__attribute__((format(printf, 3, 4))) static void put_text(struct argv *a, const char *option,
							   const char *fmt, ...)
{
	char *to = a->text + a->at;
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(to, sizeof(a->text) - a->at, fmt, args);
	va_end(args);
	if (len < 0 || (size_t)len >= sizeof(a->text) - a->at)
		return; /* unreachable: the array has room for all arguments */
	a->at += (size_t)len + 1;
	put(a, option);
	put(a, to);
}

static void put_number(struct argv *a, const char *option, uint64_t n, const char *unit)
{
	put_text(a, option, "%" PRIu64 "%s", n, unit);
}

static void put_start(struct argv *a, const struct wanted *w)
{
	char date[40];

	if (w->start_at > 0)
		put_text(a, "--at", "%s",
			 text__date(date, sizeof(date),
				    (uint64_t)llround(w->start_at * 1e3) * 1000000));
	else if (w->align_s > 0)
		put_text(a, "--at", "/%" PRIu64 "ns", (uint64_t)(w->align_s * 1e9));
	if (w->clock.error != UINT64_MAX)
		put_text(a, "--clock-offset", "%" PRId64 ",%" PRIu64, w->clock.offset,
			 w->clock.error);
}

/* The recorder writes to standard output, which is the file. */
static void put_bounds(struct argv *a, const struct wanted *w, int tell)
{
	put(a, "-q");
	if (w->host)
		put(a, "--host");
	put(a, "-o");
	put(a, "-");
	put_number(a, "--tell", (uint64_t)tell, "");
	put_number(a, "--max-events", w->max_events, "");
	put_number(a, "--max-size", w->bytes, "");
	if (w->duration_s > 0)
		put_number(a, "-d", (uint64_t)(w->duration_s * 1e9), "ns");
	if (w->steps)
		put_number(a, "--steps", w->steps, "");
	put_start(a, w);
}

static void put_environment(struct argv *a, const struct wanted *w)
{
	char shape[TRACE_SHAPE * 12] = "";
	size_t n = 0, at = 0;

	for (size_t i = 0; i < w->n_shape; i++)
		at += (size_t)snprintf(shape + at, sizeof(shape) - at, "%s%d", i ? "," : "",
				       (int)w->shape[i]);
	if (w->n_shape && asprintf(&a->env[n], "MEMTRACE_INPUT_SHAPE=%s", shape) > 0)
		n++;
	if (w->batch_size &&
	    asprintf(&a->env[n], "MEMTRACE_BATCH_SIZE=%" PRIu64, w->batch_size) > 0)
		n++;
	if (asprintf(&a->env[n], "MEMTRACE_MODEL_NAME=%s", w->target->name) > 0)
		n++;
	a->env[n] = NULL;
}

/* The command line for a shell other than bash. The capture must trace the command, not its shell.
 * bash replaces itself by its last command, but other shells may not, so a single command gets
 * "exec". "env" allows variables before the command's name. */
static char *shell_text(const char *text)
{
	char *ret = NULL;

	text += strspn(text, " \t");
	if (strpbrk(text, ";&|()`\n") || !strncmp(text, "exec ", 5) ||
	    asprintf(&ret, "exec env %s", text) < 0)
		ret = strdup(text);
	return ret;
}

static void put_command(const struct broker *b, struct argv *a, const struct wanted *w, int tell)
{
	put(a, "run");
	if (!b->args->no_dry_run) {
		put(a, "--dry-run-cuda");
		if (b->args->vram)
			put_number(a, "--vram", b->args->vram, "");
		if (b->args->devices)
			put_number(a, "--devices", b->args->devices, "");
	}
	if (*b->command_user) {
		put(a, "--user");
		put(a, b->command_user);
	}
	put(a, "--command-env");
	put(a, b->args->command_env ? b->args->command_env : "");
	put_bounds(a, w, tell);
	put(a, "--");
	a->shell = access("/bin/bash", X_OK) ? shell_text(w->target->text) : NULL;
	put(a, a->shell ? "/bin/sh" : "/bin/bash");
	put(a, "-c");
	put(a, a->shell ? a->shell : w->target->text);
	put_environment(a, w);
}

/* Makes an unused trace ID from the milliseconds since 1970. */
static void make_id(struct broker *b, char *buf, size_t size)
{
	char file[96];

	do {
		int64_t now = (int64_t)(clock__date() * 1000);

		b->traces.last_id = now > b->traces.last_id ? now : b->traces.last_id + 1;
		snprintf(buf, size, "trace_%" PRId64, b->traces.last_id);
		snprintf(file, sizeof(file), "%s.mtr", buf);
	} while (trace__find(b, buf) || trace__of_recording(b, file) ||
		 store__has(&b->store, file));
}

static int spawn(struct broker *b, struct trace *t, const struct wanted *w)
{
	struct argv a = { 0 };
	char pid[16];
	int tell[2], file, err;

	file = store__create(&b->store, t->file);
	if (file < 0)
		return file;
	if (pipe2(tell, O_CLOEXEC | O_NONBLOCK)) {
		err = -errno;
		close(file);
		return err;
	}
	if (w->process) {
		snprintf(pid, sizeof(pid), "%d", (int)w->process->pid);
		put(&a, "record");
		put(&a, "-p");
		put(&a, pid);
		put(&a, "--cost");
		put(&a, b->args->cost ?: w->keep ? "off" : CAPTURE_COST);
		put_bounds(&a, w, tell[1]);
	} else {
		put_command(b, &a, w, tell[1]);
	}
	err = spawn__self(&(struct spawn_opts){ .argv = a.v,
						.env = (const char *const *)a.env,
						.out = file,
						.keep = tell[1] },
			  &t->run);
	for (size_t i = 0; i < sizeof(a.env) / sizeof(*a.env); i++)
		free(a.env[i]);
	free(a.shell);
	close(file);
	close(tell[1]);
	t->tell = tell[0];
	return err;
}

static void fill(struct trace *t, struct peer *p, const struct wanted *w)
{
	snprintf(t->model, sizeof(t->model), "%s", w->target ? w->target->name : "");
	t->is_command = !w->process;
	if (w->process) {
		t->pid = w->process->pid;
		snprintf(t->name, sizeof(t->name), "%s", w->process->name);
	} else {
		text__clean(t->name, sizeof(t->name), w->target->text, strlen(w->target->text));
	}
	t->begun = clock__date();
	t->duration_s = w->duration_s;
	t->start_at = w->start_at;
	t->align_s = w->align_s;
	t->steps_wanted = w->steps;
	t->max_events = w->max_events;
	t->fragmentation = w->fragmentation;
	t->host = w->host;
	t->batch_size = w->batch_size;
	t->n_shape = w->n_shape;
	memcpy(t->shape, w->shape, sizeof(t->shape));
	t->reserved = w->bytes;
	t->asker = w->keep ? NULL : p;
	/* A command has no time limit here, because it may import PyTorch at any time. */
	t->deadline = clock__monotonic() + (t->is_command ? p->b->args->max_duration + CAPTURE_GRACE
							  : CAPTURE_START_WITHIN);
}

void capture__asked(struct peer *p, json_t *msg)
{
	json_int_t id = ask__id(msg);
	struct broker *b = p->b;
	struct wanted w;
	struct trace *t;
	char name[64];
	int err;

	if (!take_wanted(p, msg, &w) || !has_room(p, id, &w))
		return;
	if (w.process && w.duration_s <= 0 && !w.steps)
		w.duration_s = DEFAULT_SECONDS * 1e9 <= (double)b->args->max_duration
				       ? DEFAULT_SECONDS
				       : (double)b->args->max_duration / 1e9;
	make_id(b, name, sizeof(name));
	t = trace__new(b, name);
	if (!t) {
		ask__refuse(p, id, 503, NULL, "out of memory");
		return;
	}
	fill(t, p, &w);
	err = spawn(b, t, &w);
	if (err) {
		ask__refuse(p, id, 503, NULL, "cannot start the capture: %s", strerror(-err));
		t->dropping = true; /* the peers do not know the trace yet */
		trace__delete(b, t);
		return;
	}
	trace__tell(b, t, false);
	trace__note(b, t);
	ask__answer(p, id, json_pack("{s:o}", "trace", trace__facts(t)), -1);
}
