/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Prints growing lines, of one recording or of several, as text and as JSON. All text from the
 * target is cleaned. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/growth.h"
#include "report/leaks/host.h"
#include "report/ranks/ranks.h"

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

/* ---- several recordings ---- */

/* Finds growing lines in several recordings: a line's verdict in each of them. Each recording is
 * judged when it is added and can then be freed. */
struct analysis;
struct leaks_ranks;

/* A device of a recording. */
struct leaks_device {
	uint32_t recording; /* index of the recording in ranks */
	char name[32];	    /* device name, such as "cuda:2" */
	char kind[32];	    /* kind of device, such as "cuda"; lines are compared within a kind */
	struct growth of;   /* growth on the device, without lines and values */
	uint64_t duration;  /* duration of the recording, ns */
	const char *no_holder;	/* of leaks__no_holder() */
	struct leaks_host host; /* of the device "host" */
	bool pool, others;	/* results of growth__pool_grows() and growth__others_grow() */
	size_t counted;		/* number of growing lines that count */
};

/* A line on a device. */
struct leaks_cell {
	uint32_t device, line;
	bool counts;
	/* Result; the set owns its texts. Values are copied for --steps, otherwise NULL. */
	struct growth_line at;
};

/* A line in any of the recordings. */
struct leaks_line {
	const char *kind;
	const char **stack; /* for --by stack: root first, NULL-terminated; otherwise NULL */
	uint32_t first, n;  /* first cell of the line and number of cells, by recording */
	/* The cell that grows most, among those that count, or among all if none counts. */
	uint32_t most;
	uint32_t counted; /* number of cells that count */
};

/* NULL if memory is short; *o must outlive the result. */
struct leaks_ranks *leaks_ranks__new(const struct leaks_opts *o);
void leaks_ranks__free(struct leaks_ranks *r);
/* Adds a recording that was run with growth__watch(). Returns 0, -ENOMEM, or -ENODATA: the
 * recording has no memory event and is only counted. */
int leaks_ranks__add(struct leaks_ranks *r, const struct analysis *a);
/* Call after the last recording. Returns 0, -ENOMEM, or -ENOENT: no recording has the requested
 * device. */
int leaks_ranks__finish(struct leaks_ranks *r);

/* Results, after leaks_ranks__finish(). */
const struct leaks_opts *leaks_ranks__opts(const struct leaks_ranks *r);
const struct ranks *leaks_ranks__ranks(const struct leaks_ranks *r);
/* Devices by kind, then by recording. */
size_t leaks_ranks__devices(const struct leaks_ranks *r, const struct leaks_device **ret);
/* By kind of device; of a kind, lines that count first, then by growth. */
size_t leaks_ranks__lines(const struct leaks_ranks *r, const struct leaks_line **ret);
const struct leaks_cell *leaks_ranks__cells(const struct leaks_ranks *r,
					    const struct leaks_line *l);
/* True if anything grows. */
bool leaks_ranks__found(const struct leaks_ranks *r);

/* Print the results. The text returns 0 or -ENOMEM. The caller checks out for errors. */
int leaks_ranks__text(FILE *out, const struct leaks_ranks *r);
void leaks_ranks__json(struct json *j, const struct leaks_ranks *r);
