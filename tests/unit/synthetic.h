/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Generates a capture, always the same: training of a small GPT with attach while it runs. Modules,
 * phases, steps, threads, blocks from before attach, an unreadable stack, and optionally an
 * out-of-memory event. A header, so that each test is one file.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memtrace.h"
#include "record/dict.h"
#include "record/stream.h"

struct synthetic_opts {
	unsigned int layers, steps;
	bool cpu; /* true: data loader tensors on a second device */
	bool oom; /* true: out of memory in the last step */
	/* true: each step frees what it allocates, except for `leak` bytes */
	bool steady;
	uint64_t leak;
};

#define SYN_BLOCKS 65536
#define SYN_DEPTH 96
#define SYN_MIB (UINT64_C(1) << 20)

struct synthetic {
	struct dict *d;
	struct sink *sink;
	struct synthetic_opts opts;
	struct dict_frame path[SYN_DEPTH]; /* outermost frame first */
	uint32_t depth;
	uint32_t main_thread, autograd, native;
	uint64_t now, addr, allocated, reserved;
	struct {
		uint64_t addr, size;
		bool cpu;
	} live[SYN_BLOCKS];
	uint32_t n;
	int err;
};

static uint32_t syn_str(struct synthetic *s, const char *text)
{
	return dict__string(s->d, text, strlen(text));
}

static void syn_push(struct synthetic *s, const char *func, const char *file, uint32_t line)
{
	struct dict_loc loc = { .file = syn_str(s, file), .func = syn_str(s, func), .line = line };

	s->path[s->depth++] = (struct dict_frame){ .loc = dict__loc(s->d, loc) };
}

static void syn_pop(struct synthetic *s, uint32_t to)
{
	s->depth = to;
}

#define SYN_SITE "/opt/venv/lib/python3.12/site-packages/"
#define SYN_APP "/home/ada/gpt/"

/* A module call as made by nn.Module. */
static void syn_call(struct synthetic *s, const char *name, const char *cls)
{
	struct dict_module m = { .name = syn_str(s, name),
				 .cls = syn_str(s, cls),
				 .root = syn_str(s, "GPT") };

	syn_push(s, "Module._wrapped_call_impl", SYN_SITE "torch/nn/modules/module.py", 1775);
	s->path[s->depth - 1].module = dict__module(s->d, m);
	syn_push(s, "Module._call_impl", SYN_SITE "torch/nn/modules/module.py", 1786);
}

static void syn_send(struct synthetic *s, struct event *e)
{
	e->time = s->now;
	s->now += 211000;
	if (!s->err)
		s->err = s->sink->event(s->sink, e);
}

static void syn_alloc_on(struct synthetic *s, uint64_t size, bool cpu, uint32_t thread,
			 uint8_t walk)
{
	struct dict_frame inner[SYN_DEPTH];
	struct event e = {
		.kind = EVENT_ALLOC, .walk = walk, .thread = thread, .size = size, .totals = !cpu
	};
	uint32_t n = walk == MT_WALK_OK ? s->depth : 0;

	size = e.size = (size + 511) & ~UINT64_C(511);
	for (uint32_t i = 0; i < n; i++)
		inner[i] = s->path[n - 1 - i];
	e.stack = n ? dict__stack(s->d, inner, n, walk) : 0;
	e.device.type = cpu ? DEVICE_CPU : DEVICE_CUDA;
	e.addr = s->addr += size + 512;
	if (!cpu) {
		s->allocated += size;
		while (s->reserved < s->allocated)
			s->reserved += 20 * SYN_MIB;
		e.allocated = s->allocated;
		e.reserved = s->reserved;
	}
	s->live[s->n].addr = e.addr;
	s->live[s->n].size = size;
	s->live[s->n++].cpu = cpu;
	syn_send(s, &e);
}

static void syn_alloc(struct synthetic *s, uint64_t size)
{
	syn_alloc_on(s, size, false, s->main_thread, MT_WALK_OK);
}

