/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_RECORDING_FOLDER_H
#define MT_SAVE_RECORDING_FOLDER_H
/*
 * A recording of several processes in a folder (folder.h): a file each, called after its rank or
 * its program, and what is in it in the folder's index, from its first event on.
 */
#include <stdbool.h>
#include <stdint.h>

struct event;
struct folder;
struct folder_entry;
struct recording;

/* Is the output a folder, of several processes? */
bool recording_folder__wanted(const struct recording *r);
/* Opens or makes it: before anything is attached to. An exit code, logged. */
int recording_folder__open(struct recording *r);
/* A process that is attached to: the name of its file is r->child_path from now on. 0 or -errno,
 * logged. */
int recording_folder__begin(struct recording *r);
/* The file is there: so is its entry in the index. 0 or -errno, logged. */
int recording_folder__note(struct recording *r);
/* Each event of it, for what the index says of its devices. */
void recording_folder__event(struct recording *r, const struct event *e);
/* It is written: the entry is whole. An exit code, logged. */
int recording_folder__end(struct recording *r, uint64_t bytes);
/* After all, where there is a folder or an entry; one that nothing was recorded into goes, with a
 * warning unless status says why. */
void recording_folder__close(struct recording *r, int status);

#endif
