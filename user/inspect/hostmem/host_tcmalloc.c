/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * gperftools' tcmalloc, from outside. A stripped library has no symbol for its tables, so they are
 * found in its data by their structure. Layouts: gperftools 2.7 to 2.18 on 64-bit machines with
 * 48-bit addresses: PageHeap (gperftools/src/page_heap.h), TCMalloc_PageMap2 (pagemap), Span
 * (span), SizeMap (common), CentralFreeList (central_freelist), ThreadCache (thread_cache).
 *
 * Each page belongs to a span: a large block, small blocks of one size class, or free pages. The
 * page map leads from a page to its span. Ranges of memory come from the page map, and sums from
 * tcmalloc's own counters. Both must agree, or tcmalloc's figures are unknown.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/elf.h"
#include "base/text.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

#define DATA_MAX (32u << 20) /* bytes of a file's data that are searched */
#define ADDRESS_BITS 48u     /* kAddressBits */
#define LEAVES 1024u	     /* most leaves of a page map: 2 TiB of addresses */
#define CLASSES 128u	     /* kClassSizesMax */
#define CLASSES_LEAST 16u    /* size classes that identify a table of sizes */
#define LARGEST (256u << 10) /* kMaxSize: size of the last class */
#define SPAN 48u	     /* sizeof(Span) */
#define SPAN_LENGTH 8u	     /* offsets in Span */
#define SPAN_NEXT 16u
#define SPAN_PREV 24u
#define SPAN_OBJECTS 32u
#define SPAN_BITS 40u	 /* refcount 16 bits, sizeclass 8, location 2, sample 1 */
#define CENTRAL 1216u	 /* sizeof(CentralFreeList), padded to the cache line */
#define CENTRAL_CLASS 8u /* offsets in CentralFreeList */
#define CENTRAL_EMPTY 16u
#define CENTRAL_NONEMPTY 64u
#define CENTRAL_SPANS 112u
#define CENTRAL_OBJECTS 120u
#define CENTRAL_SLOTS 1152u
#define CENTRAL_MOST_SLOTS 1160u
#define MOST_SLOTS 64u /* kMaxNumTransferEntries */
/* ThreadCache::FreeList: list, length, low water mark, longest, overages, size of its objects. */
#define FREE_LIST 32u
#define FREE_LIST_LENGTH 8u
#define FREE_LIST_SIZE 24u
/* Offsets in ThreadCache: the end of its lists; beyond all members in all versions. */
#define LISTS_END (CLASSES * FREE_LIST)
#define CACHE_END (LISTS_END + 256u)
#define MAX_CACHES 16384u		 /* threads */
#define MOST_OBJECTS (UINT64_C(1) << 36) /* objects of one size class; sums stay below 64 bits */
#define MAX_SPANS (8u << 20)
#define MAX_LOADS (64u << 10) /* reads of spans; each has WINDOW bytes */
#define MAX_TRIES (96u << 10) /* reads of possible caches of threads */
#define MAX_STALE 4096u	      /* entries of the page map that changed during the reading */
#define READINGS 3	      /* attempts while the process changes its tables */
#define WINDOW 16384u	      /* bytes of spans that are read at once */
#define WINDOWS 256u
#define PIECE 512u /* entries of the page map that are read at once */

/* Span::location */
enum { IN_USE, FREE, RETURNED };

struct span_info {
	uint64_t start, length; /* pages */
	uint8_t size_class;	/* 0: one block */
	uint8_t location;
	uint64_t trace; /* StackTrace of a block that the sampler chose; 0: not chosen */
};

/* Copies of small parts of the tables. */
struct tables {
	struct host_reading *reading;
	struct host_tcmalloc_places *at;
	unsigned classes; /* number of size classes, with class 0 */
	uint32_t size[CLASSES], move[CLASSES];
	uint64_t pages[CLASSES];
	uint64_t tries; /* reads of possible caches of threads */
};

/* Bits of a page's number. shift: log2 of the page's size, here and below. */
static unsigned page_bits(unsigned shift)
{
	return ADDRESS_BITS - shift;
}

static unsigned leaf_bits(unsigned shift)
{
	return (page_bits(shift) + 1) / 2;
}

/* Entries of a leaf, each for a page. */
static uint64_t leaf_length(unsigned shift)
{
	return UINT64_C(1) << leaf_bits(shift);
}

/* Entries of the page map's root, each for a leaf. */
static uint64_t root_length(unsigned shift)
{
	return UINT64_C(1) << (page_bits(shift) - leaf_bits(shift));
}

