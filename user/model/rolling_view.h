/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads a folder that --rolling wrote: the totals of the whole run, and the part for a given
 * moment. The functions check all input and log their errors, as in analysis.h. */
#include <stdbool.h>
#include <stdio.h>

#include "model/model.h"

struct json;
struct rolling_view;

/* True if the path is a folder that --rolling wrote. */
bool rolling_view__is(const char *path);
/* Returns 0 and *ret, or EXIT_FAILED or EXIT_UNUSABLE, logged. */
int rolling_view__open(const char *path, struct rolling_view **ret);
void rolling_view__free(struct rolling_view *v); /* NULL is fine */

/*
 * Finds the part for a report of a moment and a device ("cuda:0"; NULL: the one with the largest
 * peak). If the part of the peak was removed, it finds the present part with the largest peak.
 * Returns 0 and *ret, owned by v, or as above.
 */
int rolling_view__segment(struct rolling_view *v, const struct model_opts *at, const char *device,
			  const char **ret);
/* Prints the start of a text report: the whole run, and the part that follows. Call
 * rolling_view__segment() first. */
void rolling_view__print(const struct rolling_view *v, FILE *out);
/* Writes the whole run and the part's name as the member "rolling" of the open object. */
void rolling_view__json(const struct rolling_view *v, struct json *j);
