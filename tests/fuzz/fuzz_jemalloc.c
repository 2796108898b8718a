/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the reader of jemalloc's tables on damaged memory. A process is built here: the
 * zeroed data of the library with the sizes of blocks and the root of the tree of extents, a block
 * for tables with the rest of the tree, headers and a thread's cache, and a heap of five extents.
 * The tree is that of jemalloc 5.3 for addresses of 57 bits, which has the smallest nodes. The
 * input: see pieces.h. Without damage the reader must know all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { LIBRARY, ZEROED, TABLES, HEAP, PIECES };

#include "pieces.h"

#define PAGE 4096u
#define LENGTH (1u << 15) /* words of a node */

static struct piece pieces[PIECES] = {
	[LIBRARY] = { "/usr/lib/libjemalloc.so.2", 0x7f0000000000, 4 * KIB, false, NULL },
	[ZEROED] = { "", 0x7f0000001000, 272 * KIB, false, NULL },
	[TABLES] = { "", 0x7d0000000000, 2048 * KIB, false, NULL },
	[HEAP] = { "", 0x7e0000000000, 64 * KIB, false, NULL }, /* not read */
};

/* ---- the process ---- */

/* Offsets in ZEROED. */
#define BINS 0x100u
#define ARENAS 0xf00u
#define ROOT 0x1000u
/* Offsets in TABLES. */
#define BASE 0xc0u
#define ARENA 0x1000u
#define CACHE 0x2000u
#define CACHE_BINS 0x2100u
#define STACK 0x4000u
#define NODE 0x10000u
#define LEAF (NODE + 8 * LENGTH)
#define HEADERS (LEAF + 16 * LENGTH)
#define USED (HEADERS + 0x1000)

#define N_BINS 36u
#define N_FREE 100u /* blocks of the slab, without the cached ones */
#define N_CACHED 3u

/* Sizes of small blocks, with the pages of their slabs. */
static void put_bins(void)
{
	for (uint32_t i = 0; i < N_BINS; i++) {
		uint32_t size = 8 + 8 * i, pages = 1, n, at = BINS + 40 * i;

		while (pages * PAGE % size)
			pages++;
		n = pages * PAGE / size;
		if (n > 512) /* not with these sizes */
			abort();
		put(ZEROED, at, size);
		put(ZEROED, at + 8, pages * PAGE);
		put4(ZEROED, at + 16, n);
		put4(ZEROED, at + 20, 1);
		put(ZEROED, at + 24, n);
		put(ZEROED, at + 32, (n + 63) / 64);
	}
}

/* Adds the next extent of the heap, *page on. */
static void put_extent(unsigned i, uint64_t *page, uint64_t pages, unsigned state, unsigned szind,
		       bool slab, unsigned nfree)
{
	uint64_t at = HEADERS + 128 * i;

	put(TABLES, at,
	    (uint64_t)slab << 12 | (uint64_t)state << 17 | (uint64_t)szind << 20 |
		    (uint64_t)nfree << 28);
	put(TABLES, at + 8, pieces[HEAP].addr + *page * PAGE);
	put(TABLES, at + 16, pages * PAGE);
	for (unsigned k = 0; k < nfree; k++)
		pieces[TABLES].v[at + 64 + k / 8] |= (uint8_t)(1u << k % 8);
	for (uint64_t k = 0; k<pages; k += pages> 1 ? pages - 1 : 1) {
		uint64_t leaf = LEAF + 16 * ((pieces[HEAP].addr / PAGE + *page + k) % LENGTH);

		put(TABLES, leaf, pieces[TABLES].addr + at);
		put(TABLES, leaf + 8, slab | state << 2 | szind << 5);
	}
	*page += pages;
}

static void put_tables(void)
{
	uint64_t tables = pieces[TABLES].addr, heap = pieces[HEAP].addr, page = 0, top;

	put_bins();
	put(ZEROED, ARENAS, tables + ARENA);
	put(ZEROED, ROOT + 8 * (heap >> 42), tables + NODE);
	put(TABLES, NODE + 8 * ((heap >> 27) % LENGTH), tables + LEAF);
	put(TABLES, 0, pieces[TABLES].size);
	put(TABLES, 24, tables + USED);
	put(TABLES, 32, pieces[TABLES].size - USED);
	put(TABLES, BASE + 64, tables);
	put(TABLES, ARENA + 0x80, tables + CACHE);
	put(TABLES, CACHE, tables + CACHE);
	put(TABLES, CACHE + 8, tables + CACHE);
	put(TABLES, CACHE + 16, tables + CACHE_BINS);
	put(TABLES, CACHE + 24, tables + ARENA);
	top = tables + STACK;
	put(TABLES, CACHE_BINS, top);
	put(TABLES, CACHE_BINS + 16, (top + 8 * N_CACHED) % 65536 << 32);
	for (unsigned i = 0; i < N_CACHED; i++)
		put(TABLES, STACK + 8 * i, heap + 8 * (N_FREE + 10 + i));
	put_extent(0, &page, 1, 0, 0, true, N_FREE);
	put_extent(1, &page, 5, 0, N_BINS, false, 0);
	put_extent(2, &page, 2, 1, 232, true, 0); /* the flag of a slab stays after it */
	put_extent(3, &page, 1, 2, 232, false, 0);
	put_extent(4, &page, 4, 3, 232, false, 0);
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
static void check_whole(const struct host_ledger *l)
{
	const struct host_allocator *a = &l->allocator[0];
	uint64_t free_blocks = 8 * (N_FREE + N_CACHED);

	if (l->allocators != 1 || !a->known || !a->free_known || a->arenas != 1 ||
	    a->free_blocks != free_blocks || a->live != PAGE + 4 * PAGE - free_blocks ||
	    a->purgeable != 2 * PAGE || a->muzzy != PAGE || a->retained != 4 * PAGE ||
	    a->tables != USED + PAGE || strcmp(a->version, "5.3"))
		abort();
}

static void read_twice(struct host_reading *r, const uint8_t *data, size_t size, bool late)
{
	struct host_places places = { 0 };
	struct host_ledger l;

	r->places = &places;
	r->ledger = &l;
	for (int i = 0; i < 2; i++) {
		memset(&l, 0, sizeof(l));
		for (size_t k = 1; k + 8 <= size && i == late; k += 8)
			damage(data + k);
		if (host_jemalloc__read(r))
			abort(); /* no error of a process that lives */
		if (host_spans__resolve(&r->claims) || host_spans__resolve(&r->second))
			abort();
		check_claims(r, HOST_MALLOC);
		check_allocator(r, "jemalloc", UINT64_C(1) << 58);
		if (size <= 8)
			check_whole(&l);
		r->claims.n = r->second.n = 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int order[] = { TABLES, HEAP, LIBRARY, ZEROED };
	struct host_opts o = { 0 };
	struct host_reading r = { .proc = self, .opts = &o };

	set_maps(&r, order);
	read_twice(&r, data, size, size && data[0] & 1);
	host_spans__free(&r.claims);
	host_spans__free(&r.second);
	undo_damage();
	return 0;
}
