/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_AUTOGRAD_H
#define MT_CAPTURE_AUTOGRAD_H
/*
 * Which line of forward an allocation in backward belongs to: the nodes that forward makes are
 * kept, and one that begins to run is looked up among them. Only where all that tells nodes apart
 * is the same are the two the same node; what is not found has a class and no line.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "memtrace.h"

struct decoder;
struct thread;
struct autograd;

#define AUTOGRAD_UNKNOWN "unknown node" /* the class of one that runs, and which cannot be told */

/* Probes the two functions where they are there by now; d->autograd is there afterwards. 0 or
 * -ENOMEM. */
int autograd__attach(struct decoder *d);
/* True if the functions are not probed yet and it is time to look for them; now: ns since start. */
bool autograd__is_due(const struct decoder *d, uint64_t now);
/* Looks for the functions in the target's map, which the caller has just read, and probes them. */
void autograd__look(struct decoder *d, uint64_t now);
void autograd__free(struct autograd *a); /* NULL is fine */

/* A node was made. 0 or -ENOMEM. */
int autograd__made(struct decoder *d, const struct mt_rec_node *r);
/* A node runs on its thread from here on: thread.node. 0 or -ENOMEM. */
int autograd__runs(struct decoder *d, const struct mt_rec_node *r);

/* What a record of this thread says of the node that runs (enum mt_node), as an event has it. 0 or
 * -ENOMEM. */
int autograd__node(struct decoder *d, const struct thread *t, const struct mt_hdr *h,
		   uint32_t *node);

/*
 * Who knows parameters by their TensorImpl's address: sets dict numbers of the name and of the
 * module that it belongs to. False: not known. Called each time that a gradient is accumulated.
 */
typedef bool (*autograd_parameter)(void *ctx, uint64_t tensor, uint32_t *name, uint32_t *module);
void autograd__set_parameters(struct decoder *d, autograd_parameter fn, void *ctx);

/* What has been counted, as facts: counter.autograd.<what> */
void autograd__set_facts(struct decoder *d, const uint64_t c[MT_CNT_NR]);

#endif
