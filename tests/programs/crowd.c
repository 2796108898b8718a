/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Many processes that all look alike: crowd N [LIBRARY]. Maps the library, if there is one, and
 * forks N children that do nothing. Prints "ready", and ends them all when its standard input ends.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 0;
	pid_t parent = getpid();
	char c;

	if (argc > 2 && !dlopen(argv[2], RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	for (int i = 0; i < n; i++) {
		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			for (;;)
				pause();
		return 0;
	}
	puts("ready");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
