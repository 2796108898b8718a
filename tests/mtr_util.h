/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Recordings in memory for the tests of writer and reader. Include after cmocka.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gen_events.h"
#include "memtrace.h"
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
	assert_int_equal(got->how, want->how);
	assert_int_equal(got->flags, want->flags);
	assert_true(got->requested == want->requested);
	assert_true(got->cuda_stream == want->cuda_stream);
	assert_int_equal(got->node, want->node);
	assert_int_equal(got->name, want->name);
	assert_int_equal(got->category, want->category);
	assert_true(got->pool[0] == want->pool[0] && got->pool[1] == want->pool[1]);
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

/* Opens the recording from its first byte. */
static inline struct mtr_reader *open_fd(int fd, const char **why)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return mtr_reader__open(path, why);
}

/* Reads fd once more, with a thread that decodes ahead, and compares all with l and with the reader
 * r, which is at the end. */
static inline void check_ahead(int fd, const struct mtr_reader *r, const struct events *l)
{
	struct mtr_reader *again = open_fd(fd, NULL);
	const struct event *e;
	uint64_t offset, other;
	const char *why, *reason;
	size_t all = 0;
	int n;

	assert_non_null(again);
	mtr_reader__read_ahead(again, /*least=*/0);
	while ((n = mtr_reader__view(again, 7, &e)) > 0) {
		assert_true(all + (size_t)n <= l->n);
		for (int i = 0; i < n; i++)
			assert_event(&e[i], &l->e[all++]);
		assert_true(mtr_reader__position(again) <= mtr_reader__size(again));
	}
	assert_int_equal(n, 0);
	assert_int_equal(mtr_reader__view(again, 7, &e), 0);
	assert_int_equal(all, l->n);
	assert_int_equal(mtr_reader__end(again, &other, &reason),
			 mtr_reader__end(r, &offset, &why));
	assert_int_equal(other, offset);
	assert_string_equal(reason, why);
	assert_int_equal(dict__counts(mtr_reader__dict(again)).strings,
			 dict__counts(mtr_reader__dict(r)).strings);
	assert_int_equal(facts__count(mtr_reader__facts(again)),
			 facts__count(mtr_reader__facts(r)));
	mtr_reader__free(again);
}

/* Reads all events of fd into l (may be NULL), twice: also ahead. Returns the reader, at the end. */
static inline struct mtr_reader *read_all(int fd, struct events *l)
{
	struct mtr_reader *r = open_fd(fd, NULL);
	struct events own = { 0 }, *to = l ? l : &own;
	struct event e;
	int got;

	assert_non_null(r);
	while ((got = mtr_reader__next(r, &e)) == 1)
		events__add(to, &e);
	assert_int_equal(got, 0);
	check_ahead(fd, r, to);
	events__free(&own);
	return r;
}

/* A small dictionary and one fact, for recordings. */
struct world {
	struct dict *d;
	struct facts *f;
	uint32_t stack, cut_stack, module, thread, node, name;
};

static inline struct world world__new(void)
{
	struct world w = { .d = dict__new(), .f = facts__new() };
	struct dict_frame frames[2];
	uint32_t file, func;

	assert_non_null(w.d);
	assert_non_null(w.f);
	file = dict__string(w.d, "train.py", 8);
	func = dict__string(w.d, "main", 4);
	w.module = dict__module(w.d, (struct dict_module){ func, file, file });
	frames[0] = (struct dict_frame){ dict__loc(w.d, (struct dict_loc){ file, func, 7 }),
					 w.module };
	frames[1] = (struct dict_frame){ dict__loc(w.d, (struct dict_loc){ file, func, 0 }), 0 };
	w.stack = dict__stack(w.d, frames, 2, MT_WALK_OK);
	w.cut_stack = dict__stack(w.d, frames, 1, MT_WALK_FAULT_FRAME);
	w.thread = dict__thread(w.d, (struct dict_thread){ 4242, func });
	w.name = dict__string(w.d, "fc.weight", 9);
	dict__node(w.d, (struct dict_node){ func, 0, w.name, w.module });
	w.node = dict__node(w.d, (struct dict_node){ func, w.stack, 0, 0 });
	assert_int_equal(w.node, 2);
	assert_int_equal(facts__set(w.f, "comm", "python"), 0);
	return w;
}

static inline void world__free(struct world *w)
{
	dict__free(w->d);
	facts__free(w->f);
}

static inline void write_events(struct world *w, int fd, const struct events *l, size_t flush_every)
{
	struct mtr_writer *wr = mtr_writer__new(fd, w->d, w->f, NULL);

	assert_non_null(wr);
	for (size_t i = 0; i < l->n; i++) {
		assert_int_equal(mtr_writer__event(wr, &l->e[i]), 0);
		if (flush_every && i % flush_every == flush_every - 1)
			assert_int_equal(mtr_writer__flush(wr), 0);
	}
	assert_int_equal(mtr_writer__close(wr), 0);
}

