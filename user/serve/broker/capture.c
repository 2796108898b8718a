/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Each capture is a process, `record` or `run`, that writes to a file created here. It reports its
 * state through a socket (tell_status() in capture/save/recording.c). Its exit status and messages
 * go into the trace. */
#include "serve/broker/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/jobs.h"
#include "serve/broker/peers.h"
#include "serve/broker/processes.h"
#include "serve/broker/spawn.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"
#include "serve/serve.h"

#define DEFAULT_SECONDS 10.0
#define DEFAULT_EVENTS 1000000
#define CLOCK_OFFSET_MAX 9e15 /* ns: largest offset of a client's clock */
/* Upper bound of an event's size in a recording, without names; usually 4 to 12:
 * docs/reference/mtr.md. */
#define BYTES_PER_EVENT 40
#define BYTES_OF_NAMES (UINT64_C(8) << 20) /* reserved for the rest of a recording */
#define SHARE_MIN (UINT64_C(1) << 20)	   /* fewer bytes are not worth a capture */
#define LOG_SHOWN 2048			   /* bytes of a command's output that go into its trace */
#define SECOND UINT64_C(1000000000)
#define FIGURES_WAIT 1024 /* messages waiting for `web` beyond which figures are left out */
#define LAST_READS 64	  /* calls of read_messages() after the recorder's end, at most */
#define SHELL_FAILS 126 /* exit code of a shell that cannot execute a command; others are higher */
#define URGE_AFTER (8 * SECOND) /* time between two signals that end a capture, ns */

/* ---- checking a request ---- */

/* Values of a request; 0: not given. */
struct wanted {
	struct broker_process *process; /* process to capture; NULL: a command */
	const struct serve_target *target;
	double duration_s;
	double start_at, align_s;
	struct clock_apart {
		int64_t offset; /* ns */
		uint64_t error; /* ns; UINT64_MAX: not given */
	} clock;
	uint64_t steps, max_events, batch_size;
	int64_t shape[TRACE_SHAPE];
	size_t n_shape;
	bool fragmentation, host, keep;
	uint64_t bytes; /* size limit of the recording; reserved in the folder */
};

/* Reads the shape of the model's input, which is checked. */
static void read_shape(const json_t *msg, struct wanted *w)
{
	const json_t *a = json_object_get(msg, "input_shape");

	w->n_shape = json_array_size(a);
	for (size_t i = 0; i < w->n_shape; i++)
		w->shape[i] = json_integer_value(json_array_get(a, i));
}

