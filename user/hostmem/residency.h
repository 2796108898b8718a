/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Which memory of a process is resident: in RAM and mapped by it, as RSS counts it. */
#include <stddef.h>
#include <stdint.h>

#include "process/proc.h"

struct residency {
	struct maps maps;
	uint64_t *bytes; /* resident bytes of each map; their sum is the process's RSS */
};

/*
 * Reads /proc/PID/smaps. The kernel holds the lock of the address space while it looks at some
 * maps, for about 1 ms a GiB of resident 4 KiB pages. 0 or -errno, with *ret unchanged.
 */
int residency__read(const struct proc *p, struct residency *ret);
/* Parses the text of such a file. 0, -ENOMEM, or -EINVAL for a bad line. For the above and tests. */
int residency__parse(const char *text, size_t len, struct residency *ret);
void residency__free(struct residency *r);

/* The process's /proc/PID/pagemap, for residency__count(). A descriptor to close, or -errno. */
int residency__open_pages(const struct proc *p);
/* Bytes of the pages in [start, end) that are in RAM, with the kernel's page of zeros, which RSS
 * does not count. 0 or -errno. */
int residency__count(int pages, uint64_t start, uint64_t end, uint64_t *ret);
