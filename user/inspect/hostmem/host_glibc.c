/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * glibc's malloc, from outside. No symbol leads to main_arena, so it is found in libc's data by its
 * bins: 127 list heads, which point to themselves while they are empty. Layouts: malloc/malloc.c
 * (struct malloc_state, struct malloc_chunk) and malloc/arena.c (heap_info), glibc 2.17 and later.
 * Everything is verified; an arena that does not add up makes malloc's figures unknown.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/hostmem/internal.h"
#include "base/text.h"
#include "inspect/proc.h"

#define DATA_MAX (4u << 20) /* bytes of libc's data that are searched */
#define BINS 127u	    /* NBINS - 1 */
#define BIN 16u /* a bin: fd and bk, where they are in a chunk with this bin as its list */
#define BINS_BYTES (BINS * BIN)
/* Offsets from malloc_state.bins: top and last_remainder lie before the bins; binmap[4], next,
 * next_free, attached_threads, system_mem and max_system_mem after them. */
#define TOP (-16)
#define NEXT (BINS_BYTES + 16u)
#define SYSTEM_MEM (NEXT + 24u)
#define TAIL (SYSTEM_MEM + 16u)
#define MP_BYTES 40u
#define MMAPS_MAX 65536u /* DEFAULT_MMAP_MAX */
#define DELTA 112u	 /* offset of bins in malloc_state since glibc 2.27 */
#define DELTA_MAX 256u
#define HEAP_MAX (64u << 20) /* HEAP_MAX_SIZE: alignment of non-main heaps */
#define MAX_ARENAS 4096u
#define MAX_HEAPS (1u << 16)
#define MAX_FREE (1u << 20) /* free chunks to read, at most about 1 s */
#define PAGES 64u	    /* pages that a walk of free chunks keeps */
#define READINGS 3	    /* attempts while the process changes its tables */
#define EMPTY_LEAST 16u	    /* empty bins that identify main_arena */
#define SIZE_MASK (~UINT64_C(7))
#define CHUNK_WORDS 4u /* prev_size, size, fd, bk */
#define CHUNK_HEADER 16u
#define CHUNK_LEAST 32u
#define CHUNK_ALIGN 16u
#define FAST_MOST 256u /* no chunk of a fastbin is larger */
#define FASTBINS 10u
#define PREV_INUSE 1u
#define IS_MMAPPED 2u

/* A struct malloc_state. */
struct arena {
	uint64_t bins; /* address of its bins */
	uint64_t top, system_mem;
	uint8_t words[16 + TAIL]; /* copy of its memory, from top to max_system_mem */
};

/* A page of the process, as it was once in a walk; addr 0: none. */
struct page {
	uint64_t addr;
	uint8_t v[HOST_PAGE];
};

/* A walk of free chunks. */
struct frees {
	struct host_reading *reading;
	struct page *pages; /* PAGES of them, by address: chunks of one page are often neighbours */
	uint64_t bytes, n;  /* bytes and number of the free chunks so far */
	uint64_t delta;	    /* offset of bins in malloc_state */
	uint8_t other;	    /* HOST_FREE_OTHER while it walks an arena that is not the main one */
	bool bad;	    /* a list changed or is too long */
};

/* A word of an arena, by its offset from the bins. */
static uint64_t arena_word(const struct arena *arena, int64_t from_bins)
{
	return proc__word(arena->words + 16 + from_bins);
}

/* True if there may be a chunk of malloc at this address. */
static bool may_be_chunk(const struct host_reading *reading, uint64_t addr)
{
	return addr % 16 == 0 && host_places__is_private_memory(&reading->maps, addr, 32);
}

/* True if words is a copy of an arena's bins, which are at the address `bins` in the target. An
 * empty bin points to itself; others point to chunks. least: empty bins that are required. */
