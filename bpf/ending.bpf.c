/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How followed processes end: the last signal, its sender, the status, and the kernel's figures of
 * memory. Tracepoints only: nothing runs in the process's own code. A signal that will end the
 * process is reported when it is sent, while the process's memory may still be there.
 *
 * The OOM killer sends SIGKILL and then marks its victim, in one task. Kernels up to 6.9 give the
 * mark a thread's number and later ones a task. So neither is read: the mark belongs to the process
 * that this task has just killed.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "memtrace.h"
#include "group.h"
#include "ending.h"
#include "group_maps.bpf.h"
#include "pids.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Stable numbers of the kernel's interface. */
#define KILL 9
#define SIGNALS 64
#define KERNEL_CODE 0x80	   /* SI_KERNEL */
#define SENT_BY_USER ((void *)0)   /* SEND_SIG_NOINFO */
#define SENT_BY_KERNEL ((void *)1) /* SEND_SIG_PRIV */
#define IGNORED 1		   /* TRACE_SIGNAL_IGNORED */
#define GROUP_EXIT 4		   /* SIGNAL_GROUP_EXIT */

/* Their default action does not end the process: CHLD CONT STOP TSTP TTIN TTOU URG WINCH. */
#define HARMLESS                                                                                   \
	(1ULL << 17 | 1ULL << 18 | 1ULL << 19 | 1ULL << 20 | 1ULL << 21 | 1ULL << 22 |             \
	 1ULL << 23 | 1ULL << 28)
/* Signals of faults: ILL TRAP BUS FPE SEGV SYS. */
#define FAULTS (1ULL << 4 | 1ULL << 5 | 1ULL << 7 | 1ULL << 8 | 1ULL << 11 | 1ULL << 31)

__u64 lost = 0; /* records without room */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} endings SEC(".maps");

/* Signals that will end a process. Key: process << 32 | signal. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct mt_rec_ending);
} signals SEC(".maps");

/* The process that a task of the OOM killer killed last: its key in `signals`. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* the task's PID and TID */
	__type(value, __u64);
} killed SEC(".maps");

/* The OOM killer's struct oom_control, valid until its call ends. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} controls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mt_rec_ending);
} scratch SEC(".maps");

/* ---- the kernel's structures ---- */

#define HERE __attribute__((preserve_access_index))

struct percpu_counter___e {
	__s64 count;
} HERE;
struct mm_rss_stat___e {
	struct {
		long counter;
	} count[4];
} HERE;
struct mm_struct___new { /* Linux 6.2 and newer */
	struct percpu_counter___e rss_stat[4];
} HERE;
struct mm_struct___old {
	struct mm_rss_stat___e rss_stat;
} HERE;
struct mm_struct___e {
	unsigned long total_vm;
	struct {
		long counter;
	} pgtables_bytes;
} HERE;
struct cred___e {
	struct {
		unsigned int val;
	} uid;
} HERE;
struct sigaction___e {
	void *sa_handler;
} HERE;
struct k_sigaction___e {
	struct sigaction___e sa;
} HERE;
struct sighand_struct___e {
	struct k_sigaction___e action[SIGNALS];
} HERE;
struct signal_struct___e {
	struct {
		int counter;
	} live;
	unsigned int flags;
	int group_exit_code;
	short oom_score_adj;
} HERE;
struct task_struct___e {
	int tgid;
	int exit_code;
	__u64 start_time;
	struct task_struct___e *group_leader;
	struct mm_struct___e *mm;
	struct signal_struct___e *signal;
	struct sighand_struct___e *sighand;
	struct cred___e *real_cred;
} HERE;
struct kernel_siginfo___e {
	int si_code;
	union {
		struct {
			void *_addr;
		} _sigfault;
	} _sifields;
} HERE;
struct page_counter___e {
	struct {
		long counter;
	} usage;
	unsigned long max;
} HERE;
struct kernfs_node___e {
	__u64 id;
} HERE;
struct cgroup___e {
	struct kernfs_node___e *kn;
} HERE;
struct cgroup_subsys_state___e {
	struct cgroup___e *cgroup;
} HERE;
struct mem_cgroup___e {
	struct cgroup_subsys_state___e css;
	struct page_counter___e memory;
	struct page_counter___e swap;
} HERE;
enum oom_constraint___e {
	NOT_CONSTRAINED,
};
struct oom_control___e {
	struct mem_cgroup___e *memcg;
	int order;
	unsigned long totalpages;
	long chosen_points;
	enum oom_constraint___e constraint;
} HERE;

static __always_inline __u32 process_of(struct task_struct___e *task)
{
	return pid_ns ? process_here((unsigned long)task) : (__u32)BPF_CORE_READ(task, tgid);
}

