/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Findings: faults of a job's memory, for `diagnose`, one for each cause, the worst first.
 * The judgement is that of the other views: growth_summary.h for growth, advice.h for what the peak
 * need not have. docs/guide/findings.md explains each code.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "model/model.h"

struct advisor;
struct analysis;
struct dict;
struct facts;
struct json;

enum finding_code {
	/* Faults, the worst first. */
	FINDING_OUT_OF_MEMORY, /* an allocation failed */
	FINDING_LEAK,	       /* memory of a line grows from step to step */
	FINDING_GRAPH_KEPT,    /* the same, and autograd's graph holds it */
	FINDING_CALLS_KEEP,    /* calls of the model within one step keep memory */
	FINDING_PEAKS_GROW,    /* peaks of steps grow, and memory from step to step does not */
	FINDING_CACHE_GROWS,   /* reserved memory grows, and the tensors in it do not */
	FINDING_OTHERS_GROW,   /* memory that other code takes from CUDA grows */
	FINDING_PINNED_GROWS,  /* PyTorch's cache of pinned memory grows */
	FINDING_COPIES_GROW,   /* private copies of pages that were shared grow */
	FINDING_DEVICE_SHARED, /* a rank has memory on another rank's device */
	FINDING_RANKS_DIFFER,  /* a rank has more or less than the others */
	FINDING_MODEL_COPIES,  /* several models of one class */
	FINDING_CASTS,	       /* autocast casts parameters again in each call */
	FINDING_OUTPUTS_HELD,  /* a variable keeps outputs of forward during backward */
	/* Savings: memory that the peak need not have, although nothing is wrong. */
	FINDING_GRADIENTS_LATE,
	FINDING_LOGITS,
	FINDING_BUFFERS,
	FINDING_DDP_BUCKETS,
	FINDING_CACHED,
	FINDING_MALLOC_FREE,
	FINDING_PINNED_CACHED,
	FINDING_PINNED_ROUNDING,
	FINDING_NR,
};
/* Whether the code is a fault. The others are savings. */
bool finding__is_fault(enum finding_code c);

struct finding {
	enum finding_code code;
	char device[16]; /* "cuda:0", or "host" */
	uint64_t bytes;	 /* that would not be there without it; 0: not known */
	uint64_t whole;	 /* the peak, reserved, pinned or private memory, or RSS; 0: not known */
	double per_step; /* growth, in bytes a step; 0: it does not grow */
	/* Texts, clean and owned. */
	char *text;	       /* the finding, with place and holder */
	char *where, *held_by; /* "train.py:41 (step)", "history[*]"; "": not known */
	char *sure;	       /* "high", "medium", "exact", "estimate", "upper_bound" */
	char *remedy;	       /* the one thing to do; "": none is known */
};

/* Source of the findings: a recording that was read, or a capture that has ended. */
struct findings_of {
	struct model *model;
	const struct dict *dict;
	const struct facts *facts;
	struct advisor *advisor; /* the model's, with all events */
	const char *name;	 /* the recording's, or "PID 4242" */
	pid_t pid;		 /* running process; 0: a recording */
	uint32_t format;	 /* version of the recording's format; 0: no file */
	uint64_t duration;	 /* ns */
	bool complete;
};

struct findings {
	struct finding *all; /* faults, then savings, the largest share first */
	size_t n, faults;
	/* The verdict on growth for people: "no growth from step to step in 60 steps", clean. */
	char growth[160];
	bool judged; /* growth is known on the main device */
};

/* Judges all devices. Returns 0 and *ret, for findings__free(), or -ENOMEM. */
int findings__judge(const struct findings_of *of, struct findings *ret);
void findings__free(struct findings *f);
/* Whether a capture that is under way has seen enough: memory grows with high confidence, with a
 * holder if it is of a line, or it is known that none does. now: ns since the start. */
bool findings__are_sure(const struct model *m, const struct facts *f, uint64_t now);

/* Prints at most 20 lines of width columns, the lines of long texts included. Returns 0 or -ENOMEM.
 */
int findings__text(FILE *out, const struct findings_of *of, const struct findings *f, size_t width);
/* Writes the document of `diagnose --format json` as one object. */
void findings__json(struct json *j, const struct findings_of *of, const struct findings *f);

/* ---- several recordings ---- */

/* Each finding once, with the recordings that have it, and ranks that differ. */
struct findings_job;

struct findings_job *findings_job__new(void);	   /* NULL: memory is short */
void findings_job__free(struct findings_job *job); /* NULL is fine */
/* Judges a recording that was run; it can be freed then. Returns 0 or -ENOMEM. */
int findings_job__add(struct findings_job *job, const struct analysis *a,
		      const struct findings_of *of);
/* Call after the last recording. Returns 0 or -ENOMEM. */
int findings_job__finish(struct findings_job *job);
/* Results, after findings_job__finish(). */
size_t findings_job__faults(const struct findings_job *job);
int findings_job__text(FILE *out, const struct findings_job *job, size_t width);
void findings_job__json(struct json *j, const struct findings_job *job);
