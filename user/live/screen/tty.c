/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/screen/tty.h"

#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

#include "live/screen/terminal.h"

#define CAUGHT_MOST (1 << 20) /* bytes of buffered errors */

struct tty {
	int in, out;
	bool opened; /* `in` was opened here */
	struct termios termios;
	char restore[256]; /* sequences that restore the terminal */
	size_t len;	   /* bytes of restore */
	/* errors: file in place of standard error; real: the original standard error; -1: none */
	int errors, real;
	off_t caught; /* bytes of the file errors that were read */
};

/* Signals of a crash. */
static const int crashes[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };

/* The terminal whose screen is up; NULL: none. Global, because a signal handler gets no context. */
static struct tty *shown;

/* The terminal for collect(). Global, because tputs() passes no context. */
static struct tty *collect_target;

/* For tputs(): adds a byte to the sequences of collect_target. Too long ones are cut. */
static int collect(int c)
{
	if (collect_target->len < sizeof(collect_target->restore))
		collect_target->restore[collect_target->len++] = (char)c;
	return c;
}

/* The sequence that ends the reports of the mouse, as curses chooses it; NULL: none. */
static const char *mouse_off(void)
{
	const char *set = tigetstr("XM");
	const char *key = tigetstr("kmous");

	if (set && set != (char *)-1)
		return tiparm(set, 0);
	return key && key != (char *)-1 ? "\033[?1000l" : NULL;
}

/* Collects the sequences that leave the curses screen and reset the terminal. */
static void collect_restore(struct tty *t)
{
	static const char *const names[] = { "sgr0", "op", "rmkx", "cnorm", "rmcup" };

	const char *mouse = mouse_off();

	collect_target = t;
	if (mouse)
		tputs(mouse, 1, collect);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *s = tigetstr(names[i]);

		if (s && s != (char *)-1)
			tputs(s, 1, collect);
	}
}

/* Whether standard output can show a screen. If not, *why as for tty__open(). */
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

struct tty *tty__open(const char **why)
{
	struct tty *t;

	if (!can_show(why))
		return NULL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->out = STDOUT_FILENO;
	t->errors = t->real = -1;
	t->in = STDIN_FILENO;
	if (!isatty(STDIN_FILENO)) {
		t->in = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
		t->opened = true;
	}
	if (t->in < 0 || tcgetattr(t->in, &t->termios)) {
		*why = "there is nothing to type on";
		tty__close(t);
		return NULL;
	}
	t->errors = memfd_create("memtrace-errors", MFD_CLOEXEC);
	collect_restore(t);
	del_curterm(cur_term); /* curses creates its own */
	return t;
}

void tty__close(struct tty *t)
{
	if (!t)
		return;
	if (t->opened && t->in >= 0)
		close(t->in);
	if (t->errors >= 0)
		close(t->errors);
	free(t);
}

int tty__input(const struct tty *t)
{
	return t->in;
}

void tty__restore(struct tty *t)
{
	pid_t group = tcgetpgrp(t->in); /* negative: the terminal has no foreground group */
	sigset_t set, old;

	if (write(t->out, t->restore, t->len) < 0)
		return; /* the terminal is gone */

	/* In the background, leave the settings to the foreground process. */
	if (group >= 0 && group != getpgrp())
		return;
	/* If the terminal has no foreground group, SIGTTOU would stop this process. */
	sigemptyset(&set);
	sigaddset(&set, SIGTTOU);
	sigprocmask(SIG_BLOCK, &set, &old);
	tcsetattr(t->in, TCSADRAIN, &t->termios);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* Prints errors that the view has not shown yet, such as the reason for a crash. */
static void pass_errors(const struct tty *t)
{
	char buf[4096];
	off_t at = t->caught;
	ssize_t n;

	while (t->real >= 0 && (n = pread(t->errors, buf, sizeof(buf), at)) > 0) {
		if (write(t->real, buf, n) < 0)
			break;
		at += n;
	}
}

/* Calls only functions that a signal handler may call. Because of SA_RESETHAND, raise() then ends
 * the program. */
static void on_crash(int sig)
{
	if (shown) {
		tty__restore(shown);
		pass_errors(shown);
	}
	raise(sig);
}

void tty__screen(struct tty *t, bool up)
{
	struct sigaction act = { .sa_handler = up ? on_crash : SIG_DFL, .sa_flags = SA_RESETHAND };

	shown = up ? t : NULL;
	for (size_t i = 0; i < sizeof(crashes) / sizeof(*crashes); i++)
		sigaction(crashes[i], &act, NULL);
}

int tty__catch_errors(struct tty *t)
{
	if (t->errors < 0)
		return -EBADF;
	fcntl(t->errors, F_SETFL, O_APPEND);
	t->real = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (t->real < 0 || dup2(t->errors, STDERR_FILENO) < 0)
		return -errno;
	return 0;
}

int tty__read_errors(struct tty *t, char *buf, int size)
{
	off_t at = t->caught;
	ssize_t n = t->errors < 0 ? 0 : pread(t->errors, buf, size - 1, at);

	if (n <= 0)
		return 0;
	buf[n] = '\0';
	at += n;
	if (at > CAUGHT_MOST && n < size - 1 && !ftruncate(t->errors, 0))
		at = 0;
	t->caught = at;
	return (int)n;
}

void tty__release_errors(struct tty *t)
{
	if (t->real < 0)
		return;
	dup2(t->real, STDERR_FILENO);
	close(t->real);
	t->real = -1;
}