/* The value of a checked boolean, or `otherwise` if it is missing. */
static bool read_flag(const json_t *msg, const char *key, bool otherwise)
{
	const json_t *v = json_object_get(msg, key);

	return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

/* Reads when the capture starts. False: the request has been refused. */
static bool read_start(struct peer *p, json_t *msg, double longest, struct wanted *w)
{
	double now = clock__date();

	w->start_at = json_number_value(json_object_get(msg, "start_at"));
	w->align_s = json_number_value(json_object_get(msg, "align_s"));
	if (w->start_at <= now + longest)
		return true;
	ask__refuse(p, ask__id(msg), 409, "start_at",
		    "start_at: must be at most %g s (--max-duration) after %.3f, the time of this "
		    "host",
		    longest, now);
	return false;
}

/* Reads the offset of the client's clock and its error. One without the other is ignored. */
static void read_clock(const json_t *msg, struct wanted *w)
{
	const json_t *v = json_object_get(msg, "clock_offset_ns");

	w->clock.offset = json_integer_value(v);
	w->clock.error = json_is_integer(v) ? ask__count(msg, "clock_offset_error_ns",
							 /*otherwise=*/UINT64_MAX)
					    : UINT64_MAX;
}

/* Checks and reads a request to capture. False: it has been refused. */
static bool read_request(struct peer *p, json_t *msg, struct wanted *w)
{
	const struct serve_args *a = p->b->args;
	double longest = (double)a->max_duration / 1e9;
	const struct field fields[] = {
		ASK_NUMBER("duration_s", 0.001, longest),
		ASK_COUNT("steps", 1, 1000000000),
		ASK_COUNT("max_events", 1, (double)a->max_events),
		ASK_COUNT("batch_size", 1, INT32_MAX),
		ASK_NUMBER("start_at", 0, 9e9),
		ASK_NUMBER("align_s", 0.1, longest),
		ASK_COUNT("clock_offset_error_ns", 0, CLOCK_OFFSET_MAX),
		FIELD("clock_offset_ns", INTEGER, .min = -CLOCK_OFFSET_MAX, .max = CLOCK_OFFSET_MAX,
		      .nullable = true, .help = "must be a whole number of nanoseconds"),
		FIELD("input_shape", INTEGERS, .min = 1, .max = INT32_MAX, .shortest = 1,
		      .longest = TRACE_SHAPE, .nullable = true,
		      .help = "must be an array of whole numbers from 1 to 2147483647"),
		ASK_FLAG("enable_fragmentation"),
		ASK_FLAG("host"),
		ASK_FLAG("keep"),
		{ 0 },
	};

	if (!ask__fits(p, msg, fields))
		return false;
	*w = (struct wanted){
		.duration_s = json_number_value(json_object_get(msg, "duration_s")),
		.steps = ask__count(msg, "steps", 0),
		.max_events = ask__count(msg, "max_events",
					 a->max_events < DEFAULT_EVENTS ? a->max_events
									: DEFAULT_EVENTS),
		.batch_size = ask__count(msg, "batch_size", 0),
		.fragmentation = read_flag(msg, "enable_fragmentation", /*otherwise=*/true),
		.host = read_flag(msg, "host", /*otherwise=*/false),
		.keep = read_flag(msg, "keep", /*otherwise=*/true),
	};
	read_clock(msg, w);
	read_shape(msg, w);
	if (!read_start(p, msg, longest, w))
		return false;
	w->process = processes__find(p, ask__id(msg), msg, &w->target);
	return w->process || (w->target && w->target->kind == TARGET_COMMAND);
}

/* Bytes of the folder for a new capture: an equal share of the free bytes for each capture that may
 * still start. 0: not enough is left. */
static uint64_t choose_share(const struct broker *b, uint64_t max_events)
{
	uint64_t used = store__used(&b->store) + traces__reserved(b) + jobs__reserved(b);
	uint64_t want = max_events * BYTES_PER_EVENT + BYTES_OF_NAMES, share;

	share = used < b->args->max_disk
			? (b->args->max_disk - used) / (b->args->max_captures - traces__running(b))
			: 0;
	if (share < SHARE_MIN)
		return 0;
	return want < share ? want : share;
}

bool trace__has_room(struct peer *p, json_int_t id)
{
	struct broker *b = p->b;
	size_t kept = 0;

	for (size_t i = 0; i < b->traces.n; i++) /* those of the command line do not count */
		kept += b->traces.v[i]->given < 0;
	/* Failed traces make room for new traces. */
	for (size_t i = 0; kept >= b->args->max_traces && i < b->traces.n;) {
		struct trace *t = b->traces.v[i];
		bool has_failed = t->state == TRACE_FAILED && t->given < 0;

		if (has_failed && !t->dropping) {
			trace__delete(b, t);
			kept--;
		} else {
			i++;
		}
	}
	if (kept < b->args->max_traces)
		return true;
	ask__refuse(p, id, 429, /*field=*/NULL,
		    "%u traces are stored, the most that may be kept (--max-traces): delete some",
		    b->args->max_traces);
	return false;
}

/* Checks the limits of captures, traces and the folder, and sets w->bytes. False: the request has
 * been refused. */
static bool has_room(struct peer *p, json_int_t id, struct wanted *w)
{
	struct broker *b = p->b;

	if (traces__running(b) >= b->args->max_captures) {
		ask__refuse(p, id, 429, /*field=*/NULL,
			    "%u captures are running, the most that may run at once "
			    "(--max-captures): try again when one has ended",
			    b->args->max_captures);
		return false;
	}
	if (!trace__has_room(p, id))
		return false;
	w->bytes = choose_share(b, w->max_events);
	if (!w->bytes) {
		ask__refuse(p, id, 429, NULL,
			    "the server's folder is full (--max-disk): delete some traces");
		return false;
	}
	return true;
}

/* ---- starting ---- */

/* A command line and environment. */
struct argv {
	const char *v[SPAWN_ARGS + 1];
	size_t n;
	char text[640]; /* values of options that are not constant */
	size_t at;	/* end of the used part of `text` */
	char *env[4];	/* NULL-terminated; owned, as `shell` is */
	char *shell;	/* see shell_text(); NULL: bash is used */
};

/* Adds an argument, which must stay valid. */
static void put_word(struct argv *a, const char *word)
{
	if (a->n < SPAWN_ARGS)
		a->v[a->n++] = word;
}

/* Adds an option and its value. */
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
	put_word(a, option);
	put_word(a, to);
}

