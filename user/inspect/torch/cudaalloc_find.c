/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The device allocators of the allocator object, and their pools. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/proc.h"
#include "base/array.h"
#include "inspect/torch/cudaalloc_internal.h"

#define MAX_SETS 4 /* sets in a BlockPool: 2 up to PyTorch 2.11, 3 in 2.13 */
/* What follows the sets in a BlockPool: bool is_small, PrivatePool *owner. */
#define POOL_OWNER 8u
#define POOL_TAIL 16u
#define PRIVATE_ENTRY 32u /* {distance, two halves of the id, PrivatePool *} */
#define PRIVATE_ID 8u
#define PRIVATE_POOL 24u
#define LEAST_DEVICE 512u /* bytes that a device allocator has at least */

/* ---- pools ---- */

/* Adds a copy of a pool and its n trees. */
static int add_pool(struct pools *ps, const struct pool *pool, const struct tree *trees, size_t n)
{
	if (ps->n >= MAX_POOLS)
		return -EFBIG;
	if (array__grow(&ps->v, &ps->cap, ps->n + 1, sizeof(*ps->v)) ||
	    array__grow(&ps->trees, &ps->trees_cap, ps->ntrees + n, sizeof(*ps->trees)))
		return -ENOMEM;
	ps->v[ps->n++] = *pool;
	memcpy(ps->trees + ps->ntrees, trees, n * sizeof(*trees));
	ps->ntrees += n;
	return 0;
}

ARRAY_COMPARE(pool_by_addr, struct pool, addr)

const struct pool *pools__find(const struct pools *ps, uint64_t addr)
{
	struct pool key = { .addr = addr };

	return ps->n ? bsearch(&key, ps->v, ps->n, sizeof(*ps->v), pool_by_addr) : NULL;
}

void pools__free(struct pools *ps)
{
	free(ps->v);
	free(ps->trees);
	memset(ps, 0, sizeof(*ps));
}

/*
 * Parses a BlockPool at words + off: some std::sets, then what POOL_TAIL has. words: len bytes that
 * were read from addr. sets: expected number of sets; 0: any number from 2 to MAX_SETS. Sets trees
 * (room for MAX_SETS) to the sets, *small to is_small, and *owner to the address of its
 * PrivatePool; 0: none, a device's own pool. Returns the number of sets; 0: not a BlockPool.
 */
static unsigned parse_pool(const uint8_t *words, size_t len, uint64_t addr, size_t off,
			   unsigned sets, struct tree *trees, bool *small, uint64_t *owner)
{
	unsigned n = 0, most = sets ? sets : MAX_SETS;

	while (n < most && off + (n + 1) * TREE_HEADER <= len &&
	       tree__parse(words + off + n * TREE_HEADER, addr + off + n * TREE_HEADER, &trees[n]))
		n++;
	if (n < 2 || (sets && n != sets) || off + n * TREE_HEADER + POOL_TAIL > len)
		return 0;
	off += n * TREE_HEADER;
	if (words[off] > 1)
		return 0;
	*small = words[off];
	*owner = proc__word(words + off + POOL_OWNER);
	return n;
}

/* Finds the device's own pools: the first two without a PrivatePool, large then small. Sets
 * F_LARGE, F_SMALL and F_SETS of the layout. False: not found. */
static bool find_own_pools(const uint8_t *words, size_t len, uint64_t addr, struct layout *layout)
{
	struct tree trees[MAX_SETS];
	unsigned n, large_sets = 0;
	int large = -1;
	uint64_t owner;
	bool small;

	for (size_t off = 0; off + 2 * TREE_HEADER <= len; off += 8) {
		n = parse_pool(words, len, addr, off, 0, trees, &small, &owner);
		if (!n)
			continue;
		if (!owner && !small && large < 0) {
			large = (int)off;
			large_sets = n;
		} else if (!owner && small && large >= 0 && n == large_sets) {
			layout->field[F_LARGE] = large;
			layout->field[F_SMALL] = (int)off;
			layout->field[F_SETS] = (int)n;
			return true;
		}
		off += n * TREE_HEADER - 8; /* goes on after its sets */
	}
	return false;
}

/* Adds the small or large pool of a device. 0; -ESTALE: it is not at the layout's offset; or
 * -errno. */
static int add_own_pool(const struct layout *layout, const struct device *device, unsigned index,
			bool small, struct pools *ret, bool *torn)
{
	size_t off = (size_t)layout->field[small ? F_SMALL : F_LARGE];
	unsigned sets = (unsigned)layout->field[F_SETS], n = 0;
	size_t is_small = off + sets * TREE_HEADER; /* offset of this bool */
	struct tree trees[MAX_SETS];
	struct pool pool = { .addr = device->addr + off, .device = (uint8_t)index, .small = small };

	if (is_small + POOL_TAIL > device->len || device->window[is_small] != small)
		return -ESTALE;
	if (proc__word(device->window + is_small +
		       POOL_OWNER)) /* not a pool of the device itself */
		return -ESTALE;
	for (unsigned i = 0; i < sets; i++, off += TREE_HEADER) {
		if (tree__parse(device->window + off, device->addr + off, &trees[n]))
			n++;
		else
			*torn = true; /* the pool was changing */
	}
	return add_pool(ret, &pool, trees, n);
}