static void syn_free(struct synthetic *s, uint32_t i)
{
	struct event e = { .kind = EVENT_FREE, .thread = s->main_thread, .addr = s->live[i].addr };

	if (s->live[i].cpu) {
		s->live[i] = s->live[--s->n];
		syn_send(s, &e);
		return;
	}
	e.device.type = DEVICE_CUDA;
	e.size = s->live[i].size;
	s->allocated -= e.size;
	e.totals = true;
	e.allocated = s->allocated;
	e.reserved = s->reserved;
	s->live[i] = s->live[--s->n];
	syn_send(s, &e);
}

/* Frees blocks allocated since `to`, newest first, except those to keep. */
static void syn_free_down(struct synthetic *s, uint32_t to)
{
	while (s->n > to)
		syn_free(s, s->n - 1);
}

static void syn_linear(struct synthetic *s, const char *name, uint64_t size)
{
	uint32_t depth = s->depth;

	syn_call(s, name, "Linear");
	syn_push(s, "Linear.forward", SYN_SITE "torch/nn/modules/linear.py", 134);
	syn_alloc(s, size);
	syn_pop(s, depth);
}

static void syn_norm(struct synthetic *s, const char *name, uint64_t size)
{
	uint32_t depth = s->depth;

	syn_call(s, name, "LayerNorm");
	syn_push(s, "LayerNorm.forward", SYN_SITE "torch/nn/modules/normalization.py", 229);
	syn_push(s, "layer_norm", SYN_SITE "torch/nn/functional.py", 2901);
	syn_alloc(s, size);
	syn_alloc(s, size / 768);
	syn_pop(s, depth);
}

static void syn_attention(struct synthetic *s, const char *block)
{
	uint32_t depth = s->depth, here;
	char name[64];

	snprintf(name, sizeof(name), "%s.attn", block);
	syn_call(s, name, "CausalSelfAttention");
	here = s->depth;
	syn_push(s, "CausalSelfAttention.forward", SYN_APP "model.py", 52);
	snprintf(name, sizeof(name), "%s.attn.qkv", block);
	syn_linear(s, name, 72 * SYN_MIB);
	syn_pop(s, here);
	syn_push(s, "CausalSelfAttention.forward", SYN_APP "model.py", 57);
	syn_alloc(s, 96 * SYN_MIB);
	syn_pop(s, here);
	syn_push(s, "CausalSelfAttention.forward", SYN_APP "model.py", 58);
	syn_push(s, "softmax", SYN_SITE "torch/nn/functional.py", 2133);
	syn_alloc(s, 96 * SYN_MIB);
	syn_pop(s, here);
	syn_push(s, "CausalSelfAttention.forward", SYN_APP "model.py", 60);
	snprintf(name, sizeof(name), "%s.attn.proj", block);
	syn_linear(s, name, 24 * SYN_MIB);
	syn_pop(s, depth);
}

static void syn_mlp(struct synthetic *s, const char *block)
{
	uint32_t depth = s->depth, here;
	char name[64];

	snprintf(name, sizeof(name), "%s.mlp", block);
	syn_call(s, name, "MLP");
	syn_push(s, "MLP.forward", SYN_APP "model.py", 74);
	here = s->depth;
	snprintf(name, sizeof(name), "%s.mlp.fc", block);
	syn_linear(s, name, 96 * SYN_MIB);
	snprintf(name, sizeof(name), "%s.mlp.act", block);
	syn_call(s, name, "GELU");
	syn_push(s, "GELU.forward", SYN_SITE "torch/nn/modules/activation.py", 734);
	syn_alloc(s, 96 * SYN_MIB);
	syn_pop(s, here);
	snprintf(name, sizeof(name), "%s.mlp.proj", block);
	syn_linear(s, name, 24 * SYN_MIB);
	syn_pop(s, depth);
}

