/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Stops the first thread of a command that memtrace-bpf started, for the milliseconds that
 * attaching takes. Not for other processes.
 * It uses PTRACE_SEIZE and PTRACE_INTERRUPT, which send no signal and cause no additional EINTR. If
 * memtrace-bpf ends in any way, the kernel resumes the thread.
 */
#include <sys/types.h>

struct ptrace_hold {
	pid_t pid;  /* 0: no thread is held */
	int signal; /* signal that was about to be delivered at the stop, 0: none */
};

/*
 * Stops the first thread of pid, a child of the calling thread's process, and waits for the stop.
 * 0. On errors no thread is held: -ECHILD: the child ended; or -EPERM, -ESRCH and others from
 * ptrace().
 */
int ptrace_hold__take(struct ptrace_hold *h, pid_t pid);
/* Resumes the thread; call it from the thread that called ptrace_hold__take(). Does nothing if no
 * thread is held. */
void ptrace_hold__release(struct ptrace_hold *h);
