/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A sample of the blocks inside malloc. A call for n bytes is drawn with probability
 * n / malloc_every, at its entry; calls for more are always drawn. Only a drawn call walks its
 * stack, and only its return matters. The addresses of drawn blocks are in a table of sets, so a
 * free of any other block ends after one look. Only plain C functions are probed: an exception must
 * not pass a return probe.
 */
#include "native.bpf.h"

#define MALLOC_WAYS 8
#define MALLOC_TRIES 16 /* to claim a set for a new block */

/* Shared with user space while the programs run. */
__u64 malloc_every = 0; /* bytes, at most 2^31; 0: only count the calls */
/* Code of the probed functions, in the process's addresses: a call from there is a part of another
 * call. Unused ranges are 0, 0. */
__u64 malloc_own[MT_MALLOC_RANGES][2] = {};
const volatile __u32 malloc_sets = 1; /* sets of malloc_blocks; a power of two */

struct malloc_set {
	__u64 busy;		 /* for claim_word(), by those who add a block */
	__u64 key[MALLOC_WAYS];	 /* own_key() of the block's address; 0: free */
	__u64 size[MALLOC_WAYS]; /* bytes that the program asked for */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* malloc_sets */
	__type(key, __u32);
	__type(value, struct malloc_set);
} malloc_blocks SEC(".maps");

/* A call whose return matters. */
struct malloc_call {
	struct kept_call call; /* .sp 0: none */
	struct kept_call next; /* a call that begins */
	struct stack_read read;
	__u64 asked;	/* bytes */
	__u64 drawn;	/* 1: its block is in the sample */
	__u64 every;	/* malloc_every at the entry */
	__u64 out;	/* where the block's address goes; 0: it is the result */
	__u64 old;	/* the block in the sample that realloc takes; 0: none */
	__u64 old_size; /* its bytes */
	__u64 addr;	/* the result */
	__u64 stack;	/* result of walk_stack() */
	__u64 entered;	/* CLOCK_MONOTONIC, ns */
};

THREAD_MAP(malloc_calls, struct malloc_call);

static __always_inline struct malloc_set *set_of(__u64 key)
{
	__u32 i = ((key >> 4) * 0x9e3779b97f4a7c15ULL >> 32) & (malloc_sets - 1);

	return bpf_map_lookup_elem(&malloc_blocks, &i);
}

/* Bytes of the block in the sample at this address; 0: none there. takes: removes it. */
static __noinline __u64 find_block(__u64 addr, __u32 takes)
{
	__u64 key = own_key(addr);
	struct malloc_set *s = set_of(key);

	if (!s || !addr)
		return 0;
	for (__u32 i = 0; i < MALLOC_WAYS; i++) {
		if (s->key[i] != key)
			continue;
		if (takes)
			*(volatile __u64 *)&s->key[i] = 0;
		return s->size[i];
	}
	return 0;
}

static __always_inline bool claim_set(struct malloc_set *s)
{
	for (__u32 i = 0; i < MALLOC_TRIES; i++)
		if (claim_word(&s->busy))
			return true;
	return false;
}

/* Adds a block to the sample: where its set has the address already (its free was not seen),
 * otherwise in a free place. The key is written last, for find_block(), which does not
 * claim the set. False: there is no room for it. */
static __noinline bool add_block(__u64 addr, __u64 size)
{
	__u64 key = own_key(addr);
	struct malloc_set *s = set_of(key);
	__u32 found = MALLOC_WAYS;

	if (!s || !claim_set(s))
		return false;
	for (__u32 i = 0; i < MALLOC_WAYS; i++)
		if (s->key[i] == key ||
		    (!s->key[i] && (found == MALLOC_WAYS || s->key[found] != key)))
			found = i;
	if (found < MALLOC_WAYS) {
		s->size[found] = size;
		*(volatile __u64 *)&s->key[found] = key;
	}
	release_word(&s->busy);
	return found < MALLOC_WAYS;
}

static __always_inline bool is_malloc_drawn(__u64 size, __u64 every, __u32 random)
{
	return size >= every || (random * every) >> 32 < size;
}

