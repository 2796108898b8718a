/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * CPython's allocator for small objects, from outside. No symbol leads to its tables, so the array
 * of arena objects is found by its structure: a pointer in the interpreter's data to 16 or more
 * entries that all verify. Layouts: Objects/obmalloc.c (until 3.11) and
 * Include/internal/pycore_obmalloc.h (3.12 and later), which agree.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/hostmem/internal.h"
#include "base/text.h"
#include "inspect/proc.h"
#include "inspect/python.h"

#define DATA_MAX (32u << 20) /* bytes of the interpreter's data that are searched */
#define ARENA_OBJECT 48u     /* struct arena_object */
#define ARENA_POOL 8u	     /* offsets in it: pool_address, nfreepools, ntotalpools, nextarena */
#define ARENA_FREE 16u
#define ARENA_TOTAL 20u
#define ARENA_NEXT 32u
#define FIRST_ARENAS 16u      /* INITIAL_ARENA_OBJECTS; the array doubles */
#define MAX_ARENAS (1u << 17) /* 128 GiB */
#define POOL_HEADER 48u	      /* struct pool_header */
#define POOL_ARENA 32u	      /* offsets in it: arenaindex, szidx, maxnextoffset; ref.count is 0 */
#define POOL_CLASS 36u
#define POOL_MOST 44u
#define MAX_POOLS (1u << 22) /* 64 GiB */
#define BATCH 512u	     /* pools whose headers are read at once */
#define ALIGNMENT 16u	     /* size class i has blocks of (i + 1) * ALIGNMENT bytes */
#define CLASSES 32u	     /* sizes up to 512 bytes */

struct arena {
	uint64_t addr, next_pool; /* next_pool: the first pool that was never used */
	uint32_t free, total;	  /* numbers of pools: free, all */
	uint32_t index;		  /* in the array of arena objects */
};

struct arenas {
	struct arena *v;
	size_t n;
	uint64_t pool; /* bytes of a pool */
};

/* Parses entry, a copy of an arena object in the array at the address `array`. pool: bytes of a
 * pool. Returns 1 and sets *ret; 0: the object has no arena; -1: it is no arena object. */
static int parse_arena(const struct host_reading *reading, const uint8_t *entry, uint64_t array,
		       uint64_t pool, struct arena *ret)
{
	uint64_t addr = proc__word(entry);
	uint64_t next = proc__word(entry + ARENA_NEXT);
	uint64_t after = next - array, size;
	struct arena arena = { .addr = addr, .next_pool = proc__word(entry + ARENA_POOL) };

	if (!addr) /* an unused entry leads to the next unused one */
		return !next || (next >= array && after < (uint64_t)MAX_ARENAS * ARENA_OBJECT &&
				 after % ARENA_OBJECT == 0)
			       ? 0
			       : -1;
	memcpy(&arena.free, entry + ARENA_FREE, 4);
	memcpy(&arena.total, entry + ARENA_TOTAL, 4);
	/* 64 pools, or 128 with huge pages; one fewer if the arena is not aligned. */
	if ((arena.total + 1) / 2 * 2 != 64 && (arena.total + 1) / 2 * 2 != 128)
		return -1;
	size = (uint64_t)((arena.total + 1) / 2 * 2) * pool;
	if (arena.free > arena.total || addr % HOST_PAGE ||
	    !host_places__is_private_memory(&reading->maps, addr, size) || arena.next_pool < addr ||
	    arena.next_pool > addr + size || arena.next_pool % pool)
		return -1;
	*ret = arena;
	return 1;
}

/*
 * Reads the array of arena objects at addr, in steps of its growth, up to the first step with an
 * entry that does not verify. -ENOENT: it is no such array. -ENOMEM. The caller frees ret->v.
 */
static int read_array(const struct host_reading *reading, uint64_t addr, uint64_t pool,
		      struct arenas *ret)
{
	uint8_t *buf = NULL, *bigger;
	struct arenas arenas = { .pool = pool };
	struct arena *v;
	size_t done = 0, want = FIRST_ARENAS;
	int err = -ENOENT;

