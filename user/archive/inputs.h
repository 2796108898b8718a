/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ARCHIVE_INPUTS_H
#define MT_ARCHIVE_INPUTS_H
/*
 * The recordings that a command line names: files, and folders with an index (folder.h) in their
 * place. FOLDER is all in it, FOLDER#2 the second by time (of segments, which come and go, number
 * 2), FOLDER#NAME the one of that name or file. Speaks to the person.
 */
#include <stddef.h>

enum inputs_of {
	INPUTS_EACH,	  /* any number: a folder's are one after the other */
	INPUTS_PROCESSES, /* of a folder one of each process */
	INPUTS_REPORT, /* the same; a folder that --rolling wrote stays what it is (rolling_view.h) */
	INPUTS_ENDS,   /* two: a folder alone is its first and its last */
	INPUTS_ONE,
};

struct inputs {
	char **paths;
	char **names; /* what the index calls them, fit to be shown; NULL: it was a file */
	size_t n;
};

/* 0 and *ret, for inputs__free(); or an exit code, logged. */
int inputs__expand(char *const *args, size_t n, enum inputs_of what, struct inputs *ret);
/* One more. Takes path and name over; path NULL: there was no memory for it. As inputs__expand(). */
int inputs__add(struct inputs *in, char *path, char *name);
void inputs__free(struct inputs *in);

#endif
