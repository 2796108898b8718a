/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The growth of a device in one sentence, for every output: the line that grows most, its rate, its
 * holder, the confidence, and when the device is full. The command `leaks` judges growth in the
 * same way, but the summary needs more evidence (trend__is_sure(), TREND_STEADY), except after an
 * out-of-memory error. A model that does not watch growth by line has no summary.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/growth.h"
#include "model/model.h"

struct facts;
struct json;

#define GROWTH_SUMMARY_LEAST 1024 /* bytes; less growth over the recording is flat */
/* Bytes per step or call: a line that grows by less, such as one that logs losses, is left out. */
#define GROWTH_SUMMARY_LITTLE 16
#define GROWTH_SUMMARY_CONFIDENCE TREND_MEDIUM
#define GROWTH_SUMMARY_TEXT 2048 /* bytes of the text of growth_summary__say() */

enum growth_verdict {
	GROWTH_VERDICT_UNKNOWN, /* growth_summary.why says why */
	GROWTH_VERDICT_NONE,	/* known: nothing grows from one step or call to the next */
	GROWTH_VERDICT_GROWS,
};

enum growth_part {
	GROWTH_OF_LINE,
	GROWTH_OF_POOL,	  /* reserved memory grows, but not the tensors in it */
	GROWTH_OF_OTHERS, /* memory taken from CUDA by code other than PyTorch's allocator */
	GROWTH_OF_PEAKS,  /* the peaks of steps grow, memory from step to step does not */
	GROWTH_OF_CALLS,  /* calls of the model since the last step, which is still under way */
};

struct growth_summary {
	enum growth_verdict verdict;
	/* GROWTH_VERDICT_UNKNOWN: "too_few_steps", "too_short", "uneven", "events_lost" or
	 * "no_line". */
	const char *why;
	bool judged;   /* there are enough values to say that no growth was seen */
	bool may_grow; /* something grew, however unevenly */
	char device[16];
	enum growth_clock clock;
	uint64_t steps;	   /* whole steps, or calls; slices with GROWTH_TIME */
	uint64_t duration; /* ns: length of the recording, which may be a window of a capture */
	const char *cwd;   /* the target's folder; owned by the facts, or NULL */
	/* Calls piled up memory within a step that has ended (growth.inside), and the verdict is
	 * not GROWTH_VERDICT_GROWS. */
	bool inside;
	/* The fastest line that grows by less than GROWTH_SUMMARY_LITTLE, if no line grows by more.
	 * The verdict leaves such lines out. NULL: none. */
	const struct growth_line *little;

	/* From here on: valid with GROWTH_VERDICT_GROWS. */
	enum growth_part part; /* the part that grows most */
	/* The line that grows most, owned by growth. NULL with GROWTH_OF_POOL and GROWTH_OF_OTHERS;
	 * with GROWTH_OF_PEAKS it may be NULL. */
	const struct growth_line *line;
	size_t lines;	       /* lines that grow */
	double per_step;       /* bytes per step; with GROWTH_TIME per second, or per request */
	double per_minute;     /* bytes per minute; 0: not known, as in a dry run */
	double lines_per_step; /* sum over all lines that grow */
	enum trend_confidence confidence;
	/* Name of the object that holds most of the memory; NULL: not known. */
	const struct growth_name *holder;
	bool ran_out;	   /* the device had an out-of-memory error */
	uint64_t capacity; /* bytes of the device, 0: not known */
	uint64_t room;	   /* bytes between the peak and a full device */
	bool full_known;   /* steps_left is valid, and seconds_left if it is not 0 */
	double steps_left; /* steps until the device is full; 0 with GROWTH_TIME */
	double seconds_left;

	struct growth growth; /* owned */
};

/* Judges a device. duration: ns so far. Free ret with growth_summary__free(); it must not outlive
 * the model. Returns 0, -ENOMEM, or -EINVAL: growth is not watched by line. */
int growth_summary__of(const struct model *m, const struct facts *f, size_t device,
		       uint64_t duration, struct growth_summary *ret);
void growth_summary__free(struct growth_summary *s);
/* Copies what the texts and the JSON of a summary need, so that the copy may outlive the model.
 * Free it with free(), not with growth_summary__free(). Returns NULL without memory. */
struct growth_summary *growth_summary__copy(const struct growth_summary *s);

/* Finds the variable that holds several models in the name of one of their tensors: "best[*]" in
 * "AdamW exp_avg of best[*].0.weight". Returns its length, or 0 if the name has none. *at: offset
 * of its first byte. */
size_t growth_summary__models(const struct growth_name *n, size_t *at);
/* Whether the name is that of a model's tensor and several tensors have it. Then there are as many
 * models. */
