/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Folders of recordings: an index written here, by several processes at once, and by hostile
 * writers. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/folder.h"
#include "unit/scratch.h"

static const char *in(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", scratch__path(), name);
	return path;
}

static struct folder_entry entry(const char *file, const char *begin)
{
	struct folder_entry e = { .pid = 4242,
				  .rank = -1,
				  .first_step = 2,
				  .last_step = 6,
				  .from = 1234567890123,
				  .to = 1234567890124,
				  .events = 7,
				  .lost = 1,
				  .bytes = UINT64_C(1) << 40,
				  .n_devices = 1 };

	snprintf(e.file, sizeof(e.file), "%s", file);
	snprintf(e.begin, sizeof(e.begin), "%s", begin);
	strcpy(e.kind, "window");
	strcpy(e.name, "bf16 \"\xc3\xa9\" \x1b[2J");
	strcpy(e.ended, "steps");
	e.devices[0] = (struct folder_device){ "cuda:0", 4, 3, 2, 1 };
	return e;
}

static void test_round_trip(void **state)
{
	struct folder_entry a = entry("a.mtr", "2026-01-02T03:04:06.000Z"),
			    b = entry("b.mtr", "2026-01-02T03:04:05.000Z");
	const struct folder_entry *got;
	struct folder *f, *again;
	size_t n;

	assert_true(folder__wanted(in("w/")));
	assert_false(folder__wanted(in("w")));
	assert_int_equal(folder__create(in("w/"), false, &f), 0);
	assert_true(folder__wanted(in("w")));
	assert_true(folder__is(in("w")));
	assert_int_equal(folder__add(f, &a), 0);
	assert_int_equal(folder__add(f, &b), 0);
	assert_int_equal(folder__read(in("w"), &again, NULL), 0);
	got = folder__entries(again, &n);
	assert_int_equal(n, 2);
	assert_memory_equal(&got[0], &b, sizeof(b)); /* sorted by time */
	assert_memory_equal(&got[1], &a, sizeof(a));
	folder__free(again);
	a.events = 8;
	assert_int_equal(folder__add(f, &a), 0); /* inserted at its place */
	got = folder__entries(f, &n);
	assert_int_equal(n, 2);
	assert_int_equal(got[1].events, 8);
	folder__free(f);
}

static void test_sandbox(void **state)
{
	struct folder_entry a = entry("a.mtr", "1"), b = entry("b.mtr", "2"),
			    c = entry("c.mtr", "3");
	const struct folder_gap one = { 5, 7, 10, 100, "room" }, two = { 7, 9, 1, 10, "room" },
				apart = { 20, 30, 0, 0, "detached" };
	const struct folder_gap *gaps;
	struct folder *f;
	size_t n;

	assert_int_equal(folder__create(in("w"), false, &f), 0);
	assert_int_equal(folder__add(f, &a), 0);
	assert_int_equal(folder__add(f, &b), 0);
	assert_int_equal(folder__add(f, &c), 0);
	scratch__write(in("w/a.mtr"), "x");
	assert_int_equal(folder__drop(f, "a.mtr", &one), 0);
	assert_int_equal(access(in("w/a.mtr"), F_OK), -1);
	assert_int_equal(folder__drop(f, "b.mtr", &two), 0);
	assert_int_equal(folder__drop(f, "c.mtr", &apart), 0);
	assert_int_equal(folder__drop(f, "../x", NULL), -EINVAL);
	folder__entries(f, &n);
	assert_int_equal(n, 0);
	gaps = folder__gaps(f, &n);
	assert_int_equal(n, 2);
	assert_true(gaps[0].from == 5 && gaps[0].to == 9 && gaps[0].events == 11 &&
		    gaps[0].bytes == 110);
	assert_string_equal(gaps[1].why, "detached");
	folder__free(f);
}

/* New names must not exist yet and must not leave the folder. */
static void test_names(void **state)
{
	struct folder_entry e = entry("../evil.mtr", "1");
	struct folder *f;
	char *path;

	assert_int_equal(folder__create(in("w"), false, &f), 0);
	path = folder__new_path(f, "../bf 16/x", ".mtr");
	assert_string_equal(path, in("w/_._bf_16_x.mtr"));
	scratch__write(path, "");
	free(path);
	path = folder__new_path(f, "../bf 16/x", ".mtr");
	assert_string_equal(path, in("w/_._bf_16_x-2.mtr"));
	free(path);
	/* New names drop invalid UTF-8 and control characters, and keep other scripts. */
	path = folder__new_path(f, "tr\xe9in \xc3\xa9t\xc3\xa9\xc2\x9b\xe2\x80\xae\xe6\xbc\xa2",
				".mtr");
	assert_string_equal(path, in("w/tr_in_\xc3\xa9t\xc3\xa9__\xe6\xbc\xa2.mtr"));
	free(path);
	assert_int_equal(folder__add(f, &e), -EINVAL);
	strcpy(e.file, FOLDER_INDEX);
	assert_int_equal(folder__add(f, &e), -EINVAL);
	strcpy(e.file, ".hidden");
	assert_int_equal(folder__add(f, &e), -EINVAL);
	folder__free(f);
}

