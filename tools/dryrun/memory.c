// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Device memory as from cudaMalloc: sizes of a granule (2 MiB) or more in granules, smaller ones in
 * pieces of 512 bytes of shared granules.
 */
#include "core.h"
#include "depends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL (1u << 20)     /* smaller allocations share granules */
#define BIG_WRITE (4u << 20) /* larger ranges are zeroed by dropping pages if possible */

static int take_small(int device, uint64_t size, uint64_t *addr)
{
	struct device *d = core__device(device);
	uint64_t granule;
	int err;

	if (!space__alloc(&d->small, size, addr))
		return CUDA_OK;
	err = core__take(device, DRYRUN_GRANULE, &granule);
	if (err)
		return err;
	if (space__extend(&d->small, granule, DRYRUN_GRANULE)) {
		core__give(device, granule);
		return CUDA_OUT_OF_MEMORY;
	}
	return space__alloc(&d->small, size, addr) ? CUDA_OUT_OF_MEMORY : CUDA_OK;
}

int dryrun__alloc(int device, uint64_t size, void **ptr)
{
	uint64_t addr = 0;
	int err = dryrun__use(device);

	if (err)
		return err;
	if (!size) {
		*ptr = NULL;
		return CUDA_OK;
	}
	if (size > dryrun__config()->vram)
		return CUDA_OUT_OF_MEMORY;
	dryrun__lock();
	if (size < SMALL)
		err = take_small(device, size, &addr);
	else
		err = core__take(device,
				 (size + DRYRUN_GRANULE - 1) & ~(uint64_t)(DRYRUN_GRANULE - 1),
				 &addr);
	dryrun__unlock();
	if (!err)
		*ptr = (void *)(uintptr_t)addr;
	return err;
}

int dryrun__free(void *ptr)
{
	uint64_t addr = (uintptr_t)ptr, size;
	struct space_range range;
	int device, err = CUDA_OK;
	struct device *d;

	if (!ptr)
		return CUDA_OK;
	dryrun__lock();
	device = core__device_of(addr);
	if (device < 0) {
		dryrun__unlock();
		return CUDA_INVALID_VALUE;
	}
	d = core__device(device);
	size = space__free(&d->small, addr);
	if (size) {
		contents__clear(addr, size);
		while (space__shrink(&d->small, 0, &range))
			core__give(device, range.addr);
	} else if (pool__free(addr)) {
		/* Shared granules and chunks of pools are not allocations. */
		if (space__find(&d->arena, addr, &range) && range.addr == addr &&
		    !pool__find(device, addr, &range) &&
		    (d->small.extents.n == 0 ||
		     space_ranges__after(&d->small.extents, addr) == d->small.extents.n ||
		     d->small.extents.at[space_ranges__after(&d->small.extents, addr)].addr !=
			     addr))
			core__give(device, addr);
		else
			err = CUDA_INVALID_VALUE;
	}
	dryrun__unlock();
	return err;
}

void dryrun__memory(int device, uint64_t *available, uint64_t *total)
{
	uint64_t taken = dryrun__config()->held[device] +
			 __atomic_load_n(&memtrace_dryrun_usage.device[device].used,
					 __ATOMIC_RELAXED);

	*total = dryrun__config()->vram;
	*available = taken < *total ? *total - taken : 0;
}

/* Sets base and size of the allocation at an address of a device, if any. Lock held. */
static void find_allocation(int device, uint64_t addr, struct dryrun_range *range)
{
	const struct device *d = core__device(device);
	struct space_range found;

	if (space__find(&d->small, addr, &found) || pool__find(device, addr, &found) ||
	    space__find(&d->arena, addr, &found)) {
		range->base = found.addr;
		range->size = found.size;
	}
}

void dryrun__where(const void *ptr, struct dryrun_range *range)
{
	uint64_t addr = (uintptr_t)ptr;
	int device;

	*range = (struct dryrun_range){ .device = -1 };
	dryrun__lock();
	device = core__device_of(addr);
	if (device >= 0) {
		range->place = PLACE_DEVICE;
		range->device = device;
		find_allocation(device, addr, range);
	} else if (!vmm__find(addr, range)) {
		host__find(addr, range);
	}
	dryrun__unlock();
}