static bool are_bins(const struct host_reading *reading, const uint8_t *words, uint64_t bins,
		     unsigned least)
{
	unsigned empty = 0;

	for (unsigned i = 0; i < BINS; i++) {
		uint64_t fd = proc__word(words + BIN * i);
		uint64_t bk = proc__word(words + BIN * i + 8);
		uint64_t self = bins + BIN * i - CHUNK_HEADER; /* as if it were a chunk */

		if (fd == self && bk == self)
			empty++;
		else if (!may_be_chunk(reading, fd) || !may_be_chunk(reading, bk))
			return false;
	}
	return empty >= least;
}

/* Sets top and system_mem from arena->words, and verifies them and the bins. */
static bool verify_arena(const struct host_reading *reading, struct arena *arena, unsigned least)
{
	uint64_t most = arena_word(arena, SYSTEM_MEM + 8); /* max_system_mem */

	arena->top = arena_word(arena, TOP);
	arena->system_mem = arena_word(arena, SYSTEM_MEM);
	return may_be_chunk(reading, arena->top) && arena->system_mem &&
	       arena->system_mem <= most && arena->system_mem % HOST_PAGE == 0 &&
	       are_bins(reading, arena->words - TOP, arena->bins, least);
}

/* Reads the arena whose bins are at `bins`. -ENOENT: it does not verify. */
static int read_arena(const struct host_reading *reading, uint64_t bins, unsigned least,
		      struct arena *ret)
{
	int err;

	ret->bins = bins;
	err = proc__read(reading->proc, bins + TOP, ret->words, sizeof(ret->words));
	if (err)
		return err;
	return verify_arena(reading, ret, least) ? 0 : -ENOENT;
}

/* ---- finding main_arena and mp_ ---- */

/* True for the writable data of "libc.so.6" or "libc-2.31.so". */
static bool is_libc(const struct map *map)
{
	const char *base = strrchr(map->path, '/');

	return map->w && !map->shared && base && text__starts(base, "/libc") &&
	       (base[5] == '.' || base[5] == '-');
}

/* Finds main_arena in libc's data. Returns the address of its bins; 0: not found. */
static uint64_t find_bins(const struct host_reading *reading, const struct host_data *data,
			  struct arena *ret)
{
	for (size_t at = -TOP; at + TAIL <= data->len; at += 8) {
		uint64_t self = data->addr + at - CHUNK_HEADER; /* of the first bin */

		/* malloc does not use the last bin, so it always points to itself */
		if (proc__word(data->v + at + BINS_BYTES - BIN) != self + BINS_BYTES - BIN)
			continue;
		ret->bins = data->addr + at;
		memcpy(ret->words, data->v + at + TOP, sizeof(ret->words));
		if (verify_arena(reading, ret, EMPTY_LEAST))
			return ret->bins;
	}
	return 0;
}

/*
 * mp_: n_mmaps, n_mmaps_max = 65536, max_n_mmaps, no_dyn_threshold (4 bytes each), then, aligned,
 * mmapped_mem and max_mmapped_mem. Whether words is a copy of it; addr: address of the original.
 * *mapped: mmapped_mem. A mp_ that was never used has only zeros, and is not recognized.
 */
static bool is_mp(const uint8_t *words, uint64_t addr, uint64_t *mapped)
{
	const uint8_t *mem = words + 16 + (addr & 4) /* after the four, aligned to 8 bytes */;
	uint32_t v[4];

	memcpy(v, words, sizeof(v));
	*mapped = proc__word(mem);
	return v[1] == MMAPS_MAX && v[2] && v[0] <= v[2] && v[2] <= v[1] && v[3] <= 1 &&
	       *mapped <= proc__word(mem + 8) && *mapped % HOST_PAGE == 0 && !v[0] == !*mapped;
}

/* Finds mp_ in libc's data. 0: not found, or several look like it. */
static uint64_t find_mp(const struct host_data *data)
{
	uint64_t found = 0, mapped;

	for (size_t at = 0; at + MP_BYTES <= data->len; at += 4) {
		if (!is_mp(data->v + at, data->addr + at, &mapped))
			continue;
		if (found)
			return 0; /* ambiguous */
		found = data->addr + at;
	}
	return found;
}

