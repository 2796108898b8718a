// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The calls into libc10_cuda. This file is C++ because they may throw. The object is c10's
 * CUDAAllocator. Its functions are virtual, and their indexes differ by version.
 */
#include "allocator.h"

#include <dlfcn.h>
#include <exception>
#include <stdio.h>
#include <string.h>

struct allocator_totals allocator_totals;

static struct allocator_slots slots;

#define EXPORT extern "C" __attribute__((visibility("default")))

/* c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device), which replaces
 * libc10's for libc10_cuda. */
EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t size,
								  size_t allocated, size_t reserved,
								  uint16_t device);
EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t size,
								  size_t allocated, size_t reserved,
								  uint16_t)
{
	allocator_totals.allocated = allocated;
	allocator_totals.reserved = reserved;
	allocator_totals.size = size < 0 ? 0 - (uint64_t)size : (uint64_t)size;
}

/* c10::reportOutOfMemoryToProfiler(int64_t, size_t, size_t, c10::Device) */
EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t size, size_t allocated,
								size_t reserved, uint16_t device);
EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t size, size_t allocated,
								size_t reserved, uint16_t)
{
	allocator_totals.did_not_fit = size < 0 ? 0 : (uint64_t)size;
	allocator_totals.allocated = allocated;
	allocator_totals.reserved = reserved;
	allocator_totals.ooms++;
}

static void keep(struct allocator *a, const char *what)
{
	snprintf(a->why, sizeof(a->why), "%s", what ? what : "");
}

/* Calls f and keeps the message of an exception. False: f threw. */
template <typename F> static bool guarded(struct allocator *a, F f)
{
	a->why[0] = '\0';
	try {
		f();
		return true;
	} catch (const std::exception &e) {
		keep(a, e.what());
	} catch (...) {
		keep(a, "an exception of a kind that is not known");
	}
	return false;
}

bool allocator__open(struct allocator *a, const char *lib, const struct allocator_slots *s)
{
	void *handle = dlopen(lib, RTLD_NOW | RTLD_LOCAL), **holder, *cache;

	memset(a, 0, sizeof(*a));
	slots = *s;
	if (!handle) {
		keep(a, dlerror());
		return false;
	}
	/* std::atomic<CUDAAllocator*> c10::cuda::CUDACachingAllocator::allocator */
	holder = (void **)dlsym(handle, "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
	a->object = holder ? __atomic_load_n(holder, __ATOMIC_ACQUIRE) : NULL;
	if (!a->object) {
		keep(a, "it has no allocator");
		return false;
	}
	a->table = *(void ***)a->object;
	/* c10::cuda::detail::init_p2p_access_cache(int64_t): some versions need it to map
	 * expandable segments. Otherwise libtorch_cuda calls it. */
	cache = dlsym(handle, "_ZN3c104cuda6detail21init_p2p_access_cacheEl");
	return guarded(a, [a, cache] {
		if (cache)
			((void (*)(int64_t))cache)(1);
		((void (*)(void *, int))a->table[slots.init])(a->object, 1);
	});
}

enum allocator_outcome allocator__alloc(struct allocator *a, size_t size, void *stream, void **ret)
{
	uint64_t ooms = allocator_totals.ooms;

	if (guarded(a, [a, size, stream, ret] {
		    *ret = ((void *(*)(void *, size_t, void *))a->table[slots.raw_alloc])(
			    a->object, size, stream);
	    }))
		return ALLOCATOR_OK;
	return allocator_totals.ooms > ooms ? ALLOCATOR_OOM : ALLOCATOR_FAILED;
}

bool allocator__free(struct allocator *a, void *ptr)
{
	return guarded(a, [a, ptr] {
		((void (*)(void *, void *))a->table[slots.raw_delete])(a->object, ptr);
	});
}

/* From 2.7 on the function takes a pool's id as two numbers; 0, 0: all pools. Older ones ignore
 * them. */
bool allocator__empty(struct allocator *a)
{
	return guarded(a, [a] {
		((void (*)(void *, uint64_t, uint64_t))a->table[slots.empty_cache])(a->object, 0,
										    0);
	});
}

bool allocator__fraction(struct allocator *a, double fraction)
{
	return guarded(a, [a, fraction] {
		((void (*)(void *, double, int))a->table[slots.set_fraction])(a->object, fraction,
									      0);
	});
}
