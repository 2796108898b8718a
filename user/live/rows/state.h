/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * State of a live view: processes, selected process and device, view, order, filter and position.
 * Independent of the terminal: live/screen/screen.h draws the state and live/screen/keys.h changes
 * it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "live/rows/detail.h"
#include "live/rows/proc.h"
#include "live/rows/rows.h"
#include "model/model.h"
#include "report/filter.h"

/* In the order of their keys, from 0 on. */
enum live_view {
	VIEW_FINDINGS,
	VIEW_LINES,
	VIEW_MODULES,
	VIEW_CATEGORIES,
	VIEW_TREE,
	VIEW_SEGMENTS,
	VIEW_PROCESSES,
	VIEW_NR
};

#define LIVE_MESSAGES 64 /* messages that are kept */
#define LIVE_TYPED 160	 /* bytes of a filter or mark that the user types */

#define LIVE_OPEN 2 /* modules of the tree at depths 0 and 1 are unfolded at first */

struct map64;

struct live_message {
	uint64_t time; /* time of the message, ns since the start of the view */
	enum log_level level;
	bool own; /* the answer to a key, which is not printed again after the view */
	char text[400];
};

struct live_state {
	struct live_proc **procs;	   /* processes, owned by the state */
	size_t nprocs, procs_room, chosen; /* chosen: index of the selected process */
	bool proc_chosen;   /* the user chose the process; false: the first with memory */
	bool device_chosen; /* the user chose the device; false: the main device */
	struct device device;

	enum live_view view;
	bool by_function;
	enum frame_choice which_line;
	enum live_sort sort;
	bool paused, help, detail, log; /* help, detail, log: that page is shown */
	/* select.filter is owned. select.expr may point to the field filter. */
	struct report_select select;
	char filter[LIVE_TYPED];
	enum { TYPING_NOTHING, TYPING_FILTER, TYPING_MARK } typing;
	char typed[LIVE_TYPED];
	bool offered;	/* typed is a suggestion, which the first key replaces */
	unsigned marks; /* number of marks that the user set */

	/* Selected row, and first row or line of the findings on the screen. */
	size_t selected, first;
	bool moved; /* the user chose a row: keep it selected when rows move */
	uint64_t selected_key;
	struct map64 *folded;	     /* keys of modules whose fold state differs from the default */
	struct live_detail detailed; /* details of the selected row while `detail` is set */
	size_t detail_first, help_first; /* lines scrolled off the top of these pages */
	uint64_t span;			 /* span of the graph in ns; 0: whole history */

	uint64_t now; /* current time, ns since the start of the view */
	/* interval: the chosen refresh interval, ns. stretched: the longer interval that is used
	 * instead because refreshing is slow; 0: none. */
	uint64_t interval, stretched;
	bool over;			/* all captures are over */
	struct model_segments segments; /* data of VIEW_SEGMENTS */
	bool has_segments;
	int segments_err; /* result of the last model__segments() */

	struct live_message messages[LIVE_MESSAGES];
	size_t nmessages; /* total number of messages, including overwritten ones */
	size_t refused;	  /* nmessages when the prompt refused a filter; 0: it did not */
};

void live_state__release(struct live_state *s);
int live_state__add(struct live_state *s, struct live_proc *p); /* takes over p; 0 or -ENOMEM */
/* If more than `most` processes have ended, removes the first of them that is not selected and
 * returns it. The caller owns it. NULL: none. */
struct live_proc *live_state__remove_ended(struct live_state *s, size_t most);
/* The selected process; NULL: none. */
struct live_proc *live_state__proc(const struct live_state *s);
/* The selected device's index in the process's model; -1: none. Fills *d unless NULL. */
int live_state__device(const struct live_state *s, struct model_device *d);
/* Whether the view exists for the selected device and the number of processes. */
bool live_state__offers(const struct live_state *s, enum live_view v);
/* Grouping of the rows in the current view. */
enum live_by live_state__by(const struct live_state *s);
/* Rows of the selected process in the grouping of live_state__by(); NULL: no process. */
struct live_rows *live_state__table(const struct live_state *s);
/* Reads the rows of the selection. Returns 0 or a negative error. */
int live_state__refresh(struct live_state *s);
/* Folds or unfolds a module. */
void live_state__fold(struct live_state *s, uint64_t key);
/* Sorts the rows. If the user chose a row, it stays selected. */
void live_state__settle(struct live_state *s);
/* Number of rows in the current view. */
size_t live_state__rows(const struct live_state *s);
/* The selected row; NULL: none, or the view has no memory rows. */
const struct live_row *live_state__row(const struct live_state *s);
void live_state__choose_view(struct live_state *s, enum live_view v);
void live_state__choose_proc(struct live_state *s, size_t i);
void live_state__next_device(struct live_state *s);
/* Sets the filter; "": none. Returns 0, or -EINVAL with the error in why. */
int live_state__set_filter(struct live_state *s, const char *expr, char *why, size_t size);
/* Adds a message. own: as in struct live_message. */
void live_state__say(struct live_state *s, enum log_level level, bool own, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Message i, counted back from the last one (0). NULL: not kept. */
const struct live_message *live_state__message(const struct live_state *s, size_t i);
