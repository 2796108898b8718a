/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Mappings of a process with the kernel's figures for each (/proc/PID/smaps), and which of their
 * pages are resident. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/proc.h"

/* Figures of a mapping, bytes. */
struct smaps_figures {
	uint64_t rss, pss, private_clean, private_dirty, anonymous, swap, hugetlb;
};

struct host_smaps {
	struct maps maps;
	struct smaps_figures *v; /* of maps.v[i] */
	bool brief;		 /* resident bytes are known, and no other figure */
};

struct host_resident;

/*
 * Reads the current mappings. smaps locks the address space while the kernel walks a whole mapping,
 * 13 ms a GiB. So a process with 1 GiB or more is read by the page map r, in slices, if the kernel
 * has PAGEMAP_SCAN (6.7 and later): ret->brief is set then. r NULL: in any case by smaps. 0 or
 * -errno; -EIO: text that cannot be parsed.
 */
int host_smaps__read(const struct proc *p, struct host_resident *r, struct host_smaps *ret);
/* Parses the text of a smaps file, which it may change. For host_smaps__read() and tests. 0, -EIO,
 * -ENOMEM. */
int host_smaps__parse(char *text, size_t len, struct host_smaps *ret);
void host_smaps__free(struct host_smaps *s);

/* ---- resident pages ---- */

/* Most bytes of a host_resident__read(). The kernel locks the address space for reading meanwhile:
 * about 1 ms with pages of 4 KiB. */
#define RESIDENT_SLICE (64u << 20)

struct resident_range {
	uint64_t start, end;
};

/* Opens the page map of a process; borrows p. NULL with errno. */
struct host_resident *host_resident__open(const struct proc *p);
void host_resident__close(struct host_resident *r); /* accepts NULL */
/*
 * Finds the resident ranges of the pages of [start, end), at most RESIDENT_SLICE, in order. *v
 * belongs to r until the next call. Does not change the process's memory. Pages of zeros that the
 * kernel shares do not count if the kernel can tell them (6.7 and later). 0 or -errno.
 */
int host_resident__read(struct host_resident *r, uint64_t start, uint64_t end,
			const struct resident_range **v, size_t *n);
/* Adds up the resident bytes of [start, end), in slices with pauses between them. 0 or -errno. */
int host_resident__count(struct host_resident *r, uint64_t start, uint64_t end, uint64_t *ret);
/* True if the kernel lacks PAGEMAP_SCAN, as far as readings have shown. */
bool host_resident__is_old(const struct host_resident *r);
