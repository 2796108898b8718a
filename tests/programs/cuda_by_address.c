/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A CUDA runtime that gets the driver's functions by address, as NVIDIA's runtime does. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static void *driver(const char *name)
{
	int (*ask)(const char *, void **, int, uint64_t, int *), state;
	void *found = NULL;

	ask = (int (*)(const char *, void **, int, uint64_t, int *))dlsym(RTLD_DEFAULT,
									  "cuGetProcAddress_v2");
	return ask && !ask(name, &found, 12080, 1, &state) ? found : NULL;
}

int cudaMalloc(void **ptr, size_t size)
{
	int (*take)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))driver("cuMemAlloc");
	int (*retain)(void **, int) = (int (*)(void **, int))driver("cuDevicePrimaryCtxRetain");
	void *context;
	uint64_t p = 0;
	int err = take && retain && !retain(&context, 0) ? take(&p, size) : 1;

	*ptr = (void *)p;
	return err;
}

int cudaFree(void *ptr)
{
	int (*give)(uint64_t) = (int (*)(uint64_t))driver("cuMemFree");
	int err = give ? give((uint64_t)ptr) : 1;

	__asm__ volatile("" : : "r"(ptr));
	return err;
}
