/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * mimalloc 2 and 3, from outside: the one that replaces malloc, and the one inside of CPython,
 * which has all objects of a free-threaded build. No symbol is needed.
 *
 * mimalloc 2: a segment begins at a multiple of 32 MiB with an array that describes its slices of
 * 64 KiB. Slices are pages with blocks of one size, or free spans. Memory that looks like a segment
 * is one if its slices follow each other to its end and each page verifies.
 *
 * mimalloc 3: an arena, usually of 1 GiB, begins with bitmaps of its slices. A page has its
 * description at its first slice, or (since 3.3) in an array of the arena. All arenas are in a list
 * of the process, which has to have the arena that was found. Large blocks have pages outside of
 * arenas.
 *
 * Layouts: struct mi_segment_s, mi_page_s, mi_arena_s and mi_subproc_s of mimalloc 2.0.9 to
 * 3.4.3, and of the copy in CPython 3.13 and later.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"
#include "inspect/python.h"

#define SEGMENT (32u << 20) /* MI_SEGMENT_SIZE */
#define SLICE (64u << 10)   /* MI_SEGMENT_SLICE_SIZE */
#define SLICES (SEGMENT / SLICE)
#define INFO_MAX 8u	       /* slices of a segment's own description */
#define HUGE_SLICES (1u << 28) /* slices of a segment with one huge page: 16 TiB */
#define HUGE_BLOCK (2u << 30)  /* MI_HUGE_BLOCK_SIZE: the block is as large as its page */
#define PAGE_MAX (4u << 20)    /* bytes of a page with several blocks */
#define PTR_FLAGS UINT64_C(3)  /* bits of a pointer to a list that are flags */
#define READINGS 3	       /* attempts while the process changes a segment */
#define CANDIDATES (1u << 16)  /* addresses that one reading looks at: 2 TiB */
#define LISTS_MAX (2ull << 30) /* bytes of pages whose lists are walked, about 0.4 s */
#define NO_DELAYED_FREE 2u     /* mi_delayed_t in the low bits of a list of other threads */
#define UNCERTAIN_PART 100u    /* live is known if less than 1/100 of it is uncertain */

/* Byte offsets in struct mi_page_s that all versions share; of a segment's fields, from its array
 * of slices back. */
#define PAGE_OFFSET 4u
#define PAGE_CAPACITY 10u
#define PAGE_RESERVED 12u
#define PAGE_FREE 16u
#define BEFORE_SLICES 40u
#define BEFORE_INFO 32u
#define BEFORE_KIND 24u
#define BEFORE_ENTRIES 16u
/* Byte offsets in struct mi_segment_s and struct mi_page_s that versions place differently. */
struct layout {
	const char *version;
	uint16_t slices; /* array of slices in a segment */
	uint16_t pages;	 /* a segment's number of pages in use */
	uint8_t slice;	 /* bytes of a slice's description */
	bool wide;	 /* used has 16 bits and block_size 64; otherwise 32 and 32 */
	uint8_t used;	 /* mi_page_s.used */
	uint8_t block;	 /* mi_page_s.block_size */
	uint8_t local;	 /* mi_page_s.local_free */
	uint8_t keys;	 /* the two keys of encoded lists; 0: lists are not encoded */
	uint8_t others;	 /* mi_page_s.xthread_free */
	uint8_t heap;	 /* mi_page_s.xheap */
	bool python;	 /* only CPython's free-threaded builds have this layout */
};

static const struct layout layouts[] = {
	{ "2.1.8-2.4", 288, 216, 96, true, 32, 40, 24, 0, 56, 64, false },
	{ "2.1.4-2.1.7", 264, 208, 96, true, 32, 40, 24, 0, 56, 64, false },
	{ "2.0.9-2.1.2", 264, 208, 80, false, 24, 28, 32, 0, 40, 48, false },
	{ "2.1 of CPython", 264, 208, 96, false, 24, 28, 32, 0, 40, 48, true },
	/* MI_SECURE and debug builds */
	{ "2.1.8-2.4", 288, 216, 112, true, 32, 40, 24, 56, 72, 80, false },
	{ "2.1.4-2.1.7", 264, 208, 112, true, 32, 40, 24, 56, 72, 80, false },
	{ "2.0.9-2.1.2", 264, 208, 96, false, 24, 28, 32, 40, 56, 64, false },
	{ "2.1 of CPython", 264, 208, 112, false, 24, 28, 32, 40, 56, 64, true },
};
#define LAYOUTS (sizeof(layouts) / sizeof(*layouts))

/* Byte offsets in struct mi_page_s of mimalloc 3 that all its versions share. */
#define V3_FREE 8u
#define V3_CAPACITY 18u
#define V3_RESERVED 20u
/* The other offsets of mimalloc 3, whose memid takes the place of the heap. Those with keys are of
 * MI_SECURE and debug builds. */
static const struct layout layouts3[] = {
	{ "3.0-3.3", 0, 0, 120, true, 16, 40, 24, 0, 32, 96, false },
	{ "3.4", 0, 0, 112, true, 16, 40, 24, 0, 32, 88, false },
	{ "3.0-3.3", 0, 0, 136, true, 16, 40, 24, 64, 32, 112, false },
	{ "3.4", 0, 0, 128, true, 16, 40, 24, 56, 32, 104, false },
};
#define LAYOUTS3 (sizeof(layouts3) / sizeof(*layouts3))
#define MEMID 24u     /* struct mi_memid_s */
#define MEMID_SIZE 8u /* byte offsets in it: size, or an arena's slice; slices; memkind */
#define MEMID_SLICES 12u
#define MEMID_KIND 16u
#define MEM_OS 4u /* MI_MEM_OS to MI_MEM_OS_REMAP: a mapping of its own */
#define MEM_OS_LAST 6u
#define MEM_ARENA 7u