/* Reads main_arena, at the place of earlier readings or by a search. -ENOENT: not found. */
static int find_main(struct host_reading *reading, struct arena *ret)
{
	struct host_places *pl = reading->places;
	int err = -ENOENT;

	if (pl->bins) {
		err = read_arena(reading, pl->bins, 0, ret);
		if (!err || !host_places__is_local(err))
			return err;
		pl->bins = pl->delta = pl->mp = 0;
		err = -ENOENT;
	}
	for (size_t i = 0; i < reading->maps.maps.n && err == -ENOENT; i++) {
		struct host_data data;

		if (!is_libc(&reading->maps.maps.v[i]))
			continue;
		err = host_places__read_data(reading, i, DATA_MAX, &data);
		if (err) {
			err = host_places__is_local(err) ? -ENOENT : err;
			continue;
		}
		pl->bins = find_bins(reading, &data, ret);
		pl->mp = find_mp(&data);
		free(data.v);
		err = pl->bins ? 0 : -ENOENT;
	}
	return err;
}

/* ---- free chunks ---- */

/* Adds a free chunk. where: its place in the arena. */
static int add_free(struct frees *frees, uint64_t chunk, uint64_t size, enum host_free where)
{
	frees->bytes += size;
	return host_spans__add(&frees->reading->free_chunks, chunk, size, where | frees->other);
}

/* Reads the first words of a chunk, which lie on resident pages. 0 or -errno. */
static int read_words(const struct frees *frees, uint64_t addr, uint64_t words[CHUNK_WORDS])
{
	uint64_t start = addr & ~(uint64_t)(HOST_PAGE - 1);
	struct page *page = &frees->pages[start / HOST_PAGE % PAGES];
	int err = 0;

	if (addr - start > HOST_PAGE - CHUNK_LEAST) /* they go on on the next page */
		return proc__read(frees->reading->proc, addr, words, CHUNK_LEAST);
	if (page->addr != start)
		err = proc__read(frees->reading->proc, start, page->v, HOST_PAGE);
	page->addr = err ? 0 : start;
	if (!err)
		memcpy(words, page->v + (addr - start), CHUNK_LEAST);
	return err;
}

/* Reads a free chunk's size and list pointers: *fd to the next chunk, *bk to the previous one. Sets
 * frees->bad if it cannot be a chunk. 0 or an error that ends the reading. */
static int read_chunk(struct frees *frees, uint64_t addr, uint64_t *size, uint64_t *fd,
		      uint64_t *bk)
{
	uint64_t chunk[CHUNK_WORDS] = { 0 };
	int err;

	if (++frees->n > MAX_FREE || !may_be_chunk(frees->reading, addr)) {
		frees->bad = true;
		return 0;
	}
	err = read_words(frees, addr, chunk);
	*size = chunk[1] & SIZE_MASK;
	*fd = chunk[2];
	*bk = chunk[3];
	if (err || *size < CHUNK_LEAST || *size % CHUNK_ALIGN ||
	    !host_places__is_private_memory(&frees->reading->maps, addr, *size))
		frees->bad = true;
	return host_places__is_local(err) ? 0 : err;
}

/* Adds the chunks of a bin: a circular list of `chunk`, the first one, to head, the bin itself. */
static int walk_bin(struct frees *frees, uint64_t head, uint64_t chunk)
{
	uint64_t size, fd, bk, prev = head;
	int err = 0;

	while (chunk != head && !err && !frees->bad) {
		err = read_chunk(frees, chunk, &size, &fd, &bk);
		if (err || frees->bad)
			break;
		if (bk != prev)
			frees->bad = true;
		else
			err = add_free(frees, chunk, size, HOST_FREE_INSIDE);
		prev = chunk;
		chunk = fd;
	}
	return err;
}

