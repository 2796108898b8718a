/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_CUDAALLOC_INTERNAL_H
#define MT_TORCH_CUDAALLOC_INTERNAL_H
/*
 * What the parts of cudaalloc share: cudaalloc_find.c knows the containers and the device
 * allocators, cudaalloc_block.c a Block's fields, cudaalloc_read.c gathers all Blocks of a pass,
 * cudaalloc_state.c makes segments and the verdict.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "torch/cudaalloc.h"

#define OBJECT_WINDOW                                                                              \
	(64u << 10) /* of the allocator object that is looked at; it is half as large */
#define DEVICE_WINDOW (8u << 10) /* of a DeviceCachingAllocator; the largest seen has 3 KiB */
#define POOL_WINDOW 1024u	 /* of a PrivatePool */
#define BLOCK_WINDOW 192u	 /* of a Block, while its fields are looked for */
#define MAX_DEVICES 64u
#define MAX_POOLS (1u << 17)
#define MAX_BLOCKS (16u << 20)
#define MAX_MAPS 1024u

#define TREE_HEADER 48u	 /* std::set: comparator, {colour, parent, left, right}, count */
#define TABLE_HEADER 32u /* ska::flat_hash_map and _set */

/* All offsets are bytes; -1 is unknown. In the allocator object: */
enum field {
	F_DEVICES, /* std::vector<std::unique_ptr<DeviceCachingAllocator>> */
	F_MAPS,	   /* the first flat_hash_map<void *, Block *> */
	F_NMAPS,   /* how many, 32 bytes apart */
	/* in a DeviceCachingAllocator: */
	F_LARGE, /* a BlockPool */
	F_SMALL,
	F_SETS,	  /* how many std::sets a BlockPool begins with */
	F_ACTIVE, /* flat_hash_set<Block *> of all that is handed out or pending */
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
	int field[F_NR];
};

struct cudaalloc {
	const struct proc *proc;
	uint64_t slot;	 /* address of the pointer to the allocator object */
	uint64_t object; /* what it pointed to when last looked at */
	enum alloc_backend backend;
	char type[256];
	struct layout layout;
	bool calibrated;
	int active_bytes, requested_bytes; /* from DeviceStats; -1: not found yet */
	/* Where the devices were when figures were last read, so that one system call reads them
	 * again. */
	uint64_t figures_vector[2], figures_at[MAX_DEVICES];
	size_t figures_n; /* 0: not known */
	char why[192];
};

/* ---- reading (cudaalloc_find.c) ---- */

static inline uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Could it be a pointer to an object of this alignment in a user's address space? */
static inline bool pointer_like(uint64_t v)
{
	return v >= 4096 && v < UINT64_C(1) << 56 && !(v & 7);
}

/* Reads what can be read of [addr, addr + len), up to the first page that cannot. Bytes, 0 none, or
 * -errno. */
long cudaalloc_mem__read_window(const struct proc *p, uint64_t addr, uint8_t *buf, size_t len);

/*
 * Reads len bytes at each of n addresses and calls fn for each, in order, with NULL where it cannot
 * be read. Many in one system call; neighbours are read together, so that sorted addresses are
 * cheaper. 0, what fn returned, or -errno.
 */
typedef int (*item_fn)(void *ctx, size_t i, const uint8_t *data);
int cudaalloc_mem__read_items(const struct proc *p, const uint64_t *addrs, size_t n, size_t len,
			      item_fn fn, void *ctx);

/* A growing array of addresses. */
struct addrs {
	uint64_t *v;
	size_t n, cap;
};
int addrs__add(struct addrs *a, uint64_t addr); /* 0, -ENOMEM, -EFBIG over MAX_BLOCKS */
void addrs__sort(struct addrs *a);		/* and drops doubles */
void addrs__free(struct addrs *a);

/* ---- containers (cudaalloc_find.c) ---- */

struct table {
	uint64_t entries; /* address of the first */
	uint64_t slots;	  /* to be looked at */
	uint64_t count;
	uint8_t lookups; /* no entry is further from its place */
};
/* Is this the header of a ska hash table? */
bool table__parse(const uint8_t *header, struct table *ret);
/*
 * Calls fn with each entry in use; width: bytes an entry, 24 for a map of pointers, 16 for a set.
 * *seen: how many. 0, -EFAULT the entries cannot be read, or what fn returned.
 */