#define ARENA_SUBPROC 24u /* offset of mi_arena_s.subproc */
/* Byte offsets in struct mi_arena_s, and of the list of arenas in struct mi_subproc_s. All have the
 * pointer to the bitmap of committed slices after that to the free ones. */
struct arena_layout {
	uint8_t slices, info; /* slice_count; info_slices */
	uint8_t free;	      /* slices_free */
	uint8_t meta;	      /* pages_meta; 0: pages begin with their description */
	uint8_t arenas;	      /* list of arenas */
};

static const struct arena_layout arena_layouts[] = {
	{ 40, 48, 104, 136, 32 }, /* 3.3 and later */
	{ 40, 48, 88, 0, 32 },	  /* 3.2 */
	{ 32, 40, 80, 0, 8 },	  /* 3.1 */
	{ 32, 40, 64, 0, 8 },	  /* 3.0 */
};
#define ARENA 256u		/* bytes of an arena's header that are read */
#define ARENAS 160u		/* MI_MAX_ARENAS */
#define ARENA_SLICES (1u << 20) /* slices of an arena: 64 GiB */
#define CHUNK 64u		/* bytes of a chunk of a bitmap */
#define CHUNK_BITS (CHUNK * 8u)
#define DESCRIPTION (288u + (SLICES + 1) * 112u) /* most bytes of a segment's description */
#define DESCRIBED_PAGE 136u			 /* most bytes of a page's description */

/* A page or a free span of a segment. */
struct page {
	uint64_t start, bytes; /* all of its slices */
	uint64_t block, used;  /* bytes of a block, number of blocks in use; block 0: a free span */
	uint64_t capacity;     /* blocks that were ever used, or can be next */
	uint64_t others; /* xthread_free: list of blocks that other threads freed, and flags */
	uint64_t key[2];
	uint64_t at; /* address of its description */
};

struct segment {
	const struct layout *layout;
	uint64_t addr, bytes;
	uint64_t info; /* bytes of its own description */
	uint64_t heap; /* address of a page's heap; 0: none */
	struct page page[SLICES];
	size_t n;
	bool used; /* it has pages in use, and they verify */
};

/* Sums over the segments of one owner. */
struct sums {
	const struct layout *layout; /* layout of the first segment; NULL: no segment */
	uint64_t segments, bytes;
	uint64_t blocks, live, free_blocks, purgeable, tables;
	uint64_t uncertain; /* bytes of pages whose lists changed while they were read */
	size_t map; /* mapping of the file that has the allocator's data; SIZE_MAX: not known */
};

enum { MALLOC, PYTHON, OWNERS };

struct search {
	struct host_reading *reading;
	uint8_t copy[DESCRIPTION]; /* copy of a segment's description */
	uint8_t area[PAGE_MAX];	   /* copy of a page's blocks */
	struct segment segment;
	/* Resident ranges of the segment's first 32 MiB, or of a page of an arena. */
	struct resident_range *resident;
	size_t n_resident, cap_resident;
	uint64_t lists;	     /* bytes of pages whose lists were walked */
	bool bad;	     /* a segment changed too often to be read */
	bool known[LAYOUTS]; /* layouts of segments that have pages in use */
	struct sums sums[OWNERS];
	struct resident_range arena[ARENAS]; /* arenas of mimalloc 3 */
	size_t n_arenas;
	uint64_t tries; /* reads of descriptions of mimalloc 3 */
};

/* Functions that return an int return 0 or -errno unless they say otherwise. */

/* ---- a segment ---- */

static uint32_t word32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint16_t word16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* True if all of [addr, addr + size) is private memory without a file, mapped or reserved. */
static bool is_reserved(const struct maps *maps, uint64_t addr, uint64_t size)
{
	const struct map *map = maps__find(maps, addr), *last = maps->v + maps->n;
	uint64_t end = addr + size;

	if (!map || end < addr)
		return false;
	for (uint64_t at = map->start; map < last && map->start == at; at = map->end, map++) {
		if (map->inode || map->shared || map->x)
			return false;
		if (map->end >= end)
			return true;
	}
	return false;
}

/* True if a list's first block, or none, lies in the page. */
static bool is_in_page(const struct page *page, uint64_t block)
{
	return !block || (block >= page->start && block - page->start < page->bytes);
}

/* Parses entry, the description of a page. left: slices from the page's begin to the segment's end.
 * page->others: the list of blocks that other threads freed. Returns false if it does not verify. */