static void syn_forward(struct synthetic *s)
{
	uint32_t depth = s->depth;

	syn_push(s, "train_step", SYN_APP "train.py", 41);
	syn_call(s, "", "GPT");
	syn_push(s, "GPT.forward", SYN_APP "model.py", 118);
	syn_call(s, "wte", "Embedding");
	syn_push(s, "Embedding.forward", SYN_SITE "torch/nn/modules/sparse.py", 192);
	syn_alloc(s, 24 * SYN_MIB);
	syn_pop(s, depth + 4);
	for (unsigned int i = 0; i < s->opts.layers; i++) {
		char block[24], name[64];
		uint32_t here = s->depth;

		snprintf(block, sizeof(block), "blocks.%u", i);
		syn_call(s, block, "Block");
		syn_push(s, "Block.forward", SYN_APP "model.py", 95);
		snprintf(name, sizeof(name), "%s.ln_1", block);
		syn_norm(s, name, 24 * SYN_MIB);
		syn_attention(s, block);
		syn_pop(s, here + 2);
		syn_push(s, "Block.forward", SYN_APP "model.py", 96);
		snprintf(name, sizeof(name), "%s.ln_2", block);
		syn_norm(s, name, 24 * SYN_MIB);
		syn_mlp(s, block);
		syn_pop(s, here);
	}
	syn_pop(s, depth + 3);
	syn_push(s, "GPT.forward", SYN_APP "model.py", 124);
	syn_linear(s, "lm_head", 786 * SYN_MIB);
	syn_pop(s, depth);
	syn_push(s, "train_step", SYN_APP "train.py", 43);
	syn_push(s, "cross_entropy", SYN_SITE "torch/nn/functional.py", 3462);
	syn_alloc(s, 786 * SYN_MIB);
	syn_pop(s, depth);
}

static void syn_backward(struct synthetic *s, uint32_t activations, bool first)
{
	uint32_t depth = s->depth;

	syn_push(s, "train_step", SYN_APP "train.py", 45);
	syn_push(s, "Tensor.backward", SYN_SITE "torch/_tensor.py", 648);
	syn_push(s, "backward", SYN_SITE "torch/autograd/__init__.py", 353);
	syn_push(s, "_engine_run_backward", SYN_SITE "torch/autograd/graph.py", 824);
	syn_alloc(s, 4096);
	syn_alloc_on(s, 300 * SYN_MIB, false, s->autograd, MT_WALK_NO_FRAME);
	syn_alloc_on(s, 40 * SYN_MIB, false, s->autograd, MT_WALK_FAULT_FRAME);
	syn_free_down(s, activations);
	for (unsigned int i = 0; first && i < s->opts.layers; i++)
		syn_alloc_on(s, 27 * SYN_MIB + i * 512, false, s->autograd, MT_WALK_NO_FRAME);
	syn_pop(s, depth);
}

/* The optimizer's first step allocates its state, which stays. */
static void syn_optimizer(struct synthetic *s, bool first)
{
	uint32_t depth = s->depth, before;
	struct event e = { .kind = EVENT_STEP, .thread = s->main_thread };

	syn_push(s, "train_step", SYN_APP "train.py", 47);
	syn_push(s, "Optimizer.profile_hook_step.<locals>.wrapper",
		 SYN_SITE "torch/optim/optimizer.py", 516);
	syn_push(s, "AdamW.step", SYN_SITE "torch/optim/adam.py", 236);
	for (unsigned int i = 0; first && i < 2 * s->opts.layers; i++) {
		syn_push(s, "Adam._init_group", SYN_SITE "torch/optim/adam.py", i % 2 ? 181 : 176);
		syn_alloc(s, 27 * SYN_MIB);
		syn_pop(s, s->depth - 1);
	}
	before = s->n;
	syn_push(s, "_multi_tensor_adam", SYN_SITE "torch/optim/adam.py", 720);
	syn_alloc(s, 180 * SYN_MIB);
	syn_free_down(s, before);
	syn_pop(s, depth);
	syn_send(s, &e);
}

