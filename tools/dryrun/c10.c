// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * PyTorch's allocator reports every block it allocates and frees to this function of libc10. The
 * dry run replaces it, marks the block's bytes as unknown, so that no stale value is read as a
 * result, and calls the original, which observers probe.
 */
#include "core.h"

#include <dlfcn.h>

struct c10_device { /* c10::Device, passed in one register */
	int8_t type, index;
};

#define C10_CUDA 1
#define REPORT _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

typedef void report_t(void *ptr, int64_t size, size_t allocated, size_t reserved,
		      struct c10_device device);

static report_t *find_real(void)
{
	static report_t *known;
	report_t *real = __atomic_load_n(&known, __ATOMIC_RELAXED);
	void *libc10;

	if (real)
		return real;
	/* Not RTLD_NEXT: it does not search libraries loaded with RTLD_LOCAL, as Python's are. */
	libc10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
	if (!libc10)
		return NULL;
	real = (report_t *)(uintptr_t)dlsym(libc10, TEXT(REPORT));
	dlclose(libc10);
	__atomic_store_n(&known, real, __ATOMIC_RELAXED);
	return real;
}

#define BLOCKS 4096u /* slots of a hash table, each with its newest block */

static struct {
	uintptr_t at;
	uint64_t size;
} blocks[BLOCKS];

static void note(uintptr_t at, uint64_t size)
{
	unsigned int place = (unsigned int)(at >> 9) % BLOCKS;

	__atomic_store_n(&blocks[place].at, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&blocks[place].size, size, __ATOMIC_RELEASE);
	__atomic_store_n(&blocks[place].at, at, __ATOMIC_RELEASE);
}

uint64_t dryrun__block_size(const void *ptr)
{
	uintptr_t at = (uintptr_t)ptr;
	unsigned int place = (unsigned int)(at >> 9) % BLOCKS;
	uint64_t size = __atomic_load_n(&blocks[place].size, __ATOMIC_ACQUIRE);

	return __atomic_load_n(&blocks[place].at, __ATOMIC_ACQUIRE) == at ? size : 0;
}

API(void, REPORT, void *ptr, int64_t size, size_t allocated, size_t reserved,
    struct c10_device device)
{
	report_t *real = find_real();

	if (size > 0 && device.type == C10_CUDA) {
		contents__clear((uintptr_t)ptr, (uint64_t)size);
		note((uintptr_t)ptr, (uint64_t)size);
	}
	__atomic_fetch_add(&memtrace_dryrun_usage.reports, 1, __ATOMIC_RELAXED);
	if (real)
		real(ptr, size, allocated, reserved, device);
	else
		dryrun__unmodelled(
			"c10::reportMemoryUsageToProfiler of a library that is not libc10.so");
}
