/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/runs/watch.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/io.h"
#include "inspect/descendants.h"

#define MEMBERS 256
#define TERM_WITHIN 3000 /* ms until SIGKILL */
#define KILL_WITHIN 10000
#define ROUNDS 5 /* rounds of killing, because a process may start another just before its end */

static uint64_t rss_of(pid_t pid)
{
	char buf[128];
	uint64_t pages;

	if (io__text_of_process(pid, "statm", buf, sizeof(buf)) < 0 ||
	    sscanf(buf, "%*u %" SCNu64, &pages) != 1)
		return 0;
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t pss_of(pid_t pid)
{
	char buf[2048];
	uint64_t bytes;

	if (io__text_of_process(pid, "smaps_rollup", buf, sizeof(buf)) > 0 &&
	    memory__field(buf, "\nPss:", &bytes))
		return bytes;
	return rss_of(pid);
}

static uint64_t sum(uint64_t (*of)(pid_t), pid_t pid, const pid_t *pids, size_t n)
{
	uint64_t bytes = of(pid);

	for (size_t i = 0; i < n; i++)
		bytes += of(pids[i]);
	return bytes;
}

uint64_t estimate_watch__memory(pid_t pid, uint64_t enough)
{
	pid_t pids[MEMBERS], parents[MEMBERS];
	size_t n = descendants__descendants(pid, pids, parents, MEMBERS);
	uint64_t bytes = sum(rss_of, pid, pids, n);

	return bytes > enough && n ? sum(pss_of, pid, pids, n) : bytes;
}

/* True if the process handles SIGTERM. Its handler could save a checkpoint, which is useless after
 * a run that computed nothing. */
static bool catches_term(pid_t pid)
{
	char buf[4096], *at;

	io__text_of_process(pid, "status", buf, sizeof(buf));
	at = strstr(buf, "\nSigCgt:");
	return at && (strtoull(at + 8, NULL, 16) >> (SIGTERM - 1) & 1);
}

static bool ended_within(int pidfd, int ms)
{
	struct pollfd fd = { .fd = pidfd, .events = POLLIN };

	return poll(&fd, 1, ms) > 0;
}

static void send(int pidfd, int number)
{
	syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0u);
}

static void end_one(pid_t pid, int pidfd)
{
	if (!catches_term(pid)) {
		send(pidfd, SIGTERM);
		if (ended_within(pidfd, TERM_WITHIN))
			return;
	}
	send(pidfd, SIGKILL);
	ended_within(pidfd, KILL_WITHIN);
}

/* Kills the remaining descendants, also those inherited from dead processes. */
static unsigned end_others(pid_t spare)
{
	pid_t pids[MEMBERS], parents[MEMBERS], again[MEMBERS];
	size_t n = descendants__descendants(getpid(), pids, parents, MEMBERS), m;
	int fds[MEMBERS];
	unsigned ended = 0;

	for (size_t i = 0; i < n; i++)
		fds[i] = pids[i] == spare ? -1 : (int)syscall(SYS_pidfd_open, pids[i], 0u);
	/* A process that is still listed is the one that its descriptor refers to. */
	m = descendants__descendants(getpid(), again, parents, MEMBERS);
	for (size_t i = 0; i < n; i++) {
		bool there = false;

		for (size_t k = 0; k < m; k++)
			there |= again[k] == pids[i];
		if (fds[i] < 0 || !there || ended_within(fds[i], 0))
			continue;
		ended++;
		send(fds[i], SIGKILL);
		ended_within(fds[i], KILL_WITHIN);
	}
	for (size_t i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return ended;
}

unsigned estimate_watch__end(pid_t pid, int pidfd, pid_t spare)
{
	unsigned ended = 0, now;

	end_one(pid, pidfd);
	for (int i = 0; i < ROUNDS; i++) {
		now = end_others(spare);
		ended += now;
		if (!now)
			break;
	}
	return ended;
}
