/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "dryrun/dryrun.h"

#define MAX_ADDR (1ULL << 47) /* upper limit of addresses in user space */

/* An allocation. Its address is only compared and never dereferenced. */
struct place {
	uint64_t addr, size;
	void *real; /* the dry run's address */
};

struct places {
	struct place *v;
	size_t n, cap;
};

static struct places taken, wanted;
static uint64_t n_takes;

int cudaMalloc(void **ptr, size_t size);
int cudaFree(void *ptr);

static void *next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort(); /* the dry run is not preloaded */
	return f;
}

static int real_malloc(void **ptr, size_t size)
{
	static int (*call)(void **, size_t);

	if (!call)
		call = (int (*)(void **, size_t))next("cudaMalloc");
	return call(ptr, size);
}

static int real_free(void *ptr)
{
	static int (*call)(void *);

	if (!call)
		call = (int (*)(void *))next("cudaFree");
	return call(ptr);
}

static bool places__add(struct places *p, struct place place)
{
	if (array__grow(&p->v, &p->cap, p->n + 1, sizeof(*p->v)))
		return false;
	p->v[p->n++] = place;
	return true;
}

static void places__remove(struct places *p, size_t i)
{
	memmove(&p->v[i], &p->v[i + 1], (p->n - i - 1) * sizeof(*p->v));
	p->n--;
}

void device__place(uint64_t addr, uint64_t size)
{
	/* Drop old requests, which the allocator has not made until now. */
	if (wanted.n > 64)
		places__remove(&wanted, 0);
	if (addr && !(addr & 511) && addr < MAX_ADDR && size < MAX_ADDR)
		places__add(&wanted, (struct place){ .addr = addr, .size = size });
}

static bool is_free(uint64_t addr, uint64_t size)
{
	for (size_t i = taken.n; i-- > 0;)
		if (addr < taken.v[i].addr + taken.v[i].size && taken.v[i].addr < addr + size)
			return false;
	return true;
}

static uint64_t place_for(uint64_t size, void *real)
{
	uint64_t addr = (uint64_t)(uintptr_t)real;

	if (!is_free(addr, size))
		/* An allocation placed earlier uses this address; the dry run does not know that. */
		addr += MAX_ADDR;
	for (size_t i = 0; i < wanted.n; i++) {
		if (wanted.v[i].size != size)
			continue;
		if (is_free(wanted.v[i].addr, size))
			addr = wanted.v[i].addr;
		places__remove(&wanted, i);
		break;
	}
	return addr;
}

/* Replace the dry run's functions for libc10_cuda. */
EXPORT int cudaMalloc(void **ptr, size_t size)
{
	void *real = NULL;
	struct place p;
	int err = real_malloc(&real, size);

	if (err)
		return err;
	p = (struct place){ place_for(size, real), size, real };
	if (!places__add(&taken, p)) {
		real_free(real);
		return CUDA_OUT_OF_MEMORY;
	}
	n_takes++;
	*ptr = (void *)(uintptr_t)p.addr;
	return 0;
}

EXPORT int cudaFree(void *ptr)
{
	for (size_t i = taken.n; i-- > 0;) {
		if (taken.v[i].addr == (uint64_t)(uintptr_t)ptr) {
			void *real = taken.v[i].real;

			places__remove(&taken, i);
			return real_free(real);
		}
	}
	return real_free(ptr);
}

uint64_t device__segments(void)
{
	return taken.n;
}

uint64_t device__takes(void)
{
	return n_takes;
}

bool device__take(uint64_t size, void **ret)
{
	return real_malloc(ret, size) == 0;
}

void device__give(void *ptr)
{
	real_free(ptr);
}

bool device__stream(void **ret)
{
	return ((int (*)(void **, unsigned int))next("cudaStreamCreateWithFlags"))(ret, 1) == 0;
}

static const struct dryrun_usage *usage(void)
{
	static const struct dryrun_usage *u;

	if (!u)
		u = next("memtrace_dryrun_usage");
	return u;
}

uint64_t device__used(void)
{
	return usage()->device[0].used;
}

size_t device__fill(void **ptr)
{
	size_t n = 0;
	uint64_t left;

	for (uint64_t size = 1ULL << 42; size >= DRYRUN_GRANULE && n < DEVICE_PIECES;) {
		left = usage()->device[0].total - usage()->device[0].used;
		if (size <= left && device__take(size, &ptr[n]))
			n++;
		else
			size /= 2;
	}
	return n;
}

uint64_t device__refused(void)
{
	return usage()->device[0].refused;
}
