/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TOOLS_INSIDE_H
#define MT_TOOLS_INSIDE_H
/*
 * The parts of the library that runs the programs inside a recorder's child. All but the
 * constructor runs in a signal's handler, in the middle of anything: no locks of others, no heap,
 * nothing that could come to a breakpoint itself.
 */
#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

#include "memtrace.h"
#include "inside_shared.h"

struct pt_regs;

#define RETURNS_MAX 64 /* calls under way on a thread whose return is waited for */

/* A call whose return address is ours instead of its own. */
struct returning {
	__u64 sp;  /* where it lies */
	__u64 ret; /* its own */
	const struct mt_inside_site *site;
};

/* What is kept of a thread, whatever runs on it. */
struct thread {
	int tid;
	int depth;
	struct returning at[RETURNS_MAX];
};

/* What is shared with the recorder; NULL: nobody records us. */
extern struct mt_inside *shared;
/* Of this process alone: a forked one finds 0, whatever way it was made. NULL before there is a
 * recorder. */
extern volatile __u32 *recorded;

/* programs.c: the current thread's; NULL: no memory. */
struct thread *programs__thread(void);
/* Runs one, with the registers of the place that it belongs to. */
void programs__run(enum mt_inside_program which, __u64 cookie, struct pt_regs *regs);
/* Maps what the recorder shares in the place of the programs' variables, and says where each is. 0
 * or -errno. */
int programs__share(int fd, struct mt_inside_variables *v);
void programs__set_returns(__u64 trampoline);

/* ring.c: maps the ring. 0 or -errno. */
int ring__map(int fd, __u64 bytes);
/* Room for a record, waited for. In a capture that is over, or whose recorder is gone, room that
 * nobody reads. */
void *ring__reserve(__u64 size);
void ring__commit(void *rec, bool discard);
/* The reader comes at once. */
void ring__wake(void);
/* Waits until all has been read, but no longer than this. */
void ring__wait_for_reader(unsigned int ms);
/* The words of a program that had the process before, which will not be finished. */
void ring__abandon(void);
bool recorder_is_there(void);

/* signals.c: SIGTRAP is ours. 0 or -errno. */
int signals__take(void (*handler)(int, void *, void *));
/* One that is none of ours: as the program wants it. */
void signals__theirs(int number, void *info, void *context);

#endif
