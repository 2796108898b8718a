/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * musl's malloc (mallocng, musl 1.2.1 and later), from outside, also of statically linked programs.
 * Its context lies in the data of the C library, and is found by its secret: each page of the list
 * that the context begins has the same secret. Such a page describes 101 groups: a group has up to
 * 32 slots of one size. Small groups are themselves in a slot of a larger group.
 *
 * Layouts: struct malloc_context, struct meta_area and struct meta of musl's mallocng, 64 bits.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

#define DATA_MAX (32u << 20) /* bytes of a file's data that are searched */
#define CONTEXT 928u	     /* struct malloc_context */
#define INIT_DONE 8u	     /* offsets in struct malloc_context */
#define AREA_HEAD 56u
#define AREA_TAIL 64u
#define AREA 4096u     /* struct meta_area: bytes and alignment */
#define META 40u       /* struct meta */
#define META_FIRST 24u /* offset of the first struct meta in an area */
#define METAS ((AREA - META_FIRST) / META)
#define MAX_CONTEXTS 4096u   /* candidates for a context */
#define MAX_AREAS (1u << 16) /* areas read at most: 256 MiB, 6.6 million groups */
#define READINGS 3	     /* attempts while the process changes its tables */
#define CHANGING_PART 100u   /* live is known if less than 1/100 of the groups changes */
#define UNIT 16u
#define HEADER 4u /* bytes of a slot that its block cannot use */
#define CLASSES 48u
#define OF_ONE_BLOCK 63u /* size class of a group with its own mapping */
#define EXACT 512u	 /* each free slot of this size or larger is a range */
#define COUNTED                                                                                    \
	(64u << 10) /* the resident bytes of a free range of this size or larger are counted */

/* Units of a slot, by size class. */
static const uint16_t class_units[CLASSES] = {
	1,   2,	  3,   4,    5,	   6,	 7,    8,    9,	   10,	 12,   15,   18,   20,	 25,   31,
	36,  42,  50,  63,   72,   84,	 102,  127,  146,  170,	 204,  255,  292,  340,	 409,  511,
	584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
};

/* A group of slots. */
struct group {
	uint64_t addr;
	uint64_t mapped; /* bytes of its own mapping; 0: it lies in a slot, or in data of a file */
	uint64_t slot;	 /* bytes of a slot */
	uint32_t free;	 /* bit i: slot i is free */
	unsigned slots;
	bool nested; /* the group lies in a slot of another group */
};

struct search {
	struct host_reading *r;
	struct host_allocator sums;
	uint64_t groups;   /* in use */
	uint64_t inner;	   /* bytes of slots that hold groups */
	uint64_t areas;	   /* areas that were read, in all attempts */
	uint64_t contexts; /* candidates for a context that were read */
	uint64_t changing; /* groups that do not verify: the process has just made or freed them */
	size_t map;	   /* data that has the context */
};

/* Parses a description of a group, struct meta: {prev, next, mem, avail_mask, freed_mask, bits}.
 * bits, from the lowest: last_idx (5), freeable (1), sizeclass (6), maplen in pages. Returns 1; 0:
 * it is not in use; -1: it does not verify. */
static int parse_group(const struct host_reading *r, const uint8_t *e, struct group *g)
{
	uint64_t bits = proc__word(e + 32), units = bits >> 6 & 63, all;
	uint32_t avail, freed;

	memcpy(&avail, e + 24, 4);
	memcpy(&freed, e + 28, 4);
	g->addr = proc__word(e + 16);
	if (!g->addr)
		return 0;
	g->slots = (bits & 31) + 1;
	g->mapped = (bits >> 12) * HOST_PAGE;
	g->free = avail | freed;
	all = (UINT64_C(1) << g->slots) - 1;
	if (g->addr % UNIT || g->free & ~all || bits >> 12 > UINT64_C(1) << 40)
		return -1;
	if (g->mapped &&
	    (g->addr % HOST_PAGE || !host_places__is_private_memory(&r->maps, g->addr, g->mapped)))
		return -1;
	g->nested = !g->mapped && bits & 32;
	if (g->mapped && g->slots == 1)
		g->slot = g->mapped - UNIT;
	else if (units < CLASSES)
		g->slot = (uint64_t)class_units[units] * UNIT;
	else
		return -1;
	if (g->mapped && g->slots * g->slot > g->mapped - UNIT)
		return -1;
	return units < CLASSES || units == OF_ONE_BLOCK ? 1 : -1;
}

