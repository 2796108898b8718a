/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Constants of the CPU architecture that memtrace-bpf is built for. memtrace-bpf refuses a process
 * of another one, which only an emulator can run: the ELF machine of its files differs.
 */
#include <stdint.h>

#include "inspect/elf.h"

#ifdef __aarch64__

#define ARCH_MACHINE ELF_AARCH64
#define ARCH_NAME "aarch64"
#define ARCH_UNAME "aarch64" /* uname -m */
/* 1: a call leaves its return address at the stack pointer; 0: in a register (x30). */
#define ARCH_RETURN_ON_STACK 0
/* Mask of a return address's bits that are the address; PAC may sign the other bits. */
#define ARCH_CODE_ADDRESS 0x0000ffffffffffffu
/* The system call through which functions with a return probe return; -1: they use none. */
#define ARCH_SYS_URETPROBE -1
/* sizeof(pthread_mutex_t), bytes */
#define ARCH_MUTEX 48
/* glibc's struct pthread, the same since 2.21: offsets of the thread ID, of the first 32 pairs
 * {seq, data} of thread-specific keys, and of 32 pointers to blocks of such pairs. */
#define ARCH_GLIBC_TID 208
#define ARCH_GLIBC_BLOCK1 272
#define ARCH_GLIBC_BLOCKS 784
/* musl's struct pthread, 1.2.2 and later: offset of the pointer to the values of thread-specific
 * keys. */
#define ARCH_MUSL_TSD 112
/* 1: the thread pointer is the address after struct pthread, which has ARCH_MUSL_PTHREAD bytes in
 * musl; 0: it is the struct's address. */
#define ARCH_POINTER_AFTER_PTHREAD 1
#define ARCH_MUSL_PTHREAD 200
/* Where the first argument of a function is that returns a C++ object in memory: its number. */
#define ARCH_FIRST_OF_OBJECT 0

#else

#define ARCH_MACHINE ELF_X86_64
#define ARCH_NAME "x86-64"
#define ARCH_UNAME "x86_64"
#define ARCH_RETURN_ON_STACK 1
#define ARCH_CODE_ADDRESS UINT64_MAX
#define ARCH_SYS_URETPROBE 335 /* arch/x86/entry/syscalls/syscall_64.tbl */
#define ARCH_MUTEX 40
#define ARCH_GLIBC_TID 720
#define ARCH_GLIBC_BLOCK1 784
#define ARCH_GLIBC_BLOCKS 1296
#define ARCH_MUSL_TSD 128
#define ARCH_POINTER_AFTER_PTHREAD 0
#define ARCH_MUSL_PTHREAD 0
#define ARCH_FIRST_OF_OBJECT 1

#endif
