/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Use of the terminal by a process without rights. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/sandbox_attempt.h"
#include "serve/server/sandbox.h"

/* A session on its own terminal with input. */
static int try_terminal(const struct sandbox_done *done)
{
	char c = 'x', buf[8];

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
