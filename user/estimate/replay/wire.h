/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The protocol between memtrace-bpf and the replayer process. memtrace-bpf writes a plan to a file
 * that the replayer maps; the replayer sends messages through a pipe. Both are from one build, and
 * each checks the other's numbers.
 *
 * A plan has a header, operations, and the pool number (u32) of each segment. An operation is a
 * byte and its varints (record/varint.h), with zigzag for signed numbers.
 */
#include <stdint.h>

#define REPLAY_MAGIC 0x31594c50525254ULL /* the bytes "TRRPLY1" */
#define REPLAY_PLAN_FD 3
#define REPLAY_ANSWER_FD 4
/* Descriptor of libc10_cuda's folder. Loading by descriptor ensures that the file is the checked
 * one; $ORIGIN in it still leads to its neighbours. */
#define REPLAY_LIB_FD 5
#define REPLAY_LIBRARY "libc10_cuda.so"
#define REPLAY_MAX_SLOTS (1u << 26)
#define REPLAY_MAX_POOLS 4096u

/*
 * EVENT stands for two varints: the number of the recording's events since the last operation with
 * EVENT, and zigzag of the ns since then. LINE stands for two varints: stack and node in the
 * recording's dictionary.
 */
enum replay_op {
	REPLAY_END = 0,
	REPLAY_ALLOC, /* EVENT, slot, size, requested bytes (0: unknown), LINE */
	REPLAY_FREE,  /* EVENT, slot */
	REPLAY_OOM,   /* EVENT, size, LINE: a failed allocation */
	REPLAY_EMPTY, /* the program emptied the cache */
	REPLAY_TAKE,  /* number, size: other code takes device memory */
	REPLAY_GIVE,  /* number: other code gives that memory back */
	REPLAY_POOL,  /* segment: further allocations belong to its pool */
	/* Reserved bytes after the next event and, until the next such operation, after all later
	 * ones */
	REPLAY_RESERVED,
	REPLAY_PLACE, /* address, size: result of the allocator's next call for this size */
	/* The next three describe the state before the first event. Slots in them start at 1; slot
	   0: the program freed the block, but a stream still uses it. */
	/* segment, address, size, 1 for small blocks, number of blocks; per block: offset, size,
	 * requested bytes, slot */
	REPLAY_SEGMENT,
	REPLAY_BLOCK, /* size, requested bytes, slot: a block in no known segment */
	REPLAY_STATE, /* end of the state: allocated, reserved */
};

struct replay_plan {
	uint64_t magic;
	uint64_t ops_end;  /* file offset of the pool numbers */
	uint64_t segments; /* number of segments; segment 0 means none */
	uint32_t slots;	   /* largest number of live blocks */
	uint32_t takes;	   /* largest number of memory ranges that other code has at one time */
	uint32_t pools;
};

/* Arguments in argv, in this order, as decimal numbers. */
enum replay_arg {
	/* The arguments up to SET_FRACTION are slots in the allocator's table of virtual functions.
	   This one is the slot of raw_alloc_with_stream. */
	REPLAY_ARG_RAW_ALLOC = 1,
	REPLAY_ARG_RAW_DELETE,
	REPLAY_ARG_INIT,
	REPLAY_ARG_EMPTY_CACHE,
	REPLAY_ARG_SET_FRACTION,
	REPLAY_ARG_FLAGS, /* enum replay_flag */
	REPLAY_ARGS,
};

enum replay_flag {
	/*
	 * The settings are the recording's own. The replay rebuilds the exact layout from before
	 * the first event and returns recorded addresses. Without the flag it only allocates those
	 * blocks.
	 */
	REPLAY_AS_FOUND = 1 << 0,
	REPLAY_COMPARE = 1 << 1, /* compare with the recorded totals */
	/* Behave as after torch.cuda.set_per_process_memory_fraction(1.0). */
	REPLAY_FRACTION = 1 << 2,
	REPLAY_CURVE = 1 << 3, /* send a REPLAY_POINT when reserved changes */
	REPLAY_EXPANDABLE = 1 << 4,
	/* Fail every allocation that failed in the recording, whatever the device's size. */
	REPLAY_REFUSE = 1 << 5,
};

enum replay_answer_kind { REPLAY_POINT = 1, REPLAY_DONE };

/* A message of the kind REPLAY_POINT. Every message begins with its kind. */
struct replay_point {
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
	/* Fields of REPLAY_COMPARE. */
	uint64_t compared, differ, first, first_time, first_recorded, first_replayed, largest;
};
