/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/nvml.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "assets/gpus_helper.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u /* include/uapi/linux/memfd.h, Linux 6.3 */
#endif

#define MS 1000000ULL
#define PAUSE (50 * MS)	   /* between two questions */
#define SHARE 19	   /* the pause is at least this multiple of the last answer's duration */
#define RECENT (2000 * MS) /* each question includes GPUs requested within this time */
#define AGAIN_AFTER (300000 * MS) /* pause after a helper was killed */
#define WAIT_MS 250

static struct {
	unsigned users;
	pid_t pid; /* PID of the helper, also of a killed one that still exists; 0: none */
	int fd;	   /* valid if running */
	bool running, greeted, asked;
	bool timed_out;	   /* gpus__wait() timed out on the current question */
	uint64_t since;	   /* start time of the helper or of the question */
	uint64_t retry_at; /* no new helper before; UINT64_MAX: never */
	/* next: no question before. not_before: an answer is wanted that begins then or later. */
	uint64_t next, not_before;
	uint64_t asked_mask, wanted[GPUS_MAX]; /* wanted: time of the last request for each GPU */
	uint64_t answered_mask;
	struct gpus_greeting greeting;
	struct gpus_answer answer;
	bool has_answer;
} g = { .fd = -1 };

/* ---- start and end of the helper ---- */

/* A file in memory with the helper. Returns the descriptor or -errno. */
static int helper_in_memory(void)
{
	const void *helper = packed__unpack(&asset_gpus_helper);
	int fd, err;

	if (!helper)
		return -ENOMEM;
	fd = memfd_create("memtrace-bpf-gpus", MFD_CLOEXEC | MFD_EXEC);
	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 each such file can be executed */
		fd = memfd_create("memtrace-bpf-gpus", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = io__write(fd, helper, asset_gpus_helper.full);
	if (!err)
		return fd;
	close(fd);
	return err;
}

/* Starts the helper in this file. 0 or an error number. Not by base/subprocess.h: a fork would copy
 * the page tables of a large process, in the thread that drains the ring. */
static int spawn(int helper, int fd)
{
	char path[32], parent[16], *argv[] = { "memtrace-bpf", "gpus-helper", parent, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", helper);
	snprintf(parent, sizeof(parent), "%d", (int)getpid());
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	/* A session of its own, so that Ctrl-C does not reach it. */
	err = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF);
	err = err ?: posix_spawnattr_setsigmask(&attr, &none);
	err = err ?: posix_spawnattr_setsigdefault(&attr, &all);
	err = err ?: posix_spawn_file_actions_adddup2(&files, fd, STDIN_FILENO);
	err = err
		      ?: posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null",
							  O_WRONLY, 0);
	err = err
		      ?: posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null",
							  O_WRONLY, 0);
	err = err ?: posix_spawn(&g.pid, path, &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return err;
}

/* Never waits: a call into a failed GPU cannot be interrupted, not even by SIGKILL. */
static bool reaped(void)
{
	if (g.pid && waitpid(g.pid, NULL, WNOHANG) != 0)
		g.pid = 0;
	return !g.pid;
}

static void end_helper(void)
{
	if (g.running)
		close(g.fd);
	if (g.pid)
		kill(g.pid, SIGKILL);
	g.fd = -1;
	g.running = g.greeted = g.asked = g.timed_out = g.has_answer = false;
	reaped();
}

static void start_helper(uint64_t now)
{
	int fd[2], helper, err;

	if (!reaped())
		return;
	g.retry_at = now + AGAIN_AFTER;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
		return;
	helper = helper_in_memory();
	err = helper < 0 ? -helper : spawn(helper, fd[1]);
	if (helper >= 0)
		close(helper);
	close(fd[1]);
	if (err) {
		g.pid = 0;
		close(fd[0]);
		log_debug("no driver figures: cannot start the helper process: %s", strerror(err));
		return;
	}
	g.fd = fd[0];
	g.running = true;
	g.since = now;
}

static void give_up(const char *why)
{
	log_warn("the NVIDIA driver %s: its figures (used, free) are missing from here on; "
		 "memtrace-bpf asks again in 5 minutes",
		 why);
	g.retry_at = clock__monotonic() + AGAIN_AFTER;
	end_helper();
}

/* ---- messages ---- */

static void on_greeting(size_t len)
{
	struct gpus_greeting *h = &g.greeting;

	if (len != sizeof(*h) || h->n > GPUS_MAX) {
		h->n = 0;
		snprintf(h->why, sizeof(h->why), "the helper process does not answer as expected");
	}
	h->why[sizeof(h->why) - 1] = '\0';
	for (unsigned i = 0; i < h->n; i++)
		h->gpu[i].name[sizeof(h->gpu[i].name) - 1] =
			h->gpu[i].uuid[sizeof(h->gpu[i].uuid) - 1] = '\0';
	g.greeted = true;
	if (h->n)
		return;
	log_debug("no driver figures: %s", h->why);
	g.retry_at = UINT64_MAX;
	end_helper();
}

