// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Writes a synthetic recording of any length, always the same: make_events FILE EVENTS
 *
 * It models the training of a GPT of 24 blocks: a few thousand stacks of twenty frames, nested
 * module calls, activations that live from forward to backward, gradients, an optimizer, parameters
 * and optimizer states. The caching allocator reuses the block freed last. About 100,000 blocks are
 * live in the middle of a step.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr.h"

#define LAYERS 24
#define PARTS 12   /* modules per layer */
#define OPS 14	   /* allocations per module call */
#define MICRO 12   /* forwards before each backward */
#define KEPT 50000 /* parameters, gradients and optimizer states */
#define CLASSES 64 /* size classes */
#define LIVE_MAX (KEPT + LAYERS * PARTS * OPS * MICRO + 4096)

struct block {
	uint64_t addr;
	uint32_t size; /* size class */
};

struct world {
	struct dict *d;
	struct mtr_writer *w;
	uint64_t left, now, next_addr, allocated, reserved;
	uint32_t seed;
	uint32_t stacks[LAYERS][PARTS][OPS], nodes[LAYERS][PARTS][OPS], modules[LAYERS][PARTS],
		root;
	uint32_t main, autograd;
	struct block live[LIVE_MAX];
	uint32_t n;
	struct block *free[CLASSES];
	uint32_t nfree[CLASSES], capfree[CLASSES];
	int err;
};

static uint32_t any(struct world *g, uint32_t below)
{
	g->seed = g->seed * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)(g->seed >> 8) * below >> 24);
}

static uint64_t bytes(uint32_t class)
{
	return 512ull << (class / 4) | (uint64_t)(class % 4) * 512;
}

static uint32_t text(struct world *g, const char *fmt, unsigned int a, unsigned int b)
{
	char s[96];
	int n;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	n = snprintf(s, sizeof(s), fmt, a, b);
#pragma GCC diagnostic pop
	return dict__string(g->d, s, (size_t)n);
}

static struct dict_frame frame(struct world *g, const char *func, const char *file, uint32_t line,
			       uint32_t module)
{
	struct dict_loc loc = { .file = text(g, file, 0, 0),
				.func = text(g, func, 0, 0),
				.line = line };

	return (struct dict_frame){ .loc = dict__loc(g->d, loc), .module = module };
}

/* Stack of an operation, innermost frame first. */
static uint32_t stack(struct world *g, unsigned int layer, unsigned int part, unsigned int op)
{
	struct dict_frame f[24];
	uint32_t n = 0, module = g->modules[layer][part];

	f[n++] = frame(g, "linear", "torch/nn/functional.py", 2000 + op, 0);
	f[n++] = frame(g, "Part.forward", "model.py", 100 + part * 20 + op, 0);
	for (int i = 0; i < 6; i++) {
		f[n++] = frame(g, "Module._call_impl", "torch/nn/modules/module.py", 1786, 0);
		f[n++] = frame(g, "Module._wrapped_call_impl", "torch/nn/modules/module.py", 1775,
			       i ? i == 5 ? g->root : 0 : module);
		f[n++] = frame(g, "Block.forward", "model.py", 30 + (uint32_t)i, 0);
	}
	f[n++] = frame(g, "train_step", "train.py", 43, 0);
	f[n++] = frame(g, "<module>", "train.py", 88, 0);
	return dict__stack(g->d, f, n, MT_WALK_OK);
}

static void make_dict(struct world *g)
{
	uint32_t root = text(g, "GPT", 0, 0), cls = text(g, "Linear", 0, 0),
		 node = text(g, "AddmmBackward0", 0, 0);

	g->root = dict__module(g->d, (struct dict_module){ .name = 0, .cls = root, .root = root });
	g->main = dict__thread(g->d, (struct dict_thread){ .tid = 4242,
							   .name = text(g, "python", 0, 0) });
	g->autograd = dict__thread(
		g->d, (struct dict_thread){ .tid = 4250, .name = text(g, "pt_autograd_0", 0, 0) });
	for (unsigned int l = 0; l < LAYERS; l++)
		for (unsigned int p = 0; p < PARTS; p++) {
			struct dict_module m = { .name = text(g, "blocks.%u.part%u", l, p),
						 .cls = cls,
						 .root = root };

			g->modules[l][p] = dict__module(g->d, m);
			for (unsigned int o = 0; o < OPS; o++) {
				g->stacks[l][p][o] = stack(g, l, p, o);
				g->nodes[l][p][o] = dict__node(
					g->d, (struct dict_node){ .cls = node,
								  .stack = g->stacks[l][p][o] });
			}
		}
}

static void send(struct world *g, struct event e)
{
	if (g->err || !g->left)
		return;
	g->now += 800 + any(g, 2000);
	e.time = g->now;
	g->err = mtr_writer__event(g->w, &e);
	g->left--;
}

static uint64_t take_addr(struct world *g, uint32_t class)
{
	uint64_t addr;

	if (g->nfree[class])
		return g->free[class][--g->nfree[class]].addr;
	addr = g->next_addr;
	g->next_addr += bytes(class);
	if (g->allocated + bytes(class) > g->reserved) {
		g->reserved += 20 << 20;
		send(g, (struct event){ .kind = EVENT_CUDA_ALLOC,
					.how = MEM_DEVICE,
					.flags = MEM_BY_ALLOCATOR,
					.thread = g->main,
					.device.type = DEVICE_CUDA,
					.addr = addr & ~511ull,
					.size = 20 << 20 });
	}
	return addr;
}

