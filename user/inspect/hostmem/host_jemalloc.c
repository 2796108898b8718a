/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * jemalloc 5.2 and later, from outside, as a library of its own or linked into a program. No symbol
 * is needed: all of its tables are found by their structure, in the zeroed data of a mapped file.
 *
 * - bin_infos: sizes of small blocks and of their slabs (jemalloc/internal: bin_info).
 * - The radix tree of extents (rtree): pages' addresses lead to an extent's header (edata; in 5.2
 *   extent_structs). A header repeats the address, which verifies the whole path to it.
 * - Blocks of memory for tables (base): a header at a multiple of 2 MiB.
 * - Caches of threads (cache_bin), by the list in each arena.
 *
 * Layouts: jemalloc 5.2.1, 5.3.0, 5.3.1 and dev of May 2026, pages of 4 KiB, addresses of 48 or 57
 * bits (LG_VADDR: what the machine has on which jemalloc was built).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

#define DATA_MIN (256u << 10) /* bytes of the smallest root of a tree */
#define DATA_MAX (16u << 20)  /* bytes of a file's zeroed data that are searched */
#define PAGE_MASK (~(uint64_t)(HOST_PAGE - 1))
#define READINGS 3 /* attempts while the process changes its tables */

/* A radix tree from addresses of pages to extents (rtree_levels). */
struct tree_shape {
	unsigned levels;
	unsigned bits; /* bits of an address that a level decides on */
	bool wide;     /* leaves have two words for each page */
};

static const struct tree_shape shapes[] = {
	{ 2, 18, false }, /* addresses of 48 bits */
	{ 3, 15, true },  /* addresses of 57 bits */
};

/* Fields of an extent's header that versions place differently. They are bits of its first word:
 * arena in bits 0 to 11, slab in bit 12, state, size class (8 bits), free blocks (10 bits). */
struct header_layout {
	const char *version;
	unsigned state, state_bits, szind, nfree;
	unsigned leaf_flags;	 /* bits of a leaf's word below the header's address */
	uint64_t arena_of_cache; /* offset of the arena's address from a cache's descriptor */
};

static const struct header_layout layouts[] = {
	{ "5.3", 17, 3, 20, 28, 7, 24 },
	{ "5.2", 16, 2, 18, 26, 6, 32 },
};

enum extent_state { ACTIVE, DIRTY, MUZZY, RETAINED }; /* higher: changing */

#define HEADER_BYTES 128u /* an extent's header; ends with a slab's bitmap */
#define BITMAP 64u
#define EXTENT_ADDR 8u /* offsets in the header: address and size, with flags in their low bits */
#define EXTENT_SIZE 16u
#define SZIND_BITS 8u
#define NFREE_BITS 10u
#define SLAB_BIT (1u << 12)
#define MAX_REGIONS 512u /* blocks in a slab */
#define MAX_BINS 64u
#define MIN_BINS 20u
#define BIN_BYTES 40u
#define MAX_SHARDS 64u
#define MAX_ARENAS 4096u
#define PAGE_BITS 12u	   /* log2 of HOST_PAGE */
#define DOUBLINGS 40u	   /* of sizes above the bins' */
#define TABLE_ALIGN 64u	   /* nodes and arenas begin at multiples */
#define MAX_IN_CACHE 8192u /* blocks in a bin of a cache */

/* Small blocks of one size. */
struct bin {
	uint64_t size, slab; /* bytes of a block, of a slab */
	uint32_t n;	     /* blocks in a slab */
};

#define CHUNK (16u << 10)	  /* piece of the tables that is read at once */
#define CHUNKS 4096u		  /* pieces that are kept */
#define MAX_LOADS (1u << 18)	  /* pieces that one reading reads */
#define MAX_NODES 16384u	  /* nodes of the tree */
#define MAX_EXTENTS (64u << 20)	  /* in the tree */
#define BLOCK (UINT64_C(2) << 20) /* blocks for tables begin at multiples (LG_HUGEPAGE) */
#define BLOCK_HEADER 144u	  /* size, next, header of an extent */
#define MAX_STARTS 16384u	  /* addresses that may be such a beginning */
#define MAX_BEFORE 16u		  /* blocks below an address that are tried, nearest first */

/* A piece of the allocator's tables. */
struct chunk {
	uint64_t addr; /* 0: none */
	uint8_t v[CHUNK];
};

/* A block of memory for tables. */
struct block {
	uint64_t start, end, next; /* next: an older block of the same arena; 0: none */
	uint64_t used;		   /* end of the part that is in use */
};

/* One jemalloc of the process. */
struct jemalloc {
	struct host_reading *reading;
	const struct tree_shape *shape;
	const struct header_layout *layout;
	struct host_data data; /* its file's zeroed data; borrowed */
	uint64_t root;	       /* address of the tree's root */
	struct bin bin[MAX_BINS];
	unsigned bins;
	struct chunk **chunks;	     /* by address */
	size_t loads, nodes, caches; /* numbers of what was read */
	/* Address, a multiple of BLOCK -> index + 1 in block of the block that begins there; 0: the
	 * address was looked at, and none begins there. */
	struct map64 *starts;
	struct block *block; /* blocks of memory for tables */
	size_t n_blocks, cap_blocks;
	struct host_allocator sum;
	uint64_t *cached; /* addresses of blocks in threads' caches, ascending */
	size_t n_cached, cap_cached, next_cached;
	uint64_t last;			  /* header of the last extent */
	uint64_t done;			  /* end of the last extent */
	size_t extents, bad;		  /* extents that were read; those that do not verify */
	size_t first_claim, first_second; /* in claims and second: first range of this jemalloc */
	bool arena_seen[MAX_ARENAS];
};

/* ---- sizes ---- */

/* Reads the entry of bin_infos at words: block and slab bytes, blocks in a slab, shards, and as a
 * part of bitmap_info the number of blocks and of the words of a bitmap. False: words is no entry. */
