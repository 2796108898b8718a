/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A process's current environment, from its memory. /proc/PID/environ has the initial environment,
 * which programs may change. It counts until the program has set up its own. */
#include <stddef.h>

struct maps;
struct proc;

/* Value of a variable. 0; -ENOENT: not set; -E2BIG: does not fit; other -errno: the environment is
 * not readable. buf is hostile text, undefined on failure. */
int environ__get(const struct proc *p, const struct maps *m, const char *name, char *buf,
		 size_t size);
