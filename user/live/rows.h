/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_ROWS_H
#define MT_LIVE_ROWS_H
/*
 * The rows of a live view: those of the model, each with what it held at the peak, how much it grew
 * and how much is allocated there per second. Rates compare with the rows of the refresh before. A
 * row is the same one as long as it says the same: line, module, category.
 *
 * Growth compares two moments that the model has noted, ROWS_AT_BASE and ROWS_AT_STEP, or now where
 * no step is noted. Blocks of both are attributed by what is known now: a block that is named
 * later, or a filter, makes no growth.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

enum live_by { LIVE_LINE, LIVE_FUNCTION, LIVE_MODULE, LIVE_CATEGORY, LIVE_LAYER, LIVE_BY_NR };

enum live_sort { SORT_LIVE, SORT_PEAK, SORT_GROWTH, SORT_CHURN, SORT_ALLOCS, SORT_NR };

struct live_row {
	struct row row; /* strings are the dict's and the model's; of a line of several modules
			   live_rows's */
	uint64_t key;
	uint64_t at_peak; /* bytes at the moment of the device's peak */
	bool growth_known;
	int64_t growth; /* bytes since the model's ROWS_AT_BASE */
	bool rates_known;
	double allocs, churn; /* per second: allocations, bytes of them */
	/* By live_rows__tree(): */
	unsigned depth;
	bool has_inside, open, taken;
	const char *under; /* the module that it is in; NULL: none */
};

struct live_seen; /* of a row, from refresh to refresh */

struct live_rows {
	/* What is asked for; after a change live_rows__forget() is due. */
	bool asked;
	struct device device;
	enum live_by by;
	bool innermost;
	bool (*hide)(void *ctx, const char *file); /* these three as in struct row_opts */
	bool (*keep)(void *ctx, const struct row *r);
	void *ctx;

	/* What there is. */
	struct live_row *all;
	size_t n, shown; /* shown: the first of them, the rest is inside of what is not open */
	uint64_t total;	 /* bytes allocated on the device */
	uint64_t since;	 /* ns: growth is since then; valid if growth_known */
	bool growth_known;

	/* Of its own. */
	void *strings[3]; /* hold those of the above */
	struct live_seen *seen;
	size_t nseen, seen_room;
	struct map64 *index;
	uint64_t time, peak_event, now; /* time: of the last refresh */
	bool begun, has_peak;
	uint32_t round;
};

/* Takes the rows as they are now (ns). 0 or -ENOMEM, -ENOENT: there is no such device. all is then
 * as it was. */
int live_rows__refresh(struct live_rows *r, const struct model *m, uint64_t now);
/* Rates and peaks start again: after a change of what is asked for. */
void live_rows__forget(struct live_rows *r);
void live_rows__sort(struct live_rows *r, enum live_sort sort);
/* The same of LIVE_LAYER, as a tree, of which is_open says what is unfolded. 0 or -ENOMEM. */
int live_rows__tree(struct live_rows *r, enum live_sort sort,
		    bool (*is_open)(void *ctx, uint64_t key, unsigned depth), void *ctx);
int live_row__compare(const struct live_row *x, const struct live_row *y,
		      enum live_sort sort); /* as for qsort() */
void live_rows__release(struct live_rows *r);
/* As the model is asked for them. */
void live_rows__opts(const struct live_rows *r, enum row_when when, struct row_opts *ret);
/* Which row blocks of this kind are in: as a keep() gets them. */
uint64_t live_rows__key(enum live_by by, const struct row *r);

const char *live_sort__name(enum live_sort s); /* "live" */
const char *live_by__name(enum live_by by);

#endif
