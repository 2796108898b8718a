/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel side: one program a hook, entry probes only. A probe reads registers, walks Python
 * frames, looks up ids, puts one record into the ring. Programs that walk exist twice; the sleepable
 * twin (uprobe.s) can bring in pages that are not present and takes over where those occur.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "memtrace.h"
#include "maps.bpf.h"
#include "pystack.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The header of a record; false: only hits are being counted. */
static __always_inline bool begin(struct mt_hdr *h, __u8 type, const bool sleepable)
{
	if (*(volatile __u8 *)&stopped)
		return false;
	count(MT_CNT_HIT + type);
	if (bench_empty)
		return false;
	h->type = type;
	h->walk = MT_WALK_OK;
	h->sleepable = sleepable;
	h->pad = 0;
	h->tid = (__u32)bpf_get_current_pid_tgid();
	h->time = bpf_ktime_get_ns();
	return true;
}

static __always_inline int emit_mem(__u8 type, __u64 addr, __s64 size, __u64 allocated, __u64 reserved,
				    __u16 device, const bool sleepable)
{
	struct mt_hdr h;
	struct mt_rec_mem *r;
	__u64 stack = 0;

	if (!begin(&h, type, sleepable))
		return 0;
	if (size > 0 || type == MT_REC_OOM)
		stack = walk_stack(&h, sleepable);
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count(MT_CNT_RING_LOST + type);
		return 0;
	}
	r->h = h;
	r->addr = addr;
	r->size = size;
	r->allocated = allocated;
	r->reserved = reserved;
	r->stack = stack;
	r->device = device;
	r->pad[0] = r->pad[1] = r->pad[2] = 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* void c10::reportMemoryUsageToProfiler(void *ptr, int64_t size, size_t allocated, size_t reserved, Device) */
#define REPORT(ctx, sleepable)                                                                               \
	emit_mem(MT_REC_REPORT, PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx),                   \
		 PT_REGS_PARM4(ctx), (__u16)PT_REGS_PARM5(ctx), sleepable)

SEC("uprobe")
int report(struct pt_regs *ctx)
{
	return REPORT(ctx, false);
}

SEC("uprobe.s")
int report_s(struct pt_regs *ctx)
{
	return REPORT(ctx, true);
}

/* void c10::reportOutOfMemoryToProfiler(int64_t size, size_t allocated, size_t reserved, Device) */
#define OOM(ctx, sleepable)                                                                                  \
	emit_mem(MT_REC_OOM, 0, PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx),                   \
		 (__u16)PT_REGS_PARM4(ctx), sleepable)

SEC("uprobe")
int oom(struct pt_regs *ctx)
{
	return OOM(ctx, false);
}

SEC("uprobe.s")
int oom_s(struct pt_regs *ctx)
{
	return OOM(ctx, true);
}

/* void c10::ProfiledCPUMemoryReporter::New(void *ptr, size_t nbytes): parameter 1 is `this` */
SEC("uprobe")
int cpu_new(struct pt_regs *ctx)
{
	return emit_mem(MT_REC_CPU_NEW, PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx), 0, 0, 0, false);
}

SEC("uprobe.s")
int cpu_new_s(struct pt_regs *ctx)
{
	return emit_mem(MT_REC_CPU_NEW, PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx), 0, 0, 0, true);
}

/* void c10::ProfiledCPUMemoryReporter::Delete(void *ptr) */
SEC("uprobe")
int cpu_delete(struct pt_regs *ctx)
{
	struct mt_rec_free *r;
	struct mt_hdr h;

	if (!begin(&h, MT_REC_CPU_DELETE, false))
		return 0;
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count(MT_CNT_RING_LOST + MT_REC_CPU_DELETE);
		return 0;
	}
	r->h = h;
	r->addr = PT_REGS_PARM2(ctx);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int emit_mark(__u8 type, __u64 self, const bool walk, const bool sleepable)
{
	struct mt_rec_mark *r;
	struct mt_hdr h;
	__u64 stack = 0;

	if (!begin(&h, type, sleepable))
		return 0;
	if (walk)
		stack = walk_stack(&h, sleepable);
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count(MT_CNT_RING_LOST + type);
		return 0;
	}
	r->h = h;
	r->stack = stack;
	r->self = self;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* torch._C.DisableTorchFunctionSubclass.__exit__, as record_function.__exit__ calls it: see user/target/torchpy.h */
SEC("uprobe")
int scope_end(struct pt_regs *ctx)
{
	return emit_mark(MT_REC_SCOPE_END, 0, true, false);
}

SEC("uprobe.s")
int scope_end_s(struct pt_regs *ctx)
{
	return emit_mark(MT_REC_SCOPE_END, 0, true, true);
}

/* static PyObject *slot_tp_call(PyObject *self, ...): every call of an object whose class has __call__ */
SEC("uprobe")
int module_call(struct pt_regs *ctx)
{
	__u64 self = PT_REGS_PARM1(ctx);

	if (!bpf_map_lookup_elem(&root_modules, &self)) {
		count(MT_CNT_HIT + MT_REC_MODULE_CALL);
		return 0;
	}
	return emit_mark(MT_REC_MODULE_CALL, self, false, false);
}

/* static void code_dealloc(PyCodeObject *code) */
SEC("uprobe")
int code_gone(struct pt_regs *ctx)
{
	__u64 code = PT_REGS_PARM1(ctx);
	struct mt_rec_gone *r;
	struct mt_hdr h;
	__u64 epoch;

	if (!begin(&h, MT_REC_CODE_GONE, false))
		return 0;
	if (!seen_code[seen_slot(code)])
		return 0;
	/* First the epoch, then the record: a walk that begins from here on has the new one. */
	epoch = __sync_fetch_and_add(&code_epoch, 1) + 1;
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		/* User space sees the gap in the epochs and forgets all code objects. */
		count(MT_CNT_RING_LOST + MT_REC_CODE_GONE);
		return 0;
	}
	r->h = h;
	r->code = code;
	r->epoch = epoch;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}