/* Adds an option and its value, a number with a unit, such as "ns". */
static void put_number(struct argv *a, const char *option, uint64_t n, const char *unit)
{
	put_text(a, option, "%" PRIu64 "%s", n, unit);
}

/* Adds the options about the begin of the capture and about the client's clock. */
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

/* Adds the options of `record` and `run`. The recorder writes the recording to standard output,
 * which is the file, and its status to the socket tell. */
static void put_recorder_options(struct argv *a, const struct wanted *w, int tell)
{
	put_word(a, "-q");
	if (w->host)
		put_word(a, "--host");
	put_word(a, "-o");
	put_word(a, "-");
	put_number(a, "--tell", (uint64_t)tell, "");
	put_number(a, "--max-events", w->max_events, "");
	put_number(a, "--max-size", w->bytes, "");
	if (w->duration_s > 0)
		put_number(a, "-d", (uint64_t)(w->duration_s * 1e9), "ns");
	if (w->steps)
		put_number(a, "--steps", w->steps, "");
	put_start(a, w);
}

/* Adds the variables that tell the command about the request. One without memory is left out. */
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

/* The command line for a shell other than bash; NULL: no memory. The capture must trace the
 * command, not its shell. bash replaces itself by its last command, but other shells may not, so a
 * single command gets "exec". "env" allows variables before the command's name. */
static char *shell_text(const char *text)
{
	char *ret = NULL;

	text += strspn(text, " \t");
	if (strpbrk(text, ";&|()`\n") || text__starts(text, "exec "))
		return strdup(text);
	return asprintf(&ret, "exec env %s", text) < 0 ? NULL : ret;
}

/* Adds `run` with its options and the target's command, which a shell runs. */
static void put_command(const struct broker *b, struct argv *a, const struct wanted *w, int tell)
{
	put_word(a, "run");
	if (!b->args->no_dry_run) {
		put_word(a, "--dry-run-cuda");
		if (b->args->vram)
			put_number(a, "--vram", b->args->vram, "");
		if (b->args->devices)
			put_number(a, "--devices", b->args->devices, "");
	}
	if (*b->command_user) {
		put_word(a, "--user");
		put_word(a, b->command_user);
	}
	put_word(a, "--command-env");
	put_word(a, b->args->command_env ? b->args->command_env : "");
	put_recorder_options(a, w, tell);
	put_word(a, "--");
	a->shell = access("/bin/bash", X_OK) ? shell_text(w->target->text) : NULL;
	put_word(a, a->shell ? "/bin/sh" : "/bin/bash");
	put_word(a, "-c");
	put_word(a, a->shell ? a->shell : w->target->text);
	put_environment(a, w);
}

void trace__make_id(struct broker *b, char *buf, size_t size)
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

