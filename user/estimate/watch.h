/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_WATCH_H
#define MT_ESTIMATE_WATCH_H
/* The processes of a script that is run: what they take of this machine's memory, and their end. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Bytes that a process and those that it has started hold of this machine's memory. Pages that
 * several of them share are counted for each, unless that is more than `enough`: then exactly, as
 * far as the kernel tells.
 */
uint64_t estimate_watch__memory(pid_t pid, uint64_t enough);
/*
 * Ends a process and all that it has started: by SIGTERM, unless it would catch that and go on with
 * something, then by SIGKILL. Processes of ours that `spare` is the PID of are left alone. Returns
 * how many others than pid there were.
 */
unsigned estimate_watch__end(pid_t pid, int pidfd, pid_t spare);

#endif
