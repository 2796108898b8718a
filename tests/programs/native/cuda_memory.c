/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Takes memory from CUDA in alpha() and beta(), without PyTorch or Python. Waits for a line of
 * input before each round, prints one after it, and ends at the end of the input. */
#include <stdio.h>
#include <stddef.h>

int cudaMalloc(void **addr, size_t size);
int cudaFree(void *addr);

#define MIB ((size_t)1 << 20)

__attribute__((noinline)) static void *beta(size_t size)
{
	void *addr = NULL;

	if (cudaMalloc(&addr, size + MIB)) /* the line of beta */
		return NULL;
	return addr;
}

__attribute__((noinline)) static void *alpha(size_t size)
{
	void *addr = NULL;

	if (cudaMalloc(&addr, size)) /* the line of alpha */
		return NULL;
	return addr;
}

int main(void)
{
	char line[64];
	void *addr;

	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < 3; i++)
			if (!alpha(100 * MIB))
				return 1;
		addr = beta(29 * MIB);
		if (!beta(19 * MIB) || !addr || cudaFree(addr))
			return 1;
		puts("done");
		fflush(stdout);
	}
	return 0;
}
