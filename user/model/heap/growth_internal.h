/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A unit is a line, stack or module whose blocks are counted together. A unit's values are filled
 * in when it changes next, since they are equal until then. So a step's end needs no pass over all
 * units. Values are kept by steps and by time, since the clock is chosen at the end, or once there
 * are many steps.
 */
#include "model/growth.h"
#include "model/heap/hash_index.h"
#include "model/heap/state.h"

struct map64;

/* TRACK_INSIDE: calls of the model since the last optimizer step. */
enum { TRACK_STEPS, TRACK_TIME, TRACK_INSIDE, TRACK_NR };
enum { SUM_ALLOCATED, SUM_RESERVED, SUM_TAKEN, GROWTH_SUMS };

struct growth_track {
	bool on;
	uint64_t passed; /* steps (slices) that ended */
	uint64_t stride; /* steps (slices) between two values */
	uint32_t n;	 /* number of values */
};

struct growth_unit {
	struct growth_key {
		uint32_t dev, a, b, c;
	} key;
	uint32_t site;	/* first site of the unit */
	uint32_t round; /* values of TRACK_INSIDE from another growth_inside_watch.round are void */
	uint64_t live, allocated, allocations;
	struct growth_series {
		uint64_t *v; /* values; NULL: all 0 */
		uint32_t n, cap;
		/* Live bytes at the last value before the last allocation, and the number of
		 * allocations until then. What a program frees when it ends does not matter. */
		uint64_t settled, settled_allocations;
	} s[TRACK_NR];
	uint64_t gone[TRACK_NR][GROWTH_AGES]; /* freed bytes, by the age that they reached */
	/* Blocks freed since the last value. They do not count as gone until another value comes,
	 * since a program frees everything when it ends. */
	struct growth_late {
		uint64_t epoch, blocks, old;
		uint64_t after; /* bytes allocated after the last value, counted in by_age only */
		uint32_t ages;	/* bit i: by_age[i] is not 0 */
		uint64_t by_age[GROWTH_AGES], of_category[CATEGORY_NR];
	} late[TRACK_NR];
	/* Highest live bytes of each step, for their slope. */
	struct growth_tops {
		uint64_t step, top; /* this step's, so far */
		uint64_t last;	    /* the step's before */
		double sum, moment; /* sums over earlier steps: tops, and tops times their step */
		uint64_t input;	    /* bytes of it that were inputs when they were freed */
	} tops;
};

/* Growth by calls within one step. */
struct growth_interval {
	uint32_t unit_no;		  /* unit that grew most; 0: none grew */
	uint64_t step, calls, grown, top; /* bytes of the device: rise, and at the top */
	uint64_t live;			  /* bytes of the unit at the top */
	double per_call, lines_per_call;
	size_t lines;
	struct trend trend;
};

/* Sums of blocks by unit and name. */
struct growth_named {
	uint32_t unit, name; /* index of the unit; number of the text in the dict */
	uint64_t bytes, count;
};

/* Zeroed: empty. */
struct growth_names {
	struct growth_named *all; /* owned */
	uint32_t n;
	size_t cap; /* private, as the map of indexes */
	struct map64 *at;
};

struct growth_watch {
	enum group by;
	uint32_t *of_site; /* 1 + unit by site, 0: none yet */
	size_t nsites;
	struct growth_unit *units;
	uint32_t n;
	size_t cap;
	struct hash_index index;
	struct growth_track track[TRACK_NR];
	enum step_kind kind; /* steps or calls in TRACK_STEPS */
	uint32_t max;	     /* maximum of values kept */
	uint64_t cells;	     /* room for values, of all units together */
	bool coarse;	     /* too many units: later lines share one */
	struct growth_requests {
		const char *file;      /* NULL: steps are not requests */
		uint32_t line, dev_no; /* dev_no: device whose blocks count; 0: none yet */
		uint8_t *locs;	       /* by location of the dict: 1 + whether it is the line */
		size_t nlocs;
		uint64_t times[TREND_MAX]; /* of the values in TRACK_STEPS, ns */
		uint64_t last;		   /* time of the last request, ns */
	} per;
	bool begun;	     /* TRACK_TIME: the first event came, at start */
	uint64_t start, now; /* ns */
	uint64_t due;	     /* no slice of time ends before this time, ns */
	/* Number of allocations; time of the last one, ns. The time after it is not a slice. */
	uint64_t allocs, last_alloc;
	struct growth_sums {
		uint64_t v[TRACK_NR][GROWTH_SUMS][TREND_MAX];
	} * *sums; /* sums of each device */
	size_t nsums;
	/* Blocks with a name freed since the last value, as in growth_late. */
	struct growth_late_names {
		uint64_t epoch;
		struct growth_names names;
	} late_names[TRACK_NR];
	struct growth_inside_watch {
		uint32_t round;
		uint64_t calls;			/* since the last step */
		uint64_t steps_of[GROWTH_AGES]; /* steps by the bucket of their calls */
		struct growth_interval *best;	/* by device: the one that grew most */
		size_t nbest;
	} inside;
};