static uint32_t word4(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static bool is_private(const struct host_reading *reading, uint64_t addr, uint64_t size)
{
	return addr % 8 == 0 && host_places__is_private_memory(&reading->maps, addr, size);
}

/* As host_places__read_resident(). -ENOENT: the memory is not there any more. */
static int read_table(const struct host_reading *reading, uint64_t addr, void *buf, size_t len)
{
	int err = host_places__read_resident(reading, addr, buf, len);

	return host_places__is_local(err) ? -ENOENT : err;
}

/* ---- spans ---- */

/* Parts of the target's memory with spans. */
struct windows {
	const struct host_reading *reading;
	uint64_t loads;
	struct {
		uint64_t addr;	 /* 0: empty */
		uint8_t claimed; /* bits: pages that are in walk.entries */
		uint8_t v[WINDOW + SPAN];
	} w[WINDOWS];
};

/* Reads the span at addr. -ENOENT: no span is there. -E2BIG: too many reads. */
static int read_span(struct windows *windows, uint64_t addr, struct span_info *ret)
{
	uint64_t start = addr & ~(uint64_t)(WINDOW - 1);
	size_t slot = start / WINDOW % WINDOWS;
	const uint8_t *s;
	uint32_t bits;
	int err;

	if (windows->w[slot].addr != start) {
		if (!is_private(windows->reading, addr, SPAN))
			return -ENOENT;
		if (++windows->loads > MAX_LOADS)
			return -E2BIG;
		windows->w[slot].addr = 0;
		err = read_table(windows->reading, start, windows->w[slot].v, WINDOW + SPAN);
		if (err)
			return err;
		windows->w[slot].addr = start;
		windows->w[slot].claimed = 0;
	}
	if (addr % 8)
		return -ENOENT;
	s = windows->w[slot].v + (addr - start);
	bits = word4(s + SPAN_BITS);
	*ret = (struct span_info){ .start = proc__word(s),
				   .length = proc__word(s + SPAN_LENGTH),
				   .size_class = (uint8_t)(bits >> 16),
				   .location = bits >> 24 & 3,
				   .trace = bits >> 26 & 1 ? proc__word(s + SPAN_OBJECTS) : 0 };
	return 0;
}

/* True if `span` is the span that begins at this page. */
static bool begins_at(const struct tables *tables, const struct span_info *span, uint64_t page)
{
	uint64_t most = (UINT64_C(1) << page_bits(tables->at->shift)) - page;

	if (span->start != page || !span->length || span->length > most ||
	    span->location > RETURNED)
		return false;
	return !span->size_class ||
	       (span->size_class < tables->classes && span->location == IN_USE &&
		span->length >= tables->pages[span->size_class]);
}

/* ---- finding the tables ---- */

/* Returns 0 if the first entry of this leaf that leads to a span agrees with the span. -ENOENT: it
 * does not, or there is none. first: the leaf's first page. */
static int is_leaf(struct windows *windows, uint64_t leaf, uint64_t first, unsigned shift)
{
	uint64_t n = leaf_length(shift), values[PIECE];
	struct span_info span;
	int err;

	for (uint64_t i = 0; i < n; i += PIECE) {
		err = read_table(windows->reading, leaf + 8 * i, values, sizeof(values));
		if (err)
			return err;
		for (uint64_t k = 0; k < PIECE; k++) {
			if (!values[k])
				continue;
			err = read_span(windows, values[k], &span);
			if (err)
				return err == -E2BIG ? -ENOENT : err;
			return span.start == first + i + k && span.length ? 0 : -ENOENT;
		}
	}
	return -ENOENT;
}

/* Verifies root, a copy of a page map's root: each entry that is not 0 points to memory for a leaf,
 * and the first leaf has spans. 0, -ENOENT or an error that ends the reading. */
static int is_root(struct windows *windows, const uint8_t *root, unsigned shift)
{
	uint64_t found = 0, first = 0, leaf;

	for (uint64_t i = 0; i < root_length(shift); i++) {
		leaf = proc__word(root + 8 * i);
		if (!leaf)
			continue;
		if (!is_private(windows->reading, leaf, 8 * leaf_length(shift)))
			return -ENOENT;
		first = found++ ? first : i;
	}
	if (!found)
		return -ENOENT;
	return is_leaf(windows, proc__word(root + 8 * first), first << leaf_bits(shift), shift);
}

/*
 * Finds the page map's root for one size of pages: an array that is nearly empty, and then the
 * address of the function that allocates its leaves. Returns its offset in the data, -ENOENT or an
 * error that ends the reading.
 */
static int64_t find_root(struct windows *windows, const struct host_data *data, unsigned shift)
{
	uint64_t bytes = 8 * root_length(shift), entries = 0;
	int err;

	/* entries: words that are not 0 in [at - bytes, at) */
	for (uint64_t at = 0; at + 8 <= data->len && bytes + 8 <= data->len; at += 8) {
		uint64_t word = proc__word(data->v + at);

		if (at >= bytes && word && entries && entries <= LEAVES &&
		    host_places__is_code(&windows->reading->maps, word)) {
			err = is_root(windows, data->v + at - bytes, shift);
			if (!err)
				return (int64_t)(at - bytes);
			if (err != -ENOENT)
				return err;
		}
		entries += word != 0;
		if (at >= bytes)
			entries -= proc__word(data->v + at - bytes) != 0;
	}
	return -ENOENT;
}

/* True if s, a copy of what is at addr, looks like the head of a ring of spans: it leads to other
 * spans, or if the ring is empty to itself. */
static bool is_list_head(const struct host_reading *reading, const uint8_t *s, uint64_t addr)
{
	uint64_t next = proc__word(s + SPAN_NEXT);
	uint64_t prev = proc__word(s + SPAN_PREV);

	if ((next == addr) != (prev == addr))
		return false;
	return next == addr || (is_private(reading, next, SPAN) && is_private(reading, prev, SPAN));
}

/* PageHeap::Stats; all in bytes. */
struct heap_stats {
	uint64_t system, free, returned;
};

/* Parses {system_bytes, free_bytes, unmapped_bytes}. False: they cannot be these. */
static bool parse_stats(const uint8_t *words, struct heap_stats *ret)
{
	*ret = (struct heap_stats){ proc__word(words), proc__word(words + 8),
				    proc__word(words + 16) };
	return ret->system && ret->system >> ADDRESS_BITS == 0 && ret->system % HOST_PAGE == 0 &&
	       ret->free % HOST_PAGE == 0 && ret->returned % HOST_PAGE == 0 &&
	       ret->free <= ret->system && ret->returned <= ret->system - ret->free;
}

/*
 * Finds PageHeap::stats_. After the page map: its function, two sets of large free spans (48 bytes
 * each with libstdc++, 24 with libc++), the lists of small free spans (two heads for each length of
 * less than 1 MiB), and the counters. 0: not found.
 */
static uint64_t find_stats(const struct host_reading *reading, const struct host_data *data,
			   uint64_t root, unsigned shift)
{
	static const uint64_t sets[] = { 2 * 48, 2 * 24 };
	uint64_t heads = 2 * (UINT64_C(1) << (20 - shift));
	struct heap_stats stats;

	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
		uint64_t at = root + 8 * root_length(shift) + 8 + sets[i], k = 0;

		if (at + heads * SPAN + 24 > data->len)
			continue;
		while (k < heads &&
		       is_list_head(reading, data->v + at + k * SPAN, data->addr + at + k * SPAN))
			k++;
		at += heads * SPAN;
		if (k == heads && parse_stats(data->v + at, &stats))
			return data->addr + at;
	}
	return 0;
}

