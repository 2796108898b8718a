/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LEAKS_LEAKS_H
#define MT_LEAKS_LEAKS_H
/* What grows, as text and as JSON. Everything from the target passes text__clean() or the JSON
 * writer. */
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
	const char *device;		      /* NULL: all */
	size_t top;			      /* lines told of; 0: all */
	enum trend_confidence min_confidence; /* less is not told of, and counts for nothing */
	uint64_t min_growth;
	bool figures; /* each step's */
};

struct leaks_doc {
	struct model *model;
	const struct dict *dict;
	const struct facts *facts;
	const char *name;  /* of the recording, or the process */
	uint32_t format;   /* version of the recording format; 0: there is no file */
	uint64_t duration; /* ns */
	bool complete;
};

/*
 * Prints all devices asked for. *found: whether anything grows, pools and memory of others
 * included. 0, -ENOMEM or -ENOENT (no such device).
 */
int leaks__text(FILE *out, const struct leaks_doc *doc, const struct leaks_opts *o, bool *found);
int leaks__json(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		bool *found);
/* Of the devices, is the i-th asked for? */
bool leaks__wants(const struct leaks_opts *o, const struct leaks_doc *doc, size_t i);
/* The pool's growth is its own only where what tensors hold does not grow with it. */
bool leaks__pool_grows(const struct leaks_opts *o, const struct growth *g);
bool leaks__others_grow(const struct leaks_opts *o, const struct growth *g);
/* Parts of the JSON, into the open object: what a line has besides its place; what of that a sum
 * has, too. figures: its values. */
void leaks_json__figures(struct json *j, const struct growth *g, const struct growth_line *l,
			 bool figures);
void leaks_json__trend(struct json *j, const struct growth *g, const struct trend *t,
		       double per_step, const uint64_t *values, bool figures);

#endif
