/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A dict, facts, a model and simulated allocators with their own totals, driven by tests. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memtrace.h"
#include "model/model.h"
#include "record/dict.h"
#include "record/stream.h"

#define CUDA(i) ((struct device){ .type = DEVICE_CUDA, .index = (i) })
#define CPU ((struct device){ .type = DEVICE_CPU })
#define HOST ((struct device){ .type = DEVICE_HOST })
#define MS UINT64_C(1000000)

struct world {
	struct dict *d;
	struct facts *f;
	struct model *m;
	uint64_t time;
	uint64_t allocated[4], reserved; /* totals by the allocators, by device index */
	uint32_t main_thread, autograd_thread;
};

static inline uint32_t str(struct world *w, const char *s)
{
	return dict__string(w->d, s, strlen(s));
}

static inline struct world world__new(enum moment at, uint64_t at_time)
{
	struct world w = { .d = dict__new(), .f = facts__new() };
	struct model_opts opts = { .at = at, .at_time = at_time };

	assert_non_null(w.d);
	assert_non_null(w.f);
	facts__set(w.f, "stdlib", "/opt/py/std");
	w.m = model__new(w.d, w.f, &opts);
	assert_non_null(w.m);
	w.main_thread = dict__thread(w.d,
				     (struct dict_thread){ .tid = 100, .name = str(&w, "python") });
	w.autograd_thread = dict__thread(
		w.d, (struct dict_thread){ .tid = 101, .name = str(&w, "pt_autograd_0") });
	return w;
}

static inline void world__free(struct world *w)
{
	model__free(w->m);
	dict__free(w->d);
	facts__free(w->f);
}

static inline uint32_t loc(struct world *w, const char *file, const char *func, uint32_t line)
{
	return dict__loc(w->d, (struct dict_loc){
				       .file = str(w, file), .func = str(w, func), .line = line });
}

static inline uint32_t module(struct world *w, const char *name, const char *cls, const char *root)
{
	return dict__module(w->d, (struct dict_module){ str(w, name), str(w, cls), str(w, root) });
}

/* One frame of user code. */
static inline uint32_t simple(struct world *w, const char *file, const char *func, uint32_t line)
{
	struct dict_frame f = { .loc = loc(w, file, func, line) };

	return dict__stack(w->d, &f, 1, MT_WALK_OK);
}

static inline void feed(struct world *w, struct event e)
{
	w->time += MS;
	e.time = w->time;
	if (!e.thread)
		e.thread = w->main_thread;
	assert_int_equal(model__event(w->m, &e), 0);
}

static inline void alloc(struct world *w, struct device d, uint64_t addr, uint64_t size,
			 uint32_t stack)
{
	struct event e = {
		.kind = EVENT_ALLOC, .device = d, .addr = addr, .size = size, .stack = stack
	};

	if (!device__on_host(d)) {
		e.totals = true;
		e.allocated = w->allocated[d.index] += size;
		e.reserved = w->reserved;
	}
	feed(w, e);
}

static inline void dealloc(struct world *w, struct device d, uint64_t addr, uint64_t size)
{
	struct event e = { .kind = EVENT_FREE, .device = d, .addr = addr, .size = size };

	if (!device__on_host(d)) {
		e.totals = true;
		e.allocated = w->allocated[d.index] -= size;
		e.reserved = w->reserved;
	}
	feed(w, e);
}

static inline void oom(struct world *w, struct device d, uint64_t size)
{
	feed(w, (struct event){ .kind = EVENT_OOM,
				.device = d,
				.size = size,
				.totals = true,
				.allocated = w->allocated[d.index],
				.reserved = w->reserved });
}

static inline struct model_device device(struct world *w, const char *name)
{
	struct model_device d;
	int i = model__find_device(w->m, name);

	assert_true(i >= 0);
	model__device(w->m, i, &d);
	return d;
}

static inline struct row *rows(struct world *w, const char *dev, enum group by, enum row_when when,
			       size_t *n)
{
	struct row_opts o = { .by = by, .when = when, .any_category = true };
	struct row *r;
	uint64_t sum = 0;

	assert_int_equal(model__rows(w->m, model__find_device(w->m, dev), &o, &r, n), 0);
	for (size_t i = 0; i < *n; i++) {
		sum += r[i].bytes;
		assert_int_equal(r[i].cumulative, sum);
		if (i)
			assert_true(r[i - 1].bytes >= r[i].bytes);
	}
	return r;
}

static inline uint64_t rows_sum(const struct row *r, size_t n)
{
	return n ? r[n - 1].cumulative : 0;
}

static inline const struct row *by_line(const struct row *r, size_t n, uint32_t line)
{
	for (size_t i = 0; i < n; i++)
		if (r[i].file && r[i].line == line)
			return &r[i];
	return NULL;
}

struct frame_spec {
	const char *file, *func; /* a file that ends in ".so": a frame of compiled code */
	uint32_t module;
};

/* frames from the root on, the usual order of stacks */
static inline uint32_t native_loc(struct world *w, const char *file, const char *func)
{
	struct dict_loc l = { .file = str(w, file), .func = str(w, func) };

	return dict__native_loc(w->d, l);
}

static inline uint32_t stack_of(struct world *w, const struct frame_spec *f, uint32_t n,
				uint8_t walk)
{
	struct dict_frame frames[16];

	assert_true(n <= 16);
	for (uint32_t i = 0; i < n; i++)
		frames[n - 1 - i] = (struct dict_frame){
			.loc = !f[i].file		  ? 0
			       : strstr(f[i].file, ".so") ? native_loc(w, f[i].file, f[i].func)
							  : loc(w, f[i].file, f[i].func, i + 1),
			.module = f[i].module,
		};
	return dict__stack(w->d, frames, n, walk);
}

#define SP "/usr/lib/python3.12/site-packages/torch/"
#define N(a) (sizeof(a) / sizeof(*(a)))
