/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_DESCENDANTS_H
#define MT_PROCESS_DESCENDANTS_H
/* The processes that a process has started. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Which of a process's descendants have PyTorch in them: fills pids with the first max of them,
 * those nearest to it first, and returns how many there are. Those that may not be looked at do not
 * count; no more than 256 are looked at.
 */
size_t descendants__with_torch(pid_t pid, pid_t *pids, size_t max);

/*
 * All its descendants that there are now, those nearest to it first, and who started each: no more
 * than max and 256. Returns how many.
 */
size_t descendants__descendants(pid_t pid, pid_t *pids, pid_t *parents, size_t max);
/* Has it PyTorch mapped? False where it may not be looked at. */
bool descendants__has_torch(pid_t pid);
/* Is there a process with this PID, which may be another one by now? */
bool descendants__exists(pid_t pid);
/* The size of its address space in pages, which grows with each file that is mapped; 0: not known. */
uint64_t descendants__pages(pid_t pid);

#endif
