/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * All objects that CPython's garbage collector tracks, by walking its lists from outside. The list
 * heads are found by their structure, never by the version: three generations, the permanent
 * generation, a pointer to the first; or the four lists of a collector that works in increments
 * (3.14.0 to 3.14.4). Free-threaded builds have no lists.
 */
#include <stdbool.h>
#include <stdint.h>

struct memcache;
struct proc;
struct python;

#define PYGC_LISTS 4

struct pygc {
	/* List heads: generations from young to old, then the permanent generation
	 * (gc.freeze()). */
	uint64_t head[PYGC_LISTS];
	/* Address of an int that is not 0 while an increment runs, which holds objects outside all
	 * lists; 0: the collector does not work in increments. */
	uint64_t collecting;
	/* Address of an int: whether the collector runs by itself. 0: not known, as from 3.14 on. */
	uint64_t enabled;
};

/*
 * Finds the lists of the main interpreter. They cannot be found while the collector runs, which can
 * take seconds. So the search is repeated until within_ns have passed, and at least 8 times in 40
 * ms. 0; -ENOENT: no lists found; -ESRCH: the process or its Python has ended; -EFAULT, -EPERM.
 */
int pygc__find(const struct python *py, uint64_t within_ns, struct pygc *ret);
/* Finds the lists in at most 512 KiB from base, the interpreter's or the runtime's state.
 * increments: the collector may work in increments (CPython 3.14), which costs a second search.
 * Returns as pygc__find(). */
int pygc__search(const struct proc *proc, uint64_t base, bool increments, struct pygc *ret);

struct pygc_stats {
	uint64_t objects; /* calls of fn; an object that changes lists meanwhile counts twice */
	uint64_t repairs; /* links that had changed and were read again */
	bool torn;	  /* a list kept changing: some of its objects may be missing */
};

/*
 * Calls fn for every object until it returns non-zero, and returns that value. deadline:
 * CLOCK_MONOTONIC, ns; -ETIME after it. Each object was in its list at some moment and may be gone.
 * 0, -ETIME, -E2BIG, -ESRCH, -EPERM.
 */
int pygc__walk(const struct pygc *gc, struct memcache *cache, uint64_t deadline,
	       int (*fn)(uint64_t obj, uint64_t type, void *ctx), void *ctx,
	       struct pygc_stats *stats);
