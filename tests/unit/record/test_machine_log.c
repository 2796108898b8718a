/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The machine's recording: what is written is read, whole or cut anywhere, and its size has a
 * bound. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/machine_log.h"

#define ROWS 12
#define MOST (64u << 10) /* bytes of the recording */

struct seen {
	uint64_t n, last;
	bool bad;
};

static void take(void *ctx, const struct machine_row *row)
{
	struct seen *s = ctx;

	s->n++;
	s->bad |= row->time <= s->last || row->total != 1000 || row->lines != 2 ||
		  strcmp(row->line[1].key, "free") != 0 || row->line[0].bytes != -5 ||
		  row->process[0].pid != 42 || !row->all ||
		  strcmp(row->process[0].command, "a \"b\"") != 0;
	s->last = row->time;
}

static struct machine_row make_row(uint64_t i)
{
	struct machine_row r = { .time = i + 1,
				 .uptime = i + 1,
				 .every = 1,
				 .boot = "boot",
				 .total = 1000,
				 .available = 7,
				 .large = 3,
				 .lines = 2,
				 .processes = 1,
				 .all = true,
				 .gpus = 1 };

	snprintf(r.line[0].key, sizeof(r.line[0].key), "not_explained");
	r.line[0].bytes = -5;
	snprintf(r.line[1].key, sizeof(r.line[1].key), "free");
	r.line[1].bytes = (int64_t)i;
	r.process[0].pid = 42;
	snprintf(r.process[0].command, sizeof(r.process[0].command), "a \"b\"");
	snprintf(r.gpu[0].name, sizeof(r.gpu[0].name), "GB10");
	return r;
}

static void make_folder(char *path)
{
	strcpy(path, "/tmp/test_machine_log.XXXXXX");
	assert_non_null(mkdtemp(path));
}

static void remove_folder(const char *path)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", path);
	assert_int_equal(system(command), 0);
}

static void write_rows(const char *folder, uint64_t from, uint64_t n)
{
	struct machine_log *l;

	assert_int_equal(machine_log__open(folder, MOST, &l), 0);
	for (uint64_t i = from; i < from + n; i++) {
		struct machine_row r = make_row(i);

		assert_int_equal(machine_log__write(l, &r), 0);
	}
	machine_log__close(l);
}

static struct seen read_rows(const char *folder, uint64_t *damaged)
{
	struct seen s = { 0 };
	bool running;

	assert_int_equal(machine_log__read(folder, take, &s, damaged, &running), 0);
	assert_false(running || s.bad);
	return s;
}

/* As after a power loss: the file ends at any byte. All whole lines are read, and another recorder
 * goes on behind them. */
static void test_cut_anywhere(void **state)
{
	char folder[64], path[96];
	uint64_t damaged;
	struct stat st;

	make_folder(folder);
	snprintf(path, sizeof(path), "%s/machine.log", folder);
	write_rows(folder, 0, ROWS);
	assert_true(machine_log__is(folder));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	for (off_t size = st.st_size; size >= 0; size--) {
		struct seen s;

		assert_int_equal(truncate(path, size), 0);
		s = read_rows(folder, &damaged);
		assert_true(damaged <= 1);
		/* all lines have about the same length */
		assert_true((s.n + 1) * (uint64_t)st.st_size >= (uint64_t)size * ROWS);
		if (size % 97)
			continue;
		write_rows(folder, 100, 1);
		assert_int_equal(read_rows(folder, &damaged).n, s.n + 1);
	}
	remove_folder(folder);
}

/* Bytes in the middle that a disk has lost: the other lines are read. */
static void test_damage(void **state)
{
	char folder[64], path[96], zeros[150] = "";
	uint64_t damaged;
	FILE *f;

	make_folder(folder);
	snprintf(path, sizeof(path), "%s/machine.log", folder);
	write_rows(folder, 0, ROWS);
	f = fopen(path, "r+");
	assert_non_null(f);
	fseek(f, 500, SEEK_SET);
	assert_int_equal(fwrite(zeros, sizeof(zeros), 1, f), 1);
	fseek(f, 0, SEEK_END);
	for (int i = 0; i < 100000; i++) /* a line without an end */
		fputc('x', f);
	fclose(f);
	assert_true(read_rows(folder, &damaged).n >= ROWS - 2);
	assert_true(damaged >= 1);
	remove_folder(folder);
}

static void test_bound(void **state)
{
	char folder[64], path[96];
	uint64_t damaged, size = 0;
	struct stat st;

	make_folder(folder);
	write_rows(folder, 0, 1000);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/machine.log%s", folder, i ? ".1" : "");
		assert_int_equal(stat(path, &st), 0);
		size += (uint64_t)st.st_size;
	}
	assert_true(size <= MOST && size > MOST / 2);
	assert_int_equal(read_rows(folder, &damaged).last, 1000);
	assert_int_equal(damaged, 0);
	remove_folder(folder);
}

static void test_one_recorder(void **state)
{
	struct machine_log *l, *other;
	char folder[64], path[96];
	uint64_t damaged;
	struct seen s = { 0 };
	bool running;

	make_folder(folder);
	assert_int_equal(machine_log__open(folder, MOST, &l), 0);
	assert_int_equal(machine_log__open(folder, MOST, &other), -EBUSY);
	assert_int_equal(machine_log__read(folder, take, &s, &damaged, &running), 0);
	assert_true(running && !s.n);
	machine_log__close(l);
	/* Another file in the place of ours is not written to. */
	snprintf(path, sizeof(path), "%s/machine.log", folder);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/tmp/test_machine_log.other", path), 0);
	assert_true(machine_log__open(folder, MOST, &l) < 0);
	assert_int_equal(access("/tmp/test_machine_log.other", F_OK), -1);
	remove_folder(folder);
}

/* Sets *ctx, a folder's name, to NULL if a recorder can write there. */
static void begin_recorder(void *ctx, const struct machine_row *row)
{
	const char **folder = ctx;
	struct machine_log *l;

	(void)row;
	if (*folder && !machine_log__open(*folder, MOST, &l)) {
		machine_log__close(l);
		*folder = NULL;
	}
}

/* A recorder may start while the rows are read. */
static void test_reader_is_no_recorder(void **state)
{
	char folder[64];
	const char *left = folder;
	uint64_t damaged;
	bool running;

	make_folder(folder);
	write_rows(folder, 0, 1);
	assert_int_equal(machine_log__read(folder, begin_recorder, &left, &damaged, &running), 0);
	assert_null(left);
	assert_false(running);
	remove_folder(folder);
}

static void test_link(void **state)
{
	struct machine_log *l;
	char folder[64], path[96];

	make_folder(folder);
	snprintf(path, sizeof(path), "%s/link", folder);
	assert_int_equal(symlink(folder, path), 0);
	assert_int_equal(machine_log__open(path, MOST, &l), -ELOOP);
	snprintf(path, sizeof(path), "%s/file", folder);
	assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
	assert_int_equal(machine_log__open(path, MOST, &l), -ENOTDIR);
	remove_folder(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_anywhere),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_one_recorder),
		cmocka_unit_test(test_reader_is_no_recorder),
		cmocka_unit_test(test_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