bool growth_summary__in_models(const struct growth_line *l, const struct growth_name *n);
/* Whether the verdict is known. */
bool growth_summary__is_known(const struct growth_summary *s);
/* Whether memory grows, from step to step or within one. Reports give this a separate line. */
bool growth_summary__is_finding(const struct growth_summary *s);
/*
 * Writes the verdict for people, clean: "no growth from step to step in 120 steps", "no growth from
 * step to step in 43 steps (not sure: record 100)", "growth not known in 5 steps: record 100",
 * "growth not known: events were lost", or
 * "+16.0 KiB/step (1.90 MiB/min) at leaky.py:22 (train_step), held by history[*], confidence high;
 * full in about 3 h (5,700 steps)". Returns buf, as all functions here do that have one.
 */
char *growth_summary__say(const struct growth_summary *s, char buf[GROWTH_SUMMARY_TEXT]);
/*
 * Writes the longest form that fits in columns: "growth +16.0 KiB/step, 1.88 MiB/min at
 * leaky.py:22, held by history[*], full in about 3 h", and less down to "growth +16.0 KiB/step", or
 * "no growth in 60 steps". "": no form fits.
 */
char *growth_summary__brief(const struct growth_summary *s, size_t columns,
			    char buf[GROWTH_SUMMARY_TEXT]);
/* Number of steps until the device is full for people, rounded down: 5,712 becomes 5,700. */
uint64_t growth_summary__steps_left(const struct growth_summary *s);
/* Returns the growing line of s that is the line of r, a row of --by line. NULL: none, or growth is
 * not known. */
const struct growth_line *growth_summary__line(const struct growth_summary *s, const struct row *r);
/* Writes the mark that a table puts after a growing line: "<- grows 4.00 MiB/step", or "<- grows"
 * if that is wider than columns. Returns buf. */
#define GROWTH_SUMMARY_MARK 64
char *growth_summary__mark(const struct growth_summary *s, const struct growth_line *line,
			   size_t columns, char buf[GROWTH_SUMMARY_MARK]);
/* Writes the member "growth" of a device: docs/reference/report.md has the keys. */
void growth_summary__json(struct json *j, const struct growth_summary *s);
/* Writes the keys of growth_summary__json() into the open JSON object. */
void growth_summary__json_keys(struct json *j, const struct growth_summary *s);
/* Judges a device and writes the member "growth". Writes nothing if the model does not watch growth
 * by line. Returns 0 or -ENOMEM. */
int growth_summary__device_json(struct json *j, const struct model *m, const struct facts *f,
				size_t device, uint64_t duration);

/* ---- parts of these texts ---- */

const char *growth_summary__unit(const struct growth *g); /* "step", "call", "second", "request" */
/* " from step to step"; "" with GROWTH_TIME. */
const char *growth_summary__between(enum growth_clock c);
/* Writes what calls within a step left: "60 calls of the model in step 21 kept +1.25 MiB each at
 * train.py:23 (validate)". */
char *growth_summary__inside(const struct growth_inside *in, const char *cwd,
			     char buf[GROWTH_SUMMARY_TEXT]);
/* Writes the lines that drive peaks: "most of it at net.py:9 (forward), with the input of
 * train.py:24 (main), 8.00 MiB in the last one". "": none is known. */
char *growth_summary__drivers(const struct growth_peaks *p, const char *cwd,
			      char buf[GROWTH_SUMMARY_TEXT]);
/* JSON keys: "bytes_per_step", "bytes_per_second" or "bytes_per_request"; "steps", "slices" or
 * "requests". */
const char *growth_summary__rate_key(enum growth_clock c);
const char *growth_summary__steps_key(enum growth_clock c);
char *growth_summary__signed(char *buf, size_t size, double bytes); /* "+4.00 MiB" */
/* Writes the member "input", or null if no line of inputs grows. */
void growth_summary__put_input(struct json *j, const struct growth_peaks *p);
/* True if autograd's graph holds this object. */
bool growth_summary__of_graph(const struct growth_name *n);
/* True if the name is that of a holder, such as a variable or container, and not a parameter's. */
bool growth_summary__is_holder(const struct growth_name *n);

/* ---- memory that autograd's graph keeps: "saved for MulBackward0, graph of global h" ---- */

/* Whether the name says that autograd's graph holds the tensor. */
bool growth_summary__graph_has(const char *name);
/* Finds the name of the tensor that keeps the graph alive: "h" in the example. Returns its length
 * and *at, its first byte within name. Returns 0 if it is not known. */
size_t growth_summary__graph_keeper(const char *name, const char **at);
/* "the graph of h, saved for MulBackward0" or "autograd's graph, saved for MulBackward0", cleaned.
 * brief: leaves out the operation (", saved for ...") if the keeper is known. Returns buf. */
char *growth_summary__graph_words(const char *name, bool brief, char *buf, size_t size);
/* Says how to free the graph: "keep its value (loss.item(), .detach())". backward: a backward pass
 * ran. */
const char *growth_summary__graph_remedy(const char *name, bool backward);
