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
#include "base/text.h"
#include "inspect/proc.h"

#define DATA_MAX (32u << 20) /* bytes of a file's data that are searched */
#define CONTEXT 928u	     /* struct malloc_context */
#define INIT_DONE 8u	     /* offsets in struct malloc_context */
#define AREA_HEAD 56u
#define AREA_TAIL 64u
#define AREA 4096u /* struct meta_area: bytes and alignment */
#define AREA_NEXT 8u
#define AREA_SLOTS 16u
#define META 40u     /* struct meta */
#define META_MEM 16u /* offsets in struct meta */
#define META_AVAIL 24u
#define META_FREED 28u
#define META_BITS                                                                                  \
	32u /* from the lowest: last_idx (5), freeable (1), sizeclass (6), maplen in pages */
#define META_FREEABLE 32u
#define META_PAGES_SHIFT 12
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
	struct host_reading *reading;
	struct host_allocator sums;
	uint64_t groups;   /* in use */
	uint64_t inner;	   /* bytes of slots that hold groups */
	uint64_t areas;	   /* areas that were read, in all attempts */
	uint64_t contexts; /* candidates for a context that were read */
	uint64_t changing; /* groups that do not verify: the process has just made or freed them */
	size_t map;	   /* data that has the context */
};

/* Parses a description of a group, struct meta. Returns 1; 0: it is not in use; -1: it does not
 * verify. */
static int parse_group(const struct host_reading *reading, const uint8_t *entry,
		       struct group *group)
{
	uint64_t bits = proc__word(entry + META_BITS), units = bits >> 6 & 63, all;
	uint32_t avail, freed;

	memcpy(&avail, entry + META_AVAIL, 4);
	memcpy(&freed, entry + META_FREED, 4);
	group->addr = proc__word(entry + META_MEM);
	if (!group->addr)
		return 0;
	group->slots = (bits & 31) + 1;
	group->mapped = (bits >> META_PAGES_SHIFT) * HOST_PAGE;
	group->free = avail | freed;
	all = (UINT64_C(1) << group->slots) - 1;
	if (group->addr % UNIT || group->free & ~all ||
	    bits >> META_PAGES_SHIFT > UINT64_C(1) << 40)
		return -1;
	if (group->mapped &&
	    (group->addr % HOST_PAGE ||
	     !host_places__is_private_memory(&reading->maps, group->addr, group->mapped)))
		return -1;
	group->nested = !group->mapped && bits & META_FREEABLE;
	if (group->mapped && group->slots == 1)
		group->slot = group->mapped - UNIT;
	else if (units < CLASSES)
		group->slot = (uint64_t)class_units[units] * UNIT;
	else
		return -1;
	if (group->mapped && group->slots * group->slot > group->mapped - UNIT)
		return -1;
	return units < CLASSES || units == OF_ONE_BLOCK ? 1 : -1;
}

/* Bytes of the slot that a group of this size lies in: the smallest one that it fits into. */
static uint64_t outer_slot(const struct group *group)
{
	uint64_t size = UNIT + group->slots * group->slot;

	for (unsigned i = 0; i < CLASSES; i++)
		if (class_units[i] * (uint64_t)UNIT >= size)
			return class_units[i] * (uint64_t)UNIT;
	return 0;
}

/* ---- sums ---- */

/* Adds free memory of a group: a second figure of malloc. *resident: bytes of it that are resident.
 * A part that is not resident was never used, or was given back to the kernel. */
static int add_free(struct host_reading *reading, uint64_t start, uint64_t size, uint64_t *resident)
{
	uint64_t n = size;
	int err = 0;

	if (size >= COUNTED)
		err = host_resident__count(reading->resident, start & ~(uint64_t)(HOST_PAGE - 1),
					   (start + size) & ~(uint64_t)(HOST_PAGE - 1),
					   /*device=*/false, &n);
	*resident += n < size ? n : size;
	return err ?: host_spans__add(&reading->second, start, size, HOST_MALLOC);
}

/* Adds the free slots of a group. Those of small slots are one range: their number is known, and
 * one range for each would be too many. */
static int add_free_slots(struct search *search, const struct group *group)
{
	uint64_t first = group->addr + UNIT;
	int err = 0;

	if (group->free && group->slot < EXACT)
		return add_free(search->reading,
				first + (unsigned)__builtin_ctz(group->free) * group->slot,
				(unsigned)__builtin_popcount(group->free) * group->slot,
				&search->sums.free_blocks);
	for (unsigned i = 0, end; i < group->slots && !err; i = end + 1) {
		for (end = i; end < group->slots && group->free >> end & 1; end++)
			;
		if (end > i)
			err = add_free(search->reading, first + i * group->slot,
				       (end - i) * group->slot, &search->sums.free_blocks);
	}
	return err;
}

/* Adds the blocks of a group and claims its mapping. Groups within a block of another have none. */
static int add_group(struct search *search, const struct group *group)
{
	unsigned used = group->slots - (unsigned)__builtin_popcount(group->free);
	int err;

	search->sums.live += used * group->slot;
	search->inner += group->nested ? outer_slot(group) : 0;
	search->sums.arenas += group->mapped != 0;
	err = search->reading->opts->brief ? 0 : add_free_slots(search, group);
	if (!err && group->mapped)
		err = host_spans__add(&search->reading->claims, group->addr, group->mapped,
				      HOST_MALLOC);
	return err;
}

/* ---- tables ---- */

