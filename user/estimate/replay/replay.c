/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "capture/preload.h"
#include "capture/session.h"
#include "estimate/replay/plan.h"
#include "estimate/replay/trust.h"
#include "estimate/replay/wire.h"
#include "model/analysis.h"
#include "model/model.h"
#include "record/dict.h"
#include "record/mtr.h"

#define TOTAL_MAX (1ULL << 50) /* bytes; a device with more in the recording is damage */
#define MEMORY (8ULL << 30)    /* limit, bytes: 16 per block, and the allocator's tables */
#define SECONDS 60	       /* limit of CPU time, plus 1 s per EVENTS_A_SECOND */
#define EVENTS_A_SECOND 20000
#define MESSAGES_MAX 4096	       /* bytes of the replayer's messages that are kept */
#define CONTEXT_DEFAULT (512ULL << 20) /* the dry run's default */
#define CONF_MAX 4096u		       /* bytes of allocator settings */
#define STEP (2ULL << 20)	       /* bytes: steps of the search for the smallest device */
#define FD_LEAST 16	/* above the descriptors of the replayer (REPLAY_PLAN_FD ...) */
#define DEVICE_LAST 254 /* largest index of a device; 255: no device */
#define POLL_MOST_MS 60000

struct replay {
	struct mtr_reader *reader; /* reader of the recording; its dictionary has the names */
	struct model *resolver;	   /* model without events, which resolves stacks */
	int spool;		   /* copy of a recording that came through a pipe; -1: none */
	int plan;
	struct replay_plan_info info;
	struct replay_torch torch;
	bool own; /* as in replay_opts */
	const struct user *user;
	struct replay_about about;
	/* True if something other than the device's size caused the out-of-memory errors: the size
	 * is unknown, or a lower limit was set. */
	bool refuse;
	/* True if set_per_process_memory_fraction() was probably called in the recorded program. */
	bool fraction;
	char replayer[PATH_MAX], dryrun[PATH_MAX];
};

/* ---- reading the recording ---- */

/* Reads a recording and makes the plan: first chooses the device, then converts the events. */

/* Creates an unnamed file whose descriptor is above the numbers that the replayer uses. Returns the
 * descriptor, or -1 and *f. */
static int temporary(struct failure *f)
{
	const char *dir = getenv("TMPDIR");
	char path[PATH_MAX];
	int fd, high;

	if (!dir || dir[0] != '/')
		dir = "/tmp";
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 &&
	    (size_t)snprintf(path, sizeof(path), "%s/memtrace-replay-XXXXXX", dir) < sizeof(path)) {
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_LEAST);
	if (fd >= 0)
		close(fd);
	if (high < 0)
		failure__set(
			f, EXIT_FAILED, -errno,
			"%s: cannot make a temporary file there: %s; set TMPDIR to another folder",
			dir, strerror(errno));
	return high;
}

/* Copies standard input to a file, since it is read twice. Returns 0, or negative and *f. */
static int spool_input(struct replay *r, struct failure *f)
{
	char buf[1 << 16];
	ssize_t n;
	int err;

	r->spool = temporary(f);
	if (r->spool < 0)
		return -EIO;
	do {
		n = io__read(STDIN_FILENO, buf, sizeof(buf));
		if (n < 0)
			return failure__set(f, EXIT_FAILED, (int)n, "standard input: %s",
					    strerror(-(int)n));
		err = io__write(r->spool, buf, (size_t)n);
		if (err)
			return failure__set(f, EXIT_FAILED, err,
					    "cannot copy standard input to a temporary file: %s; "
					    "set TMPDIR to a folder with more room",
					    strerror(-err));
	} while (n);
	return 0;
}

/* Opens the recording, or its copy if it came through a pipe. NULL and *f on failure. */
static struct mtr_reader *open_reader(const struct replay *r, const char *path, struct failure *f)
{
	char self[64];
	const char *why = NULL;
	struct mtr_reader *reader;

	if (r->spool >= 0) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", r->spool);
		path = self;
	}
	reader = mtr_reader__open(path, &why);
	if (!reader)
		analysis__open_failure(r->spool >= 0 ? "-" : path, errno, why, f);
	return reader;
}

