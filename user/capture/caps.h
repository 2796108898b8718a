/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_CAPS_H
#define MT_CAPTURE_CAPS_H
/* Which capabilities this process has, what it lacks, and giving up those that it does not need. */
#include <stdbool.h>

/* What the user lacks to trace others, in words ("CAP_BPF, CAP_PERFMON"), "" when nothing. */
const char *caps__missing(void);
/* What the user lacks to read other processes without tracing them, as dump does, in words. */
const char *caps__missing_to_read(void);
/* Whether files that were replaced on disk can be reached, by /proc/PID/map_files. */
bool caps__reach_replaced(void);
enum {
	CAPS_KILL = 1,	/* sending signals */
	CAPS_FILES = 2, /* making files in another user's folder */
	CAPS_PERF = 4,	/* perf uprobes, on kernels without uprobe.multi */
};
/*
 * Drops every capability that a running capture does not need, except those in keep (CAPS_*), and
 * turns off core files of this process. There is no way back. 0 or -errno.
 */
int caps__limit(unsigned int keep);
/* Drops every capability except those in keep, in a process that captures nothing. 0 or -errno. */
int caps__only(unsigned int keep);

#endif