static bool read_bin(const uint8_t *words, struct bin *ret)
{
	uint32_t n[2];

	*ret = (struct bin){ .size = proc__word(words), .slab = proc__word(words + 8) };
	memcpy(n, words + 16, sizeof(n));
	ret->n = n[0];
	return ret->size >= 8 && ret->size % 8 == 0 && ret->n && ret->n <= MAX_REGIONS && n[1] &&
	       n[1] <= MAX_SHARDS && ret->slab % HOST_PAGE == 0 &&
	       ret->slab / ret->size == ret->n && ret->slab % ret->size == 0 &&
	       proc__word(words + 24) == ret->n && proc__word(words + 32) == (ret->n + 63) / 64;
}

/* Finds bin_infos in a file's data. Returns the number of bins; 0: not found. */
static unsigned find_bins(const struct host_data *data, struct bin *ret)
{
	for (size_t at = 0; at + MIN_BINS * BIN_BYTES <= data->len; at += 8) {
		unsigned n = 0;

		if (proc__word(data->v + at) != 8)
			continue;
		while (n < MAX_BINS && at + (n + 1) * BIN_BYTES <= data->len &&
		       read_bin(data->v + at + n * BIN_BYTES, &ret[n]) &&
		       (!n || ret[n].size > ret[n - 1].size))
			n++;
		if (n >= MIN_BINS)
			return n;
	}
	return 0;
}

/* Bytes of a block of a size class (sc): small ones have a bin, larger ones four classes for each
 * doubling. 0: there is no such class. */
static uint64_t class_bytes(const struct jemalloc *jemalloc, unsigned szind)
{
	unsigned k = szind - jemalloc->bins; /* among the larger classes */

	if (szind < jemalloc->bins)
		return jemalloc->bin[szind].size;
	return k / 4 < DOUBLINGS ? (UINT64_C(4) + k % 4) * HOST_PAGE << k / 4 : 0;
}

/* ---- reading the tables ---- */

/* True if len bytes at addr are private memory, where jemalloc's tables are. */
static bool may_be_table(const struct jemalloc *jemalloc, uint64_t addr, uint64_t len)
{
	return addr && host_places__is_private_memory(&jemalloc->reading->maps, addr, len);
}

/* Returns the piece of the process's memory that has addr. Pages that are not resident read as
 * zeros. NULL: it cannot be read; if *err is set, that ends the reading. */
static const struct chunk *chunk_at(struct jemalloc *jemalloc, uint64_t addr, int *err)
{
	uint64_t start = addr & ~(uint64_t)(CHUNK - 1);
	struct chunk **slot = &jemalloc->chunks[start / CHUNK % CHUNKS];

	if (*slot && (*slot)->addr == start)
		return *slot;
	if (!*slot)
		*slot = calloc(1, sizeof(**slot));
	if (!*slot || ++jemalloc->loads > MAX_LOADS) {
		*err = *slot ? -ENOENT : -ENOMEM;
		return NULL;
	}
	(*slot)->addr = 0;
	*err = host_places__read_resident(jemalloc->reading, start, (*slot)->v, CHUNK);
	if (*err) {
		*err = host_places__is_local(*err) ? 0 : *err;
		return NULL;
	}
	(*slot)->addr = start;
	return *slot;
}

/* Reads tables. Returns true, or false if they cannot be read; if *err is set, that ends the
 * reading. */
static bool read_table(struct jemalloc *jemalloc, uint64_t addr, void *buf, size_t len, int *err)
{
	uint8_t *to = buf;

	if (!may_be_table(jemalloc, addr, len))
		return false;
	while (len) {
		const struct chunk *c = chunk_at(jemalloc, addr, err);
		size_t n = CHUNK - addr % CHUNK;

		if (!c)
			return false;
		n = n < len ? n : len;
		memcpy(to, c->v + addr % CHUNK, n);
		addr += n;
		to += n;
		len -= n;
	}
	return true;
}

/* Returns the offset of the first word from `at` on that is not 0, or len. Most pages of large
 * tables are empty. */
static size_t next_word(const uint8_t *bytes, size_t at, size_t len)
{
	static const uint8_t empty[HOST_PAGE];

	while (at + 8 <= len) {
		bool whole = at % HOST_PAGE == 0 && at + HOST_PAGE <= len;

		if (whole && !memcmp(bytes + at, empty, HOST_PAGE)) {
			at += HOST_PAGE;
			continue;
		}
		if (proc__word(bytes + at))
			return at;
		at += 8;
	}
	return len;
}

/* ---- blocks of memory for tables ---- */

/* Reads the header of a block for tables: {size, next block, extent of the unused part}. The unused
 * part ends where the block ends. */
static bool read_block(struct jemalloc *jemalloc, uint64_t start, struct block *ret, int *err)
{
	uint64_t words[5], size, end; /* [3] and [4]: address and size of the unused part */

	if (!read_table(jemalloc, start, words, sizeof(words), err))
		return false;
	size = words[0];
	ret->start = start;
	ret->next = words[1];
	ret->used = words[3];
	return size && size % BLOCK == 0 && ret->next % BLOCK == 0 &&
	       !__builtin_add_overflow(start, size, &ret->end) &&
	       ret->used >= start + BLOCK_HEADER && ret->used <= ret->end &&
	       !__builtin_add_overflow(ret->used, words[4], &end) && end == ret->end;
}

