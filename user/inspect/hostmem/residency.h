/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads the resident bytes of each range. Runs on a thread of its own, so it uses copies of the
 * capture's ranges. */
#include <stddef.h>
#include <stdint.h>

#include "inspect/hostmem/host_smaps.h"

/* A range that the capture knows, and asks about. */
struct host_asked {
	uint64_t start, end, id;
	uint64_t bytes; /* result */
	bool gone;	/* result: no address of the range is mapped */
};

/* A mapping, or a part of one, that the capture does not know. */
struct host_found {
	uint64_t start, end, bytes;
	size_t map; /* index in residency.now.maps */
};

struct residency {
	const struct proc *proc;
	struct host_asked *asked; /* in order of addresses; owned */
	size_t n_asked;
	bool (*cancelled)(void *ctx); /* NULL: never */
	void *ctx;
	/* Results. */
	struct host_smaps now;
	struct host_found *found;
	size_t n_found, cap_found;
	uint64_t rss;  /* sum of all bytes */
	uint64_t took; /* CPU time of the reading, ns; nearly all of it is spent in the kernel,
			  where it can delay the target's threads */
};

int residency__read(struct residency *residency); /* 0 or -errno; -ESRCH: the process has ended */
void residency__free(struct residency *residency);