	for (; want <= MAX_ARENAS; done = want, want *= 2) {
		size_t n_before = arenas.n, k;
		int parsed = 0;

		bigger = realloc(buf, (want - done) * ARENA_OBJECT);
		v = bigger ? reallocarray(arenas.v, want, sizeof(*v)) : NULL;
		buf = bigger ? bigger : buf;
		arenas.v = v ? v : arenas.v;
		if (!v) {
			err = -ENOMEM;
			break;
		}
		if (proc__read(reading->proc, addr + done * ARENA_OBJECT, buf,
			       (want - done) * ARENA_OBJECT))
			break;
		for (k = 0; k < want - done && parsed >= 0; k++) {
			parsed = parse_arena(reading, buf + k * ARENA_OBJECT, addr, pool,
					     &arenas.v[arenas.n]);
			if (parsed > 0)
				arenas.v[arenas.n++].index = (uint32_t)(done + k);
		}
		if (parsed < 0) {
			arenas.n = n_before;
			break;
		}
		if (arenas.n == n_before && done) /* zeros after the array */
			break;
		err = 0;
	}
	free(buf);
	if (err == -ENOMEM || !arenas.n) {
		free(arenas.v);
		return err == -ENOMEM ? err : -ENOENT;
	}
	*ret = arenas;
	return 0;
}

/* Reads the array of arenas that the word at slot points to. -ENOENT: none is there. */
static int try_slot(const struct host_reading *reading, uint64_t slot, uint64_t pool,
		    struct arenas *ret)
{
	uint64_t addr;

	if (proc__read_u64(reading->proc, slot, &addr) || addr % 16 ||
	    !host_places__is_private_memory(&reading->maps, addr, FIRST_ARENAS * ARENA_OBJECT))
		return -ENOENT;
	return read_array(reading, addr, pool, ret);
}

/* Finds the word in the data that points to the array: of several, the one with the most arenas,
 * because other words point into the middle of the array. -ENOENT, -ENOMEM. */
static int search_data(struct host_reading *reading, const struct host_data *data, uint64_t pool,
		       struct arenas *ret)
{
	int err = -ENOENT, e; /* err: of the search; 0 once an array was found */

	for (size_t at = 0; at + 8 <= data->len; at += 8) {
		uint64_t addr = proc__word(data->v + at);
		struct arenas arenas;

		if (addr < HOST_PAGE || addr % 16 ||
		    !host_places__is_private_memory(&reading->maps, addr,
						    FIRST_ARENAS * ARENA_OBJECT))
			continue;
		e = read_array(reading, addr, pool, &arenas);
		if (e == -ENOMEM)
			return e;
		if (e)
			continue;
		if (err || arenas.n > ret->n) {
			free(err ? NULL : ret->v);
			*ret = arenas;
			reading->places->arenas = data->addr + at;
			err = 0;
		} else {
			free(arenas.v);
		}
	}
	return err;
}

/* True if the file of a mapping can have the interpreter's data. */
static bool is_interpreter(const struct host_reading *reading, const struct map *map)
{
	const char *base = strrchr(map->path, '/');

	return !strcmp(map->path, python__file(reading->python)) ||
	       (base && text__starts(base, "/libpython"));
}

/* Reads the array of arenas, at the place of earlier readings or by a search. -ENOENT: not found. */
static int find_arenas(struct host_reading *reading, uint64_t pool, struct arenas *ret)
{
	int err = -ENOENT;

	if (reading->places->arenas && !try_slot(reading, reading->places->arenas, pool, ret))
		return 0;
	for (size_t i = 0; i < reading->maps.maps.n && err == -ENOENT; i++) {
		const struct map *map = &reading->maps.maps.v[i];
		struct host_data data;

		if (!map->w || map->shared || !map->inode || !is_interpreter(reading, map))
			continue;
		err = host_places__read_data(reading, i, DATA_MAX, &data);
		if (!err) {
			err = search_data(reading, &data, pool, ret);
			free(data.v);
		} else if (host_places__is_local(err)) {
			err = -ENOENT;
		}
	}
	return err;
}

/* Adds the blocks in use of n pools to *to. h: headers of the pools. index: their arenas' indices.
 * pool: bytes of a pool. False: a header does not verify. */
static bool add_pools(const uint8_t (*h)[POOL_HEADER], const uint32_t *index, size_t n,
		      uint64_t pool, struct host_python *to)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t count, arena, cls, most;

		memcpy(&count, h[i], 4);
		memcpy(&arena, h[i] + POOL_ARENA, 4);
		memcpy(&cls, h[i] + POOL_CLASS, 4);
		memcpy(&most, h[i] + POOL_MOST, 4);
		if (!count)
			continue; /* a free pool */
		if (arena != index[i] || cls >= CLASSES || most != pool - (cls + 1) * ALIGNMENT ||
		    (uint64_t)count * (cls + 1) * ALIGNMENT > pool - POOL_HEADER)
			return false;
		to->blocks += count;
		to->used += (uint64_t)count * (cls + 1) * ALIGNMENT;
	}
	return true;
}

