/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TESTS_MTR_UTIL_H
#define MT_TESTS_MTR_UTIL_H
/* Recordings in memory, for the tests of writer and reader. After cmocka.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/dict.h"
#include "record/mtr.h"
#include "record/stream.h"

struct events {
	struct event *e;
	size_t n, room;
};

static inline void events__add(struct events *l, const struct event *e)
{
	if (l->n == l->room) {
		l->room = l->room ? l->room * 2 : 1024;
		l->e = realloc(l->e, l->room * sizeof(*l->e));
		assert_non_null(l->e);
	}
	l->e[l->n++] = *e;
}

static inline void events__free(struct events *l)
{
	free(l->e);
	*l = (struct events){ 0 };
}

static inline void assert_event(const struct event *got, const struct event *want)
{
	assert_int_equal(got->kind, want->kind);
	assert_int_equal(got->walk, want->walk);
	assert_int_equal(got->totals, want->totals);
	assert_int_equal(got->device.type, want->device.type);
	assert_int_equal(got->device.index, want->device.index);
	assert_int_equal(got->thread, want->thread);
	assert_int_equal(got->stack, want->stack);
	assert_int_equal(got->module, want->module);
	assert_true(got->time == want->time);
	assert_true(got->addr == want->addr);
	assert_true(got->size == want->size);
	assert_true(got->allocated == want->allocated);
	assert_true(got->reserved == want->reserved);
}

static inline int memory_file(void)
{
	int fd = memfd_create("mtr", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static inline uint8_t *file_bytes(int fd, size_t *len)
{
	struct stat st;
	uint8_t *data;

	assert_int_equal(fstat(fd, &st), 0);
	data = malloc((size_t)st.st_size + 1);
	assert_non_null(data);
	assert_int_equal(pread(fd, data, (size_t)st.st_size, 0), st.st_size);
	*len = (size_t)st.st_size;
	return data;
}

static inline int file_of(const void *data, size_t len)
{
	int fd = memory_file();

	assert_int_equal(write(fd, data, len), (ssize_t)len);
	return fd;
}

/* Opens afresh, from the first byte. */
static inline struct mtr_reader *open_fd(int fd, const char **why)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return mtr_reader__open(path, why);
}

/* Reads all of fd into l (if not NULL). The reader stays open, at its end. */
static inline struct mtr_reader *read_all(int fd, struct events *l)
{
	struct mtr_reader *r = open_fd(fd, NULL);
	struct event e;
	int got;

	assert_non_null(r);
	while ((got = mtr_reader__next(r, &e)) == 1) {
		if (l)
			events__add(l, &e);
	}
	assert_int_equal(got, 0);
	return r;
}

static inline uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

#endif
