/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Lets a recorder write its last file when the machine is out of memory or of disk: its own pages
 * stay in memory, the OOM killer spares it, and room on the disk is set aside for the file.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct reserve;

/* Sets room aside in the folder of path (a file to be written, or a folder), in a file without a
 * name that ends with this process. NULL with errno: ENOSPC, or EOPNOTSUPP if the file system
 * cannot set room aside. */
struct reserve *reserve__new(const char *path, uint64_t bytes);
/* Gives the room back, for a file that is written now. */
void reserve__release(struct reserve *reserve);
/* Sets the same room aside again. */
void reserve__renew(struct reserve *reserve);
void reserve__free(struct reserve *reserve); /* NULL is fine */

/*
 * Keeps the pages that this process uses now in memory, and exempts it from the OOM killer, as far
 * as it is permitted: not if its own cgroup has a limit and process pid (0: several) is not in it,
 * since then nothing else could be ended there. Later children inherit the exemption. Logs what is
 * refused as debug messages.
 */
void reserve__protect(pid_t pid);
/* True if this process is in the cgroup whose memory limit counts for process pid. path: gets the
 * path of that cgroup, cut at size. */
bool reserve__shares_limit(pid_t pid, char *path, size_t size);
