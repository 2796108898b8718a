/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Host memory of a process: its ledger, and its lines (host_memory).
 *
 * The ledger is read from outside: each resident byte belongs to exactly
 * one part, and the parts add up to RSS. Needs no probe and does not stop the process.
 *
 * The kernel's page map gives the resident bytes of each mapping. Within a mapping, the tables of
 * PyTorch, CPython and glibc tell what a range of addresses holds, and the page map tells which
 * pages of the range are resident. A byte that several parts claim counts once, for the first of
 * them in the order of enum host_part. Memory that no part claims is "unknown".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "memtrace.h"
#include "record/host.h"

struct elf;
struct map;
struct maps;
struct proc;
struct python;

/* Figures of glibc's malloc, from its own tables. */
struct host_malloc {
	bool known;	 /* malloc's tables were found, and they agree with the mappings */
	uint64_t arenas; /* number of arenas, the main one included */
	uint64_t arena;	 /* bytes that the arenas have from the kernel (mallinfo2's arena) */
	uint64_t free;	 /* bytes of free chunks in arenas (mallinfo2's fordblks) */
	bool free_known; /* false: malloc's lists of free chunks changed, were swapped out or are
			    too long */
	uint64_t top; /* the part of `free` that lies at the ends of arenas (top chunks), bytes */
	uint64_t mapped;       /* bytes of chunks with a mapping of their own (hblkhd) */
	bool mapped_known;     /* mapped is known, from malloc's own statistics */
	uint64_t mapped_found; /* bytes of such chunks found in the mappings */
};

/* CPython's allocator for objects of up to 512 bytes (obmalloc). */
struct host_python {
	bool known;	 /* the table of arenas was found */
	uint64_t arenas; /* number of arenas */
	uint64_t arena;	 /* bytes of all arenas */
	uint64_t blocks; /* blocks in use, as sys.getallocatedblocks() */
	uint64_t used;	 /* bytes of blocks in use */
	bool used_known; /* false: too many pools, or some changed or were swapped */
};

#define HOST_ALLOCATORS                                                                            \
	4u /* most allocators of a ledger, glibc's malloc and CPython's not counted */

/*
 * An allocator that the process has in place of glibc's malloc, or next to it as a part of a
 * library: by its own tables, in bytes. Its memory is live + free_blocks + purgeable + muzzy +
 * tables. If `known` is false, its tables were not found or do not agree with each other and with
 * the mappings; all figures are 0 then.
 */
struct host_allocator {
	char name[16];	  /* "jemalloc", "mimalloc", "tcmalloc", "musl" */
	char file[64];	  /* name of the mapped file that has its code, without folder; hostile */
	char version[16]; /* as far as its layout tells, such as "5.3"; "": not known */
	bool known;
	bool free_known;      /* live and free_blocks are known; false in a brief reading */
	uint64_t arenas;      /* number of arenas, heaps or caches that divide its memory */
	uint64_t live;	      /* blocks that the program has, rounded up to their size classes */
	uint64_t free_blocks; /* free blocks in pages that stay: next to live ones, and in caches of
				 threads */
	uint64_t purgeable;   /* whole free pages; a purge returns them (jemalloc: dirty) */
	uint64_t muzzy;	   /* whole free pages that the kernel may take at any time (MADV_FREE) */
	uint64_t retained; /* addresses without memory that the allocator keeps for later */
	uint64_t tables;   /* its own tables */
};

/* The memory control group that limits the process: its own or one above, the one with the lowest
 * limit. Without a limit, its own. */
struct host_group {
	char path[256];	  /* "": none found; hostile */
	unsigned version; /* version of control groups: 1, 2; 0: none found */
	uint64_t kernel; /* memory of the kernel and of sockets in the group, bytes; MEMCG_NONE: not
			    known */
	struct memcg_figures figures;
};

struct host_ledger {
	struct host_sheet sheet;
	struct host_malloc malloc;
	struct host_python python;
	struct host_group group;
	uint64_t status_rss; /* VmRSS of /proc/PID/status just before the reading; may be inexact */
	uint64_t mappings;   /* number of mappings */
	uint64_t adjusted;   /* bytes of claims beyond the resident bytes of their mappings */
	uint64_t processes;  /* number of processes in the ledger: 1, or those of a process tree */
	uint64_t begin, end; /* time of the reading, CLOCK_MONOTONIC, ns */
	struct host_allocator allocator[HOST_ALLOCATORS]; /* other allocators than glibc's */
	size_t allocators;				  /* number of them */
};

