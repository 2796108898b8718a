/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The folder of `serve`. */
#include "unit/cmocka.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka needs the headers above */

#include "serve/broker/store.h"
#include "unit/scratch.h"

static char root[] = "/tmp/test-store-XXXXXX";

static const char *path(const char *name)
{
	static char buf[256];

	snprintf(buf, sizeof(buf), "%s/%s", root, name);
	return buf;
}

static void put(const struct store *s, const char *name, const char *text)
{
	int fd = store__create(s, name);

	assert_true(fd > 2);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void test_files(void **state)
{
	struct store s;
	struct stat st;
	uint64_t size = 0;
	char why[256];
	int fd;

	assert_int_equal(store__open(&s, path("kept/"), why), 0);
	assert_false(s.own);
	assert_int_equal(stat(path("kept"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	put(&s, "a.mtr", "12345");
	assert_int_equal(store__create(&s, "a.mtr"), -EEXIST);
	assert_int_equal(stat(path("kept/a.mtr"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_true(store__has(&s, "a.mtr"));
	assert_false(store__has(&s, "b.mtr"));
	fd = store__open_file(&s, "a.mtr", &size);
	assert_true(fd > 2);
	assert_int_equal(size, 5);
	assert_int_equal(write(fd, "x", 1), -1); /* read-only */
	close(fd);
	put(&s, "b.mtr", "1");
	assert_int_equal(store__rename(&s, "b.mtr", "a.mtr"), -EEXIST);
	assert_int_equal(store__rename(&s, "b.mtr", "c.mtr"), 0);
	assert_int_equal(store__used(&s), 6);
	store__remove(&s, "c.mtr");
	assert_int_equal(store__used(&s), 5);
	assert_int_equal(store__open_file(&s, "c.mtr", &size), -ENOENT);
	store__close(&s);
	/* Closing the store keeps its files. */
	assert_int_equal(access(path("kept/a.mtr"), F_OK), 0);
	assert_int_equal(store__open(&s, path("kept"), why), 0);
	assert_true(store__has(&s, "a.mtr"));
	store__close(&s);
}

/* Foreign links are not followed, and FIFOs do not block. */
static void test_others(void **state)
{
	struct store s;
	uint64_t size;
	char why[256];

	assert_int_equal(store__open(&s, path("kept"), why), 0);
	assert_int_equal(symlinkat("/etc/passwd", s.dir, "link.mtr"), 0);
	assert_int_equal(store__open_file(&s, "link.mtr", &size), -ELOOP);
	assert_int_equal(store__create(&s, "link.mtr"), -EEXIST);
	assert_int_equal(mkfifoat(s.dir, "pipe.mtr", 0600), 0);
	assert_int_equal(store__open_file(&s, "pipe.mtr", &size), -EINVAL);
	assert_int_equal(mkdirat(s.dir, "folder.mtr", 0700), 0);
	assert_int_equal(store__open_file(&s, "folder.mtr", &size), -EINVAL);
	store__remove(&s, "folder.mtr"); /* a folder named like a recording is not removed */
	assert_true(store__has(&s, "folder.mtr"));
	assert_int_equal(store__used(&s), 5);
	unlinkat(s.dir, "folder.mtr", AT_REMOVEDIR);
	store__close(&s);
}

static void test_refused(void **state)
{
	struct store s, other;
	char why[256] = "", link[256];

	assert_int_equal(mkdir(path("open"), 0700), 0);
	assert_int_equal(chmod(path("open"), 0777), 0);
	assert_int_equal(store__open(&s, path("open"), why), -EPERM);
	assert_non_null(strstr(why, "others can write"));
	snprintf(link, sizeof(link), "%s", path("link"));
	assert_int_equal(symlink("kept", link), 0);
	assert_true(store__open(&s, link, why) < 0);
	assert_non_null(strstr(why, "symbolic link"));
	unlink(link);
	assert_int_equal(store__open(&s, path("none/there"), why), -ENOENT);
	assert_int_equal(store__open(&s, "", why), -EINVAL);
	assert_true(store__open(&s, path("kept/a.mtr"), why) < 0);
	/* A second server cannot open the folder. */
	assert_int_equal(store__open(&s, path("kept"), why), 0);
	assert_int_equal(store__open(&other, path("kept"), why), -EBUSY);
	assert_non_null(strstr(why, "another server"));
	store__close(&s);
	assert_int_equal(store__open(&other, path("kept"), why), 0);
	store__close(&other);
}

static size_t entries(const char *folder)
{
	DIR *d = opendir(folder);
	size_t n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += *e->d_name != '.';
	closedir(d);
	return n;
}

/* A temporary folder is removed with its content; that of a killed server by the next server. */
static void test_own(void **state)
{
	struct store s, next;
	char why[256], folder[256];
	struct stat st;

	snprintf(folder, sizeof(folder), "%s", path("tmp"));
	assert_int_equal(mkdir(folder, 0700), 0);
	setenv("TMPDIR", folder, 1);
	assert_int_equal(store__open(&s, NULL, why), 0);
	assert_true(s.own);
	assert_int_equal(fstat(s.dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	put(&s, "a.mtr", "1");
	put(&s, ".b.part", "1");
	/* Another server leaves it alone: it is locked. */
	assert_int_equal(store__open(&next, NULL, why), 0);
	assert_int_equal(entries(folder), 2);
	store__close(&next);
	assert_int_equal(entries(folder), 1);
	close(s.dir); /* releases the lock as a killed server does */
	s.dir = -1;
	assert_int_equal(store__open(&next, NULL, why), 0);
	assert_int_equal(entries(folder), 1);
	assert_int_equal(access(s.path, F_OK), -1);
	store__close(&next);
	assert_int_equal(entries(folder), 0);
	setenv("TMPDIR", path("not/there"), 1);
	assert_true(store__open(&s, NULL, why) < 0);
	assert_non_null(strstr(why, "-o FOLDER"));
	unsetenv("TMPDIR");
}

static int set_up(void **state)
{
	return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
	return scratch__remove(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_own),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