/* Pools whose headers are read at once, and the sums so far. */
struct batch {
	uint8_t headers[BATCH][POOL_HEADER];
	struct proc_piece piece[BATCH];
	uint32_t index[BATCH];
	size_t n;
	uint64_t pool;
	struct host_python sum;
	bool bad;
};

/* Reads the headers of the batch, adds them to its sum, and empties it. 0 or -errno. */
static int read_batch(const struct host_reading *reading, struct batch *batch)
{
	int err = proc__readv(reading->proc, batch->piece, batch->n);

	if (err)
		return err;
	for (size_t i = 0; i < batch->n; i++)
		batch->bad |= batch->piece[i].err != 0;
	batch->bad = batch->bad || !add_pools((const uint8_t(*)[POOL_HEADER])batch->headers,
					      batch->index, batch->n, batch->pool, &batch->sum);
	batch->n = 0;
	return 0;
}

/* Reads the headers of all pools that were ever used. 0, and *ret has blocks and used, unless
 * used_known is false: pools changed meanwhile or are too many. Or an error that ends the reading. */
static int read_pools(const struct host_reading *reading, const struct arenas *arenas,
		      struct host_python *ret)
{
	struct batch *batch = calloc(1, sizeof(*batch));
	size_t pools = 0;
	int err = 0;

	if (!batch)
		return -ENOMEM;
	batch->pool = arenas->pool;
	for (size_t i = 0; i < arenas->n && !err && !batch->bad; i++) {
		uint64_t at = (arenas->v[i].addr + arenas->pool - 1) / arenas->pool * arenas->pool;

		for (; at < arenas->v[i].next_pool && !err; at += arenas->pool) {
			batch->piece[batch->n] = (struct proc_piece){
				.addr = at, .buf = batch->headers[batch->n], .len = POOL_HEADER
			};
			batch->index[batch->n++] = arenas->v[i].index;
			if (batch->n == BATCH)
				err = read_batch(reading, batch);
			if (++pools > MAX_POOLS)
				batch->bad = true;
		}
	}
	if (!err && batch->n)
		err = read_batch(reading, batch);
	ret->used_known = !err && !batch->bad;
	if (ret->used_known) {
		ret->blocks = batch->sum.blocks;
		ret->used = batch->sum.used;
	}
	free(batch);
	return err;
}

/* True if part of the arenas is swapped out: reading their pools would swap them in. */
static bool are_swapped(const struct host_reading *reading, const struct arenas *arenas)
{
	if (reading->maps.brief)
		return reading->swap;
	for (size_t i = 0; i < arenas->n; i++) {
		const struct map *map = maps__find(&reading->maps.maps, arenas->v[i].addr);

		if (!map || reading->maps.v[map - reading->maps.maps.v].swap)
			return true;
	}
	return false;
}

int host_pymalloc__read(struct host_reading *reading)
{
	struct host_python *to = &reading->ledger->python;
	struct arenas arenas = { 0 };
	int major, minor, micro, err = 0;

	if (!reading->python || python__layout(reading->python)->free_threaded)
		return 0;
	python__version(reading->python, &major, &minor, &micro);
	/* A pool has 4 KiB until Python 3.9, and 16 KiB since 3.10. */
	err = find_arenas(reading, major == 3 && minor < 10 ? 4096 : 16384, &arenas);
	if (err)
		return err == -ENOENT ? 0 : err;
	to->known = true;
	for (size_t i = 0; i < arenas.n && !err; i++) {
		uint64_t size = (uint64_t)((arenas.v[i].total + 1) / 2 * 2) * arenas.pool;

		to->arenas++;
		to->arena += size;
		err = host_spans__add(&reading->claims, arenas.v[i].addr, size, HOST_PYTHON);
	}
	if (!err && !reading->opts->brief && !are_swapped(reading, &arenas)) {
		err = read_pools(reading, &arenas, to);
		if (host_places__is_local(err))
			err = 0;
	}
	free(arenas.v);
	return err;
}
