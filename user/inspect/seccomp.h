/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Return probes and seccomp. From Linux 6.11 on a function with a return probe returns through the
 * system call uretprobe, on x86-64 only. A seccomp filter that does not allow it, as in containers,
 * kills the process. Later kernels exempt the call from filters.
 */
#include <stdbool.h>

#include "inspect/proc.h"

/* Whether this kernel applies filters to uretprobe, tried once in a child process. For tests, the
 * environment variable MEMTRACE_FILTERED_RETURNS makes the answer true. */
bool seccomp__filters_returns(void);
/* Highest seccomp mode of all threads (/proc/PID/task/TID/status): 0 none, 1 strict, 2 filter.
 * -errno. */
int seccomp__mode(const struct proc *p);
/* Whether the kernel with this uname() release keeps shadow stacks valid with return probes: from
 * Linux 6.11 on. */
bool seccomp__keeps_shadow_stack(const char *release);
/* Whether a return probe is safe in this process. Ask each time, since a filter may be set late. */
bool seccomp__allows_returns(const struct proc *p);
