/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Conditions on memory, for --fail-if and watch's --rule, such as
 *   allocated>70G  reserved>=80%  fragmentation>20%  step_time>2s  growth>1G/100steps growth>1G/10m
 * joined by "and" and "or"; "and" binds closer. The caller supplies the values, so this folder
 * knows no processes, recordings or models. Values are whole bytes, nanoseconds and counts;
 * percentages are compared exactly.
 *
 * Growth compares the lowest value of each step (or interval of time), as for leaks. So memory that
 * comes and goes within a step is no growth. The history takes a few KiB per series.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/host.h"

/* Figures that a condition can compare; cond__figure_name() has their names. */
enum cond_figure {
	COND_ALLOCATED, /* bytes in tensors; of: the device's memory */
	COND_RESERVED,	/* bytes that the allocator took from the device */
	COND_PEAK,	/* peak of allocated bytes */
	COND_PEAK_RESERVED,
	COND_UNUSED, /* bytes reserved but not allocated */
	COND_USED,   /* driver-reported use of the process */
	COND_OTHER,  /* driver-reported use minus the allocator's memory */
	COND_RSS,    /* resident memory of the process; of: the machine's memory */
	/* Parts of the resident memory, as enum host_part has them. HOST_SHARED: all kinds. */
	COND_HOST_TENSORS,
	COND_HOST_MALLOC,
	COND_HOST_PYTHON,
	COND_HOST_PINNED,
	COND_HOST_SHARED,
	COND_HOST_UNKNOWN,
	COND_HOST_CGROUP,   /* use of the memory control group; of: its limit */
	COND_FRAGMENTATION, /* a share: value is unused bytes, of is reserved bytes */
	COND_STEP_TIME,	    /* ns */
	COND_OOMS,
	COND_RETRIES, /* retries of an allocation after the cache was given back */
	COND_LOST,    /* lost events */
	COND_LEAKS,   /* lines that grow */
	COND_FIGURES,
	/* Growth of a figure over a window. */
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
	uint64_t of; /* value of 100%; 0: unknown */
};

#define COND_SERIES 1024 /* most series (devices of processes) per condition */

/* Values of one device of one process at one moment. */
struct cond_values {
	struct cond_value v[COND_FIGURES];
	const char *why[COND_FIGURES]; /* reason why a value is unknown, for people; NULL: none */
	uint64_t time;		       /* ns since a fixed moment */
	uint64_t seq; /* caller's number of this moment, returned in struct cond_result */
	bool has_steps;
	uint64_t step; /* number of the current step; growth by steps needs it */
	/* Number of the process's device, below COND_SERIES. Each series has its own growth. */
	unsigned series;
	/* True if values are samples instead of a complete history; constant for a series. */
	bool sampled;
	bool most; /* true: judge the largest growth so far instead of the present one */
};

enum cond_verdict { COND_NO, COND_HOLDS, COND_UNKNOWN };
enum cond_unit { COND_BYTES, COND_SHARE, COND_TIME, COND_COUNT };

#define COND_TEXT 512
struct cond_result {
	enum cond_verdict verdict;
	/* Data of the term that decided; the first one if several did. */
	enum cond_figure figure;
	enum cond_unit unit;
	/* Bytes, ns or a count. A percentage of a device is rounded down; negative growth is 0. */
	uint64_t value, limit;
	double share, share_limit; /* shares for COND_SHARE; 0.2 is 20% */
	uint64_t at;		   /* time of the largest growth, ns, if cond_values.most is set */
	/* Growth only: true if from and to are the seq numbers of its two lows. */
	bool lows_known;
	uint64_t from, to;
	/* Explanation of the verdict, such as "allocated 71.20 GiB > 70.00 GiB". */
	char text[COND_TEXT];
};

struct cond;

/* Parses a condition. Returns 0 and *ret; -EINVAL, with the reason in *why, clean, for free(); or
 * -ENOMEM with *why NULL. */
int cond__parse(const char *text, struct cond **ret, char **why);
void cond__free(struct cond *c);	      /* NULL is fine */
const char *cond__text(const struct cond *c); /* text as given */
/* True if the condition uses this figure. For steps call cond__needs_steps(). */
bool cond__needs(const struct cond *c, enum cond_figure figure);
bool cond__needs_steps(const struct cond *c);
/* True if the condition uses growth, so it must be fed. */
bool cond__needs_growth(const struct cond *c);

/* Adds values for growth without judging. Returns 0 or -ENOMEM. */
int cond__feed(struct cond *c, const struct cond_values *v);
/* Adds values and judges them. The verdict is unknown if a term is unknown and the others do not
 * decide. Returns 0 and *ret, or -ENOMEM. */
int cond__eval(struct cond *c, const struct cond_values *v, struct cond_result *ret);
/* Forgets the values of a series, when its number goes to another process. */
void cond__forget(struct cond *c, unsigned series);

/* Returns "allocated", "step_time", "growth", ... */
const char *cond__figure_name(enum cond_figure f);

/* The figures host_tensors, host_malloc ... of conditions, from a reading of host memory. */

/*
 * Sets these figures. s NULL: there is no reading, and why, which v borrows, says so. ram: memory
 * of the machine, which is 100% of all but host_cgroup, in bytes; 0: not known.
 */
void host_figures__put(struct cond_values *v, const struct host_sheet *s, uint64_t ram,
		       const char *why);
/* Sets host_cgroup alone. limit: UINT64_MAX without one. */
void host_figures__put_group(struct cond_values *v, uint64_t use, uint64_t limit);
/* True for one of these figures but host_cgroup, which needs no reading of the process. */
bool host_figures__is_part(enum cond_figure f);