/* ---- private pools ---- */

struct private_ctx {
	const struct cudaalloc *alloc;
	const struct layout *layout;
	unsigned device;
	struct pools *ret;
	size_t tried;
};

/* Adds private pools from a table entry, if its pointer leads to pools that point back. Returns 0,
 * -EFBIG after MAX_POOLS entries, or -errno. */
static int on_private(void *arg, const uint8_t *entry)
{
	struct private_ctx *ctx = arg;
	uint8_t words[POOL_WINDOW];
	struct tree trees[MAX_SETS];
	uint64_t addr = proc__word(entry + PRIVATE_POOL), owner;
	unsigned n, sets = (unsigned)ctx->layout->field[F_SETS];
	bool small;
	long len;
	int err;

	if (!pointer_like(addr))
		return 0;
	if (++ctx->tried > MAX_POOLS)
		return -EFBIG;
	len = cudaalloc_mem__read_window(ctx->alloc->proc, addr, words, sizeof(words));
	if (len < 0)
		return (int)len;
	for (size_t off = 0; off + sets * TREE_HEADER + POOL_TAIL <= (size_t)len; off += 8) {
		struct pool pool = { .device = (uint8_t)ctx->device };

		n = parse_pool(words, (size_t)len, addr, off, sets, trees, &small, &owner);
		if (!n || owner != addr)
			continue;
		pool.addr = addr + off;
		pool.id[0] = proc__word(entry + PRIVATE_ID);
		pool.id[1] = proc__word(entry + PRIVATE_ID + 8);
		pool.small = small;
		err = add_pool(ctx->ret, &pool, trees, n);
		if (err)
			return err;
		off += n * TREE_HEADER;
	}
	return 0;
}

/* Adds the private pools of a device, from all hash tables after its own pools. */
static int add_private_pools(struct private_ctx *ctx, const struct device *device)
{
	struct table table;
	uint64_t seen;
	size_t off;
	int err = 0;

	off = (size_t)ctx->layout->field[F_SMALL] +
	      (size_t)ctx->layout->field[F_SETS] * TREE_HEADER;
	for (; off + TABLE_HEADER <= device->len && !err; off += 8) {
		if (!table__parse(device->window + off, &table) || !table.count ||
		    table.slots > MAX_POOLS ||
		    (ctx->layout->field[F_ACTIVE] >= 0 &&
		     off == (size_t)ctx->layout->field[F_ACTIVE]))
			continue;
		err = table__each(ctx->alloc->proc, &table, PRIVATE_ENTRY, on_private, ctx, &seen);
		if (err == -EFAULT)
			/* a table with smaller entries, read beyond its end */
			err = 0;
		off += TABLE_HEADER - 8; /* goes on after this table */
	}
	return err;
}

int devices__pools(const struct cudaalloc *alloc, const struct layout *layout,
		   const struct devices *devices, struct pools *ret)
{
	struct private_ctx ctx = { .alloc = alloc, .layout = layout, .ret = ret };
	bool torn = false;
	size_t kept = 0;
	int err = 0;

	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; i < devices->n && !err; i++) {
		err = add_own_pool(layout, &devices->v[i], i, /*small=*/false, ret, &torn)
			      ?: add_own_pool(layout, &devices->v[i], i, /*small=*/true, ret,
					      &torn);
		ctx.device = i;
		err = err ?: add_private_pools(&ctx, &devices->v[i]);
	}
	if (err) {
		pools__free(ret);
		return err;
	}
	/* Drop duplicates: a pool that no graph uses any more is in two tables. */
	if (ret->n)
		qsort(ret->v, ret->n, sizeof(*ret->v), pool_by_addr);
	for (size_t i = 0; i < ret->n; i++) {
		if (!kept || ret->v[kept - 1].addr != ret->v[i].addr)
			ret->v[kept++] = ret->v[i];
	}
	ret->n = kept;
	return torn;
}

/* ---- devices ---- */

/* Reads a device allocator. The word before it is its malloc chunk's size in glibc: if plausible,
 * it limits the window. */
static int read_device(const struct cudaalloc *alloc, uint64_t addr, struct device *ret)
{
	size_t want = DEVICE_WINDOW;
	uint64_t chunk;
	long got;

	chunk = 0;
	proc__read_u64(alloc->proc, addr - 8, &chunk);
	chunk &= ~UINT64_C(7); /* flags */
	if (chunk >= LEAST_DEVICE && chunk <= DEVICE_WINDOW)
		want = chunk - 8;
	ret->window = malloc(want);
	if (!ret->window)
		return -ENOMEM;
	got = cudaalloc_mem__read_window(alloc->proc, addr, ret->window, want);
	if (got < 0)
		return (int)got;
	ret->addr = addr;
	ret->len = (size_t)got;
	return 0;
}

