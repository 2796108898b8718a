/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Host memory of a process: its ledger, and its lines (host_memory).
 *
 * The ledger is read from outside: each resident byte belongs to exactly
 * one part, and the parts add up to RSS. Needs no probe and does not stop the process.
 *
 * The kernel's page map is the frame: a mapping's resident bytes are known to the
 * page. Within a mapping, the tables of PyTorch, CPython and glibc tell what a range of addresses
 * holds, and the kernel's page map tells which of it is resident. A byte that several claim counts
 * once, for the first in the order of enum host_part. Memory that nothing claims is "unknown".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "memtrace.h"
#include "record/host.h"

struct proc;
struct python;

/* glibc's malloc, from its own tables. */
struct host_malloc {
	bool known;	   /* the tables were found, and they agree with the mappings */
	uint64_t arenas;   /* number of arenas, the main one included */
	uint64_t arena;	   /* bytes that the arenas have from the kernel (mallinfo2's arena) */
	uint64_t free;	   /* bytes of free chunks in arenas (mallinfo2's fordblks) */
	bool free_known;   /* false: lists of free chunks changed, were swapped or are too long */
	uint64_t top;	   /* bytes of free that lie at the ends of arenas */
	uint64_t mapped;   /* bytes of chunks with a mapping of their own (hblkhd) */
	bool mapped_known; /* mapped is malloc's own figure */
	uint64_t mapped_found; /* bytes of such chunks found in the mappings */
};

/* CPython's allocator for objects of up to 512 bytes (obmalloc). */
struct host_python {
	bool known;
	uint64_t arenas; /* number */
	uint64_t arena;	 /* bytes of all arenas */
	uint64_t blocks; /* blocks in use, as sys.getallocatedblocks() */
	uint64_t used;	 /* bytes of blocks in use */
	bool used_known; /* false: too many pools, or some changed or were swapped */
};

/* The memory control group that limits the process: its own or one above, the one with the lowest
 * limit. Without a limit, its own. */
struct host_group {
	char path[256];	  /* "": none found; hostile */
	unsigned version; /* version of control groups: 1, 2; 0: none found */
	uint64_t kernel;  /* the kernel's part of its use, with sockets; MEMCG_NONE: not known */
	struct memcg_figures figures;
};

struct host_ledger {
	struct host_sheet sheet;
	struct host_malloc malloc;
	struct host_python python;
	struct host_group group;
	uint64_t status_rss; /* VmRSS of /proc/PID/status just before; the kernel may round it */
	uint64_t mappings;   /* number of mappings */
	uint64_t adjusted;   /* bytes of claims that a mapping's resident bytes had no room for */
	uint64_t processes;  /* processes in the ledger: 1, or those of a tree */
	uint64_t begin, end; /* time of the reading, CLOCK_MONOTONIC, ns */
	char allocator[32]; /* file of another malloc, such as "libjemalloc.so.2"; "": none found */
};

/* A storage of tensors on the CPU. */
struct host_storage {
	uint64_t addr, size;
};

struct host_opts {
	const struct host_storage *storages; /* in any order, may overlap; borrowed */
	size_t n;
	bool storages_known; /* false: they could not be read */
	/* Count pages that n processes share as 1/n, for the sum of a process tree: the total is
	 * PSS then. Parts of a mapping keep their shares of it. */
	bool proportional;
	bool brief; /* leave out the lists of free chunks and the pools of Python's arenas */
	bool (*cancelled)(void *ctx); /* asked between calls of the kernel; NULL: never */
	void *ctx;
};

struct hostmem;

/* A reader for a process, which keeps the places of tables between readings. Borrows both; py NULL:
 * the process has no Python, or it is not known. NULL on ENOMEM. */
struct hostmem *hostmem__new(const struct proc *p, const struct python *py);
void hostmem__free(struct hostmem *h); /* accepts NULL */
/*
 * Reads the ledger. 0 or -errno: -ESRCH the process ended, -EPERM, -EACCES, -ENOMEM, -EIO for text
 * of the kernel that cannot be parsed, -ECANCELED. Missing tables are no error: their memory is
 * unknown.
 */
