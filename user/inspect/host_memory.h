/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Host memory by line (--host): makes blocks on the device "host" of the records of
 * bpf/host.bpf.h. A block is resident memory of one mapping, and its stack is the system call that
 * mapped it. Readings of the process, at most once a second, say what is resident: the blocks of a
 * reading add up to the RSS of that moment. Readings run on a thread of their own. Between readings
 * the growth of RSS is worked out: it is that of the memory that was mapped since the last one.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"

struct event;
struct facts;
struct host_memory;
struct proc;

/* Functions of the capture that host memory calls. All is borrowed. */
struct host_capture {
	const struct proc *proc;
	void *ctx;
	uint64_t (*now)(void *ctx);		       /* ns since start */
	uint64_t (*since)(void *ctx, uint64_t time);   /* a record's time as ns since start */
	int (*emit)(void *ctx, const struct event *e); /* 0 or the sink's error */
	/* Number of a thread in the dictionary. UINT32_MAX: out of memory. */
	uint32_t (*thread)(void *ctx, uint32_t tid);
	/* Number of a stack; 0: none, and *walk says why. */
	uint32_t (*stack)(void *ctx, uint64_t id, uint8_t *walk);
	/* The stack of compiled code of a record without a Python stack, if there is one. 0 or
	 * -ENOMEM. */
	int (*native)(void *ctx, const struct mt_rec_host *r, uint32_t *stack, uint8_t *walk);
	/* Number of a stack of one frame without a line; 0: no room. UINT32_MAX: out of memory. */
	uint32_t (*named)(void *ctx, const char *file, const char *function);
};

/* inherited: the process was forked, and has its parent's memory. NULL: out of memory. */
struct host_memory *host_memory__new(const struct host_capture *c, bool inherited);
void host_memory__free(struct host_memory *h); /* ends a reading under way; NULL is fine */

/* Decodes a record. Does nothing without h. 0, -ENOMEM, -EBADMSG or the sink's error. */
int host_memory__record(struct host_memory *h, const struct mt_rec_host *r);

/* The others do nothing without h, too. */

/* Begins a reading if it is time to. last: in any case, and none after it. */
void host_memory__begin(struct host_memory *h, bool last);
/* True while a reading is under way. */
bool host_memory__reads(const struct host_memory *h);
/* 1: a reading has ended; bring in all records written until now, then call host_memory__take().
 * 0: none has. */
int host_memory__end(struct host_memory *h);
/* Passes on the reading, or drops it unless whole: all records up to its end came in. 0, -ENOMEM or
 * the sink's error. */
int host_memory__take(struct host_memory *h, bool whole);
/* Works out what grew since the last reading, if it is time to. Call it after records came in. 0,
 * -ENOMEM or the sink's error. */
int host_memory__between(struct host_memory *h);
/* The same now: the process has rss bytes, and all records have come in. */
int host_memory__look(struct host_memory *h, uint64_t rss);
/* Memory of an object or tensor, and what holds it: a number of the dictionary. */
struct host_held {
	uint64_t addr, size;
	uint32_t name;
};
/* Objects are about to be read for host_memory__hold(): memory that is mapped later is not theirs. */
void host_memory__begin_hold(struct host_memory *h);
/*
 * Names blocks after the next reading: those of a range of which objects of one name have at least
 * half of the resident bytes. Takes ownership of v, in any order, which free() can free.
 */
void host_memory__hold(struct host_memory *h, struct host_held *v, size_t n);
/* Sets the facts host_rss, host_worked_out and counter.host.<name>. */
void host_memory__set_facts(const struct host_memory *h, struct facts *f);
