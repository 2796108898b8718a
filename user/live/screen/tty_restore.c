/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/tty_restore.h"

#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <term.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "live/screen/terminal.h"

#define CAUGHT_MOST (1 << 20) /* bytes of buffered errors */

struct shared {		     /* memory shared by the two processes */
	atomic_bool up;	     /* the screen is up */
	atomic_bool stopped; /* the child has restored the terminal and is stopping */
	atomic_bool child_got_signal;
	atomic_long caught; /* bytes of errors that the child has read */
};

struct tty_restore {
	struct shared *shared;
	pid_t waits, child;
	int in, out;
	bool opened; /* `in` was opened here */
	struct termios termios;
	char restore[256]; /* terminal sequences that restore it */
	size_t len;
	/* errors: file in place of standard error; real: the original standard error */
	int errors, real;
};

/* global, because tputs() passes no context */
static struct tty_restore *collect_target;

static int collect(int c)
{
	if (collect_target->len < sizeof(collect_target->restore))
		collect_target->restore[collect_target->len++] = (char)c;
	return c;
}

/* The sequence that ends the reports of the mouse, as curses chooses it; NULL: none. */
static const char *mouse_off(void)
{
	const char *set = tigetstr("XM"), *key = tigetstr("kmous");

	if (set && set != (char *)-1)
		return tiparm(set, 0);
	return key && key != (char *)-1 ? "\033[?1000l" : NULL;
}

/* Collects the sequences that leave the curses screen and reset the terminal. */
static void collect_restore(struct tty_restore *g)
{
	static const char *const names[] = { "sgr0", "op", "rmkx", "cnorm", "rmcup" };

	const char *mouse = mouse_off();

	collect_target = g;
	if (mouse)
		tputs(mouse, 1, collect);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *s = tigetstr(names[i]);

		if (s && s != (char *)-1)
			tputs(s, 1, collect);
	}
}

static bool can_show(const char **why)
{
	*why = NULL;
	if (!isatty(STDOUT_FILENO))
		return false;
	if (!terminal__load()) {
		*why = "TERM names no terminal that is known";
		return false;
	}
	if (!cursor_address || !clear_screen) {
		*why = "TERM names a terminal that cannot show a screen";
		return false;
	}
	return true;
}

struct tty_restore *tty_restore__new(const char **why)
{
	struct tty_restore *g;

