/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Growth over steps, by line, stack, module or category. After growth__watch(), the model keeps the
 * live bytes of each line (stack, ...) at the ends of steps, at most 256 values. With more steps it
 * keeps every second value, then every fourth. It also keeps the ages that blocks reached. An event
 * costs O(1); memory is bounded by distinct lines. A recording without steps is divided into equal
 * slices of time.
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
	GROWTH_REQUESTS, /* requests: each block that the line of growth__use_requests_at()
			    allocates */
};

enum growth_kind {
	GROWTH_PILES_UP, /* blocks stay, and more are allocated */
	GROWTH_ENLARGED, /* blocks are replaced by larger ones */
};

/* Makes the model watch growth by line, stack, module or category. Call it before the first event.
 * A second call with the same by does nothing. Returns 0, -ENOMEM, or -EINVAL if the model watches
 * another by, or by cannot be watched. */
int growth__watch(struct model *m, enum group by);
bool growth__watches(const struct model *m, enum group by);
/*
 * Each block that this line allocates begins a request, and requests take the place of steps. If
 * the line allocates on several devices, only blocks of the first device count. Call it after
 * growth__watch() and before the first event. file: a path or its end; must outlive the model.
 * Returns -EINVAL without growth__watch().
 */
int growth__use_requests_at(struct model *m, const char *file, uint32_t line);
/* Number of requests so far, if growth__use_requests_at() was called; otherwise 0. */
uint64_t growth__requests(const struct model *m);

/* A name that the program's objects give to blocks of a growing line, such as "history[*]". */
struct growth_name {
	/* A name, owned by the dict, or a pattern such as "layers.*.weight", owned by growth. */
	const char *text;
	uint64_t bytes, count; /* bytes and number of the blocks with this name */
	uint64_t same; /* the most blocks that have one name, if text is a pattern; otherwise count */
};

struct growth_line {
	/* File, module and other fields as with --by. bytes and count are those of the blocks that
	 * were live at the last value, even if they were freed since. */
	struct row row;
	enum growth_kind kind;
	struct trend trend;
	/* Live bytes of the line at the ends of steps, oldest first: trend.values entries, with
	 * growth.stride steps between two. */
	const uint64_t *values;
	double per_step;      /* trend.slope per step, or per second with GROWTH_TIME */
	uint64_t allocated;   /* sum of the line's allocations, bytes */
	uint64_t allocations; /* number of the line's allocations */
	/* Bytes that stay for each block that the line allocates: live bytes at the last value
	 * before the last allocation, divided by the number of allocations until then. 0: not
	 * known. */
	double per_block;
	/* Bytes, within row.bytes, of blocks older than two steps that were allocated after the
	 * warm-up. */
	uint64_t old;
	/* Share of the allocated bytes that is still live 1, 2, 4 ... steps (GROWTH_TIME: slices)
	 * later. A live block that is younger than that is left out of the share. */
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
	bool open;	/* the step has not ended, and the memory was live until the end */
	uint64_t step;	/* number of the step, from 0 */
	uint64_t calls; /* calls of the model in the step until its highest value */
	uint64_t grown; /* bytes that the device gained in the step until its highest value */
	size_t lines;	/* number of lines that grew */
	double lines_per_call; /* bytes per call, summed over these lines */
	/* The line that grew most; its values and ages are empty, row.count is 0, and per_step is
	 * per call. */
	const struct growth_line *line;
};

/* Growth of the steps' peaks of allocated bytes, while memory at the steps' ends does not grow. */
struct growth_peaks {
	bool known; /* the peaks were judged: growth.clock is steps or calls */
	struct trend trend;
	uint64_t stride; /* steps between two values */
	double per_step;
	/* The line whose highest bytes in a step grow most; NULL: none. */
	const struct growth_line *line;
	/* The line that makes growing inputs. bytes: its bytes in the last step. file NULL: no such
	 * line is known. */
	struct row input;
};

struct growth {
	enum growth_clock clock;
	/* Number of whole steps, as a report counts them, or of slices (GROWTH_TIME), or requests. */
	uint64_t steps;
	/* Number of steps with the stacks of their allocations, by which growth is judged; 0: all.
	 * The others have no line, and no values. */
	uint64_t recorded;
	/* With GROWTH_CALLS: number of optimizer steps before these calls. If a recording has only
	 * a few steps, all at its beginning, growth is measured by calls. */
	uint64_t after_steps;
	struct { /* with GROWTH_REQUESTS */
		const char *file;
		uint32_t line;
		char device[16]; /* device of the blocks that count as requests */
		double seconds;	 /* mean time from one request to the next; 0: not known */
	} request;
	/* The first value is from the end of a step that was under way at attach. The field steps
	 * does not count that step. */
	bool first_is_partial;
	uint64_t stride; /* steps (slices) between two values */
	double slice;	 /* s between two values, with GROWTH_TIME */
	size_t values;
	/* Number of values that were measured. On devices it equals `values`. Host memory is
	 * measured only at readings: the other values repeat the one before. */
	uint32_t observed;
	/* Host memory: blocks are pieces of mappings, which join and are replaced as they grow. How
	 * long memory stays is not known: lines have no ages, and per_block is 0. */
	bool pieces;
	uint32_t tested; /* number of lines whose live bytes changed between steps */
	bool coarse;	 /* too many lines: some are combined */
	/* Lines that grow or grew: by verdict (growing first), then by bytes per step. */
	struct growth_line *lines;
	size_t n;
	/* others: memory taken from CUDA by code other than the allocator. */
	struct growth_sum allocated, reserved, others;
	bool has_reserved, has_others;
	struct growth_inside inside;
	struct growth_peaks peaks;
	void *pool;	 /* private: memory of values */
	char **patterns; /* private: texts of names */
	size_t npatterns, cappatterns;
};

/* Judges the growth of a device. Call it after model__finish(). min_growth: bytes over the
 * recording; less growth is TREND_FLAT. Returns 0, -ENOMEM, or -EINVAL without growth__watch().
 * Free ret with growth__free(); it must not outlive the model. */
int growth__judge(const struct model *m, size_t device, uint64_t min_growth, struct growth *ret);
/* The bytes of a line in all steps, if `bytes` piled up in those with stacks: an estimate where
 * others lack them (growth.recorded). */
uint64_t growth__in_all_steps(const struct growth *g, const struct growth_line *line,
			      uint64_t bytes);
/* Number of lines for which trend__counts() is true. */
size_t growth__count(const struct growth *g, enum trend_confidence least);
/* Whether the allocator's reserved memory grows with at least this confidence, but the tensors in
 * it do not. */
bool growth__pool_grows(const struct growth *g, enum trend_confidence least);
/* Whether memory that other code takes from CUDA grows with at least this confidence. */
bool growth__others_grow(const struct growth *g, enum trend_confidence least);
/* Whether the peaks of steps grow with at least this confidence, and faster than memory from step
 * to step. */
bool growth__peaks_grow(const struct growth *g, enum trend_confidence least);
/* Whether calls within one step pile up memory, with at least this confidence. */
bool growth__inside_grows(const struct growth *g, enum trend_confidence least);
/* Whether the sum of all lines grows or may grow. If so, no verdict may say that nothing grows. */
bool growth__sum_grows(const struct growth *g);
void growth__free(struct growth *g);
const char *growth__clock(enum growth_clock c); /* "steps", "calls", "time", "requests" */
const char *growth__kind(enum growth_kind k);	/* "piles_up", "enlarged" */