/* Adds the chunks of a fastbin, a list that ends in NULL. Since glibc 2.32 its links are mangled:
 * link ^ (address of the link >> 12). */
static int walk_fastbin(struct frees *frees, uint64_t chunk)
{
	uint64_t size, fd, bk, unmangled;
	int err = 0;

	while (chunk && !err && !frees->bad) {
		err = read_chunk(frees, chunk, &size, &fd, &bk);
		if (err || frees->bad)
			break;
		if (size > FAST_MOST) {
			frees->bad = true;
			break;
		}
		err = add_free(frees, chunk, size, HOST_FREE_FAST);
		unmangled = fd ^ (chunk + CHUNK_HEADER) >> 12;
		chunk = !fd || may_be_chunk(frees->reading, fd) ? fd : unmangled;
	}
	return err;
}

/* Adds the chunks of an arena's ten fastbins, which lie before top. */
static int walk_fastbins(struct frees *frees, const struct arena *arena)
{
	uint64_t heads[FASTBINS];
	const size_t n = sizeof(heads) / sizeof(*heads);
	int err;

	if (frees->delta != DELTA && frees->delta != DELTA - 8)
		return 0; /* a layout without fastbins */
	err = proc__read(frees->reading->proc, arena->bins + TOP - sizeof(heads), heads,
			 sizeof(heads));
	if (err)
		frees->bad = true;
	for (size_t i = 0; i < n && !err && !frees->bad; i++)
		err = walk_fastbin(frees, heads[i]);
	return host_places__is_local(err) ? 0 : err;
}

/* Adds the free chunks of an arena. Sets frees->bad if its lists cannot be read: then only the top
 * chunk counts. 0, or an error that ends the reading. */
static int walk_free(struct frees *frees, const struct arena *arena)
{
	uint64_t size = 0, from = frees->reading->free_chunks.n;
	struct frees before = *frees;
	int err = 0;

	for (unsigned i = 0; i < BINS && !err && !frees->bad; i++)
		err = walk_bin(frees, arena->bins + BIN * i - CHUNK_HEADER,
			       arena_word(arena, (long)(BIN * i)));
	if (!err && !frees->bad)
		err = walk_fastbins(frees, arena);
	if (frees->bad) { /* drop the lists that were read in part */
		frees->reading->free_chunks.n = from;
		*frees = before;
		frees->bad = true;
	}
	if (err)
		return err;
	/* The top chunk is in no list. */
	err = proc__read_u64(frees->reading->proc, arena->top + 8 /* its size and flags */, &size);
	size &= SIZE_MASK;
	if (err || !host_places__is_private_memory(&frees->reading->maps, arena->top, size)) {
		frees->bad = true;
		return host_places__is_local(err) ? 0 : err;
	}
	frees->reading->ledger->malloc.top += size;
	return add_free(frees, arena->top, size, HOST_FREE_END);
}

/* ---- what malloc_trim(0) would return ---- */

#define CHUNK_BYTES 48u /* sizeof(struct malloc_chunk): a free chunk keeps these */
#define TOP_KEEPS 33u	/* MINSIZE + 1: bytes that the main arena's top chunk keeps at least */

/* Neighbouring free chunks: one chunk, once malloc_trim() has merged the fastbins' chunks. */
struct free_run {
	uint64_t start, end;
	bool has_top, other; /* it has its arena's top chunk; the arena is not the main one */
};

/* Returns the end of the program break's memory. 0: the process has none. */
static uint64_t end_of_heap(const struct host_reading *reading)
{
	for (size_t i = 0; i < reading->maps.maps.n; i++)
		if (!strcmp(reading->maps.maps.v[i].path, "[heap]"))
			return reading->maps.maps.v[i].end;
	return 0;
}

/* Adds the pages of a run that malloc_trim(0) would return. malloc/malloc.c, glibc 2.36: mtrim()
 * returns the whole pages of chunks behind their headers. systrim() returns whole pages from the
 * end of the main arena, if that is the end of the program break. The ends of other arenas stay. */
