/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPORT_TEXT_H
#define MT_REPORT_TEXT_H
/*
 * The report as text: for `report` and for the end of a live session. Everything from the target
 * passes text__clean(). Zeroed options are the defaults. Errors of out are the caller's to check;
 * the functions return 0 or -ENOMEM.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/model.h"

struct dict;
struct facts;
struct report_select;

enum report_choice { REPORT_AUTO, REPORT_ALWAYS, REPORT_NEVER };

struct report_text_opts {
	enum group by;
	unsigned split; /* as in struct row_opts: not 0, by does not matter */
	bool tree;	/* --tree, with by BY_MODULE: modules under each other, with all inside */
	enum row_when when; /* ROWS_AT_MARK: the moment that the model was made for ... */
	enum moment at;	    /* ... which is this one */
	uint64_t at_time;
	bool innermost;			    /* --frames all */
	bool segments;			    /* --by segment: by does not matter then */
	const struct report_select *select; /* filter.h; NULL: all, charged as ever */
	enum report_choice bars;	    /* REPORT_AUTO: on a terminal with room for them */
	enum report_choice colour; /* REPORT_AUTO: on a terminal, unless NO_COLOR says otherwise */
	bool no_sums;		   /* of a table: what it adds up to has been said */
	bool overview;		   /* categories and modules with bars, in front of the table */
	size_t top;		   /* rows before "(N more rows)"; 0: all */
	unsigned width;		   /* columns; 0: the terminal's (COLUMNS first), 80 elsewhere */
	uint64_t duration;	   /* ns; 0: the fact duration_ns */
	uint64_t lost;	 /* events lost, where the caller knows of more than facts and model */
	const char *cut; /* why the recording is not complete; NULL: it is */
};

/* Header, table, trust line. device: index in the model, -1: there is none. */
int report_text__summary(FILE *out, const struct model *m, int device, const struct dict *d,
			 const struct facts *f, const struct report_text_opts *o);
/* The table alone, with what it adds up to in front. */
int report_text__table(FILE *out, const struct model *m, size_t device, const struct dict *d,
		       const struct facts *f, const struct report_text_opts *o);
/* --tree: modules under those that they are in, with what the table has in front. */
int report_text__tree(FILE *out, const struct model *m, size_t device,
		      const struct report_text_opts *o);
/* The moment's memory by category and by module, as bars that add up to it. */
int report_text__overview(FILE *out, const struct model *m, size_t device,
			  const struct report_text_opts *o);
/* The lines in front of a table: what there was at the moment, and in all. */
void report_text__sums(FILE *out, const struct report_text_opts *o, const struct model_device *dev);
/* The table of --by segment, with what the segments add up to in front. */
int report_text__segments(FILE *out, const struct model *m, size_t device, const struct facts *f,
			  const struct report_text_opts *o);
/*
 * From what the driver says the process uses down to what tensors asked for, some lines; nothing
 * where nothing is known below the blocks. What does not add up is said.
 */
int report_text__reconcile(FILE *out, const struct model *m, size_t device, const struct facts *f,
			   const struct report_text_opts *o);
/* Events, losses, drift, how whole the stacks are: one line, printed always. */
void report_text__trust(FILE *out, const struct model *m, const struct facts *f,
			const struct report_text_opts *o);
/* "python train.py --lr 1", cleaned: the program's own name without its folder, cut to so many
 * columns. */
void report_text__command(char *buf, size_t size, const struct facts *f, size_t columns);
unsigned report_text__width(FILE *out, const struct report_text_opts *o); /* columns, 40 at least */
bool report_text__colour(FILE *out, const struct report_text_opts *o);
/* room: there is some for them. */
bool report_text__bars(FILE *out, const struct report_text_opts *o, bool room);
#define REPORT_BAR 10 /* columns of a bar in a table */

#endif
