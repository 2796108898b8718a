/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Decodes calls of modules: makes EVENT_ENTER and EVENT_LEAVE of the records of bpf/modules.bpf.h.
 * The BPF programs know only addresses of objects and classes. This file finds out which classes
 * are modules, and the objects' names.
 */
#include <stdint.h>

#include "memtrace.h"

struct modules;
struct decoder;

/* Opens d->modules. 0 or -ENOMEM. */
int modules__open(struct decoder *decoder);
void modules__free(struct modules *modules); /* NULL is fine */

/* modules__left(): the record's thread has left all but the outermost `keep` calls.
 * modules__entered(): it has called an object. Both do nothing without d->modules. 0, -ENOMEM,
 * -EBADMSG or the sink's error. */
int modules__left(struct decoder *decoder, const struct mt_hdr *header, uint32_t keep);
int modules__entered(struct decoder *decoder, const struct mt_rec_enter *record);
/* The record's thread called the root module `self`, which is number `module` of the dictionary,
 * through a bound method. No return address shows the end of that call. It ends at the thread's
 * next stack without the module, or at its next such call. Returns as modules__left(). */
int modules__bound(struct decoder *decoder, const struct mt_rec_enter *record, uint64_t self,
		   uint32_t module);
/* Takes the stack of an event of the record's thread (the programs' id; 0: none was read).
 * Attaches the probe on calls through bound methods if the stack shows such a call: in all other
 * programs, that probe would double the price of a module's call. Returns as modules__left(). */
int modules__seen(struct decoder *decoder, const struct mt_hdr *header, uint64_t stack);
/*
 * Checks once a second that the addresses of classes still have the same classes. Also checks
 * threads without records: the stack pointer of a waiting thread shows which calls it has left.
 * now: ns since start. 0, -ENOMEM or the sink's error.
 */
int modules__pump(struct decoder *decoder, uint64_t now);
/* Forgets the names of all modules, since they may have changed. */
void modules__forget(struct decoder *decoder);
/* Sets the counters as facts: counter.modules.<name>. */
void modules__set_facts(struct decoder *decoder, const uint64_t counters[MT_CNT_NR]);