/* A sum of the CPUs' counters may be below 0 for a moment. */
static __always_inline __u64 positive(__s64 n)
{
	return n > 0 ? n : 0;
}

/* Adds the process's memory; nothing if the kernel has dropped it. */
static __always_inline void read_memory(struct task_struct___e *task, struct mt_rec_ending *record)
{
	struct mm_struct___e *mm = BPF_CORE_READ(task, mm);
	struct mt_ending_memory *memory = &record->memory;

	if (!mm)
		return;
	if (bpf_core_type_exists(struct mm_rss_stat___e)) {
		struct mm_struct___old *old = (void *)mm;

		memory->file = positive(BPF_CORE_READ(old, rss_stat.count[0].counter));
		memory->anon = positive(BPF_CORE_READ(old, rss_stat.count[1].counter));
		memory->swap = positive(BPF_CORE_READ(old, rss_stat.count[2].counter));
		memory->shmem = positive(BPF_CORE_READ(old, rss_stat.count[3].counter));
	} else {
		struct mm_struct___new *now = (void *)mm;

		memory->file = positive(BPF_CORE_READ(now, rss_stat[0].count));
		memory->anon = positive(BPF_CORE_READ(now, rss_stat[1].count));
		memory->swap = positive(BPF_CORE_READ(now, rss_stat[2].count));
		memory->shmem = positive(BPF_CORE_READ(now, rss_stat[3].count));
	}
	memory->virt = BPF_CORE_READ(mm, total_vm);
	memory->page_tables = positive(BPF_CORE_READ(mm, pgtables_bytes.counter));
	memory->time = bpf_ktime_get_ns();
	record->flags |= MT_ENDING_HAS_MEMORY;
}

/* Adds the process's user and its oom_score_adj. */
static __always_inline void read_task(struct task_struct___e *task, struct mt_rec_ending *record)
{
	record->uid = BPF_CORE_READ(task, real_cred, uid.val);
	record->score_adj = BPF_CORE_READ(task, signal, oom_score_adj);
}

