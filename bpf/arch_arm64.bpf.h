/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * aarch64: see arch.bpf.h. A call leaves its return address in x30, and the function saves it in a
 * frame record: the caller's x29, then x30. Records form a chain from x29 outward, at ascending
 * addresses. The compiler decides where in its frame a function has its record, and a frame that
 * was left keeps its contents until something else is written there. So a call counts as active
 * only if the chain of the event has a record with the call's return address, next to the record
 * that x29 pointed to when the call began.
 */
#define MT_RETURN_ON_STACK 0
#define MT_RECORDS_MAX 512	      /* records followed in one search */
#define MT_STACK_BYTES (256ULL << 20) /* farther from the stack pointer is no record */
#define MT_FP_WORDS 0xffff	      /* limit of kept_call.fp_words */

/* ret has no signature: functions may put one into the bits above an address (PAC). */
struct kept_call {
	__u64 sp;
	__u64 ret : 48;
	__u64 fp_words : 16; /* 8-byte words from sp to the caller's record */
};

enum chain_end {
	CHAIN_GOES_ON = 0,
	CHAIN_ENDS,   /* its outermost record is read */
	CHAIN_BROKEN, /* it cannot be followed */
};

struct stack_read {
	__u64 fp;   /* address of the record to read next */
	__u64 link; /* x30 of the event, without signature */
	__u64 sp, until;
	struct {
		__u64 fp, link;
	} record;   /* record read last */
	__u64 ends; /* enum chain_end */
};

#define CODE_ADDRESS(x) ((x)&0x0000ffffffffffffULL)

/* The kernel writes the field when it switches to another task. A program sets its first thread's
 * pointer when it starts, and the kernel sets those of other threads. */
static __always_inline __u64 pointer_of_thread(void)
{
	return CURRENT_TASK(thread.uw.tp_value);
}

static __always_inline void begin_read(struct stack_read *read, struct pt_regs *ctx)
{
	read->fp = PT_REGS_FP(ctx);
	read->link = CODE_ADDRESS(PT_REGS_RET(ctx));
}

static __always_inline bool keep_call(struct kept_call *call, const struct stack_read *read,
				      __u64 sp)
{
	__u64 words = (read->fp - sp) / 8;

	call->sp = sp;
	call->ret = words <= MT_FP_WORDS && !(read->fp & 7) ? read->link : 0;
	call->fp_words = words;
	return call->ret;
}

struct caller {
	__u64 sp;
};

/* The return address is in a register, so nothing is kept for a comparison. */
static __always_inline void set_caller(struct caller *caller, struct pt_regs *ctx, __u64 sp)
{
}

static __always_inline bool is_caller(const struct caller *caller, struct pt_regs *ctx, __u64 sp)
{
	return false;
}

/* Reads the next record, up to the one that leads to read->until. Sets read->ends. 1: stop. */
static __always_inline long next_record(struct stack_read *read)
{
	if (read->fp - read->sp >= MT_STACK_BYTES || read->fp & 7 ||
	    bpf_probe_read_user(&read->record, sizeof(read->record), (const void *)read->fp)) {
		read->ends = CHAIN_BROKEN;
		return 1;
	}
	if (!read->record.fp)
		read->ends = CHAIN_ENDS;
	else if (read->record.fp <= read->fp)
		read->ends = CHAIN_BROKEN;
	if (read->ends || read->record.fp >= read->until)
		return 1;
	read->fp = read->record.fp;
	return 0;
}

#if MT_OLD

/* Older kernels allow eight calls in one another. */
#define SEARCH static __always_inline

/* A copy of what an event reads, for a global function: see old.bpf.h. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_read);
} chain SEC(".maps");

static __always_inline struct stack_read *chain_here(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&chain, &key);
}

/* Verified once: the callers search in loops of their own. */
GLOBAL int follow_all_records(void)
{
	struct stack_read *read = chain_here();
	int i;

	for (i = 0; i < MT_RECORDS_MAX && read; i++) {
		if (next_record(read))
			break;
	}
	return 0;
}

static __always_inline void follow_records(struct stack_read *read)
{
	struct stack_read *copy = chain_here();

	if (!copy)
		return;
	*copy = *read;
	follow_all_records();
	*read = *copy;
}

#else

#define SEARCH static __noinline

struct records {
	struct stack_read *read;
};

static long next_record_in(__u32 i, void *ctx)
{
	return next_record(((struct records *)ctx)->read);
}

static __always_inline void follow_records(struct stack_read *read)
{
	struct records r = { read };

	bpf_loop(MT_RECORDS_MAX, next_record_in, &r, 0);
}

#endif

/*
 * Finds what the call's caller runs now. CALL_ACTIVE: a function that returns to
 * read->record.link. CALL_LEFT: the caller has returned, or it runs the event's function. The
 * event's next search goes on from there, since outer calls have outer callers.
 */
SEARCH enum call_state find_record(const struct kept_call *call, __u64 sp, struct stack_read *read)
{
	if (!call || !read || !call->ret || !read->fp)
		return CALL_UNKNOWN;
	read->until = call->sp + call->fp_words * 8;
	if (read->fp - read->until < MT_STACK_BYTES)
		return CALL_LEFT;
	read->sp = sp;
	read->ends = CHAIN_GOES_ON;
	read->record.fp = 0;
	follow_records(read);
	if (read->record.fp == read->until)
		return CALL_ACTIVE;
	return read->ends == CHAIN_ENDS || (!read->ends && read->record.fp > read->until &&
					    read->record.fp - sp < MT_STACK_BYTES)
		       ? CALL_LEFT
		       : CALL_UNKNOWN;
}

static __always_inline enum call_state state_of(const struct kept_call *call, __u64 sp,
						struct stack_read *read)
{
	enum call_state state;
	__u64 link;

	if (call->sp <= sp)
		return CALL_LEFT;
	state = find_record(call, sp, read);
	if (state != CALL_ACTIVE)
		return state;
	link = CODE_ADDRESS(read->record.link);
	/* A return probe of another tool: the kernel replaced the return address. */
	return link == call->ret || (link && link == return_trampoline()) ? CALL_ACTIVE : CALL_LEFT;
}

static __always_inline bool awaits_return(const struct kept_call *call, __u64 sp,
					  struct stack_read *read)
{
	__u64 link = read->link, trampoline;

	if (sp > call->sp)
		return false;
	/* Otherwise a tail call, if it has the trampoline for its return address. */
	if (sp != call->sp || read->fp != call->sp + call->fp_words * 8) {
		if (find_record(call, sp, read) != CALL_ACTIVE)
			return false;
		link = CODE_ADDRESS(read->record.link);
	}
	trampoline = return_trampoline();
	return trampoline ? link == trampoline : link != call->ret;
}

static __always_inline __u64 sp_returned(const struct kept_call *call)
{
	return call->sp;
}

/* Large structures are passed by their address. */
static __always_inline __u64 extent_of(__u64 arg, __u64 sp)
{
	return arg;
}

/* For static probes, which PyTorch has for x86 only: c10/util/static_tracepoint.h. */
static __always_inline bool read_register(struct pt_regs *ctx, __u32 offset, __u64 *ret)
{
	return false;
}
