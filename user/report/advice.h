/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Advice on how to shrink the peak of a recording by changes to the training script, with the bytes
 * saved. It uses the recording alone. It replays the steps with the largest peaks as if the remedy
 * were in place, so it notices if the peak only moves. Memory use grows with the kept steps and the
 * live blocks, not with the number of events.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/analysis.h"
#include "record/stream.h"

struct json;

enum advice_kind {
	ADVICE_GROWTH,		  /* memory that grows from step to step */
	ADVICE_CHECKPOINT,	  /* recompute these modules in backward */
	ADVICE_OPTIMIZER_8BIT,	  /* keep the optimizer's two moments in 8 bit */
	ADVICE_OPTIMIZER_FOREACH, /* temporaries of an optimizer step over all parameters at once */
	ADVICE_GRADIENTS_LATE,	  /* gradients that live on into the next forward */
	ADVICE_BUFFERS,		  /* equal buffers of several modules */
	ADVICE_CASTS,		  /* casts of a parameter that autocast makes again in each call */
	ADVICE_LOGITS,		  /* blocks as large as the vocabulary */
	ADVICE_OUTPUTS_HELD, /* outputs of forward that a variable keeps alive during backward */
	/* Gradients stored twice: separately, and in the buckets of DistributedDataParallel. */
	ADVICE_DDP_BUCKETS,
	ADVICE_CACHED, /* bytes reserved but not allocated */
	/* Of host memory: */
	ADVICE_MALLOC_FREE,	/* free inside malloc's arenas */
	ADVICE_PINNED_CACHED,	/* pinned memory that PyTorch caches */
	ADVICE_PINNED_ROUNDING, /* the rest of pinned blocks, whose sizes are rounded up */
	ADVICE_KINDS,
};
const char *advice__kind(enum advice_kind k); /* returns the kind's name, such as "checkpoint" */

/* Reliability of a saving. */
enum advice_figure {
	ADVICE_EXACT,	 /* the recording shows each block that would disappear */
	ADVICE_ESTIMATE, /* estimate, because the remedy allocates, too */
	ADVICE_UP_TO,	 /* upper bound, because a part may be needed */
};
const char *advice__figure(enum advice_figure f); /* returns "exact", "estimate" or "upper_bound" */

struct advice {
	enum advice_kind kind;
	enum advice_figure figure;
	/* true: saves refers to the peak of reserved bytes; false: of allocated bytes */
	bool of_reserved;
	/* true: saves refers to RSS at its highest reading */
	bool of_host;
	/* Bytes saved by this remedy alone; savings of several remedies do not add up. */
	uint64_t saves;
	uint64_t after; /* peak (or RSS) with the remedy, bytes */
	char *text;	/* text of the remedy, one line */
	/* Place: modules such as "blocks.* (Block)", or a line such as "train.py:41 (step)"; "":
	 * none. */
	char *where;
	char *basis; /* measured and assumed facts behind the figure */
	char *costs; /* drawbacks; NULL: none worth a mention */
};

struct advice_list {
	struct advice *all; /* entries: growth first, then by saving, largest first */
	size_t n;
	char device[DEVICE_NAME];
	uint64_t peak, reserved; /* peaks of the device, bytes */
	uint64_t steps;		 /* number of distinct steps that were replayed */
	uint64_t others;	 /* largest peak of a step that was not replayed; 0: none */
	/* Bytes from before the first event. Advice uses them only if the program's objects name
	 * them. */
	uint64_t unnamed;
	/* True if the step of the peak has too many allocations to replay, so there is no advice
	 * about it. */
	bool too_long;
};

#define ADVICE_LEAST_PERCENT 1 /* smallest saving worth a mention, in percent of the peak */
#define ADVICE_MOST 8	       /* entries about a device; those about host memory come after them */

struct advisor;
/* For a recording that is open but not yet run; borrows it, and watches its growth by line. NULL if
 * memory is short. */
struct advisor *advisor__new(const struct analysis *a);
/* Callback for analysis__run(), with the advisor as ctx. Takes an event before the model does.
 * Returns 0 or -ENOMEM. */
int advisor__event(void *advisor, const struct event *e);
/* Computes advice after the run for a device, by its index in the model. Returns 0 and *ret, for
 * advice__free_list(), or -ENOMEM. */
int advisor__finish(struct advisor *v, size_t device, struct advice_list *ret);
void advisor__free(struct advisor *v); /* NULL is fine */

void advice__free_list(struct advice_list *list);

/* Prints the advice as indented lines, at most top of them (0: all). Says so if the list is empty.
 * Text of the target is cleaned. */
void advice__text(FILE *out, const struct advice_list *list, size_t top, unsigned width);
/* Writes "advice", an array of objects: kind, saves_bytes, of, figure, peak_after, where, text,
 * basis, costs (null: none). */
void advice__json(struct json *j, const struct advice_list *list);
