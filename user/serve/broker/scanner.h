/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The process that looks for targets and reads their allocators, and the memory that the broker
 * shares with it. */
#include <stdbool.h>
#include <sys/types.h>

struct scan_guard;
struct serve_args;

/* The main function of the process. link_fd: its end of the link; guard: shared with the broker.
 * Returns an exit code. */
int scanner__run(const struct serve_args *args, int link_fd, struct scan_guard *guard);

/*
 * Memory that the broker shares with the process that looks: which process that one reads now, and
 * since when. A read of a process may never return, because its pages come from a file system of
 * its own. Then the broker ends the process that looks, starts another, and has it leave the
 * process out. The broker trusts none of these words for more than that.
 */

struct subprocess;

struct scan_guard *scan_guard__new(void);    /* NULL: no memory */
void scan_guard__free(struct scan_guard *g); /* NULL is fine */

/* In the process that looks, and with pid 0 in the broker before that process starts. Begins to read
 * a process; pid 0: none. owner: as in pick.h, ""
 * unknown. False: the process is left out, so do not read it. g NULL: always true. */
bool scan_guard__enter(struct scan_guard *g, pid_t pid, const char *owner);

/* In the broker. True if this process that looks has waited for 10 s, though not for a CPU. *pid:
 * the process that it reads; 0: not known. */
bool scan_guard__stuck(struct scan_guard *g, const struct subprocess *looks, pid_t *pid);
/* Has later processes that look leave out what this one read: the process, and its owner the second
 * time; each for 10 minutes. */
void scan_guard__leave_out(struct scan_guard *g);
