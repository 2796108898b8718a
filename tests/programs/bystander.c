/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A process that no capture selects: bystander LIBRARY. It calls the library's work() all the time,
 * and checks what that returns, how long it takes, and every byte of code that it has from files.
 * For each line of standard input it prints what it has seen since the last one.
 */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 200    /* calls between two looks at the clock */
#define WINDOW 2000000 /* ns of CPU time: the rate is of so long */
#define PAUSE 20000    /* us between windows */
#define LOOK_EVERY 10  /* ms between two comparisons of the code */
#define WINDOWS 4096
#define FEW 20 /* one in so many windows may be slow: the machine has interrupts, too */
#define RIGHT 0x11223344u

struct piece {
	const unsigned char *at;
	unsigned char *was;
	size_t size;
};

static struct piece pieces[256];
static size_t n_pieces;
static uint64_t calls, wrong;
static uint64_t rates[WINDOWS]; /* calls in a second of CPU time, of the last windows */
static size_t n_rates;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for the rates */
static unsigned (*work)(void);

static uint64_t cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *call(void *arg)
{
	for (;;) {
		uint64_t begin = cpu_time(), took = 0, n = 0, now;

		while (took < WINDOW) {
			for (int i = 0; i < AT_ONCE; i++)
				if (work() != RIGHT)
					__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
			n += AT_ONCE;
			took = cpu_time() - begin;
		}
		now = (uint64_t)((double)n * 1e9 / (double)took);
		__atomic_add_fetch(&calls, n, __ATOMIC_RELAXED);
		pthread_mutex_lock(&lock);
		rates[n_rates++ % WINDOWS] = now;
		pthread_mutex_unlock(&lock);
		usleep(PAUSE);
	}
	return arg;
}

static void keep_code(void)
{
	unsigned long start, end;
	char line[4096], mode[8];
	unsigned long inode;
	FILE *f = fopen("/proc/self/maps", "r");

	while (f && fgets(line, sizeof(line), f) && n_pieces < sizeof(pieces) / sizeof(*pieces)) {
		struct piece *p = &pieces[n_pieces];

		if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, mode, &inode) != 4 ||
		    !inode || strcmp(mode, "r-xp") != 0)
			continue;
		*p = (struct piece){ (const unsigned char *)start, malloc(end - start),
				     end - start };
		if (!p->was)
			abort();
		memcpy(p->was, p->at, p->size);
		n_pieces++;
	}
	if (f)
		fclose(f);
}

static size_t changed(void)
{
	size_t n = 0;

	for (struct piece *p = pieces; p < pieces + n_pieces; p++)
		if (memcmp(p->at, p->was, p->size) != 0)
			for (size_t i = 0; i < p->size; i++)
				n += p->at[i] != p->was[i];
	return n;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The rate that all but a few windows since the last call had. */
static uint64_t low_rate(void)
{
	uint64_t ret;
	size_t n;

	pthread_mutex_lock(&lock);
	n = n_rates < WINDOWS ? n_rates : WINDOWS;
	qsort(rates, n, sizeof(*rates), by_size);
	ret = n ? rates[n / FEW] : 0;
	n_rates = 0;
	pthread_mutex_unlock(&lock);
	return ret;
}

int main(int argc, char **argv)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	size_t most = 0, now;
	pthread_t thread;
	char line[64];

	if (library)
		work = (unsigned (*)(void))dlsym(library, "work");
	if (!work || pthread_create(&thread, NULL, call, NULL))
		return 1;
	while (!__atomic_load_n(&calls, __ATOMIC_RELAXED))
		usleep(1000);
	keep_code();
	puts("ready");
	fflush(stdout);
	for (;;) {
		now = changed();
		most = now > most ? now : most;
		if (poll(&in, 1, LOOK_EVERY) <= 0)
			continue;
		if (read(0, line, sizeof(line)) <= 0)
			return 0;
		printf("{\"calls\": %llu, \"wrong\": %llu, \"changed\": %zu, \"most_changed\": "
		       "%zu, \"rate\": %llu}\n",
		       (unsigned long long)__atomic_load_n(&calls, __ATOMIC_RELAXED),
		       (unsigned long long)__atomic_exchange_n(&wrong, 0, __ATOMIC_RELAXED), now,
		       most, (unsigned long long)low_rate());
		fflush(stdout);
		most = 0;
	}
}
