/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A report of many recordings also compares them: groups that allocate alike,
 * steps, clocks, and recordings that are missing. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct ranks;

/* Prints a row for each of the largest groups, most: at most so many. Returns 0 or -ENOMEM. */
int rank_table__groups(FILE *out, const struct ranks *r, size_t width, bool bold, size_t most);
/* Prints which recordings have longer or shorter steps than the others, if steps are known. */
void rank_table__steps(FILE *out, const struct ranks *r, size_t width);
/* Prints how far apart the recordings begin, if their clocks were compared. */
void rank_table__clocks(FILE *out, const struct ranks *r, size_t width);
/* Prints the ranks that the job has and the recordings lack, and those that were asked for in
 * vain. */
void rank_table__missing(FILE *out, const struct ranks *r, size_t width);
