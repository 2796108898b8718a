/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MAPS_BPF_H
#define MAPS_BPF_H
/*
 * Everything the programs read and write. Nothing here takes a bucket lock in a probe: hosts with
 * many cores have been seen to lock up on shared hash inserts from probes. The only hash map is
 * looked up by programs and filled by user space.
 */

/* Set before loading; constants to the verifier, which prunes what a target does not need. */
#define FRAME_READ                                                                                 \
	96 /* covers all fields of a frame in every supported version, local 0 from 3.11 on */
#define WINDOW 4096 /* a page, and a power of two */

const volatile struct mt_py_layout py = {};
/* every call of a module is told of, not only those of outermost ones */
const volatile __u8 modules = 0;
const volatile __u8 bench_verify = 0; /* every shortened walk is made again in full, and compared */
const volatile __u32 group = 0; /* of processes that are followed, see group.h; 0: one process is
				   traced, and others do not get here */
const volatile __u32 only = 0;	/* without a group: the process whose hits count, where the kernel
				   lets others' through; 0: it does not */
const volatile __u8 bench_empty = 0; /* count hits, do nothing else: the price of a bare probe */

/* Shared with user space while running (mapped memory). */
/* the capture is over: detaching takes a while, and no event may come after its end */
__u8 stopped = 0;
#define MT_WAKE_PAUSE 500000 /* ns */
__u64 woken = 0;	     /* when user space was woken last for a new stack, ns */
__u64 notices = 0; /* goes up after a counter that user space is to read at once: of a lost record,
		      or an absent page */
__u64 code_epoch = 0; /* goes up when a code object of a sent stack is freed */
__u64 module_code[MT_MAX_MODULE_CODES] = {}; /* code objects whose local 0 is an nn.Module */
__u8 seen_code[MT_SEEN_SLOTS] = {}; /* by hash: some sent stack mentions this code object */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024); /* user space may change it before loading */
} ring SEC(".maps");

struct counters {
	__u64 c[MT_CNT_NR];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* MT_MEMBERS with a group */
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
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
 * A walk in progress. Per CPU, but a task can be preempted in the middle of a program (and
 * sleepable programs can sleep), so a slot is claimed for the time of one walk.
 *
 * Everything that a walk remembers is in here and next to nothing on the stack, for a reason: from
 * Linux 6.13 on a function that uses 64 bytes of stack or more gets that stack per CPU, on the
 * assumption that no other task can enter the program there meanwhile. For uprobes that does not
 * hold: two tasks would write over one another's.
 */
struct window {
	__u64 at;   /* the address of its first byte */
	__u64 ends; /* frames that begin in the first so many bytes are in here as a whole; 0:
		       nothing is */
	__u8 bytes[WINDOW + FRAME_READ];
};

struct scratch {
	__u64 busy;
	__u64 sp;    /* of the event */
	__u64 frame; /* the next one to be read */
	__u64 hash; /* of the entries so far: the sum over the n entries of hash(entry i) * STEP^i */
	__u64 power;	  /* STEP^n */
	__u64 word, type; /* what was read last */
	__u32 frames;	  /* code entries among rec.n */
	__u32 modules;	  /* module entries */
	__u32 outcome;
	__u32 faulted_self;
	__u32 level;	 /* modules that the thread is in and the walk has not come to yet */
	__u32 shortened; /* the walk ended where known frames begin */
	/* Where the innermost module's own frames end, and how it was there. */
	struct {
		__u64 shim, frame, instr, prev;
		__u32 frames, in_module;
	} end;
	__u64 end_hash, end_power;
	__u64 early_hash; /* of a walk that ended where known frames begin */
	struct window data,
		stack; /* of the interpreter's own stack of frames, and of the C stack */
	/* With a group: the process's number, and what is its own. */
	__u32 member, pad;
	__u64 module_code[MT_MAX_MODULE_CODES], type_cell;
	struct mt_rec_stack rec;
	struct mt_frame entries[MT_MAX_ENTRIES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MT_SCRATCH_SLOTS);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MT_SHARED_SLOTS);
	__type(key, __u32);
	__type(value, struct scratch);
} shared_scratch SEC(".maps");

/* What the family says of the current process; 0: it is none of this group's, or there is no group.
 */
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

/* Without a group: another process made this hit. */
static __always_inline bool is_strangers(void)
{
	return only && current_process() != only;
}

/* Is a hit none of ours, or has the capture ended? */
static __always_inline bool is_over(void)
{
	__u32 entry;

	if (*(volatile __u8 *)&stopped)
		return true;
	if (!group)
		return is_strangers();
	entry = entry_of_current();
	return !entry || entry & MT_GROUP_STOPPED;
}

/* Objects of different processes have the same addresses: those of user space end below bit 48. */
static __always_inline __u64 own_key(__u64 addr)
{
	return addr | (__u64)member_of_current() << 48;
}

static __always_inline void count(__u32 which)
{
	__u32 key = member_of_current();
	struct counters *c = bpf_map_lookup_elem(&counters, &key);

	/* Atomic: another task may run the same program on this CPU in the middle of the addition. */
	if (c && which < MT_CNT_NR)
		__sync_fetch_and_add(&c->c[which], 1);
}

/* For what happens rarely: all CPUs share the word. */
static __always_inline void count_and_tell(__u32 which)
{
	count(which);
	__sync_fetch_and_add(&notices, 1);
}

#endif
