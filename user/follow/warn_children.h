/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_WARN_CHILDREN_H
#define MT_FOLLOW_WARN_CHILDREN_H
/* Warns once of child processes that use PyTorch and are not traced. */
#include <stdint.h>
#include <sys/types.h>

struct facts;

struct warn_children {
	uint64_t next,
		pause; /* time of the next look, ns since the capture's start; time between looks */
	size_t most;   /* highest number of such processes so far */
};

/*
 * Looks for child processes with PyTorch: at once, after a second, then less and less often. Warns
 * of the first, and sets the fact "children". now: ns since the capture's start; UINT64_MAX: look
 * now.
 */
void warn_children__look(struct warn_children *u, pid_t pid, struct facts *facts, uint64_t now);

#endif
