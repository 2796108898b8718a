/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The process PEER_LOOK, which searches for targets and reads the figures of their allocators, and
 * the memory that the broker shares with it. */
#include <stdbool.h>
#include <sys/types.h>

struct scan_guard;
struct serve_args;

/* The main function of the process. link_fd: its end of the link; guard: shared with the broker.
 * Returns an exit code. */
int scanner__run(const struct serve_args *args, int link_fd, struct scan_guard *guard);

/*
 * Memory that the broker shares with PEER_LOOK: which process PEER_LOOK reads now, and since when.
 * A read of a process may never return, because the process's pages come from a file system that
 * the process itself provides. Then the broker kills PEER_LOOK and starts another one, which leaves
 * this process out. The broker uses the shared values, which PEER_LOOK may forge, for nothing else.
 */

struct subprocess;

struct scan_guard *scan_guard__new(void);    /* NULL: no memory */
void scan_guard__free(struct scan_guard *g); /* NULL is fine */

/* PEER_LOOK calls this before it reads a process, and with pid 0 after the last one; the broker
 * calls it with pid 0 before it starts PEER_LOOK. owner: as in pick.h; "": not known. False: the
 * process is left out, so do not read it. g NULL: always true. */
bool scan_guard__enter(struct scan_guard *g, pid_t pid, const char *owner);

/* In the broker. True if PEER_LOOK has read the same process for 10 s and does not compute, or for
 * 60 s. *pid: the process that it reads; 0: not known. */
bool scan_guard__stuck(struct scan_guard *g, const struct subprocess *look, pid_t *pid);
/* In the broker. Makes later PEER_LOOKs leave out the process that this one reads, for 10
 * minutes. If that happens twice with processes of one owner, they leave out all processes of this
 * owner that no target but --all finds. */
void scan_guard__leave_out(struct scan_guard *g);
