/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The live blocks of a device, now and at the mark. The mark is an event number. The blocks at the
 * mark are the live blocks that were allocated before it, and the blocks in a list: those freed
 * since, with their categories. So a new mark, at each new peak, costs nothing, and a category that
 * becomes known after the mark counts for it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map64.h"
#include "model/model.h"

struct dev;

/* A request that a block was allocated for. hash_index compares it as bytes, so it has no padding. */
struct request_info {
	uint64_t requested, cuda_stream;
};

/* Name, module and category that the program's objects give a block. It has no padding, either.
 */
struct label {
	uint32_t name, module, category;
	uint32_t inferred; /* 1: the category follows from frames and lifetimes */
};

struct rec {		     /* record of a live block */
	uint64_t born : 63;  /* number of the event that allocated it; 0: before the first event */
	uint64_t older : 1;  /* allocated before the first event: time is not known */
	uint64_t time;	     /* time of the allocation, ns */
	uint32_t site;	     /* in a free record: the next free one */
	uint32_t request_no; /* in model.requests; 0: not known */
	uint32_t label_no;   /* in model.labels; 0: no label */
	uint32_t stamp;	     /* index in life.stamps: when it was allocated */
};

struct block { /* result of a query: a block and its category as known now */
	uint64_t addr;
	union {
		uint64_t size; /* only of a block that was freed and waits for a stream */
		struct {
			uint32_t site, request_no;
		};
	};
	uint32_t label_no;
	uint8_t category;
};

struct blocks {
	struct map64 *at; /* address -> index of its record */
	struct rec *recs;
	size_t cap;
	uint32_t n, free_no; /* free_no: first free record */
	struct gone {	     /* blocks that were live at a moment (enum row_when) and freed since */
		struct block *all;
		uint32_t n;
		size_t cap;
	} gone[ROWS_MOMENTS];
};

void blocks__free(struct blocks *b);
/* Record of the live block at addr; NULL: none. Valid until the next blocks__put(). */
struct rec *blocks__at(const struct blocks *b, uint64_t addr);
/* Adds a block. If addr has a live block, removes it, sets *replaced and copies it to *old. Returns
 * 0, or -ENOMEM: the block may have been added, and the model can only be freed. */
int blocks__put(const struct model *m, struct dev *dev, uint64_t addr, const struct rec *rec,
		bool *replaced, struct rec *old);
/* Removes the block at addr and copies it to *ret. 0, -ENOENT or -ENOMEM. */
int blocks__take(const struct model *m, struct dev *dev, uint64_t addr, struct rec *ret);
/* All blocks in order of addresses, now or at a moment. The caller frees *ret. 0 or -ENOMEM. */
int blocks__list(const struct model *m, const struct dev *dev, enum row_when when,
		 struct block **ret, size_t *n);
/* As blocks__list(), in any order. */
int blocks__all(const struct model *m, const struct dev *dev, enum row_when when,
		struct block **ret, size_t *n);
/* Sets rec->request_no if e says what the program requested. Returns 0 or -ENOMEM. */
int blocks__set_request(struct model *m, const struct event *e, struct rec *rec);
/* Makes the query result for a record, with its category. dead: the category that the block has if
 * it is freed now. */
struct block blocks__describe(const struct model *m, const struct dev *dev, uint64_t addr,
			      const struct rec *rec, bool dead);