static void on_answer(const struct gpus_answer *a, size_t len)
{
	size_t head = offsetof(struct gpus_answer, process);

	if (len < head || a->n > GPUS_PROCESSES || len != head + a->n * sizeof(*a->process) ||
	    a->end < a->begin) {
		give_up("was not understood");
		return;
	}
	memcpy(&g.answer, a, len);
	g.answered_mask = g.asked_mask;
	g.has_answer = true;
	g.asked = g.timed_out = false;
	g.next = a->begin + PAUSE;
	if (g.next < a->end + (a->end - a->begin) * SHARE)
		g.next = a->end + (a->end - a->begin) * SHARE;
}

static void receive(void)
{
	static union {
		struct gpus_greeting greeting;
		struct gpus_answer answer;
	} m;
	ssize_t n;

	while (g.running) {
		n = recv(g.fd, &m, sizeof(m), MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			give_up("is not available: the helper process ended");
		} else if (!g.greeted) {
			memcpy(&g.greeting, &m.greeting, sizeof(g.greeting));
			on_greeting((size_t)n);
		} else {
			on_answer(&m.answer, (size_t)n);
		}
	}
}

static void put_question(uint64_t now)
{
	struct gpus_question q = { 0 };

	for (unsigned i = 0; i < g.greeting.n; i++)
		if (g.wanted[i] && now - g.wanted[i] < RECENT)
			q.mask |= UINT64_C(1) << i;
	if (!q.mask || send(g.fd, &q, sizeof(q), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(q))
		return;
	g.asked = true;
	g.asked_mask = q.mask;
	g.since = now;
}

static bool is_wanted(void)
{
	return !g.has_answer || g.answer.begin < g.not_before;
}

static void update(void)
{
	uint64_t now = clock__monotonic(), within;

	if (!g.running && g.users && now >= g.retry_at)
		start_helper(now);
	receive();
	within = (g.greeted ? GPUS_ANSWERS_WITHIN : GPUS_GREETS_WITHIN) * 1000 * MS;
	if (g.running && (!g.greeted || g.asked) && now > g.since && now - g.since > within)
		give_up(g.greeted ? "has not answered for 5 s" : "was not ready within 30 s");
	if (g.running && g.greeted && !g.asked && g.not_before && is_wanted() && now >= g.next)
		put_question(now);
}

/* ---- functions for callers ---- */

void gpus__open(void)
{
	g.users++;
	update();
}

void gpus__close(void)
{
	if (!g.users || --g.users)
		return;
	end_helper();
	g.retry_at = 0;
	g.not_before = 0;
	memset(g.wanted, 0, sizeof(g.wanted));
}

unsigned gpus__count(void)
{
	update();
	return g.greeted ? g.greeting.n : 0;
}

const struct gpu *gpus__get(unsigned i)
{
	return &g.greeting.gpu[i];
}

void gpus__ask(uint64_t mask, uint64_t not_before)
{
	uint64_t now = clock__monotonic();

	for (unsigned i = 0; i < GPUS_MAX; i++)
		if (mask >> i & 1)
			g.wanted[i] = now;
	if (not_before > g.not_before)
		g.not_before = not_before;
	update();
}

const struct gpus_answer *gpus__answer(void)
{
	update();
	return g.has_answer ? &g.answer : NULL;
}

static bool is_answered(uint64_t mask, uint64_t not_before)
{
	return g.has_answer && g.answer.begin >= not_before && !(mask & ~g.answered_mask);
}

bool gpus__answered(uint64_t mask, uint64_t not_before)
{
	update();
	return is_answered(mask, not_before);
}

bool gpus__wait(uint64_t mask, uint64_t not_before)
{
	uint64_t end = clock__monotonic() + WAIT_MS * MS, now;

	gpus__ask(mask, not_before);
	while (!is_answered(mask, not_before) && g.running && g.greeted && !g.timed_out &&
	       (now = clock__monotonic()) < end) {
		struct pollfd p = { .fd = g.fd, .events = POLLIN };

		/* Without a current question, wait for the pause between questions to end. */
		poll(&p, 1, g.asked ? (int)((end - now) / MS) + 1 : 2);
		update();
	}
	/* Captures that end together wait only once. */
	g.timed_out = g.asked && !is_answered(mask, not_before);
	return is_answered(mask, not_before);
}
