/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Growth over steps, by line, stack, module or category. A watching model keeps the live bytes of
 * each at the ends of steps, at most 256 values. With more steps it keeps every second one, then
 * every fourth. It also keeps the ages that blocks reached. O(1) an event; memory is bounded by
 * distinct lines. A recording without steps is divided into equal slices of time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "model/trend.h"

#define GROWTH_AGES 16 /* ages of 1, 2, 4 ... steps */
#define GROWTH_NAMES 4 /* names reported for a line */

enum growth_clock {
	GROWTH_STEPS,	 /* an optimizer's steps */
	GROWTH_CALLS,	 /* calls of the root module, without optimizer steps */
	GROWTH_TIME,	 /* slices of time, without steps or calls */
	GROWTH_REQUESTS, /* blocks of the line of growth__use_requests_at() */
};

enum growth_kind {
	GROWTH_PILES_UP, /* blocks stay, and more are allocated */
	GROWTH_ENLARGED, /* blocks are replaced by larger ones */
};

/* Before the first event. by: line, stack, module or category. A second call with the same by does
 * nothing. 0, -ENOMEM, or -EINVAL: another by, or one that cannot be watched. */
int growth__watch(struct model *m, enum group by);
bool growth__watches(const struct model *m, enum group by);
/*
 * Each block that a line allocates begins a request, and requests take the place of steps. If the
 * line allocates on several devices, only those of the first one count. Call it after
 * growth__watch() and before the first event. file: a path or its end; must outlive the model.
 * Returns -EINVAL without growth__watch().
 */
int growth__use_requests_at(struct model *m, const char *file, uint32_t line);
/* Number of requests so far. */
uint64_t growth__requests(const struct model *m);

struct growth_name { /* name, in the program's objects, of blocks counted in row.bytes */
	/* Owned by the dict, or by growth: a pattern of names, "layers.*.weight". */
	const char *text;
	uint64_t bytes, count;
	uint64_t same; /* the most blocks that have one name, if text is a pattern; otherwise count */
};

struct growth_line {
	/* File, module and other words as with --by. bytes and count: of the blocks live after the
	 * last value, freed since or not. */
	struct row row;
	enum growth_kind kind;
	struct trend trend;
	/* Live bytes at each value's moment: the last trend.values values. */
	const uint64_t *values;
	double per_step;      /* trend.slope per step, or per second with GROWTH_TIME */
	uint64_t allocated;   /* sum of all its allocations, bytes */
	uint64_t allocations; /* their number */
	/* Bytes that stay for each block that it allocates: live bytes at the last value before its
	 * last allocation, by the number of allocations until then. 0: not known. */
	double per_block;
	/* Part of row.bytes: blocks older than two steps that were allocated after the warm-up. */
	uint64_t old;
	/* Share of the allocated bytes that is still live 1, 2, 4 ... steps (GROWTH_TIME: slices)
	 * later. Blocks with a shorter history count up to their age. */
	double survives[GROWTH_AGES];
	unsigned ages;				/* number of valid entries in survives */
	struct growth_name names[GROWTH_NAMES]; /* by bytes, largest first */
	size_t nnames;
	uint64_t named; /* bytes of all blocks that have a name */
};

struct growth_sum { /* growth of the whole device */
	struct trend trend;
	const uint64_t *values;
	double per_step;
};

/* Memory that calls of the model piled up within one optimizer step, such as an evaluation between
 * two steps. Steps with as many calls as usual do not count, nor does growth that has little part
 * in the device's peak. */
struct growth_inside {
	bool known;
	bool open;	/* no step ended since, and the memory was live until the end */
	uint64_t step;	/* number of the step, from 0 */
	uint64_t calls; /* until the top */
	uint64_t grown; /* bytes on the device, until the top */
	size_t lines;	/* that grew */
	double lines_per_call;
	/* The line that grew most; values and ages are empty, row.count is 0. per_step: by call. */
	const struct growth_line *line;
};

/* Growth of the highest allocated bytes of each step, without growth from step to step. */
struct growth_peaks {
	bool known; /* they are judged: the clock is of steps or calls */
	struct trend trend;
	uint64_t stride; /* steps between two values */
	double per_step;
	/* The line whose highest bytes in a step grow most; NULL: none. */
	const struct growth_line *line;
	/* The line of inputs that grow. bytes: in the last step; file NULL: not known. */
	struct row input;
};

struct growth {
	enum growth_clock clock;
	/* Whole steps, as a report counts them; slices with GROWTH_TIME, or requests. */
	uint64_t steps;
	/* With GROWTH_CALLS: optimizer steps before these calls. After few steps at the beginning
	 * of a recording, calls count. */
	uint64_t after_steps;
	struct { /* with GROWTH_REQUESTS */
		const char *file;
		uint32_t line;
		char device[16]; /* of the blocks that count */
		double seconds;	 /* from one request to the next, mean; 0: not known */
	} request;
	/* The first value is the end of a step that was under way at attach, which steps does not
	 * count. */
	bool partly;
	uint64_t stride; /* steps (slices) between two values */
	double slice;	 /* s between two values, with GROWTH_TIME */
	size_t values;
	/* How often the values were observed: all of them, but for memory of the host, which is
	 * known at readings only. */
	uint32_t observed;
	uint32_t tested; /* lines whose live bytes changed between steps */
	bool coarse;	 /* too many lines: some are combined */
	/* Lines that grow or grew: by verdict (growing first), then by bytes per step. */
	struct growth_line *lines;
	size_t n;
	/* others: memory taken from CUDA by code other than the allocator. */
	struct growth_sum allocated, reserved, others;
	bool has_reserved, has_others;
	struct growth_inside inside;
	struct growth_peaks peaks;
	void *pool;
	char **patterns; /* private */
	size_t npatterns, cappatterns;
};

/* After model__finish(). min_growth: bytes over the recording; less is flat. 0, -ENOMEM, or -EINVAL
 * without growth__watch(). Free ret with growth__free(); it must not outlive the model. */
int growth__judge(const struct model *m, size_t device, uint64_t min_growth, struct growth *ret);
/* Number of lines for which trend__counts() is true. */
size_t growth__count(const struct growth *g, enum trend_confidence least);
/* The pool grows with at least this confidence, and the tensors in it do not. */
bool growth__pool_grows(const struct growth *g, enum trend_confidence least);
/* Memory that other code takes from CUDA grows. */
bool growth__others_grow(const struct growth *g, enum trend_confidence least);
/* The peaks of steps grow with at least this confidence, faster than memory from step to step. */
bool growth__peaks_grow(const struct growth *g, enum trend_confidence least);
/* Calls within one step pile up memory, with at least this confidence. */
bool growth__inside_grows(const struct growth *g, enum trend_confidence least);
/* The sum of all lines grows, or may grow. Then it is not known that nothing does. */
bool growth__sum_grows(const struct growth *g);
void growth__free(struct growth *g);
const char *growth__clock(enum growth_clock c); /* "steps", "calls", "time", "requests" */
const char *growth__kind(enum growth_kind k);	/* "piles_up", "enlarged" */
