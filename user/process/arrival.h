/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_ARRIVAL_H
#define MT_PROCESS_ARRIVAL_H
/* PyTorch on its way into a process: whether its code is mapped, and whether any of it can have run
 * yet. */
#include <stdbool.h>

#include "process/proc.h"

/* Is the code of libc10, which every allocation of PyTorch passes through, mapped? */
bool arrival__torch(const struct maps *m);
/* The same, and the file has symbols of c10's: not just its name. A file that cannot be opened is
 * taken for what its name says. */
bool arrival__is_torch(const struct proc *p, const struct maps *m);
/*
 * True when it is sure that no code of PyTorch's libraries has run: none of them is mapped, or one
 * of them still waits for its relocations. The dynamic linker maps all libraries that one dlopen()
 * needs, then relocates all of them, then calls their constructors (glibc elf/dl-open.c, musl
 * ldso/dynlink.c); a library is relocated once the first pointer in its .init_array points into
 * itself.
 */
bool arrival__untouched(const struct proc *p, const struct maps *m);

#endif