static bool parse_page(const struct search *search, const struct layout *layout,
		       const uint8_t *entry, uint64_t left, struct page *page)
{
	uint64_t heap = proc__word(entry + layout->heap);
	uint32_t count = word32(entry);
	uint16_t reserved = word16(entry + PAGE_RESERVED);

	if (!count || count > left || word32(entry + PAGE_OFFSET))
		return false;
	page->bytes = (uint64_t)count * SLICE;
	page->used = layout->wide ? word16(entry + layout->used) : word32(entry + layout->used);
	page->block = layout->wide ? proc__word(entry + layout->block)
				   : word32(entry + layout->block);
	page->capacity = word16(entry + PAGE_CAPACITY);
	page->others = proc__word(entry + layout->others);
	page->block = page->block == 1 ? 0 : page->block; /* a span of a segment that was freed */
	if (!page->block)
		return true;
	if (!layout->wide && page->block == HUGE_BLOCK)
		page->block = page->bytes;
	if (layout->keys) {
		page->key[0] = proc__word(entry + layout->keys);
		page->key[1] = proc__word(entry + layout->keys + 8);
	}
	if (!page->used && !page->capacity)
		return true; /* about to be initialized */
	/* A page has blocks of one size, and all its lists stay in it. */
	return page->block >= 8 && page->block % 8 == 0 && page->used <= page->capacity &&
	       page->capacity <= reserved && page->block <= page->bytes / reserved &&
	       is_in_page(page, proc__word(entry + PAGE_FREE)) &&
	       is_in_page(page, proc__word(entry + layout->local)) &&
	       is_in_page(page, page->others & ~PTR_FLAGS) &&
	       (!heap || maps__find(&search->reading->maps.maps, heap));
}

/* True if the header of the copy can be that of a segment at addr. Sets *slices, *entries to the
 * number of their descriptions, and *info to that of the slices with tables. */
static bool parse_header(const struct search *search, const struct layout *layout, uint64_t addr,
			 uint64_t *slices, uint64_t *entries, uint64_t *info)
{
	const uint8_t *h = search->copy + layout->slices;
	uint64_t kind = word32(h - BEFORE_KIND); /* 0: normal, 1: one huge page */

	*slices = proc__word(h - BEFORE_SLICES);
	*info = proc__word(h - BEFORE_INFO);
	*entries = proc__word(h - BEFORE_ENTRIES);
	if (kind > 1 || !*info || *info > INFO_MAX || *info >= *slices || *slices > HUGE_SLICES ||
	    (!kind && *slices != SLICES) || word32(h) != *info || word32(h + PAGE_OFFSET))
		return false;
	/* MI_SECURE does not use the last slice. */
	if (*entries != SLICES && *entries != *slices && *entries + 1 != *slices)
		return false;
	return *entries > *info && *entries <= SLICES &&
	       is_reserved(&search->reading->maps.maps, addr, *slices * SLICE);
}

/* Parses the copy of a segment at addr. Returns 1 and fills search->segment; 0: this is no segment
 * of this layout; -1: it looks like one, but its pages do not verify. */
static int parse_segment(struct search *search, const struct layout *layout, uint64_t addr)
{
	struct segment *segment = &search->segment;
	uint64_t slices, entries, info, in_use = 0, i;

	if (!parse_header(search, layout, addr, &slices, &entries, &info))
		return 0;
	*segment = (struct segment){
		.layout = layout, .addr = addr, .bytes = slices * SLICE, .info = info * SLICE
	};
	for (i = info; i < entries;) {
		const uint8_t *entry = search->copy + layout->slices + i * layout->slice;
		struct page *page = &segment->page[segment->n];

		*page = (struct page){ .start = addr + i * SLICE,
				       .at = addr + (uint64_t)(entry - search->copy) };
		if (!parse_page(search, layout, entry, slices - i, page))
			return -1;
		in_use += page->block != 0;
		segment->used = segment->used || page->used;
		if (page->block && !segment->heap)
			segment->heap = proc__word(entry + layout->heap);
		segment->n++;
		i += page->bytes / SLICE;
	}
	/* A huge page may end after the last slice that has a description. */
	if (i > entries && (slices == SLICES || segment->n > 1))
		return -1;
	return in_use == proc__word(search->copy + layout->pages) ? 1 : -1;
}

/* Reads what may be a segment at addr. Returns 1 and fills search->segment; 0: it is none; or an
 * error that ends the reading. used: of segments without pages in use, which several layouts can
 * match, take only those with the layout of another segment. */
static int read_segment(struct search *search, uint64_t addr, bool used)
{
	for (int i = 0; i < READINGS; i++) {
		int err = host_places__read_resident(search->reading, addr, search->copy,
						     sizeof(search->copy));
		bool changed = false;

		if (err)
			return host_places__is_local(err) ? 0 : err;
		for (size_t k = 0; k < LAYOUTS; k++) {
			int parsed = 0;

			if (used || search->known[k])
				parsed = parse_segment(search, &layouts[k], addr);
			if (parsed > 0)
				return search->segment.used == used;
			changed = changed || parsed < 0;
		}
		if (!changed)
			return 0;
	}
	search->bad = search->bad || used;
	return 0;
}

/* ---- lists of blocks that other threads freed ---- */

/* The block after the one that begins with the word `next` in its list. The list of an encoded page
 * ends with the page's own address. */
static uint64_t decode(const struct page *page, uint64_t next)
{
	uint64_t x = next - page->key[0], by = page->key[0] & 63; /* bits to rotate by */

	if (!page->key[0] && !page->key[1])
		return next;
	x = by ? x >> by | x << (64 - by) : x;
	x ^= page->key[1];
	return x == page->at ? 0 : x;
}

