/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Breakpoints in a child of ours that records itself: the only writes into any process. They need
 * the right to write to /proc/PID/mem, which a parent has. */
#include "capture/probes/inside_memory.h"

struct maps;
struct site_second; /* inspect/site.h */

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
 * Adds a program at an address of the child, next to others. With a second place, the breakpoint is
 * there if possible: the kernel's probes take the first one, and the hits of a breakpoint in the
 * same place. 0; -EBUSY: it has a breakpoint of others, such as the kernel's probes of all
 * processes; -ENOTSUP: the instruction cannot be emulated; -ENOSPC: the table is full; -ERANGE: the
 * instruction refers to memory too far from its copy; -ENOENT: no such address, or no memory is
 * open; -errno of reading or writing.
 */
int inside_sites__add(struct inside_memory *m, uint64_t addr, struct site_second second,
		      enum mt_inside_program program, uint64_t cookie);
/* Removes it again. */
void inside_sites__remove(struct inside_memory *m, uint64_t addr, struct site_second second,
			  enum mt_inside_program program, uint64_t cookie);
/* Sets breakpoints again that others have removed, such as the kernel when its probe in the same
 * place ended. Returns how many. Their hits since the last look are not recorded. */
size_t inside_sites__renew(struct inside_memory *m);
/* Removes all programs but the dynamic linker's. The process may have ended. */
void inside_sites__clear(struct inside_memory *m);
/* Adds to the 16-bit word at addr, as for a USDT's semaphore. 0 or -errno. */
int inside_sites__add_to(struct inside_memory *m, uint64_t addr, int n);
