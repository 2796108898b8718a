/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Sites, and the allocation and free of their blocks. */
#include <stdbool.h>
#include <stdint.h>

#include "memtrace.h"
#include "record/stream.h"

struct dev;
struct model;
struct rec;

/* Walk of a site whose blocks are from before attach, origin not known. */
#define WALK_CENSUS MT_WALK_NR
struct site {
	uint64_t size;
	uint64_t total; /* number of blocks */
	uint32_t stack, thread;
	uint32_t node; /* autograd node that ran; 0: none */
	uint32_t module;
	uint16_t dev;
	uint8_t walk;
	uint8_t phase;
	uint8_t role; /* enum category, by the stack's compiled code; CATEGORY_UNKNOWN: by others */
	/* Allocated outside forward, backward and optimizer, and after such a phase. */
	bool again;
	bool unused; /* free entry; stack is the next one */
	/* A sum over freed blocks whose sizes are not kept: size is their bytes, total their
	 * number. */
	bool varied;
	/* Number of the bound below which stacks were a sample, see detail.h; 0: none. */
	uint8_t drawn;
};
/* Bytes of count blocks of the site. */
static inline uint64_t site__bytes(const struct site *s, uint64_t count)
{
	return s->varied ? s->size : s->size * count;
}
#define SITES_KEPT (UINT32_C(1) << 18) /* exceeded if more are in use; see gc.c */

/* site: set to the block's site, an index in model.sites. */
int heap__alloc(struct model *m, struct dev *dev, const struct event *e, uint32_t *site);
int heap__free_block(struct model *m, struct dev *dev, const struct event *e);
/* Adds an entry, with unset fields, to the sites and their index. 0 or -ENOMEM. */
int heap__add_site(struct model *m, uint32_t hash, uint32_t *ret);
/* Hash of a site for the index of sites, without the size of a varied site. */
uint32_t heap__site_hash(const struct model *m, const struct site *s);
/* Prefetches what heap__site() looks into first. */
void heap__prefetch(const struct model *m, const struct event *e);
/* Site of e's block. 0 or -ENOMEM. */
int heap__site(struct model *m, const struct dev *dev, const struct event *e, uint8_t walk,
	       uint32_t *ret);
/* Adds a block of rec's site at e's address, and rec's reference to the stamp. The caller updates
 * the site's other counters. 0 or -ENOMEM. */
int heap__add(struct model *m, struct dev *dev, const struct event *e, struct rec *rec,
	      bool *replaced);