/* Returns the block for tables that begins at start, or NULL. */
static const struct block *block_from(struct jemalloc *jemalloc, uint64_t start, int *err)
{
	struct block block;
	uint64_t no;

	if (map64__get(jemalloc->starts, start, &no))
		return no ? &jemalloc->block[no - 1] : NULL;
	if (map64__count(jemalloc->starts) >= MAX_STARTS)
		return NULL;
	no = 0;
	if (read_block(jemalloc, start, &block, err)) {
		*err = array__grow(&jemalloc->block, &jemalloc->cap_blocks, jemalloc->n_blocks + 1,
				   sizeof(block));
		if (*err)
			return NULL;
		jemalloc->block[jemalloc->n_blocks++] = block;
		no = jemalloc->n_blocks;
	}
	if (!*err)
		*err = map64__set(jemalloc->starts, start, no);
	return no && !*err ? &jemalloc->block[no - 1] : NULL;
}

/* Returns the block for tables that has the address. NULL: none was found. */
static const struct block *block_of(struct jemalloc *jemalloc, uint64_t addr, int *err)
{
	uint64_t start = addr & ~(BLOCK - 1);

	for (unsigned i = 0; i < MAX_BEFORE && start && !*err; i++, start -= BLOCK) {
		const struct block *b = block_from(jemalloc, start, err);

		if (b)
			return addr < b->end ? b : NULL;
		if (!may_be_table(jemalloc, start, 8))
			return NULL;
	}
	return NULL;
}

#define BASE_BYTES 512u /* a struct base_s has its list of blocks in its first bytes */

/* Finds all blocks: by the pointers to arenas in the file's data, then by the blocks' lists. The
 * oldest block of an arena has its struct base_s, which leads to the newest block. */
static int find_blocks(struct jemalloc *jemalloc)
{
	const uint8_t *bytes = jemalloc->data.v;
	size_t len = jemalloc->data.len;
	int err = 0;

	for (size_t at = next_word(bytes, 0, len); at < len && !err;
	     at = next_word(bytes, at + 8, len)) {
		uint64_t word = proc__word(bytes + at);

		if (word % 8 == 0 && may_be_table(jemalloc, word, 8))
			block_of(jemalloc, word, &err);
	}
	for (size_t i = 0; i < jemalloc->n_blocks && !err; i++) {
		struct block block = jemalloc->block[i];
		uint64_t word[BASE_BYTES / 8];

		if (block.next) {
			block_from(jemalloc, block.next, &err);
			continue;
		}
		if (!read_table(jemalloc, block.start + BLOCK_HEADER, word, sizeof(word), &err))
			continue;
		for (size_t at = 0; at < BASE_BYTES / 8 && !err; at++)
			if (word[at] && word[at] % BLOCK == 0)
				block_from(jemalloc, word[at], &err);
	}
	return err;
}

/* ---- the tree ---- */

/* A page of the tree's leaves. */
struct leaf {
	uint64_t page;	 /* address */
	uint64_t header; /* address of the header of the page's extent */
	unsigned szind;
	bool slab;
};

/* Gets called for each page that the tree has. 0, or what ends the walk. */
typedef int (*leaf_fn)(struct jemalloc *j, const struct leaf *l);

/* True for jemalloc 5.2, false for 5.3. */
static bool is_5_2(const struct jemalloc *jemalloc)
{
	return jemalloc->layout->state_bits == 2;
}

/* Decodes the words of a leaf's page (rtree_leaf_elm_s). A leaf with one word has the header's
 * address in its lower 48 bits, with flags in the lowest ones, and the size class above. A leaf
 * with two has the address in the first: in the second, 5.2 has the size class as 4 bytes and the
 * flag of a slab after it, 5.3 five flags below the size class. */
static struct leaf decode_leaf(const struct jemalloc *jemalloc, const uint8_t *words, uint64_t page)
{
	uint64_t v = proc__word(words);
	uint64_t more = jemalloc->shape->wide ? proc__word(words + 8) : 0;
	bool old = is_5_2(jemalloc);
	struct leaf leaf = { .page = page, .header = v, .szind = v >> 48, .slab = v & 1 };

	if (jemalloc->shape->wide) {
		leaf.szind = (uint32_t)more >> (old ? 0 : 5);
		leaf.slab = (old ? more >> 32 : more) & 1;
		return leaf;
	}
	/* The highest bit of an address is copied to those above it. */
	leaf.header = (uint64_t)((int64_t)(v << 16) >> 16) >>
		      jemalloc->layout->leaf_flags << jemalloc->layout->leaf_flags;
	return leaf;
}

/* Calls fn for each page with an extent in bytes, len bytes of a leaf of the tree. base: address of
 * the first page. 0 or the first error of fn. */
static int walk_leaf(struct jemalloc *jemalloc, const uint8_t *bytes, size_t len, uint64_t base,
		     leaf_fn fn)
{
	size_t step = jemalloc->shape->wide ? 16 : 8; /* bytes for each page */
	int err = 0;

	for (size_t at = next_word(bytes, 0, len); at < len && !err;
	     at = next_word(bytes, at, len)) {
		struct leaf leaf;

		at -= at % step;
		leaf = decode_leaf(jemalloc, bytes + at, base + at / step * HOST_PAGE);
		if (leaf.header) /* pages within a freed extent keep a size class alone */
			err = fn(jemalloc, &leaf);
		at += step;
	}
	return err;
}

/* Walks a node of the tree. level: from 0, the root. base: first address of the pages below the
 * node. v: a copy of the node; NULL: reads the node at addr. */
static int walk_node(struct jemalloc *jemalloc, unsigned level, uint64_t addr, uint64_t base,
		     const uint8_t *v, leaf_fn fn)
{
	bool leaf = level + 1 == jemalloc->shape->levels;
	unsigned below = (jemalloc->shape->levels - 1 - level) * jemalloc->shape->bits +
			 PAGE_BITS; /* bits of an address that lower levels decide on */
	size_t bytes = (leaf && jemalloc->shape->wide ? 16u : 8u) << jemalloc->shape->bits;
	uint8_t *copy = NULL;
	int err = 0;

	if (!v) {
		if (++jemalloc->nodes > MAX_NODES || !may_be_table(jemalloc, addr, bytes))
			return -ENOENT;
		copy = malloc(bytes);
		err = copy ? host_places__read_resident(jemalloc->reading, addr, copy, bytes)
			   : -ENOMEM;
		v = copy;
	}
	if (!err && leaf)
		err = walk_leaf(jemalloc, v, bytes, base, fn);
	for (size_t at = 0; !err && !leaf; at += 8) {
		at = next_word(v, at, bytes);
		if (at == bytes)
			break;
		err = walk_node(jemalloc, level + 1, proc__word(v + at),
				base + ((uint64_t)at / 8 << below), NULL, fn);
	}
	free(copy);
	return err;
}