static int add_trimmed(struct host_reading *reading, const struct free_run *run, uint64_t heap_end)
{
	const uint64_t mask = HOST_PAGE - 1;
	uint64_t from = (run->start + CHUNK_BYTES + mask) & ~mask, to = run->end & ~mask, size;

	if (run->has_top) {
		size = run->end - run->start;
		if (run->other || size <= TOP_KEEPS || run->end < heap_end)
			return 0;
		to = run->end;
		from = to - ((size - TOP_KEEPS) & ~mask);
	}
	return from < to ? host_spans__add(&reading->trimmed, from, to - from, 0) : 0;
}

/* Joins neighbouring free chunks to runs. Adds each run to reading->second (free memory of
 * HOST_MALLOC), and to reading->trimmed what malloc_trim() would return of it. Chunks in a run with
 * the arena's top chunk become HOST_FREE_END. 0 or -ENOMEM. */
static int use_free_chunks(struct host_reading *reading)
{
	struct host_spans *chunks = &reading->free_chunks;
	uint64_t heap_end = end_of_heap(reading);
	int err = host_spans__resolve(&reading->free_chunks);

	for (size_t i = 0, next; i < chunks->n && !err; i = next) {
		struct free_run run = { .start = chunks->v[i].start, .end = chunks->v[i].start };

		/* the run from chunk i to before chunk next */
		for (next = i; next < chunks->n && chunks->v[next].start == run.end; next++) {
			run.end = chunks->v[next].end;
			run.other = chunks->v[next].part & HOST_FREE_OTHER;
			run.has_top |= (chunks->v[next].part & ~HOST_FREE_OTHER) == HOST_FREE_END;
		}
		for (size_t k = i; k < next && run.has_top; k++)
			chunks->v[k].part = (chunks->v[k].part & HOST_FREE_OTHER) | HOST_FREE_END;
		err = host_spans__add(&reading->second, run.start, run.end - run.start,
				      HOST_MALLOC);
		if (!err)
			err = add_trimmed(reading, &run, heap_end);
	}
	return err;
}

/* ---- arenas ---- */

/* Claims the heaps of the non-main arena at `start`, newest first. *n_heaps: of all arenas so far.
 * -ENOENT: their sizes do not add up to its system_mem. */
static int add_heaps(struct host_reading *reading, const struct arena *arena, uint64_t start,
		     size_t *n_heaps)
{
	uint64_t heap = arena->top & ~(uint64_t)(HEAP_MAX - 1), sum = 0;
	uint64_t heap_info[4]; /* ar_ptr, prev, size, mprotect_size */
	int err = 0;

	while (heap && !err) {
		if (++*n_heaps > MAX_HEAPS)
			return -ENOENT;
		err = proc__read(reading->proc, heap, heap_info, sizeof(heap_info));
		if (err)
			return err;
		if (heap_info[0] != start || heap_info[2] > HEAP_MAX || heap_info[2] % HOST_PAGE ||
		    heap_info[1] % HEAP_MAX ||
		    !host_places__is_private_memory(&reading->maps, heap, heap_info[2]))
			return -ENOENT;
		sum += heap_info[2];
		err = host_spans__add(&reading->claims, heap, heap_info[2], HOST_MALLOC);
		heap = heap_info[1];
	}
	if (err)
		return err;
	return sum == arena->system_mem ? 0 : -ENOENT;
}

/* Adds the arenas in the circular list that begins at main_arena. delta: offset of bins in
 * malloc_state. -ENOENT: the list does not lead back to main_arena. */
static int add_arenas(struct host_reading *reading, const struct arena *main_arena, uint64_t delta,
		      struct frees *frees)
{
	uint64_t start = main_arena->bins - delta, at = arena_word(main_arena, NEXT);
	struct host_malloc *figures = &reading->ledger->malloc;
	size_t heaps = 0;
	int err;

