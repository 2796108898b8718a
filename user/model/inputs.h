/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The recordings that a command line names: files, or folders with an index (folder.h). FOLDER
 * means all recordings in the folder. FOLDER#2 means the second by time, or in a folder of --rolling
 * part number 2. FOLDER#NAME means the one with this name or file. The functions log their errors.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "model/model.h"

enum inputs_of {
	INPUTS_EACH,	  /* any number; a folder gives all its recordings */
	INPUTS_PROCESSES, /* any number; a folder must have one recording per process */
	INPUTS_REPORT,	  /* as INPUTS_PROCESSES, but a folder of --rolling is one input */
	INPUTS_ENDS,	  /* two recordings; a folder alone gives its first and last one */
	INPUTS_ONE,
};

struct inputs {
	char **paths;
	char **names; /* names in the index, clean for a terminal; NULL: the input is a file */
	char **hosts; /* machines that the index names, text not cleaned; NULL: not known */
	size_t n;
	/* Recordings missing in whole folders, because a fetch did not get them. */
	struct folder_missing *missing;
	size_t n_missing;
};

/* Resolves the arguments. Returns 0 and *ret, for inputs__free(), or an exit code, logged. */
int inputs__expand(char *const *args, size_t n, enum inputs_of wanted, struct inputs *ret);
/* Adds an input and takes over path and name. path may be NULL, from an allocation that failed:
 * that is an error. Returns as inputs__expand(). */
int inputs__add(struct inputs *in, char *path, char *name);
void inputs__free(struct inputs *in);

/* ---- folders of --rolling ---- */

/* Reads a folder that --rolling wrote: the totals of the whole run, and the part for a given
 * moment. The functions check all input and log their errors, as in analysis.h. */
struct json;
struct rolling_view;

/* True if the path is a folder that --rolling wrote. */
bool rolling_view__is(const char *path);
/* Returns 0 and *ret, or EXIT_FAILED or EXIT_UNUSABLE, logged. */
int rolling_view__open(const char *path, struct rolling_view **ret);
void rolling_view__free(struct rolling_view *v); /* NULL is fine */

/*
 * Finds the part for a report of a moment and a device ("cuda:0"; NULL: the one with the largest
 * peak). If the part of the peak was deleted, finds the existing part with the largest peak.
 * Returns 0 and *ret, owned by v, or as above.
 */
int rolling_view__segment(struct rolling_view *v, const struct model_opts *at, const char *device,
			  const char **ret);
/* Prints the start of a text report: the totals of the whole run, and which part the report is
 * about. Call rolling_view__segment() first. */
void rolling_view__print(const struct rolling_view *v, FILE *out);
/* Writes the member "rolling": the totals of the whole run and the name of the part. */
void rolling_view__json(const struct rolling_view *v, struct json *j);
