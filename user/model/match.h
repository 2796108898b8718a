/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_MATCH_H
#define MT_MODEL_MATCH_H
/*
 * Which line of one version of a program is which line of another: what two recordings are compared
 * by. Fed with the lines of both and with what each of them does, it pairs files (the same path, or
 * the one that ends alike), functions (the same name in paired files) and then the lines of a
 * function, in order, so that most speaks for it: what they do, how much of it, and that they have
 * moved by as much as the line before. Lines that do nothing alike are never paired, nor are files
 * where two would do equally well.
 */
#include <stddef.h>
#include <stdint.h>

enum match_side { MATCH_OLD, MATCH_NEW, MATCH_SIDES };

struct match;

/* cwd: the programs' folders, below which equal paths mean the same file; NULL: not known. Strings
 * must outlive it. NULL on ENOMEM. */
struct match *match__new(const char *old_cwd, const char *new_cwd);
void match__free(struct match *m); /* NULL is fine */
/*
 * A line, and one of the things that it does; any number of times. does: what it has to have in
 * common with a line to be the same (a call of that function, an allocation in that phase); detail:
 * what only makes it likelier (its size), 0: none. 0 or -ENOMEM.
 */
int match__add(struct match *m, enum match_side side, const char *file, const char *func,
	       uint32_t line, uint64_t does, uint64_t detail);
uint64_t match__hash(const struct match *m, const char *s, uint64_t more); /* for does and detail */
/* After all were added: finds the pairs. 0 or -ENOMEM. */
int match__settle(struct match *m);
/* Of a line that was added, after match__settle(): alike for two lines that are a pair, and for no
 * others. 0: never added. */
uint32_t match__number(const struct match *m, enum match_side side, const char *file,
		       const char *func, uint32_t line);

/* Files that are a pair under different paths, in order of their old names. */
struct match_files {
	const char *old, *new;
};
size_t match__renamed(const struct match *m, const struct match_files **ret);

#endif
