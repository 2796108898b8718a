/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A reading of the resident bytes of each range. Shares nothing with the capture but the process. */
#include <stddef.h>
#include <stdint.h>

#include "hostmem/residency.h"

/* A range that the capture knows. */
struct host_asked {
	uint64_t start, end, id;
	uint64_t bytes; /* result */
	bool gone;	/* result: nothing of it is mapped */
};

/* A mapping, or a part of one, that the capture does not know. */
struct host_found {
	uint64_t start, end, bytes;
	size_t map; /* index in residency.maps */
};

struct host_reading {
	const struct proc *proc;
	struct host_asked *asked; /* in order of addresses; owned */
	size_t n_asked;
	/* Results. */
	struct residency now;
	struct host_found *found;
	size_t n_found, cap_found;
	uint64_t rss;  /* sum of all bytes */
	uint64_t took; /* CPU time, ns: nearly all of it in the kernel, next to the address space's
			  lock */
};

int host_reading__run(struct host_reading *r); /* 0 or -errno */
void host_reading__free(struct host_reading *r);
