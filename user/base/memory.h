/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Memory limits and use of a process's memory cgroup, v1 and v2 (memcg__...); available memory of
 * this machine, and memory use of this process (memory__...). */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MEMCG_NONE UINT64_MAX /* no such figure in this kernel, or no limit */

struct memcg {
	bool v2;
	size_t top;	    /* length of the mount point at the start of dir */
	char dir[PATH_MAX]; /* folder of the cgroup */
};

/* Figures of a cgroup in bytes; MEMCG_NONE: not known, or no limit. */
struct memcg_figures {
	uint64_t limit, usage, peak;
	/* v2: of swap alone; v1: of memory and swap together */
	uint64_t swap_limit, swap_usage;
	uint64_t swap;		     /* memory that is swapped out */
	uint64_t anon, file, kernel; /* parts of usage */
	uint64_t cache; /* part of file: page cache of files, which the kernel can reclaim */
	uint64_t sock;	/* v2: buffers of sockets, a part of usage next to kernel */
	uint64_t kernel_stack, slab, page_tables; /* v2: parts of kernel */
	uint64_t oom_kills; /* number of processes of the cgroup that the OOM killer has ended */
};

/* Finds the memory cgroup of a process. Returns 0, -ENOENT (none is visible here) or -errno. */
int memcg__find(pid_t pid, struct memcg *ret);
/* Parses /proc/PID/cgroup and /proc/self/mountinfo. 0 or -ENOENT. For tests. */
int memcg__parse(const char *cgroups, const char *mounts, struct memcg *ret);
/* Path of the cgroup below the mount point; "/" is the root. The text is a part of m. */
const char *memcg__path(const struct memcg *m);
/* Finds the cgroup or the ancestor with the lowest limit. False: none has a limit. */
bool memcg__limiting(const struct memcg *m, struct memcg *ret);
/* Finds the cgroup or the ancestor with this inode. False: none. */
bool memcg__with_inode(const struct memcg *m, uint64_t inode, struct memcg *ret);
/* Finds the cgroup or the ancestor with the path that the kernel's log has. That path begins at the
 * root of the hierarchy, which may not be mounted here. False: none. */
bool memcg__with_path(const struct memcg *m, const char *path, struct memcg *ret);
/* Changes m to its parent cgroup. False: m is the root. */
bool memcg__climb(struct memcg *m);
/* Available memory below the limit, in bytes. Page cache counts as available, as in MemAvailable.
 * MEMCG_NONE: no limit, or not known. */
uint64_t memcg__left(const struct memcg_figures *f);
/* Reads the figures. Never fails: what cannot be read is MEMCG_NONE. */
void memcg__read(const struct memcg *m, struct memcg_figures *ret);
/* Writes at most `most` PIDs of the processes in the cgroup and below it. Returns the number. */
size_t memcg__pids(const struct memcg *m, pid_t *pids, size_t most);

/* Sets *bytes to the memory that is available to us, by the kernel's figure and the limits of our
 * control groups. 0: not known. Returns 0 or -ENOMEM. */
int memory__available(uint64_t *bytes);
/* Resident memory of this process without file pages, in bytes. 0: not known. */
uint64_t memory__own(void);

/* Finds a line such as "Name: 123 kB" of a file in /proc, and sets *bytes to the number in bytes.
 * name: "\nName:". False: there is no such line. */
bool memory__field(const char *text, const char *name, uint64_t *bytes);
