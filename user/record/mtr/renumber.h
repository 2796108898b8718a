/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Makes a smaller dict that has only the entries that some events need, and changes the numbers in
 * these events to those of the new dict. A part of a rolling recording needs this: the capture's
 * dict has all entries since the start.
 */

#include "record/stream.h"

struct dict;
struct renumber;

/* from: the dict that has the events' present numbers. It is borrowed, may grow, and must outlive
 * the result. Returns NULL if memory is short. */
struct renumber *renumber__new(const struct dict *from);
void renumber__free(struct renumber *r); /* frees the new dict, too; NULL is fine */
/* The new dict, owned by r; renumber__event() fills it. */
struct dict *renumber__dict(struct renumber *r);
/* Changes the numbers in e to those of the new dict. A number that the old dict does not have
 * becomes 0, "none". Returns 0 or -ENOMEM. */
int renumber__event(struct renumber *r, struct event *e);
