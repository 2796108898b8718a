/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A program with known live blocks inside malloc, for --malloc-probes: mallocs KIND. Prints
 * "ready", waits for a line, allocates, prints "done" with the live bytes of each line as
 * NAME:BYTES, and waits for another line. A line that allocates has the comment LIVE: NAME.
 *
 *     lines    several functions and sizes; memory that was free and resident before; blocks that
 *              are all freed; realloc
 *     threads  blocks that other threads free
 *     fork     a child that frees its copies
 *     slow, fast  no live blocks: two calls after each millisecond, or as many as possible
 *     mix      for each number on a line: so many replacements of blocks, and their CPU time, in s
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define THREADS 4
#define SMALL 200 /* bytes */
#define ROW 3000
#define BLOCKS_OF_A_THREAD 1500

static void *kept[1 << 20];
static size_t n_kept;

static void keep(void *p, size_t size)
{
	if (!p || n_kept == sizeof(kept) / sizeof(kept[0]))
		exit(1);
	memset(p, 1, size);
	kept[n_kept++] = p;
}

static void pause_after(size_t i, size_t every)
{
	if (i % every == 0)
		usleep(1000);
}

/* Takes memory and frees it, so that the next lines do not make the process grow. */
static void burst(void)
{
	static void *p[8000];

	for (size_t i = 0; i < 8000; i++) {
		p[i] = malloc(ROW); /* LIVE: burst */
		memset(p[i], 1, ROW);
		pause_after(i, 100);
	}
	for (size_t i = 0; i < 8000; i++) {
		free(p[i]);
		pause_after(i, 100);
	}
}

static void lines(void)
{
	char *buffer = NULL, *aligned;

	keep(malloc(16), 16); /* so that the heap's end stays */
	burst();
	for (size_t i = 0; i < 200000; i++) {
		keep(malloc(SMALL), SMALL); /* LIVE: small */
		pause_after(i, 200);
	}
	for (size_t i = 0; i < 8000; i++) {
		keep(calloc(10, ROW / 10), ROW); /* LIVE: rows */
		pause_after(i, 100);
	}
	for (size_t i = 0; i < 3000; i++) {
		if (posix_memalign((void **)&aligned, 64, 10000)) /* LIVE: aligned */
			exit(1);
		keep(aligned, 10000);
		pause_after(i, 100);
	}
	keep(malloc(20 * MIB), 20 * MIB); /* LIVE: large */
	for (size_t size = 1000; size < 8 * MIB; size += size / 8) {
		buffer = realloc(buffer, size); /* LIVE: buffer */
		memset(buffer, 1, size);
		usleep(1000);
	}
	keep(realloc(buffer, 8 * MIB), 8 * MIB);
	if (realloc(kept[n_kept - 1], (size_t)1 << 46)) /* LIVE: last */
		exit(1); /* it fails, and the block stays, as this line's */
	printf("done burst:0 small:%zu rows:%zu aligned:%zu large:%zu buffer:0 last:%zu\n",
	       (size_t)200000 * SMALL, (size_t)8000 * ROW, (size_t)3000 * 10000, 20 * MIB, 8 * MIB);
}

static void *allocate(void *to)
{
	for (size_t i = 0; i < BLOCKS_OF_A_THREAD; i++) {
		((void **)to)[i] = malloc(8000); /* LIVE: thread */
		memset(((void **)to)[i], 1, 8000);
		pause_after(i, 4);
	}
	return NULL;
}

static void *free_half(void *from)
{
	for (size_t i = 0; i < BLOCKS_OF_A_THREAD; i += 2) {
		free(((void **)from)[i]);
		pause_after(i, 8);
	}
	return NULL;
}

static void threads(void)
{
	static void *blocks[THREADS][BLOCKS_OF_A_THREAD];
	void *(*const run[])(void *) = { allocate, free_half };
	pthread_t t[THREADS];

	for (size_t k = 0; k < 2; k++) {
		for (size_t i = 0; i < THREADS; i++)
			if (pthread_create(&t[i], NULL, run[k], blocks[i]))
				exit(1);
		for (size_t i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
	}
	printf("done thread:%zu\n", (size_t)THREADS * BLOCKS_OF_A_THREAD / 2 * 8000);
}

static void forks(void)
{
	pid_t child;

	for (size_t i = 0; i < 3000; i++) {
		keep(malloc(8000), 8000); /* LIVE: forked */
		pause_after(i, 4);
	}
	child = fork();
	if (!child) {
		for (size_t i = 0; i < n_kept; i++)
			free(kept[i]);
		_exit(0);
	}
	if (child < 0 || waitpid(child, NULL, 0) != child)
		exit(1);
	printf("done forked:%zu\n", (size_t)3000 * 8000);
}

static void calls(size_t each)
{
	void *volatile p;

	for (size_t i = 0;; i++) {
		p = malloc(100);
		free(p);
		if (each)
			pause_after(i, each);
	}
}

static uint64_t next_random(void)
{
	static uint64_t x = 88172645463325252ULL;

	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

static double cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void mix(void)
{
	char line[32];

	while (fgets(line, sizeof(line), stdin)) {
		double from = cpu_time();

		for (long i = atol(line); i > 0; i--) {
			size_t k = next_random() % 4096, size = 32 + next_random() % 2000;

			free(kept[k]);
			kept[k] = malloc(size);
			memset(kept[k], 1, size);
		}
		printf("%.6f\n", cpu_time() - from);
	}
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	pthread_t t;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(kind, "fast"))
		pthread_create(&t, NULL, (void *(*)(void *))calls, (void *)0);
	else if (!strcmp(kind, "slow"))
		pthread_create(&t, NULL, (void *(*)(void *))calls, (void *)1);
	puts("ready");
	if (!strcmp(kind, "mix"))
		mix();
	getchar();
	if (!strcmp(kind, "lines"))
		lines();
	else if (!strcmp(kind, "threads"))
		threads();
	else if (!strcmp(kind, "fork"))
		forks();
	else if (!strcmp(kind, "slow"))
		pthread_create(&t, NULL, (void *(*)(void *))calls, (void *)0);
	getchar();
	return 0;
}
