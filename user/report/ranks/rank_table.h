/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Parts of a report of many recordings: groups that allocate alike, steps, clocks, and missing
 * recordings. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct ranks;

/* Prints a row for each of the largest groups, most: at most so many. Returns 0 or -ENOMEM. */
int rank_table__groups(FILE *out, const struct ranks *r, size_t width, bool bold, size_t most);
/* Prints a row for each process of ranks__tree(), below the one that started it, at most most of
 * them. when: title of the column of sizes. Returns 0 or -ENOMEM. */
int rank_table__tree(FILE *out, const struct ranks *r, size_t width, bool bold, const char *when,
		     size_t most);
/* Prints which recordings have longer or shorter steps than the others, if steps are known. */
void rank_table__steps(FILE *out, const struct ranks *r, size_t width);
/* Prints how far apart the recordings begin, if their clocks were compared. */
void rank_table__clocks(FILE *out, const struct ranks *r, size_t width);
/* Prints the ranks of the job without a recording, and the recordings that fetch did not get. */
void rank_table__missing(FILE *out, const struct ranks *r, size_t width);