/* Sets *f for an error of the reading or the plan. Returns err. */
static int fail(const struct replay_opts *opts, int err, struct failure *f)
{
	const char *why = strerror(-err);
	char room[256];

	if (err == -EFBIG)
		why = "too many live blocks to replay";
	else if (err == -ENOBUFS || err == -ENOMEM)
		why = room__why(room, sizeof(room), err);
	return failure__set(f, EXIT_FAILED, err, "%s: %s", opts->path, why);
}

/* Reads the recording once and sets about.device and about.vram. The device is the requested one,
 * or the one with the largest peak of allocated bytes (-1: none). Returns 0, or -errno and *f. */
static int find_device(struct replay *r, const struct replay_opts *opts, struct failure *f)
{
	struct mtr_reader *reader = open_reader(r, opts->path, f);
	uint64_t live[256] = { 0 }, peak[256] = { 0 }, events = 0;
	struct event e;
	int best = -1, got, err;
	char key[32];

	if (!reader)
		return -EINVAL;
	while ((got = mtr_reader__next(reader, &e)) == 1) {
		uint8_t i = e.device.index;

		events++;
		if (e.device.type != DEVICE_CUDA || (e.kind != EVENT_ALLOC && e.kind != EVENT_FREE))
			continue;
		if (e.totals)
			live[i] = e.allocated;
		else if (e.kind == EVENT_ALLOC)
			live[i] += e.size;
		else
			live[i] -= e.size < live[i] ? e.size : live[i];
		if (live[i] > peak[i])
			peak[i] = live[i];
		if (best < 0 || peak[i] > peak[best])
			best = i;
	}
	r->about.device = opts->device >= 0 ? opts->device : best;
	snprintf(key, sizeof(key), "device.%d.total", r->about.device);
	facts__number(mtr_reader__facts(reader), key, &r->about.vram);
	if (r->about.vram > TOTAL_MAX)
		r->about.vram = 0;
	err = got < 0 ? fail(opts, got, f) : analysis__end_failure(opts->path, reader, events, f);
	mtr_reader__free(reader);
	return err;
}

/* Converts all events. Returns 0 or a negative error. */
static int plan_events(struct replay *r, struct replay_plan_maker *p)
{
	struct event e, charged;
	uint64_t index = 0;
	int got, err = 0;

	while (!err && (got = mtr_reader__next(r->reader, &e)) != 0) {
		if (got < 0)
			return got;
		charged = e;
		if (e.kind == EVENT_ALLOC || e.kind == EVENT_OOM)
			model__charge(r->resolver, &charged);
		err = replay_plan__event(p, &e, index++, charged.stack);
	}
	return err;
}

/* Converts the recording of opts->path to a plan. Sets reader, resolver, spool, plan, info, and the
 * fields of about that follow from them. Returns 0, or negative and *f. */
static int read_plan(struct replay *r, const struct replay_opts *opts, struct failure *f)
{
	struct replay_plan_maker *p;
	int err = !strcmp(opts->path, "-") ? spool_input(r, f) : 0;

	if (err)
		return err;
	err = find_device(r, opts, f);
	if (err)
		return err;
	if (r->about.device < 0 || r->about.device > DEVICE_LAST)
		return failure__set(f, EXIT_UNUSABLE, -ENODATA,
				    "%s: the recording has no CUDA allocations", opts->path);
	r->reader = open_reader(r, opts->path, f);
	if (!r->reader)
		return -EINVAL;
	r->plan = temporary(f);
	if (r->plan < 0)
		return -EIO;
	r->resolver = model__new(mtr_reader__dict(r->reader), mtr_reader__facts(r->reader),
				 &(struct model_opts){ .at = AT_PEAK });
	p = r->resolver ? replay_plan__new(r->plan, (uint8_t)r->about.device, r->about.vram) : NULL;
	err = p ? plan_events(r, p) : -ENOMEM;
	if (!err)
		err = replay_plan__finish(p, &r->info);
	replay_plan__free(p);
	if (err)
		return fail(opts, err, f);
	if (!r->info.events)
		return failure__set(f, EXIT_UNUSABLE, -ENODATA,
				    "%s: the recording has no allocations on cuda:%d", opts->path,
				    r->about.device);
	return 0;
}

