/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The contract between a recorder and the library that runs the programs inside the recorder's own
 * child (tools/inprocess/, user/capture/probes/probes_inside.c). Both map one memfd. It replaces
 * the kernel's BPF maps and the programs' variables:
 *
 *   0                    struct mt_inside
 *   MT_INSIDE_VARIABLES  the programs' variables; the library maps them over its own
 *   MT_INSIDE_RING       the ring: a page that the reader writes, a page that writers write, data
 *
 * No includes of the system, as in memtrace.h.
 */
#include "hook_table.h"

#define MT_INSIDE_MAGIC 0x31306564736e694dULL
#define MT_INSIDE_ENV "MEMTRACE_INSIDE" /* FD:DEVICE:INODE of the memfd */
#define MT_INSIDE_LIBRARY "libmemtrace-inside.so"

#define MT_INSIDE_SITES 4096 /* a power of two; at most half of the slots are used */
#define MT_INSIDE_AT_SITE 6  /* programs at one site */
#define MT_INSIDE_KEYS 16384 /* slots of a table: a power of two, 4 * the most keys */
#define MT_INSIDE_SLOT 32    /* bytes: an instruction and the way back */
#define MT_INSIDE_SLOTS 512

#define MT_INSIDE_PROGRAM(id, program, twin, record, off, name) MT_INSIDE_##id,
enum mt_inside_program {
	MT_INSIDE_NONE,
	MT_HOOKS(MT_INSIDE_PROGRAM) /* those of hooks */
	MT_INSIDE_CALL_ENTER,
	MT_INSIDE_CALL_RETURN, /* program of a probed call, run when the function returns */
	MT_INSIDE_SET_DEVICE,
	MT_INSIDE_ASKED,
	MT_INSIDE_USDT_SCOPE,
	MT_INSIDE_LINKER, /* the dynamic linker's debugger breakpoint, before a mapped library runs */
};
#undef MT_INSIDE_PROGRAM

/* How to emulate the instruction that a breakpoint replaced. */
enum mt_inside_way {
	MT_INSIDE_SKIP = 1, /* instruction without effect */
	MT_INSIDE_PUSH,	    /* push of register `operand`, by its number in the encoding */
	MT_INSIDE_JUMP,	    /* jump to `target` */
	MT_INSIDE_BRANCH,   /* jump to `target` if condition `operand` (low bits of jcc's opcode)
			       holds; on AArch64 if that of the `original` holds */
	MT_INSIDE_CALL,	    /* call of `target` */
	MT_INSIDE_RET,
	MT_INSIDE_SLOT_RUN, /* run the copy of the instruction at `target` */
	MT_INSIDE_WORD,	    /* AArch64: what `original` says, with `target` for an address */
};

struct mt_inside_at {
	__u64 cookie;
	__u32 program; /* enum mt_inside_program; 0: removed; written last */
	__u32 pad;
};

/* A probed address, found by hash. Entries are never removed: a thread may still be in the handler
 * of a removed breakpoint. */
struct mt_inside_site {
	__u64 addr; /* 0: free; written last */
	__u64 target;
	__u8 way, length, operand; /* enum mt_inside_way; the instruction's length in bytes */
	__u8 lower;		   /* the stack pointer is so many bytes lower than the programs
				      expect it */
	__u32 original; /* what the breakpoint replaced: the first byte, on AArch64 the word */
	struct mt_inside_at at[MT_INSIDE_AT_SITE];
};

/* Key (an address) and value in one word, so that readers never see one without the other. */
#define MT_INSIDE_ENTRY(key, value) ((__u64)(key) | (__u64)(value) << 56)
#define MT_INSIDE_KEY(entry) ((entry) & ~(0xffULL << 56))
#define MT_INSIDE_VALUE(entry) ((__u8)((entry) >> 56))

struct mt_inside_table {
	__u64 entry[MT_INSIDE_KEYS]; /* 0: free, ends a search; value 0: removed */
};

/* Offsets of the programs' variables, in bytes from MT_INSIDE_VARIABLES. programs__share() in
 * tools/inprocess/programs.c sets them. None is in the first page. */
struct mt_inside_variables {
	__u32 size;
	__u32 py, modules, bench_empty, bench_verify, stopped, woken, notices, code_epoch,
		module_code, seen_code, asked_args, node_layout;
};

/* The reason why the process waits for the recorder. */
enum mt_inside_wait {
	MT_INSIDE_RUNS = 0,
	MT_INSIDE_STARTS,  /* the library has loaded and no other code of the program has run */
	MT_INSIDE_ARRIVED, /* PyTorch is mapped and none of its code has run */
};

struct mt_inside {
	__u64 magic;
	__u64 ring_bytes;    /* size of the ring's data; a power of two */
	__u32 recorder, pid; /* processes: the reader, the recorded one */
	/* Written by the library, for the program that the process runs now. */
	__u32 image;	/* number of the program, from 1; written after the fields below */
	__u32 waits;	/* enum mt_inside_wait */
	__u64 slots[2]; /* areas of MT_INSIDE_SLOTS slots: in the library, near the program; 0: none
			 */
	__u64 linker;	/* address of the dynamic linker's breakpoint for debuggers; 0: none */
	__u64 returns;	/* trampoline that replaces return addresses */
	struct mt_inside_variables variables;
	__u32 problem; /* errno that prevents recording from inside; 0: none */
	/* Written by the recorder. */
	__u32 loads; /* number of loads of the programs; each load resets threads' state */
	__u32 go;    /* futex; goes up when the process may continue */
	__u32 taken; /* futex for writers at a full ring; goes up when the reader has read
		      */
	__u32 reads; /* 1: a recorder reads the ring */
	/* Written by both. */
	__u32 wake;    /* futex; goes up to wake the reader at once */
	__u32 waiting; /* threads that wait at `taken` */
	struct mt_inside_table roots,
		types; /* root_modules and module_types; written by the recorder */
	__u64 counters[MT_CNT_NR];
	struct mt_sent sent_stacks[MT_SENT_SETS];
	struct mt_inside_site site[MT_INSIDE_SITES];
};

/* The largest page of kernels for this architecture: offsets in the memfd must be multiples. */
#ifdef __aarch64__
#define MT_INSIDE_PAGE 65536u
#else
#define MT_INSIDE_PAGE 4096u
#endif
#define MT_INSIDE_VARIABLES                                                                        \
	((sizeof(struct mt_inside) + MT_INSIDE_PAGE - 1) & ~(__u64)(MT_INSIDE_PAGE - 1))
#define MT_INSIDE_VARIABLES_MAX ((192u << 10) + 16 * MT_INSIDE_PAGE)
#define MT_INSIDE_RING (MT_INSIDE_VARIABLES + MT_INSIDE_VARIABLES_MAX)

static inline __u32 mt_inside_hash(__u64 key)
{
	return (__u32)((key * 0x9e3779b97f4a7c15ULL) >> 40);
}
