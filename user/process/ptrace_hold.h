/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_PTRACE_HOLD_H
#define MT_PROCESS_PTRACE_HOLD_H
/*
 * Holding the first thread of a command that we started ourselves, for the milliseconds that it
 * takes to attach. Never used on a process that was there before us.
 *
 * It is ptrace(2) with PTRACE_SEIZE and PTRACE_INTERRUPT: no signal is sent, no system call fails
 * with EINTR that would not without, and when we end, however that comes, the kernel lets the
 * thread go on.
 */
#include <sys/types.h>

struct ptrace_hold {
	pid_t pid;  /* 0: nothing is held */
	int signal; /* that it was about to be given when it was stopped, 0: none */
};

/*
 * Stops the first thread of pid, a child of the calling thread's process, and waits until it has
 * stopped. 0; -EPERM, -ESRCH and what else ptrace() says where it cannot be, -ECHILD where it ended
 * meanwhile: nothing is held then.
 */
int ptrace_hold__take(struct ptrace_hold *h, pid_t pid);
/* Lets it go on; by the thread that took it. Nothing where nothing is held. */
void ptrace_hold__release(struct ptrace_hold *h);

#endif
