/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_ESTIMATE_H
#define MT_ESTIMATE_ESTIMATE_H
/*
 * `estimate`: what a script needs of a device that is not there. Runs of it (run.h), the
 * answer that is made of them, and that answer as text and JSON. docs/ESTIMATE.md has the words.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "advice/advice.h"
#include "archive/analysis.h"
#include "estimate/device_kinds.h"
#include "estimate/known.h"
#include "estimate/parts.h"
#include "estimate/ranks.h"
#include "estimate/run.h"
#include "report/text.h"
#include "save/run_command.h"

struct json;

enum estimate_format { ESTIMATE_TEXT, ESTIMATE_JSON };

enum estimate_tracer { TRACER_AUTO, TRACER_INSIDE, TRACER_BPF };

struct estimate_args {
	struct run_command_args run; /* command, user, and in dryrun all but memory and context */
	const struct device_kind *kind; /* NULL: --device was not given */
	uint64_t vram;
	struct device_figure context;
	struct estimate_ranks_args ranks; /* its command is run's */
	const char *rank_list;		  /* of --rank, where it is more than a number; else NULL */
	uint64_t steps, max_time, max_host_memory;
	bool min_vram, no_search;
	const char *output; /* NULL: the recording is not kept */
	bool force;
	enum estimate_tracer tracer;
	enum estimate_format format;
	enum report_choice colour;
	size_t top; /* rows of a table of the text */
};

/* The least memory that the script runs with. */
struct estimate_smallest {
	bool asked, found;
	uint64_t vram;	   /* found: the script ran with so much, and no request was refused */
	bool less_refused; /* and with a granule less one was */
	uint64_t guess;	   /* by a replay of the full run; 0: none */
	unsigned runs;	   /* of the script that it took */
	const char *why;   /* not found: static text */
};

struct estimate {
	const struct estimate_args *args;
	char dir[64]; /* a folder for recordings and logs */
	/* With the memory that is asked about. named is NULL where PyTorch was never there. */
	struct estimate_run run;
	struct analysis *named;
	/* What the answer's figures are of: the same, or where it did not fit, a run that may have
	 * all it wants. */
	struct estimate_run full_run;
	struct analysis *full;
	bool full_is_whole; /* it came to its end: else its figures are lower bounds */
	uint64_t full_vram;
	struct advisor *advisor; /* of the full run */
	struct advice_list advice;
	bool of_ranks; /* one of many: */
	unsigned rank, world_size, local_world_size;
	char *unheard; /* what it waited for, of another rank, and did not get; NULL: nothing */
	struct known_list known; /* of the full run */
	struct device_figure
		context; /* args' own, with what the script's CUDA makes of its source */
	enum verdict verdict;
	int device; /* the model's index of the one that most is needed of; -1: none was used */
	struct estimate_parts parts; /* of that */
	struct estimate_smallest smallest;
};

/* A run came to an end that says all: it repeated, was as long as wanted, or ended by itself and
 * well. */
bool estimate__whole(const struct estimate_run *run);
/* It ended by itself and not well. */
bool estimate__failed(const struct estimate_run *run);
/* Where the figures are no more than lower bounds: reasons in words, the i-th; NULL: no more. buf
 * is used for some. */
const char *estimate__bound(const struct estimate *e, size_t i, char *buf, size_t size);

/* Runs the script as often as is needed. 0 or an exit code, logged. e is zeroed but for args. */
int estimate__run(struct estimate *e);
void estimate__free(struct estimate *e);
/* Paths in the folder. */
const char *estimate__path(const struct estimate *e, const char *name, char *buf, size_t size);
/* Does somebody else than us run the script? *user: who. What is wrong with the name
 * run_command__record() says. */
bool estimate__other_user(const struct estimate *e, struct user *user);
/* One more run of it with so much memory, into a recording of that name. */
int estimate__try(struct estimate *e, const char *name, uint64_t vram, bool lean,
		  struct estimate_run *ret);

/* Finds e->smallest from the full run. 0 or an exit code, logged. */
int estimate_smallest__find(struct estimate *e);

/* The exit code that says it: EXIT_OK it fits, EXIT_HELD it does not, EXIT_UNUSABLE it cannot be
 * said. */
int estimate__status(const struct estimate *e);
/* What became of the command, where that has to be said besides. Logs. */
void estimate__complain(const struct estimate *e);

/* 0 or -ENOMEM. e->full must be there. */
int estimate_text(FILE *out, const struct estimate *e);
int estimate_json(FILE *out, const struct estimate *e);
/* The same as a value of a document. Without e->full what is known of the run alone. */
int estimate_json__put(struct json *j, const char *key, const struct estimate *e);

/* many.c: each of the ranks of args->rank_list, one after the other. An exit code, of the
 * worst of them. */
int estimate_many(FILE *out, struct estimate_args *args);

#endif
