/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Who belongs to a capture of several processes: one that one of them forks, before its first
 * instruction; until it ends. One that execs still does, but is another program, which user space
 * has to look at before it is traced. Of others that run another program user space is told, where
 * it waits for some that do. Loaded only then. Nobody is stopped or held.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "memtrace.h"
#include "group.h"
#include "group_maps.bpf.h"
#include "pids.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 missed = 0;    /* processes that could not join */
__u64 untold = 0;    /* execs of others that found no room */
__u32 last = 0;	     /* number that was given away */
__u32 alone = 0;     /* who is forked does not join */
__u32 strangers = 0; /* execs of others are told of */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} comings SEC(".maps");

static __always_inline __u32 process_of(struct task_struct *task)
{
	return pid_ns ? process_here((unsigned long)task) : task->tgid;
}

static __always_inline struct mt_member *member(__u32 number)
{
	return bpf_map_lookup_elem(&members, &number);
}

/* A number that nobody has, 0: there is none. One that was given back last comes last. */
static __always_inline __u32 claim_number(void)
{
	__u32 i, at = last;

	for (i = 1; i < MT_MEMBERS; i++) {
		struct mt_member *m;

		at = (at + 1) & (MT_MEMBERS - 1);
		m = at ? member(at) : 0;
		if (m && !__sync_val_compare_and_swap(&m->busy, 0, 1)) {
			last = at;
			return at;
		}
	}
	return 0;
}

static __always_inline void free_number(__u32 number)
{
	struct mt_member *m = member(number);

	if (m)
		*(volatile __u32 *)&m->busy = 0;
}

static __always_inline void inherit(__u32 number, __u32 from)
{
	struct mt_member *m = member(number), *p = member(from);

	if (!m || !p)
		return;
	__builtin_memcpy(m->module_code, p->module_code, sizeof(m->module_code));
	m->type_cell = p->type_cell;
	__builtin_memcpy(&m->node, &p->node, sizeof(m->node));
}

static __always_inline bool tell(__u32 what, __u32 pid, __u32 entry, __u32 parent, __u32 from)
{
	struct mt_rec_group *r = bpf_ringbuf_reserve(&comings, sizeof(*r), 0);

	if (!r)
		return false;
	r->what = what;
	r->pid = pid;
	r->number = MT_GROUP_NUMBER(entry);
	r->group = MT_GROUP_GROUP(entry);
	r->parent = parent;
	r->from = from;
	r->time = bpf_ktime_get_ns();
	bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
	return true;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from, pid, number, entry;
	__u32 *known;

	if (parent->tgid == child->tgid)
		return 0; /* a thread */
	from = process_of(parent);
	pid = process_of(child);
	known = alone ? 0 : bpf_map_lookup_elem(&processes, &from);
	if (!known)
		return 0;
	/* Where none is left it is watched all the same: user space gives it one later. */
	number = MT_GROUP_GROUP(*known) ? claim_number() : 0;
	entry = number ? MT_GROUP(MT_GROUP_GROUP(*known), number) | (*known & MT_GROUP_STOPPED) : 0;
	if (number)
		inherit(number, MT_GROUP_NUMBER(*known));
	/* It is in before user space hears of it: what that changes must not be undone here. */
	if (bpf_map_update_elem(&processes, &pid, &entry, BPF_ANY))
		goto missed;
	if (tell(MT_GROUP_FORK, pid, entry, from, MT_GROUP_NUMBER(*known)))
		return 0;
	bpf_map_delete_elem(&processes, &pid);
missed:
	if (number)
		free_number(number);
	__sync_fetch_and_add(&missed, 1);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	__u32 pid = process_of(task), entry, *known = bpf_map_lookup_elem(&processes, &pid);

	if (!known) {
		if (strangers && pid && !tell(MT_GROUP_STRANGER, pid, 0, 0, 0))
			__sync_fetch_and_add(&untold, 1);
		return 0;
	}
	entry = *known;
	*known = MT_GROUP_NUMBER(entry);
	tell(MT_GROUP_EXEC, pid, entry, 0, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 pid, entry, *known;

	if (task->signal->live.counter)
		return 0; /* other threads are left */
	pid = process_of(task);
	known = bpf_map_lookup_elem(&processes, &pid);
	if (!known)
		return 0;
	entry = *known;
	/* Now, and not when user space hears of it: the PID may be another process's by then. */
	bpf_map_delete_elem(&processes, &pid);
	tell(MT_GROUP_END, pid, entry, 0, 0);
	return 0;
}
