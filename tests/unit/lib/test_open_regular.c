/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Files that are opened, and special files that never are. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "unit/scratch.h"

static int dir = -1;

static int make(void **state)
{
	int fd;

	if (scratch__make(state))
		return -1;
	dir = open(scratch__path(), O_RDONLY | O_DIRECTORY);
	fd = openat(dir, "file", O_CREAT | O_WRONLY, 0600);
	if (fd < 0 || write(fd, "text", 4) != 4 || close(fd) || mkdirat(dir, "folder", 0700) ||
	    mkfifoat(dir, "fifo", 0600) || symlinkat("fifo", dir, "to-fifo") ||
	    symlinkat("file", dir, "to-file") || symlinkat("/file", dir, "from-root"))
		return -1;
	return 0;
}

static int drop(void **state)
{
	close(dir);
	return scratch__drop(state);
}

static void is_the_file(int fd)
{
	char buf[8] = "";

	assert_true(fd >= 0);
	assert_int_equal(read(fd, buf, sizeof(buf)), 4);
	assert_string_equal(buf, "text");
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(fd, F_SETFL, 0) == 0 && !(fcntl(fd, F_GETFL) & O_PATH));
	close(fd);
}

static void test_files(void **state)
{
	struct stat st;

	is_the_file(io__open_regular(dir, "file", LINKS_FOLLOW, &st));
	assert_true(st.st_size == 4);
	is_the_file(io__open_regular(dir, "file", LINKS_NONE, NULL));
	is_the_file(io__open_regular(dir, "to-file", LINKS_FOLLOW, NULL));
	is_the_file(io__open_regular(dir, "/from-root", LINKS_IN_ROOT, NULL));
	assert_int_equal(io__open_regular(dir, "to-file", LINKS_NONE, NULL), -ELOOP);
	assert_int_equal(io__open_regular(dir, "none", LINKS_NONE, NULL), -ENOENT);
	assert_int_equal(io__open_regular(dir, "folder", LINKS_FOLLOW, NULL), -EINVAL);
}

/* Opening a special file may act on it or wait. inotify shows each open. */
static void test_special_files_are_never_opened(void **state)
{
	static const enum io_links ways[] = { LINKS_FOLLOW, LINKS_IN_ROOT, LINKS_NONE };
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), fd;
	struct inotify_event event[16];
	char path[80];

	snprintf(path, sizeof(path), "%s/fifo", scratch__path());
	assert_true(watch >= 0 && inotify_add_watch(watch, path, IN_OPEN) > 0);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(io__open_regular(dir, "fifo", ways[i], NULL), -EINVAL);
		assert_int_equal(io__open_regular(dir, "to-fifo", ways[i], NULL),
				 ways[i] == LINKS_NONE ? -ELOOP : -EINVAL);
	}
	assert_int_equal(io__open_regular(AT_FDCWD, "/dev/ptmx", LINKS_FOLLOW, NULL), -EINVAL);
	assert_true(read(watch, event, sizeof(event)) < 0 && errno == EAGAIN);
	fd = open(path, O_RDONLY | O_NONBLOCK);
	assert_true(fd >= 0 && read(watch, event, sizeof(event)) > 0); /* an open shows */
	close(fd);
	close(watch);
}

/* Files of the kernel are regular ones by their mode. To read some of them takes what they show
 * from others: /proc/kmsg, trace_pipe. */
static void test_files_of_the_kernel_are_never_opened(void **state)
{
	static const char *const files[] = { "proc/self/status", "sys/kernel/uevent_seqnum",
					     "sys/fs/cgroup/cgroup.controllers" };
	int root = open("/", O_PATH | O_DIRECTORY), fd;
	char link[64];

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		struct stat st;

		if (fstatat(root, files[i], &st, 0) || !S_ISREG(st.st_mode))
			continue;
		snprintf(link, sizeof(link), "/%s", files[i]);
		assert_int_equal(symlinkat(link, dir, "to-kernel"), 0);
		fd = io__open_regular(root, files[i], LINKS_IN_ROOT, NULL);
		assert_int_equal(fd, -EINVAL);
		assert_int_equal(io__open_regular(dir, "to-kernel", LINKS_FOLLOW, NULL), -EINVAL);
		assert_int_equal(unlinkat(dir, "to-kernel", 0), 0);
	}
	close(root);
}

static void *in_a_thread(void *arg)
{
	int *ret = arg;

	*ret = unshare(CLONE_FILES) ? -errno : io__open_regular(dir, "file", LINKS_NONE, NULL);
	if (*ret >= 0)
		*ret = close(*ret);
	return NULL;
}

/* A thread with a table of descriptors of its own. */
static void test_a_table_of_its_own(void **state)
{
	pthread_t thread;
	int ret = -1;

	assert_int_equal(pthread_create(&thread, NULL, in_a_thread, &ret), 0);
	pthread_join(thread, NULL);
	assert_int_equal(ret, 0);
}

/* In a chroot without /proc: 0, or the step that failed. */
static int without_proc(void)
{
	int at, fd;

	if (chroot(scratch__path()) || chdir("/"))
		return 1;
	at = open("/", O_RDONLY | O_DIRECTORY);
	fd = io__open_regular(at, "file", LINKS_NONE, NULL);
	if (fd < 0 || close(fd))
		return 2;
	if (io__open_regular(at, "fifo", LINKS_NONE, NULL) != -EINVAL)
		return 3;
	if (io__open_regular(at, "to-file", LINKS_NONE, NULL) != -ELOOP)
		return 4;
	return io__open_regular(at, "/file", LINKS_IN_ROOT, NULL) == -ENOENT ? 0 : 5;
}

static void test_without_proc(void **state)
{
	pid_t pid;
	int status;

	if (geteuid())
		skip();
	pid = fork();
	if (!pid)
		_exit(without_proc());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_special_files_are_never_opened),
		cmocka_unit_test(test_files_of_the_kernel_are_never_opened),
		cmocka_unit_test(test_a_table_of_its_own),
		cmocka_unit_test(test_without_proc),
	};

	return cmocka_run_group_tests(tests, make, drop);
}
