/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_PROC_H
#define MT_LIVE_PROC_H
/*
 * One process of a live view: its model, fed by its events, what its devices held over time, and
 * what is shown of its rows. Knows nothing of captures and of terminals: whoever owns the capture
 * says what time it is and how many events there were.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "live/rows.h"
#include "model/model.h"
#include "record/stream.h"

struct dict;
struct facts;
struct graph;
struct report_select;

#define LIVE_DEVICES 17 /* of which there are graphs: 16, and the CPU */

struct live_graph {
	struct device device;
	struct graph *graph;
	uint64_t peak; /* as last seen: a device without totals */
};

struct live_proc {
	struct sink sink; /* first: what its events go to; owner may be asked for by it */
	pid_t pid;
	struct dict *dict;
	struct facts *facts;
	bool owns; /* dict and facts: the capture is over */
	struct model *model;
	void *owner, *view; /* whose capture it is, and who shows it: theirs */
	struct sink *also;  /* what else its events go to, NULL: nothing; its errors do not count */

	uint64_t now;	       /* ns since its capture's start */
	uint64_t events, lost; /* the capture's figures */
	double rate;	       /* events per second, between the last two refreshes */
	uint64_t rate_events, rate_time;
	bool ended;
	char end[96]; /* why, for people: "has ended" */

	struct live_graph graphs[LIVE_DEVICES];
	size_t ngraphs, last_graph;

	bool by_steps; /* an optimizer's step has ended: growth is from one end of a step to
			  another, else from refresh to refresh */
	/* Of the main device, at ends of steps: as struct live_rows has it of a row. */
	bool growth_known;
	int64_t growth;
	struct live_rows rows[LIVE_BY_NR];
	enum live_by by; /* what is shown of them */
};

/* Borrows dict and facts, which must outlive it unless live_proc__own() comes. NULL on ENOMEM. */
struct live_proc *live_proc__new(pid_t pid, struct dict *dict, struct facts *facts);
void live_proc__free(struct live_proc *p); /* NULL is fine */
/* From now on dict and facts are p's, and freed with it. */
void live_proc__own(struct live_proc *p);
/* Time has passed: now (ns), with so many events and losses. */
void live_proc__pass(struct live_proc *p, uint64_t now, uint64_t events, uint64_t lost);
/* Figures that compare with the last refresh; at most some times a second. */
void live_proc__rates(struct live_proc *p);
/* Growth of the process and of all its rows starts again: at the next end of a step. */
void live_proc__reset(struct live_proc *p);
/* No events come any more. why: "has ended". */
void live_proc__end(struct live_proc *p, const char *why);
/* What rows by this are of; after a change their rates start again. */
struct live_asked {
	struct device device;
	bool innermost;
	const struct report_select *select; /* NULL: all */
};
void live_proc__ask(struct live_proc *p, enum live_by by, const struct live_asked *a);
/* Of a device; NULL: nothing is known of it. */
struct graph *live_proc__graph(const struct live_proc *p, struct device d);

#endif