/* Calls fn for each page with an extent. Returns 0, or the first other result of fn. */
static int walk_tree(struct jemalloc *jemalloc, leaf_fn fn)
{
	return walk_node(jemalloc, 0, jemalloc->root, 0,
			 jemalloc->data.v + (jemalloc->root - jemalloc->data.addr), fn);
}

/* ---- finding the tree ---- */

#define SAMPLE 64u /* slabs that are read to try a layout */

/* n bits of a header's word, from bit `shift` on. */
static unsigned field(uint64_t bits, unsigned shift, unsigned n)
{
	return bits >> shift & ((1u << n) - 1);
}

/* Number of free blocks by a slab's bitmap. */
static unsigned count_free(const uint64_t *bitmap, unsigned n)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < (n + 63) / 64; i++)
		sum += (unsigned)__builtin_popcountll(bitmap[i]);
	return sum;
}

/* Copies the bitmap of a slab of n blocks from its extent's header, with zeros after n bits. */
static void copy_bitmap(const uint8_t *header, unsigned n, uint64_t *ret)
{
	memset(ret, 0, MAX_REGIONS / 8);
	memcpy(ret, header + BITMAP, (n + 63) / 64 * 8);
	if (n % 64)
		ret[n / 64] &= (UINT64_C(1) << n % 64) - 1;
}

/* True if a header says that its extent is a slab in use. */
static bool is_active_slab(const struct jemalloc *jemalloc, const uint8_t *header)
{
	uint64_t bits = proc__word(header);

	return bits & SLAB_BIT &&
	       field(bits, jemalloc->layout->state, jemalloc->layout->state_bits) == ACTIVE;
}

/* True if a header is that of an extent which begins at the page of a leaf. */
static bool is_extent(const struct jemalloc *jemalloc, const struct leaf *leaf,
		      const uint8_t *header)
{
	const struct header_layout *layout = jemalloc->layout;
	uint64_t bits = proc__word(header), bitmap[MAX_REGIONS / 64];
	uint64_t addr = proc__word(header + EXTENT_ADDR) & PAGE_MASK;
	uint64_t size = proc__word(header + EXTENT_SIZE) & PAGE_MASK;
	unsigned szind = field(bits, layout->szind, SZIND_BITS),
		 state = field(bits, layout->state, layout->state_bits);
	bool slab = bits & SLAB_BIT;

	if (addr != leaf->page || !size || size > UINT64_MAX - addr)
		return false;
	if (state != ACTIVE)
		return true;
	if (szind != leaf->szind || slab != leaf->slab)
		return false;
	/* Large extents have sizes of a class, or with 5.3.1's disable_large_size_classes any
	 * number of pages. */
	if (!slab)
		return szind && class_bytes(jemalloc, szind) &&
		       size > class_bytes(jemalloc, szind - 1);
	if (szind >= jemalloc->bins || size != jemalloc->bin[szind].slab)
		return false;
	copy_bitmap(header, jemalloc->bin[szind].n, bitmap);
	return count_free(bitmap, jemalloc->bin[szind].n) == field(bits, layout->nfree, NFREE_BITS);
}

/* Counts a slab in jemalloc->extents, and in jemalloc->bad if its header does not verify. Skips
 * other extents, which would verify in both layouts. Returns 1, which ends the walk, once SAMPLE
 * slabs were read. */
static int try_leaf(struct jemalloc *jemalloc, const struct leaf *leaf)
{
	uint8_t header[HEADER_BYTES];
	int err = 0;

	if (leaf->header == jemalloc->last || !leaf->slab)
		return 0;
	jemalloc->last = leaf->header;
	jemalloc->extents++;
	if (!read_table(jemalloc, leaf->header, header, sizeof(header), &err) ||
	    !is_extent(jemalloc, leaf, header) || !is_active_slab(jemalloc, header))
		jemalloc->bad++;
	if (err)
		return err;
	return jemalloc->extents >= SAMPLE ? 1 : 0;
}

/* Returns how many slabs verify in a tree of jemalloc->shape and jemalloc->layout at jemalloc->root,
 * or an error that ends the reading. Freed slabs leave their flag in the tree and do not verify. */
static int try_tree(struct jemalloc *jemalloc)
{
	int err;

	jemalloc->extents = jemalloc->bad = jemalloc->last = 0;
	err = walk_tree(jemalloc, try_leaf);
	if (err < 0)
		return host_places__is_local(err) ? 0 : err;
	return (int)(jemalloc->extents - jemalloc->bad);
}

/* Returns the address of the first page below a node of the tree, by the first extent's header. 0:
 * this is no node. */
static uint64_t page_below(struct jemalloc *jemalloc, unsigned level, uint64_t addr, int *err)
{
	bool leaf = level + 1 == jemalloc->shape->levels;
	size_t step = leaf && jemalloc->shape->wide ? 16 : 8, bytes = step << jemalloc->shape->bits,
	       at = 0;
	uint64_t header[2], page = 0;
	struct leaf l;
	uint8_t *v;

	if (addr % TABLE_ALIGN || !may_be_table(jemalloc, addr, bytes) ||
	    ++jemalloc->nodes > MAX_NODES)
		return 0;
	v = malloc(bytes);
	*err = v ? host_places__read_resident(jemalloc->reading, addr, v, bytes) : -ENOMEM;
	if (!*err)
		at = next_word(v, 0, bytes) / step * step;
	if (*err || at == bytes) {
		free(v);
		return 0;
	}
	if (leaf) {
		l = decode_leaf(jemalloc, v + at, 0);
		if (read_table(jemalloc, l.header, header, sizeof(header), err))
			page = header[1] & PAGE_MASK;
	} else {
		page = page_below(jemalloc, level + 1, proc__word(v + at), err);
	}
	free(v);
	return page;
}

