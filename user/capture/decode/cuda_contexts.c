/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* CUDA contexts: which device a thread uses, and what ends with one. */
#include "capture/decode/cuda_calls_internal.h"

#define CONTEXT_UNKNOWN UINT64_MAX

static void know_context(struct cuda_calls *c, uint64_t handle, uint64_t device, bool primary)
{
	size_t i;

	for (i = 0; i < c->n_contexts && c->context[i].handle != handle; i++)
		;
	if (i == CONTEXTS_MAX)
		return;
	c->n_contexts += i == c->n_contexts;
	c->context[i] = (struct context){ handle, device < DEVICE_UNKNOWN ? device : DEVICE_UNKNOWN,
					  primary };
}

static void use_context(const struct cuda_calls *c, struct thread *t, uint64_t handle)
{
	size_t i;

	t->cuda_context = CONTEXT_UNKNOWN;
	t->cuda_device = 0;
	for (i = 0; i < c->n_contexts; i++) {
		if (c->context[i].handle != handle)
			continue;
		t->cuda_context = c->context[i].primary ? 0 : handle;
		t->cuda_device = c->context[i].device == DEVICE_UNKNOWN ? 0
									: c->context[i].device + 1;
	}
}

static void push_context(struct thread *t)
{
	size_t i;

	if (t->n_pushed == CUDA_PUSHED) { /* drop the lowest one */
		for (i = 1; i < CUDA_PUSHED; i++)
			t->pushed[i - 1] = t->pushed[i];
		t->n_pushed--;
	}
	t->pushed[t->n_pushed].context = t->cuda_context;
	t->pushed[t->n_pushed++].device = t->cuda_device;
}

static void pop_context(struct thread *t)
{
	t->cuda_context = CONTEXT_UNKNOWN;
	t->cuda_device = 0;
	if (!t->n_pushed)
		return;
	t->cuda_context = t->pushed[--t->n_pushed].context;
	t->cuda_device = t->pushed[t->n_pushed].device;
}

/* Ends all memory that cudaMalloc, cudaMallocHost and cudaMallocManaged took in a context. Pools,
 * and memory of cuMemCreate, outlive it. context: 0: the primary context of device. */
static int end_context(struct decoder *d, uint64_t context, unsigned device, struct event e)
{
	struct cuda_calls *c = d->calls;
	uint32_t i;
	int err = 0;

	c->moved = true;
	for (i = 0; i < c->n_taken && !err; i++) {
		const struct taken *t = &c->taken[i];

		if (t->in_context && t->context == context && (context || t->under == device + 1))
			err = cuda_taken__end(d, SPACE_MEMORY, t->addr, e);
	}
	return err;
}

int cuda_contexts__record(struct decoder *d, const struct cuda_function *fn,
			  const struct mt_rec_call *r, struct thread *t, struct event e)
{
	struct cuda_calls *c = d->calls;
	unsigned n = c->n_contexts;

	/* The runtime's own call: the program's call that caused it is recorded, too. */
	if (in_ranges(c->runtime, c->n_runtime, r->caller))
		return 0;
	switch (fn->op) {
	case CUDA_RESET:
		if (fn->device == CUDA_DEVICE_ARG0)
			return end_context(d, 0, (uint32_t)r->arg[0], e);
		if (t->cuda_context) /* resets only the runtime's state of that context */
			return 0;
		return t->cuda_device || c->devices == 1
			       ? end_context(d, 0, t->cuda_device ? t->cuda_device - 1u : 0, e)
			       : 0;
	case CUDA_CTX_RETAIN:
		know_context(c, r->out, (uint32_t)r->arg[1], true);
		break;
	case CUDA_CTX_CREATE:
		know_context(c, r->out,
			     fn->device == CUDA_DEVICE_NONE
				     ? DEVICE_UNKNOWN
				     : (uint32_t)r->arg[fn->device - CUDA_DEVICE_ARG0],
			     false);
		push_context(t);
		use_context(c, t, r->out);
		break;
	case CUDA_CTX_DESTROY:
		if (t->cuda_context == r->arg[0])
			pop_context(t);
		while (n-- > 0)
			if (c->context[n].handle == r->arg[0])
				c->context[n] = c->context[--c->n_contexts];
		return end_context(d, r->arg[0], 0, e);
	case CUDA_CTX_PUSH:
		push_context(t);
		use_context(c, t, r->arg[0]);
		break;
	case CUDA_CTX_SET:
		use_context(c, t, r->arg[0]);
		break;
	case CUDA_CTX_POP:
		pop_context(t);
		break;
	}
	return 0;
}
