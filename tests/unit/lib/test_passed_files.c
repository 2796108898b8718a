/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Files handed over by name, and recordings read through them. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* cmocka needs the headers above */

#include "base/io.h"

static int make(const char *text)
{
	int fd = memfd_create("handed", MFD_CLOEXEC);

	assert_true(fd > 2);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	return fd;
}

static void equals(int fd, const char *text)
{
	char buf[64] = "";

	assert_true(fd > 2);
	assert_int_equal(pread(fd, buf, sizeof(buf) - 1, 0), (ssize_t)strlen(text));
	assert_string_equal(buf, text);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
}

static void test_names(void **state)
{
	char long_name[300];

	assert_true(passed_files__good_name("trace_1705536000000.mtr"));
	assert_true(passed_files__good_name("a+b-c"));
	assert_false(passed_files__good_name(""));
	assert_false(passed_files__good_name("-"));
	assert_false(passed_files__good_name("."));
	assert_false(passed_files__good_name(".."));
	assert_false(passed_files__good_name("a/b"));
	assert_false(passed_files__good_name("a,b"));
	assert_false(passed_files__good_name("a:b"));
	assert_false(passed_files__good_name("a b"));
	memset(long_name, 'a', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	assert_false(passed_files__good_name(long_name));
	long_name[200] = '\0';
	assert_true(passed_files__good_name(long_name));
}

static void test_opens(void **state)
{
	int a = make("first"), b = make("second");
	struct stat st;
	char env[128];

	snprintf(env, sizeof(env), "%d:a.mtr,%d:aa.mtr", a, b);
	setenv(HANDED, env, 1);
	equals(passed_files__open("a.mtr"), "first");
	equals(passed_files__open("aa.mtr"), "second");
	assert_int_equal(passed_files__stat("aa.mtr", &st), 0);
	assert_int_equal(st.st_size, 6);
	/* Other names are opened as usual. */
	assert_int_equal(passed_files__open("aaa.mtr"), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(passed_files__open("./a.mtr"), -1);
	a = passed_files__open("/dev/null");
	assert_true(a > 2);
	close(a);
	assert_int_equal(passed_files__stat("/dev/null", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
}

/* The variable may have any content: only well-formed entries count, and never the standard
 * files. */
static void test_nonsense(void **state)
{
	static const char *const values[] = { "",	 ",",	     ",,,",
					      ":",	 "x:a.mtr",  "-1:a.mtr",
					      "0:a.mtr", "2:a.mtr",  "99999999999999999999:a.mtr",
					      "7",	 "7:",	     "7:a.mtrx",
					      "7:a.mt",	 " 7:a.mtr", "7 :a.mtr",
					      "7;a.mtr" };

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		setenv(HANDED, values[i], 1);
		assert_int_equal(passed_files__open("a.mtr"), -1);
		assert_int_equal(errno, ENOENT);
	}
	/* A descriptor that is not open. */
	setenv(HANDED, "60000:a.mtr", 1);
	assert_int_equal(passed_files__open("a.mtr"), -1);
	unsetenv(HANDED);
	assert_int_equal(passed_files__open("a.mtr"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_opens),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