static void test_listing(void **state)
{
	struct folder *f;

	assert_int_equal(mkdir(in("theirs"), 0700), 0);
	scratch__write(in("theirs/thesis.tex"), "");
	assert_int_equal(folder__create(in("theirs"), false, &f), -ENOTEMPTY);
	assert_int_equal(folder__create(in("theirs"), true, &f), 0);
	folder__free(f);
	assert_int_equal(folder__create(in("theirs"), false, &f), 0); /* the folder exists by now */
	folder__free(f);
	assert_int_equal(symlink("theirs", in("to-theirs")), 0);
	assert_false(folder__wanted(in("to-theirs")));
	assert_int_equal(folder__create(in("to-theirs"), true, &f), -ELOOP);
	assert_true(folder__wanted(in("to-theirs/"))); /* explicitly named as a folder */
	assert_int_equal(folder__create(in("to-theirs/"), false, &f), 0);
	folder__free(f);
	scratch__write(in("file"), "");
	assert_int_equal(folder__create(in("file"), false, &f), -ENOTDIR);
	assert_int_equal(folder__create(in("no/such"), false, &f), -ENOENT);
	assert_int_equal(mkdir(in("plain"), 0700), 0);
	assert_int_equal(folder__read(in("plain"), &f, NULL), -ENOENT);
	assert_int_equal(mkdir(in("linked"), 0700), 0);
	assert_int_equal(symlink("../theirs/" FOLDER_INDEX, in("linked/" FOLDER_INDEX)), 0);
	assert_false(folder__is(in("linked")));
	assert_int_equal(folder__read(in("linked"), &f, NULL), -ELOOP);
}

#define HEAD "{\"memtrace_folder\": 1, \"recordings\": ["
#define REST                                                                                       \
	"\"kind\": \"window\", \"from\": 0, \"to\": 1, \"events\": 0, \"lost\": 0, \"bytes\": 0, " \
	"\"devices\": []}"

static void test_hostile(void **state)
{
	static const struct {
		const char *text;
		int err;
	} list[] = {
		{ HEAD "]}", 0 },
		{ HEAD "{\"file\": \"a.mtr\", " REST "]}", 0 },
		{ "", -EBADMSG },
		{ "[]", -EBADMSG },
		{ "{\"memtrace_folder\": 2, \"recordings\": []}", -EPROTONOSUPPORT },
		{ "{\"memtrace_folder\": 0, \"recordings\": []}", -EBADMSG },
		{ HEAD "7]}", -EBADMSG },
		{ HEAD "{\"file\": \"../../etc/passwd\", " REST "]}", -EBADMSG },
		{ HEAD "{\"file\": \"/etc/passwd\", " REST "]}", -EBADMSG },
		{ HEAD "{\"file\": \"\", " REST "]}", -EBADMSG },
		{ HEAD "{\"file\": \"a\\u0000b\", " REST "]}", -EBADMSG },
		{ HEAD "{\"file\": \"a.mtr\", \"pid\": -1, " REST "]}", -EBADMSG },
		{ HEAD "{\"file\": \"a.mtr\", \"name\": 3, " REST "]}", -EBADMSG },
		{ HEAD "{\"file\": \"a.mtr\", \"kind\": \"window\", \"from\": -1, \"to\": 1, "
		       "\"events\": 0, \"lost\": 0, \"bytes\": 0, "
		       "\"devices\": []}]}",
		  -EBADMSG },
		{ HEAD "{\"file\": \"a.mtr\", \"kind\": \"window\", \"from\": 1e300, \"to\": 1, "
		       "\"events\": 0, \"lost\": 0, \"bytes\": 0, "
		       "\"devices\": []}]}",
		  -EBADMSG },
		{ HEAD "{\"file\": \"a.mtr\", \"kind\": \"window\", \"from\": 1, \"to\": 1, "
		       "\"events\": 0, \"lost\": 0, \"bytes\": 0, "
		       "\"devices\": [{\"device\": \"\"}]}]}",
		  -EBADMSG },
		{ HEAD "], \"gaps\": [{\"from\": 0}]}", -EBADMSG },
	};
	struct folder *f;
	const char *why = NULL;

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		mkdir(in("h"), 0700);
		scratch__write(in("h/" FOLDER_INDEX), list[i].text);
		assert_int_equal(folder__read(in("h"), &f, &why), list[i].err);
		if (!list[i].err)
			folder__free(f);
		else if (list[i].err == -EBADMSG)
			assert_non_null(why);
	}
	/* A refused index file is not overwritten. */
	assert_int_equal(folder__create(in("h"), true, &f), -EBADMSG);
}

/* Several captures write at once: no entry is lost. */
static void test_many_writers(void **state)
{
	struct folder *f;
	pid_t pids[4];
	size_t n;
	int status;

	for (int p = 0; p < 4; p++) {
		pids[p] = fork();
		if (pids[p])
			continue;
		if (folder__create(in("w"), false, &f))
			_exit(1);
		for (int i = 0; i < 10; i++) {
			char name[32];
			struct folder_entry e;

			snprintf(name, sizeof(name), "%d-%d.mtr", p, i);
			e = entry(name, "now");
			if (folder__add(f, &e))
				_exit(2);
		}
		_exit(0);
	}
	for (int p = 0; p < 4; p++) {
		assert_int_equal(waitpid(pids[p], &status, 0), pids[p]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(folder__read(in("w"), &f, NULL), 0);
	folder__entries(f, &n);
	assert_int_equal(n, 40);
	folder__free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_round_trip, scratch__make, scratch__drop),
		cmocka_unit_test_setup_teardown(test_sandbox, scratch__make, scratch__drop),
		cmocka_unit_test_setup_teardown(test_names, scratch__make, scratch__drop),
		cmocka_unit_test_setup_teardown(test_listing, scratch__make, scratch__drop),
		cmocka_unit_test_setup_teardown(test_hostile, scratch__make, scratch__drop),
		cmocka_unit_test_setup_teardown(test_many_writers, scratch__make, scratch__drop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
