/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * memtrace.bpf.c for kernels from Linux 5.10 on that lack one of: bpf_loop(), attach cookies, task
 * storage for uprobes, bpf_get_current_task_btf(), atomics that return a value. Its variables,
 * programs and maps have the same names and places; old.bpf.h has what differs.
 */
#define MT_OLD 1
#include "memtrace.bpf.c"
