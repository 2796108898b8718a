/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Module calls of threads as enter and leave events. A recording without such events gets them from
 * its allocations: a thread is inside the modules of its last allocation's stack. Calls nest, every
 * enter has a leave, and times of a thread do not decrease.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/dict.h"
#include "record/stream.h"

struct spans;
/* Receives an enter or leave. module and thread are numbers of the dict. */
typedef void spans_put(void *ctx, uint64_t time, bool enter, uint32_t module, uint32_t thread);

/* calls: the recording is known to have EVENT_ENTER events. Borrows d. NULL: no memory. */
struct spans *spans__new(const struct dict *d, bool calls, spans_put *put, void *ctx);
void spans__free(struct spans *s); /* NULL is fine */
/* Handles EVENT_ENTER and EVENT_LEAVE. Returns 0 or -ENOMEM. */
int spans__call(struct spans *s, const struct event *e);
/* For EVENT_ALLOC: puts the calls entered and left since the thread's last allocation. Returns 0
 * or -ENOMEM. */
int spans__alloc(struct spans *s, const struct event *e);
void spans__close(struct spans *s, uint64_t time); /* leaves all modules of all threads */

/* The module's dotted name, or its class for the root module. NULL: no module. */
const char *spans__name(const struct dict *d, uint32_t module);
