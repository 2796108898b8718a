/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The address space of a process as ranges: the stack that mapped each range, and its resident
 * bytes. The resident bytes of a range become blocks: one when they are first seen, and one for
 * each growth, so that memory that stays keeps its time of birth. Does not read the process.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOST_PIECES 16		   /* maximum blocks of a range */
#define HOST_RANGES_MAX (1u << 18) /* ranges; more are not kept */
/* Bytes: a new range below this size joins the range that ends at its start, if both have the same
 * owner, up to a size of HOST_MERGED_MAX. */
#define HOST_MERGE_BELOW (1ULL << 20)
#define HOST_MERGED_MAX (64ULL << 20)

/* The call that mapped a range. */
struct host_owner {
	uint32_t stack, thread; /* numbers of the dictionary */
	uint8_t walk;		/* enum mt_walk */
	/* Error of a range whose owner is a sample: malloc and CPython take memory for objects of
	 * all lines in pieces, and each piece is charged to the line that needed it. grain: sum of
	 * the squares of the pieces' sizes, divided by the bytes; see sampling__pieces(). 0: all
	 * bytes belong to the owner. */
	uint64_t grain;
};

struct host_range {
	uint64_t start, end;
	uint64_t id;   /* changes whenever start or end changes */
	uint64_t born; /* the first id; stays when the range is cut or grows */
	struct host_owner owner;
	bool writable;
	bool named;	   /* owner.stack has the mapping's name, because the call was not seen */
	uint8_t n;	   /* number of blocks */
	uint64_t resident; /* bytes */
	/* Bytes that were mapped since the last reading and may have become resident. In a template
	 * (like): UINT64_MAX stands for all bytes of the range. */
	uint64_t fresh;
	uint64_t piece[HOST_PIECES]; /* sizes of the blocks, which lie one after the other */
};

/* Called for a block that begins (comes) or ends. 0 or -errno, which ends the operation. */
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

void host_ranges__init(struct host_ranges *ranges, host_ranges_fn fn, void *ctx);
void host_ranges__free(struct host_ranges *ranges); /* without calls of fn */

/* The functions below return 0, -ENOMEM, or the error of host_ranges.fn. They ignore ranges that
 * are empty or wrap around. like: template with owner, writable, named and fresh of new ranges. */

/* Adds a new mapping in place of older ranges. resident: its resident bytes, 0 if not known. */
int host_ranges__map(struct host_ranges *ranges, uint64_t start, uint64_t end,
		     const struct host_range *like, uint64_t resident);
/* Removes the ranges in [start, end). The rest of a range that is cut keeps its share of the
 * resident bytes until they are set again. */
int host_ranges__unmap(struct host_ranges *ranges, uint64_t start, uint64_t end);
/* As mremap(): the moved memory keeps its owner, and memory that is added has the owner of `like`. */
int host_ranges__move(struct host_ranges *ranges, uint64_t from, uint64_t len, uint64_t to,
		      uint64_t to_len, const struct host_range *like);
/* As mprotect(): ranges in [start, end) that were not writable and have no resident bytes get the
 * owner of `like`. */
int host_ranges__make_writable(struct host_ranges *ranges, uint64_t start, uint64_t end,
			       const struct host_range *like);
/* Sets the resident bytes of a range. More than its size count as its size. */
int host_ranges__set(struct host_ranges *ranges, struct host_range *range, uint64_t resident);

/*
 * Charges `bytes` resident bytes, which the process has and the ranges do not have yet, to memory
 * that was mapped since the last reading (fresh), newest range first. *ret: bytes that were charged.
 */
int host_ranges__charge(struct host_ranges *ranges, uint64_t bytes, uint64_t *ret);

/* Returns the index of the range that contains addr, or of the first one above it. h->n: none. */
size_t host_ranges__find(const struct host_ranges *ranges, uint64_t addr);
