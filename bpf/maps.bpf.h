/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The programs' variables and maps. No probe takes a bucket lock: hosts with many cores have locked
 * up on shared hash inserts from probes. Only user space writes the hash maps.
 */

/* Set before loading. The verifier treats them as constants and prunes unused code. */
#define FRAME_READ                                                                                 \
	96 /* covers all used fields of a frame in every supported version; from 3.11 on also      \
	      local 0 */
#define WINDOW 4096 /* a page, and a power of two */

const volatile struct mt_py_layout py = {};
/* 1: report every module call; 0: only calls of root_modules */
const volatile __u8 modules = 0;
const volatile __u8 bench_verify = 0; /* 1: repeat every shortened walk in full and compare */
const volatile __u32 group =
	0; /* number of a process group, see group.h; 0: the capture traces one process */
const volatile __u32 only =
	0; /* without a group: PID to filter by if the kernel does not; otherwise 0 */
const volatile __u8 bench_empty = 0; /* 1: only count hits */
const volatile __u32 counter_stripes =
	1; /* with a group: copies of each process's counters; a power of two */

/* Shared with user space while the programs run (mapped memory). */
/* By page: addresses that walks could not read, as own_key(). User space reads them, which brings
 * the pages in, and clears them. */
__u64 absent[MT_ABSENT] = {};
/* 1: the capture has ended; detaching takes a while, and no event may follow the end */
__u8 stopped = 0;
#define MT_WAKE_PAUSE 500000 /* ns */
__u64 woken = 0;	     /* time of the last wakeup for a new stack, CLOCK_MONOTONIC ns */
__u64 notices = 0;	     /* counter of events that user space must handle at once */
__u64 code_epoch = 0;	     /* number of freed code objects of sent stacks */
__u64 module_code[MT_MAX_MODULE_CODES] = {}; /* code objects whose local 0 is an nn.Module */
struct mt_timed timed[MT_REC_TYPES] = {};    /* by enum mt_rec_type */
__u8 seen_code[MT_SEEN_SLOTS] = {}; /* by hash of the code object; 1: a sent stack mentions it */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024); /* user space may change it before loading */
} ring SEC(".maps");

struct counters {
	__u64 c[MT_CNT_NR];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/*
 * Replaces `counters` if there is a group. A copy for each process and CPU would take 80 KiB a CPU,
 * so CPUs share copies: the index is number * counter_stripes + CPU % counter_stripes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* MT_MEMBERS * counter_stripes if there is a group */
	__type(key, __u32);
	__type(value, struct counters);
} group_counters SEC(".maps");

/* All CPUs share the table, so a stack is sent once and not once per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MT_SENT_SETS);
	__type(key, __u32);
	__type(value, struct mt_sent);
} sent_stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u8);
} root_modules SEC(".maps");

/*
 * State of one walk. A task can be preempted within a program, and sleepable programs can sleep. So
 * each walk claims a slot, first that of its CPU.
 * The walk keeps all its state here and almost none on the stack. From Linux 6.13 on, a function
 * with 64 bytes of stack or more gets a per-CPU stack, because the kernel assumes that no other
 * task enters the program there meanwhile. For uprobes that is wrong: two tasks would overwrite
 * each other's stack.
 */
struct window {
	__u64 at;   /* address of the first byte */
	__u64 ends; /* frames that start in the first `ends` bytes are complete; 0: no data */
	__u8 bytes[WINDOW + FRAME_READ];
};

