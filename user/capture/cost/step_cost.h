/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Measures how much longer a step takes because of the capture, and decides in which steps the
 * capture records all detail. It compares windows of whole steps with and without detail, which
 * take turns. The part without detail still has the probes of allocations and frees, so that every
 * byte is counted. Their effect follows from the share of the target's time that each part takes
 * (measure.h): the time that is added makes a step longer in the same proportion in both.
 */
#include <stdbool.h>
#include <stdint.h>

#define STEP_COST_WINDOW 256 /* largest number of steps in a window */
#define STEP_COST_PAIRS 63   /* the last so many differences count */

enum step_cost_mode {
	STEP_COST_ALL = 0, /* all detail: not measured, since the capture takes little time */
	STEP_COST_TRY,	   /* measures: windows with and without detail take turns */
	STEP_COST_KEEP,	   /* all detail: measured, and a step is not too long */
	STEP_COST_SAMPLE,  /* windows with detail, and longer ones without: a step is too long */
};

struct step_cost {
	double limit; /* a step may take longer by this share; 0: no limit */
	/* The caller makes the programs record detail as `wanted` says, then calls
	 * step_cost__switched(). */
	bool wanted;
	/* By step_cost__switched(): what the programs do, and since when; ns. */
	bool on;
	uint64_t changed;
	enum step_cost_mode mode;
	bool detailed;	     /* the step that is under way is recorded with all detail */
	uint64_t all, whole; /* steps so far, and those with all detail */
	uint64_t spent[2];   /* until .changed, without and with detail, ns */
	/* Share of the target's time that the capture takes without and with detail; 0: unknown. */
	double shares[2];

	/* Private. */
	uint64_t last;	     /* end of the last step, ns; 0: none has ended */
	uint64_t recent[16]; /* durations of the last steps, ns */
	uint64_t window;     /* steps in a window */
	uint64_t rest;	     /* with STEP_COST_SAMPLE: steps between two windows with detail */
	enum { STEP_BEFORE, STEP_WITH, STEP_AFTER } stage;
	uint64_t took[STEP_COST_WINDOW], n; /* durations of whole steps in this stage */
	double before, with;		    /* medians of the last two windows, ns */
	double added[STEP_COST_PAIRS];	    /* differences, as shares of a step without detail */
	uint64_t pairs;			    /* differences so far */
	double kept_share; /* with STEP_COST_KEEP: .shares[1] when that was decided */
	uint64_t kept;	   /* ... and when, ns */
};

/* How much longer a step takes: a share, with its interval at 95 %. */
struct step_longer {
	double low, longer, high;
};

void step_cost__init(struct step_cost *s, double limit);
/* A step ended at this time (ns). Returns true if the next one is recorded with all detail. */
bool step_cost__ended(struct step_cost *s, uint64_t time);
/* The programs do as s->wanted says from now (ns) on. */
void step_cost__switched(struct step_cost *s, uint64_t now);
/*
 * Call it about twice a second; now: ns since the capture's start. share: of the target's time that
 * the capture took lately. Returns false if steps cannot decide about detail, because none ends.
 */
bool step_cost__look(struct step_cost *s, uint64_t now, double share);
/* Sets by how much longer a step of this capture takes on average. Returns false if that is not
 * known: fewer than six differences were measured. */
bool step_cost__longer(const struct step_cost *s, uint64_t now, struct step_longer *ret);
/* The same for a step with all detail. */
bool step_cost__longer_with_all(const struct step_cost *s, struct step_longer *ret);