void devices__free(struct devices *devices)
{
	for (size_t i = 0; i < devices->n; i++)
		free(devices->v[i].window);
	memset(devices, 0, sizeof(*devices));
}

/* Cuts each window where the next device allocator begins, for heaps other than glibc's, which do
 * not tell the sizes of chunks. */
static void split_windows(struct devices *devices)
{
	for (size_t i = 0; i < devices->n; i++) {
		for (size_t k = 0; k < devices->n; k++) {
			if (devices->v[k].addr > devices->v[i].addr &&
			    devices->v[k].addr - devices->v[i].addr < devices->v[i].len)
				devices->v[i].len = devices->v[k].addr - devices->v[i].addr;
		}
	}
}

/* Reads all device allocators. vector: {begin, end, end of storage} of pointers to them. 0,
 * -ESTALE: not such a vector, or -errno. */
static int read_devices(const struct cudaalloc *alloc, const uint8_t *vector, struct devices *ret)
{
	uint64_t begin = proc__word(vector);
	uint64_t end = proc__word(vector + 8);
	uint64_t cap = proc__word(vector + 16);
	uint64_t addrs[MAX_DEVICES];
	size_t n;
	int err;

	memset(ret, 0, sizeof(*ret));
	if (!pointer_like(begin) || end <= begin || cap < end || (end - begin) % 8 ||
	    end - begin > sizeof(addrs))
		return -ESTALE;
	n = (end - begin) / 8;
	err = proc__read(alloc->proc, begin, addrs, end - begin);
	if (err)
		return err == -EFAULT ? -ESTALE : err;
	for (size_t i = 0; i < n; i++) {
		if (!pointer_like(addrs[i]))
			return -ESTALE;
	}
	for (size_t i = 0; i < n && !err; i++) {
		ret->n = i + 1;
		err = read_device(alloc, addrs[i], &ret->v[i]);
	}
	if (err)
		devices__free(ret);
	split_windows(ret);
	return err;
}

int devices__read(const struct cudaalloc *alloc, const struct layout *layout, struct devices *ret)
{
	uint8_t vector[24];
	int err;

	err = proc__read(alloc->proc, alloc->object + (uint64_t)layout->field[F_DEVICES], vector,
			 sizeof(vector));
	if (err)
		return err == -EFAULT ? -ESTALE : err;
	return read_devices(alloc, vector, ret);
}

/* True if all device allocators have their pools at the same offsets. */
static bool devices_agree(const struct devices *devices, struct layout *layout)
{
	struct layout other = *layout;

	for (size_t i = 0; i < devices->n; i++) {
		if (!find_own_pools(devices->v[i].window, devices->v[i].len, devices->v[i].addr,
				    i ? &other : layout))
			return false;
		if (i && (other.field[F_LARGE] != layout->field[F_LARGE] ||
			  other.field[F_SMALL] != layout->field[F_SMALL] ||
			  other.field[F_SETS] != layout->field[F_SETS]))
			return false;
	}
	return true;
}

/* Finds the longest run of hash tables: PyTorch has 67 since 2.3, to reduce lock contention. *used:
 * a table has entries. */
static void find_maps(const uint8_t *object, size_t len, struct layout *layout, bool *used)
{
	size_t off = 0, n, best = 0;
	struct table table;

	*used = false;
	while (off + TABLE_HEADER <= len) {
		for (n = 0; n < MAX_MAPS && off + (n + 1) * TABLE_HEADER <= len &&
			    table__parse(object + off + n * TABLE_HEADER, &table);
		     n++)
			*used = *used || table.count;
		if (n > best) {
			best = n;
			layout->field[F_MAPS] = (int)off;
			layout->field[F_NMAPS] = (int)n;
		}
		off += n ? n * TABLE_HEADER : 8; /* behind the run, or to the next word */
	}
}

static int set_why(struct cudaalloc *alloc, int err, const char *why)
{
	snprintf(alloc->why, sizeof(alloc->why), "%s", why);
	return err;
}

int layout__find_devices(struct cudaalloc *alloc, const uint8_t *object, size_t len,
			 struct layout *layout)
{
	struct devices devices;
	bool used, ok;
	int err;

	find_maps(object, len, layout, &used);
	if (layout->field[F_MAPS] < 0)
		return set_why(alloc, -ENOTSUP, "no table of blocks in the allocator's object");
	for (size_t off = 0; off + 24 <= len; off += 8) {
		err = read_devices(alloc, object + off, &devices);
		if (err == -ESTALE)
			continue;
		if (err)
			return set_why(alloc, err, "the allocator's devices cannot be read");
		ok = devices_agree(&devices, layout);
		devices__free(&devices);
		if (ok) {
			layout->field[F_DEVICES] = (int)off;
			return 0;
		}
	}
	if (used)
		return set_why(alloc, -ENOTSUP,
			       "the allocator has blocks, but no device allocator was found");
	return set_why(alloc, -EAGAIN, "CUDA has not been used yet");
}
