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

static __always_inline bool read_call(void *dst, __u32 size, __u64 addr)
{
	if (!bpf_probe_read_user(dst, size, (const void *)addr))
		return true;
	count(MT_CNT_CALL_FAULT);
	return false;
}

/* True if the kept call is active, so that a call that begins at `sp` is an inner call. */
static __noinline bool within_call(struct call_slot *c, __u64 sp)
{
	return c && awaits_return(&c->call, sp, &c->read);
}

/* Reads arguments in memory at the entry: properties, and arguments on the stack. */
static __noinline int read_arguments(struct call_slot *c)
{
	if (!c)
		return 0;
	if (c->flags & MT_CALL_PROP && !read_call(&c->arg[2], sizeof(c->arg[2]), c->arg[2] + 8))
		c->arg[2] = ~0ULL;
	if (c->flags & MT_CALL_POOL) {
		__u64 props = c->arg[1];

		if (!read_call(&c->arg[1], sizeof(c->arg[1]), props + 8) ||
		    !read_call(&c->arg[2], sizeof(c->arg[2]), props))
			c->arg[1] = c->arg[2] = ~0ULL;
	}
	if (c->flags & MT_CALL_EXTENT &&
	    !read_call(&c->arg[1], 3 * sizeof(c->arg[1]), extent_of(c->arg[1], c->call.sp)))
		c->arg[1] = c->arg[2] = c->arg[3] = ~0ULL;
	return 0;
}

/* Reads results in memory at the return of a call that succeeded. */
static __noinline int read_results(struct call_slot *c)
{
	if (!c)
		return 0;
	if (c->flags & MT_CALL_OUT && !read_call(&c->out, sizeof(c->out), c->arg[0]))
		c->out = ~0ULL;
	if (c->flags & MT_CALL_EXTENT && !read_call(&c->arg[1], sizeof(c->arg[1]), c->arg[0] + 8))
		c->arg[1] = ~0ULL;
	if (c->flags & MT_CALL_PITCH && !read_call(&c->arg[1], sizeof(c->arg[1]), c->arg[1]))
		c->arg[1] = ~0ULL;
	return 0;
}

SEC("uprobe")
int call_enter(struct pt_regs *ctx)
{
	__u64 cookie = site_cookie(ctx);
	struct thread_slot *t;
	struct call_slot *c;

	if (is_over() || bench_empty)
		return 0;
	c = begin_call();
	if (!c) {
		count(MT_CNT_HIT + MT_REC_CUDA_CALL);
		count_and_tell(MT_CNT_RING_LOST + MT_REC_CUDA_CALL);
		return 0;
	}
	begin_read(&c->read, ctx);
	if (c->call.sp) {
		if (within_call(c, PT_REGS_SP(ctx))) {
			count(MT_CNT_CALL_INNER);
			if (cookie >> 32 & MT_CALL_DRIVER && c->flags & MT_CALL_RUNTIME)
				count(MT_CNT_CALL_DRIVER);
			return 0;
		}
		count(MT_CNT_CALL_STALE);
	}
	if (!keep_call(&c->call, &c->read, PT_REGS_SP(ctx)))
		count(MT_CNT_CALL_FAULT);
	c->fn = (__u32)cookie;
	c->flags = cookie >> 32;
	c->arg[0] = PT_REGS_PARM1(ctx);
	c->arg[1] = PT_REGS_PARM2(ctx);
	c->arg[2] = PT_REGS_PARM3(ctx);
	c->arg[3] = PT_REGS_PARM4(ctx);
	read_arguments(c);
	c->entered = bpf_ktime_get_ns();
	c->stack = 0;
	c->node = MT_NODE_NONE;
	if (c->flags & MT_CALL_WALK) {
		t = this_thread(ctx);
		c->stack = walk_stack_atomic(t, c->call.sp, c->entered);
		c->node = current_node(t, c->call.sp, c->entered);
		copy_stack(ctx, c->entered, c->stack, c->call.ret, 0);
	}
	return 0;
}

