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
	__u32 index = ((key >> 4) * 0x9e3779b97f4a7c15ULL >> 32) & (malloc_sets - 1);

	return bpf_map_lookup_elem(&malloc_blocks, &index);
}

/* Bytes of the block in the sample at this address; 0: none there. takes: removes it. */
static __noinline __u64 find_block(__u64 addr, __u32 takes)
{
	__u64 key = own_key(addr);
	struct malloc_set *set = set_of(key);

	if (!set || !addr)
		return 0;
	for (__u32 i = 0; i < MALLOC_WAYS; i++) {
		if (set->key[i] != key)
			continue;
		if (takes)
			*(volatile __u64 *)&set->key[i] = 0;
		return set->size[i];
	}
	return 0;
}

static __always_inline bool claim_set(struct malloc_set *set)
{
	for (__u32 i = 0; i < MALLOC_TRIES; i++)
		if (claim_word(&set->busy))
			return true;
	return false;
}

/* Adds a block to the sample: where its set has the address already (its free was not seen),
 * otherwise in a free place. The key is written last, for find_block(), which does not
 * claim the set. False: there is no room for it. */
static __noinline bool add_block(__u64 addr, __u64 size)
{
	__u64 key = own_key(addr);
	struct malloc_set *set = set_of(key);
	__u32 found = MALLOC_WAYS;

	if (!set || !claim_set(set))
		return false;
	for (__u32 i = 0; i < MALLOC_WAYS; i++)
		if (set->key[i] == key ||
		    (!set->key[i] && (found == MALLOC_WAYS || set->key[found] != key)))
			found = i;
	if (found < MALLOC_WAYS) {
		set->size[found] = size;
		*(volatile __u64 *)&set->key[found] = key;
	}
	release_word(&set->busy);
	return found < MALLOC_WAYS;
}

static __always_inline bool is_malloc_drawn(__u64 size, __u64 every, __u32 random)
{
	return size >= every || (random * every) >> 32 < size;
}

/* Value of an argument, by its number from 1; 1 for number 0. */
static __always_inline __u64 malloc_arg(struct pt_regs *ctx, __u32 number)
{
	__u64 value = 1;

#define ARGUMENT(n)                                                                                \
	case n:                                                                                    \
		value = ARG(ctx, n);                                                               \
		/* Keep separate loads, as in read_register(). */                                  \
		asm volatile("" : : "i"(n));                                                       \
		break
	switch (number) {
		ARGUMENT(1);
		ARGUMENT(2);
		ARGUMENT(3);
	}
#undef ARGUMENT
	return value;
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

/* Ends a hit that has nothing to do with the sample. */
static __always_inline int malloc_unrecorded(__u8 type)
{
	count(MT_CNT_HIT + type);
	return filtered(type);
}

/* Reports that a block of the sample is freed. */
static __noinline int send_malloc_free(__u64 addr)
{
	struct mt_rec_free *record;

	count(MT_CNT_HIT + MT_REC_MALLOC_FREE);
	record = reserve(MT_REC_MALLOC_FREE, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_MALLOC_FREE, bpf_ktime_get_ns(), 0, false);
	record->addr = addr;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Keeps a call whose return matters, and ends the block that realloc takes. False: the return does
 * not matter, or cannot be kept. */
static __noinline bool keep_malloc(struct pt_regs *ctx, __u64 how, __u64 every, __u32 drawn)
{
	struct malloc_call *slot = THREAD_BEGIN(malloc_calls);

	if (!slot) {
		count_lost_hit(MT_REC_MALLOC);
		return false;
	}
	begin_read(&slot->read, ctx);
	if (!keep_call(&slot->next, &slot->read, PT_REGS_SP(ctx)))
		slot->next.ret = 0;
	if (is_malloc_inner(slot->next.ret)) {
		/* Another call has the new block, but this one ends the old block. */
		if (how & MT_MALLOC_OLD && find_block(ARG(ctx, 1), 1))
			send_malloc_free(ARG(ctx, 1));
		malloc_unrecorded(MT_REC_MALLOC);
		return false;
	}
	slot->call = slot->next;
	slot->asked = malloc_asked(ctx, how);
	slot->drawn = drawn;
	slot->every = every;
	slot->out = how & MT_MALLOC_OUT ? ARG(ctx, 1) : 0;
	slot->old = how & MT_MALLOC_OLD ? ARG(ctx, 1) : 0;
	/* The block ends before another thread can get its address. */
	slot->old_size = find_block(slot->old, 1);
	if (slot->old_size)
		send_malloc_free(slot->old);
	slot->entered = bpf_ktime_get_ns();
	slot->stack = walk_stack_atomic(0, slot->call.sp, slot->entered);
	return true;
}

/* Begins a call. False: its return does not matter. */
static __always_inline bool begin_malloc(struct pt_regs *ctx)
{
	__u64 every = *(volatile __u64 *)&malloc_every, how, asked, time;
	__u32 random, drawn;

	if (is_ignored())
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
static __noinline bool find_result(struct malloc_call *slot)
{
	if (!slot)
		return false;
	if (slot->out && !slot->addr) {
		if (bpf_probe_read_user(&slot->addr, sizeof(slot->addr), (const void *)slot->out))
			slot->addr = 0;
	} else if (slot->out) {
		slot->addr = 0; /* an error number */
	}
	if (slot->addr)
		return slot->drawn;
	if (!slot->old_size || !slot->asked)
		return false;
	slot->addr = slot->old;
	slot->asked = slot->old_size;
	return true;
}

static __always_inline int end_malloc(struct pt_regs *ctx)
{
	struct malloc_call *slot = THREAD_GET(malloc_calls);
	struct mt_rec_malloc *record;

	if (!slot || !slot->call.sp || PT_REGS_SP(ctx) != sp_returned(&slot->call))
		return 0;
	slot->call.sp = 0;
	if (is_ignored())
		return 0;
	slot->addr = PT_REGS_RC(ctx);
	if (!find_result(slot))
		return malloc_unrecorded(MT_REC_MALLOC);
	count(MT_CNT_HIT + MT_REC_MALLOC);
	/* Only now: system calls of the call may have sent the thread's stack, too. */
	if (slot->stack < MT_STACK_WALKS)
		copy_stack(ctx, slot->entered, slot->stack, 0, 1);
	record = reserve(MT_REC_MALLOC, sizeof(*record));
	if (!record)
		return 0;
	if (!add_block(slot->addr, slot->asked)) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		count(MT_CNT_MALLOC_FULL);
		return filtered(MT_REC_MALLOC);
	}
	fill_header(&record->h, MT_REC_MALLOC, bpf_ktime_get_ns(), slot->stack, false);
	record->addr = slot->addr;
	record->size = slot->asked;
	record->every = slot->every;
	record->stack = stack_id(slot->stack);
	record->entered = slot->entered;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
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

	if (is_ignored())
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