/* Counts the blocks in a page's list of other threads. area: copy of its memory. False: the list
 * leads out of the page, or is longer than the page. */
static bool count_list(const struct page *page, const uint8_t *area, uint64_t *ret)
{
	uint64_t block = page->others & ~PTR_FLAGS, n = 0;

	while (block) {
		uint64_t at = block - page->start;

		if (block < page->start || at > page->bytes - 8 || ++n > page->used)
			return false;
		block = decode(page, proc__word(area + at));
	}
	*ret = n;
	return true;
}

/*
 * Takes the blocks that other threads freed off the page's used blocks, until the page's own thread
 * does so. A flag in the list tells that one more block waits in a list of the heap. Adds the page
 * to *uncertain if its list changes meanwhile. 0 or an error that ends the reading.
 */
static int take_freed(struct search *search, const struct layout *layout, struct page *page,
		      uint64_t *uncertain)
{
	bool counted = !(page->others & ~PTR_FLAGS);
	uint8_t entry[DESCRIBED_PAGE];
	uint64_t freed = 0;
	int err = 0;

	if (!counted && page->capacity == 1) /* a large block has a page of its own */
		freed = counted = true;
	for (int i = 0; i < READINGS && !counted && !err; i++) {
		uint64_t others = page->others;

		if (page->bytes > PAGE_MAX || search->lists > LISTS_MAX)
			break;
		search->lists += page->bytes;
		err = host_places__read_resident(search->reading, page->start, search->area,
						 page->bytes);
		if (!err)
			err = proc__read(search->reading->proc, page->at, entry, layout->slice);
		if (err)
			break;
		page->others = proc__word(entry + layout->others);
		page->used = layout->wide ? word16(entry + layout->used)
					  : word32(entry + layout->used);
		page->used = page->used < page->capacity ? page->used : page->capacity;
		counted = page->others == others && count_list(page, search->area, &freed);
	}
	freed += (page->others & PTR_FLAGS) == NO_DELAYED_FREE;
	*uncertain += counted ? 0 : page->used * page->block;
	page->used -= freed < page->used ? freed : page->used;
	return host_places__is_local(err) ? 0 : err;
}

/* ---- sums ---- */

static int add_range(void *ctx, uint64_t start, uint64_t end)
{
	struct search *search = ctx;

	if (array__grow(&search->resident, &search->cap_resident, search->n_resident + 1,
			sizeof(*search->resident)))
		return -ENOMEM;
	search->resident[search->n_resident++] = (struct resident_range){ start, end };
	return 0;
}

ARRAY_UP_TO(ranges_up_to, struct resident_range, end)

/* Resident bytes of [start, end), as far as `search` has the resident ranges. */
static uint64_t resident_in(const struct search *search, uint64_t start, uint64_t end)
{
	size_t i = ranges_up_to(search->resident, search->n_resident, start);
	uint64_t sum = 0;

	for (; i < search->n_resident && search->resident[i].start < end; i++) {
		struct span v = { search->resident[i].start, search->resident[i].end, 0 };

		sum += span__bytes_in(&v, start, end);
	}
	return sum;
}

/* Adds the first `bytes` resident bytes of a page to the second figure of malloc. Their number is
 * known, but not where the free blocks lie. */
static int add_free(struct search *search, const struct page *page, uint64_t bytes)
{
	size_t i = ranges_up_to(search->resident, search->n_resident, page->start);
	uint64_t end = page->start + page->bytes;
	int err = 0;

	for (; i < search->n_resident && bytes && !err && search->resident[i].start < end; i++) {
		uint64_t from = search->resident[i].start > page->start ? search->resident[i].start
									: page->start;
		uint64_t to = search->resident[i].end < end ? search->resident[i].end : end;

		to = to - from > bytes ? from + bytes : to;
		err = host_spans__add(&search->reading->second, from, to - from, HOST_MALLOC);
		bytes -= to - from;
	}
	return err;
}

/* Adds a page or a span. second: its free memory is a second figure of malloc. The resident ranges
 * of `search` have to include the page's. */
static int add_page(struct search *search, const struct layout *layout, struct page *page,
		    struct sums *to, bool second)
{
	uint64_t resident = resident_in(search, page->start, page->start + page->bytes), used, left;
	int err = 0;

	if (page->block && page->used && !search->reading->opts->brief)
		err = take_freed(search, layout, page, &to->uncertain);
	used = page->block ? page->block * page->used : 0;
	left = resident > used ? resident - used : 0;
	to->blocks += page->block ? page->used : 0;
	to->live += used;
	*(used ? &to->free_blocks : &to->purgeable) += left;
	if (!err && second)
		err = add_free(search, page, left);
	return err;
}

/* The mapping of the file that has the data at addr, also in its zeroed data. SIZE_MAX: none. */
static size_t file_of(const struct maps *maps, uint64_t addr)
{
	const struct map *map = maps__find(maps, addr);

	if (map && !map->inode && map > maps->v && map[-1].end == map->start)
		map--;
	return map && map->inode ? (size_t)(map - maps->v) : SIZE_MAX;
}

/* Adds the pages of search->segment and claims it. A segment of CPython's own mimalloc counts as
 * Python's. */