/* Creates the file of the recording and starts the recorder. Returns 0 or -errno. */
static int start_recorder(struct broker *b, struct trace *t, const struct wanted *w)
{
	const char *cost = w->keep ? "off" : CAPTURE_COST;
	struct argv a = { 0 };
	char pid[16];
	int tell[2], file, err;

	file = store__create(&b->store, t->file);
	if (file < 0)
		return file;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, tell)) {
		err = -errno;
		close(file);
		return err;
	}
	if (w->process) {
		snprintf(pid, sizeof(pid), "%d", (int)w->process->pid);
		put_word(&a, "record");
		put_word(&a, "-p");
		put_word(&a, pid);
		if (!w->host) {
			put_word(&a, "--wait-for");
			put_word(&a, "torch");
		}
		put_word(&a, "--cost");
		put_word(&a, b->args->cost ?: cost);
		if (b->args->figures && w->keep)
			put_word(&a, "--figures");
		put_recorder_options(&a, w, tell[1]);
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

/* Sets what the request says about the trace, and the deadline of its start. */
static void fill_trace(struct trace *t, struct peer *p, const struct wanted *w)
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

/* The answer follows the trace's first message, which creates the trace in the peers. */
void capture__asked(struct peer *p, json_t *msg)
{
	json_int_t id = ask__id(msg);
	struct broker *b = p->b;
	struct wanted w;
	struct trace *t;
	char name[64];
	int err;

	if (!read_request(p, msg, &w) || !has_room(p, id, &w))
		return;
	if (w.process && w.duration_s <= 0 && !w.steps)
		w.duration_s = DEFAULT_SECONDS * 1e9 <= (double)b->args->max_duration
				       ? DEFAULT_SECONDS
				       : (double)b->args->max_duration / 1e9;
	trace__make_id(b, name, sizeof(name));
	t = trace__new(b, name);
	if (!t) {
		ask__refuse(p, id, 503, NULL, "out of memory");
		return;
	}
	fill_trace(t, p, &w);
	err = start_recorder(b, t, &w);
	if (err) {
		ask__refuse(p, id, 503, /*field=*/NULL, "cannot start the capture: %s",
			    strerror(-err));
		t->dropping = true; /* the peers do not know the trace yet */
		trace__delete(b, t);
		return;
	}
	trace__tell(b, t, /*soft=*/false);
	trace__note(b, t);
	ask__answer(p, id, json_pack("{s:o}", "trace", trace__facts(t)), /*fd=*/-1);
}

/* ---- ending a capture ---- */

/* True if pid is a child of the process s. Then the PID cannot be reused while s runs and has not
 * waited for its child. */
static bool is_child_of(const struct spawned *s, pid_t pid)
{
	char text[512], *end;
	int parent = 0;

	if (!s->process.pid || io__text_of_process(pid, "stat", text, sizeof(text)) < 0)
		return false;
	end = strrchr(text, ')'); /* the name of the process may contain anything */
	return end && sscanf(end + 1, " %*c %d", &parent) == 1 && parent == s->process.pid;
}

/* Sends a signal that ends the capture, each time a stronger one. A command gets SIGTERM first, so
 * that it can save its data. */
static void send_end_signal(struct trace *t)
{
	switch (t->urged++) {
	case 0:
		subprocess__signal(&t->run.process, t->is_command ? SIGTERM : SIGINT);
		break;
	case 1:
		/* `run` is the parent and still waits for the command, so the PID is valid. */
		if (t->is_command && is_child_of(&t->run, t->pid))
			kill(t->pid, SIGKILL);
		else
			subprocess__signal(&t->run.process, SIGINT);
		break;
	default:
		subprocess__signal(&t->run.process, SIGKILL);
	}
	t->deadline = clock__monotonic() + URGE_AFTER;
}

void capture__stop(struct trace *t)
{
	if (!trace__runs(t) || t->stopping)
		return;
	t->stopping = true;
	send_end_signal(t);
}

/* May be called twice: by a request, and when the stopped capture has ended. */
void trace__delete(struct broker *b, struct trace *t)
{
	bool first = !t->dropping;

	t->dropping = true;
	if (first)
		peers__tell(b, json_pack("{s:s,s:s}", "event", "gone", "trace_id", t->id),
			    /*fd=*/-1,
			    /*soft=*/false);
	if (trace__runs(t)) {
		/* The recorder has the file open and needs no name. */
		store__remove(&b->store, t->file);
		trace__forget_note(b, t);
		capture__stop(t);
		return;
	}
	jobs__forget_trace(b, t);
	trace__end_upload(b, t, /*remove=*/true);
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

/* ---- the recorder's messages ---- */

/* A count of a status, or `before` if it has none. */
static uint64_t read_count(const json_t *o, const char *key, uint64_t before)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v)
								: before;
}