/* Looks for the root of a tree of jemalloc->shape and jemalloc->layout. A word of the root leads to
 * a header, and the header's address tells the word's place in the root. Returns as try_tree(). */
static int find_root_of(struct jemalloc *jemalloc)
{
	unsigned below = (jemalloc->shape->levels - 1) * jemalloc->shape->bits + PAGE_BITS;
	uint64_t bytes = UINT64_C(8) << jemalloc->shape->bits;
	const uint8_t *v = jemalloc->data.v;
	size_t len = jemalloc->data.len;
	int err = 0;

	for (size_t at = next_word(v, 0, len); at < len && !err; at = next_word(v, at + 8, len)) {
		uint64_t word = proc__word(v + at), page, first;

		if (word % TABLE_ALIGN || !may_be_table(jemalloc, word, 8) ||
		    !block_of(jemalloc, word, &err) || err)
			continue;
		page = page_below(jemalloc, 1, word, &err);
		first = (page >> below) * 8;
		if (err || !page || first > at || at - first + bytes > len)
			continue;
		jemalloc->root = jemalloc->data.addr + at - first;
		err = try_tree(jemalloc);
	}
	return err;
}

/* Takes the root that an earlier reading found in this file's data, if there is one. */
static bool take_known_root(struct jemalloc *jemalloc)
{
	const struct host_jemalloc_place *known = &jemalloc->reading->places->jemalloc;

	if (!known->root || known->data != jemalloc->data.addr)
		return false;
	jemalloc->shape = &shapes[known->shape];
	if (known->root + (UINT64_C(8) << jemalloc->shape->bits) >
	    jemalloc->data.addr + jemalloc->data.len)
		return false; /* the data's mapping became smaller */
	jemalloc->layout = &layouts[known->layout];
	jemalloc->root = known->root;
	return true;
}

/* Finds the root in the file's data, with the shape and layout in which most slabs verify. 1, 0 or
 * an error. */