static int add_segment(struct search *search)
{
	struct host_reading *reading = search->reading;
	struct segment *segment = &search->segment;
	size_t file = file_of(&reading->maps.maps, segment->heap);
	bool python = reading->python &&
		      (segment->layout->python ||
		       (file != SIZE_MAX &&
			!strcmp(reading->maps.maps.v[file].path, python__file(reading->python))));
	struct sums *to = &search->sums[python ? PYTHON : MALLOC];
	bool second = !python; /* malloc's free blocks are its second figure */
	int err;

	search->n_resident = 0;
	err = host_resident__walk(reading->resident, segment->addr, segment->addr + SEGMENT,
				  add_range, search);
	if (err)
		return err;
	to->layout = to->layout ? to->layout : segment->layout;
	to->map = to->map == SIZE_MAX ? file : to->map;
	to->segments++;
	to->bytes += segment->bytes;
	to->tables += resident_in(search, segment->addr, segment->addr + segment->info);
	for (size_t i = 0; i < segment->n && !err; i++)
		err = add_page(search, segment->layout, &segment->page[i], to, second);
	if (err)
		return err;
	return host_spans__add(&reading->claims, segment->addr, segment->bytes,
			       python ? HOST_PYTHON : HOST_MALLOC);
}

/* ---- all segments ---- */

/* Adds the segments that begin in map. tries: addresses looked at so far. used: as in
 * search_maps(). 0 or -errno. */
static int search_map(struct search *search, const struct map *map, size_t *tries, bool used)
{
	uint64_t at = (map->start + SEGMENT - 1) & ~(uint64_t)(SEGMENT - 1);
	int err = 0;

	while (at >= map->start && at < map->end && err >= 0 && ++*tries < CANDIDATES) {
		uint64_t size = SEGMENT;

		err = read_segment(search, at, used);
		if (err > 0) {
			size = search->segment.bytes;
			search->known[search->segment.layout - layouts] = true;
			err = add_segment(search);
		}
		at += (size + SEGMENT - 1) & ~(uint64_t)(SEGMENT - 1);
	}
	return err;
}

/* Adds the segments in all mappings. used: those with pages in use; otherwise those without. 0 or
 * -errno. */
static int search_maps(struct search *search, bool used)
{
	const struct host_smaps *maps = &search->reading->maps;
	size_t tries = 0;
	int err = 0;

	for (size_t i = 0; i < maps->maps.n && !err; i++)
		if (maps->v[i].rss && host_places__is_anonymous(&maps->maps.v[i]))
			err = search_map(search, &maps->maps.v[i], &tries, used);
	search->bad = search->bad || tries >= CANDIDATES;
	return err;
}

static bool is_library(const char *name)
{
	return text__starts(name, "libmimalloc");
}

/* ---- mimalloc 3 ---- */

#define DATA_MAX (4u << 20)  /* bytes of a file's data that are searched */
#define TRIES_MAX (1u << 20) /* descriptions that are read, about 3 s */
#define TRIES_OUTSIDE 64u    /* slices before and between large blocks of a mapping */

/* An arena. */
struct arena {
	uint64_t addr, slices, info; /* info: slices of its own tables */
	uint64_t meta;		     /* address of the array of pages; 0: none */
	uint8_t *free;		     /* bitmap of free slices; owned */
};

static bool is_free(const struct arena *arena, uint64_t slice)
{
	return arena->free[slice / 8] >> slice % 8 & 1;
}

/* True if the header of mimalloc's bitmaps has this size in some version or build, bytes. */
static bool is_bitmap_header(uint64_t size)
{
	return size == 384 || size == 448 || size == 640;
}

/* Reads the bitmap of free slices. The bitmap of committed ones follows it, so that the distance
 * tells the size of its header. -ENOENT: it does not verify. The caller frees arena->free. */
static int read_free(const struct search *search, struct arena *arena, uint64_t free_at,
		     uint64_t committed)
{
	uint64_t chunks = (arena->slices + CHUNK_BITS - 1) / CHUNK_BITS, n;
	uint64_t header = committed - free_at - chunks * CHUNK;
	int err;

	if (free_at <= arena->addr || free_at - arena->addr > arena->info * SLICE ||
	    !is_bitmap_header(header) || proc__read_u64(search->reading->proc, free_at, &n) ||
	    n != chunks)
		return -ENOENT;
	arena->free = malloc(chunks * CHUNK);
	if (!arena->free)
		return -ENOMEM;
	err = host_places__read_resident(search->reading, free_at + header, arena->free,
					 chunks * CHUNK);
	if (err) {
		free(arena->free);
		arena->free = NULL;
	}
	return err;
}

/* True if the process's list has the arena. h: copy of its header. */
static bool is_listed(const struct search *search, const struct arena_layout *layout,
		      const uint8_t *h, uint64_t addr, uint64_t list[ARENAS])
{
	uint64_t subproc = proc__word(h + ARENA_SUBPROC);

	if (!maps__find(&search->reading->maps.maps, subproc) ||
	    proc__read(search->reading->proc, subproc + layout->arenas, list, ARENAS * 8))
		return false;
	for (size_t i = 0; i < ARENAS; i++)
		if (list[i] == addr)
			return true;
	return false;
}

/* Reads the header of an arena, and its bitmap of free slices. list: set to the process's list of
 * arenas. *file: index of the mapping of mimalloc's library or program. -ENOENT: no arena. */
