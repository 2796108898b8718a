/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include "native.bpf.h"

/*
 * Calls into the CUDA runtime and driver. The entry's program keeps the arguments, the return's
 * program writes one record. Only plain C functions have return probes: an exception must not pass
 * one.
 * One call per thread is kept: the runtime calls the driver for the same memory. The task owns the
 * state, and no bucket lock is taken. A kept call is dropped if the stack pointer shows that its
 * frame has been left, or if the kernel's trampoline is no longer its return address.
 */
struct call_slot {
	struct kept_call call; /* .sp 0: no call */
	__u64 arg[4];
	__u64 out;
	__u64 stack; /* result of walk_stack() */
	__u64 entered;
	struct stack_read read;
	__u32 fn;
	__u32 flags;
	__u32 node; /* enum mt_node */
	__u32 pad;
};

THREAD_MAP(calls, struct call_slot);

/* Set by user space before it attaches the sites. A site's cookie is its index. */
struct mt_usdt_args asked_args[MT_ASKED_SITES] = {};

static __always_inline struct call_slot *this_call(void)
{
	return THREAD_GET(calls);
}

static __always_inline struct call_slot *begin_call(void)
{
	return THREAD_BEGIN(calls);
}

/* Reads an argument or a result in the target's memory. False: unreadable, which is counted. */
static __always_inline bool read_call(void *dst, __u32 size, __u64 addr)
{
	if (!bpf_probe_read_user(dst, size, (const void *)addr))
		return true;
	count(MT_CNT_CALL_FAULT);
	return false;
}

/* True if the kept call is active, so that a call that begins at `sp` is an inner call. */
static __noinline bool within_call(struct call_slot *slot, __u64 sp)
{
	return slot && awaits_return(&slot->call, sp, &slot->read);
}

/* Reads arguments in memory at the entry: properties, and arguments on the stack. */
static __noinline int read_arguments(struct call_slot *slot)
{
	if (!slot)
		return 0;
	if (slot->flags & MT_CALL_PROP &&
	    !read_call(&slot->arg[2], sizeof(slot->arg[2]), slot->arg[2] + 8))
		slot->arg[2] = ~0ULL;
	if (slot->flags & MT_CALL_POOL) {
		__u64 props = slot->arg[1];

		if (!read_call(&slot->arg[1], sizeof(slot->arg[1]), props + 8) ||
		    !read_call(&slot->arg[2], sizeof(slot->arg[2]), props))
			slot->arg[1] = slot->arg[2] = ~0ULL;
	}
	if (slot->flags & MT_CALL_EXTENT && !read_call(&slot->arg[1], 3 * sizeof(slot->arg[1]),
						       extent_of(slot->arg[1], slot->call.sp)))
		slot->arg[1] = slot->arg[2] = slot->arg[3] = ~0ULL;
	return 0;
}

/* Reads results in memory at the return of a call that succeeded. */
static __noinline int read_results(struct call_slot *slot)
{
	if (!slot)
		return 0;
	if (slot->flags & MT_CALL_OUT && !read_call(&slot->out, sizeof(slot->out), slot->arg[0]))
		slot->out = ~0ULL;
	if (slot->flags & MT_CALL_EXTENT &&
	    !read_call(&slot->arg[1], sizeof(slot->arg[1]), slot->arg[0] + 8))
		slot->arg[1] = ~0ULL;
	if (slot->flags & MT_CALL_PITCH &&
	    !read_call(&slot->arg[1], sizeof(slot->arg[1]), slot->arg[1]))
		slot->arg[1] = ~0ULL;
	return 0;
}

SEC("uprobe")
int call_enter(struct pt_regs *ctx)
{
	__u64 cookie = site_cookie(ctx);
	struct thread_slot *thread;
	struct call_slot *slot;

	if (is_ignored() || bench_empty)
		return 0;
	slot = begin_call();
	if (!slot) {
		count_lost_hit(MT_REC_CUDA_CALL);
		return 0;
	}
	begin_read(&slot->read, ctx);
	if (slot->call.sp) {
		if (within_call(slot, PT_REGS_SP(ctx))) {
			count(MT_CNT_CALL_INNER);
			if (cookie >> 32 & MT_CALL_DRIVER && slot->flags & MT_CALL_RUNTIME)
				count(MT_CNT_CALL_DRIVER);
			return 0;
		}
		count(MT_CNT_CALL_STALE);
	}
	if (!keep_call(&slot->call, &slot->read, PT_REGS_SP(ctx)))
		count(MT_CNT_CALL_FAULT);
	slot->fn = (__u32)cookie;
	slot->flags = cookie >> 32;
	slot->arg[0] = PT_REGS_PARM1(ctx);
	slot->arg[1] = PT_REGS_PARM2(ctx);
	slot->arg[2] = PT_REGS_PARM3(ctx);
	slot->arg[3] = PT_REGS_PARM4(ctx);
	read_arguments(slot);
	slot->entered = bpf_ktime_get_ns();
	slot->stack = 0;
	slot->node = MT_NODE_NONE;
	if (slot->flags & MT_CALL_WALK) {
		thread = this_thread(ctx);
		slot->stack = walk_stack_atomic(thread, slot->call.sp, slot->entered);
		slot->node = current_node(thread, slot->call.sp, slot->entered);
		copy_stack(ctx, slot->entered, slot->stack, slot->call.ret, 0);
	}
	return 0;
}

