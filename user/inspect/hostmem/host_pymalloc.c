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
#include "inspect/proc.h"
#include "inspect/python.h"

#define DATA_MAX (32u << 20)  /* bytes of the interpreter's data that are searched */
#define ARENA_OBJECT 48u      /* struct arena_object */
#define FIRST_ARENAS 16u      /* INITIAL_ARENA_OBJECTS; the array doubles */
#define MAX_ARENAS (1u << 17) /* 128 GiB */
#define POOL_HEADER 48u	      /* struct pool_header */
#define MAX_POOLS (1u << 22)  /* 64 GiB */
#define BATCH 512u	      /* pools whose headers are read at once */
#define ALIGNMENT 16u	      /* size class i has blocks of (i + 1) * ALIGNMENT bytes */
#define CLASSES 32u	      /* sizes up to 512 bytes */

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

/* Parses e, a copy of an arena object in the array at the address `array`. pool: bytes of a pool.
 * Returns 1 and sets *ret; 0: the object has no arena; -1: it is no arena object. */
static int parse_arena(const struct host_reading *r, const uint8_t *e, uint64_t array,
		       uint64_t pool, struct arena *ret)
{
	uint64_t addr = proc__word(e);
	uint64_t next = proc__word(e + 32);
	uint64_t after = next - array, size;
	struct arena a = { .addr = addr, .next_pool = proc__word(e + 8) };

	if (!addr)
		return !next || (next >= array && after < (uint64_t)MAX_ARENAS * ARENA_OBJECT &&
				 after % ARENA_OBJECT == 0)
			       ? 0
			       : -1;
	memcpy(&a.free, e + 16, 4);
	memcpy(&a.total, e + 20, 4);
	/* 64 pools, or 128 with huge pages; one fewer if the arena is not aligned. */
	if ((a.total + 1) / 2 * 2 != 64 && (a.total + 1) / 2 * 2 != 128)
		return -1;
	size = (uint64_t)((a.total + 1) / 2 * 2) * pool;
	if (a.free > a.total || addr % HOST_PAGE ||
	    !host_places__is_private_memory(&r->maps, addr, size) || a.next_pool < addr ||
	    a.next_pool > addr + size || a.next_pool % pool)
		return -1;
	*ret = a;
	return 1;
}

/*
 * Reads the array of arena objects at addr, in steps of its growth, up to the first step with an
 * entry that does not verify. -ENOENT: it is no such array. -ENOMEM. The caller frees ret->v.
 */
static int read_array(const struct host_reading *r, uint64_t addr, uint64_t pool,
		      struct arenas *ret)
{
	uint8_t *buf = NULL, *bigger;
	struct arenas a = { .pool = pool };
	struct arena *v;
	size_t done = 0, want = FIRST_ARENAS;
	int err = -ENOENT;

	for (; want <= MAX_ARENAS; done = want, want *= 2) {
		size_t n_before = a.n, k;
		int parsed = 0;

		bigger = realloc(buf, (want - done) * ARENA_OBJECT);
		v = bigger ? reallocarray(a.v, want, sizeof(*v)) : NULL;
		buf = bigger ? bigger : buf;
		a.v = v ? v : a.v;
		if (!v) {
			err = -ENOMEM;
			break;
		}
		if (proc__read(r->proc, addr + done * ARENA_OBJECT, buf,
			       (want - done) * ARENA_OBJECT))
			break;
		for (k = 0; k < want - done && parsed >= 0; k++) {
			parsed = parse_arena(r, buf + k * ARENA_OBJECT, addr, pool, &a.v[a.n]);
			if (parsed > 0)
				a.v[a.n++].index = (uint32_t)(done + k);
		}
		if (parsed < 0) {
			a.n = n_before;
			break;
		}
		if (a.n == n_before && done) /* zeros after the array */
			break;
		err = 0;
	}
	free(buf);
	if (err == -ENOMEM || !a.n) {
		free(a.v);
		return err == -ENOMEM ? err : -ENOENT;
	}
	*ret = a;
	return 0;
}

/* Whether the word at slot points to an array of arenas; reads it. */
static int try_slot(const struct host_reading *r, uint64_t slot, uint64_t pool, struct arenas *ret)
{
	uint64_t addr;

	if (proc__read_u64(r->proc, slot, &addr) || addr % 16 ||
	    !host_places__is_private_memory(&r->maps, addr, FIRST_ARENAS * ARENA_OBJECT))
		return -ENOENT;
	return read_array(r, addr, pool, ret);
}

/* Finds the word in the data that points to the array: of several, the one with the most arenas,
 * because other words point into the middle of the array. -ENOENT, -ENOMEM. */
static int search_data(struct host_reading *r, const struct host_data *d, uint64_t pool,
		       struct arenas *ret)
{
	int err = -ENOENT, e;

