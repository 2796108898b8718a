/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/process/memcache.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inspect/proc.h"

#define BLOCK 16384u
#define NBLOCKS 1024u /* 16 MiB */
#define NO_BLOCK UINT64_MAX

struct memcache {
	const struct proc *proc;
	uint64_t tag[NBLOCKS]; /* block address of each slot */
	bool holes[NBLOCKS];   /* the block is not completely readable: bypass the cache */
	uint8_t data[NBLOCKS][BLOCK];
};

struct memcache *memcache__new(const struct proc *proc)
{
	struct memcache *cache = malloc(sizeof(*cache));

	if (!cache)
		return NULL;
	cache->proc = proc;
	memcache__forget(cache);
	return cache;
}

void memcache__free(struct memcache *cache)
{
	free(cache);
}

void memcache__forget(struct memcache *cache)
{
	for (size_t i = 0; i < NBLOCKS; i++)
		cache->tag[i] = NO_BLOCK;
}

void memcache__release(struct memcache *cache)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = ((uintptr_t)cache->data + page - 1) & ~(page - 1),
		  end = (uintptr_t)(cache->data + NBLOCKS) & ~(page - 1);

	memcache__forget(cache);
	madvise((void *)begin, end - begin, MADV_DONTNEED); /* it only costs memory if this fails */
}

/* Reads len bytes that lie within one block. */
static int read_part(struct memcache *cache, uint64_t addr, void *buf, size_t len)
{
	uint64_t base = addr & ~(uint64_t)(BLOCK - 1);
	size_t slot = base / BLOCK % NBLOCKS;
	int err;

	if (cache->tag[slot] != base) {
		cache->tag[slot] = NO_BLOCK;
		err = proc__read(cache->proc, base, cache->data[slot], BLOCK);
		if (err && err != -EFAULT)
			return err;
		cache->tag[slot] = base;
		cache->holes[slot] = err;
	}
	if (cache->holes[slot]) /* part of the block cannot be read: maybe not this one */
		return proc__read(cache->proc, addr, buf, len);
	memcpy(buf, cache->data[slot] + (addr - base), len);
	return 0;
}

int memcache__read(struct memcache *cache, uint64_t addr, void *buf, size_t len)
{
	uint8_t *out = buf;
	uint64_t end;
	int err;

	if (__builtin_add_overflow(addr, len, &end))
		return -EFAULT;
	while (len) {
		size_t rest = BLOCK - addr % BLOCK, n = rest < len ? rest : len;

		err = read_part(cache, addr, out, n);
		if (err)
			return err;
		out += n;
		addr += n;
		len -= n;
	}
	return 0;
}

/* Drops the cached blocks of the range, then reads around the cache. */
int memcache__read_now(struct memcache *cache, uint64_t addr, void *buf, size_t len)
{
	uint64_t base = addr & ~(uint64_t)(BLOCK - 1), end;

	if (__builtin_add_overflow(addr, len, &end))
		return -EFAULT;
	for (; base < end; base += BLOCK)
		if (cache->tag[base / BLOCK % NBLOCKS] == base)
			cache->tag[base / BLOCK % NBLOCKS] = NO_BLOCK;
	return proc__read(cache->proc, addr, buf, len);
}
