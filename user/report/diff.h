/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Compares recordings: the rows of two, each at one moment, or the figures of any number. Two rows
 * are the same if their lines match (report/diff/match.h), or their stacks line by line, and if
 * module, phase and category are equal.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/analysis.h"
#include "model/model.h"
#include "report/diff/match.h"
#include "report/recording/scope_set.h"
#include "report/text.h"

enum diff_status { DIFF_GREW, DIFF_SHRANK, DIFF_NEW, DIFF_GONE, DIFF_SAME, DIFF_NR };
/* Returns "grew", "shrank", "new", "gone" or "unchanged". */
const char *diff__status(enum diff_status s);

struct diff_side {
	const struct analysis *a;
	size_t number; /* index of the device in the recording's model */
	struct model_device device;
	struct row *rows;
	size_t n;
	uint64_t sum; /* sum of the rows, bytes */
};

struct diff_row {
	const struct row *row[MATCH_SIDES]; /* one may be NULL, not both */
	enum diff_status status;
	bool moved; /* true if the line has another number */
};

struct diff_sum {
	uint64_t rows, bytes; /* bytes: sum of the absolute changes */
};

struct diff_opts {
	struct model_opts at[MATCH_SIDES]; /* moment of each recording */
	enum group by;
	/* With BY_LINE: one row for all modules that share a line. */
	bool any_module;
	bool any_phase, any_category; /* one row for all phases, or for all categories */
};

struct diff {
	struct diff_opts opts;
	struct diff_side side[MATCH_SIDES];
	struct match *match;
	struct diff_row *rows; /* rows, largest change first */
	size_t n;
	struct diff_sum sums[DIFF_NR];
	struct scope_set scopes; /* by side: scopes of the two devices */
	bool overlap;	 /* true for rows by layer, which overlap, so their sum is meaningless */
	bool adds_up;	 /* true if the changes add up to the change of allocated bytes */
	int64_t missing; /* change of allocated bytes minus the sum of the rows' changes */
};

/* Compares two recordings that have been run. Borrows both. device: its index in the recording's
 * model. Returns 0 or -ENOMEM. */
int diff__new(struct analysis *const a[MATCH_SIDES], const size_t device[MATCH_SIDES],
	      const struct diff_opts *opts, struct diff **ret);
void diff__free(struct diff *d); /* NULL is fine */
/* Replaces the rows by those for other values of opts->by and opts->any_*. Returns 0, or -ENOMEM,
 * and then d has no rows. */
int diff__again(struct diff *d, const struct diff_opts *opts);

/* Returns the row's bytes in that recording; 0 if only the other one has the row. */
static inline uint64_t diff__bytes(const struct diff_row *r, enum match_side side)
{
	return r->row[side] ? r->row[side]->bytes : 0;
}

/* Returns the side whose row is shown: the new recording if it has the row. */
static inline enum match_side diff__shown_side(const struct diff_row *r)
{
	return r->row[MATCH_NEW] ? MATCH_NEW : MATCH_OLD;
}

static inline const struct row *diff__shown(const struct diff_row *r)
{
	return r->row[diff__shown_side(r)];
}

/* Writes the difference, such as "-24.7 %"; "" if `from` is 0. buf: 24 bytes. */
char *diff__percent(char *buf, size_t size, uint64_t from, uint64_t to);

struct diff_text_opts {
	size_t top;	/* rows to print; 0: all */
	unsigned width; /* columns; 0: the terminal's */
	enum report_choice colour;
};
/* Print the rows. All three functions return 0 or -ENOMEM. The caller checks ferror(out). */
int diff_text__print(FILE *out, struct diff *d, const struct diff_text_opts *o);
int diff_json__print(FILE *out, const struct diff *d, size_t top);
int diff_csv__print(FILE *out, const struct diff *d, size_t top);
/* Prints a page for a browser, always by stack. */
int diff_flame__print(FILE *out, struct diff *d);

/* ---- any number of recordings ---- */

/* How a recording was made: from the process's start, by an attach to the running process, or by
 * PyTorch, as a snapshot. */
enum recorded { RECORDED_WHOLE, RECORDED_LIVE, RECORDED_BY_TORCH };

/* The figures of a recording: peak memory, fragmentation, and the time of a step. */
struct compared {
	/* recording: the file's name without folder and ".mtr". name: the name that the user gave
	 * the recording; if none, the same. */
	char *name, *recording;
	char *torch, *device_name, *cwd; /* facts of the recording; NULL: unknown */
	char program[64];		 /* words__program() */
	char *detail; /* sentence on the detail that --cost left out; "": nothing left out */
	/* Place of the allocation that made the peak; NULL: unknown. */
	char *file, *func, *module;
	uint32_t line;
	bool dry_run, complete;
	enum recorded recorded;
	uint64_t duration, events, lost;
	bool is_window;	       /* the recording has only the end of its capture */
	uint64_t window_start; /* start of that window, ns since the start of the capture */
	struct model_device device;
	uint64_t steps; /* number of steps */
	/* step_time: median time of a whole step, ns. timed: number of steps in it; 0: none. */
	uint64_t timed, step_time;
	bool names_functions; /* the user or the recording named functions for scopes */
};

struct compare_opts {
	const char *device;	  /* device to compare; NULL: the main device of each recording */
	uint64_t skip, steps;	  /* whole steps to skip, and to measure; steps 0: all */
	struct model_opts moment; /* names of --scope */
};

/* Reads a recording to its end. Adds its scopes to the set, as those of recording i. Returns 0 and
 * *ret, for compare__drop(), or an exit code, logged. name NULL: the file's name. */
int compare__read(const char *path, const char *name, const struct compare_opts *o,
		  struct compared *ret, struct scope_set *scopes, size_t i);
void compare__drop(struct compared *c);

/* Print a table, each recording against the first. scopes: those to print, of the n recordings;
 * with none, there is no table of scopes. All three functions return 0 or -ENOMEM. */
int compare_text__print(FILE *out, const struct compared *all, size_t n,
			const struct scope_set *scopes, const struct report_text_opts *o);
int compare_markdown__print(FILE *out, const struct compared *all, size_t n,
			    const struct scope_set *scopes);
int compare_json__print(FILE *out, const struct compared *all, size_t n,
			const struct scope_set *scopes);
