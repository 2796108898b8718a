/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The memory of this machine: readings of the kernel's figures (machine_readings), the ledger that
 * they make (machine_ledger), and who has it: processes, files in the page cache, control groups.
 *
 * The lines of the ledger add up to MemTotal: each page is in one line. What no figure of the kernel
 * has is in the line "not explained": pages that drivers took, such as a GPU's on unified memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- readings (machine_readings.c) ---- */

#define MACHINE_NONE UINT64_MAX /* this kernel has no such figure, or it is not readable */
#define MACHINE_ORDERS 16	/* orders of free blocks */

/* Bytes; MACHINE_NONE: not known. */
struct machine_readings {
	/* /proc/meminfo */
	uint64_t total, free, available, buffers, cached, swap_cached, dirty, writeback;
	uint64_t active_anon, inactive_anon, anon, mapped, shmem, reclaimable, slab_reclaimable,
		slab_unreclaimable, kernel_stack, page_tables, secondary_tables, bounce,
		writeback_tmp, vmalloc, percpu, anon_huge, hugetlb, swap_total, swap_free, zswap,
		balloon, gpu_active, gpu_reclaim;
	uint64_t huge_size; /* bytes of a huge page of the default size */
	uint64_t huge_total, huge_free, huge_reserved; /* of that size; reserved: part of free */
	uint64_t compressed; /* pages with compressed swap: nr_zspages of /proc/vmstat */
	uint64_t cpu_lists;  /* free pages in the lists of CPUs: /proc/zoneinfo */
	/* /proc/buddyinfo: free[i] is the number of free blocks of page << i bytes. */
	uint64_t page;
	uint64_t blocks[MACHINE_ORDERS];
	bool blocks_known;
	/* /sys/block/zramN/mm_stat, all devices together: data, and what it takes compressed. */
	uint64_t zram_data, zram_used;
	/* Parts of shmem, with pages that are swapped out: System V shared memory (in this IPC
	 * namespace), and files of tmpfs, which machine_scan__run() reads. */
	uint64_t sysv, tmpfs;
};

/* Sets all to "not known", and the page size. */
void machine_readings__init(struct machine_readings *readings);
/* Each takes the text of one file of /proc. Unknown lines are ignored; a bad line is as a missing
 * one. */
void machine_readings__parse_meminfo(struct machine_readings *readings, const char *text);
void machine_readings__parse_vmstat(struct machine_readings *readings, const char *text);
void machine_readings__parse_zoneinfo(struct machine_readings *readings, const char *text);
void machine_readings__parse_buddyinfo(struct machine_readings *readings, const char *text);
/* Reads all files. 0 or -errno: /proc/meminfo is not readable, or without MemTotal or MemFree
 * (-ENODATA). */
int machine_readings__read(struct machine_readings *readings);

/* ---- the ledger (machine_ledger.c) ---- */

enum machine_line_id {
	MACHINE_PROCESSES,
	MACHINE_CACHE,
	MACHINE_SHMEM,
	MACHINE_SLAB,
	MACHINE_TABLES,
	MACHINE_KERNEL,
	MACHINE_HUGE,
	MACHINE_COMPRESSED,
	MACHINE_SWAP_CACHE,
	MACHINE_GPU,
	MACHINE_BALLOON,
	MACHINE_UNEXPLAINED,
	MACHINE_FREE,
	MACHINE_LINES
};

#define MACHINE_PARTS 4

/* The parts of a line that has any add up to it. Names are static. */
struct machine_line {
	const char *name; /* "page cache" */
	const char *key;  /* "page_cache" */
	bool known;	  /* false: this kernel does not tell; its pages are not explained */
	int64_t bytes;	  /* only that of MACHINE_UNEXPLAINED can be negative: counted twice */
	struct {
		const char *name, *key;
		uint64_t bytes;
	} part[MACHINE_PARTS];
	size_t parts;
};

struct machine_ledger {
	uint64_t total; /* MemTotal, the sum of all lines */
	struct machine_line line[MACHINE_LINES];
	/* Free blocks of at least 2 MiB, which huge pages and drivers need, and the largest one. */
	bool blocks_known;
	uint64_t large, large_blocks, largest; /* bytes, number, bytes */
};