/* Parses num_objects_to_move_, class_to_size_ and class_to_pages_ of SizeMap. words:
 * class_to_size_, with the others before and after it. Sizes increase up to 256 KiB. aligned: no
 * padding before class_to_pages_. */
static bool parse_sizes(const uint8_t *words, bool aligned, struct tables *tables)
{
	const uint8_t *pages = words + 4 * CLASSES + (aligned ? 0 : 4), *move = words - 4 * CLASSES;
	unsigned n = 1;

	/* Class 0 is empty, and class 1 has blocks of 8 bytes. */
	if (word4(words) || word4(words + 4) != 8 || word4(move) || proc__word(pages))
		return false;
	for (; n < CLASSES && tables->size[n - 1] < LARGEST; n++) {
		tables->size[n] = word4(words + 4 * n);
		tables->move[n] = word4(move + 4 * n);
		tables->pages[n] = proc__word(pages + 8 * n);
		if (tables->size[n] <= tables->size[n - 1] || tables->size[n] % 8 ||
		    tables->move[n] > 1u << 16 || !tables->pages[n] || tables->pages[n] > LARGEST ||
		    tables->pages[n] << tables->at->shift < tables->size[n])
			return false;
	}
	for (unsigned i = n; i < CLASSES; i++)
		if (word4(words + 4 * i))
			return false;
	tables->classes = n;
	return n >= CLASSES_LEAST && tables->size[n - 1] == LARGEST;
}

/* Bytes of the arrays of SizeMap before and after class_to_size_. */
#define SIZES_BEFORE (4 * CLASSES)
#define SIZES_AFTER (4 * CLASSES + 4 + 8 * CLASSES)

