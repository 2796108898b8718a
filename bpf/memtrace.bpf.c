/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel side: one program per hook. All are entry probes, except for calls into CUDA
 * (calls.bpf.h). A program reads registers, walks Python frames, looks up ids and puts one record
 * into the ring. Programs that walk exist twice: the sleepable twin (uprobe.s) replaces the other
 * where pages are absent, because it can bring them in.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "memtrace.h"
#include "group.h"
#include "old.bpf.h"
#include "group_maps.bpf.h"
#include "pids.bpf.h"
#include "user_memory.bpf.h"
#include "retaddr.bpf.h"
#include "arch.bpf.h"
#include "thread.bpf.h"
#include "maps.bpf.h"
#include "pystack.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Counts a hit. False: the program must return. */
static __always_inline bool begin(__u8 type)
{
	if (is_ignored())
		return false;
	count(MT_CNT_HIT + type);
	return !bench_empty;
}

/* Ends a program without a record. */
static __always_inline int filtered(__u8 type)
{
	count(MT_CNT_FILTERED + type);
	return 0;
}

/* Reserves a record in the ring. NULL: the ring is full, which is counted. */
static __always_inline void *reserve(__u8 type, __u64 size)
{
	void *record = bpf_ringbuf_reserve(&ring, size, 0);

	if (!record)
		count_and_notify(MT_CNT_RING_LOST + type);
	return record;
}

/* Fills in a record's header. stack: result of walk_stack(), or 0. */
static __always_inline void fill_header(struct mt_hdr *header, __u8 type, __u64 time, __u64 stack,
					const bool sleepable)
{
	header->type = type;
	header->walk = stack & (MT_STACK_WALKS - 1);
	header->sleepable = sleepable;
	header->member = member_of_current();
	header->node = 0;
	header->tid = pid_ns ? thread_here() : kernel_tid();
	header->time = time;
}

/* walk_stack(), as this kind of program may do it. */
static __always_inline __u64 walk(struct thread_slot *thread, __u64 sp, __u64 time,
				  const bool sleepable)
{
	return sleepable ? walk_stack_sleepable(thread, sp, time)
			 : walk_stack_atomic(thread, sp, time);
}

/* The stack id for a record, from the result of walk_stack(). */
static __always_inline __u64 stack_id(__u64 stack)
{
	return stack < MT_STACK_WALKS ? 0 : stack;
}

/*
 * Reads an argument from its register again, instead of keeping it across the walk: values kept
 * across calls are on the stack, which must stay small (see struct scratch).
 */
#define ARG(ctx, n) (*(volatile unsigned long *)&PT_REGS_PARM##n(ctx))

/*
 * The stack pointer. The compiler must not keep the register's address for a second read: the
 * verifier refuses reads through a changed context pointer.
 */
static __always_inline __u64 sp_of(struct pt_regs *ctx)
{
	asm volatile("" : "+r"(ctx));
	return PT_REGS_SP(ctx);
}

#include "modules.bpf.h"
#include "autograd.bpf.h"
#include "native.bpf.h"
#include "oom.bpf.h"

/* True if an allocation of this size is to be walked: see mt_detail.sample_below. */
static __always_inline bool is_sampled(__u64 size)
{
	__u64 below = *(volatile __u64 *)&detail.sample_below;

	return size >= below || (bpf_get_prandom_u32() * below) >> 32 < size;
}

#define ALWAYS_WALKED ((__s64)(~0ULL >> 1))

/* True if an allocation of this size has its native stack copied: see native_from. */
static __always_inline bool is_stack_copied(__s64 size)
{
	__u64 from = *(volatile __u64 *)&native_from;

	return from && (__u64)size >= from;
}

/* Reserves the record of an allocation or a free and fills in what all types have; the caller adds
 * the figures and submits it. Walks for an allocation. size: bytes that are allocated; 0 or less: a
 * free, which has no stack. NULL: the ring is full. */
