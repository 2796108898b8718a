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
#define READINGS 3	       /* attempts while the process changes a segment */
#define CANDIDATES (1u << 16)  /* addresses that one reading looks at: 2 TiB */
#define LISTS_MAX (2ull << 30) /* bytes of pages whose lists are walked, about 0.4 s */
#define NO_DELAYED_FREE 2u     /* mi_delayed_t in the low bits of a list of other threads */
#define UNCERTAIN_PART 100u    /* live is known if less than 1/100 of it is uncertain */

/* Byte offsets in struct mi_segment_s and struct mi_page_s. All have at: slice_count 0,
 * slice_offset 4, capacity 10, reserved 12, free 16. */
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

/* Byte offsets in struct mi_page_s of mimalloc 3, whose memid takes the place of the heap. All have
 * at: free 8, capacity 18, reserved 20. Those with keys are of MI_SECURE and debug builds. */
static const struct layout layouts3[] = {
	{ "3.0-3.3", 0, 0, 120, true, 16, 40, 24, 0, 32, 96, false },
	{ "3.4", 0, 0, 112, true, 16, 40, 24, 0, 32, 88, false },
	{ "3.0-3.3", 0, 0, 136, true, 16, 40, 24, 64, 32, 112, false },
	{ "3.4", 0, 0, 128, true, 16, 40, 24, 56, 32, 104, false },
};
#define LAYOUTS3 (sizeof(layouts3) / sizeof(*layouts3))
#define MEMID 24u /* struct mi_memid_s; memkind at 16 */
#define MEM_OS 4u /* MI_MEM_OS to MI_MEM_OS_REMAP: a mapping of its own */
#define MEM_OS_LAST 6u
#define MEM_ARENA 7u

/* Byte offsets in struct mi_arena_s, and of the list of arenas in struct mi_subproc_s. All have
 * subproc at 24, and the bitmap of committed slices after that of free ones. */
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
	struct host_reading *r;
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

/* Whether all of [addr, addr + size) is private memory without a file, mapped or reserved. */
static bool is_reserved(const struct maps *maps, uint64_t addr, uint64_t size)
{
	const struct map *m = maps__find(maps, addr), *last = maps->v + maps->n;
	uint64_t end = addr + size;

	if (!m || end < addr)
		return false;
	for (uint64_t at = m->start; m < last && m->start == at; at = m->end, m++) {
		if (m->inode || m->shared || m->x)
			return false;
		if (m->end >= end)
			return true;
	}
	return false;
}

/* Whether a list's first block, or none, lies in the page. */
static bool is_in_page(const struct page *p, uint64_t block)
{
	return !block || (block >= p->start && block - p->start < p->bytes);
}

/* Parses e, the description of a page that begins at index. left: slices up to the segment's end.
 * Returns false if it does not verify. */
static bool parse_page(const struct search *s, const struct layout *l, const uint8_t *e,
		       uint64_t left, struct page *p)
{
	uint64_t heap = proc__word(e + l->heap);
	uint32_t count = word32(e);
	uint16_t reserved = word16(e + 12);

	if (!count || count > left || word32(e + 4))
		return false;
	p->bytes = (uint64_t)count * SLICE;
	p->used = l->wide ? word16(e + l->used) : word32(e + l->used);
	p->block = l->wide ? proc__word(e + l->block) : word32(e + l->block);
	p->capacity = word16(e + 10);
	p->others = proc__word(e + l->others);
	p->block = p->block == 1 ? 0 : p->block; /* a span of a segment that was freed */
	if (!p->block)
		return true;
	if (!l->wide && p->block == HUGE_BLOCK)
		p->block = p->bytes;
	if (l->keys) {
		p->key[0] = proc__word(e + l->keys);
		p->key[1] = proc__word(e + l->keys + 8);
	}
	if (!p->used && !p->capacity)
		return true; /* about to be initialized */
	return p->block >= 8 && p->block % 8 == 0 && p->used <= p->capacity &&
	       p->capacity <= reserved && p->block <= p->bytes / reserved &&
	       is_in_page(p, proc__word(e + 16)) && is_in_page(p, proc__word(e + l->local)) &&
	       is_in_page(p, p->others & ~UINT64_C(3)) &&
	       (!heap || maps__find(&s->r->maps.maps, heap));
}

