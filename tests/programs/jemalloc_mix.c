/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A process with jemalloc, preloaded or linked: threads and the main thread allocate blocks of
 * mixed sizes, and free every second one. Prints lines "NAME VALUE": jemalloc's own statistics, and
 * as stats.usable the sum of malloc_usable_size() of the blocks that are left. Then it prints
 * "ready", and waits for the end of its input.
 *
 * usage: jemalloc_mix THREADS BLOCKS [SIZE]
 * BLOCKS: number of each thread. SIZE: bytes of all blocks; then none is freed.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma weak mallctl
int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size);

static size_t blocks, size_of_all;
static _Atomic size_t usable;
static pthread_barrier_t done;

static void *allocate(void *arg)
{
	void **v = calloc(blocks, sizeof(*v));
	unsigned seed = *(unsigned *)arg;

	for (size_t i = 0; v && i < blocks; i++) {
		size_t most = i % 100 ? 1000 : 100000;
		size_t size = size_of_all ? size_of_all : 1 + (size_t)rand_r(&seed) % most;

		v[i] = malloc(size);
		if (!v[i])
			exit(1);
		memset(v[i], 1, size);
	}
	usable += malloc_usable_size(v);
	for (size_t i = 0; v && i < blocks; i++)
		if (i % 2 || size_of_all)
			usable += malloc_usable_size(v[i]);
		else
			free(v[i]);
	return v;
}

/* Its cache of free blocks stays as long as the thread. */
static void *run_thread(void *arg)
{
	void *v = allocate(arg);

	pthread_barrier_wait(&done);
	pthread_barrier_wait(&done);
	return v;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {
		"stats.allocated",
		"stats.active",
		"stats.resident",
		"stats.retained",
		"stats.arenas.4096.tcache_bytes",
		"stats.arenas.4096.pdirty",
		"stats.arenas.4096.pmuzzy",
	};
	unsigned threads = argc > 2 ? (unsigned)atoi(argv[1]) : 0, seeds[64];
	static char buffer[4096];
	uint64_t epoch = 1;
	pthread_t t;

	if (argc < 3 || threads > 63 || !mallctl)
		return 2;
	blocks = strtoull(argv[2], NULL, 10);
	size_of_all = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	/* After the statistics, stdio must not allocate anything. */
	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	setvbuf(stdin, NULL, _IONBF, 0);
	pthread_barrier_init(&done, NULL, threads + 1);
	for (unsigned i = 0; i <= threads; i++)
		seeds[i] = i + 1;
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&t, NULL, run_thread, &seeds[i]))
			return 1;
	if (!allocate(&seeds[threads]))
		return 1;
	pthread_barrier_wait(&done);
	mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		size_t value = 0, size = sizeof(value);

		mallctl(names[i], &value, &size, NULL, 0);
		printf("%s %zu\n", names[i], value);
	}
	printf("stats.usable %zu\nready\n", (size_t)usable);
	fflush(stdout);
	return getchar() != EOF;
}