/* ---- tries ---- */

struct run_opts {
	const char *alloc_conf;
	uint64_t vram;	/* bytes of the device; 0: no limit */
	unsigned flags; /* enum replay_flag */
	int (*curve)(void *ctx, uint64_t event, uint64_t time, uint64_t allocated,
		     uint64_t reserved);
	void *ctx;
};

/* Bytes of the device that CUDA and other code take before PyTorch allocates. */
static uint64_t context_of(const struct replay *r)
{
	uint64_t context = r->info.context_known ? r->info.context : CONTEXT_DEFAULT;

	return context < DRYRUN_VRAM_MAX / 2 ? context : DRYRUN_VRAM_MAX / 2;
}

/* ---- a run of the replayer: its environment, bounds and answer ---- */

/* Finds the replayer and sets r->replayer. Returns 0, or -errno and *f. */
static int find_replayer(struct replay *r, struct failure *f)
{
	static const char *const places[] = { "replay/replayer",
					      "../lib/memtrace-bpf/replay/replayer" };
	int err = dryrun__find(r->dryrun, sizeof(r->dryrun));

	if (err)
		return failure__set(f, EXIT_NOT_PERMITTED, err,
				    "the libraries of the dry run are missing (%s): build them "
				    "with `make`, install them with `make install`",
				    r->dryrun);
	if (preload__find(places, io__is_program, r->replayer))
		return 0;
	return failure__set(
		f, EXIT_NOT_PERMITTED, -ENOENT,
		"%s/%s is missing: build it with `make`, install it with `make install`",
		r->replayer, places[0]);
}

/* Limit of the replayer's CPU time, in seconds. */
static uint64_t cpu_limit(const struct replay *r)
{
	return SECONDS + r->info.events / EVENTS_A_SECOND;
}

struct strings {
	char *v[16];
	size_t n;
	bool failed;
};

/* Adds a formatted string. s->failed: memory was short, then or before. */
__attribute__((format(printf, 2, 3))) static void add_string(struct strings *s, const char *fmt,
							     ...)
{
	va_list ap;
	char *p;

	va_start(ap, fmt);
	if (vasprintf(&p, fmt, ap) < 0)
		s->failed = true;
	else
		s->v[s->n++] = p;
	va_end(ap);
}

static void free_strings(struct strings *s)
{
	while (s->n)
		free(s->v[--s->n]);
}

/* For subprocess_opts.prepare: gives up root's rights in the replayer. Returns 0 or an exit code. */
static int become(void *ctx)
{
	const struct replay *r = ctx;

	return replay_trust__become(r->own, r->user);
}

/* Starts the replayer. answer, messages: pipes that it writes to. Returns 0 or -errno. */
static int start_replayer(const struct replay *r, const struct run_opts *o, int answer,
			  int messages, struct subprocess *ret)
{
	const struct subprocess_fd fds[] = { { r->plan, REPLAY_PLAN_FD },
					     { answer, REPLAY_ANSWER_FD },
					     { r->torch.dir, REPLAY_LIB_FD } };
	const struct subprocess_limit limits[] = { { RLIMIT_CPU, cpu_limit(r) },
						   { RLIMIT_DATA, MEMORY } };
	const char *libraries = getenv("LD_LIBRARY_PATH");
	struct strings argv = { 0 }, env = { 0 };
	int err;

	add_string(&argv, "replayer");
	add_string(&argv, "%u", r->torch.raw_alloc);
	add_string(&argv, "%u", r->torch.raw_delete);
	add_string(&argv, "%u", r->torch.init);
	add_string(&argv, "%u", r->torch.empty_cache);
	add_string(&argv, "%u", r->torch.set_fraction);
	add_string(&argv, "%u", o->flags);
	add_string(&env, "LD_PRELOAD=%s/libcuda.so.1:%s/libnvidia-ml.so.1", r->dryrun, r->dryrun);
	add_string(&env, "MEMTRACE_DRYRUN_DEVICES=1");
	add_string(&env, "MEMTRACE_DRYRUN_VRAM=%" PRIu64,
		   o->vram ? o->vram : (uint64_t)DRYRUN_VRAM_MAX);
	add_string(&env, "MEMTRACE_DRYRUN_CONTEXT=%" PRIu64, context_of(r));
	add_string(&env, "PYTORCH_CUDA_ALLOC_CONF=%s", o->alloc_conf);
	if (libraries)
		add_string(&env, "LD_LIBRARY_PATH=%s", libraries);
	err = argv.failed || env.failed
		      ? -ENOMEM
		      : subprocess__start(
				&(struct subprocess_opts){ .program = r->replayer,
							   .argv = (const char *const *)argv.v,
							   .env = (const char *const *)env.v,
							   .empty_env = true,
							   .prepare = become,
							   .ctx = (void *)r,
							   .err = messages,
							   .fds = fds,
							   .n_fds = 3,
							   .death_signal = SIGKILL,
							   .limits = limits,
							   .n_limits = 2 },
				ret);
	free_strings(&argv);
	free_strings(&env);
	return err;
}

