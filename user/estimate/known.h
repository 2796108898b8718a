/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_KNOWN_H
#define MT_ESTIMATE_KNOWN_H
/*
 * What a dry run could not know, as its log has it (docs/DRYRUN.md): functions that nobody answers
 * for, figures that were assumed, and what the script did with values that were not computed. The
 * log is the script's to write to: nothing in it is trusted.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum known_kind {
	KNOWN_UNMODELLED, /* name: a function */
	KNOWN_ASSUMED,	  /* name, and count has the bytes or number that was taken; or it was at a
			     place: file, line, value */
	KNOWN_SHAPE,	  /* sizes of what an operation returns depend on values: a lower bound */
	KNOWN_VALUE,	  /* the host read a value that no kernel has computed */
	KNOWN_NR,
};
const char *known_kind__name(enum known_kind k); /* "unmodelled", "assumed", "shape", "value" */

struct known {
	enum known_kind kind;
	char *name;	   /* as it stands in the log */
	uint64_t count;	   /* KNOWN_SHAPE, KNOWN_VALUE: how often, at least */
	char *file, *func; /* NULL: not known */
	uint32_t line;
	char *value; /* KNOWN_ASSUMED at a place: what was taken; NULL: the name says it */
};

struct known_list {
	struct known *all; /* by kind, the most frequent first */
	size_t n;
	size_t kinds[KNOWN_NR]; /* of each */
	bool more;		/* than could be kept */
};

/* An empty list where there is no such file. 0, -ENOMEM, or -errno. */
int known__read(const char *path, struct known_list *ret);
void known__free(struct known_list *l);

#endif
