/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the reader of tcmalloc's tables on damaged memory. A process is built here: the
 * library's data with its tables, a heap of six spans, and memory with a leaf of the page map, the
 * spans and the caches of two threads. Pages have 256 KiB, so that tables are small. The input: see
 * pieces.h. Without damage the reader must know all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { LIBRARY, CODE, HEAP, TABLES, PIECES };

#include "pieces.h"

#define LIBRARY_PATH "/usr/lib/libtcmalloc_minimal.so.4"
#define SHIFT 18u
#define PAGE (UINT64_C(1) << SHIFT)
#define LEAF_LENGTH (1u << 15)
#define HEAP_PAGES 16u

static struct piece pieces[PIECES] = {
	[LIBRARY] = { LIBRARY_PATH, 0x7f0000000000, 352 * KIB, false, NULL },
	[CODE] = { LIBRARY_PATH, 0x7f0000100000, 4 * KIB, true, NULL },
	[HEAP] = { "", 0x7d0000000000, HEAP_PAGES *PAGE, false, NULL }, /* not read */
	[TABLES] = { "", 0x7e0000000000, 288 * KIB, false, NULL },
};

/* ---- the process ---- */

/* Offsets in LIBRARY. */
#define ROOT 0x1000u
#define FUNCTION (ROOT + 8 * LEAF_LENGTH)
#define HEADS (FUNCTION + 8 + 2 * 48)
#define N_HEADS 8u
#define STATS (HEADS + N_HEADS * 48)
#define SIZES 0x44000u
#define CENTRAL 0x46000u
#define CENTRAL_BYTES 1216u
#define CACHES 0x50000u
/* Offsets in TABLES; the leaf is at 0. */
#define SPANS (8 * LEAF_LENGTH)
#define TRACE (SPANS + 0x800) /* StackTrace of the first span */
#define CACHE (SPANS + 0x1000)
#define NEXT_CACHE 4160u /* from the first to the second */
#define LINK 4144u	 /* ThreadCache::next_ */

#define CLASSES 17u /* of 0, 8, 16, ... 256 KiB */
#define SMALL 8u    /* the class that has spans: 1 KiB */

static uint64_t size_of(unsigned size_class)
{
	return size_class ? UINT64_C(8) << (size_class - 1) : 0;
}

static void put_head(uint64_t at)
{
	put(LIBRARY, at + 16, pieces[LIBRARY].addr + at);
	put(LIBRARY, at + 24, pieces[LIBRARY].addr + at);
}

/* Adds the next span of the heap: *page on. location: 0 in use, 1 free, 2 returned. */
static void put_span(unsigned i, uint64_t *page, uint64_t length, unsigned size_class,
		     unsigned location)
{
	uint64_t at = SPANS + 48 * i, first = pieces[HEAP].addr >> SHIFT;

	put(TABLES, at, first + *page);
	put(TABLES, at + 8, length);
	put4(TABLES, at + 40, size_class << 16 | location << 24);
	for (uint64_t k = 0; k < length; k++)
		if (!k || k + 1 == length || size_class)
			put(TABLES, 8 * ((first + *page + k) % LEAF_LENGTH),
			    pieces[TABLES].addr + at);
	*page += length;
}

static void put_cache(uint64_t at, unsigned objects, uint64_t next, uint64_t before)
{
	for (unsigned i = 0; i < CLASSES; i++)
		put4(TABLES, at + 32 * i + 24, (uint32_t)size_of(i));
	put4(TABLES, at + 32 * SMALL + 8, objects);
	put(TABLES, at + LINK, next);
	put(TABLES, at + LINK + 8, before);
}