struct scratch {
	__u64 busy;
	__u64 sp;    /* stack pointer of the event */
	__u64 frame; /* next frame to read */
	__u64 hash;  /* sum of hash(entry i) * STEP^i over the n entries so far */
	__u64 power; /* STEP^n */
	__u64 word;  /* word read last */
	struct {
		__u64 type, ref; /* as in a PyCellObject */
	} cell;
	__u32 frames;  /* code entries in `entries` */
	__u32 modules; /* module entries in `entries` */
	__u32 outcome;
	__u32 faulted_self;
	__u64 absent;	 /* address that could not be read */
	__u32 level;	 /* active modules of the thread that the walk has not reached yet */
	__u32 shortened; /* 0, or `level` where the walk reached known frames */
	/* State of the walk at the outer end of the innermost module's own frames. */
	struct {
		__u64 shim, frame, instr, prev;
		__u32 frames, in_module;
	} end;
	__u64 end_hash, end_power;
	__u64 early_hash;	   /* hash of the shortened walk */
	struct window data, stack; /* the interpreter's frame chunks, and the C stack */
	/* With a group: the process's number, and a copy of its struct mt_member. */
	__u32 member;
	__u32 number; /* the slot's index; only programs for older kernels use it */
	__u64 module_code[MT_MAX_MODULE_CODES], type_cell;
	/* Position in the variables of a thread's frames, see oom.bpf.h. */
	struct {
		__u64 time, frame, code, object, type;
		__u64 head[2], name[3];
		__s32 at;
		__u32 frames, slot, slots, tensors;
	} local;
	struct mt_rec_stack rec;
	struct mt_frame entries[MT_MAX_ENTRIES];
};

/* Not a slot for each CPU: a host may have hundreds, few of which walk at the same time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MT_SCRATCH_SLOTS);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* MT_GROUP() of the current process; 0: it is not in this group, or there is no group. */
static __always_inline __u32 entry_of_current(void)
{
	__u32 pid, *entry;

	if (!group)
		return 0;
	pid = current_process();
	entry = bpf_map_lookup_elem(&processes, &pid);
	return entry && MT_GROUP_GROUP(*entry) == group ? *entry : 0;
}

static __always_inline __u32 member_of_current(void)
{
	return MT_GROUP_NUMBER(entry_of_current());
}

/* True if another process than the traced one made this hit. Always false with a group. */
static __always_inline bool is_other_process(void)
{
	return only && current_process() != only;
}

/* True if the hit must be ignored: it is another process's, or the capture has ended. */
static __always_inline bool is_ignored(void)
{
	__u32 entry;

	if (*(volatile __u8 *)&stopped)
		return true;
	if (!group)
		return is_other_process();
	entry = entry_of_current();
	return !entry || entry & MT_GROUP_STOPPED;
}

/* Key of an address in tables of all processes: addresses in user space are below 2^48, so the
 * process's number is above them. */
static __always_inline __u64 own_key(__u64 addr)
{
	return addr | (__u64)member_of_current() << 48;
}

/* Adds 1 to a counter of the current process. which: enum mt_counter, with its offset. */
static __always_inline void count(__u32 which)
{
	struct counters *counters_here;
	__u32 key = 0;

	if (group) {
		key = member_of_current() * counter_stripes +
		      (bpf_get_smp_processor_id() & (counter_stripes - 1));
		counters_here = bpf_map_lookup_elem(&group_counters, &key);
	} else {
		counters_here = bpf_map_lookup_elem(&counters, &key);
	}
	/* Atomic: a task that preempts this one, or a CPU with the same copy, may count, too. */
	if (counters_here && which < MT_CNT_NR)
		__sync_fetch_and_add(&counters_here->c[which], 1);
}

/* True if user space has switched this work off: enum mt_off. */
static __always_inline bool is_off(__u32 what)
{
	return *(volatile __u32 *)&detail.off & what;
}

/* Counts the time of a hit that began at `time`. */
static __always_inline void add_time(__u8 type, __u64 time)
{
	struct mt_timed *times = &timed[type & (MT_REC_TYPES - 1)];
	__u64 ns = bpf_ktime_get_ns() - time;

	if (ns > MT_TIMED_MAX)
		return;
	__sync_fetch_and_add(&times->ns, ns);
	__sync_fetch_and_add(&times->hits, 1);
}

/* Adds the time of a hit that began at `time`, for about one hit in MT_TIMED_EVERY: the lowest bits
 * of `time` choose it. */
static __always_inline void sample_time(__u8 type, __u64 time)
{
	if (!(time & (MT_TIMED_EVERY - 1)))
		add_time(type, time);
}

/* Also raises `notices`. For rare events only: all CPUs write the same word. */
static __always_inline void count_and_notify(__u32 which)
{
	count(which);
	__sync_fetch_and_add(&notices, 1);
}

/* Counts a hit whose record is lost because there was no memory to begin it. */
static __always_inline void count_lost_hit(__u8 type)
{
	count(MT_CNT_HIT + type);
	count_and_notify(MT_CNT_RING_LOST + type);
}