/* Returns the address of class_to_size_; 0: not found. */
static uint64_t find_sizes(const struct host_data *data, struct tables *tables)
{
	for (uint64_t at = SIZES_BEFORE; at + SIZES_AFTER <= data->len; at += 4)
		if (parse_sizes(data->v + at, (data->addr + at) % 8 == 0, tables))
			return data->addr + at;
	return 0;
}

/* Free objects by size class. */
struct free_objects {
	uint64_t central, transfer, thread; /* bytes */
	uint64_t caches;		    /* threads with a cache */
};

/* A CentralFreeList: the free blocks of one size class that are in no thread's cache. */
struct central {
	uint64_t size_class, spans, objects; /* objects: free objects in the spans */
	uint32_t slots, most_slots;	     /* full and all places for move[] free objects each */
};

/* Parses words, a copy of the CentralFreeList at addr. False: words is no CentralFreeList. */
static bool parse_central(const struct host_reading *reading, const uint8_t *words, uint64_t addr,
			  struct central *ret)
{
	ret->size_class = proc__word(words + CENTRAL_CLASS);
	ret->spans = proc__word(words + CENTRAL_SPANS);
	ret->objects = proc__word(words + CENTRAL_OBJECTS);
	ret->slots = word4(words + CENTRAL_SLOTS);
	ret->most_slots = word4(words + CENTRAL_MOST_SLOTS);
	return is_list_head(reading, words + CENTRAL_EMPTY, addr + CENTRAL_EMPTY) &&
	       is_list_head(reading, words + CENTRAL_NONEMPTY, addr + CENTRAL_NONEMPTY) &&
	       ret->slots <= ret->most_slots && ret->most_slots <= MOST_SLOTS &&
	       ret->spans <= MOST_OBJECTS && ret->objects <= MOST_OBJECTS;
}

/* Adds up Static::central_cache_: free objects, and as tcmalloc does the unused ends of spans.
 * addr: of the original. False: it is another array. */
static bool add_central(const struct tables *tables, const uint8_t *words, uint64_t addr,
			struct free_objects *ret)
{
	struct central central;

	ret->central = ret->transfer = 0;
	for (unsigned i = 0; i < tables->classes; i++) {
		size_t at = (size_t)CENTRAL * i;

		if (!parse_central(tables->reading, words + at, addr + at, &central) ||
		    central.size_class != i)
			return false;
		if (!i)
			continue; /* no blocks */
		ret->central += central.objects * tables->size[i] +
				central.spans *
					((tables->pages[i] << tables->at->shift) % tables->size[i]);
		ret->transfer += (uint64_t)central.slots * tables->move[i] * tables->size[i];
	}
	return true;
}

/* Returns the address of Static::central_cache_, an array with a list for each size class; 0: not
 * found. */
static uint64_t find_central(const struct host_data *data, const struct tables *tables)
{
	struct free_objects sum;
	uint64_t bytes = (uint64_t)CENTRAL * tables->classes;

	/* Compare the numbers of the first two lists' classes, 0 and 1, before all is parsed. */
	for (uint64_t at = 0; at + bytes <= data->len; at += 8)
		if (proc__word(data->v + at + CENTRAL_CLASS) == 0 &&
		    proc__word(data->v + at + CENTRAL + CENTRAL_CLASS) == 1 &&
		    add_central(tables, data->v + at, data->addr + at, &sum))
			return data->addr + at;
	return 0;
}

/* ---- caches of threads ---- */

/* Reads the ThreadCache at addr: each list has the size of its objects. Sets *bytes to those of
 * its free objects. -ENOENT: there is none. -E2BIG: too many reads. */
static int read_cache(struct tables *tables, uint64_t addr, uint8_t words[CACHE_END],
		      uint64_t *bytes)
{
	uint8_t first[8];
	int err;

	if (!is_private(tables->reading, addr, LISTS_END))
		return -ENOENT;
	if (++tables->tries > MAX_TRIES)
		return -E2BIG;
	/* Most pointers lead to something else: look at one list, of the first size class. */
	err = read_table(tables->reading, addr + FREE_LIST + FREE_LIST_SIZE, first, sizeof(first));
	if (err || word4(first) != tables->size[1])
		return err ?: -ENOENT;
	err = read_table(tables->reading, addr, words, CACHE_END);
	if (err)
		return err;
	*bytes = 0;
	for (unsigned i = 1; i < tables->classes; i++) {
		const uint8_t *l = words + (size_t)FREE_LIST * i;
		uint32_t length = word4(l + FREE_LIST_LENGTH);

		if (word4(l + FREE_LIST_SIZE) != tables->size[i] || length > 1u << 24)
			return -ENOENT;
		*bytes += (uint64_t)length * tables->size[i];
	}
	return 0;
}

