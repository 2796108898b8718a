/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The time that a capture adds to its target: hits of the probes times the cost of a hit, which is
 * that of the kernel's trap (hit_cost.h) plus the mean time in the program (mt_timed).
 */
#include <stdbool.h>
#include <stdint.h>

#include "capture/cost/hit_cost.h"
#include "memtrace.h"

#define MEASURE_TYPES 16 /* more than enum mt_rec_type has */

struct measure {
	struct hit_cost hit;
	bool stepped[MEASURE_TYPES]; /* by enum mt_rec_type: the hook's instruction is stepped over;
					MT_REC_NODE: the hook for nodes that begin to run */
	/* As of the last look. */
	bool begun;
	uint64_t hits[MEASURE_TYPES], wall, cpu;
	struct mt_timed timed[MEASURE_TYPES];
	double mean[MEASURE_TYPES]; /* ns in the program for a hit; 0: none was timed yet */
	uint64_t walks;		    /* walks so far */
	double new_walks, new_hits; /* between the last two looks */
	/* Sums over all looks, ns. */
	double added, alone;
};

/*
 * Takes what happened since the last look. c: counters of the programs. timed: MEASURE_TYPES. wall:
 * time; cpu: CPU time of the process; both ns, from any start. Returns the added time as a share of
 * the time that the process would have taken alone, which is its CPU time, or the wall time if that
 * is less: several threads run then, and each may be the one that the others wait for. The first
 * look returns 0.
 */
double measure__look(struct measure *m, const uint64_t c[MT_CNT_NR], const struct mt_timed *timed,
		     uint64_t wall, uint64_t cpu);
/* Share of the hits since the look before that walked the stack. */
double measure__walks(const struct measure *m);
/* The same share as measure__look(), over all looks; 0 before the second one. */
double measure__share(const struct measure *m);