static __always_inline struct mt_rec_mem *mem_record(struct pt_regs *ctx, __u8 type, __s64 size,
						     __u64 time, const bool sleepable)
{
	__u64 stack = 0;
	__u32 node = MT_NODE_NONE;
	struct thread_slot *thread;
	struct mt_rec_mem *record;

	if (size > 0) {
		bool sampled = is_sampled(size);

		thread = this_thread(ctx);
		if (sampled) {
			stack = walk(thread, sp_of(ctx), time, sleepable);
		} else {
			stack = MT_WALK_NOT_SAMPLED;
			count(MT_CNT_WALK + MT_WALK_NOT_SAMPLED);
			if (thread)
				settle(thread, sp_of(ctx), time);
		}
		node = current_node(thread, sp_of(ctx), time);
		if (type != MT_REC_CPU_NEW && is_stack_copied(size))
			copy_stack(ctx, time, stack, 0, 0);
	}
	record = reserve(type, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, type, time, stack, sleepable);
	record->h.node = node;
	record->stack = stack_id(stack);
	record->pad[0] = record->pad[1] = record->pad[2] = 0;
	sample_time(type, time);
	return record;
}

/* void c10::reportMemoryUsageToProfiler(void *ptr, int64_t size, size_t allocated, size_t reserved,
 * Device) */