/* Finds the offset of ThreadCache::next_ by a neighbour of the cache at addr: prev_ follows next_.
 * words: its copy. *ret 0: the cache has no neighbour. 0 or an error that ends the reading. */
static int find_next(struct tables *tables, uint64_t addr, const uint8_t *words, uint64_t *ret)
{
	uint8_t other[CACHE_END];
	uint64_t bytes;
	int err;

	*ret = 0;
	for (uint64_t at = LISTS_END + 8; at + 16 <= CACHE_END && !*ret; at += 8) {
		uint64_t x = proc__word(words + at);

		if (!x || x == addr)
			continue;
		err = read_cache(tables, x, other, &bytes);
		if (err && err != -ENOENT)
			return err;
		if (err)
			continue;
		/* x is the next cache if its prev_ leads back, or the previous one if its next_
		 * does. */
		if (proc__word(other + at + 8) == addr)
			*ret = at;
		else if (proc__word(other + at - 8) == addr)
			*ret = at - 8;
	}
	return 0;
}

/* Adds the caches of all threads, a list that begins at `first`. -ENOENT: it is no such list. */
static int add_caches(struct tables *tables, uint64_t first, struct free_objects *objects)
{
	uint64_t addr = first, before = 0, next_at = 0, bytes, n = 0;
	uint8_t words[CACHE_END];
	int err = 0;

	objects->thread = objects->caches = 0;
	while (addr && !err) {
		if (++n > MAX_CACHES)
			return -ENOENT;
		err = read_cache(tables, addr, words, &bytes);
		if (!err && !next_at)
			err = find_next(tables, addr, words, &next_at);
		if (err)
			break;
		if (next_at && proc__word(words + next_at + 8) != before)
			return -ENOENT; /* `first` is not the first cache, or the list changed */
		err = host_spans__add(&tables->reading->claims, addr, CACHE_END, HOST_MALLOC);
		objects->thread += bytes;
		before = addr;
		addr = next_at ? proc__word(words + next_at) : 0;
	}
	objects->caches = n;
	return err;
}

/* Finds the variable ThreadCache::thread_heaps_. -ENOENT: not found. */
static int find_caches(struct tables *tables, const struct host_data *data, uint64_t *ret)
{
	size_t claims = tables->reading->claims.n;
	struct free_objects objects;
	int err;

	for (uint64_t at = 0; at + 8 <= data->len; at += 8) {
		uint64_t addr = proc__word(data->v + at);

		if (addr < HOST_PAGE || !is_private(tables->reading, addr, LISTS_END))
			continue;
		err = add_caches(tables, addr, &objects);
		tables->reading->claims.n = claims;
		*ret = data->addr + at;
		if (err != -ENOENT)
			return err;
	}
	return -ENOENT;
}

/* Finds all tables in a file's data. -ENOENT: not there. */
static int find_in_data(struct tables *tables, struct windows *windows,
			const struct host_data *data)
{
	static const unsigned shifts[] = { 13, 12, 14, 15, 16, 18 }; /* TCMALLOC_PAGE_SIZE_SHIFT */
	struct host_tcmalloc_places *places = tables->at;
	int64_t root = -ENOENT;

	for (size_t i = 0; i < sizeof(shifts) / sizeof(*shifts) && root == -ENOENT; i++) {
		places->shift = shifts[i];
		root = find_root(windows, data, shifts[i]);
	}
	if (root < 0)
		return (int)root;
	places->root = data->addr + (uint64_t)root;
	places->stats = find_stats(tables->reading, data, (uint64_t)root, places->shift);
	places->sizes = places->stats ? find_sizes(data, tables) : 0;
	places->central = places->sizes ? find_central(data, tables) : 0;
	if (!places->central)
		return -ENOENT;
	return find_caches(tables, data, &places->caches);
}

static bool is_own_file(const struct map *map)
{
	return text__starts(map__base_name(map->path), "libtcmalloc");
}

/* Finds the tables in the data of mapping i. -ENOENT: they are not there. */
static int find_in_file(struct tables *tables, struct windows *windows, size_t i)
{
	struct host_data data;
	int err = host_places__read_data(tables->reading, i, DATA_MAX, &data);

	if (err)
		return host_places__is_local(err) ? -ENOENT : err;
	err = find_in_data(tables, windows, &data);
	free(data.v);
	if (err)
		tables->at->root = 0;
	else
		tables->at->data = tables->reading->maps.maps.v[i].start;
	return err;
}