/* Bytes of the slot that a group of this size lies in: the smallest one that it fits into. */
static uint64_t outer_slot(const struct group *g)
{
	uint64_t size = UNIT + g->slots * g->slot;

	for (unsigned i = 0; i < CLASSES; i++)
		if (class_units[i] * (uint64_t)UNIT >= size)
			return class_units[i] * (uint64_t)UNIT;
	return 0;
}

/* ---- sums ---- */

/* Adds free memory of a group: a second figure of malloc. *resident: bytes of it that are resident.
 * A part that is not resident was never used, or was given back to the kernel. */
static int add_free(struct host_reading *r, uint64_t start, uint64_t size, uint64_t *resident)
{
	uint64_t n = size;
	int err = 0;

	if (size >= COUNTED)
		err = host_resident__count(r->resident, start & ~(uint64_t)(HOST_PAGE - 1),
					   (start + size) & ~(uint64_t)(HOST_PAGE - 1), false, &n);
	*resident += n < size ? n : size;
	return err ?: host_spans__add(&r->second, start, size, HOST_MALLOC);
}

/* Adds the free slots of a group. Those of small slots are one range: their number is known, and
 * one range for each would be too many. */
static int add_free_slots(struct search *s, const struct group *g)
{
	uint64_t first = g->addr + UNIT;
	int err = 0;

	if (g->free && g->slot < EXACT)
		return add_free(s->r, first + (unsigned)__builtin_ctz(g->free) * g->slot,
				(unsigned)__builtin_popcount(g->free) * g->slot,
				&s->sums.free_blocks);
	for (unsigned i = 0, end; i < g->slots && !err; i = end + 1) {
		for (end = i; end < g->slots && g->free >> end & 1; end++)
			;
		if (end > i)
			err = add_free(s->r, first + i * g->slot, (end - i) * g->slot,
				       &s->sums.free_blocks);
	}
	return err;
}

static int add_group(struct search *s, const struct group *g)
{
	unsigned used = g->slots - (unsigned)__builtin_popcount(g->free);
	int err;

	s->sums.live += used * g->slot;
	s->inner += g->nested ? outer_slot(g) : 0;
	s->sums.arenas += g->mapped != 0;
	err = s->r->o->brief ? 0 : add_free_slots(s, g);
	if (!err && g->mapped)
		err = host_spans__add(&s->r->claims, g->addr, g->mapped, HOST_MALLOC);
	return err;
}

/* ---- tables ---- */

/* Reads the area at `at` and adds its groups. -ENOENT: it does not verify. */
static int add_area(struct search *s, uint64_t secret, uint64_t at, uint8_t area[AREA])
{
	struct host_reading *r = s->r;
	int err = -ENOENT;

	if (at && at % AREA == 0 && host_places__is_private_memory(&r->maps, at, AREA))
		err = host_places__read_resident(r, at, area, AREA);
	if (err)
		return err;
	if (proc__word(area) != secret || (uint32_t)proc__word(area + 16) != METAS)
		return -ENOENT;
	for (size_t i = 0; i < METAS && !err; i++) {
		struct group g;
		int parsed = parse_group(r, area + META_FIRST + i * META, &g);

		s->groups += parsed != 0;
		s->changing += parsed < 0;
		err = parsed > 0 ? add_group(s, &g) : 0;
	}
	return err ?: host_spans__add(&r->claims, at, AREA, HOST_MALLOC);
}

/* Adds the groups of the areas from `head` on. -ENOENT: they do not verify. */
static int add_areas(struct search *s, uint64_t secret, uint64_t head, uint64_t tail)
{
	uint8_t area[AREA];
	int err;

	for (uint64_t at = head, last = 0; last != tail; at = proc__word(area + 8)) {
		err = ++s->areas > MAX_AREAS ? -ENOENT : add_area(s, secret, at, area);
		if (err)
			return err;
		last = at;
		s->sums.tables += AREA;
	}
	if (s->changing > s->groups / CHANGING_PART || s->inner > s->sums.live)
		return -ENOENT;
	/* A slot that holds a group is no block of the program. */
	s->sums.live -= s->inner;
	return 0;
}

