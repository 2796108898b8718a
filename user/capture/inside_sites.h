/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_INSIDE_SITES_H
#define MT_CAPTURE_INSIDE_SITES_H
/*
 * Breakpoints in a child of ours that records itself: the one thing that is ever written into a process. Needs the right to
 * write to /proc/PID/mem, as a parent has it.
 */
#include "capture/inside_memory.h"

/*
 * The child's memory as it is now, for close(): that of the program that it runs, and of none that it runs later. Whatever is
 * known of the child has to be known after this. -errno: it cannot be written to.
 */
int inside_sites__open(const struct inside_memory *m);
/*
 * A program at an address of the child's, which others may be at already. 0; -EBUSY: a breakpoint of somebody else's is there, as the
 * kernel's are while it probes all processes; -ENOTSUP: the instruction there cannot be made up for;
 * -ENOSPC: there are enough; -ERANGE: it refers to what is too far from the copy; -errno of reading or writing.
 */
int inside_sites__add(struct inside_memory *m, int fd, uint64_t addr, enum mt_inside_program program, uint64_t cookie);
/* And out of there again. */
void inside_sites__remove(struct inside_memory *m, int fd, uint64_t addr, enum mt_inside_program program, uint64_t cookie);
/* Takes all of them out, but for the dynamic linker's. The process may have ended. How many were not there any more. */
size_t inside_sites__clear(struct inside_memory *m);
/*
 * How the instruction at addr (n bytes of it and what follows) is made up for: all of *s but addr and at. slot: where a copy of
 * it would run; copy, MT_INSIDE_SLOT bytes: what is to be there, if s->way is MT_INSIDE_SLOT_RUN. Returns as inside_sites__add().
 */
int inside_sites__plan(const uint8_t *code, size_t n, uint64_t addr, uint64_t slot, struct mt_inside_site *s, uint8_t *copy);
/* Adds to a 16-bit word there, as a USDT's semaphore. 0 or -errno. */
int inside_sites__add_to(int fd, uint64_t addr, int n);

#endif