void machine_ledger__make(const struct machine_readings *readings, struct machine_ledger *ret);

/* ---- processes (machine_processes.c) ---- */

#define MACHINE_TOP 10 /* rows of each list */
#define MACHINE_TEXT 256

struct machine_process {
	pid_t pid;
	uid_t uid;
	char user[64];		    /* name, or ID */
	char command[MACHINE_TEXT]; /* clean; without the program's folders */
	/* Resident bytes by kind of page, and swapped ones. A page that several processes share
	 * counts in each. */
	uint64_t anon, file, shmem, swap;
};

/* The processes with most private memory, largest first. */
struct machine_processes {
	struct machine_process v[MACHINE_TOP];
	size_t n;
	uint64_t count; /* processes with memory that /proc shows; kernel threads have none */
	bool hidden;	/* /proc shows only our own processes (hidepid) */
};

/* 0 or -errno. Commands are the names of the main threads until machine_scan__run(). */
int machine_processes__read(struct machine_processes *ret);

/* Reads the figures of the processes in the list again, and drops those that have ended. The order
 * stays. Much cheaper than a new list. */
void machine_processes__refresh(struct machine_processes *p);

/* ---- files (machine_scan.c) ---- */

struct machine_file {
	uint64_t dev, inode;
	uint64_t size, cached, dirty; /* bytes; dirty: part of cached, also what is being written */
	pid_t pid;		      /* process that has it open or mapped; 0: none known */
	bool named;		      /* one of machine_scan.paths, or below one */
	bool checkpoint;	      /* weights or a checkpoint, by its name */
	bool shared;		      /* in tmpfs: its pages are shared memory, no page cache */
	bool deleted;
	char path[512]; /* clean; its front is cut if it is longer */
};

/* A tmpfs. */
struct machine_mount {
	char path[MACHINE_TEXT]; /* clean */
	uint64_t used;		 /* bytes */
};

#define MACHINE_BLOCKED 4 /* steps that did not answer; then no others are taken */

/* Reads what may never answer, such as files of a dead network file system, in a helper process.
 * All zero at first; keep it for the next look, so that what did not answer is not asked again. */
struct machine_scan {
	const char *const *paths; /* files and folders whose page cache is wanted; borrowed */
	size_t n_paths;
	/* Results. */
	struct machine_file file[MACHINE_TOP], shared[MACHINE_TOP]; /* in page cache; in tmpfs */
	size_t files, shared_files;
	uint64_t looked;			 /* number of files with pages */
	uint64_t cached, shared_cached;		 /* sums of all of them, bytes */
	struct machine_mount mount[MACHINE_TOP]; /* tmpfs of this mount namespace, largest first */
	size_t mounts;
	uint64_t tmpfs;	 /* sum, bytes */
	uint64_t denied; /* processes whose files this user may not see */
	bool late;	 /* files were left out: too many, too deep, or the time was over */
	bool no_figures; /* the kernel does not tell this user what is cached of others' files */
	/* Steps that did not answer: PIDs, or -1 - index of a folder. */
	int64_t blocked[MACHINE_BLOCKED];
	size_t n_blocked;
};

/* Reads the files that processes have open or mapped, those of s->paths, and weights in the folders
 * of Hugging Face; the mounts of tmpfs; and the commands of the processes in p. Takes at most about
 * five seconds. 0 or -errno. */
int machine_scan__run(struct machine_scan *s, struct machine_processes *p);

/* ---- control groups (machine_groups.c) ---- */

struct machine_group {
	char path[MACHINE_TEXT]; /* below the hierarchy's root; clean */
	/* Bytes; MACHINE_NONE: not known, or no limit. cache is the page cache, without shared
	 * memory. */
	uint64_t used, limit, anon, cache, kernel, swap;
};

/* The groups at the top of the hierarchy that is seen here, largest first. */
struct machine_groups {
	struct machine_group v[64];
	size_t n;
	unsigned version; /* of control groups: 1, 2; 0: none found */
	bool left_out;	  /* there are more */
};

void machine_groups__read(struct machine_groups *ret);