	if (!can_show(why))
		return NULL;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->out = STDOUT_FILENO;
	g->errors = g->real = -1;
	g->in = STDIN_FILENO;
	if (!isatty(STDIN_FILENO)) {
		g->in = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
		g->opened = true;
	}
	g->shared = mmap(NULL, sizeof(*g->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (g->shared == MAP_FAILED)
		g->shared = NULL;
	if (g->in < 0 || !g->shared || tcgetattr(g->in, &g->termios)) {
		*why = "there is nothing to type on";
		tty_restore__free(g);
		return NULL;
	}
	g->waits = getpid();
	collect_restore(g);
	del_curterm(cur_term); /* curses creates its own */
	return g;
}

void tty_restore__free(struct tty_restore *g)
{
	if (!g)
		return;
	if (g->opened && g->in >= 0)
		close(g->in);
	if (g->errors >= 0)
		close(g->errors);
	if (g->shared)
		munmap(g->shared, sizeof(*g->shared));
	free(g);
}

int tty_restore__input(const struct tty_restore *g)
{
	return g->in;
}

void tty_restore__restore(struct tty_restore *g)
{
	pid_t group = tcgetpgrp(g->in); /* negative: the terminal has no foreground group */
	sigset_t set, old;

	if (write(g->out, g->restore, g->len) < 0)
		return; /* the terminal is gone */
	/* In the background, leave the settings to the foreground process. */
	if (group >= 0 && group != getpgrp())
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGTTOU);
	sigprocmask(SIG_BLOCK, &set, &old);
	tcsetattr(g->in, TCSADRAIN, &g->termios);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* ---- the waiting process ---- */

static const struct timespec moment = { .tv_nsec = 100000000 };

/* Prints the errors that the child wrote but did not show, such as the reason of a crash. */
static void pass_errors(struct tty_restore *g)
{
	char buf[4096];
	off_t at = atomic_load(&g->shared->caught);
	ssize_t n;

	while (g->errors >= 0 && (n = pread(g->errors, buf, sizeof(buf), at)) > 0) {
		if (write(STDERR_FILENO, buf, n) < 0)
			break;
		at += n;
	}
}

static int ended(struct tty_restore *g, int st)
{
	if (atomic_load(&g->shared->up)) {
		tty_restore__restore(g);
		pass_errors(g);
	}
	if (!WIFSIGNALED(st))
		return WEXITSTATUS(st);
	fprintf(stderr, "memtrace-bpf: ended by signal %d (%s)\n", WTERMSIG(st),
		strsignal(WTERMSIG(st)));
	return 128 + WTERMSIG(st);
}

/* The child was stopped: stop too, so that the shell continues. */
static void stop_with_child(struct tty_restore *g)
{
	if (!atomic_load(&g->shared->stopped) && atomic_load(&g->shared->up))
		tty_restore__restore(g);
	raise(SIGSTOP);
}

/* This process was continued. A shell continues the whole process group, the child too; then
 * nothing is sent: the child may have been stopped again since, and a late SIGCONT would end that
 * stop. kill -CONT may have continued this process only. */
static int continue_child(struct tty_restore *g, int *st)
{
	int changed = waitpid(g->child, st, WNOHANG | WUNTRACED | WCONTINUED);

	if (!changed) {
		nanosleep(&moment, NULL); /* the child's SIGCONT may follow */
		changed = waitpid(g->child, st, WNOHANG | WUNTRACED | WCONTINUED);
	}
	if (!changed)
		kill(g->child, SIGCONT);
	return changed;
}

/* Forwards a signal sent to this process only. Signals from the terminal or to the process group
 * reach the child anyway; `child_got_signal` then prevents a second one. */
static void forward(struct tty_restore *g, const siginfo_t *si)
{
	if (si->si_code == SI_KERNEL)
		return;
	nanosleep(&moment, NULL);
	if (!atomic_load(&g->shared->child_got_signal))
		kill(g->child, si->si_signo);
}

static int wait_for_child(struct tty_restore *g, const sigset_t *set)
{
	siginfo_t si;
	int st, changed;

	for (;;) {
		if (sigwaitinfo(set, &si) < 0) /* interrupted: check the child */
			si.si_signo = SIGCHLD;
		if (si.si_signo == SIGINT || si.si_signo == SIGTERM || si.si_signo == SIGHUP ||
		    si.si_signo == SIGQUIT)
			forward(g, &si);
		changed = si.si_signo == SIGCONT ? continue_child(g, &st)
						 : waitpid(g->child, &st, WNOHANG | WUNTRACED);
		for (; changed > 0; changed = waitpid(g->child, &st, WNOHANG | WUNTRACED)) {
			if (WIFSTOPPED(st))
				stop_with_child(g);
			else if (!WIFCONTINUED(st))
				return ended(g, st);
		}
	}
}

static sigset_t wait_set(void)
{
	static const int all[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		sigaddset(&set, all[i]);
	return set;
}

bool tty_restore__fork(struct tty_restore *g, int *status)
{
	sigset_t set = wait_set(), old;

	/* Created before the fork, so that the errors of a crashed child can be printed. */
	g->errors = memfd_create("memtrace-errors", MFD_CLOEXEC);
	fflush(NULL);
	sigprocmask(SIG_BLOCK, &set, &old);
	/* base/subprocess.h cannot be used: the child returns from here, and job control stops it. */
	g->child = fork();
	if (g->child > 0) {
		*status = wait_for_child(g, &set);
		return false;
	}
	if (!g->child) {
		/* If the waiting process leads its session, its death sends SIGHUP, and then this
		 * signal. SIGTERM could end this process while it restores the terminal. SIGWINCH
		 * cannot: view.c reads it and looks whether it is orphaned. */
		prctl(PR_SET_PDEATHSIG, SIGWINCH);
		/* Restore the signal mask; the screen reads its signals from a signalfd. */
		sigprocmask(SIG_SETMASK, &old, NULL);
	} else {
		sigprocmask(SIG_SETMASK, &old, NULL);
		g->waits = 0;
	}
	return true;
}

/* ---- the child ---- */

void tty_restore__screen(struct tty_restore *g, bool up)
{
	atomic_store(&g->shared->up, up);
}

void tty_restore__stop(struct tty_restore *g)
{
	atomic_store(&g->shared->stopped, true);
	raise(SIGSTOP);
	atomic_store(&g->shared->stopped, false);
}

void tty_restore__stop_forwarding(struct tty_restore *g)
{
	atomic_store(&g->shared->child_got_signal, true);
}

bool tty_restore__orphaned(const struct tty_restore *g)
{
	return g->waits && getppid() != g->waits;
}

int tty_restore__catch_errors(struct tty_restore *g)
{
	if (g->errors < 0)
		return -EBADF;
	fcntl(g->errors, F_SETFL, O_APPEND);
	g->real = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (g->real < 0 || dup2(g->errors, STDERR_FILENO) < 0)
		return -errno;
	return 0;
}

int tty_restore__read_errors(struct tty_restore *g, char *buf, int size)
{
	long at = atomic_load(&g->shared->caught);
	ssize_t n = g->errors < 0 ? 0 : pread(g->errors, buf, size - 1, at);

	if (n <= 0)
		return 0;
	buf[n] = '\0';
	at += n;
	if (at > CAUGHT_MOST && n < size - 1 && !ftruncate(g->errors, 0))
		at = 0;
	atomic_store(&g->shared->caught, at);
	return (int)n;
}

void tty_restore__release_errors(struct tty_restore *g)
{
	if (g->real < 0)
		return;
	dup2(g->real, STDERR_FILENO);
	close(g->real);
	g->real = -1;
}
