/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Host memory: the system calls that change the process's address space, with the Python stack of
 * the caller. The programs run at the end of the kernel's functions of these calls (fexit), so
 * other system calls cost nothing. Kernels that cannot do that get one program on the tracepoint
 * sys_exit, which every system call of the machine passes. User space chooses, and loads none of
 * them unless asked to.
 */
#include "native.bpf.h"

/* Without a group: PID of the process. The kernel calls these programs for every process. */
const volatile __u32 host_pid = 0;

#ifdef __TARGET_ARCH_arm64
#define SYS_MMAP 222
#define SYS_MUNMAP 215
#define SYS_MREMAP 216
#define SYS_BRK 214
#define SYS_MPROTECT 226
#define SYS_SHMAT 196
#define SYS_NUMBER(regs) ((regs)->syscallno)
#define SYS_ARG1(regs) ((regs)->orig_x0) /* the result replaces the register */
#define SYS_ARG2(regs) ((regs)->regs[1])
#define SYS_ARG3(regs) ((regs)->regs[2])
#define SYS_ARG4(regs) ((regs)->regs[3])
#else
#define SYS_MMAP 9
#define SYS_MUNMAP 11
#define SYS_MREMAP 25
#define SYS_BRK 12
#define SYS_MPROTECT 10
#define SYS_SHMAT 30
#define SYS_NUMBER(regs) ((long)(regs)->orig_ax)
#define SYS_ARG1(regs) ((regs)->di)
#define SYS_ARG2(regs) ((regs)->si)
#define SYS_ARG3(regs) ((regs)->dx)
#define SYS_ARG4(regs) ((regs)->r10)
#endif
#define SYS_PROT_WRITE 2
#define SYS_MAX_ERROR 4095

static __always_inline bool is_not_ours(void)
{
	return is_ignored() || (!group && current_process() != host_pid);
}

/* Records a system call of the process that has succeeded. regs: its arguments. ret: its result.
 * call: enum mt_host_call. walks: the call adds memory, so its stack matters. */
static __always_inline int host_record(struct pt_regs *regs, __u64 ret, __u32 call,
				       const bool walks)
{
	__u64 time, stack = 0;
	struct mt_rec_host *record;

	if (ret >= -(__u64)SYS_MAX_ERROR || is_not_ours())
		return 0;
	count(MT_CNT_HIT + MT_REC_HOST);
	if (bench_empty)
		return 0;
	if (call == MT_HOST_MPROTECT && !(SYS_ARG3(regs) & SYS_PROT_WRITE))
		return filtered(MT_REC_HOST);
	time = bpf_ktime_get_ns();
	if (walks) {
		stack = walk_stack_atomic(0, PT_REGS_SP(regs), time);
		if (stack < MT_STACK_WALKS)
			copy_stack(regs, time, stack, 0, 0);
	}
	record = reserve(MT_REC_HOST, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_HOST, time, stack, false);
	record->stack = stack_id(stack);
	record->call = call;
	record->addr = SYS_ARG1(regs);
	record->len = SYS_ARG2(regs);
	record->to = SYS_ARG3(regs);
	record->to_len = 0;
	record->flags = (__u32)SYS_ARG4(regs);
	if (call == MT_HOST_MREMAP) {
		record->to = ret;
		record->to_len = SYS_ARG3(regs);
	} else if (call == MT_HOST_MMAP || call == MT_HOST_BRK || call == MT_HOST_SHMAT) {
		record->addr = ret;
	}
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	sample_time(MT_REC_HOST, time);
	return 0;
}

/* The arguments of all these programs: the caller's registers, and the call's result. */
#define CTX_REGS(ctx) ((struct pt_regs *)(ctx)[0])

SEC("mt_host")
int host_mmap(unsigned long long *ctx)
{
	return host_record(CTX_REGS(ctx), ctx[1], MT_HOST_MMAP, true);
}

SEC("mt_host")
int host_munmap(unsigned long long *ctx)
{
	return host_record(CTX_REGS(ctx), ctx[1], MT_HOST_MUNMAP, false);
}

SEC("mt_host")
int host_mremap(unsigned long long *ctx)
{
	return host_record(CTX_REGS(ctx), ctx[1], MT_HOST_MREMAP, true);
}

SEC("mt_host")
int host_brk(unsigned long long *ctx)
{
	return host_record(CTX_REGS(ctx), ctx[1], MT_HOST_BRK, true);
}

SEC("mt_host")
int host_mprotect(unsigned long long *ctx)
{
	return host_record(CTX_REGS(ctx), ctx[1], MT_HOST_MPROTECT, true);
}

SEC("mt_host")
int host_shmat(unsigned long long *ctx)
{
	return host_record(CTX_REGS(ctx), ctx[1], MT_HOST_SHMAT, true);
}

/* enum mt_host_call of a system call's number; 0: none of them. */
static __always_inline __u32 host_call_of(long number)
{
	switch (number) {
	case SYS_MMAP:
		return MT_HOST_MMAP;
	case SYS_MUNMAP:
		return MT_HOST_MUNMAP;
	case SYS_MREMAP:
		return MT_HOST_MREMAP;
	case SYS_BRK:
		return MT_HOST_BRK;
	case SYS_MPROTECT:
		return MT_HOST_MPROTECT;
	case SYS_SHMAT:
		return MT_HOST_SHMAT;
	}
	return 0;
}

/* Tracepoint sys_exit. */
SEC("mt_host_raw")
int host_any(unsigned long long *ctx)
{
	__u32 call = host_call_of(SYS_NUMBER(CTX_REGS(ctx)));

	return call ? host_record(CTX_REGS(ctx), ctx[1], call, call != MT_HOST_MUNMAP) : 0;
}