static int find_root(struct jemalloc *jemalloc)
{
	struct host_jemalloc_place found = { .data = jemalloc->data.addr };
	int most = 0;

	if (take_known_root(jemalloc))
		return 1;
	for (uint8_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
		for (uint8_t k = 0; k < sizeof(layouts) / sizeof(*layouts); k++) {
			int n;

			jemalloc->shape = &shapes[i];
			jemalloc->layout = &layouts[k];
			n = find_root_of(jemalloc);
			if (n < 0)
				return n;
			if (n <= most)
				continue;
			most = n;
			found.root = jemalloc->root;
			found.shape = i;
			found.layout = k;
		}
	jemalloc->reading->places->jemalloc = found;
	return take_known_root(jemalloc);
}

/* ---- caches of threads ---- */

#define ARENA_BYTES (64u << 10) /* an arena has its list of caches in its first bytes */
#define MAX_CACHES 65536u	/* caches of all threads */
#define MAX_CACHED (4u << 20)	/* blocks in all caches */
#define CACHE_BIN 24u		/* bytes of a cache_bin_s */
/* Bins of large blocks of up to 8 MiB: TCACHE_NBINS_MAX without the bins of small blocks, in pages
 * of 4 KiB. 5.3 has other fields of the thread behind them. */
#define CACHE_BINS_MORE 37u

/* Adds the blocks in a bin of a cache. 5.2: unused, number, requests, end of the stack. 5.3: top of
 * the stack, requests, and the lowest 16 bits of the stack's marks; the stack grows down. */
static int add_cached_of_bin(struct jemalloc *jemalloc, const uint8_t *bin)
{
	uint64_t top = proc__word(bin),
		 n; /* top: address of the first block's pointer; n: blocks */
	uint16_t marks[3];
	int err = 0;

	memcpy(marks, bin + 16, sizeof(marks));
	if (is_5_2(jemalloc)) {
		n = top >> 32; /* the word's upper half */
		top = proc__word(bin + 16) - 8 * n;
	} else {
		n = (uint16_t)(marks[2] - (uint16_t)top) / 8; /* marks[2]: the empty stack's top */
	}
	if (!n || n >= MAX_IN_CACHE || top % 8 || !may_be_table(jemalloc, top, n * 8))
		return 0;
	if (jemalloc->n_cached + n > MAX_CACHED)
		return -ENOENT;
	err = array__grow(&jemalloc->cached, &jemalloc->cap_cached, jemalloc->n_cached + n,
			  sizeof(*jemalloc->cached));
	if (err)
		return err;
	if (read_table(jemalloc, top, jemalloc->cached + jemalloc->n_cached, n * 8, &err))
		jemalloc->n_cached += n;
	return err;
}

/* Adds the blocks in n bins of caches, which lie one after the other at addr. */
static int add_cached_of_bins(struct jemalloc *jemalloc, uint64_t addr, unsigned n)
{
	uint8_t v[(MAX_BINS + CACHE_BINS_MORE) * CACHE_BIN];
	int err = 0;

	if (!read_table(jemalloc, addr, v, n * CACHE_BIN, &err))
		return err;
	for (unsigned i = 0; i < n && !err; i++)
		err = add_cached_of_bin(jemalloc, v + i * CACHE_BIN);
	return err;
}

/* Adds the blocks in the caches of an arena. list: address of the first descriptor in its list,
 * which is a ring of cache_bin_array_descriptor_s. Only in 5.2 the bins of large blocks are on
 * their own. */
static int add_caches(struct jemalloc *jemalloc, uint64_t list)
{
	uint64_t at = list;
	int err = 0;

	do {
		uint64_t words[4]; /* next, previous, bins, bins of large blocks */

		if (++jemalloc->caches > MAX_CACHES ||
		    !read_table(jemalloc, at, words, sizeof(words), &err))
			return err ?: -ENOENT;
		if (is_5_2(jemalloc))
			err = add_cached_of_bins(jemalloc, words[2], jemalloc->bins)
				      ?: add_cached_of_bins(jemalloc, words[3], CACHE_BINS_MORE);
		else
			err = add_cached_of_bins(jemalloc, words[2],
						 jemalloc->bins + CACHE_BINS_MORE);
		at = words[0];
	} while (at != list && !err);
	return err;
}

/* True if a descriptor of a cache of this arena is at addr. */
static bool is_cache(struct jemalloc *jemalloc, uint64_t arena, uint64_t addr, int *err)
{
	uint64_t words[5], next;

	if (addr % 8 || !read_table(jemalloc, addr, words, sizeof(words), err))
		return false;
	next = words[0];
	return words[jemalloc->layout->arena_of_cache / 8] == arena &&
	       read_table(jemalloc, next, words, sizeof(words), err) && words[1] == addr;
}

/* Adds the blocks in the caches of the arena at addr, if there is one. */
static int add_caches_of_arena(struct jemalloc *jemalloc, uint64_t addr, const struct block *b)
{
	uint64_t len = b->used - addr < ARENA_BYTES ? b->used - addr : ARENA_BYTES;
	uint8_t *bytes = malloc(len);
	int err = bytes ? host_places__read_resident(jemalloc->reading, addr, bytes, len) : -ENOMEM;

	for (size_t at = 0; at + 8 <= len && !err; at += 8) {
		uint64_t list = proc__word(bytes + at);

		if (!list || !is_cache(jemalloc, addr, list, &err))
			continue;
		err = add_caches(jemalloc, list);
		break;
	}
	free(bytes);
	return err;
}

/* Adds the blocks in the caches of all arenas, by the pointers to arenas in the file's data. */
static int find_cached(struct jemalloc *jemalloc)
{
	uint64_t bytes = UINT64_C(8) << jemalloc->shape->bits, last = 0;
	const uint8_t *v = jemalloc->data.v;
	size_t len = jemalloc->data.len, arenas = 0;
	int err = 0;

	for (size_t at = next_word(v, 0, len); at < len && !err; at = next_word(v, at + 8, len)) {
		uint64_t word = proc__word(v + at);
		const struct block *b;

		if (word == last || word % TABLE_ALIGN || !may_be_table(jemalloc, word, 8))
			continue;
		/* the root's own words lead to nodes */
		if (jemalloc->data.addr + at >= jemalloc->root &&
		    jemalloc->data.addr + at < jemalloc->root + bytes)
			continue;
		b = block_of(jemalloc, word, &err);
		if (b && word > b->start && word < b->used && !err && arenas++ < MAX_ARENAS)
			err = add_caches_of_arena(jemalloc, word, b);
		last = word;
	}
	if (jemalloc->n_cached)
		qsort(jemalloc->cached, jemalloc->n_cached, sizeof(*jemalloc->cached),
		      array__compare_u64);
	return err;
}

/* ---- extents ---- */

/* Adds a range for HOST_MALLOC, to the last one if it touches. own: index of the first range of
 * this allocator. */
static int add_range(struct host_spans *spans, size_t own, uint64_t start, uint64_t size)
{
	if (spans->n > own && spans->v[spans->n - 1].end == start) {
		spans->v[spans->n - 1].end += size;
		return 0;
	}
	return host_spans__add(spans, start, size, HOST_MALLOC);
}

static int add_free(struct jemalloc *jemalloc, uint64_t start, uint64_t size)
{
	return add_range(&jemalloc->reading->second, jemalloc->first_second, start, size);
}

/* Returns the next cached block in [start, end); 0: none. */
static uint64_t next_cached(struct jemalloc *jemalloc, uint64_t start, uint64_t end)
{
	while (jemalloc->next_cached < jemalloc->n_cached &&
	       jemalloc->cached[jemalloc->next_cached] < start)
		jemalloc->next_cached++;
	if (jemalloc->next_cached == jemalloc->n_cached ||
	    jemalloc->cached[jemalloc->next_cached] >= end)
		return 0;
	return jemalloc->cached[jemalloc->next_cached++];
}

/* Adds the free blocks of a slab to the second figure, as one range for each page: residency is a
 * property of pages. */
static int add_free_blocks(struct jemalloc *jemalloc, uint64_t start, const struct bin *bin,
			   const uint64_t *bitmap)
{
	uint64_t page = 0, bytes = 0; /* bytes: free ones in page */
	int err = 0;

	for (unsigned i = 0; i < bin->n && !err; i++) {
		uint64_t at = i * bin->size, end = at + bin->size;

		if (!(bitmap[i / 64] >> i % 64 & 1)) /* in use */
			continue;
		while (at < end && !err) {
			uint64_t to = (at / HOST_PAGE + 1) * HOST_PAGE;

			to = to < end ? to : end;
			if (at / HOST_PAGE != page) {
				err = bytes ? add_free(jemalloc, start + page * HOST_PAGE, bytes)
					    : 0;
				page = at / HOST_PAGE;
				bytes = 0;
			}
			bytes += to - at;
			at = to;
		}
	}
	if (err || !bytes)
		return err;
	return add_free(jemalloc, start + page * HOST_PAGE, bytes);
}

/* Adds the blocks of a slab. Those in caches of threads count as free. header: a copy of its
 * extent. */
static int add_slab(struct jemalloc *jemalloc, uint64_t start, const struct bin *bin,
		    const uint8_t *header)
{
	uint64_t bitmap[MAX_REGIONS / 64], cached, n;

	copy_bitmap(header, bin->n, bitmap);
	while ((cached = next_cached(jemalloc, start, start + bin->slab)))
		if ((cached - start) % bin->size == 0) {
			uint64_t i = (cached - start) / bin->size;

			bitmap[i / 64] |= UINT64_C(1) << i % 64;
		}
	n = count_free(bitmap, bin->n);
	jemalloc->sum.live += (bin->n - n) * bin->size;
	jemalloc->sum.free_blocks += n * bin->size;
	return n ? add_free_blocks(jemalloc, start, bin, bitmap) : 0;
}

/* Adds a block with an extent of its own. Its end that the size class has no use for counts as
 * tables. */
static int add_large(struct jemalloc *jemalloc, uint64_t start, uint64_t size, unsigned szind)
{
	uint64_t usable = class_bytes(jemalloc, szind);

	usable = usable < size ? usable : size;
	jemalloc->sum.tables += size - usable;
	if (!next_cached(jemalloc, start, start + size)) {
		jemalloc->sum.live += usable;
		return 0;
	}
	jemalloc->sum.free_blocks += usable;
	return add_free(jemalloc, start, usable);
}

/* Adds the extent of a page. All pages of an extent lead to one header, so the header of the last
 * call is skipped. */
static int add_extent(struct jemalloc *jemalloc, const struct leaf *leaf)
{
	const struct header_layout *layout = jemalloc->layout;
	uint8_t header[HEADER_BYTES];
	uint64_t bits, size;
	unsigned szind;
	int err = 0;

	if (leaf->header == jemalloc->last)
		return 0;
	if (++jemalloc->extents > MAX_EXTENTS)
		return -ENOENT;
	jemalloc->last = leaf->header;
	if (!read_table(jemalloc, leaf->header, header, sizeof(header), &err) ||
	    leaf->page < jemalloc->done || !is_extent(jemalloc, leaf, header)) {
		jemalloc->bad++;
		return err;
	}
	bits = proc__word(header);
	size = proc__word(header + EXTENT_SIZE) & PAGE_MASK;
	szind = field(bits, layout->szind, SZIND_BITS);
	jemalloc->done = leaf->page + size;
	jemalloc->arena_seen[bits % MAX_ARENAS] = true;
	err = add_range(&jemalloc->reading->claims, jemalloc->first_claim, leaf->page, size);
	if (err)
		return err;
	switch (field(bits, layout->state, layout->state_bits)) {
	case ACTIVE:
		return bits & SLAB_BIT
			       ? add_slab(jemalloc, leaf->page, &jemalloc->bin[szind], header)
			       : add_large(jemalloc, leaf->page, size, szind);
	case MUZZY:
		jemalloc->sum.muzzy += size;
		break;
	case RETAINED:
		jemalloc->sum.retained += size;
		break;
	default:
		jemalloc->sum.purgeable += size;
	}
	return add_free(jemalloc, leaf->page, size);
}

/* Adds the blocks for jemalloc's own tables. */
static int add_blocks(struct jemalloc *jemalloc)
{
	int err = 0;

	for (size_t i = 0; i < jemalloc->n_blocks && !err; i++) {
		const struct block *b = &jemalloc->block[i];

		jemalloc->sum.tables += b->used - b->start;
		err = host_spans__add(&jemalloc->reading->claims, b->start, b->end - b->start,
				      HOST_MALLOC);
	}
	return err;
}

/* Reads all tables once. -ENOENT: they do not verify. */
static int read_tables(struct jemalloc *jemalloc)
{
	int err = find_blocks(jemalloc) ?: find_cached(jemalloc);

	jemalloc->first_claim = jemalloc->reading->claims.n;
	jemalloc->first_second = jemalloc->reading->second.n;
	jemalloc->last = jemalloc->done = jemalloc->extents = jemalloc->bad =
		jemalloc->next_cached = 0;
	if (err)
		return err;
	err = walk_tree(jemalloc, add_extent);
	if (err)
		return err;
	/* A few extents may change during the reading. */
	return !jemalloc->done || jemalloc->bad > jemalloc->extents / 16 + 16
		       ? -ENOENT
		       : add_blocks(jemalloc);
}

/* ---- a reading ---- */

/* Forgets what was read of the process's memory. */
static void forget_tables(struct jemalloc *jemalloc)
{
	for (size_t i = 0; i < CHUNKS; i++)
		if (jemalloc->chunks[i])
			jemalloc->chunks[i]->addr = 0;
	map64__clear(jemalloc->starts);
	memset(jemalloc->arena_seen, 0, sizeof(jemalloc->arena_seen));
	jemalloc->n_blocks = jemalloc->n_cached = jemalloc->loads = jemalloc->nodes =
		jemalloc->caches = 0;
	jemalloc->sum = (struct host_allocator){ 0 };
}

static void free_jemalloc(struct jemalloc *jemalloc)
{
	for (size_t i = 0; i < CHUNKS && jemalloc->chunks; i++)
		free(jemalloc->chunks[i]);
	free(jemalloc->chunks);
	map64__free(jemalloc->starts);
	free(jemalloc->block);
	free(jemalloc->cached);
	free(jemalloc);
}

/* NULL: memory is short. */
static struct jemalloc *new_jemalloc(struct host_reading *reading)
{
	struct jemalloc *jemalloc = calloc(1, sizeof(*jemalloc));

	if (!jemalloc)
		return NULL;
	jemalloc->reading = reading;
	jemalloc->chunks = calloc(CHUNKS, sizeof(*jemalloc->chunks));
	jemalloc->starts = map64__new();
	if (jemalloc->chunks && jemalloc->starts)
		return jemalloc;
	free_jemalloc(jemalloc);
	return NULL;
}

/* Adds the jemalloc to the ledger. map: index of the mapping of its file's data. */
static void add_to_ledger(struct jemalloc *jemalloc, size_t map)
{
	struct host_allocator *allocator = host_reading__add_allocator(jemalloc->reading,
								       "jemalloc", map);

	if (!allocator)
		return;
	snprintf(allocator->version, sizeof(allocator->version), "%s", jemalloc->layout->version);
	allocator->known = allocator->free_known = true;
	for (unsigned i = 0; i < MAX_ARENAS; i++)
		allocator->arenas += jemalloc->arena_seen[i];
	allocator->live = jemalloc->sum.live;
	allocator->free_blocks = jemalloc->sum.free_blocks;
	allocator->purgeable = jemalloc->sum.purgeable;
	allocator->muzzy = jemalloc->sum.muzzy;
	allocator->retained = jemalloc->sum.retained;
	allocator->tables = jemalloc->sum.tables;
}

/* Reads the jemalloc whose sizes are in jemalloc->data. map: index of its mapping. 0 or an error
 * that ends the reading. */
static int read_jemalloc(struct jemalloc *jemalloc, size_t map)
{
	size_t claims = jemalloc->reading->claims.n, second = jemalloc->reading->second.n;
	int err = -ENOENT;

	for (int i = 0; i < READINGS && host_places__is_local(err); i++) {
		forget_tables(jemalloc);
		err = find_blocks(jemalloc) ?: find_root(jemalloc);
		if (!err)
			return 0; /* not in use, or an unknown layout */
		err = err == 1 ? read_tables(jemalloc) : err;
		if (err) { /* forget its ranges, and search again */
			jemalloc->reading->claims.n = claims;
			jemalloc->reading->second.n = second;
			jemalloc->reading->places->jemalloc.root = 0;
		}
	}
	if (err)
		return host_places__is_local(err) ? 0 : err;
	add_to_ledger(jemalloc, map);
	return 0;
}

/* True if zeroed data with room for a tree's root follows the writable data of a file, mapping i. */
static bool may_have_tables(const struct host_reading *reading, size_t i)
{
	const struct map *map = &reading->maps.maps.v[i], *next = map + 1;

	return map->w && !map->shared && map->inode && i + 1 < reading->maps.maps.n &&
	       next->start == map->end && host_places__is_anonymous(next) &&
	       next->end - next->start >= DATA_MIN - HOST_PAGE;
}

/* The zeroed data after mapping i begins in the mapping's last page. */
static struct host_data zeroed_data(const struct host_reading *reading, size_t i)
{
	const struct map *map = &reading->maps.maps.v[i];
	uint64_t len = map[1].end - map->end + HOST_PAGE;

	return (struct host_data){ .addr = map->end - HOST_PAGE,
				   .len = len < DATA_MAX ? len : DATA_MAX };
}

/* Finds bin_infos in the resident parts of zeroed data. Returns 1, 0 or a negative errno. */
static int find_sizes(struct jemalloc *jemalloc, const struct host_data *data)
{
	const struct resident_range *ranges;
	size_t n;
	int err = host_resident__read(jemalloc->reading->resident, data->addr,
				      data->addr + data->len, &ranges, &n);

	for (size_t i = 0; i < n && !err; i++) {
		struct host_data part = { .addr = ranges[i].start,
					  .len = ranges[i].end - ranges[i].start };

		part.v = malloc(part.len);
		err = part.v ? proc__read(jemalloc->reading->proc, part.addr, part.v, part.len)
			     : -ENOMEM;
		jemalloc->bins = err ? 0 : find_bins(&part, jemalloc->bin);
		free(part.v);
		if (jemalloc->bins)
			return 1;
	}
	return err;
}

/* Reads the jemalloc of the file with mapping i, if it has one. Returns 1 if it has, 0 or an error
 * that ends the reading. */
static int read_file(struct jemalloc *jemalloc, size_t i)
{
	int err;

	jemalloc->data = zeroed_data(jemalloc->reading, i);
	err = find_sizes(jemalloc, &jemalloc->data);
	if (err != 1)
		return host_places__is_local(err) ? 0 : err;
	jemalloc->data.v = malloc(jemalloc->data.len);
	if (!jemalloc->data.v)
		return -ENOMEM;
	err = host_places__read_resident(jemalloc->reading, jemalloc->data.addr, jemalloc->data.v,
					 jemalloc->data.len);
	if (!err)
		err = read_jemalloc(jemalloc, i);
	free(jemalloc->data.v);
	return err && !host_places__is_local(err) ? err : 1;
}

/* A checksum of the files that may have a jemalloc, and of their resident zeroed data. */
static uint64_t sum_of_files(const struct host_reading *reading)
{
	uint64_t sum = 1;

	for (size_t i = 0; i < reading->maps.maps.n; i++)
		if (may_have_tables(reading, i))
			sum = (sum ^ reading->maps.maps.v[i].start ^ reading->maps.v[i + 1].rss) *
			      0x9e3779b97f4a7c15;
	return sum;
}

int host_jemalloc__read(struct host_reading *reading)
{
	uint64_t sum = sum_of_files(reading);
	struct jemalloc *jemalloc;
	bool found = false;
	int err = 0;

	if (sum == reading->places->without_jemalloc)
		return 0;
	jemalloc = new_jemalloc(reading);
	if (!jemalloc)
		return -ENOMEM;
	for (size_t i = 0; i < reading->maps.maps.n && err >= 0; i++)
		if (may_have_tables(reading, i)) {
			err = read_file(jemalloc, i);
			found = found || err == 1;
		}
	free_jemalloc(jemalloc);
	if (err < 0)
		return err;
	reading->places->without_jemalloc = found ? 0 : sum;
	return 0;
}
