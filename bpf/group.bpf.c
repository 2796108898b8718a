/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Follows the processes of a capture of several. A forked child joins before its first instruction
 * and stays until it ends. A process that calls exec stays too, but leaves its group until user
 * space has examined the new program. With `strangers` set, user space also learns of other
 * processes' execs. No process is stopped or held. Loaded for such captures only.
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

__u64 missed = 0;     /* forked children that could not join */
__u64 unreported = 0; /* other processes' execs lost to a full ring */
__u32 last = 0;	      /* number claimed last */
__u32 alone = 0;      /* 1: forked children do not join */
__u32 strangers = 0;  /* 1: report execs of processes that are not followed */

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

/* Not a compare-and-swap, which needs Linux 5.12. A claim holds if no other task has one. */
static __always_inline bool claim_member(struct mt_member *member)
{
	__sync_fetch_and_add(&member->busy, 1);
	if (*(volatile __u32 *)&member->busy == 1)
		return true;
	__sync_fetch_and_add(&member->busy, -1);
	return false;
}

/* Claims a number; 0: all are in use. Numbers freed last are claimed last. */
static __always_inline __u32 claim_number(void)
{
	__u32 tries, number = last;

	for (tries = 1; tries < MT_MEMBERS; tries++) {
		struct mt_member *candidate;

		number = (number + 1) & (MT_MEMBERS - 1);
		candidate = number ? member(number) : 0;
		if (candidate && claim_member(candidate)) {
			last = number;
			return number;
		}
	}
	return 0;
}

static __always_inline void free_number(__u32 number)
{
	struct mt_member *claimed = member(number);

	if (claimed)
		__sync_fetch_and_add(&claimed->busy, -1);
}

/* Copies the parent's state to the child's. Both are numbers of members. */
static __always_inline void inherit(__u32 number, __u32 parent_number)
{
	struct mt_member *child = member(number), *parent = member(parent_number);

	if (!child || !parent)
		return;
	__builtin_memcpy(child->module_code, parent->module_code, sizeof(child->module_code));
	child->type_cell = parent->type_cell;
	__builtin_memcpy(&child->node, &parent->node, sizeof(child->node));
}

/* Reports a change to user space. what: enum mt_group_change. entry: MT_GROUP() of the process.
 * parent, from: of a fork, otherwise 0. False: the ring is full. */
static __always_inline bool send(__u32 what, __u32 pid, __u32 entry, __u32 parent, __u32 from)
{
	struct mt_rec_group *record = bpf_ringbuf_reserve(&comings, sizeof(*record), 0);

	if (!record)
		return false;
	record->what = what;
	record->pid = pid;
	record->number = MT_GROUP_NUMBER(entry);
	record->group = MT_GROUP_GROUP(entry);
	record->parent = parent;
	record->from = from;
	record->time = bpf_ktime_get_ns();
	bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
	return true;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from, pid, number, entry;
	__u32 *known;

	if (parent->tgid == child->tgid)
		return 0; /* a new thread, not a process */
	from = process_of(parent);
	pid = process_of(child);
	known = alone ? 0 : bpf_map_lookup_elem(&processes, &from);
	if (!known)
		return 0;
	/* Without a number the child is still watched: user space assigns one later. */
	number = MT_GROUP_GROUP(*known) ? claim_number() : 0;
	entry = number ? MT_GROUP(MT_GROUP_GROUP(*known), number) | (*known & MT_GROUP_STOPPED) : 0;
	if (number)
		inherit(number, MT_GROUP_NUMBER(*known));
	/* Add the child before the message: a later update here would undo user space's changes. */
	if (bpf_map_update_elem(&processes, &pid, &entry, BPF_ANY))
		goto missed;
	if (send(MT_GROUP_FORK, pid, entry, from, MT_GROUP_NUMBER(*known)))
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
		if (strangers && pid && !send(MT_GROUP_STRANGER, pid, 0, 0, 0))
			__sync_fetch_and_add(&unreported, 1);
		return 0;
	}
	entry = *known;
	*known = MT_GROUP_NUMBER(entry);
	send(MT_GROUP_EXEC, pid, entry, 0, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 pid, entry, *known;

	if (task->signal->live.counter)
		return 0; /* other threads of the process still run */
	pid = process_of(task);
	known = bpf_map_lookup_elem(&processes, &pid);
	if (!known)
		return 0;
	entry = *known;
	/* Remove the process now: by the time user space reads the message, the PID may be reused. */
	bpf_map_delete_elem(&processes, &pid);
	send(MT_GROUP_END, pid, entry, 0, 0);
	return 0;
}
