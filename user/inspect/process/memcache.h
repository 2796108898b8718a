/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Cache of a process's memory in blocks of 16 KiB, for many small adjacent reads. Data may be
 * outdated and from different moments; callers verify it. */
#include <stddef.h>
#include <stdint.h>

struct proc;
struct memcache;

struct memcache *memcache__new(const struct proc *proc); /* borrows proc. NULL on ENOMEM */
void memcache__free(struct memcache *cache);		 /* accepts NULL */
/* Drops all blocks. */
void memcache__forget(struct memcache *cache);
/* Drops all blocks, and gives their memory back until blocks are read again. */
void memcache__release(struct memcache *cache);
/* Reads through the cache, all or nothing: 0, -EFAULT, -ESRCH, -EPERM. */
int memcache__read(struct memcache *cache, uint64_t addr, void *buf, size_t len);
/* Reads the process's memory itself and drops the cached blocks of this range. Returns as
 * memcache__read(). */
int memcache__read_now(struct memcache *cache, uint64_t addr, void *buf, size_t len);
