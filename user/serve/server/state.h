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
 * The lowest values of a figure over time: each "low" is the smallest of a few consecutive samples.
 * Memory that is allocated and freed within a step is not in the lows, so they show growth. When
 * the array is full, pairs of lows are merged, and each low then covers twice as many samples.
 */

#define LOWS_MAX 64
#define LOWS_SAMPLES 4 /* samples that each low covers at first */

struct lows {
	uint64_t v[LOWS_MAX]; /* finished lows, oldest first */
	size_t n;
	unsigned per_low; /* samples that each low covers; 0: no sample yet */
	unsigned filled;  /* samples in `low` */
	uint64_t low;	  /* smallest value of the low that is not finished */
	double from, to;  /* times of the first sample and of the last one in v, in s */
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
	char uuid[80]; /* its GPU; "": not known */
	unsigned gpu;  /* number of that GPU in the machine, as nvidia-smi counts */
	unsigned has;  /* known figures: bits 1 << enum device_figure */
	uint64_t figures[FIG_NR];
};

struct state_process {
	pid_t pid;
	double started;	 /* start time in s since 1970; PID and start time identify the process */
	char target[64]; /* name of the matching --target; "": none */
	char name[96];	 /* command, "python train.py", valid UTF-8 without control characters */
	char container[80], pod[80]; /* name, or ID */
	/* Names of container and pod, the pod's namespace, and the job in Slurm, LSF or PBS; "":
	 * not known, or none. */
	char container_name[80], pod_name[80], namespace[80], hpc_job[48];
	int64_t rank; /* rank; -1: not known */
	/* Number of the process within its target: the smallest one, from 0, that no other process
	 * of the target has. It does not change while the process lives. */
	unsigned slot;
	double time;   /* time of the last figures, in s since 1970; 0: none yet */
	char why[160]; /* reason why device figures are missing; "": they are not */
	bool has_rss;
	uint64_t rss;
	struct state_device devices[STATE_DEVICES];
	size_t n_devices;
	struct lows lows;  /* lows of the bytes allocated on all devices together, or of RSS */
	bool lows_of_host; /* `lows` has RSS, because no device's memory is known */
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
	uint64_t scanned; /* when the last search for processes ended: CLOCK_MONOTONIC, ns; 0: none */
	/* Totals of all captures that have ended, including deleted ones. */
	uint64_t captures_done, captures_failed, events, lost;
	/* Last counts from the push process: {"pyroscope": {"sent","failed","dropped"}, "otlp":
	 * ...}; NULL: none. */
	json_t *push;
	/* Last document of `ps --device --format json`, which only the web process asks for; NULL:
	 * none. And when it came, in s since 1970. */
	json_t *gpus;
	double gpus_time;
	uint64_t gpu_looks_done, gpu_looks_failed; /* failed: late, refused or not valid */
};

void serve_state__init(struct state *s);
void serve_state__release(struct state *s);
/* Takes a message from the broker that is not an answer. Closes fd (-1: none). *trace: the trace
 * of the message, or NULL. Returns 0, or -EPROTO for an invalid message, which changes nothing. */
int serve_state__take(struct state *s, json_t *msg, int fd, struct state_trace **trace);
/* Time since the last search for processes ended, in s. Negative: the server cannot capture, so it
 * does not search, or its hello message is missing. */
double serve_state__scan_age(const struct state *s);
/* The trace with this ID; NULL: none. */
struct state_trace *serve_state__trace(struct state *s, const char *id);
/* The process with this PID; NULL: none. */
struct state_process *serve_state__process(struct state *s, pid_t pid);
/* Figures of the process's host memory, as its newest running capture with such figures read them
 * last. member: "host_parts", in bytes by host_part__name(), or "host_use", with "live" and "free".
 * NULL: none. */
const json_t *serve_state__host(const struct state *s, pid_t pid, const char *member);
/* The member "state" of the trace's facts, such as "capturing". */
const char *serve_state__trace_state(const struct state_trace *t);
bool serve_state__trace_ended(const struct state_trace *t); /* done or failed */
