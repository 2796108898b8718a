// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A thread that only reads the clock and keeps the longest time between two readings: the longest
 * pause of the process. The kernel's count of time ready but not running
 * (/proc/thread-self/schedstat, second figure) is kept separately: other programs cause that.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_bool run;
static _Atomic uint64_t longest, longest_net;
static pthread_t thread;

int spin_start(void);
void spin_stop(void);
uint64_t spin_longest(void);
uint64_t spin_longest_net(void);

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t waited(int fd)
{
	char text[128], *second;
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	strtoull(text, &second, 10);
	return strtoull(second, NULL, 10);
}

static void *spin(void *unused)
{
	int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	uint64_t before = now(), wait = waited(fd);

	while (run) {
		uint64_t t = now(), gap = t - before, all = wait, net;

		before = t;
		if (gap < 100000)
			continue;
		if (gap > longest)
			longest = gap;
		wait = waited(fd);
		net = gap - (wait - all < gap ? wait - all : gap);
		if (net > longest_net)
			longest_net = net;
		before = now();
	}
	close(fd);
	return NULL;
}

/* Resets the figures; 0 or an errno. */
int spin_start(void)
{
	longest = longest_net = 0;
	run = true;
	return pthread_create(&thread, NULL, spin, NULL);
}

void spin_stop(void)
{
	run = false;
	pthread_join(thread, NULL);
}

/* Longest pause, and its part without waiting for a core. Both in ns. */
uint64_t spin_longest(void)
{
	return longest;
}

uint64_t spin_longest_net(void)
{
	return longest_net;
}
