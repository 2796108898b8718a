/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Translates stacks from the BPF programs' records (code objects, offsets, addresses of modules)
 * to the dictionary's (files, lines, names). */
#include <stdbool.h>
#include <stdint.h>

#include "memtrace.h"

struct census_state;
struct code_cache;
struct dict;
struct dict_loc;
struct symbolizer;
struct python;

/* Borrows dict and py. py is NULL if the process has no readable Python: then stacks get no names. */
struct symbolizer *symbolizer__new(struct dict *dict, const struct python *py); /* NULL on ENOMEM */
void symbolizer__free(struct symbolizer *symbolizer);				/* NULL is fine */
/* Copies the code objects that were read in the parent process before it forked this one, at
 * `forked` (CLOCK_MONOTONIC, ns). 0 or -ENOMEM. */
int symbolizer__inherit(struct symbolizer *symbolizer, const struct symbolizer *parent,
			uint64_t forked);

/* Reads the new code objects of a stack. Call it as soon as the record is there, since code objects
 * may be freed at any moment. 0 or -ENOMEM. */
int symbolizer__prefetch(struct symbolizer *symbolizer, const struct mt_rec_stack *rec);
/* The cache of code objects. The caller tells it which are freed. */
struct code_cache *symbolizer__codes(struct symbolizer *symbolizer);

/* Checks a number that a function of dict.h returned. Returns the number; 0 if the dictionary is
 * full, which is counted and logged once: a long capture goes on without the name. UINT32_MAX: out
 * of memory. */
uint32_t symbolizer__number(struct symbolizer *symbolizer, uint32_t number);

struct named_stack {
	uint32_t stack;	     /* the dictionary's stack */
	bool optimizer_exit; /* the stack is the exit of an optimizer's step */
	bool scope_exit;     /* the stack is the exit of a record_function, or the call that leaves
				its end to a future */
	bool whole;	     /* all frames and modules of the stack have names */
	uint64_t root;	     /* address of the outermost module object, 0: none */
	uint32_t modules;    /* number of module objects on the stack */
	uint32_t root_at;    /* number of frames from the innermost one to that of the outermost
				module's call */
};
/* Translates a stack. Frames and modules whose names are not certain get none. 0 or -ENOMEM. */
int symbolizer__stack(struct symbolizer *symbolizer, const struct mt_rec_stack *rec,
		      struct named_stack *ret);

/* The place of a frame: code object, epoch of its stack, and instruction. Also the function's first
 * line. False: not certain, or not read. */
bool symbolizer__place(const struct symbolizer *symbolizer, uint64_t code, uint64_t epoch,
		       int32_t at, struct dict_loc *ret, uint32_t *firstlineno);

/* The dictionary's number of a root module that was called, by its address. 0: unknown. */
uint32_t symbolizer__root(struct symbolizer *symbolizer, uint64_t self);
/* Like symbolizer__root(), for any module; root and parent as for nnmodules__name(). UINT32_MAX:
 * out of memory. */
uint32_t symbolizer__module(struct symbolizer *symbolizer, uint64_t self, uint64_t root,
			    uint64_t parent);
/* Result of nnmodules__has_tensors(); -EAGAIN also if the process has no modules with names. */
int symbolizer__has_tensors(struct symbolizer *symbolizer, uint64_t root);
/* Whether a module is part of a model that is known as a root. */
bool symbolizer__is_part(struct symbolizer *symbolizer, uint64_t self);
/* Takes over the models that a census found in the process, so that modules get names from them.
 * Owns st->module_roots from now on. 0 or -ENOMEM. */
int symbolizer__take_models(struct symbolizer *symbolizer, struct census_state *st);
/* Reads the modules' names again, at most every second, and less often if that takes more than a
 * hundredth of the time. now: ns. True if names have changed: then all stacks must be named again.
 * */
bool symbolizer__recheck(struct symbolizer *symbolizer, uint64_t now);

/* Counts of frames and names so far. */
struct names_stats {
	uint64_t frames;
	uint64_t unreadable; /* frames whose code object could not be read */
	uint64_t gone;	     /* frames whose code object was freed before it was read */
	uint64_t unnamed_modules;
	uint64_t codes;	  /* code objects read */
	uint64_t no_room; /* names the dictionary had no room for */
};
struct names_stats symbolizer__stats(const struct symbolizer *symbolizer);
