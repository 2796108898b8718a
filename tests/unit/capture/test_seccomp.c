/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Return probes and seccomp filters: user/inspect/container.h. */
#include "unit/cmocka.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/probes/probes_internal.h"
#include "inspect/container.h"

static void filter(void)
{
	struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { 1, code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
}

struct child {
	struct proc *p;
	pid_t pid;
};

static struct child start(void (*prepare)(void))
{
	struct child ret;
	int ready[2];
	char c = 0;

	assert_int_equal(pipe(ready), 0);
	ret.pid = fork();
	if (!ret.pid) {
		if (prepare)
			prepare();
		if (write(ready[1], &c, 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	ret.p = proc__open(ret.pid);
	assert_non_null(ret.p);
	return ret;
}

static void end(struct child *c)
{
	proc__free(c->p);
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
}

static int mode_of_child(void (*prepare)(void))
{
	struct child c = start(prepare);
	int mode = seccomp__mode(c.p);

	end(&c);
	return mode;
}

static void test_mode(void **state)
{
	assert_int_equal(mode_of_child(filter), 2);
	if (!prctl(PR_GET_SECCOMP, 0, 0, 0, 0))
		assert_int_equal(mode_of_child(NULL), 0);
}

/* Before 6.11 the call does not exist; from 6.14 on it is exempt; in between it depends on the
 * kernel. */
static void test_this_kernel(void **state)
{
	int major = 0, minor = 0;
	struct utsname un;

	uname(&un);
	assert_int_equal(sscanf(un.release, "%d.%d", &major, &minor), 2);
	if (major == 6 && minor >= 11 && minor <= 13)
		skip();
	assert_false(seccomp__filters_returns());
	assert_false(seccomp__filters_returns()); /* the check leaves no child */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static void *filtered_thread(void *ready)
{
	char c = 0;

	filter();
	if (write(*(int *)ready, &c, 1) == 1)
		pause();
	return NULL;
}

static void in_a_thread(void)
{
	int done[2];
	pthread_t t;
	char c;

	if (pipe(done) || pthread_create(&t, NULL, filtered_thread, &done[1]) ||
	    read(done[0], &c, 1) != 1)
		_exit(1);
}

static void test_filter_of_a_thread(void **state)
{
	assert_int_equal(mode_of_child(in_a_thread), 2);
}

static bool allows_child(void (*prepare)(void))
{
	struct child c = start(prepare);
	bool ret = seccomp__allows_returns(c.p);

	end(&c);
	return ret;
}

/* By kernel, filter and group: whether the process gets return probes, and others. */
static int decide(bool defect)
{
	struct probes one = { 0 }, group = { .group_id = 1 };
	int wrong = 0;

	if (defect)
		setenv("MEMTRACE_FILTERED_RETURNS", "1", 1);
	group.calls_each = seccomp__filters_returns();
	wrong += seccomp__filters_returns() != defect;
	wrong += allows_child(filter) == defect;
	wrong += allows_child(in_a_thread) == defect;
	wrong += !prctl(PR_GET_SECCOMP, 0, 0, 0, 0) && !allows_child(NULL);
	wrong += probes__calls_pid(&one, 42, NULL) != 42;
	wrong += probes__calls_pid(&group, 42, NULL) != (defect ? 42 : 0);
	return wrong;
}

/* Each in a child: the kernel is tested once per process. Runs before other tests that test it
 * here. */
static int decided(bool defect)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(decide(defect));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_who_gets_return_probes(void **state)
{
	assert_int_equal(decided(true), 0);
	if (seccomp__filters_returns())
		skip();
	assert_int_equal(decided(false), 0);
}

static void test_shadow_stacks(void **state)
{
	assert_true(proc__says_shadow_stack(
		"Name:\tx\nx86_Thread_features:\tshstk wrss\nx86_Thread_features_locked:\t\n"));
	assert_false(proc__says_shadow_stack(
		"x86_Thread_features:\t\nx86_Thread_features_locked:\tshstk\n"));
	assert_false(proc__says_shadow_stack("Name:\tx86_Thread_features: shstk\n"));
	assert_false(proc__says_shadow_stack(""));
	assert_false(seccomp__keeps_shadow_stack("6.8.0-31-generic"));
	assert_true(seccomp__keeps_shadow_stack("6.11.0"));
	assert_true(seccomp__keeps_shadow_stack("7.0.1-arch"));
	assert_false(seccomp__keeps_shadow_stack("strange"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mode),
		cmocka_unit_test(test_shadow_stacks),
		cmocka_unit_test(test_filter_of_a_thread),
		cmocka_unit_test(test_who_gets_return_probes),
		cmocka_unit_test(test_this_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
