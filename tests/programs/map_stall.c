/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How long readers of this process keep it from changing its address space: a thread maps 64 KiB,
 * writes to it and unmaps it, all the time, next to one large mapping of small pages.
 *
 * usage: map_stall MIB [RESERVED_GIB]. Prints "ready". Then each line on standard input prints, as
 * JSON, what the thread saw since the line before: rounds, and in microseconds the longest call
 * ("worst"), the mean, and calls above 2 ms ("above"). A wait of the thread for a
 * processor does not count. Ends at the end of the input.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define AREA (64u << 10)
#define LONG 2000000u /* ns */

static struct {
	pthread_mutex_t lock;
	uint64_t rounds, worst, total, above;
	int waits; /* /proc/thread-self/schedstat */
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* How long this thread could run and had no processor, ns. */
static uint64_t waited(void)
{
	unsigned long long ran, wait = 0;
	char text[128];
	ssize_t n = pread(seen.waits, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "%llu %llu", &ran, &wait) != 2)
		return 0;
	return wait;
}

static uint64_t since(uint64_t begin, uint64_t waits)
{
	uint64_t took = now() - begin, wait = waited() - waits;

	return took > wait ? took - wait : 0;
}

static void *change(void *ctx)
{
	static const struct timespec pause = { .tv_nsec = 200000 };

	(void)ctx;
	seen.waits = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	for (;;) {
		uint64_t waits = waited(), begin = now(), took;
		char *area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);

		if (area == MAP_FAILED)
			exit(1);
		*(volatile char *)area = 1;
		munmap(area, AREA);
		took = since(begin, waits);
		pthread_mutex_lock(&seen.lock);
		seen.rounds++;
		seen.total += took;
		seen.above += took > LONG;
		seen.worst = took > seen.worst ? took : seen.worst;
		pthread_mutex_unlock(&seen.lock);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void tell(void)
{
	pthread_mutex_lock(&seen.lock);
	printf("{\"rounds\": %llu, \"worst\": %.1f, \"mean\": %.1f, \"above\": %llu}\n",
	       (unsigned long long)seen.rounds, (double)seen.worst / 1e3,
	       seen.rounds ? (double)seen.total / 1e3 / (double)seen.rounds : 0,
	       (unsigned long long)seen.above);
	seen.rounds = seen.worst = seen.total = seen.above = 0;
	pthread_mutex_unlock(&seen.lock);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1024) << 20,
	       reserved = (argc > 2 ? strtoul(argv[2], NULL, 10) : 0) << 30;
	char *large = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;
	char line[64];

	if (large == MAP_FAILED ||
	    (reserved && mmap(NULL, reserved, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)) {
		perror("mmap");
		return 1;
	}
	madvise(large, size, MADV_NOHUGEPAGE);
	memset(large, 1, size);
	if (pthread_create(&thread, NULL, change, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		tell();
	return 0;
}