static void alloc(struct world *g, uint32_t class, uint32_t at_stack, uint32_t node)
{
	struct event e = { .kind = EVENT_ALLOC,
			   .thread = node ? g->autograd : g->main,
			   .device.type = DEVICE_CUDA,
			   .totals = true,
			   .size = bytes(class),
			   .stack = at_stack,
			   .node = node,
			   .walk = at_stack ? MT_WALK_OK : MT_WALK_NO_FRAME };

	if (g->n == LIVE_MAX)
		abort();
	e.addr = take_addr(g, class);
	g->live[g->n++] = (struct block){ e.addr, class };
	e.allocated = g->allocated += e.size;
	e.reserved = g->reserved;
	send(g, e);
}

static void give(struct world *g, uint32_t i, uint32_t thread)
{
	struct block b = g->live[i];
	struct event e = { .kind = EVENT_FREE,
			   .thread = thread,
			   .device.type = DEVICE_CUDA,
			   .totals = true,
			   .addr = b.addr,
			   .size = bytes(b.size) };

	g->live[i] = g->live[--g->n];
	if (g->nfree[b.size] == g->capfree[b.size]) {
		g->capfree[b.size] = g->capfree[b.size] * 2 + 64;
		g->free[b.size] = realloc(g->free[b.size], g->capfree[b.size] * sizeof(**g->free));
		if (!g->free[b.size])
			abort();
	}
	g->free[b.size][g->nfree[b.size]++] = b;
	e.allocated = g->allocated -= e.size;
	e.reserved = g->reserved;
	send(g, e);
}

static void call(struct world *g, uint8_t kind, uint32_t module)
{
	send(g, (struct event){ .kind = kind, .thread = g->main, .module = module });
}

static void forward(struct world *g)
{
	send(g, (struct event){ .kind = EVENT_CALL,
				.thread = g->main,
				.module = g->root,
				.stack = 1,
				.walk = MT_WALK_OK,
				.device.type = DEVICE_CUDA });
	call(g, EVENT_ENTER, g->root);
	for (unsigned int l = 0; l < LAYERS; l++)
		for (unsigned int p = 0; p < PARTS; p++) {
			call(g, EVENT_ENTER, g->modules[l][p]);
			for (unsigned int o = 0; o < OPS; o++) {
				alloc(g, (l + p + o) % CLASSES / 2, g->stacks[l][p][o], 0);
				if (!(o & 1)) /* a temporary, freed at once */
					alloc(g, (l * p + o) % 8, g->stacks[l][p][o], 0),
						give(g, g->n - 1, g->main);
			}
			call(g, EVENT_LEAVE, g->modules[l][p]);
		}
	call(g, EVENT_LEAVE, g->root);
}

static void backward(struct world *g)
{
	while (g->n > KEPT && g->left && !g->err) {
		uint32_t i = g->n - 1, o = i % OPS, p = i / OPS % PARTS,
			 l = i / OPS / PARTS % LAYERS;

		alloc(g, (l + p * o) % 8, 0, g->nodes[l][p][o]);
		give(g, g->n - 1, g->autograd);
		give(g, g->n > KEPT + 32 ? g->n - 1 - any(g, 32) : g->n - 1, g->autograd);
	}
}

static void step(struct world *g)
{
	for (int i = 0; i < MICRO && g->left; i++)
		forward(g);
	backward(g);
	for (unsigned int i = 0; i < LAYERS && g->left; i++) {
		alloc(g, 12, g->stacks[i][0][0], 0);
		give(g, g->n - 1, g->main);
	}
	send(g, (struct event){ .kind = EVENT_STEP,
				.thread = g->main,
				.device.type = DEVICE_CUDA,
				.stack = 1,
				.walk = MT_WALK_OK });
}

int main(int argc, char **argv)
{
	struct world *g = calloc(1, sizeof(*g));
	struct facts *f = facts__new();
	int fd = argc == 3 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1,
	    err;

	if (fd < 0 || !g || !f || !(g->d = dict__new())) {
		fprintf(stderr, "usage: make_events FILE EVENTS\n");
		return 64;
	}
	g->left = strtoull(argv[2], NULL, 0);
	g->next_addr = 0x7f0000000000;
	make_dict(g);
	facts__set(f, "pid", "4242");
	facts__set(f, "attached_at", "start");
	facts__set(f, "start", "2026-01-02T03:04:05Z");
	facts__set(f, "allocator", "native");
	g->w = mtr_writer__new(fd, g->d, f, &(struct mtr_writer_opts){ 0 });
	if (!g->w)
		return 1;
	while (g->n < KEPT && g->left && !g->err)
		alloc(g, g->n % CLASSES / 2, g->stacks[g->n % LAYERS][0][g->n % OPS], 0);
	while (g->left && !g->err)
		step(g);
	facts__setf(f, "duration_ns", "%llu", (unsigned long long)g->now);
	facts__set(f, "stop_reason", "signal");
	err = mtr_writer__close(g->w) ?: g->err;
	close(fd);
	facts__free(f);
	dict__free(g->d);
	for (int i = 0; i < CLASSES; i++)
		free(g->free[i]);
	free(g);
	return err ? 1 : 0;
}
