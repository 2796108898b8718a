/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_GROWTH_INTERNAL_H
#define MT_MODEL_GROWTH_INTERNAL_H
/*
 * A unit is what blocks are put together by: a line, a stack, a module. Its values are written when
 * it is touched the next time, since until then they are all the same: no pass over all units at a
 * step's end. Two tracks at once, by steps and by time: which of them counts is known only at the
 * end, or once there are many steps.
 */
#include "model/growth.h"
#include "model/internal.h"

enum { TRACK_STEPS, TRACK_TIME, TRACK_NR };
enum { SUM_ALLOCATED, SUM_RESERVED, SUM_TAKEN, GROWTH_SUMS };

struct growth_track {
	bool on;
	uint64_t passed; /* steps; slices */
	uint64_t stride; /* of them, from one value to the next */
	uint32_t n;	 /* values */
};

struct growth_unit {
	struct growth_key {
		uint32_t dev, a, b, c;
	} key;
	uint32_t site; /* the first one */
	uint64_t live, allocated;
	struct growth_series {
		uint64_t *v; /* NULL: all 0 */
		uint32_t n, cap;
	} s[TRACK_NR];
	uint64_t gone[TRACK_NR][GROWTH_AGES]; /* bytes, by how old they got */
	/*
	 * Those that went since the last value: a program that ends frees all that it has, and that
	 * is not what is asked for. No part of gone until another value comes.
	 */
	struct growth_late {
		uint64_t epoch;
		uint64_t by_age[GROWTH_AGES], of_category[CATEGORY_NR];
		uint64_t old, blocks;
	} late[TRACK_NR];
};

struct growth_watch {
	enum group by;
	uint32_t *of_site; /* 1 + unit, 0: none yet */
	uint32_t nsites;
	struct growth_unit *units;
	uint32_t n, cap;
	struct hash_index index;
	struct growth_track track[TRACK_NR];
	enum step_kind kind;	     /* of TRACK_STEPS */
	uint32_t max;		     /* values kept */
	uint64_t cells;		     /* room for values of all units */
	bool coarse;		     /* units are full: what came later is all one */
	bool begun;		     /* TRACK_TIME: an event came, at */
	uint64_t start, now;	     /* ns */
	uint64_t allocs, last_alloc; /* how many; ns: what comes after the last one is an end, and
					no slice of time */
	struct growth_sums {
		uint64_t v[TRACK_NR][GROWTH_SUMS][TREND_MAX];
	} * *sums; /* by device */
	uint32_t nsums;
};

#define GROWTH_SLICE UINT64_C(10000000) /* ns */

/* For whoever has m->growth. All 0 or -ENOMEM. */
int growth__came(struct model *m, uint32_t site);
int growth__left(struct model *m, const struct dev *dev, const struct rec *rec);
int growth__step(struct model *m, enum step_kind kind);
int growth__time(struct model *m, uint64_t time);
void growth__unwatch(struct model *m);
/* Brings a unit's values up to now. 0 or -ENOMEM. */
int growth__fill(struct growth_watch *w, struct growth_unit *u, unsigned track);
/* How old a block is, in steps or slices; as an index into gone; and whether it is old enough to
 * say that it stays. */
uint64_t growth__age(const struct model *m, const struct dev *dev, const struct rec *rec,
		     unsigned track);
unsigned growth__bucket(uint64_t age);
bool growth__is_old(const struct growth_watch *w, const struct rec *rec, unsigned track,
		    uint64_t age);
/* Puts a unit's late ones where they belong, if another value has come since: then there are none.
 * NULL: there are none. */
const struct growth_late *growth__late(const struct growth_watch *w, struct growth_unit *u,
				       unsigned track);

#endif
