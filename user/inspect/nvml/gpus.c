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
#include "base/text.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u /* include/uapi/linux/memfd.h, Linux 6.3 */
#endif

#define MS 1000000ULL
#define PAUSE (50 * MS)	   /* between two questions */
#define SHARE 19	   /* the pause is at least this multiple of the last answer's duration */
#define RECENT (2000 * MS) /* a question includes all GPUs requested within this time */
#define AGAIN_AFTER (300000 * MS) /* pause before a new helper, after one was killed */
#define WAIT_MS 250		  /* gpus__wait(), at most */

/* State of the helper, one for the whole program. */
static struct {
	unsigned users;
	pid_t pid; /* PID of the helper, also of a killed one that still exists; 0: none */
	int fd;	   /* socket to the helper; valid if running */
	/* greeted: the helper has sent its greeting. asked: a question has no answer yet. */
	bool running, greeted, asked;
	bool all, asked_all; /* gpus__ask_all() was called; the last question was for all */
	char why[160];	     /* gpus__why() */
	bool timed_out;	     /* gpus__wait() timed out on the current question */
	uint64_t since;	     /* start time of the helper or of the question */
	uint64_t retry_at;   /* no new helper before; UINT64_MAX: never */
	/* next: time of the next question at the earliest. not_before: users want an answer whose
	 * calls begin at this time or later. */
	uint64_t next, not_before;
	/* asked_mask: GPUs of the last question. wanted: time of the last request for each GPU. */
	uint64_t asked_mask, wanted[GPUS_MAX];
	uint64_t answered_mask; /* GPUs of the last answer */
	struct gpus_greeting greeting;
	struct gpus_answer answer;
	bool has_answer;
} g = { .fd = -1 };

/* ---- start and end of the helper ---- */

int gpus__write_helper(void)
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

/* Starts the program in the file `helper`, with fd as its socket. 0 or a positive error number.
 * Does not use base/subprocess.h: its fork() would copy the page tables of this process, which may
 * be large, on the thread that drains the ring. */
static int spawn_helper(int helper, int fd)
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

/* Reaps the helper if it has ended. True: there is no helper. Never waits: a call into a failed GPU
 * cannot be interrupted, not even by SIGKILL. */
static bool reap_helper(void)
{
	if (g.pid && waitpid(g.pid, NULL, WNOHANG) != 0)
		g.pid = 0;
	return !g.pid;
}

/* Kills the helper and drops what it said. */
static void end_helper(void)
{
	if (g.running)
		close(g.fd);
	if (g.pid)
		kill(g.pid, SIGKILL);
	g.fd = -1;
	g.running = g.greeted = g.asked = g.timed_out = g.has_answer = false;
	reap_helper();
}

static void start_helper(uint64_t now)
{
	int fd[2], helper, err;

	if (!reap_helper())
		return;
	g.retry_at = now + AGAIN_AFTER;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
		return;
	helper = gpus__write_helper();
	err = helper < 0 ? -helper : spawn_helper(helper, fd[1]);
	if (helper >= 0)
		close(helper);
	close(fd[1]);
	if (err) {
		g.pid = 0;
		close(fd[0]);
		snprintf(g.why, sizeof(g.why), "the helper process cannot be started: %s",
			 strerror(err));
		log_debug("no driver figures: %s", g.why);
		return;
	}
	g.fd = fd[0];
	g.running = true;
	g.since = now;
}

/* Warns, ends the helper, and allows another one later. why: what the driver did. */
static void give_up(const char *why)
{
	log_warn("the NVIDIA driver %s: its figures (used, free) are missing from here on; "
		 "memtrace-bpf asks again in 5 minutes",
		 why);
	g.retry_at = clock__monotonic() + AGAIN_AFTER;
	snprintf(g.why, sizeof(g.why), "the NVIDIA driver %s", why);
	end_helper();
}

/* ---- messages ---- */

/* Checks a greeting of len bytes in g.greeting. Without GPUs, ends the helper for good. */
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
	text__clean(g.why, sizeof(g.why), h->why, strlen(h->why));
	g.retry_at = UINT64_MAX;
	end_helper();
}

