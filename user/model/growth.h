/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_GROWTH_H
#define MT_MODEL_GROWTH_H
/*
 * What grows over steps, by line, stack, module or category. A model that is told to watch keeps,
 * of each, the live bytes at the ends of steps (at most 256 of them; of more steps every second
 * one, then every fourth ...) and how old its blocks got; O(1) an event, memory bound by distinct
 * lines. Where a recording has no steps, equal slices of time take their place.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "model/trend.h"

#define GROWTH_AGES 16 /* 1, 2, 4 ... steps */
#define GROWTH_NAMES 4 /* told of a line */

enum growth_clock {
	GROWTH_STEPS, /* an optimizer's */
	GROWTH_CALLS, /* of the outermost module: a recording without optimizer steps */
	GROWTH_TIME,  /* neither */
};

enum growth_kind {
	GROWTH_PILES_UP, /* blocks stay, and more come */
	GROWTH_ENLARGED, /* blocks do not stay: what takes their place is larger */
};

/* Before the first event. by: line, stack, module or category. 0, -ENOMEM, -EINVAL. */
int growth__watch(struct model *m, enum group by);

struct growth_name { /* what the program's objects call blocks of a line that are live at the end */
	const char *text; /* owned by the dict */
	uint64_t bytes, count;
};

struct growth_line {
	struct row row; /* where: as --by has it; bytes and count are of what was live after the
			   last value, if it has gone since or not */
	enum growth_kind kind;
	struct trend trend;
	const uint64_t *
		values; /* live bytes at each value's moment, trend.values of them, the last ones */
	double per_step;    /* trend.slope by step, or by second with GROWTH_TIME */
	uint64_t allocated; /* bytes in all */
	uint64_t old; /* of row.bytes: older than two steps, and born while steps were counted */
	/*
	 * Of the bytes that it allocates, the share that is live 1, 2, 4 ... steps later (with
	 * GROWTH_TIME: slices); what was not followed for so long counts as far as it was.
	 */
	double survives[GROWTH_AGES];
	unsigned ages;				/* of these, those that anything was followed for */
	struct growth_name names[GROWTH_NAMES]; /* by bytes */
	size_t nnames;
	uint64_t named; /* bytes that have a name, those of other names too */
};

struct growth_sum { /* of the device as a whole */
	struct trend trend;
	const uint64_t *values;
	double per_step;
};

struct growth {
	enum growth_clock clock;
	uint64_t steps; /* that were recorded from their beginning to their end, as a report counts
			   them; slices */
	bool partly;	/* the first value is of the end of a step that was under way when recording
			   began: it is none of steps */
	uint64_t stride; /* steps from one value to the next; slices */
	double slice;	 /* s from one value to the next, with GROWTH_TIME */
	size_t values;
	uint32_t tested; /* lines whose live bytes at steps' ends were not always the same */
	bool coarse;	 /* so many lines that not all are apart */
	struct growth_line
		*lines; /* that grow, or did: by verdict (what grows first), then by bytes a step */
	size_t n;
	struct growth_sum allocated, reserved,
		others; /* others: taken from CUDA by other code than the allocator */
	bool has_reserved, has_others;
	void *pool;
};

/*
 * After model__finish(). min_growth: bytes, over the recording, that are worth a word. 0, -ENOMEM,
 * -EINVAL (nobody watched). ret is for growth__free(), and good as long as the model.
 */
int growth__judge(struct model *m, size_t device, uint64_t min_growth, struct growth *ret);
/* Number of lines for which trend__counts(). */
size_t growth__count(const struct growth *g, enum trend_confidence least);
void growth__free(struct growth *g);
const char *growth__clock(enum growth_clock c); /* "steps", "calls", "time" */
const char *growth__kind(enum growth_kind k);	/* "piles_up", "enlarged" */

#endif
