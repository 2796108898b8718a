/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_RECORDING_WINDOWS_H
#define MT_SAVE_RECORDING_WINDOWS_H
/* A capture of which only windows are written (windows.h), one after the other, of one process or
 * of each. */
#include <stdbool.h>
#include <sys/types.h>

struct recording;

/* Do the options ask for windows, or for a folder? */
bool recording_windows__wanted(const struct recording *r);
/* As recording__run(). */
int recording_windows__run(struct recording *r);
/* What the loop calls for, as recording.c has it. */
int recording_windows__attached(struct recording *r);
/* Of another process than the first: its windows, into the first one's folder. 0 or -ENOMEM. */
int recording_windows__child(struct recording *first, struct recording *child);
/* Of any: the end. reason: the fact stop_reason. Something went wrong where it is not EXIT_OK. */
int recording_windows__end(struct recording *r, const char *reason, int err);

#endif
