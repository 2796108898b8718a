/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/arrival.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

/* ns between two checks. A running thread stops at once; a thread in the kernel stops when the
 * kernel is done. */
#define PAUSE 100000

/* True if the child has ended. Does not reap it: its parent needs the exit status. */
static bool has_ended(pid_t pid)
{
	siginfo_t si = { 0 };

	/* waitid() reports stops of a traced child, too. */
	return waitid(P_PID, pid, &si, WEXITED | WNOHANG | WNOWAIT) ||
	       (si.si_pid == pid && si.si_code != CLD_TRAPPED && si.si_code != CLD_STOPPED);
}

/* True once the thread has stopped. Sets *si to the reason. */
static bool has_stopped(pid_t pid, siginfo_t *si)
{
	si->si_pid = 0;
	return !waitid(P_PID, pid, si, WSTOPPED | WNOHANG) && si->si_pid == pid;
}

/* Pending signal of a stop; 0: none. A stop by PTRACE_INTERRUPT has an event number above the
 * signal's bits. */
static int signal_of(const siginfo_t *si)
{
	return si->si_status >> 8 ? 0 : si->si_status;
}

int ptrace_hold__take(struct ptrace_hold *h, pid_t pid)
{
	const struct timespec pause = { .tv_nsec = PAUSE };
	siginfo_t si;

	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL))
		return -errno;
	if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL))
		return -errno; /* the child is ending, so there is no thread to detach */
	while (!has_stopped(pid, &si)) {
		if (has_ended(pid))
			return -ECHILD;
		nanosleep(&pause, NULL);
	}
	*h = (struct ptrace_hold){ .pid = pid, .signal = signal_of(&si) };
	return 0;
}

void ptrace_hold__release(struct ptrace_hold *h)
{
	const struct timespec pause = { .tv_nsec = PAUSE };
	siginfo_t si;
	pid_t pid = h->pid;

	h->pid = 0;
	/* A thread that has not stopped yet would stop later and stay stopped. So wait for the
	 * stop. */
	while (pid && ptrace(PTRACE_DETACH, pid, NULL, (void *)(long)h->signal) && errno == ESRCH &&
	       !has_ended(pid)) {
		if (has_stopped(pid, &si))
			h->signal = signal_of(&si);
		nanosleep(&pause, NULL);
	}
}