static int read_arena(const struct search *search, const struct arena_layout *layout, uint64_t addr,
		      struct arena *arena, uint64_t list[ARENAS], size_t *file)
{
	uint8_t h[ARENA];
	int err = host_places__read_resident(search->reading, addr, h, sizeof(h));

	if (err)
		return err;
	*arena = (struct arena){ .addr = addr,
				 .slices = proc__word(h + layout->slices),
				 .info = proc__word(h + layout->info),
				 .meta = layout->meta ? proc__word(h + layout->meta) : 0 };
	if (!arena->info || arena->info >= arena->slices || arena->slices > ARENA_SLICES ||
	    !is_reserved(&search->reading->maps.maps, addr, arena->slices * SLICE) ||
	    !is_listed(search, layout, h, addr, list))
		return -ENOENT;
	if (arena->meta && (arena->meta < addr || arena->meta - addr > arena->info * SLICE))
		return -ENOENT;
	*file = file_of(&search->reading->maps.maps, proc__word(h + ARENA_SUBPROC));
	/* The pointer to the bitmap of committed slices follows that to the free ones. */
	return read_free(search, arena, proc__word(h + layout->free),
			 proc__word(h + layout->free + 8));
}

/* Parses entry, the description of a page of mimalloc 3 with page->bytes at page->start. False: it
 * is none. */
static bool parse_v3_page(const struct layout *layout, const uint8_t *entry, struct page *page)
{
	uint64_t reserved = word16(entry + V3_RESERVED); /* number of blocks that fit */

	page->used = word16(entry + layout->used);
	page->capacity = word16(entry + V3_CAPACITY);
	page->block = proc__word(entry + layout->block);
	page->others = proc__word(entry + layout->others) & ~UINT64_C(1); /* the flag of an owner */
	if (layout->keys) {
		page->key[0] = proc__word(entry + layout->keys);
		page->key[1] = proc__word(entry + layout->keys + 8);
	}
	return page->block >= 8 && page->block % 8 == 0 && reserved &&
	       page->used <= page->capacity && page->capacity <= reserved &&
	       page->block <= page->bytes / reserved &&
	       is_in_page(page, proc__word(entry + V3_FREE)) &&
	       is_in_page(page, proc__word(entry + layout->local)) &&
	       is_in_page(page, page->others);
}

/* Reads the page that begins at a slice. False: none does, or it does not verify. */
static bool read_v3_page(struct search *search, const struct layout *layout,
			 const struct arena *arena, uint64_t slice, struct page *page)
{
	uint64_t start = arena->addr + slice * SLICE, count;
	uint64_t at = arena->meta ? arena->meta + slice * layout->slice : start;
	uint8_t entry[DESCRIBED_PAGE];
	const uint8_t *memid = entry + layout->heap;

	if (++search->tries > TRIES_MAX ||
	    host_places__read_resident(search->reading, at, entry, layout->slice))
		return false;
	count = word32(memid + MEMID_SLICES);
	if (word32(memid + MEMID_KIND) != MEM_ARENA || proc__word(memid) != arena->addr ||
	    word32(memid + MEMID_SIZE) != slice || !count || count > arena->slices - slice)
		return false;
	*page = (struct page){ .start = start, .bytes = count * SLICE, .at = at };
	return parse_v3_page(layout, entry, page);
}

/* Adds a page or span with its resident memory. */
static int add_v3_page(struct search *search, const struct layout *layout, struct page *page)
{
	int err;

	search->n_resident = 0;
	err = host_resident__walk(search->reading->resident, page->start, page->start + page->bytes,
				  add_range, search);
	return err ?: add_page(search, layout, page, &search->sums[MALLOC], /*second=*/true);
}

/* Adds the resident bytes of a range to the tables. */
static int add_tables(struct search *search, uint64_t start, uint64_t bytes)
{
	uint64_t resident;
	int err = host_resident__count(search->reading->resident, start, start + bytes,
				       /*device=*/false, &resident);

	search->sums[MALLOC].tables += err ? 0 : resident;
	return err;
}

/* Adds the pages and free spans of an arena. Slices that are neither are tables. Each round handles
 * one span or page, or one slice of tables. */
static int add_slices(struct search *search, const struct layout *layout, const struct arena *arena)
{
	int err = add_tables(search, arena->addr, arena->info * SLICE);

	for (uint64_t i = arena->info, end; i < arena->slices && !err; i = end) {
		struct page page = { .start = arena->addr + i * SLICE };

		/* a span of free slices, or else a page */
		for (end = i; end < arena->slices && is_free(arena, end); end++)
			;
		page.bytes = (end - i) * SLICE;
		if (end == i && !read_v3_page(search, layout, arena, i, &page)) {
			err = add_tables(search, page.start, SLICE);
			end = i + 1;
			continue;
		}
		end = i + page.bytes / SLICE;
		err = add_v3_page(search, layout, &page);
	}
	return err;
}

/* Returns the layout of the pages of an arena: the one that most pages have. */
static const struct layout *layout_of_pages(struct search *search, const struct arena *arena)
{
	const struct layout *best = &layouts3[0];
	size_t most = 0;

	for (size_t k = 0; k < LAYOUTS3; k++) {
		size_t n = 0, tries = 0;

		for (uint64_t i = arena->info; i < arena->slices && tries < SLICES; i++) {
			struct page page;

			if (is_free(arena, i))
				continue;
			tries++;
			if (read_v3_page(search, &layouts3[k], arena, i, &page))
				n++;
		}
		best = n > most ? &layouts3[k] : best;
		most = n > most ? n : most;
	}
	return best;
}

