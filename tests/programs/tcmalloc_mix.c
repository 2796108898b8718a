/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A process whose malloc is gperftools' tcmalloc, preloaded: allocates MIB of blocks of mixed sizes
 * on THREADS threads, which stay, and frees every second block. Then prints tcmalloc's own figures,
 * one "NAME BYTES" a line, and "ready N", and waits for the end of its input. The line "return" of
 * the input has tcmalloc return its free pages to the system, and prints the figures again.
 *
 * usage: LD_PRELOAD=libtcmalloc_minimal.so.4 tcmalloc_mix MIB THREADS [LARGEST]
 * LARGEST: no block is larger, bytes. Without tcmalloc it ends with status 77.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const properties[] = {
	"generic.current_allocated_bytes",   "generic.heap_size",
	"tcmalloc.pageheap_free_bytes",	     "tcmalloc.pageheap_unmapped_bytes",
	"tcmalloc.central_cache_free_bytes", "tcmalloc.transfer_cache_free_bytes",
	"tcmalloc.thread_cache_free_bytes",
};

static int (*get_property)(const char *name, size_t *value);
static void (*release)(void);
static size_t bytes_of_thread, largest = SIZE_MAX;
static pthread_barrier_t done;

/* Size of pair i of blocks. Most blocks are small, and most bytes are in large ones. */
static size_t size_of(uint64_t i)
{
	static const size_t sizes[] = { 16,  24,   40,	 64,   100,   200,   350,    500,
					900, 1500, 3000, 7000, 20000, 70000, 300000, 2000000 };
	size_t size = sizes[i * 2654435761u % 4294967291u % 16];

	return size < largest ? size : largest;
}

/* Allocates blocks in a list, and frees every second one. */
static void allocate(void)
{
	void **list = NULL, **freed = NULL, **p;
	size_t sum = 0;

	for (uint64_t i = 0; sum < bytes_of_thread; i++) {
		size_t size = size_of(i / 2); /* one stays, one is freed */

		p = malloc(size);
		if (!p)
			exit(1);
		memset(p, 1, size);
		*p = i % 2 ? freed : list;
		*(i % 2 ? &freed : &list) = p;
		sum += size;
	}
	while (freed) {
		p = *freed;
		free(freed);
		freed = p;
	}
}

static void *run(void *ctx)
{
	(void)ctx;
	allocate();
	pthread_barrier_wait(&done);
	pthread_barrier_wait(&done); /* never */
	return NULL;
}

static void print_figures(void)
{
	static unsigned n;
	size_t values[sizeof(properties) / sizeof(*properties)];

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		if (!get_property(properties[i], &values[i]))
			exit(1);
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		printf("%s %zu\n", properties[i], values[i]);
	printf("ready %u\n", ++n);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static char out[4096];
	int threads = argc > 2 ? atoi(argv[2]) : 1;
	char line[16];
	pthread_t t;

	setvbuf(stdout, out, _IOFBF, sizeof(out));
	setvbuf(stdin, NULL, _IONBF, 0);
	*(void **)&get_property = dlsym(RTLD_DEFAULT, "MallocExtension_GetNumericProperty");
	*(void **)&release = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory");
	if (!get_property || !release)
		return 77;
	if (argc > 3)
		largest = (size_t)atol(argv[3]);
	bytes_of_thread = ((size_t)atol(argv[1]) << 20) / (size_t)threads;
	pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&t, NULL, run, NULL))
			return 1;
	pthread_barrier_wait(&done);
	print_figures();
	while (fgets(line, sizeof(line), stdin)) {
		release();
		print_figures();
	}
	return 0;
}
