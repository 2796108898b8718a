/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_RECORDING_OOM_H
#define MT_SAVE_RECORDING_OOM_H
/* --on-oom: nothing is written until the target runs out of memory; then a recording of what led up
 * to it. */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

struct recording;

struct oom_args {
	bool on;
	uint64_t window;    /* ns, 0: default */
	unsigned int files; /* 0: default */
};

extern const struct argp oom_argp; /* its input is a struct oom_args */

/*
 * As recording__run(): opens the process, sees whether the files could be made, captures, and writes
 * a file for each out of memory: recording's name for the first, then NAME-2 ... max_size and
 * max_events bound what is kept in memory instead of the file. Exit code, logged; 0 when none came.
 */
int recording_oom__run(struct recording *r);
/* What the loop calls for, as recording.c has it. */
int recording_oom__attached(struct recording *r);
const char *recording_oom__drained(const struct recording *r);

#endif