/* Returns the end of the arena that addr lies in, or addr if it lies in none. */
static uint64_t after_arena(const struct search *search, uint64_t addr)
{
	for (size_t i = 0; i < search->n_arenas; i++)
		if (addr >= search->arena[i].start && addr < search->arena[i].end)
			return search->arena[i].end;
	return addr;
}

/* Adds the arena at addr. -ENOENT: it does not verify. */
static int add_arena(struct search *search, const struct arena_layout *layout, uint64_t addr)
{
	struct sums *to = &search->sums[MALLOC];
	const struct layout *pages;
	uint64_t list[ARENAS];
	struct arena arena = { 0 };
	size_t file;
	int err = 0;

	if (search->n_arenas == ARENAS || after_arena(search, addr) != addr)
		return -ENOENT; /* twice in the list */
	err = read_arena(search, layout, addr, &arena, list, &file);
	if (err)
		return err;
	pages = layout_of_pages(search, &arena);
	to->layout = to->layout ? to->layout : pages;
	to->map = to->map == SIZE_MAX ? file : to->map;
	to->segments++;
	to->bytes += arena.slices * SLICE;
	search->arena[search->n_arenas++] = (struct resident_range){ addr,
								     addr + arena.slices * SLICE };
	err = add_slices(search, pages, &arena);
	free(arena.free);
	return err
		       ?: host_spans__add(&search->reading->claims, addr, arena.slices * SLICE,
					  HOST_MALLOC);
}

/* Adds all arenas of the list if there is an arena at addr. -ENOENT: nothing there. */
static int try_arena(struct search *search, uint64_t addr)
{
	const struct arena_layout *layout = arena_layouts;
	const struct arena_layout *last = layout + sizeof(arena_layouts) / sizeof(*arena_layouts);
	uint64_t list[ARENAS];
	struct arena arena = { 0 };
	size_t file;
	int err = -ENOENT;

	if (++search->tries > TRIES_MAX)
		return err;
	for (; layout < last && host_places__is_local(err); layout += host_places__is_local(err))
		err = read_arena(search, layout, addr, &arena, list, &file);
	if (err)
		return err;
	free(arena.free);
	for (size_t i = 0; i < ARENAS && !err; i++) {
		if (list[i])
			err = add_arena(search, layout, list[i]);
		search->bad = search->bad || host_places__is_local(err);
		err = host_places__is_local(err) ? 0 : err;
	}
	return err;
}

/* Tries each word of the data in mapping i as the address of an arena. 0: an arena was found.
 * Otherwise an error: if host_places__is_local(), there is no arena. */
static int search_data(struct search *search, size_t i)
{
	struct host_data data;
	int err = host_places__read_data(search->reading, i, DATA_MAX, &data);

	if (err)
		return err;
	err = -ENOENT;
	for (size_t at = 0; at + 8 <= data.len && host_places__is_local(err); at += 8) {
		uint64_t addr = proc__word(data.v + at);

		if (addr && addr % SLICE == 0 &&
		    host_places__is_private_memory(&search->reading->maps, addr, SLICE))
			err = try_arena(search, addr);
	}
	free(data.v);
	return err;
}

/* True if arenas and large blocks can be in a mapping. */
static bool is_large(const struct host_smaps *maps, size_t i)
{
	const struct map *map = &maps->maps.v[i];

	return maps->v[i].rss && map->end - map->start >= SEGMENT && host_places__is_anonymous(map);
}

static uint64_t first_slice(const struct map *map)
{
	return (map->start + SLICE - 1) & ~(uint64_t)(SLICE - 1);
}

/* Finds one arena, whose list gives all others, and adds them. Tries the pointers in the data of
 * mimalloc's library and of the program (mimalloc may be linked in), then the starts of large
 * mappings. 0, also if there is no arena, or an error that ends the reading. */
static int search_arenas(struct search *search)
{
	const struct host_smaps *maps = &search->reading->maps;
	int err = -ENOENT;
	char exe[4096];

	proc__exe(search->reading->proc, exe, sizeof(exe));
	for (size_t i = 0; i < maps->maps.n && host_places__is_local(err); i++) {
		const struct map *map = &maps->maps.v[i];

		if (map->w && !map->shared && map->inode &&
		    (!strcmp(map->path, exe) || is_library(map__base_name(map->path))))
			err = search_data(search, i);
	}
	for (size_t i = 0; i < maps->maps.n && host_places__is_local(err); i++) {
		uint64_t at = first_slice(&maps->maps.v[i]);

		if (!is_large(maps, i))
			continue;
		/* the first slice may be unused, for alignment */
		for (unsigned k = 0; k < 2 && host_places__is_local(err); k++)
			err = try_arena(search, at + k * SLICE);
	}
	return host_places__is_local(err) ? 0 : err;
}

/* Adds the page outside of arenas that begins at addr, which has one large block. *bytes: its size.
 * -ENOENT: nothing there. */
