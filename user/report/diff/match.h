/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Pairs the lines of two versions of a program, to compare two recordings. The caller adds the
 * lines of both sides and what each line does. Files are paired by equal path, or by the longest
 * common end; functions by name in paired files. The lines of a function are paired in order,
 * by their actions, by the share of equal actions, and by equal shifts. Lines with nothing in
 * common stay unpaired, and so do files with two equally good partners.
 */
#include <stddef.h>
#include <stdint.h>

enum match_side { MATCH_OLD, MATCH_NEW, MATCH_SIDES };

struct match;

/* old_cwd, new_cwd: the programs' folders, below which equal paths mean the same file; NULL: not
 * known. All strings must outlive the result. NULL on ENOMEM. */
struct match *match__new(const char *old_cwd, const char *new_cwd);
void match__free(struct match *m); /* accepts NULL */
/*
 * Adds a line and one action of it. A line may be added many times. does: an action that both lines
 * of a pair must share, such as a call of a function. detail: an action that makes a pair more
 * likely, such as a size; 0: none. 0 or -ENOMEM.
 */
int match__add(struct match *m, enum match_side side, const char *file, const char *func,
	       uint32_t line, uint64_t does, uint64_t detail);
uint64_t match__hash(const struct match *m, const char *s,
		     uint64_t more); /* value for does or detail */
/* Finds the pairs after all lines were added. 0 or -ENOMEM. */
int match__settle(struct match *m);
/* Number of an added line, after match__settle(). The two lines of a pair have the same number. 0:
 * the line was not added. */
uint32_t match__number(const struct match *m, enum match_side side, const char *file,
		       const char *func, uint32_t line);

/* Paired files with different paths, in order of their old paths. */
struct match_files {
	const char *path[MATCH_SIDES];
};
size_t match__renamed(const struct match *m, const struct match_files **ret);
