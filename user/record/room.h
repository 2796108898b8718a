/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_ROOM_H
#define MT_RECORD_ROOM_H
/*
 * How much memory this process may have while it reads recordings. A few KB of a file can have
 * millions of allocations that are never freed, and each of them is kept. Readers ask as they go
 * on. For one thread.
 */
#include <stddef.h>
#include <stdint.h>

/* A bound in bytes in place of the usual one: half of what is available when reading begins, and
 * what RLIMIT_AS allows. */
void room__set(uint64_t bytes);
/* 0, or -ENOBUFS: the process has more than that. Costs a read of /proc. */
int room__check(void);
/* For people, of -ENOBUFS and -ENOMEM: "this recording needs more memory than ...", and what to do.
 * buf of 256. Returns buf. */
char *room__why(char *buf, size_t size, int err);

#endif
