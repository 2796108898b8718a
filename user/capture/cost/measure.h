/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "capture/cost/hit_cost.h"
#include "memtrace.h"

/*
 * The time that a capture adds to its target: hits of the probes times the cost of a hit, which is
 * that of the kernel's trap plus the mean time in the program (mt_timed).
 */
#define MEASURE_TYPES MT_REC_TYPES

struct measure {
	struct hit_cost hit;
	bool stepped[MEASURE_TYPES]; /* by enum mt_rec_type: the kernel single-steps the probed
					instruction; MT_REC_NODE: that of the hook for nodes that
					begin to run */
	bool malloc;  /* only hits of the probes on malloc count; otherwise all others do */
	bool returns; /* each call of malloc also has a return probe */
	/* Since the last look the programs left out all detail (step_cost.h). Look before it
	 * changes. */
	bool reduced;
	/* Arguments of the last measure__look(). */
	bool begun; /* there was a look */
	uint64_t hits[MEASURE_TYPES], wall, cpu;
	struct mt_timed timed[MEASURE_TYPES];
	/* Mean time in the program for a hit, by .reduced, ns; 0: none was timed yet. */
	double mean[2][MEASURE_TYPES];
	uint64_t walks;		    /* walks so far */
	double new_walks, new_hits; /* between the last two looks */
	double added;		    /* time that the capture added up to now, ns */
	double alone;		    /* time that the target took up to now, apart from .added, ns */
	double lately[2][2];	    /* the same two of the last seconds, by .reduced */
};

/*
 * Takes the present counts, and compares them with those of the last look. counters: the programs'
 * counters. timed: MEASURE_TYPES entries, by enum mt_rec_type. wall: the time; cpu: CPU time of the
 * process; both ns, from any start.
 *
 * Returns the time that the capture added since the last look, as a share of the time that the
 * process would have taken without it: 0.05 is 5 %. The process's time is its CPU time, or the wall
 * time if that is less: then several threads run, and each may be the one that the others wait for.
 * Returns 0 at the first look, and if the process took no time.
 */
double measure__look(struct measure *measure, const uint64_t counters[MT_CNT_NR],
		     const struct mt_timed *timed, uint64_t wall, uint64_t cpu);

/* Share of the hits between the last two looks that walked the stack. */
static inline double measure__walks(const struct measure *measure)
{
	return measure->new_hits > 0 ? measure->new_walks / measure->new_hits : 0;
}

/* The same share as measure__look(), over the last seconds with or without detail; 0: unknown. */
static inline double measure__lately(const struct measure *measure, bool reduced)
{
	const double *of = measure->lately[reduced];

	return of[1] > 0 ? of[0] / of[1] : 0;
}

/* The same share as measure__look(), over all looks; 0 before the second one. */
static inline double measure__share(const struct measure *measure)
{
	return measure->alone > 0 ? measure->added / measure->alone : 0;
}
