/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Variables of a process: as it set them, or as it was started with them. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inspect/proc.h"

/* A process that was started with RANK=3 and then set LATER=yes, removed GONE, and waits. */
struct started {
	pid_t pid;
	struct proc *proc;
	struct maps maps;
};

/* In the started program: it is this test with an argument. */
static int be_started(void)
{
	if (setenv("LATER", "yes", 1) || unsetenv("GONE") || write(STDOUT_FILENO, "r", 1) != 1)
		return 1;
	pause();
	return 0;
}

static void start(struct started *s)
{
	char *argv[] = { "test_environ", "started", NULL };
	char *envp[] = { "RANK=3", "GONE=1", "EMPTY=", "RANKS=4", NULL };
	char byte;
	int ready[2];

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (!s->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if an assertion fails */
		if (dup2(ready[1], STDOUT_FILENO) >= 0)
			execve("/proc/self/exe", argv, envp);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	s->proc = proc__open(s->pid);
	assert_non_null(s->proc);
	assert_int_equal(proc__maps(s->proc, &s->maps), 0);
}

static void stop(struct started *s)
{
	maps__free(&s->maps);
	proc__free(s->proc);
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
}

static void test_current(void **state)
{
	struct started s;
	char buf[16], small[3];

	start(&s);
	assert_int_equal(environ__get(s.proc, &s.maps, "RANK", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "3");
	assert_int_equal(environ__get(s.proc, &s.maps, "LATER", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "yes");
	assert_int_equal(environ__get(s.proc, &s.maps, "EMPTY", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "");
	assert_int_equal(environ__get(s.proc, &s.maps, "GONE", buf, sizeof(buf)), -ENOENT);
	assert_int_equal(environ__get(s.proc, &s.maps, "RAN", buf, sizeof(buf)), -ENOENT);
	assert_int_equal(environ__get(s.proc, &s.maps, "LATER", small, sizeof(small)), -E2BIG);
	stop(&s);
}

/* Before the C library is mapped, only the environment of the start is known. */
static void test_initial(void **state)
{
	const struct maps none = { 0 };
	struct started s;
	char buf[16], small[1];

	start(&s);
	assert_int_equal(environ__get(s.proc, &none, "RANK", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "3");
	assert_int_equal(environ__get(s.proc, &none, "EMPTY", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "");
	assert_int_equal(environ__get(s.proc, &none, "LATER", buf, sizeof(buf)), -ENOENT);
	assert_int_equal(environ__get(s.proc, &none, "RANK", small, sizeof(small)), -E2BIG);
	stop(&s);
}

static void test_ended(void **state)
{
	const struct maps none = { 0 };
	struct started s;
	char buf[16];

	start(&s);
	kill(s.pid, SIGKILL);
	assert_int_equal(waitpid(s.pid, NULL, 0), s.pid);
	assert_int_equal(environ__get(s.proc, &none, "RANK", buf, sizeof(buf)), -ESRCH);
	maps__free(&s.maps);
	proc__free(s.proc);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_current),
		cmocka_unit_test(test_initial),
		cmocka_unit_test(test_ended),
	};

	if (argc == 2 && !strcmp(argv[1], "started"))
		return be_started();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