/* True if Google's tcmalloc is a part of the file that the mapping maps: its functions are in a
 * section of their own (google_malloc, gperftools has none). Its tables are not read. */
static bool has_google_malloc(const struct proc *proc, const struct map *map)
{
	struct elf *elf = elf__open_map(proc, map);
	uint64_t addr, size;
	bool found = elf && !elf__section(elf, "google_malloc", &addr, &size);

	elf__free(elf);
	return found;
}

/* Finds the tables, in the data of tcmalloc's own library or of the program. The latter is searched
 * once. -ENOENT: not found. */
static int find_tables(struct tables *tables, struct windows *windows)
{
	const struct maps *maps = &tables->reading->maps.maps;
	int err = -ENOENT;
	char exe[4096];

	proc__exe(tables->reading->proc, exe, sizeof(exe));
	for (size_t i = 0; i < maps->n && err == -ENOENT; i++) {
		const struct map *map = &maps->v[i];

		if (!map->w || map->shared || !map->inode)
			continue;
		if (is_own_file(map)) {
			err = find_in_file(tables, windows, i);
		} else if (!strcmp(map->path, exe) && map->start != tables->at->absent) {
			err = find_in_file(tables, windows, i);
			tables->at->absent = err == -ENOENT ? map->start : 0;
			tables->at->google = err == -ENOENT &&
					     has_google_malloc(tables->reading->proc, map);
		}
	}
	return err;
}

/* ---- the page map ---- */

struct walk {
	struct tables *tables;
	struct windows *windows;
	struct host_spans *claims, *second;
	uint64_t next; /* the first page that is not in a span yet */
	uint64_t spans, stale;
	uint64_t pages;		   /* in all spans */
	struct span run;	   /* neighbouring spans */
	struct host_spans entries; /* pages with spans' entries */
	uint64_t table_bytes;	   /* of leaves and entries */
};

/* Claims the run of neighbouring spans, and begins an empty one. */
static int end_run(struct walk *walk)
{
	int err = host_spans__add(walk->claims, walk->run.start, walk->run.end - walk->run.start,
				  HOST_MALLOC);

	walk->run = (struct span){ 0 };
	return err;
}

/* Adds the page with the entry of the span that was read last, at addr. */
static int add_entry(struct walk *walk, uint64_t addr)
{
	uint8_t *claimed = &walk->windows->w[addr / WINDOW % WINDOWS].claimed;
	uint8_t bit = (uint8_t)(1u << addr % WINDOW / HOST_PAGE);

	if (*claimed & bit)
		return 0;
	*claimed |= bit;
	return host_spans__add(&walk->entries, addr & ~(uint64_t)(HOST_PAGE - 1), HOST_PAGE,
			       HOST_MALLOC);
}

/* Estimated bytes of all blocks that a sampled one of this size stands for. A block of s bytes is
 * chosen with the probability 1 - exp(-s / period). */
static uint64_t estimate(uint64_t size, uint64_t period)
{
	double chosen = -expm1(-(double)size / (double)period);

	return (uint64_t)((double)size / chosen);
}

/* Adds a block that tcmalloc's sampler chose. StackTrace: size, number of return addresses, the
 * addresses. */
static int add_sample(struct walk *walk, const struct span_info *span)
{
	struct host_samples *to = walk->tables->reading->opts->samples;
	uint64_t values[2 + HOST_SAMPLE_CALLS];
	int err;

	if (!to || !to->period || span->location != IN_USE || span->size_class ||
	    !is_private(walk->tables->reading, span->trace, sizeof(values)))
		return 0;
	err = read_table(walk->tables->reading, span->trace, values, sizeof(values));
	if (err)
		return err == -ENOENT ? 0 : err;
	if (!values[0] || values[0] > span->length << walk->tables->at->shift ||
	    !host_places__is_code(&walk->tables->reading->maps, values[2]))
		return 0; /* the block was freed meanwhile */
	return host_samples__add(to, 1, estimate(values[0], to->period), values + 2, values[1]);
}

/* Adds the span whose entry in the table of spans is at addr. */
static int add_span(struct walk *walk, uint64_t addr, const struct span_info *span)
{
	unsigned shift = walk->tables->at->shift;
	uint64_t start = span->start << shift, size = span->length << shift;
	int err = 0;

	if (++walk->spans > MAX_SPANS)
		return -E2BIG;
	walk->pages += span->length;
	/* Adjacent spans are claimed as one run. */
	if (start != walk->run.end) {
		err = end_run(walk);
		walk->run.start = start;
	}
	walk->run.end = start + size;
	if (span->location == FREE)
		err = err ?: host_spans__add(walk->second, start, size, HOST_MALLOC);
	if (span->trace)
		err = err ?: add_sample(walk, span);
	return err ?: add_entry(walk, addr);
}

