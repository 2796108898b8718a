/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads and writes of whole buffers. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"

static void test_read(void **state)
{
	char text[16] = "";
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(io__write(fds[1], "abc", 3), 0);
	close(fds[1]);
	assert_int_equal(io__read(fds[0], text, sizeof(text)), 3);
	assert_string_equal(text, "abc");
	assert_int_equal(io__read(fds[0], text, sizeof(text)), 0);
	close(fds[0]);
	assert_int_equal(io__read(-1, text, 1), -EBADF);
}

static void test_offset_and_load(void **state)
{
	int fd = memfd_create("test", MFD_CLOEXEC), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	char text[16] = "", *all;
	size_t size;

	assert_null(io__load(fd, 10, &size));
	assert_int_equal(errno, EPROTO);
	assert_int_equal(io__write(fd, "0123456789", 10), 0);
	assert_int_equal(io__pread(fd, text, sizeof(text), 7), 3);
	assert_string_equal(text, "789");
	all = io__load(fd, 10, &size);
	assert_non_null(all);
	assert_int_equal(size, 10);
	assert_memory_equal(all, "0123456789", 10);
	free(all);
	assert_null(io__load(fd, 9, &size));
	assert_int_equal(errno, EFBIG);
	close(fd);
	assert_int_equal(io__write(full, "a", 1), -ENOSPC);
	close(full);
}

static void test_is_program(void **state)
{
	assert_true(io__is_program("/proc/self/exe"));
	assert_false(io__is_program("/proc/self")); /* a folder can be entered, but not run */
	assert_false(io__is_program("/proc/self/none"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_offset_and_load),
		cmocka_unit_test(test_is_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
