// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "vmm.h"

#include <stdlib.h>
#include <string.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"

struct memory { /* memory from cuMemCreate */
	uint64_t size;
	int device;
	unsigned int handles, mappings; /* references; both 0: the slot is free */
	unsigned int generation;	/* detects stale handles */
	unsigned int next_free;
	unsigned char props[VMM_PROPS_SIZE];
};

struct mapping {
	uint64_t addr, size;
	unsigned int memory;
};

#define NO_SLOT UINT32_MAX

/* Guarded by dryrun__lock(). */
static struct space_ranges reserved;
static struct memory *memories;
static unsigned int n_memories, first_free = NO_SLOT;
static struct mapping *mappings; /* sorted by address, disjoint */
static size_t n_mappings, mappings_room, memories_room;

int vmm__reserve(uint64_t size, uint64_t align, uint64_t *addr)
{
	uint64_t base;
	char *at;
	int err;

	if (!size || size % DRYRUN_GRANULE || (align & (align - 1)))
		return CUDA_INVALID_VALUE;
	if (align < DRYRUN_GRANULE)
		align = DRYRUN_GRANULE;
	if (size > 1ull << 46 || align > 1ull << 40)
		return CUDA_OUT_OF_MEMORY;
	at = mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		  0);
	if (at == MAP_FAILED)
		return CUDA_OUT_OF_MEMORY;
	base = ((uintptr_t)at + align - 1) & ~(align - 1);
	/* Unmap the excess on both sides, so that freeing needs only the range. */
	if (base > (uintptr_t)at)
		munmap(at, base - (uintptr_t)at);
	if ((uintptr_t)at + align > base)
		munmap((void *)(uintptr_t)(base + size), (uintptr_t)at + align - base);
	dryrun__lock();
	err = space_ranges__insert(&reserved, base, size);
	dryrun__unlock();
	if (err) {
		munmap((void *)(uintptr_t)base, size);
		return CUDA_OUT_OF_MEMORY;
	}
	*addr = base;
	return CUDA_OK;
}

