/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_INSIDE_SITES_H
#define MT_CAPTURE_INSIDE_SITES_H
/*
 * Breakpoints in a child of ours that records itself: the one thing that is ever written into a
 * process. Needs the right to write to /proc/PID/mem, as a parent has it.
 */
#include "capture/inside_memory.h"

struct maps;

/*
 * Opens the memory of the program that the child runs now, in m->mem: once for each program, with
 * no more rights than the command's user has, and if the maps show our library in it. After an exec
 * it writes nowhere. 0, also where it is open; -ENOEXEC the library is not in it; -EAGAIN another
 * program began meanwhile; -errno: it cannot be written to.
 */
int inside_sites__open(struct inside_memory *m);
/* Is the library of that program in these maps, which are newer? */
bool inside_sites__in(const struct inside_memory *m, const struct maps *maps);
/*
 * A program at an address of the child's, which others may be at already. 0; -EBUSY: a breakpoint
 * of somebody else's is there, as the kernel's are while it probes all processes; -ENOTSUP: the
 * instruction there cannot be made up for; -ENOSPC: there are enough; -ERANGE: it refers to what is
 * too far from the copy; -ENOENT no address, or no memory is open; -errno of reading or writing.
 */
int inside_sites__add(struct inside_memory *m, uint64_t addr, enum mt_inside_program program,
		      uint64_t cookie);
/* And out of there again. */
void inside_sites__remove(struct inside_memory *m, uint64_t addr, enum mt_inside_program program,
			  uint64_t cookie);
/* Takes all of them out, but for the dynamic linker's. The process may have ended. How many were
 * not there any more. */
size_t inside_sites__clear(struct inside_memory *m);
/*
 * How the instruction at addr (n bytes of it and what follows) is made up for: all of *s but addr
 * and at. slot: where a copy of it would run; copy, MT_INSIDE_SLOT bytes: what is to be there, if
 * s->way is MT_INSIDE_SLOT_RUN. Returns as inside_sites__add().
 */
int inside_sites__plan(const uint8_t *code, size_t n, uint64_t addr, uint64_t slot,
		       struct mt_inside_site *s, uint8_t *copy);
/* Adds to a 16-bit word there, as a USDT's semaphore. 0 or -errno. */
int inside_sites__add_to(struct inside_memory *m, uint64_t addr, int n);

#endif
