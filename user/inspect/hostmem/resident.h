/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* An open page map, for host_resident.c and its test. */
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

/* Frame of the kernel's page of zeros; 0: this process may not see frames. */
uint64_t host_resident__zero_frame(void);
