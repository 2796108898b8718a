/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Scopes of several recordings side by side: a scope is the same in all if its name is, and those
 * of the scopes around it. Figures are of one device of each recording. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

struct json;
struct strings;

/* A scope in a recording. */
struct scope_cell {
	uint64_t runs; /* 0: the recording does not have the scope; then nothing else counts */
	uint64_t time, median_time; /* ns: sum of its runs, and median of a run */
	bool level_known;	    /* peak and reserved are known */
	bool start_known, kept_known;
	uint64_t start, peak; /* of the run with the highest peak */
	uint64_t reserved;    /* of all runs; 0: not known */
	uint64_t kept;	      /* median */
};

struct scope_entry {
	const char *name;	  /* as row.scope */
	uint8_t source;		  /* as in struct model_scope */
	struct scope_cell *cells; /* see scope_entry__cell() */
	size_t ncells;
	uint64_t peak; /* highest of all cells */
};

/* The scope in a recording. */
static inline struct scope_cell scope_entry__cell(const struct scope_entry *e, size_t recording)
{
	return recording < e->ncells ? e->cells[recording] : (struct scope_cell){ 0 };
}

struct scope_set {
	struct scope_entry *all;
	size_t n, cap;
	struct strings *names, *ids;
};

/* Returns 0 or -ENOMEM; call scope_set__drop() in both cases. */
int scope_set__init(struct scope_set *s);
void scope_set__drop(struct scope_set *s);
/* Adds the scopes of a recording that has been read. device: its index in the model. Returns 0 or
 * -ENOMEM. */
int scope_set__add(struct scope_set *s, size_t recording, const struct model *m, size_t device);
/* Sorts the scopes: the highest peak first. */
void scope_set__sort(struct scope_set *s);
/* Writes the figures of a scope in a recording; null: the recording does not have it. */
void scope_cell__json(struct json *j, const char *key, const struct scope_cell *c);
/* Writes them into the open object. */
void scope_cell__put(struct json *j, const struct scope_cell *c);
