/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reports of recordings that are given by paths: one report for each recording, or one for all of
 * them; and the columns of these reports. */
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

/*
 * Columns of a report's table as text, from left to right; numbers come before ROLE. A new column
 * needs a line here, and a case in say_cell() of table.c.
 *
 *   COL_*, name for --columns, title, fields of CSV of the same name, groups
 * groups: bits 1 << BY_*; the column exists if rows have one of these groups. 0: always.
 */
#define REPORT_COLUMNS(COLUMN)                                                                     \
	COLUMN(SIZE, "size", "Size", "bytes", 0)                                                   \
	COLUMN(PERCENT, "percent", "%", "bytes", 0)                                                \
	COLUMN(BAR, "", "", "", 0)                                                                 \
	COLUMN(BLOCKS, "blocks", "Blocks", "count", 0)                                             \
	/* sums of overlapping rows mean nothing */                                                \
	COLUMN(CUMULATIVE, "cumulative", "Cumulative", "cumulative", ~(1U << BY_LAYER))            \
	COLUMN(MEDIAN, "median", "Median", "median", 0)                                            \
	COLUMN(REQUESTED, "requested", "Requested", "", 0)                                         \
	COLUMN(ROLE, "role", "Role", "category", 1U << BY_CATEGORY)                                \
	COLUMN(PHASE, "phase", "Phase", "phase", 1U << BY_PHASE)                                   \
	COLUMN(THREAD, "thread", "Thread", "thread", 1U << BY_THREAD)                              \
	COLUMN(SCOPE, "scope", "Scope", "scope", 1U << BY_SCOPE)                                   \
	COLUMN(MODULE, "module", "Module", "module module_class",                                  \
	       1U << BY_MODULE | 1U << BY_LAYER)                                                   \
	COLUMN(NAME, "name", "Name", "name", 1U << BY_LINE | 1U << BY_STACK)                       \
	/* place of the allocation: always the last column; words__where_title() has its title */  \
	COLUMN(WHERE, "location", "", "file line function name holder",                            \
	       1U << BY_LINE | 1U << BY_STACK)

#define REPORT_COLUMN_ID(id, name, title, fields, groups) COL_##id,

enum report_col { REPORT_COLUMNS(REPORT_COLUMN_ID) COL_NR };

#define COLUMNS_DEFAULT                                                                            \
	(1U << COL_SIZE | 1U << COL_PERCENT | 1U << COL_BLOCKS | 1U << COL_ROLE |                  \
	 1U << COL_PHASE | 1U << COL_THREAD | 1U << COL_SCOPE | 1U << COL_MODULE | 1U << COL_NAME)

/* Fields of CSV in their order; NULL at the end. */
extern const char *const report_columns_csv[];
#define CSV_DEFAULT UINT32_MAX /* all fields of CSV */

/* True if a table of text can have the column. groups: bits 1 << BY_*, the groups of its rows. */
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

/* Whether to print one report for all recordings. TOGETHER_AUTO: only as text, and only if they are
 * ranks of one job. */
enum report_together { TOGETHER_AUTO, TOGETHER_YES, TOGETHER_NO };

struct report_files {
	char *const *paths;
	char *const *hosts; /* as in struct inputs; NULL: none */
	size_t n;
	struct model_opts at;
	enum group by;
	unsigned split;	    /* as in struct row_opts */
	bool segments;	    /* rows are segments; by and split are ignored */
	bool scopes;	    /* text only: print the table of scopes, and no rows */
	bool tree;	    /* text only: print the modules as a tree */
	const char *device; /* NULL: the main device of each recording */
	uint32_t columns;   /* columns of text: bits 1 << COL_*; 0: the default ones */
	uint32_t fields;    /* fields of CSV: bits 1 << index in report_columns_csv; 0: all */
	size_t top;	    /* largest number of rows; 0: all */
	enum frame_choice which_line; /* --frames all */
	const struct report_select *select;
	enum report_choice bars, colour;
	bool overview; /* text only: print categories and modules before the table */
	bool side;     /* one text for all: a column for each recording */
	bool advice;   /* print advice (advice.h) */
	enum report_together together;
	const struct folder_missing *missing; /* as in struct inputs */
	size_t n_missing;
	bool outliers;		  /* as in struct ranks_opts */
	struct report_fail *fail; /* NULL: no --fail-if */
	enum report_format format;
};

/* True if rows of several recordings can be added up with these options, as --together does. */
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
/* Adds a condition, "peak>60G" or "scope:NAME peak>60G". Returns 0, -ENOMEM, or -EINVAL with the
 * reason in *why, for free(). Borrows text. */
int report_fail__add(struct report_fail *f, const char *text, char **why);

/* Call it before a recording is run: makes its model watch the growth and the scopes that the
 * conditions need. Returns 0, -ENOMEM, or -E2BIG: more scopes than a model has. */
int report_fail__begin(struct report_fail *f, struct analysis *a);
/* Callback for analysis__run(), with the struct report_fail as ctx. */
int report_fail__event(void *ctx, const struct event *e);
/* Checks all conditions after the run. device: index in the model; -1: each device but the CPU, or
 * the CPU if it is the only one. at: moment of the figures. Returns 0 or -ENOMEM. */
int report_fail__judge(struct report_fail *f, struct analysis *a, int device,
		       const struct model_opts *at, enum frame_choice which_line);

/* Returns the number of results so far. They are in the order of recordings. */
size_t report_fail__count(const struct report_fail *f);
/* Writes "failed" into the open object: results from index from on. */
void report_fail__json(struct json *j, const struct report_fail *f, size_t from);
/* Prints conditions that hold or cannot be checked on standard error. Returns the worse of
 * status and the result. Recordings without events are no failure if another one has events. */
int report_fail__say(const struct report_fail *f, int status);
