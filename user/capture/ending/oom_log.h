/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The OOM killer's reports in the kernel's log (/dev/kmsg). They name the limit that was reached,
 * on kernels without a probe on the OOM killer. The kernel writes at most ten in five seconds.
 * Source: dump_header(), dump_oom_victim(), __oom_kill_process() and mem_cgroup_print_oom_meminfo()
 * of Linux 5.10 to 6.18.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct oom_log;

/* The report about one victim. Bytes; UINT64_MAX: not known. Text is hostile. */
struct oom_report {
	char constraint[16]; /* "cgroup", "machine", "cpuset", "memory policy"; "": not known */
	char cgroup[1024];   /* path of the cgroup whose limit was reached; "": none */
	uint64_t usage, limit;
	uint64_t swap_usage, swap_limit; /* cgroup v1: of memory and swap together */
};

/* Opens the log at its end. NULL: not readable. */
struct oom_log *oom_log__open(void);
void oom_log__close(struct oom_log *l); /* NULL is fine */
/* Reads on, and finds the report about the process with this PID. False: none so far. Each report
 * is found once. */
bool oom_log__find(struct oom_log *l, pid_t pid, struct oom_report *ret);
/* Parses one line of the log. building: the report that it belongs to. Returns the victim's PID at
 * the line that names it; 0 otherwise. For tests. */
pid_t oom_log__line(const char *line, struct oom_report *building);
