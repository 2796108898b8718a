/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* --columns: which columns the table of text has, and which fields CSV has. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