	figures->arenas = 1;
	figures->arena = main_arena->system_mem;
	for (; at != start; figures->arenas++) {
		struct arena arena;

		if (figures->arenas > MAX_ARENAS ||
		    !host_places__is_private_memory(&reading->maps, at, delta + TAIL))
			return -ENOENT;
		err = read_arena(reading, at + delta, 0, &arena)
			      ?: add_heaps(reading, &arena, at, &heaps);
		if (!err && frees) {
			frees->delta = delta;
			frees->other = HOST_FREE_OTHER;
			err = walk_free(frees, &arena);
			frees->other = 0;
		}
		if (err)
			return err;
		figures->arena += arena.system_mem;
		at = arena_word(&arena, NEXT);
	}
	reading->places->delta = delta;
	return 0;
}

/* As add_arenas(). After an error, claims, free chunks and frees are as before the call. */
static int try_delta(struct host_reading *reading, const struct arena *main_arena, uint64_t delta,
		     struct frees *frees)
{
	size_t claims = reading->claims.n, chunks = reading->free_chunks.n;
	struct frees before = { 0 };
	int err;

	if (frees)
		before = *frees;
	reading->ledger->malloc = (struct host_malloc){ 0 };
	err = add_arenas(reading, main_arena, delta, frees);
	if (!err)
		return 0;
	reading->claims.n = claims;
	reading->free_chunks.n = chunks;
	reading->ledger->malloc = (struct host_malloc){ 0 };
	if (frees)
		*frees = before;
	return err;
}

/* As add_arenas(), with the delta that is known, or the first delta with which the list leads back
 * to main_arena. */
static int all_arenas(struct host_reading *reading, const struct arena *main_arena,
		      struct frees *frees)
{
	int err = try_delta(reading, main_arena,
			    reading->places->delta ? reading->places->delta : DELTA, frees);

	for (uint64_t d = 32;
	     host_places__is_local(err) && d <= DELTA_MAX && !reading->places->delta; d += 8)
		err = try_delta(reading, main_arena, d, frees);
	return err;
}

/* True if a part of malloc's memory is swapped out. Reading its lists would swap it in. */
static bool heap_is_swapped(const struct host_reading *reading)
{
	if (reading->maps.brief)
		return reading->swap;
	for (size_t i = 0; i < reading->maps.maps.n; i++)
		if (reading->maps.v[i].swap && host_places__is_anonymous(&reading->maps.maps.v[i]))
			return true;
	return false;
}

/* Reads malloc's own sum of mapped chunks. */
static void read_mp(const struct host_reading *reading)
{
	struct host_malloc *figures = &reading->ledger->malloc;
	uint64_t at = reading->places->mp;
	uint8_t words[MP_BYTES];

	figures->mapped_known = at && !proc__read(reading->proc, at, words, sizeof(words)) &&
				is_mp(words, at, &figures->mapped);
}

bool host_glibc__is_heap(const struct host_reading *reading, const struct map *map)
{
	size_t i = host_spans__after(&reading->claims, map->start);

	return reading->ledger->malloc.known && map->start % HEAP_MAX == 0 &&
	       map->end - map->start <= HEAP_MAX && host_places__is_anonymous(map) &&
	       i < reading->claims.n && reading->claims.v[i].start == map->start &&
	       reading->claims.v[i].part == HOST_MALLOC;
}

/* Reads the arenas. frees: adds their free chunks; NULL: without them. 0 or an error that ends the
 * reading; l->malloc.known is false if the arenas could not be read. */
