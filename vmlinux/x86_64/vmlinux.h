/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__
/*
 * The few kernel types that bpf/ uses, for a build on a machine whose kernel shows no BTF
 * (tools/dev/gen_vmlinux.sh makes the whole header where it does). Fields of kernel structures are
 * relocated when the programs are loaded (CO-RE), so only their names matter here. Written by hand from the
 * kernel's uapi headers and arch/x86/include/asm/{ptrace,processor}.h.
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

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp,
		ss;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct thread_struct {
	unsigned long fsbase;
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