static void syn_data(struct synthetic *s)
{
	uint32_t depth = s->depth;

	syn_push(s, "batches", SYN_APP "data.py", 23);
	if (s->opts.cpu) {
		syn_push(s, "_BaseDataLoaderIter.__next__",
			 SYN_SITE "torch/utils/data/dataloader.py", 734);
		syn_push(s, "collate", SYN_APP "data.py", 31);
		syn_push(s, "Tokenizer.encode_batch", SYN_SITE "tokenizers/implementations/base.py",
			 276);
		syn_alloc_on(s, 3 * SYN_MIB, true, s->main_thread, MT_WALK_OK);
		syn_pop(s, depth + 1);
	}
	syn_alloc(s, SYN_MIB);
	syn_pop(s, depth);
}

/* The end of a step that frees what it allocated since `to`, and keeps a tensor in a list. */
static void syn_keep(struct synthetic *s, uint32_t to)
{
	uint32_t depth = s->depth;

	syn_free_down(s, to);
	if (!s->opts.leak)
		return;
	syn_push(s, "train_step", SYN_APP "train.py", 49);
	syn_alloc(s, s->opts.leak);
	syn_pop(s, depth);
}

static void syn_oom(struct synthetic *s)
{
	struct event e = {
		.kind = EVENT_OOM, .thread = s->main_thread, .size = 786 * SYN_MIB, .totals = true
	};

	e.device.type = DEVICE_CUDA;
	e.allocated = s->allocated;
	e.reserved = s->reserved;
	syn_send(s, &e);
}

static void syn_facts(struct facts *f)
{
	facts__set(f, "pid", "4242");
	facts__set(f, "comm", "python");
	facts__set(f, "cmdline", "[\"python\", \"train.py\", \"--batch-size\", \"16\"]");
	facts__set(f, "python", "3.12.1");
	facts__set(f, "torch", "2.11.0+cu130");
	facts__set(f, "version", "0.1");
	facts__set(f, "attached_at", "live");
	facts__set(f, "start", "2026-01-02T03:04:05Z");
	facts__set(f, "allocator", "native");
}

static uint32_t syn_thread(struct dict *d, uint32_t tid, const char *name)
{
	return dict__thread(d, (struct dict_thread){ .tid = tid,
						     .name = dict__string(d, name, strlen(name)) });
}

/* Sends the whole capture to the sink. 0, or the sink's error. *duration: ns. */
static inline int synthetic__run(struct dict *d, struct facts *f, struct sink *sink,
				 struct synthetic_opts opts, uint64_t *duration)
{
	struct synthetic *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -1;
	s->d = d;
	s->sink = sink;
	s->opts = opts;
	s->addr = UINT64_C(0x7f0000000000);
	s->allocated = 1214 * SYN_MIB; /* parameters from before attach */
	s->reserved = 1300 * SYN_MIB;
	syn_facts(f);
	s->main_thread = syn_thread(d, 4242, "python");
	s->autograd = syn_thread(d, 4250, "pt_autograd_0");
	s->native = syn_thread(d, 4260, "pin_memory");
	syn_push(s, "_run_module_as_main", "<frozen runpy>", 198);
	syn_push(s, "<module>", SYN_APP "train.py", 88);
	syn_push(s, "main", SYN_APP "train.py", 71);
	for (unsigned int i = 0; i < opts.steps && !s->err; i++) {
		uint32_t activations, start = s->n;

		syn_alloc_on(s, 2 * SYN_MIB, false, s->native, MT_WALK_NO_THREAD);
		syn_data(s);
		activations = s->n;
		syn_forward(s);
		if (opts.oom && i + 1 == opts.steps)
			syn_oom(s);
		syn_backward(s, activations, !i);
		syn_optimizer(s, !i);
		if (i && opts.steady)
			syn_keep(s, start);
		else if (i) /* frees the previous batch; blocks of the first step stay */
			syn_free(s, s->n - 1);
	}
	err = s->err;
	*duration = s->now;
	free(s);
	return err;
}
