/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/subprocess.h"

#define PASSED 42 /* an exit code that no failure has */

/* The exit code; 1000 and the signal's number where a signal ended it. */
static int code_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int outcome(const struct subprocess_opts *o)
{
	struct subprocess p;
	int status;

	assert_int_equal(subprocess__start(o, &p), 0);
	assert_true(subprocess__wait(&p, -1, &status));
	assert_int_equal(p.pid, 0);
	return code_of(status);
}

static int run(int (*main)(void *ctx), void *ctx)
{
	return outcome(&(struct subprocess_opts){ .main = main, .ctx = ctx });
}

/* ---- programs ---- */

/* Reads standard output of a program up to its end. */
static const char *output_of(struct subprocess_opts o, int *code)
{
	static char text[256];
	ssize_t n, len = 0;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	o.out = fds[1];
	*code = outcome(&o);
	close(fds[1]);
	while ((n = read(fds[0], text + len, sizeof(text) - 1 - (size_t)len)) > 0)
		len += n;
	close(fds[0]);
	text[len] = '\0';
	return text;
}

static void test_program(void **state)
{
	const char *argv[] = { "sh", "-c", "echo $A-$B-$C; exit 3", NULL };
	const char *env[] = { "A=1", "B", NULL };
	struct subprocess_opts o = { .program = "sh", .argv = argv, .env = env };
	int code;

	setenv("B", "2", 1);
	setenv("C", "3", 1);
	assert_string_equal(output_of(o, &code), "1--3\n");
	assert_int_equal(code, 3);
	o.program = "/bin/sh";
	o.empty_env = true;
	assert_string_equal(output_of(o, &code), "1--\n");
	/* The caller's environment stays as it is. */
	assert_string_equal(getenv("B"), "2");
	assert_null(getenv("A"));
}

static void test_refused(void **state)
{
	const char *argv[] = { "none", NULL };
	struct subprocess_opts o = { .program = "/nowhere/none",
				     .argv = argv,
				     .refused = "cannot run\n" };
	char text[32] = "";
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	o.err = fds[1];
	assert_int_equal(outcome(&o), 127);
	assert_int_equal(read(fds[0], text, sizeof(text) - 1), 11);
	assert_string_equal(text, "cannot run\n");
	close(fds[0]);
	close(fds[1]);
}

static void test_program_by_descriptor(void **state)
{
	const char *argv[] = { "true", NULL };
	struct subprocess_opts o = { .program = "/bin/false", .argv = argv };

	assert_int_equal(outcome(&o), 1);
	o.program_fd = open("/bin/true", O_RDONLY | O_CLOEXEC);
	assert_true(o.program_fd > 0);
	assert_int_equal(outcome(&o), 0);
	close(o.program_fd);
}

static int refuse(void *ctx)
{
	return *(int *)ctx;
}

static void test_prepare(void **state)
{
	const char *argv[] = { "true", NULL };
	int code = 9;
	struct subprocess_opts o = {
		.program = "/bin/true", .argv = argv, .prepare = refuse, .ctx = &code
	};

	assert_int_equal(outcome(&o), 9);
	code = 0;
	assert_int_equal(outcome(&o), 0);
}

/* ---- descriptors ---- */

static int given[3]; /* read ends of pipes that have "0", "1" and "2" in them */

static void open_given(void)
{
	int fds[2];

	for (int i = 0; i < 3; i++) {
		assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
		assert_int_equal(write(fds[1], "012" + i, 1), 1);
		close(fds[1]);
		given[i] = fds[0];
	}
}

static bool reads(int fd, char c)
{
	char got = 0;

	return read(fd, &got, 1) == 1 && got == c;
}

static int try_swapped(void *ctx)
{
	if (!reads(given[1], '0') || !reads(given[0], '1'))
		return 1;
	return fcntl(given[2], F_GETFD) < 0 ? PASSED : 2;
}

