/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__
/*
 * The few kernel types that bpf/ uses, for a build on a machine whose kernel shows no BTF
 * (tools/dev/gen_vmlinux.sh makes the whole header where it does). Fields of kernel structures are
 * relocated when the programs are loaded (CO-RE), so only their names matter here. Written by hand from the
 * kernel's uapi headers and arch/arm64/include/uapi/asm/ptrace.h
 * and arch/arm64/include/asm/processor.h.
 */
typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum {
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
};

enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
};

struct user_pt_regs {
	__u64 regs[31], sp, pc, pstate;
};

/* What programs get: the kernel's own struct begins with user space's registers. */
struct pt_regs {
	__u64 regs[31], sp, pc, pstate;
	__u64 orig_x0; /* of system calls; arch/arm64/include/asm/ptrace.h, the same from 4.15 on */
	__s32 syscallno;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct task_struct {
	int pid, tgid;
	struct signal_struct *signal;
	struct thread_struct thread;
};
#pragma clang attribute pop

#endif
