/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The address space of a process as ranges: who mapped each, and how much of it is resident. The
 * resident part of a range becomes blocks: one when it is first seen, and one for each growth,
 * so that memory that stays keeps its time of birth. Does not read the process.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOST_PIECES 16		      /* blocks of a range */
#define HOST_RANGES_MAX (1u << 18)    /* ranges; more are not kept */
#define HOST_MERGE_BELOW (1ULL << 20) /* bytes: a smaller new range joins the one below it ... */
#define HOST_MERGED_MAX (64ULL << 20) /* ... if the owner is the same, up to this size */

struct host_owner {
	uint32_t stack, thread; /* numbers of the dictionary */
	uint8_t walk;		/* enum mt_walk */
	/* Memory for objects of any line came in pieces, charged to who needed the piece: sum of
	 * the squares of the pieces' sizes, per byte: sampling__pieces(). 0: the owner has all. */
	uint64_t grain;
};

struct host_range {
	uint64_t start, end;
	uint64_t id;   /* another one after each change of the bounds */
	uint64_t born; /* the id when it was mapped; parts and longer ranges keep it */
	struct host_owner owner;
	bool writable;
	bool named; /* the owner is the name of a mapping, not who mapped it */
	uint8_t n;  /* blocks */
	uint64_t resident;
	/* Bytes mapped since the last reading that may have become resident. For a new range: at
	 * most so many. */
	uint64_t fresh;
	uint64_t piece[HOST_PIECES]; /* sizes of the blocks, which lie one after the other */
};

/* A block of a range comes or goes. 0 or -errno, which ends the operation. */
typedef int (*host_ranges_fn)(void *ctx, const struct host_owner *owner, uint64_t addr,
			      uint64_t size, bool comes);

struct host_ranges {
	struct host_range **v; /* in order of addresses, without overlaps */
	size_t n, cap;
	uint64_t last_id;
	uint64_t dropped; /* ranges for which there was no room */
	host_ranges_fn fn;
	void *ctx;
};

void host_ranges__init(struct host_ranges *h, host_ranges_fn fn, void *ctx);
void host_ranges__free(struct host_ranges *h); /* without calls of fn */

/* All of these return 0, -ENOMEM, or the function's error. Empty and wrapping ranges do nothing. */

/* A new mapping replaces what is there. resident: bytes of it, if known. */
int host_ranges__map(struct host_ranges *h, uint64_t start, uint64_t end,
		     const struct host_range *like, uint64_t resident);
/* Its pages are gone. The rest of a range that is cut keeps its share of the resident bytes until
 * they are set again. */
int host_ranges__unmap(struct host_ranges *h, uint64_t start, uint64_t end);
/* mremap(): what was mapped keeps its owner, and growth belongs to the given one. */
int host_ranges__move(struct host_ranges *h, uint64_t from, uint64_t len, uint64_t to,
		      uint64_t to_len, const struct host_range *like);
/* Memory becomes writable: parts that were not, and have no resident page, get this owner. */
int host_ranges__make_writable(struct host_ranges *h, uint64_t start, uint64_t end,
			       const struct host_range *like);
/* Sets the resident bytes, at most the range's size. */
int host_ranges__set(struct host_ranges *h, struct host_range *r, uint64_t resident);

/*
 * The process has `bytes` more resident bytes than the ranges: takes them as those of memory that
 * was mapped since the last reading (fresh), the newest first. *ret: how many were taken.
 */
int host_ranges__charge(struct host_ranges *h, uint64_t bytes, uint64_t *ret);

/* The range that contains addr, or the first one above it; h->n: none. */
size_t host_ranges__find(const struct host_ranges *h, uint64_t addr);