/* True if [at, at + size) is one private anonymous mapping: its dropped pages read as zeros. */
static bool is_anonymous(uint64_t at, uint64_t size)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false, whole = true;

	if (!maps)
		return false;
	while (fgets(line, sizeof(line), maps)) {
		unsigned long long from, to, inode;
		bool begins = whole;
		char mode[5];

		whole = strchr(line, '\n') != NULL;
		if (!begins ||
		    sscanf(line, "%llx-%llx %4s %*x %*x:%*x %llu", &from, &to, mode, &inode) != 4)
			continue;
		if (from <= at && at < to) {
			found = to - at >= size && !inode && mode[1] == 'w' && mode[3] == 'p';
			break;
		}
	}
	fclose(maps);
	return found;
}

/*
 * Zeroes host memory. Programs copy whole models (checkpoints); dropped pages read as zeros and use
 * no memory, so large ranges are dropped instead of written.
 */
static void write_zeros(void *to, size_t size)
{
	uint64_t at = (uintptr_t)to, first = (at + DRYRUN_PAGE - 1) & ~(uint64_t)(DRYRUN_PAGE - 1);
	uint64_t last = (at + size) & ~(uint64_t)(DRYRUN_PAGE - 1);

	if (size >= BIG_WRITE && is_anonymous(first, last - first) &&
	    !madvise((void *)(uintptr_t)first, last - first, MADV_DONTNEED)) {
		memset(to, 0, first - at);
		memset((void *)(uintptr_t)last, 0, at + size - last);
		return;
	}
	memset(to, 0, size);
}

/* Each piece is known or unknown as a whole: a kernel's result makes all of a tensor unknown. */
static void copy_within(uint64_t to, uint64_t from, size_t size)
{
	unsigned char piece[DRYRUN_PAGE];

	for (size_t done = 0, n; done < size; done += n) {
		enum contents state;

		n = size - done < sizeof(piece) ? size - done : sizeof(piece);
		state = contents__state(from + done, n);
		if (state == CONTENTS_NONE) {
			contents__clear(to + done, n);
			continue;
		}
		contents__read(from + done, piece, n);
		contents__write(to + done, piece, n);
		if (state != CONTENTS_KNOWN)
			contents__doubt(to + done, n);
	}
}

void dryrun__copy(void *to, const void *from, size_t size)
{
	bool small = size <= DRYRUN_SMALL_COPY, to_device, from_device;

	if (!size || to == from)
		return;
	to_device = dryrun__is_device(to);
	from_device = dryrun__is_device(from);
	if (to_device && !small)
		contents__clear((uintptr_t)to, size);
	else if (to_device && from_device)
		copy_within((uintptr_t)to, (uintptr_t)from, size);
	else if (to_device)
		contents__write((uintptr_t)to, from, size);
	else if (from_device && !small) {
		write_zeros(to, size);
		contents__read((uintptr_t)from, to, size);
	} else if (from_device)
		contents__read((uintptr_t)from, to, size);
	else
		memmove(to, from, size);
}

void dryrun__copy_for(const void *caller, void *to, const void *from, size_t size)
{
	dryrun__copy(to, from, size);
	if (size && dryrun__is_device(from) && !dryrun__is_device(to) &&
	    contents__state((uintptr_t)from, size) != CONTENTS_KNOWN)
		depends__read(to, size, caller);
}

bool dryrun__known(const void *ptr, size_t size)
{
	return !dryrun__is_device(ptr) || contents__state((uintptr_t)ptr, size) == CONTENTS_KNOWN;
}

void dryrun__doubt(void *ptr, size_t size)
{
	if (dryrun__is_device(ptr))
		contents__doubt((uintptr_t)ptr, size);
}

void dryrun__fill(void *to, int byte, size_t size)
{
	if (!dryrun__is_device(to))
		memset(to, byte, size);
	else if (size <= DRYRUN_SMALL_COPY && (byte & 0xff))
		contents__fill((uintptr_t)to, byte, size);
	else
		contents__clear((uintptr_t)to, size);
}

void dryrun__reset(int device)
{
	struct device *d;

	if (!dryrun__in_use(device))
		return;
	d = core__device(device);
	dryrun__lock();
	/* As in CUDA, memory of pools and of cuMemCreate survives the context. */
	for (size_t i = d->arena.used.n; i-- > 0;)
		if (!pool__chunk(device, d->arena.used.at[i].addr))
			core__give(device, d->arena.used.at[i].addr);
	space__destroy(&d->small);
	d->small.align = 512;
	host__reset(device);
	d->peers = 0;
	__atomic_store_n(&d->up, false, __ATOMIC_RELEASE);
	core__publish(device);
	dryrun__unlock();
}