int hostmem__read(struct hostmem *h, const struct host_opts *o, struct host_ledger *ret);
/* Adds a proportional reading of another process of the tree. sum: zeroed before the first. */
void host_ledger__add(struct host_ledger *sum, const struct host_ledger *l);

/*
 * Host memory by line (--host): makes blocks on the device "host" of the records of
 * bpf/host.bpf.h. A block is resident memory of one mapping, and its stack is the system call that
 * mapped it. Readings of the process, at most once a second, say what is resident: the blocks of a
 * reading add up to the RSS of that moment. Readings run on a thread of their own. Between readings
 * the growth of RSS is worked out: it is that of the memory that was mapped since the last one.
 */

struct event;
struct facts;
struct host_memory;

/* Functions of the capture that host memory calls. All is borrowed. */
struct host_capture {
	const struct proc *proc;
	void *ctx;
	uint64_t (*now)(void *ctx);		       /* ns since start */
	uint64_t (*since)(void *ctx, uint64_t time);   /* a record's time as ns since start */
	int (*emit)(void *ctx, const struct event *e); /* 0 or the sink's error */
	/* Number of a thread in the dictionary. UINT32_MAX: out of memory. */
	uint32_t (*thread)(void *ctx, uint32_t tid);
	/* Number of a stack; 0: none, and *walk says why. */
	uint32_t (*stack)(void *ctx, uint64_t id, uint8_t *walk);
	/* The stack of compiled code of a record without a Python stack, if there is one. 0 or
	 * -ENOMEM. */
	int (*native)(void *ctx, const struct mt_rec_host *r, uint32_t *stack, uint8_t *walk);
	/* Number of a stack of one frame without a line; 0: no room. UINT32_MAX: out of memory. */
	uint32_t (*named)(void *ctx, const char *file, const char *function);
};

/* inherited: the process was forked, and has its parent's memory. NULL: out of memory. */
struct host_memory *host_memory__new(const struct host_capture *c, bool inherited);
void host_memory__free(struct host_memory *h); /* ends a reading under way; NULL is fine */

/* Decodes a record. Does nothing without h. 0, -ENOMEM, -EBADMSG or the sink's error. */
int host_memory__record(struct host_memory *h, const struct mt_rec_host *r);

/* The others do nothing without h, too. */

/* Begins a reading if it is time to. last: in any case, and none after it. */
void host_memory__begin(struct host_memory *h, bool last);
/* True while a reading is under way. */
bool host_memory__is_reading(const struct host_memory *h);
/* 1: a reading has ended; bring in all records written until now, then call host_memory__take().
 * 0: none has. */
int host_memory__join_reading(struct host_memory *h);
/* Passes on the reading, or drops it unless whole: all records up to its end came in. 0, -ENOMEM or
 * the sink's error. */
int host_memory__take(struct host_memory *h, bool whole);
/* Works out what grew since the last reading, if it is time to. Call it after records came in. 0,
 * -ENOMEM or the sink's error. */
int host_memory__check_growth(struct host_memory *h);
/* The same now: the process has rss bytes, and all records have come in. */
int host_memory__charge_growth(struct host_memory *h, uint64_t rss);
/* Memory of an object or tensor, and what holds it: a number of the dictionary. */
struct host_held {
	uint64_t addr, size;
	uint32_t name;
};
/* Objects are about to be read for host_memory__set_held(): memory that is mapped later is not
 * theirs. */
void host_memory__begin_held(struct host_memory *h);
/*
 * Names blocks after the next reading: those of a range of which objects of one name have at least
 * half of the resident bytes. Takes ownership of v, in any order, which free() can free.
 */
void host_memory__set_held(struct host_memory *h, struct host_held *v, size_t n);
/* Sets the facts host_rss, host_worked_out and counter.host.<name>. */
void host_memory__set_facts(const struct host_memory *h, struct facts *f);
