/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * How processes end, from the kernel (bpf/ending.bpf.c): tracepoints of signals, of the OOM killer
 * and of the end of a process. Nothing runs in the processes themselves.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "ending.h"

struct ending_hooks;

/* The OOM killer's report about one victim. Figures are bytes, UINT64_MAX: not known. Text comes
 * from the kernel's log and is hostile. */
struct oom_report {
	char constraint[16];   /* "cgroup", "machine", "cpuset", "memory policy"; "": not known */
	char cgroup[1024];     /* path of the cgroup whose limit was reached; "": none */
	uint64_t usage, limit; /* memory of that cgroup */
	uint64_t swap_usage, swap_limit; /* its swap; with cgroup v1, memory and swap together */
};

/* Loads and attaches the programs. NULL with errno and *why (static text) on failure. */
struct ending_hooks *ending_hooks__new(const char **why);
void ending_hooks__free(struct ending_hooks *hooks); /* NULL is fine */
/*
 * The map of followed processes (bpf/group_maps.bpf.h). A group of processes
 * (capture/probes/proc_group.h) shares it. Its programs remove processes that end, so attach them
 * after these.
 */
int ending_hooks__processes_fd(const struct ending_hooks *hooks);
/* Adds a process to that map, in a capture without a group. 0 or -errno. */
int ending_hooks__follow(struct ending_hooks *hooks, pid_t pid);
/* Names the tracepoints and figures that this kernel does not have, in words; "": it has all. */
const char *ending_hooks__missing(const struct ending_hooks *hooks);

/* A descriptor that is readable when a process is about to end, or has ended. Owned by hooks. */
int ending_hooks__wake_fd(const struct ending_hooks *hooks);
/* Takes all new records. Calls fn, unless NULL, for each signal that will end a process, which may
 * still exist, and again when the OOM killer's figures are known. 0 or -errno. */
int ending_hooks__consume(struct ending_hooks *hooks,
			  void (*fn)(void *ctx, const struct mt_rec_ending *record), void *ctx);
/* Stores in *ret how the process with this PID ended, at `since` (CLOCK_MONOTONIC, ns) or later.
 * False: that is not known (yet). Each end is returned once. */
bool ending_hooks__take(struct ending_hooks *hooks, pid_t pid, uint64_t since,
			struct mt_rec_ending *ret);
/* Finds what the kernel's log says about the process as the OOM killer's victim, if the log is
 * readable. */
bool ending_hooks__oom_report(struct ending_hooks *hooks, pid_t pid, struct oom_report *ret);
/* Number of records that were lost because the ring was full. */
uint64_t ending_hooks__lost(const struct ending_hooks *hooks);

/* Parses one line of the kernel's log, and adds it to the report in `building`. Returns the
 * victim's PID if the line names it; that line ends the report. Otherwise returns 0. For tests. */
pid_t oom_report__parse_line(const char *line, struct oom_report *building);