/* An argument by its number, from 1; 1 for number 0. */
static __always_inline __u64 malloc_arg(struct pt_regs *ctx, __u32 number)
{
	__u64 v = 1;

#define ARGUMENT(n)                                                                                \
	case n:                                                                                    \
		v = ARG(ctx, n);                                                                   \
		/* Keep separate loads, as in read_register(). */                                  \
		asm volatile("" : : "i"(n));                                                       \
		break
	switch (number) {
		ARGUMENT(1);
		ARGUMENT(2);
		ARGUMENT(3);
	}
#undef ARGUMENT
	return v;
}

/* Bytes that a call asks for; 0: none, or impossibly many. how: enum mt_malloc_how. */
static __always_inline __u64 malloc_asked(struct pt_regs *ctx, __u64 how)
{
	__u64 size = malloc_arg(ctx, how & MT_MALLOC_SIZE);
	__u64 count = malloc_arg(ctx, (how & MT_MALLOC_COUNT) >> MT_MALLOC_COUNT_AT);

	if (size > MT_MALLOC_MAX || count > MT_MALLOC_MAX / (size | 1))
		return 0;
	return size * count;
}

/* True if code of a probed function made the call. */
static __always_inline bool is_malloc_inner(__u64 caller)
{
	for (__u32 i = 0; i < MT_MALLOC_RANGES; i++)
		if (caller >= malloc_own[i][0] && caller < malloc_own[i][1])
			return true;
	return false;
}

static __always_inline int malloc_unrecorded(__u8 type)
{
	count(MT_CNT_HIT + type);
	return filtered(type);
}

