/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Descriptors in threads with a table of their own: user/capture/kernel/holder.h. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/kernel/holder.h"

#define N 8

/* A pipe whose end `write` the holder keeps. Its end shows at `read`. */
struct kept {
	int read, write;
	struct holder *h;
};

static struct kept keep(bool own_table)
{
	struct kept k;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	k.read = fds[0];
	k.write = fds[1];
	k.h = holder__new(k.write, own_table);
	assert_non_null(k.h);
	return k;
}

static bool is_open_here(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* Waits until no process has the other end open, for at most timeout ms. True: it is closed. */
static bool has_ended(int fd, int timeout)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, timeout) == 1 && p.revents & POLLHUP;
}

static void test_keeps_until_closed(void **state)
{
	for (int own_table = 0; own_table < 2; own_table++) {
		struct kept k = keep(own_table);

		assert_int_equal(is_open_here(k.write), !own_table);
		assert_false(has_ended(k.read, 0));
		holder__close(k.h);
		assert_true(has_ended(k.read, 0));
		assert_false(is_open_here(k.write));
		close(k.read);
	}
	holder__close(NULL);
	holder__drop(NULL);
}

static void test_keeps_nothing_else(void **state)
{
	int fds[2];
	struct kept k;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	k = keep(true);
	close(fds[1]);
	assert_true(has_ended(fds[0], 0));
	holder__close(k.h);
	close(fds[0]);
	close(k.read);
}

static void test_begin_and_drop(void **state)
{
	for (int own_table = 0; own_table < 2; own_table++) {
		struct kept k = keep(own_table), l = keep(own_table);

		holder__begin_close(k.h);
		assert_true(has_ended(k.read, 10000));
		holder__close(k.h);
		holder__drop(l.h);
		assert_true(has_ended(l.read, 10000));
		close(k.read);
		close(l.read);
	}
}

/* However the process ends, nothing of it keeps the descriptors. */
static void test_ends_with_the_process(void **state)
{
	int read_ends[N], fds[2], status;
	char c;
	pid_t child;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	for (int i = 0; i < N; i++) {
		int p[2];

		assert_int_equal(pipe2(p, O_CLOEXEC), 0);
		read_ends[i] = p[0];
		assert_int_equal(dup2(p[1], 100 + i), 100 + i);
		close(p[1]);
	}
	child = fork();
	if (!child) {
		for (int i = 0; i < N; i++) {
			if (!holder__new(100 + i, true) || is_open_here(100 + i))
				_exit(1);
		}
		if (write(fds[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	for (int i = 0; i < N; i++)
		close(100 + i);
	close(fds[1]);
	assert_int_equal(read(fds[0], &c, 1), 1);
	for (int i = 0; i < N; i++)
		assert_false(has_ended(read_ends[i], 0));
	kill(child, SIGKILL);
	for (int i = 0; i < N; i++) {
		assert_true(has_ended(read_ends[i], 10000));
		close(read_ends[i]);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	close(fds[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keeps_until_closed),
		cmocka_unit_test(test_keeps_nothing_else),
		cmocka_unit_test(test_begin_and_drop),
		cmocka_unit_test(test_ends_with_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
