/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Wrappers of the C library's signal functions. SIGTRAP belongs to the breakpoints. If the program
 * installs its own SIGTRAP handler, the wrappers keep it, report it as installed, and call it for
 * other traps. They never block SIGTRAP: the kernel ends a process that reaches a breakpoint while
 * SIGTRAP is blocked.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "library.h"

#define PUBLIC __attribute__((visibility("default")))

typedef void (*handler_fn)(int);

static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);
static int (*real_sigprocmask)(int, const sigset_t *, sigset_t *);
static int (*real_pthread_sigmask)(int, const sigset_t *, sigset_t *);
static handler_fn (*real_signal)(int, handler_fn);
static handler_fn (*real_sysv_signal)(int, handler_fn);
static bool taken;
static struct sigaction theirs; /* the program's own action for SIGTRAP */

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* Other libraries' constructors may call these functions before ours runs. */
#define REAL(name)                                                                                 \
	do {                                                                                       \
		if (!real_##name)                                                                  \
			real_##name = next(#name);                                                 \
	} while (0)

static const sigset_t *without_trap(const sigset_t *set, sigset_t *copy)
{
	if (!set || !taken)
		return set;
	*copy = *set;
	sigdelset(copy, SIGTRAP);
	return copy;
}

PUBLIC int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	sigset_t copy;

	REAL(sigprocmask);
	return real_sigprocmask(how, how == SIG_UNBLOCK ? set : without_trap(set, &copy), old);
}

PUBLIC int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	sigset_t copy;

	REAL(pthread_sigmask);
	return real_pthread_sigmask(how, how == SIG_UNBLOCK ? set : without_trap(set, &copy), old);
}

PUBLIC int sigaction(int number, const struct sigaction *restrict act,
		     struct sigaction *restrict old)
{
	struct sigaction now, was;

	REAL(sigaction);
	if (!taken)
		return real_sigaction(number, act, old);
	if (number == SIGTRAP) {
		was = theirs;
		if (act && !process__shares_memory())
			theirs = *act;
		if (old)
			*old = was;
		return 0;
	}
	if (act) {
		now = *act;
		sigdelset(&now.sa_mask, SIGTRAP);
		act = &now;
	}
	return real_sigaction(number, act, old);
}

static handler_fn set_theirs(handler_fn handler, int flags)
{
	handler_fn was = theirs.sa_handler;

	if (process__shares_memory())
		return was;
	theirs = (struct sigaction){ .sa_handler = handler, .sa_flags = flags };
	return was;
}

PUBLIC handler_fn signal(int number, handler_fn handler)
{
	REAL(signal);
	return number == SIGTRAP && taken ? set_theirs(handler, SA_RESTART)
					  : real_signal(number, handler);
}

handler_fn bsd_signal(int number, handler_fn handler); /* not declared in newer headers */

PUBLIC handler_fn bsd_signal(int number, handler_fn handler)
{
	return signal(number, handler);
}

PUBLIC handler_fn ssignal(int number, handler_fn handler)
{
	return signal(number, handler);
}

PUBLIC handler_fn sysv_signal(int number, handler_fn handler)
{
	REAL(sysv_signal);
	return number == SIGTRAP && taken ? set_theirs(handler, (int)SA_RESETHAND | SA_NODEFER)
					  : real_sysv_signal(number, handler);
}

PUBLIC handler_fn __sysv_signal(int number, handler_fn handler)
{
	return sysv_signal(number, handler);
}

int signals__take(void (*handler)(int, void *, void *))
{
	struct sigaction act = { .sa_sigaction = (void (*)(int, siginfo_t *, void *))handler,
				 .sa_flags = SA_SIGINFO | SA_RESTART };
	sigset_t trap;

	REAL(sigaction);
	REAL(pthread_sigmask);
	if (!real_sigaction || !real_pthread_sigmask)
		return -ENOSYS;
	/* No other signal may interrupt the handler: each thread has state for one program. */
	sigfillset(&act.sa_mask);
	if (real_sigaction(SIGTRAP, &act, &theirs))
		return -errno;
	taken = true;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	return -real_pthread_sigmask(SIG_UNBLOCK, &trap, NULL);
}

/* Ends the process by the signal, as without a handler. */
static void end_process(int number)
{
	struct sigaction none = { .sa_handler = SIG_DFL };
	sigset_t trap;

	real_sigaction(number, &none, NULL);
	syscall(SYS_tgkill, getpid(), (int)syscall(SYS_gettid), number);
	sigemptyset(&trap);
	sigaddset(&trap, number);
	real_pthread_sigmask(SIG_UNBLOCK, &trap, NULL);
}

void signals__theirs(int number, void *info, void *context)
{
	const siginfo_t *si = info;
	ucontext_t *uc = context;
	struct sigaction act = theirs;
	sigset_t mask = uc->uc_sigmask, before;
	int i;

	if (act.sa_handler == SIG_IGN && si->si_code <= 0)
		return;
	if (act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN) {
		end_process(number);
		return;
	}
	if (act.sa_flags & (int)SA_RESETHAND)
		theirs.sa_handler = SIG_DFL;
	for (i = 1; i < NSIG; i++) {
		if (i != SIGTRAP && sigismember(&act.sa_mask, i) == 1)
			sigaddset(&mask, i);
	}
	sigdelset(&mask, SIGTRAP);
	real_pthread_sigmask(SIG_SETMASK, &mask, &before);
	if (act.sa_flags & SA_SIGINFO)
		act.sa_sigaction(number, info, context);
	else
		act.sa_handler(number);
	real_pthread_sigmask(SIG_SETMASK, &before, NULL);
}
