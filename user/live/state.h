/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_STATE_H
#define MT_LIVE_STATE_H
/*
 * What a live view shows: which processes there are, which one, which device, as what, sorted and
 * filtered how, and where in it the person is. Nothing of terminals: live/screen.h draws it,
 * live/keys.h changes it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "live/detail.h"
#include "live/proc.h"
#include "live/rows.h"
#include "log/log.h"
#include "model/model.h"
#include "report/filter.h"

enum live_view {
	VIEW_LINES,
	VIEW_MODULES,
	VIEW_CATEGORIES,
	VIEW_TREE,
	VIEW_SEGMENTS,
	VIEW_PROCESSES,
	VIEW_NR
};

#define LIVE_MESSAGES 64
#define LIVE_TYPED 160

#define LIVE_OPEN 2 /* modules less deep than that are unfolded */

struct map64;

struct live_message {
	uint64_t time; /* ns since the view began */
	enum log_level level;
	bool own; /* the view's answer to a key: of no use afterwards */
	char text[400];
};

struct live_state {
	struct live_proc **procs; /* freed with the state */
	size_t nprocs, procs_room, chosen;
	bool proc_chosen;   /* by the person: else one that has memory */
	bool device_chosen; /* else the main one */
	struct device device;

	enum live_view view;
	bool by_function;
	bool innermost;
	enum live_sort sort;
	bool paused, help, detail, log;
	struct report_select select; /* expr is typed or points elsewhere; filter is owned */
	char filter[LIVE_TYPED];
	enum { TYPING_NOTHING, TYPING_FILTER, TYPING_MARK } typing;
	char typed[LIVE_TYPED];
	bool offered; /* typed is a proposal: the first character takes its place */
	unsigned marks;

	size_t selected, first; /* rows of the table */
	bool moved;		/* the person chose a row: it stays chosen wherever it goes */
	uint64_t selected_key;
	struct map64 *folded; /* keys of modules that are not as deep as they are would have it:
				 open or not */
	struct live_detail detailed; /* of the chosen row, while detail is set */
	size_t detail_first, help_first;
	uint64_t span; /* of the graph, ns; 0: all there is */

	uint64_t now;		      /* ns since the view began */
	uint64_t interval, stretched; /* ns; stretched: what the interval has become, 0: as it is */
	bool over;		      /* no capture goes on any more */
	struct model_segments segments; /* of VIEW_SEGMENTS */
	bool has_segments;
	int segments_err;

	struct live_message messages[LIVE_MESSAGES];
	size_t nmessages; /* ever */
};

void live_state__release(struct live_state *s);
int live_state__add(struct live_state *s, struct live_proc *p); /* takes p over. 0 or -ENOMEM */
/* The one that has ended first, if more than most have, and is not the one that is shown; no longer
 * s's. NULL: there is none. */
struct live_proc *live_state__take_old(struct live_state *s, size_t most);
struct live_proc *live_state__proc(
	const struct live_state *s); /* the chosen one; NULL: there is none */
/* Index of the chosen device in the model of the chosen process, -1: none; d may be NULL. */
int live_state__device(const struct live_state *s, struct model_device *d);
enum live_by live_state__by(
	const struct live_state *s); /* what rows are of, in a view with rows of memory */
struct live_rows *live_state__table(
	const struct live_state *s); /* of the chosen process, by that; NULL: there is none */
/* Takes the rows of what is chosen. 0 or negative. */
int live_state__refresh(struct live_state *s);
/* Unfolds a module, or folds it. */
void live_state__fold(struct live_state *s, uint64_t key);
/* Sorts, and finds the chosen row again. */
void live_state__settle(struct live_state *s);
/* Rows of the view that is shown, of whatever kind. */
size_t live_state__rows(const struct live_state *s);
const struct live_row *live_state__row(
	const struct live_state *s); /* the chosen one; NULL: none, or none of lines */
void live_state__choose_view(struct live_state *s, enum live_view v);
void live_state__choose_proc(struct live_state *s, size_t i);
void live_state__next_device(struct live_state *s);
/* Empty: none. 0, or -EINVAL and why says what is wrong with it. */
int live_state__set_filter(struct live_state *s, const char *expr, char *why, size_t size);
void live_state__say(struct live_state *s, enum log_level level, bool own, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The i-th last message, from 0; NULL: so many are not kept. */
const struct live_message *live_state__message(const struct live_state *s, size_t i);

const char *live_view__name(enum live_view v);

#endif
