/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_WARN_CHILDREN_H
#define MT_FOLLOW_WARN_CHILDREN_H
/* Processes that the target has started and that are not traced with it: that there are any is
 * said, once. */
#include <stdint.h>
#include <sys/types.h>

struct facts;

struct warn_children {
	uint64_t next, pause; /* ns since the capture's start: when to look again */
	size_t most;	      /* with PyTorch in them, at one time */
};

/*
 * Looks whether the process has descendants with PyTorch in them: at once, then after a second,
 * then more and more seldom. Warns at the first, and keeps the fact "children". now: ns since the
 * capture's start; UINT64_MAX: look now.
 */
void warn_children__look(struct warn_children *u, pid_t pid, struct facts *facts, uint64_t now);

#endif
