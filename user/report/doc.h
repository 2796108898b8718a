/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The report as JSON and CSV. The caller checks the stream for errors. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/model.h"
#include "record/stream.h"

struct advice_list;
struct analysis;
struct json;
struct report_fail;
struct rolling_view;
struct report_select;

/* Source and options of a report as JSON or CSV. The source is a recording that was read, or a
 * running capture. */
struct report_doc {
	const struct model *model;
	const struct dict *dict;
	const struct facts *facts;
	const char *name;  /* name of the recording */
	uint32_t format;   /* version of the recording format */
	uint64_t duration; /* duration in ns */
	bool complete;
	int device;	  /* index in the model; -1: no device, and no rows */
	enum moment at;	  /* moment of the rows */
	uint64_t at_time; /* that moment in ns, if at is AT_TIME */
	enum group by;
	unsigned split; /* as in struct row_opts; if not 0, by is ignored */
	enum frame_choice which_line;
	bool segments;			    /* --by segment; by is ignored */
	const struct report_select *select; /* filter.h; NULL: all rows. Ignored for segments */
	size_t top;			    /* largest number of rows to write; 0: all */
	uint32_t fields; /* fields of CSV, bits as in report/files.h; 0: all. Ignored for segments */
	const struct report_fail *fail;	       /* source of "failed"; NULL: no --fail-if */
	size_t fail_from;		       /* index of this recording's first result in fail */
	const struct advice_list *advice;      /* source of "advice"; NULL: no --advice */
	const struct scope_lines *scope_lines; /* source of lines in "scopes"; NULL: none */
	/* folder that the recording is a part of, for "rolling"; NULL: none */
	const struct rolling_view *rolling;
};

/* Makes a document of a recording that was read, with all options 0. Borrows the analysis.
 * device: index in the model, or -1, as in struct report_doc. */
struct report_doc report_doc__of(const struct analysis *a, int device);

/* Writes the document as one object. key: as in json.h. Returns 0 or -ENOMEM. */
int report_json__document(struct json *j, const char *key, const struct report_doc *doc);

/* Write parts of the document for other documents: "target", "capture", "rows";
 * report_json__device() writes members of one of "devices" into the open object. */
void report_json__target(struct json *j, const struct report_doc *doc);
void report_json__capture(struct json *j, const struct report_doc *doc);
int report_json__rows(struct json *j, const struct report_doc *doc);
int report_json__device(struct json *j, const struct report_doc *doc, size_t device);
/* Writes the members of a device that need no list of blocks: its totals, peak, state and
 * fragmentation. */
void report_json__figures(struct json *j, const struct model_device *d);
/* Writes "host": the readings of host memory with their verdict, or null. duration: as in
 * host_verdict__of_model(). 0 or -ENOMEM. */
int report_json__host(struct json *j, const struct model *m, const struct facts *f,
		      uint64_t duration);
/* Writes "scopes": the functions that --scope names, and their runs; nothing if there are none. */
void report_scopes__json(struct json *j, const struct report_doc *doc);
/* Writes file, line, function, module, phase and source of a row. */
void report_json__line(struct json *j, const struct row *r);
/* Writes "stack" of a row, from the root on. */
void report_json__stack(struct json *j, const struct dict *d, const struct row *r);
/* Writes a layer's figures, from peak_allocated to duration_ms, into the open object: the sums,
 * then those of forward and of backward. reserved false: writes null for figures of reserved
 * memory. */
void report_json__layer(struct json *j, const struct model_layer *l, bool reserved);
/* Writes "filter" and "hide" if --filter or --hide was given. */
void report_json__select(struct json *j, const struct report_select *s);

/* Write the header line, then the rows of any number of documents (RFC 4180). Return 0 or
 * -ENOMEM. */
void report_csv__header(FILE *out, bool segments, uint32_t fields);
int report_csv__rows(FILE *out, const struct report_doc *doc);
/* writes a comma and a field; NULL: an empty one */
void report_csv__field(FILE *out, const char *s);
/* Writes file, line and function of a row, a comma before each; NULL: three empty fields. */
void report_csv__place(FILE *out, const struct row *r);
/* Writes a comma and a row's stack: frames from the root on, with ";" between. Returns 0 or
 * -ENOMEM. */
int report_csv__stack(FILE *out, const struct dict *d, const struct row *r);
