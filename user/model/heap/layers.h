/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Layers: modules by dotted name, and the state of each thread. */
#include <stdbool.h>
#include <stdint.h>

#include "model/heap/hash_index.h"
#include "model/model.h"

struct dev;
struct map64;
struct site;

/* Number of leading components of a dotted name that get a layer each: "a", "a.b" and so on. The
 * whole name is always a layer. */
#define LAYER_DEPTH 32
#define LAYER_CHAIN (LAYER_DEPTH + 2) /* and the root */

/* Phase of an allocation or call, for the sums of a layer. */
enum layer_part { PART_OTHER, PART_FORWARD, PART_BACKWARD, PART_NR };

struct layer {
	char *name;
	uint32_t root, cls; /* dict strings */
	/* Over all parts: live bytes, their peak, and ns between allocations. They do not follow
	 * from the values of the parts. */
	uint64_t live, peak, duration;
	struct layer_sums {
		uint64_t live, peak, peak_reserved;
		uint64_t allocs, frees;
		double frag_sum;
		uint64_t frag_n;
		uint64_t duration; /* ns between allocations of one call */
		/* From EVENT_ENTER and EVENT_LEAVE: */
		uint64_t calls;
		uint64_t inside; /* ns in calls of the layer, with modules below it */
	} part[PART_NR];
};

/* The layers that contain a module, from the root to the module: a range in layers.pool. It is one
 * word: copies of it are read at once, and processors wait when a read takes of several writes. */
struct chain {
	uint32_t off;
	uint32_t n : 31;
	uint32_t known : 1; /* 0: not looked up yet */
};
_Static_assert(sizeof(struct chain) == sizeof(uint64_t), "a chain is one word");

struct layers {
	struct layer *all;
	uint32_t n;
	size_t cap;
	struct hash_index index;
	struct chain *chains; /* by module number */
	size_t nchains;
	uint32_t *pool; /* layers of all chains: indexes in all */
	uint32_t npool;
	size_t cappool;
	/* Thread and layer -> entry time, while the thread is in the layer; NULL: none yet. */
	struct map64 *open;
	bool entered; /* the recording has EVENT_ENTER */
};

/* A module call on a thread's call stack. */
struct entered {
	uint32_t module;
	uint8_t part; /* enum layer_part */
	struct chain chain;
	uint64_t begun; /* bit i: the thread was not in the chain's layer i before this call */
};
_Static_assert(LAYER_CHAIN <= 64, "a bit for each layer of a chain");

struct thread_state {
	uint64_t seen;		     /* number of the thread's last event */
	uint64_t last;		     /* time of the last allocation */
	struct chain open;	     /* layers of the last allocation */
	uint64_t begin[LAYER_CHAIN]; /* first allocation in each of these layers without a break */
	enum layer_part part;	     /* part of the last allocation */
	uint64_t begin_part[LAYER_CHAIN]; /* as begin, but a change of part is a break, too */
	struct entered *entered;	  /* outermost first */
	uint32_t nentered;
	size_t capentered;
};
/* As layers__chain() in state.h, for a module that has no chain yet. */
int layers__new_chain(struct model *m, uint32_t module, struct chain *ret);
/* Adds a block that e allocates. Returns 0 or -ENOMEM. */
int layers__alloc(struct model *m, struct thread_state *t, const struct dev *dev,
		  const struct event *e, const struct site *s);
/* Removes a block of the site. freed: false if its free was missed, so that no free is counted. */
void layers__free_block(struct model *m, const struct site *s, bool freed);
/* Adds a block from before attach. 0 or -ENOMEM. */
int layers__add_known_block(struct model *m, const struct site *s);
/* Ends the calls that the thread's allocations show. */
void layers__close(struct model *m, struct thread_state *t);
/* Handle EVENT_ENTER, EVENT_LEAVE, and the end of the thread at time. Return 0 or -ENOMEM. */
int layers__enter(struct model *m, struct thread_state *t, const struct event *e);
void layers__leave(struct model *m, struct thread_state *t, const struct event *e);
void layers__leave_all(struct model *m, struct thread_state *t, uint32_t thread, uint64_t time);
void layers__free(struct layers *l);
