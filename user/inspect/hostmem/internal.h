/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by the files of hostmem: ranges of addresses that belong to parts of the ledger, and the
 * places of allocators' tables. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "inspect/hostmem.h"
#include "inspect/hostmem/host_smaps.h"
#include "inspect/proc.h"

struct span {
	uint64_t start, end; /* [start, end) */
	uint8_t part;	     /* enum host_part */
};

/* Number of a span's bytes that lie in [start, end). */
static inline uint64_t span__bytes_in(const struct span *span, uint64_t start, uint64_t end)
{
	uint64_t from = span->start > start ? span->start : start;
	uint64_t to = span->end < end ? span->end : end;

	return to > from ? to - from : 0;
}

struct host_spans {
	struct span *v;
	size_t n, cap;
};

/* Adds a range; an empty one is ignored, and one that wraps around is cut. 0 or -ENOMEM. */
int host_spans__add(struct host_spans *spans, uint64_t start, uint64_t size, uint8_t part);
/* Sorts the ranges by address and removes overlaps: the lower part keeps the bytes. 0 or
 * -ENOMEM. */
int host_spans__resolve(struct host_spans *spans);
/* Returns the index of the first range that ends after addr. spans->n: none. The ranges must be
 * resolved. */
size_t host_spans__after(const struct host_spans *spans, uint64_t addr);
void host_spans__free(struct host_spans *spans);

#define HOST_PAGE 4096u /* smallest page; addresses of mappings are multiples */

/* The writable data of a mapped file, with the zeroed part after it. */
struct host_data {
	uint64_t addr;
	uint8_t *v; /* owned */
	size_t len;
};

/* gperftools' tcmalloc: addresses of its tables. root 0: not found yet. */
struct host_tcmalloc_places {
	uint64_t data;	  /* start of the mapping that has the tables */
	uint64_t root;	  /* PageHeap::pagemap_ */
	uint64_t stats;	  /* PageHeap::stats_ */
	uint64_t sizes;	  /* SizeMap::class_to_size_ */
	uint64_t central; /* Static::central_cache_ */
	uint64_t caches;  /* ThreadCache::thread_heaps_ */
	unsigned shift;	  /* kPageShift: a page has 1 << shift bytes */
	uint64_t absent;  /* start of the program's data, if it has no tables; 0: not searched */
	bool google;	  /* the program has Google's tcmalloc, whose tables are other ones */
};

/* The root of jemalloc's tree of extents. */
struct host_jemalloc_place {
	uint64_t data, root;   /* addresses of the file's zeroed data that has it, of the root */
	uint8_t shape, layout; /* indices in host_jemalloc.c */
};

/* Places of tables that earlier readings found, addresses in the target; 0: not found yet. Each
 * reading verifies them again. */
struct host_places {
	uint64_t arenas; /* CPython: address of the pointer to the arena objects */
	uint64_t bins;	 /* glibc: main_arena.bins */
	uint64_t delta;	 /* glibc: offset of bins in struct malloc_state */
	uint64_t mp;	 /* glibc: mp_.n_mmaps */
	uint64_t pinned; /* PyTorch: implementation of the host allocator */
	struct host_jemalloc_place jemalloc;
	uint64_t without_jemalloc; /* checksum of the files in which no jemalloc was found */
	struct host_tcmalloc_places tcmalloc;
};

/* Place of a free chunk of glibc's malloc. For arenas other than the main one, HOST_FREE_OTHER is
 * added. */
enum host_free {
	HOST_FREE_INSIDE = 1, /* between chunks in use: in a bin */
	HOST_FREE_FAST = 2,   /* in a fastbin: not merged with its neighbours yet */
	HOST_FREE_END = 3,    /* at the arena's end: its top chunk */
	HOST_FREE_OTHER = 4,
	HOST_FREE_NR = 8,
};

