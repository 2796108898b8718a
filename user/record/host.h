/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The ledger of a process's host memory, as outputs share it: a figure for each part; and the names
 * of lines that have no code. */
#include <stdbool.h>
#include <stdint.h>

struct event; /* record/stream.h */

/*
 * The parts of a process's resident host memory, for EVENT_HOST. Each resident byte belongs to
 * exactly one of the parts from HOST_PINNED to HOST_UNKNOWN: to the first that claims it. Numbers
 * are part of the file format.
 */
enum host_part {
	HOST_TOTAL = 0,		/* RSS: the sum of the parts; ends a reading */
	HOST_PINNED = 1,	/* memory of cudaHostAlloc and cudaHostRegister */
	HOST_SHARED_LOADER = 2, /* shared memory of torch.multiprocessing and DataLoader */
	HOST_SHARED_NCCL = 3,	/* shared memory of NCCL */
	HOST_SHARED = 4,	/* other shared memory: /dev/shm, memfd, System V, shared mmap */
	HOST_LIBRARIES = 5,	/* mapped programs and libraries, with their data */
	HOST_FILES = 6,		/* other mapped files */
	HOST_TENSORS = 7,	/* storages of CPU tensors in private memory */
	HOST_PYTHON = 8,	/* CPython's arenas: objects of up to 512 bytes */
	HOST_STACKS = 9,	/* stacks of threads */
	HOST_MALLOC = 10,	/* glibc's malloc, without tensors */
	HOST_UNKNOWN = 11,	/* memory that no table explains */
	HOST_PARTS_END,		/* end of the parts that add up to RSS */
	/* Figures next to RSS. */
	HOST_PSS = 16,		/* RSS with pages shared by n processes counted as 1/n */
	HOST_USS = 17,		/* pages of this process alone */
	HOST_SWAP = 18,		/* swapped out */
	HOST_HUGETLB = 19,	/* huge pages of hugetlbfs */
	HOST_PAGE_TABLES = 20,	/* the kernel's page tables for this process */
	HOST_GROUP = 21,	/* use of the memory control group */
	HOST_GROUP_KERNEL = 22, /* of it: the kernel's memory (stacks, slab, sockets, page tables) */
	/* Blocks of PyTorch's host allocator by use, resident or not: their sizes add up. */
	HOST_PINNED_REQUESTED = 23, /* storages of tensors in blocks */
	HOST_PINNED_ROUNDING = 24,  /* the rest of these blocks: sizes are powers of two */
	HOST_PINNED_CACHED = 25,    /* blocks that are not in use */
	HOST_PINNED_OTHER = 26,	    /* blocks in use in which no tensor was found */
	HOST_PART_NR,
};

/* Resident bytes of a part, and a second figure, if the part has one:
 *
 *   HOST_PINNED                           bytes that PyTorch's host allocator caches
 *   HOST_SHARED_LOADER to HOST_SHARED     bytes in storages of tensors
 *   HOST_LIBRARIES, HOST_FILES            private copies of the file's pages
 *   HOST_PYTHON, HOST_MALLOC              bytes free inside the allocator's memory
 *   HOST_GROUP                            limit of the group
 */
struct host_figure {
	uint64_t bytes, second;
	bool known, has_second;
	bool seen; /* private to host_sheet__take() */
};

/* One reading. A part is not known if the tables that it comes from could not be read; its memory
 * is then in other parts, at last in HOST_UNKNOWN. */
struct host_sheet {
	struct host_figure part[HOST_PART_NR];
};

/* Name in JSON, CSV and metrics, such as "tensors" or "page_tables"; NULL: no such part. */
const char *host_part__name(unsigned part);
/* Whether a part is one of those that add up to RSS. */
static inline bool host_part__adds_up(unsigned part)
{
	return part > HOST_TOTAL && part < HOST_PARTS_END;
}

/*
 * Passes a sheet on as events: one for each part, and HOST_TOTAL last. Returns 0 or the first
 * nonzero result of fn.
 */
int host_sheet__emit(const struct host_sheet *s, uint64_t time,
		     int (*fn)(void *ctx, const struct event *e), void *ctx);
/* Adds an EVENT_HOST to a sheet that is zeroed before its first event. True: the sheet is complete.
 * Unknown parts are ignored. */
bool host_sheet__take(struct host_sheet *s, const struct event *e);

/* Frames of blocks on the device "host" that no recorded system call mapped. Such a stack has one
 * frame without a line: its file is the mapping's name as in /proc/PID/maps, its function one of
 * these. */
#define HOST_BEFORE_ATTACH "before attach"
#define HOST_INHERITED "inherited from the parent process"
#define HOST_UNSEEN "mapped unseen"
#define HOST_ANONYMOUS "[anonymous memory]" /* name of a mapping that has none */
