/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Things that a process keeps after dropping rights: descriptors, the terminal, signals, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/sandbox_attempt.h"
#include "serve/sandbox_internal.h"

static int kept[2], closed[3];

static int try_descriptors(const struct sandbox_done *done)
{
	(void)done;
	for (int i = 0; i < 3; i++) {
		if (fcntl(i, F_GETFD) < 0 || (closed[i] >= 0 && fcntl(closed[i], F_GETFD) >= 0))
			return 1 + i;
	}
	return fcntl(kept[0], F_GETFD) < 0 || fcntl(kept[1], F_GETFD) < 0 ? 10 : PASSED;
}

static void test_descriptors(void **state)
{
	struct attempt a = { nobody(0), try_descriptors };
	int given[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		closed[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	kept[0] = fcntl(closed[0], F_DUPFD_CLOEXEC, 100);
	kept[1] = fcntl(closed[0], F_DUPFD_CLOEXEC, 40);
	assert_true(fcntl(closed[0], F_DUPFD, 200) >= 0);
	given[0] = kept[0]; /* unsorted, and one that is kept anyway */
	given[1] = 2;
	given[2] = kept[1];
	a.opts.keep = given;
	a.opts.n_keep = 3;
	expect(a, PASSED);
	for (int i = 0; i < 3; i++)
		close(closed[i]);
	close(kept[0]);
	close(kept[1]);
	close(200);
}

static int try_signals(const struct sandbox_done *done)
{
	struct sigaction sa;
	sigset_t mask;

	(void)done;
	if (sigaction(SIGPIPE, NULL, &sa) || sa.sa_handler != SIG_DFL ||
	    sigprocmask(SIG_SETMASK, NULL, &mask) || sigismember(&mask, SIGUSR1))
		return 1;
	raise(SIGUSR1);
	return 2;
}

static void test_signals(void **state)
{
	struct attempt a = { nobody(0), try_signals };
	sigset_t usr1, before;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, &before);
	expect(a, 1000 + SIGUSR1);
	sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGPIPE, SIG_DFL);
}

/* A session on its own terminal with input. */
static int try_terminal(const struct sandbox_done *done)
{
	char c = 'x', buf[8];

	(void)done;
	if (ioctl(2, TIOCSTI, &c) == 0 || ioctl(1, TIOCSTI, &c) == 0)
		return 1;
	if (read(0, buf, 1) != 0)
		return 2;
	if (read(1, buf, 1) >= 0 || errno != EBADF || read(2, buf, 1) >= 0 || errno != EBADF)
		return 3;
	if (open("/dev/tty", O_RDWR) >= 0)
		return 4;
	if (write(2, "said", 4) != 4)
		return 5;
	return PASSED;
}

static int on_terminal(int terminal)
{
	struct attempt a = { nobody(0), try_terminal };
	char name[64];
	int fd, status = 0;
	pid_t pid;

	if (setsid() < 0 || ptsname_r(terminal, name, sizeof(name)))
		return 1;
	fd = open(name, O_RDWR);
	if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) || dup2(fd, 0) || dup2(fd, 1) != 1 ||
	    dup2(fd, 2) != 2)
		return 2;
	a.opts.who = "test";
	pid = fork();
	if (!pid)
		_exit(in_child(&a));
	signal(SIGHUP, SIG_IGN);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
									       : 3;
}

static void test_terminal(void **state)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), status;
	char said[8] = "";
	pid_t pid;

	(void)state;
	if (terminal < 0 || grantpt(terminal) || unlockpt(terminal))
		skip();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(on_terminal(terminal));
	assert_int_equal(read(terminal, said, 4), 4);
	assert_string_equal(said, "said");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), PASSED);
	close(terminal);
}

static int try_limits(const struct sandbox_done *done)
{
	int fds[20], n = 0;

	(void)done;
	while (n < 20 && (fds[n] = dup(2)) >= 0)
		n++;
	if (n == 20)
		return 1;
	if (!SANDBOX_SANITIZED) {
		void *volatile p = malloc(256 << 20);

		if (p)
			return 2;
	}
	for (;;) /* the time limit ends it */
		;
}

static void test_limits(void **state)
{
	struct attempt a = { nobody(0), try_limits };

	(void)state;
	a.opts.files = 16;
	a.opts.memory = 128 << 20;
	a.opts.cpu_seconds = 1;
	a.opts.file_size = 1000;
	expect(a, 1000 + SIGKILL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_terminal),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
