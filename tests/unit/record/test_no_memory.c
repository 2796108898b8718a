/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* record/ without memory: each allocation fails once. */
#include "unit/no_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit/event_tape.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr/live_set.h"
#include "record/mtr.h"
#include "record/mtr/renumber.h"
#include "record/mtr_rolling.h"

/* One entry of each kind. 0 or -errno. */
static int fill(struct dict *d)
{
	uint32_t file = dict__string(d, "/src/train.py", 13), loc, stack;

	if (file == UINT32_MAX)
		return -errno;
	loc = dict__loc(d, (struct dict_loc){ .file = file, .func = file, .line = 12 });
	if (loc == UINT32_MAX)
		return -errno;
	if (dict__module(d, (struct dict_module){ file, file, file }) == UINT32_MAX)
		return -errno;
	stack = dict__stack(d, &(struct dict_frame){ .loc = loc }, 1, MT_WALK_OK);
	if (stack == UINT32_MAX)
		return -errno;
	if (dict__thread(d, (struct dict_thread){ .tid = 7, .name = file }) == UINT32_MAX)
		return -errno;
	if (dict__node(d, (struct dict_node){ .cls = file, .stack = stack }) == UINT32_MAX)
		return -errno;
	return 0;
}

static int make_dict(void *ctx)
{
	struct dict *d = dict__new();
	int err = d ? fill(d) : -errno;

	dict__free(d);
	return err;
}

static void test_dict(void **state)
{
	assert_true(no_memory__try(make_dict, NULL) > 6);
}

static int make_facts(void *ctx)
{
	struct facts *f = facts__new();
	int err = f ? facts__set(f, "command", "train.py") : -ENOMEM;

	if (!err)
		err = facts__setf(f, "command", "train.py --steps %d", 12);
	if (!err)
		err = facts__set(f, "host", "a");
	facts__free(f);
	return err;
}

static void test_facts(void **state)
{
	assert_true(no_memory__try(make_facts, NULL) > 3);
}

static int count(void *ctx, const struct event *e)
{
	++*(size_t *)ctx;
	return 0;
}

static int fold(void *ctx)
{
	struct live_set *l = live_set__new();
	size_t told = 0;
	int err = l ? 0 : -ENOMEM;

	for (size_t i = 0; i < TAPE_LENGTH && !err; i++)
		err = live_set__fold(l, &event_tape[i]);
	if (!err)
		err = live_set__emit(l, 1, count, &told);
	if (!err)
		assert_true(told > 6);
	live_set__free(l);
	return err;
}

static void test_live_set(void **state)
{
	assert_true(no_memory__try(fold, NULL) > 10);
}

static int sum(void *ctx)
{
	struct totals *t = totals__new(1 << 16);
	int err = t ? 0 : -ENOMEM;

	for (size_t i = 0; i < TAPE_LENGTH && !err; i++)
		err = totals__event(t, &event_tape[i], event_tape[i].allocated,
				    event_tape[i].reserved);
	totals__free(t);
	return err;
}

static void test_totals(void **state)
{
	assert_true(no_memory__try(sum, NULL) > 0);
}

/* Writes the tape to a file in memory. 0 or -errno. */
static int write_tape(int fd)
{
	struct dict *d = dict__new();
	struct facts *f = facts__new();
	struct mtr_writer *w = NULL;
	int err = d && f ? fill(d) : -ENOMEM, closed;

	if (!err)
		err = facts__set(f, "command", "train.py");
	if (!err) {
		w = mtr_writer__new(fd, d, f, &(struct mtr_writer_opts){ 0 });
		err = w ? 0 : -errno;
	}
	for (size_t i = 0; i < TAPE_LENGTH && !err; i++)
		err = mtr_writer__event(w, &event_tape[i]);
	if (w) {
		closed = mtr_writer__close(w);
		err = err ? err : closed;
	}
	facts__free(f);
	dict__free(d);
	return err;
}

static int write_file(void *ctx)
{
	int fd = memfd_create("tape", MFD_CLOEXEC), err;

	assert_true(fd >= 0);
	err = write_tape(fd);
	close(fd);
	return err;
}

static void test_writer(void **state)
{
	assert_true(no_memory__try(write_file, NULL) > 10);
}

static int read_file(void *ctx)
{
	const char *why = "";
	struct mtr_reader *r = mtr_reader__open(ctx, &why);
	struct event e;
	uint64_t offset;
	size_t n = 0;
	int err = r ? 1 : -errno;

	while (err > 0) {
		err = mtr_reader__next(r, &e);
		n += err > 0;
	}
	if (!err) {
		assert_int_equal(mtr_reader__end(r, &offset, &why), MTR_COMPLETE);
		assert_int_equal(n, TAPE_LENGTH);
	}
	mtr_reader__free(r);
	return err;
}

static void test_reader(void **state)
{
	int fd = memfd_create("tape", MFD_CLOEXEC);
	char path[64];

	assert_true(fd >= 0);
	assert_int_equal(write_tape(fd), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_true(no_memory__try(read_file, path) > 10);
	close(fd);
}

static int renumber(void *ctx)
{
	struct dict *from = ctx;
	struct renumber *r = renumber__new(from);
	int err = r ? 0 : -ENOMEM;

	for (size_t i = 0; i < TAPE_LENGTH && !err; i++) {
		struct event e = event_tape[i];

		if (e.kind == EVENT_ALLOC)
			e.stack = e.thread = e.node = 1;
		err = renumber__event(r, &e);
	}
	renumber__free(r);
	return err;
}

static void test_renumber(void **state)
{
	struct dict *from = dict__new();

	assert_non_null(from);
	assert_int_equal(fill(from), 0);
	assert_true(no_memory__try(renumber, from) > 5);
	dict__free(from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dict),	 cmocka_unit_test(test_facts),
		cmocka_unit_test(test_live_set), cmocka_unit_test(test_totals),
		cmocka_unit_test(test_writer),	 cmocka_unit_test(test_reader),
		cmocka_unit_test(test_renumber),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
