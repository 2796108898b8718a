/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_NEAREST_H
#define MT_LIB_NEAREST_H
/* Which of the words that there are was probably meant: for "did you mean report?". */

struct nearest {
	const char *word; /* what was typed */
	const char *best; /* NULL: nothing is near enough */
	unsigned distance;
};

/*
 * Takes the candidate if it is nearer than all before it, and near enough: one edit for three
 * characters, three at most, or the word is its beginning, of at least three. Borrows both.
 */
void nearest__try(struct nearest *n, const char *candidate);
/* Edits (a character added, removed, changed, or swapped with the next) that make one word the
 * other; words over 63 bytes: UINT_MAX. */
unsigned nearest__distance(const char *a, const char *b);

#endif
