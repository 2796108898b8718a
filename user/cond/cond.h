/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_COND_COND_H
#define MT_COND_COND_H
/*
 * Conditions on memory, as --fail-if and watch's --rule take them:
 *
 *   allocated>70G   reserved>=80%   fragmentation>20%   step_time>2s   ooms>0   growth>1G/100steps
 * growth>1G/10m
 *
 * and several of them with "and" and "or" between, where "and" binds closer. Knows nothing of
 * processes, recordings or models: values are put in by the caller. Arithmetic is on whole bytes,
 * nanoseconds and counts; 80% of a device is not rounded.
 *
 * Growth is of lows: of each step (or slice of time) the lowest value that was seen in it counts,
 * as it does when leaks are judged, so that what comes and goes within a step is no growth. What
 * that takes to know is kept here, a few KiB a series.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What can be compared. The words are cond__figure_name()'s. */
enum cond_figure {
	COND_ALLOCATED, /* what tensors hold; of is the device's memory */
	COND_RESERVED,	/* what the allocator took from the device */
	COND_PEAK,	/* the highest allocated */
	COND_PEAK_RESERVED,
	COND_UNUSED,	    /* reserved and not allocated */
	COND_USED,	    /* what the process has of the device, as its driver says */
	COND_OTHER,	    /* of that what the allocator did not take */
	COND_RSS,	    /* resident memory of the process; of is the machine's */
	COND_FRAGMENTATION, /* a share: value is what is unused, of is what is reserved */
	COND_STEP_TIME,	    /* ns */
	COND_OOMS,
	COND_RETRIES, /* of an allocation, after the cache was given back */
	COND_LOST,    /* events */
	COND_LEAKS,   /* lines that grow */
	COND_FIGURES,
	/* Growth of the first of each pair over a window. */
	COND_GROWTH = COND_FIGURES,
	COND_RESERVED_GROWTH,
	COND_USED_GROWTH,
	COND_OTHER_GROWTH,
	COND_RSS_GROWTH,
	COND_NR,
};

struct cond_value {
	bool known;
	uint64_t value;
	uint64_t of; /* what 100% is; 0: not known */
};

#define COND_SERIES 1024 /* devices of processes that one condition follows at most */

/* What is at one moment, of one device of one process. */
struct cond_values {
	struct cond_value v[COND_FIGURES];
	const char *why[COND_FIGURES]; /* of what is not known, for people; NULL: nobody said */
	uint64_t time;		       /* ns, since anything that stays */
	uint64_t seq; /* a number of this moment, as the caller has it: see struct cond_result */
	bool has_steps;
	uint64_t step;	 /* number of the step under way; growth by steps is known only with them */
	unsigned series; /* which device of which process: growth is each one's own; below
			    COND_SERIES */
	/* A look now and then, no whole history, as long as this series is fed: see growth.h. */
	bool sampled;
	bool most; /* growth is judged by the most that it ever was, not by what it is now */
};

enum cond_verdict { COND_NO, COND_HOLDS, COND_UNKNOWN };
enum cond_unit { COND_BYTES, COND_SHARE, COND_TIME, COND_COUNT };

#define COND_TEXT 512
struct cond_result {
	enum cond_verdict verdict;
	/* Of the term that decided, the first one where it was several. */
	enum cond_figure figure;
	enum cond_unit unit;
	uint64_t value, limit; /* bytes (of a percentage of a device: rounded down), ns or a count;
				  growth below 0 is 0 */
	double share, share_limit; /* COND_SHARE: 0.2 is 20% */
	uint64_t at;		   /* of growth with most: the time when it was that, ns */
	bool lows_known;	   /* of growth: it is between two moments, by their seq */
	uint64_t from, to;
	/* What holds, or what does not, or why that is not known: "allocated 71.20 GiB > 70.00
	 * GiB". */
	char text[COND_TEXT];
};

struct cond;

/* 0 and *ret, or -EINVAL (*why says what is wrong and where, cleaned, for free()), -ENOMEM (*why is
 * NULL). */
int cond__parse(const char *text, struct cond **ret, char **why);
void cond__free(struct cond *c);	      /* NULL is fine */
const char *cond__text(const struct cond *c); /* as it was given */
/* Does it speak of this figure? For growth by steps or step_time what is asked is
 * cond__needs_steps(). */
bool cond__needs(const struct cond *c, enum cond_figure figure);
bool cond__needs_steps(const struct cond *c);
bool cond__needs_growth(const struct cond *c); /* of anything: it has to be fed */
/* The shortest window of growth, ns; 0: none is of time. */
uint64_t cond__shortest_window(const struct cond *c);

/* Takes note of values for growth, and judges nothing. 0 or -ENOMEM. */
int cond__feed(struct cond *c, const struct cond_values *v);
/*
 * Takes note and judges. Where a term is not known, that is what the whole is, unless the others
 * settle it. 0 and *ret, -ENOMEM.
 */
int cond__eval(struct cond *c, const struct cond_values *v, struct cond_result *ret);
/* Forgets what was fed of this series: another process has its number. */
void cond__forget(struct cond *c, unsigned series);

const char *cond__figure_name(enum cond_figure f);   /* "allocated", "step_time", "growth" ... */
const char *cond__verdict_name(enum cond_verdict v); /* "no", "holds", "unknown" */

#endif
