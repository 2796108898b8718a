/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A program without Python whose memory grows: one MiB for each line on its standard input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *volatile last;

static __attribute__((noinline)) void grow(size_t size)
{
	void *block = malloc(size); /* GROWS */

	if (!block)
		exit(1);
	memset(block, 1, size);
	last = block;
}

int main(void)
{
	char line[16];

	puts("ready");
	fflush(stdout);
	for (int n = 0; fgets(line, sizeof(line), stdin); n++) {
		for (int i = 0; i < 64; i++)
			grow(16 << 10);
		printf("grown %d\n", n);
		fflush(stdout);
	}
	return 0;
}
