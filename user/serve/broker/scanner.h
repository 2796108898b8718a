/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The process that looks for targets and reads their allocators. */

struct scan_guard;
struct serve_args;

/* The main function of the process. link_fd: its end of the link; guard: shared with the broker.
 * Returns an exit code. */
int scanner__run(const struct serve_args *args, int link_fd, struct scan_guard *guard);
