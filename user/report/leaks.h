/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Prints growing lines as text and as JSON. All text from the target is cleaned. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/growth.h"

struct dict;
struct facts;
struct json;

struct leaks_opts {
	enum group by;
	const char *device;		      /* name of a device; NULL: all */
	size_t top;			      /* lines to print; 0: all */
	enum trend_confidence min_confidence; /* least confidence of a line to print or count */
	uint64_t min_growth;
	bool figures; /* print the values of each step */
};

struct leaks_doc {
	struct model *model;
	const struct dict *dict;
	const struct facts *facts;
	const char *name;  /* name of the recording or the process */
	uint32_t format;   /* version of the recording format; 0: no file */
	uint64_t duration; /* ns */
	bool complete;
};

/* Prints the requested devices. *found: true if anything grows, the pool and other code's memory
 * included. Returns 0, -ENOMEM, or -ENOENT (no such device). */
int leaks__text(FILE *out, const struct leaks_doc *doc, const struct leaks_opts *o, bool *found);
int leaks__json(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		bool *found);
/* Writes the member "devices" of the open object. Returns as leaks__json(). */
int leaks_json__devices(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
			bool *found);
/* True if device i is requested. */
bool leaks__wants(const struct leaks_opts *o, const struct leaks_doc *doc, size_t i);
/* Writes the member "request", if requests take the place of steps. */
void leaks_json__request(struct json *j, const struct growth *g);
/* Write parts of the open object: the figures of a line, or only its trend, which sums have, too.
 * figures: write the values. */
void leaks_json__figures(struct json *j, const struct growth *g, const struct growth_line *l,
			 bool figures);
void leaks_json__trend(struct json *j, const struct growth *g, const struct trend *t,
		       double per_step, const uint64_t *values, bool figures);
