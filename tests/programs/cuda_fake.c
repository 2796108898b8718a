/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A library with the names of CUDA's functions that only hands out addresses. It does what real
 * CUDA libraries rarely do: tail calls between functions, calls left by longjmp, calls that end
 * with their thread.
 */
#include <stddef.h>
#include <stdint.h>

#define OUT_OF_MEMORY 2
#define LIMIT (1ull << 40)

struct extent {
	size_t width, height, depth;
};

struct pitched {
	void *ptr;
	size_t pitch, xsize, ysize;
};

void (*fake_hook)(void); /* called first by cudaMallocManaged */

static uint64_t hand_out(size_t size)
{
	static uint64_t next = 0x500000000000;

	return __atomic_fetch_add(&next, (size + 511) & ~511ull, __ATOMIC_SEQ_CST);
}

int cuMemAlloc_v2(uint64_t *ptr, size_t size)
{
	if (size >= LIMIT)
		return OUT_OF_MEMORY;
	*ptr = hand_out(size);
	return 0;
}

int cuMemFree_v2(uint64_t ptr)
{
	__asm__ volatile("" : : "r"(ptr));
	return 0;
}

int cudaMalloc(void **ptr, size_t size)
{
	uint64_t p = 0;
	int err = cuMemAlloc_v2(&p, size); /* the real runtime calls the driver, too */

	if (!err)
		*ptr = (void *)p;
	return err;
}

int cudaFree(void *ptr)
{
	return ptr ? cuMemFree_v2((uint64_t)ptr) + (int)((uint64_t)ptr & 1) : 0;
}

int cudaMallocAsync(void **ptr, size_t size, void *stream)
{
	__asm__ volatile("" : : "r"(stream));
	*ptr = (void *)hand_out(size);
	return 0;
}

/* A tail call when optimized: two functions, one frame. */
int cudaMallocAsync_ptsz(void **ptr, size_t size, void *stream)
{
	return cudaMallocAsync(ptr, size, stream);
}

int cudaFreeAsync(void *ptr, void *stream)
{
	__asm__ volatile("" : : "r"(ptr), "r"(stream));
	return 0;
}

int cudaFreeAsync_ptsz(void *ptr, void *stream)
{
	return cudaFreeAsync(ptr, stream);
}

int cudaMallocManaged(void **ptr, size_t size, unsigned flags)
{
	__asm__ volatile("" : : "r"(flags));
	if (fake_hook)
		fake_hook();
	*ptr = (void *)hand_out(size);
	return 0;
}

int cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
	*pitch = (width + 511) & ~511ull;
	*ptr = (void *)hand_out(*pitch * height);
	return 0;
}

int cudaMalloc3D(struct pitched *ret, struct extent e)
{
	ret->pitch = (e.width + 511) & ~511ull;
	ret->xsize = e.width;
	ret->ysize = e.height;
	ret->ptr = (void *)hand_out(ret->pitch * e.height * e.depth);
	return 0;
}

int cuMemCreate(uint64_t *handle, size_t size, const void *prop, uint64_t flags)
{
	__asm__ volatile("" : : "r"(size), "r"(prop), "r"(flags));
	*handle = hand_out(512);
	return 0;
}

int cuMemRelease(uint64_t handle)
{
	__asm__ volatile("" : : "r"(handle));
	return 0;
}

int cuMemMap(uint64_t ptr, size_t size, size_t offset, uint64_t handle, uint64_t flags)
{
	__asm__ volatile("" : : "r"(ptr), "r"(size), "r"(offset), "r"(handle), "r"(flags));
	return 0;
}

int cuMemUnmap(uint64_t ptr, size_t size)
{
	__asm__ volatile("" : : "r"(ptr), "r"(size));
	return 0;
}

int cuCtxCreate_v2(uint64_t *context, unsigned flags, int device)
{
	__asm__ volatile("" : : "r"(flags), "r"(device));
	*context = hand_out(512);
	return 0;
}

int cuCtxPopCurrent_v2(uint64_t *context)
{
	__asm__ volatile("" : : "r"(context));
	return 0;
}

int cuCtxDestroy_v2(uint64_t context)
{
	__asm__ volatile("" : : "r"(context));
	return 0;
}
