/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Prints growing lines, of one recording or of several, as text and as JSON. All text from the
 * target is cleaned. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/model.h"
#include "model/trend.h"

struct analysis;
struct dict;
struct facts;
struct json;

struct leaks_opts {
	enum group by;
	const char *device;		      /* name of a device; NULL: all */
	size_t top;			      /* lines to print; 0: all */
	enum trend_confidence min_confidence; /* least confidence of a line to print or count */
	uint64_t min_growth;		      /* least growth of such a line, bytes */
	bool figures;			      /* print the values of each step */
};

struct leaks_doc {
	struct model *model;
	const struct dict *dict;
	const struct facts *facts;
	const char *name;  /* name of the recording or the process */
	uint32_t format;   /* version of the recording format; 0: no file */
	uint64_t duration; /* ns */
	bool complete;	   /* the recording has its end */
};

/* Prints the requested devices. Sets *found to true if anything grows, reserved memory and other
 * code's memory included. Returns 0, -ENOMEM, or -ENOENT (no such device). */
int leaks__text(FILE *out, const struct leaks_doc *doc, const struct leaks_opts *o, bool *found);
int leaks__json(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
		bool *found);
/* Writes the member "devices" of the open object. Returns as leaks__json(). */
int leaks_json__devices(struct json *j, const struct leaks_doc *doc, const struct leaks_opts *o,
			bool *found);

/* ---- several recordings ---- */

/* Growing lines in several recordings: a line's verdict in each of them. Each recording is judged
 * when it is added and can then be freed. */
struct leaks_ranks;

/* Creates an empty result. NULL if memory is short. *o must outlive it. */
struct leaks_ranks *leaks_ranks__new(const struct leaks_opts *o);
void leaks_ranks__free(struct leaks_ranks *r);
/* Adds a recording that was run after growth__watch(). Returns 0, -ENOMEM, or -ENODATA: the
 * recording has no memory event, and only the number of such recordings is kept. */
int leaks_ranks__add(struct leaks_ranks *r, const struct analysis *a);
/* Call after the last recording. Returns 0, -ENOMEM, or -ENOENT: no recording has the requested
 * device. */
int leaks_ranks__finish(struct leaks_ranks *r);

/* True if anything grows. After leaks_ranks__finish(). */
bool leaks_ranks__found(const struct leaks_ranks *r);

/* Print the results, after leaks_ranks__finish(). The text returns 0 or -ENOMEM. The caller checks
 * ferror(out). */
int leaks_ranks__text(FILE *out, const struct leaks_ranks *r);
void leaks_ranks__json(struct json *j, const struct leaks_ranks *r);
