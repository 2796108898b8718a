/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_OUTPUT_FOLDER_H
#define MT_SAVE_OUTPUT_FOLDER_H
/*
 * A file in the folder of a recording of several processes, named after the process's rank or
 * program. The folder's index lists it from the first event on.
 */
struct event;
struct folder_entry;
struct output;

struct output *output_folder__new(const struct output *process); /* as output__new() */

/* The process's entry in the index of o->r->folder, also for output_rolling.c. */
/* Fills e and makes the path of a file that is not there yet. To be freed; NULL: no memory. */
char *output_folder__begin(const struct output *o, const char *kind, const char *suffix,
			   struct folder_entry *e);
/* The entry goes into the index, with the session's figures of now. 0 or negative, logged. */
int output_folder__add(const struct output *o, struct folder_entry *e);
/* The same, at the end. reason: the fact stop_reason, or NULL. */
int output_folder__finish(const struct output *o, struct folder_entry *e, const char *reason);
/* Takes the totals of the event's device into the entry. */
void output_folder__event(struct folder_entry *f, const struct event *e);

#endif
