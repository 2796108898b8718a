/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/outfile.h"

static char folder[64];
static char path[128];

static int enter(void **state)
{
	unsetenv("SUDO_UID");
	unsetenv("SUDO_GID");
	snprintf(folder, sizeof(folder), "/tmp/test_outfile.XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/out.json", folder);
	return 0;
}

static int entries(void)
{
	DIR *d = opendir(folder);
	int n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	closedir(d);
	return n;
}

static int leave(void **state)
{
	DIR *d = opendir(folder);

	for (struct dirent *e; d && (e = readdir(d));)
		unlinkat(dirfd(d), e->d_name, e->d_type == DT_DIR ? AT_REMOVEDIR : 0);
	closedir(d);
	return rmdir(folder);
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void assert_contents(const char *name, const char *want)
{
	char got[64] = "";
	FILE *f = fopen(name, "r");

	assert_non_null(f);
	assert_true(fread(got, 1, sizeof(got) - 1, f) == strlen(want));
	assert_string_equal(got, want);
	fclose(f);
}

static struct outfile *create(enum outfile_how how, bool force)
{
	struct outfile *o = NULL;

	assert_int_equal(outfile__create(path, how, force, &o), 0);
	assert_non_null(o);
	return o;
}

static void test_rename_appears_whole(void **state)
{
	struct outfile *o = create(OUTFILE_RENAME, false);
	struct stat st;

	fputs("hello", outfile__stream(o));
	assert_int_equal(access(path, F_OK), -1);
	assert_string_equal(outfile__name(o), path);
	assert_int_equal(outfile__commit(o), 0);
	assert_contents(path, "hello");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(entries(), 1);
}

static void test_never_overwrites(void **state)
{
	struct outfile *o = (void *)1;

	put(path, "old");
	assert_int_equal(outfile__create(path, OUTFILE_RENAME, false, &o), -EEXIST);
	assert_int_equal(outfile__create(path, OUTFILE_DIRECT, false, &o), -EEXIST);
	assert_ptr_equal(o, (void *)1);
	assert_contents(path, "old");
	assert_int_equal(entries(), 1);
}

static void test_never_overwrites_what_came_meanwhile(void **state)
{
	struct outfile *o = create(OUTFILE_RENAME, false);

	fputs("new", outfile__stream(o));
	put(path, "somebody's");
	assert_int_equal(outfile__commit(o), -EEXIST);
	assert_contents(path, "somebody's");
	assert_int_equal(entries(), 1);
}

static void test_force_replaces(void **state)
{
	struct outfile *o;
	int old;

	put(path, "old");
	old = open(path, O_RDONLY);
	o = create(OUTFILE_RENAME, true);
	fputs("new", outfile__stream(o));
	assert_contents(path, "old");
	assert_int_equal(outfile__commit(o), 0);
	assert_contents(path, "new");

	o = create(OUTFILE_DIRECT, true);
	assert_contents(path, "new"); /* the new content is not visible before the commit */
	outfile__discard(o);
	assert_contents(path, "new");
	assert_int_equal(entries(), 1);

	o = create(OUTFILE_DIRECT, true);
	assert_int_equal(outfile__replace(o), 0);
	assert_contents(path, "");
	assert_int_equal(write(outfile__fd(o), "direct", 6), 6);
	assert_contents(path, "direct");
	assert_int_equal(outfile__commit(o), 0);
	assert_contents(path, "direct");
	assert_int_equal(entries(), 1);
	close(old);
}

static void test_direct_is_there_at_once(void **state)
{
	struct outfile *o = create(OUTFILE_DIRECT, false);
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(write(outfile__fd(o), "abc", 3), 3);
	assert_int_equal(outfile__commit(o), 0);
	assert_contents(path, "abc");
}

static void test_discard_removes(void **state)
{
	struct outfile *o = create(OUTFILE_DIRECT, false);

	outfile__discard(o);
	assert_int_equal(entries(), 0);
	put(path, "old");
	o = create(OUTFILE_RENAME, true);
	fputs("new", outfile__stream(o));
	outfile__discard(o);
	assert_contents(path, "old");
	assert_int_equal(entries(), 1);
	outfile__discard(NULL);
}

static void test_discard_spares_others(void **state)
{
	struct outfile *o = create(OUTFILE_DIRECT, false);

	assert_int_equal(unlink(path), 0);
	put(path, "not ours");
	outfile__discard(o);
	assert_contents(path, "not ours");
}

static void test_links_are_refused(void **state)
{
	struct outfile *o = NULL;
	char other[128];

	snprintf(other, sizeof(other), "%s/victim", folder);
	put(other, "precious");
	assert_int_equal(symlink(other, path), 0);
	for (int force = 0; force < 2; force++) {
		assert_int_equal(outfile__create(path, OUTFILE_RENAME, force, &o), -ELOOP);
		assert_int_equal(outfile__create(path, OUTFILE_DIRECT, force, &o), -ELOOP);
	}
	assert_contents(other, "precious");
}

static void test_bad_names(void **state)
{
	struct outfile *o = NULL;
	char name[512];

	assert_int_equal(outfile__create("", OUTFILE_RENAME, true, &o), -ENOENT);
	assert_int_equal(outfile__create(folder, OUTFILE_RENAME, true, &o), -EISDIR);
	snprintf(name, sizeof(name), "%s/", folder);
	assert_int_equal(outfile__create(name, OUTFILE_RENAME, true, &o), -EISDIR);
	snprintf(name, sizeof(name), "%s/..", folder);
	assert_int_equal(outfile__create(name, OUTFILE_DIRECT, true, &o), -EISDIR);
	snprintf(name, sizeof(name), "%s/no/x", folder);
	assert_int_equal(outfile__create(name, OUTFILE_RENAME, false, &o), -ENOENT);
	snprintf(name, sizeof(name), "%s/%0300d", folder, 0);
	assert_int_equal(outfile__create(name, OUTFILE_DIRECT, false, &o), -ENAMETOOLONG);
	assert_int_equal(outfile__create(name, OUTFILE_RENAME, false, &o), -ENAMETOOLONG);
	assert_null(o);
	assert_int_equal(entries(), 0);
}

static void test_full_disk_is_told(void **state)
{
	struct outfile *o = NULL;
	struct stat st;

	assert_int_equal(outfile__create("/dev/full", OUTFILE_RENAME, false, &o), 0);
	fputs("x", outfile__stream(o));
	assert_int_equal(outfile__commit(o), -ENOSPC);
	/* Also if an early write failed. */
	assert_int_equal(outfile__create("/dev/full", OUTFILE_RENAME, true, &o), 0);
	for (int i = 0; i < 100000; i++)
		fputs("more than fits in any buffer\n", outfile__stream(o));
	assert_true(ferror(outfile__stream(o)));
	assert_int_equal(outfile__commit(o), -ENOSPC);
	assert_int_equal(stat("/dev/full", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
}

static void test_fifo_needs_force(void **state)
{
	struct outfile *o = NULL;
	char got[8];
	int r;

	assert_int_equal(mkfifo(path, 0600), 0);
	r = open(path, O_RDONLY | O_NONBLOCK);
	assert_true(r >= 0);
	assert_int_equal(outfile__create(path, OUTFILE_RENAME, false, &o), -EEXIST);
	o = create(OUTFILE_RENAME, true);
	fputs("pipe", outfile__stream(o));
	assert_int_equal(outfile__commit(o), 0);
	assert_int_equal(read(r, got, sizeof(got)), 4);
	close(r);
	assert_int_equal(entries(), 1);
}

static void test_belongs_to_sudo_user(void **state)
{
	struct outfile *o;
	struct stat st;

	if (geteuid() != 0) {
		print_message("needs root: skipped\n");
		skip();
	}
	setenv("SUDO_UID", "1234", 1);
	setenv("SUDO_GID", "2345", 1);
	o = create(OUTFILE_RENAME, false);
	assert_int_equal(outfile__commit(o), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 1234);
	assert_int_equal(st.st_gid, 2345);
	setenv("SUDO_UID", "12x", 1);
	o = create(OUTFILE_DIRECT, true);
	assert_int_equal(outfile__commit(o), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 0);
}

static void test_signal_removes(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		struct outfile *o = NULL;

		if (outfile__create(path, OUTFILE_RENAME, false, &o) || entries() != 1)
			_exit(1);
		outfile__discard_on_signal(o);
		raise(SIGTERM);
		_exit(2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
	assert_int_equal(entries(), 0);
}

/* The reason of an error is known after stdio has dropped what it could not write. */
static void test_flush(void **state)
{
	static char large[1 << 20];
	FILE *out = fopen("/dev/full", "we");

	assert_non_null(out);
	assert_int_equal(outfile__flush(out), 0);
	memset(large, 'x', sizeof(large) - 1);
	fputs(large, out);
	assert_int_equal(outfile__flush(out), -ENOSPC);
	fputs("short", out);
	assert_int_equal(outfile__flush(out), -ENOSPC);
	fclose(out);
}

#define T(name) cmocka_unit_test_setup_teardown(name, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_rename_appears_whole),
		T(test_never_overwrites),
		T(test_never_overwrites_what_came_meanwhile),
		T(test_force_replaces),
		T(test_direct_is_there_at_once),
		T(test_discard_removes),
		T(test_discard_spares_others),
		T(test_links_are_refused),
		T(test_bad_names),
		T(test_full_disk_is_told),
		T(test_flush),
		T(test_fifo_needs_force),
		T(test_belongs_to_sudo_user),
		T(test_signal_removes),
	};

	return cmocka_run_group_tests_name("outfile", tests, NULL, NULL);
}
