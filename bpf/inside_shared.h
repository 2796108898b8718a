/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_INSIDE_H
#define MT_INSIDE_H
/*
 * The contract between a recorder and the library that runs the programs inside the recorder's own
 * child (tools/inprocess/, user/capture/probes_inside.c). Both map one memfd, which has all that
 * BPF's maps and the programs' variables are for in the kernel:
 *
 *   struct mt_inside                from 0 on
 *   the programs' variables         from MT_INSIDE_VARIABLES on, which the library maps in the
 * place of its own the ring                        from MT_INSIDE_RING on: a page that the reader
 * writes, one that writers write, the data
 *
 * As memtrace.h, no includes.
 */
#define MT_INSIDE_MAGIC 0x31306564736e694dULL
#define MT_INSIDE_ENV "MEMTRACE_INSIDE" /* FD:DEVICE:INODE of the memfd */
#define MT_INSIDE_LIBRARY "libmemtrace-inside.so"

#define MT_INSIDE_SITES 4096 /* a power of two; no more than half of it is used */
#define MT_INSIDE_AT_SITE 6  /* programs in one place */
#define MT_INSIDE_KEYS 16384 /* of a table: a power of two, four times what is let in */
#define MT_INSIDE_SLOT 32    /* bytes: an instruction, and the way back */
#define MT_INSIDE_SLOTS 512

enum mt_inside_program {
	MT_INSIDE_REPORT = 1,
	MT_INSIDE_OOM,
	MT_INSIDE_CPU_NEW,
	MT_INSIDE_CPU_DELETE,
	MT_INSIDE_EDGE,
	MT_INSIDE_EVALUATE,
	MT_INSIDE_SCOPE_END,
	MT_INSIDE_CODE_GONE,
	MT_INSIDE_MODULE_CALL,
	MT_INSIDE_CALL_ENTER,
	MT_INSIDE_CALL_RETURN, /* runs when the function returns */
	MT_INSIDE_SET_DEVICE,
	MT_INSIDE_ASKED,
	MT_INSIDE_LINKER, /* the dynamic linker's own place for debuggers: something was mapped, and
			     none of it has run */
};

/* How the instruction that a breakpoint took the place of is made up for. */
enum mt_inside_way {
	MT_INSIDE_SKIP = 1, /* it does nothing */
	MT_INSIDE_PUSH,	    /* of register `operand`, by its number in instructions */
	MT_INSIDE_JUMP,	    /* to `target` */
	MT_INSIDE_BRANCH,   /* there, if condition `operand` holds: low four bits of jcc's opcode */
	MT_INSIDE_CALL,	    /* of `target` */
	MT_INSIDE_RET,
	MT_INSIDE_SLOT_RUN, /* a copy of it runs, at `target` */
};

struct mt_inside_at {
	__u64 cookie;
	__u32 program; /* enum mt_inside_program; 0: none any more. Written last */
	__u32 pad;
};

/* Of one address, found by hash. An entry stays: a thread may be on its way from a breakpoint that
 * is gone. */
struct mt_inside_site {
	__u64 addr; /* 0: free; written last */
	__u64 target;
	__u8 way, length, operand,
		original; /* enum mt_inside_way; the instruction's length; its first byte */
	__u32 pad;
	struct mt_inside_at at[MT_INSIDE_AT_SITE];
};

/* Key (an address) and value in one word, so that none is ever seen with another's. */
#define MT_INSIDE_ENTRY(key, value) ((__u64)(key) | (__u64)(value) << 56)
#define MT_INSIDE_KEY(entry) ((entry) & ~(0xffULL << 56))
#define MT_INSIDE_VALUE(entry) ((__u8)((entry) >> 56))

struct mt_inside_table {
	__u64 entry[MT_INSIDE_KEYS]; /* 0: free, and no key lies behind it; value 0: taken out */
};

/* Of the programs' variables, where each is among them: offsets in bytes, all of them u32.
 * programs__share() in tools/inprocess/programs.c sets them; none lies in the first page. */
struct mt_inside_variables {
	__u32 size;
	__u32 py, modules, bench_empty, bench_verify, stopped, woken, notices, code_epoch,
		module_code, seen_code, asked_args, node_layout;
};

/* What the process is waiting for, if it is. */
enum mt_inside_wait {
	MT_INSIDE_RUNS = 0,
	MT_INSIDE_STARTS,  /* the library is in it, and no other code of the program's has run */
	MT_INSIDE_ARRIVED, /* PyTorch is mapped, and none of its code has run */
};

struct mt_inside {
	__u64 magic;
	__u64 ring_bytes;    /* of the data; a power of two */
	__u32 recorder, pid; /* processes: who reads, who is recorded */
	/* The library's, of the program that the process runs now. */
	__u32 image; /* how many programs there have been: goes up when the rest is true of another */
	__u32 waits;	/* enum mt_inside_wait */
	__u64 slots[2]; /* MT_INSIDE_SLOTS places for instructions each: in the library's code, and
			   near the program's; 0: none */
	__u64 linker;	/* where the dynamic linker tells debuggers; 0: it does not */
	__u64 returns;	/* where functions are made to return to */
	struct mt_inside_variables variables;
	__u32 problem; /* an errno: the process cannot be recorded from inside; 0: it can */
	/* The recorder's. */
	__u32 loads; /* programs loaded so far: what is kept of threads is of one of these alone */
	__u32 go;    /* goes up when the process need not wait any more; a futex */
	__u32 taken; /* a futex that full rings are waited at: something was read */
	__u32 reads; /* the recorder is there to read */
	/* Both. */
	__u32 wake;    /* goes up when the reader is to come at once; a futex */
	__u32 waiting; /* threads at `taken` */
	struct mt_inside_table roots, types; /* root_modules, module_types; the recorder's */
	__u64 counters[MT_CNT_NR];
	struct mt_sent sent_stacks[MT_SENT_SETS];
	struct mt_inside_site site[MT_INSIDE_SITES];
};

#define MT_INSIDE_PAGE 4096u
#define MT_INSIDE_VARIABLES                                                                        \
	((sizeof(struct mt_inside) + MT_INSIDE_PAGE - 1) & ~(__u64)(MT_INSIDE_PAGE - 1))
#define MT_INSIDE_VARIABLES_MAX (256u << 10)
#define MT_INSIDE_RING (MT_INSIDE_VARIABLES + MT_INSIDE_VARIABLES_MAX)

static inline __u32 mt_inside_hash(__u64 key)
{
	return (__u32)((key * 0x9e3779b97f4a7c15ULL) >> 40);
}

#endif
