/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints the cost of a handled signal in ns, and of a fork with its exit in us. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIGNALS 300000
#define FORKS 2000

static void handler(int sig)
{
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(void)
{
	double begin, middle, end;
	int i;

	signal(SIGUSR1, handler);
	begin = now();
	for (i = 0; i < SIGNALS; i++)
		raise(SIGUSR1);
	middle = now();
	for (i = 0; i < FORKS; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
	end = now();
	printf("%.1f %.2f\n", (middle - begin) / SIGNALS * 1e9, (end - middle) / FORKS * 1e6);
	return 0;
}