static __always_inline int do_report(struct pt_regs *ctx, const bool sleepable)
{
	struct mt_rec_mem *record;

	if (!begin(MT_REC_REPORT))
		return 0;
	record = mem_record(ctx, MT_REC_REPORT, (__s64)ARG(ctx, 2), bpf_ktime_get_ns(), sleepable);
	if (!record)
		return 0;
	record->addr = ARG(ctx, 1);
	record->size = ARG(ctx, 2);
	record->allocated = ARG(ctx, 3);
	record->reserved = ARG(ctx, 4);
	record->device = (__u16)ARG(ctx, 5);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("uprobe")
int report(struct pt_regs *ctx)
{
	return do_report(ctx, false);
}

SEC("uprobe.s")
int report_s(struct pt_regs *ctx)
{
	return do_report(ctx, true);
}

/* void c10::reportOutOfMemoryToProfiler(int64_t size, size_t allocated, size_t reserved, Device) */
static __always_inline int do_oom(struct pt_regs *ctx, const bool sleepable)
{
	__u64 time = bpf_ktime_get_ns();
	struct mt_rec_mem *record;

	if (!begin(MT_REC_OOM))
		return 0;
	copy_tensors(sp_of(ctx), time);
	record = mem_record(ctx, MT_REC_OOM, ALWAYS_WALKED, time, sleepable);
	if (!record)
		return 0;
	record->addr = 0;
	record->size = ARG(ctx, 1);
	record->allocated = ARG(ctx, 2);
	record->reserved = ARG(ctx, 3);
	record->device = (__u16)ARG(ctx, 4);
	/* Wake user space: what names the copied tensors may end soon. */
	bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
	return 0;
}

SEC("uprobe")
int oom(struct pt_regs *ctx)
{
	return do_oom(ctx, false);
}

SEC("uprobe.s")
int oom_s(struct pt_regs *ctx)
{
	return do_oom(ctx, true);
}

/* void c10::ProfiledCPUMemoryReporter::New(void *ptr, size_t nbytes): parameter 1 is `this` */
static __always_inline int do_cpu_new(struct pt_regs *ctx, const bool sleepable)
{
	struct mt_rec_mem *record;

	if (!begin(MT_REC_CPU_NEW))
		return 0;
	record = mem_record(ctx, MT_REC_CPU_NEW, (__s64)ARG(ctx, 3), bpf_ktime_get_ns(), sleepable);
	if (!record)
		return 0;
	record->addr = ARG(ctx, 2);
	record->size = ARG(ctx, 3);
	record->allocated = record->reserved = 0;
	record->device = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("uprobe")
int cpu_new(struct pt_regs *ctx)
{
	return do_cpu_new(ctx, false);
}

SEC("uprobe.s")
int cpu_new_s(struct pt_regs *ctx)
{
	return do_cpu_new(ctx, true);
}

/* void c10::ProfiledCPUMemoryReporter::Delete(void *ptr) */
SEC("uprobe")
int cpu_delete(struct pt_regs *ctx)
{
	struct mt_rec_free *record;
	__u64 time;

	if (!begin(MT_REC_CPU_DELETE))
		return 0;
	time = bpf_ktime_get_ns();
	record = reserve(MT_REC_CPU_DELETE, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_CPU_DELETE, time, 0, false);
	record->addr = PT_REGS_PARM2(ctx);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	sample_time(MT_REC_CPU_DELETE, time);
	return 0;
}

static __always_inline int do_scope_end(struct pt_regs *ctx, const bool sleepable)
{
	struct mt_rec_mark *record;
	__u64 time, stack;

	if (!begin(MT_REC_SCOPE_END))
		return 0;
	time = bpf_ktime_get_ns();
	stack = walk(0, sp_of(ctx), time, sleepable);
	record = reserve(MT_REC_SCOPE_END, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_SCOPE_END, time, stack, sleepable);
	record->stack = stack_id(stack);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* torch._C.DisableTorchFunctionSubclass.__exit__, called by record_function.__exit__: see
 * user/inspect/torch.h */
SEC("uprobe")
int scope_end(struct pt_regs *ctx)
{
	return do_scope_end(ctx, false);
}

SEC("uprobe.s")
int scope_end_s(struct pt_regs *ctx)
{
	return do_scope_end(ctx, true);
}

#include "scopes.bpf.h"

/* static PyObject *slot_tp_call(PyObject *self, ...): every call of an object whose class has
 * __call__ */
SEC("uprobe")
int module_call(struct pt_regs *ctx)
{
	__u64 key;

	if (!begin(MT_REC_MODULE_CALL))
		return 0;
	if (is_off(MT_OFF_MODULES))
		return filtered(MT_REC_MODULE_CALL);
	key = own_key(PT_REGS_PARM1(ctx));
	if (!modules && !bpf_map_lookup_elem(&root_modules, &key))
		return filtered(MT_REC_MODULE_CALL);
	return enter_module(ctx);
}

/* The function that Module._call_impl calls first; see user/inspect/torch.h */
SEC("uprobe")
int module_bound(struct pt_regs *ctx)
{
	if (!begin(MT_REC_MODULE_CALL))
		return 0;
	if (is_off(MT_OFF_MODULES) || !modules)
		return filtered(MT_REC_MODULE_CALL);
	return enter_bound(ctx);
}

/* static void code_dealloc(PyCodeObject *code) */
SEC("uprobe")
int code_gone(struct pt_regs *ctx)
{
	__u64 code = PT_REGS_PARM1(ctx);
	struct mt_rec_gone *record;
	__u64 epoch;

	if (group ? !entry_of_current() : is_other_process())
		return 0;
	/* Also after the capture has ended: user space still reads code objects of earlier records.
	 */
	count(MT_CNT_HIT + MT_REC_CODE_GONE);
	if (bench_empty)
		return 0;
	if (!seen_code[seen_slot(code)])
		return filtered(MT_REC_CODE_GONE);
	/* Raise the epoch before writing the record: a walk that begins now uses the new epoch. */
	epoch = next_epoch(&code_epoch);
	/* If the record is lost, user space sees the gap in the epochs and forgets all code
	 * objects. */
	record = reserve(MT_REC_CODE_GONE, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_CODE_GONE, bpf_ktime_get_ns(), 0, false);
	record->code = code;
	record->epoch = epoch;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

#include "calls.bpf.h"
#include "host.bpf.h"
#include "malloc.bpf.h"
#if MT_OLD

/* Removes the state of a thread that ends. The kernel does that for task storage. */
SEC("tp_btf/sched_process_exit")
int thread_gone(void *ctx)
{
	thread_end(&thread_slots);
	thread_end(&calls);
	thread_end(&malloc_calls);
	return 0;
}

#endif
