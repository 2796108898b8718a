/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A second libc10_cuda, as some C++ libraries bundle it, whose allocator takes memory for
 * itself. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

void *other_allocator __asm__("_ZN3c104cuda20CUDACachingAllocator9allocatorE");

int cuda_other(void)
{
	int (*take)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_DEFAULT, "cudaMalloc");
	void *p = NULL;

	if (!take || take(&p, 3 << 20))
		return 1;
	printf("took %p\n", p);
	fflush(stdout);
	return 0;
}
