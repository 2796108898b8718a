/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Allocates small blocks at the lines of standard input: "keep N" keeps N MiB, "burst N" frees all
 * of them but the last, so that malloc keeps the memory. Answers "done". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 1024 /* below the limit of a mapping of its own */

/* A list of blocks. Each begins with the address of the one before. */
static void *allocate(unsigned long mib)
{
	void *last = NULL;

	for (unsigned long i = 0; i < (mib << 20) / BLOCK; i++) {
		void **block = malloc(BLOCK);

		if (!block)
			exit(1);
		memset(block, 1, BLOCK);
		*block = last;
		last = block;
	}
	return last;
}

int main(void)
{
	char word[16];
	unsigned long mib;

	puts("ready");
	fflush(stdout);
	while (scanf("%15s %lu", word, &mib) == 2) {
		void **block = allocate(mib);

		/* The last block is at the end of the heap: malloc cannot give the rest back. */
		block = strcmp(word, "burst") ? NULL : *block;
		while (block) {
			void **before = *block;

			free(block);
			block = before;
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
