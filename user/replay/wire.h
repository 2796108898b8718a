/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_WIRE_H
#define MT_REPLAY_WIRE_H
/*
 * What memtrace-bpf and its replayer say to each other: a plan, which is a file that one writes and
 * the other maps, and answers, which come back through a pipe. Both sides are of one build, and
 * neither trusts the other's numbers.
 *
 * A plan is the header, then operations, then for each segment that was seen the number of its pool
 * (u32). An operation is a byte and what it has of varints (record/varint.h); zigzag where a number
 * may be negative.
 */
#include <stdint.h>

#define REPLAY_MAGIC 0x31594c50525254ULL /* "TRRPLY1" */
#define REPLAY_PLAN_FD 3
#define REPLAY_ANSWER_FD 4
/* The folder of libc10_cuda: loaded by this descriptor, it is the file that was checked. $ORIGIN in
 * it leads to its neighbours. */
#define REPLAY_LIB_FD 5
#define REPLAY_LIBRARY "libc10_cuda.so"
#define REPLAY_MAX_SLOTS (1u << 26)
#define REPLAY_MAX_POOLS 4096u

/*
 * Where an operation has EVENT it begins with two varints: how many of the recording's events
 * further it is than the last one that had it, and zigzag how many ns later. Where it has LINE two
 * more: stack and node, numbers of the recording's dictionary.
 */
enum replay_op {
	REPLAY_END = 0,
	REPLAY_ALLOC, /* EVENT, slot, size as handed out, what was asked for (0: not known), LINE */
	REPLAY_FREE,  /* EVENT, slot */
	REPLAY_OOM,   /* EVENT, size, LINE: this did not fit */
	REPLAY_EMPTY, /* the cache was emptied */
	REPLAY_TAKE,  /* number, size: somebody else takes device memory */
	REPLAY_GIVE,  /* number: and gives it back */
	REPLAY_POOL,  /* segment: what is allocated from here on was in it, and so is of its pool */
	REPLAY_RESERVED, /* bytes that were reserved after the next event, and after all that follow
			  */
	REPLAY_PLACE, /* address, size: the allocator's next call for so much was answered with this
			 address */
	/* What was there before the first event. Slots are numbered from 1 here, 0: was free, but
	   was not to be had yet. */
	REPLAY_SEGMENT, /* segment, address, size, 1 for small blocks, number of blocks; then for
			   each: offset, size, asked, slot */
	REPLAY_BLOCK,	/* size, asked, slot: in no segment that is known */
	REPLAY_STATE,	/* that was all: allocated, reserved */
	REPLAY_OPS,
};

struct replay_plan {
	uint64_t magic;
	uint64_t ops_end;  /* offset in the file, where the pools of segments begin */
	uint64_t segments; /* how many; number 0 is none's */
	uint32_t slots;	   /* at the most live at once */
	uint32_t takes;	   /* numbers of others' memory, at the most at once */
	uint32_t pools;
	uint32_t totals; /* 1: reserved is known */
	uint64_t events; /* allocations and frees */
};

/* For argv, in this order, as decimal numbers. */
enum replay_arg {
	REPLAY_ARG_RAW_ALLOC =
		1, /* slots in the allocator's table of virtual functions: raw_alloc_with_stream */
	REPLAY_ARG_RAW_DELETE,
	REPLAY_ARG_INIT,
	REPLAY_ARG_EMPTY_CACHE,
	REPLAY_ARG_SET_FRACTION,
	REPLAY_ARG_FLAGS, /* enum replay_flag */
	REPLAY_ARGS,
};

enum replay_flag {
	REPLAY_AS_FOUND = 1 << 0, /* the settings are the recording's own: what was there at first
				     is built up as it was, holes and all, and addresses are given
				     as they were; else only its blocks */
	REPLAY_COMPARE = 1 << 1,  /* with what was recorded */
	REPLAY_FRACTION = 1 << 2, /* as after torch.cuda.set_per_process_memory_fraction(1.0) */
	REPLAY_CURVE = 1 << 3,	  /* REPLAY_POINT wherever reserved changes */
	REPLAY_EXPANDABLE = 1 << 4,
	REPLAY_REFUSE = 1 << 5, /* what ran out of memory when it was recorded does so again,
				   whatever the device's size */
};

enum replay_answer_kind { REPLAY_POINT = 1, REPLAY_DONE };

struct replay_point { /* `kind` of a message, and what follows it */
	uint64_t kind, event, time, allocated, reserved;
};

struct replay_answer {
	uint64_t kind;
	uint64_t events;
	uint64_t peak_allocated, peak_reserved, peak_requested;
	uint64_t reserved_event, reserved_time;
	uint64_t end_allocated, end_reserved;
	uint64_t segments, takes, retries, outside;
	uint64_t oom, oom_event, oom_time, oom_asked, oom_allocated, oom_reserved, oom_stack,
		oom_node;
	/* REPLAY_COMPARE */
	uint64_t compared, differ, first, first_time, first_recorded, first_replayed, largest,
		recorded_peak;
	uint64_t sizes; /* blocks that came out in another size than recorded */
};

#endif
