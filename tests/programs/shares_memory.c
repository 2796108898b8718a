// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Children that share the memory of the process. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK (256 << 10)
#define REPORTS 5

typedef void (*report_fn)(void *, long, unsigned long, unsigned long, unsigned short);

static void wait_for(pid_t pid)
{
	while (waitpid(pid, NULL, __WALL) < 0)
		;
}

void vforked(void);
void vforked(void)
{
	pid_t pid = vfork();

	if (!pid)
		_exit(7);
	wait_for(pid);
}

static int child(void *report)
{
	/* Its own action: signal handlers are not shared. */
	signal(SIGTRAP, SIG_DFL);
	for (int i = 0; i < REPORTS; i++)
		((report_fn)report)(NULL, 4096, 0, 0, 0);
	_exit(0);
}

void cloned(void *report);
void cloned(void *report)
{
	char *stack = malloc(STACK);
	pid_t pid = clone(child, stack + STACK, CLONE_VM | SIGCHLD, report);

	wait_for(pid);
	free(stack);
}