static int read_arenas(struct host_reading *reading, struct frees *frees)
{
	struct arena main_arena;
	int err = -ENOENT;

	/* The process changes its tables meanwhile. */
	for (int i = 0; i < READINGS && host_places__is_local(err); i++) {
		if (frees)
			memset(frees->pages, 0, PAGES * sizeof(*frees->pages));
		err = find_main(reading, &main_arena);
		if (!err)
			err = all_arenas(reading, &main_arena, frees);
	}
	if (err)
		return host_places__is_local(err) ? 0 : err;
	reading->ledger->malloc.known = true;
	read_mp(reading);
	if (!frees)
		return 0;
	frees->delta = reading->places->delta;
	err = walk_free(frees, &main_arena);
	/* More free bytes than the arenas have: the lists are not malloc's. */
	reading->ledger->malloc.free_known = !err && !frees->bad &&
					     frees->bytes <= reading->ledger->malloc.arena;
	reading->ledger->malloc.free = frees->bytes;
	return err ?: use_free_chunks(reading);
}

int host_glibc__read(struct host_reading *reading)
{
	struct frees frees = { .reading = reading };
	int err;

	if (reading->opts->brief || heap_is_swapped(reading))
		return read_arenas(reading, /*frees=*/NULL);
	frees.pages = malloc(PAGES * sizeof(*frees.pages));
	err = frees.pages ? read_arenas(reading, &frees) : -ENOMEM;
	free(frees.pages);
	return err;
}

/* ---- chunks with mappings of their own ---- */

#define TRIES 65536u	   /* pages without a header that one reading looks at */
#define TRIES_OF_ONE 4096u /* likewise, in one stretch of a mapping */

/* Returns the size of the mapped chunk whose header is at addr, and which ends at `end` or before.
 * 0: there is no header of such a chunk. */
static uint64_t mapped_chunk(const struct host_reading *reading, uint64_t addr, uint64_t end)
{
	const struct resident_range *ranges;
	uint64_t header[2], size;
	size_t n;

	/* Reading a page that is not resident would change the process's memory. */
	if (host_resident__read(reading->resident, addr, addr + HOST_PAGE, &ranges, &n) || !n ||
	    proc__read(reading->proc, addr, header, sizeof(header)))
		return 0;
	size = header[1] & SIZE_MASK;
	if (header[0] || (header[1] & ~SIZE_MASK) != IS_MMAPPED || !size || size % HOST_PAGE ||
	    size > end - addr)
		return 0;
	return size;
}

/* The search for chunks in neighbouring mappings. */
struct chunk_search {
	struct host_reading *reading;
	const struct host_spans *solid; /* ranges of other parts, which hold no chunks */
	struct host_spans found;	/* chunks that are certain, by address */
	/* By address: places with a valid header, but neither a chunk before nor a header or a
	 * bound after them confirms that they are chunks. */
	struct host_spans alone;
	uint64_t end;  /* end of the neighbouring mappings without a gap */
	uint64_t done; /* end of the last certain chunk */
	size_t tries;  /* pages without a header so far */
};

/* Adds the chunks that begin in the stretch [at, end) of a mapping, and end at `bound` or before. A
 * header at the start of the stretch or after another chunk is certain. A header elsewhere is
 * certain only if another header or the bound follows its chunk. 0 or -ENOMEM. */
static int find_chunks_in_stretch(struct chunk_search *search, uint64_t at, uint64_t end,
				  uint64_t bound)
{
	size_t tries_here = 0;
	bool certain = true; /* that a header at `at` belongs to a chunk */

	while (at < end) {
		uint64_t size = mapped_chunk(search->reading, at, bound);

		/* nothing but the header says that this is a chunk */
		if (size && !certain && at + size < bound &&
		    !mapped_chunk(search->reading, at + size, bound)) {
			if (host_spans__add(&search->alone, at, size, HOST_MALLOC))
				return -ENOMEM;
			size = 0;
		}
		if (size) {
			if (host_spans__add(&search->found, at, size, HOST_MALLOC))
				return -ENOMEM;
			search->reading->ledger->malloc.mapped_found += size;
			at += size;
			search->done = at;
			certain = true;
			continue;
		}
		certain = false;
		at += HOST_PAGE;
		if (++search->tries > TRIES || ++tries_here > TRIES_OF_ONE)
			break;
	}
	return 0;
}

