/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The unknowns of a dry run, read from its log (docs/internals/DRYRUN.md): functions that are not
 * modelled, assumed figures, and values that no kernel computed but the script used. The script can
 * write to the log, so the reader checks all input.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum known_kind {
	KNOWN_UNMODELLED, /* function that is not modelled; name: the function */
	/* Assumed figure: name, and its amount in count. Or an assumption at a place: name, file,
	 * line, value. */
	KNOWN_ASSUMED,
	/* Operation whose result's size depends on values, such as nonzero(): its bytes are a lower
	 * bound. */
	KNOWN_DATA_DEPENDENT,
	KNOWN_VALUE, /* value that the script read, although no kernel computed it */
	KNOWN_NR,
};

struct known {
	enum known_kind kind;
	char *name;	/* name as in the log */
	uint64_t count; /* lower bound of occurrences, for KNOWN_DATA_DEPENDENT and KNOWN_VALUE */
	char *file, *func; /* place in the script; NULL: unknown */
	uint32_t line;
	char *value; /* assumed value of KNOWN_ASSUMED at a place; NULL: the name implies it */
};

struct known_list {
	struct known *all; /* entries by kind, most frequent first */
	size_t n, room;
	size_t kinds[KNOWN_NR]; /* number of entries of each kind */
	bool more;		/* true if entries were dropped at a bound */
};

/* Reads the log at path. A missing file gives an empty list. Returns 0, -ENOMEM, or
 * another -errno. */
int known__read(const char *path, struct known_list *ret);
void known__free(struct known_list *l);