/* Index of the first mapping that ends above addr. */
static size_t after(uint64_t addr)
{
	size_t low = 0, high = n_mappings;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (mappings[mid].addr + mappings[mid].size <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool any_mapped(uint64_t addr, uint64_t size)
{
	size_t at = after(addr);

	return at < n_mappings && mappings[at].addr < addr + size;
}

int vmm__unreserve(uint64_t addr, uint64_t size)
{
	int err = CUDA_INVALID_VALUE;
	size_t at;

	dryrun__lock();
	at = space_ranges__after(&reserved, addr);
	if (at < reserved.n && reserved.at[at].addr == addr && reserved.at[at].size == size &&
	    !any_mapped(addr, size)) {
		space_ranges__remove(&reserved, at);
		err = CUDA_OK;
	}
	dryrun__unlock();
	if (!err)
		munmap((void *)(uintptr_t)addr, size);
	return err;
}

/* A handle has slot + 1 and the slot's generation. It is never 0. */
static uint64_t handle_of(unsigned int slot)
{
	return (uint64_t)memories[slot].generation << 32 | (slot + 1);
}

static struct memory *find_memory(uint64_t handle)
{
	unsigned int slot = (uint32_t)handle - 1;

	if (slot >= n_memories || memories[slot].generation != handle >> 32 ||
	    !memories[slot].handles)
		return NULL;
	return &memories[slot];
}

static unsigned int new_slot(void)
{
	unsigned int slot = first_free;

	if (slot != NO_SLOT) {
		first_free = memories[slot].next_free;
		return slot;
	}
	if (n_memories == NO_SLOT ||
	    array__grow(&memories, &memories_room, n_memories + 1, sizeof(*memories)))
		return NO_SLOT;
	memories[n_memories].generation = 0;
	return n_memories++;
}

static void put_memory(unsigned int slot)
{
	struct memory *m = &memories[slot];

	if (m->handles || m->mappings)
		return;
	if (m->device >= 0)
		core__refund(m->device, m->size);
	m->generation++;
	m->next_free = first_free;
	first_free = slot;
}

int vmm__create(int device, uint64_t size, const void *props, uint64_t *handle)
{
	unsigned int slot;
	int err = CUDA_OK;

	if (!size || size % DRYRUN_GRANULE)
		return CUDA_INVALID_VALUE;
	if (device >= 0) {
		err = dryrun__use(device);
		if (err)
			return err;
	}
	dryrun__lock();
	if (device >= 0)
		err = core__charge(device, size);
	if (!err) {
		slot = new_slot();
		if (slot == NO_SLOT) {
			if (device >= 0)
				core__refund(device, size);
			err = CUDA_OUT_OF_MEMORY;
		} else {
			memories[slot] = (struct memory){ .size = size,
							  .device = device,
							  .handles = 1,
							  .generation = memories[slot].generation };
			memcpy(memories[slot].props, props, VMM_PROPS_SIZE);
			*handle = handle_of(slot);
		}
	}
	dryrun__unlock();
	return err;
}

/* Content of the file that an exported handle refers to. */
struct shared {
	uint64_t magic, size;
	unsigned char props[VMM_PROPS_SIZE];
};

#define SHARED_MAGIC 0x4d5456474d454d31ull

int vmm__export(uint64_t handle, int *fd)
{
	struct shared s = { .magic = SHARED_MAGIC };
	struct memory *m;

	dryrun__lock();
	m = find_memory(handle);
	if (m) {
		s.size = m->size;
		memcpy(s.props, m->props, VMM_PROPS_SIZE);
	}
	dryrun__unlock();
	if (!m)
		return CUDA_INVALID_VALUE;
	*fd = (int)syscall(SYS_memfd_create, "memtrace-dryrun-memory", MFD_CLOEXEC);
	if (*fd < 0)
		return CUDA_OUT_OF_MEMORY;
	if (pwrite(*fd, &s, sizeof(s), 0) == (ssize_t)sizeof(s))
		return CUDA_OK;
	close(*fd);
	return CUDA_OUT_OF_MEMORY;
}

int vmm__import(int fd, uint64_t *handle)
{
	struct shared s;

	if (pread(fd, &s, sizeof(s), 0) != (ssize_t)sizeof(s) || s.magic != SHARED_MAGIC)
		return CUDA_INVALID_VALUE;
	return vmm__create(-1, s.size, s.props, handle);
}

int vmm__retain(uint64_t addr, uint64_t *handle)
{
	int err = CUDA_INVALID_VALUE;
	size_t at;

	dryrun__lock();
	at = after(addr);
	if (at < n_mappings && mappings[at].addr <= addr) {
		memories[mappings[at].memory].handles++;
		*handle = handle_of(mappings[at].memory);
		err = CUDA_OK;
	}
	dryrun__unlock();
	return err;
}

int vmm__release(uint64_t handle)
{
	struct memory *m;

	dryrun__lock();
	m = find_memory(handle);
	if (m) {
		m->handles--;
		put_memory((uint32_t)handle - 1);
	}
	dryrun__unlock();
	return m ? CUDA_OK : CUDA_INVALID_VALUE;
}

/* Adds a mapping of the memory in a slot. Lock held. */
static int add_mapping(uint64_t addr, uint64_t size, unsigned int slot)
{
	size_t at = after(addr);

	if (array__grow(&mappings, &mappings_room, n_mappings + 1, sizeof(*mappings)))
		return CUDA_OUT_OF_MEMORY;
	memmove(mappings + at + 1, mappings + at, (n_mappings - at) * sizeof(*mappings));
	mappings[at] = (struct mapping){ addr, size, slot };
	n_mappings++;
	memories[slot].mappings++;
	return CUDA_OK;
}

int vmm__map(uint64_t addr, uint64_t size, uint64_t offset, uint64_t handle)
{
	int err = CUDA_INVALID_VALUE;
	struct space_range *r;
	struct memory *m;
	size_t at;

	dryrun__lock();
	m = find_memory(handle);
	at = space_ranges__after(&reserved, addr);
	r = at < reserved.n ? &reserved.at[at] : NULL;
	if (m && r && size && !(size % DRYRUN_GRANULE) && offset <= m->size &&
	    size <= m->size - offset && addr >= r->addr && size <= r->addr + r->size - addr &&
	    !any_mapped(addr, size))
		err = add_mapping(addr, size, (uint32_t)handle - 1);
	dryrun__unlock();
	return err;
}

int vmm__unmap(uint64_t addr, uint64_t size)
{
	size_t from, to;
	uint64_t at = addr;

	dryrun__lock();
	from = to = after(addr);
	while (to < n_mappings && at < addr + size && mappings[to].addr == at) {
		at += mappings[to].size;
		to++;
	}
	if (!size || at != addr + size) {
		dryrun__unlock();
		return CUDA_INVALID_VALUE;
	}
	contents__clear(addr, size);
	for (size_t i = from; i < to; i++) {
		memories[mappings[i].memory].mappings--;
		put_memory(mappings[i].memory);
	}
	memmove(mappings + from, mappings + to, (n_mappings - to) * sizeof(*mappings));
	n_mappings -= to - from;
	dryrun__unlock();
	return CUDA_OK;
}

bool vmm__mapped(uint64_t addr, uint64_t size)
{
	uint64_t at = addr;

	dryrun__lock();
	for (size_t i = after(addr); i < n_mappings && at < addr + size && mappings[i].addr <= at;
	     i++)
		at = mappings[i].addr + mappings[i].size;
	dryrun__unlock();
	return at >= addr + size;
}

int vmm__props(uint64_t handle, void *props)
{
	struct memory *m;

	dryrun__lock();
	m = find_memory(handle);
	if (m)
		memcpy(props, m->props, VMM_PROPS_SIZE);
	dryrun__unlock();
	return m ? CUDA_OK : CUDA_INVALID_VALUE;
}

bool vmm__find(uint64_t addr, struct dryrun_range *range)
{
	size_t at = space_ranges__after(&reserved, addr);

	if (at == reserved.n || reserved.at[at].addr > addr)
		return false;
	range->place = PLACE_DEVICE;
	range->device = -1;
	at = after(addr);
	if (at < n_mappings && mappings[at].addr <= addr) {
		range->device = memories[mappings[at].memory].device;
		range->base = mappings[at].addr;
		range->size = mappings[at].size;
	}
	return true;
}

bool dryrun__is_device(const void *ptr)
{
	struct dryrun_range range;
	bool found;

	if (core__device_of((uintptr_t)ptr) >= 0)
		return true;
	dryrun__lock();
	found = vmm__find((uintptr_t)ptr, &range);
	dryrun__unlock();
	return found;
}