struct output {
	char *answer; /* bytes of messages, not yet parsed */
	size_t n, cap;
	char messages[MESSAGES_MAX];
	size_t n_messages;
	bool done;
};

/* Takes the complete parts of the answer: points of the curve, and at the end *ret. Returns 0,
 * -EPROTO for anything else, or the error of o->curve(). */
static int read_answers(struct output *h, const struct run_opts *o, struct replay_answer *ret)
{
	size_t at = 0;

	while (h->n - at >= sizeof(struct replay_point)) {
		struct replay_point p;

		memcpy(&p, h->answer + at, sizeof(p));
		if (p.kind == REPLAY_DONE) {
			if (h->n - at < sizeof(*ret))
				break;
			memcpy(ret, h->answer + at, sizeof(*ret));
			h->done = true;
			at = h->n;
			break;
		}
		if (p.kind != REPLAY_POINT)
			return -EPROTO;
		at += sizeof(p);
		if (o->curve) {
			int err = o->curve(o->ctx, p.event, p.time, p.allocated, p.reserved);

			if (err)
				return err;
		}
	}
	memmove(h->answer, h->answer + at, h->n - at);
	h->n -= at;
	return 0;
}

/* Reads answer and messages until the replayer closes both pipes. Returns 0 or -errno. */
static int read_output(const struct replay *r, int answer, int messages, const struct run_opts *o,
		       struct output *h, struct replay_answer *ret)
{
	struct pollfd p[2] = { { .fd = answer, .events = POLLIN },
			       { .fd = messages, .events = POLLIN } };
	/* Twice the CPU limit, because other processes use the machine, too. */
	const uint64_t deadline = clock__monotonic() + 2 * cpu_limit(r) * 1000000000;

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		int64_t ms = (int64_t)(deadline - clock__monotonic()) / 1000000;
		ssize_t n;
		int err;

		if (ms <= 0)
			return -ETIMEDOUT;
		if (poll(p, 2, (int)(ms > POLL_MOST_MS ? POLL_MOST_MS : ms)) < 0 && errno != EINTR)
			return -errno;
		if (p[1].fd >= 0 && p[1].revents) {
			size_t left = sizeof(h->messages) - 1 - h->n_messages;
			char rest[512];

			n = left ? read(messages, h->messages + h->n_messages, left)
				 : read(messages, rest, sizeof(rest));
			if (n > 0 && left)
				h->n_messages += (size_t)n;
			if (n <= 0)
				p[1].fd = -1;
		}
		if (p[0].fd >= 0 && p[0].revents) {
			n = read(answer, h->answer + h->n, h->cap - h->n);
			if (n <= 0)
				p[0].fd = -1;
			else
				h->n += (size_t)n;
			err = read_answers(h, o, ret);
			if (err)
				return err;
		}
		p[0].revents = p[1].revents = 0;
	}
	return 0;
}

