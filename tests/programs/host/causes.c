/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Programs without Python whose host memory grows for one planted cause: causes KIND MIB. Prints
 * "ready", waits for a line, takes the memory, prints "grown", and waits for another line. The line
 * that takes the memory has the comment LEAK: KIND. Pauses after each MiB, because memtrace-bpf
 * copies at most 1000 stacks a second.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define READ_WRITE (PROT_READ | PROT_WRITE)

static void *volatile last; /* keeps the compiler from leaving blocks out */
static char **kept;

static void fill(void *p, size_t size)
{
	if (!p || p == MAP_FAILED) {
		perror("no memory");
		exit(1);
	}
	memset(p, 1, size);
	last = p;
}

static void pause_after(size_t blocks, size_t size, unsigned ms)
{
	if (blocks % (MIB / size) == 0)
		usleep(ms * 1000);
}

/* One buffer that is enlarged again and again. */
static void take_realloc(size_t mib)
{
	static char *buffer;

	for (size_t i = 1; i <= mib; i++) {
		buffer = realloc(buffer, i * MIB); /* LEAK: realloc */
		fill(buffer, i * MIB);
	}
}

static void *fill_arena(void *mib)
{
	for (size_t i = 0; i < (size_t)mib * 64; i++) {
		fill(malloc(16000), 16000); /* LEAK: arenas */
		pause_after(i, 16000, 300); /* such a heap grows by pages */
	}
	return NULL;
}

/* Threads that allocate in arenas of their own. */
static void take_arenas(size_t mib)
{
	pthread_t thread[4];

	for (int i = 0; i < 4; i++)
		if (pthread_create(&thread[i], NULL, fill_arena, (void *)(mib / 4)))
			exit(1);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
}

static void take_file(size_t mib)
{
	char path[] = "/tmp/memtrace-causes-XXXXXX";
	int fd = mkstemp(path);
	void *p;

	unlink(path);
	if (fd < 0 || ftruncate(fd, mib * MIB))
		exit(1);
	p = mmap(NULL, mib * MIB, READ_WRITE, MAP_SHARED, fd, 0); /* LEAK: file */
	fill(p, mib * MIB);
}

static void take_memfd(size_t mib)
{
	int fd = memfd_create("causes", 0);
	void *p;

	if (fd < 0 || ftruncate(fd, mib * MIB))
		exit(1);
	p = mmap(NULL, mib * MIB, READ_WRITE, MAP_SHARED, fd, 0); /* LEAK: memfd */
	fill(p, mib * MIB);
}

static void *use_stack(void *filled)
{
	char frame[MIB];

	fill(frame, sizeof(frame));
	sem_post(filled);
	pause();
	return NULL;
}

/* Threads that never end. Returns when all stacks are filled. */
static void take_stacks(size_t mib)
{
	static sem_t filled;
	pthread_t thread;

	sem_init(&filled, 0, 0);
	for (size_t i = 0; i < mib; i++) {
		if (pthread_create(&thread, NULL, use_stack, &filled)) /* LEAK: stacks */
			exit(1);
		sem_wait(&filled);
	}
}

/* A child that writes to memory of its parent, which then has a copy of its own. */
static void take_fork(size_t mib)
{
	char *shared = malloc(mib * MIB); /* LEAK: fork */

	fill(shared, mib * MIB);
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fill(shared, mib * MIB);
		pause();
	}
}

/* Many blocks, of which all but a few are freed again. */
static void take_burst(size_t mib)
{
	size_t n = mib * 512;

	kept = calloc(n, sizeof(*kept));
	for (size_t i = 0; i < n; i++) {
		kept[i] = malloc(2000); /* LEAK: burst */
		fill(kept[i], 2000);
		pause_after(i, 2000, 10);
	}
	for (size_t i = 0; i < n; i++)
		if (i % 64)
			free(kept[i]);
}

void take_library(size_t mib); /* library.c */

int main(int argc, char **argv)
{
	static const struct {
		const char *kind;
		void (*take)(size_t mib);
	} kinds[] = {
		{ "realloc", take_realloc }, { "arenas", take_arenas },	  { "file", take_file },
		{ "memfd", take_memfd },     { "stacks", take_stacks },	  { "fork", take_fork },
		{ "burst", take_burst },     { "library", take_library },
	};
	char line[8];

	if (argc != 3)
		return 64;
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(kinds[i].kind, argv[1]))
			kinds[i].take(strtoul(argv[2], NULL, 10));
	puts("grown");
	return !fgets(line, sizeof(line), stdin);
}