static int try_standard(void *ctx)
{
	for (int fd = 0; fd < 256; fd++)
		if ((fcntl(fd, F_GETFD) >= 0) != (fd < 3))
			return 1;
	if (read(0, (char[1]){ 0 }, 1) != 0)
		return 2;
	return write(1, "x", 1) == 1 ? PASSED : 3;
}

static int try_all(void *ctx)
{
	return reads(given[2], '2') ? PASSED : 1;
}

static void test_descriptors(void **state)
{
	const struct subprocess_fd swapped[] = { { given[0], given[1] }, { given[1], given[0] } };
	struct subprocess_opts o = { .main = try_swapped, .fds = swapped, .n_fds = 2 };

	assert_int_equal(outcome(&o), PASSED);
	assert_int_equal(run(try_standard, NULL), PASSED);
	o = (struct subprocess_opts){ .main = try_all, .keep_all_fds = true };
	assert_int_equal(outcome(&o), PASSED);
	o.n_fds = SUBPROCESS_FDS + 1;
	assert_int_equal(subprocess__start(&o, &(struct subprocess){ 0 }), -E2BIG);
}

/* A program gets the named descriptors open and no others. */
static void test_descriptors_of_program(void **state)
{
	const char *argv[] = { "sh", "-c", "for fd in /proc/self/fd/*; do echo ${fd##*/}; done",
			       NULL };
	const struct subprocess_fd seven = { given[0], 7 };
	struct subprocess_opts o = { .program = "sh", .argv = argv, .fds = &seven, .n_fds = 1 };
	const char *text;
	int code;

	assert_true(dup(given[1]) > 2); /* without close-on-exec */
	text = output_of(o, &code);
	assert_int_equal(code, 0);
	assert_memory_equal(text, "0\n1\n2\n", 6);
	text += 6;
	assert_true(!strcmp(text, "7\n") || !strcmp(text, "3\n7\n")); /* 3: of the shell's own */
}

static int try_closed(void *ctx)
{
	const int keep[] = { given[2], 1, given[0] };

	if (subprocess__close_others(keep, 3))
		return 1;
	if (fcntl(given[0], F_GETFD) < 0 || fcntl(given[2], F_GETFD) < 0 || fcntl(0, F_GETFD) < 0)
		return 2;
	return fcntl(given[1], F_GETFD) < 0 ? PASSED : 3;
}

static void test_close_others(void **state)
{
	assert_int_equal(
		outcome(&(struct subprocess_opts){ .main = try_closed, .keep_all_fds = true }),
		PASSED);
}

/* As Linux 5.10: close_range() does not know its flag; or as Linux before 5.9: it does not exist.
 * ctx: the errno. */
static int on_old_kernel(void *ctx)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | *(unsigned *)ctx),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return PASSED; /* no filters in this kernel */
	open_given();
	test_descriptors_of_program(NULL);
	test_descriptors(NULL);
	return try_closed(NULL);
}

static void test_descriptors_on_old_kernels(void **state)
{
	unsigned errors[] = { EINVAL, ENOSYS };

	(void)state;
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(outcome(&(struct subprocess_opts){ .main = on_old_kernel,
								    .ctx = &errors[i],
								    .keep_all_fds = true }),
				 PASSED);
}

/* ---- signals, groups, limits ---- */

static int try_signals(void *ctx)
{
	struct sigaction sa;
	sigset_t mask;
	bool ignored, blocked;

	if (sigaction(SIGPIPE, NULL, &sa) || sigprocmask(SIG_SETMASK, NULL, &mask))
		return 100;
	ignored = sa.sa_handler == SIG_IGN;
	blocked = sigismember(&mask, SIGUSR1);
	return 10 * ignored + blocked;
}

static void test_signals(void **state)
{
	struct subprocess_opts o = { .main = try_signals };
	sigset_t usr1, before;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, &before);
	assert_int_equal(outcome(&o), 0);
	o.keep_signals = true;
	assert_int_equal(outcome(&o), 11);
	sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGPIPE, SIG_DFL);
}

