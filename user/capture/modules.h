/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_MODULES_H
#define MT_CAPTURE_MODULES_H
/*
 * Calls of modules: EVENT_ENTER and EVENT_LEAVE out of what bpf/modules.bpf.h tells. The kernel
 * side knows objects and classes; which classes are modules' and what the objects are called is
 * found out here.
 */
#include <linux/types.h>
#include <stdint.h>

#include "memtrace.h"

struct modules;
struct decoder;

/* d->modules is there afterwards. 0 or -ENOMEM. */
int modules__open(struct decoder *d);
void modules__free(struct modules *m); /* NULL is fine */

/*
 * A thread has left all but the outermost keep calls; an object is called. Both do nothing without
 * d->modules. 0, -ENOMEM, -EBADMSG or the error of a sink.
 */
int modules__left(struct decoder *d, const struct mt_hdr *h, uint32_t keep);
int modules__entered(struct decoder *d, const struct mt_rec_enter *r);
/*
 * Now and then: looks whether classes are still what they were, and at threads from which nothing
 * comes: one that waits shows by its stack pointer what it has left. now: ns since the start. 0 or
 * the error of a sink.
 */
int modules__pump(struct decoder *d, uint64_t now);
/* Modules may have other names: all are asked for again. */
void modules__forget(struct decoder *d);
/* What has been counted, as facts: counter.modules.<what> */
void modules__set_facts(struct decoder *d, const uint64_t c[MT_CNT_NR]);

#endif