/* Whether the header of the copy can be that of a segment at addr. */
static bool parse_header(const struct search *s, const struct layout *l, uint64_t addr,
			 uint64_t *slices, uint64_t *entries, uint64_t *info)
{
	const uint8_t *h = s->copy + l->slices;
	uint64_t kind = word32(h - 24);

	*slices = proc__word(h - 40);
	*info = proc__word(h - 32);
	*entries = proc__word(h - 16);
	if (kind > 1 || !*info || *info > INFO_MAX || *info >= *slices || *slices > HUGE_SLICES ||
	    (!kind && *slices != SLICES) || word32(h) != *info || word32(h + 4))
		return false;
	/* MI_SECURE does not use the last slice. */
	if (*entries != SLICES && *entries != *slices && *entries + 1 != *slices)
		return false;
	return *entries > *info && *entries <= SLICES &&
	       is_reserved(&s->r->maps.maps, addr, *slices * SLICE);
}

/* Parses the copy of a segment at addr. Returns 1 and fills s->segment; 0: this is no segment of
 * this layout; -1: it looks like one, but its pages do not verify. */
static int parse_segment(struct search *s, const struct layout *l, uint64_t addr)
{
	struct segment *g = &s->segment;
	uint64_t slices, entries, info, in_use = 0, i;

	if (!parse_header(s, l, addr, &slices, &entries, &info))
		return 0;
	*g = (struct segment){
		.layout = l, .addr = addr, .bytes = slices * SLICE, .info = info * SLICE
	};
	for (i = info; i < entries;) {
		const uint8_t *e = s->copy + l->slices + i * l->slice;
		struct page *p = &g->page[g->n];

		*p = (struct page){ .start = addr + i * SLICE,
				    .at = addr + (uint64_t)(e - s->copy) };
		if (!parse_page(s, l, e, slices - i, p))
			return -1;
		in_use += p->block != 0;
		g->used = g->used || p->used;
		if (p->block && !g->heap)
			g->heap = proc__word(e + l->heap);
		g->n++;
		i += p->bytes / SLICE;
	}
	/* A huge page may end after the last slice that has a description. */
	if (i > entries && (slices == SLICES || g->n > 1))
		return -1;
	return in_use == proc__word(s->copy + l->pages) ? 1 : -1;
}

/* Reads what may be a segment at addr. Returns 1 and fills s->segment; 0: it is none; or an error
 * that ends the reading. used: of segments without pages in use, which several layouts can match,
 * take only those with the layout of another segment. */
static int read_segment(struct search *s, uint64_t addr, bool used)
{
	for (int i = 0; i < READINGS; i++) {
		int err = host_places__read_resident(s->r, addr, s->copy, sizeof(s->copy));
		bool changed = false;

		if (err)
			return host_places__is_local(err) ? 0 : err;
		for (size_t k = 0; k < LAYOUTS; k++) {
			int parsed = 0;

			if (used || s->known[k])
				parsed = parse_segment(s, &layouts[k], addr);
			if (parsed > 0)
				return s->segment.used == used;
			changed = changed || parsed < 0;
		}
		if (!changed)
			return 0;
	}
	s->bad = s->bad || used;
	return 0;
}

/* ---- lists of blocks that other threads freed ---- */

/* The block after the one that begins with the word `next` in its list. The list of an encoded page
 * ends with the page's own address. */
static uint64_t decode(const struct page *p, uint64_t next)
{
	uint64_t x = next - p->key[0], by = p->key[0] & 63;

	if (!p->key[0] && !p->key[1])
		return next;
	x = by ? x >> by | x << (64 - by) : x;
	x ^= p->key[1];
	return x == p->at ? 0 : x;
}

