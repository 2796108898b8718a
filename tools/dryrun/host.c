// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Host memory known to CUDA: pinned, registered, managed. Pages are allocated at first access. */
#include "host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/array.h"

enum kind { HOST_ALLOCATED, HOST_REGISTERED, HOST_MANAGED, HOST_POOLED, HOST_POOLED_MANAGED };

struct range {
	uint64_t addr, size;
	unsigned int flags;
	enum kind kind;
	int device;
};

static struct range *ranges; /* sorted by address, disjoint; under the lock */
static size_t n, room;

/* Index of the first range that ends above addr. */
static size_t after(uint64_t addr)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (ranges[mid].addr + ranges[mid].size <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* 0; -EEXIST: overlaps a known range; -ENOMEM. Lock held. */
static int add(const struct range *r)
{
	size_t at = after(r->addr);

	if (at < n && ranges[at].addr < r->addr + r->size)
		return -EEXIST;
	if (array__grow(&ranges, &room, n + 1, sizeof(*ranges)))
		return -ENOMEM;
	memmove(ranges + at + 1, ranges + at, (n - at) * sizeof(*ranges));
	ranges[at] = *r;
	n++;
	return 0;
}

/* Removes the range that starts at ptr if it is of one of the two kinds. */
static bool take_out(const void *ptr, enum kind one, enum kind other, struct range *r)
{
	bool found = false;
	size_t at;

	dryrun__lock();
	at = after((uintptr_t)ptr);
	if (at < n && ranges[at].addr == (uintptr_t)ptr &&
	    (ranges[at].kind == one || ranges[at].kind == other)) {
		*r = ranges[at];
		n--;
		memmove(ranges + at, ranges + at + 1, (n - at) * sizeof(*ranges));
		found = true;
	}
	dryrun__unlock();
	return found;
}

static int map(uint64_t size, enum kind kind, unsigned int flags, void **ptr)
{
	struct range r = { .kind = kind, .flags = flags, .device = dryrun__device() };
	void *at;
	int err = dryrun__use(r.device);

	if (err)
		return err;
	if (!size) {
		*ptr = NULL;
		return CUDA_OK;
	}
	if (size > UINT64_MAX - DRYRUN_PAGE)
		return CUDA_OUT_OF_MEMORY;
	r.size = (size + DRYRUN_PAGE - 1) & ~(uint64_t)(DRYRUN_PAGE - 1);
	at = mmap(NULL, r.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	if (at == MAP_FAILED)
		return CUDA_OUT_OF_MEMORY;
	r.addr = (uintptr_t)at;
	dryrun__lock();
	err = add(&r);
	dryrun__unlock();
	if (err) {
		munmap(at, r.size);
		return CUDA_OUT_OF_MEMORY;
	}
	*ptr = at;
	return CUDA_OK;
}

int host__alloc(uint64_t size, unsigned int flags, void **ptr)
{
	return map(size, HOST_ALLOCATED, flags, ptr);
}

int host__alloc_managed(uint64_t size, void **ptr)
{
	return map(size, HOST_MANAGED, 0, ptr);
}

int host__alloc_pooled(uint64_t size, bool managed, void **ptr)
{
	return map(size, managed ? HOST_POOLED_MANAGED : HOST_POOLED, 0, ptr);
}

int host__free(void *ptr)
{
	struct range r;

	if (!ptr)
		return CUDA_OK;
	if (!take_out(ptr, HOST_ALLOCATED, HOST_ALLOCATED, &r))
		return CUDA_INVALID_VALUE;
	munmap(ptr, r.size);
	return CUDA_OK;
}

int host__free_managed(void *ptr)
{
	struct range r;

	if (!take_out(ptr, HOST_MANAGED, HOST_MANAGED, &r))
		return CUDA_INVALID_VALUE;
	munmap(ptr, r.size);
	return CUDA_OK;
}

int host__free_pooled(void *ptr)
{
	struct range r;

	if (!take_out(ptr, HOST_POOLED, HOST_POOLED_MANAGED, &r))
		return CUDA_INVALID_VALUE;
	munmap(ptr, r.size);
	return CUDA_OK;
}

void host__reset(int device)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		if (ranges[i].device == device &&
		    (ranges[i].kind == HOST_ALLOCATED || ranges[i].kind == HOST_MANAGED))
			munmap((void *)(uintptr_t)ranges[i].addr, ranges[i].size);
		else
			ranges[kept++] = ranges[i];
	}
	n = kept;
}

int host__register(void *ptr, uint64_t size, unsigned int flags)
{
	struct range r = { .addr = (uintptr_t)ptr,
			   .size = size,
			   .flags = flags,
			   .kind = HOST_REGISTERED,
			   .device = dryrun__device() };
	int err = dryrun__use(r.device);

	if (err)
		return err;
	if (!ptr || !size || r.addr + size < r.addr || dryrun__is_device(ptr))
		return CUDA_INVALID_VALUE;
	dryrun__lock();
	err = add(&r);
	dryrun__unlock();
	return !err ? CUDA_OK : err == -EEXIST ? CUDA_HOST_ALREADY_REGISTERED : CUDA_OUT_OF_MEMORY;
}

int host__unregister(void *ptr)
{
	struct range r;

	return take_out(ptr, HOST_REGISTERED, HOST_REGISTERED, &r) ? CUDA_OK
								   : CUDA_HOST_NOT_REGISTERED;
}

bool host__find(uint64_t addr, struct dryrun_range *range)
{
	size_t at = after(addr);

	if (at == n || ranges[at].addr > addr)
		return false;
	range->place = ranges[at].kind == HOST_MANAGED || ranges[at].kind == HOST_POOLED_MANAGED
			       ? PLACE_MANAGED
			       : PLACE_PINNED;
	range->device = ranges[at].device;
	range->base = ranges[at].addr;
	range->size = ranges[at].size;
	range->flags = ranges[at].flags;
	return true;
}