/* How long the recorder may still wait for its start, in s. */
static double seconds_until_start(const struct trace *t)
{
	double ahead = t->start_at > 0 ? t->start_at - clock__date() : t->align_s;

	return ahead > 0 ? ahead : 0;
}

/* The recorder has attached: sets the state and the deadline. */
static void begin_capturing(struct broker *b, struct trace *t)
{
	double longest = (double)b->args->max_duration / 1e9,
	       seconds_left = (t->duration_s > 0 ? t->duration_s : longest) +
			      seconds_until_start(t);

	t->attached = true;
	if (t->is_command) /* the process now runs the command's program, not our own */
		peer__send(&b->peers[PEER_LOOK],
			   json_pack("{s:s,s:i,s:s}", "do", "add", "pid", (int)t->pid, "target",
				     t->model),
			   /*fd=*/-1);
	if (t->state == TRACE_STARTING)
		t->state = TRACE_CAPTURING;
	if (!t->stopping)
		t->deadline = clock__monotonic() + (uint64_t)(seconds_left * 1e9) +
			      (t->duration_s > 0 ? CAPTURE_GRACE : 0);
	log_event(LOG_DEBUG, "attached",
		  LOG_FIELDS(LOG_STRING("trace", t->id), LOG_INT("target", t->pid)),
		  "%s: PID %d is traced", t->id, (int)t->pid);
	trace__tell(b, t, /*soft=*/false);
}

/* A number of bytes of a status; -1: unknown. */
static int64_t known_bytes(const json_t *v)
{
	return json_is_integer(v) ? json_integer_value(v) : -1;
}

/* Keeps the last reading of the process's host memory. parts NULL: none in this status. */
static void keep_host_parts(struct trace *t, const json_t *parts, const json_t *use)
{
	if (!parts)
		return;
	t->host_live = known_bytes(json_object_get(use, "live"));
	t->host_free = known_bytes(json_object_get(use, "free"));
	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		t->host_part[i] = known_bytes(json_object_get(parts, host_part__name(i)));
}

/* Takes the recorder's status into the trace. */
static void apply_status(struct broker *b, struct trace *t, const json_t *o)
{
	const char *state = json_string_value(json_object_get(o, "state"));
	const char *reason = json_string_value(json_object_get(o, "reason"));
	const json_t *seconds = json_object_get(o, "seconds");
	pid_t pid_before = t->pid;
	bool has_attached, has_ended; /* the recorder */

	t->pid = (pid_t)read_count(o, "pid", (uint64_t)t->pid);
	t->dropped = read_count(o, "dropped", t->dropped);
	t->events = read_count(o, "events", t->events + t->dropped);
	/* dropped events are not in the file */
	t->events -= t->dropped < t->events ? t->dropped : t->events;
	t->lost = read_count(o, "lost", t->lost);
	t->steps = read_count(o, "steps", t->steps);
	t->bytes = read_count(o, "bytes", t->bytes);
	if (json_is_number(seconds) && json_number_value(seconds) >= 0 &&
	    json_number_value(seconds) < 1e9)
		t->seconds = json_number_value(seconds);
	keep_host_parts(t, json_object_get(o, "host"), json_object_get(o, "host_use"));
	if (reason)
		text__clean(t->stop_reason, sizeof(t->stop_reason), reason, strlen(reason));
	t->opened = true;
	has_attached = state && strcmp(state, "opened") != 0 && seconds;
	if (has_attached && !t->attached)
		begin_capturing(b, t);
	else if (t->pid != pid_before)
		trace__tell(b, t, /*soft=*/false);
	/* The recording has ended before the command, so end the command, too. */
	has_ended = state && !strcmp(state, "ended") && t->attached;
	if (t->is_command && has_ended && strcmp(t->stop_reason, "target exited") != 0)
		capture__stop(t);
}

