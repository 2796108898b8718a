/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Compares captures, one row each: peak memory, fragmentation, and the time of a step. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/analysis.h"
#include "model/model.h"
#include "report/text.h"

struct compared {
	/* name: as given, otherwise as recording: the file's name without folder and ".mtr". */
	char *name, *recording;
	char *torch, *device_name, *cwd; /* facts of the recording; NULL: unknown */
	char program[64];		 /* words__program() */
	char *detail;			 /* detail that --cost left out, for people; "": none */
	/* Place of the allocation that made the peak; NULL: unknown. */
	char *file, *func, *module;
	uint32_t line;
	bool dry_run, complete, live; /* live: true if the recorder attached to a running process */
	uint64_t duration, events, lost;
	bool is_window;
	uint64_t window_start; /* ns since the start of the capture */
	struct model_device device;
	uint64_t steps; /* number of steps */
	/* step_time: median of `timed` whole steps, ns; 0, 0: none. */
	uint64_t timed, step_time;
};

struct compare_opts {
	const char *device;   /* device to compare; NULL: the main device of each recording */
	uint64_t skip, steps; /* whole steps to skip, and to measure; steps 0: all */
};

/* Reads a recording to its end. Returns 0 and *ret, for compare__drop(), or an exit code, logged.
 * name NULL: the file's name. */
int compare__read(const char *path, const char *name, const struct compare_opts *o,
		  struct compared *ret);
void compare__drop(struct compared *c);

double compare__fragmentation(const struct compared *c); /* fragmentation at the peak */
/* Fragmentation when the most bytes were reserved but not allocated. */
double compare__most_fragmentation(const struct compared *c);
const char *compare__peak_phase(const struct compared *c);

/* Writes the i-th reason (from 0) why capture `which` is not comparable with the first one or not
 * reliable. False: no more reasons. buf: COMPARE_TEXT bytes. */
#define COMPARE_TEXT 560
bool compare__warning(const struct compared *all, size_t n, size_t which, size_t i, char *buf);
/* Writes new relative to old as "-56.0 %"; "" if old is 0. */
void compare__change(char percent[24], uint64_t old, uint64_t new);

/* Prints a table. All three functions return 0 or -ENOMEM. */
int compare_text__print(FILE *out, const struct compared *all, size_t n,
			const struct report_text_opts *o);
int compare_markdown__print(FILE *out, const struct compared *all, size_t n);
int compare_json__print(FILE *out, const struct compared *all, size_t n);