/* As add_areas(), but tries again if the process changes its tables meanwhile. */
static int try_areas(struct search *s, uint64_t secret, uint64_t head, uint64_t tail)
{
	struct host_reading *r = s->r;
	size_t claims = r->claims.n, second = r->second.n;
	int err = -ENOENT;

	for (int i = 0; i < READINGS && host_places__is_local(err); i++) {
		r->claims.n = claims;
		r->second.n = second;
		s->sums = (struct host_allocator){ 0 };
		s->groups = s->changing = s->inner = 0;
		err = add_areas(s, secret, head, tail);
	}
	if (err) {
		r->claims.n = claims;
		r->second.n = second;
	}
	return err;
}

/* True if w, a copy of words of libc's data, is musl's malloc context: the first area of its
 * tables begins with the context's secret. */
static bool is_context(struct search *s, const uint8_t *w)
{
	uint64_t head = proc__word(w + AREA_HEAD);
	uint64_t secret = proc__word(w), check;
	const struct host_reading *r = s->r;
	uint32_t init_done;

	memcpy(&init_done, w + INIT_DONE, 4);
	return init_done == 1 && secret && head && head % AREA == 0 &&
	       proc__word(w + AREA_TAIL) % AREA == 0 &&
	       host_places__is_private_memory(&r->maps, head, AREA) &&
	       ++s->contexts <= MAX_CONTEXTS &&
	       !host_places__read_resident(r, head, (uint8_t *)&check, sizeof(check)) &&
	       check == secret;
}

/* Searches the data of mapping i. -ENOENT: it has no context, or its tables do not verify. */
static int search_data(struct search *s, size_t i)
{
	struct host_data d;
	int err = host_places__read_data(s->r, i, DATA_MAX, &d);

	if (err)
		return host_places__is_local(err) ? -ENOENT : err;
	err = -ENOENT;
	for (size_t at = 0; at + CONTEXT <= d.len && err == -ENOENT; at += 8) {
		const uint8_t *w = d.v + at;

		if (!is_context(s, w))
			continue;
		err = try_areas(s, proc__word(w), proc__word(w + AREA_HEAD),
				proc__word(w + AREA_TAIL));
		s->map = i;
		if (host_places__is_local(err))
			err = -ENOENT;
	}
	free(d.v);
	return err;
}

static bool is_library(const struct map *m)
{
	const char *base = map__base_name(m->path);

	return m->inode && m->w && !m->shared &&
	       (!strncmp(base, "ld-musl-", 8) || !strncmp(base, "libc.musl-", 10) ||
		!strcmp(base, "libc.so"));
}

/* Searches the data of the library, and of the program, which may be static. Returns as
 * search_data(). *library: a mapping of the library; SIZE_MAX: none. */
static int search_all(struct search *s, size_t *library)
{
	const struct maps *maps = &s->r->maps.maps;
	char exe[4096];
	int err = -ENOENT;

	*library = SIZE_MAX;
	proc__exe(s->r->proc, exe, sizeof(exe));
	for (size_t i = 0; i < maps->n && err == -ENOENT; i++) {
		const struct map *m = &maps->v[i];

		if (is_library(m))
			*library = i;
		else if (!m->inode || !m->w || m->shared || strcmp(m->path, exe) != 0)
			continue;
		err = search_data(s, i);
	}
	return err;
}

int host_musl__read(struct host_reading *r)
{
	struct search s = { .r = r };
	struct host_allocator *a;
	size_t library;
	int err = search_all(&s, &library);

	if (err == -ENOENT && library != SIZE_MAX && !r->l->allocators)
		host_reading__add_allocator(r, "musl", library); /* an older malloc */
	if (err)
		return err == -ENOENT ? 0 : err;
	a = host_reading__add_allocator(r, "musl", s.map);
	if (!a)
		return 0;
	a->known = true;
	snprintf(a->version, sizeof(a->version), "mallocng");
	a->arenas = s.sums.arenas;
	a->tables = s.sums.tables;
	a->free_known = !r->o->brief;
	a->live = s.sums.live;
	a->free_blocks = s.sums.free_blocks;
	return 0;
}