/* Counts the blocks in a page's list of other threads. area: copy of its memory. False: the list
 * leads out of the page, or is longer than the page. */
static bool count_list(const struct page *p, const uint8_t *area, uint64_t *ret)
{
	uint64_t block = p->others & ~UINT64_C(3), n = 0;

	while (block) {
		uint64_t at = block - p->start;

		if (block < p->start || at > p->bytes - 8 || ++n > p->used)
			return false;
		block = decode(p, proc__word(area + at));
	}
	*ret = n;
	return true;
}

/*
 * Takes the blocks that other threads freed off the page's used blocks, until the page's own thread
 * does so. A flag in the list tells that one more block waits in a list of the heap. Adds the page
 * to *uncertain if its list changes meanwhile. 0 or an error that ends the reading.
 */
static int take_freed(struct search *s, const struct layout *l, struct page *p, uint64_t *uncertain)
{
	bool counted = !(p->others & ~UINT64_C(3));
	uint8_t e[DESCRIBED_PAGE];
	uint64_t freed = 0;
	int err = 0;

	if (!counted && p->capacity == 1) /* a large block has a page of its own */
		freed = counted = true;
	for (int i = 0; i < READINGS && !counted && !err; i++) {
		uint64_t others = p->others;

		if (p->bytes > PAGE_MAX || s->lists > LISTS_MAX)
			break;
		s->lists += p->bytes;
		err = host_places__read_resident(s->r, p->start, s->area, p->bytes);
		if (!err)
			err = proc__read(s->r->proc, p->at, e, l->slice);
		if (err)
			break;
		p->others = proc__word(e + l->others);
		p->used = l->wide ? word16(e + l->used) : word32(e + l->used);
		p->used = p->used < p->capacity ? p->used : p->capacity;
		counted = p->others == others && count_list(p, s->area, &freed);
	}
	freed += (p->others & 3) == NO_DELAYED_FREE;
	*uncertain += counted ? 0 : p->used * p->block;
	p->used -= freed < p->used ? freed : p->used;
	return host_places__is_local(err) ? 0 : err;
}

/* ---- sums ---- */

static int add_range(void *ctx, uint64_t start, uint64_t end)
{
	struct search *s = ctx;

	if (array__grow(&s->resident, &s->cap_resident, s->n_resident + 1, sizeof(*s->resident)))
		return -ENOMEM;
	s->resident[s->n_resident++] = (struct resident_range){ start, end };
	return 0;
}

ARRAY_UP_TO(ranges_up_to, struct resident_range, end)

/* Resident bytes of [start, end), as far as s has the resident ranges. */
static uint64_t resident_in(const struct search *s, uint64_t start, uint64_t end)
{
	size_t i = ranges_up_to(s->resident, s->n_resident, start);
	uint64_t sum = 0;

	for (; i < s->n_resident && s->resident[i].start < end; i++) {
		struct span v = { s->resident[i].start, s->resident[i].end, 0 };

		sum += span__bytes_in(&v, start, end);
	}
	return sum;
}

/* Adds the first `bytes` resident bytes of a page to the second figure of malloc. Their number is
 * known, but not where the free blocks lie. */
static int add_free(struct search *s, const struct page *p, uint64_t bytes)
{
	size_t i = ranges_up_to(s->resident, s->n_resident, p->start);
	uint64_t end = p->start + p->bytes;
	int err = 0;

	for (; i < s->n_resident && bytes && !err && s->resident[i].start < end; i++) {
		uint64_t from = s->resident[i].start > p->start ? s->resident[i].start : p->start;
		uint64_t to = s->resident[i].end < end ? s->resident[i].end : end;

		to = to - from > bytes ? from + bytes : to;
		err = host_spans__add(&s->r->second, from, to - from, HOST_MALLOC);
		bytes -= to - from;
	}
	return err;
}