SEC("uretprobe")
int call_return(struct pt_regs *ctx)
{
	struct mt_rec_call *r;
	struct call_slot *c;

	if (is_over())
		return 0;
	if (bench_empty) {
		count(MT_CNT_HIT + MT_REC_CUDA_CALL);
		return 0;
	}
	c = this_call();
	/* The return of an inner call, or of a call that began before attach. */
	if (!c || !c->call.sp || PT_REGS_SP(ctx) != sp_returned(&c->call) ||
	    !is_return_of(ctx, c->fn))
		return 0;
	c->call.sp = 0;
	c->out = 0;
	count(MT_CNT_HIT + MT_REC_CUDA_CALL);
	if (!(__s32)PT_REGS_RC(ctx))
		read_results(c);
	r = reserve(MT_REC_CUDA_CALL, sizeof(*r));
	if (!r)
		return 0;
	fill(&r->h, MT_REC_CUDA_CALL, bpf_ktime_get_ns(), c->stack, false);
	r->h.node = c->node;
	r->fn = c->fn;
	r->flags = c->flags;
	r->result = (__s32)PT_REGS_RC(ctx);
	r->arg[0] = c->arg[0];
	r->arg[1] = c->arg[1];
	r->arg[2] = c->arg[2];
	r->arg[3] = c->arg[3];
	r->out = c->out;
	r->caller = c->call.ret;
	r->stack = stack_id(c->stack);
	r->entered = c->entered;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* cudaError_t cudaSetDevice(int device) */
SEC("uprobe")
int set_device(struct pt_regs *ctx)
{
	struct mt_rec_call *r;

	if (!begin(MT_REC_SET_DEVICE))
		return 0;
	r = reserve(MT_REC_SET_DEVICE, sizeof(*r));
	if (!r)
		return 0;
	fill(&r->h, MT_REC_SET_DEVICE, bpf_ktime_get_ns(), 0, false);
	r->fn = (__u32)site_cookie(ctx);
	r->flags = 0;
	r->result = 0;
	r->arg[0] = PT_REGS_PARM1(ctx);
	r->arg[1] = r->arg[2] = r->arg[3] = 0;
	r->out = r->caller = r->stack = 0;
	r->entered = r->h.time;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Reads an argument as an unsigned number of its size. False: unreadable. */
static __always_inline bool asked_arg(struct pt_regs *ctx, __u32 site, __u32 which, __u64 *ret)
{
	struct mt_usdt_arg *a;

	*ret = 0;
	asm volatile("" : "+r"(site));
	if (site >= MT_ASKED_SITES)
		return false;
	a = &asked_args[site].arg[which];
	if (!read_register(ctx, a->reg, ret))
		return false;
	if (a->memory && bpf_probe_read_user(ret, sizeof(*ret), (const void *)(*ret + a->disp)))
		return false;
	if (a->size < 8)
		*ret &= (1ULL << (a->size * 8)) - 1;
	return true;
}

/* USDT pytorch:malloc(void *ptr, int8 device, size_t requested, int64 stream), in
 * CUDACachingAllocator's allocate() */
SEC("uprobe")
int asked(struct pt_regs *ctx)
{
	__u32 site = (__u32)site_cookie(ctx);
	struct mt_rec_asked *r;

	if (!begin(MT_REC_REQUESTED))
		return 0;
	r = reserve(MT_REC_REQUESTED, sizeof(*r));
	if (!r)
		return 0;
	fill(&r->h, MT_REC_REQUESTED, bpf_ktime_get_ns(), 0, false);
	r->pad = 0;
	if (!asked_arg(ctx, site, 1, &r->addr))
		goto fault;
	r->device = r->addr;
	if (!asked_arg(ctx, site, 0, &r->addr) || !asked_arg(ctx, site, 2, &r->requested) ||
	    !asked_arg(ctx, site, 3, &r->stream))
		goto fault;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
fault:
	bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
	count(MT_CNT_ASKED_FAULT);
	return filtered(MT_REC_REQUESTED);
}
