/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_RECORDING_ROLLING_H
#define MT_SAVE_RECORDING_ROLLING_H
/* --rolling: a capture of any length in a folder of a given size; what is oldest goes. */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

struct recording;

struct ring_args {
	uint64_t size;	  /* 0: not wanted */
	uint64_t segment; /* 0: default */
};

extern const struct argp ring_argp; /* its input is a struct ring_args */

/*
 * As recording__run(): opens the process, then the folder, captures to the end and says what is
 * there. A folder that nothing was recorded into is removed.
 */
int recording_rolling__run(struct recording *r);
int recording_rolling__attached(struct recording *r); /* as the loop calls for it */

#endif
