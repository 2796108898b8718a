/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LEAKS_RANKS_H
#define MT_LEAKS_RANKS_H
/*
 * What grows in several recordings: a line's verdict in each of them, and in which it grows. A
 * recording is judged when it is taken in and can be freed then.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "leaks/leaks.h"
#include "model/growth.h"
#include "report/ranks.h"

struct analysis;
struct json;
struct leaks_ranks;

struct leaks_device {	    /* one of a recording */
	uint32_t recording; /* index in ranks */
	char name[32];	    /* "cuda:2" */
	char kind[32];	    /* "cuda": lines are the same on all of a kind */
	struct growth of;   /* what was judged, without its lines and values */
	uint64_t duration;  /* ns, of the recording */
	bool census;	    /* the program's objects were read */
	bool pool, others;  /* leaks__pool_grows(), leaks__others_grow() */
	size_t counted;	    /* lines that count */
};

struct leaks_cell { /* a line on a device */
	uint32_t device, line;
	bool counts;
	struct growth_line at; /* words and names owned by the set, values too, where --steps asks
				  for them, else NULL */
};

struct leaks_line { /* in any of them */
	const char *kind;
	const char **stack; /* --by stack: root first, NULL-terminated; else NULL */
	uint32_t first, n;  /* of its cells, by recording */
	uint32_t most;	  /* of its cells that count, or of all if none does: the one that grows by
			     most */
	uint32_t counted; /* cells that count */
};

struct leaks_ranks *leaks_ranks__new(
	const struct leaks_opts *o); /* NULL: ENOMEM; *o must outlive it */
void leaks_ranks__free(struct leaks_ranks *r);
/* Takes in what was run with growth__watch(). 0, -ENOMEM; -ENODATA: there is no memory event in it,
 * and it is only counted. */
int leaks_ranks__add(struct leaks_ranks *r, const struct analysis *a);
/* No more of them. 0, -ENOMEM; -ENOENT: none has the device that was asked for. */
int leaks_ranks__finish(struct leaks_ranks *r);

/* After leaks_ranks__finish(). */
const struct leaks_opts *leaks_ranks__opts(const struct leaks_ranks *r);
const struct ranks *leaks_ranks__ranks(const struct leaks_ranks *r);
size_t leaks_ranks__devices(const struct leaks_ranks *r,
			    const struct leaks_device **ret); /* by kind, then by recording */
size_t leaks_ranks__lines(
	const struct leaks_ranks *r,
	const struct leaks_line **ret); /* those that count first, what grows most first */
const struct leaks_cell *leaks_ranks__cells(const struct leaks_ranks *r,
					    const struct leaks_line *l);
/* Does anything grow? */
bool leaks_ranks__found(const struct leaks_ranks *r);

/* 0 or -ENOMEM. Errors of out are the caller's to check. */
int leaks_ranks__text(FILE *out, const struct leaks_ranks *r);
int leaks_ranks__json(struct json *j, const struct leaks_ranks *r);

#endif
