/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A program of another user gets no way to type into the terminal, and few variables. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/subprocess.h"
#include "base/user.h"

#define PASSED 42
#define NO_SECCOMP 43

/* ---- the terminal ---- */

/* A session of its own with a pseudo terminal as its controlling one. A descriptor of it. */
static int own_terminal(void)
{
	int ours = posix_openpt(O_RDWR | O_NOCTTY), theirs;

	if (ours < 0 || grantpt(ours) || unlockpt(ours))
		return -1;
	theirs = open(ptsname(ours), O_RDWR | O_NOCTTY);
	return theirs >= 0 && !ioctl(theirs, TIOCSCTTY, 0) ? theirs : -1;
}

static bool is_filtered(void)
{
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2;
}

#ifdef __x86_64__
/* An i386 call, which 64-bit programs can make, too. Its pointer is in the low 4 GiB. */
static long call_32(long nr, long a, long b, long c)
{
	long ret;

	__asm__ volatile("int $0x80"
			 : "=a"(ret)
			 : "a"(nr), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)ret;
}

static bool types_by_other_calls(int fd)
{
	static const long numbers[] = { 514, 0x40000000 | 514, 0x40000000 | SYS_ioctl };
	char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	long ret;

	if (low == MAP_FAILED)
		return true;
	*low = 'x';
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (syscall(numbers[i], fd, TIOCSTI, low) >= 0 || errno != EPERM)
			return true;
	ret = call_32(54, fd, TIOCSTI, (long)(uintptr_t)low);
	/* A kernel may have no i386 calls. Others than ioctl() work as before. */
	return ret != -ENOSYS && (ret != -EPERM || call_32(20, 0, 0, 0) != getpid());
}
#else
static bool types_by_other_calls(int fd)
{
	return fd < 0;
}
#endif

/* In a process with a terminal. */
static int try_to_type(void *ctx)
{
	int fd = own_terminal();
	struct winsize size;
	char c = 'x', two[] = { 3 };

	(void)ctx;
	if (fd < 0)
		return 1;
	if (user__guard_terminal())
		return 2;
	if (!is_filtered())
		return NO_SECCOMP;
	if (!ioctl(fd, TIOCSTI, &c) || errno != EPERM)
		return 3;
	if (!ioctl(fd, TIOCLINUX, two) || errno != EPERM)
		return 4;
	/* The kernel ignores the high half. */
	if (syscall(SYS_ioctl, fd, TIOCSTI | 1UL << 32, &c) >= 0 || errno != EPERM)
		return 5;
	if (types_by_other_calls(fd))
		return 6;
	return ioctl(fd, TIOCGWINSZ, &size) || tcsetpgrp(fd, getpgrp()) ? 7 : PASSED;
}

static int has_no_terminal(void *ctx)
{
	(void)ctx;
	return user__guard_terminal() || is_filtered() ? 1 : PASSED;
}

/* Exit code of a function in a session of its own, without a terminal yet. */
static int outcome(int (*main)(void *ctx))
{
	struct subprocess p;
	int status;

	assert_int_equal(
		subprocess__start(&(struct subprocess_opts){ .main = main,
							     .group = SUBPROCESS_OWN_SESSION },
				  &p),
		0);
	assert_true(subprocess__wait(&p, -1, &status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void test_no_call_types_into_the_terminal(void **state)
{
	int code = outcome(try_to_type);

	(void)state;
	if (code == NO_SECCOMP)
		skip();
	assert_int_equal(code, PASSED);
}

/* Programs without a terminal keep their speed, and their return probes on kernels that filter the
 * call of those. */
static void test_no_filter_without_a_terminal(void **state)
{
	(void)state;
	assert_int_equal(outcome(has_no_terminal), PASSED);
}

/* ---- the environment ---- */

static int sees_variables(void *ctx)
{
	(void)ctx;
	clearenv();
	if (setenv("AWS_SECRET_ACCESS_KEY", "x", 1) || setenv("AWS_REGION", "x", 1) ||
	    setenv("PATH", "x", 1) || setenv("LC_ALL", "x", 1) || setenv("HF_HOME", "x", 1) ||
	    setenv("PATHS", "x", 1))
		return 1;
	user__keep_variables("AWS_R*,HF_HOME");
	if (getenv("AWS_SECRET_ACCESS_KEY") || getenv("PATHS"))
		return 2;
	if (!getenv("PATH") || !getenv("LC_ALL") || !getenv("AWS_REGION") || !getenv("HF_HOME"))
		return 3;
	user__keep_variables("");
	return getenv("AWS_REGION") || getenv("HF_HOME") || !getenv("PATH") ? 4 : PASSED;
}

static void test_only_named_variables_stay(void **state)
{
	(void)state;
	assert_int_equal(outcome(sees_variables), PASSED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_call_types_into_the_terminal),
		cmocka_unit_test(test_no_filter_without_a_terminal),
		cmocka_unit_test(test_only_named_variables_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
