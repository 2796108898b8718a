/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Copies events from one dict to a new, smaller one that holds only the entries these events need.
 * A capture's dict keeps all entries since the start; each part of a rolling recording needs only
 * some.
 */

#include "record/stream.h"

struct dict;
struct renumber;

/* Borrows from, which may grow and must outlive the result. NULL if memory is short. */
struct renumber *renumber__new(const struct dict *from);
void renumber__free(struct renumber *r); /* frees the new dict, too; NULL is fine */
/* The new dict, owned by r; renumber__event() fills it. */
struct dict *renumber__dict(struct renumber *r);
/* Changes the numbers in e to those of the new dict. Numbers that from lacks become 0, "none".
 * Returns 0 or -ENOMEM. */
int renumber__event(struct renumber *r, struct event *e);