/* Where whoever started us ignores SIGCHLD the kernel would take the exit code away. */
static void test_ignored_end(void **state)
{
	int code = PASSED;

	signal(SIGCHLD, SIG_IGN);
	assert_int_equal(run(refuse, &code), PASSED);
	signal(SIGCHLD, SIG_DFL);
}

static int try_group(void *ctx)
{
	return 10 * (getpgid(0) == getpid()) + (getsid(0) == getpid());
}

static void test_group(void **state)
{
	struct subprocess_opts o = { .main = try_group };

	assert_int_equal(outcome(&o), 0);
	o.group = SUBPROCESS_OWN_GROUP;
	assert_int_equal(outcome(&o), 10);
	o.group = SUBPROCESS_OWN_SESSION;
	assert_int_equal(outcome(&o), 11);
}

static int try_limits(void *ctx)
{
	int n = 0;

	while (n < 20 && dup(2) >= 0)
		n++;
	if (n == 20)
		return 1;
	if (!setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 30, 30 }) && geteuid())
		return 2;
	for (;;) /* until the limit of time ends it */
		;
}

static void test_limits(void **state)
{
	const struct subprocess_limit limits[] = { { RLIMIT_NOFILE, 16 }, { RLIMIT_CPU, 1 } };
	struct subprocess_opts o = { .main = try_limits, .limits = limits, .n_limits = 2 };

	assert_int_equal(outcome(&o), 1000 + SIGKILL);
}

static int try_nice(void *ctx)
{
	return getpriority(PRIO_PROCESS, 0) - *(int *)ctx;
}

static void test_nice(void **state)
{
	int ours = getpriority(PRIO_PROCESS, 0);
	struct subprocess_opts o = { .main = try_nice, .ctx = &ours, .nice_by = 3 };

	assert_int_equal(outcome(&o), ours > 16 ? 19 - ours : 3);
}

/* ---- ends ---- */

static int wait_forever(void *ctx)
{
	while (pause()) /* it returns after signals that are handled, with -1 */
		;
	return 1;
}

static void test_wait(void **state)
{
	struct subprocess_opts o = { .main = wait_forever };
	struct subprocess p;
	int status;

	assert_int_equal(subprocess__start(&o, &p), 0);
	assert_false(subprocess__ended(&p, &status));
	assert_false(subprocess__wait(&p, 20, &status));
	subprocess__signal(&p, SIGTERM);
	assert_true(subprocess__wait(&p, 60000, &status));
	assert_int_equal(code_of(status), 1000 + SIGTERM);
	/* Nothing is left to wait for, or to end. */
	assert_false(subprocess__ended(&p, &status));
	assert_false(subprocess__wait(&p, 0, &status));
	subprocess__signal(&p, SIGKILL);
	subprocess__kill(&p);
	assert_int_equal(subprocess__start(&o, &p), 0);
	subprocess__kill(&p);
	assert_int_equal(p.pid, 0);
}

static int compute(void *ctx)
{
	volatile int more = 1;

	while (more)
		;
	return 1;
}

/* A process gets there at once, on a busy machine later. */
static bool comes_to(const struct subprocess *p, bool computes)
{
	for (int i = 0; i < 60000; i++) {
		if (subprocess__computes(p) == computes)
			return true;
		usleep(1000);
	}
	return false;
}

static void test_computes(void **state)
{
	struct subprocess p;

	assert_int_equal(subprocess__start(&(struct subprocess_opts){ .main = compute }, &p), 0);
	assert_true(comes_to(&p, true));
	subprocess__kill(&p);
	assert_false(subprocess__computes(&p));
	assert_int_equal(subprocess__start(&(struct subprocess_opts){ .main = wait_forever }, &p),
			 0);
	assert_true(comes_to(&p, false));
	subprocess__kill(&p);
}

/* Leaves a process behind that holds standard output. */
static int leave_one(void *ctx)
{
	pid_t pid = fork();

	if (!pid)
		wait_forever(ctx);
	return pid > 0 ? PASSED : 1;
}