/* Adds the spans that begin in a leaf. v: its copy. */
static int walk_leaf(struct walk *walk, const uint64_t *v, uint64_t first, uint64_t n)
{
	uint64_t page = walk->next > first ? walk->next : first;
	struct span_info span;
	int err;

	while (page < first + n) {
		uint64_t addr = v[page - first];

		if (!addr) {
			page++;
			continue;
		}
		err = read_span(walk->windows, addr, &span);
		if (err && err != -ENOENT)
			return err;
		if (err || !begins_at(walk->tables, &span, page)) {
			page++;
			if (++walk->stale > MAX_STALE)
				return -ENOENT;
			continue;
		}
		err = add_span(walk, addr, &span);
		page += span.length;
		walk->next = page;
		if (err)
			return err;
	}
	return 0;
}

/* Adds all spans, and the leaves themselves as malloc's memory. root: copy of the page map's root;
 * leaf: room for a leaf. -ENOENT: the page map
 * changed, or the table is no page map. -E2BIG: too large. */
static int walk_root(struct walk *walk, const uint8_t *root, uint64_t *leaf)
{
	unsigned shift = walk->tables->at->shift;
	uint64_t n = leaf_length(shift), leaves = 0;
	uint64_t size = 8 * n; /* bytes of a leaf */
	int err;

	for (uint64_t i = 0; i < root_length(shift); i++) {
		uint64_t addr = proc__word(root + 8 * i);

		if (!addr)
			continue;
		if (!is_private(walk->tables->reading, addr, size))
			return -ENOENT;
		if (++leaves > LEAVES)
			return -E2BIG;
		walk->table_bytes += size;
		err = host_spans__add(walk->claims, addr, size, HOST_MALLOC);
		if (err)
			return err;
		err = read_table(walk->tables->reading, addr, leaf, size);
		if (err)
			return err;
		err = walk_leaf(walk, leaf, /*first=*/i * n, n);
		if (err)
			return err;
	}
	return end_run(walk);
}

/* Claims the pages of walk->entries. */
static int claim_entries(struct walk *walk)
{
	int err = host_spans__resolve(&walk->entries);

	for (size_t i = 0; i < walk->entries.n && !err; i++) {
		const struct span *span = &walk->entries.v[i];

		walk->table_bytes += span->end - span->start;
		err = host_spans__add(walk->claims, span->start, span->end - span->start,
				      HOST_MALLOC);
	}
	return err;
}

/* Reads the page map and adds all spans. */
static int walk_pages(struct walk *walk)
{
	unsigned shift = walk->tables->at->shift;
	uint8_t *root = malloc(8 * root_length(shift));
	uint64_t *leaf = malloc(8 * leaf_length(shift));
	int err = root && leaf ? 0 : -ENOMEM;

	err = err
		      ?: read_table(walk->tables->reading, walk->tables->at->root, root,
				    8 * root_length(shift));
	err = err ?: walk_root(walk, root, leaf);
	err = err ?: claim_entries(walk);
	host_spans__free(&walk->entries);
	free(root);
	free(leaf);
	return err;
}

/* ---- a reading ---- */

/* Reads the small tables at their places. -ENOENT: they are not there any more. */
static int read_counters(struct tables *tables, struct heap_stats *s, struct free_objects *objects)
{
	const struct host_tcmalloc_places *places = tables->at;
	uint8_t sizes[SIZES_BEFORE + SIZES_AFTER], stats[24], head[8];
	uint8_t *central;
	int err;

	err = read_table(tables->reading, places->sizes - SIZES_BEFORE, sizes, sizeof(sizes));
	err = err ?: read_table(tables->reading, places->stats, stats, sizeof(stats));
	err = err ?: read_table(tables->reading, places->caches, head, sizeof(head));
	if (err)
		return err;
	if (!parse_sizes(sizes + SIZES_BEFORE, places->sizes % 8 == 0, tables) ||
	    !parse_stats(stats, s))
		return -ENOENT;
	central = malloc((size_t)CENTRAL * tables->classes);
	if (!central)
		return -ENOMEM;
	err = read_table(tables->reading, places->central, central,
			 (size_t)CENTRAL * tables->classes);
	if (!err && !add_central(tables, central, places->central, objects))
		err = -ENOENT;
	free(central);
	return err ?: add_caches(tables, proc__word(head), objects);
}

