/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ARCHIVE_ROLLING_VIEW_H
#define MT_ARCHIVE_ROLLING_VIEW_H
/*
 * A folder that --rolling wrote, to be read: what the whole of it was in numbers, and which of its
 * segments a moment lies in. Nothing that is read is trusted. Speaks to the person, as analysis.h
 * does.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "model/model.h"

struct json;
struct rolling_view;

/* Is it such a folder? */
bool rolling_view__is(const char *path);
/* 0 and *ret, or EXIT_FAILED, EXIT_UNUSABLE (logged). */
int rolling_view__open(const char *path, struct rolling_view **ret);
void rolling_view__free(struct rolling_view *v); /* NULL is fine */

/*
 * The segment that a report of this moment is made of, and of this device ("cuda:0"; NULL: the one
 * with the largest peak). Where the peak's own is gone, that with the highest peak which is there.
 * 0 and *ret, owned by v; or as above.
 */
int rolling_view__segment(struct rolling_view *v, const struct model_opts *at, const char *device,
			  const char **ret);
/* What a text report begins with: the whole run, and of which part the rest speaks. After
 * rolling_view__segment(). */
void rolling_view__print(const struct rolling_view *v, FILE *out);
/* The same as the member "rolling" of an object that is open. */
void rolling_view__json(const struct rolling_view *v, struct json *j);

#endif
