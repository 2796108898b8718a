/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PYTHON_PYGC_H
#define MT_PYTHON_PYGC_H
/*
 * All objects that CPython's garbage collector knows of, by walking its lists from outside. Where
 * the lists begin is found by what they look like (three generations, a pointer to the first, the
 * permanent one: 3.8 to 3.13); 3.14's generations are others, and free-threaded builds have no
 * lists.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memcache;
struct proc;
struct python;

#define PYGC_LISTS 4

struct pygc {
	uint64_t head[PYGC_LISTS]; /* addresses of the lists' heads, the young first, what
				      gc.freeze() keeps last */
};

/*
 * Finds the lists of the main interpreter. 0; -ENOTSUP no such thing in this version; -ENOENT
 * nothing looks like them; -ESRCH the process has ended, or its Python has; -EFAULT, -EPERM.
 */
int pygc__find(const struct python *py, struct pygc *ret);
/* The same from an address of the target on, 512 KiB at most: the state of the interpreter or of
 * the runtime. */
int pygc__search(const struct proc *p, uint64_t base, struct pygc *ret);

struct pygc_stats {
	uint64_t objects; /* told of; one that moved from list to list meanwhile is told of twice */
	uint64_t repairs; /* links that had changed and were picked up again */
	bool torn;	  /* a list was changing all the time: objects of it may be missing */
};

/*
 * Calls fn for every object, until it returns non-zero: that is returned then. deadline:
 * CLOCK_MONOTONIC in ns, -ETIME after it. An object was in the list at some moment of the walk; by
 * now it may be gone. 0, -ETIME, -E2BIG, -ESRCH, -EPERM.
 */
int pygc__walk(const struct pygc *gc, struct memcache *c, uint64_t deadline,
	       int (*fn)(uint64_t obj, uint64_t type, void *ctx), void *ctx,
	       struct pygc_stats *stats);

#endif