/* True if the spans of the page map and the counters agree, but for changes meanwhile. */
static bool agree(const struct walk *walk, const struct heap_stats *stats)
{
	uint64_t bytes = walk->pages << walk->tables->at->shift;
	uint64_t apart = bytes > stats->system ? bytes - stats->system : stats->system - bytes;

	return apart <= stats->system / 32 + (4u << 20); /* 4 MiB and 3 % */
}

/* Reads the tables once. -ENOENT, -E2BIG: they do not verify. */
static int read_once(struct tables *tables, struct windows *windows,
		     struct host_allocator *allocator)
{
	struct walk walk = { .tables = tables,
			     .windows = windows,
			     .claims = &tables->reading->claims,
			     .second = &tables->reading->second };
	struct free_objects objects = { 0 };
	struct heap_stats stats;
	uint64_t used, blocks;
	int err;

	for (size_t i = 0; i < WINDOWS; i++)
		windows->w[i].addr = 0;
	windows->loads = tables->tries = 0;
	if (!tables->at->root) {
		err = find_tables(tables, windows);
		if (err)
			return err;
	}
	err = read_counters(tables, &stats, &objects) ?: walk_pages(&walk);
	if (err)
		return err;
	used = stats.system - stats.free - stats.returned;
	blocks = objects.central + objects.transfer + objects.thread;
	/* What is free in lists cannot be more than what is in use by spans. */
	if (!agree(&walk, &stats) || blocks > used)
		return -ENOENT;
	*allocator = (struct host_allocator){ .arenas = objects.caches,
					      .live = used - blocks,
					      .free_blocks = blocks,
					      .purgeable = stats.free,
					      .retained = stats.returned,
					      .tables = walk.table_bytes +
							objects.caches * CACHE_END };
	return 0;
}

/* Sets the period of tcmalloc's sampler, which the program reads from its environment when it
 * starts. 0: the sampler is off. */
static void read_period(const struct host_reading *reading, struct host_samples *samples)
{
	char text[32];
	long long n;

	if (environ__get(reading->proc, &reading->maps.maps, "TCMALLOC_SAMPLE_PARAMETER", text,
			 sizeof(text)))
		return;
	n = strtoll(text, NULL, 0);
	if (n > 0)
		samples->period = (uint64_t)n;
}

/* As read_once(). After an error, all claims and samples are as before the call. */
static int try_once(struct tables *tables, struct windows *windows,
		    struct host_allocator *allocator)
{
	size_t claims = tables->reading->claims.n, second = tables->reading->second.n;
	int err = read_once(tables, windows, allocator);

	if (!err)
		return 0;
	tables->reading->claims.n = claims;
	tables->reading->second.n = second;
	if (tables->reading->opts->samples)
		tables->reading->opts->samples->n = 0;
	tables->at->root = 0;
	return err;
}

/* Index of the mapping that begins at addr, or of the one after it. */
static size_t map_at(const struct maps *maps, uint64_t addr)
{
	size_t i = 0;

	while (i + 1 < maps->n && maps->v[i].start < addr)
		i++;
	return i;
}

/* Adds tcmalloc to the ledger. */
static void add_allocator(struct host_reading *reading, const struct host_allocator *figures)
{
	size_t map = map_at(&reading->maps.maps, reading->places->tcmalloc.data);
	struct host_allocator *allocator = host_reading__add_allocator(reading, "tcmalloc", map);

	if (!allocator)
		return;
	if (reading->opts->samples && reading->opts->samples->period)
		reading->opts->samples->sampler = "tcmalloc";
	reading->free_blocks += figures->free_blocks;
	allocator->known = allocator->free_known = true;
	allocator->arenas = figures->arenas;
	allocator->live = figures->live;
	allocator->free_blocks = figures->free_blocks;
	allocator->purgeable = figures->purgeable;
	allocator->retained = figures->retained;
	allocator->tables = figures->tables;
}

int host_tcmalloc__read(struct host_reading *reading)
{
	struct tables tables = { .reading = reading, .at = &reading->places->tcmalloc };
	struct windows *windows = calloc(1, sizeof(*windows));
	struct host_allocator figures;
	int err = -ENOENT;

	if (!windows)
		return -ENOMEM;
	windows->reading = reading;
	if (reading->opts->samples)
		read_period(reading, reading->opts->samples);
	/* The process changes its tables meanwhile. */
	for (int i = 0; i < READINGS && err == -ENOENT; i++)
		err = try_once(&tables, windows, &figures);
	free(windows);
	if (!err)
		add_allocator(reading, &figures);
	else if (err == -ENOENT && tables.at->google) /* its figures stay unknown */
		host_reading__add_allocator(reading, "tcmalloc",
					    map_at(&reading->maps.maps, tables.at->absent));
	return err == -ENOENT || err == -E2BIG ? 0 : err;
}
