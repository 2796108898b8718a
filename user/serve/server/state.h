/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * State of the server as the broker reports it: targets, processes with their last figures, traces.
 * Used by the web and push processes. Built only from the broker's messages. Memory use is bounded.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/openmetrics.h"
#include "serve/server/link.h"

/*
 * The lows of a figure: the lowest of each few samples. Memory that comes and goes within a step is
 * not in them, so that they show growth. With time each covers twice as many samples.
 */

#define LOWS_MAX 64
#define LOWS_SAMPLES 4 /* samples of a low, at first */

struct lows {
	uint64_t v[LOWS_MAX];
	size_t n;
	unsigned each;	 /* samples of a low; 0: LOWS_SAMPLES */
	unsigned filled; /* samples in `low` */
	uint64_t low;
	double from, to; /* time of the first sample, and of the last of v; s */
};

/* Adds a sample, in the order of time. */
void lows__add(struct lows *l, double time, uint64_t value);

#define STATE_PROCESSES 256
#define STATE_DEVICES 16
#define STATE_ID LINK_ID
#define STATE_TRACES 1024
#define STATE_HISTORY 900 /* samples kept per process */

struct state_device {
	char name[16]; /* device, "cuda:0" */
	unsigned has;  /* known figures: bits 1 << enum device_figure */
	uint64_t figures[FIG_NR];
};

struct state_process {
	pid_t pid;
	double started;	 /* start time in s since 1970; PID and start time identify the process */
	char target[64]; /* name of the matching --target; "": none */
	char name[96];	 /* command, "python train.py", valid UTF-8 without control characters */
	char container[80], pod[80];
	int64_t rank; /* rank; -1: not known */
	/* Smallest number, from 0, that no other process of the target has. Constant for the
	 * process's life. */
	unsigned slot;
	double time;   /* time of the last figures, in s since 1970; 0: none yet */
	char why[160]; /* reason why device figures are missing; "" */
	bool has_rss;
	uint64_t rss;
	struct state_device devices[STATE_DEVICES];
	size_t n_devices;
	/* Lows of the memory of all devices, or, without one, of the host. */
	struct lows lows;
	bool lows_of_host;
	/* Ring buffer of samples for charts, oldest first, as JSON text:
	 * {"time","rss"?,"devices"?}. */
	char *history[STATE_HISTORY];
	size_t history_first, n_history;
};

struct state_trace {
	char id[STATE_ID];
	json_t *facts; /* the last "trace" object from the broker; see docs/reference/http.md */
	/* The answer of POST /api/trace/memory; older traces have no "layer_stats". NULL until
	 * done, or if the broker sent no report. */
	json_t *summary;
	/* Parts of the report: target, capture, devices, categories, phases, the first 50 rows,
	 * host memory by part. NULL as for `summary`. */
	json_t *report;
};

struct state {
	json_t *hello;	 /* last hello message; NULL: none yet */
	json_t *targets; /* last array of targets */
	struct state_process *processes[STATE_PROCESSES];
	size_t n_processes;
	uint64_t processes_left_out;		  /* processes beyond the broker's limit */
	struct state_trace *traces[STATE_TRACES]; /* traces, oldest first */
	size_t n_traces;
	uint64_t samples, messages; /* received samples and messages */
	uint64_t scanned; /* when the last search of processes ended: CLOCK_MONOTONIC, ns; 0: none */
	/* Totals of all captures that have ended, including deleted ones. */
	uint64_t captures_done, captures_failed, events, lost;
	/* Last counts from the push process: {"pyroscope": {"sent","failed","dropped"}, "otlp":
	 * ...}; NULL: none. */
	json_t *push;
};

void serve_state__init(struct state *s);
void serve_state__release(struct state *s);
/* Takes a message from the broker that is not an answer. Closes fd (-1: none). *trace: the trace
 * of the message, or NULL. Returns 0, or -EPROTO for an invalid message, which changes nothing. */
int serve_state__take(struct state *s, json_t *msg, int fd, struct state_trace **trace);
/* Age of the last search of processes, in s. Negative: this server searches for none. */
double serve_state__scan_age(const struct state *s);
/* The trace with this ID; NULL: none. */
struct state_trace *serve_state__trace(struct state *s, const char *id);
/* The process with this PID; NULL: none. */
struct state_process *serve_state__process(struct state *s, pid_t pid);
/* The parts of host memory that a running capture of the process has read last, in bytes by
 * host_part__name(); NULL: none. Several captures of one process count as one. */
const json_t *serve_state__host_parts(const struct state *s, pid_t pid);
/* state of the trace, "capturing" */
const char *serve_state__trace_state(const struct state_trace *t);
bool serve_state__trace_ended(const struct state_trace *t); /* done or failed */
