/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * --filter selects blocks; --hide names files that no block is charged to.
 *
 * A filter has terms separated by spaces; all must match. A term is KEY:VALUE, or a word that any
 * text of the row may contain; "-" or "!" before it negates it. VALUE has alternatives separated by
 * "|"; double quotes allow spaces and "|". docs/reference/report.md lists the keys.
 */
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

struct filter;

/* Parses a text of --filter. Returns NULL on an error; why then has the reason, cleaned. */
struct filter *filter__parse(const char *expr, char *why, size_t size);
void filter__free(struct filter *f); /* accepts NULL */

/* Selected part of a recording; zeroed: all. */
struct report_select {
	const char *expr;      /* text of --filter; NULL: none */
	struct filter *filter; /* expr, parsed; NULL: none */
	char **hide;	       /* patterns of --hide, owned */
	size_t nhide, hide_room;
};
/* Sets the filter, and replaces an earlier one. Borrows expr. Returns 0, or -EINVAL with why as
 * in filter__parse(). */
int report_select__set_filter(struct report_select *s, const char *expr, char *why, size_t size);
/* Adds a pattern of --hide. Returns 0, -EINVAL for an empty pattern, or -ENOMEM. */
int report_select__add_hide(struct report_select *s, const char *pattern);
/* Frees the filter and the patterns, not the struct. */
void report_select__drop(struct report_select *s);
/* Suggests other values for a filter that keeps no row: "did you mean blocks.0? modules here:
 * blocks.0, blocks.1, and 5 more". rows: all rows, made without keep(). Returns buf, "" if the
 * first term has no named field. */
char *report_select__instead(const struct report_select *s, const struct row *rows, size_t n,
			     char *buf, size_t size);
/* Makes rows with options o follow the selection. s may be NULL; it must outlive o. */
void report_select__apply(const struct report_select *s, struct row_opts *o);
/* Returns the number of kept rows, which come first. *bytes and *count: sums of the other rows. */
size_t report_select__kept(const struct row *rows, size_t n, uint64_t *bytes, uint64_t *count);
