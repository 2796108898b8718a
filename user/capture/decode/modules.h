/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Calls of modules: makes EVENT_ENTER and EVENT_LEAVE of the records of bpf/modules.bpf.h. The
 * programs know the addresses of objects and classes; here we find out which classes are modules
 * and what the objects are called.
 */
#include <stdint.h>

#include "memtrace.h"

struct modules;
struct decoder;

/* Opens d->modules. 0 or -ENOMEM. */
int modules__open(struct decoder *d);
void modules__free(struct modules *m); /* NULL is fine */

/* Decode a record: its thread has left all but the outermost keep calls; it has called an object.
 * Both do nothing without d->modules. 0, -ENOMEM, -EBADMSG or the sink's error. */
int modules__left(struct decoder *d, const struct mt_hdr *h, uint32_t keep);
int modules__entered(struct decoder *d, const struct mt_rec_enter *r);
/* The thread called the root module `self`, number `module` of the dictionary, through a bound
 * method. No return address shows the end of that call. It ends at the thread's next stack without
 * the module, or at its next such call. Errors as above. */
int modules__bound(struct decoder *d, const struct mt_rec_enter *r, uint64_t self, uint32_t module);
/* An event of the thread has this stack (the programs' id; 0: none was read). Attaches the probe on
 * calls through bound methods if the stack shows one: for all other programs, that probe would
 * double the price of a module's call. Errors as above. */
int modules__seen(struct decoder *d, const struct mt_hdr *h, uint64_t stack);
/*
 * Checks now and then that classes are still the same. Also checks threads without records: the
 * stack pointer of a waiting thread shows which calls it has left. now: ns since start. 0, -ENOMEM
 * or the sink's error.
 */
int modules__pump(struct decoder *d, uint64_t now);
/* Forgets all names, which may have changed. */
void modules__forget(struct decoder *d);
/* Sets the counters as facts: counter.modules.<name>. */
void modules__set_facts(struct decoder *d, const uint64_t c[MT_CNT_NR]);