/* A reading in progress. */
struct host_reading {
	const struct proc *proc;
	const struct python *python; /* or NULL */
	const struct host_opts *opts;
	struct host_places *places;
	struct host_smaps maps;
	struct host_resident *resident;
	struct host_spans claims; /* ranges that parts claim */
	struct host_spans second; /* ranges of parts' second figures, such as free chunks */
	/* Free chunks of glibc's arenas by address; a span's `part` is an enum host_free. */
	struct host_spans free_chunks;
	struct host_spans trimmed; /* ranges that malloc_trim(0) would return, by address */
	uint64_t free_blocks;	  /* bytes of malloc's free blocks that are in no range of second */
	struct host_spans pinned; /* blocks of the host allocator that are in use */
	struct host_ledger *ledger;
	uint64_t swap;	   /* bytes swapped out, of the whole process */
	bool pinned_known; /* the host allocator's tables were read, or there is no driver */
	bool has_driver;   /* CUDA's driver is in the process */
};

/* Whether a mapping is private memory without a file that can be read and written. */
bool host_places__is_anonymous(const struct map *map);
/* Whether [addr, addr + size) lies in one host_places__is_anonymous() mapping. The heap's mapping
 * counts as longer, because the heap may have grown since the mappings were read. */
bool host_places__is_private_memory(const struct host_smaps *smaps, uint64_t addr, uint64_t size);
/* Whether addr is in a mapped program's code. */
bool host_places__is_code(const struct host_smaps *smaps, uint64_t addr);
/* Reads the resident pages of [addr, addr + len); the others read as zeros. So it makes no page
 * resident. 0 or -errno. */
int host_places__read_resident(const struct host_reading *reading, uint64_t addr, uint8_t *buf,
			       size_t len);
/* Reads the writable data of mapping i and the file's zeroed data (.bss) after it, at most max
 * bytes. 0 or -errno. The caller frees ret->v. */
int host_places__read_data(const struct host_reading *reading, size_t i, size_t max,
			   struct host_data *ret);

/* Readers of allocators. One that finds an allocator other than glibc's malloc in the process also
 * adds it with host_reading__add_allocator(). It claims the allocator's memory for HOST_MALLOC, and
 * the free part of it as the second figure of HOST_MALLOC.
 *
 * Each adds what it finds to the reading's claims and ledger. 0, also if nothing was found, or an
 * error that ends the reading: -ENOMEM, -ESRCH, -EPERM. */
int host_pinned__read(struct host_reading *reading); /* before the claims are resolved */
int host_pymalloc__read(struct host_reading *reading);
int host_glibc__read(struct host_reading *reading);
int host_jemalloc__read(struct host_reading *reading);
int host_tcmalloc__read(struct host_reading *reading);
/* jemalloc's sampler; adds to o->samples only. */
int host_jeprof__read(struct host_reading *reading);
int host_mimalloc__read(struct host_reading *reading); /* after host_pymalloc__read() */
int host_musl__read(struct host_reading *reading);
/* Adds an allocator to the ledger, with unknown figures. map: index of a mapping of the file that
 * has its code. Borrowed from r->l. NULL: no room. */
struct host_allocator *host_reading__add_allocator(struct host_reading *reading, const char *name,
						   size_t map);
/* Whether a mapping is a heap of a non-main arena, so that all of it is malloc's: the arena may
 * have shrunk since the mappings were read. After the claims are resolved. */
bool host_glibc__is_heap(const struct host_reading *reading, const struct map *map);
/* Finds malloc's chunks with mappings of their own. Call it after all other claims were added. */
int host_glibc__find_mapped(struct host_reading *reading);
/* Claims the stacks of threads, and by their program headers the zeroed data of mapped libraries. */
int host_places__read(struct host_reading *reading);

/* Adds blocks of malloc's sampler with the stack of return addresses `call`. bytes: estimate of all
 * live bytes that they stand for. 0, -ENOMEM, -E2BIG. */
int host_samples__add(struct host_samples *samples, uint64_t blocks, uint64_t bytes,
		      const uint64_t *call, size_t calls);
/* Adds up samples with the same stack, and sorts by bytes. */
void host_samples__merge(struct host_samples *samples);

/* True if an error concerns one object only. Other errors end the reading. */
static inline bool host_places__is_local(int err)
{
	return err == -EFAULT || err == -ENOENT || err == -EBADMSG;
}