SEC("uretprobe")
int call_return(struct pt_regs *ctx)
{
	struct mt_rec_call *record;
	struct call_slot *slot;

	if (is_ignored())
		return 0;
	if (bench_empty) {
		count(MT_CNT_HIT + MT_REC_CUDA_CALL);
		return 0;
	}
	slot = this_call();
	/* The return of an inner call, or of a call that began before attach. */
	if (!slot || !slot->call.sp || PT_REGS_SP(ctx) != sp_returned(&slot->call) ||
	    !is_return_of(ctx, slot->fn))
		return 0;
	slot->call.sp = 0;
	slot->out = 0;
	count(MT_CNT_HIT + MT_REC_CUDA_CALL);
	if (!(__s32)PT_REGS_RC(ctx))
		read_results(slot);
	record = reserve(MT_REC_CUDA_CALL, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_CUDA_CALL, bpf_ktime_get_ns(), slot->stack, false);
	record->h.node = slot->node;
	record->fn = slot->fn;
	record->flags = slot->flags;
	record->result = (__s32)PT_REGS_RC(ctx);
	record->arg[0] = slot->arg[0];
	record->arg[1] = slot->arg[1];
	record->arg[2] = slot->arg[2];
	record->arg[3] = slot->arg[3];
	record->out = slot->out;
	record->caller = slot->call.ret;
	record->stack = stack_id(slot->stack);
	record->entered = slot->entered;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* cudaError_t cudaSetDevice(int device) */
SEC("uprobe")
int set_device(struct pt_regs *ctx)
{
	struct mt_rec_call *record;

	if (!begin(MT_REC_SET_DEVICE))
		return 0;
	record = reserve(MT_REC_SET_DEVICE, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_SET_DEVICE, bpf_ktime_get_ns(), 0, false);
	record->fn = (__u32)site_cookie(ctx);
	record->flags = 0;
	record->result = 0;
	record->arg[0] = PT_REGS_PARM1(ctx);
	record->arg[1] = record->arg[2] = record->arg[3] = 0;
	record->out = record->caller = record->stack = 0;
	record->entered = record->h.time;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Reads an argument as an unsigned number of its size. False: unreadable. */
static __always_inline bool asked_arg(struct pt_regs *ctx, __u32 site, __u32 which, __u64 *ret)
{
	struct mt_usdt_arg *arg;

	*ret = 0;
	asm volatile("" : "+r"(site));
	if (site >= MT_ASKED_SITES)
		return false;
	arg = &asked_args[site].arg[which];
	if (!read_register(ctx, arg->reg, ret))
		return false;
	if (arg->memory && bpf_probe_read_user(ret, sizeof(*ret), (const void *)(*ret + arg->disp)))
		return false;
	if (arg->size < 8)
		*ret &= (1ULL << (arg->size * 8)) - 1;
	return true;
}

/* USDT pytorch:malloc(void *ptr, int8 device, size_t requested, int64 stream), in
 * CUDACachingAllocator's allocate() */
SEC("uprobe")
int asked(struct pt_regs *ctx)
{
	__u32 site = (__u32)site_cookie(ctx);
	struct mt_rec_asked *record;

	if (!begin(MT_REC_REQUESTED))
		return 0;
	record = reserve(MT_REC_REQUESTED, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_REQUESTED, bpf_ktime_get_ns(), 0, false);
	record->pad = 0;
	if (!asked_arg(ctx, site, 1, &record->addr))
		goto fault;
	record->device = record->addr;
	if (!asked_arg(ctx, site, 0, &record->addr) ||
	    !asked_arg(ctx, site, 2, &record->requested) ||
	    !asked_arg(ctx, site, 3, &record->stream))
		goto fault;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
fault:
	bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
	count(MT_CNT_ASKED_FAULT);
	return filtered(MT_REC_REQUESTED);
}
