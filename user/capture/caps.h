/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The capabilities of this process: which are missing, and dropping those that are not needed. */
#include <stdbool.h>

/* The capabilities missing to trace others, as text ("CAP_BPF, CAP_PERFMON"); "": none. */
const char *caps__missing(void);
/* Those missing to read other processes without tracing them, as dump does; "": none. */
const char *caps__missing_to_read(void);
/* True if files that were replaced on disk can be opened, through /proc/PID/map_files. */
bool caps__reach_replaced(void);
bool caps__sys_admin(void); /* CAP_SYS_ADMIN */
enum {
	CAPS_KILL = 1,	/* to send signals */
	CAPS_FILES = 2, /* to make files in another user's folder */
	CAPS_PERF = 4,	/* for perf uprobes, on kernels without uprobe.multi */
};
/* Drops for good all capabilities that a running capture does not need, except those in keep
 * (CAPS_*), and turns off this process's core files. 0 or -errno. */
int caps__limit(unsigned int keep);
/* Drops for good all capabilities except those in keep, in a process without a capture. 0 or
 * -errno. */
int caps__only(unsigned int keep);
