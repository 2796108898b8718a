/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A block's category, from its birth and death. A stamp is a stretch of one phase on a device. The
 * category follows from the stamp of the birth and from counters when the block is freed or a
 * report needs it. Between the two it costs nothing.
 */
#include <stdbool.h>
#include <stdint.h>

#include "model/heap/heap.h"
#include "model/model.h"

struct dev;
struct rec;

/* No phase: its allocation was not seen, or no forward, backward or optimizer came before it. */
#define LIFE_NONE PHASE_NR
struct stamp {
	uint32_t refs;
	/* after: last of forward, backward and optimizer before the stretch, or LIFE_NONE. */
	uint8_t phase, after;
	/* Number of stretches of each phase begun so far, with this one. */
	uint32_t forwards, backwards, optimizers;
	/* Number of steps and calls ended before it. In a free stamp, steps is 1 + the next free
	 * one. */
	uint32_t steps, calls;
};

struct life {
	struct stamp *stamps;
	size_t cap;
	uint32_t n, free_no;
	uint32_t stretch_no; /* stamp of the current stretch; 0: none */
	/* Stamp of blocks from before the first event, by phase; 0: none. */
	uint32_t known_no[PHASE_NR + 1];
	uint8_t after;		    /* last of forward, backward and optimizer */
	uint32_t freeing_thread_no; /* thread that frees a block now; 0: none does */
	uint32_t forwards, backwards, optimizers;
};
/* Stamp of a block that is allocated now in this phase; takes a reference. 0 or -ENOMEM. */
int category__born(const struct model *m, struct dev *dev, enum phase phase, uint32_t *ret);
/* Stamp of a block from before the first event; phase may be LIFE_NONE. 0 or -ENOMEM. */
int category__known(struct dev *dev, int phase, uint32_t *ret);
/* Drops a reference to a stamp. */
void category__drop(struct life *l, uint32_t stamp);
/* A step ended: the next allocation begins a new stretch, whatever its phase. */
void category__step(struct model *m);
/* Category as known now. dead: the block is freed now. Pass the result to category__decide()
 * before use. */
#define LIFE_MAYBE_INPUT CATEGORY_NR
uint8_t category__category(const struct model *m, const struct dev *dev, const struct rec *rec,
			   bool dead);
/* The same for a block at addr, which may be in a private pool. */
uint8_t category__of_block(const struct model *m, const struct dev *dev, uint64_t addr,
			   const struct rec *rec, bool dead);
/* Resolves LIFE_MAYBE_INPUT to input or unknown, which depends on later blocks of the site. */
static inline uint8_t category__decide(const struct site *s, uint8_t category)
{
	if (category != LIFE_MAYBE_INPUT)
		return category;
	return s->again ? CATEGORY_INPUT : CATEGORY_UNKNOWN;
}
