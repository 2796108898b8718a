/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Rows of a live view: the model's rows with their bytes at the peak, growth and rates. Rates are
 * relative to the last refresh. Rows of two refreshes are the same row if they have the same line,
 * function, module or category.
 *
 * Growth is the difference between two moments noted in the model: ROWS_AT_BASE, and ROWS_AT_STEP
 * or, without steps, now. Blocks of both moments have the names and categories known now, and the
 * same filter, so that a block that gets a name later does not appear as growth.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

enum live_by { LIVE_LINE, LIVE_FUNCTION, LIVE_MODULE, LIVE_CATEGORY, LIVE_LAYER, LIVE_BY_NR };

enum live_sort { SORT_LIVE, SORT_PEAK, SORT_GROWTH, SORT_CHURN, SORT_ALLOCS, SORT_NR };

struct live_row {
	/* The dict or the model owns its strings. For a line that several modules call, struct
	 * live_rows owns them. */
	struct row row;
	uint64_t key;
	uint64_t at_peak; /* bytes at the device's peak */
	bool growth_known;
	int64_t growth; /* bytes since ROWS_AT_BASE */
	bool pace_known;
	int64_t pace; /* growth in bytes per step; without steps, per minute */
	bool rates_known;
	double allocs, churn; /* allocations and allocated bytes per second */
	const char *holders;  /* in the row "before attach": live_rows.holders; otherwise NULL */
	/* The fields from here on are set by live_rows__tree(). */
	unsigned depth;
	bool has_inside, open; /* the module has modules inside; they are shown */
	bool taken;	       /* private */
	const char *under;     /* name of the parent module; NULL: none */
};

struct live_seen; /* state of a row between refreshes */

struct live_rows {
	/* Selection. After changing it, call live_rows__forget(). */
	bool asked; /* the selection was set */
	struct device device;
	enum live_by by;
	enum frame_choice which_line;
	bool (*hide)(void *ctx, const char *file); /* hide, keep and ctx as in struct row_opts */
	bool (*keep)(void *ctx, const struct row *r);
	void *ctx;
	/* Names of the holders of memory from before attach, borrowed for as long as the rows are
	 * shown. NULL: not known. */
	const char *holders;
	/* Steps between ROWS_AT_BASE and ROWS_AT_STEP; 0: growth is measured by time. */
	uint64_t steps;

	/* Result of the last refresh. */
	struct live_row *all;
	size_t n, shown; /* n: all rows; shown: rows before those hidden in folded modules */
	uint64_t total;	 /* bytes allocated on the device */
	uint64_t since;	 /* start of growth, in ns; valid if growth_known */
	bool growth_known;
	bool by_steps; /* pace is per step */

	/* Private members. */
	void *strings[3]; /* string storage of the rows */
	struct live_seen *seen;
	size_t nseen, seen_room;
	struct map64 *index;
	uint64_t time;	      /* time of the last refresh, ns */
	uint64_t peak_event;  /* event of the peak that live_seen.peak is of */
	uint64_t now;	      /* time of the current refresh, ns */
	bool begun, has_peak; /* there was a refresh; peak_event is valid */
	uint32_t round;	      /* number of the current refresh */
};

/* Reads the rows at time now (ns). Returns 0, -ENOMEM, or -ENOENT if the device is not known.
 * After an error the rows are unchanged. */
int live_rows__refresh(struct live_rows *r, const struct model *m, uint64_t now);
/* Resets rates and peaks. Call after changing the selection. */
void live_rows__forget(struct live_rows *r);
void live_rows__sort(struct live_rows *r, enum live_sort sort);
/* Sorts LIVE_LAYER rows as a tree: a module's children follow it, siblings in the order of sort.
 * is_open tells whether a module is unfolded. Returns 0 or -ENOMEM. */
int live_rows__tree(struct live_rows *r, enum live_sort sort,
		    bool (*is_open)(void *ctx, uint64_t key, unsigned depth), void *ctx);
void live_rows__release(struct live_rows *r);
/* live_row.key of the row that contains r, for use in a keep() function. */
uint64_t live_rows__key(enum live_by by, const struct row *r);

/* Names accepted by --sort and --by, ended by NULL. */
extern const char *const live_sort_names[], *const live_by_names[];
