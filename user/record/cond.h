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
	COND_ALLOCATED, /* bytes in allocated blocks; 100% is the device's memory */
	COND_RESERVED,	/* bytes that the allocator took from the device */
	COND_PEAK,	/* peak of allocated bytes */
	COND_PEAK_RESERVED,
	COND_UNUSED, /* bytes reserved but not allocated */
	COND_USED,   /* driver-reported use of the process */
	COND_OTHER,  /* driver-reported use minus the allocator's memory */
	COND_FREE,   /* bytes of the device that no process holds; 100% is the device's memory */
	COND_RSS,    /* resident memory of the process; 100% is the machine's memory */
	/* Parts of the resident memory: see enum host_part. COND_HOST_SHARED is the sum of the
	   three kinds of shared memory. */
	COND_HOST_TENSORS,
	COND_HOST_MALLOC,
	COND_HOST_PYTHON,
	COND_HOST_PINNED,
	COND_HOST_SHARED,
	COND_HOST_UNKNOWN,
	COND_HOST_LIVE,	  /* resident memory in use: host_sheet__use() */
	COND_MALLOC_FREE, /* resident memory that is free inside malloc; 100% is malloc's memory */
	COND_HOST_CGROUP, /* bytes in the memory control group; 100% is the group's limit */
	COND_FRAGMENTATION, /* a share: value has the unused bytes, whole the reserved bytes */
	COND_STEP_TIME,	    /* duration of a step, ns */
	COND_OOMS,
	COND_RETRIES, /* retries of an allocation after the cache was given back */
	COND_LOST,    /* number of lost events */
	COND_LEAKS,   /* number of source lines whose memory grows */
	/* Figures of the machine, only for `watch --machine`; 100% is MemTotal. */
	COND_MACHINE_FREE,	/* free pages */
	COND_MACHINE_AVAILABLE, /* what the kernel can give to programs */
	COND_MACHINE_CACHE,	/* page cache */
	COND_FIGURES,
	/* Growth of one of the figures above over a window of steps or time. */
	COND_GROWTH = COND_FIGURES,
	COND_RESERVED_GROWTH,
	COND_USED_GROWTH,
	COND_OTHER_GROWTH,
	COND_RSS_GROWTH,
	COND_HOST_LIVE_GROWTH,
	COND_MALLOC_FREE_GROWTH,
	COND_NR,
};

struct cond_value {
	bool known;
	uint64_t value;
	uint64_t whole; /* the value that counts as 100%; 0: unknown */
};

#define COND_SERIES 1024 /* most series (devices of processes) per condition */

/* Values of one device of one process at one moment. */
struct cond_values {
	struct cond_value v[COND_FIGURES];
	const char *why[COND_FIGURES]; /* reason why v[i] is unknown, for people; NULL: no reason */
	uint64_t time;		       /* moment of the values, ns since any fixed moment */
	uint64_t seq; /* the caller's number for this moment; cond_result.from and .to return it */
	bool has_steps; /* step is valid */
	uint64_t step;	/* number of the current step, for growth over a window of steps */
	/* Number that the caller gave to this device of this process, below COND_SERIES. Growth is
	 * computed separately for each number. */
	unsigned series;
	/* True if the values are samples, false if they are the complete history. A series must not
	 * change between the two. */
	bool sampled;
	/* The figures that host_figures__put() sets are those of the last call: growth does not
	 * count them twice. */
	bool host_repeats;
	bool judge_largest; /* true: judge the largest growth so far; false: the present growth */
};

enum cond_verdict { COND_NO, COND_HOLDS, COND_UNKNOWN };
enum cond_unit { COND_BYTES, COND_SHARE, COND_TIME, COND_COUNT };

#define COND_TEXT 512
struct cond_result {
	enum cond_verdict verdict;
	/* From here on: data of the comparison that decided the verdict; of the first one if
	 * several did. */
	enum cond_figure figure;
	enum cond_unit unit;
	/* The compared value and its limit in bytes, ns or as a count. A limit given as a
	 * percentage is converted and rounded down. Negative growth is 0. */
	uint64_t value, limit;
	double share,
		share_limit; /* value and limit as shares, if a percentage was given; 0.2 is 20% */
	uint64_t at;	     /* growth only: cond_values.time at which this growth was found */
	/* Growth is the difference of two lows. True if from and to are valid: cond_values.seq at
	 * these lows. */
	bool lows_known;
	uint64_t from, to;
	/* Explanation of the verdict, such as "allocated 71.20 GiB > 70.00 GiB". */
	char text[COND_TEXT];
};

struct cond;

/* Parses a condition. Returns 0 and sets *ret. Returns -EINVAL and sets *why to the reason as clean
 * text, which the caller frees. Returns -ENOMEM and sets *why to NULL. */
int cond__parse(const char *text, struct cond **ret, char **why);
void cond__free(struct cond *c);	      /* NULL is fine */
const char *cond__text(const struct cond *c); /* the text that was parsed; owned by c */
/* True if the condition compares this figure or its growth. */
bool cond__needs(const struct cond *c, enum cond_figure figure);
/* True if the figure is one of the machine: COND_MACHINE_*. */
bool cond__is_of_machine(enum cond_figure f);
/* True if the condition compares step_time or growth over a window of steps. */
bool cond__needs_steps(const struct cond *c);
/* True if the condition compares growth, so that it needs cond__feed() between judgements. */
bool cond__needs_growth(const struct cond *c);

/* The shortest window of time over which the condition compares growth of this figure, in ns; 0:
 * none. */
uint64_t cond__window(const struct cond *c, enum cond_figure figure);

/* Adds values to the history that growth is computed from, without judging. Returns 0 or -ENOMEM. */
int cond__feed(struct cond *c, const struct cond_values *v);
/* Adds values to the history and judges them. The verdict is COND_UNKNOWN if a figure is unknown
 * and the known figures do not decide. Returns 0 and sets *ret, or returns -ENOMEM. */
int cond__eval(struct cond *c, const struct cond_values *v, struct cond_result *ret);
/* Forgets the history of a series. Call it before another process gets the series's number. */
void cond__forget(struct cond *c, unsigned series);

/* Returns the figure that f is the growth of; f itself if it is no growth. */
enum cond_figure cond__base_figure(enum cond_figure f);
/* True if f, or the figure that f is the growth of, needs a reading of the process's host memory. */
bool cond__reads_host(enum cond_figure f);
/* Returns the figure's name in conditions: "allocated", "step_time", "growth", ... */
const char *cond__figure_name(enum cond_figure f);

/* The host_figures functions set the figures COND_HOST_* and COND_MALLOC_FREE. */

/* Sets these figures from s, a reading of the process's host memory. If s is NULL there was no
 * reading, and the figures are unknown for the reason why, which v borrows. ram: bytes of the
 * machine's memory, which count as 100% of all these figures but COND_HOST_CGROUP and
 * COND_MALLOC_FREE; 0: unknown.
 */
void host_figures__put(struct cond_values *v, const struct host_sheet *s, uint64_t ram,
		       const char *why);
/* Sets COND_HOST_CGROUP alone. limit: UINT64_MAX if the control group has none. */
void host_figures__put_group(struct cond_values *v, uint64_t use, uint64_t limit);
