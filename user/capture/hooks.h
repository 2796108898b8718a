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

/* The OOM killer's report about one victim. Bytes; UINT64_MAX: not known. Text is hostile. */
struct oom_report {
	char constraint[16]; /* "cgroup", "machine", "cpuset", "memory policy"; "": not known */
	char cgroup[1024];   /* path of the cgroup whose limit was reached; "": none */
	uint64_t usage, limit;
	uint64_t swap_usage, swap_limit; /* cgroup v1: of memory and swap together */
};

/* Loads and attaches the programs. NULL with errno and *why (static text). */
struct ending_hooks *ending_hooks__new(const char **why);
void ending_hooks__free(struct ending_hooks *h); /* NULL is fine */
/*
 * The map of followed processes (bpf/group_maps.bpf.h). A group of processes
 * (capture/probes/proc_group.h) shares it. Its programs remove processes that end, so attach them
 * after these.
 */
int ending_hooks__processes_fd(const struct ending_hooks *h);
/* Follows a process, in a capture without a group. 0 or -errno. */
int ending_hooks__follow(struct ending_hooks *h, pid_t pid);
/* Names the things that this kernel does not tell, in words; "": it tells all. */
const char *ending_hooks__missing(const struct ending_hooks *h);

/* A descriptor that is readable when a process is about to end, or has ended. Owned by h. */
int ending_hooks__wake_fd(const struct ending_hooks *h);
/* Takes all that happened. fn is called for each signal that will end a process, which may still
 * be there, and again when the OOM killer's figures are known. NULL: no calls. 0 or -errno. */
int ending_hooks__consume(struct ending_hooks *h,
			  void (*fn)(void *ctx, const struct mt_rec_ending *r), void *ctx);
/* How the process ended that had this PID and ended at `since` (CLOCK_MONOTONIC, ns) or later.
 * False: not known (yet). Each end is returned once. */
bool ending_hooks__take(struct ending_hooks *h, pid_t pid, uint64_t since,
			struct mt_rec_ending *ret);
/* Finds what the kernel's log says about the process as the OOM killer's victim, if the log is
 * readable. */
bool ending_hooks__oom_report(struct ending_hooks *h, pid_t pid, struct oom_report *ret);
/* Records without room. */
uint64_t ending_hooks__lost(const struct ending_hooks *h);

/* Parses one line of the kernel's log. building: the report that it belongs to. Returns the
 * victim's PID at the line that names it; 0 otherwise. For tests. */
pid_t oom_report__parse_line(const char *line, struct oom_report *building);
