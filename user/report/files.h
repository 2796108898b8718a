/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reports of recordings by their paths: one report for each, or one for all of them, and the
 * columns that they have. */
#include <stdbool.h>
#include <stddef.h>

#include "model/model.h"
#include "report/text.h"

struct analysis;
struct event;
struct folder_missing;
struct json;
struct report_fail;
struct report_select;

/* --columns: which columns the table of text has, and which fields CSV has. */
enum report_col {
	COL_SIZE,
	COL_PERCENT,
	COL_BAR,
	COL_BLOCKS,
	COL_CUMULATIVE,
	COL_MEDIAN,
	COL_REQUESTED,
	COL_ROLE,
	COL_PHASE,
	COL_THREAD,
	COL_MODULE,
	COL_WHERE, /* always last, and always there */
	COL_NR
};
#define COLUMNS_DEFAULT                                                                            \
	(1U << COL_SIZE | 1U << COL_PERCENT | 1U << COL_BLOCKS | 1U << COL_ROLE |                  \
	 1U << COL_PHASE | 1U << COL_THREAD | 1U << COL_MODULE)

/* Fields of CSV in their order; NULL at the end. */
extern const char *const report_columns_csv[];
#define CSV_DEFAULT UINT32_MAX /* all of them */

/* True if a text by these groups, bits 1 << BY_*, can have the column. */
bool report_columns__is_of(int column, unsigned groups);
/*
 * Parses a list such as "size,median" or "+median" (the default ones and this one), with the names
 * of both outputs, into *ret. csv: bits 1 << index in report_columns_csv; otherwise bits 1 << COL_*
 * of the columns that exist for groups. Returns 0, or -EINVAL with why: the word and the names that
 * exist.
 */
int report_columns__parse(const char *list, bool csv, unsigned groups, uint32_t *ret, char *why,
			  size_t size);

/* ---- reports ---- */

enum report_format { REPORT_AS_TEXT, REPORT_AS_JSON, REPORT_AS_CSV, REPORT_AS_HTML };

/* One report for all recordings. AUTO: in text, if they are ranks of one job. */
enum report_together { TOGETHER_AUTO, TOGETHER_YES, TOGETHER_NO };

struct report_files {
	char *const *paths;
	char *const *hosts; /* as in struct inputs; NULL: none */
	size_t n;
	struct model_opts at;
	enum group by;
	unsigned split;		      /* as in struct row_opts */
	bool segments;		      /* rows are segments: by and split do not matter */
	bool tree;		      /* in text, modules in a tree */
	const char *device;	      /* NULL: the main device of each recording */
	uint32_t columns, fields;     /* of text, and of CSV (above); 0: the default ones */
	size_t top;		      /* rows; 0: all */
	enum frame_choice which_line; /* --frames all */
	const struct report_select *select;
	enum report_choice bars, colour;
	bool overview; /* in text, categories and modules before the table */
	bool side;     /* in a text of all, a column for each recording */
	bool advice;
	enum report_together together;
	const struct folder_missing *missing; /* as in struct inputs */
	size_t n_missing;
	bool outliers;		  /* as in struct ranks_opts */
	struct report_fail *fail; /* NULL: no --fail-if */
	enum report_format format;
};

/* Can rows of several recordings be added up, as --together does? */
bool report_files__can_be_together(const struct report_files *args);
/* Prints to standard output. Returns the worst exit code (base/exit.h); logs errors. */
int report_files__print(const struct report_files *args);

/* ---- conditions ---- */

/*
 * --fail-if: conditions (cond.h) on recordings, checked while they are reported. A condition that
 * holds is printed on standard error with the responsible lines, and the exit code becomes
 * EXIT_HELD.
 *
 * Figures are those of the report's moment; peaks, counts and step_time are those of the whole
 * recording. Growth is the largest over any window of the condition's length; blocks from before
 * the end of the second step count for no growth. A figure that is unknown, for example after lost
 * events, is an error.
 */
struct report_fail *report_fail__new(void);    /* returns NULL on ENOMEM */
void report_fail__free(struct report_fail *f); /* accepts NULL */
/* Adds a condition. Returns 0, -ENOMEM, or -EINVAL with the reason in *why, for free(). Borrows
 * text. */
int report_fail__add(struct report_fail *f, const char *text, char **why);

/* Begins a recording before it is run: watches what the conditions need. Returns 0 or -ENOMEM. */
int report_fail__begin(struct report_fail *f, struct analysis *a);
/* Callback for analysis__run(); ctx is the struct report_fail. */
int report_fail__event(void *ctx, const struct event *e);
/* Checks all conditions after the run. device: index; -1: each device but the CPU, or the CPU if
 * it is the only one. at: the model's moment. Returns 0 or -ENOMEM. */
int report_fail__judge(struct report_fail *f, struct analysis *a, int device,
		       const struct model_opts *at, enum frame_choice which_line);

/* Results so far, in the order of recordings. */
size_t report_fail__count(const struct report_fail *f);
/* Writes "failed" into the open object: results from index from on. */
void report_fail__json(struct json *j, const struct report_fail *f, size_t from);
/* Prints conditions that hold or cannot be checked on standard error. Returns the worse of
 * status and the result. Recordings without events are no failure if another one has events. */
int report_fail__say(const struct report_fail *f, int status);
