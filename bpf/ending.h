/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* How followed processes end. Shared by the programs (ending.bpf.c) and user space. Include after
 * memtrace.h. */

#define MT_COMM 16

enum mt_ending_what {
	MT_ENDING_SIGNAL = 1, /* a signal that will end the process was sent; it may still run */
	MT_ENDING_EXIT,	      /* the last thread of the process ended */
};

enum mt_ending_flag {
	MT_ENDING_BY_KERNEL = 1 << 0,	/* the kernel itself sent the signal */
	MT_ENDING_BY_SELF = 1 << 1,	/* the process sent the signal to itself */
	MT_ENDING_VICTIM = 1 << 2,	/* the kernel's OOM killer chose the process */
	MT_ENDING_CONTEXT = 1 << 3,	/* oom has the OOM killer's own figures */
	MT_ENDING_HAS_MEMORY = 1 << 4,	/* memory is valid */
	MT_ENDING_HAS_ADDRESS = 1 << 5, /* address is valid */
};

/* Memory of a process as the kernel counts it for its own OOM report. The kernel adds up counters
 * of each CPU from time to time only: from Linux 6.2 to about 6.15 each figure may be off by CPUs *
 * max(32, 2 * CPUs) pages. */
struct mt_ending_memory {
	__u64 time; /* time of this reading, CLOCK_MONOTONIC, ns */
	/* Pages. */
	__u64 anon, file, shmem, swap, virt;
	__u64 page_tables; /* bytes */
};

/* The OOM killer's figures when it chose the process. */
struct mt_ending_oom {
	__u64 cgroup;		    /* inode of the cgroup whose limit was reached; 0: no cgroup */
	__u64 usage, max;	    /* pages of this cgroup, and its limit */
	__u64 swap_usage, swap_max; /* its swap; cgroup v1: memory and swap together */
	__u64 pages;		    /* pages that it could use at most */
	__s64 points;		    /* badness of the process */
	__u32 constraint;	    /* the kernel's enum oom_constraint */
	__s32 order;		    /* log2 of the requested pages */
	__u32 pid; /* the process that requested them; 0: in no visible namespace */
	char comm[MT_COMM];
	__u32 pad;
};

struct mt_rec_ending {
	__u32 what; /* enum mt_ending_what */
	__u32 pid;
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u32 flags;
	__u32 status; /* MT_ENDING_EXIT: as of waitpid() */
	/* The signal; 0: none, or not seen. */
	__u32 signal;
	__s32 code;    /* si_code */
	__u64 address; /* of a fault */
	__u64 sent;    /* CLOCK_MONOTONIC, ns */
	__u32 from;    /* process of the sender; 0: in no visible namespace */
	__u32 from_uid;
	char from_comm[MT_COMM];
	__u32 uid; /* of the process */
	__s32 score_adj;
	struct mt_ending_memory memory;
	struct mt_ending_oom oom;
};

MT_ASSERT_SIZE(struct mt_ending_memory, 56);
MT_ASSERT_SIZE(struct mt_ending_oom, 88);
MT_ASSERT_SIZE(struct mt_rec_ending, 224);
