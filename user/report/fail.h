/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * --fail-if: conditions (cond.h) on recordings, checked while they are reported. A condition that
 * holds is printed on standard error with the responsible lines, and the exit code becomes
 * EXIT_HELD.
 *
 * Figures are those of the report's moment; peaks, counts and step_time are those of the whole
 * recording. Growth is the largest over any window of the condition's length; blocks from before
 * the end of the second step count for no growth. A figure that is unknown, for example after lost
 * events, is an error.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/analysis.h"
#include "model/model.h"
#include "record/cond.h"

struct json;
struct report_fail;

struct report_fail *report_fail__new(void);    /* returns NULL on ENOMEM */
void report_fail__free(struct report_fail *f); /* accepts NULL */
/* Adds a condition. Returns 0, -ENOMEM, or -EINVAL with the reason in *why, for free(). Borrows
 * text. */
int report_fail__add(struct report_fail *f, const char *text, char **why);

/* Begins a recording before it is run: watches what the conditions need. Returns 0 or -ENOMEM. */
int report_fail__begin(struct report_fail *f, struct analysis *a);
/* Callback for analysis__run(); ctx is the struct report_fail. */
int report_fail__event(void *ctx, const struct event *e);
/* Checks all conditions after the run. device: index; -1: each device but the CPU, or the CPU if
 * it is the only one. at: the model's moment. Returns 0 or -ENOMEM. */
int report_fail__judge(struct report_fail *f, struct analysis *a, int device,
		       const struct model_opts *at, enum frame_choice which_line);

/* Results so far, in the order of recordings. */
size_t report_fail__count(const struct report_fail *f);
/* Writes "failed" into the open object: results from index from on. */
void report_fail__json(struct json *j, const struct report_fail *f, size_t from);
/* Prints conditions that hold or cannot be checked on standard error. Returns the worse of
 * status and the result. Recordings without events are no failure if another one has events. */
int report_fail__say(const struct report_fail *f, int status);
