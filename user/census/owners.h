/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The search for containers that hold tensors and other memory: owners.c. owners_names.c
 * names them. */
#include "census/internal.h"

struct node {
	uint64_t obj, type;
	uint32_t path; /* offset in text */
	uint32_t root;
	uint32_t from; /* items of it examined before */
	uint8_t shape, depth;
	bool state; /* the value of a parameter in a dict, or in one */
};

struct root {
	char *suffix; /* end of the name: " in main (train.py:31)", "" */
};

struct owned {
	uint64_t obj;
	uint32_t path, root; /* root: with the bits below */
};

#define ROOT_MASK (UINT32_MAX >> 3)
#define OWNED_STATE (1u << 29) /* state of a parameter: see struct node */
#define OWNED_AGAIN (1u << 30) /* the second search found the tensor */
#define OWNED_SAME (1u << 31)  /* and at the same place */

/* Memory of an object that is no tensor, such as a bytes object. */
struct owned_memory {
	uint64_t addr, size;
	uint64_t in; /* the container; 0: a variable */
	uint32_t path, root;
};

struct census_owners {
	struct reading *r;
	struct census_owners *before; /* the first search; NULL: this is the first */
	struct map64 *types;	      /* type object -> enum shape */
	struct map64 *visited;	      /* containers, and objects with memory */
	struct node *nodes;	      /* queue of containers to examine */
	size_t nnodes, capnodes;
	struct root *roots;
	size_t nroots, caproots;
	struct owned *owned; /* of the first search; then by object, each once */
	size_t nowned, capowned;
	struct owned_memory *memory; /* if the reading asks for it */
	size_t nmemory, capmemory;
	char *text;
	size_t text_len, text_cap;
	uint64_t items;
	uint64_t deadline, cpu_end; /* CLOCK_MONOTONIC, CPU time of this thread; ns */
	uint64_t first_key;	    /* the first key of the last dict */
	bool is_parameter;	    /* first_key is a parameter */
	unsigned looks;		    /* at the limits */
	bool cut;  /* a limit ended the search before all containers were examined */
	bool full; /* some containers were not queued: there are too many */
	struct pyitems it;
};

/* Searches all containers once. before: the first search, in which the tensors get OWNED_SAME that
 * are where they were; NULL: this is it. 0 or an error that ends the reading; unreadable objects
 * are left out. The caller calls census_owners__fini() in any case. */
int census_owners__search(struct reading *r, struct census_owners *l, struct census_owners *before);
/* The place of a tensor that the first search found; NULL: it did not. */
struct owned *census_owners__find(const struct census_owners *l, uint64_t obj);
void census_owners__fini(struct census_owners *l);
