/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Breakpoints in a child of ours that records itself: the only writes into any process. They need
 * the right to write to /proc/PID/mem, which a parent has. */
#include "capture/inside_memory.h"

struct maps;

/*
 * Opens the memory of the child's current program as m->mem, with the rights of the command's user,
 * if the maps have our library. Done once for each program; after an exec the descriptor writes
 * nowhere. 0, also if it is open; -ENOEXEC: the program has no library; -EAGAIN: another program
 * began meanwhile; -errno: it cannot be written to.
 */
int inside_sites__open(struct inside_memory *m);
/* True if these newer maps have that program's library. */
bool inside_sites__in(const struct inside_memory *m, const struct maps *maps);
/*
 * Adds a program at an address of the child, next to others. 0; -EBUSY: it has a breakpoint of
 * others, such as the kernel's probes of all processes; -ENOTSUP: the instruction cannot be
 * emulated; -ENOSPC: the table is full; -ERANGE: the instruction refers to memory too far from its
 * copy; -ENOENT: no such address, or no memory is open; -errno of reading or writing.
 */
int inside_sites__add(struct inside_memory *m, uint64_t addr, enum mt_inside_program program,
		      uint64_t cookie);
/* Removes it again. */
void inside_sites__remove(struct inside_memory *m, uint64_t addr, enum mt_inside_program program,
			  uint64_t cookie);
/* Removes all programs but the dynamic linker's. The process may have ended. Returns how many were
 * not there any more. */
size_t inside_sites__clear(struct inside_memory *m);
/* Adds to the 16-bit word at addr, as for a USDT's semaphore. 0 or -errno. */
int inside_sites__add_to(struct inside_memory *m, uint64_t addr, int n);
