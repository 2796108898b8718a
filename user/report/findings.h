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
	FINDING_OUT_OF_MEMORY,	 /* an allocation failed */
	FINDING_LEAK,		 /* memory of a line grows from step to step */
	FINDING_GRAPH_KEPT,	 /* a line's memory grows, and autograd's graph holds it */
	FINDING_CALLS_KEEP,	 /* calls of the model within one step keep memory */
	FINDING_PEAKS_GROW,	 /* peaks of steps grow; memory at the ends of steps does not */
	FINDING_CACHE_GROWS,	 /* reserved memory grows; the tensors in it do not */
	FINDING_OTHERS_GROW,	 /* memory that other code takes from CUDA grows */
	FINDING_PINNED_GROWS,	 /* PyTorch's cache of pinned memory grows */
	FINDING_COPIES_GROW,	 /* private copies of pages that were shared grow */
	FINDING_FRAGMENTATION,	 /* an allocation failed, and enough memory was cached in pieces */
	FINDING_RETRIES,	 /* CUDA refused memory until PyTorch gave back cached memory */
	FINDING_OTHER_PROCESSES, /* other processes have memory that the job lacks */
	FINDING_DEVICE_SHARED,	 /* a rank has memory on another rank's device */
	FINDING_RANKS_DIFFER,	 /* a rank has more or less memory than the others */
	FINDING_OPTIMIZERS,	 /* two optimizers have state of the same parameters */
	FINDING_NO_GRAD,	 /* evaluation keeps activations for a backward that does not run */
	FINDING_CASTS,		 /* autocast casts parameters again in each call */
	FINDING_OUTPUTS_HELD,	 /* a variable keeps outputs of forward during backward */
	/* Savings: memory that the peak need not have, although nothing is wrong. */
	FINDING_MODEL_COPIES, /* several models of one class; a target network is one, too */
	FINDING_WEIGHTS_HELD, /* a variable holds as much as the model's weights */
	FINDING_STATE_HELD,   /* a variable holds as much as the optimizer's state */
	FINDING_GRADIENTS_LATE,
	FINDING_LOGITS,
	FINDING_BUFFERS,
	FINDING_DDP_BUCKETS,
	FINDING_CACHED,
	FINDING_MALLOC_FREE,
	FINDING_PINNED_CACHED,
	FINDING_PINNED_ROUNDING,
	FINDING_TRACING, /* about the recording: tracing took more than a little time */
	FINDING_NR,
};
/* True if the code is a fault, false if it is a saving. */
bool finding__is_fault(enum finding_code c);

struct finding {
	enum finding_code code;
	char device[16]; /* "cuda:0", or "host" */
	uint64_t bytes;	 /* excess or possible saving, or the request that failed; 0: not known */
	/* The figure that bytes is a share of: peak, reserved, pinned or private memory, or RSS;
	 * 0: not known. */
	uint64_t whole;
	/* Growth in bytes per step, call, request or second; 0: no growth. rate_key: its JSON key,
	 * which names the unit, such as "bytes_per_second". */
	double rate;
	const char *rate_key;
	/* Steps (or calls, as in rate) and seconds until the device is full; 0: not known. */
	double full_in_steps, full_in_seconds;
	/* Texts, clean and owned. */
	char *text;	       /* what was found, with place and holder */
	char *where, *held_by; /* "train.py:41 (step)", "history[*]"; "": not known */
	char *sure;   /* confidence: "high", "medium", "exact", "estimate" or "upper_bound" */
	char *remedy; /* the first thing to try; "": none is known */
};

/* Source of the findings: a recording that was read, or a capture that has ended. */
struct findings_source {
	struct model *model;
	const struct dict *dict;
	const struct facts *facts;
	struct advisor *advisor; /* advisor of that model; it took all events */
	const char *name;	 /* name of the recording, or "PID 4242" */
	pid_t pid;		 /* captured process, still running; 0: a recording */
	uint32_t format;	 /* version of the recording's format; 0: no file */
	uint64_t duration;	 /* length of the recording, ns */
	bool complete;		 /* the recording has its end */
};

struct findings {
	struct finding *all; /* faults by code, then savings, the largest share first */
	size_t n, faults;    /* number of entries, and of those that are faults */
	/* The verdict on growth for people, as growth_summary__say() writes it: "no growth from
	 * step to step in 60 steps". Owned. */
	char *growth;
	/* Memory that came once and stays, if nothing grows: "optimizer state 2.00 GiB, libraries
	 * 120.00 MiB"; "": none worth a mention. */
	char once[160];
	bool judged; /* there were enough values to judge growth on the main device */
};

/* Finds the faults and savings of all devices. Returns 0 and *ret, for findings__free(), or
 * -ENOMEM. */
int findings__judge(const struct findings_source *source, struct findings *ret);
void findings__free(struct findings *f);
/* True if a running capture can stop. Either memory grows with high confidence (growth of a line
 * needs a known holder, too), or the capture is long enough to say that no memory grows. now: ns
 * since the start. */
bool findings__are_sure(const struct model *m, const struct facts *f, uint64_t now);
/* True if host memory rises, and has not been measured often enough to say whether it grows: a
 * running capture should go on. */
bool findings__host_may_grow(const struct model *m, const struct facts *f, uint64_t now);

/* Prints at most 20 lines of width columns, the lines of long texts included. Returns 0 or -ENOMEM.
 */
int findings__text(FILE *out, const struct findings_source *source, const struct findings *f,
		   size_t width);
/* Prints the findings as findings__text() does, all of them and without its head and last lines. */
void findings__list(FILE *out, const struct findings *f, size_t width);
/* Writes the findings and the verdict into the open object: "growth_known", "growth", "faults",
 * "no_fault" and the array "findings", as in docs/reference/diagnose.md. */
void findings__put_all(struct json *j, const struct findings *f);
/* Writes the document of `diagnose --format json` as one object. */
void findings__json(struct json *j, const struct findings_source *source, const struct findings *f);

/* ---- several recordings ---- */

/* The findings of several recordings. A finding that several recordings share is there once, with
 * the list of these recordings. */
struct findings_job;

struct findings_job *findings_job__new(void);	   /* NULL: memory is short */
void findings_job__free(struct findings_job *job); /* NULL is fine */
/* Adds the findings of a recording that was run. The recording can be freed afterwards. Returns 0
 * or -ENOMEM. */
int findings_job__add(struct findings_job *job, const struct analysis *a,
		      const struct findings_source *source);
/* Call after the last recording. Returns 0 or -ENOMEM. */
int findings_job__finish(struct findings_job *job);
/* Returns the number of faults. Call it and the functions below after findings_job__finish(). */
size_t findings_job__faults(const struct findings_job *job);
int findings_job__text(FILE *out, const struct findings_job *job, size_t width);
void findings_job__json(struct json *j, const struct findings_job *job);
