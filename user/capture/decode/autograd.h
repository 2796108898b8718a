/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Joins allocations in backward to lines of forward: keeps the autograd nodes that forward makes,
 * and looks up each node that begins to run. Two records are of the same node only if address,
 * class, sequence number and thread agree. A node that is not found has a class and no line.
 */
#include <stdbool.h>
#include <stdint.h>

#include "memtrace.h"

struct decoder;
struct thread;
struct autograd;

#define AUTOGRAD_UNKNOWN "unknown node" /* class name of a node about which nothing is known */

/* Opens d->autograd, and probes PyTorch's two functions if they are mapped. 0 or -ENOMEM. */
int autograd__attach(struct decoder *decoder);
/* True if the functions are not probed yet and it is time to look for them; now: ns since start. */
bool autograd__is_due(const struct decoder *decoder, uint64_t now);
/* Looks for the functions in the target's map, which the caller has just read, and probes them. */
void autograd__look(struct decoder *decoder, uint64_t now);
void autograd__free(struct autograd *autograd); /* NULL is fine */

/* Notes that a thread calls a root module. The fact counter.autograd.graphless counts such calls in
 * which forward makes no node. */
void autograd__called(struct decoder *decoder, struct thread *thread, uint64_t root);
/* Keeps a node that forward has made. 0 or -ENOMEM. */
int autograd__made(struct decoder *decoder, const struct mt_rec_node *record);
/* Notes that the record's thread begins to run a node: sets thread.node. 0 or -ENOMEM. */
int autograd__runs(struct decoder *decoder, const struct mt_rec_node *record);

/* Sets *node to the dictionary's number of the node that the record's thread runs, for the event
 * of that record. 0: it runs none, outside of backward. h->node is an enum mt_node. Returns 0 or
 * -ENOMEM. */
int autograd__node(struct decoder *decoder, const struct thread *thread,
		   const struct mt_hdr *header, uint32_t *node);

/* Sets the dictionary's numbers of a parameter's name and module, by the address of its TensorImpl.
 * False: unknown. Called each time a gradient is accumulated. */
typedef bool (*autograd_parameter)(void *ctx, uint64_t tensor, uint32_t *name, uint32_t *module);
void autograd__set_parameters(struct decoder *decoder, autograd_parameter fn, void *ctx);

/* Sets the counters as facts: counter.autograd.<name>. */
void autograd__set_facts(struct decoder *decoder, const uint64_t counters[MT_CNT_NR]);
