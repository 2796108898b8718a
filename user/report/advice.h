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
	ADVICE_GROWTH, /* memory that grows from step to step, as in the line "Growth" of a report */
	/* Recompute these modules in backward: modules with numbers for names (blocks.3), of one
	 * class, that keep blocks of forward until backward. */
	ADVICE_CHECKPOINT,
	/* Keep Adam's two moments of each parameter in 8 bit. They are tensors named exp_avg or
	 * exp_avg_sq, or allocated in Adam's _init_group. */
	ADVICE_OPTIMIZER_8BIT,
	/* Temporaries of an optimizer step over all parameters at once: blocks made within
	 * _multi_tensor_* and freed again. */
	ADVICE_OPTIMIZER_FOREACH,
	ADVICE_GRADIENTS_LATE, /* blocks of backward that exist when the next forward begins */
	/* Equal buffers: of the same name and size, in modules of one class. Contents are not
	 * compared. */
	ADVICE_BUFFERS,
	/* Casts of a parameter that autocast makes again in each call: blocks of forward with half
	 * the bytes of a float32 parameter of their module, at least four of them live at once. */
	ADVICE_CASTS,
	/* Logits and their gradients: blocks outside of repeated modules that have the size of
	 * cross_entropy's largest block, or half or twice that size. */
	ADVICE_LOGITS,
	/* Outputs of forward that a variable keeps alive during backward: blocks of forward that
	 * exist when the optimizer's step begins. */
	ADVICE_OUTPUTS_HELD,
	/* Gradients stored twice: separately, and in the buckets of DistributedDataParallel. */
	ADVICE_DDP_BUCKETS,
	ADVICE_CACHED, /* peak reserved exceeds peak allocated by at least 5 % of peak reserved */
	/* About host memory: */
	ADVICE_MALLOC_FREE,	/* free chunks inside malloc's arenas */
	ADVICE_PINNED_CACHED,	/* unused pinned memory in PyTorch's cache */
	ADVICE_PINNED_ROUNDING, /* bytes that rounding adds to pinned blocks */
	ADVICE_KINDS,
};
const char *advice__kind(enum advice_kind k); /* returns the kind's name, such as "checkpoint" */

/* Reliability of a saving. */
enum advice_figure {
	ADVICE_EXACT,	 /* the recording shows each block that would disappear */
	ADVICE_ESTIMATE, /* estimate, because the remedy allocates, too */
	ADVICE_UP_TO,	 /* upper bound, because a part may be needed */
};

extern const char *const advice_figures[]; /* names of enum advice_figure in JSON */

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
	uint64_t other_peak;	 /* largest peak of a step that was not replayed, bytes; 0: none */
	/* Bytes of blocks that were allocated before the first event. Advice covers such a block
	 * only if the program's objects name its tensor. */
	uint64_t before_attach;
	bool history; /* the recording is a snapshot: see words__before() */
	/* True if the step with the largest peak has too many allocations to replay, so there is
	 * no advice about steps. */
	bool peak_too_long;
};

#define ADVICE_LEAST_PERCENT 1 /* smallest saving worth a mention, in percent of the peak */
#define ADVICE_MOST 8	       /* entries about a device; those about host memory come after them */

/* Text of the remedy for calls of a model that keep memory. */
extern const char advice_of_calls[];

struct advisor;
/* Creates an advisor for a model before its first event, with the model's dictionary and facts.
 * Borrows all three, and makes the model watch growth by line. NULL if memory is short. */
struct advisor *advisor__new(struct model *m, const struct dict *d, const struct facts *f);
/* Bounds the memory, about 75 bytes for each of moves: a step, or a job without steps, of more
 * allocations and frees gets no advice about its steps. The default is 2 million. */
void advisor__limit_steps(struct advisor *v, uint32_t moves);
/* Callback for analysis__run(), with the advisor as ctx. Call it for each event, before the model
 * takes that event. Returns 0 or -ENOMEM. */
int advisor__event(void *advisor, const struct event *e);
/* Computes advice for a device, after the run or while it goes on. device: index in the model.
 * duration: of the recording so far, ns. Returns 0 and *ret, for advice__free_list(), or
 * -ENOMEM. */
int advisor__advise(const struct advisor *v, size_t device, uint64_t duration,
		    struct advice_list *ret);
void advisor__free(struct advisor *v); /* NULL is fine */

/* Calls of the model that build autograd's graph and throw it away: backward does not run. Such a
 * call keeps most of what its forward allocates, for backward. */
struct thrown_graphs {
	uint64_t calls; /* their number */
	uint64_t kept;	/* the most bytes that one of them kept */
	uint32_t stack; /* stack of the largest block in that call */
};
/* False: there are none, or it is not known which calls
 * build a graph. */
bool advisor__thrown_graphs(const struct advisor *v, size_t device, struct thrown_graphs *ret);

void advice__free_list(struct advice_list *list);

/* Prints the advice as indented lines, at most top of them (0: all). Says so if the list is empty.
 * Text of the target is cleaned. */
void advice__text(FILE *out, const struct advice_list *list, size_t top, unsigned width);
/* Writes "advice", an array of objects: kind, saves_bytes, of, figure, peak_after, where, text,
 * basis, costs (null: none). */
void advice__json(struct json *j, const struct advice_list *list);