/* Sends a record to user space. Counts one without room. */
static __always_inline void send(const struct mt_rec_ending *record)
{
	if (bpf_ringbuf_output(&endings, (void *)record, sizeof(*record), BPF_RB_FORCE_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

/* This CPU's record, cleared. */
static __always_inline struct mt_rec_ending *blank(void)
{
	__u32 key = 0;
	struct mt_rec_ending *record = bpf_map_lookup_elem(&scratch, &key);

	if (record)
		__builtin_memset(record, 0, sizeof(*record));
	return record;
}

/* True if the process handles the signal, so that it may go on. */
static __always_inline bool is_handled(struct task_struct___e *task, __u32 sig)
{
	unsigned long action = (unsigned long)BPF_CORE_READ(task, sighand) +
			       bpf_core_field_offset(struct sighand_struct___e, action) +
			       (sig - 1) * bpf_core_type_size(struct k_sigaction___e);

	return BPF_CORE_READ((struct k_sigaction___e *)action, sa.sa_handler);
}

static __always_inline bool is_fault(__u32 sig, int code)
{
	return FAULTS & 1ULL << sig && code > 0 && code != KERNEL_CODE;
}

/* The signal that was noted for this process; 0: none, or of another process with the same PID. */
static __always_inline struct mt_rec_ending *find_signal(struct task_struct___e *task, __u64 *key)
{
	struct mt_rec_ending *signal = bpf_map_lookup_elem(&signals, key);

	return signal && signal->time >= BPF_CORE_READ(task, group_leader, start_time) ? signal : 0;
}

SEC("raw_tp/signal_generate")
int BPF_PROG(on_signal, int sig, struct kernel_siginfo___e *info, struct task_struct___e *task,
	     int group, int result)
{
	__u64 key, self = bpf_get_current_pid_tgid();
	struct mt_rec_ending *record, *before;
	__u32 pid;
	int code;

	if (sig <= 0 || sig > SIGNALS - 1 || result == IGNORED || HARMLESS & 1ULL << (sig & 63))
		return 0;
	pid = process_of(task);
	if (!pid || !bpf_map_lookup_elem(&processes, &pid))
		return 0;
	code = (void *)info == SENT_BY_USER	? 0
	       : (void *)info == SENT_BY_KERNEL ? KERNEL_CODE
						: BPF_CORE_READ(info, si_code);
	if (sig != KILL && !is_fault(sig, code) && is_handled(task, sig))
		return 0;
	record = blank();
	if (!record)
		return 0;
	record->what = MT_ENDING_SIGNAL;
	record->pid = pid;
	record->time = record->sent = bpf_ktime_get_ns();
	record->signal = sig;
	record->code = code;
	if (code > 0)
		record->flags |= MT_ENDING_BY_KERNEL;
	else if ((__u32)(self >> 32) == (__u32)BPF_CORE_READ(task, tgid))
		record->flags |= MT_ENDING_BY_SELF;
	if (is_fault(sig, code)) {
		record->address = (__u64)BPF_CORE_READ(info, _sifields._sigfault._addr);
		record->flags |= MT_ENDING_HAS_ADDRESS;
	}
	record->from = current_process();
	record->from_uid = bpf_get_current_uid_gid();
	bpf_get_current_comm(record->from_comm, sizeof(record->from_comm));
	read_task(task, record);
	read_memory(task, record);
	key = (__u64)pid << 32 | (__u32)sig;
	before = find_signal(task, &key);
	/* A handler raises the signal of a fault again: the fault is the reason. Of several
	 * SIGKILLs the first one counts. */
	if (before && (sig == KILL || (before->flags & MT_ENDING_HAS_ADDRESS &&
				       record->flags & MT_ENDING_BY_SELF)))
		return 0;
	bpf_map_update_elem(&signals, &key, record, BPF_ANY);
	if (sig == KILL && record->flags & MT_ENDING_BY_KERNEL)
		bpf_map_update_elem(&killed, &self, &key, BPF_ANY);
	send(record);
	return 0;
}

/* Which limit the OOM killer enforces is in no tracepoint: a probe on its function in the kernel. */
SEC("kprobe/out_of_memory")
int BPF_KPROBE(on_out_of_memory, struct oom_control___e *control)
{
	__u64 self = bpf_get_current_pid_tgid(), at = (__u64)control;

	bpf_map_update_elem(&controls, &self, &at, BPF_ANY);
	return 0;
}

/* Adds the OOM killer's figures. */
static __always_inline void read_control(struct oom_control___e *control,
					 struct mt_rec_ending *record)
{
	struct mem_cgroup___e *memcg = BPF_CORE_READ(control, memcg);
	struct mt_ending_oom *oom = &record->oom;

	oom->constraint = BPF_CORE_READ(control, constraint);
	oom->order = BPF_CORE_READ(control, order);
	oom->pages = BPF_CORE_READ(control, totalpages);
	oom->points = BPF_CORE_READ(control, chosen_points);
	record->flags |= MT_ENDING_CONTEXT;
	if (!memcg)
		return;
	oom->cgroup = BPF_CORE_READ(memcg, css.cgroup, kn, id);
	oom->usage = positive(BPF_CORE_READ(memcg, memory.usage.counter));
	oom->max = BPF_CORE_READ(memcg, memory.max);
	oom->swap_usage = positive(BPF_CORE_READ(memcg, swap.usage.counter));
	oom->swap_max = BPF_CORE_READ(memcg, swap.max);
}

SEC("raw_tp/mark_victim")
int BPF_PROG(on_victim)
{
	__u64 self = bpf_get_current_pid_tgid(), *key = bpf_map_lookup_elem(&killed, &self);
	__u64 *control = bpf_map_lookup_elem(&controls, &self);
	struct mt_rec_ending *record = key ? bpf_map_lookup_elem(&signals, key) : 0;

	if (!record)
		return 0;
	bpf_map_delete_elem(&killed, &self);
	record->flags |= MT_ENDING_VICTIM;
	record->oom.pid = current_process();
	bpf_get_current_comm(record->oom.comm, sizeof(record->oom.comm));
	if (control)
		read_control((struct oom_control___e *)*control, record);
	send(record);
	return 0;
}

/* The process's status, as of waitpid(). */
static __always_inline __u32 status_of(struct task_struct___e *task)
{
	if (BPF_CORE_READ(task, signal, flags) & GROUP_EXIT)
		return BPF_CORE_READ(task, signal, group_exit_code);
	return BPF_CORE_READ(task, group_leader, exit_code);
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct___e *task)
{
	__u32 pid, status;
	struct mt_rec_ending *record, *sent = 0;
	__u64 key;

	if (BPF_CORE_READ(task, signal, live.counter))
		return 0; /* other threads of the process still run */
	pid = process_of(task);
	if (!pid || !bpf_map_lookup_elem(&processes, &pid))
		return 0;
	record = blank();
	if (!record)
		return 0;
	status = status_of(task);
	key = (__u64)pid << 32 | (status & 0x7f);
	if (status & 0x7f)
		sent = find_signal(task, &key);
	if (sent) {
		__builtin_memcpy(record, sent, sizeof(*record));
		bpf_map_delete_elem(&signals, &key);
	} else {
		record->signal = status & 0x7f;
		read_task(task, record);
		read_memory(task, record); /* Linux before 6.16 has dropped it by now */
	}
	record->what = MT_ENDING_EXIT;
	record->pid = pid;
	record->status = status;
	record->time = bpf_ktime_get_ns();
	send(record);
	return 0;
}