/* Fields of each event kind, see stream.h. */
enum {
	HAS_TOTALS = 1,
	HAS_ADDR = 2,
	HAS_SIZE = 4,
	HAS_STACK = 8,
	HAS_HOW = 16,
	HAS_REQUESTED = 32,
	HAS_STREAM = 64,
	HAS_POOL = 128,
	HAS_NODE = 256,
	HAS_MODULE = 512,
	HAS_NAME = 1024,
	HAS_NO_DEVICE = 2048,
	HAS_CATEGORY = 4096
};
static const uint16_t kind_has[EVENT_KINDS] = {
	[EVENT_ALLOC] = HAS_TOTALS | HAS_ADDR | HAS_SIZE | HAS_STACK | HAS_HOW | HAS_NODE,
	[EVENT_FREE] = HAS_TOTALS | HAS_ADDR | HAS_SIZE | HAS_HOW,
	[EVENT_OOM] = HAS_TOTALS | HAS_SIZE | HAS_STACK | HAS_NODE,
	[EVENT_STEP] = HAS_TOTALS | HAS_STACK,
	[EVENT_CALL] = HAS_TOTALS | HAS_STACK | HAS_MODULE,
	[EVENT_LOST] = HAS_TOTALS | HAS_SIZE,
	[EVENT_CUDA_ALLOC] = HAS_ADDR | HAS_SIZE | HAS_STACK | HAS_HOW,
	[EVENT_CUDA_FREE] = HAS_ADDR | HAS_SIZE | HAS_HOW,
	[EVENT_SEGMENT] = HAS_ADDR | HAS_SIZE | HAS_HOW | HAS_STREAM | HAS_POOL,
	[EVENT_BLOCK] = HAS_ADDR | HAS_SIZE | HAS_STACK | HAS_HOW | HAS_REQUESTED | HAS_STREAM |
			HAS_NODE,
	[EVENT_STATE] = HAS_TOTALS | HAS_HOW,
	[EVENT_REQUESTED] = HAS_ADDR | HAS_REQUESTED | HAS_STREAM,
	[EVENT_USED] = HAS_SIZE,
	[EVENT_LEFT] = HAS_SIZE,
	[EVENT_TENSOR] = HAS_ADDR | HAS_SIZE | HAS_HOW | HAS_MODULE | HAS_NAME | HAS_CATEGORY,
	[EVENT_CENSUS] = HAS_SIZE | HAS_HOW,
	[EVENT_ENTER] = HAS_MODULE | HAS_NODE | HAS_NO_DEVICE,
	[EVENT_LEAVE] = HAS_MODULE | HAS_NO_DEVICE,
	[EVENT_HOST] = HAS_ADDR | HAS_SIZE | HAS_HOW,
	[EVENT_MARK] = HAS_NAME | HAS_NO_DEVICE,
	[EVENT_SCOPE] = HAS_NAME | HAS_NO_DEVICE | HAS_HOW | HAS_ADDR | HAS_SIZE,
};

/* Adds an event with random fields, of a kind up to max, on more devices than a block can list. */
static inline void add_random_kind(const struct world *w, struct gen *g, struct events *l,
				   unsigned int max)
{
	uint64_t r = gen__random(g), s = gen__random(g), more = gen__random(g);
	struct event e = { .kind = (uint8_t)(1 + r % max), .time = s >> (r >> 8 & 63) };
	uint16_t has = kind_has[e.kind];

	if (!(has & HAS_NO_DEVICE)) {
		e.device.type = (uint8_t)(r >> 16 & 0xff) >> (more & 7);
		e.device.index = (uint8_t)(r >> 24 & 3);
	}
	e.thread = r >> 32 & 1 ? w->thread : 0;
	e.totals = has & HAS_TOTALS && r >> 33 & 1;
	if (e.totals) {
		e.allocated = s << 7;
		e.reserved = s >> 9;
	}
	if (has & HAS_ADDR)
		e.addr = r >> 34 & 1 ? s >> 50 : s;
	if (has & HAS_ADDR && more >> 3 & 1 && l->n)
		e.addr = l->e[l->n - 1 - (more >> 4 & 3) % l->n].addr;
	if (has & HAS_SIZE)
		e.size = r >> 35 & 1 ? s & 7 : s ^ r;
	if (has & HAS_STACK) {
		e.stack = r >> 36 & 1 ? w->stack : r >> 37 & 1 ? w->cut_stack : 0;
		e.walk = (uint8_t)((s >> 40) % MT_WALK_NR);
	}
	if (has & HAS_MODULE)
		e.module = r >> 38 & 1 ? w->module : 0;
	if (has & HAS_HOW && more >> 6 & 1) {
		e.how = (uint8_t)((more >> 8) % MEM_HOW_NR);
		e.flags = (uint8_t)(more >> 16 & 0xff);
	}
	if (has & HAS_REQUESTED)
		e.requested = more >> 24 & 1   ? e.size - (more >> 25 & 3)
			      : more >> 27 & 1 ? more
					       : 0;
	if (has & HAS_STREAM)
		e.cuda_stream = more >> 28 & 1 ? more >> 29 & 3 : more;
	if (has & HAS_POOL) {
		e.pool[0] = more >> 31 & 1;
		e.pool[1] = more >> 32 & 1 ? more : 0;
	}
	if (has & HAS_NODE)
		e.node = (uint32_t)(more >> 33 & 3) % 3;
	if (has & HAS_NAME)
		e.name = more >> 35 & 1 ? w->name : 0;
	if (has & HAS_CATEGORY)
		e.category = (uint8_t)((more >> 36 & 7) % CATEGORY_NR);
	events__add(l, &e);
}

static inline void add_random(const struct world *w, struct gen *g, struct events *l)
{
	add_random_kind(w, g, l, EVENT_KINDS - 1);
}

static inline uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
