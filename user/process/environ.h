/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_ENVIRON_H
#define MT_PROCESS_ENVIRON_H
/*
 * A process's environment as it is now, in its memory: /proc/PID/environ has only what it began
 * with, and programs set variables before they use what reads them.
 */
#include <stddef.h>

struct maps;
struct proc;

/*
 * The value of a variable: 0; -ENOENT: it is not set; -E2BIG: does not fit; other -errno: the
 * environment cannot be found or read. buf is hostile text, and undefined on failure.
 */
int environ__get(const struct proc *p, const struct maps *m, const char *name, char *buf,
		 size_t size);

#endif
