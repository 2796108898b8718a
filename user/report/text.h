/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The report as text, for `report` and for the end of a live session. All text from the target
 * is cleaned. Zeroed options are the defaults. The caller checks ferror(out). Functions
 * return 0 or -ENOMEM. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/model.h"

struct dict;
struct facts;
struct grid;
struct report_select;
struct scope_lines;

enum report_choice { REPORT_AUTO, REPORT_ALWAYS, REPORT_NEVER };

struct report_text_opts {
	enum group by;
	unsigned split;	     /* as in struct row_opts; if not 0, by is ignored */
	bool tree;	     /* --tree, with BY_MODULE: a tree of modules with their submodules */
	enum row_when when;  /* ROWS_AT_MARK: rows of the moment `at` */
	enum moment at;	     /* moment that the model marked */
	uint64_t at_time;    /* that moment in ns, if at is AT_TIME */
	const char *at_name; /* "mark" or "scope": each recording has its own at_time; NULL: one */
	enum frame_choice which_line;	       /* --frames all */
	bool segments;			       /* --by segment; by is ignored */
	bool scopes;			       /* --scopes: no rows, only the table of scopes */
	const struct scope_lines *scope_lines; /* lines below each scope; NULL: none */
	const struct report_select *select;    /* filter.h; NULL: all rows */
	enum report_choice bars;	       /* REPORT_AUTO: on a terminal with room for them */
	enum report_choice colour; /* REPORT_AUTO: on a terminal, unless NO_COLOR says otherwise */
	bool host;		   /* --device host: prints the parts of host memory, too */
	bool no_sums;		   /* no sums before the table */
	bool overview;		   /* categories and modules with bars, before the table */
	unsigned columns;	   /* bits 1 << COL_* (report/files.h); 0: the default ones */
	size_t top;		   /* largest number of rows; 0: all */
	unsigned width;		   /* columns; 0: the terminal's (COLUMNS first), 80 elsewhere */
	uint64_t duration;	   /* ns; 0: the fact duration_ns */
	uint64_t lost;	 /* lost events, if the caller counted more than facts and model */
	const char *cut; /* why the recording is incomplete; NULL: complete */
};

/* Prints the header, the table and the line on how exact the figures are. device: index in the
 * model; -1: none. */
int report_text__summary(FILE *out, const struct model *m, int device, const struct dict *d,
			 const struct facts *f, const struct report_text_opts *o);
/* Prints the table with its sums before it. */
int report_text__table(FILE *out, const struct model *m, size_t device, const struct dict *d,
		       const struct facts *f, const struct report_text_opts *o);
/* Prints the modules as a tree, with the table's sums before it. */
int report_text__tree(FILE *out, const struct model *m, size_t device,
		      const struct report_text_opts *o);
/* Prints the moment's memory by category and by module, as bars that add up to it. */
int report_text__overview(FILE *out, const struct model *m, size_t device,
			  const struct report_text_opts *o);
/* Returns the device's allocated bytes at this moment, which its rows add up to. */
static inline uint64_t report_text__all(const struct model_device *d, enum row_when when)
{
	if (when == ROWS_TOTAL)
		return d->total_allocated;
	return when == ROWS_AT_MARK ? d->mark_allocated : d->allocated;
}
/* Prints the line before a table: memory at the moment, unless that is the peak. */
void report_text__sums(FILE *out, const struct report_text_opts *o, const struct model_device *dev);
/* Prints the table of --by segment with its sums before it. */
int report_text__segments(FILE *out, const struct model *m, size_t device, const struct facts *f,
			  const struct report_text_opts *o);
/* Prints named scopes, and the functions that --scope names, with their runs and memory of the
 * device, after an empty line. device: index in the model; -1: none. */
int report_text__scopes(FILE *out, const struct model *m, int device, const struct facts *f,
			const struct report_text_opts *o);
/* Prints a list from the driver's figure for the process down to requested bytes, with all
 * differences. Prints nothing if only blocks are known. */
int report_text__reconcile(FILE *out, const struct model *m, size_t device, const struct facts *f,
			   const struct report_text_opts *o);
/* Prints losses, drift and the quality of stacks in one line after an empty one; nothing if there
 * is nothing to say. */
void report_text__trust(FILE *out, const struct model *m, const struct facts *f,
			const struct report_text_opts *o);
/* Writes "python train.py --lr 1", cleaned, without the program's folder, cut to columns. */
void report_text__command(char *buf, size_t size, const struct facts *f, size_t columns);
/* Returns the width to print in: columns, at least 40. */
unsigned report_text__width(FILE *out, const struct report_text_opts *o);
/* Returns whether to print colours. */
bool report_text__colour(FILE *out, const struct report_text_opts *o);
/* Returns whether to print bars. room: true if bars fit. */
bool report_text__bars(FILE *out, const struct report_text_opts *o, bool room);
/* Prints a table's row with the sum of n rows that are not shown, "+ 12 more rows" in room columns.
 * what: "more row"; an "s" follows for several. */
void report_text__left_out(const struct grid *g, FILE *out, size_t row, size_t n, const char *what,
			   size_t room);
#define REPORT_BAR 10 /* columns of a bar in a table */
