/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* An output: --rolling, a folder of segments of at most a given size. The oldest segments are
 * dropped. */
#include <argp.h>
#include <stdint.h>

struct output;

struct rolling_args {
	uint64_t size;	  /* bytes; 0: no --rolling */
	uint64_t segment; /* bytes; 0: default */
};

extern const struct argp rolling_argp; /* its input is a struct rolling_args */

/* The constructor, for recording.c; process has the common members. */
struct output *output_rolling__new(const struct output *process);
