// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "pool.h"
#include "host.h"

#include <stdlib.h>

#define CHUNK (32ull << 20)

enum { /* cudaMemPoolAttr, CUmemPool_attribute */
       REUSE_FIRST = 1,
       REUSE_LAST = 3,
       RELEASE_THRESHOLD = 4,
       RESERVED_CURRENT = 5,
       RESERVED_HIGH = 6,
       USED_CURRENT = 7,
       USED_HIGH = 8,
};

struct pool {
	struct pool *next;
	int device;
	enum dryrun_place place;
	int reuse[REUSE_LAST + 1];
	uint64_t threshold, reserved_high, used_high;
	struct space space;
};

static struct pool *pools; /* under the lock */

bool pool__valid(const struct pool *pool)
{
	const struct pool *p;

	dryrun__lock();
	for (p = pools; p && p != pool; p = p->next)
		;
	dryrun__unlock();
	return p != NULL;
}

/* Returns empty chunks, but keeps `keep` bytes reserved. True: any was returned. Lock held. */
static bool trim(struct pool *p, uint64_t keep)
{
	struct space_range chunk;
	bool any = false;

	while (space__shrink(&p->space, keep, &chunk)) {
		core__give(p->device, chunk.addr);
		any = true;
	}
	return any;
}

/* Returns the empty chunks of the device's pools. True: any was returned. Lock held. */
static bool trim_all(int device)
{
	bool any = false;

	for (struct pool *p = pools; p; p = p->next)
		if (p->device == device)
			any |= trim(p, 0);
	return any;
}

/* Creates a pool. NULL: no host memory. Lock held. */
static struct pool *make(int device)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->device = device;
	p->place = PLACE_DEVICE;
	p->threshold = POOL_DEFAULT_THRESHOLD;
	p->space.align = 512;
	for (int i = REUSE_FIRST; i <= REUSE_LAST; i++)
		p->reuse[i] = 1;
	p->next = pools;
	pools = p;
	core__device(device)->trim = trim_all;
	return p;
}

#define TYPE_MANAGED 2
enum { ON_DEVICE = 1, ON_HOST_NUMA_CURRENT = 4 };

