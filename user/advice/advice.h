/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ADVICE_ADVICE_H
#define MT_ADVICE_ADVICE_H
/*
 * What would make the peak of a recording smaller, on the side of the model, each with its bytes.
 * Found from the recording alone: the allocations of the steps with the largest peaks are gone
 * through once more as if the remedy were there, so that a peak that moves elsewhere is seen. Needs
 * memory for some steps and for what is live, not for each event.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "archive/analysis.h"
#include "record/stream.h"

struct json;

enum advice_kind {
	ADVICE_CHECKPOINT,	  /* compute these modules again in backward */
	ADVICE_OPTIMIZER_8BIT,	  /* the optimizer's two moments in 8 bit */
	ADVICE_OPTIMIZER_FOREACH, /* what an optimizer's step takes for all parameters at once */
	ADVICE_GRADIENTS_LATE,	  /* gradients that live on into the next forward */
	ADVICE_BUFFERS,		  /* buffers of several modules that are alike */
	ADVICE_LOGITS,		  /* what is as large as the vocabulary */
	ADVICE_OUTPUTS_HELD, /* what forward made and a variable holds, where backward may not need
				it */
	ADVICE_DDP_BUCKETS,  /* gradients twice: as such, and in the buckets of
				DistributedDataParallel */
	ADVICE_CACHED,	     /* reserved and not allocated */
	ADVICE_KINDS,
};
const char *advice__kind(enum advice_kind k); /* "checkpoint" */

/* What a figure of advice is. */
enum advice_figure {
	ADVICE_EXACT,	 /* what the recording says, block by block: these would not be there */
	ADVICE_ESTIMATE, /* the remedy allocates, too, and how much is reckoned */
	ADVICE_UP_TO,	 /* no more than this: part of it may be needed */
};
const char *advice__figure(enum advice_figure f); /* "exact", "estimate", "upper_bound" */

struct advice {
	enum advice_kind kind;
	enum advice_figure figure;
	bool of_reserved; /* saves is of the largest reserved, not of the peak of what is allocated */
	uint64_t saves;	  /* bytes of the peak, this remedy alone; those of several do not add up */
	uint64_t after;	  /* the peak then */
	char *text;	  /* what to write, in a line */
	char *where; /* modules, or a line: "blocks.* (Block)", "train.py:41 (step)"; "" where it is
			of no place */
	char *basis; /* what was counted, what was supposed */
	char *costs; /* what it costs; NULL: nothing to speak of */
};

struct advice_list {
	struct advice *all; /* what saves most first */
	size_t n;
	char device[DEVICE_NAME];
	uint64_t peak, reserved; /* of the device */
	uint64_t steps;		 /* that were gone through again: those unlike one another */
	uint64_t others;	 /* the largest peak of a step that was not; 0: none */
	uint64_t unnamed; /* bytes that were there before the first event: advice speaks only of
			     what names them */
	bool too_long; /* the step of the peak has too many allocations to be gone through: nothing
			  is said of it */
};

#define ADVICE_LEAST_PERCENT 1 /* what saves less of the peak is not said */
#define ADVICE_MOST 8

struct advisor;
/* For a recording that was opened and not yet run; borrows it. NULL on ENOMEM. */
struct advisor *advisor__new(const struct analysis *a);
/* For analysis__run(), with the advisor as ctx: sees an event before the model does. 0 or -ENOMEM. */
int advisor__event(void *advisor, const struct event *e);
/* After the run: advice for a device by its index in the model. 0 and *ret, for
 * advice__free_list(), or -ENOMEM. */
int advisor__finish(struct advisor *v, size_t device, struct advice_list *ret);
void advisor__free(struct advisor *v); /* NULL is fine */

/* All of it for a file, by itself; device NULL: the main one. 0 and *ret, or EXIT_FAILED,
 * EXIT_UNUSABLE (logged). */
int advice__of(const char *path, const char *device, struct advice_list *ret);
void advice__free_list(struct advice_list *list);

/* Some lines for people, indented; says so where there is none. Of the target's text nothing acts
 * on a terminal. */
void advice__text(FILE *out, const struct advice_list *list, unsigned width);
/* An array of objects: kind, saves_bytes, of, figure, peak_after, where, text, basis, costs (null:
 * none). */
void advice__json(struct json *j, const char *key, const struct advice_list *list);

#endif
