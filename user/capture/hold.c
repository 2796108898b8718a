/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/hold.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#define PAUSE 100000 /* ns; a thread that runs stops at once, one that the kernel is busy with when that is done */

static bool has_changed(pid_t pid, int how, siginfo_t *si)
{
	si->si_pid = 0;
	return !waitid(P_PID, pid, si, how | WNOHANG) && si->si_pid == pid;
}

int hold__take(struct hold *h, pid_t pid)
{
	const struct timespec pause = { .tv_nsec = PAUSE };
	siginfo_t si;

	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL))
		return -errno;
	if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL))
		return -errno; /* it is ending: there is nothing to be detached from */
	/* Without WEXITED: how it ends is for those who wait for the child. */
	while (!has_changed(pid, WSTOPPED, &si)) {
		if (has_changed(pid, WEXITED | WNOWAIT, &si))
			return -ECHILD;
		nanosleep(&pause, NULL);
	}
	*h = (struct hold){ .pid = pid };
	/* A stop of the kernel's making carries an event above the signal's number; what carries none is a signal on its way. */
	if (!(si.si_status >> 8))
		h->signal = si.si_status;
	return 0;
}

void hold__release(struct hold *h)
{
	if (h->pid)
		ptrace(PTRACE_DETACH, h->pid, NULL, (void *)(long)h->signal);
	h->pid = 0;
}