/* Reports that a block of the sample is freed. */
static __noinline int send_malloc_free(__u64 addr)
{
	struct mt_rec_free *r;

	count(MT_CNT_HIT + MT_REC_MALLOC_FREE);
	r = reserve(MT_REC_MALLOC_FREE, sizeof(*r));
	if (!r)
		return 0;
	fill(&r->h, MT_REC_MALLOC_FREE, bpf_ktime_get_ns(), 0, false);
	r->addr = addr;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Keeps a call whose return matters. False: it has none that does. */
static __noinline bool keep_malloc(struct pt_regs *ctx, __u64 how, __u64 every, __u32 drawn)
{
	struct malloc_call *c = THREAD_BEGIN(malloc_calls);

	if (!c) {
		count(MT_CNT_HIT + MT_REC_MALLOC);
		count_and_tell(MT_CNT_RING_LOST + MT_REC_MALLOC);
		return false;
	}
	begin_read(&c->read, ctx);
	if (!keep_call(&c->next, &c->read, PT_REGS_SP(ctx)))
		c->next.ret = 0;
	if (is_malloc_inner(c->next.ret)) {
		/* Another call has the new block, but this one ends the old block. */
		if (how & MT_MALLOC_OLD && find_block(ARG(ctx, 1), 1))
			send_malloc_free(ARG(ctx, 1));
		malloc_unrecorded(MT_REC_MALLOC);
		return false;
	}
	c->call = c->next;
	c->asked = malloc_asked(ctx, how);
	c->drawn = drawn;
	c->every = every;
	c->out = how & MT_MALLOC_OUT ? ARG(ctx, 1) : 0;
	c->old = how & MT_MALLOC_OLD ? ARG(ctx, 1) : 0;
	/* The block ends before another thread can get its address. */
	c->old_size = find_block(c->old, 1);
	if (c->old_size)
		send_malloc_free(c->old);
	c->entered = bpf_ktime_get_ns();
	c->stack = walk_stack_atomic(0, c->call.sp, c->entered);
	return true;
}

/* Begins a call. False: its return does not matter. */
static __always_inline bool begin_malloc(struct pt_regs *ctx)
{
	__u64 every = *(volatile __u64 *)&malloc_every, how, asked, time;
	__u32 random, drawn;

	if (is_over())
		return false;
	if (bench_empty) {
		count(MT_CNT_HIT + MT_REC_MALLOC);
		return false;
	}
	random = bpf_get_prandom_u32();
	time = random & (MT_TIMED_EVERY - 1) ? 0 : bpf_ktime_get_ns();
	how = site_cookie(ctx);
	asked = malloc_asked(ctx, how);
	drawn = asked && every && is_malloc_drawn(asked, every, random);
	/* realloc(NULL, n) may go on as malloc(n), which has its own probe. */
	if (how & MT_MALLOC_FORWARDS && !ARG(ctx, 1))
		drawn = 0;
	if (drawn || (how & MT_MALLOC_OLD && every && find_block(ARG(ctx, 1), 0)))
		return keep_malloc(ctx, how, every, drawn);
	malloc_unrecorded(MT_REC_MALLOC);
	if (time)
		add_time(MT_REC_MALLOC, time);
	return false;
}

/* Finds the block that a call gave, or, if realloc failed, the one that stays. False: none. */
static __noinline bool find_result(struct malloc_call *c)
{
	if (!c)
		return false;
	if (c->out && !c->addr) {
		if (bpf_probe_read_user(&c->addr, sizeof(c->addr), (const void *)c->out))
			c->addr = 0;
	} else if (c->out) {
		c->addr = 0; /* an error number */
	}
	if (c->addr)
		return c->drawn;
	if (!c->old_size || !c->asked)
		return false;
	c->addr = c->old;
	c->asked = c->old_size;
	return true;
}

static __always_inline int end_malloc(struct pt_regs *ctx)
{
	struct malloc_call *c = THREAD_GET(malloc_calls);
	struct mt_rec_malloc *r;

	if (!c || !c->call.sp || PT_REGS_SP(ctx) != sp_returned(&c->call))
		return 0;
	c->call.sp = 0;
	if (is_over())
		return 0;
	c->addr = PT_REGS_RC(ctx);
	if (!find_result(c))
		return malloc_unrecorded(MT_REC_MALLOC);
	count(MT_CNT_HIT + MT_REC_MALLOC);
	/* Only now: system calls of the call may have sent the thread's stack, too. */
	if (c->stack < MT_STACK_WALKS)
		copy_stack(ctx, c->entered, c->stack, 0, 1);
	r = reserve(MT_REC_MALLOC, sizeof(*r));
	if (!r)
		return 0;
	if (!add_block(c->addr, c->asked)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		count(MT_CNT_MALLOC_FULL);
		return filtered(MT_REC_MALLOC);
	}
	fill(&r->h, MT_REC_MALLOC, bpf_ktime_get_ns(), c->stack, false);
	r->addr = c->addr;
	r->size = c->asked;
	r->every = c->every;
	r->stack = stack_id(c->stack);
	r->entered = c->entered;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* For kernels where the program at the entry tells whether it also runs at the return: Linux 6.13
 * and newer. */
SEC("uprobe")
int malloc_session(struct pt_regs *ctx)
{
	if (bpf_get_func_ip(ctx) == PT_REGS_IP(ctx))
		return !begin_malloc(ctx);
	return end_malloc(ctx);
}

SEC("uprobe")
int malloc_enter(struct pt_regs *ctx)
{
	begin_malloc(ctx);
	return 0;
}

SEC("uretprobe")
int malloc_return(struct pt_regs *ctx)
{
	return end_malloc(ctx);
}

/* void free(void *ptr) */
SEC("uprobe")
int malloc_free(struct pt_regs *ctx)
{
	__u64 addr = ARG(ctx, 1), time;

	if (is_over())
		return 0;
	if (bench_empty) {
		count(MT_CNT_HIT + MT_REC_MALLOC_FREE);
		return 0;
	}
	time = bpf_get_prandom_u32() & (MT_TIMED_EVERY - 1) ? 0 : bpf_ktime_get_ns();
	if (find_block(addr, 1))
		return send_malloc_free(addr);
	malloc_unrecorded(MT_REC_MALLOC_FREE);
	if (time)
		add_time(MT_REC_MALLOC_FREE, time);
	return 0;
}
