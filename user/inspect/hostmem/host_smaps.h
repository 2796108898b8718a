/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Mappings of a process with the figures of /proc/PID/smaps for each, and which of their pages are
 * resident.
 *
 * The figures come from the page map: smaps locks the address space for reading while the kernel
 * walks a whole mapping, 13 to 35 ms a GiB, and threads that map or unmap memory wait meanwhile. A
 * call here holds the lock for 2 ms at most, usually for less than 0.1 ms, and makes pauses.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/proc.h"

/* Figures of a mapping, bytes. Huge pages of hugetlbfs count in hugetlb only, as in smaps. own:
 * pages that no other process maps (USS). */
struct smaps_figures {
	uint64_t rss, pss, own, anonymous, swap, hugetlb;
};

struct host_smaps {
	struct maps maps;
	struct smaps_figures *v; /* v[i]: figures of maps.v[i] */
	bool brief;		 /* only rss and hugetlb are known */
	bool pss_known;
};

/* Sums of the whole process, from /proc/PID/status. Bytes; 0: not known. */
struct host_status {
	uint64_t rss, anon, swap, page_tables, hugetlb, threads;
	bool page_tables_known;
};

struct host_resident;

/*
 * Reads the current mappings and their figures. shares: PSS is needed. Without CAP_SYS_ADMIN only
 * smaps has PSS, and smaps locks the address space for longer. Without shares, a process with 1
 * GiB of RSS or more gets a brief reading. The time grows with resident memory, not with reserved
 * addresses. Before Linux 6.7 it grows with addresses, so two shortcuts apply: a mapping above 1
 * GiB that cannot be accessed is left out if the other mappings explain the process's RSS. And
 * after 256 GiB of addresses without memory, the mapping that is being read gets the rest of the
 * RSS. 0 or -errno; -EIO: text that cannot be parsed, -ESRCH, -ECANCELED.
 */
int host_smaps__read(const struct proc *proc, struct host_resident *resident, bool shares,
		     struct host_smaps *ret);
/* Parses the text of a smaps file, and changes the text meanwhile. For host_smaps__read() and
 * tests. 0, -EIO, -ENOMEM. */
int host_smaps__parse(char *text, size_t len, struct host_smaps *ret);
void host_smaps__free(struct host_smaps *smaps);

static inline uint64_t host_smaps__min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- huge pages of hugetlbfs ---- */

#define HOST_HUGE_MAX 64u

/* Devices of hugetlbfs: mappings of their files have huge pages that are not part of RSS. */
struct host_huge {
	uint64_t v[HOST_HUGE_MAX]; /* major << 32 | minor */
	size_t n;
};

/* Finds the devices that the kernel uses for MAP_HUGETLB, memfd and System V, and the mounts that
 * the process sees. Opens no file of the mounts. */
void host_huge__find(const struct proc *proc, struct host_huge *ret);
/* Adds the hugetlbfs mounts of a /proc/PID/mountinfo. For host_huge__find() and tests. */
void host_huge__parse(const char *mountinfo, struct host_huge *ret);
/* Whether a mapping is of a file on one of the devices. */
bool host_huge__has(const struct host_huge *huge, const struct map *map);

/* ---- resident pages ---- */

#define RESIDENT_SLICE (64u << 20) /* most bytes of a host_resident__read() */

struct resident_range {
	uint64_t start, end;
};

/* Returns 0, or an error that ends the walk. */
typedef int (*resident_fn)(void *ctx, uint64_t start, uint64_t end);

/* Opens the page map of a process; borrows proc. NULL with errno. */
struct host_resident *host_resident__open(const struct proc *proc);
void host_resident__close(struct host_resident *resident); /* accepts NULL */
/* Sets a function that readings call between two system calls. If it returns true, the reading
 * fails with -ECANCELED. */
void host_resident__cancel_by(struct host_resident *resident, bool (*cancelled)(void *ctx),
			      void *ctx);
/*
 * Calls fn for the resident ranges of the pages of [start, end), in order; neighbours may come in
 * pieces. Does not change the process's memory. Pages of zeros that the kernel shares do not count
 * if the kernel can tell them (6.7 and later, or CAP_SYS_ADMIN). 0 or -errno.
 */
int host_resident__walk(struct host_resident *resident, uint64_t start, uint64_t end,
			resident_fn fn, void *ctx);
/* As host_resident__walk(), into an array of ranges that do not touch. end - start is at most
 * RESIDENT_SLICE. *ranges belongs to resident and is valid until the next call. */
int host_resident__read(struct host_resident *resident, uint64_t start, uint64_t end,
			const struct resident_range **ranges, size_t *n);
/* Adds up the resident bytes of [start, end). device: the mapping is of a device file, so only
 * pages of files count, not the device's own memory. 0 or -errno. */
int host_resident__count(struct host_resident *resident, uint64_t start, uint64_t end, bool device,
			 uint64_t *ret);
/* Reads the figures that smaps has, from the page map. pss is exact only if shares is set and
 * host_resident__knows_shares(). Both addresses are multiples of the page size. 0 or -errno. */
int host_resident__figures(struct host_resident *resident, uint64_t start, uint64_t end,
			   bool shares, struct smaps_figures *ret);

/* ---- an open page map, for host_resident.c and its test ---- */

/* include/uapi/linux/fs.h: struct page_region, which older headers lack. */
struct scan_region {
	uint64_t start, end, categories;
};

#define RESIDENT_REGIONS 512u /* as many as the kernel gathers under one lock */
#define RESIDENT_WORDS 4096u

struct host_resident {
	const struct proc *proc;
	int fd;
	int counts;    /* /proc/kpagecount; -1: not permitted */
	bool no_scan;  /* the kernel lacks PAGEMAP_SCAN */
	uint64_t page; /* bytes */
	uint64_t zero; /* frame of the page of zeros; 0: not permitted */
	struct host_status status;
	uint64_t reach;	     /* most bytes of addresses of one PAGEMAP_SCAN */
	uint64_t scan_step;  /* pages found by one PAGEMAP_SCAN */
	uint64_t words_step; /* pages whose words one read() gets */
	uint64_t held;	     /* ns under the address space's lock since the last pause */
	bool (*cancelled)(void *ctx);
	void *ctx;
	struct resident_range *v; /* result of the last host_resident__read() */
	size_t n, cap;
	struct scan_region regions[RESIDENT_REGIONS];
	uint64_t words[RESIDENT_WORDS];
	uint64_t frames[RESIDENT_WORDS];
};

/* Frame of the kernel's page of zeros; 0: this process may not see frames. */
uint64_t host_resident__zero_frame(void);

/* Sums of /proc/PID/status when resident was opened. */
static inline const struct host_status *host_resident__status(const struct host_resident *resident)
{
	return &resident->status;
}

/* True if the kernel lacks PAGEMAP_SCAN (before Linux 6.7). The time of walks then grows with the
 * number of addresses. */
static inline bool host_resident__lacks_scan(const struct host_resident *resident)
{
	return resident->no_scan;
}

/* True if PSS is known without smaps: /proc/kpagecount may be read. */
static inline bool host_resident__knows_shares(const struct host_resident *resident)
{
	return resident->counts >= 0;
}
