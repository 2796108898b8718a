/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Runs the replayer as a process: its environment, bounds and answer. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/failure.h"
#include "base/subprocess.h"
#include "capture/dryrun.h"
#include "capture/session.h"
#include "estimate/replay/internal.h"
#include "estimate/replay/trust.h"

#define MEMORY (8ULL << 30) /* limit, bytes: 16 per block, and the allocator's tables */
#define SECONDS 60	    /* limit of CPU time, plus 1 s per EVENTS_A_SECOND */
#define EVENTS_A_SECOND 20000
#define MESSAGES_MAX 4096

int replay_run__find(struct replay *r, struct failure *f)
{
	static const char *const places[] = { "replay/replayer",
					      "../lib/memtrace-bpf/replay/replayer" };
	char exe[PATH_MAX], path[PATH_MAX + 64], *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	int err = dryrun__find(r->dryrun, sizeof(r->dryrun));

	if (err)
		return failure__set(f, EXIT_NOT_PERMITTED, err,
				    "the libraries of the dry run are missing (%s): build them "
				    "with `make`, install them with `make install`",
				    r->dryrun);
	exe[n > 0 ? n : 0] = '\0';
	slash = strrchr(exe, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", exe, places[i]);
		if (realpath(path, r->replayer) && !access(r->replayer, X_OK))
			return 0;
	}
	return failure__set(
		f, EXIT_NOT_PERMITTED, -ENOENT,
		"%s/%s is missing: build it with `make`, install it with `make install`", exe,
		places[0]);
}

static uint64_t seconds(const struct replay *r)
{
	return SECONDS + r->info.events / EVENTS_A_SECOND;
}

struct strings {
	char *v[16];
	size_t n;
	bool failed;
};

__attribute__((format(printf, 2, 3))) static void add(struct strings *s, const char *fmt, ...)
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

static int become(void *ctx)
{
	const struct replay *r = ctx;

	return replay_trust__become(r->own, r->user);
}

/* answer, messages: pipes that the replayer writes to. */
static int start_replayer(const struct replay *r, const struct replay_run_opts *o, int answer,
			  int messages, struct subprocess *ret)
{
	const struct subprocess_fd fds[] = { { r->plan, REPLAY_PLAN_FD },
					     { answer, REPLAY_ANSWER_FD },
					     { r->torch.dir, REPLAY_LIB_FD } };
	const struct subprocess_limit limits[] = { { RLIMIT_CPU, seconds(r) },
						   { RLIMIT_DATA, MEMORY } };
	const char *libraries = getenv("LD_LIBRARY_PATH");
	struct strings argv = { 0 }, env = { 0 };
	int err;

	add(&argv, "replayer");
	add(&argv, "%u", r->torch.raw_alloc);
	add(&argv, "%u", r->torch.raw_delete);
	add(&argv, "%u", r->torch.init);
	add(&argv, "%u", r->torch.empty_cache);
	add(&argv, "%u", r->torch.set_fraction);
	add(&argv, "%u", o->flags);
	add(&env, "LD_PRELOAD=%s/libcuda.so.1:%s/libnvidia-ml.so.1", r->dryrun, r->dryrun);
	add(&env, "MEMTRACE_DRYRUN_DEVICES=1");
	add(&env, "MEMTRACE_DRYRUN_VRAM=%" PRIu64, o->vram ? o->vram : (uint64_t)DRYRUN_VRAM_MAX);
	add(&env, "MEMTRACE_DRYRUN_CONTEXT=%" PRIu64, replay__context(r));
	add(&env, "PYTORCH_CUDA_ALLOC_CONF=%s", o->alloc_conf);
	if (libraries)
		add(&env, "LD_LIBRARY_PATH=%s", libraries);
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

static int read_answers(struct output *h, const struct replay_run_opts *o,
			struct replay_answer *ret)
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
static int read_output(const struct replay *r, int answer, int messages,
		       const struct replay_run_opts *o, struct output *h, struct replay_answer *ret)
{
	struct pollfd p[2] = { { .fd = answer, .events = POLLIN },
			       { .fd = messages, .events = POLLIN } };
	/* Twice the CPU limit, because other processes use the machine, too. */
	const uint64_t deadline = clock__monotonic() + 2 * seconds(r) * 1000000000;

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		int64_t ms = (int64_t)(deadline - clock__monotonic()) / 1000000;
		ssize_t n;
		int err;

		if (ms <= 0)
			return -ETIMEDOUT;
		if (poll(p, 2, (int)(ms > 60000 ? 60000 : ms)) < 0 && errno != EINTR)
			return -errno;
		if (p[1].fd >= 0 && p[1].revents) {
			char rest[512];
			bool has_room = h->n_messages < sizeof(h->messages) - 1;

			n = read(messages, has_room ? h->messages + h->n_messages : rest,
				 has_room ? sizeof(h->messages) - 1 - h->n_messages : sizeof(rest));
			if (n > 0 && has_room)
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
static void explain(struct output *h, int status, int err, struct failure *f)
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

static int start(const struct replay *r, const struct replay_run_opts *o, int answer[2],
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

int replay_run__try(const struct replay *r, const struct replay_run_opts *o,
		    struct replay_answer *ret, struct failure *f)
{
	struct output h = { .cap = 64 * 1024 };
	int answer[2], messages[2], status = 0, err;
	struct subprocess process;

	h.answer = malloc(h.cap);
	if (!h.answer)
		return failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
	err = start(r, o, answer, messages, &process, f);
	if (err) {
		free(h.answer);
		return err;
	}
	err = read_output(r, answer[0], messages[0], o, &h, ret);
	if (err)
		subprocess__signal(&process, SIGKILL);
	close(answer[0]);
	close(messages[0]);
	subprocess__wait(&process, -1, &status);
	if (!err && (!h.done || status))
		err = -EPROTO;
	if (err)
		explain(&h, status, err, f);
	free(h.answer);
	return err;
}
