/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The parts that the host memory of a process has, and their bytes at one moment. Also the names of
 * report lines for memory that no line of code mapped. */
#include <stdbool.h>
#include <stdint.h>

struct event; /* record/stream.h */

/* The parts of a process's resident host memory, for EVENT_HOST. Each resident byte belongs to
 * exactly one of the parts from HOST_PINNED to HOST_UNKNOWN. If several fit, it belongs to the one
 * with the lowest number. The numbers are part of the file format.
 */
enum host_part {
	HOST_TOTAL = 0,	 /* RSS: the sum of the parts; its event is the last one of a reading */
	HOST_PINNED = 1, /* memory of cudaHostAlloc and cudaHostRegister */
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
	/* Figures that are not parts of RSS. */
	HOST_PSS = 16,		/* RSS with pages shared by n processes counted as 1/n */
	HOST_USS = 17,		/* pages that no other process shares */
	HOST_SWAP = 18,		/* memory that the kernel swapped out */
	HOST_HUGETLB = 19,	/* huge pages of hugetlbfs */
	HOST_PAGE_TABLES = 20,	/* the kernel's page tables for this process */
	HOST_GROUP = 21,	/* bytes that are charged to the memory control group */
	HOST_GROUP_KERNEL = 22, /* part of HOST_GROUP: the kernel's memory (stacks, slab, sockets,
				   page tables) */
	/* Blocks of PyTorch's allocator for pinned host memory, resident or not. The four figures
	   add up to the sizes of all blocks. */
	HOST_PINNED_REQUESTED = 23, /* storages of tensors in these blocks */
	HOST_PINNED_ROUNDING =
		24, /* the rest of the blocks with tensors: block sizes are powers of two */
	HOST_PINNED_CACHED = 25, /* blocks that are not in use */
	HOST_PINNED_OTHER = 26,	 /* blocks in use without a known tensor */
	/* Resident memory that is free inside HOST_MALLOC, by what would return it. They overlap. */
	HOST_MALLOC_TRIM = 27,	 /* pages that malloc_trim(0) would return */
	HOST_MALLOC_ARENAS = 28, /* free memory of arenas other than the main one */
	HOST_MALLOC_ENDS = 29,	 /* free memory at the ends of arenas */
	/* Whole free pages of allocators other than glibc's, by their own tables. */
	HOST_JEMALLOC = 30,
	HOST_MIMALLOC = 31,
	HOST_TCMALLOC = 32,
	HOST_PART_NR,
};

/* Resident bytes of a part, and a second figure, if the part has one:
 *
 *   HOST_PINNED                           bytes that PyTorch's host allocator caches
 *   HOST_SHARED_LOADER to HOST_SHARED     bytes in storages of tensors
 *   HOST_LIBRARIES, HOST_FILES            private copies of the file's pages
 *   HOST_PYTHON, HOST_MALLOC              bytes free inside the allocator's memory
 *   HOST_GROUP                            limit of the group
 *   HOST_MALLOC_ARENAS                    number of malloc's arenas, the main one included
 *   HOST_MALLOC_ENDS                      the same in arenas other than the main one
 *   HOST_JEMALLOC to HOST_TCMALLOC        all bytes free inside the allocator
 */
struct host_figure {
	uint64_t bytes, second;
	bool known, has_second;
	bool seen; /* used only by host_sheet__take(): the reading has this part */
};

/* The host memory at one moment. A part is not known if its source could not be read; its memory
 * then counts for other parts, such as HOST_UNKNOWN. */
struct host_sheet {
	struct host_figure part[HOST_PART_NR];
};

/* Returns the part's name in JSON, CSV and metrics, such as "tensors" or "page_tables"; NULL: there
 * is no such part. */
const char *host_part__name(unsigned part);
/* True if RSS includes the part. */
static inline bool host_part__adds_up(unsigned part)
{
	return part > HOST_TOTAL && part < HOST_PARTS_END;
}

/* Resident bytes in use, and resident bytes that are free inside allocators: malloc, CPython's
 * arenas and PyTorch's pinned memory. */
struct host_use {
	bool malloc_known;	      /* malloc_free is known */
	uint64_t malloc, malloc_free; /* memory of malloc; the part of it that is free */
	bool known;		      /* free and live are known */
	uint64_t rss, free, live;     /* free and live add up to rss */
	/* Part of live: HOST_UNKNOWN. An allocator that is not read may have free memory in it. */
	uint64_t unexplained;
};

/* Divides the resident memory of a sheet. */
void host_sheet__use(const struct host_sheet *s, struct host_use *ret);

/* Calls fn with an EVENT_HOST for each part of a sheet, HOST_TOTAL last. Returns 0 or the first
 * nonzero result of fn.
 */
int host_sheet__emit(const struct host_sheet *s, uint64_t time,
		     int (*fn)(void *ctx, const struct event *e), void *ctx);
/* Adds an EVENT_HOST to a sheet, which the caller zeroes before the first one. Returns true if the
 * sheet is now complete. Ignores parts with numbers that this version does not have. */
bool host_sheet__take(struct host_sheet *s, const struct event *e);

/* A block on the device "host" that no recorded system call mapped has a stack of one frame without
 * a line. The frame's file is the mapping's name as in /proc/PID/maps, its function one of these
 * three. */
#define HOST_BEFORE_ATTACH "before attach"
#define HOST_INHERITED "inherited from the parent process"
#define HOST_UNSEEN "mapped unseen"
#define HOST_ANONYMOUS                                                                             \
	"[anonymous memory]" /* the file of such a frame if the mapping has no name */
