/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Shared by the files of cudaalloc. cudaalloc_find.c reads the device allocators and their pools,
 * cudaalloc_mem.c containers, cudaalloc_block.c the fields of a Block. cudaalloc_state.c collects
 * all Blocks in a pass and makes segments from them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "inspect/cudaalloc.h"
#include "inspect/proc.h"

/* Bytes read of the allocator object, which is half as large. */
#define OBJECT_WINDOW (64u << 10)
/* Bytes read of a DeviceCachingAllocator; the largest known has 3 KiB. */
#define DEVICE_WINDOW (8u << 10)
#define POOL_WINDOW 1024u /* bytes read of a PrivatePool */
#define BLOCK_WINDOW 192u /* bytes read of a Block while its fields are searched */
#define MAX_DEVICES 64u
#define MAX_POOLS (1u << 17)
#define MAX_BLOCKS (16u << 20)
#define MAX_MAPS 1024u
/* Bytes of an entry: {distance, key, Block *} of a map, {distance, Block *} of a set. */
#define MAP_ENTRY 24u
#define SET_ENTRY 16u
#define ENTRY_VALUE 8u /* offset of an entry's value: the distance from its place precedes it */

#define TREE_HEADER 48u	 /* std::set: comparator, {colour, parent, left, right}, count */
#define TABLE_HEADER 32u /* ska::flat_hash_map and _set */

/* Fields whose byte offsets struct layout has; -1: not known. The first ones are in the allocator
 * object: */
enum field {
	F_DEVICES, /* std::vector<std::unique_ptr<DeviceCachingAllocator>> */
	F_MAPS,	   /* first flat_hash_map<void *, Block *> */
	F_NMAPS,   /* number of these maps, 32 bytes apart */
	/* in a DeviceCachingAllocator: */
	F_LARGE, /* BlockPool for large blocks */
	F_SMALL,
	F_SETS,	  /* number of std::sets at the start of a BlockPool */
	F_ACTIVE, /* flat_hash_set<Block *> of live and pending blocks */
	F_STATS,  /* DeviceStats */
	/* in a Block: */
	F_DEVICE,
	F_STREAM,
	F_SIZE,
	F_REQUESTED,
	F_POOL,
	F_PTR,
	F_ALLOCATED,
	F_PREV,
	F_NEXT,
	F_NR
};

struct layout {
	int field[F_NR]; /* byte offsets, by enum field; F_NMAPS and F_SETS are numbers */
};

struct cudaalloc {
	const struct proc *proc;
	uint64_t slot;	 /* address of the pointer to the allocator object */
	uint64_t object; /* address of the allocator object, as the slot had it at the last read */
	enum alloc_backend backend;
	char type[256];
	struct layout layout;
	bool calibrated;
	int active_bytes, requested_bytes; /* from DeviceStats; -1: not found yet */
	/* Vector and addresses of the device allocators at the last reading of figures, so that one
	 * system call can read the figures and check the addresses. */
	uint64_t figures_vector[2], figures_at[MAX_DEVICES];
	size_t figures_n; /* 0: not known */
	char why[192];
};

/* ---- reading memory (cudaalloc_mem.c) ---- */

/* True if v can be a pointer to an 8-byte aligned object in user space. */
static inline bool pointer_like(uint64_t v)
{
	return v >= 4096 && v < UINT64_C(1) << 56 && !(v & 7);
}

/* Reads [addr, addr + len) up to the first page that cannot be read. Bytes read, 0: none, or
 * -errno. */
long cudaalloc_mem__read_window(const struct proc *proc, uint64_t addr, uint8_t *buf, size_t len);

/* Reads len bytes at each of n addresses and calls fn for each, in order, until it returns
 * non-zero; data is NULL for an item that cannot be read. One system call reads many items, and
 * adjacent ones together, so sorted addresses are faster. 0, the value that fn returned, or -errno.
 */
typedef int (*item_fn)(void *ctx, size_t i, const uint8_t *data);
int cudaalloc_mem__read_items(const struct proc *proc, const uint64_t *addrs, size_t n, size_t len,
			      item_fn fn, void *ctx);

/* A growing array of addresses. */
struct addrs {
	uint64_t *v;
	size_t n, cap;
};
int addrs__add(struct addrs *addrs, uint64_t addr); /* 0, -ENOMEM, -EFBIG above MAX_BLOCKS */
void addrs__sort(struct addrs *addrs);		    /* also removes duplicates */
void addrs__free(struct addrs *addrs);

