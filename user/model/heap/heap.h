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

/* Value of site.walk if the site's blocks are from before attach and their origin is not known. */
#define WALK_CENSUS MT_WALK_NR
struct site {
	uint64_t size;
	uint64_t total; /* number of blocks allocated so far */
	uint32_t stack, thread;
	uint32_t node; /* autograd node that ran; 0: none */
	uint32_t module;
	uint32_t scope_no, launcher; /* as in struct scopes */
	uint16_t dev;		     /* number of the device */
	uint8_t walk;		     /* enum mt_walk, or WALK_CENSUS */
	uint8_t phase;		     /* enum phase, or LIFE_NONE */
	/* enum category that the compiled code on the stack implies; CATEGORY_UNKNOWN: none. */
	uint8_t role;
	bool between; /* as in struct stack_origin */
	/* The site allocated a block after the device's first forward, backward or optimizer. */
	bool again;
	bool unused; /* the entry is free; stack is the number of the next free one, plus 1 */
	/* The entry is the sum of removed sites of several sizes: size is the bytes of all their
	 * blocks, total the number. */
	bool varied;
	/* If only a sample of stacks below a size was read: number of that size limit, from
	 * sampling__bound_no(). 0: all stacks were read. */
	uint8_t drawn;
};
/* Bytes of count blocks of the site. */
static inline uint64_t site__bytes(const struct site *s, uint64_t count)
{
	return s->varied ? s->size : s->size * count;
}
#define SITES_KEPT (UINT32_C(1) << 18) /* exceeded if more are in use; see gc.c */

/* Handles an EVENT_ALLOC. Sets *site to the block's site, an index in model.sites. Returns 0,
 * -ENOMEM or a callback's error. */
int heap__alloc(struct model *m, struct dev *dev, const struct event *e, uint32_t *site);
/* Handles an EVENT_FREE. Returns as heap__alloc(). */
int heap__free_block(struct model *m, struct dev *dev, const struct event *e);
/* Adds an entry to the sites and their index; the caller sets its fields. Returns 0 or -ENOMEM. */
int heap__add_site(struct model *m, uint32_t hash, uint32_t *ret);
/* Hash of a site for the index of sites, without the size of a varied site. */
uint32_t heap__site_hash(const struct model *m, const struct site *s);
/* Prefetches the entry of the cache of recent sites that heap__site() looks into first. */
void heap__prefetch(const struct model *m, const struct event *e);
/* Finds or adds the site of e's block. Returns 0 or -ENOMEM. */
int heap__site(struct model *m, const struct dev *dev, const struct event *e, uint8_t walk,
	       uint32_t *ret);
/* Adds a block of rec's site at e's address and takes over rec's reference to the stamp. *replaced:
 * the address had a live block, which ends here. The caller updates the site's counters. Returns 0,
 * -ENOMEM or a callback's error. */
int heap__add_block(struct model *m, struct dev *dev, const struct event *e, struct rec *rec,
		    bool *replaced);