static void on_answer(const struct gpus_answer *a, size_t len)
{
	size_t head = offsetof(struct gpus_answer, process);

	if (len < head || a->n > GPUS_PROCESSES || a->n_slices > GPUS_SLICES ||
	    len != head + a->n * sizeof(*a->process) || a->end < a->begin) {
		give_up("was not understood");
		return;
	}
	memcpy(&g.answer, a, len);
	for (uint32_t i = 0; i < a->n_slices; i++)
		g.answer.slice[i].uuid[sizeof(a->slice[i].uuid) - 1] = '\0';
	/* An answer to an older question lacks parts that are wanted now. */
	g.answered_mask = g.asked_all == g.all ? g.asked_mask : 0;
	g.has_answer = true;
	g.asked = g.timed_out = false;
	g.next = a->begin + PAUSE;
	if (g.next < a->end + (a->end - a->begin) * SHARE)
		g.next = a->end + (a->end - a->begin) * SHARE;
}

/* Takes all messages that the helper has sent. Does not wait. */
static void receive_messages(void)
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

/* Asks about all GPUs that were requested recently. */
static void put_question(uint64_t now)
{
	struct gpus_question q = { .all = g.all };

	for (unsigned i = 0; i < g.greeting.n; i++)
		if (g.wanted[i] && now - g.wanted[i] < RECENT)
			q.mask |= UINT64_C(1) << i;
	if (!q.mask || send(g.fd, &q, sizeof(q), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(q))
		return;
	g.asked = true;
	g.asked_mask = q.mask;
	g.asked_all = g.all;
	g.since = now;
}

static bool wants_newer_answer(void)
{
	return !g.has_answer || g.answer.begin < g.not_before;
}

/* Starts the helper, takes its messages, checks its time limit, asks the next question: whatever is
 * due. Does not wait. */
static void drive_helper(void)
{
	uint64_t now = clock__monotonic(), within;

	if (!g.running && g.users && now >= g.retry_at)
		start_helper(now);
	receive_messages();
	within = (g.greeted ? GPUS_ANSWERS_WITHIN : GPUS_GREETS_WITHIN) * 1000 * MS;
	if (g.running && (!g.greeted || g.asked) && now > g.since && now - g.since > within)
		give_up(g.greeted ? "has not answered for 5 s" : "was not ready within 30 s");
	if (g.running && g.greeted && !g.asked && g.not_before && wants_newer_answer() &&
	    now >= g.next)
		put_question(now);
}

/* ---- functions for callers ---- */

void gpus__open(void)
{
	g.users++;
	drive_helper();
}

void gpus__close(void)
{
	if (!g.users || --g.users)
		return;
	end_helper();
	g.retry_at = 0;
	g.not_before = 0;
	g.all = false;
	memset(g.wanted, 0, sizeof(g.wanted));
}

unsigned gpus__count(void)
{
	drive_helper();
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
	drive_helper();
}

const struct gpus_answer *gpus__answer(void)
{
	drive_helper();
	return g.has_answer ? &g.answer : NULL;
}

static bool is_answered(uint64_t mask, uint64_t not_before)
{
	return g.has_answer && g.answer.begin >= not_before && !(mask & ~g.answered_mask);
}

bool gpus__answered(uint64_t mask, uint64_t not_before)
{
	drive_helper();
	return is_answered(mask, not_before);
}

/* Waits at most `within` ns. */
static bool wait_within(uint64_t mask, uint64_t not_before, uint64_t within)
{
	uint64_t end = clock__monotonic() + within, now;

	gpus__ask(mask, not_before);
	while (!is_answered(mask, not_before) && g.running && g.greeted && !g.timed_out &&
	       (now = clock__monotonic()) < end) {
		struct pollfd p = { .fd = g.fd, .events = POLLIN };
		uint64_t left = end - now < 100 * MS ? end - now : 100 * MS;

		/* Without a current question, wait for the pause between questions to end. */
		poll(&p, 1, g.asked ? (int)(left / MS) + 1 : 2);
		drive_helper();
	}
	return is_answered(mask, not_before);
}

bool gpus__wait(uint64_t mask, uint64_t not_before)
{
	bool answered = wait_within(mask, not_before, WAIT_MS * MS);

	/* Captures that end together wait only once. */
	g.timed_out = g.asked && !answered;
	return answered;
}

bool gpus__wait_long(uint64_t mask, uint64_t not_before)
{
	g.timed_out = false;
	return wait_within(mask, not_before, (GPUS_ANSWERS_WITHIN + 1) * 1000 * MS);
}

void gpus__ask_all(void)
{
	g.all = true;
}

unsigned gpus__wait_count(unsigned within)
{
	uint64_t end = clock__monotonic() + within * MS;
	unsigned n;

	while (!(n = gpus__count()) && g.running && clock__monotonic() < end) {
		struct pollfd p = { .fd = g.fd, .events = POLLIN };

		poll(&p, 1, 50);
	}
	return n;
}

const char *gpus__why(void)
{
	return g.why;
}
