/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_PYGRAPH_H
#define MT_TORCH_PYGRAPH_H
/*
 * Autograd's graph read from outside, for the tensors that it keeps for backward and that no Python
 * object knows of. From nodes that tensors lead to, every node that a node leads to. Where a class
 * keeps what is in no table: a word of a node, or of a vector of its own, that points to a
 * c10::TensorImpl (as its vtable says) is a tensor that the node holds. How far a node goes is what
 * glibc's malloc says of it; with another allocator nothing is found.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map64;
struct proc;
struct pytensors;

#define PYGRAPH_AFTER 64 /* bytes behind the pointer to a saved tensor */
#define PYGRAPH_CLASS 256

struct pygraph_saved {
	uint64_t impl; /* c10::TensorImpl */
	uint64_t slot; /* where the pointer to it lies, */
	uint64_t node; /* in what this node holds, */
	uint64_t vptr; /* which is of this class, */
	uint64_t next; /* and ends here: the size of malloc's next chunk */
	uint32_t cls;  /* the class's name: index of classes */
	bool leaf;     /* the variable that a node accumulates the gradient of: not saved */
	bool has_after;
	uint8_t after[PYGRAPH_AFTER];
};

/* What a Python object that a node of a torch.autograd.Function leads to is: 0, its class's name
 * and bytes; -ENOENT none. */
typedef int pygraph__object_fn(void *ctx, uint64_t obj, char *name, size_t room, size_t *size);

struct pygraph_opts {
	pygraph__object_fn *object; /* NULL: Functions' own are not found */
	int (*go_on)(void *ctx);    /* asked now and then; not 0: ends it with that */
	void *ctx;
};

struct pygraph {
	struct pygraph_saved *saved;
	size_t nsaved;
	char (*classes)[PYGRAPH_CLASS];
	size_t nclasses;
	size_t nodes; /* that were read */
};

/*
 * Reads the graph from n nodes on; addresses that are none are passed over. 0 with *ret, or what
 * go_on said; -ENOMEM, -ESRCH, -EPERM.
 */
int pygraph__read(struct pytensors *t, const uint64_t *roots, size_t n,
		  const struct pygraph_opts *o, struct pygraph *ret);
/* Looks again: holds[i] is whether the i-th is held by its node still. 0, -ENOMEM, -ESRCH, -EPERM. */
int pygraph__check(const struct proc *p, const struct pygraph *g, bool *holds);
/*
 * Where behind the pointer SavedVariable has its flags {.., was the original saved, is it a leaf,
 * is it the node's own output}, found by what has to be so of all; 0: not found. grad_fn[i]: the
 * i-th has a node of its own; known[i]: that was read.
 */
size_t pygraph__find_flags(const struct pygraph *g, const bool *grad_fn, const bool *known);
enum pygraph_use {
	PYGRAPH_HELD,  /* it is there, and no more is known */
	PYGRAPH_SAVED, /* for backward */
	PYGRAPH_MADE,  /* likewise, and made by the graph: the node's own output, or it has a node
			  itself */
};
enum pygraph_use pygraph__use(const struct pygraph_saved *s, size_t flags, bool known,
			      bool grad_fn);
void pygraph__free(struct pygraph *g); /* what it holds; zeroes it */

#endif