/* A function in a stack of malloc's sampler. Texts are owned, hostile, and "" if not known. */
struct host_sample_frame {
	char *function, *file, *module; /* file: source file; module: path of the mapped file */
	uint32_t line;			/* 0: not known */
};

#define HOST_SAMPLE_CALLS 31u

/* Live blocks with the same stack that malloc's own sampler chose. */
struct host_sample {
	uint64_t call[HOST_SAMPLE_CALLS]; /* return addresses, innermost first */
	size_t calls;
	uint64_t samples; /* number of chosen blocks */
	uint64_t bytes;	  /* estimate of all live bytes with this stack */
	/* Without malloc's own functions; none before host_samples__name(). */
	struct host_sample_frame *frame;
	size_t frames;
};

/* All of them, the largest first: if the sampler of gperftools' tcmalloc
 * (TCMALLOC_SAMPLE_PARAMETER) or of jemalloc 5.3 (opt.prof) is on in the process. */
struct host_samples {
	struct host_sample *v; /* owned */
	size_t n, cap;
	const char *sampler;	 /* "tcmalloc", "jemalloc"; NULL: none is on */
	uint64_t period;	 /* one block is chosen about each so many bytes; 0: not known */
	uint64_t samples, bytes; /* sums */
};

/* A storage of tensors on the CPU. */
struct host_storage {
	uint64_t addr, size;
};

struct host_opts {
	const struct host_storage *storages; /* in any order, may overlap; borrowed */
	size_t n;
	bool storages_known; /* false: the storages could not be read */
	/* Count a page that n processes share as 1/n of a page, so that a process tree can be summed
	 * up: the total is PSS then. Each part of a mapping is reduced in the same proportion. */
	bool proportional;
	/* Receives malloc's samples, for host_samples__free(), also after an error. NULL: they are
	 * not read. */
	struct host_samples *samples;
	bool brief; /* leave out the lists of free chunks and the pools of Python's arenas */
	bool (*cancelled)(
		void *ctx); /* true: end with -ECANCELED; called between system calls; or NULL */
	void *ctx;
};

struct hostmem;

/* Creates a reader for a process, which keeps the places of tables between readings. Borrows proc
 * and py. py NULL: the process has no Python, or its Python is not known. NULL: out of memory. */
struct hostmem *hostmem__new(const struct proc *proc, const struct python *py);
void hostmem__free(struct hostmem *hostmem); /* accepts NULL */
/*
 * Reads the ledger. 0 or -errno: -ESRCH the process ended, -EPERM, -EACCES, -ENOMEM, -EIO for text
 * of the kernel that cannot be parsed, -ECANCELED. Missing tables are no error: their memory is
 * unknown.
 */
int hostmem__read(struct hostmem *hostmem, const struct host_opts *opts, struct host_ledger *ret);
/* Names the frames of the `most` largest stacks. An address that cannot be named has no frame. 0 or
 * -errno: some stacks have no frames then. */
int host_samples__name(struct host_samples *samples, const struct proc *proc, size_t most);
void host_samples__free(struct host_samples *samples);
/* Adds ledger, a proportional reading of one process of a tree, to sum, which is zeroed before the
 * first process. */
void host_ledger__add(struct host_ledger *sum, const struct host_ledger *ledger);

/*
 * Host memory by line (--host): makes blocks on the device "host" of the records of
 * bpf/host.bpf.h. A block is resident memory of one mapping, and its stack is the system call that
 * mapped it. Readings of the process, at most once a second, say what is resident: the blocks of a
 * reading add up to the RSS of that moment. Readings run on a thread of their own. Between two
 * readings, growth of RSS is charged to the memory that was mapped since the last reading.
 */

struct event;
struct facts;
struct host_memory;

/* Functions of the capture that struct host_memory calls. All pointers are borrowed. */
struct host_capture {
	const struct proc *proc;
	void *ctx;
	uint64_t (*now)(void *ctx);		       /* ns since start */
	uint64_t (*since)(void *ctx, uint64_t time);   /* a record's time as ns since start */
	int (*emit)(void *ctx, const struct event *e); /* 0 or the sink's error */
	/* Returns the dictionary's number of a thread. UINT32_MAX: out of memory. */
	uint32_t (*thread)(void *ctx, uint32_t tid);
	/* Returns the dictionary's number of the stack with this ID. 0: none, for the reason *walk
	 * (enum mt_walk). */
	uint32_t (*stack)(void *ctx, uint64_t id, uint8_t *walk);
	/* Sets *stack and *walk to the native stack of a record without a Python stack, if there is
	 * one. 0 or -ENOMEM. */
	int (*native)(void *ctx, const struct mt_rec_host *r, uint32_t *stack, uint8_t *walk);
	/* Returns the dictionary's number of a stack of one frame, without a line. 0: no room.
	 * UINT32_MAX: out of memory. */
	uint32_t (*named)(void *ctx, const char *file, const char *function);
};

