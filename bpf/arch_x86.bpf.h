/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * x86-64: see arch.bpf.h. A call puts its return address at the stack pointer. The call is active
 * while its frame is above the stack pointer and holds its return address. The word above that is
 * no further sign: it is the caller's, and the callee may change it through a pointer.
 */
#define MT_RETURN_ON_STACK 1

struct kept_call {
	__u64 sp; /* address of the call's return address */
	__u64 ret;
};

struct stack_read {
	__u64 word; /* word read last */
};

static __always_inline __u64 pointer_of_thread(void)
{
	return CURRENT_TASK(thread.fsbase);
}

static __always_inline void begin_read(struct stack_read *read, struct pt_regs *ctx)
{
}

static __always_inline bool keep_call(struct kept_call *call, const struct stack_read *read,
				      __u64 sp)
{
	call->sp = sp;
	return !read_word(&call->ret, sp);
}

struct caller {
	__u64 sp, bp, bx, r12;
};

static __always_inline void set_caller(struct caller *caller, struct pt_regs *ctx, __u64 sp)
{
	caller->sp = sp;
	caller->bp = ctx->bp;
	caller->bx = ctx->bx;
	caller->r12 = ctx->r12;
}

static __always_inline bool is_caller(const struct caller *caller, struct pt_regs *ctx, __u64 sp)
{
	return caller->sp == sp && caller->bp == ctx->bp && caller->bx == ctx->bx &&
	       caller->r12 == ctx->r12;
}

static __always_inline enum call_state state_of(const struct kept_call *call, __u64 sp,
						struct stack_read *read)
{
	if (call->sp <= sp)
		return CALL_LEFT;
	if (!call->ret || read_word(&read->word, call->sp))
		return CALL_UNKNOWN;
	/* A return probe of another tool: the kernel replaced the return address. */
	return read->word == call->ret || (read->word && read->word == return_trampoline())
		       ? CALL_ACTIVE
		       : CALL_LEFT;
}

static __always_inline bool awaits_return(const struct kept_call *call, __u64 sp,
					  struct stack_read *read)
{
	__u64 trampoline;

	if (sp > call->sp)
		return false;
	/* sp == call->sp: a tail call */
	if (read_word(&read->word, call->sp) || read->word == call->ret)
		return false;
	trampoline = return_trampoline();
	return !trampoline || read->word == trampoline;
}

static __always_inline __u64 sp_returned(const struct kept_call *call)
{
	return call->sp + 8;
}

/* Large structures are copied to the stack, after the return address. */
static __always_inline __u64 extent_of(__u64 arg, __u64 sp)
{
	return sp + 8;
}

/* The verifier allows constant offsets only. */
static __noinline bool read_register(struct pt_regs *ctx, __u32 offset, __u64 *ret)
{
#define REGISTER(name)                                                                             \
	case offsetof(struct pt_regs, name):                                                       \
		*ret = *(volatile unsigned long *)&ctx->name;                                      \
		/* Keep separate loads: the compiler would merge them at a variable offset. */     \
		asm volatile("" : : "i"(offsetof(struct pt_regs, name)));                          \
		return true
	switch (offset) {
		REGISTER(r15);
		REGISTER(r14);
		REGISTER(r13);
		REGISTER(r12);
		REGISTER(bp);
		REGISTER(bx);
		REGISTER(r11);
		REGISTER(r10);
		REGISTER(r9);
		REGISTER(r8);
		REGISTER(ax);
		REGISTER(cx);
		REGISTER(dx);
		REGISTER(si);
		REGISTER(di);
		REGISTER(ip);
		REGISTER(sp);
	}
#undef REGISTER
	return false;
}
