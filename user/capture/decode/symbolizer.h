/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Translates stacks as the BPF programs record them (code objects, offsets, addresses of modules)
 * into the dictionary's (files, lines, names). */
#include <stdbool.h>
#include <stdint.h>

#include "memtrace.h"

struct census_state;
struct code_cache;
struct dict;
struct symbolizer;
struct python;

/* Borrows d and py. py is NULL if the process has no readable Python: then stacks get no names. */
struct symbolizer *symbolizer__new(struct dict *d, const struct python *py); /* NULL on ENOMEM */
void symbolizer__free(struct symbolizer *n);				     /* NULL is fine */
/* Takes over what is known of the process that forked ours at that time (CLOCK_MONOTONIC, ns). 0 or
 * -ENOMEM. */
int symbolizer__inherit(struct symbolizer *n, const struct symbolizer *parent, uint64_t forked);

/* Reads the new code objects of a stack. Call it as soon as the record is there, since code objects
 * may be freed at any moment. 0 or -ENOMEM. */
int symbolizer__prefetch(struct symbolizer *n, const struct mt_rec_stack *rec);
/* The cache of code objects. The caller tells it which are freed. */
struct code_cache *symbolizer__codes(struct symbolizer *n);

/* Checks a number that dict__string() and others returned. 0 if the dictionary is full, counted and
 * logged once: a long capture goes on without the name. UINT32_MAX: out of memory. */
uint32_t symbolizer__number(struct symbolizer *n, uint32_t number);

struct named_stack {
	uint32_t stack;	     /* the dictionary's stack */
	bool optimizer_exit; /* the stack is the exit of an optimizer's step */
	bool whole;	     /* all frames and modules are named */
	uint64_t root;	     /* the outermost module object, 0: none */
	uint32_t modules;    /* module objects */
	uint32_t root_at;    /* frames within the outermost module's call */
};
/* Names a stack as far as it is sure. 0 or -ENOMEM. */
int symbolizer__stack(struct symbolizer *n, const struct mt_rec_stack *rec,
		      struct named_stack *ret);

/* The dictionary's module for a called root module, 0: unknown. */
uint32_t symbolizer__root(struct symbolizer *n, uint64_t self);
/* The same for any module; root and parent as for nnmodules__name(). UINT32_MAX: out of memory. */
uint32_t symbolizer__module(struct symbolizer *n, uint64_t self, uint64_t root, uint64_t parent);
/* See nnmodules__has_tensors(); -EAGAIN also if modules are not named. */
int symbolizer__has_tensors(struct symbolizer *n, uint64_t root);
/* Whether a module is part of a model that is known as a root. */
bool symbolizer__is_part(struct symbolizer *n, uint64_t self);
/* Takes what a reading of the program's objects knows of its models. 0 or -ENOMEM. */
int symbolizer__take_models(struct symbolizer *n, struct census_state *st);
/* True if modules changed their names, so that all stacks must be named again. Reads them every
 * second, or slower if that takes more than a hundredth of the time. */
bool symbolizer__recheck(struct symbolizer *n, uint64_t now);

/* Frames without a name, by reason; and totals. */
struct names_stats {
	uint64_t frames, unreadable, gone; /* gone: code objects freed before they were read */
	uint64_t unnamed_modules;
	uint64_t codes;	  /* code objects read */
	uint64_t no_room; /* names the dictionary had no room for */
};
struct names_stats symbolizer__stats(const struct symbolizer *n);
