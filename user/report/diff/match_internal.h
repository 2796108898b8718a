/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by match.c (lines) and match_files.c (files). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "report/diff/match.h"

struct map64;

#define MATCH_THINGS 32 /* most actions and most details of a line that are compared */

struct match_line {
	uint32_t file, func, line; /* file, func: string numbers */
	uint32_t mate1;		   /* 1 + its partner; 0: none */
	size_t first[2];	   /* in things: first action, first detail */
	uint8_t n[2], side;
};

struct match_thing {
	uint64_t hash;
	uint32_t line;
	bool detail;
};

struct match {
	const char *cwd[MATCH_SIDES];
	struct hash_seed seed;
	struct map64 *strings;	/* hash -> string number */
	struct map64 *by_place; /* hash of side, file, function and line -> index in lines */
	struct map64 *known;	/* hashes of (line, action) that things already has */
	const char **text;	/* strings by number */
	size_t ntext, room_text;
	struct match_line *lines;
	size_t n, room;
	struct match_thing *things;
	size_t nthings, room_things;
	/* By string number: the old file that a new file is paired with, or the file itself. NULL:
	 * not settled. */
	uint32_t *file_of;
	struct match_files *renamed;
	size_t nrenamed, room_renamed;
};

static inline uint32_t match__file(const struct match *m, const struct match_line *l)
{
	return l->side == MATCH_NEW ? m->file_of[l->file] : l->file;
}

int match__pair_files(struct match *m); /* sets file_of and renamed. 0 or -ENOMEM */
