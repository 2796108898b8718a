/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPORT_FILTER_H
#define MT_REPORT_FILTER_H
/*
 * --filter: which blocks a report shows; --hide: files that nothing is charged to.
 *
 * An expression is terms with spaces between, all of which must hold. A term is KEY:VALUE, or a
 * word that any text of the row may have in it; "-" or "!" in front of it turns it round. VALUE is
 * alternatives with "|" between; in double quotes it may have spaces and "|" in it. docs/REPORT.md
 * has the keys.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

struct filter;

/* NULL: why says what is wrong with the expression, cleaned, or that memory ran out. */
struct filter *filter__parse(const char *expr, char *why, size_t size);
void filter__free(struct filter *f); /* NULL is fine */

/* What of a recording a report is about; zeroed: all of it. */
struct report_select {
	const char *expr; /* of --filter, and the filter that it is; NULL: none */
	struct filter *filter;
	char **hide; /* patterns of --hide */
	size_t nhide, hide_room;
};
/* --filter's argument, which must stay, in the place of one before. 0, or -EINVAL and why, as
 * filter__parse(). */
int report_select__set_filter(struct report_select *s, const char *expr, char *why, size_t size);
/* One more of --hide's. 0, -EINVAL: it names nothing, -ENOMEM. */
int report_select__add_hide(struct report_select *s, const char *pattern);
/* Frees what the struct owns, not the struct. */
void report_select__drop(struct report_select *s);
/*
 * Where a filter keeps nothing of these rows (without its keep()): what its first field has in them
 * instead, and which of that may have been meant, for a message: "did you mean blocks.0? modules
 * here: blocks.0, blocks.1, and 5 more". Returns buf, "" where its first term is of no field that
 * has words.
 */
char *report_select__instead(const struct report_select *s, const struct row *rows, size_t n,
			     char *buf, size_t size);
/* s may be NULL, and must outlive o. */
void report_select__apply(const struct report_select *s, struct row_opts *o);
/* Rows of the kept blocks, which come first; *bytes and *count: of the others. */
size_t report_select__kept(const struct row *rows, size_t n, uint64_t *bytes, uint64_t *count);

#endif