	for (size_t at = 0; at + 8 <= d->len; at += 8) {
		uint64_t addr = proc__word(d->v + at);
		struct arenas a;

		if (addr < HOST_PAGE || addr % 16 ||
		    !host_places__is_private_memory(&r->maps, addr, FIRST_ARENAS * ARENA_OBJECT))
			continue;
		e = read_array(r, addr, pool, &a);
		if (e == -ENOMEM)
			return e;
		if (e)
			continue;
		if (err || a.n > ret->n) {
			free(err ? NULL : ret->v);
			*ret = a;
			r->places->arenas = d->addr + at;
			err = 0;
		} else {
			free(a.v);
		}
	}
	return err;
}

/* Whether the file of a mapping can have the interpreter's data. */
static bool is_interpreter(const struct host_reading *r, const struct map *m)
{
	const char *base = strrchr(m->path, '/');

	return !strcmp(m->path, python__file(r->python)) ||
	       (base && !strncmp(base, "/libpython", 10));
}

/* Reads the array of arenas, at the place of earlier readings or by a search. -ENOENT: not found. */
static int find_arenas(struct host_reading *r, uint64_t pool, struct arenas *ret)
{
	int err = -ENOENT;

	if (r->places->arenas && !try_slot(r, r->places->arenas, pool, ret))
		return 0;
	for (size_t i = 0; i < r->maps.maps.n && err == -ENOENT; i++) {
		const struct map *m = &r->maps.maps.v[i];
		struct host_data d;

		if (!m->w || m->shared || !m->inode || !is_interpreter(r, m))
			continue;
		err = host_places__read_data(r, i, DATA_MAX, &d);
		if (!err) {
			err = search_data(r, &d, pool, ret);
			free(d.v);
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
		memcpy(&arena, h[i] + 32, 4);
		memcpy(&cls, h[i] + 36, 4);
		memcpy(&most, h[i] + 44, 4);
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
	uint8_t h[BATCH][POOL_HEADER];
	struct proc_piece piece[BATCH];
	uint32_t index[BATCH];
	size_t n;
	uint64_t pool;
	struct host_python sum;
	bool bad;
};

/* Reads the headers of the batch, adds them to its sum, and empties it. 0 or -errno. */
static int read_batch(const struct host_reading *r, struct batch *b)
{
	int err = proc__readv(r->proc, b->piece, b->n);

	if (err)
		return err;
	for (size_t i = 0; i < b->n; i++)
		b->bad |= b->piece[i].err != 0;
	b->bad = b->bad ||
		 !add_pools((const uint8_t(*)[POOL_HEADER])b->h, b->index, b->n, b->pool, &b->sum);
	b->n = 0;
	return 0;
}

/* Reads the headers of all pools that were ever used. 0, and *ret has blocks and used, unless
 * used_known is false: pools changed meanwhile or are too many. Or an error that ends the reading. */
static int read_pools(const struct host_reading *r, const struct arenas *a, struct host_python *ret)
{
	struct batch *b = calloc(1, sizeof(*b));
	size_t pools = 0;
	int err = 0;

	if (!b)
		return -ENOMEM;
	b->pool = a->pool;
	for (size_t i = 0; i < a->n && !err && !b->bad; i++) {
		uint64_t at = (a->v[i].addr + a->pool - 1) / a->pool * a->pool;

		for (; at < a->v[i].next_pool && !err; at += a->pool) {
			b->piece[b->n] = (struct proc_piece){ .addr = at,
							      .buf = b->h[b->n],
							      .len = POOL_HEADER };
			b->index[b->n++] = a->v[i].index;
			if (b->n == BATCH)
				err = read_batch(r, b);
			if (++pools > MAX_POOLS)
				b->bad = true;
		}
	}
	if (!err && b->n)
		err = read_batch(r, b);
	ret->used_known = !err && !b->bad;
	if (ret->used_known) {
		ret->blocks = b->sum.blocks;
		ret->used = b->sum.used;
	}
	free(b);
	return err;
}

/* Whether part of the arenas is swapped out: reading their pools would swap them in. */
static bool are_swapped(const struct host_reading *r, const struct arenas *a)
{
	if (r->maps.brief)
		return r->swap;
	for (size_t i = 0; i < a->n; i++) {
		const struct map *m = maps__find(&r->maps.maps, a->v[i].addr);

		if (!m || r->maps.v[m - r->maps.maps.v].swap)
			return true;
	}
	return false;
}

int host_pymalloc__read(struct host_reading *r)
{
	struct host_python *to = &r->l->python;
	struct arenas a = { 0 };
	int major, minor, micro, err = 0;

	if (!r->python || python__layout(r->python)->free_threaded)
		return 0;
	python__version(r->python, &major, &minor, &micro);
	err = find_arenas(r, major == 3 && minor < 10 ? 4096 : 16384, &a);
	if (err)
		return err == -ENOENT ? 0 : err;
	to->known = true;
	for (size_t i = 0; i < a.n && !err; i++) {
		uint64_t size = (uint64_t)((a.v[i].total + 1) / 2 * 2) * a.pool;

		to->arenas++;
		to->arena += size;
		err = host_spans__add(&r->claims, a.v[i].addr, size, HOST_PYTHON);
	}
	if (!err && !r->o->brief && !are_swapped(r, &a)) {
		err = read_pools(r, &a, to);
		if (host_places__is_local(err))
			err = 0;
	}
	free(a.v);
	return err;
}
