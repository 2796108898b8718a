/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * State of a thread between events: the autograd nodes and the modules that it runs. The kernel
 * frees it with the task. No lookup takes a lock.
 */
struct running_node {
	struct kept_call call;
	__u64 number; /* number of the call on this thread, from 1 */
	__u64 node;
};

struct node_slot {
	__u64 n;	/* nested running nodes, as far as known */
	__u64 calls;	/* calls so far */
	__u64 reported; /* number of the last call that was reported */
	struct stack_read read;
	/* The frame that called the last node whose return address was read, and that address; 0:
	 * unknown. calls: nodes from there since then. */
	struct caller caller;
	__u64 caller_ret, caller_calls;
	__u64 top; /* index of the innermost node in at[], modulo its size */
	struct running_node at[MT_NODE_DEPTH];
};

/*
 * Python frames that called a module. They cannot run before the module returns, so one walk reads
 * them and later walks reuse the result: see pystack.bpf.h.
 */
struct suspended {
	__u64 frame;	 /* innermost suspended frame */
	__u64 position;	 /* its instruction and previous frame then: see position_hash() */
	__u64 hash;	 /* hash of all suspended frames */
	__u32 shim;	 /* bytes from the module's first shim to the return address; 0: unknown */
	__u16 frames;	 /* suspended frames */
	__u16 in_module; /* module entries among them */
};

struct module_entry {
	struct kept_call call;
	__u64 tstate; /* the thread state; 0: not known yet */
	struct suspended below;
};

struct module_slot {
	__u64 n;     /* active calls, as far as known */
	__u64 same;  /* calls, from the outermost on, that user space knows unchanged */
	__u64 known; /* calls that user space believes active */
	__u64 whole; /* 1: no call that began before attach is still active */
	struct stack_read read;
	__u64 self, type; /* module and class of the last call */
	__u64 self_of;	  /* that call's depth, from 1; 0: it has no entry */
	struct module_entry at[MT_MODULE_DEPTH];
};

struct mt_detail detail = {}; /* shared with user space while the programs run */

struct thread_slot {
	struct node_slot nodes;
	struct module_slot modules;
	__u64 generation; /* of mt_detail, when nodes and modules were looked at last */
};
/* From Linux 6.19 on, task storage is limited to 8,192 bytes, with up to 128 bytes for the kernel's
 * header. */
_Static_assert(sizeof(struct thread_slot) <= 8000, "too large for the kernel's task storage");

THREAD_MAP(thread_slots, struct thread_slot);

/* Nodes and modules may have begun and ended unseen: forgets them. Where user space still believes
 * the thread in modules, the next event reports that it left them. */
static __noinline int forget_calls(struct thread_slot *thread)
{
	if (!thread)
		return 0;
	thread->generation = *(volatile __u32 *)&detail.generation;
	thread->nodes.n = 0;
	thread->modules.n = thread->modules.same = thread->modules.whole = 0;
	return 0;
}

/* Prepares a thread's state for an event's reads of the stack. NULL: stays NULL. */
static __always_inline struct thread_slot *begin_event(struct thread_slot *thread,
						       struct pt_regs *ctx)
{
	if (thread) {
		if (thread->generation != *(volatile __u32 *)&detail.generation)
			forget_calls(thread);
		begin_read(&thread->nodes.read, ctx);
		begin_read(&thread->modules.read, ctx);
	}
	return thread;
}

/* The current thread's state, at the beginning of an event. NULL: it has none yet. */
static __always_inline struct thread_slot *this_thread(struct pt_regs *ctx)
{
	return begin_event(THREAD_GET(thread_slots), ctx);
}

/* Creates the state if there is none. NULL: no memory. */
static __always_inline struct thread_slot *begin_thread(struct pt_regs *ctx)
{
	return begin_event(THREAD_BEGIN(thread_slots), ctx);
}

/* The same state again, later in the event. */
static __always_inline struct thread_slot *thread_again(void)
{
	return THREAD_GET(thread_slots);
}

/* The module call at a depth, from 1. */
static __always_inline struct module_entry *entry_of(struct thread_slot *thread, __u32 depth)
{
	return &thread->modules.at[(depth - 1) & (MT_MODULE_DEPTH - 1)];
}

/* Address of the shim where the call's own Python begins; 0: not known. */
static __always_inline __u64 shim_of(const struct module_entry *entry)
{
	return entry->below.shim ? entry->call.sp - entry->below.shim : 0;
}

/* Removes module calls that have returned, as of an event with this stack pointer, and reports
 * that. Defined in modules.bpf.h. */
static void settle(struct thread_slot *thread, __u64 sp, __u64 time);
