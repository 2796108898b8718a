/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Autograd's graph, read from outside, for tensors saved for backward that no Python object holds.
 * The search follows nodes from the tensors' grad_fn. The fields of node classes are not known: a
 * node holds a tensor if a word in the node, or in one of its vectors, points to a c10::TensorImpl
 * (identified by its vtable). glibc malloc's chunk headers give the size of a node; with other
 * allocators nothing is found.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc;
struct pytensors;

#define PYGRAPH_AFTER 64 /* bytes kept after the pointer to a saved tensor */
#define PYGRAPH_CLASS 256

struct pygraph_saved {
	uint64_t impl;	/* c10::TensorImpl */
	uint64_t slot;	/* address of the pointer to impl */
	uint64_t node;	/* node that holds it */
	uint64_t vptr;	/* vtable of the node */
	uint64_t next;	/* size word of malloc's chunk after the node */
	uint32_t cls;	/* class name of the node: index in classes */
	bool leaf;	/* the variable of an AccumulateGrad node, not a saved tensor */
	bool has_after; /* after is set */
	uint8_t after[PYGRAPH_AFTER];
};

/* Examines a Python object that a torch.autograd.Function's node points to. 0 with its class's name
 * and its size in bytes; -ENOENT: not such an object. */
typedef int pygraph__object_fn(void *ctx, uint64_t obj, char *name, size_t room, size_t *size);

struct pygraph_opts {
	pygraph__object_fn *object; /* NULL: do not search Functions' Python objects */
	int (*go_on)(void *ctx); /* called now and then; not 0: ends the search with that value */
	void *ctx;
};

/* Node `from` keeps node `to`. */
struct pygraph_edge {
	uint64_t from, to;
};

struct pygraph {
	struct pygraph_saved *saved;
	size_t nsaved;
	struct pygraph_edge *edges;
	size_t nedges;
	char (*classes)[PYGRAPH_CLASS];
	size_t nclasses;
	size_t nodes; /* number of nodes read */
};

/* Reads the graph from n root nodes; ignores addresses that are not nodes. 0 with *ret, the value
 * of go_on(), -ENOMEM, -ESRCH, -EPERM. */
int pygraph__read(struct pytensors *tensors, const uint64_t *roots, size_t n,
		  const struct pygraph_opts *o, struct pygraph *ret);
/*
 * Finds for each saved tensor which of n tensors keeps its node; of several, the one that keeps the
 * longest graph. roots[i]: the grad_fn of tensor i. ret[i]: 1 + the number of the tensor that keeps
 * saved tensor i; 0: none. 0 or -ENOMEM.
 */
int pygraph__holders(const struct pygraph *graph, const uint64_t *roots, size_t n, uint32_t *ret);
/* Reads again and sets holds[i]: whether the node of saved tensor i still holds it. 0, -ENOMEM,
 * -ESRCH, -EPERM. */
int pygraph__check(const struct proc *proc, const struct pygraph *graph, bool *holds);
/*
 * Finds SavedVariable's flags (saved original, leaf, output), as an offset after the tensor
 * pointer, from values that must agree over all saved tensors. 0: not found. grad_fn[i]: the i-th
 * tensor has a node; known[i]: that was read.
 */
size_t pygraph__find_flags(const struct pygraph *graph, const bool *grad_fn, const bool *known);
enum pygraph_use {
	PYGRAPH_HELD,  /* held by a node, purpose not known */
	PYGRAPH_SAVED, /* saved for backward */
	/* Saved for backward, and made by the graph: it is the node's own output or has a
	 * grad_fn. */
	PYGRAPH_MADE,
};
/* Purpose of a saved tensor. flags: from pygraph__find_flags(). grad_fn: the tensor has a node;
 * valid if `known`. */
enum pygraph_use pygraph__use(const struct pygraph_saved *s, size_t flags, bool known,
			      bool grad_fn);
void pygraph__free(struct pygraph *graph); /* frees its contents and zeroes it */