typedef int (*entry_fn)(void *ctx, const uint8_t *entry);
int table__each(const struct proc *p, const struct table *t, size_t width, entry_fn fn, void *ctx,
		uint64_t *seen);

struct tree {
	uint64_t root, head; /* addresses; root 0: empty */
	uint64_t count;
};
/* Is this the header of a std::set at address addr? */
bool tree__parse(const uint8_t *header, uint64_t addr, struct tree *ret);
/* Adds the values of n sets to out, about most of them. *torn is set where that is not all. 0 or
 * -errno. */
int cudaalloc_mem__tree_values(const struct proc *p, const struct tree *t, size_t n, uint64_t most,
			       struct addrs *out, bool *torn);

/* ---- the allocator (cudaalloc_find.c) ---- */

struct pool {
	uint64_t addr;
	uint64_t id[2];
	uint8_t device;
	bool small;
};

/* The pools of a process, by address. */
struct pools {
	struct pool *v;
	size_t n, cap;
	struct tree *trees; /* of all sets in them */
	size_t ntrees, trees_cap;
};
const struct pool *pools__find(const struct pools *ps, uint64_t addr);
void pools__free(struct pools *ps);

struct device {
	uint64_t addr;
	uint8_t *window;
	size_t len; /* of the window */
};
struct devices {
	struct device v[MAX_DEVICES];
	size_t n;
};
/*
 * The device allocators and their pools, private ones too, by a layout of which F_DEVICES to F_SETS
 * are known. 0, -ESTALE they are not there, -errno.
 */
int devices__read(const struct cudaalloc *a, const struct layout *l, struct devices *ret);
/* 0; 1 where a pool was in the middle of a change. */
int devices__pools(const struct cudaalloc *a, const struct layout *l, const struct devices *d,
		   struct pools *ret);
void devices__free(struct devices *d);
/* Finds F_DEVICES, F_LARGE, F_SMALL, F_SETS and F_MAPS, F_NMAPS. object: len bytes of it. 0,
 * -EAGAIN, -ENOTSUP, -errno. */
int layout__find_devices(struct cudaalloc *a, const uint8_t *object, size_t len, struct layout *l);

/* ---- Blocks (cudaalloc_block.c) ---- */

/* The three values of a StatArray's kind: all, small pool, large pool. */
struct stat_array {
	uint64_t current[3], peak[3], allocated[3], freed[3];
};
#define STAT_ARRAY 96u
void stat_array__parse(const uint8_t *p, struct stat_array *ret);
bool stat_array__like(const struct stat_array *s); /* does it add up? */

/*
 * One look: finds all fields that can be told from what is in memory now. Fields that cannot are
 * -1. 0, -EAGAIN with a->why, or -errno.
 */
int layout__look(struct cudaalloc *a, struct layout *l);

/* ---- a pass (cudaalloc_read.c, cudaalloc_state.c) ---- */

#define NO_BLOCK UINT32_MAX

/* A Block as it was read. */
struct raw {
	uint64_t at; /* its address in the target */
	uint64_t ptr, size, requested, pool_at, stream, prev, next;
	const struct pool *pool;
	uint32_t previ, nexti; /* indices, NO_BLOCK */
	uint32_t segment;
	uint8_t device, allocated, mapped;
	bool valid;   /* all its fields are in range and its pool is known */
	bool mapkey;  /* the allocator's map has it under ptr */
	bool active;  /* in active_blocks */
	bool reached; /* a segment has it */
};

struct pass {
	struct raw *v; /* by at */
	size_t n;
	struct devices devices;
	struct pools pools;
	struct cuda_device_state *state; /* one per device */
	const char *torn;		 /* what is wrong with all of it */
	const char *torn_device[MAX_DEVICES];
};

int pass__run(const struct cudaalloc *a, const struct layout *l, struct pass *ret);
void pass__free(struct pass *s);
/* Makes the state from a pass, which it uses up in part. 0, -ENOMEM. */
int cudaalloc_state__build(struct cudaalloc *a, struct pass *s, struct cudaalloc_state *ret);
/* Looks for active_bytes and requested_bytes where a pass was consistent. */
void cudaalloc_state__find_more_stats(struct cudaalloc *a, const struct pass *s,
				      const struct cudaalloc_state *st);

#endif
