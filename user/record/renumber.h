/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_RENUMBER_H
#define MT_RECORD_RENUMBER_H
/*
 * Events of one dict in the numbers of another, which has only what these events speak of. A
 * capture's dict keeps everything that there ever was; a file that is to be read by itself, and is
 * one of many, needs its own part alone.
 */
#include <linux/types.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct renumber;

/* Borrows from, which may grow and must outlive it. NULL on ENOMEM. */
struct renumber *renumber__new(const struct dict *from);
void renumber__free(struct renumber *r); /* the new dict with it; NULL is fine */
/* Where what renumber__event() meets goes to; owned by r. */
struct dict *renumber__dict(struct renumber *r);
/* *e in the numbers of the new dict; what from does not have becomes 0, "none". 0 or -ENOMEM. */
int renumber__event(struct renumber *r, struct event *e);

#endif
