/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A shared library that keeps what it allocates, for causes.c. */
#include <stdlib.h>
#include <string.h>

static void *volatile last;

void take_library(size_t mib)
{
	for (size_t i = 0; i < mib * 64; i++) {
		last = malloc(16000); /* LEAK: library */
		memset(last, 1, 16000);
	}
}