static void test_ends_group(void **state)
{
	struct subprocess_opts o = { .main = leave_one,
				     .group = SUBPROCESS_OWN_GROUP,
				     .ends_group = true };
	int code;

	/* Standard output ends when the last process that has it open does. */
	assert_string_equal(output_of(o, &code), "");
	assert_int_equal(code, PASSED);
}

/* A user without rights, which makes the kernel forget the signal of a parent's end. */
static int change_user(void *ctx)
{
	return !geteuid() && setresuid(65534, 65534, 65534);
}

static int start_and_end(void *ctx)
{
	int (*prepare)(void *) = *(int (**)(void *))ctx;
	struct subprocess p;

	return subprocess__start(&(struct subprocess_opts){ .main = wait_forever,
							    .prepare = prepare,
							    .out = SUBPROCESS_INHERIT,
							    .death_signal = SIGKILL },
				 &p)
		       ? 1
		       : PASSED;
}

static void test_death_signal(void **state)
{
	int (*const prepares[])(void *ctx) = { NULL, change_user };
	int code;

	for (size_t i = 0; i < 2; i++) {
		struct subprocess_opts o = { .main = start_and_end, .ctx = (void *)&prepares[i] };

		assert_string_equal(output_of(o, &code), "");
		assert_int_equal(code, PASSED);
	}
}

static int set_up(void **state)
{
	open_given();
	return 0;
}

static int tear_down(void **state)
{
	for (int i = 0; i < 3; i++)
		close(given[i]);
	return 0;
}

#define TRIED_MS 300

/* Shared with the process that subprocess__try() starts. */
struct tried {
	atomic_uint progress;
	pid_t pid;
	enum { RETURNS, COMPUTES, GOES_ON, WAITS, IS_KILLED } how;
};

static int tried_process(void *ctx)
{
	uint64_t end = clock__monotonic() + 3 * TRIED_MS * UINT64_C(1000000);
	struct tried *t = ctx;

	t->pid = getpid();
	while (t->how == COMPUTES && clock__monotonic() < end)
		;
	for (int i = 0; t->how == GOES_ON && i < 12; i++) {
		usleep(TRIED_MS * 1000 / 4);
		atomic_fetch_add(&t->progress, 1);
	}
	while (t->how == WAITS)
		pause();
	if (t->how == IS_KILLED)
		raise(SIGKILL);
	return PASSED;
}

/* Only a process that waits without progress is given up, and then killed. */
static void test_try(void **state)
{
	static const int expected[] = { PASSED, PASSED, PASSED, -ETIMEDOUT, -EIO };
	struct tried *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			       -1, 0);
	struct subprocess_lost lost = { 0 };
	pid_t given_up = 0;
	siginfo_t end;

	assert_true(t != MAP_FAILED);
	for (int how = RETURNS; how <= IS_KILLED; how++) {
		*t = (struct tried){ .how = how };
		assert_int_equal(subprocess__try(tried_process, t, &t->progress, TRIED_MS, &lost),
				 expected[how]);
		if (how == WAITS) {
			assert_int_equal(waitid(P_PID, (id_t)t->pid, &end, WEXITED | WNOWAIT), 0);
			assert_int_equal(end.si_status, SIGKILL);
			assert_int_equal(lost.n, 1);
			assert_int_equal(lost.pid[0], t->pid);
			given_up = t->pid;
		}
	}
	/* The next one collected it. */
	assert_int_equal(lost.n, 0);
	assert_int_equal(waitid(P_PID, (id_t)given_up, &end, WEXITED | WNOHANG), -1);
	munmap(t, sizeof(*t));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_program),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_program_by_descriptor),
		cmocka_unit_test(test_prepare),
		cmocka_unit_test_setup_teardown(test_descriptors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_descriptors_of_program, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_close_others, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_descriptors_on_old_kernels, set_up, tear_down),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_ignored_end),
		cmocka_unit_test(test_group),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_nice),
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_computes),
		cmocka_unit_test(test_ends_group),
		cmocka_unit_test(test_death_signal),
		cmocka_unit_test(test_try),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