/* Adds a page or a span. second: its free memory is a second figure of malloc. The resident ranges
 * of s have to include the page's. */
static int add_page(struct search *s, const struct layout *l, struct page *p, struct sums *to,
		    bool second)
{
	uint64_t resident = resident_in(s, p->start, p->start + p->bytes), used, left;
	int err = 0;

	if (p->block && p->used && !s->r->o->brief)
		err = take_freed(s, l, p, &to->uncertain);
	used = p->block ? p->block * p->used : 0;
	left = resident > used ? resident - used : 0;
	to->blocks += p->block ? p->used : 0;
	to->live += used;
	*(used ? &to->free_blocks : &to->purgeable) += left;
	if (!err && second)
		err = add_free(s, p, left);
	return err;
}

/* The mapping of the file that has the data at addr, also in its zeroed data. SIZE_MAX: none. */
static size_t file_of(const struct maps *maps, uint64_t addr)
{
	const struct map *m = maps__find(maps, addr);

	if (m && !m->inode && m > maps->v && m[-1].end == m->start)
		m--;
	return m && m->inode ? (size_t)(m - maps->v) : SIZE_MAX;
}

static int add_segment(struct search *s)
{
	struct host_reading *r = s->r;
	struct segment *g = &s->segment;
	size_t file = file_of(&r->maps.maps, g->heap);
	bool python = r->python &&
		      (g->layout->python || (file != SIZE_MAX && !strcmp(r->maps.maps.v[file].path,
									 python__file(r->python))));
	struct sums *to = &s->sums[python ? PYTHON : MALLOC];
	int err;

	s->n_resident = 0;
	err = host_resident__walk(r->resident, g->addr, g->addr + SEGMENT, add_range, s);
	if (err)
		return err;
	to->layout = to->layout ? to->layout : g->layout;
	to->map = to->map == SIZE_MAX ? file : to->map;
	to->segments++;
	to->bytes += g->bytes;
	to->tables += resident_in(s, g->addr, g->addr + g->info);
	for (size_t i = 0; i < g->n && !err; i++)
		err = add_page(s, g->layout, &g->page[i], to, !python);
	if (err)
		return err;
	return host_spans__add(&r->claims, g->addr, g->bytes, python ? HOST_PYTHON : HOST_MALLOC);
}

/* ---- all segments ---- */

/* Adds the segments that begin in m. tries: addresses looked at so far. used: as in search_maps().
 * 0 or -errno. */
static int search_map(struct search *s, const struct map *m, size_t *tries, bool used)
{
	uint64_t at = (m->start + SEGMENT - 1) & ~(uint64_t)(SEGMENT - 1);
	int err = 0;

	while (at >= m->start && at < m->end && err >= 0 && ++*tries < CANDIDATES) {
		uint64_t size = SEGMENT;

		err = read_segment(s, at, used);
		if (err > 0) {
			size = s->segment.bytes;
			s->known[s->segment.layout - layouts] = true;
			err = add_segment(s);
		}
		at += (size + SEGMENT - 1) & ~(uint64_t)(SEGMENT - 1);
	}
	return err;
}

/* Adds the segments in all mappings. used: those with pages in use; otherwise those without. 0 or
 * -errno. */
static int search_maps(struct search *s, bool used)
{
	const struct host_smaps *maps = &s->r->maps;
	size_t tries = 0;
	int err = 0;

	for (size_t i = 0; i < maps->maps.n && !err; i++)
		if (maps->v[i].rss && host_places__is_anonymous(&maps->maps.v[i]))
			err = search_map(s, &maps->maps.v[i], &tries, used);
	s->bad = s->bad || tries >= CANDIDATES;
	return err;
}

