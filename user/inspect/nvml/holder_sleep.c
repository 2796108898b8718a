/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/nvml/holder_sleep.h"

#include <dirent.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

#define CPUS_MAX 4096
#define THREADS_MAX 4096 /* of a process */

/* The scheduler stamps each thread with its CPU's clock when it runs (se.exec_start of
 * /proc/PID/task/TID/sched). The clocks of two CPUs differ by the time that interrupts and a
 * hypervisor took. So each stamp is compared with the present stamp of the same CPU: that of this
 * thread, while it runs there. */
struct holder_sleep {
	cpu_set_t *own; /* affinity at the start */
	bool moved;
	uint64_t clock[CPUS_MAX]; /* ns; 0: not read yet; UINT64_MAX: not allowed */
};

struct holder_sleep *holder_sleep__new(void)
{
	struct holder_sleep *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->own = CPU_ALLOC(CPUS_MAX);
	if (s->own && !sched_getaffinity(0, CPU_ALLOC_SIZE(CPUS_MAX), s->own))
		return s;
	holder_sleep__free(s);
	return NULL;
}

void holder_sleep__free(struct holder_sleep *s)
{
	if (!s)
		return;
	if (s->moved)
		sched_setaffinity(0, CPU_ALLOC_SIZE(CPUS_MAX), s->own);
	if (s->own)
		CPU_FREE(s->own);
	free(s);
}

/* Reads a stamp, in ns; 0: the thread is about to run on another CPU. False: not known. */
static bool read_stamp(const char *path, uint64_t *ret)
{
	uint64_t ms, ns;
	const char *at;
	char text[4096];

	if (io__text(path, text, sizeof(text)) <= 0)
		return false;
	at = strstr(text, "\nse.exec_start");
	at = at ? strchr(at, ':') : NULL;
	if (!at || sscanf(at, ": %" SCNu64 ".%" SCNu64, &ms, &ns) != 2 || ms > UINT64_MAX / 2000000)
		return false;
	*ret = ms * 1000000 + ns;
	return true;
}

static bool read_clock(struct holder_sleep *s, unsigned cpu, uint64_t *ret)
{
	size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
	cpu_set_t *one;

	if (cpu >= CPUS_MAX)
		return false;
	if (!s->clock[cpu]) {
		one = CPU_ALLOC(CPUS_MAX);
		if (!one)
			return false;
		CPU_ZERO_S(size, one);
		CPU_SET_S(cpu, size, one);
		s->moved = true;
		if (!CPU_ISSET_S(cpu, size, s->own) || sched_setaffinity(0, size, one) ||
		    !read_stamp("/proc/thread-self/sched", &s->clock[cpu]) || !s->clock[cpu])
			s->clock[cpu] = UINT64_MAX;
		CPU_FREE(one);
	}
	*ret = s->clock[cpu];
	return *ret != UINT64_MAX;
}

/* The CPU that a thread ran on last. */
static bool read_cpu(pid_t pid, const char *tid, unsigned *ret)
{
	char path[64], text[4096];
	const char *at;

	snprintf(path, sizeof(path), "/proc/%d/task/%.10s/stat", (int)pid, tid);
	if (io__text(path, text, sizeof(text)) <= 0)
		return false;
	/* Field 39. The name, field 2, ends with the last parenthesis. */
	at = strrchr(text, ')');
	for (int field = 2; at && field < 39; field++)
		at = strchr(at + 1, ' ');
	return at && sscanf(at, " %u", ret) == 1;
}

static bool thread_sleeps(struct holder_sleep *s, pid_t pid, const char *tid, uint64_t *ns)
{
	uint64_t stamp, clock;
	char path[64];
	unsigned cpu;

	snprintf(path, sizeof(path), "/proc/%d/task/%.10s/sched", (int)pid, tid);
	if (!read_stamp(path, &stamp) || !read_cpu(pid, tid, &cpu) || !read_clock(s, cpu, &clock))
		return false;
	*ns = stamp && clock > stamp ? clock - stamp : 0;
	return true;
}

bool holder_sleep__of(struct holder_sleep *s, pid_t pid, uint64_t *ns)
{
	struct dirent *e;
	unsigned n = 0;
	bool known = true;
	char path[32];
	uint64_t mine;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	*ns = UINT64_MAX;
	while (d && known && (e = readdir(d))) {
		if (*e->d_name == '.')
			continue;
		known = n++ < THREADS_MAX && thread_sleeps(s, pid, e->d_name, &mine);
		if (known && mine < *ns)
			*ns = mine;
	}
	if (d)
		closedir(d);
	return known && n;
}
