/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inspect/arrival.h"

static volatile uint64_t *count; /* shared; written by the child */

static void nap(long ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static void on_signal(int number)
{
	_exit(number);
}

/* A child that counts until a signal, and exits with the signal's number. */
static pid_t runner(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	signal(SIGUSR1, on_signal);
	signal(SIGTERM, on_signal);
	for (;;)
		++*count;
}

static bool runs(void)
{
	uint64_t before = *count;
	int i;

	for (i = 0; i < 100 && *count == before; i++)
		nap(10);
	return *count != before;
}

static int end(pid_t pid, int number)
{
	int status = 0;

	if (number)
		kill(pid, number);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_hold_and_release(void **state)
{
	struct ptrace_hold h = { 0 };
	pid_t pid = runner();
	uint64_t before;
	int i, status;

	assert_true(runs());
	for (i = 0; i < 5; i++) {
		assert_int_equal(ptrace_hold__take(&h, pid), 0);
		before = *count;
		nap(30);
		assert_int_equal(*count, before);
		ptrace_hold__release(&h);
		assert_true(runs());
		ptrace_hold__release(&h); /* releasing a process that is not held has no effect */
	}
	status = end(pid, SIGUSR1);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == SIGUSR1);
}

/* A child mostly in system calls, with children that it waits for. */
static pid_t worker(void)
{
	pid_t pid = fork(), child;
	char *p;
	int i;

	if (pid)
		return pid;
	for (;;) {
		p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (i = 0; p != MAP_FAILED && i < 1 << 20; i += 4096)
			p[i] = 1;
		munmap(p, 1 << 20);
		child = ++*count % 16 ? -1 : vfork();
		if (!child)
			_exit(0);
		if (child > 0)
			waitpid(child, NULL, 0);
	}
}

static void test_many_times(void **state)
{
	pid_t pid = worker();
	int i;

	for (i = 0; i < 3000; i++) {
		struct ptrace_hold h = { 0 };

		assert_int_equal(ptrace_hold__take(&h, pid), 0);
		ptrace_hold__release(&h);
		assert_true(i % 10 || runs());
	}
	end(pid, SIGKILL);
}

/* A signal that arrives while the child is held is delivered afterwards. */
static void test_signal_waits(void **state)
{
	struct ptrace_hold h = { 0 };
	pid_t pid = runner();
	int status;

	assert_true(runs());
	assert_int_equal(ptrace_hold__take(&h, pid), 0);
	kill(pid, SIGTERM);
	nap(20);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	ptrace_hold__release(&h);
	status = end(pid, 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == SIGTERM);
}

/* Frequent signals, one while the child is being stopped: none is lost. */
static void test_signal_on_its_way(void **state)
{
	struct ptrace_hold h;
	int i, status;

	for (i = 0; i < 200; i++) {
		pid_t pid = runner();

		if (i % 2)
			nap(i % 5);
		kill(pid, i % 3 ? SIGKILL : SIGTERM);
		h = (struct ptrace_hold){ 0 };
		ptrace_hold__take(&h, pid);
		ptrace_hold__release(&h);
		status = end(pid, 0);
		if (i % 3)
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else /* its handler may not have been installed yet */
			assert_true(WIFEXITED(status) ? WEXITSTATUS(status) == SIGTERM
						      : WTERMSIG(status) == SIGTERM);
	}
}

static void test_one_that_was_stopped_stays_so(void **state)
{
	struct ptrace_hold h = { 0 };
	pid_t pid = runner();
	uint64_t before;
	int status;

	assert_true(runs());
	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_int_equal(ptrace_hold__take(&h, pid), 0);
	ptrace_hold__release(&h);
	before = *count;
	nap(50);
	assert_int_equal(*count, before);
	kill(pid, SIGCONT);
	assert_true(runs());
	end(pid, SIGKILL);
}

/* If the holder ends, the child continues. */
static void test_holder_killed(void **state)
{
	int tell[2], status;
	pid_t holder, pid = 0;
	char c;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	assert_int_equal(pipe(tell), 0);
	holder = fork();
	if (!holder) {
		struct ptrace_hold h = { 0 };

		pid = runner();
		if (ptrace_hold__take(&h, pid) || write(tell[1], &pid, sizeof(pid)) != sizeof(pid))
			_exit(1);
		pause();
		_exit(1);
	}
	assert_int_equal(read(tell[0], &pid, sizeof(pid)), sizeof(pid));
	end(holder, SIGKILL);
	assert_true(runs());
	status = end(pid, SIGUSR1);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == SIGUSR1);
	close(tell[1]);
	assert_int_equal(read(tell[0], &c, 1), 0);
	close(tell[0]);
}

static void test_cannot_be(void **state)
{
	struct ptrace_hold h = { 0 };
	pid_t pid = fork();
	siginfo_t si;

	if (!pid)
		_exit(7);
	assert_int_equal(waitid(P_PID, pid, &si, WEXITED | WNOWAIT), 0);
	assert_true(ptrace_hold__take(&h, pid) < 0);
	assert_int_equal(h.pid, 0);
	assert_int_equal(WEXITSTATUS(end(pid, 0)), 7);
	assert_int_equal(ptrace_hold__take(&h, pid), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hold_and_release),
		cmocka_unit_test(test_many_times),
		cmocka_unit_test(test_signal_waits),
		cmocka_unit_test(test_signal_on_its_way),
		cmocka_unit_test(test_one_that_was_stopped_stays_so),
		cmocka_unit_test(test_holder_killed),
		cmocka_unit_test(test_cannot_be),
	};

	count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (count == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
