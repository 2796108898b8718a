/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A process in a live view: its model, device graphs and rows. It knows nothing of captures and
 * terminals: the code that owns the capture passes the time and event counts. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "live/rows/rows.h"
#include "model/growth_summary.h"
#include "model/model.h"
#include "record/stream.h"
#include "report/findings.h"

struct advisor;
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

#define LIVE_HOLDERS 512 /* bytes of live_judgement.holders */

/* The result of live_proc__judge() for a device. */
struct live_judgement {
	struct device device;
	struct growth_summary growth;
	/* Names of the largest holders of memory from before attach; "": none. */
	char holders[LIVE_HOLDERS];
	uint64_t due; /* earliest next judgement, ns since the start of the capture */
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
	bool owns; /* live_proc__free() frees dict and facts, because the capture is over */
	struct model *model;
	void *owner, *view; /* private data of the code that owns the capture, and of the view */
	struct sink *also;  /* gets all events, too; its errors are ignored; NULL: none */

	uint64_t now;			 /* current time, ns since the start of the capture */
	uint64_t events, lost;		 /* counts of the capture */
	double rate;			 /* events per second between the last two refreshes */
	uint64_t rate_events, rate_time; /* events and now at the last refresh */
	uint64_t rss;			 /* resident bytes at the last refresh; 0: not known */
	uint64_t rss_first, rss_since;	 /* the first of these that was known, and its time */
	bool ended;
	char end[96]; /* reason of the end, "has ended" */

	struct live_graph graphs[LIVE_DEVICES];
	size_t ngraphs, last_graph; /* last_graph: index of the one that was found last */

	/* An optimizer step ended, so growth is measured between ends of steps. False: between
	 * refreshes. */
	bool by_steps;
	uint64_t ends, base_end; /* number of steps that ended; number at which growth begins */
	/* Growth of the main device since base_end, in bytes. */
	bool growth_known;
	int64_t growth;
	struct live_rows rows[LIVE_BY_NR];
	struct live_rows host; /* rows of host memory, from live_proc__refresh_host() */
	enum live_by by;       /* grouping of the shown rows */
	struct live_judgement judgements[LIVE_DEVICES];
	size_t njudgements;
	/* Takes all events for the findings; NULL: live_proc__watch_findings() was not called, or
	 * the process has ended. */
	struct advisor *advisor;
	struct findings findings; /* the last ones; valid if findings_known */
	bool findings_known;
	uint64_t findings_due; /* earliest next time to judge them, ns since the start */
	struct live_mark marks[LIVE_MARKS]; /* the last marks; mark i is at i % LIVE_MARKS */
	size_t nmarks;			    /* number of all marks */
	size_t marks_said; /* number of marks that a message of the screen has named */
};

/* Borrows dict and facts, which must outlive the process unless `owns` is set. NULL: no memory. */
struct live_proc *live_proc__new(pid_t pid, struct dict *dict, struct facts *facts);
void live_proc__free(struct live_proc *p); /* NULL is fine */
/* Sets the time (ns) and the numbers of events and of lost ones so far, and adds the present use of
 * each device to its graph. Without steps, growth is measured from the first call. */
void live_proc__set_time(struct live_proc *p, uint64_t now, uint64_t events, uint64_t lost);
/* Updates rates since the last call, and the RSS. Call at most a few times per second. */
void live_proc__rates(struct live_proc *p);
/* Sets *ret to the last step of a device (an index in the model). Returns false if no step ended
 * recently: then the current figures tell more than those of a step. */
bool live_proc__last_step(const struct live_proc *p, size_t device, struct model_step *ret);
/* Measures the growth of the process and its rows from the next step end on. */
void live_proc__reset(struct live_proc *p);
/* Judges the growth of a device (an index in the model), and finds the holders of its memory from
 * before attach. Does nothing if the last judgement is recent, or for devices beyond LIVE_DEVICES.
 * Returns 0 or -ENOMEM. */
int live_proc__judge(struct live_proc *p, size_t device);
/* The last judgement of a device; NULL: none. */
const struct growth_summary *live_proc__growth(const struct live_proc *p, struct device d);
/* Names of the largest holders of a device's memory from before attach: "global history[*], + 2
 * more". NULL: none is known. */
const char *live_proc__holders(const struct live_proc *p, struct device d);
/* Makes the next live_proc__judge() judge each device, however recent the last judgement is. */
void live_proc__judge_anew(struct live_proc *p);
/* Prepares live_proc__judge_findings(): from now on, each event costs a bit more. Call it before
 * the first event. Returns 0 or -ENOMEM. */
int live_proc__watch_findings(struct live_proc *p);
/* Judges the findings as `diagnose` does. Does nothing if the last ones are recent, or after the
 * end. Returns 0 or -ENOMEM. */
int live_proc__judge_findings(struct live_proc *p);
/* Writes a sentence about growth of resident memory for a view that found no fault, and whose
 * capture has no host memory; "": it grew little, or a fault was found. Returns buf. */
#define LIVE_RSS_TEXT 256
const char *live_proc__say_rss(const struct live_proc *p, char buf[LIVE_RSS_TEXT]);
/* Marks the process as ended, after a last judgement of its findings. why: "has ended". */
void live_proc__end(struct live_proc *p, const char *why);
/* Which rows live_proc__select() selects. Another device, line choice or filter resets their rates.
 */
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
/* Returns the name of a mark, and *time (ns). back: 0 for the last mark, 1 for the one before.
 * NULL: it is not kept. Marks that only note a change of the capture's detail do not count. */
const char *live_proc__mark(const struct live_proc *p, size_t back, uint64_t *time);
/* The device's graph and driver-reported use; NULL: the device is not known. */
const struct live_graph *live_proc__graph(const struct live_proc *p, struct device d);
