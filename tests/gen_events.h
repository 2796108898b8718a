/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Generates the events of a training loop from a seed: 24 layers of 14 operations, forward and
 * backward on two threads, a cache of free blocks by size as in c10's allocator, tensors whose size
 * changes with each batch, CPU tensors. Events are 5 to 50 us apart.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/dict.h"
#include "record/stream.h"

#define GEN_LAYERS 24
#define GEN_OPS 14
#define GEN_STACKS (3 * GEN_LAYERS * GEN_OPS)
#define GEN_SIZES 100
#define GEN_CACHE 4096

struct gen_block {
	uint64_t addr, size;
};

struct gen {
	uint64_t rng, time;
	int (*emit)(void *arg, const struct event *e);
	void *arg;
	int err;
	uint64_t events;
	uint32_t stacks[GEN_STACKS];
	uint32_t threads[2], module;
	uint64_t sizes[GEN_SIZES];
	struct gen_block cache[GEN_CACHE], kept[GEN_LAYERS * GEN_OPS], grads[GEN_LAYERS * GEN_OPS];
	uint32_t n_cache, n_kept;
	uint64_t next_addr, allocated, reserved;
};

static inline uint64_t gen__random(struct gen *g)
{
	g->rng ^= g->rng << 13;
	g->rng ^= g->rng >> 7;
	g->rng ^= g->rng << 17;
	return g->rng;
}

static inline __attribute__((format(printf, 2, 3))) uint32_t gen__str(struct dict *d,
								      const char *fmt, ...)
{
	char s[160];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(s, sizeof(s), fmt, args);
	va_end(args);
	return dict__string(d, s, (size_t)n);
}

/* Stacks of 20 to 45 frames that share most frames, as in real programs. */
static inline void gen__dict(struct gen *g, struct dict *d)
{
	static const char *const files[] = {
		"/usr/lib/python3/dist-packages/torch/nn/modules/module.py",
		"/home/user/project/model/transformer.py",
		"/usr/lib/python3/dist-packages/torch/nn/functional.py"
	};
	struct dict_frame base[45];

	for (uint32_t s = 0; s < GEN_STACKS; s++) {
		uint32_t n = 20 + s % 25;

		for (uint32_t i = 0; i < n; i++) {
			uint32_t depth = n - i; /* the root has depth 1 */
			uint32_t what = depth > 6 ? s % 97 * 8 + depth : depth;
			struct dict_loc l = {
				dict__string(d, files[what % 3], strlen(files[what % 3])),
				gen__str(d, "function_%u_%u", what % 61, depth), 10 + what
			};
			struct dict_module m = {
				gen__str(d, "layers.%u.block.%u", s / GEN_OPS % GEN_LAYERS, depth),
				gen__str(d, "Class%u", depth), gen__str(d, "Transformer")
			};

			base[i].loc = dict__loc(d, l);
			base[i].module = depth % 5 == 4 ? dict__module(d, m) : 0;
		}
		base[0].loc = dict__loc(d, (struct dict_loc){ 0, gen__str(d, "op%u", s), s });
		g->stacks[s] = dict__stack(d, base, n, 0);
	}
	g->module = 1;
	g->threads[0] = dict__thread(d, (struct dict_thread){ 4242, gen__str(d, "python") });
	g->threads[1] = dict__thread(d, (struct dict_thread){ 4250, gen__str(d, "pt_autograd_0") });
}

static inline void gen__init(struct gen *g, struct dict *d, uint64_t seed,
			     int (*emit)(void *, const struct event *), void *arg)
{
	memset(g, 0, sizeof(*g));
	g->rng = seed * 2654435761u + 1;
	g->emit = emit;
	g->arg = arg;
	g->next_addr = 0x7f3210000000;
	for (int i = 0; i < GEN_SIZES; i++)
		g->sizes[i] = (gen__random(g) % (1u << (8 + i % 16)) + 1) * 512;
	gen__dict(g, d);
}

