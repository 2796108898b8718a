/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* An allocator for torch.cuda.memory.CUDAPluggableAllocator that calls cudaMalloc. */
#include <sys/types.h>

int cudaMalloc(void **ptr, size_t size);
int cudaFree(void *ptr);

void *take(ssize_t size, int device, void *stream);
void give(void *ptr, ssize_t size, int device, void *stream);

void *take(ssize_t size, int device, void *stream)
{
	void *ptr = 0;

	return cudaMalloc(&ptr, (size_t)size) ? 0 : ptr;
}

void give(void *ptr, ssize_t size, int device, void *stream)
{
	cudaFree(ptr);
}
