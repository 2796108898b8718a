/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Blocks and free ranges in the segments of PyTorch's caching allocator, as its trace changes them.
 * The trace has the requested size of a block. The allocated total counts the block's own size,
 * which follows from the free range that the block was cut from. The rules are those of
 * c10/cuda/CUDACachingAllocator.cpp (round_size, should_split, try_merge_blocks), PyTorch 2.0 to
 * 2.15. All addresses and sizes may be hostile.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/snapshot/records.h"

struct tiling;

/* NULL on ENOMEM. settings must outlive the tiling. */
struct tiling *tiling__new(const struct snapshot_settings *settings);
void tiling__free(struct tiling *t); /* NULL is fine */
/* Blocks of large segments are split as those of expandable segments from now on. */
void tiling__set_expandable(struct tiling *t);

/* The functions from here on return 0 or -ENOMEM. */

/* Adds a segment, all free. mapped: it joins its neighbours, as mappings of an expandable segment
 * do. */
int tiling__add_segment(struct tiling *t, uint64_t addr, uint64_t size, bool mapped);
/* The same in three parts, for segments that already have blocks: where free ranges end, a free
 * range, a block. */
int tiling__add_borders(struct tiling *t, uint64_t addr, uint64_t size, bool mapped);
int tiling__add_gap(struct tiling *t, uint64_t addr, uint64_t size);
int tiling__know_block(struct tiling *t, uint64_t addr, uint64_t size, bool waits);
int tiling__drop_segment(struct tiling *t, uint64_t addr, uint64_t size, bool mapped);
/* Adds a block. *size: bytes of the block if they are known, otherwise 0; gets the block's bytes.
 * *before: bytes of a live block that was at the address, and ends; otherwise 0. */
int tiling__add_block(struct tiling *t, uint64_t addr, uint64_t requested, uint64_t *size,
		      uint64_t *before);
/* The program frees a block, whose memory a stream may still use. *size: its bytes; 0: no live
 * block is known there. */
int tiling__free_block(struct tiling *t, uint64_t addr, uint64_t *size);
/* The memory of a freed block can be used again. */
int tiling__reuse_block(struct tiling *t, uint64_t addr);

/* True if the bound on searches was reached: sizes of blocks may be guesses since then. */
bool tiling__guessed(const struct tiling *t);
/* Gets the next block that waits for a stream, in any order; *pos starts at 0. Returns false if
 * there are no more. */
bool tiling__next_waiting(const struct tiling *t, size_t *pos, uint64_t *addr, uint64_t *size);
/* Returns the bytes of a block for this request, if it is cut from a larger free range. */
uint64_t tiling__round(const struct snapshot_settings *s, uint64_t requested);
