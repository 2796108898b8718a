/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* --columns: which columns the table of text has, and which fields CSV has. */
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

/*
 * Parses a list such as "size,median" or "+median" (the default ones and this one), with the names
 * of both outputs, into bits 1 << COL_* and bits 1 << index in report_columns_csv. Returns 0, or
 * -EINVAL with why: the word and the known names.
 */
int report_columns__parse(const char *list, uint32_t *text, uint32_t *csv, char *why, size_t size);
