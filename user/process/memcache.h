/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_MEMCACHE_H
#define MT_PROCESS_MEMCACHE_H
/*
 * A process's memory in blocks of 16 KiB, each read once: for looking at very many small things
 * that lie side by side. What comes from it may be of different moments and be over by now; callers
 * check what they take from it.
 */
#include <stddef.h>
#include <stdint.h>

struct proc;
struct memcache;

struct memcache *memcache__new(const struct proc *p); /* borrows p. NULL on ENOMEM */
void memcache__free(struct memcache *c);	      /* NULL is fine */
/* Forgets all blocks. */
void memcache__forget(struct memcache *c);
/* Reads, from blocks where there are some. All or nothing: 0, -EFAULT, -ESRCH, -EPERM. */
int memcache__read(struct memcache *c, uint64_t addr, void *buf, size_t len);
/* The same as it is now; what is remembered of that place is forgotten. */
int memcache__read_now(struct memcache *c, uint64_t addr, void *buf, size_t len);
/* Bytes read from the process since it was made. */
uint64_t memcache__bytes(const struct memcache *c);

#endif
