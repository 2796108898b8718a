/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_SECCOMP_H
#define MT_PROCESS_SECCOMP_H
/*
 * From Linux 6.11 on a function with a return probe returns by a system call of the kernel's own,
 * uretprobe. A process with a seccomp filter that does not know it, as containers have them, is
 * ended for that, unless the kernel exempts the call from filters, which it has done later.
 */
#include <stdbool.h>

#include "process/proc.h"

/*
 * Whether this kernel lets filters decide about it: tried once, by a child that is made for it. The
 * environment variable MEMTRACE_FILTERED_RETURNS makes every kernel count as one that does, for
 * tests.
 */
bool seccomp__filters_returns(void);
/* 0: no thread has a filter, 1: strict, 2: with a filter, as /proc/PID/task/TID/status has it; the
 * highest of all threads. -errno. */
int seccomp__mode(const struct proc *p);
/* Does this kernel (uname()'s release) keep a shadow stack in step with a return probe? From
 * Linux 6.11 on. */
bool seccomp__keeps_shadow_stack(const char *release);
/* May a return probe go into this process? Ask each time: a filter may come late. */
bool seccomp__allows_returns(const struct proc *p);

#endif
