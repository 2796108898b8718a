/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Copies of threads' stacks for rare events. User space unwinds them: user/inspect/native/native.h.
 */

/* Set by user space at any time. Stacks copied in a second, of all processes; 0: none. */
__u32 native_most = 0;
/* Code of PyTorch's allocator, whose calls need no stack; 0, 0: unknown. Without a group only, as
 * addresses differ between processes. */
__u64 native_own[2] = {};
/* PyTorch's allocations of at least so many bytes have their stack copied, too; 0: none. */
__u64 native_from = 0;
/* In this second, by mt_rec_native.in_call, so that those of system calls leave room for those of
 * malloc; may miss some of another CPU's. */
__u32 native_copied[2] = {};
__u64 native_second = 0;

struct native_record {
	struct mt_rec_native r;
	__u8 stack[MT_NATIVE_STACK];
};

/* Counts a copy in the present second. False: no copy is wanted, or the second has had its share.
 * caller, returned: see copy_stack(). */
static __always_inline bool may_copy(__u64 time, __u64 caller, __u32 returned)
{
	__u32 *copied = &native_copied[returned & 1];
	__u32 most = *(volatile __u32 *)&native_most;

	__u64 first = *(volatile __u64 *)&native_own[0], end = *(volatile __u64 *)&native_own[1];

	if (!most || (caller >= first && caller < end))
		return false;
	if (native_second != time / 1000000000) {
		native_second = time / 1000000000;
		native_copied[0] = native_copied[1] = 0;
	}
	if (*copied >= most) {
		count(MT_CNT_NATIVE_OVER);
		return false;
	}
	(*copied)++;
	return true;
}

/* Follows the frame pointers out of the copied stack, and keeps the return addresses from there on.
 * Code without frame pointers has anything in that register, which user space finds out. */
static __always_inline void copy_far_frames(struct mt_rec_native *record)
{
	__u64 frame[2] = { record->fp, 0 };
	__u32 i;

	for (i = 0; i < MT_NATIVE_FAR && frame[0] - record->sp < record->size; i++)
		if (bpf_probe_read_user(frame, sizeof(frame), (const void *)frame[0]))
			break;
	record->n_far = 0;
	if (frame[0] - record->sp < record->size)
		return;
	for (i = 0; i < MT_NATIVE_FAR; i++) {
		if (bpf_probe_read_user(frame, sizeof(frame), (const void *)frame[0]) || !frame[1])
			break;
		record->far[i] = frame[1];
	}
	record->n_far = i;
}

/* Sends the thread's stack, for a record with this time and result of walk_stack(). caller: a
 * function's return address. returned: 1: the function has returned to its caller; otherwise 0. */
static __noinline int copy_stack(struct pt_regs *ctx, __u64 time, __u64 stack, __u64 caller,
				 __u32 returned)
{
	struct native_record *copy;
	__u64 sp;
	__u32 i;

	if (!may_copy(time, caller, returned))
		return 0;
	count(MT_CNT_HIT + MT_REC_NATIVE);
	copy = reserve(MT_REC_NATIVE, sizeof(*copy));
	if (!copy)
		return 0;
	sp = PT_REGS_SP(ctx);
	fill_header(&copy->r.h, MT_REC_NATIVE, time, stack, false);
	copy->r.stack_id = stack_id(stack);
	copy->r.ip = PT_REGS_IP(ctx) - returned; /* the call comes before its return address */
	copy->r.sp = sp;
	copy->r.fp = PT_REGS_FP(ctx);
#ifdef __TARGET_ARCH_arm64
	copy->r.lr = PT_REGS_RET(ctx);
#else
	copy->r.lr = 0;
#endif
	copy->r.in_call = returned;
	for (i = 0; i < MT_NATIVE_STACK / MT_NATIVE_PIECE; i++)
		if (bpf_probe_read_user(&copy->stack[i * MT_NATIVE_PIECE], MT_NATIVE_PIECE,
					(const void *)(sp + i * MT_NATIVE_PIECE)))
			break;
	copy->r.size = i * MT_NATIVE_PIECE;
	copy_far_frames(&copy->r);
	bpf_ringbuf_submit(copy, BPF_RB_NO_WAKEUP);
	return 0;
}
