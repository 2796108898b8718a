/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Finds the word that the user probably meant, for "did you mean report?". */

struct nearest {
	const char *word; /* the typed word */
	const char *best; /* nearest candidate; NULL: none is near enough */
	unsigned distance;
	unsigned begins; /* characters at the beginning that are equal */
};

/* Keeps the candidate if it is nearer than all before it and near enough. That means at most one
 * edit for each three characters and three edits in total, or that the typed word (three characters
 * or more) is its prefix. Of equally near ones, keeps the one that begins like the word. Borrows
 * both. */
void nearest__try(struct nearest *n, const char *candidate);
/* Number of edits between two words: a character is added, removed, changed, or swapped with the
 * next. UINT_MAX: a word has more than 63 bytes. */
unsigned nearest__distance(const char *a, const char *b);
