/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Names its phases with memtrace_phase.h: "load" takes 16 MiB, and "serve" in it 8 MiB more, twice
 * on another thread. Prints "ready" before, and "done" after; each waits for a line. With an
 * argument, prints the ns of a phase instead. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/inprocess/memtrace_phase.h"

#define MIB (1u << 20)

static void take(size_t size)
{
	memset(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1,
	       size);
}

static void *serve(void *unused)
{
	struct memtrace_phase p = memtrace_phase_begin("serve");

	take(8 * MIB);
	memtrace_phase_end(&p);
	return unused;
}

static void measure(void)
{
	struct timespec from, to;
	int n = 1000000;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < n; i++) {
		struct memtrace_phase p = memtrace_phase_begin("measured");

		memtrace_phase_end(&p);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%.1f\n",
	       ((to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / n);
}

int main(int argc, char **argv)
{
	struct memtrace_phase p;
	pthread_t thread;

	(void)argv;
	if (argc > 1) {
		measure();
		return 0;
	}
	puts("ready");
	fflush(stdout);
	getchar();
	p = memtrace_phase_begin("load");
	take(16 * MIB);
	serve(NULL);
	for (int i = 0; i < 2; i++) {
		pthread_create(&thread, NULL, serve, NULL);
		pthread_join(thread, NULL);
	}
	memtrace_phase_end(&p);
	puts("done");
	fflush(stdout);
	getchar();
	return 0;
}