/* Reads the area at `at` and adds its groups. -ENOENT: it does not verify. */
static int add_area(struct search *search, uint64_t secret, uint64_t at, uint8_t area[AREA])
{
	struct host_reading *reading = search->reading;
	int err = -ENOENT;

	if (at && at % AREA == 0 && host_places__is_private_memory(&reading->maps, at, AREA))
		err = host_places__read_resident(reading, at, area, AREA);
	if (err)
		return err;
	if (proc__word(area) != secret || (uint32_t)proc__word(area + AREA_SLOTS) != METAS)
		return -ENOENT;
	for (size_t i = 0; i < METAS && !err; i++) {
		struct group group;
		int parsed = parse_group(reading, area + META_FIRST + i * META, &group);

		search->groups += parsed != 0;
		search->changing += parsed < 0;
		err = parsed > 0 ? add_group(search, &group) : 0;
	}
	return err ?: host_spans__add(&reading->claims, at, AREA, HOST_MALLOC);
}

/* Adds the groups of the areas from `head` on. -ENOENT: they do not verify. */
static int add_areas(struct search *search, uint64_t secret, uint64_t head, uint64_t tail)
{
	uint8_t area[AREA];
	int err;

	for (uint64_t at = head, last = 0; last != tail; at = proc__word(area + AREA_NEXT)) {
		err = ++search->areas > MAX_AREAS ? -ENOENT : add_area(search, secret, at, area);
		if (err)
			return err;
		last = at;
		search->sums.tables += AREA;
	}
	if (search->changing > search->groups / CHANGING_PART || search->inner > search->sums.live)
		return -ENOENT;
	/* A slot that holds a group is no block of the program. */
	search->sums.live -= search->inner;
	return 0;
}

/* As add_areas(), but tries again if the process changes its tables meanwhile. */
static int try_areas(struct search *search, uint64_t secret, uint64_t head, uint64_t tail)
{
	struct host_reading *reading = search->reading;
	size_t claims = reading->claims.n, second = reading->second.n;
	int err = -ENOENT;

	for (int i = 0; i < READINGS && host_places__is_local(err); i++) {
		reading->claims.n = claims;
		reading->second.n = second;
		search->sums = (struct host_allocator){ 0 };
		search->groups = search->changing = search->inner = 0;
		err = add_areas(search, secret, head, tail);
	}
	if (err) {
		reading->claims.n = claims;
		reading->second.n = second;
	}
	return err;
}

/* True if words, a copy of words of libc's data, is musl's malloc context: the first area of its
 * tables begins with the context's secret. */
static bool is_context(struct search *search, const uint8_t *words)
{
	uint64_t head = proc__word(words + AREA_HEAD);
	uint64_t secret = proc__word(words), check;
	const struct host_reading *reading = search->reading;
	uint32_t init_done;

	memcpy(&init_done, words + INIT_DONE, 4);
	return init_done == 1 && secret && head && head % AREA == 0 &&
	       proc__word(words + AREA_TAIL) % AREA == 0 &&
	       host_places__is_private_memory(&reading->maps, head, AREA) &&
	       ++search->contexts <= MAX_CONTEXTS &&
	       !host_places__read_resident(reading, head, (uint8_t *)&check, sizeof(check)) &&
	       check == secret;
}

/* Searches the data of mapping i. -ENOENT: it has no context, or its tables do not verify. */
static int search_data(struct search *search, size_t i)
{
	struct host_data data;
	int err = host_places__read_data(search->reading, i, DATA_MAX, &data);

	if (err)
		return host_places__is_local(err) ? -ENOENT : err;
	err = -ENOENT;
	for (size_t at = 0; at + CONTEXT <= data.len && err == -ENOENT; at += 8) {
		const uint8_t *words = data.v + at;

		if (!is_context(search, words))
			continue;
		err = try_areas(search, proc__word(words), proc__word(words + AREA_HEAD),
				proc__word(words + AREA_TAIL));
		search->map = i;
		if (host_places__is_local(err))
			err = -ENOENT;
	}
	free(data.v);
	return err;
}

/* True for the writable data of musl's libc, which has its malloc context. */
static bool is_library(const struct map *map)
{
	const char *base = map__base_name(map->path);

	return map->inode && map->w && !map->shared &&
	       (text__starts(base, "ld-musl-") || text__starts(base, "libc.musl-") ||
		!strcmp(base, "libc.so"));
}

/* Searches the data of the library, and of the program, which may be static. Returns as
 * search_data(). *library: a mapping of the library; SIZE_MAX: none. */
static int search_all(struct search *search, size_t *library)
{
	const struct maps *maps = &search->reading->maps.maps;
	char exe[4096];
	int err = -ENOENT;

	*library = SIZE_MAX;
	proc__exe(search->reading->proc, exe, sizeof(exe));
	for (size_t i = 0; i < maps->n && err == -ENOENT; i++) {
		const struct map *map = &maps->v[i];

		if (is_library(map))
			*library = i;
		else if (!map->inode || !map->w || map->shared || strcmp(map->path, exe) != 0)
			continue;
		err = search_data(search, i);
	}
	return err;
}

int host_musl__read(struct host_reading *reading)
{
	struct search search = { .reading = reading };
	struct host_allocator *allocator;
	size_t library;
	int err = search_all(&search, &library);

	if (err == -ENOENT && library != SIZE_MAX && !reading->ledger->allocators)
		host_reading__add_allocator(reading, "musl", library); /* an older malloc */
	if (err)
		return err == -ENOENT ? 0 : err;
	allocator = host_reading__add_allocator(reading, "musl", search.map);
	if (!allocator)
		return 0;
	allocator->known = true;
	snprintf(allocator->version, sizeof(allocator->version), "mallocng");
	allocator->arenas = search.sums.arenas;
	allocator->tables = search.sums.tables;
	allocator->free_known = !reading->opts->brief;
	allocator->live = search.sums.live;
	allocator->free_blocks = search.sums.free_blocks;
	return 0;
}
