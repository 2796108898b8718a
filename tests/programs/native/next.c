/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Replaces getppid() and calls the C library's. Prints 1 if dlsym(RTLD_NEXT) found that one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static int calls;

pid_t getppid(void)
{
	pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getppid");

	calls++;
	return next && calls == 1 ? next() : -1;
}

int main(void)
{
	printf("%d\n", getppid() > 0 && calls == 1);
	return 0;
}
