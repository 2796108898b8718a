/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The library that runs the programs of bpf/ in the recorder's child. All code but the constructor
 * runs in a signal handler: it uses no heap, no locks of other code, and no function that may have
 * a breakpoint.
 */
#include <stdbool.h>
#include <stddef.h>

#include "memtrace.h"
#include "inside_shared.h"

struct pt_regs;

#define RETURNS_MAX 64 /* nested calls per thread whose return runs a program */

/* A call that returns to the trampoline instead of its caller. */
struct returning {
	__u64 sp;  /* address of the return address */
	__u64 ret; /* the caller's return address */
	const struct mt_inside_site *site;
};

/* State of a thread, common to all programs. */
struct thread {
	int tid;
	int depth;
	struct returning at[RETURNS_MAX];
};

/* Memory shared with the recorder; NULL: this process is not recorded. */
extern struct mt_inside *shared;
/*
 * 1: this process is recorded. A forked child reads 0 (MADV_WIPEONFORK). NULL without a recorder.
 */
extern volatile __u32 *recorded;
/*
 * True in a child that shares this process's memory (vfork(), clone() with CLONE_VM). Such a child
 * also shares the state of the thread that made it, and must not write any of this library's state.
 * It reads 1 at `recorded`.
 */
bool process__shares_memory(void);

/* programs.c: the current thread's state; NULL: no memory. */
struct thread *programs__thread(void);
/* Runs a program with the registers at its site. */
void programs__run(enum mt_inside_program which, __u64 cookie, struct pt_regs *regs);
/* Counts a hit for which no program runs as lost, unless the capture has ended. */
void programs__count_lost(enum mt_inside_program which);
/* Maps the recorder's memory over the programs' variables and sets *v to their offsets. 0 or
 * -errno. */
int programs__share(int fd, struct mt_inside_variables *v);
void programs__set_returns(__u64 trampoline);

/* ring.c: maps the ring. 0 or -errno. */
int ring__map(int fd, __u64 bytes);
/* Reserves space for a record and waits while the ring is full. If the recorder has stopped or
 * ended, returns space of this thread that is not read. NULL: the record is too long. */
void *ring__reserve(__u64 size);
/* Ends a record. Counts it as lost if it will not be read. */
void ring__commit(void *rec, bool discard);
/* Wakes the recorder. */
void ring__wake(void);
/* Waits until the recorder has read everything, at most `ms` milliseconds. */
void ring__wait_for_reader(unsigned int ms);
/* Discards unfinished records of the program that the process ran before exec. */
void ring__abandon(void);
/* False also in a child that shares the memory: it does not wait. */
bool recorder_is_there(void);

/* signals.c: installs the handler of SIGTRAP. 0 or -errno. */
int signals__take(void (*handler)(int, void *, void *));
/* Handles a SIGTRAP that is not from a breakpoint with the program's own action. */
void signals__theirs(int number, void *info, void *context);