int pool__create(int type, int location, int id, struct pool **pool)
{
	bool host = location > ON_DEVICE && location <= ON_HOST_NUMA_CURRENT;
	int device = location == ON_DEVICE ? id : dryrun__device(), err;

	if (!host && location != ON_DEVICE && type != TYPE_MANAGED)
		return CUDA_INVALID_VALUE;
	err = dryrun__use(device);
	if (err)
		return err;
	dryrun__lock();
	*pool = make(device);
	if (*pool)
		(*pool)->place = host			? PLACE_PINNED
				 : type == TYPE_MANAGED ? PLACE_MANAGED
							: PLACE_DEVICE;
	dryrun__unlock();
	return *pool ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

/* Returns a pool's chunks to the device and frees the pool. Lock held. */
static void discard(struct pool *p)
{
	struct device *d = core__device(p->device);

	for (struct pool **at = &pools; *at; at = &(*at)->next) {
		if (*at != p)
			continue;
		*at = p->next;
		break;
	}
	if (d->pool == p)
		d->pool = d->default_pool;
	for (size_t i = 0; i < p->space.extents.n; i++)
		core__give(p->device, p->space.extents.at[i].addr);
	space__destroy(&p->space);
	free(p);
}

int pool__destroy(struct pool *p)
{
	int err = CUDA_INVALID_VALUE;

	if (!pool__valid(p))
		return err;
	dryrun__lock();
	if (core__device(p->device)->default_pool != p) {
		discard(p);
		err = CUDA_OK;
	}
	dryrun__unlock();
	return err;
}

struct pool *pool__default(int device)
{
	struct device *d;
	struct pool *p;

	if (dryrun__use(device))
		return NULL;
	d = core__device(device);
	dryrun__lock();
	if (!d->default_pool) {
		d->default_pool = make(device);
		if (!d->pool)
			d->pool = d->default_pool;
	}
	p = d->default_pool;
	dryrun__unlock();
	return p;
}

struct pool *pool__current(int device)
{
	struct pool *p = pool__default(device);

	if (p) {
		dryrun__lock();
		p = core__device(device)->pool;
		dryrun__unlock();
	}
	return p;
}

int pool__set_current(int device, struct pool *p)
{
	if (!pool__valid(p) || !pool__default(device) || p->device != device)
		return CUDA_INVALID_VALUE;
	dryrun__lock();
	core__device(device)->pool = p;
	dryrun__unlock();
	return CUDA_OK;
}

int pool__trim(struct pool *p, uint64_t keep)
{
	if (!pool__valid(p))
		return CUDA_INVALID_VALUE;
	dryrun__lock();
	trim(p, keep);
	dryrun__unlock();
	return CUDA_OK;
}

void pool__at_sync(int device)
{
	if (!__atomic_load_n(&pools, __ATOMIC_RELAXED))
		return;
	dryrun__lock();
	for (struct pool *p = pools; p; p = p->next)
		if (p->device == device && p->space.extent_bytes > p->threshold)
			trim(p, p->threshold);
	dryrun__unlock();
}

bool pool__chunk(int device, uint64_t addr)
{
	for (struct pool *p = pools; p; p = p->next) {
		size_t at = space_ranges__after(&p->space.extents, addr);

		if (p->device == device && at < p->space.extents.n &&
		    p->space.extents.at[at].addr <= addr)
			return true;
	}
	return false;
}

/* Takes a chunk for an allocation of `size` bytes from the device. Lock held. */
static int grow(struct pool *p, uint64_t size)
{
	uint64_t addr, chunk = (size + CHUNK - 1) & ~(CHUNK - 1);
	int err = core__take(p->device, chunk, &addr);

	if (err && chunk != size) {
		/* Not enough memory left for a whole chunk: take only what is needed. */
		chunk = (size + DRYRUN_GRANULE - 1) & ~(uint64_t)(DRYRUN_GRANULE - 1);
		err = core__take(p->device, chunk, &addr);
	}
	if (err)
		return err;
	if (space__extend(&p->space, addr, chunk)) {
		core__give(p->device, addr);
		return CUDA_OUT_OF_MEMORY;
	}
	return CUDA_OK;
}

int pool__alloc(struct pool *p, uint64_t size, void **ptr)
{
	uint64_t addr = 0;
	int err = CUDA_OK;

	if (!pool__valid(p))
		return CUDA_INVALID_VALUE;
	if (!size) {
		*ptr = NULL;
		return CUDA_OK;
	}
	if (p->place != PLACE_DEVICE)
		return host__alloc_pooled(size, p->place == PLACE_MANAGED, ptr);
	if (size > dryrun__config()->vram)
		return CUDA_OUT_OF_MEMORY;
	dryrun__lock();
	if (space__alloc(&p->space, size, &addr)) {
		err = grow(p, size);
		if (!err && space__alloc(&p->space, size, &addr))
			err = CUDA_OUT_OF_MEMORY;
	}
	if (p->space.extent_bytes > p->reserved_high)
		p->reserved_high = p->space.extent_bytes;
	if (p->space.used_bytes > p->used_high)
		p->used_high = p->space.used_bytes;
	dryrun__unlock();
	if (!err)
		*ptr = (void *)(uintptr_t)addr;
	return err;
}

bool pool__find(int device, uint64_t addr, struct space_range *range)
{
	for (struct pool *p = pools; p; p = p->next)
		if (p->device == device && space__find(&p->space, addr, range))
			return true;
	return false;
}

int pool__free(uint64_t addr)
{
	for (struct pool *p = pools; p; p = p->next) {
		uint64_t size = space__free(&p->space, addr);

		if (size) {
			contents__clear(addr, size);
			return CUDA_OK;
		}
	}
	return CUDA_INVALID_VALUE;
}

int pool__get(struct pool *p, int attribute, void *value)
{
	uint64_t figure;

	if (!value || !pool__valid(p))
		return CUDA_INVALID_VALUE;
	if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST) {
		*(int *)value = p->reuse[attribute];
		return CUDA_OK;
	}
	dryrun__lock();
	switch (attribute) {
	case RELEASE_THRESHOLD:
		figure = p->threshold;
		break;
	case RESERVED_CURRENT:
		figure = p->space.extent_bytes;
		break;
	case RESERVED_HIGH:
		figure = p->reserved_high;
		break;
	case USED_CURRENT:
		figure = p->space.used_bytes;
		break;
	case USED_HIGH:
		figure = p->used_high;
		break;
	default:
		dryrun__unlock();
		dryrun__unmodelled("an attribute of a memory pool");
		return CUDA_NOT_SUPPORTED;
	}
	dryrun__unlock();
	*(uint64_t *)value = figure;
	return CUDA_OK;
}

int pool__set(struct pool *p, int attribute, const void *value)
{
	int err = CUDA_OK;

	if (!value || !pool__valid(p))
		return CUDA_INVALID_VALUE;
	if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST) {
		p->reuse[attribute] = *(const int *)value != 0;
		return CUDA_OK;
	}
	dryrun__lock();
	if (attribute == RELEASE_THRESHOLD)
		p->threshold = *(const uint64_t *)value;
	else if (*(const uint64_t *)value) /* peak values can only be reset */
		err = CUDA_INVALID_VALUE;
	else if (attribute == RESERVED_HIGH)
		p->reserved_high = p->space.extent_bytes;
	else if (attribute == USED_HIGH)
		p->used_high = p->space.used_bytes;
	else
		err = CUDA_INVALID_VALUE;
	dryrun__unlock();
	return err;
}
