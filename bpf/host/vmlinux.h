/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The kernel types that bpf/ uses, for programs that run it in user space: see tests/bpf_host.h and
 * tools/inprocess/. A test chooses the architecture whose programs it runs, as for the kernel. */
#if !defined(__TARGET_ARCH_arm64) && !defined(__TARGET_ARCH_x86)
#ifdef __aarch64__
#define __TARGET_ARCH_arm64
#else
#define __TARGET_ARCH_x86
#endif
#endif
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/types.h>

#ifdef __TARGET_ARCH_arm64
struct pt_regs {
	unsigned long regs[31], sp, pc, pstate, orig_x0;
	int syscallno;
};

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};
#else
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip,
		cs, flags, sp, ss;
};

struct thread_struct {
	unsigned long fsbase;
};
#endif

struct task_struct {
	struct thread_struct thread;
	int pid, tgid;
};

static inline void set_thread_pointer(struct task_struct *task, unsigned long tp)
{
#ifdef __TARGET_ARCH_arm64
	task->thread.uw.tp_value = tp;
#else
	task->thread.fsbase = tp;
#endif
}
