/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The processes of a capture of several (--children, --name, --all). Shared by the programs that
 * follow processes (group.bpf.c), the probes' programs (memtrace.bpf.c) and user space. Include
 * after memtrace.h.
 */

/*
 * Number of a recorded process in its records; 0 in a capture of one process. A number is free
 * again when user space has seen the process end and has read its last records. A process that is
 * only watched has no number.
 */
#define MT_MEMBERS 128	/* most process numbers; a power of two */
#define MT_WATCHED 1024 /* followed processes, with and without a number */
/* Room for them in the kernel: processes fork until user space chooses which ones it follows. */
#define MT_WATCHED_ROOM (2 * MT_WATCHED)

/* Value in the map "processes": the group whose probes record the process, whether that has
 * stopped, and the process's number. */
#define MT_GROUP_STOPPED (1U << 15)
#define MT_GROUP(group, number) ((__u32)(group) << 16 | (number))
#define MT_GROUP_NUMBER(v) ((v) & (MT_MEMBERS - 1))
#define MT_GROUP_GROUP(v) ((v) >> 16) /* 0: the process is in no group */

/* State of one process in a group. A forked child begins with a copy of its parent's. */
struct mt_member {
	__u32 busy; /* claims of this number; 0: it is free */
	__u32 pad;
	__u64 module_code[MT_MAX_MODULE_CODES];
	__u64 type_cell; /* replaces type_cell of struct mt_py_layout */
	struct mt_node_layout node;
};

enum mt_group_change {
	MT_GROUP_FORK = 1, /* a forked child joined; it has not run yet */
	MT_GROUP_EXEC,	   /* the process runs another program and has left its group */
	MT_GROUP_END,	   /* the process ended */
	MT_GROUP_STRANGER, /* exec of a process that is not followed; sets pid and time only */
};

struct mt_rec_group {
	__u32 what;   /* enum mt_group_change */
	__u32 pid;    /* PID of the process */
	__u32 number; /* the process's number; 0: none */
	__u32 parent; /* MT_GROUP_FORK: the process that forked */
	__u32 from;   /* MT_GROUP_FORK: number of `parent` */
	__u32 group;  /* the process's group; MT_GROUP_EXEC: the group that it left */
	__u64 time;   /* CLOCK_MONOTONIC, ns */
};

MT_ASSERT_SIZE(struct mt_member, 88);
MT_ASSERT_SIZE(struct mt_rec_group, 32);
