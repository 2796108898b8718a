/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by host_resident.c and host_pages.c: an open page map. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/hostmem/host_smaps.h"

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
	uint64_t reach;			/* bytes of addresses of one PAGEMAP_SCAN, at most */
	uint64_t scan_step, words_step; /* pages of a call that takes the lock */
	uint64_t held;			/* ns in such calls since the last pause */
	bool (*cancelled)(void *ctx);
	void *ctx;
	struct resident_range *v; /* of the last host_resident__read() */
	size_t n, cap;
	struct scan_region regions[RESIDENT_REGIONS];
	uint64_t words[RESIDENT_WORDS];
	uint64_t frames[RESIDENT_WORDS];
};

/*
 * After each call that took `took` ns under the address space's lock: makes a pause if it is time
 * for one, so that a thread that waits for the lock gets it, and changes *step, the pages of a
 * call, if the call was full. 0, or -ECANCELED.
 */
int host_resident__pace(struct host_resident *r, uint64_t *step, uint64_t took, bool full);

/* As host_resident__walk(), for pages that are in memory or swapped out, by PAGEMAP_SCAN. Both
 * addresses are multiples of the page size. */
int host_resident__scan(struct host_resident *r, uint64_t start, uint64_t end, resident_fn fn,
			void *ctx);

/* Calls fn for the words of [start, end) in /proc/PID/pagemap, piece by piece. It returns 0 or an
 * error, which ends the walk. 0 or -errno. */
int host_pages__each(struct host_resident *r, uint64_t start, uint64_t end,
		     int (*fn)(void *ctx, uint64_t start, const uint64_t *words, size_t n),
		     void *ctx);
/* Whether a word is of a resident page, as far as the word alone can tell. */
bool host_pages__resident(const struct host_resident *r, uint64_t word);
/* Frame of the kernel's page of zeros; 0: this process may not see frames. */
uint64_t host_pages__zero_frame(void);