static bool is_library(const char *name)
{
	return !strncmp(name, "libmimalloc", 11);
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

static bool is_free(const struct arena *a, uint64_t slice)
{
	return a->free[slice / 8] >> slice % 8 & 1;
}

/* Reads the bitmap of free slices. The bitmap of committed ones follows it, so that the distance
 * tells the size of its header. -ENOENT: it does not verify. The caller frees a->free. */
static int read_free(const struct search *s, struct arena *a, uint64_t free_at, uint64_t committed)
{
	uint64_t chunks = (a->slices + CHUNK_BITS - 1) / CHUNK_BITS, n;
	uint64_t header = committed - free_at - chunks * CHUNK;
	int err;

	if (free_at <= a->addr || free_at - a->addr > a->info * SLICE ||
	    (header != 384 && header != 448 && header != 640) ||
	    proc__read_u64(s->r->proc, free_at, &n) || n != chunks)
		return -ENOENT;
	a->free = malloc(chunks * CHUNK);
	if (!a->free)
		return -ENOMEM;
	err = host_places__read_resident(s->r, free_at + header, a->free, chunks * CHUNK);
	if (err) {
		free(a->free);
		a->free = NULL;
	}
	return err;
}

/* Whether the process's list has the arena. h: copy of its header. */
static bool is_listed(const struct search *s, const struct arena_layout *l, const uint8_t *h,
		      uint64_t addr, uint64_t list[ARENAS])
{
	uint64_t subproc = proc__word(h + 24);

	if (!maps__find(&s->r->maps.maps, subproc) ||
	    proc__read(s->r->proc, subproc + l->arenas, list, ARENAS * 8))
		return false;
	for (size_t i = 0; i < ARENAS; i++)
		if (list[i] == addr)
			return true;
	return false;
}

/* Reads the header of an arena. list: the process's list of arenas. -ENOENT: no arena. */
static int read_arena(const struct search *s, const struct arena_layout *l, uint64_t addr,
		      struct arena *a, uint64_t list[ARENAS], size_t *file)
{
	uint8_t h[ARENA];
	int err = host_places__read_resident(s->r, addr, h, sizeof(h));

	if (err)
		return err;
	*a = (struct arena){ .addr = addr,
			     .slices = proc__word(h + l->slices),
			     .info = proc__word(h + l->info),
			     .meta = l->meta ? proc__word(h + l->meta) : 0 };
	if (!a->info || a->info >= a->slices || a->slices > ARENA_SLICES ||
	    !is_reserved(&s->r->maps.maps, addr, a->slices * SLICE) ||
	    !is_listed(s, l, h, addr, list))
		return -ENOENT;
	if (a->meta && (a->meta < addr || a->meta - addr > a->info * SLICE))
		return -ENOENT;
	*file = file_of(&s->r->maps.maps, proc__word(h + 24));
	return read_free(s, a, proc__word(h + l->free), proc__word(h + l->free + 8));
}

/* Parses e, the description of a page of mimalloc 3 with p->bytes at p->start. */
static bool parse_page3(const struct layout *l, const uint8_t *e, struct page *p)
{
	uint64_t reserved = word16(e + 20);

	p->used = word16(e + l->used);
	p->capacity = word16(e + 18);
	p->block = proc__word(e + l->block);
	p->others = proc__word(e + l->others) & ~UINT64_C(1); /* the flag of an owner */
	if (l->keys) {
		p->key[0] = proc__word(e + l->keys);
		p->key[1] = proc__word(e + l->keys + 8);
	}
	return p->block >= 8 && p->block % 8 == 0 && reserved && p->used <= p->capacity &&
	       p->capacity <= reserved && p->block <= p->bytes / reserved &&
	       is_in_page(p, proc__word(e + 8)) && is_in_page(p, proc__word(e + l->local)) &&
	       is_in_page(p, p->others);
}

/* Reads the page that begins at a slice. False: none does, or it does not verify. */
static bool read_page3(struct search *s, const struct layout *l, const struct arena *a,
		       uint64_t slice, struct page *p)
{
	uint64_t start = a->addr + slice * SLICE, count;
	uint64_t at = a->meta ? a->meta + slice * l->slice : start;
	uint8_t e[DESCRIBED_PAGE];
	const uint8_t *memid = e + l->heap;

	if (++s->tries > TRIES_MAX || host_places__read_resident(s->r, at, e, l->slice))
		return false;
	count = word32(memid + 12);
	if (word32(memid + 16) != MEM_ARENA || proc__word(memid) != a->addr ||
	    word32(memid + 8) != slice || !count || count > a->slices - slice)
		return false;
	*p = (struct page){ .start = start, .bytes = count * SLICE, .at = at };
	return parse_page3(l, e, p);
}

/* Adds a page or span with its resident memory. */
static int add_page3(struct search *s, const struct layout *l, struct page *p)
{
	int err;

	s->n_resident = 0;
	err = host_resident__walk(s->r->resident, p->start, p->start + p->bytes, add_range, s);
	return err ?: add_page(s, l, p, &s->sums[MALLOC], true);
}

/* Adds the resident bytes of a range to the tables. */
static int add_tables(struct search *s, uint64_t start, uint64_t bytes)
{
	uint64_t resident;
	int err = host_resident__count(s->r->resident, start, start + bytes, false, &resident);

	s->sums[MALLOC].tables += err ? 0 : resident;
	return err;
}

/* Adds the pages and free spans of an arena. Slices that are neither are tables. */
static int add_slices(struct search *s, const struct layout *l, const struct arena *a)
{
	int err = add_tables(s, a->addr, a->info * SLICE);

	for (uint64_t i = a->info, end; i < a->slices && !err; i = end) {
		struct page p = { .start = a->addr + i * SLICE };

		for (end = i; end < a->slices && is_free(a, end); end++)
			;
		p.bytes = (end - i) * SLICE;
		if (end == i && !read_page3(s, l, a, i, &p)) {
			err = add_tables(s, p.start, SLICE);
			end = i + 1;
			continue;
		}
		end = i + p.bytes / SLICE;
		err = add_page3(s, l, &p);
	}
	return err;
}

/* Returns the layout of the pages of an arena: the one that most pages have. */
static const struct layout *layout_of_pages(struct search *s, const struct arena *a)
{
	const struct layout *best = &layouts3[0];
	size_t most = 0;

	for (size_t k = 0; k < LAYOUTS3; k++) {
		size_t n = 0, tries = 0;

		for (uint64_t i = a->info; i < a->slices && tries < SLICES; i++) {
			struct page p;

			if (is_free(a, i))
				continue;
			tries++;
			if (read_page3(s, &layouts3[k], a, i, &p))
				n++;
		}
		best = n > most ? &layouts3[k] : best;
		most = n > most ? n : most;
	}
	return best;
}

/* Returns the end of the arena that addr lies in, or addr if it lies in none. */
static uint64_t after_arena(const struct search *s, uint64_t addr)
{
	for (size_t i = 0; i < s->n_arenas; i++)
		if (addr >= s->arena[i].start && addr < s->arena[i].end)
			return s->arena[i].end;
	return addr;
}

/* Adds the arena at addr. -ENOENT: it does not verify. */
static int add_arena(struct search *s, const struct arena_layout *l, uint64_t addr)
{
	struct sums *to = &s->sums[MALLOC];
	const struct layout *pages;
	uint64_t list[ARENAS];
	struct arena a = { 0 };
	size_t file;
	int err = 0;

	if (s->n_arenas == ARENAS || after_arena(s, addr) != addr)
		return -ENOENT; /* twice in the list */
	err = read_arena(s, l, addr, &a, list, &file);
	if (err)
		return err;
	pages = layout_of_pages(s, &a);
	to->layout = to->layout ? to->layout : pages;
	to->map = to->map == SIZE_MAX ? file : to->map;
	to->segments++;
	to->bytes += a.slices * SLICE;
	s->arena[s->n_arenas++] = (struct resident_range){ addr, addr + a.slices * SLICE };
	err = add_slices(s, pages, &a);
	free(a.free);
	return err ?: host_spans__add(&s->r->claims, addr, a.slices * SLICE, HOST_MALLOC);
}

/* Adds all arenas of the list if there is an arena at addr. -ENOENT: nothing there. */
static int try_arena(struct search *s, uint64_t addr)
{
	const struct arena_layout *l = arena_layouts;
	const struct arena_layout *last = l + sizeof(arena_layouts) / sizeof(*arena_layouts);
	uint64_t list[ARENAS];
	struct arena a = { 0 };
	size_t file;
	int err = -ENOENT;

	if (++s->tries > TRIES_MAX)
		return err;
	for (; l < last && host_places__is_local(err); l += host_places__is_local(err))
		err = read_arena(s, l, addr, &a, list, &file);
	if (err)
		return err;
	free(a.free);
	for (size_t i = 0; i < ARENAS && !err; i++) {
		if (list[i])
			err = add_arena(s, l, list[i]);
		s->bad = s->bad || host_places__is_local(err);
		err = host_places__is_local(err) ? 0 : err;
	}
	return err;
}

/* Tries the words of the data of mapping i as the address of an arena. */
static int search_data(struct search *s, size_t i)
{
	struct host_data d;
	int err = host_places__read_data(s->r, i, DATA_MAX, &d);

	if (err)
		return err;
	err = -ENOENT;
	for (size_t at = 0; at + 8 <= d.len && host_places__is_local(err); at += 8) {
		uint64_t addr = proc__word(d.v + at);

		if (addr && addr % SLICE == 0 &&
		    host_places__is_private_memory(&s->r->maps, addr, SLICE))
			err = try_arena(s, addr);
	}
	free(d.v);
	return err;
}

/* Whether arenas and large blocks can be in a mapping. */
static bool is_large(const struct host_smaps *maps, size_t i)
{
	const struct map *m = &maps->maps.v[i];

	return maps->v[i].rss && m->end - m->start >= SEGMENT && host_places__is_anonymous(m);
}

static uint64_t first_slice(const struct map *m)
{
	return (m->start + SLICE - 1) & ~(uint64_t)(SLICE - 1);
}

/* Finds an arena, and adds all arenas. The data of the library and of the program, which may have
 * mimalloc in it, have the list of arenas. Otherwise an arena is at the start of a mapping. */
static int search_arenas(struct search *s)
{
	const struct host_smaps *maps = &s->r->maps;
	int err = -ENOENT;
	char exe[4096];

	proc__exe(s->r->proc, exe, sizeof(exe));
	for (size_t i = 0; i < maps->maps.n && host_places__is_local(err); i++) {
		const struct map *m = &maps->maps.v[i];

		if (m->w && !m->shared && m->inode &&
		    (!strcmp(m->path, exe) || is_library(map__base_name(m->path))))
			err = search_data(s, i);
	}
	for (size_t i = 0; i < maps->maps.n && host_places__is_local(err); i++) {
		uint64_t at = first_slice(&maps->maps.v[i]);

		if (!is_large(maps, i))
			continue;
		for (unsigned k = 0; k < 2 && host_places__is_local(err); k++)
			err = try_arena(s, at + k * SLICE);
	}
	return host_places__is_local(err) ? 0 : err;
}

/* Adds the page outside of arenas that begins at addr, which has one large block. *bytes: its size.
 * -ENOENT: nothing there. */
static int add_page_outside(struct search *s, const struct map *m, uint64_t addr, uint64_t *bytes)
{
	const struct layout *l = s->sums[MALLOC].layout;
	struct page p = { .start = addr, .at = addr };
	uint8_t e[DESCRIBED_PAGE];
	const uint8_t *memid = e + l->heap;
	int err = host_places__read_resident(s->r, addr, e, l->slice);
	uint64_t base, end;
	uint32_t kind;

	if (err)
		return err;
	kind = word32(memid + 16);
	base = proc__word(memid);
	end = base + proc__word(memid + 8);
	/* The mapping was larger, so that the page is aligned. */
	if (kind < MEM_OS || kind > MEM_OS_LAST || base > addr || addr - base >= SLICE ||
	    base < m->start || end <= addr || end > m->end || end % HOST_PAGE)
		return -ENOENT;
	p.bytes = end - addr;
	if (word16(e + 20) != 1 || !parse_page3(l, e, &p))
		return -ENOENT;
	*bytes = p.bytes;
	err = add_page3(s, l, &p);
	return err ?: host_spans__add(&s->r->claims, addr, p.bytes, HOST_MALLOC);
}

/* Adds the pages in mapping m that are outside of arenas. The kernel joins neighbours, and other
 * memory of a few slices may precede them. */
static int add_pages_outside(struct search *s, const struct map *m)
{
	uint64_t at = first_slice(m), bytes;
	int err;

	for (unsigned tries = 0; at < m->end && tries < TRIES_OUTSIDE; tries++) {
		bytes = SLICE;
		at = after_arena(s, at);
		if (at >= m->end)
			break;
		err = add_page_outside(s, m, at, &bytes);
		if (err && !host_places__is_local(err))
			return err;
		tries = err ? tries : 0;
		at = (at + bytes + SLICE - 1) & ~(uint64_t)(SLICE - 1);
	}
	return 0;
}

/* Adds all memory of mimalloc 3. */
static int search_3(struct search *s)
{
	const struct host_smaps *maps = &s->r->maps;
	int err = search_arenas(s);

	if (!s->sums[MALLOC].segments)
		return err;
	for (size_t i = 0; i < maps->maps.n && !err; i++)
		if (is_large(maps, i))
			err = add_pages_outside(s, &maps->maps.v[i]);
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

static void set_allocator(struct search *s)
{
	const struct sums *sum = &s->sums[MALLOC];
	struct host_reading *r = s->r;
	struct host_allocator *a = host_reading__add_allocator(
		r, "mimalloc", file_of_code(&r->maps.maps, sum->map));

	if (!a)
		return;
	a->known = !s->bad && s->tries <= TRIES_MAX;
	if (!a->known)
		return;
	snprintf(a->version, sizeof(a->version), "%s", sum->layout->version);
	a->arenas = sum->segments;
	a->free_known = !r->o->brief && !r->swap && sum->uncertain <= sum->live / UNCERTAIN_PART;
	a->live = sum->live;
	a->free_blocks = sum->free_blocks;
	a->purgeable = sum->purgeable;
	a->tables = sum->tables;
}

static void set_python(struct search *s)
{
	const struct sums *sum = &s->sums[PYTHON];
	struct host_python *p = &s->r->l->python;

	if (p->known) /* CPython's own arenas: mimalloc serves something else */
		return;
	p->known = !s->bad;
	p->arenas = sum->segments;
	p->arena = sum->bytes;
	p->used_known = p->known && !s->r->o->brief && !s->r->swap &&
			sum->uncertain <= sum->live / UNCERTAIN_PART;
	p->blocks = sum->blocks;
	p->used = sum->live;
}

/* Adds all memory of mimalloc 2. */
static int search_2(struct search *s)
{
	int err = search_maps(s, true);

	if (err || !(s->sums[MALLOC].segments + s->sums[PYTHON].segments))
		return err;
	/* The allocator keeps segments without pages in use, or freed them a moment ago. */
	return search_maps(s, false);
}

static int search_all(struct search *s)
{
	int err = search_2(s);

	if (err)
		return err;
	if (!s->sums[MALLOC].segments)
		err = search_3(s);
	if (err)
		return err;
	if (s->sums[MALLOC].segments)
		set_allocator(s);
	if (s->sums[PYTHON].segments)
		set_python(s);
	return 0;
}

int host_mimalloc__read(struct host_reading *r)
{
	struct search *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->r = r;
	for (size_t i = 0; i < OWNERS; i++)
		s->sums[i].map = SIZE_MAX;
	err = search_all(s);
	free(s->resident);
	free(s);
	return err;
}
