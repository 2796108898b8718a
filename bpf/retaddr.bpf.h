/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Address of the kernel's trampoline, which a return probe puts in place of a return address. */

/* Layouts of the kernel's own structs. */
struct xol_area___mt {
	unsigned long vaddr;
} __attribute__((preserve_access_index));

struct uprobes_state___mt {
	struct xol_area___mt *xol_area;
} __attribute__((preserve_access_index));

struct mm_struct___mt {
	struct uprobes_state___mt uprobes_state;
} __attribute__((preserve_access_index));

struct task_struct___mt {
	struct mm_struct___mt *mm;
} __attribute__((preserve_access_index));

/*
 * Fields of types known to the verifier are read directly: with lockdown=confidentiality, programs
 * must not call bpf_probe_read_kernel().
 */
#ifndef MT_KERNEL
#define MT_KERNEL(field) (field)
#endif

/* The trampoline's address in this process; 0: none, or unknown to this kernel. A global function,
 * so that the verifier looks at it once per program: each look at these fields takes it
 * milliseconds. */
__noinline __u64 return_trampoline(void)
{
	struct task_struct___mt *task = (void *)current_task();

	if (!bpf_core_field_exists(struct xol_area___mt, vaddr) ||
	    !bpf_core_field_exists(struct uprobes_state___mt, xol_area) ||
	    !bpf_core_field_exists(struct mm_struct___mt, uprobes_state))
		return 0;
#if MT_OLD
	return BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
#else
	return MT_KERNEL(task->mm->uprobes_state.xol_area->vaddr);
#endif
}