/* Adds the chunks that begin in a mapping, in the stretches between the solid ranges: arenas of
 * Python, heaps, stacks. Tensors and pinned memory are not solid, because they lie in chunks. A
 * chunk may end in a later mapping, because madvise() on a part of a chunk divides its mapping. 0
 * or -ENOMEM. */
static int find_chunks_in_map(struct chunk_search *search, const struct map *map)
{
	uint64_t at = search->done > map->start ? search->done : map->start;
	int err = 0;

	for (size_t i = host_spans__after(search->solid, at); at < map->end && !err; i++) {
		const struct span *span = i < search->solid->n ? &search->solid->v[i] : NULL;
		uint64_t bound = span && span->start < search->end ? span->start : search->end;
		uint64_t end = bound < map->end ? bound : map->end;

		if (end > at)
			err = find_chunks_in_stretch(search, at, end, bound);
		at = span && span->start < map->end ? span->end : map->end;
		at = search->done > at ? search->done : at;
	}
	return err;
}

/* True if mapped chunks of malloc can lie in the mapping. */
static bool may_have_chunks(const struct map *map)
{
	return host_places__is_anonymous(map) && strcmp(map->path, "[heap]") &&
	       strcmp(map->path, "[stack]");
}

/* The end of the mappings that follow each other from the i-th on. */
static uint64_t end_of_neighbours(const struct maps *maps, size_t i)
{
	uint64_t end = maps->v[i].end;

	while (++i < maps->n && maps->v[i].start == end && may_have_chunks(&maps->v[i]))
		end = maps->v[i].end;
	return end;
}

/* Claims the chunks of search->alone, as long as malloc's own sum of mapped chunks (mp_) is higher
 * than the sum of those that were found. 0 or -ENOMEM. */
static int add_alone(struct chunk_search *search)
{
	struct host_malloc *figures = &search->reading->ledger->malloc;
	uint64_t done = 0;

	for (size_t i = 0; i < search->alone.n && figures->mapped_known; i++) {
		const struct span *span = &search->alone.v[i];
		size_t next = host_spans__after(&search->found, span->start);

		if (span->start < done ||
		    figures->mapped_found + (span->end - span->start) > figures->mapped ||
		    (next < search->found.n && search->found.v[next].start < span->end))
			continue;
		if (host_spans__add(&search->reading->claims, span->start, span->end - span->start,
				    HOST_MALLOC))
			return -ENOMEM;
		figures->mapped_found += span->end - span->start;
		done = span->end;
	}
	return 0;
}

/* Claims the chunks that are certain first, then those that only a header suggests. */
int host_glibc__find_mapped(struct host_reading *reading)
{
	struct host_spans solid = { 0 };
	struct chunk_search search = { .reading = reading, .solid = &solid };
	int err = 0;

	if (!reading->ledger->malloc.known)
		return 0;
	for (size_t i = 0; i < reading->claims.n && !err; i++) {
		const struct span *span = &reading->claims.v[i];

		/* memory that no mapped chunk contains */
		if (span->part >= HOST_PYTHON || span->part == HOST_LIBRARIES)
			err = host_spans__add(&solid, span->start, span->end - span->start,
					      span->part);
	}
	if (!err)
		err = host_spans__resolve(&solid);
	for (size_t i = 0; i < reading->maps.maps.n && !err; i++) {
		const struct map *map = &reading->maps.maps.v[i];

		if (!may_have_chunks(map) || !reading->maps.v[i].rss)
			continue;
		if (map->start >= search.end)
			search.end = end_of_neighbours(&reading->maps.maps, i);
		err = find_chunks_in_map(&search, map);
	}
	if (!err)
		err = add_alone(&search);
	for (size_t i = 0; i < search.found.n && !err; i++)
		err = host_spans__add(&reading->claims, search.found.v[i].start,
				      search.found.v[i].end - search.found.v[i].start, HOST_MALLOC);
	host_spans__free(&solid);
	host_spans__free(&search.found);
	host_spans__free(&search.alone);
	return err;
}