/* ---- containers (cudaalloc_mem.c) ---- */

struct table {
	uint64_t entries; /* address of the first entry */
	uint64_t slots;	  /* number of slots to read */
	uint64_t count;
	uint8_t lookups; /* maximum distance of an entry from its place */
};
/* Parses the header of a ska hash table. False: not one. */
bool table__parse(const uint8_t *header, struct table *ret);
/* Calls fn for each used entry, until it returns other than 0. width: bytes of an entry, 24 for a
 * map of pointers, 16 for a set. *seen: number of calls. Returns 0, -ENOMEM, an error of
 * proc__read() (-EFAULT: unreadable entries), or the value that fn returned. */
typedef int (*entry_fn)(void *ctx, const uint8_t *entry);
int table__each(const struct proc *proc, const struct table *table, size_t width, entry_fn fn,
		void *ctx, uint64_t *seen);

struct tree {		     /* a std::set */
	uint64_t root, head; /* addresses; root 0: empty; head: the root's parent */
	uint64_t count;
};
/* Parses the header of a std::set at addr. False: not one. */
bool tree__parse(const uint8_t *header, uint64_t addr, struct tree *ret);
/* Adds the values of n sets to out, about `most` at most. Sets *torn if some are missing. 0 or
 * -errno. */
int cudaalloc_mem__tree_values(const struct proc *proc, const struct tree *t, size_t n,
			       uint64_t most, struct addrs *out, bool *torn);

/* ---- the allocator (cudaalloc_find.c) ---- */

struct pool { /* a BlockPool */
	uint64_t addr;
	uint64_t id[2]; /* id of the PrivatePool; both 0: the device's own pool */
	uint8_t device;
	bool small;
};

/* The pools of a process, sorted by address. */
struct pools {
	struct pool *v;
	size_t n, cap;
	struct tree *trees; /* trees of all their sets */
	size_t ntrees, trees_cap;
};
const struct pool *pools__find(const struct pools *ps, uint64_t addr);
void pools__free(struct pools *ps);

struct device {
	uint64_t addr;
	uint8_t *window;
	size_t len; /* bytes of window */
};
struct devices {
	struct device v[MAX_DEVICES];
	size_t n;
};
/* Reads the device allocators, with fields F_DEVICES to F_SETS known. 0, -ESTALE: not found there,
 * or -errno. */
int devices__read(const struct cudaalloc *alloc, const struct layout *layout, struct devices *ret);
/* Reads the pools of all devices, also private ones. 0; 1: a pool was changing; or -errno. */
int devices__pools(const struct cudaalloc *alloc, const struct layout *layout,
		   const struct devices *devices, struct pools *ret);
void devices__free(struct devices *devices);
/* Finds F_DEVICES, F_LARGE, F_SMALL, F_SETS, F_MAPS and F_NMAPS. object: the first len bytes of the
 * allocator object. 0, -EAGAIN, -ENOTSUP, -errno. */
int layout__find_devices(struct cudaalloc *alloc, const uint8_t *object, size_t len,
			 struct layout *layout);

/* ---- Blocks (cudaalloc_block.c) ---- */

/* The three values of a StatArray: all, small pool, large pool. */
struct stat_array {
	uint64_t current[3], peak[3], allocated[3], freed[3];
};
#define STAT_ARRAY 96u
/* Indexes of the arrays that DeviceStats begins with: numbers of blocks and segments, then bytes. */
enum {
	STATS_BLOCKS,
	STATS_SEGMENTS,
	STATS_ACTIVE,
	STATS_INACTIVE_SPLIT,
	STATS_ALLOCATED,
	STATS_RESERVED,
	STATS_NR
};
void stat_array__parse(const uint8_t *p, struct stat_array *ret);
bool stat_array__like(const struct stat_array *s); /* whether the values can be a StatArray's */

/* Finds all fields that the current memory shows; others are -1. 0, -EAGAIN with alloc->why, or
 * -errno. */
int layout__find_fields(struct cudaalloc *alloc, struct layout *layout);

/* ---- the state (cudaalloc_state.c) ---- */

/* Reads all Blocks with a layout and makes segments from them. If they agree with the totals, also
 * finds active_bytes and requested_bytes. 0, -ESTALE: not found there, or -errno. */
int cudaalloc_state__read(struct cudaalloc *alloc, const struct layout *layout,
			  struct cudaalloc_state *ret);
