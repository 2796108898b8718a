/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_STATE_H
#define MT_SERVE_STATE_H
/*
 * What the broker has told, as the processes that speak to the outside know it: targets, their
 * processes with the last figures, traces. Nothing here reads anything but messages; all of it is
 * bounded.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "serve/link.h"

#define STATE_PROCESSES 256
#define STATE_DEVICES 16
#define STATE_ID LINK_ID
#define STATE_TRACES 1024
#define STATE_HISTORY 900 /* samples that are kept of each process, the last ones */

/* A figure that is not known is not there: `has` has no bit for it. */
enum state_figure {
	FIG_ALLOCATED,
	FIG_RESERVED,
	FIG_PEAK_ALLOCATED,
	FIG_TOTAL,
	FIG_USED,
	FIG_OOMS,
	FIG_RETRIES,
	FIG_FREE,
	FIG_NR
};

struct state_device {
	char name[16]; /* "cuda:0" */
	unsigned has;  /* 1 << enum state_figure */
	uint64_t figures[FIG_NR];
};

struct state_process {
	pid_t pid;
	double started;	 /* s since 1970; with pid, who it is */
	char target[64]; /* of which --target it is; "" none */
	char name[96];	 /* "python train.py", valid UTF-8 without control characters */
	char container[80], pod[80];
	int64_t rank;  /* -1: not known */
	unsigned slot; /* the smallest number, from 0, that no other process of its target has; kept
			  as long as it lives */
	double time;   /* of the last figures, s since 1970; 0: none yet */
	char why[160]; /* why there are no figures of devices; "" */
	bool has_rss;
	uint64_t rss;
	struct state_device devices[STATE_DEVICES];
	size_t n_devices;
	/* The past, for charts: samples as text, {"time","rss"?,"devices"?}, oldest first; a ring. */
	char *history[STATE_HISTORY];
	size_t history_first, n_history;
};

struct state_trace {
	char id[STATE_ID];
	json_t *facts;	 /* the "trace" object as the broker told it last; see docs/SERVE.md */
	json_t *summary; /* what POST /api/trace/memory answers, of older ones without
			    "layer_stats"; NULL until it is done, or the broker told no report */
	json_t *report;	 /* of the report target, capture, devices, categories, phases, the first 50
			    rows; NULL likewise */
};

struct state {
	json_t *hello;	 /* NULL: the broker has not spoken yet */
	json_t *targets; /* array, as told last */
	struct state_process *processes[STATE_PROCESSES];
	size_t n_processes;
	uint64_t processes_left_out;		  /* for which the broker has no place */
	struct state_trace *traces[STATE_TRACES]; /* oldest first */
	size_t n_traces;
	uint64_t samples, messages; /* counts */
	/* Of all captures of this server that have ended, those deleted since included. */
	uint64_t captures_done, captures_failed, events, lost;
	json_t *push; /* what the process that pushes has told last: {"pyroscope":
			 {"sent","failed","dropped"}, "otlp": ...}; NULL: nothing */
};

void serve_state__init(struct state *s);
void serve_state__release(struct state *s);
/*
 * Takes a message of the broker's that is no answer. fd (-1: none): closed. *trace: the trace that
 * it spoke of, or NULL. 0; -EPROTO: not one, and nothing has changed.
 */
int serve_state__take(struct state *s, json_t *msg, int fd, struct state_trace **trace);
struct state_trace *serve_state__trace(struct state *s, const char *id); /* NULL: none */
struct state_process *serve_state__process(struct state *s, pid_t pid);	 /* NULL: none */
const char *serve_state__trace_state(const struct state_trace *t);	 /* "capturing" */
bool serve_state__trace_ended(const struct state_trace *t);		 /* done, or failed */

#endif
