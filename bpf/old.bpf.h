/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The differences between the two compilations of the programs: see memtrace_old.bpf.c. MT_OLD
 * marks the one for older kernels, which run uprobes with preemption disabled (before Linux 6.0).
 */
#ifndef MT_OLD
#define MT_OLD 0
#endif

#if MT_OLD

#define GLOBAL __attribute__((noinline))
#define MT_OLD_THREADS 1024 /* threads with state */

/* Counter of claims: Linux before 5.12 has no compare-and-swap. A claim holds if no other task has
 * one. */
static __always_inline bool claim_word(__u64 *busy)
{
	__sync_fetch_and_add(busy, 1);
	if (*(volatile __u64 *)busy == 1)
		return true;
	__sync_fetch_and_add(busy, -1);
	return false;
}

static __always_inline void release_word(__u64 *busy)
{
	__sync_fetch_and_add(busy, -1);
}

/*
 * Adds 1. The result is the new value, or a later one: two processes may add at the same time. A
 * process that frees a code object holds the GIL, so none of its stacks has an id between the two.
 */
static __always_inline __u64 next_epoch(__u64 *epoch)
{
	__sync_fetch_and_add(epoch, 1);
	return *(volatile __u64 *)epoch;
}

/* A probe's cookie: a small program of user space's sets it and jumps here (site_program.c). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} site_cookies SEC(".maps");

/* The programs to jump to, by enum call_probe. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u32);
} site_programs SEC(".maps");

static __always_inline __u64 site_cookie(void *ctx)
{
	__u32 key = 0;
	__u64 *cookie = bpf_map_lookup_elem(&site_cookies, &key);

	return cookie ? *cookie : 0;
}

/* Return probes have no such program. The stack pointer alone tells whose return it is: of two
 * calls with the same one, the inner is the outer's last act and returns the same. */
static __always_inline bool is_return_of(void *ctx, __u32 fn)
{
	return true;
}

static __always_inline __u32 kernel_tid(void)
{
	return bpf_get_current_pid_tgid();
}

/* Repeats a check that a length is at most `limit`, a power of two. The compiler merges that check
 * with another, and older verifiers learn nothing from the result. */
#define SHOW_LIMIT(len, limit) asm volatile("%0 &= %1" : "+r"(len) : "i"(2 * (limit)-1))

static __always_inline struct task_struct *current_task(void)
{
	return (struct task_struct *)bpf_get_current_task();
}

/* A field of the current task. */
#define CURRENT_TASK(field) BPF_CORE_READ(current_task(), field)

/* State of threads by the kernel's TID, removed by thread_gone(). */
#define THREAD_MAP(name, value_type)                                                               \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(max_entries, MT_OLD_THREADS);                                               \
		__type(key, __u32);                                                                \
		__type(value, value_type);                                                         \
	} name SEC(".maps");                                                                       \
	static const value_type name##_zero SEC(".rodata.zero") = {}

static __always_inline void *thread_get(void *map)
{
	__u32 tid = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(map, &tid);
}

static __always_inline void *thread_begin(void *map, const void *zero)
{
	__u32 tid = bpf_get_current_pid_tgid();
	void *state = bpf_map_lookup_elem(map, &tid);

	if (state)
		return state;
	bpf_map_update_elem(map, &tid, zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, &tid);
}

static __always_inline void thread_end(void *map)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (bpf_map_lookup_elem(map, &tid))
		bpf_map_delete_elem(map, &tid);
}

#define THREAD_GET(map) thread_get(&map)
#define THREAD_BEGIN(map) thread_begin(&map, &map##_zero)

#else

static __always_inline bool claim_word(__u64 *busy)
{
	return __sync_val_compare_and_swap(busy, 0, 1) == 0;
}

static __always_inline void release_word(__u64 *busy)
{
	*(volatile __u64 *)busy = 0;
}

static __always_inline __u64 next_epoch(__u64 *epoch)
{
	return __sync_fetch_and_add(epoch, 1) + 1;
}

static __always_inline __u64 site_cookie(void *ctx)
{
	return bpf_get_attach_cookie(ctx);
}

static __always_inline bool is_return_of(void *ctx, __u32 fn)
{
	return (__u32)bpf_get_attach_cookie(ctx) == fn;
}

#define SHOW_LIMIT(len, limit)

static __always_inline struct task_struct *current_task(void)
{
	return (struct task_struct *)bpf_get_current_task_btf();
}

#define CURRENT_TASK(field) (current_task()->field)

static __always_inline __u32 kernel_tid(void)
{
	return CURRENT_TASK(pid);
}

#define THREAD_MAP(name, value_type)                                                               \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_TASK_STORAGE);                                           \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                              \
		__type(key, int);                                                                  \
		__type(value, value_type);                                                         \
	} name SEC(".maps")
#define THREAD_GET(map) bpf_task_storage_get(&map, bpf_get_current_task_btf(), 0, 0)
#define THREAD_BEGIN(map)                                                                          \
	bpf_task_storage_get(&map, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE)

#endif
