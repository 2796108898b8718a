/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef THREAD_BPF_H
#define THREAD_BPF_H
/*
 * What is kept of a thread from one event to the next: the autograd nodes and the modules that it
 * is in. It belongs to the task and goes away with it; no lock is taken to look it up.
 */
struct running_node {
	__u64 sp;     /* of the call: where its return address lies */
	__u64 ret;    /* which; 0: could not be read */
	__u64 number; /* of the call on this thread, from 1 on */
	__u64 node;
};

struct node_slot {
	__u64 n;     /* nodes that run within one another, as far as is known */
	__u64 calls; /* so far */
	__u64 told;  /* number of the last one that there is a record of */
	__u64 word;  /* what was read last */
	__u64 top;   /* where the innermost one is in at[], modulo its size */
	struct running_node at[MT_NODE_DEPTH];
};

/*
 * The Python frames that called a module cannot run before it is left. So they are read once and
 * known from then on: see pystack.bpf.h.
 */
struct suspended {
	__u64 frame;	 /* the innermost of the suspended ones */
	__u64 was;	 /* its instruction and the frame behind it then, as a hash: see was_at() */
	__u64 hash;	 /* of all of them */
	__u32 shim;	 /* bytes below the call's return address: the frame where the module's own
			    Python begins; 0: not known */
	__u16 frames;	 /* how many */
	__u16 in_module; /* module entries among them */
};

struct module_entry {
	__u64 sp;     /* where the call's return address lies */
	__u64 ret;    /* which; 0: could not be read */
	__u64 tstate; /* the thread state that it runs in; 0: not known yet */
	struct suspended below;
};

struct module_slot {
	__u64 n;     /* calls under way, as far as is known */
	__u64 same;  /* of them, from the outermost on, those that user space has as they are */
	__u64 told;  /* what user space has in all */
	__u64 whole; /* nothing was entered on this thread before we came and is not left yet */
	__u64 word;  /* what was read last */
	__u64 self, type; /* of the call at hand */
	struct module_entry at[MT_MODULE_DEPTH];
};

struct thread_slot {
	struct node_slot nodes;
	struct module_slot modules;
};
/* From Linux 6.19 on the kernel cannot allocate more than 8,192 bytes for it, its own header of up
 * to 128 included. */
_Static_assert(sizeof(struct thread_slot) <= 8000, "too large for the kernel's task storage");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_slot);
} thread_slots SEC(".maps");

/* NULL: nothing is kept of this thread yet. */
static __always_inline struct thread_slot *this_thread(void)
{
	return bpf_task_storage_get(&thread_slots, bpf_get_current_task_btf(), 0, 0);
}

/* NULL: no memory. */
static __always_inline struct thread_slot *begin_thread(void)
{
	return bpf_task_storage_get(&thread_slots, bpf_get_current_task_btf(), 0,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* The module at a depth, from 1 on. */
static __always_inline struct module_entry *entry_of(struct thread_slot *t, __u32 depth)
{
	return &t->modules.at[(depth - 1) & (MT_MODULE_DEPTH - 1)];
}

/* The shim that a call's module begins with; 0: not known. */
static __always_inline __u64 shim_of(const struct module_entry *e)
{
	return e->below.shim ? e->sp - e->below.shim : 0;
}

/* modules.bpf.h: brings what is known of the modules up to date, for an event at this stack
 * pointer. */
static void settle(struct thread_slot *t, __u64 sp, __u64 time);

#endif