#define GROWTH_WARMUP 3			/* steps that do not count for the slope of a line */
#define GROWTH_SLICE UINT64_C(10000000) /* ns */

/* Call these only if m->growth is set. They return 0 or -ENOMEM. */
int growth__came(struct model *m, uint32_t site);
int growth__left(struct model *m, const struct dev *dev, const struct rec *rec);
int growth__step(struct model *m, enum step_kind kind);
int growth__time(struct model *m, uint64_t time);
void growth__unwatch(struct model *m);
/* The unit's live bytes change next. */
void growth__touch_peaks(const struct growth_watch *w, struct growth_unit *u);
/* age: of a block, in steps or slices. bucket: index of an age in gone. is_old: the block stays. */
uint64_t growth__age(const struct model *m, const struct dev *dev, const struct rec *rec,
		     unsigned track);
static inline unsigned growth__bucket(uint64_t age)
{
	unsigned bits = age ? 64 - (unsigned)__builtin_clzll(age) : 0;

	return bits < GROWTH_AGES - 1 ? bits : GROWTH_AGES - 1;
}
bool growth__is_old(const struct growth_watch *w, const struct rec *rec, unsigned track,
		    uint64_t age);
/* The block was allocated after the last step's end: a leak at that end does not have it. */
bool growth__is_after(const struct growth_watch *w, const struct rec *rec, unsigned track,
		      uint64_t age);
/* A unit's blocks freed since the last value; NULL: none. Adds them to gone if another value came
 * since. */
const struct growth_late *growth__late(const struct growth_watch *w, struct growth_unit *u,
				       unsigned track);
/* Names of blocks freed since the last value, valid until the next event. */
const struct growth_names *growth__late_names(struct growth_watch *w, unsigned track);
/* Adds blocks. 0 or -ENOMEM. */
int growth__add_name(struct growth_names *s, const struct growth_named *blocks);
/* Orders them by unit, then by bytes, largest first. Nothing can be added afterwards. */
void growth__sort_names(struct growth_names *s);
/* Frees its contents and makes it empty. */
void growth__free_names(struct growth_names *s);

/* ---- values of units and devices ---- */

/* Makes values of an earlier step void. */
void growth_values__begin(struct growth_watch *w, struct growth_unit *u);
/* Appends a unit's values up to now. 0 or -ENOMEM. */
int growth_values__fill_in(struct growth_watch *w, struct growth_unit *u, unsigned track);
static inline int growth_values__fill(struct growth_watch *w, struct growth_unit *u, unsigned track)
{
	if (track == TRACK_INSIDE && u->round != w->inside.round)
		growth_values__begin(w, u);
	return u->s[track].n == w->track[track].n ? 0 : growth_values__fill_in(w, u, track);
}
/* Values of a unit on a track; growth_values__fill() comes first. */
const uint64_t *growth_values__of(const struct growth_unit *u, unsigned track);
/* Values of a device; sum: SUM_ALLOCATED and so on. All 0 if it has none. */
const uint64_t *growth_values__of_device(const struct growth_watch *w, uint32_t dev_index,
					 unsigned track, unsigned sum);

/* ---- growth inside a step ---- */

/* Which unit grew most within one step, of a device by its number; ret->known is false if none that
 * matters did. *best: of that step; unit_no is 0 then. 0 or -ENOMEM. */
int growth_inside__judge(const struct model *m, uint32_t dev_index, struct growth_inside *ret,
			 struct growth_interval *best);
