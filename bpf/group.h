/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_GROUP_H
#define MT_GROUP_H
/*
 * The processes that a capture of several (--children, --name, --all) follows: what the programs
 * that see them come and go (group.bpf.c) and those of the probes (memtrace.bpf.c) share with one
 * another and with user space. As memtrace.h, no includes.
 */

/*
 * A process whose hits are recorded has a number, by which records are told apart; 0 is a capture's
 * that follows nobody. It is free again when user space has seen the end of the process and of what
 * it left in the ring. One that is only watched has none.
 */
#define MT_MEMBERS 128	/* a power of two */
#define MT_WATCHED 1024 /* processes that are followed, with and without a number */

/* What the map "processes" says of a process: its number, whose programs' hits are its own, and
 * whether they still are. */
#define MT_GROUP_STOPPED (1U << 15)
#define MT_GROUP(group, number) ((__u32)(group) << 16 | (number))
#define MT_GROUP_NUMBER(v) ((v) & (MT_MEMBERS - 1))
#define MT_GROUP_GROUP(v) ((v) >> 16) /* 0: of none */

/* What differs between processes of one group. A forked child begins with its parent's. */
struct mt_member {
	__u32 busy;
	__u32 pad;
	__u64 module_code[MT_MAX_MODULE_CODES];
	__u64 type_cell; /* in the place of struct mt_py_layout's */
	struct mt_node_layout node;
};

enum mt_kin {
	MT_GROUP_FORK = 1, /* a process that has not run yet has joined */
	MT_GROUP_EXEC,	   /* it runs another program, and belongs to no group from now on */
	MT_GROUP_END,	   /* it has ended */
	MT_GROUP_STRANGER, /* one that is not followed runs another program: pid and time alone */
};

struct mt_rec_group {
	__u32 what;   /* enum mt_kin */
	__u32 pid;    /* of the process */
	__u32 number; /* 0: it has none */
	__u32 parent; /* MT_GROUP_FORK: who forked it */
	__u32 from;   /* and that one's number */
	__u32 group;  /* that it belongs to, of MT_GROUP_EXEC: belonged to */
	__u64 time;   /* CLOCK_MONOTONIC, ns */
};

MT_ASSERT_SIZE(struct mt_member, 88);
MT_ASSERT_SIZE(struct mt_rec_group, 32);

#endif
