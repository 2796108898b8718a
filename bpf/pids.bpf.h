/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The PID of a process in user space's PID namespace. In most containers it differs from the
 * kernel's own number. These functions are not inlined because they use some stack. If user space
 * is in the initial namespace, the verifier removes them.
 */

/* inode number of user space's PID namespace, as in /proc/self/ns/pid; 0: the initial namespace */
const volatile __u32 pid_ns = 0;

/* The verifier of older kernels takes long for the loop: it checks a global function only once. */
#if MT_OLD
#define PID_FUNCTION GLOBAL
#else
#define PID_FUNCTION static __noinline
#endif

#define PID_LEVELS 32 /* limit of nested namespaces: MAX_PID_NS_LEVEL */

struct ns_common___here {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct pid_namespace___here {
	struct ns_common___here ns;
} __attribute__((preserve_access_index));

struct upid___here {
	int nr;
	struct pid_namespace___here *ns;
} __attribute__((preserve_access_index));

struct pid___here {
	unsigned int level;
	struct upid___here numbers[1];
} __attribute__((preserve_access_index));

struct signal_struct___here {
	struct pid___here *pids[4]; /* index: enum pid_type */
} __attribute__((preserve_access_index));

struct task_struct___here {
	struct pid___here *thread_pid;
	struct signal_struct___here *signal;
} __attribute__((preserve_access_index));

/* Number of a struct pid in user space's namespace; 0: not visible there. A struct pid has one
 * number per level of nested namespaces. */
PID_FUNCTION __u32 number_here(unsigned long pid)
{
	unsigned int i, level = BPF_CORE_READ((struct pid___here *)pid, level);
	unsigned long at = pid + bpf_core_field_offset(struct pid___here, numbers);

	for (i = 0; i < PID_LEVELS; i++) {
		if (i > level)
			break;
		if (BPF_CORE_READ((struct upid___here *)at, ns, ns.inum) == pid_ns)
			return BPF_CORE_READ((struct upid___here *)at, nr);
		at += bpf_core_type_size(struct upid___here);
	}
	return 0;
}

PID_FUNCTION __u32 process_here(unsigned long task)
{
	return number_here(
		(unsigned long)BPF_CORE_READ((struct task_struct___here *)task, signal, pids[1]));
}

PID_FUNCTION __u32 thread_here(void)
{
	return number_here((unsigned long)BPF_CORE_READ(
		(struct task_struct___here *)bpf_get_current_task(), thread_pid));
}

/* PID of the current task's process. */
static __always_inline __u32 current_process(void)
{
	return pid_ns ? process_here(bpf_get_current_task()) : bpf_get_current_pid_tgid() >> 32;
}

static __always_inline __u32 current_thread(void)
{
	return pid_ns ? thread_here() : (__u32)bpf_get_current_pid_tgid();
}
