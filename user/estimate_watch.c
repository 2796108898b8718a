/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate_watch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "target/family.h"

#define MEMBERS 256
#define TERM_WITHIN 3000 /* ms */
#define KILL_WITHIN 10000
#define ROUNDS 5 /* one that is ended may have started another just before */

/* A small file of /proc or of a control group. NULL where it cannot be read. */
static char *slurp(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return NULL;
	buf[n] = '\0';
	return buf;
}

static uint64_t rss_of(pid_t pid)
{
	char path[48], buf[128];
	uint64_t pages;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	if (!slurp(path, buf, sizeof(buf)) || sscanf(buf, "%*u %" SCNu64, &pages) != 1)
		return 0;
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A file of a control group. */
static char *slurp_of(const char *group, const char *name, char *buf, size_t size)
{
	char path[4096];

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", group, name);
	return slurp(path, buf, size);
}

static bool number_after(const char *text, const char *name, uint64_t *n)
{
	const char *at = strstr(text, name);

	return at && sscanf(at + strlen(name), "%" SCNu64, n) == 1;
}

/* "Name:   123 kB" in a file of such lines. */
static bool field(const char *text, const char *name, uint64_t *bytes)
{
	if (!number_after(text, name, bytes))
		return false;
	*bytes *= 1024;
	return true;
}

static uint64_t pss_of(pid_t pid)
{
	char path[48], buf[2048];
	uint64_t bytes;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	if (slurp(path, buf, sizeof(buf)) && field(buf, "\nPss:", &bytes))
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

uint64_t watch_memory(pid_t pid, uint64_t enough)
{
	pid_t pids[MEMBERS], parents[MEMBERS];
	size_t n = family__descendants(pid, pids, parents, MEMBERS);
	uint64_t bytes = sum(rss_of, pid, pids, n);

	return bytes > enough && n ? sum(pss_of, pid, pids, n) : bytes;
}

uint64_t watch_group_left(const char *max, const char *current, const char *stat)
{
	uint64_t most, now, cached = 0, bytes;

	if (sscanf(max, "%" SCNu64, &most) != 1 || sscanf(current, "%" SCNu64, &now) != 1)
		return UINT64_MAX;
	if (stat && number_after(stat, "\ninactive_file", &bytes))
		cached += bytes;
	if (stat && number_after(stat, "\nactive_file", &bytes))
		cached += bytes;
	now -= cached < now ? cached : now;
	return most > now ? most - now : 0;
}

/* What a control group, and those that it is in, leave. */
static uint64_t of_cgroups(uint64_t free_bytes)
{
	char group[3072], max[64], current[64], stat[8192], *end, *at;

	if (!slurp("/proc/self/cgroup", group, sizeof(group)))
		return free_bytes;
	at = strstr(group, "0::/");
	if (!at)
		return free_bytes;
	at += 3;
	at[strcspn(at, "\n")] = '\0';
	while ((end = strrchr(at, '/'))) {
		if (slurp_of(at, "memory.max", max, sizeof(max)) && slurp_of(at, "memory.current", current, sizeof(current))) {
			uint64_t left = watch_group_left(max, current, slurp_of(at, "memory.stat", stat, sizeof(stat)));

			free_bytes = left < free_bytes ? left : free_bytes;
		}
		*end = '\0';
	}
	return free_bytes;
}

uint64_t watch_available(void)
{
	char buf[4096];
	uint64_t bytes;

	if (!slurp("/proc/meminfo", buf, sizeof(buf)) || !field(buf, "\nMemAvailable:", &bytes))
		return 0;
	return of_cgroups(bytes);
}

/* Has it a handler for SIGTERM? What that would do, saving a checkpoint perhaps, is not wanted of a run that computed nothing. */
static bool catches_term(pid_t pid)
{
	char path[48], buf[4096], *at;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	at = slurp(path, buf, sizeof(buf)) ? strstr(buf, "\nSigCgt:") : NULL;
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

/* What it had started, and what has come to us from those that are gone. */
static unsigned end_others(pid_t spare)
{
	pid_t pids[MEMBERS], parents[MEMBERS], again[MEMBERS];
	size_t n = family__descendants(getpid(), pids, parents, MEMBERS), m;
	int fds[MEMBERS];
	unsigned ended = 0;

	for (size_t i = 0; i < n; i++)
		fds[i] = pids[i] == spare ? -1 : (int)syscall(SYS_pidfd_open, pids[i], 0u);
	/* Those that are still there are those that the descriptors are of. */
	m = family__descendants(getpid(), again, parents, MEMBERS);
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

unsigned watch_end(pid_t pid, int pidfd, pid_t spare)
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
