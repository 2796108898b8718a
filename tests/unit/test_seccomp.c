/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Return probes and seccomp filters: user/target/seccomp.h. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "target/seccomp.h"

static void filter(void)
{
	struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { 1, code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
}

static int mode_of_child(void (*prepare)(void))
{
	int ready[2], mode;
	struct proc *p;
	char c = 0;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		if (prepare)
			prepare();
		if (write(ready[1], &c, 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	p = proc__open(pid);
	assert_non_null(p);
	mode = seccomp__mode(p);
	proc__free(p);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ready[0]);
	close(ready[1]);
	return mode;
}

static void test_mode(void **state)
{
	(void)state;
	assert_int_equal(mode_of_child(filter), 2);
	if (!prctl(PR_GET_SECCOMP, 0, 0, 0, 0))
		assert_int_equal(mode_of_child(NULL), 0);
}

/* Before 6.11 there is no such call; from 6.14 on it is exempted. In between it depends. */
static void test_this_kernel(void **state)
{
	int major = 0, minor = 0;
	struct utsname un;

	(void)state;
	uname(&un);
	assert_int_equal(sscanf(un.release, "%d.%d", &major, &minor), 2);
	if (major == 6 && minor >= 11 && minor <= 13)
		skip();
	assert_false(seccomp__filters_returns());
	assert_false(seccomp__filters_returns()); /* and nothing is left of the child */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mode),
		cmocka_unit_test(test_this_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
