/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A process in a live view: its model, device graphs and rows. Independent of captures and
 * terminals: the capture's owner passes the time and event counts. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "live/rows/rows.h"
#include "model/growth_summary.h"
#include "model/model.h"
#include "record/stream.h"

struct dict;
struct facts;
struct graph;
struct report_select;

#define LIVE_DEVICES 17 /* devices with graphs: 16 and the CPU */

struct live_graph {
	struct device device;
	struct graph *graph;
	uint64_t peak; /* last peak, for a device without allocator totals */
	bool used_known;
	uint64_t used; /* driver-reported use of the process on the device, last figure */
};

#define LIVE_HOLDERS 512 /* text of struct live_judgement */

struct live_judgement { /* the growth of a device and its memory from before attach, as in a report */
	struct device device;
	struct growth_summary of;
	char holders[LIVE_HOLDERS]; /* names of the largest holders; "": none */
	uint64_t due;		    /* earliest next judgement, ns since the start of the capture */
};

#define LIVE_MARKS 64 /* marks with names that are kept */

struct live_mark {
	uint64_t time; /* ns since the start of the capture */
	uint32_t name; /* string of the dict */
};

struct live_proc {
	/* Receives the process's events. Must be the first member: callbacks cast it to struct
	 * live_proc. */
	struct sink sink;
	pid_t pid;
	struct dict *dict;
	struct facts *facts;
	bool owns; /* dict and facts are freed with the process, because the capture is over */
	struct model *model;
	void *owner, *view; /* owner: data of the capture's owner; view: data of the view */
	struct sink *also;  /* Also receives the events; its errors are ignored. NULL: none. */

	uint64_t now;	       /* current time, ns since the start of the capture */
	uint64_t events, lost; /* counts of the capture */
	double rate;	       /* events per second between the last two refreshes */
	uint64_t rate_events, rate_time;
	uint64_t rss; /* bytes, of the last refresh; 0: not known */
	bool ended;
	char end[96]; /* reason of the end, "has ended" */

	struct live_graph graphs[LIVE_DEVICES];
	size_t ngraphs, last_graph;

	/* The optimizer has finished a step: growth is measured from step end to step end.
	 * False: from refresh to refresh. */
	bool by_steps;
	uint64_t ends, base_end; /* number of steps, and of the one where growth begins */
	/* Growth of the main device since then, in bytes. */
	bool growth_known;
	int64_t growth;
	struct live_rows rows[LIVE_BY_NR];
	struct live_rows host; /* of live_proc__refresh_host(); n is 0 without it */
	enum live_by by;       /* grouping of the shown rows */
	struct live_judgement judgements[LIVE_DEVICES];
	size_t njudgements;
	struct live_mark marks[LIVE_MARKS]; /* the last ones: mark i is at i % LIVE_MARKS */
	size_t nmarks, marks_said;	    /* all of them; those that a message has named */
};

/* Borrows dict and facts, which must outlive the process unless `owns` is set. NULL: no memory. */
struct live_proc *live_proc__new(pid_t pid, struct dict *dict, struct facts *facts);
void live_proc__free(struct live_proc *p); /* NULL is fine */
/* Sets the time (ns) and the counts of events and losses. */
void live_proc__set_time(struct live_proc *p, uint64_t now, uint64_t events, uint64_t lost);
/* Updates rates since the last call, and the RSS. Call at most a few times per second. */
void live_proc__rates(struct live_proc *p);
/* The last step of a device (an index in the model). False: no step ended recently, so that the
 * current figures tell more than those of a step. */
bool live_proc__last_step(const struct live_proc *p, size_t device, struct model_step *ret);
/* Restarts growth of the process and its rows, from the next step end. */
void live_proc__reset(struct live_proc *p);
/* Judges the growth of a device (an index in the model), and finds what holds its memory from before
 * attach, unless the last judgement is recent.
 * Returns 0 or -ENOMEM. Devices beyond LIVE_DEVICES are not judged. */
int live_proc__judge(struct live_proc *p, size_t device);
/* The last judgement of a device; NULL: none. */
const struct growth_summary *live_proc__growth(const struct live_proc *p, struct device d);
/* The largest holders of a device's memory from before attach, "global history[*], + 2 more". NULL:
 * none is known. */
const char *live_proc__holders(const struct live_proc *p, struct device d);
/* Lets the next judgement of each device be made at once. */
void live_proc__judge_anew(struct live_proc *p);
/* Marks the process as ended. why: "has ended". */
void live_proc__end(struct live_proc *p, const char *why);
/* Selection of the rows; changing it resets their rates. */
struct live_selection {
	struct device device;
	enum frame_choice which_line;
	const struct report_select *select; /* filter; NULL: all rows */
};
void live_proc__select(struct live_proc *p, enum live_by by, const struct live_selection *a);
/* Reads p->host, the rows of the device "host" with the grouping of live_proc__select(), unless
 * that is the device of a. 0 or -ENOMEM. */
int live_proc__refresh_host(struct live_proc *p, const struct live_selection *a,
			    enum live_sort sort);
/* Name and *time (ns) of a mark, counted back from the last one (0). NULL: not kept. Changes of
 * detail do not count. */
const char *live_proc__mark(const struct live_proc *p, size_t back, uint64_t *time);
/* The device's graph and driver-reported use; NULL: the device is not known. */
const struct live_graph *live_proc__graph(const struct live_proc *p, struct device d);
