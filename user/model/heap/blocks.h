/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The live blocks of a device, now and at the mark. The mark is an event number. The blocks live
 * then are those born by then that are still live, and a list of the blocks freed since with their
 * categories. So a new peak costs nothing, and a category that becomes known later counts for it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map64.h"
#include "model/model.h"

struct dev;

/* Compared as bytes: no padding. */
struct request_info {
	uint64_t requested, cuda_stream;
};

/* Likewise. */
struct label {
	uint32_t name, module, category;
};

struct rec {		     /* record of a live block */
	uint64_t born : 63;  /* event that allocated it, 0: before the first one */
	uint64_t older : 1;  /* it was there before the first event: time is not known */
	uint64_t time;	     /* ns, of that event */
	uint32_t site;	     /* in a free record: the next free one */
	uint32_t request_no; /* in model.requests; 0: not known */
	uint32_t label_no;   /* in model.labels; 0: no label */
	uint32_t stamp;
};

struct block { /* result of a query: a block and its category as known now */
	uint64_t addr;
	union {
		uint64_t size; /* size of a pending block */
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
	struct gone {	     /* blocks live at a moment (enum row_when), freed since */
		struct block *all;
		uint32_t n;
		size_t cap;
	} gone[ROWS_MOMENTS];
};

void blocks__free(struct blocks *b);
/* Record of the live block at addr; NULL: none. Valid until the next blocks__put(). */
struct rec *blocks__at(const struct blocks *b, uint64_t addr);
/* Adds a block. replaced: addr held a live block, which is removed and copied to *old. 0 or
 * -ENOMEM. */
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
/* Sets the request that e carries, if it does. 0 or -ENOMEM. */
int blocks__set_request(struct model *m, const struct event *e, struct rec *rec);
/* The block of this record, with its category. dead: as if it were freed now. */
struct block blocks__of(const struct model *m, const struct dev *dev, uint64_t addr,
			const struct rec *rec, bool dead);
