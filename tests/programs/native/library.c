/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A library that takes memory from CUDA for itself, as NCCL and cuBLAS do. */
#include <stddef.h>

int cudaMalloc(void **addr, size_t size);

__attribute__((noinline)) static void *workspace(size_t size)
{
	void *addr = NULL;

	return cudaMalloc(&addr, size) ? NULL : addr; /* the line of workspace */
}

void *init_library(size_t size)
{
	return (char *)workspace(size) + 1; /* the line of init_library */
}