static void put_tables(void)
{
	uint64_t tables = pieces[TABLES].addr, page = 0;

	put(LIBRARY, ROOT + 8 * ((pieces[HEAP].addr >> SHIFT) / LEAF_LENGTH), tables);
	put(LIBRARY, FUNCTION, pieces[CODE].addr + 0x100);
	for (unsigned i = 0; i < N_HEADS; i++)
		put_head(HEADS + 48 * i);
	put_span(0, &page, 2, 0, 0);
	put4(TABLES, SPANS + 40, 1u << 26); /* the sampler chose it */
	put(TABLES, SPANS + 32, tables + TRACE);
	put(TABLES, TRACE, PAGE + 5);
	put(TABLES, TRACE + 8, 2);
	put(TABLES, TRACE + 16, pieces[CODE].addr + 0x10);
	put(TABLES, TRACE + 24, pieces[CODE].addr + 0x20);
	put_span(1, &page, 1, SMALL, 0);
	put_span(2, &page, 3, 0, 1);
	put_span(3, &page, 1, SMALL, 0);
	put_span(4, &page, 4, 0, 2);
	put_span(5, &page, 1, 0, 0);
	put(LIBRARY, STATS, page * PAGE);
	put(LIBRARY, STATS + 8, 3 * PAGE);
	put(LIBRARY, STATS + 16, 4 * PAGE);
	for (unsigned i = 0; i < CLASSES; i++) {
		uint64_t at = CENTRAL + CENTRAL_BYTES * i;

		put4(LIBRARY, SIZES - 512 + 4 * i, i ? 32 : 0);
		put4(LIBRARY, SIZES + 4 * i, (uint32_t)size_of(i));
		put(LIBRARY, SIZES + 512 + 8 * i, i != 0);
		put(LIBRARY, at + 8, i);
		put_head(at + 16);
		put_head(at + 64);
		put4(LIBRARY, at + 1160, 64);
	}
	put(LIBRARY, CENTRAL + CENTRAL_BYTES * SMALL + 112, 2);	  /* spans */
	put(LIBRARY, CENTRAL + CENTRAL_BYTES * SMALL + 120, 100); /* free objects */
	put4(LIBRARY, CENTRAL + CENTRAL_BYTES * SMALL + 1152, 1); /* of 32 objects */
	put(LIBRARY, CACHES, tables + CACHE);
	put_cache(CACHE, 5, tables + CACHE + NEXT_CACHE, 0);
	put_cache(CACHE + NEXT_CACHE, 7, 0, tables + CACHE);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const uint8_t flags;

	make_pieces(HEAP);
	put_tables();
	return LLVMFuzzerTestOneInput(&flags, 0);
}

/* ---- a run ---- */

/* Checks the process without damage. */
static void check_whole(const struct host_ledger *l, const struct host_samples *s)
{
	const struct host_allocator *a = &l->allocator[0];
	uint64_t free_blocks = (100 + 32 + 5 + 7) * size_of(SMALL);

	if (l->allocators != 1 || !a->known || !a->free_known || a->arenas != 2 ||
	    a->free_blocks != free_blocks || a->live != 5 * PAGE - free_blocks ||
	    a->purgeable != 3 * PAGE || a->retained != 4 * PAGE)
		abort();
	if (s->n != 1 || s->samples != 1 || s->v[0].calls != 2 || s->bytes < PAGE + 5 ||
	    s->v[0].call[1] != pieces[CODE].addr + 0x20)
		abort();
}

static void read_twice(struct host_reading *r, const uint8_t *data, size_t size, bool late)
{
	struct host_places places = { 0 };
	struct host_ledger l;

	r->places = &places;
	r->ledger = &l;
	for (int i = 0; i < 2; i++) { /* the second time the places are known */
		memset(&l, 0, sizeof(l));
		for (size_t k = 1; k + 8 <= size && i == late; k += 8)
			damage(data + k);
		r->opts->samples->period = 512 * KIB;
		if (host_tcmalloc__read(r))
			abort(); /* no error of a process that lives */
		host_samples__merge(r->opts->samples);
		if (host_spans__resolve(&r->claims) || host_spans__resolve(&r->second))
			abort();
		check_claims(r, HOST_MALLOC);
		check_allocator(r, "tcmalloc", UINT64_C(1) << 48);
		if (size <= 8)
			check_whole(&l, r->opts->samples);
		host_samples__free(r->opts->samples);
		r->claims.n = r->second.n = r->free_blocks = 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int order[] = { HEAP, TABLES, LIBRARY, CODE };
	struct host_samples samples = { 0 };
	struct host_opts o = { .samples = &samples };
	struct host_reading r = { .proc = self, .opts = &o };

	set_maps(&r, order);
	read_twice(&r, data, size, size && data[0] & 1);
	host_spans__free(&r.claims);
	host_spans__free(&r.second);
	undo_damage();
	return 0;
}