/* Passes the figures of a step, or of a scope's runs, on to clients. */
static void pass_figures(struct broker *b, const struct trace *t, json_t *figures)
{
	struct peer *web = &b->peers[PEER_WEB];
	const char *kind = json_string_value(json_object_get(figures, "kind"));

	if ((strcmp(kind, "step") != 0 && strcmp(kind, "scope") != 0) || !web->link || !web->met)
		return;
	if (link__waiting(web->link) > FIGURES_WAIT)
		return; /* clients see by the number of the next step that some are missing */
	json_object_set(figures, "event", json_object_get(figures, "kind"));
	json_object_del(figures, "kind");
	json_object_set_new(figures, "trace_id", json_string(t->id));
	peer__send(web, json_incref(figures), /*fd=*/-1);
}

/* Takes a message of the recorder: its status, or figures. */
static void take_message(struct broker *b, struct trace *t, const char *text, size_t len)
{
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);

	if (json_is_object(o) && json_is_string(json_object_get(o, "kind")))
		pass_figures(b, t, o);
	else if (json_is_object(o))
		apply_status(b, t, o);
	json_decref(o);
}

/* Reads the recorder's messages, a limited number at once. Closes the socket at its end. True:
 * there may be more. */
static bool read_messages(struct broker *b, struct trace *t)
{
	char text[LINK_MESSAGE];
	ssize_t n;

	for (int i = 0; i < 64 && t->tell >= 0; i++) {
		n = recv(t->tell, text, sizeof(text), MSG_TRUNC);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return false;
		if (n > 0 && (size_t)n <= sizeof(text)) /* a longer one is left out */
			take_message(b, t, text, (size_t)n);
		if (n > 0)
			continue;
		close(t->tell);
		t->tell = -1;
	}
	return t->tell >= 0;
}

/* ---- end ---- */

/* The HTTP status of a capture whose recorder ended with this status without a recording. */
static int choose_http_status(int status)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_UNUSABLE ? 404 : 503;
}

/* Keeps the end of a command's output, cleaned. */
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

/* Writes to buf why nothing was recorded, or why the recorder failed. */
static void explain_failure(const struct broker *b, const struct trace *t, int status, char *buf,
			    size_t size)
{
	const bool was_not_executed = t->is_command && WIFEXITED(status) &&
				      WEXITSTATUS(status) >= SHELL_FAILS;
	char last[360];

	spawned__last_message(&t->run, last, sizeof(last));
	if (*last && was_not_executed && !b->args->command_user)
		snprintf(buf, size,
			 "%s; commands run as user %s: choose another with --command-user", last,
			 *b->command_user ? b->command_user : "who serves");
	else if (*last && t->is_command && strstr(last, "which the command has started"))
		snprintf(buf, size,
			 "PyTorch runs in a process that the command started, not in the command "
			 "itself: start that process with exec");
	else if (*last)
		snprintf(buf, size, "%s", last);
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

/* The recorder has ended with this status: keeps the recording, or fails or deletes the trace. */
static void end_capture(struct broker *b, struct trace *t, int status)
{
	uint64_t size = 0;
	char why[512];
	bool was_killed;
	int fd;

	for (int i = 0; i < LAST_READS && read_messages(b, t); i++)
		;
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
		trace__fail(b, t, choose_http_status(status), why);
	} else {
		/* The recorder failed, but the recording before the failure is readable. */
		was_killed = WIFSIGNALED(status) && t->stopping; /* by us */
		if (!t->is_command && status && !was_killed)
			snprintf(t->error, sizeof(t->error), "%s", why);
		trace__finish(b, t);
	}
}

void capture__pump(struct broker *b, struct trace *t, uint64_t now)
{
	int status;

	spawned__read(&t->run);
	read_messages(b, t);
	if (spawned__ended(&t->run, &status))
		end_capture(b, t, status);
	else if (now >= t->deadline)
		send_end_signal(t);
}
