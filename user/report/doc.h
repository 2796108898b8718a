/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPORT_DOC_H
#define MT_REPORT_DOC_H
/* The report for programs: JSON and CSV. Errors of the stream are the caller's to check. */
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

/* What a document is made from: a recording that was read, or a capture under way. */
struct report_doc {
	const struct model *model;
	const struct dict *dict;
	const struct facts *facts;
	const char *name;  /* of the recording */
	uint32_t format;   /* version of the recording format */
	uint64_t duration; /* ns */
	bool complete;
	int device; /* index in the model, -1: there is none, and no rows */
	enum moment at;
	uint64_t at_time;
	enum group by;
	unsigned split; /* as in struct row_opts: not 0, by does not matter */
	bool innermost;
	bool segments;			    /* --by segment: by does not matter then */
	const struct report_select *select; /* filter.h; NULL: all. Not of segments */
	size_t top;			    /* 0: all rows */
	const struct report_fail *fail;	    /* "failed"; NULL: nothing was asked for */
	size_t fail_from;		    /* what of it is of this recording */
	const struct advice_list *advice;   /* "advice"; NULL: was not asked for */
	const struct rolling_view
		*rolling; /* "rolling": what the recording is a segment of; NULL: none */
};

/* A document of a recording that was read: device as above, all that is asked of it 0. What it
 * points to is the analysis's. */
struct report_doc report_doc__of(const struct analysis *a, int device);

/* One object, at the place where j stands; key as json.h has it. 0 or -ENOMEM. */
int report_json__document(struct json *j, const char *key, const struct report_doc *doc);

/* Parts of the document, for other documents: "target", "capture", "rows"; what "devices" has of
 * one, into the open object. */
void report_json__target(struct json *j, const struct report_doc *doc);
void report_json__capture(struct json *j, const struct report_doc *doc);
int report_json__rows(struct json *j, const struct report_doc *doc);
int report_json__device(struct json *j, const struct report_doc *doc, size_t device);
/* Of that, what the model counts all the time. */
void report_json__figures(struct json *j, const struct model_device *d);
/* Parts of the document, for json.c: the rows of --by segment; what a device has below its
 * blocks. 0 or -ENOMEM. */
int report_json__segments(struct json *j, const struct report_doc *doc);
int report_json__below(struct json *j, const struct report_doc *doc, size_t device);
void report_json__ooms(struct json *j, const struct report_doc *doc, size_t device);
/* file, line, function, module, phase and source of a row. */
void report_json__line(struct json *j, const struct row *r);
/* "stack" of a row, root first; buf of REPORT_TEXT (labels/words.h). */
void report_json__stack(struct json *j, const struct dict *d, const struct row *r, char *buf);
/*
 * The figures of a layer as keys of the open object: peak_allocated to duration_ms, and the same of
 * forward and backward. reserved: the device has an allocator that reserves; otherwise these keys
 * are null.
 */
void report_json__layer(struct json *j, const struct model_layer *l, bool reserved);
/* "filter" and "hide", where one of them was asked for. */
void report_json__select(struct json *j, const struct report_select *s);

/* The header line, then the rows of any number of documents (RFC 4180). 0 or -ENOMEM. */
void report_csv__header(FILE *out, bool segments);
int report_csv__rows(FILE *out, const struct report_doc *doc);
void report_csv__field(FILE *out, const char *s); /* a comma and a field; NULL: an empty one */
/* The same of a row's stack: frames parted by ";", root first. 0 or -ENOMEM. */
int report_csv__stack(FILE *out, const struct dict *d, const struct row *r);

#endif
