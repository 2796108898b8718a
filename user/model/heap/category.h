/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A block's category, from its allocation and its free. A stretch is a run of allocations in one
 * phase on a device; a stamp describes the stretch in which a block was allocated. The category
 * follows from that stamp and the device's counters. It is computed when the block is freed or a
 * report needs it, so a live block costs nothing.
 */
#include <stdbool.h>
#include <stdint.h>

#include "model/heap/heap.h"
#include "model/model.h"

struct dev;
struct rec;

/* Value of stamp.phase if the allocation was not seen, and of stamp.after if no forward, backward
 * or optimizer came before it. */
#define LIFE_NONE PHASE_NR
struct stamp {
	uint32_t refs;
	/* phase: phase of the stretch. after: which of forward, backward and optimizer came last
	 * before it, or LIFE_NONE. */
	uint8_t phase, after;
	/* Number of stretches of each phase that had begun, including this one. */
	uint32_t forwards, backwards, optimizers;
	/* Number of optimizer steps and of calls that had ended before the stretch. In an
	 * unused stamp, steps is 1 plus the number of the next unused stamp. */
	uint32_t steps, calls;
};

/* Stamps and counters of a device. */
struct life {
	struct stamp *stamps;
	size_t cap;
	uint32_t n, free_no;
	uint32_t stretch_no; /* stamp of the current stretch; 0: none */
	/* Stamp of blocks from before the first event, by phase; 0: none. */
	uint32_t known_no[PHASE_NR + 1];
	uint8_t after;		    /* which of forward, backward and optimizer came last */
	uint32_t freeing_thread_no; /* thread of the free that is processed now; 0: none */
	/* The last allocation failed. Frees that follow are of what it leaves behind. */
	bool failed;
	/* The recording has no roles of the program's own objects, as one of a snapshot. */
	bool infers;
	struct map64 *sizes; /* size -> who makes blocks of it: category.c; NULL: none */
	uint32_t forwards, backwards, optimizers; /* number of stretches that began */
};
/* Stamp of a block that is allocated now in this phase; takes a reference. 0 or -ENOMEM. */
int category__stamp_new_block(const struct model *m, struct dev *dev, enum phase phase,
			      uint32_t *ret);
/* Stamp of a block from before the first event; phase may be LIFE_NONE. 0 or -ENOMEM. */
int category__stamp_known_block(struct dev *dev, int phase, uint32_t *ret);
/* Notes the size of a new site's blocks. 0 or -ENOMEM. */
int category__note_size(const struct model *m, struct life *l, const struct site *site);
/* Drops a reference to a stamp. */
void category__drop(struct life *l, uint32_t stamp);
/* A step ended: the next allocation begins a new stretch, whatever its phase. */
void category__step(struct model *m);
#define LIFE_MAYBE_INPUT CATEGORY_NR /* input or unknown, see category__decide() */
/* Category of a block as known now, an enum category or LIFE_MAYBE_INPUT: pass it to
 * category__decide() before use. dead: the block is freed now. */
uint8_t category__of_record(const struct model *m, const struct dev *dev, const struct rec *rec,
			    bool dead);
/* As category__of_record(), or CATEGORY_PRIVATE_POOL for a block of unknown category at an addr in
 * a private pool. */
uint8_t category__of_block(const struct model *m, const struct dev *dev, uint64_t addr,
			   const struct rec *rec, bool dead);
/* Resolves LIFE_MAYBE_INPUT to input or unknown, which depends on later blocks of the site. */
static inline uint8_t category__decide(const struct site *s, uint8_t category)
{
	if (category != LIFE_MAYBE_INPUT)
		return category;
	return s->again ? CATEGORY_INPUT : CATEGORY_UNKNOWN;
}
