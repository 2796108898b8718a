/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Descendants of a process. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Descendants with PyTorch mapped: stores the first max of them in pids, nearest first. Returns
 * their total number. Examines at most 256 processes and skips unreadable ones. */
size_t descendants__with_torch(pid_t pid, pid_t *pids, size_t max);

/* All current descendants and their parents, nearest first, at most max and 256. Returns their
 * number. */
size_t descendants__descendants(pid_t pid, pid_t *pids, pid_t *parents, size_t max);
/* Whether PyTorch is mapped. False if the maps are not readable. */
bool descendants__has_torch(pid_t pid);
/* Whether a process has this PID, possibly a later one. */
bool descendants__exists(pid_t pid);
/* Size of the address space in pages, which grows with each mapped file; 0: not known. */
uint64_t descendants__pages(pid_t pid);
