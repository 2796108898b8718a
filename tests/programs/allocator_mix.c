/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A process with the malloc that it is linked with or that is preloaded: three threads allocate MIB
 * of blocks of mixed sizes, and one of them ends. Then the main thread frees a half of every second
 * stretch, and a thread that did not allocate them frees more. Prints "live BYTES BLOCKS", the sum
 * of malloc_usable_size() of the blocks that are left, and waits for the end of its input.
 *
 * usage: allocator_mix MIB [LARGEST]
 * LARGEST: no block is larger, bytes.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3
#define STRETCH 4096 /* blocks */

static size_t bytes_of_thread, largest = SIZE_MAX;
static pthread_barrier_t allocated, done;

static struct kept {
	void **v;
	size_t n, cap;
} kept[THREADS];

/* Size of block i. Most blocks are small, and most bytes are in large ones. The sizes fill slots of
 * musl, whose malloc_usable_size() is what was requested. */
static size_t size_of(uint64_t i)
{
	static const size_t sizes[] = { 12,  28,   44,	 60,   92,    188,   316,    492,
					996, 1340, 2716, 6540, 18700, 65516, 300000, 2000000 };
	size_t size = sizes[i * 2654435761u % 4294967291u % 16];

	return size < largest ? size : largest;
}

static void *allocate(void *arg)
{
	struct kept *k = arg;
	size_t sum = 0;

	for (uint64_t i = 0; sum < bytes_of_thread && k->n < k->cap; i++) {
		size_t size = size_of(i + (uint64_t)(k - kept) * 1000003);

		k->v[k->n] = malloc(size);
		if (!k->v[k->n])
			exit(1);
		memset(k->v[k->n++], 1, size);
		sum += size;
	}
	pthread_barrier_wait(&allocated);
	if (k != kept) /* the first thread ends, and leaves its memory to others */
		pthread_barrier_wait(&done);
	return NULL;
}

static void free_block(struct kept *k, size_t i)
{
	free(k->v[i]);
	k->v[i] = NULL;
}

/* Frees every third block of all threads. */
static void *free_of_others(void *arg)
{
	(void)arg;
	for (size_t t = 0; t < THREADS; t++)
		for (size_t i = 0; i < kept[t].n; i += 3)
			free_block(&kept[t], i);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS], freer;
	size_t live = 0, blocks = 0;

	if (argc < 2)
		return 2;
	if (argc > 2)
		largest = strtoull(argv[2], NULL, 10);
	bytes_of_thread = (strtoull(argv[1], NULL, 10) << 20) / THREADS;
	pthread_barrier_init(&allocated, NULL, THREADS + 1);
	pthread_barrier_init(&done, NULL, THREADS);
	for (size_t t = 0; t < THREADS; t++) {
		kept[t].cap = bytes_of_thread / 16;
		kept[t].v = malloc(kept[t].cap * sizeof(*kept[t].v));
		if (!kept[t].v || pthread_create(&threads[t], NULL, allocate, &kept[t]))
			return 1;
	}
	pthread_barrier_wait(&allocated);
	pthread_join(threads[0], NULL);
	for (size_t t = 0; t < THREADS; t++)
		for (size_t i = 0; i < kept[t].n; i++)
			if (i / STRETCH % 2 && i % STRETCH < STRETCH / 2)
				free_block(&kept[t], i);
	if (pthread_create(&freer, NULL, free_of_others, NULL))
		return 1;
	pthread_join(freer, NULL);
	for (size_t t = 0; t < THREADS; t++) {
		live += malloc_usable_size(kept[t].v);
		blocks++;
		for (size_t i = 0; i < kept[t].n; i++) {
			live += kept[t].v[i] ? malloc_usable_size(kept[t].v[i]) : 0;
			blocks += kept[t].v[i] != NULL;
		}
	}
	printf("live %zu %zu\nready\n", live, blocks);
	fflush(stdout);
	return getchar() != EOF;
}