static int add_page_outside(struct search *search, const struct map *map, uint64_t addr,
			    uint64_t *bytes)
{
	const struct layout *layout = search->sums[MALLOC].layout;
	struct page page = { .start = addr, .at = addr };
	uint8_t entry[DESCRIBED_PAGE];
	const uint8_t *memid = entry + layout->heap;
	int err = host_places__read_resident(search->reading, addr, entry, layout->slice);
	uint64_t base, end;
	uint32_t kind;

	if (err)
		return err;
	kind = word32(memid + MEMID_KIND);
	base = proc__word(memid);
	end = base + proc__word(memid + MEMID_SIZE);
	/* The mapping was larger, so that the page is aligned. */
	if (kind < MEM_OS || kind > MEM_OS_LAST || base > addr || addr - base >= SLICE ||
	    base < map->start || end <= addr || end > map->end || end % HOST_PAGE)
		return -ENOENT;
	page.bytes = end - addr;
	if (word16(entry + V3_RESERVED) != 1 || !parse_v3_page(layout, entry, &page))
		return -ENOENT;
	*bytes = page.bytes;
	err = add_v3_page(search, layout, &page);
	return err ?: host_spans__add(&search->reading->claims, addr, page.bytes, HOST_MALLOC);
}

/* Adds the pages in mapping map that are outside of arenas. The kernel joins neighbours, and other
 * memory of a few slices may precede them. */
static int add_pages_outside(struct search *search, const struct map *map)
{
	uint64_t at = first_slice(map), bytes;
	int err;

	for (unsigned tries = 0; at < map->end && tries < TRIES_OUTSIDE; tries++) {
		bytes = SLICE;
		at = after_arena(search, at);
		if (at >= map->end)
			break;
		err = add_page_outside(search, map, at, &bytes);
		if (err && !host_places__is_local(err))
			return err;
		tries = err ? tries : 0;
		at = (at + bytes + SLICE - 1) & ~(uint64_t)(SLICE - 1);
	}
	return 0;
}

/* Adds all memory of mimalloc 3. */
static int search_3(struct search *search)
{
	const struct host_smaps *maps = &search->reading->maps;
	int err = search_arenas(search);

	if (!search->sums[MALLOC].segments)
		return err;
	for (size_t i = 0; i < maps->maps.n && !err; i++)
		if (is_large(maps, i))
			err = add_pages_outside(search, &maps->maps.v[i]);
	return err;
}

/* Returns a mapping of the file that has the allocator's code: the file with its data, the library,
 * or the program. */
static size_t file_of_code(const struct maps *maps, size_t known)
{
	size_t found = 0;

	if (known != SIZE_MAX)
		return known;
	for (size_t i = maps->n; i-- > 0;) {
		if (is_library(map__base_name(maps->v[i].path)))
			return i;
		if (maps->v[i].inode && maps->v[i].x)
			found = i;
	}
	return found;
}

/* Adds mimalloc to the ledger. */
static void set_allocator(struct search *search)
{
	const struct sums *sum = &search->sums[MALLOC];
	struct host_reading *reading = search->reading;
	struct host_allocator *allocator = host_reading__add_allocator(
		reading, "mimalloc", file_of_code(&reading->maps.maps, sum->map));

	if (!allocator)
		return;
	allocator->known = !search->bad && search->tries <= TRIES_MAX;
	if (!allocator->known)
		return;
	snprintf(allocator->version, sizeof(allocator->version), "%s", sum->layout->version);
	allocator->arenas = sum->segments;
	allocator->free_known = !reading->opts->brief && !reading->swap &&
				sum->uncertain <= sum->live / UNCERTAIN_PART;
	allocator->live = sum->live;
	allocator->free_blocks = sum->free_blocks;
	allocator->purgeable = sum->purgeable;
	allocator->tables = sum->tables;
}

/* Sets CPython's figures, from its own mimalloc (3.13 and newer without a GIL). */
static void set_python(struct search *search)
{
	const struct sums *sum = &search->sums[PYTHON];
	struct host_python *python = &search->reading->ledger->python;

	if (python->known) /* CPython's own arenas: mimalloc serves something else */
		return;
	python->known = !search->bad;
	python->arenas = sum->segments;
	python->arena = sum->bytes;
	python->used_known = python->known && !search->reading->opts->brief &&
			     !search->reading->swap && sum->uncertain <= sum->live / UNCERTAIN_PART;
	python->blocks = sum->blocks;
	python->used = sum->live;
}

/* Adds all memory of mimalloc 2. */
static int search_2(struct search *search)
{
	int err = search_maps(search, /*used=*/true);

	if (err || !(search->sums[MALLOC].segments + search->sums[PYTHON].segments))
		return err;
	/* The allocator keeps segments without pages in use, or freed them a moment ago. */
	return search_maps(search, /*used=*/false);
}

/* Searches mimalloc 2, then mimalloc 3, and sets the figures of the ledger. */
static int search_all(struct search *search)
{
	int err = search_2(search);

	if (err)
		return err;
	if (!search->sums[MALLOC].segments)
		err = search_3(search);
	if (err)
		return err;
	if (search->sums[MALLOC].segments)
		set_allocator(search);
	if (search->sums[PYTHON].segments)
		set_python(search);
	return 0;
}

int host_mimalloc__read(struct host_reading *reading)
{
	struct search *search = calloc(1, sizeof(*search));
	int err;

	if (!search)
		return -ENOMEM;
	search->reading = reading;
	for (size_t i = 0; i < OWNERS; i++)
		search->sums[i].map = SIZE_MAX;
	err = search_all(search);
	free(search->resident);
	free(search);
	return err;
}
