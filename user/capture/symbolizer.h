/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_SYMBOLIZER_H
#define MT_CAPTURE_SYMBOLIZER_H
/*
 * From the kernel side's stacks (code objects, offsets, module addresses) to the dict's (files,
 * lines, names).
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "memtrace.h"

struct code_cache;
struct dict;
struct symbolizer;
struct python;

/* Borrows d and py; py is NULL where there is no Python to read (no stack is ever resolved then). */
struct symbolizer *symbolizer__new(struct dict *d, const struct python *py); /* NULL on ENOMEM */
void symbolizer__free(struct symbolizer *n);				     /* NULL is fine */
/* What was known of the process that forked ours at that time (CLOCK_MONOTONIC, ns). 0 or -ENOMEM. */
int symbolizer__inherit(struct symbolizer *n, const struct symbolizer *parent, uint64_t forked);

/*
 * Reads the code objects of a stack that are not known yet. Done as soon as a record is there: what
 * it names may be freed any moment. 0 or -ENOMEM.
 */
int symbolizer__prefetch(struct symbolizer *n, const struct mt_rec_stack *rec);
/* The code objects that are known: the owner tells it of those that are freed. */
struct code_cache *symbolizer__codes(struct symbolizer *n);

/*
 * What dict__string() and the like returned, or 0 where the dict is full: a long capture goes on
 * without a name, counted and said once, instead of ending. UINT32_MAX: out of memory.
 */
uint32_t symbolizer__number(struct symbolizer *n, uint32_t number);

struct named_stack {
	uint32_t stack;	     /* dict stack */
	bool optimizer_exit; /* the frames are those of an optimizer's step being left */
	bool whole;	     /* all frames and modules are named */
	uint64_t root;	     /* outermost module on it, 0: none */
};
/* The dict's stack for a record, as far as it can be told for sure. 0 or -ENOMEM. */
int symbolizer__stack(struct symbolizer *n, const struct mt_rec_stack *rec,
		      struct named_stack *ret);

/* The dict's module for a root module that is being called, 0: cannot be named. */
uint32_t symbolizer__root(struct symbolizer *n, uint64_t self);
/* The same for any: root and parent as for nnmodules__name(). UINT32_MAX: no memory. */
uint32_t symbolizer__module(struct symbolizer *n, uint64_t self, uint64_t root, uint64_t parent);
/*
 * Every second or so: have modules changed their names? True: all stacks must be named anew. Slows
 * itself down so that it takes less than a hundredth of the time.
 */
bool symbolizer__recheck(struct symbolizer *n, uint64_t now);

/* Frames that could not be named, by reason. */
struct names_stats {
	uint64_t frames, unreadable, gone; /* gone: freed before it was read */
	uint64_t modules, unnamed_modules;
	uint64_t codes;	  /* code objects read */
	uint64_t no_room; /* what the dict had no room for any more */
};
struct names_stats symbolizer__stats(const struct symbolizer *n);

#endif
