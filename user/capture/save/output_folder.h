/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * An output: a file in the folder of a recording of several processes, named after rank or program.
 * The folder's index lists the file from its first event on.
 */
struct event;
struct folder_entry;
struct output;

/* The constructor, for recording.c; process has the common members. */
struct output *output_folder__new(const struct output *process);

/* The functions below keep a process's entry in the index of o->r->folder; output_rolling.c uses
 * them, too. */
/* Fills e and makes a path that does not exist yet. The caller frees it. NULL: out of memory. */
char *output_folder__begin(const struct output *o, const char *kind, const char *suffix,
			   struct folder_entry *e);
/* Adds or replaces the entry, with the session's present counters. Returns 0 or a negative error,
 * logged. */
int output_folder__add(const struct output *o, struct folder_entry *e);
/* Adds the complete entry. reason: the fact stop_reason, or NULL. Returns 0 or a negative error,
 * logged. */
int output_folder__finish(const struct output *o, struct folder_entry *e, const char *reason);