/* Builds the message from the replayer's last error, without its C++ stack. */
static void explain_failure(struct output *h, int status, int err, struct failure *f)
{
	char *what;

	h->messages[h->n_messages] = '\0';
	/* The C++ runtime's text of an exception that was thrown while the library was loading. */
	what = strstr(h->messages, "what():");
	what = what ? what + strlen("what():") : h->messages;
	what += strspn(what, " \n");
	what[strcspn(what, "\n")] = '\0';
	if (err == -ETIMEDOUT || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU))
		failure__set(f, EXIT_FAILED, err, "the replay took too long and was stopped");
	else if (*what)
		failure__set(f, EXIT_FAILED, err, "PyTorch's allocator: %.500s", what);
	else if (WIFSIGNALED(status))
		failure__set(f, EXIT_FAILED, err, "signal %d ended the replay", WTERMSIG(status));
	else
		failure__set(f, EXIT_FAILED, err, "the replay ended with status %d",
			     WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* Starts the replayer with new pipes, of which [0] are the ends to read from. Returns 0, or
 * negative and *f. */
static int start_with_pipes(const struct replay *r, const struct run_opts *o, int answer[2],
			    int messages[2], struct subprocess *ret, struct failure *f)
{
	int err;

	if (pipe2(answer, O_CLOEXEC))
		return failure__set(f, EXIT_FAILED, -errno, "pipe: %s", strerror(errno));
	if (pipe2(messages, O_CLOEXEC)) {
		close(answer[0]);
		close(answer[1]);
		return failure__set(f, EXIT_FAILED, -errno, "pipe: %s", strerror(errno));
	}
	err = start_replayer(r, o, answer[1], messages[1], ret);
	close(answer[1]);
	close(messages[1]);
	if (err) {
		close(answer[0]);
		close(messages[0]);
		return failure__set(f, EXIT_FAILED, err, "cannot start the replayer: %s",
				    strerror(-err));
	}
	return 0;
}

/* Runs the replayer to its end. Returns 0, or -errno and its message in *f. */
static int run_replayer(const struct replay *r, const struct run_opts *o, struct replay_answer *ret,
			struct failure *f)
{
	struct output h = { .cap = 64 * 1024 };
	int answer[2], messages[2], status = 0, err;
	struct subprocess process;

	h.answer = malloc(h.cap);
	if (!h.answer)
		return failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
	err = start_with_pipes(r, o, answer, messages, &process, f);
	if (err) {
		free(h.answer);
		return err;
	}
	err = read_output(r, answer[0], messages[0], o, &h, ret);
	if (err)
		subprocess__signal(&process, SIGKILL);
	close(answer[0]);
	close(messages[0]);
	subprocess__wait(&process, /*ms=*/-1, &status);
	if (!err && (!h.done || status))
		err = -EPROTO;
	if (err)
		explain_failure(&h, status, err, f);
	free(h.answer);
	return err;
}

/* ---- the replay ---- */

/* The recorded settings; "": PyTorch's defaults, or not known. */
static const char *own_conf(const struct replay *r)
{
	return r->about.alloc_conf ? r->about.alloc_conf : "";
}

/* True if the settings have this text. */
static bool contains(const char *conf, const char *key)
{
	return strstr(conf, key) != NULL;
}

static const char *or_unknown(const char *version)
{
	return *version ? version : "(not known)";
}

/* Sets t->why to the most important known reason for a difference. */
static void explain(const struct replay *r, struct replay_truth *t)
{
	const struct replay_plan_info *i = &r->info;

	if (i->lost)
		snprintf(t->why, sizeof(t->why), "the recording lost %" PRIu64 " records", i->lost);
	else if (i->async)
		snprintf(t->why, sizeof(t->why),
			 "the recorded allocator is not PyTorch's native one");
	else if (!t->events)
		snprintf(t->why, sizeof(t->why), "the recording has no totals to compare with");
	else if (i->unknown_frees || (!i->before_known && i->before))
		snprintf(t->why, sizeof(t->why),
			 "%" PRIu64 " blocks from before the recording are unknown",
			 i->unknown_frees);
	else if (i->before_known && !i->before_exact)
		snprintf(t->why, sizeof(t->why),
			 "memory from before the recording could not be read exactly");
	else if (strcmp(r->torch.version, r->about.torch))
		snprintf(t->why, sizeof(t->why), "recorded with PyTorch %.60s, replayed by %.60s",
			 or_unknown(r->about.torch), or_unknown(r->torch.version));
	else if (i->pools_unknown && i->pools == REPLAY_MAX_POOLS)
		snprintf(t->why, sizeof(t->why), "the job has more than %u pools of segments",
			 REPLAY_MAX_POOLS - 1);
	else if (i->pools_unknown)
		snprintf(t->why, sizeof(t->why), "the streams of %u segments are unknown",
			 i->pools_unknown);
	else if (!t->settings_known)
		snprintf(t->why, sizeof(t->why),
			 "the recording does not contain its allocator settings");
	else
		snprintf(t->why, sizeof(t->why),
			 "unknown; possible causes: blocks used by a second stream (record_stream) "
			 "become free later, or the program changed settings while it ran");
}

/* Replays under the recorded settings, to compare. flags: enum replay_flag, besides the usual ones.
 * Returns 0, or negative and *f. */
static int own_run(const struct replay *r, unsigned flags, struct replay_answer *a,
		   struct failure *f)
{
	struct run_opts o = { .alloc_conf = own_conf(r),
			      .flags = REPLAY_AS_FOUND | REPLAY_COMPARE | flags };

	/* A device that was never full did not influence the allocator, so its size is
	 * irrelevant. */
	if (!(flags & REPLAY_REFUSE) && (r->info.ooms || r->info.retries))
		o.vram = r->about.vram <= DRYRUN_VRAM_MAX ? r->about.vram : 0;
	if (contains(o.alloc_conf, "expandable_segments:True"))
		o.flags |= REPLAY_EXPANDABLE;
	memset(a, 0, sizeof(*a));
	return run_replayer(r, &o, a, f);
}

/* Replays under another assumption (flags) and keeps the result if more events match: *holds.
 * Returns 0, or negative and *f. */
static int keep_if_better(const struct replay *r, unsigned flags, bool *holds,
			  struct replay_answer *a, struct failure *f)
{
	struct replay_answer other;
	int err = own_run(r, flags, &other, f);

	if (err)
		return err;
	*holds = other.compared - other.differ > a->compared - a->differ;
	if (*holds)
		*a = other;
	return 0;
}

/* Compares a replay under the recorded settings with the recording: sets about.truth, refuse and
 * fraction. Returns 0, or negative and *f. */
static int find_truth(struct replay *r, struct failure *f)
{
	struct replay_truth *t = &r->about.truth;
	struct replay_answer a;
	int err = own_run(r, 0, &a, f);

	if (err)
		return err;
	/* If it differs, tries calls that a recording lacks, and keeps what makes it differ less.
	 * The allocator collects garbage only after set_per_process_memory_fraction(). */
	if (a.differ && contains(own_conf(r), "garbage_collection_threshold"))
		err = keep_if_better(r, REPLAY_FRACTION, &r->fraction, &a, f);
	/* set_per_process_memory_fraction() may also have set a limit below the device's size. */
	if (!err && (a.differ || a.events != r->info.events) && r->info.ooms)
		err = keep_if_better(r, REPLAY_REFUSE | (r->fraction ? REPLAY_FRACTION : 0),
				     &r->refuse, &a, f);
	if (err)
		return err;
	t->settings_known = r->about.alloc_conf != NULL;
	t->events = a.compared;
	t->equal = a.compared && !a.differ && a.events == r->info.events;
	t->first = a.differ ? a.first : REPLAY_NOWHERE;
	t->first_time = a.first_time;
	t->first_recorded = a.first_recorded;
	t->first_replayed = a.first_replayed;
	t->largest = a.largest;
	t->at_peak = (int64_t)(a.peak_reserved - r->info.peak_reserved);
	if (!t->equal)
		explain(r, t);
	/* The replay ran out of memory before any difference. */
	if (a.oom && !a.differ && a.events != r->info.events) {
		t->first = a.oom_event;
		t->first_time = a.oom_time;
		t->first_recorded = r->info.peak_reserved;
		t->first_replayed = a.oom_reserved;
		snprintf(t->why, sizeof(t->why),
			 "the replay runs out of memory where the recording did not: other "
			 "programs may have used less of the device than assumed");
	}
	return 0;
}

/* Sets what replay__about() returns, from the recording and the plan. */
static void fill_about(struct replay *r)
{
	const struct facts *facts = mtr_reader__facts(r->reader);
	struct replay_about *a = &r->about;
	const char *torch = facts__get(facts, "torch");

	a->torch = torch ? torch : "";
	a->alloc_conf = facts__get(facts, "alloc_conf");
	if (a->alloc_conf && strlen(a->alloc_conf) > CONF_MAX)
		a->alloc_conf = NULL;
	a->lib = r->torch.lib;
	a->lib_torch = r->torch.version;
	a->events = r->info.events;
	a->peak_allocated = r->info.peak_allocated;
	a->peak_reserved = r->info.peak_reserved;
	a->before = r->info.before;
	a->lost = r->info.lost;
	/* Requested sizes of at least 99 % of the allocations. */
	a->requested = r->info.asked && r->info.asked * 100 >= r->info.allocs * 99;
	a->pools = r->info.pools;
	a->ooms = r->info.ooms;
}

struct replay *replay__open(const struct replay_opts *opts, struct failure *f)
{
	struct replay *r = calloc(1, sizeof(*r));
	int err;

	if (!r) {
		failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
		return NULL;
	}
	r->spool = r->plan = r->torch.dir = -1;
	r->own = opts->own;
	r->user = opts->user;
	err = find_replayer(r, f) ?: read_plan(r, opts, f);
	if (err)
		goto fail;
	err = replay_torch__find(opts, mtr_reader__facts(r->reader), &r->torch, f);
	if (err)
		goto fail;
	fill_about(r);
	err = find_truth(r, f);
	if (!err)
		return r;
fail:
	replay__close(r);
	return NULL;
}

void replay__close(struct replay *r)
{
	if (!r)
		return;
	model__free(r->resolver);
	mtr_reader__free(r->reader);
	if (r->spool >= 0)
		close(r->spool);
	if (r->plan >= 0)
		close(r->plan);
	if (r->torch.dir >= 0)
		close(r->torch.dir);
	free(r);
}

const struct replay_about *replay__about(const struct replay *r)
{
	return &r->about;
}

/* Sets the line and the module of the request that did not fit. */
static void set_where(const struct replay *r, const struct replay_answer *a, struct replay_oom *oom)
{
	const struct dict *d = mtr_reader__dict(r->reader);
	uint32_t stack = a->oom_stack <= UINT32_MAX ? (uint32_t)a->oom_stack : 0;
	uint32_t node = a->oom_node <= UINT32_MAX ? (uint32_t)a->oom_node : 0;
	char line[2 * DICT_MAX_STRING + 32];
	struct row_frame frame;
	const char *module;

	if (model__stack_line(r->resolver, stack, false, &frame)) {
		snprintf(line, sizeof(line), "%s:%u (%s)", frame.file, frame.line, frame.func);
		text__clean(oom->where, sizeof(oom->where), line, strlen(line));
	}
	module = dict__str(d, dict__get_module(d, model__module(r->resolver, stack, node, 0)).name);
	text__clean(oom->module, sizeof(oom->module), module, strlen(module));
}

/* Sets *ret from the replayer's answer. */
static void fill_result(const struct replay *r, const struct replay_answer *a,
			struct replay_result *ret)
{
	*ret = (struct replay_result){
		.events = a->events,
		.peak_allocated = a->peak_allocated,
		.peak_reserved = a->peak_reserved,
		.peak_requested = r->about.requested ? a->peak_requested : 0,
		.reserved_event = a->reserved_event,
		.reserved_time = a->reserved_time,
		.end_allocated = a->end_allocated,
		.end_reserved = a->end_reserved,
		.segments = a->segments,
		.takes = a->takes,
		.retries = a->retries,
		.outside = a->outside,
	};
	if (a->peak_reserved > a->peak_allocated)
		ret->fragmentation = (double)(a->peak_reserved - a->peak_allocated) /
				     (double)a->peak_reserved;
	if (!a->oom)
		return;
	ret->oom = (struct replay_oom){
		.there = true,
		.event = a->oom_event,
		.time = a->oom_time,
		.asked = a->oom_asked,
		.allocated = a->oom_allocated,
		.reserved = a->oom_reserved,
	};
	set_where(r, a, &ret->oom);
}

/* True if a dry run can have a device of so many bytes, and memory is left on it for PyTorch. */
static bool is_size_of_device(const struct replay *r, uint64_t vram)
{
	return vram >= DRYRUN_VRAM_MIN && vram <= DRYRUN_VRAM_MAX && vram > context_of(r);
}

int replay__try(struct replay *r, const struct replay_opts *opts, struct replay_result *ret,
		struct failure *f)
{
	struct run_opts o = { .alloc_conf = opts->alloc_conf,
			      .vram = opts->vram,
			      .curve = opts->curve,
			      .ctx = opts->ctx };
	struct replay_answer a = { 0 };
	bool own, collects; /* collects: a fraction is set, so that garbage is collected */
	int err;

	if (!o.alloc_conf)
		o.alloc_conf = own_conf(r);
	if (strlen(o.alloc_conf) > CONF_MAX)
		return failure__set(f, EXIT_USAGE, -EINVAL,
				    "allocator settings longer than %u characters", CONF_MAX);
	if (o.vram && !is_size_of_device(r, o.vram)) {
		char b[24];

		return failure__set(f, EXIT_USAGE, -EINVAL,
				    "a device size must be 16M to 4T and larger than the memory "
				    "used by code other than PyTorch, here %s",
				    text__bytes(b, sizeof(b), context_of(r)));
	}
	own = !strcmp(o.alloc_conf, own_conf(r));
	if (own && !opts->afresh)
		o.flags |= REPLAY_AS_FOUND;
	collects = own ? r->fraction : contains(o.alloc_conf, "garbage_collection_threshold");
	if (collects)
		o.flags |= REPLAY_FRACTION;
	if (contains(o.alloc_conf, "expandable_segments:True"))
		o.flags |= REPLAY_EXPANDABLE;
	if (o.curve)
		o.flags |= REPLAY_CURVE;
	if (!o.vram && r->refuse)
		o.flags |= REPLAY_REFUSE;
	err = run_replayer(r, &o, &a, f);
	if (!err)
		fill_result(r, &a, ret);
	return err;
}

static uint64_t round_up_to_step(uint64_t bytes)
{
	return (bytes + STEP - 1) & ~(STEP - 1);
}

int replay__smallest(struct replay *r, const struct replay_opts *opts, uint64_t *vram,
		     struct replay_result *ret, struct failure *f)
{
	struct replay_opts o = *opts;
	struct replay_result result;
	uint64_t low, high;
	int err;

	o.curve = NULL;
	o.vram = 0;
	err = replay__try(r, &o, &result, f);
	if (err)
		return err;
	low = round_up_to_step(result.peak_allocated + context_of(r));
	low = low > DRYRUN_VRAM_MIN ? low - STEP : DRYRUN_VRAM_MIN; /* assumed not to fit */
	/* This size suffices without pressure. Memory of other code may peak at another time, so
	 * try larger ones. */
	for (high = round_up_to_step(result.peak_reserved + result.outside);
	     high <= DRYRUN_VRAM_MAX; high += high / 8 / STEP * STEP + STEP) {
		o.vram = high;
		err = replay__try(r, &o, ret, f);
		if (err)
			return err;
		if (!ret->oom.there)
			break;
		low = high;
	}
	if (high > DRYRUN_VRAM_MAX)
		return failure__set(f, EXIT_FAILED, -ERANGE, "it fits on no device");
	/* low does not fit; high does, and *ret is its result. */
	while (high - low > STEP) {
		o.vram = low + (high - low) / 2 / STEP * STEP;
		if (o.vram <= context_of(r)) { /* replay__try() refuses such a size */
			low = o.vram;
			continue;
		}
		err = replay__try(r, &o, &result, f);
		if (err)
			return err;
		if (result.oom.there) {
			low = o.vram;
		} else {
			high = o.vram;
			*ret = result;
		}
	}
	*vram = high;
	return 0;
}