static inline void gen__emit(struct gen *g, struct event *e)
{
	g->time += 5000 + gen__random(g) % 45000;
	e->time = g->time;
	g->events++;
	if (!g->err)
		g->err = g->emit(g->arg, e);
}

static inline struct gen_block gen__alloc(struct gen *g, uint64_t size, uint32_t stack,
					  uint32_t thread)
{
	struct gen_block b = { 0, size };
	struct event e = { .kind = EVENT_ALLOC,
			   .totals = true,
			   .device = { DEVICE_CUDA, 0 },
			   .size = size,
			   .stack = g->stacks[stack],
			   .thread = g->threads[thread] };

	for (uint32_t i = g->n_cache; i-- > 0 && !b.addr;) {
		if (g->cache[i].size == size) {
			b = g->cache[i];
			memmove(&g->cache[i], &g->cache[i + 1], (--g->n_cache - i) * sizeof(b));
		}
	}
	if (!b.addr) {
		b.addr = g->next_addr;
		g->next_addr += size;
		g->reserved += size;
	}
	g->allocated += size;
	e.addr = b.addr;
	e.allocated = g->allocated;
	e.reserved = g->reserved;
	gen__emit(g, &e);
	return b;
}

static inline void gen__free(struct gen *g, struct gen_block b, uint32_t thread)
{
	struct event e = { .kind = EVENT_FREE,
			   .totals = true,
			   .device = { DEVICE_CUDA, 0 },
			   .size = b.size,
			   .addr = b.addr,
			   .thread = g->threads[thread] };

	g->allocated -= b.size;
	e.allocated = g->allocated;
	e.reserved = g->reserved;
	if (g->n_cache == GEN_CACHE)
		memmove(g->cache, g->cache + 1, --g->n_cache * sizeof(b));
	g->cache[g->n_cache++] = b;
	gen__emit(g, &e);
}

static inline void gen__cpu(struct gen *g, uint32_t stack)
{
	struct event e = { .kind = EVENT_ALLOC,
			   .addr = 0x55d0c0001000 + gen__random(g) % 64 * 4160,
			   .size = 4096,
			   .stack = g->stacks[stack],
			   .thread = g->threads[0] };

	gen__emit(g, &e);
	e.kind = EVENT_FREE;
	e.size = 0;
	e.stack = 0;
	gen__emit(g, &e);
}

/* One step: forward keeps half of its blocks, backward frees them, the optimizer frees
 * gradients. */
static inline void gen__step(struct gen *g)
{
	struct event call = { .kind = EVENT_CALL, .module = g->module, .thread = g->threads[0] };
	struct event step = { .kind = EVENT_STEP, .thread = g->threads[0] };
	const uint32_t n = GEN_LAYERS * GEN_OPS;

	gen__emit(g, &call);
	for (uint32_t i = 0; i < n; i++) {
		struct gen_block t;
		uint64_t size = g->sizes[i % GEN_OPS * 7 % GEN_SIZES];

		if (i % 12 == 5)
			/* size by the batch's sequence length */
			size = (gen__random(g) % 20000 + 1) * 512;
		if (gen__random(g) % 20 == 0)
			gen__cpu(g, i);
		g->kept[i] = gen__alloc(g, size, i, 0);
		t = gen__alloc(g, g->sizes[(i % GEN_OPS + 31) % GEN_SIZES], i, 0);
		gen__free(g, t, 0);
	}
	for (uint32_t i = n; i-- > 0;) {
		struct gen_block t = gen__alloc(g, g->sizes[(i % GEN_OPS + 55) % GEN_SIZES], n + i,
						1);

		g->grads[i] = gen__alloc(g, g->sizes[(i % 40 + 60) % GEN_SIZES], n + i, 1);
		gen__free(g, g->kept[i], 1);
		gen__free(g, t, 1);
	}
	for (uint32_t i = 0; i < n; i++) {
		gen__free(g, gen__alloc(g, g->grads[i].size, 2 * n + i, 0), 0);
		gen__free(g, g->grads[i], 0);
	}
	gen__emit(g, &step);
}
