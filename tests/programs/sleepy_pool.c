/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* An allocator for torch.cuda.MemPool whose memory can be unmapped below live tensors and mapped
 * again, as in vLLM's sleep mode. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#define GRAIN ((size_t)2 << 20)
#define MOST 64

struct place {
	int type, id;
};

struct prop { /* CUmemAllocationProp */
	int type, handle_types;
	struct place location;
	void *win32;
	uint8_t flags[8];
};

struct access { /* CUmemAccessDesc */
	struct place location;
	int flags;
};

static struct {
	uint64_t addr, handle;
	size_t size;
} all[MOST];

static void *function(const char *name)
{
	static void *library;

	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW);
	return library ? dlsym(library, name) : NULL;
}

static int map(int i)
{
	int (*create)(uint64_t *, size_t, const struct prop *, uint64_t) = function("cuMemCreate");
	int (*put)(uint64_t, size_t, size_t, uint64_t, uint64_t) = function("cuMemMap");
	int (*allow)(uint64_t, size_t, const struct access *, size_t) = function("cuMemSetAccess");
	struct prop prop = { .type = 1, .location = { .type = 1 } };
	struct access access = { .location = { .type = 1 }, .flags = 3 };
	int err = create(&all[i].handle, all[i].size, &prop, 0);

	if (!err)
		err = put(all[i].addr, all[i].size, 0, all[i].handle, 0);
	return err ? err : allow(all[i].addr, all[i].size, &access, 1);
}

static int unmap(int i)
{
	int (*end)(uint64_t, size_t) = function("cuMemUnmap");
	int (*release)(uint64_t) = function("cuMemRelease");
	int err = end(all[i].addr, all[i].size);

	return err ? err : release(all[i].handle);
}

void *sleepy_alloc(ssize_t size, int device, void *stream)
{
	int (*reserve)(uint64_t *, size_t, size_t, uint64_t,
		       uint64_t) = function("cuMemAddressReserve");
	int i = 0;

	(void)device;
	(void)stream;
	while (i < MOST && all[i].size)
		i++;
	if (i == MOST || !reserve)
		return NULL;
	all[i].size = ((size_t)size + GRAIN - 1) / GRAIN * GRAIN;
	if (reserve(&all[i].addr, all[i].size, 0, 0, 0) || map(i)) {
		all[i].size = 0;
		return NULL;
	}
	return (void *)(uintptr_t)all[i].addr;
}

void sleepy_free(void *ptr, ssize_t size, int device, void *stream)
{
	int (*give)(uint64_t, size_t) = function("cuMemAddressFree");

	(void)size;
	(void)device;
	(void)stream;
	for (int i = 0; i < MOST; i++)
		if (all[i].size && all[i].addr == (uintptr_t)ptr) {
			unmap(i);
			give(all[i].addr, all[i].size);
			all[i].size = 0;
		}
}

/* Unmaps or maps the ranges of allocations [from, to), in the order that they were made. Returns
 * the number of ranges, or a negative error of CUDA. */
static int change(int (*each)(int i), int from, int to)
{
	int n = 0;

	for (int i = from; i < to && i < MOST; i++)
		if (all[i].size) {
			int err = each(i);

			if (err)
				return -err;
			n++;
		}
	return n;
}

int sleepy_sleep(void)
{
	return change(unmap, 0, MOST);
}

int sleepy_wake(int from, int to)
{
	return change(map, from, to);
}
