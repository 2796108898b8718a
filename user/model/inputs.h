/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The recordings that a command line names: files, or folders with an index (folder.h). FOLDER
 * means all recordings in it. FOLDER#2 means the second by time, or part number 2. FOLDER#NAME
 * means the one with this name or file. The functions log their errors.
 */
#include <stddef.h>

enum inputs_of {
	INPUTS_EACH,	  /* any number; a folder gives all its recordings */
	INPUTS_PROCESSES, /* any number; a folder must have one recording per process */
	INPUTS_REPORT,	  /* as INPUTS_PROCESSES, but a folder of --rolling is one input */
	INPUTS_ENDS,	  /* two recordings; a folder alone gives its first and last one */
	INPUTS_ONE,
};

struct inputs {
	char **paths;
	char **names; /* names in the index, clean for a terminal; NULL: a file */
	char **hosts; /* machines that the index names, hostile text; NULL: not known */
	size_t n;
	/* Recordings of whole folders that were asked for in vain. */
	struct folder_missing *missing;
	size_t n_missing;
};

/* Resolves the arguments. Returns 0 and *ret, for inputs__free(), or an exit code, logged. */
int inputs__expand(char *const *args, size_t n, enum inputs_of what, struct inputs *ret);
/* Adds an input and takes over path and name. path NULL: its allocation failed. Returns as
 * inputs__expand(). */
int inputs__add(struct inputs *in, char *path, char *name);
void inputs__free(struct inputs *in);