/* inherited: the process was forked, so that the first reading finds its parent's memory. NULL: out
 * of memory. */
struct host_memory *host_memory__new(const struct host_capture *capture, bool inherited);
void host_memory__free(struct host_memory *host); /* cancels a running reading; accepts NULL */

/* Applies a record of a system call that maps or unmaps memory. 0, -ENOMEM, -EBADMSG or the sink's
 * error. */
int host_memory__record(struct host_memory *host, const struct mt_rec_host *record);

/* host_memory__record() and all functions below do nothing if host is NULL. */

/* Starts a reading on its thread if one is due. last: starts it in any case, and none after it. */
void host_memory__begin(struct host_memory *host, bool last);
/* True while the thread of a reading runs. */
bool host_memory__is_reading(const struct host_memory *host);
/* Joins the thread of a reading that has ended. 1: the reading succeeded; drain all records written
 * until now, then call host_memory__take(). 0: no reading ended, or it failed. */
int host_memory__join_reading(struct host_memory *host);
/* Makes blocks of the joined reading. whole: all records up to its end have come in; otherwise
 * drops the reading. 0, -ENOMEM or the sink's error. */
int host_memory__take(struct host_memory *host, bool whole);
/* Charges growth of RSS since the last reading, if that is due. Call it after draining records. 0,
 * -ENOMEM or the sink's error. */
int host_memory__check_growth(struct host_memory *host);
/* Charges growth of RSS to rss bytes at once. All records must have come in. Returns as
 * host_memory__check_growth(). */
int host_memory__charge_growth(struct host_memory *host, uint64_t rss);
/* Memory of an object or tensor. name: number, in the dictionary, of the path to its holder. */
struct host_held {
	uint64_t addr, size;
	uint32_t name;
};
/* Says that objects are about to be read for host_memory__set_held(). Memory that is mapped later
 * does not get their names. */
void host_memory__begin_held(struct host_memory *host);
/*
 * Sets the objects that name blocks. After the next reading, all blocks of a range get a name if
 * the objects of that name have at least half of the range's resident bytes. Takes ownership of
 * held, n objects in any order, from malloc().
 */
void host_memory__set_held(struct host_memory *host, struct host_held *held, size_t n);
/* Sets the facts host_rss, host_worked_out and counter.host.<name>. */
void host_memory__set_facts(const struct host_memory *host, struct facts *facts);

/*
 * ---- the functions of malloc in a process's files, and where to probe them ----
 *
 * Each file counts that
 * defines malloc and free: a C library, an allocator in its place, or the executable of a static
 * program. C++'s operators new and delete are not among them, since an exception must not pass a
 * return probe: those of libstdc++ and libc++ call malloc, those of jemalloc, tcmalloc and mimalloc
 * do not, and their blocks are not seen.
 */

#define MALLOCS_SITES_MAX 16

struct malloc_site {
	const char *name; /* static text */
	uint64_t offset;  /* file offset of the probed instruction */
	uint32_t how;	  /* enum mt_malloc_how; 0: the function frees its first argument */
	bool stepped;	  /* the kernel single-steps the instruction */
};

/* malloc's functions in a mapped file. */
struct malloc_file {
	struct elf *elf; /* the file, owned by the caller; NULL: it has no malloc */
	size_t n;
	struct malloc_site site[MALLOCS_SITES_MAX];
	/* Addresses of their code in the process: a call from there belongs to another call. */
	uint64_t own[MALLOCS_SITES_MAX][2];
	size_t n_own;
	/* Name of a function that no probe is possible on; NULL: none. One that ends blocks, free
	 * or realloc, comes before others. */
	const char *refused;
	bool misses_ends; /* it is one of these: blocks would seem to live on */
	bool has_new;	  /* the file has operators new of its own */
};

/*
 * Finds malloc's functions in a mapped file. map: an executable mapping of it. 0 also if there are
 * none; -errno if the file cannot be read, and *ret is unchanged.
 */
int mallocs__look(const struct proc *proc, const struct maps *maps, const struct map *map,
		  struct malloc_file *ret);
